"""One HTTP connection: aiohttp's, with ends to everything that could last for ever, and refusals in our own form.

Knows for how long a client may be silent, send nothing of a body that it has begun, or not read its answer; and how a
connection is ended when its client does not take part in that. Does not know what is asked: `watch` hears of each
request, and `Refuse` makes the answers to bytes that are no request. The face owns the connections, in `open_ones`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Final, cast

import structlog
from aiohttp import hdrs, web
from aiohttp.http_websocket import WebSocketReader
from aiohttp.typedefs import Handler

from ...broker.clock import Clock, Timer
from ...broker.turns import Turns
from ..limits import HEAD_BYTES_MAX, HEADER_BYTES_MAX, KNOWN_CHUNK_BYTES, STRANGER_CHUNK_BYTES, UNHANDLED_BYTES_MAX
from ..masking import MaskGuard

IDLE_MS: Final = 120_000
"""How long a connection may be without a request, or with a part of one: longer than clients keep idle connections
(.NET 60 s, Go 90 s), so that it is not just then that they use it again."""
STALL_MS: Final = 60_000
"""How long nothing may come of a body, or nothing be taken of an answer, while the other side waits for it."""
REFUSED_MS: Final = 1_000
"""How long a WebSocket client has to read why its connection is closed."""
LINGER_S: Final = 2.0
"""How long the rest of a body is read whose request has been answered."""
NO_LIMIT_S: Final = 86_400.0
"""aiohttp's own limit for idle connections, which it can't be without: ours, on the clock, ends them long before."""
HEAD_BYTES: Final = 256
TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

Refuse = Callable[[str, int, str], web.Response]
"""The answer, for a path, with a status and a sentence."""

log = structlog.get_logger(__name__)


class HttpConnection(web.RequestHandler):
    """See the module. It is in `open_ones` while its socket is open; `watchers` are called once when that is gone."""

    __slots__ = (
        "_clock",
        "_front",
        "_head_bytes",
        "_heard",
        "_idle",
        "_is_held",
        "_is_new",
        "_is_stranger",
        "_limits",
        "_lost",
        "_open_ones",
        "_refuse",
        "_requests_before",
        "_socket",
        "_stalled",
        "_turns",
        "_unhandled",
        "_unread",
        "watchers",
    )

    def __init__(
        self,
        server: web.Server,
        open_ones: set[HttpConnection],
        refuse: Refuse,
        *,
        clock: Clock,
        turns: Turns,
        is_stranger: Callable[[], bool],
        line_bytes_max: int,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast("Any", None),  # `request_log` writes the lines; aiohttp takes None and does not say so
            keepalive_timeout=NO_LIMIT_S,
            lingering_time=LINGER_S,
            max_line_size=line_bytes_max,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._open_ones = open_ones
        self._refuse = refuse
        self._socket: asyncio.Transport | None = None
        self._front = b""  # what the request under way begins with
        self._is_new = True
        self._head_bytes = 0  # of a request whose head has not come as a whole
        self._requests_before = 0
        self._turns = turns
        self._clock = clock
        self._is_stranger = is_stranger
        self._unhandled = b""
        self._is_held = False  # the socket is not read because of what is unhandled
        self._heard = False
        self._limits = True
        self._idle: Timer | None = None
        self._stalled: Timer | None = None
        self._unread: Timer | None = None
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
        self._await_request()

    def connection_lost(self, exc: BaseException | None) -> None:
        """The socket is gone."""
        self._open_ones.discard(self)
        self._socket = None
        self._lost.set()
        watchers, self.watchers = self.watchers, set()
        for gone in watchers:
            gone()
        for timer in (self._idle, self._stalled, self._unread):
            if timer is not None:
                timer.cancel()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Bytes of a request, or of what comes after an upgrade: they are handled in this connection's turns."""
        self._heard = True
        if not self._unhandled and data:
            self._unhandled = data
            self._turns.take(self)
        elif data:
            self._unhandled += data
        else:
            super().data_received(data)  # aiohttp has something left
        if len(self._unhandled) > UNHANDLED_BYTES_MAX and self._socket is not None:
            self._is_held = True
            self._socket.pause_reading()

    @property
    def is_stranger(self) -> bool:
        """Whether the client must show a token and has not yet shown one."""
        return self._is_stranger()

    def known_by(self, is_stranger: Callable[[], bool]) -> None:
        """From now on, `is_stranger` says whether the client has shown a token."""
        self._is_stranger = is_stranger

    def work_off(self, until_us: int) -> bool:
        """Handle input until that instant of the stopwatch, at least one chunk; whether there is more."""
        data, at = self._unhandled, 0
        while at < len(data) and self._socket is not None and not self._socket.is_closing():
            size = STRANGER_CHUNK_BYTES if self.is_stranger else KNOWN_CHUNK_BYTES
            chunk = data[at : at + size] if at or len(data) > size else data
            at += len(chunk)
            self._handle(chunk)
            if self._clock.stopwatch_us() >= until_us:
                break
        if self._socket is None or self._socket.is_closing():
            self._unhandled = b""
            return False
        self._unhandled = data[at:]
        if self._is_held and not self._unhandled:
            self._is_held = False
            if not (self._reading_paused or self._buffer_paused):
                self._socket.resume_reading()
        return bool(self._unhandled)

    def _handle(self, data: bytes) -> None:
        if self._is_new:
            self._is_new = False
            self._front = data[:HEAD_BYTES]
            self._head_bytes, self._requests_before = 0, self._request_count
        if self._request_count == self._requests_before:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and self._socket is not None:
                log.info("a request is refused: its headers are too long", path=self._path(), bytes_max=HEAD_BYTES_MAX)
                self._socket.write(TOO_LONG)
                self._socket.close()
                return
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not read: it must go on before long."""
        super().pause_writing()
        if self._limits:
            self._unread = self._clock.call_after(STALL_MS, self.abort)

    def resume_writing(self) -> None:
        """The client has read."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ---- what aiohttp asks

    def set_parser(self, parser: WebSocketReader, data_received_cb: Callable[[], None] | None = None) -> None:
        """The connection becomes a WebSocket."""
        guard = MaskGuard(parser, self._end_soon)
        super().set_parser(cast("WebSocketReader", guard), data_received_cb)

    def _end_soon(self) -> None:
        """The client gets a reason, and little time to read it."""
        self._unread = self._clock.call_after(REFUSED_MS, self.abort)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; then the next request may begin."""
        if isinstance(resp, web.HTTPExpectationFailed):  # aiohttp answers these before any of our parts is asked
            resp = self._refuse(request.path, resp.status, f"'Expect: {request.headers.get(hdrs.EXPECT)}' is unknown.")
        elif isinstance(resp, web.HTTPNotFound):  # CONNECT, or OPTIONS with an asterisk
            resp = self._refuse(request.path, resp.status, f"There is nothing for {request.method} here.")
        done = await super().finish_response(request, resp, start_time)
        self._is_new = request.content.is_eof()  # else the rest of its body comes
        self._await_request()
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

    def _await_request(self) -> None:
        """The next request must have come before the idle time is over."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._clock.call_after(IDLE_MS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._idle = None
        if self._current_request is None:  # else its answer begins the wait again
            self.force_close()

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
        self._stalled = self._clock.call_after(STALL_MS, lambda: self._look(request))


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
