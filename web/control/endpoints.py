"""One table row per endpoint, and what all of them share: rights, reading requests, answering, errors.

Knows how a request becomes values that were checked by schemas, and how results and errors become JSON. Does not know
what any endpoint does. The routes and the OpenAPI document are made of the same rows.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from http import HTTPStatus
from typing import Final, TypeVar

import structlog
from aiohttp import hdrs, web

from ...broker.aside import ASIDE_BYTES, Aside
from ...broker.errors import BrokerError, Condition
from ..json_object import JsonObject
from ..json_reader import VALUES_MAX, JsonError, read_json, utf8_text
from ..json_writer import PIECE_BYTES, json_pieces
from ..long_work import ASIDE, Pace
from ..services import Services
from ..transport.authorization import require_manage
from ..transport.connection import BROKEN
from .schema import Invalid, Schema, read, read_text

ROOT: Final = "/emubus/v1"
JSON: Final = "application/json"
PROBLEM: Final = "application/problem+json"
"""The media type of errors (RFC 9457)."""
BODY_BYTES_MAX: Final = 64 << 10
"""Largest JSON request; the longest are lists of names and numbers."""

# A table of its own: here a request that the present state does not allow is a conflict.
_BAD, _LOST, _CONFLICT, _LATER, _FAILED = 400, 404, 409, 503, 500
STATUS: Final[Mapping[Condition, int]] = {
    Condition.ARGUMENT_ERROR: _BAD,
    Condition.ARGUMENT_OUT_OF_RANGE: _BAD,
    Condition.CONNECTION_FORCED: _LATER,
    Condition.CONTAINER_CLOSE: _LATER,
    Condition.DECODE_ERROR: _BAD,
    Condition.DETACH_FORCED: _LATER,  # the entity was emptied while the request waited for messages
    Condition.ENTITY_ALREADY_EXISTS: _CONFLICT,
    Condition.ENTITY_DISABLED: _CONFLICT,
    Condition.FRAMING_ERROR: _BAD,
    Condition.HANDLE_IN_USE: _CONFLICT,
    Condition.ILLEGAL_STATE: _CONFLICT,
    Condition.INTERNAL_ERROR: _FAILED,
    Condition.INVALID_FIELD: _BAD,
    Condition.MESSAGE_LOCK_LOST: _CONFLICT,
    Condition.MESSAGE_NOT_FOUND: _LOST,
    Condition.MESSAGE_SIZE_EXCEEDED: 413,
    Condition.NOT_ALLOWED: _CONFLICT,
    Condition.NOT_FOUND: _LOST,
    Condition.NOT_IMPLEMENTED: _BAD,
    Condition.PRECONDITION_FAILED: _CONFLICT,
    Condition.RESOURCE_LIMIT_EXCEEDED: _CONFLICT,
    Condition.SERVER_BUSY: _LATER,
    Condition.SESSION_CANNOT_BE_LOCKED: _CONFLICT,
    Condition.SESSION_LOCK_LOST: _CONFLICT,
    Condition.SESSION_NOT_FOUND: _LOST,
    Condition.STOLEN: _CONFLICT,
    Condition.TIMEOUT: _LATER,
    Condition.TRANSACTION_ROLLBACK: _CONFLICT,
    Condition.TRANSACTION_TIMEOUT: _CONFLICT,
    Condition.TRANSACTION_UNKNOWN_ID: _LOST,
    Condition.UNATTACHED_HANDLE: _CONFLICT,
    Condition.UNAUTHORIZED_ACCESS: 401,
}
CODES: Final[Mapping[int, str]] = {
    400: "bad-request",
    401: "unauthorized",
    404: "not-found",
    405: "method-not-allowed",
    409: "conflict",
    413: "too-large",
    415: "unsupported-media-type",
    500: "internal-error",
    503: "unavailable",
}
MEANINGS: Final[Mapping[int, str]] = {
    400: "The request is invalid; nothing was done.",
    401: "The token or key does not give the Manage right on the namespace.",
    404: "Not found.",
    405: "The path does not have this method.",
    409: "The present state does not allow it; nothing was done.",
    413: "The body is too large.",
    415: "The body is not application/json.",
    503: "A store is out, the namespace is being restored, or the entity was emptied meanwhile; nothing was done.",
}

T = TypeVar("T")

log = structlog.get_logger(__name__)


class ControlRefusal(Exception):  # noqa: N818 - the answer to a request
    """A request that is answered with an error."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status
        self.message = message


@dataclass(frozen=True, slots=True)
class ControlCall:
    """A request with its values checked and defaults filled in."""

    services: Services
    request: web.Request
    path: JsonObject
    query: JsonObject
    body: JsonObject

    @property
    def aside(self) -> Aside:
        """The thread for work that can't be cut."""
        return self.request.app[ASIDE]


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A row of the table. `run` returns what `result` describes, or a response; `at` describes the `{names}` in `path`.

    `takes` is the media type of a body that `run` reads itself, and `reads` describes it; `body_bytes_max` limits JSON.
    `id` is the operation's name in the document, if it is not that of `run`; `example` is a body, `answers` an answer.
    """

    method: str
    path: str
    summary: str
    run: Callable[[ControlCall], Awaitable[object]]
    result: Schema
    at: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    query: Mapping[str, Schema] = field(default_factory=dict[str, Schema])
    body: Schema | None = None
    status: int = 200
    errors: tuple[int, ...] = ()
    takes: str | None = None
    reads: Schema = field(default_factory=lambda: Schema(type="string", format="binary"))
    gives: str = JSON
    body_bytes_max: int = BODY_BYTES_MAX
    body_values_max: int = VALUES_MAX
    id: str = ""
    example: Mapping[str, object] | None = None
    answers: Mapping[str, object] | None = None

    @property
    def operation_id(self) -> str:
        """The name of the operation in the document: clients have a function of that name, so it never changes."""
        first, *others = (self.id or getattr(self.run, "__name__", "")).split("_")
        return first + "".join(map(str.capitalize, others))

    @property
    def all_errors(self) -> tuple[int, ...]:
        """Every error status that the endpoint may answer with."""
        with_body = (413, 415) if self.body is not None or self.takes is not None else ()
        with_path = (404,) if self.at else ()
        return tuple(sorted({400, 401, 503, *with_body, *with_path, *self.errors}))

    def handler(self, services: Services) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
        async def handle(request: web.Request) -> web.StreamResponse:
            # The right comes first: a stranger learns nothing of what exists, and no body is read for one.
            try:
                require_manage(request, services)
                call = ControlCall(
                    services, request, self._path(request), self._query(request), await self._body(request)
                )
                result = await self.run(call)
                if isinstance(result, web.StreamResponse):
                    return result
                return answer(result, self.status)
            except ControlRefusal as refused:
                return error_answer(refused.status, refused.message)
            except Invalid as invalid:
                return error_answer(400, str(invalid))
            except BrokerError as error:
                return error_answer(STATUS[error.condition], error.description)

        return handle

    def _path(self, request: web.Request) -> JsonObject:
        return JsonObject({name: read_text(request.match_info[name], at, name) for name, at in self.at.items()})

    def _query(self, request: web.Request) -> JsonObject:
        for name in request.query:
            if name not in self.query:
                there_are = f"there are: {', '.join(self.query)}" if self.query else "there are none"
                raise Invalid(f"there is no query parameter '{ascii(name)[1:-1]}' here; {there_are}")
            if len(request.query.getall(name)) > 1:
                raise Invalid(f"the query parameter '{name}' is given more than once")
        found: dict[str, object] = {}
        for name, schema in self.query.items():
            raw = request.query.get(name)
            found[name] = schema.get("default") if raw is None else read_text(raw, schema, name)
        return JsonObject(found)

    async def _body(self, request: web.Request) -> JsonObject:
        if self.takes is not None:
            _require_type(request, self.takes)
            return JsonObject()
        data = await read_body(request, self.body_bytes_max)
        if self.body is None:
            if data:
                raise Invalid("this endpoint takes no body")
            return JsonObject()
        if not data and not self.body.get("required"):
            data = bytearray(b"{}")
        else:
            _require_type(request, JSON)
        return await request.app[ASIDE].run(partial(_values, data, self.body, self.body_values_max), len(data))


def _values(data: bytearray, schema: Schema, values_max: int) -> JsonObject:
    """The values of a body, which is empty behind it. Invalid."""
    try:
        written = utf8_text(data)
        data.clear()  # the callers' frames name it until the text is read, and it may have 16 MiB
        found = read_json(written, values_max)
    except JsonError as error:
        raise Invalid(f"the body can't be read as JSON: {error}") from None
    return JsonObject(read(found, schema, "body"))


def _require_type(request: web.Request, wanted: str) -> None:
    if request.content_type != wanted:
        raise ControlRefusal(415, f"The body is {request.content_type}; it must be {wanted}.")


async def read_body(request: web.Request, bytes_max: int) -> bytearray:
    """The body of a request, held once. ControlRefusal if it is longer."""
    if (request.content_length or 0) > bytes_max:
        raise _too_large(bytes_max)
    data = bytearray()
    async for chunk in request.content.iter_chunked(BODY_BYTES_MAX):
        data += chunk
        if len(data) > bytes_max:
            raise _too_large(bytes_max)
    return data


def _too_large(bytes_max: int) -> ControlRefusal:
    return ControlRefusal(413, f"The body has more than {bytes_max} bytes.")


def answer(result: object, status: int = 200) -> web.Response:
    body = json.dumps(result, separators=(",", ":"), allow_nan=False).encode()
    return web.Response(body=body, status=status, content_type=JSON)


async def answer_of_list(
    call: ControlCall,
    name: str,
    items: Sequence[T],
    shown: Callable[[T], object],
    size: Callable[[T], int],
    more: Mapping[str, object] | None = None,
) -> web.StreamResponse:
    """An answer with a list of what senders have made, however large, and `more`: one item after the other.

    An item of about `size` bytes is made and written aside if it is large, and nothing is held for longer than it takes
    to send it. Items must not be able to fail: the answer may have begun.
    """
    written = _Written(call.request)
    pace = Pace()
    await written.add([f'{{"{name}":['.encode()])
    for number, item in enumerate(items):
        if number:
            await written.add([b","])
        await written.add(await call.aside.run(partial(_pieces, shown, item, size(item)), size(item)))
        await pace.step()
    rest = json.dumps(more or {}, separators=(",", ":")).encode()
    await written.add([b"]," + rest[1:] if more else b"]}"])
    return await written.end()


async def answer_in_pieces(
    request: web.Request, make: Callable[[], Iterable[bytes]], media_type: str = JSON
) -> web.StreamResponse:
    """An answer whose text is made aside."""
    written = _Written(request, media_type)
    await written.add(await request.app[ASIDE].run(lambda: list(make())))
    return await written.end()


def _pieces(shown: Callable[[T], object], item: T, size_bytes: int) -> list[bytes]:
    value = shown(item)
    if size_bytes <= ASIDE_BYTES:
        return [json.dumps(value, separators=(",", ":"), allow_nan=False).encode()]
    return list(json_pieces(value))


class _Written:
    """An answer that is written piece by piece; a short one is sent as a whole, with its length."""

    def __init__(self, request: web.Request, media_type: str = JSON) -> None:
        self._request = request
        self._headers = {hdrs.CONTENT_TYPE: media_type}
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._response: web.StreamResponse | None = None
        self._is_lost = False

    async def add(self, pieces: Iterable[bytes]) -> None:
        """Write pieces, or keep them until there are enough."""
        for piece in pieces:
            self._waiting.append(piece)
            self._waiting_bytes += len(piece)
            if self._waiting_bytes >= PIECE_BYTES:
                await self._flush()

    async def end(self) -> web.StreamResponse:
        if self._response is None:
            return web.Response(body=b"".join(self._waiting), headers=self._headers)
        await self._flush()
        if not self._is_lost:
            with suppress(ConnectionError):
                await self._response.write_eof()
        return self._response

    async def _flush(self) -> None:
        if self._response is None:
            self._response = web.StreamResponse(headers=self._headers)
            await self._response.prepare(self._request)
        data, self._waiting, self._waiting_bytes = b"".join(self._waiting), [], 0
        if data and not self._is_lost:
            try:
                await self._response.write(data)  # waits while the client reads slowly
            except ConnectionError:
                self._is_lost = True


def error_answer(status: int, message: str, headers: Mapping[str, str] | None = None) -> web.Response:
    """The answer to a request that failed: a problem (RFC 9457), and `error`, which clients before it read."""
    body = {
        "type": "about:blank",
        "title": HTTPStatus(status).phrase,
        "status": status,
        "detail": message,
        "error": {"code": CODES.get(status, "error"), "message": message},
    }
    response = answer(body, status)
    response.content_type = PROBLEM
    response.headers.update(headers or {})
    if status == 401:
        response.headers[hdrs.WWW_AUTHENTICATE] = 'SharedAccessSignature, Basic realm="emubus: key name and key"'
    return response


@web.middleware
async def errors_as_json(
    request: web.Request, handler: Callable[[web.Request], Awaitable[web.StreamResponse]]
) -> web.StreamResponse:
    """Below `ROOT`, give the server's own refusals the API's error format, and hide internal errors."""
    if not (request.path == ROOT or request.path.startswith(f"{ROOT}/")):
        return await handler(request)
    try:
        return await handler(request)
    except web.HTTPMethodNotAllowed as refused:
        allowed = ", ".join(sorted(refused.allowed_methods))
        return error_answer(405, f"{refused.method} is not allowed here; allowed: {allowed}.", {hdrs.ALLOW: allowed})
    except web.HTTPException as refused:
        if refused.status < 400:
            raise
        return error_answer(refused.status, refused.reason or "")
    except BROKEN:
        raise
    except Exception:
        log.exception("request failed", method=request.method, path=request.path)
        return error_answer(500, "Internal error; see the server's log.")
