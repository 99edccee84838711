"""Samples of some figures over time, in two rings of a fixed size: one slot a second, one slot a minute.

Knows which slots are empty. Does not know what the figures are. A series of seven figures takes about 150 KB at most.
"""

from __future__ import annotations

from array import array
from collections.abc import Mapping, Sequence
from math import isnan, nan
from typing import Final

from ..broker.lazy_dataclass import dataclass

SECONDS: Final = 3_600
MINUTES: Final = 1_440
MINUTE_S: Final = 60


@dataclass(frozen=True, slots=True)
class Span:
    """A time to look back: `count` slots of `slot_s` seconds each."""

    slot_s: int
    count: int


SPANS: Final[Mapping[str, Span]] = {
    "5m": Span(1, 300),
    "1h": Span(1, SECONDS),
    "1d": Span(MINUTE_S, MINUTES),
}


class Ring:
    """The last `size` slots of each of `names`; a slot without a sample is NaN."""

    def __init__(self, names: Sequence[str], size: int) -> None:
        self._size = size
        self._slots = {name: array("f", [nan]) * size for name in names}
        self._last: int | None = None

    def put(self, slot: int, values: Mapping[str, float]) -> None:
        """Set a slot, not before the last one; the slots between become empty."""
        if self._last is not None and slot > self._last:
            for skipped in range(max(self._last + 1, slot - self._size + 1), slot):
                self._set(skipped, {})
        self._set(slot, values)
        self._last = slot

    def _set(self, slot: int, values: Mapping[str, float]) -> None:
        for name, slots in self._slots.items():
            slots[slot % self._size] = values.get(name, nan)

    def last(self, name: str, count: int, now: int) -> list[float | None]:
        """The last `count` slots up to `now`, the oldest first; None for an empty one."""
        slots = self._slots[name]
        found: list[float | None] = []
        for slot in range(now - count + 1, now + 1):
            is_known = self._last is not None and self._last - self._size < slot <= self._last and slot >= 0
            value = slots[slot % self._size] if is_known else nan
            found.append(None if isnan(value) else value)
        return found


class Series:
    """The samples of one entity, or of the namespace; seconds count from the start of the server."""

    def __init__(self, names: Sequence[str]) -> None:
        self.names = tuple(names)
        self._seconds = Ring(names, SECONDS)
        self._minutes: Ring | None = None
        self._minute: int | None = None
        self._sums: dict[str, float] = {}
        self._count = 0
        self.changed_at_s = 0
        """The second of the last sample in which anything went on."""

    def put(self, second: int, values: Mapping[str, float], *, is_active: bool = True) -> None:
        """Add the sample of a second."""
        self._seconds.put(second, values)
        if is_active:
            self.changed_at_s = second
        minute = second // MINUTE_S
        if self._minute is not None and minute != self._minute:
            self._end_minute()
        self._minute = minute
        self._count += 1
        for name, value in values.items():
            self._sums[name] = self._sums.get(name, 0.0) + value

    def _end_minute(self) -> None:
        if self._minutes is None:
            self._minutes = Ring(self.names, MINUTES)
        assert self._minute is not None
        self._minutes.put(self._minute, {name: total / self._count for name, total in self._sums.items()})
        self._sums, self._count = {}, 0

    def last(self, name: str, span: Span, second: int) -> list[float | None]:
        """The slots of a span up to `second`, the oldest first; minutes are means, and the present one is not over."""
        if span.slot_s == 1:
            return self._seconds.last(name, span.count, second)
        if self._minutes is None:
            return [None] * span.count
        return self._minutes.last(name, span.count, second // MINUTE_S - 1)
