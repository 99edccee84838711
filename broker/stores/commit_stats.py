"""What a messaging store's worker counts about its commits; plain integers, read when somebody asks for metrics.

Knows the bounds of the histograms. Does not know clocks and Prometheus. Owned by a `Worker`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_BOUNDS_US: Final = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000)
"""Microseconds; what takes longer than the last is counted behind it."""

SIZE_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Commands in one batch."""


class Histogram:
    """How many values were at most each of `bounds` (and above the one before), with their sum."""

    __slots__ = ("bounds", "counts", "total")

    def __init__(self, bounds: Sequence[int]) -> None:
        self.bounds = bounds
        self.counts = [0] * (len(bounds) + 1)
        self.total = 0

    def add(self, value: int) -> None:
        """Count a value."""
        self.counts[bisect_left(self.bounds, value)] += 1
        self.total += value


class CommitStats:
    """Commits of one store: how many, how long they took (microseconds), how many commands each had; failures."""

    __slots__ = ("failures", "latency_us", "sizes")

    def __init__(self) -> None:
        self.latency_us = Histogram(LATENCY_BOUNDS_US)
        self.sizes = Histogram(SIZE_BOUNDS)
        self.failures = 0

    def committed(self, request_count: int, took_us: int) -> None:
        """A batch is stored."""
        self.latency_us.add(took_us)
        self.sizes.add(request_count)

    def failed(self) -> None:
        """A commit failed."""
        self.failures += 1
