"""What every page says at its top: that something is on which makes the namespace behave unusually.

Knows conditions, faults and the clock; outages have a line of their own. Says nothing that changes each second, since
a screen reader says it again with each change. Does not know how they begin and end.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from ...broker.clock import Clock
from ...conditions.engine import Conditions
from .rendering import span

NAMES_MAX: Final = 5
MOVED_MS: Final = 1_000
"""A clock that is less ahead is not moved on purpose."""


@dataclass(frozen=True, slots=True)
class Alert:
    """A sentence, and the view on which something can be done about it, with the text of its link."""

    text: str
    view: str
    link: str


def alerts_of(conditions: Conditions, clock: Clock) -> list[Alert]:
    """Conditions, faults and a moved clock, in this order."""
    found: list[Alert] = []
    started = [(each.name, each.entity) for each in conditions.list()]
    if started:
        found.append(Alert(_sentence("Condition", started), "failures", "End"))
    faults = [(f"{each.kind.value} of {', '.join(each.operations)}", each.entity) for each in conditions.faults()]
    if faults:
        found.append(Alert(_sentence("Fault", faults), "failures", "End"))
    if clock.is_frozen:
        found.append(Alert("The broker's clock stands still: no lock ends and nothing expires.", "namespace", "Clock"))
    elif abs(clock.offset_ms) >= MOVED_MS:
        ahead = span(abs(clock.offset_ms) // 1_000 * 1_000)
        way = "ahead of" if clock.offset_ms > 0 else "behind"
        found.append(Alert(f"The broker's clock is {ahead} {way} the machine's.", "namespace", "Clock"))
    return found


def _sentence(kind: str, on: Sequence[tuple[str, str | None]]) -> str:
    """`Conditions on: throttled (orders), far-away.`"""
    names = [name if entity is None else f"{name} ({entity})" for name, entity in on[:NAMES_MAX]]
    more = f" and {len(on) - NAMES_MAX} more" if len(on) > NAMES_MAX else ""
    return f"{kind}{'s' if len(on) > 1 else ''} on: {', '.join(names)}{more}."
