"""Simulated outages of a messaging store (P18): down, slow, failing commits, full.

Knows the effect of each kind on a commit. Does not know when an outage begins and ends (`Broker`).
"""

from __future__ import annotations

import asyncio
from enum import StrEnum
from typing import Final

from ...storage import StoreFailed, StoreFull
from ..clock import Clock
from ..lazy_dataclass import dataclass

HEALTHY: Final = "available"
"""The health of a store without outage and failure; otherwise it is the kind of the outage, a real one included."""


class OutageKind(StrEnum):
    DOWN = "down"  # every request fails
    SLOW = "slow"  # every commit takes longer
    FAILING = "failing"  # every commit fails
    FULL = "full"  # every commit fails for lack of space


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of one kind; `delay_ms` is the delay of a commit, for `slow`."""

    kind: OutageKind
    delay_ms: int = 0

    @property
    def is_down(self) -> bool:
        """Whether every request to the store fails."""
        return self.kind is OutageKind.DOWN

    async def before_commit(self, clock: Clock, over: asyncio.Future[None]) -> None:
        """Delay a commit, at most until `over` is set, or raise the outage's StoreError."""
        match self.kind:
            case OutageKind.SLOW:
                clock.call_at(clock.now_ms() + self.delay_ms, lambda: None if over.done() else over.set_result(None))
                await over
            case OutageKind.FAILING:
                raise StoreFailed(None, "its commits fail")
            case OutageKind.FULL:
                raise StoreFull(None, "it is full")
            case OutageKind.DOWN:
                raise StoreFailed(None, "it is down")
