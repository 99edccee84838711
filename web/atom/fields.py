"""The elements of each kind of description, in the service's order: one table per kind, for reading and for writing.

Knows the order, the spelling of values, and the elements that clients can't set [http 2, 3]; the others are the rows of
`broker/model/properties.py`. Does not know which values are allowed (`broker/model/profiles.py`), or where counts and
instants come from: an `EntityView` has them.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Final

from ...broker.api import Home, Totals
from ...broker.model.catalog import Description, Entry
from ...broker.model.descriptions import (
    EntityStatus,
    JmsSubscription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ...broker.model.profiles import KIB, Limits, aggregate_size_mb, message_bytes_max
from ...broker.model.properties import MESSAGE_SIZE_SINCE, PROPERTIES_OF, SERVICE_NAMES, Property, Value
from ...codec.durations import format_duration, parse_duration, parse_limit
from ..markup import CONNECT, COUNTS, INSTANCE, element, instant
from .keys import keys_markup

FILTER_COUNTS_SINCE: Final = "2024-05"


@dataclass(frozen=True, slots=True)
class EntityView:
    """An entity as an answer describes it: its description, what it holds, and how much of that the request asks for.

    `details` is False in the answers to create and update, which have no counts. `version` is the api-version, later
    than any other if the request names none.
    """

    entry: Entry
    totals: Totals
    accessed_at: int | None
    limits: Limits
    version: str
    details: bool
    subscription_count: int = 0
    sql_filter_count: int = 0
    correlation_filter_count: int = 0

    @property
    def description(self) -> Description:
        """The description, of the kind that the table is for."""
        return self.entry.description

    @property
    def top_level(self) -> QueueDescription | TopicDescription:
        """The description in the tables of queues and topics."""
        found = self.entry.description
        assert not isinstance(found, SubscriptionDescription), "subscriptions have a table of their own"
        return found

    @property
    def jms(self) -> JmsSubscription | None:
        """What marks a subscription that JMS has made."""
        found = self.entry.description
        return found.jms if isinstance(found, SubscriptionDescription) else None


@dataclass(frozen=True, slots=True)
class Field:
    """An element: `show` writes its text (None: no element); `own` is the property that clients may set with it."""

    name: str
    show: Callable[[EntityView], str | None]
    own: Property | None = None
    since: str = ""
    is_markup: bool = False


# ---------------------------------------------------------------- spelling of values


_HOST: Final = re.compile("[A-Za-z][A-Za-z0-9+.-]*://[^/]*")
_BOOLEANS: Final = {"true": True, "1": True, "false": False, "0": False}


def boolean(text: str) -> bool:
    """An XML Schema boolean, in any case. ValueError."""
    value = _BOOLEANS.get(text.lower())
    if value is None:
        raise ValueError(f"'{text}' is neither true nor false")
    return value


def _whole_number(text: str) -> int:
    """A whole number of at most 20 digits. ValueError."""
    if len(text) > 20 or not text.lstrip("-").isdecimal() or not text.isascii():
        raise ValueError(f"'{text[:20]}' is not a whole number")
    return int(text)


def _status(text: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        raise ValueError(f"'{text}' is none of {', '.join(EntityStatus)}") from None


def _address_in(text: str) -> str | None:
    """A forwarding target: a name, or an address, whose scheme and host the service returns in lower case.

    The live tests of the JavaScript SDK expect that.
    """
    host = _HOST.match(text)
    return text or None if host is None else host[0].lower() + text[host.end() :]


READ: Final[Mapping[Value, Callable[[str], object]]] = {
    Value.BOOLEAN: boolean,
    Value.COUNT: _whole_number,
    Value.BYTES: lambda text: _whole_number(text) * KIB,
    Value.DURATION: parse_duration,
    Value.LIMIT: parse_limit,
    Value.TEXT: lambda text: text or None,  # an empty text means None; the service would refuse the element
    Value.TARGET: _address_in,
    Value.STATUS: _status,
}
"""What the text of an element means; ValueError."""


def written(row: Property, value: object) -> str | None:
    """The text of an element, None for no element. ValueError for bytes that are not a multiple of 1 KiB."""
    match row.value, value:
        case ((Value.DURATION | Value.LIMIT), (int() | None)):
            return format_duration(value)
        case Value.BYTES, int():
            if value % KIB:
                raise ValueError(f"{row.field} is {value}; it must be a multiple of {KIB}")
            return str(value // KIB)
        case _, bool():
            return _boolean_text(value)
        case _:
            return None if value is None else str(value)


def _boolean_text(value: bool) -> str:
    return str(value).lower()


def _forward_to(view: EntityView) -> str | None:
    description = view.description
    shown = description.shown_forward_to if isinstance(description, QueueDescription) else None
    return shown or getattr(description, "forward_to", None)


_SHOWN: Final[Mapping[str, Callable[[EntityView], str | None]]] = {
    "forward_to": _forward_to,
    "max_message_bytes": lambda view: str(message_bytes_max(view.top_level, view.limits) // KIB),
    "max_size_mb": lambda view: str(aggregate_size_mb(view.top_level, view.limits)),
}
"""Properties whose element says something else than the description."""


def _settable(row: Property) -> Field:
    def show(view: EntityView) -> str | None:
        return written(row, getattr(view.description, row.field))

    return Field(row.name, _SHOWN.get(row.field, show), row, row.since)


def _constant(name: str, text: str) -> Field:
    return Field(name, lambda _: text)


def _only_with_details(show: Callable[[EntityView], str]) -> Callable[[EntityView], str | None]:
    return lambda view: show(view) if view.details else None


# ---------------------------------------------------------------- counts

COUNTED: Final[Mapping[str, tuple[Home, ...]]] = {
    "ActiveMessageCount": (Home.ACTIVE, Home.DEFERRED),  # the service counts deferred messages as active
    "DeadLetterMessageCount": (Home.DEAD_LETTER, Home.DEAD_LETTER_DEFERRED),
    "ScheduledMessageCount": (Home.SCHEDULED,),
    "TransferMessageCount": (Home.OUTBOX, Home.DEAD_LETTER_OUTBOX, Home.TRANSFER_OUTBOX),
    "TransferDeadLetterMessageCount": (Home.TRANSFER_DEAD_LETTER, Home.TRANSFER_DEAD_LETTER_DEFERRED),
}


def _count_details(view: EntityView) -> str:
    """The element with its prefix, which JavaScript and Python need."""
    messages = view.totals.messages
    counts = "".join(
        element(f"d2p1:{name}", str(sum(messages[home] for home in homes))) for name, homes in COUNTED.items()
    )
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{counts}</CountDetails>'


def client_affine(own: JmsSubscription | None) -> str | None:
    """The element with the client of a subscription of JMS; None for other subscriptions."""
    if own is None:
        return None
    parts = {
        "ClientId": own.client_id,
        "IsDurable": _boolean_text(own.is_durable),
        "IsShared": _boolean_text(own.is_shared),
    }
    inner = "".join(element(name, text) for name, text in parts.items())
    return f"<ClientAffineProperties>{inner}</ClientAffineProperties>"


def _message_count(view: EntityView) -> str:
    return str(sum(view.totals.messages) if view.details else 0)


def _accessed_subscription(view: EntityView) -> str:
    """The last use of a subscription; its creation if it was never used (for a queue or topic: the year 1).

    The year 1 in the answer to a change, where queues and topics have no such element [recorded].
    """
    return instant((view.accessed_at or view.entry.created_at) if view.details else None)


# ---------------------------------------------------------------- the tables

_BYTES = Field("SizeInBytes", lambda view: str(view.totals.bytes_used if view.details else 0))
_MESSAGES = Field("MessageCount", _message_count)
_ANONYMOUS = _constant("IsAnonymousAccessible", "false")
KEYS: Final = Field("AuthorizationRules", lambda view: keys_markup(view.top_level.authorization_rules), is_markup=True)
_CREATED = Field("CreatedAt", lambda view: instant(view.entry.created_at))
_UPDATED = Field("UpdatedAt", lambda view: instant(view.entry.updated_at))
_ACCESSED = Field("AccessedAt", _only_with_details(lambda view: instant(view.accessed_at)))
_COUNTS = Field("CountDetails", _only_with_details(_count_details), is_markup=True)
_AVAILABILITY = Field("EntityAvailabilityStatus", lambda view: "Limited" if view.totals.is_limited else "Available")

_ORDER: Final[Mapping[type[Description], tuple[str | Field, ...]]] = {
    QueueDescription: (
        "lock_duration_ms",
        "max_size_mb",
        "requires_duplicate_detection",
        "requires_session",
        "default_ttl_ms",
        "dead_letter_on_expiration",
        "duplicate_window_ms",
        "max_delivery_count",
        "enable_batched_operations",
        _BYTES,
        _MESSAGES,
        _ANONYMOUS,
        KEYS,
        "status",
        "forward_to",
        "user_metadata",
        _CREATED,
        _UPDATED,
        _ACCESSED,
        Field(SERVICE_NAMES["support_ordering"], lambda view: _boolean_text(not view.top_level.enable_partitioning)),
        _COUNTS,
        "auto_delete_on_idle_ms",
        "enable_partitioning",
        _AVAILABILITY,
        "forward_dead_letters_to",
        "enable_express",
        "max_message_bytes",
    ),
    TopicDescription: (
        "default_ttl_ms",
        "max_size_mb",
        "requires_duplicate_detection",
        "duplicate_window_ms",
        "enable_batched_operations",
        _BYTES,
        _constant("FilteringMessagesBeforePublishing", "false"),
        _ANONYMOUS,
        KEYS,
        "status",
        "user_metadata",
        _CREATED,
        _UPDATED,
        _ACCESSED,
        "support_ordering",
        _COUNTS,
        Field("SubscriptionCount", _only_with_details(lambda view: str(view.subscription_count))),
        Field("SqlFilterCount", _only_with_details(lambda view: str(view.sql_filter_count)), since=FILTER_COUNTS_SINCE),
        Field(
            "CorrelationFilterCount",
            _only_with_details(lambda view: str(view.correlation_filter_count)),
            since=FILTER_COUNTS_SINCE,
        ),
        "auto_delete_on_idle_ms",
        "enable_partitioning",
        _AVAILABILITY,
        _constant("EnableSubscriptionPartitioning", "false"),
        "enable_express",
        "max_message_bytes",
    ),
    SubscriptionDescription: (
        "lock_duration_ms",
        "requires_session",
        "default_ttl_ms",
        "dead_letter_on_expiration",
        "dead_letter_on_filter_exceptions",
        _MESSAGES,
        "max_delivery_count",
        "enable_batched_operations",
        "status",
        "forward_to",
        "user_metadata",
        _CREATED,
        _UPDATED,
        Field("AccessedAt", _accessed_subscription),
        _COUNTS,
        "forward_dead_letters_to",
        "auto_delete_on_idle_ms",
        _AVAILABILITY,
        Field("IsClientAffine", lambda view: _boolean_text(view.jms is not None), since=MESSAGE_SIZE_SINCE),
        Field("ClientAffineProperties", lambda view: client_affine(view.jms), since=MESSAGE_SIZE_SINCE, is_markup=True),
    ),
}
"""The service's order of elements; properties stand under their fields."""


def _in_order(kind: type[Description]) -> tuple[Field, ...]:
    """The elements of a kind; a property without a place comes last, as what is new in the service does."""
    settable = {row.field: _settable(row) for row in PROPERTIES_OF[kind]}
    placed = [settable.pop(each) if isinstance(each, str) else each for each in _ORDER[kind]]
    return (*placed, *settable.values())


FIELDS: Final[Mapping[type[Description], tuple[Field, ...]]] = {kind: _in_order(kind) for kind in _ORDER}


def description_markup(view: EntityView) -> str:
    """The description element of an entity, its parts in the service's order."""
    kind = view.entry.description.kind.element
    parts: list[str] = []
    for field in FIELDS[type(view.entry.description)]:
        if field.since <= view.version:
            text = field.show(view)
            parts.append(text or "" if field.is_markup else element(field.name, text))
    return f'<{kind} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{"".join(parts)}</{kind}>'
