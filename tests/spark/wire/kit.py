"""What the wire's tests have in common: messages, and peers that stand between client and broker or in its place.

Knows how to put TLS or WebSocket in front of the broker's port, and how to spoil a connection. The proxies run on an
event loop in a thread of their own and are context managers.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable, Coroutine, Iterator
from types import TracebackType
from typing import Any, Self

from wsproto import ConnectionType, WSConnection
from wsproto.events import AcceptConnection, BytesMessage, CloseConnection, Event, Ping, RejectConnection, Request

from emubus.codec.decode import decode
from emubus.codec.encode import encode
from emubus.spark_connector.dialing.endpoint import Endpoint
from emubus.spark_connector.wire.requests import read_body, read_head
from emubus.spark_connector.wire.values import described, plain

from ...broker.namespace import loop_turns

CHUNK_BYTES = 64 * 1024
SUB_PROTOCOL = "AMQPWSB10"
PATH = "/$servicebus/websocket"
CALL_TIMEOUT_S = 120.0


def message(body: bytes, *, session_id: str | None = None, message_id: str | None = None) -> bytes:
    """An encoded message with a data section."""
    properties = [message_id, *[None] * 9, session_id]
    return encode(described(0x73, properties)) + encode(described(0x75, body))


def envelope(*messages: bytes) -> bytes:
    """An encoded batch."""
    return b"".join(encode(described(0x75, each)) for each in messages)


def body_of(data: bytes) -> bytes:
    """The data section of an encoded message."""
    at = 0
    while at < len(data):
        code = data[at + 2]
        section, at = decode(data, at)
        if code == 0x75:
            return bytes(plain(section).value)
    raise AssertionError("the message has no data section")


def peeked(data: bytes | None) -> list[bytes]:
    """The bodies in the reply to a peek."""
    if data is None:
        return []
    return [body_of(row["message"]) for row in read_body(data, read_head(data))["messages"]]


def endpoint_of(port: int, **changes: Any) -> Endpoint:
    """An endpoint on this machine; its waits are long, as nothing may depend on how busy it is."""
    options: dict[str, Any] = {
        "host": "localhost",
        "port": port,
        "tls": False,
        "connect_timeout_s": 60.0,
        "operation_timeout_s": 60.0,
        **changes,
    }
    return Endpoint(**options)


@contextlib.contextmanager
def mute_peer() -> Iterator[int]:
    """The port of a peer that takes connections and never says anything."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield int(listener.getsockname()[1])


@contextlib.contextmanager
def talking_peer(first_bytes: bytes) -> Iterator[int]:
    """The port of a peer that says the same to everybody and closes."""

    def serve() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = listener.accept()
                with connection:
                    connection.recv(CHUNK_BYTES)
                    connection.sendall(first_bytes)

    with socket.create_server(("127.0.0.1", 0)) as listener:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield int(listener.getsockname()[1])
        listener.shutdown(socket.SHUT_RDWR)
        thread.join(CALL_TIMEOUT_S)


def refused_port() -> int:
    """A port where nobody listens."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


class Proxy:
    """Carries connections to `upstream`, a port of this machine, taking off what its kind puts on."""

    def __init__(
        self,
        upstream: int,
        *,
        tls: ssl.SSLContext | None = None,
        websocket: bool = False,
        drop_after_bytes: int | None = None,
    ) -> None:
        self.port = 0
        self.connections = 0
        self.is_mute = False
        """While true, nothing that the broker says reaches the client."""
        self.drop_after_bytes = drop_after_bytes
        """Connections are cut once so many bytes have come from the broker."""
        self._upstream = upstream
        self._tls = tls
        self._websocket = websocket
        self._loop = asyncio.new_event_loop()
        self._tasks: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._server = self._call(asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self._tls))
        self.port = self._server.sockets[0].getsockname()[1]
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._call(self._stop())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(CALL_TIMEOUT_S)
        self._loop.close()

    def drop(self) -> None:
        """Cut every connection."""
        self._call(self._cut())

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def _call(self, work: Coroutine[Any, Any, Any]) -> Any:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(CALL_TIMEOUT_S)

    async def _stop(self) -> None:
        self._server.close()
        await loop_turns(5)  # what was accepted last is served by now, and can be cut
        await self._cut()

    async def _cut(self) -> None:
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        task = asyncio.current_task()
        if task is None:
            raise AssertionError("a server's callback runs in a task")
        self._tasks.add(task)
        try:
            up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._upstream)
            try:
                peer: Bare = WebSocketPeer(reader, writer) if self._websocket else Bare(reader, writer)
                await peer.begin()
                await self._carry(peer, up_reader, up_writer)
            finally:
                up_writer.transport.abort()
        except (OSError, asyncio.CancelledError):
            pass
        finally:
            self._tasks.discard(task)
            writer.transport.abort()

    async def _carry(self, peer: Bare, up_reader: asyncio.StreamReader, up_writer: asyncio.StreamWriter) -> None:
        """Carry bytes both ways until one side ends."""
        copying = [
            asyncio.ensure_future(_copy(peer.read, up_writer.write)),
            asyncio.ensure_future(self._copy_down(up_reader, peer.write)),
        ]
        try:
            await asyncio.wait(copying, return_when=asyncio.FIRST_COMPLETED)
        finally:
            for each in copying:
                each.cancel()
            await asyncio.gather(*copying, return_exceptions=True)

    async def _copy_down(self, reader: asyncio.StreamReader, write: Callable[[bytes], None]) -> None:
        total = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(CHUNK_BYTES):
                total += len(data)
                if self.drop_after_bytes is not None and total > self.drop_after_bytes:
                    return
                if not self.is_mute:
                    write(data)


class Bare:
    """A client's side without anything around the bytes."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    async def begin(self) -> None:
        """Nothing to do."""

    async def read(self) -> bytes:
        """What the client says; empty at the end."""
        return await self._reader.read(CHUNK_BYTES)

    def write(self, data: bytes) -> None:
        """Say something to the client."""
        self._writer.write(data)


class WebSocketPeer(Bare):
    """A client's side under WebSocket; pings the client once."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        super().__init__(reader, writer)
        self._protocol = WSConnection(ConnectionType.SERVER)

    async def begin(self) -> None:
        request = await self._next(Request)
        if request.target == PATH and SUB_PROTOCOL in request.subprotocols:
            self._say(AcceptConnection(subprotocol=SUB_PROTOCOL))
            self._say(Ping(b"are you there"))
        else:
            self._say(RejectConnection(status_code=404))

    async def read(self) -> bytes:
        data = b""
        while not data:
            received = await super().read()
            if not received:
                return b""
            self._protocol.receive_data(received)
            for event in self._protocol.events():
                if isinstance(event, BytesMessage):
                    data += event.data
                elif isinstance(event, CloseConnection):
                    return data
        return data

    def write(self, data: bytes) -> None:
        self._say(BytesMessage(data=data))

    def _say(self, event: Event) -> None:
        super().write(self._protocol.send(event))

    async def _next(self, kind: type[Request]) -> Request:
        while True:
            self._protocol.receive_data(await super().read())
            for event in self._protocol.events():
                if isinstance(event, kind):
                    return event


async def _copy(read: Callable[[], Coroutine[Any, Any, bytes]], write: Callable[[bytes], None]) -> None:
    with contextlib.suppress(OSError):
        while data := await read():
            write(data)
