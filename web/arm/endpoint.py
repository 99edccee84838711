"""How a request of Resource Manager is answered: its row, version, right and body, then the row's function.

Every refusal is a JSON error and a line of the log. Right comes before body: a stranger learns nothing of what exists.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final
from urllib.parse import unquote

import structlog
from aiohttp import hdrs, web

from ...broker.errors import BrokerError
from ...broker.ids import new_tracking_id
from ..errors import excerpt
from ..json_reader import JsonError, read_json
from ..long_work import ASIDE
from ..services import Services
from ..transport.connection import BROKEN
from . import VERSION, refusal, rights
from .calls import ArmCall, ArmRefusal, Operation, Reply, bad, refusal_of_broker
from .groups import VERSIONS
from .loose_json import read_deployment
from .state import State
from .table import matching
from .values import shown

_WITH_BODY: Final = frozenset({hdrs.METH_PUT, hdrs.METH_PATCH, hdrs.METH_POST})
_CHUNK_BYTES: Final = 64 << 10

log = structlog.get_logger(__name__)


class Endpoint:
    """Answers requests for resources."""

    def __init__(self, services: Services, state: State) -> None:
        self._services = services
        self._state = state

    @classmethod
    async def open(cls, services: Services) -> Endpoint:
        return cls(services, await State.open(services.files))

    async def answer(self, request: web.Request) -> web.Response:
        tracking = new_tracking_id()
        try:
            reply = await self._reply(request)
        except (ArmRefusal, BrokerError) as error:
            refused = error if isinstance(error, ArmRefusal) else refusal_of_broker(error)
            client = f"Resource Manager's client at {request.remote}"
            reason = f"{refused.code}: {refused.message}"
            self._services.broker.refusals.refused_because(client, request.path, str(refused.status), reason)
            response = refusal(refused.status, refused.code, refused.message)
            if refused.status == 401:
                response.headers[hdrs.WWW_AUTHENTICATE] = rights.challenge(request, refused.message)
        except web.HTTPException:
            raise
        except BROKEN:
            raise
        except Exception:
            log.exception("request failed", method=request.method, path=request.path)
            response = refusal(500, "InternalServerError", f"Internal error {tracking}; see the server's log.")
        else:
            response = web.Response(status=reply.status) if reply.body is None else web.json_response(reply.body)
            response.set_status(reply.status)
            response.headers.update(reply.headers)
        response.headers["x-ms-request-id"] = tracking
        response.headers["x-ms-correlation-request-id"] = tracking
        response.headers[hdrs.CACHE_CONTROL] = "no-cache"
        return response

    async def _reply(self, request: web.Request) -> Reply:
        parts = [unquote(each) for each in request.rel_url.raw_path.strip("/").split("/")]
        rows = matching(parts)
        version = _version_in(request, rows[0][0] if rows else None)
        found = next(((row, names) for row, names in rows if row.method == request.method), None)
        row, names = (None, dict[str, str]()) if found is None else found
        await rights.require(request, self._services, self._state, row, names)
        if not rows:
            text = f"There is no resource at '{excerpt(request.path)}'; docs/ARM.md lists what this server has."
            raise ArmRefusal(404, "InvalidResourceType", text)
        if row is None:
            known = ", ".join(sorted({row.method for row, _ in rows}))
            text = f"The method {excerpt(request.method)} is not known here; {known} are."
            raise ArmRefusal(405, "MethodNotAllowed", text)
        body: Mapping[str, object] = {}
        if request.method in _WITH_BODY:
            data = await _read(request, row.bytes_max)
            if data.strip():
                body = await request.app[ASIDE].run(partial(_object_in, data, is_loose=row.is_loose), len(data))
        call = ArmCall(self._services, self._state, request, names, version, request.method, matching, body)
        if request.method in (hdrs.METH_GET, hdrs.METH_HEAD):
            return await row.run(call)
        async with self._state.turn:  # a change looks at what is there before it keeps something new
            return await row.run(call)


def _version_in(request: web.Request, row: Operation | None) -> str:
    """The api-version of a request. ArmRefusal without one, and for one that the provider doesn't have."""
    version = request.query.get("api-version", "")
    if row is not None and row.is_public:
        return version
    if not version:
        text = "The api-version query parameter (?api-version=) is required for all requests."
        raise bad(text, "MissingApiVersionParameter")
    if VERSION.fullmatch(version) is None:
        raise bad(
            f"The api-version '{excerpt(version)}' is invalid; it is a day, such as '{VERSIONS[2]}'.",
            "InvalidApiVersionParameter",
        )
    if row is not None and row.is_of_service_bus and version.lower() not in VERSIONS:
        known = ", ".join(VERSIONS)
        text = (
            f"No registered resource provider found for API version '{excerpt(version)}' of Microsoft.ServiceBus. "
            f"The supported api-versions are '{known}'."
        )
        raise bad(text, "NoRegisteredProviderFound")
    return version


async def _read(request: web.Request, bytes_max: int) -> bytes:
    """The body. ArmRefusal (413) if it is longer."""
    data = bytearray()
    if (request.content_length or 0) <= bytes_max:
        async for chunk in request.content.iter_chunked(_CHUNK_BYTES):
            data += chunk
            if len(data) > bytes_max:
                break
        else:
            return bytes(data)
    text = f"The request has more than {bytes_max} bytes; send less."
    raise ArmRefusal(413, "RequestEntityTooLarge", text)


def _object_in(data: bytes, *, is_loose: bool) -> Mapping[str, object]:
    try:
        found = read_deployment(data) if is_loose else read_json(data)
    except JsonError as error:
        text = f"The request content was invalid and could not be deserialized: {error}."
        raise bad(text, "InvalidRequestContent") from None
    if not isinstance(found, Mapping):
        raise bad(f"The request content is {shown(found)}; it must be an object.", "InvalidRequestContent")
    return found
