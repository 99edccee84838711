"""One table of the properties of queues, topics and subscriptions: a row is a property, a column what faces need of it.

The faces are Config.json with its schema, its export, ARM templates and the commands `create`, `update` and `show`
(`emubus/config_file/properties.py`), Atom (`web/atom/fields.py`), the control API (`web/control/administration.py`),
and the forms and the view of an entity on the page (`web/page/entity_fields.py`). A face knows how it spells a kind of
value, and has no list of its own: a new row, with its field in a description, is on all of them.

Which kinds of entity have a property is what fields their descriptions have. Which values are allowed is the profile's
(`validation.py`), and so are the defaults (`defaults_of`). What has parts is no row, and each face reads it by itself:
authorization rules, rules, and what marks a subscription of JMS.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields
from enum import Enum, auto
from typing import Final

from ..lazy_dataclass import dataclass
from .descriptions import (
    CorrelationFilter,
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)

MESSAGE_SIZE_SINCE: Final = "2021-05"
_COUNT_MOST: Final = (1 << 31) - 1  # int.MaxValue, which frameworks ask for
_SIZE_MOST: Final = 1 << 30


class Value(Enum):
    """Kinds of values, by what a description holds; a face has one spelling for each."""

    BOOLEAN = auto()
    COUNT = auto()
    """A whole number from 1 on."""
    BYTES = auto()
    """Bytes, None for the profile's maximum; the service counts KiB."""
    DURATION = auto()
    """Milliseconds."""
    LIMIT = auto()
    """Milliseconds, None for "never"."""
    TEXT = auto()
    """A text, None without one."""
    TARGET = auto()
    """The path or URL of a queue or topic, None without one."""
    STATUS = auto()
    """An `EntityStatus`."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Property:
    """A row: the service's name, the field of the descriptions, and what the faces say of it.

    `about` is its description in the control API, `label` its name on the page.
    """

    name: str
    field: str
    value: Value
    about: str
    label: str
    help: str = ""
    """What a form of the page says beside its field."""
    most: int = _COUNT_MOST
    """The largest number that any face takes; the profile's maximum is smaller."""
    since: str = ""
    """The first api-version of the management API that has it."""
    is_fixed: bool = False
    """Chosen when the entity is created."""
    is_by_profile: bool = False
    """Its default differs between profiles: an export always has it."""
    is_usual: bool = False
    """The page shows its field at once, and the fields of others when asked."""
    is_microsofts: bool = False
    """The schema of Microsoft's emulator names it, for each kind of entity that has it (Config-schema.json of
    azure-service-bus-emulator-installer); all others are additions of emubus to Config.json."""
    others: tuple[str, ...] = ()
    """What other interfaces (SDKs, portal, azurerm) call it, in lower case: for a hint."""


PROPERTIES: Final[tuple[Property, ...]] = (
    Property("Status", "status", Value.STATUS, "Which operations are accepted.", "Status", is_usual=True),
    Property(
        "EnablePartitioning",
        "enable_partitioning",
        Value.BOOLEAN,
        "Whether it has several partitions. Fixed at creation.",
        "Partitioned",
        is_fixed=True,
    ),
    Property(
        "RequiresSession",
        "requires_session",
        Value.BOOLEAN,
        "Whether it requires message sessions. Fixed at creation.",
        "Message sessions",
        is_fixed=True,
        is_microsofts=True,
        others=("sessionenabled", "enablesessions"),
    ),
    Property(
        "RequiresDuplicateDetection",
        "requires_duplicate_detection",
        Value.BOOLEAN,
        "Whether it drops duplicates. Fixed at creation.",
        "Duplicate detection",
        help="by MessageId, within the duplicate window",
        is_fixed=True,
        is_microsofts=True,
        others=("enableduplicatedetection",),
    ),
    Property(
        "LockDuration",
        "lock_duration_ms",
        Value.DURATION,
        "How long a lock lasts.",
        "Lock duration",
        is_by_profile=True,
        is_usual=True,
        is_microsofts=True,
    ),
    Property(
        "MaxDeliveryCount",
        "max_delivery_count",
        Value.COUNT,
        "Deliveries after which a message is dead-lettered.",
        "Max delivery count",
        is_by_profile=True,
        is_usual=True,
        is_microsofts=True,
    ),
    Property(
        "DefaultMessageTimeToLive",
        "default_ttl_ms",
        Value.LIMIT,
        "How long a message that asks for no time of its own lives.",
        "Default time to live",
        help="30s, 5m, 2h, 14d, PT1M or never",
        is_by_profile=True,
        is_usual=True,
        is_microsofts=True,
        others=("ttl", "timetolive", "messagetimetolive", "defaultttl"),
    ),
    Property(
        "DuplicateDetectionHistoryTimeWindow",
        "duplicate_window_ms",
        Value.DURATION,
        "How long message ids are remembered.",
        "Duplicate window",
        is_usual=True,
        is_microsofts=True,
    ),
    Property(
        "MaxSizeInMegabytes",
        "max_size_mb",
        Value.COUNT,
        "Maximum size in MB, of each partition on Standard.",
        "Max size (MB)",
        most=_SIZE_MOST,
        is_by_profile=True,
        is_usual=True,
    ),
    Property(
        "AutoDeleteOnIdle",
        "auto_delete_on_idle_ms",
        Value.LIMIT,
        "How long it is unused before it is deleted.",
        "Delete when idle for",
        is_usual=True,
    ),
    Property(
        "DeadLetteringOnMessageExpiration",
        "dead_letter_on_expiration",
        Value.BOOLEAN,
        "Whether expired messages are dead-lettered.",
        "Dead-letter on expiration",
        is_usual=True,
        is_microsofts=True,
        others=("enabledeadletteringonmessageexpiration",),
    ),
    Property(
        "DeadLetteringOnFilterEvaluationExceptions",
        "dead_letter_on_filter_exceptions",
        Value.BOOLEAN,
        "Whether a message whose filter fails is dead-lettered.",
        "Dead-letter on filter errors",
        is_usual=True,
    ),
    Property(
        "ForwardTo",
        "forward_to",
        Value.TARGET,
        "Path of the queue or topic that its messages go to; null: none.",
        "Forward to",
        is_microsofts=True,
    ),
    Property(
        "ForwardDeadLetteredMessagesTo",
        "forward_dead_letters_to",
        Value.TARGET,
        "Path of the queue or topic that its dead letters go to; null: none.",
        "Forward dead letters to",
        is_microsofts=True,
    ),
    Property("UserMetadata", "user_metadata", Value.TEXT, "Any text.", "User metadata"),
    Property(
        "MaxMessageSizeInKilobytes",
        "max_message_bytes",
        Value.BYTES,
        "Maximum size of a message; null: the profile's.",
        "Max message size (KB)",
        most=_SIZE_MOST,
        since=MESSAGE_SIZE_SINCE,
    ),
    Property("SupportOrdering", "support_ordering", Value.BOOLEAN, "Stored and reported.", "Support ordering"),
    Property(
        "EnableBatchedOperations",
        "enable_batched_operations",
        Value.BOOLEAN,
        "Stored and reported.",
        "Batched operations",
    ),
    Property("EnableExpress", "enable_express", Value.BOOLEAN, "Stored and reported.", "Express"),
)

KINDS: Final[tuple[type[EntityDescription], ...]] = (QueueDescription, TopicDescription, SubscriptionDescription)

PROPERTIES_OF: Final[Mapping[type[EntityDescription], tuple[Property, ...]]] = {
    kind: tuple(row for row in PROPERTIES if row.field in {each.name for each in fields(kind)}) for kind in KINDS
}

SERVICE_NAMES: Final[Mapping[str, str]] = {row.field: row.name for row in PROPERTIES}
"""The service's name of each field, for errors."""

TARGET_NAMES: Final = tuple(row.name for row in PROPERTIES if row.value is Value.TARGET)
"""The service's names of what names another entity, which must exist before."""

CORRELATION_NAMES: Final[Mapping[str, str]] = {
    "correlation_id": "CorrelationId",
    "message_id": "MessageId",
    "to": "To",
    "reply_to": "ReplyTo",
    "label": "Label",
    "session_id": "SessionId",
    "reply_to_session_id": "ReplyToSessionId",
    "content_type": "ContentType",
}
"""The texts of a `CorrelationFilter` by their fields, in the order of the service's elements [http 3]."""

assert {*CORRELATION_NAMES, "properties"} == {each.name for each in fields(CorrelationFilter)}
assert len(SERVICE_NAMES) == len({row.name for row in PROPERTIES}) == len(PROPERTIES), "a row is twice in the table"
