"""Outages of a messaging store, made on purpose (P18): down, slow, failing its commits, full.

Knows what each kind does to a commit; when it begins and ends is the `Broker`'s business.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from enum import StrEnum

from ...storage import StoreFailed, StoreFull
from ..clock import Clock


class OutageKind(StrEnum):
    """What is wrong with the store."""

    DOWN = "down"  # it answers nothing
    SLOW = "slow"  # every commit takes longer
    FAILING = "failing"  # every commit fails
    FULL = "full"  # nothing more can be stored


@dataclass(frozen=True, slots=True)
class Outage:
    """An outage of one kind; `delay_ms` is how much longer a commit takes, for `slow`."""

    kind: OutageKind
    delay_ms: int = 0

    @property
    def is_down(self) -> bool:
        """Whether the store answers nothing at all."""
        return self.kind is OutageKind.DOWN

    async def before_commit(self, clock: Clock, over: asyncio.Future[None]) -> None:
        """What happens to a commit under this outage, at most until `over`; StoreError if it must not happen."""
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
