"""The control API: inspects and controls a running emubus, over JSON.

Reading order: `schema` (shapes), `endpoints` (what all endpoints share), then the tables: `administration`,
`messages`, `entities`, `stores`, `failures`, `clock`, `namespace`, `operations`; `openapi` describes them. It
decides no rule of Service Bus.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from aiohttp import web

from ..services import Services
from . import administration, clock, entities, messages, namespace, stores
from .acting import jobs
from .endpoints import ROOT, Endpoint, answer, errors_as_json
from .failures import conditions, faults
from .openapi import document
from .operations import clients, samples, story

ENDPOINTS: Final[tuple[Endpoint, ...]] = (
    *administration.ENDPOINTS,
    *messages.ENDPOINTS,
    *jobs.ENDPOINTS,
    *entities.ENDPOINTS,
    *stores.ENDPOINTS,
    *faults.ENDPOINTS,
    *conditions.ENDPOINTS,
    *clock.ENDPOINTS,
    *namespace.ENDPOINTS,
    *story.ENDPOINTS,
    *clients.ENDPOINTS,
    *samples.ENDPOINTS,
)

__all__ = ["ENDPOINTS", "ROOT", "add_control", "errors_as_json"]


def add_control(app: web.Application, services: Services) -> None:
    """Answer below `ROOT`; `errors_as_json` must be among the application's middlewares."""
    try:
        release = version("emubus")
    except PackageNotFoundError:
        release = "0"
    description = document(ENDPOINTS, release)

    async def openapi(_request: web.Request) -> web.Response:
        return answer(description)

    app.router.add_get(f"{ROOT}/openapi.json", openapi, allow_head=False)
    methods: dict[str, set[str]] = {"/openapi.json": {"GET"}}
    for endpoint in ENDPOINTS:
        app.router.add_route(endpoint.method, ROOT + endpoint.path, endpoint.handler(services))
        methods.setdefault(endpoint.path, set()).add(endpoint.method)
    for path, allowed in methods.items():  # listed one by one, because a later part takes all other paths
        app.router.add_route("*", ROOT + path, partial(_not_allowed, allowed))
    for rest in ("", "/{rest:.*}"):
        app.router.add_route("*", ROOT + rest, _nothing_here)


async def _not_allowed(allowed: Collection[str], request: web.Request) -> web.StreamResponse:
    raise web.HTTPMethodNotAllowed(request.method, allowed)


async def _nothing_here(_request: web.Request) -> web.StreamResponse:
    raise web.HTTPNotFound(reason=f"There is no such endpoint; see {ROOT}/openapi.json.")
