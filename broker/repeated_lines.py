"""Lines of the log that anybody can cause, as often as he likes: of each kind a few in a while, then how many more.

A kind is an event, whose text is in the code. Does not know what happened.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from .clock import Clock

WHILE_MS: Final = 10_000
LINES_MAX: Final = 10
"""Of one kind in a while: enough to see who does it, and a kilobyte or two in ten seconds whatever he does."""
MORE: Final = "{}: {:,} more of these lines in the last {} s"

Write = Callable[..., object]
"""A method of a logger: takes the event and its fields."""


class RepeatedLines:
    """Writes lines, or counts them."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._counts: dict[str, int] = {}

    def write(self, write: Write, event: str, **fields: object) -> None:
        """Write a line with `write`, if there are not many like it."""
        count = self._counts.get(event, 0)
        self._counts[event] = count + 1
        if not count:
            self._clock.call_after(WHILE_MS, partial(self._end, write, event))
        if count < LINES_MAX:
            write(event, **fields)

    def _end(self, write: Write, event: str) -> None:
        more = self._counts.pop(event) - LINES_MAX
        if more > 0:
            write(MORE.format(event, more, WHILE_MS // 1000))
