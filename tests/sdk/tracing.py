"""A way between a client and the server that notes the AMQP frames in both directions.

Knows TCP and how frames follow each other. Does not know what they mean: tests read them. Changes nothing.
"""

from __future__ import annotations

import socket
import threading
from contextlib import suppress
from typing import Self

from ..amqp.wire import Frame, read_frames

CHUNK_BYTES = 65_536


class Trace:
    """Listens on `port` while it is used with `with`; `of_client` and `of_server` have the frames so far."""

    def __init__(self, server_port: int) -> None:
        self._server_port = server_port
        self._listening = socket.create_server(("localhost", 0))
        self.port: int = self._listening.getsockname()[1]
        self._sockets: list[socket.socket] = [self._listening]
        self._threads: list[threading.Thread] = []
        self._of_client: list[bytearray] = []
        self._of_server: list[bytearray] = []

    @property
    def of_client(self) -> list[Frame]:
        """What the client has written."""
        return [frame for data in self._of_client for frame in read_frames(bytes(data))[0]]

    @property
    def of_server(self) -> list[Frame]:
        """What the server has written."""
        return [frame for data in self._of_server for frame in read_frames(bytes(data))[0]]

    def __enter__(self) -> Self:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        for each in self._sockets:
            with suppress(OSError):  # it is closed already
                each.shutdown(socket.SHUT_RDWR)
            each.close()
        for thread in self._threads:
            thread.join()

    def _start(self, target: object, *arguments: object) -> None:
        self._threads.append(threading.Thread(target=target, args=arguments, daemon=True))  # type: ignore[arg-type]
        self._threads[-1].start()

    def _accept(self) -> None:
        with suppress(OSError):  # the end
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("localhost", self._server_port))
                self._sockets += (client, server)
                for source, target, noted in ((client, server, self._of_client), (server, client, self._of_server)):
                    noted.append(bytearray())
                    self._start(self._pump, source, target, noted[-1])

    def _pump(self, source: socket.socket, target: socket.socket, noted: bytearray) -> None:
        with suppress(OSError):  # one of them has gone
            while data := source.recv(CHUNK_BYTES):
                noted += data
                target.sendall(data)
        with suppress(OSError):
            target.shutdown(socket.SHUT_WR)
