"""Connections to HTTP servers, plain or in TLS, also with the certificate of a CA that the system does not know.

What answers may be anything: an answer that comes too slowly, or is too long, ends with an OSError. Redirects are not
followed.
"""

from __future__ import annotations

import http.client
import io
import socket
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import Final

DEFAULT_PORTS: Final = {"http": 80, "https": 443}
ANSWER_BYTES_MAX: Final = 32 << 20
"""Of an answer that is read whole. The largest of ours is a page of 4 MiB of messages (`web/messages/search.py`), in
which each byte is up to six characters; a longer message alone is read by `emubus export`, in pieces."""
CHUNK_BYTES: Final = 1 << 20


class CaError(Exception):
    """A file that has no certificate of a CA; the text is for people."""


class _TimedReader(io.RawIOBase):
    """Reads from a socket until an instant, however slowly the bytes come: a socket's own limit begins with each."""

    def __init__(self, connection: socket.socket, limit_s: float | None) -> None:
        self._socket = connection
        self._limit_s = limit_s
        # Closing the connection closes the socket only when this is closed, too: http.client closes early.
        self._raw = connection.makefile("rb", buffering=0)
        self.begin()

    def begin(self) -> None:
        """Let the time begin now."""
        self._ends = None if self._limit_s is None else perf_counter() + self._limit_s

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: memoryview) -> int | None:  # type: ignore[override] # that is what BufferedReader passes
        """Read what is there. TimeoutError once the time is over."""
        if self._ends is not None:
            left_s = self._ends - perf_counter()
            if left_s <= 0:
                raise TimeoutError(f"the answer took longer than {self._limit_s:.0f} s")
            self._socket.settimeout(left_s)
        return self._raw.readinto(buffer)

    def close(self) -> None:
        self._raw.close()
        super().close()


class TimedResponse(http.client.HTTPResponse):
    """An answer that is whole within the connection's time limit; `begin_again` gives a stream as much for a piece."""

    def __init__(
        self, sock: socket.socket, debuglevel: int = 0, method: str | None = None, url: str | None = None
    ) -> None:
        super().__init__(sock, debuglevel, method, url)
        self.fp.close()
        self._reader = _TimedReader(sock, sock.gettimeout())
        self.fp = io.BufferedReader(self._reader)

    def begin_again(self) -> None:
        self._reader.begin()


class _Connection(http.client.HTTPConnection):
    response_class = TimedResponse


class _SecureConnection(http.client.HTTPSConnection):
    response_class = TimedResponse


def connector(
    scheme: str, host: str, port: int, timeout_s: float, ca_file: Path | None = None
) -> Callable[[], http.client.HTTPConnection]:
    """What makes connections, each opened by its first request; TLS trusts the system's CAs and `ca_file`.

    `timeout_s` is for connecting, for each piece of a request, and for each whole answer. CaError; ValueError if no
    host has such a name.
    """
    if any(each <= " " or each == "\x7f" for each in host):
        raise ValueError(f"the host is {host!r}; it must be a name without spaces and control characters")
    if scheme != "https":
        return partial(_Connection, host, port, timeout=timeout_s)
    import ssl  # only for TLS

    context = ssl.create_default_context()
    if ca_file is not None:
        try:
            context.load_verify_locations(ca_file)
        except OSError as error:  # of the file, or an SSLError
            raise CaError(
                f"{ca_file} has no certificate of a CA that can be read ({error.strerror or error})"
            ) from error
    return partial(_SecureConnection, host, port, timeout=timeout_s, context=context)


def check_whole(answer: http.client.HTTPResponse) -> None:
    """OSError if the body ended before its Content-Length: http.client tells only who reads it in one piece."""
    if answer.length:
        raise OSError(f"the answer ended {answer.length} bytes too early")


def read_whole(answer: http.client.HTTPResponse) -> bytes:
    """The body of an answer. OSError if it is longer than ANSWER_BYTES_MAX, or not whole."""
    chunks: list[bytes] = []
    length = 0
    while chunk := answer.read(CHUNK_BYTES):
        chunks.append(chunk)
        length += len(chunk)
        if length > ANSWER_BYTES_MAX:
            raise OSError(f"the answer is longer than {ANSWER_BYTES_MAX >> 20} MiB")
    check_whole(answer)
    return b"".join(chunks)
