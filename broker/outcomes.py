"""How a receiver may settle a locked message, in the broker's words.

Knows the five outcomes and what each carries; refuses to know how they look on the wire (`amqp/` has that table).
Property changes are application properties to add or replace [wire 5.7].
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Complete:
    """The message is done with and leaves the entity."""


@dataclass(frozen=True, slots=True)
class Release:
    """The lock ends and the message is available again; not counted as a delivery attempt."""


@dataclass(frozen=True, slots=True)
class Abandon:
    """The lock ends, the delivery count rises, the message is available again (or dead-lettered at the limit)."""

    properties: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class Defer:
    """The message stays, to be received by its sequence number only."""

    properties: Mapping[str, object] = field(default_factory=dict[str, object])


@dataclass(frozen=True, slots=True)
class DeadLetter:
    """The message moves to the dead-letter queue; `None` leaves the reason or description absent."""

    reason: str | None = None
    description: str | None = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])


Outcome = Complete | Release | Abandon | Defer | DeadLetter
