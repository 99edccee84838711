"""The message as rules see it: system properties by name, application properties decoded at most once.

Reads every system property of a message that arrives at a topic, before any lock or delivery. Does not know rules.
Undecodable data raises `FilterException` in the rule that reads it.

A context lives while one message is matched. `Draft` is the context that the statements of one action read and change.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ...codec.durations import TICKS_PER_MS
from ...codec.types import Int
from ..errors import BrokerError
from ..message.message import Message
from .errors import FilterException
from .names import SYSTEM_PROPERTIES, Section
from .values import Instant, Span, Value, normalise


class MessageContext:
    """One message; instants are Unix milliseconds, None if unknown.

    `expires_at` None means: by the time to live of the message.
    """

    __slots__ = (
        "_folded",
        "_named",
        "_raw",
        "_system",
        "dead_letter_source",
        "delivery_count",
        "enqueued_at",
        "enqueued_sequence_number",
        "expires_at",
        "message",
        "sequence_number",
    )

    def __init__(
        self,
        message: Message,
        *,
        sequence_number: int | None = None,
        enqueued_at: int | None = None,
        expires_at: int | None = None,
        enqueued_sequence_number: int | None = None,
        dead_letter_source: str | None = None,
        delivery_count: int = 0,
    ) -> None:
        self.message = message
        self.sequence_number = sequence_number
        self.enqueued_at = enqueued_at
        self.expires_at = expires_at
        self.enqueued_sequence_number = enqueued_sequence_number
        self.dead_letter_source = dead_letter_source
        self.delivery_count = delivery_count
        self._system: dict[str, Value] = {}
        self._raw: dict[str, object] | None = None
        self._named: dict[str, Value] | None = None
        self._folded: dict[str, Value] | None = None

    def system(self, name: str) -> Value:
        """Return a system property by its canonical name, None if it is not set."""
        known = self._system
        if name not in known:
            try:
                known[name] = _READERS[name](self)
            except BrokerError as error:
                raise FilterException(f"The property {name} cannot be read: {error.description}") from None
        return known[name]

    def raw(self) -> Mapping[str, object]:
        """Return the application properties with their AMQP types, by exact name."""
        if self._raw is None:
            try:
                self._raw = self.message.application_properties()
            except BrokerError as error:
                raise FilterException(f"The application properties cannot be read: {error.description}") from None
        return self._raw

    def named(self) -> Mapping[str, Value]:
        """Return the application properties by exact name, for selectors."""
        if self._named is None:
            raw = self.raw().items()
            self._named = {name: value if type(value) is str else normalise(value) for name, value in raw}
        return self._named

    def folded(self) -> Mapping[str, Value]:
        """Return the application properties by lower-case name, for filters; the first of equal names wins."""
        if self._folded is None:
            raw = self.raw()
            folded = {name.lower(): value if type(value) is str else normalise(value) for name, value in raw.items()}
            if len(folded) < len(raw):
                folded = {}
                for name, value in self.named().items():
                    folded.setdefault(name.lower(), value)
            self._folded = folded
        return self._folded


class Draft(MessageContext):
    """A context that an action changes, statement by statement.

    `system_changes` has new values by canonical name, None for cleared ones. `user_changes` has AMQP values by exact
    name, `REMOVED` for removed ones.
    """

    __slots__ = ("_origin", "system_changes", "user_changes")

    REMOVED: Final = object()

    def __init__(self, context: MessageContext) -> None:
        super().__init__(context.message)
        self._origin = context
        self.system_changes: dict[str, Value] = {}
        self.user_changes: dict[str, object] = {}

    def system(self, name: str) -> Value:
        """Return a system property after the earlier statements."""
        return self.system_changes[name] if name in self.system_changes else self._origin.system(name)

    def raw(self) -> Mapping[str, object]:
        """Return the application properties after the earlier statements."""
        if self._raw is None:
            kept = {**self._origin.raw(), **self.user_changes}
            self._raw = {name: value for name, value in kept.items() if value is not self.REMOVED}
        return self._raw

    def names_of(self, name: str) -> list[str]:
        """Return the spellings of an application property in the message, in order."""
        key = name.lower()
        return [each for each in self.raw() if each.lower() == key]

    def set_system(self, name: str, value: Value) -> None:
        """Set or clear (None) a system property, by its canonical name."""
        self.system_changes[name] = value

    def set_user(self, name: str, raw: object) -> None:
        """Set an application property, by its exact name, or remove it (`REMOVED`)."""
        self.user_changes[name] = raw
        self._raw = self._named = self._folded = None


# ---------------------------------------------------------------- readers of system properties


def _field(position: int, context: MessageContext) -> Value:
    """Read a field of the properties section; identifiers of other types become text [wire 4.3]."""
    value = context.message.field(position)
    if isinstance(value, bytes):
        return value.hex()
    return str(value) if isinstance(value, uuid.UUID | int) else normalise(value)


def _instant(at_ms: int | None) -> Value:
    return None if at_ms is None else Instant(at_ms * TICKS_PER_MS)


def _expires_at(context: MessageContext) -> Value:
    ttl_ms = context.message.ttl_ms
    if context.expires_at is None and context.enqueued_at is not None and ttl_ms is not None:
        return _instant(context.enqueued_at + ttl_ms)
    return _instant(context.expires_at)


def _time_to_live(context: MessageContext) -> Value:
    ttl_ms = context.message.ttl_ms
    return None if ttl_ms is None else Span(ttl_ms * TICKS_PER_MS)


_READERS: Final[Mapping[str, Callable[[MessageContext], Value]]] = {
    **{
        name: partial(_field, known.position)
        for name, known in SYSTEM_PROPERTIES.items()
        if known.section is Section.PROPERTIES
    },
    "DeadLetterSource": lambda context: context.dead_letter_source,
    "DeliveryCount": lambda context: Int(
        context.delivery_count
    ),  # an int in .NET; other numbers of the broker are long
    "EnqueuedSequenceNumber": lambda context: context.enqueued_sequence_number,
    "EnqueuedTimeUtc": lambda context: _instant(context.enqueued_at),
    "ExpiresAtUtc": _expires_at,
    "ForcePersistence": lambda context: context.message.durable,
    "LockedUntilUtc": lambda _: None,  # not locked yet
    "LockToken": lambda _: None,
    "PartitionKey": lambda context: context.message.partition_key,
    "ScheduledEnqueueTimeUtc": lambda context: _instant(context.message.scheduled_enqueue_at),
    "SequenceNumber": lambda context: context.sequence_number,
    "Size": lambda context: context.message.size_bytes,
    "State": lambda _: 0,  # active
    "TimeToLive": _time_to_live,
    "ViaPartitionKey": lambda context: context.message.via_partition_key,
}
