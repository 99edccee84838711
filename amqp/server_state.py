"""What the connections of one server share.

Knows which connections there are, and which of them have said their `open`. Does not know what they say. Owned by a
server.
"""

from __future__ import annotations

import asyncio
from asyncio import Future
from collections.abc import Callable
from itertools import count

from ..broker import service_errors
from ..broker.access import Access
from ..broker.aside import Aside
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.turns import Turns
from ..conditions.engine import Conditions
from ..conditions.network import Network
from .injection.faults import Faults
from .limits import Limits
from .link_context import LinkContext
from .wire.flow import DeliveryBuffers

JMS_CAPABILITIES = ("DELAYED_DELIVERY", "SHARED-SUBS")  # without them Qpid JMS does not ask for either [jms 1.2]


Choose = Callable[[str], "ServerState | Future[ServerState]"]
"""Gives the server that a client means by the host of its `open`, or what waits until that is there; BrokerError if
there is no such namespace, or it can't be opened."""
Chooser = Callable[[], Choose | None]
"""Gives what chooses, None as long as there is nothing to choose."""


def no_choice() -> None:
    """Leave every client with the server that it has reached."""


class ServerState:
    """What all connections of a server share; `connections_max` open ones are allowed, None is any number.

    Clients of JMS 2.0 are refused with `jms_refusal`, if there is one. Servers of one process share the loop's turns
    and Proton's buffers with the first, which they are `beside`; a connection moves from one to another by what
    their `chooser` gives.
    """

    def __init__(
        self,
        broker: Broker,
        access: Access,
        clock: Clock,
        limits: Limits,
        container: str = "emubus",
        *,
        connections_max: int | None = None,
        jms_refusal: BrokerError | None = None,
        beside: ServerState | None = None,
        chooser: Chooser = no_choice,
    ) -> None:
        self.broker = broker
        self.access = access
        self.clock = clock
        self.limits = limits
        self.container = container
        self.jms_refusal = jms_refusal
        self.capabilities = JMS_CAPABILITIES if broker.limits.jms else ()
        self.connections: set[LinkContext] = set()
        self._opened: dict[LinkContext, None] = {}  # a socket that has not said its `open` counts for no quota
        self.conditions = Conditions(clock, broker, Network(container, lambda: self.faults.connections()))
        self.faults = Faults(self.connections, self.conditions, self._opened)
        self.turns: Turns = (
            Turns(
                limits.slice_us,
                limits.turn_us,
                limits.strangers_turn_us,
                clock.stopwatch_us,
                clock.computed_us,
                limits.alone_us,
            )
            if beside is None
            else beside.turns
        )
        self.buffers: DeliveryBuffers = DeliveryBuffers() if beside is None else beside.buffers
        self.aside = Aside()
        self.chooser = chooser
        self._numbers = count(1)
        self._connections_max = connections_max
        self._all_freed = asyncio.Event()
        broker.namespace.on_keys_changed(self._keys_changed)

    # ---- the life of a connection

    def next_number(self) -> int:
        """A number for a connection that comes."""
        return next(self._numbers)

    def admit(self, connection: LinkContext) -> None:
        self.connections.add(connection)

    def open(self, connection: LinkContext) -> None:
        """A client has said its `open`; BrokerError beyond the quota."""
        count_max = self._connections_max
        if count_max is not None and len(self._opened) >= count_max:
            event = "connection refused: quota reached"
            self.broker.lines.write(connection.log.warning, event, connections_max=count_max)
            raise service_errors.connections_quota_exceeded(self.broker.name)
        refusal = self.conditions.opening() if self.conditions.are_on else None
        if refusal is not None:
            raise refusal
        self._opened[connection] = None
        self.faults.opened(connection)

    def _keys_changed(self) -> None:
        for connection in list(self.connections):
            connection.claims.keys_changed()

    def lost(self, connection: LinkContext) -> None:
        """The socket of a connection is gone."""
        if self._opened.pop(connection, self) is None:
            self.faults.lost()

    def has(self, connection: LinkContext) -> bool:
        """Whether a connection is still to be freed."""
        return connection in self.connections

    def freed(self, connection: LinkContext) -> None:
        """Nothing of a connection is left."""
        self.connections.remove(connection)
        if not self.connections:
            self._all_freed.set()

    async def wait_until_empty(self) -> None:
        """Wait for the end of the last connection."""
        self._all_freed.clear()
        if self.connections:
            await self._all_freed.wait()
