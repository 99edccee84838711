"""The bucket of credits that the behaviours of one condition share.

Knows that it is full at the start of each whole second, whatever is left of the one before. Does not know what costs
how much.
"""

from __future__ import annotations

from typing import Final

from ..broker.clock import Clock

SECOND_MS: Final = 1_000


class Bucket:
    """Credits by the second, on the broker's clock."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._second = -1
        self._used = 0

    def left(self, per_second: int) -> int:
        """The credits that are left in this second; below zero if more was used than there was."""
        second = self._clock.now_ms() // SECOND_MS
        if second != self._second:
            self._second, self._used = second, 0
        return per_second - self._used

    def take(self, cost: int, per_second: int) -> bool:
        """Take credits; whether there were enough. What costs more than a second has takes a full bucket."""
        if cost and self.left(per_second) < max(1, min(cost, per_second)):
            return False
        self._used += cost
        return True

    def use(self, cost: int) -> None:
        """Note credits of what has happened already."""
        self.left(0)
        self._used += cost

    def full_after_ms(self) -> int:
        """How long it takes until it is full again."""
        return SECOND_MS - self._clock.now_ms() % SECOND_MS
