"""A way to the server that breaks: connections are cut after so many bytes, as a test says.

Knows sockets. Does not know AMQP. Each connection takes the next number of the list; it passes that many bytes, in
both directions together, and is then cut without a word. With the list at its end, connections are left alone. One
thread accepts, and each direction of a connection has its own; `close` ends them all.
"""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from collections.abc import Iterable
from types import TracebackType
from typing import Self

CHUNK_BYTES = 16 * 1024
RESET = struct.pack("ii", 1, 0)


class CuttingProxy:
    """Stands before `port` of this machine; use it as a context manager."""

    def __init__(self, port: int, budgets: Iterable[int]) -> None:
        self._upstream = port
        self._budgets = iter(budgets)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: list[socket.socket] = []
        self._threads = [threading.Thread(target=self._accept, daemon=True)]
        self.cuts = 0
        self._threads[0].start()

    @property
    def port(self) -> int:
        """Where to connect."""
        port: int = self._listener.getsockname()[1]
        return port

    def close(self) -> None:
        """End it."""
        for each in (self._listener, *self._open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join(10)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(("127.0.0.1", self._upstream))
            self._open += [client, server]
            budget = [next(self._budgets, -1)]
            for source, sink in ((client, server), (server, client)):
                thread = threading.Thread(target=self._pass, args=(source, sink, budget), daemon=True)
                self._threads.append(thread)
                thread.start()

    def _pass(self, source: socket.socket, sink: socket.socket, budget: list[int]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(CHUNK_BYTES):
                if 0 <= budget[0] <= len(data):
                    sink.sendall(data[: budget[0]])
                    self.cuts += 1
                    for each in (source, sink):
                        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
                        each.shutdown(socket.SHUT_RDWR)
                    return
                if budget[0] > 0:
                    budget[0] -= len(data)
                sink.sendall(data)
        for each in (source, sink):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)
