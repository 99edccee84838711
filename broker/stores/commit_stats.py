"""Statistics of a messaging store's commits, as plain integers; the metrics page reads them.

Knows the bounds of the histograms. Does not know clocks and Prometheus. Owned by a `Worker`.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence
from typing import Final

LATENCY_BOUNDS_US: Final = (100, 250, 500, 1_000, 2_500, 5_000, 10_000, 25_000, 50_000, 100_000, 250_000, 1_000_000)
"""Microseconds; longer commits are counted after the last bound."""

SIZE_BOUNDS: Final = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1_000)
"""Requests in one batch."""


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
        """Count a commit."""
        latency_us, sizes = self.latency_us, self.sizes
        latency_us.counts[bisect_left(LATENCY_BOUNDS_US, took_us)] += 1
        latency_us.total += took_us
        sizes.counts[bisect_left(SIZE_BOUNDS, request_count)] += 1
        sizes.total += request_count

    def failed(self) -> None:
        """Count a failed commit."""
        self.failures += 1
