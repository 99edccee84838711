"""The listening socket: accepts connections and ends them all.

Knows the address that it listens on and which connections are open. Refuses to know what they say. Owned by the
composition root, on whose event loop everything runs.
"""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from itertools import count

from ..broker.access import Access
from ..broker.clock import Clock
from ..broker.errors import BrokerError, Condition
from .connection import Connection, Shared
from .faults import Faults
from .limits import Limits
from .ports import BrokerPort


class AmqpListener:
    """AMQP on `host`:`port` (0 lets the system choose); `tls` makes it AMQPS.

    Beyond `connections_max` open connections (None is any number) a client is told so and closed.
    """

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
        connections_max: int | None = None,
    ) -> None:
        shared = Shared(broker, access, clock, limits or Limits(), container, set(), connections_max=connections_max)
        self._shared = shared
        self.faults = Faults(self._shared.connections)
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
        """Listen no more, close every connection in good order; those that take too long are cut."""
        if self._server is None:
            return
        server, self._server = self._server, None
        server.close()
        await self._close_connections()
        await server.wait_closed()

    async def _close_connections(self) -> None:
        connections = self._shared.connections
        all_gone = asyncio.Event()
        self._shared.emptied = all_gone.set
        for connection in list(connections):
            connection.close(BrokerError(Condition.CONNECTION_FORCED, "The server is shutting down."))
        if not connections:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(all_gone.wait(), self._shared.limits.stop_wait_s)
        for connection in list(connections):
            connection.abort()
        if connections:
            await all_gone.wait()

    def _connection(self) -> Connection:
        return Connection(self._shared, next(self._numbers))
