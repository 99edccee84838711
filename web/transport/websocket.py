"""AMQP over WebSocket [wire 1]: the bytes of an AMQP connection in binary messages, in both directions.

Knows how to give a WebSocket the interface of an asyncio transport. Does not know AMQP: the protocol comes from a
factory. Each `WebSocketTransport` belongs to the request that opened it and ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, Protocol, runtime_checkable

from aiohttp import WSCloseCode, WSMsgType, web

from ...broker.ledger import MemoryAccount
from .connection import HttpConnection

PATHS: Final = ("/$servicebus/websocket", "/$servicebus/websocket/")
SUBPROTOCOLS: Final = ("AMQPWSB10", "amqp")
"""The service's own name and the standard's (OASIS AMQP WebSocket binding, 2.1), which users of the Go SDK ask for."""
MESSAGE_BYTES_MAX: Final = 4 << 20
"""One WebSocket message from a client: SDKs put at most some AMQP frames of 64 KiB into one."""
HIGH_WATER_BYTES: Final = 64 << 10
CLOSE_WAIT_S: Final = 5.0
TRY_AGAIN_LATER: Final = 1013
"""The close code for a client that held too much memory: the other end of what HTTP calls 503 (IANA's registry)."""


@runtime_checkable
class Authenticating(Protocol):
    """A protocol that knows whether its client has shown a valid token."""

    @property
    def is_stranger(self) -> bool:
        """Whether the client has yet to show a valid token."""
        ...


def add_websocket(app: web.Application, amqp: Callable[[MemoryAccount], asyncio.Protocol]) -> None:
    """Answer the service's WebSocket path with protocols made by `amqp`."""

    async def open_websocket(request: web.Request) -> web.StreamResponse:
        offered = {each.strip() for each in request.headers.get("Sec-WebSocket-Protocol", "").split(",")}
        connection = request.protocol
        assert isinstance(connection, HttpConnection)
        # Compression may be declined [RFC 7692 5.1]: with it a few kilobytes of a stranger become megabytes here.
        socket = web.WebSocketResponse(
            protocols=SUBPROTOCOLS, max_msg_size=MESSAGE_BYTES_MAX, timeout=CLOSE_WAIT_S, compress=False
        )
        names = " or ".join(SUBPROTOCOLS)
        if not socket.can_prepare(request):
            raise web.HTTPUpgradeRequired(text=f"This path speaks WebSocket with the sub-protocol {names}.")
        if offered.isdisjoint(SUBPROTOCOLS):
            raise web.HTTPBadRequest(text=f"The sub-protocol must be {names}.")
        await socket.prepare(request)
        protocol = amqp(connection.memory)
        if isinstance(protocol, Authenticating):
            connection.known_by(lambda: protocol.is_stranger)
        await WebSocketTransport(socket, request.transport, connection).run(protocol)
        return socket

    for path in PATHS:
        app.router.add_get(path, open_websocket)


class WebSocketTransport(asyncio.Transport):
    """A WebSocket as an asyncio transport: writes become binary messages, joined while a message is being sent."""

    def __init__(
        self, socket: web.WebSocketResponse, under: asyncio.Transport | None, connection: HttpConnection
    ) -> None:
        super().__init__()
        self._socket = socket
        self._under = under
        self._connection = connection
        self._waiting: list[bytes] = []
        self._waiting_bytes = 0
        self._high = HIGH_WATER_BYTES
        self._paused = False
        self._closing = False
        self._more = asyncio.Event()
        self._readable = asyncio.Event()
        self._readable.set()
        self._protocol: asyncio.Protocol | None = None

    async def run(self, protocol: asyncio.Protocol) -> None:
        """Carry bytes until either side closes."""
        self._protocol = protocol
        protocol.connection_made(self)
        writer = asyncio.create_task(self._write_all())
        error: Exception | None = None
        try:
            await self._read_all(protocol, writer)
        except ConnectionError as lost:
            error = lost
        finally:
            self._closing = True
            writer.cancel()
            await asyncio.gather(writer, return_exceptions=True)
            protocol.connection_lost(error)
        await self._socket.close(code=TRY_AGAIN_LATER if self._connection.memory.is_closing else WSCloseCode.OK)

    async def _read_all(self, protocol: asyncio.Protocol, writer: asyncio.Task[None]) -> None:
        while not writer.done():
            await self._readable.wait()
            receive = asyncio.ensure_future(self._socket.receive())
            await asyncio.wait((receive, writer), return_when=asyncio.FIRST_COMPLETED)
            if not receive.done():  # our side has closed
                receive.cancel()
                await asyncio.gather(receive, return_exceptions=True)
                return
            message = receive.result()
            if message.type is not WSMsgType.BINARY:
                return  # text is not AMQP; close and error end the connection, too
            self._connection.took_message(len(message.data))
            protocol.data_received(message.data)

    async def _write_all(self) -> None:
        while True:
            if not self._waiting:
                if self._closing:
                    return
                self._more.clear()
                await self._more.wait()
                continue
            data = self._waiting[0] if len(self._waiting) == 1 else b"".join(self._waiting)
            self._waiting.clear()
            await self._socket.send_bytes(data)  # waits while the client reads slowly
            self._waiting_bytes -= len(data)
            if self._paused and self._waiting_bytes <= self._high // 4 and self._protocol is not None:
                self._paused = False
                self._protocol.resume_writing()

    # ---- the transport's interface

    def write(self, data: bytes | bytearray | memoryview) -> None:
        """Send bytes; calls `pause_writing` when too many are buffered."""
        if self._closing or not data:
            return
        self._waiting.append(bytes(data))
        self._waiting_bytes += len(data)
        self._more.set()
        if not self._paused and self._waiting_bytes > self._high and self._protocol is not None:
            self._paused = True
            self._protocol.pause_writing()

    def close(self) -> None:
        """Close once everything is sent."""
        self._closing = True
        self._more.set()
        self._readable.set()
        self._connection.end_websocket()

    def abort(self) -> None:
        """Close now; buffered bytes are dropped."""
        self._waiting.clear()
        self.close()
        if self._under is not None:
            self._under.abort()

    def is_closing(self) -> bool:
        return self._closing

    def pause_reading(self) -> None:
        """Stop reading, an unfinished message too."""
        self._readable.clear()
        self._connection.stop_reading()

    def resume_reading(self) -> None:
        self._readable.set()
        self._connection.go_on_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """Set how many buffered bytes pause the protocol."""
        self._high = HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return self._waiting_bytes

    def get_extra_info(self, name: str, default: object = None) -> object:
        """Information about the socket below; `websocket` is true."""
        if name == "websocket":
            return True
        return default if self._under is None else self._under.get_extra_info(name, default)
