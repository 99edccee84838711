"""AMQP over WebSocket [wire 1.5]: the handshake, and a stream that puts bytes into binary messages.

Knows the path and sub-protocol of Service Bus; the protocol itself is wsproto's. Does not know AMQP: its bytes are
cut into messages as they come. A `WebSocketStream` owns the stream below it.
"""

from __future__ import annotations

from socket import socket

from wsproto import ConnectionType, WSConnection
from wsproto.events import (
    AcceptConnection,
    BytesMessage,
    CloseConnection,
    Ping,
    RejectConnection,
    Request,
)
from wsproto.utilities import LocalProtocolError, RemoteProtocolError

from ..conditions import unavailable
from ..errors import ConnectorError
from .endpoint import Endpoint
from .stream import Stream, no_connection, remaining_s

PATH = "/$servicebus/websocket"
SUB_PROTOCOL = "AMQPWSB10"
CHUNK_BYTES = 64 * 1024


def upgrade(sock: socket, endpoint: Endpoint, deadline_s: float) -> WSConnection:
    """Do the handshake on a socket that blocks; ConnectorError(UNAVAILABLE) if the peer refuses or is silent."""
    protocol = WSConnection(ConnectionType.CLIENT)
    request = protocol.send(Request(host=endpoint.where, target=PATH, subprotocols=[SUB_PROTOCOL]))
    try:
        sock.settimeout(remaining_s(deadline_s))
        sock.sendall(request)
        while True:
            sock.settimeout(remaining_s(deadline_s))
            data = sock.recv(CHUNK_BYTES)
            if not data:
                raise ConnectionError("the peer closed it during the handshake")
            protocol.receive_data(data)
            for event in protocol.events():
                if isinstance(event, AcceptConnection):
                    _check(event.subprotocol, endpoint)
                    return protocol
                if isinstance(event, RejectConnection):
                    raise _refusal(endpoint, f"status {event.status_code}")
    except (OSError, RemoteProtocolError) as problem:
        raise no_connection(endpoint, problem, " over WebSocket") from problem


class WebSocketStream:
    """Binary messages over a stream; what the stream below doesn't take is kept here."""

    def __init__(self, protocol: WSConnection, below: Stream) -> None:
        self._protocol = protocol
        self._below = below
        self._unsent = bytearray()
        self._kept = bytearray()
        self._buffer = memoryview(bytearray(CHUNK_BYTES))
        self._ended = False
        self._take_events()  # what came right behind the handshake

    def fileno(self) -> int:
        return self._below.fileno()

    def close(self) -> None:
        self._below.close()

    def recv_into(self, view: memoryview) -> int:
        while not self._kept:
            if self._ended:
                return 0
            size = self._below.recv_into(self._buffer)
            if size == 0:
                return 0
            try:
                self._protocol.receive_data(bytes(self._buffer[:size]))
                self._take_events()
            except (RemoteProtocolError, LocalProtocolError) as problem:
                raise ConnectionError(f"the peer's WebSocket messages are broken: {problem}") from problem
        size = min(len(view), len(self._kept))
        view[:size] = self._kept[:size]
        del self._kept[:size]
        return size

    def send(self, view: memoryview) -> int:
        self.flush()
        if self._unsent:
            raise BlockingIOError
        size = min(len(view), CHUNK_BYTES)
        try:
            self._unsent += self._protocol.send(BytesMessage(data=bytes(view[:size])))
        except LocalProtocolError as problem:
            raise ConnectionError(f"the WebSocket is closed: {problem}") from problem
        self.flush()
        return size

    def has_kept(self) -> bool:
        """Whether unwrapped bytes wait, here or below."""
        return bool(self._kept) or self._ended or self._below.has_kept()

    def has_unsent(self) -> bool:
        return bool(self._unsent)

    def flush(self) -> None:
        while self._unsent:
            try:
                sent = self._below.send(memoryview(bytes(self._unsent)))
            except BlockingIOError:
                return
            del self._unsent[:sent]

    def _take_events(self) -> None:
        for event in self._protocol.events():
            if isinstance(event, BytesMessage):
                self._kept += event.data
            elif isinstance(event, Ping):
                self._unsent += self._protocol.send(event.response())
            elif isinstance(event, CloseConnection):
                self._ended = True


def _check(sub_protocol: str | None, endpoint: Endpoint) -> None:
    if sub_protocol != SUB_PROTOCOL:
        raise _refusal(endpoint, f"sub-protocol '{sub_protocol}' instead of {SUB_PROTOCOL}")


def _refusal(endpoint: Endpoint, answer: str) -> ConnectorError:
    return unavailable(
        f"{endpoint.where} speaks no AMQP over WebSocket at {PATH} (it answered with {answer}): check host and port, "
        "or set transport to amqp",
        retriable=False,
    )
