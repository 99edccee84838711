"""How much of a client's credit the broker may use: one table of what is done when something happens to it.

The client gives credit to its receiver link; the link grants the broker's receiver a slice of it at a time, since what
is granted can't be taken back from messages that are on their way, and none while output has no room (R6). A drain
gives the credit back once the broker has handed over what it has [wire 5.6].

Phases, and who leaves them:

* `FREE`: the broker has a slice, or there is no credit.
* `HELD`: there is no room; the broker has nothing until `resume`.
* `DRAINING`: the broker was asked to give what it has within its slice, and then to say so (`drained`).
* `DRAIN_HELD`: the drain's slice was used up, or there is no room; the drain begins anew with `resume`.

Everything that happens is a method, which returns a row of the table: a `Step`, whose label tests and readers use.
Before adding a row: whatever sets `HELD` or `DRAIN_HELD` must have the link's `resume` called later, or the client
waits for ever; a drain must end in `GIVE_BACK`, `TAKEN_BACK` or with the link.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

_FIRST_GUESS_BYTES: Final = 16 * 1024
"""Size of a message before any was seen."""
_MESSAGE_BYTES_MIN: Final = 256
"""Counted for a small message: a slice of empty ones is still bounded."""


class Phase(Enum):
    """See the module."""

    FREE = "free"
    HELD = "held"
    DRAINING = "draining"
    DRAIN_HELD = "drain held"


_DRAINS: Final = (Phase.DRAINING, Phase.DRAIN_HELD)


class Step(Enum):
    """The rows: phase and event, and what the link does. The values are their labels."""

    # a flow of the client
    SAME = "A"
    """FREE, HELD; nothing new and no question: nothing."""
    NOTED = "B"
    """DRAINING, DRAIN_HELD: nothing, what goes on when the drain is over sees the new credit."""
    GRANT = "C"
    """FREE, HELD; other credit: grant a slice of it."""
    SHOW = "D"
    """FREE, HELD; asks for the link's state: grant, then answer."""
    DRAIN = "E"
    """FREE, HELD; a drain, and there is credit: grant, then have the broker drain: DRAINING."""
    GIVE_BACK = "F"
    """FREE, HELD; a drain without credit, or without the broker: grant, then give back what is left."""
    # the broker has drained
    TAKEN_BACK = "G"
    """DRAINING, DRAIN_HELD; the client wants no drain any more: grant: FREE."""
    NEXT_SLICE = "H"
    """DRAINING, DRAIN_HELD; only the slice was at its end: go on once output has gone: DRAIN_HELD."""
    DRAINED = "I"
    """DRAINING, DRAIN_HELD; the broker has no more: give back what is left: FREE."""
    # output has gone, or what stands before the broker has changed
    GRANT_ANEW = "J"
    """FREE, HELD: grant."""
    BUSY = "K"
    """DRAINING: nothing, `drained` goes on."""
    # the socket takes no more
    TAKE_BACK = "L"
    """FREE: the broker may use nothing: HELD."""
    STOP_DRAIN = "M"
    """DRAINING: as before: DRAIN_HELD."""
    NOTHING_GRANTED = "N"
    """Any: nothing, the broker has no credit."""
    # messages were sent
    TOP_UP = "O"
    """FREE, HELD; less than half of a slice is left, and there is credit: grant."""
    ENOUGH = "P"
    """Any: nothing."""


class Credit:
    """The share of one link's credit that the broker has. `slice_count_max` and `slice_bytes_max` bound a slice."""

    __slots__ = ("_bytes_max", "_count_max", "_message_bytes", "granted", "phase", "slice")

    def __init__(self, slice_count_max: int, slice_bytes_max: int) -> None:
        self._count_max = slice_count_max
        self._bytes_max = slice_bytes_max
        self._message_bytes = _FIRST_GUESS_BYTES
        self.granted = 0
        """How many more messages the broker may hand over; below 0 for those that were under way when it was held."""
        self.phase = Phase.FREE
        self.slice = self._slice()
        """How many messages the broker may hand over at a time."""

    def _slice(self) -> int:
        return min(self._count_max, max(1, self._bytes_max // self._message_bytes))

    def is_draining(self) -> bool:
        """Whether the client waits for the end of a drain."""
        return self.phase in _DRAINS

    # ---- what happens

    def flow(self, *, is_new: bool, asks: bool, drains: bool, can_drain: bool) -> Step:
        """A flow of the client; `can_drain`: there is credit, and a broker that could use it."""
        if self.phase in _DRAINS:
            return Step.NOTED
        if not asks:
            return Step.GRANT if is_new else Step.SAME
        if not drains:
            return Step.SHOW
        return Step.DRAIN if can_drain else Step.GIVE_BACK

    def drained(self, given: int, *, drains: bool) -> Step:
        """The broker has handed over what it has within its slice; `given` is the client's credit that is left."""
        used_up, self.granted = self.granted <= 0, 0
        if not drains:
            self.phase = Phase.FREE
            return Step.TAKEN_BACK
        if used_up and given:
            self.phase = Phase.DRAIN_HELD
            return Step.NEXT_SLICE
        self.phase = Phase.FREE
        return Step.DRAINED

    def resume(self, *, drains: bool, can_drain: bool) -> Step:
        """There may be room: a drain that was held is asked for anew."""
        if self.phase is Phase.DRAINING:
            return Step.BUSY
        if self.phase is Phase.DRAIN_HELD:
            self.phase = Phase.FREE
            return self.flow(is_new=True, asks=True, drains=drains, can_drain=can_drain)
        return Step.GRANT_ANEW

    def hold(self) -> Step:
        """The socket takes no more."""
        if self.granted <= 0:
            return Step.NOTHING_GRANTED
        self.granted = 0
        if self.phase is Phase.DRAINING:
            self.phase = Phase.DRAIN_HELD
            return Step.STOP_DRAIN
        self.phase = Phase.HELD
        return Step.TAKE_BACK

    def sent(self, count: int, given: int, last_bytes: int) -> Step:
        """The client gets `count` messages, the last of them of so many bytes; `given` of its credit is left."""
        known_bytes = self._message_bytes
        message_bytes = max(_MESSAGE_BYTES_MIN, last_bytes, (known_bytes + last_bytes) // 2)
        if message_bytes != known_bytes:  # messages of one queue are often of one size
            self._message_bytes = message_bytes
            self.slice = self._slice()
        self.granted -= count
        is_short = self.granted < given and self.granted * 2 < self.slice
        return Step.TOP_UP if is_short and not self.is_draining() else Step.ENOUGH

    # ---- what the link does

    def grant(self, given: int, *, has_room: bool) -> int:
        """Grant a slice of `given` credit, without room nothing; return what the broker has now."""
        assert self.phase not in _DRAINS, "a drain has the slice that it began with"
        self.granted = min(given, self.slice) if has_room else 0
        self.phase = Phase.FREE if has_room else Phase.HELD
        return self.granted

    def begin_drain(self) -> None:
        self.phase = Phase.DRAINING

    def close(self) -> bool:
        """The broker is gone; whether a drain is still to be answered."""
        was_draining, self.phase, self.granted = self.is_draining(), Phase.FREE, 0
        return was_draining
