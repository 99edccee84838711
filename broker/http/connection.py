"""One HTTP connection: aiohttp's, with ends to everything that could last for ever, and refusals in our own form.

Knows for how long a client may be silent, send nothing of a body that it has begun, or not read its answer; and how a
connection is ended when its client does not take part in that. Refuses to know what is asked: `watch` is told of each
request, and `Refuse` makes the answers to bytes that are no request. The face owns the connections, in `open_ones`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
from aiohttp import hdrs, web
from aiohttp.typedefs import Handler

from .limits import HEADER_BYTES_MAX

IDLE_S: Final = 120.0
"""How long a connection may be without a request, or with a part of one: longer than clients keep idle connections
(.NET 60 s, Go 90 s), so that it is not just then that they use it again."""
STALL_S: Final = 60.0
"""How long nothing may come of a body, or nothing be taken of an answer, while the other side waits for it."""
HEAD_BYTES: Final = 256

Refuse = Callable[[str, int, str], web.Response]
"""The answer, for a path, with a status and a sentence."""

log = structlog.get_logger(__name__)


class HttpConnection(web.RequestHandler):
    """See the module. It is in `open_ones` while its socket is open; `watchers` are called once when that is gone."""

    __slots__ = (
        "_front",
        "_heard",
        "_is_new",
        "_limits",
        "_lost",
        "_open_ones",
        "_refuse",
        "_socket",
        "_stalled",
        "_unread",
        "watchers",
    )

    def __init__(
        self, server: web.Server, open_ones: set[HttpConnection], refuse: Refuse, *, line_bytes_max: int
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast("Any", None),  # `request_log` writes the lines; aiohttp takes None and does not say so
            keepalive_timeout=IDLE_S,
            max_line_size=line_bytes_max,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._open_ones = open_ones
        self._refuse = refuse
        self._socket: asyncio.Transport | None = None
        self._front = b""  # what the request under way begins with
        self._is_new = True
        self._heard = False
        self._limits = True
        self._stalled: asyncio.TimerHandle | None = None
        self._unread: asyncio.TimerHandle | None = None
        self._lost = asyncio.Event()
        self.watchers: set[Callable[[], None]] = set()

    @property
    def is_lost(self) -> bool:
        """Whether the socket is gone, also while a request is being answered."""
        return self._lost.is_set()

    async def lost(self) -> None:
        """Wait until the socket is gone."""
        await self._lost.wait()

    def abort(self) -> None:
        """End it now, whatever the client does."""
        if self._socket is not None:
            self._socket.abort()

    def watch(self, request: web.Request) -> None:
        """A request begins: what is still to come of its body must come."""
        if not request.content.is_eof():
            self._heard = True
            self._look(request)

    def unlimited(self) -> None:
        """The connection is no longer HTTP: whoever has it now has limits of its own."""
        self._limits = False

    # ---- what asyncio tells

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A client is here."""
        self._socket = cast("asyncio.Transport", transport)
        self._open_ones.add(self)
        super().connection_made(transport)

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is gone."""
        self._open_ones.discard(self)
        self._socket = None
        self._lost.set()
        watchers, self.watchers = self.watchers, set()
        for gone in watchers:
            gone()
        for timer in (self._stalled, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of what comes after an upgrade."""
        self._heard = True
        if self._is_new and data:
            self._is_new = False
            self._front = data[:HEAD_BYTES]
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not read: it must go on before long."""
        super().pause_writing()
        if self._limits:
            self._unread = asyncio.get_running_loop().call_later(STALL_S, self.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ---- what aiohttp asks

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; then the next request may begin."""
        if isinstance(resp, web.HTTPExpectationFailed):  # aiohttp answers these before any of our parts is asked
            resp = self._refuse(request.path, resp.status, f"'Expect: {request.headers.get(hdrs.EXPECT)}' is unknown.")
        elif isinstance(resp, web.HTTPNotFound):  # CONNECT, or OPTIONS with an asterisk
            resp = self._refuse(request.path, resp.status, f"There is nothing for {request.method} here.")
        done = await super().finish_response(request, resp, start_time)
        self._is_new = True
        return done

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to what is no request, or to one that failed unseen; the connection ends with it."""
        if isinstance(exc, ConnectionError):
            log.debug("the client has gone", method=request.method, path=request.path)
            path, problem = request.path, "The connection was lost."
        elif status < 500:
            log.debug("not a request", remote=request.remote, problem=message)
            path, problem = self._path(), _problem(message or "it can't be read")
        else:
            log.error("request failed", method=request.method, path=request.path, exc_info=exc)
            path, problem = request.path, "The server failed; its log knows why."
        answer = self._refuse(path, status, problem)
        answer.force_close()
        return answer

    # ---- helpers

    def _path(self) -> str:
        """The path of a request that can't be parsed, as far as it can be seen."""
        parts = self._front.split(b" ", 2)
        return parts[1].partition(b"?")[0].decode("ascii", "replace") if len(parts) > 1 else "/"

    def _look(self, request: web.Request) -> None:
        """End the connection if the client owes bytes and none have come since the last look."""
        self._stalled = None
        if request.content.is_eof() or self._socket is None:
            return
        if not self._heard and self._socket.is_reading():
            log.debug("a body did not come", path=request.path)
            self.abort()
            return
        self._heard = False
        self._stalled = asyncio.get_running_loop().call_later(STALL_S, self._look, request)


def _problem(message: str) -> str:
    """aiohttp's words about bytes that are no request, in one line without what is not printable."""
    first = message.strip().splitlines()[0] if message.strip() else message
    return f"This is no HTTP request: {ascii(first)[1:-1]}"[:300]


@web.middleware
async def watch_bodies(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Have the connection know each request."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.watch(request)
    return await handler(request)


async def spare_tunnels(request: web.Request, response: web.StreamResponse) -> None:
    """A signal of the application: what becomes a WebSocket is limited by what it carries."""
    if isinstance(response, web.WebSocketResponse) and isinstance(request.protocol, HttpConnection):
        request.protocol.unlimited()
