"""An event as a sentence for people and as JSON for programs.

Knows the words for each kind of event, and why a message is in its partition. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ..broker.api import EventKind
from ..broker.aside import Aside
from ..broker.errors import BrokerError
from ..broker.message.message import Message
from ..broker.model.descriptions import RuleDescription
from .ring import Entry, Story
from .search import Found, Place, Sought, id_of, search
from .verdicts import Verdict, verdicts_on

VERDICTS_MAX: Final = 200
"""Subscriptions of a topic whose rules are explained for one message."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class TraceEvent:
    """An event of one message; `text` is a sentence, `verdicts` those of a topic's subscriptions."""

    found: Found
    text: str
    verdicts: Sequence[Verdict] = ()
    is_bad: bool = False
    """Whether the message took a way that its sender may not expect."""

    @property
    def message_id(self) -> str | None:
        """The id of the message, if the event has the message."""
        return message_id_of(self.found.message)

    def to_json(self) -> dict[str, object]:
        entry = self.found.entry
        return {
            "at": entry.at,
            "event": entry.kind.value,
            "entity": entry.path,
            "partition_id": entry.partition_id,
            "sequence_number": self.found.sequence_number,
            "message_id": self.message_id,
            "by": str(entry.facts.get("by") or "") or None,
            "struck_by": str(entry.facts.get("cause") or "") or None,
            "text": self.text,
            "is_bad": self.is_bad,
            "verdicts": [_verdict_json(each) for each in self.verdicts],
        }


def _verdict_json(verdict: Verdict) -> dict[str, object]:
    rules = [{"name": each.name, "matches": each.matches, "reason": each.reason or None} for each in verdict.rules]
    return {"subscription": verdict.path, "takes": verdict.takes, "rules": rules}


def message_id_of(message: Message | None) -> str | None:
    """The id of a message, None if it has none that can be read."""
    try:
        return None if message is None else id_of(message)
    except BrokerError:
        return None


async def trace(
    story: Story,
    aside: Aside,
    *,
    path: str | None = None,
    sequence_number: int | None = None,
    message_id: str | None = None,
    session_id: str | None = None,
    count_max: int = 200,
    before: Place | None = None,
) -> list[TraceEvent]:
    """The last `count_max` events of the messages that are sought, in order; without a criterion of all messages. With
    `before` the last ones before that place.

    The search takes its time aside: several threads would leave the loop a part of the interpreter only.
    """
    sought = Sought(path, sequence_number, message_id, session_id)
    entries = story.entries()
    return await aside.run(lambda: [trace_event(each) for each in search(entries, sought, count_max, before)])


def trace_event(found: Found) -> TraceEvent:
    entry, message = found.entry, found.message
    if entry.kind is EventKind.ROUTED and message is not None:
        return _routing_event(found, message)
    if entry.kind is EventKind.SENT:
        return TraceEvent(found, _sent_text(found, message), is_bad=found.sequence_number is None)
    text = _TEXTS[entry.kind](entry.facts)
    if entry.kind is EventKind.FORWARDED and found.sequence_number is None:
        return TraceEvent(found, "Arrived from another entity as a duplicate and was dropped", is_bad=True)
    return TraceEvent(found, text, is_bad=entry.kind in _BAD)


def _routing_event(found: Found, message: Message) -> TraceEvent:
    rules = found.entry.facts["rules"]
    assert isinstance(rules, Mapping)
    first: dict[str, Sequence[RuleDescription]] = dict(list(rules.items())[:VERDICTS_MAX])
    verdicts = verdicts_on(message, first, found.entry.at)
    more = f"; {len(rules) - len(first)} more are not shown" if len(rules) > len(first) else ""
    if not rules:
        return TraceEvent(found, "The topic has no subscription: no receiver gets the message", is_bad=True)
    takers = sum(each.takes for each in verdicts)
    if not takers and not more:
        return TraceEvent(found, "No subscription takes the message: no rule matches", verdicts, is_bad=True)
    return TraceEvent(found, f"{takers} of {len(rules)} subscriptions take the message{more}", verdicts)


def _sent_text(found: Found, message: Message | None) -> str:
    entry = found.entry
    by = f" by {entry.facts['by']}" if entry.facts.get("by") else ""
    if found.sequence_number is None:
        return f"Sent{by} and dropped: a message with this id was sent within the duplicate detection window"
    at = None if message is None else message.scheduled_enqueue_at
    later = f", scheduled for {instant(at)}" if at is not None and at > entry.at else ""
    return f"Sent{by}{later}{_partition_phrase(entry, message)}"


def _partition_phrase(entry: Entry, message: Message | None) -> str:
    """The partition of an arriving message and why it is this one, as the end of a sentence."""
    if entry.partition_id is None:
        return ""
    left = entry.facts.get("others_left")
    if isinstance(left, int):
        return f", to partition {entry.partition_id}: it has no key, and partitions take turns"
    return f", to partition {entry.partition_id}{_key(entry, message)}"


def _key(entry: Entry, message: Message | None) -> str:
    if message is None:
        return ""
    try:
        keys = {"session id": message.session_id, "partition key": message.partition_key}
        if entry.detects_duplicates:
            keys["message id (duplicate detection)"] = message.message_id
    except BrokerError:
        return ""
    found = next(((name, value) for name, value in keys.items() if value is not None), None)
    return "" if found is None else f": that of its {found[0]}, '{found[1]}'"


def instant(at_ms: object) -> str:
    """An instant (Unix ms) in UTC."""
    if not isinstance(at_ms, int):
        return "?"
    try:
        return (_EPOCH + timedelta(milliseconds=at_ms)).strftime("%Y-%m-%d %H:%M:%S UTC")
    except OverflowError:
        return f"{at_ms} ms"


def _by_phrase(facts: Mapping[str, object]) -> str:
    return f" by {facts['by']}" if facts.get("by") else ""


def _of_client(facts: Mapping[str, object]) -> str:
    preposition = "to" if facts["operation"] == "delivery" else "by"
    return f" {preposition} {facts['by']}" if facts.get("by") else ""


def _dead_lettered(facts: Mapping[str, object]) -> str:
    reason = ": ".join(str(facts[name]) for name in ("reason", "text") if facts.get(name))
    to = f", to be forwarded to '{facts['to']}'" if facts.get("to") else ""
    return f"Dead-lettered{to}" + (f": {reason}" if reason else "")


def _change_text(verb: str) -> Callable[[Mapping[str, object]], str]:
    def text(facts: Mapping[str, object]) -> str:
        properties = facts.get("properties")
        if not isinstance(properties, Mapping) or not properties:
            return verb
        return f"{verb}, with {', '.join(f'{name} = {value}' for name, value in properties.items())}"

    return text


_Text = Callable[[Mapping[str, object]], str]
_TEXTS: Final[Mapping[EventKind, _Text]] = {
    EventKind.REFUSED: lambda facts: f"Refused{_by_phrase(facts)}: {facts['reason']}",
    EventKind.ROUTED: lambda _: "The rules of the subscriptions were tested",
    EventKind.ACTIVATED: lambda facts: (
        "Delivered before its time, on request" if facts["is_early"] else "The scheduled time has come"
    ),
    EventKind.COPIED: lambda _: "Copied to the subscription",
    EventKind.FORWARDING: lambda facts: (
        f"To be forwarded to '{facts['to']}'" if "to" in facts else "To be forwarded to another partition of the target"
    ),
    EventKind.FORWARDED: lambda _: "Arrived by forwarding",
    EventKind.LOCKED: lambda facts: f"Locked{_by_phrase(facts)} until {instant(facts['until_at'])}",
    EventKind.RECEIVED: lambda facts: f"Received and deleted{_by_phrase(facts)}",
    EventKind.LOCK_RENEWED: lambda facts: f"Lock renewed until {instant(facts['until_at'])}",
    EventKind.LOCK_EXPIRED: lambda _: "The lock expired: it counts as a delivery attempt",
    EventKind.COMPLETED: lambda _: "Completed",
    EventKind.ABANDONED: _change_text("Abandoned"),
    EventKind.DEFERRED: _change_text("Deferred"),
    EventKind.RELEASED: lambda _: "Released: available again, no delivery attempt is counted",
    EventKind.EXPIRED: lambda _: "Expired and deleted: its time to live is over",
    EventKind.DEAD_LETTERED: _dead_lettered,
    EventKind.RESUBMITTED: lambda _: "Resubmitted from the dead-letter queue",
    EventKind.CANCELED: lambda _: "The schedule was canceled",
    EventKind.DELETED: lambda _: "Deleted by a request",
    EventKind.SESSION_ACCEPTED: lambda facts: (
        f"Session '{facts['session']}' accepted{_by_phrase(facts)} until {instant(facts['until_at'])}"
    ),
    EventKind.SESSION_RELEASED: lambda facts: f"Session '{facts['session']}' released",
    EventKind.SESSION_LOCK_EXPIRED: lambda facts: f"The lock of session '{facts['session']}' expired",
    EventKind.STRUCK: lambda facts: (
        f"The {facts['operation']}{_of_client(facts)} was {facts['what']}: struck by {facts['cause']}"
    ),
}
_BAD: Final = frozenset(
    {
        EventKind.REFUSED,
        EventKind.LOCK_EXPIRED,
        EventKind.EXPIRED,
        EventKind.DEAD_LETTERED,
        EventKind.SESSION_LOCK_EXPIRED,
        EventKind.STRUCK,
    }
)
