"""What the connections of one server share, and how many of them may be strangers.

Knows which connections there are, which of them have said their `open`, and which have yet to show a token. Does not
know what they say. Owned by a server.
"""

from __future__ import annotations

import asyncio
from collections import Counter

import structlog

from ..broker import service_errors
from ..broker.access import Access
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.turns import Turns
from ..conditions.engine import Conditions
from ..conditions.network import Network
from .faults import Faults
from .limits import Limits
from .link_context import LinkContext
from .quotas import MemoryUse

CUTS_LOGGED_EVERY_MS = 1_000

JMS_CAPABILITIES = ("DELAYED_DELIVERY", "SHARED-SUBS")  # without them Qpid JMS does not ask for either [jms 1.2]

log = structlog.get_logger()


class ServerState:
    """What all connections of a server share; `connections_max` open ones are allowed, None is any number.

    Clients of JMS 2.0 are refused with `jms_refusal`, if there is one.
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
        self.conditions = Conditions(clock, broker, self._network)
        self.faults = Faults(self.connections, self.conditions, self._opened, container)
        self.memory: Counter[MemoryUse] = Counter()
        """What all connections use."""
        self.turns = Turns(
            limits.slice_us, limits.turn_us, limits.strangers_turn_us, clock.stopwatch_us, clock.computed_us
        )
        self._connections_max = connections_max
        self._strangers: dict[LinkContext, None] = {}  # that began as strangers, the oldest first
        self._all_freed = asyncio.Event()
        self._cut_count = 0  # connections that no log line has counted yet
        self._is_cut_logged = False  # in this second
        broker.on_keys_changed(self._keys_changed)

    def _network(self) -> Network:
        return self.faults

    # ---- the life of a connection

    def admit(self, connection: LinkContext) -> None:
        """Count a new connection; if there are too many strangers, the oldest of them is cut."""
        self.connections.add(connection)
        if not connection.is_stranger:
            return
        self._strangers[connection] = None
        while len(self._strangers) > self.limits.strangers_max:
            oldest = next(iter(self._strangers))
            del self._strangers[oldest]
            if oldest.is_stranger:
                oldest.abort()
                self._log_cut_connection()

    def open(self, connection: LinkContext) -> None:
        """A client has said its `open`; BrokerError beyond the quota."""
        count_max = self._connections_max
        if count_max is not None and len(self._opened) >= count_max:
            event = "connection refused: quota reached"
            self.broker.lines.write(connection.log.warning, event, connections_max=count_max)
            raise service_errors.connections_quota_exceeded(self.broker.namespace)
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
        self._strangers.pop(connection, None)

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

    # ---- the log

    def _log_cut_connection(self) -> None:
        """Log the first cut at once and those of the next second together: many come with a flood of connections."""
        self._cut_count += 1
        if not self._is_cut_logged:
            self._log_cuts()

    def _log_cuts(self) -> None:
        self._is_cut_logged = self._cut_count > 0
        if self._is_cut_logged:
            log.info(
                "connections cut: too many without a token",
                count=self._cut_count,
                strangers_max=self.limits.strangers_max,
            )
            self._cut_count = 0
            self.clock.call_after(CUTS_LOGGED_EVERY_MS, self._log_cuts)
