"""The table of system properties in rules (`sys.Label`, …) [wire 10.9].

Knows each property's name, its section in an encoded message and the kind of its values. Does not read (`context`) or
change (`editing`) messages. Names are case-insensitive; the table has the canonical spelling. Immutable.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import Final

from ..lazy_dataclass import dataclass


class Section(Enum):
    """The section of a system property."""

    PROPERTIES = auto()  # a field of the properties section
    HEADER = auto()  # a field of the header section
    ANNOTATIONS = auto()  # a message annotation of the sender
    BROKER = auto()  # set by the broker: an action cannot change it
    IGNORED = auto()  # an action may change it, without effect [wire 10.9]


class Kind(Enum):
    """The kinds of values of a settable property."""

    TEXT = auto()
    SYMBOL = auto()
    SPAN = auto()
    BOOLEAN = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SystemProperty:
    """One system property; `position` is its index in the list of its section, `annotation` its key."""

    name: str
    section: Section
    kind: Kind = Kind.NONE
    position: int = 0
    annotation: str = ""


_TABLE: Final = (
    SystemProperty("ContentType", Section.PROPERTIES, Kind.SYMBOL, 6),
    SystemProperty("CorrelationId", Section.PROPERTIES, Kind.TEXT, 5),
    SystemProperty("DeadLetterSource", Section.BROKER),
    SystemProperty("DeliveryCount", Section.BROKER),
    SystemProperty("EnqueuedSequenceNumber", Section.BROKER),
    SystemProperty("EnqueuedTimeUtc", Section.BROKER),
    SystemProperty("ExpiresAtUtc", Section.BROKER),
    SystemProperty("ForcePersistence", Section.HEADER, Kind.BOOLEAN, 0),
    SystemProperty("Label", Section.PROPERTIES, Kind.TEXT, 3),
    SystemProperty("LockedUntilUtc", Section.BROKER),
    SystemProperty("LockToken", Section.BROKER),
    SystemProperty("MessageId", Section.PROPERTIES, Kind.TEXT, 0),
    SystemProperty("PartitionKey", Section.ANNOTATIONS, Kind.TEXT, annotation="x-opt-partition-key"),
    SystemProperty("ReplyTo", Section.PROPERTIES, Kind.TEXT, 4),
    SystemProperty("ReplyToSessionId", Section.PROPERTIES, Kind.TEXT, 12),
    SystemProperty("ScheduledEnqueueTimeUtc", Section.IGNORED),
    SystemProperty("SequenceNumber", Section.BROKER),
    SystemProperty("SessionId", Section.PROPERTIES, Kind.TEXT, 10),
    SystemProperty("Size", Section.BROKER),
    SystemProperty("State", Section.BROKER),
    SystemProperty("TimeToLive", Section.HEADER, Kind.SPAN, 2),
    SystemProperty("To", Section.PROPERTIES, Kind.TEXT, 2),
    SystemProperty("ViaPartitionKey", Section.ANNOTATIONS, Kind.TEXT, annotation="x-opt-via-partition-key"),
)
SYSTEM_PROPERTIES: Final[Mapping[str, SystemProperty]] = {each.name: each for each in _TABLE}
"""By canonical name."""

ALIASES: Final[Mapping[str, str]] = {
    "Subject": "Label",
    "ScheduledEnqueueTime": "ScheduledEnqueueTimeUtc",
    "TransactionPartitionKey": "ViaPartitionKey",
}
"""Newer names, and the canonical ones."""

_BY_KEY: Final[Mapping[str, SystemProperty]] = {
    **{each.name.lower(): each for each in _TABLE},
    # ServiceBusMessage's names, which the page says to use [SB: service-bus-filter-examples].
    **{each.lower(): SYSTEM_PROPERTIES[name] for each, name in ALIASES.items()},
}


def system_property(name: str) -> SystemProperty | None:
    """Return the system property of a name, in any case, or None."""
    return _BY_KEY.get(name.lower())


def unknown_system_property(name: str) -> str:
    """Return the error text for an unknown system property, with a similar name if there is one."""
    from difflib import get_close_matches  # only for a mistake

    near = get_close_matches(name.lower(), _BY_KEY, 1)
    newer = {each.lower(): each for each in ALIASES}
    hint = f"; did you mean sys.{newer.get(near[0], _BY_KEY[near[0]].name)}?" if near else ""
    return f"there is no system property {name!r:.80}{hint}"
