"""Names in Config.json: the properties of entities, by the table of `broker/model/properties.py`, and those of rules.

Knows how each kind of value is read. Reading, writing, the JSON Schema, the import of ARM templates and the command
line use the tables. Does not know which values are allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ..broker.model.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..broker.model.profiles import HOUR_MS, MINUTE_MS, SECOND_MS, Range
from ..broker.model.properties import CORRELATION_NAMES, PROPERTIES, PROPERTIES_OF, Property, Value
from .cursor import Cursor

LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")

Properties = Mapping[str, Property]
"""Rows of the table by their names."""

READERS: Final[Mapping[Value, Callable[[Cursor], object]]] = {
    Value.BOOLEAN: Cursor.boolean,
    Value.COUNT: Cursor.integer,
    Value.BYTES: Cursor.kilobytes,
    Value.DURATION: Cursor.duration,
    Value.LIMIT: Cursor.limit,
    Value.TEXT: Cursor.optional_text,
    Value.TARGET: Cursor.optional_text,
    Value.STATUS: Cursor.status,
}


ROWS: Final[Properties] = {row.name: row for row in PROPERTIES}
"""All rows by their names."""


def _by_service_name(kind: type[EntityDescription]) -> Properties:
    return {row.name: row for row in PROPERTIES_OF[kind]}


QUEUE_PROPERTIES: Final = _by_service_name(QueueDescription)
TOPIC_PROPERTIES: Final = _by_service_name(TopicDescription)
SUBSCRIPTION_PROPERTIES: Final = _by_service_name(SubscriptionDescription)
DOCUMENTED: Final = {
    "default_ttl_ms": Range(5 * MINUTE_MS, HOUR_MS),
    "duplicate_window_ms": Range(5 * SECOND_MS, 5 * MINUTE_MS),
}
"""The ranges in the descriptions of Microsoft's schema that programs in use leave: a public integration test has the
original start with PT10S, so that they are warnings."""

KEYS: Final = "AuthorizationRules"
"""Among the properties of a queue, a topic and the namespace: its shared keys."""
CLIENT: Final = "ClientAffineProperties"
"""Among the properties of a subscription: what marks one that JMS has made."""
CORRELATION_PROPERTIES: Final = {name: field for field, name in CORRELATION_NAMES.items()}
"""The texts of a correlation filter: the field of each."""
FILTER_TYPES: Final = ("Correlation", "Sql", "Selector", "True", "False")
FILTER_TYPE_SPELLINGS: Final = (*FILTER_TYPES, *(f"{kind}Filter" for kind in FILTER_TYPES))
# Written by generators of the file; they have no effect even in the cloud.
IDLE: Final = ("RequiresPreprocessing", "CompatibilityLevel")
SQL_PROPERTIES: Final = ("SqlExpression", "Parameters", *IDLE)
