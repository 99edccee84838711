"""What is noted of a connection while conditions are on: when it, and each of its links, was last used.

Does not know what that means: behaviours do (`conditions/behaviours/idling.py`). While nothing is on, a connection has
no watch and nothing is noted.
"""

from __future__ import annotations

from collections.abc import Callable

from .wire.engine import Pointer


class Watch:
    """The times (Unix ms) at which a connection and its links were used; what was before counts as its start."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self._now_ms = now_ms
        self.opened_at = self.heard_at = now_ms()
        self.linkless_since: int | None = None
        self._used_at: dict[Pointer, int] = {}

    def heard(self) -> None:
        """The client has written something."""
        self.heard_at = self._now_ms()

    def used(self, pointer: Pointer) -> None:
        """Something was done over a link."""
        self._used_at[pointer] = self._now_ms()

    def used_at(self, pointer: Pointer) -> int:
        """When something was last done over a link."""
        return self._used_at.get(pointer, self.opened_at)

    def attached(self, pointer: Pointer) -> None:
        self.linkless_since = None
        self.used(pointer)

    def detached(self, pointer: Pointer, *, is_last: bool) -> None:
        self._used_at.pop(pointer, None)
        if is_last:
            self.linkless_since = self._now_ms()
