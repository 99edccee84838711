"""A condition that is on: its behaviours, what it planned, and what struck.

Knows when it has struck often enough and when its time is over. Does not know which conditions there are.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from ..broker.ids import new_tracking_id
from .behaviour import Behaviour

STRUCK_MAX: Final = 1_000
"""How many of the last strikes a condition lists; it counts all of them."""


@dataclass(frozen=True, slots=True)
class Struck:
    """One strike: when (Unix ms), by which behaviour, for which scope, and which of its decisions it was."""

    number: int
    at: int
    behaviour: str
    scope: str
    what: str
    decision: int
    tracking_id: str


@dataclass(frozen=True, slots=True)
class Planned:
    """What a condition will do, known from its start: when (Unix ms), by which behaviour, and what."""

    at: int
    behaviour: str
    what: str


@dataclass(slots=True)
class StartedCondition:
    """A condition, or a fault, which is one with a single behaviour and a number among faults.

    `ends_at` (Unix ms) and `left` strikes are None if nothing ends it by itself.
    """

    number: int
    name: str
    seed: int
    entity: str | None
    started_at: int
    ends_at: int | None
    left: int | None
    is_fault: bool = False
    behaviours: Sequence[Behaviour] = ()
    plan: list[Planned] = field(default_factory=list[Planned])
    struck: deque[Struck] = field(default_factory=lambda: deque[Struck](maxlen=STRUCK_MAX))
    counts: Counter[str] = field(default_factory=Counter[str])
    """Strikes by behaviour."""

    @property
    def struck_count(self) -> int:
        return self.counts.total()

    def begin(self, behaviours: Sequence[Behaviour]) -> None:
        self.behaviours = behaviours

    def strike(self, at: int, behaviour: str, scope: str, what: str, decision: int) -> Struck | None:
        """Note a strike; None if the condition has struck often enough."""
        if self.left is not None:
            if self.left <= 0:
                return None
            self.left -= 1
        self.counts[behaviour] += 1
        struck = Struck(self.struck_count, at, behaviour, scope, what, decision, new_tracking_id())
        self.struck.append(struck)
        return struck
