"""Byte streams to a host: TCP, TLS over it, or WebSocket over either; opened within a deadline, then never blocking.

Knows sockets and Python's `ssl`. Does not know AMQP. A stream owns its socket. All kinds raise `BlockingIOError` if
they can't read or write now; another `OSError` means that the connection is lost.
"""

from __future__ import annotations

import socket
import ssl
from typing import Protocol

from ..conditions import unavailable
from ..errors import ConnectorError
from ..timing import monotonic_s
from .endpoint import Endpoint


class Stream(Protocol):
    """A connection that carries bytes and never blocks."""

    def fileno(self) -> int:
        """For polling."""
        ...

    def recv_into(self, view: memoryview) -> int:
        """Read; 0 is the end, BlockingIOError nothing yet."""
        ...

    def send(self, view: memoryview) -> int:
        """Write; how many bytes were taken, BlockingIOError for none."""
        ...

    def has_kept(self) -> bool:
        """Whether bytes can be read although polling the socket does not show it."""
        ...

    def has_unsent(self) -> bool:
        """Whether `send` has taken bytes that the socket hasn't."""
        ...

    def flush(self) -> None:
        """Write what `has_unsent`, as far as the socket takes it."""
        ...

    def close(self) -> None:
        """Close the socket; nothing more is written."""
        ...


class TcpStream:
    """A plain socket."""

    def __init__(self, sock: socket.socket) -> None:
        sock.setblocking(False)
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def recv_into(self, view: memoryview) -> int:
        return self._sock.recv_into(view)

    def send(self, view: memoryview) -> int:
        return self._sock.send(view)

    def close(self) -> None:
        self._sock.close()

    def has_kept(self) -> bool:
        """Never: the kernel keeps everything."""
        return False

    def has_unsent(self) -> bool:
        """Never."""
        return False

    def flush(self) -> None:
        """Nothing to do."""


class TlsStream:
    """A socket under TLS."""

    def __init__(self, sock: ssl.SSLSocket) -> None:
        sock.setblocking(False)
        self._sock = sock

    def fileno(self) -> int:
        return self._sock.fileno()

    def close(self) -> None:
        self._sock.close()

    def recv_into(self, view: memoryview) -> int:
        try:
            return self._sock.recv_into(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def send(self, view: memoryview) -> int:
        try:
            return self._sock.send(view)
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise BlockingIOError from None

    def has_kept(self) -> bool:
        """The rest of a record that was read in part."""
        return self._sock.pending() > 0

    def has_unsent(self) -> bool:
        """Never."""
        return False

    def flush(self) -> None:
        """Nothing to do."""


def remaining_s(deadline_s: float) -> float:
    """How long a blocking call may last; TimeoutError once nothing is left."""
    left_s = deadline_s - monotonic_s()
    if left_s <= 0:
        raise TimeoutError("timed out")
    return left_s


def no_connection(endpoint: Endpoint, problem: Exception | None, how: str = "") -> ConnectorError:
    """The error for a connection that couldn't be made."""
    if isinstance(problem, TimeoutError):
        return unavailable(f"no connection to {endpoint.where}{how} within {endpoint.connect_timeout_s:g} s")
    return unavailable(f"no connection to {endpoint.where}{how}: {problem}; check host, port and tls")
