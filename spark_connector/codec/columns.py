"""Messages to Arrow columns: the rows of the source, as Spark's schema wants them.

Knows the columns of the source, which Spark types each may have, and how the parts of messages become Arrow arrays.
Does not know how a message is encoded (that is `decode`). An `ArrowRows` belongs to one reader and is used by one
thread; it holds the rows since the last `take`. Instants beyond the years 1 to 9999 become the nearest instant in them,
for that is what Spark can show.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, MutableSet, Sequence
from itertools import accumulate, chain
from typing import Any, Final, NamedTuple

import pyarrow as pa
from pyarrow import compute

from ..errors import Code, ConnectorError
from .annotations import DEAD_LETTER_SOURCE, PARTITION_KEY
from .decode import EXPIRY, FIELDS, MALFORMED, MessageReader, Parts, PropertiesFormat, head, malformed

__all__ = ["SOURCE_TYPES", "ArrowRows", "Column", "columns_of", "source_columns"]


class Column(NamedTuple):
    """A wanted column: its name as the user spells it, and its Spark type as `DataType.simpleString` tells it."""

    name: str
    type: str
    nullable: bool = True
    values_nullable: bool = True
    """Of a map: whether its values may be null."""


SOURCE_TYPES: Final[dict[str, tuple[str, ...]]] = {
    "body": ("binary", "string"),
    "messageId": ("string",),
    "sequenceNumber": ("bigint",),
    "enqueuedTime": ("timestamp",),
    "partitionId": ("int", "bigint"),
    "sessionId": ("string",),
    "partitionKey": ("string",),
    "subject": ("string",),
    "contentType": ("string",),
    "correlationId": ("string",),
    "to": ("string",),
    "replyTo": ("string",),
    "replyToSessionId": ("string",),
    "expiresAt": ("timestamp",),
    "timeToLiveMs": ("bigint",),
    "scheduledEnqueueTime": ("timestamp",),
    "deliveryCount": ("int", "bigint"),
    "enqueuedSequenceNumber": ("bigint",),
    "state": ("string",),
    "deadLetterSource": ("string",),
    "deadLetterReason": ("string",),
    "deadLetterErrorDescription": ("string",),
    "applicationProperties": ("map<string,string>",),
}
"""The source's columns in their order: the Spark types that each may be read as, the default one first."""

_ARROW: Final[dict[str, Any]] = {
    "binary": pa.binary(),
    "string": pa.string(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}
pc: Final[Any] = compute  # its functions are made at import, which type checkers cannot see
_CANONICAL: Final = {name.lower(): name for name in SOURCE_TYPES}
_STATES: Final = {None: "active", 0: "active", 1: "deferred", 2: "scheduled"}
_INSTANT_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01
_INSTANT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of 9999
_INT_MAX: Final = 0x7FFF_FFFF


def source_columns() -> list[Column]:
    """Return all columns with their default types."""
    return [Column(name, types[0]) for name, types in SOURCE_TYPES.items()]


def columns_of(spark_schema: Iterable[Any]) -> list[Column]:
    """Return the columns that a Spark StructType asks for; `ArrowRows` refuses those that there are not."""
    return [
        Column(
            field.name,
            field.dataType.simpleString(),
            field.nullable,
            getattr(field.dataType, "valueContainsNull", True),
        )
        for field in spark_schema
    ]


class ArrowRows:
    """Rows of some columns, collected message by message, taken as one Arrow RecordBatch.

    Raises ConnectorError(SCHEMA_UNSUPPORTED) for a column or type that there is not.
    """

    rows: int
    """Messages appended since the last `take`."""
    size_bytes: int
    """Encoded size of these messages: an upper bound for what their rows hold."""

    def __init__(self, schema: Sequence[Column], *, properties_format: PropertiesFormat = "text") -> None:
        self._names = [_canonical(column) for column in schema]
        self._schema = pa.schema([_arrow_field(*pair) for pair in zip(self._names, schema, strict=True)])
        self._reader = MessageReader(set(self._names), properties_format)
        self._parts: list[Parts] = []
        self.rows = self.size_bytes = 0

    def append(self, message: bytes | memoryview) -> int:
        """Add the row of an encoded message and return its sequence number.

        Raises ConnectorError(MALFORMED_MESSAGE); the rows are then as they were.
        """
        data = bytes(message)
        try:
            parts = self._reader.read(data)
        except MALFORMED as error:
            raise malformed(data, error) from None
        self._parts.append(parts)
        self.rows += 1
        self.size_bytes += len(data)
        return parts[0][0] or 0

    def extend(self, messages: Iterable[bytes | memoryview], *, before: int, states: Collection[int] = (0,)) -> int:
        """Append those messages whose state is in `states`, up to the first with the sequence number `before` or more.

        Messages come in rising order. Returns the sequence number of the last message looked at, -1 for none: when it
        is not below `before`, nothing more is to be had. Raises as `append`; the rows before the bad one are there.
        """
        last = -1
        read, keep = self._reader.read, self._parts.append
        for message in messages:
            data = bytes(message)
            try:
                parts = read(data)
            except MALFORMED as error:
                raise malformed(data, error) from None
            last = parts[0][0] or 0
            if last >= before:
                break
            if (parts[0][2] or 0) in states:
                keep(parts)
                self.rows += 1
                self.size_bytes += len(data)
        return last

    def pick(self, messages: Iterable[bytes | memoryview], wanted: MutableSet[int], states: Collection[int]) -> None:
        """Append those messages whose state is in `states` and whose number is in `wanted`, which loses it.

        Takes a message apart once: to look at its head first cost a claimed message half as much again. Raises as
        `append`, but not for a message that is not wanted; the rows before the bad one are there.
        """
        read, keep = self._reader.read, self._parts.append
        for message in messages:
            data = bytes(message)
            try:
                parts = read(data)
            except MALFORMED as error:
                found = head(data)
                if found.sequence_number in wanted and found.state in states:
                    raise malformed(data, error) from None
                continue
            number = parts[0][0] or 0
            if number in wanted and (parts[0][2] or 0) in states:
                wanted.remove(number)
                keep(parts)
                self.rows += 1
                self.size_bytes += len(data)

    def take(self) -> Any:
        """Return the rows as a pyarrow.RecordBatch and begin anew; its schema is Spark's for the wanted columns."""
        parts, self._parts = self._parts, []
        self.rows = self.size_bytes = 0
        made = _Arrays(parts)
        arrays = []
        for name, field in zip(self._names, self._schema, strict=True):
            array = _MAKERS[name](made, field.type)
            if array.null_count and not field.nullable:
                raise _null(f"column {field.name}")
            arrays.append(array)
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def _canonical(column: Column) -> str:
    name = _CANONICAL.get(column.name.lower())
    if name is None:
        known = ", ".join(SOURCE_TYPES)
        raise ConnectorError(Code.SCHEMA_UNSUPPORTED, f"there is no column {column.name}; there are {known}")
    return name


def _arrow_field(name: str, column: Column) -> Any:
    possible = SOURCE_TYPES[name]
    if column.type not in possible:
        raise ConnectorError(
            Code.SCHEMA_UNSUPPORTED, f"column {column.name} cannot be {column.type}, only {' or '.join(possible)}"
        )
    kind = _ARROW.get(column.type)
    if kind is None:
        values = pa.field("value", pa.string(), nullable=column.values_nullable)
        kind = pa.map_(pa.field("key", pa.string(), nullable=False), values)
    return pa.field(column.name, kind, column.nullable)


def _null(what: str) -> ConnectorError:
    return ConnectorError(Code.SCHEMA_UNSUPPORTED, f"{what} is NOT NULL in the schema, but null in a message")


class _Arrays:
    """The parts of many messages, turned so that each kind lies together."""

    def __init__(self, parts: list[Parts]) -> None:
        self.count = len(parts)
        turned: Any = list(zip(*parts, strict=True)) if parts else [[], [], [], [], [], []]
        annotations, headers, self._fields, self.properties, self.reasons, self.bodies = turned
        self.annotations: Any = list(zip(*annotations, strict=True)) if parts else [[]] * 7
        self.headers: Any = list(zip(*headers, strict=True)) if parts else [[]] * 2
        self._turned_fields: Any = None

    def field(self, position: int) -> Any:
        """Return one field of the properties of all messages."""
        if self._turned_fields is None:
            self._turned_fields = list(zip(*self._fields, strict=True))
        return self._turned_fields[position] if self._turned_fields else []


def _instants(at_ms: Any) -> Any:
    """Return timestamps from an int64 array of Unix milliseconds."""
    # min_element_wise takes a null for the largest number, which hides nulls by default
    at_ms = pc.min_element_wise(at_ms, pa.scalar(_INSTANT_MS_MAX, pa.int64()), skip_nulls=False)
    at_ms = pc.max_element_wise(at_ms, pa.scalar(_INSTANT_MS_MIN, pa.int64()), skip_nulls=False)
    return pc.multiply(at_ms, 1000).cast(_ARROW["timestamp"])


def _longs(values: Any) -> Any:
    return pa.array(values, pa.int64())


def _body(made: _Arrays, kind: Any) -> Any:
    if kind == pa.string():
        return pa.array([None if body is None else body.decode(errors="replace") for body in made.bodies], kind)
    return pa.array(made.bodies, kind)


def _expiry(made: _Arrays, _kind: Any) -> Any:
    """Absolute-expiry-time; without it, enqueued time and time to live, as SDKs do."""
    enqueued, ttl = _longs(made.annotations[1]), _longs(made.headers[0])
    bounded = pc.min_element_wise(enqueued, pa.scalar(_INSTANT_MS_MAX, pa.int64()), skip_nulls=False)
    bounded_ttl = pc.min_element_wise(ttl, pa.scalar(_INSTANT_MS_MAX, pa.int64()), skip_nulls=False)
    return _instants(pc.coalesce(_longs(made.field(EXPIRY)), pc.add(bounded, bounded_ttl)))


def _text_array(values: Any) -> Any:
    return pa.array([None if value is None else value.decode() for value in values], pa.string())


def _map_array(made: _Arrays, kind: Any) -> Any:
    entries = made.properties
    offsets = pa.array(accumulate(map(len, entries), initial=0), pa.int32())
    keys = pa.array(list(chain.from_iterable(entries)), pa.string())
    items = pa.array(list(chain.from_iterable(entry.values() for entry in entries)), pa.string())
    if items.null_count and not kind.item_field.nullable:
        raise _null("a value of applicationProperties")
    return pa.MapArray.from_arrays(offsets, keys, items, type=kind)


_Maker = Callable[[_Arrays, Any], Any]


def _field_maker(position: int) -> _Maker:
    return lambda made, kind: pa.array(made.field(position), kind)


_MAKERS: Final[dict[str, _Maker]] = {
    **{name: _field_maker(position) for position, name in enumerate(FIELDS) if name is not None},
    "body": _body,
    "sequenceNumber": lambda made, _: _longs(made.annotations[0]),
    "partitionId": lambda made, kind: pc.shift_right(_longs(made.annotations[0]), 48).cast(kind),
    "enqueuedTime": lambda made, _: _instants(_longs(made.annotations[1])),
    "state": lambda made, kind: pa.array([_STATES.get(state, str(state)) for state in made.annotations[2]], kind),
    "scheduledEnqueueTime": lambda made, _: _instants(_longs(made.annotations[3])),
    "enqueuedSequenceNumber": lambda made, _: _longs(made.annotations[4]),
    "partitionKey": lambda made, _: _text_array(made.annotations[PARTITION_KEY]),
    "deadLetterSource": lambda made, _: _text_array(made.annotations[DEAD_LETTER_SOURCE]),
    "timeToLiveMs": lambda made, _: _longs(made.headers[0]),
    "deliveryCount": lambda made, kind: pa.array([min(n, _INT_MAX) for n in made.headers[1]], kind),
    "expiresAt": _expiry,
    "deadLetterReason": lambda made, kind: pa.array([reasons[0] for reasons in made.reasons], kind),
    "deadLetterErrorDescription": lambda made, kind: pa.array([reasons[1] for reasons in made.reasons], kind),
    "applicationProperties": _map_array,
}
