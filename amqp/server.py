"""The AMQP face as a whole: makes the protocol of each connection, and ends them all.

Knows which connections are open. Does not know what they say, and where they come from: the listener asks for a
`protocol()` for each. Owned by the composition root, on whose event loop everything runs.
"""

from __future__ import annotations

import asyncio
import contextlib
from itertools import count

from ..broker import service_errors
from ..broker.access import Access
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from .connection import Connection
from .faults import Faults
from .limits import Limits
from .links.ports import BrokerPort
from .shared import Shared


class AmqpFace:
    """The AMQP connections of one server.

    Beyond `connections_max` open connections (None is any number) a client gets the reason and is closed. Clients of
    JMS 2.0 are refused with `jms_refusal`, if there is one.
    """

    def __init__(
        self,
        broker: BrokerPort,
        access: Access,
        clock: Clock,
        *,
        limits: Limits | None = None,
        container: str = "emubus",
        connections_max: int | None = None,
        jms_refusal: BrokerError | None = None,
    ) -> None:
        connections: set[Connection] = set()
        self.faults = Faults(connections)
        self._shared = Shared(
            broker,
            access,
            clock,
            limits or Limits(),
            container,
            connections,
            faults=self.faults,
            connections_max=connections_max,
            jms_refusal=jms_refusal,
        )
        self._numbers = count(1)

    @property
    def connection_count(self) -> int:
        """How many connections there are."""
        return len(self._shared.connections)

    @property
    def link_count(self) -> int:
        """How many links there are on all of them."""
        return sum(len(connection.links) for connection in self._shared.connections)

    def protocol(self) -> Connection:
        """What a new connection is given to."""
        return Connection(self._shared, next(self._numbers))

    async def stop(self) -> None:
        """Close every connection in good order; those that take too long are cut."""
        connections = self._shared.connections
        all_gone = asyncio.Event()
        self._shared.emptied = all_gone.set
        for connection in list(connections):
            connection.close(service_errors.connection_closed(self._shared.container))
        if not connections:
            return
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(all_gone.wait(), self._shared.limits.stop_wait_s)
        for connection in list(connections):
            connection.abort()
        if connections:
            await all_gone.wait()
