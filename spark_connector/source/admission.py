"""How many of the waiting messages go into the next micro-batch.

Pure: numbers in, numbers out; `TriggerGate` gets the time as an argument. Knows limits and fairness among partitions.
Does not know Spark's classes of limits and the origin of the numbers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from .offsets import base_of

Numbers = Mapping[int, int]
"""Partition id to whole sequence number."""


def backlogs(starts: Numbers, ends: Numbers) -> dict[int, int]:
    """How many sequence numbers each partition has to read; partitions without any are left out."""
    found = {partition: end - starts.get(partition, base_of(partition)) for partition, end in ends.items()}
    return {partition: count for partition, count in found.items() if count > 0}


def admitted(starts: Numbers, ends: Numbers, count_max: int | None) -> dict[int, int]:
    """Ends that give at most `count_max` sequence numbers in all, in proportion to the partitions' backlogs.

    If there is a backlog and `count_max` is at least 1, at least one partition advances. The rest after rounding down
    goes to the partitions with the largest remainders, the lower partition first.
    """
    waiting = backlogs(starts, ends)
    total = sum(waiting.values())
    if count_max is None or total <= count_max:
        return dict(ends)
    shares = {partition: count_max * count // total for partition, count in waiting.items()}
    by_remainder = sorted(waiting, key=lambda each: (-(count_max * waiting[each] % total), each))
    for partition in by_remainder[: count_max - sum(shares.values())]:
        shares[partition] += 1
    return {
        partition: starts.get(partition, base_of(partition)) + shares[partition] if partition in shares else end
        for partition, end in ends.items()
    }


@dataclass
class TriggerGate:
    """Holds back small batches: until `count_min` messages wait, or `delay_max_s` passed since the last batch.

    The first batch is never held back, because it is not known how long its messages have waited.
    """

    count_min: int | None
    delay_max_s: float
    _last_at_s: float | None = None

    def may_go(self, count: int, now_s: float) -> bool:
        """Whether to read `count` waiting messages at `now_s` (seconds of any steady clock)."""
        if self.count_min is None or self._last_at_s is None:
            return True
        return count >= self.count_min or now_s - self._last_at_s >= self.delay_max_s

    def went(self, now_s: float) -> None:
        self._last_at_s = now_s
