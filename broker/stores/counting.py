"""What the batches of one store did since the start: its commits, and what happened to messages of each entity.

Plain integers, which metrics and pages read. Does not know how a batch is executed (`batch_runner`), nor which entity
a queue id is. On the event loop. Owned by the store's `BatchRunner`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from ..partition.contract import Counted, Counts

LATENCY_BOUNDS_US: Final = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000)
"""Microseconds; longer commits are counted after the last bound."""

SIZE_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Requests in one batch."""

REASONS_MAX: Final = 20
"""Reasons of dead letters that a partition counts apart; clients make up their own."""
OTHER_REASONS: Final = "(other)"

OfPartition = Mapping[tuple[Counted, str], int]
"""How often, by what happened and the sub-queue, or the reason of dead letters; "" without either."""

NOTHING: Final[OfPartition] = {}


class Histogram:
    """Counts of values up to each of `bounds` (and above the bound before), and the sum of the values."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0


class CommitStats:
    """Histograms of one store's commits: latency (microseconds) and requests per batch; the number of failures."""

    __slots__ = ("failures", "latency_us", "sizes")

    def __init__(self) -> None:
        self.latency_us = Histogram(LATENCY_BOUNDS_US)
        self.sizes = Histogram(SIZE_BOUNDS)
        self.failures = 0

    def committed(self, request_count: int, took_us: int) -> None:
        latency_us, sizes = self.latency_us, self.sizes
        latency_us.counts[bisect_left(LATENCY_BOUNDS_US, took_us)] += 1
        latency_us.total += took_us
        sizes.counts[bisect_left(SIZE_BOUNDS, request_count)] += 1
        sizes.total += request_count

    def failed(self) -> None:
        self.failures += 1


class MessageCounts:
    """What happened to messages of one store's partitions, by queue id. Where nothing happened, there is no entry."""

    __slots__ = ("_of_partition",)

    def __init__(self) -> None:
        self._of_partition: dict[int, dict[tuple[Counted, str], int]] = {}

    def add(self, counts: Iterable[Counts]) -> None:
        """Count what a batch did, once it is committed."""
        for queue_id, what, detail, count in counts:
            of_partition = self._of_partition.get(queue_id)
            if of_partition is None:
                of_partition = self._of_partition[queue_id] = {}
            key = what, detail
            if key in of_partition:
                of_partition[key] += count
            elif count:
                if what is Counted.DEAD_LETTERED and _reason_count(of_partition) >= REASONS_MAX:
                    key = what, OTHER_REASONS
                of_partition[key] = of_partition.get(key, 0) + count

    def of(self, queue_id: int) -> OfPartition:
        """The counters of a partition, those above 0; the caller must not keep them."""
        return self._of_partition.get(queue_id, NOTHING)

    def go_on_as(self, queue_id: int, old: int) -> None:
        """Go on counting for `queue_id` what was counted for `old`, which a purge has replaced."""
        if old in self._of_partition:
            self._of_partition[queue_id] = self._of_partition[old]  # shared: `old` may have requests under way

    def remove(self, queue_id: int) -> None:
        self._of_partition.pop(queue_id, None)


def _reason_count(of_partition: OfPartition) -> int:
    return sum(what is Counted.DEAD_LETTERED for what, _ in of_partition)
