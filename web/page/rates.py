"""How fast messages come and go, from the counters that entities keep anyway, sampled when somebody looks.

Knows that each message that comes takes a sequence number, and that dead-lettering gives a new one. Refuses to count
anything itself: without a second look there is no rate. Owned by the page.
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
"""After so long without a look, rates begin anew: an average over a pause says nothing."""


@dataclass(frozen=True, slots=True)
class Rate:
    """Messages per second now, None if not known yet, and the rates in before, oldest first."""

    came: float | None
    left: float | None
    history: Sequence[float]


@dataclass(frozen=True, slots=True)
class _Sample:
    at_us: int
    given: int  # sequence numbers
    dead: int
    there: int


class Rates:
    """The samples of entities that were looked at lately."""

    def __init__(self, stopwatch_us: Callable[[], int]) -> None:
        self._stopwatch_us = stopwatch_us
        self._samples: dict[int, deque[_Sample]] = {}
        self._history: dict[int, deque[float]] = {}
        self._last: dict[int, tuple[float, float]] = {}

    def look(self, entity: Entity) -> Rate:
        """Sample an entity, unless it was sampled just now, and tell its rates."""
        at_us, key = self._stopwatch_us(), entity.queue_id
        samples = self._samples.get(key)
        if samples is None or at_us - samples[-1].at_us > STALE_US:
            self._begin(key, _sample(entity, at_us))
        elif at_us - samples[-1].at_us >= SAMPLE_EVERY_US:
            self._add(key, samples, _sample(entity, at_us))
        came, left = self._last.get(key, (None, None))
        return Rate(came, left, list(self._history[key]))

    def _begin(self, key: int, sample: _Sample) -> None:
        while len(self._samples) >= ENTITIES_MAX:
            oldest = next(iter(self._samples))
            for known in (self._samples, self._history, self._last):
                known.pop(oldest, None)
        self._samples[key] = deque([sample], 2)
        self._history[key] = deque(maxlen=SAMPLES_MAX)
        self._last.pop(key, None)

    def _add(self, key: int, samples: deque[_Sample], new: _Sample) -> None:
        old = samples[-1]
        seconds = (new.at_us - old.at_us) / 1e6
        came = max(0, new.given - old.given - max(0, new.dead - old.dead))
        left = max(0, came - (new.there - old.there))
        samples.append(new)
        self._last[key] = (came / seconds, left / seconds)
        self._history[key].append(came / seconds)


def _sample(entity: Entity, at_us: int) -> _Sample:
    found = figures.arrivals(entity)
    return _Sample(at_us, found.numbers_given, found.dead_letter_count, found.message_count)
