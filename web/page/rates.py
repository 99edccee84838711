"""Messages per second in and out of an entity, computed from samples of its counters.

Knows that each arriving message takes a sequence number, and that dead-lettering assigns a new one. Counts nothing
itself: rates need two samples, and samples are taken when a page is shown. Owned by the page.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from ...broker.admin import figures
from ...broker.api import Entity

SAMPLE_EVERY_US: Final = 900_000
SAMPLES_MAX: Final = 60
ENTITIES_MAX: Final = 1_000
STALE_US: Final = 120_000_000
"""Samples older than this are dropped: an average over a pause says nothing."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second, None before the second sample; `history` has earlier rates in, oldest first."""

    in_per_s: float | None
    out_per_s: float | None
    history: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Sample:
    at_us: int
    numbers_given: int
    dead_letter_count: int
    message_count: int


class Rates:
    """The samples of entities that a page has shown lately."""

    def __init__(self, stopwatch_us: Callable[[], int]) -> None:
        self._stopwatch_us = stopwatch_us
        self._samples: dict[int, deque[_Sample]] = {}
        self._history: dict[int, deque[float]] = {}
        self._rates: dict[int, tuple[float, float]] = {}

    def sample(self, entity: Entity) -> Rate:
        """Sample an entity, unless its last sample is recent, and return its rates."""
        at_us, key = self._stopwatch_us(), entity.queue_id
        samples = self._samples.get(key)
        if samples is None or at_us - samples[-1].at_us > STALE_US:
            self._begin(key, _sample(entity, at_us))
        elif at_us - samples[-1].at_us >= SAMPLE_EVERY_US:
            self._add(key, samples, _sample(entity, at_us))
        in_per_s, out_per_s = self._rates.get(key, (None, None))
        return Rate(in_per_s, out_per_s, list(self._history[key]))

    def _begin(self, key: int, sample: _Sample) -> None:
        while len(self._samples) >= ENTITIES_MAX:
            oldest = next(iter(self._samples))
            for known in (self._samples, self._history, self._rates):
                known.pop(oldest, None)
        self._samples[key] = deque([sample], 2)
        self._history[key] = deque(maxlen=SAMPLES_MAX)
        self._rates.pop(key, None)

    def _add(self, key: int, samples: deque[_Sample], new: _Sample) -> None:
        old = samples[-1]
        seconds = (new.at_us - old.at_us) / 1e6
        in_per_s = max(0, new.numbers_given - old.numbers_given - max(0, new.dead_letter_count - old.dead_letter_count))
        out_per_s = max(0, in_per_s - (new.message_count - old.message_count))
        samples.append(new)
        self._rates[key] = (in_per_s / seconds, out_per_s / seconds)
        self._history[key].append(in_per_s / seconds)


def _sample(entity: Entity, at_us: int) -> _Sample:
    found = figures.arrivals(entity)
    return _Sample(at_us, found.numbers_given, found.dead_letter_count, found.message_count)
