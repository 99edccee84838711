"""A message of the model: one in one place, and the copies that rules make of it.

Where copies meet at an entity that takes one of them it is open which comes first: an `Event` has all possibilities.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any

from .memory import Identity
from .shapes import Rule

ACTIVE, DEFERRED, SCHEDULED, UNDER_WAY = "ACTIVE", "DEFERRED", "SCHEDULED", "UNDER_WAY"
DEAD_LETTER, DEAD_LETTER_DEFERRED = "DEAD_LETTER", "DEAD_LETTER_DEFERRED"
TRANSFER_DEAD_LETTER, TRANSFER_DEAD_LETTER_DEFERRED = "TRANSFER_DEAD_LETTER", "TRANSFER_DEAD_LETTER_DEFERRED"
DEFERRED_HOMES = {
    ACTIVE: DEFERRED,
    DEAD_LETTER: DEAD_LETTER_DEFERRED,
    TRANSFER_DEAD_LETTER: TRANSFER_DEAD_LETTER_DEFERRED,
}
HOPS_MAX = 4
TOO_MANY_HOPS = "MaxTransferHopCountExceeded"
NO_SESSION = "Session ID is null."
TOO_MANY_DELIVERIES = "MaxDeliveryCountExceeded"
EXPIRED = "TTLExpiredException"
BY_CLIENT = "by the client"
NEVER = 1 << 62


@dataclass(eq=False)
class Holding:
    """A message session in the hands of a receiver."""

    until: int
    is_sure: bool  # False: the broker may have dropped it


@dataclass(eq=False)
class Item:
    """One message in one place; instants are Unix ms."""

    label: int
    path: str
    home: str
    session: str | None
    key: str | None
    id: str | None
    colour: str | None
    ttl_ms: int | None
    rule: str | None = None
    reason: str | None = None
    hops: int = 0
    count: tuple[int, int] = (0, 0)  # least and most
    expires: tuple[int, int] = (NEVER, NEVER)  # earliest and latest
    due_at: int = 0  # when it is scheduled for
    number: int | None = None  # once it was seen
    lock_until: int = 0
    lock_sure: bool = True  # False: the broker may have dropped the lock
    token: bytes = b""  # of the last lock
    is_in_session: bool = False  # its lock is that of a message session
    doubts: set[str] = field(default_factory=set)
    trail: tuple[tuple[str, str | None], ...] = ()  # the entities that it came through, and the key that it had there
    rank: int = 0  # the order in which messages were accepted; 0 if none is promised
    is_calm: bool = True  # it came while all stores worked, and counts for the spread over partitions
    event: Event | None = None  # what brought it here, if it may have brought something else

    @property
    def partition_key(self) -> str | None:
        """What chooses the partition."""
        return self.session if self.session is not None else self.key

    def but(self, **changes: Any) -> Item:
        """A copy of it with other values of these fields: as `dataclasses.replace`, which takes ten times as long."""
        other: Item = object.__new__(Item)
        other.__dict__ |= self.__dict__
        other.__dict__ |= changes
        return other

    def look(self) -> tuple[object, ...]:
        """What tells it from another copy of its message, in one place or another."""
        place = self.path, self.home, self.session, self.key, self.colour, self.rule, self.reason
        return *place, self.hops, self.ttl_ms, self.expires, self.count, self.trail, sorted(self.doubts)

    def is_like(self, other: Item) -> bool:
        """Whether nobody could tell it from another copy of its message."""
        return self.look()[:9] == other.look()[:9]

    def __str__(self) -> str:
        return (
            f"message {self.label} in {self.path} ({self.home}): session {self.session}, key {self.key}, "
            f"count {self.count}, hops {self.hops}, {self.reason or 'no reason'}, doubts {sorted(self.doubts)}"
        )


@dataclass(eq=False)
class Possibility:
    """What may have become of a message: where it and its copies are, and as what entities remember them.

    An identity is sure, or the message may have been taken for a duplicate on its way there.
    """

    items: list[Item]
    identities: dict[Identity, bool] = field(default_factory=dict)

    def looks(self) -> list[object]:
        """All that tells it from another one."""
        return sorted((each.look() for each in self.items), key=repr)


@dataclass(eq=False)
class Event:
    """Something that happened to a message, and all that may have become of it then; the first is in the model."""

    possibilities: list[Possibility]

    def has_in_any_case(self, item: Item) -> bool:
        """Whether as many messages as now are in the place and message session of one, whichever copies came first."""
        place = item.path, item.home, item.session
        counts = [
            sum((each.path, each.home, each.session) == place for each in possibility.items if not each.doubts)
            for possibility in self.possibilities
        ]
        return min(counts) == counts[0]

    def confirm(self, item: Item) -> None:
        """A message of the first possibility is there: what has none like it did not happen."""
        left: list[Possibility] = []
        for possibility in self.possibilities:
            there = item if item in possibility.items else next(filter(item.is_like, possibility.items), None)
            if there is not None:
                left.append(replace(possibility, items=[each for each in possibility.items if each is not there]))
        self.possibilities = left
        item.event = None


def copies(rules: Iterable[Rule], item: Item) -> list[Item]:
    """What a subscription with these rules gets of a message: one for all rules without action, one for each with."""
    hits = [rule for rule in rules if rule.colour is None or rule.colour == item.colour]
    plain = [item] if any(rule.action is None for rule in hits) else []
    return plain + [changed(rule, item) for rule in hits if rule.action is not None]


def changed(rule: Rule, item: Item) -> Item:
    """A copy as the action of a rule leaves it."""
    copy = item.but(rule=rule.name)
    match rule.action:
        case "set session":
            copy.session, copy.key = rule.value, None
        case "session from colour":
            copy.session, copy.key = item.colour, None
        case "session beside key":
            copy.session = rule.value
        case "drop session":
            copy.session = None
        case "set key":
            copy.session, copy.key = None, rule.value
        case "drop key":
            copy.key = None
        case "set colour":
            copy.colour = rule.value
        case _:
            raise AssertionError(rule)
    return copy


def given_id(label: int) -> str:
    """What stands for the message id that the service gives to a message without."""
    return f"given to {label}"


def is_given(item: Item) -> bool:
    """Whether no other message has the message id of this one, but its copies."""
    return item.id == given_id(item.label)


def least(first: int | None, second: int | None) -> int | None:
    """The shorter of two times to live."""
    if first is None or second is None:
        return second if first is None else first
    return min(first, second)
