"""The outcomes of a delivery: how a receiver settles a locked message.

Knows the five outcomes and their fields. Does not know their wire form (`amqp/` has that table).
Property changes are application properties to add or replace [wire 5.7].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field

from .lazy_dataclass import dataclass


@dataclass(frozen=True, slots=True)
class Complete:
    """The message leaves the entity."""


@dataclass(frozen=True, slots=True)
class Release:
    """The lock ends and the message is available again; the delivery count stays."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The lock ends, the delivery count rises, the message is available again (or dead-lettered at the limit)."""

    properties: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Defer:
    """The delivery count rises, the message stays (or is dead-lettered at the limit); receivers get it by number."""

    properties: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The message moves to the dead-letter queue; None omits the reason or description."""

    reason: str | None = None
    description: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])


Outcome = Complete | Release | Abandon | Defer | DeadLetter
