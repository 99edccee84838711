"""What happened to a message as lines for people: an event, and why a subscription did not take the message.

Knows their words and how they are indented. Does not know how events are kept, nor where they were read: the server
has them from its ring, the test kit from an answer. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from typing import Final, Protocol

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


class RuleSaid(Protocol):
    """What a rule of a subscription says of a message."""

    @property
    def name(self) -> str: ...

    @property
    def reason(self) -> str | None: ...


def moment_text(at_ms: int) -> str:
    """An instant (Unix ms) in UTC with its milliseconds; as a number if no calendar has it."""
    try:
        at = _EPOCH + timedelta(milliseconds=at_ms)
    except OverflowError:
        return f"{at_ms} ms"
    return at.isoformat(sep=" ", timespec="milliseconds").removesuffix("+00:00")


def event_line(at_ms: int, entity: str, text: str, refusals: Iterable[str]) -> str:
    """An event as a line, with the subscriptions that did not take the message (`refusal_text`) below it."""
    return "\n    ".join([f"{moment_text(at_ms)}  {entity}: {text}", *refusals])


def refusal_text(subscription: str, rules: Iterable[RuleSaid]) -> str:
    """Why a subscription does not take a message, as a sentence."""
    said = "; ".join(f"rule '{each.name}': {each.reason or 'does not match'}" for each in rules)
    return f"'{subscription}' does not take the message: {said or 'it has no rules'}."
