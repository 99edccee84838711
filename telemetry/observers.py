"""Two observers of the broker as one."""

from __future__ import annotations

from collections.abc import Sequence

from ..broker.api import Event, Observer


class Observers:
    """Passes events on to those of `observers` that are on."""

    def __init__(self, *observers: Observer) -> None:
        self._observers = observers

    @property
    def is_on(self) -> bool:
        return any(each.is_on for each in self._observers)

    def observe(self, now: int, events: Sequence[Event]) -> None:
        for each in self._observers:
            if each.is_on:
                each.observe(now, events)

    def forget(self) -> None:
        for each in self._observers:
            each.forget()
