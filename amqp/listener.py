"""The listening socket: accepts connections and ends them all.

Knows the address that it listens on and which connections are open. Refuses to know what they say. Owned by the
composition root, on whose event loop everything runs.
"""

from __future__ import annotations

import asyncio
import ssl
from itertools import count

from ..broker.access import Access
from ..broker.clock import Clock
from ..broker.errors import BrokerError, Condition
from .connection import Connection, Shared
from .limits import Limits
from .ports import BrokerPort


class AmqpListener:
    """AMQP on `host`:`port` (0 lets the system choose); `tls` makes it AMQPS."""

    def __init__(
        self,
        broker: BrokerPort,
        access: Access,
        clock: Clock,
        host: str,
        port: int,
        *,
        limits: Limits | None = None,
        container: str = "emubus",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._shared = Shared(broker, access, clock, limits or Limits(), container, set())
        self._host = host
        self._port = port
        self._tls = tls
        self._numbers = count(1)
        self._server: asyncio.Server | None = None

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._shared.connections)

    async def start(self) -> int:
        """Listen; returns the port. OSError if the address can't be had."""
        loop = asyncio.get_running_loop()
        self._server = await loop.create_server(self._connection, self._host, self._port, ssl=self._tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def stop(self) -> None:
        """Listen no more, close every connection in good order and wait until they are gone."""
        if self._server is None:
            return
        self._server.close()
        for connection in list(self._shared.connections):
            connection.close(BrokerError(Condition.CONNECTION_FORCED, "The server is shutting down."))
        await self._server.wait_closed()
        self._server = None

    def _connection(self) -> Connection:
        return Connection(self._shared, next(self._numbers))
