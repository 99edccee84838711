"""One HTTP connection: aiohttp's request handler with time limits, and with error answers in our own format.

Knows how long a client may be idle, leave a body unfinished or an answer unread, and how to end a connection without
the client's help. Does not know what is asked: `watch` is called for each request, and `Refuse` makes the answers to
malformed requests. The server owns the connections, in `open_ones`.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, cast

import structlog
from aiohttp import hdrs, web
from aiohttp.http_websocket import WebSocketReader
from aiohttp.typedefs import Handler

from ...broker.clock import Clock, Timer
from ...broker.errors import BrokerError
from ...broker.ledger import MemoryAccount, Use
from ...broker.repeated_lines import RepeatedLines
from ...broker.turns import Account, Turns
from ..limits import (
    HEAD_BYTES_MAX,
    HEADER_BYTES_MAX,
    IDLE_MS,
    KNOWN_CHUNK_BYTES,
    RETRY_AFTER_S,
    STRANGER_CHUNK_BYTES,
    UNHANDLED_BYTES_MAX,
)
from .masking import MaskGuard

if TYPE_CHECKING:
    from logging import Logger

STALL_MS: Final = 60_000
"""How long a client may send nothing of a body that it has begun, or read nothing of its answer."""
REFUSED_MS: Final = 1_000
"""How long a WebSocket client has to read the reason before its connection is cut."""
LINGER_S: Final = 2.0
"""How long the rest of a body is read after its request was answered."""
NO_LIMIT_S: Final = 86_400.0
"""aiohttp's own idle limit, which can't be switched off; ours, on the clock, comes first."""
HEAD_BYTES: Final = 256
TOO_LONG: Final = b"HTTP/1.1 431 Request Header Fields Too Large\r\nContent-Length: 0\r\nConnection: close\r\n\r\n"

BROKEN: Final = (ConnectionError, web.RequestPayloadError)
"""Errors of reading a body that are the client's: it has left, or its content encoding is none. Handlers pass them on,
and the connection answers."""
BUSY: Final = (
    b"HTTP/1.1 503 Service Unavailable\r\nContent-Type: text/plain; charset=utf-8\r\nRetry-After: %d\r\n"
    b"Content-Length: %d\r\nConnection: close\r\n\r\n"
)
"""To a client that holds too much memory."""

Refuse = Callable[[str, int, str], web.Response]
"""Makes an error answer from path, status and text."""

log = structlog.get_logger(__name__)


class HttpConnection(web.RequestHandler):
    """See the module. It is in `open_ones` while its socket is open; `watchers` are called once when it closes."""

    __slots__ = (
        "_body_bytes",
        "_clock",
        "_front",
        "_guard",
        "_head_bytes",
        "_heard",
        "_idle",
        "_is_answering",
        "_is_held",
        "_is_new",
        "_is_stopped",
        "_is_stranger",
        "_is_streaming",
        "_limits",
        "_lines",
        "_lost",
        "_message_bytes_taken",
        "_open_ones",
        "_refuse",
        "_requests_before",
        "_socket",
        "_stalled",
        "_turns",
        "_unhandled",
        "_unread",
        "account",
        "memory",
        "watchers",
    )

    def __init__(
        self,
        server: web.Server,
        open_ones: set[HttpConnection],
        refuse: Refuse,
        *,
        clock: Clock,
        lines: RepeatedLines,
        turns: Turns,
        is_stranger: Callable[[], bool],
        memory: MemoryAccount,
        line_bytes_max: int,
    ) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            access_log=cast("Logger", None),  # `request_log` logs requests; aiohttp accepts None, its type does not
            keepalive_timeout=NO_LIMIT_S,
            lingering_time=LINGER_S,
            max_line_size=line_bytes_max,
            max_field_size=HEADER_BYTES_MAX,
        )
        self._open_ones = open_ones
        self._refuse = refuse
        self._socket: asyncio.Transport | None = None
        self._front = b""  # the first bytes of the current request
        self._is_new = True
        self._head_bytes = 0  # bytes so far of an incomplete request head
        self._requests_before = 0
        self._turns = turns
        self.account = Account()
        """What the work for this connection costs the loop."""
        self._clock = clock
        self._lines = lines
        self._is_stranger = is_stranger
        self._unhandled = b""
        self._is_held = False  # reading is paused until the unhandled input is handled
        self._is_stopped = False  # reading is paused by the ledger, or by what the WebSocket carries
        self._body_bytes = 0  # of the current request, as far as it has come
        self._is_streaming = False  # the current request's body is used as it comes
        self._is_answering = False  # the current request's answer has begun
        self._guard: MaskGuard | None = None  # of a WebSocket
        self._message_bytes_taken = 0  # of a WebSocket's messages, those that have gone on
        self.memory = memory
        memory.enter(Use.INPUT, lambda: len(self._unhandled))
        memory.enter(Use.BODIES, lambda: self._head_bytes + self._body_bytes)
        memory.enter(Use.ASSEMBLY, self._assembly_bytes)
        memory.enter(Use.OUTPUT, lambda: 0 if self._socket is None else self._socket.get_write_buffer_size())
        self._heard = False
        self._limits = True
        self._idle: Timer | None = None
        self._stalled: Timer | None = None
        self._unread: Timer | None = None
        self._lost = asyncio.Event()
        self.watchers: set[Callable[[], None]] = set()

    @property
    def is_lost(self) -> bool:
        """Whether the socket is closed, even while a request is being answered."""
        return self._lost.is_set()

    async def lost(self) -> None:
        """Wait until the socket is closed."""
        await self._lost.wait()

    def abort(self) -> None:
        """Close the socket now, without waiting for the client."""
        if self._socket is not None:
            self._socket.abort()

    def streams(self) -> None:
        """The body of the current request is used as it comes: nothing of it is kept."""
        self._is_streaming = True
        self._body_bytes = 0

    def took_message(self, size_bytes: int) -> None:
        """A WebSocket's message has gone on."""
        self._message_bytes_taken += size_bytes

    def answers(self) -> None:
        """The answer to the current request begins."""
        self._is_answering = True

    def watch(self, request: web.Request) -> None:
        """A request begins: watch that the rest of its body comes."""
        if not request.content.is_eof():
            self._heard = True
            self._check_body(request)

    async def handled(self, answer_to: Callable[[], Awaitable[web.StreamResponse]]) -> web.StreamResponse:
        """The answer to a request, made in this connection's turns. ConnectionResetError if the client has left."""
        answers: list[web.StreamResponse] = []

        async def answer() -> None:
            if self.is_lost:  # before its turn: aiohttp would raise RuntimeError at the first read of the body
                raise ConnectionResetError("The client has left.")
            answers.append(await answer_to())

        await self._turns.run(self, answer())
        return answers[0]

    def unlimited(self) -> None:
        """The connection has become a WebSocket, whose protocol has limits of its own."""
        self._limits = False

    # ---- calls of asyncio

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._socket = cast("asyncio.Transport", transport)
        self._open_ones.add(self)
        self.memory.move_to(self)
        if not self._is_stranger():
            self.memory.identify(self.memory.host)
        super().connection_made(transport)
        self._await_request()

    def connection_lost(self, exc: BaseException | None) -> None:
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
        self._unhandled = b""
        self._guard = None  # this object is part of cycles, and may stay for long: what it has read must not
        if self.memory.holder is self:  # else what the WebSocket carries has it
            self.memory.close()

    def data_received(self, data: bytes) -> None:
        """Take bytes of requests or of a WebSocket; they are handled in this connection's turns."""
        self._heard = True
        if data:
            self._await_turn(self._unhandled, data)
        else:
            super().data_received(data)  # a call of aiohttp, to go on with its own buffer
        if len(self._unhandled) > UNHANDLED_BYTES_MAX and self._socket is not None:
            self._is_held = True
            self._socket.pause_reading()
        self.memory.grew(len(data))

    def _await_turn(self, first: bytes, then: bytes) -> None:
        """Handle these bytes, one part of which may be the unhandled input, in this connection's turns."""
        awaits_turn = bool(self._unhandled)
        self._unhandled = first + then
        if self._unhandled and not awaits_turn:
            self._turns.take(self)

    def _resume_transport_reading(self) -> None:
        """Read again, unless aiohttp, the input that waits, or the ledger has a reason not to."""
        if not (self._is_held or self._is_stopped or self._reading_paused or self._buffer_paused):
            super()._resume_transport_reading()

    def stop_reading(self) -> None:
        """Read nothing from the socket until `go_on_reading`."""
        self._is_stopped = True
        if self._socket is not None:
            self._socket.pause_reading()

    def go_on_reading(self) -> None:
        self._is_stopped = False
        self._resume_transport_reading()

    # ---- what the ledger asks for

    @property
    def is_idle(self) -> bool:
        """Whether no request is being answered."""
        return self._current_request is None

    def hold(self) -> None:
        """Read no more of requests: no answer is made then, either."""
        self.stop_reading()

    def go_on(self) -> None:
        self.go_on_reading()

    def expel(self, error: BrokerError) -> None:
        """Say why, if no answer has begun, and close."""
        if self._socket is None:
            return
        if self._is_answering or self._guard is not None:
            self.abort()
        else:
            text = error.description.encode()
            self._socket.write(BUSY % (RETRY_AFTER_S, len(text)) + text)
            self._socket.close()

    def cut(self) -> None:
        self.abort()

    def _assembly_bytes(self) -> int:
        return 0 if self._guard is None else self._guard.message_bytes - self._message_bytes_taken

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to show a required token."""
        return self._is_stranger()

    def known_by(self, is_stranger: Callable[[], bool]) -> None:
        """Use `is_stranger` from now on."""
        self._is_stranger = is_stranger

    def work_off(self, until_us: int) -> bool:
        """Handle input until `until_us` on the stopwatch, at least one chunk; returns whether there is more."""
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
            self._resume_transport_reading()
        return bool(self._unhandled)

    def _handle(self, data: bytes) -> None:
        if self._is_new:
            self._is_new = False
            self._front = data[:HEAD_BYTES]
            self._head_bytes, self._requests_before = 0, self._request_count
        if self._guard is not None:
            pass  # it counts itself
        elif self._request_count == self._requests_before:
            self._head_bytes += len(data)
            if self._head_bytes > HEAD_BYTES_MAX and self._socket is not None:
                event = "request refused: headers too long"
                self._lines.write(log.info, event, path=self._path(), bytes_max=HEAD_BYTES_MAX)
                self._socket.write(TOO_LONG)
                self._socket.close()
                return
        elif not self._is_streaming:
            self._body_bytes += len(data)
        super().data_received(data)

    def pause_writing(self) -> None:
        """The client does not read: limit how long."""
        super().pause_writing()
        self.memory.read()
        if self._limits:
            self._unread = self._clock.call_after(STALL_MS, self.abort)

    def resume_writing(self) -> None:
        """The client reads again."""
        super().resume_writing()
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    # ---- calls of aiohttp

    def set_parser(self, parser: WebSocketReader, data_received_cb: Callable[[], None] | None = None) -> None:
        """The connection becomes a WebSocket; what came behind the request waits for its turn, too."""
        behind, self._message_tail = self._message_tail, b""
        guard = self._guard = MaskGuard(parser, self._end_soon)
        self._head_bytes = self._body_bytes = 0
        super().set_parser(cast("WebSocketReader", guard), data_received_cb)
        self._await_turn(behind, self._unhandled)

    def end_websocket(self) -> None:
        """Our side closes: the client's close may come, but no message; a client that held too much is cut soon."""
        if self._guard is not None:
            self._guard.end()
        if self.memory.is_closing:
            self._end_soon()
        else:
            self.go_on_reading()

    def _end_soon(self) -> None:
        """Give the client a moment to read the close reason, then cut the connection."""
        self._lines.write(log.info, "WebSocket closed: unmasked frame")
        self._unread = self._clock.call_after(REFUSED_MS, self.abort)

    async def finish_response(
        self, request: web.BaseRequest, resp: web.StreamResponse, start_time: float | None
    ) -> tuple[web.StreamResponse, bool]:
        """Send an answer; the next request may follow."""
        if isinstance(resp, web.HTTPExpectationFailed):  # aiohttp answers these itself
            resp = self._refuse(request.path, resp.status, f"'Expect: {request.headers.get(hdrs.EXPECT)}' is unknown.")
        elif isinstance(resp, web.HTTPNotFound):  # CONNECT, or OPTIONS with an asterisk
            resp = self._refuse(request.path, resp.status, f"There is nothing for {request.method} here.")
        done = await super().finish_response(request, resp, start_time)
        self._is_new = request.content.is_eof()  # else the rest of the body comes first
        self._head_bytes = self._body_bytes = 0
        self._is_streaming = self._is_answering = False
        self._await_request()
        return done

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        """The answer to a malformed request, or to an exception outside the handlers; the connection ends with it."""
        if isinstance(exc, ConnectionError):
            log.debug("client disconnected", method=request.method, path=request.path)
            path, problem = request.path, "The connection was lost."
        elif isinstance(exc, web.RequestPayloadError):
            problem = _problem_of_body(exc)
            self._lines.write(log.info, "request refused", method=request.method, path=request.path, reason=problem)
            path, status = request.path, 400
        elif status < 500:
            log.debug("malformed HTTP request", remote=request.remote, problem=message)
            path, problem = self._path(), _problem(message or "it can't be read")
        else:
            log.error("request failed", method=request.method, path=request.path, exc_info=exc)
            path, problem = request.path, "Internal error; see the server's log."
        answer = self._refuse(path, status, problem)
        answer.force_close()
        return answer

    def log_exception(self, *args: object, **more: object) -> None:
        """aiohttp did not expect an exception: one of a client's making, in the rest of a body, was answered before."""
        error = sys.exc_info()[1]
        if isinstance(error, BROKEN):
            log.debug("rest of a request body broken", problem=_problem_of_body(error))
        else:
            super().log_exception(*args, **more)

    # ---- helpers

    def _path(self) -> str:
        """The path of a request that can't be parsed, as far as it is readable."""
        parts = self._front.split(b" ", 2)
        return parts[1].partition(b"?")[0].decode("ascii", "replace") if len(parts) > 1 else "/"

    def _await_request(self) -> None:
        """Limit the time until the next request has come."""
        if self._idle is not None:
            self._idle.cancel()
        self._idle = self._clock.call_after(IDLE_MS, self._end_if_idle)

    def _end_if_idle(self) -> None:
        self._idle = None
        if self._current_request is None:  # else the wait begins again after its answer
            self.force_close()

    def _check_body(self, request: web.Request) -> None:
        """End the connection if no byte of an incomplete body has come since the last check."""
        self._stalled = None
        if request.content.is_eof() or self._socket is None:
            return
        if not self._heard and self._socket.is_reading():
            log.debug("request body stalled", path=request.path)
            self.abort()
            return
        self._heard = False
        self._stalled = self._clock.call_after(STALL_MS, lambda: self._check_body(request))


def _problem(message: str) -> str:
    """aiohttp's message about a malformed request, on one line of printable characters."""
    first = message.strip().splitlines()[0] if message.strip() else message
    return f"This is no HTTP request: {ascii(first)[1:-1]}"[:300]


def _problem_of_body(error: Exception) -> str:
    """What is wrong with a body, on one line."""
    reason = " ".join(str(error).split()).removeprefix("400, message: ")
    return f"The body of the request is broken: {ascii(reason)[1:-1]}."[:300]


@web.middleware
async def by_its_connection(request: web.Request, handler: Handler) -> web.StreamResponse:
    """Tell the connection of each request, in whose turns it is handled: what a handler does between two waits."""
    connection = request.protocol
    if not isinstance(connection, HttpConnection):
        return await handler(request)
    connection.watch(request)
    return await connection.handled(lambda: handler(request))


async def note_answers(request: web.Request, response: web.StreamResponse) -> None:
    """Signal handler: an answer begins; a connection that becomes a WebSocket has no HTTP time limits."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.answers()
        if isinstance(response, web.WebSocketResponse):
            request.protocol.unlimited()


def uses_body_as_it_comes(request: web.Request) -> None:
    """Say that the handler keeps nothing of the body: however much comes, the connection holds little."""
    if isinstance(request.protocol, HttpConnection):
        request.protocol.streams()
