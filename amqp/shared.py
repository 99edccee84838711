"""What the connections of one face share, and how many of them may be strangers.

Knows which connections there are and which of them have yet to show a token. Does not know what they say. Owned by
a face.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from ..broker.access import Access
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.turns import Turns
from .faults import Faults
from .limits import Limits
from .links.ports import BrokerPort
from .quotas import Kept

if TYPE_CHECKING:
    from .connection import Connection

CUTS_LOGGED_EVERY_S: Final = 1.0

log = structlog.get_logger()


@dataclass(slots=True)
class Shared:
    """What all connections of a face share."""

    broker: BrokerPort
    access: Access
    clock: Clock
    limits: Limits
    container: str
    connections: set[Connection]
    emptied: Callable[[], None] = lambda: None
    """Called when the last connection has gone."""
    faults: Faults | None = None
    """What is done to the connections on purpose."""
    connections_max: int | None = None
    """How many may be open at a time; None is any number."""
    jms_refusal: BrokerError | None = None
    """Why clients of JMS 2.0 are refused, if they are."""
    opened: set[Connection] = field(default_factory=set["Connection"])
    """Those that have said their `open`: a socket alone is none of the quota's business."""
    strangers: dict[Connection, None] = field(default_factory=dict["Connection", None])
    """Connections that began as strangers, the oldest first; some may be known meanwhile."""
    kept: Counter[Kept] = field(default_factory=Counter["Kept"])
    """What is kept for all connections."""
    turns: Turns = field(init=False)
    _cut_count: int = field(default=0, init=False)  # that no log line has counted yet
    _is_cut_logged: bool = field(default=False, init=False)  # in this second

    def __post_init__(self) -> None:
        self.turns = Turns(self.limits.slice_us, self.limits.strangers_turn_us, self.clock.stopwatch_us)

    def admit(self, connection: Connection) -> None:
        """Count a new connection; if there are too many strangers, the oldest of them is cut."""
        if not connection.is_stranger:
            return
        self.strangers[connection] = None
        while len(self.strangers) > self.limits.strangers_max:
            oldest = next(iter(self.strangers))
            del self.strangers[oldest]
            if oldest.is_stranger:
                oldest.abort()
                self._count_cut()

    def _count_cut(self) -> None:
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
            asyncio.get_running_loop().call_later(CUTS_LOGGED_EVERY_S, self._log_cuts)
