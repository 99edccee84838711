"""Finds the events of one message in the ring: by message id, sequence number or session.

A message has several numbers in its life: a topic's, one for each copy, one for each queue it is forwarded to, one as a
dead letter. Events name the number before, so the search follows them in both directions. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..broker.api import EventKind
from ..broker.errors import BrokerError
from ..broker.identity import folded
from ..broker.message.message import Message
from .ring import Entry

Key = tuple[int, int]
"""A message in one place: queue id and sequence number."""

Place = tuple[int, int]
"""Where an event stands among all: the number of its entry, and its position there, -1 for one of a session."""

SESSION_KINDS = (EventKind.SESSION_ACCEPTED, EventKind.SESSION_RELEASED, EventKind.SESSION_LOCK_EXPIRED)


@dataclass(frozen=True, slots=True)
class Sought:
    """What to find: events of `path` (any entity if it is None) with one of the others."""

    path: str | None = None
    sequence_number: int | None = None
    message_id: str | None = None
    session_id: str | None = None

    @property
    def is_everything(self) -> bool:
        """Whether no single message is sought."""
        return self.sequence_number is None and self.message_id is None and self.session_id is None


@dataclass(frozen=True, slots=True)
class Found:
    """An event of the message at `position` of an entry; None for an event of its session."""

    entry: Entry
    position: int | None

    @property
    def place(self) -> Place:
        """Where it stands; later events have larger ones."""
        return self.entry.number, -1 if self.position is None else self.position

    @property
    def sequence_number(self) -> int | None:
        """The number of the message, None for one that was not stored."""
        return None if self.position is None else self.entry.numbers[self.position]

    @property
    def message(self) -> Message | None:
        return None if self.position is None else self.entry.message(self.position)


def search(
    entries: Sequence[Entry], sought: Sought, count_max: int | None = None, before: Place | None = None
) -> list[Found]:
    """The events of every message that is sought, in the order in which they happened: the last `count_max`, of those
    `before` a place.

    Without a number, an id and a session these are the events of every message, of `path` alone if it is given.
    """
    if sought.is_everything:
        return _last_of_all(entries, sought.path, count_max, before)
    keys: set[Key] = set()
    lost: set[tuple[int, int]] = set()  # (number of the entry, position) of messages that were not stored
    sessions: set[tuple[int, str]] = set()
    for entry in entries:
        if sought.path is None or entry.path.lower() == sought.path.lower():
            _begin(entry, sought, keys, lost, sessions)
    _follow(entries, keys)
    found = [each for each in _found_among(entries, keys, lost, sessions) if before is None or each.place < before]
    return found if count_max is None else found[-count_max:]


def _last_of_all(
    entries: Sequence[Entry], path: str | None, count_max: int | None, before: Place | None
) -> list[Found]:
    """The last `count_max` events of every message, or of those of `path` alone, `before` a place."""
    found: list[Found] = []
    for entry in reversed(entries):
        if count_max is not None and len(found) >= count_max:
            break
        if path is None or entry.path.lower() == path.lower():
            places = range(len(entry.numbers) - 1, -1, -1) if entry.numbers else (None,)
            here = (Found(entry, position) for position in places)
            found += (each for each in here if before is None or each.place < before)
    found.reverse()
    return found if count_max is None else found[-count_max:]


def _begin(
    entry: Entry, sought: Sought, keys: set[Key], lost: set[tuple[int, int]], sessions: set[tuple[int, str]]
) -> None:
    """Add what an entry itself says of a message that is sought."""
    if sought.session_id is not None and _session_of(entry) == folded(sought.session_id):
        sessions.add((entry.queue_id, folded(sought.session_id)))
    if sought.sequence_number is not None and sought.sequence_number in entry.numbers:
        keys.add((entry.queue_id, sought.sequence_number))
    if sought.message_id is None and sought.session_id is None:
        return
    for position in range(len(entry.arrived)):
        message = entry.message(position)
        if message is not None and _is_sought(message, sought):
            number = entry.numbers[position]
            if number is None:
                lost.add((entry.number, position))
            else:
                keys.add((entry.queue_id, number))


def _session_of(entry: Entry) -> str | None:
    """The session of an entry, the same for all cases of its name."""
    name = entry.facts.get("session")
    return folded(name) if isinstance(name, str) else None


def _is_sought(message: Message, sought: Sought) -> bool:
    try:
        if sought.message_id is not None and id_of(message) != sought.message_id:
            return False
        if sought.session_id is None or message.session_id is None:
            return sought.session_id is None
        return folded(message.session_id) == folded(sought.session_id)
    except BrokerError:
        return False


def id_of(message: Message) -> str | None:
    """The id of a message, also one that the broker gave it. BrokerError for one that can't be read."""
    if message.message_id is not None:
        return message.message_id
    given = message.field(0)
    return given if isinstance(given, str) else None


def _follow(entries: Sequence[Entry], keys: set[Key]) -> None:
    """Add the other places of the messages, before and after."""
    count = -1
    linked = [entry for entry in entries if entry.source is not None]
    while len(keys) != count:
        count = len(keys)
        for entry in linked:
            assert entry.source is not None
            there = [(entry.queue_id, number) for number in entry.numbers if number is not None]
            if entry.source in keys:
                keys.update(there)
            elif any(key in keys for key in there):
                keys.add(entry.source)


def _found_among(
    entries: Sequence[Entry], keys: set[Key], lost: set[tuple[int, int]], sessions: set[tuple[int, str]]
) -> list[Found]:
    found: list[Found] = []
    queue_ids = {queue_id for queue_id, _ in keys}
    for entry in entries:
        if entry.kind in SESSION_KINDS:
            if (entry.queue_id, _session_of(entry)) in sessions:
                found.append(Found(entry, None))
            continue
        if entry.queue_id not in queue_ids and not lost and entry.source not in keys:
            continue
        for position, number in enumerate(entry.numbers):
            is_stored = number is not None and (entry.queue_id, number) in keys
            if is_stored or (entry.number, position) in lost or (number is None and entry.source in keys):
                found.append(Found(entry, position))
    return found
