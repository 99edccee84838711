"""The control API: inspects and controls a running emubus, over JSON.

Reading order: `schema` (shapes), `endpoints` (what all endpoints share), then the files that have a table `ENDPOINTS`,
one for each topic (see `TABLES`); `openapi` describes them. It decides no rule of Service Bus.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import partial
from typing import Final

from aiohttp import web

from ...telemetry.collecting import release
from ..services import Services
from . import (
    administration,
    clients,
    clock,
    conditions,
    entities,
    events,
    faults,
    jobs,
    message_lines,
    messages,
    namespace,
    namespaces,
    refusals,
    report,
    resources,
    roles,
    samples,
    session_state,
    stores,
    story,
    templates,
)
from .endpoints import ROOT, Endpoint, answer, errors_as_json
from .openapi import Tables, document

TABLES: Final[Tables] = {
    ("Administration", "Create, change, delete and export entities and rules."): (
        *administration.ENDPOINTS,
        *resources.ENDPOINTS,
    ),
    ("Messages", "Send, receive, settle and resubmit messages."): messages.ENDPOINTS,
    ("Jobs", "Act on many messages; export and import them."): (*jobs.ENDPOINTS, *message_lines.ENDPOINTS),
    ("Templates", "Messages that are kept to be sent again."): templates.ENDPOINTS,
    ("Entities", "Entities, their partitions, messages and sessions; where a message would go."): (
        *entities.ENDPOINTS,
        *session_state.ENDPOINTS,
    ),
    ("Stores", "Messaging stores and their outages."): stores.ENDPOINTS,
    ("Faults", "Faults of clients' operations; connections and links."): faults.ENDPOINTS,
    ("Conditions", "The service's bad days."): conditions.ENDPOINTS,
    ("Clock", "The broker's clock."): clock.ENDPOINTS,
    ("Story", "What happened to a message."): story.ENDPOINTS,
    ("Refusals", "What clients were refused."): refusals.ENDPOINTS,
    ("Report", "What may explain a failed test."): report.ENDPOINTS,
    ("Clients", "Connections of clients, and sessions that they hold."): clients.ENDPOINTS,
    ("Roles", "Roles of identities, which clients need with --auth rbac."): roles.ENDPOINTS,
    ("Samples", "Figures over time."): samples.ENDPOINTS,
    ("Events", "What changes, as it changes."): events.ENDPOINTS,
    ("Namespace", "The server, reset and snapshots."): namespace.ENDPOINTS,
    ("Namespaces", "The namespaces of the process."): namespaces.ENDPOINTS,
}
ENDPOINTS: Final[tuple[Endpoint, ...]] = tuple(each for table in TABLES.values() for each in table)

__all__ = ["ENDPOINTS", "ROOT", "add_control", "errors_as_json"]


def add_control(app: web.Application, services: Services) -> None:
    """Answer below `ROOT`; `errors_as_json` must be among the application's middlewares."""
    events.add_feed(app, services)
    description = document(TABLES, release())

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
