"""The schema of Config.json: one table per kind of object, with property name, field and type.

Knows names, fields and how a value is read. Reading, writing, the JSON Schema and the command line use the tables. Does
not know which values are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from .cursor import Cursor

LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")

Properties = Mapping[str, tuple[str, Callable[[Cursor], object]]]
"""Property name: the field of the description, and how the value is read."""

_COMMON: Final[Properties] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", Cursor.limit),
    "DefaultMessageTimeToLive": ("default_ttl_ms", Cursor.limit),
    "EnableBatchedOperations": ("enable_batched_operations", Cursor.boolean),
    "Status": ("status", Cursor.status),
    "UserMetadata": ("user_metadata", Cursor.optional_text),
}
_STORED: Final[Properties] = {
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", Cursor.duration),
    "EnableExpress": ("enable_express", Cursor.boolean),
    "EnablePartitioning": ("enable_partitioning", Cursor.boolean),
    "MaxMessageSizeInKilobytes": ("max_message_bytes", Cursor.kilobytes),
    "MaxSizeInMegabytes": ("max_size_mb", Cursor.integer),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", Cursor.boolean),
}
_RECEIVED: Final[Properties] = {
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", Cursor.boolean),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", Cursor.optional_text),
    "ForwardTo": ("forward_to", Cursor.optional_text),
    "LockDuration": ("lock_duration_ms", Cursor.duration),
    "MaxDeliveryCount": ("max_delivery_count", Cursor.integer),
    "RequiresSession": ("requires_session", Cursor.boolean),
}
QUEUE_PROPERTIES: Final[Properties] = {**_COMMON, **_STORED, **_RECEIVED}
TOPIC_PROPERTIES: Final[Properties] = {
    **_COMMON,
    **_STORED,
    "SupportOrdering": ("support_ordering", Cursor.boolean),
}
SUBSCRIPTION_PROPERTIES: Final[Properties] = {
    **_COMMON,
    **_RECEIVED,
    "ClientAffineProperties": ("jms", Cursor.jms_subscription),
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_letter_on_filter_exceptions", Cursor.boolean),
}
CORRELATION_PROPERTIES: Final[Mapping[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
FILTER_TYPES: Final = ("Correlation", "Sql", "Selector", "True", "False")
FILTER_TYPE_SPELLINGS: Final = (*FILTER_TYPES, *(f"{kind}Filter" for kind in FILTER_TYPES))
# Written by generators of the file; they have no effect even in the cloud.
IDLE: Final = ("RequiresPreprocessing", "CompatibilityLevel")
SQL_PROPERTIES: Final = ("SqlExpression", "Parameters", *IDLE)
