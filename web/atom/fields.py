"""The elements of each kind of description, in the service's order: one table per kind, for reading and for writing.

Knows the names, the order, the spelling of values, and since which api-version an element exists [http 2, 3]. Does not
know which values are allowed (`broker/model/profiles.py`), or where counts and instants come from: an `EntityView` has
them.
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
from ...broker.model.durations import format_duration, parse_duration, parse_limit
from ...broker.model.profiles import KIB, Limits, aggregate_size_mb, message_bytes_max
from ..markup import CONNECT, COUNTS, INSTANCE, element, instant
from .keys import keys_markup

MESSAGE_SIZE_SINCE: Final = "2021-05"
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
    """An element: `show` writes its text (None: no element); `read` reads it, if clients may set it.

    `attribute` is the field of the description that a read value is for; `is_fixed` if it is chosen at creation.
    """

    name: str
    show: Callable[[EntityView], str | None]
    attribute: str | None = None
    read: Callable[[str], object] | None = None
    since: str = ""
    is_fixed: bool = False
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


def whole(text: str) -> int:
    """A whole number of at most 20 digits. ValueError."""
    if len(text) > 20 or not text.lstrip("-").isdecimal() or not text.isascii():
        raise ValueError(f"'{text[:20]}' is not a whole number")
    return int(text)


def _status(text: str) -> EntityStatus:
    try:
        return EntityStatus(text)
    except ValueError:
        raise ValueError(f"'{text}' is none of {', '.join(EntityStatus)}") from None


def _written(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _plain(name: str, attribute: str, read: Callable[[str], object], *, is_fixed: bool = False) -> Field:
    return Field(name, lambda view: _written(getattr(view.description, attribute)), attribute, read, is_fixed=is_fixed)


def _span(name: str, attribute: str, read: Callable[[str], object] = parse_limit) -> Field:
    return Field(name, lambda view: format_duration(getattr(view.description, attribute)), attribute, read)


def _text(name: str, attribute: str) -> Field:
    # An empty text means None; the service would refuse the element.
    return Field(name, lambda view: getattr(view.description, attribute), attribute, lambda text: text or None)


def _forward_to(view: EntityView) -> str | None:
    description = view.description
    shown = description.shown_forward_to if isinstance(description, QueueDescription) else None
    return shown or getattr(description, "forward_to", None)


def _address(name: str, attribute: str) -> Field:
    return Field(name, lambda view: getattr(view.description, attribute), attribute, _address_in)


def _address_in(text: str) -> str | None:
    """A forwarding target: a name, or an address, whose scheme and host the service returns in lower case.

    The live tests of the JavaScript SDK expect that.
    """
    host = _HOST.match(text)
    return text or None if host is None else host[0].lower() + text[host.end() :]


def _constant(name: str, text: str) -> Field:
    return Field(name, lambda _: text)


def _detail(show: Callable[[EntityView], str]) -> Callable[[EntityView], str | None]:
    return lambda view: show(view) if view.details else None


# ---------------------------------------------------------------- counts

_COUNTED: Final[Mapping[str, tuple[Home, ...]]] = {
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
        element(f"d2p1:{name}", str(sum(messages[home] for home in homes))) for name, homes in _COUNTED.items()
    )
    return f'<CountDetails xmlns:d2p1="{COUNTS}">{counts}</CountDetails>'


def client_affine(own: JmsSubscription | None) -> str | None:
    """The element with the client of a subscription of JMS; None for other subscriptions."""
    if own is None:
        return None
    parts = {"ClientId": own.client_id, "IsDurable": _written(own.is_durable), "IsShared": _written(own.is_shared)}
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

_LOCK = _span("LockDuration", "lock_duration_ms", parse_duration)
_SIZE = Field(
    "MaxSizeInMegabytes",
    lambda view: str(aggregate_size_mb(view.top_level, view.limits)),
    "max_size_mb",
    whole,
)
_DUPLICATES = _plain("RequiresDuplicateDetection", "requires_duplicate_detection", boolean, is_fixed=True)
_SESSION = _plain("RequiresSession", "requires_session", boolean, is_fixed=True)
_TTL = _span("DefaultMessageTimeToLive", "default_ttl_ms")
_EXPIRATION = _plain("DeadLetteringOnMessageExpiration", "dead_letter_on_expiration", boolean)
_WINDOW = _span("DuplicateDetectionHistoryTimeWindow", "duplicate_window_ms", parse_duration)
_DELIVERIES = _plain("MaxDeliveryCount", "max_delivery_count", whole)
_BATCHED = _plain("EnableBatchedOperations", "enable_batched_operations", boolean)
_BYTES = Field("SizeInBytes", lambda view: str(view.totals.bytes_used if view.details else 0))
_MESSAGES = Field("MessageCount", _message_count)
_ANONYMOUS = _constant("IsAnonymousAccessible", "false")
_KEYS = Field(
    "AuthorizationRules",
    lambda view: keys_markup(view.top_level.authorization_rules),
    "authorization_rules",
    is_markup=True,
)
_STATUS = _plain("Status", "status", _status)
_FORWARD = Field("ForwardTo", _forward_to, "forward_to", _address_in)
_METADATA = _text("UserMetadata", "user_metadata")
_CREATED = Field("CreatedAt", lambda view: instant(view.entry.created_at))
_UPDATED = Field("UpdatedAt", lambda view: instant(view.entry.updated_at))
_ACCESSED = Field("AccessedAt", _detail(lambda view: instant(view.accessed_at)))
_COUNTS = Field("CountDetails", _detail(_count_details), is_markup=True)
_IDLE = _span("AutoDeleteOnIdle", "auto_delete_on_idle_ms")
_PARTITIONED = _plain("EnablePartitioning", "enable_partitioning", boolean, is_fixed=True)
_AVAILABILITY = Field("EntityAvailabilityStatus", lambda view: "Limited" if view.totals.is_limited else "Available")
_FORWARD_DEAD = _address("ForwardDeadLetteredMessagesTo", "forward_dead_letters_to")
_EXPRESS = _plain("EnableExpress", "enable_express", boolean)
_MESSAGE_SIZE = Field(
    "MaxMessageSizeInKilobytes",
    lambda view: str(message_bytes_max(view.top_level, view.limits) // KIB),
    "max_message_bytes",
    lambda text: whole(text) * KIB,
    since=MESSAGE_SIZE_SINCE,
)

FIELDS: Final[Mapping[type[Description], tuple[Field, ...]]] = {
    QueueDescription: (
        _LOCK,
        _SIZE,
        _DUPLICATES,
        _SESSION,
        _TTL,
        _EXPIRATION,
        _WINDOW,
        _DELIVERIES,
        _BATCHED,
        _BYTES,
        _MESSAGES,
        _ANONYMOUS,
        _KEYS,
        _STATUS,
        _FORWARD,
        _METADATA,
        _CREATED,
        _UPDATED,
        _ACCESSED,
        Field("SupportOrdering", lambda view: _written(not view.top_level.enable_partitioning)),
        _COUNTS,
        _IDLE,
        _PARTITIONED,
        _AVAILABILITY,
        _FORWARD_DEAD,
        _EXPRESS,
        _MESSAGE_SIZE,
    ),
    TopicDescription: (
        _TTL,
        _SIZE,
        _DUPLICATES,
        _WINDOW,
        _BATCHED,
        _BYTES,
        _constant("FilteringMessagesBeforePublishing", "false"),
        _ANONYMOUS,
        _KEYS,
        _STATUS,
        _METADATA,
        _CREATED,
        _UPDATED,
        _ACCESSED,
        _plain("SupportOrdering", "support_ordering", boolean),
        _COUNTS,
        Field("SubscriptionCount", _detail(lambda view: str(view.subscription_count))),
        Field("SqlFilterCount", _detail(lambda view: str(view.sql_filter_count)), since=FILTER_COUNTS_SINCE),
        Field(
            "CorrelationFilterCount",
            _detail(lambda view: str(view.correlation_filter_count)),
            since=FILTER_COUNTS_SINCE,
        ),
        _IDLE,
        _PARTITIONED,
        _AVAILABILITY,
        _constant("EnableSubscriptionPartitioning", "false"),
        _EXPRESS,
        _MESSAGE_SIZE,
    ),
    SubscriptionDescription: (
        _LOCK,
        _SESSION,
        _TTL,
        _EXPIRATION,
        _plain("DeadLetteringOnFilterEvaluationExceptions", "dead_letter_on_filter_exceptions", boolean),
        _MESSAGES,
        _DELIVERIES,
        _BATCHED,
        _STATUS,
        _FORWARD,
        _METADATA,
        _CREATED,
        _UPDATED,
        Field("AccessedAt", _accessed_subscription),
        _COUNTS,
        _FORWARD_DEAD,
        _IDLE,
        _AVAILABILITY,
        Field("IsClientAffine", lambda view: _written(view.jms is not None), since=MESSAGE_SIZE_SINCE),
        Field("ClientAffineProperties", lambda view: client_affine(view.jms), since=MESSAGE_SIZE_SINCE, is_markup=True),
    ),
}


def description_markup(view: EntityView) -> str:
    """The description element of an entity, its parts in the service's order."""
    kind = view.entry.description.kind.element
    parts: list[str] = []
    for field in FIELDS[type(view.entry.description)]:
        if field.since <= view.version:
            text = field.show(view)
            parts.append(text or "" if field.is_markup else element(field.name, text))
    return f'<{kind} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{"".join(parts)}</{kind}>'
