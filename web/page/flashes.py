"""Messages of an action for the page that it redirects to, kept under a name that the address carries.

Only the newest are kept. They are not secret.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...broker.ids import new_tracking_id

FLASHES_MAX: Final = 100
VALUES_CHARS_MAX: Final = 64 << 10
"""Largest form that is kept to fill it in again."""


@dataclass(frozen=True, slots=True)
class Flash:
    """A text, more lines (text, address of a page or ""), and the values of the form that was sent."""

    text: str
    lines: Sequence[tuple[str, str]] = ()
    values: Mapping[str, Sequence[str]] = field(default_factory=dict[str, list[str]])
    is_warning: bool = False


class Flashes:
    """The newest flashes; reloading a page shows its flash again."""

    def __init__(self) -> None:
        self._kept: dict[str, Flash] = {}

    def put(self, flash: Flash) -> str:
        """Keep a flash; returns its name."""
        name = new_tracking_id()
        if sum(len(text) for texts in flash.values.values() for text in texts) > VALUES_CHARS_MAX:
            flash = replace(flash, values={})
        self._kept[name] = flash
        if len(self._kept) > FLASHES_MAX:
            del self._kept[next(iter(self._kept))]
        return name

    def get(self, name: str) -> Flash | None:
        """The flash of a name, if it is still kept."""
        return self._kept.get(name)
