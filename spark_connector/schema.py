"""The columns of the source and the sink.

Knows each column, and describes errors in a user's schema. Does not know how a value is found in a message and which
types it may be read as (`codec`), and how rows travel. Column names have no case, as elsewhere in Spark; a frame keeps
the names that its user wrote.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from .codec import SOURCE_TYPES, Column, columns_of
from .errors import Code, ConnectorError

# The types of the source's columns, by what `simpleString()` calls them.
_TYPES: dict[str, DataType] = {
    kind.simpleString(): kind
    for kind in (
        StringType(),
        BinaryType(),
        IntegerType(),
        LongType(),
        TimestampType(),
        MapType(StringType(), StringType()),
    )
}


@dataclass(frozen=True)
class SourceColumn:
    """A column that a read may have."""

    name: str
    about: str

    @property
    def types(self) -> tuple[DataType, ...]:
        """The types it may be read as, the default first."""
        return tuple(_TYPES[name] for name in SOURCE_TYPES[self.name])


@dataclass(frozen=True)
class SinkColumn:
    """A column that a write may have; `types` by class, a MapType stands for one from STRING to a MAP_VALUES type."""

    name: str
    types: tuple[type[DataType], ...]
    about: str
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """The name and its aliases."""
        return (self.name, *self.aliases)


SOURCE_COLUMNS: tuple[SourceColumn, ...] = (
    SourceColumn("body", "the payload; a value or sequence of AMQP as JSON text"),
    SourceColumn("messageId", "the sender's id"),
    SourceColumn("sequenceNumber", "the service's number; its topmost 16 bits are the partition"),
    SourceColumn("enqueuedTime", "when the service took it"),
    SourceColumn("partitionId", "the partition of the entity; 0 if it is not partitioned"),
    SourceColumn("sessionId", "the message session"),
    SourceColumn("partitionKey", "what chose the partition, if the sender said"),
    SourceColumn("subject", "the label"),
    SourceColumn("contentType", "what the body is"),
    SourceColumn("correlationId", "what it answers"),
    SourceColumn("to", "the address the sender had in mind"),
    SourceColumn("replyTo", "where an answer goes"),
    SourceColumn("replyToSessionId", "the message session of an answer"),
    SourceColumn("expiresAt", "when it expires"),
    SourceColumn("timeToLiveMs", "how long it lives after enqueuedTime"),
    SourceColumn("scheduledEnqueueTime", "when it becomes, or became, visible"),
    SourceColumn("deliveryCount", "how often it was delivered"),
    SourceColumn("enqueuedSequenceNumber", "the number it had where it came from"),
    SourceColumn("state", "active, deferred or scheduled"),
    SourceColumn("deadLetterSource", "the entity that dead-lettered it"),
    SourceColumn("deadLetterReason", "why"),
    SourceColumn("deadLetterErrorDescription", "why, in words"),
    SourceColumn("applicationProperties", "the sender's own properties"),
)

ENTITY_COLUMN: Final = "entity"
"""The column that says which entity a row was read from. No part of a message, so not among those."""

# What a map's values may be; AMQP has a type for each.
MAP_VALUES: tuple[type[DataType], ...] = (
    StringType,
    BooleanType,
    ByteType,
    ShortType,
    IntegerType,
    LongType,
    FloatType,
    DoubleType,
    DecimalType,
    TimestampType,
    BinaryType,
)

SINK_COLUMNS: tuple[SinkColumn, ...] = (
    SinkColumn("body", (StringType, BinaryType), "the payload, required; null sends an empty one", ("value",)),
    SinkColumn("messageId", (StringType,), "for duplicate detection; see the option messageIdPolicy"),
    SinkColumn("sessionId", (StringType,), "the message session"),
    SinkColumn("partitionKey", (StringType,), "chooses the partition; equals sessionId where both are given"),
    SinkColumn("subject", (StringType,), "the label"),
    SinkColumn("contentType", (StringType,), "what the body is"),
    SinkColumn("correlationId", (StringType,), "what it answers"),
    SinkColumn("to", (StringType,), "the address you have in mind"),
    SinkColumn("replyTo", (StringType,), "where an answer goes"),
    SinkColumn("replyToSessionId", (StringType,), "the message session of an answer"),
    SinkColumn("timeToLiveMs", (LongType, IntegerType), "how long it lives"),
    SinkColumn("scheduledEnqueueTime", (TimestampType,), "when it becomes visible"),
    SinkColumn("applicationProperties", (MapType,), "your own properties"),
    SinkColumn("entity", (StringType,), "the queue or topic, where no option names one", ("queue", "topic")),
)

# What users of Kafka's and Event Hubs' connectors, and of older SDKs, would write.
FOREIGN_COLUMNS = {
    "headers": "applicationProperties",
    "key": "partitionKey",
    "label": "subject",
    "offset": "sequenceNumber",
    "partition": "partitionId",
    "properties": "applicationProperties",
    "timestamp": "enqueuedTime",
}

# What a frame that was read from Service Bus has, but only the service sets.
READ_ONLY_COLUMNS: frozenset[str] = frozenset(column.name for column in SOURCE_COLUMNS) - frozenset(
    column.name for column in SINK_COLUMNS
)

# Which message a row was read from: what never changes of a message, however often it is read.
ORIGIN_COLUMNS: tuple[str, ...] = (
    *("sequenceNumber", "enqueuedTime", "enqueuedSequenceNumber", "deadLetterSource"),
    ENTITY_COLUMN,
)
_ORIGIN_TYPES = (StringType, IntegerType, LongType, DecimalType, TimestampType)

_SOURCE_BY_NAME = {column.name.lower(): column for column in SOURCE_COLUMNS}
_SINK_BY_NAME = {name.lower(): column for column in SINK_COLUMNS for name in column.names}
_READ_ONLY_BY_LOWER = {name.lower(): name for name in READ_ONLY_COLUMNS}


# ---- the source


def source_schema(*, of_several: bool = False) -> StructType:
    """The schema of a read without `.schema(…)`: all columns of a message; `of_several` entities, the entity first."""
    columns = [StructField(column.name, column.types[0], nullable=True) for column in SOURCE_COLUMNS]
    return StructType([StructField(ENTITY_COLUMN, StringType()), *columns] if of_several else columns)


def source_columns(schema: StructType) -> tuple[Column, ...]:
    """The wanted columns in the schema's order; ConnectorError(SCHEMA_UNSUPPORTED) for the first that can't be read."""
    if not schema.fields:
        raise _schema_error("a read needs at least one column in .schema(…)")
    seen: dict[str, str] = {}
    for field in schema.fields:
        _check_source_field(field)
        if field.name.lower() in seen:
            raise _schema_error(f"columns {seen[field.name.lower()]!r} and {field.name!r} in .schema(…) are the same")
        seen[field.name.lower()] = field.name
    return tuple(columns_of(schema))


def _check_source_field(field: StructField) -> None:
    if field.name.lower() == ENTITY_COLUMN:
        if not isinstance(field.dataType, StringType):
            raise _schema_error(f"column {field.name!r} can't be {_sql_type_name(field.dataType)}: declare it STRING")
        return
    column = _SOURCE_BY_NAME.get(field.name.lower())
    if column is None:
        raise _schema_error(
            f"a Service Bus source has no column {field.name!r}{_suggestion(field.name, _source_column_names())}"
        )
    if field.dataType.simpleString() not in SOURCE_TYPES[column.name]:
        shown = " or ".join(_sql_type_name(known) for known in column.types)
        raise _schema_error(f"column {field.name!r} can't be {_sql_type_name(field.dataType)}: declare it {shown}")


# ---- the sink


@dataclass(frozen=True)
class SinkField:
    """A column of a frame that the sink sends: which of SINK_COLUMNS it is, and its place and name in the frame."""

    column: str
    index: int
    name: str


def sink_fields(schema: StructType, *, entity: str | None, ignore_read_only: bool) -> tuple[SinkField, ...]:
    """The frame's columns that are sent, in the frame's order; ConnectorError for the first that can't be.

    `entity` is the target that the options name: without one the frame needs the column `entity`, with one that column
    is not sent.
    """
    found: dict[str, SinkField] = {}
    for index, field in enumerate(schema.fields):
        column = _SINK_BY_NAME.get(field.name.lower())
        if column is None:
            _check_left_out(field.name, ignore_read_only)
            continue
        if column.name in found:
            raise _schema_error(
                f"columns {found[column.name].name!r} and {field.name!r} are the same to a Service Bus sink"
            )
        if column.name == "entity" and entity is not None:
            continue
        _check_sink_field(column, field)
        found[column.name] = SinkField(column.name, index, field.name)
    if "body" not in found:
        raise _schema_error("a write needs a column 'body' (or 'value') of type STRING or BINARY")
    if entity is None and "entity" not in found:
        raise ConnectorError(
            Code.OPTION_INVALID,
            "nothing to write to: name a queue or topic by the option queue or topic, or in a column 'entity'",
        )
    return tuple(found.values())


def origin_fields(schema: StructType, *, entity: str | None) -> tuple[SinkField, ...]:
    """The frame's columns that say which message a row was read from; none if it has no sequence number.

    Without `entity`, the target of all rows, the column of that name is the target of each, and is sent.
    """
    by_lower = {name.lower(): name for name in ORIGIN_COLUMNS if entity is not None or name != ENTITY_COLUMN}
    found = tuple(
        SinkField(by_lower[field.name.lower()], index, field.name)
        for index, field in enumerate(schema.fields)
        if field.name.lower() in by_lower and isinstance(field.dataType, _ORIGIN_TYPES)
    )
    return found if any(field.column == ORIGIN_COLUMNS[0] for field in found) else ()


def _check_left_out(name: str, ignore_read_only: bool) -> None:
    """ConnectorError unless the column may be left out of messages."""
    if name.lower() not in _READ_ONLY_BY_LOWER:
        raise _schema_error(f"a Service Bus sink has no column {name!r}{_suggestion(name, _sink_column_names())}")
    if not ignore_read_only:
        raise _schema_error(
            f"column {name!r} is set by the service: drop it, or leave it out with ignoreReadOnlyColumns=true"
        )


def _check_sink_field(column: SinkColumn, field: StructField) -> None:
    kind = field.dataType
    if not isinstance(kind, column.types):
        shown = " or ".join(_sql_class_name(known) for known in column.types)
        raise _schema_error(f"column {field.name!r} is {_sql_type_name(kind)}: cast it to {shown}")
    if isinstance(kind, MapType) and not (
        isinstance(kind.keyType, StringType) and isinstance(kind.valueType, MAP_VALUES)
    ):
        shown = ", ".join(_sql_class_name(known) for known in MAP_VALUES)
        raise _schema_error(
            f"column {field.name!r} is {_sql_type_name(kind)}: its keys must be STRING and its values one of {shown}"
        )


# ---- texts


def _suggestion(name: str, known: Iterable[str]) -> str:
    by_lower = {each.lower(): each for each in known}
    foreign = FOREIGN_COLUMNS.get(name.lower(), "").lower()
    close = [foreign] if foreign in by_lower else difflib.get_close_matches(name.lower(), by_lower, n=1)
    return f": did you mean {by_lower[close[0]]!r}?" if close else f"; there are: {', '.join(by_lower.values())}"


def _source_column_names() -> list[str]:
    return [*(column.name for column in SOURCE_COLUMNS), ENTITY_COLUMN]


def _sink_column_names() -> list[str]:
    return [name for column in SINK_COLUMNS for name in column.names]


def _sql_type_name(kind: DataType) -> str:
    """The type as SQL writes it; the names of fields stay as the user wrote them."""
    match kind:
        case StructType():
            return f"STRUCT<{', '.join(f'{each.name}: {_sql_type_name(each.dataType)}' for each in kind.fields)}>"
        case ArrayType():
            return f"ARRAY<{_sql_type_name(kind.elementType)}>"
        case MapType():
            return f"MAP<{_sql_type_name(kind.keyType)}, {_sql_type_name(kind.valueType)}>"
        case _:
            return kind.simpleString().upper()


def _sql_class_name(kind: type[DataType]) -> str:
    if kind is MapType:
        return "MAP<STRING, STRING>"
    return kind().simpleString().upper().split("(")[0]


def _schema_error(text: str) -> ConnectorError:
    return ConnectorError(Code.SCHEMA_UNSUPPORTED, text)
