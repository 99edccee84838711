"""The system properties that rules know (`sys.Label`, …): one table [wire 10.9].

Knows each property's name, where in an encoded message it lives and of which kind its values are. Does not know how
a message is read (`context`) or changed (`editing`). Names are compared without regard to case; the table's spelling
is the canonical one. Immutable.
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final


class Section(Enum):
    """Where a system property lives."""

    PROPERTIES = auto()  # a field of the properties section
    HEADER = auto()  # a field of the header section
    ANNOTATIONS = auto()  # a message annotation of the sender
    BROKER = auto()  # decided by the broker: an action cannot change it
    IGNORED = auto()  # an action may change it, without effect [wire 10.9]


class Kind(Enum):
    """What values a settable property takes."""

    TEXT = auto()
    SYMBOL = auto()
    SPAN = auto()
    BOOLEAN = auto()
    NONE = auto()


@dataclass(frozen=True, slots=True)
class SystemProperty:
    """One system property; `position` is its place in the list of its section, `annotation` its key."""

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

_BY_KEY: Final[Mapping[str, SystemProperty]] = {
    **{each.name.lower(): each for each in _TABLE},
    "subject": SYSTEM_PROPERTIES["Label"],  # its name in the newer SDKs
}


def system_property(name: str) -> SystemProperty | None:
    """The system property of that name in any case, None if there is none."""
    return _BY_KEY.get(name.lower())


def unknown_system_property(name: str) -> str:
    """What to tell about a name that is no system property: with the nearest one, if any is near."""
    near = difflib.get_close_matches(name.lower(), _BY_KEY, 1)
    hint = f"; did you mean sys.{_BY_KEY[near[0]].name if near[0] != 'subject' else 'Subject'}?" if near else ""
    return f"there is no system property {name!r:.80}{hint}"
