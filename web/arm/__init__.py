"""Azure Resource Manager for Service Bus: what the Azure CLI, Terraform, Bicep and the management SDKs speak.

Namespaces, their keys, network rules and entities are resources with a path and a JSON body. A request passes
`endpoint` (path, version, rights, body), finds its row in `table`, and ends in the administration that the other faces
use: nothing here decides what is allowed. What Resource Manager alone knows, resource groups and the tags of a
namespace, is in `state`.

Loaded by the first request that is meant for it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from aiohttp import web
from aiohttp.typedefs import Handler, Middleware

from ...broker.ids import new_tracking_id
from ..loading import Loader, LoadError
from ..services import Services

if TYPE_CHECKING:
    from .endpoint import Endpoint

VERSION: Final = re.compile(r"\d{4}-\d\d-\d\d(?:-[a-z]+)?", re.ASCII | re.IGNORECASE)
"""Versions of Resource Manager are days; those of the management API, which has the other paths, are months."""
MONTH: Final = re.compile(r"\d{4}-\d\d", re.ASCII)
_ROOTS: Final = ("subscriptions", "tenants", "providers")
_SUBSCRIPTION: Final = re.compile(
    r"/subscriptions/[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}(?:/.*)?", re.IGNORECASE | re.DOTALL
)
METADATA: Final = "/metadata/endpoints"


def is_arm_path(path: str) -> bool:
    """Whether a path can't be meant for anything else: that of the clouds' endpoints, or below a subscription's id."""
    return path.lower().rstrip("/") == METADATA or _SUBSCRIPTION.fullmatch(path) is not None


def is_for_arm(request: web.BaseRequest) -> bool:
    """Whether a request is meant for Resource Manager.

    A queue may be called `subscriptions`, too: what has a version of the management API is never meant for it.
    """
    path = request.path
    if path[1:2] not in "stpmSTPM":  # nearly all requests
        return False
    version = request.rel_url.query.get("api-version", "")
    if is_arm_path(path):
        return MONTH.fullmatch(version) is None
    return path[1:].split("/", 1)[0].lower() in _ROOTS and VERSION.fullmatch(version) is not None


def arm_first(services: Services) -> Middleware:
    """A middleware that answers what is meant for Resource Manager, which no route can tell by its path."""
    loader = Loader("the ARM endpoint", lambda: _load(services), services.clock)

    @web.middleware
    async def check(request: web.Request, handler: Handler) -> web.StreamResponse:
        if not is_for_arm(request):
            return await handler(request)
        try:
            endpoint = await loader.loaded()
        except LoadError as error:
            return refusal(503, "ServerUnavailable", str(error))
        return await endpoint.answer(request)

    return check


async def _load(services: Services) -> Endpoint:
    from .endpoint import Endpoint  # a server that is asked for messages only does without

    return await Endpoint.open(services)


def refusal(status: int, code: str, message: str) -> web.Response:
    """An error as Resource Manager writes it."""
    headers = {"x-ms-request-id": new_tracking_id()}
    return web.json_response({"error": {"code": code, "message": message}}, status=status, headers=headers)
