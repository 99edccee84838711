"""Rows of an Arrow RecordBatch to encoded messages, as Service Bus SDKs write them [wire 4.3].

Knows the columns of the sink, and which section, field or annotation each becomes; what is null is left out. Refuses to
know options, targets and links. Works column by column, then puts the pieces of each row together. A `RowEncoder`
belongs to one writer and keeps only names of application properties that it has met.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import repeat
from struct import Struct
from typing import Any, Final

import pyarrow as pa

from ...codec import decimals
from ...codec.encode import encode
from ...codec.types import Byte, Decimal128, Float, Int, Short, Timestamp
from ..errors import Code, ConnectorError
from .decode import PropertiesFormat
from .properties import encoded_from_json

__all__ = ["SINK_COLUMNS", "EncodedRow", "RowEncoder"]

SINK_COLUMNS: Final = (
    "body",
    "messageId",
    "sessionId",
    "partitionKey",
    "subject",
    "contentType",
    "correlationId",
    "to",
    "replyTo",
    "replyToSessionId",
    "timeToLiveMs",
    "scheduledEnqueueTime",
    "applicationProperties",
    "entity",
)
"""The names under which `RowEncoder` takes columns; `entity` is the target of a row and no part of the message."""

IDENTIFIER_CHARS_MAX: Final = 128
"""Longest message id, session id and partition key [wire 10.13]."""
TTL_MS_MAX: Final = 0xFFFF_FFFF
"""Longest time to live that a header holds: 49.7 days."""

_NULL: Final = b"\x40"
_KEYS_MAX: Final = 1000
_pack_u32: Final = Struct(">I").pack
_pack_i64: Final = Struct(">q").pack
_SHORT_STRING: Final = tuple(bytes((0xA1, size)) for size in range(256))
_SHORT_SYMBOL: Final = tuple(bytes((0xA3, size)) for size in range(256))
_SHORT_DATA: Final = tuple(b"\x00\x53\x75\xa0" + bytes((size,)) for size in range(256))


@dataclass(slots=True)
class EncodedRow:
    """A row as a message, and what has to be known to put it into an envelope with others. Nobody changes it."""

    index: int
    """Position in the RecordBatch."""
    data: bytes
    key: str | None
    """What must be equal within an envelope: the session id, else the partition key."""
    session_id: str | None
    partition_key: str | None
    message_id: str | None
    target: str | None
    """The entity that the row names, None when there is no such column."""


def string(octets: bytes) -> bytes:
    """Return an AMQP string from its UTF-8."""
    size = len(octets)
    return _SHORT_STRING[size] + octets if size < 256 else b"\xb1" + _pack_u32(size) + octets


def symbol(octets: bytes) -> bytes:
    """Return an AMQP symbol. Raises ValueError for what is not ASCII."""
    if not octets.isascii():
        raise ValueError("possible are ASCII characters")
    size = len(octets)
    return _SHORT_SYMBOL[size] + octets if size < 256 else b"\xb3" + _pack_u32(size) + octets


def section(code: int, kind: int, count: int, items: bytes) -> bytes:
    """Return a section with a list (kind 0xc0) or map (0xc1) of `count` encoded items."""
    size = len(items)
    if size < 255 and count < 256:
        return bytes((0, 0x53, code, kind, size + 1, count)) + items
    return bytes((0, 0x53, code, kind + 0x10)) + _pack_u32(size + 4) + _pack_u32(count) + items


def data_start(size: int) -> bytes:
    """Return what stands before the octets of a data section."""
    return _SHORT_DATA[size] if size < 256 else b"\x00\x53\x75\xb0" + _pack_u32(size)


# --- The pieces of a message, column by column ----------------------------------------------------


def _identifier(octets: bytes) -> bytes:
    """Return an AMQP string that may stand where Service Bus limits the length."""
    if len(octets) > IDENTIFIER_CHARS_MAX and len(octets.decode()) > IDENTIFIER_CHARS_MAX:
        raise ValueError(f"it has {len(octets.decode())} characters, {IDENTIFIER_CHARS_MAX} are possible")
    return string(octets)


# By position in the properties [AMQP 3.2.4]: the column, and how its text is encoded.
_FIELDS: Final[dict[int, tuple[str, Callable[[bytes], bytes]]]] = {
    0: ("messageId", _identifier),
    2: ("to", string),
    3: ("subject", string),
    4: ("replyTo", string),
    5: ("correlationId", string),
    6: ("contentType", symbol),
    10: ("sessionId", _identifier),
    12: ("replyToSessionId", string),
}
_PARTITION_KEY: Final = symbol(b"x-opt-partition-key")
_SCHEDULED: Final = symbol(b"x-opt-scheduled-enqueue-time") + b"\x83"


def partition_key_annotation(key: str) -> bytes:
    """Return the entry of a map of annotations that tells the partition key."""
    return _PARTITION_KEY + string(key.encode())


def _header(ttl_ms: int) -> bytes:
    if not 0 <= ttl_ms <= TTL_MS_MAX:
        raise ValueError(f"possible are 0 to {TTL_MS_MAX} ms")
    return section(0x70, 0xC0, 3, b"\x40\x40\x70" + _pack_u32(ttl_ms))


_Place = Callable[[int], str]
"""Tells, for an error, what the value at a position is."""


def _in_column(name: str) -> _Place:
    return lambda row: f"{name} of row {row} in an Arrow batch"


def _invalid(place: str, value: object, problem: object) -> ConnectorError:
    shown = value.decode(errors="replace") if isinstance(value, bytes) else value
    return ConnectorError(Code.VALUE_INVALID, f"{place} cannot be sent: {shown!r:.80}: {problem}")


def _type_error(name: str, kind: object, possible: str) -> ConnectorError:
    return ConnectorError(Code.SCHEMA_UNSUPPORTED, f"column {name} is {kind}; it must be {possible}")


def _encode_each(
    place: _Place, values: Sequence[Any], encoder: Callable[[Any], bytes], null: bytes = b""
) -> list[bytes]:
    """Return each value encoded; equal ones are encoded once. Raises ConnectorError(VALUE_INVALID)."""
    table: dict[Any, bytes] = {None: null}
    for value in set(values):
        if value is not None:
            try:
                table[value] = encoder(value)
            except ValueError as error:
                raise _invalid(place(values.index(value)), value, error) from None
    return list(map(table.__getitem__, values))


def _annotations(keys: Sequence[bytes | None] | None, scheduled: Sequence[int | None] | None) -> Iterable[bytes]:
    """Return the message-annotations section of each row, empty where there is nothing to tell."""
    if keys is None and scheduled is None:
        return repeat(b"")
    by_key = (
        repeat(b"")
        if keys is None
        else _encode_each(_in_column("partitionKey"), keys, lambda k: _PARTITION_KEY + _identifier(k))
    )
    by_time = (
        repeat(b"")
        if scheduled is None
        else _encode_each(_in_column("scheduledEnqueueTime"), scheduled, lambda at_ms: _SCHEDULED + _pack_i64(at_ms))
    )
    return [
        section(0x72, 0xC1, 4 if key and at else 2, key + at) if key or at else b""
        for key, at in zip(by_key, by_time, strict=False)
    ]


def _properties(columns: Mapping[str, Sequence[bytes | None]], count: int) -> Iterable[bytes]:
    """Return the properties section of each row, empty where all fields are null."""
    fields_count = max((position + 1 for position, (name, _) in _FIELDS.items() if name in columns), default=0)
    if not fields_count:
        return repeat(b"")
    fields: list[Iterable[bytes]] = []
    for position in range(fields_count):
        name, encoder = _FIELDS.get(position, ("", string))
        fields.append(
            _encode_each(_in_column(name), columns[name], encoder, _NULL) if name in columns else repeat(_NULL, count)
        )
    nothing = _NULL * fields_count
    return [
        section(0x73, 0xC0, fields_count, items) if items != nothing else b""
        for items in map(b"".join, zip(*fields, strict=True))
    ]


# --- Arrow ----------------------------------------------------------------------------------------


def _is_text(kind: Any) -> bool:
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind))


def _is_binary(kind: Any) -> bool:
    return bool(pa.types.is_binary(kind) or pa.types.is_large_binary(kind))


def _octets(array: Any) -> list[bytes | None]:
    """Return what is in an array of texts (in UTF-8, unchecked) or of binary."""
    if _is_text(array.type):
        array = array.cast(pa.large_binary() if pa.types.is_large_string(array.type) else pa.binary())
    octets: list[bytes | None] = array.to_pylist()
    return octets


def _texts(place: _Place, array: Any) -> list[bytes | None]:
    """Return the UTF-8 of an array of texts. Spark casts any binary to STRING, so it has to be looked at."""
    octets = _octets(array)
    try:
        array.validate(full=True)
    except pa.ArrowInvalid as problem:
        for index, value in enumerate(octets):
            try:
                (value or b"").decode()
            except UnicodeDecodeError as error:
                raise _invalid(place(index), value, error) from None
        raise _invalid(place(0), octets[0], problem) from None
    return octets


def _to_ms(array: Any) -> list[int | None]:
    """Return the Unix milliseconds of a timestamp array, rounded down."""
    per_s = {"s": 1, "ms": 1000, "us": 1_000_000, "ns": 1_000_000_000}[array.type.unit]
    return [None if ticks is None else ticks * 1000 // per_s for ticks in array.cast(pa.int64()).to_pylist()]


def _as(kind: Callable[[Any], object]) -> Callable[[Any], bytes]:
    return lambda plain: encode(kind(plain))


_KINDS: Final[dict[str, tuple[Callable[[Any], bool], str]]] = {
    **dict.fromkeys(SINK_COLUMNS, (_is_text, "STRING")),
    "body": (lambda kind: _is_text(kind) or _is_binary(kind), "STRING or BINARY"),
    "timeToLiveMs": (pa.types.is_integer, "BIGINT"),
    "scheduledEnqueueTime": (pa.types.is_timestamp, "TIMESTAMP"),
    "applicationProperties": (lambda kind: pa.types.is_map(kind) and _is_text(kind.key_type), "MAP<STRING, …>"),
}
_TEXT_COLUMNS: Final = tuple(name for name, (holds, _) in _KINDS.items() if holds is _is_text)

# How values of application properties are encoded, by their Arrow type; the first test that holds decides.
_VALUE_TYPES: Final[tuple[tuple[Callable[[Any], bool], Callable[[Any], bytes]], ...]] = (
    (_is_text, string),
    (_is_binary, encode),
    (pa.types.is_boolean, encode),
    (pa.types.is_int8, _as(Byte)),
    (pa.types.is_int16, _as(Short)),
    (pa.types.is_int32, _as(Int)),
    (pa.types.is_int64, encode),
    (pa.types.is_float32, _as(Float)),
    (pa.types.is_float64, encode),
    (pa.types.is_timestamp, _as(Timestamp)),
    (lambda kind: bool(pa.types.is_date(kind) or pa.types.is_decimal(kind)), lambda plain: string(str(plain).encode())),
)


def _decimal128(value: object) -> bytes:
    return encode(Decimal128(decimals.from_text(str(value), 16)))


def _property_values(place: _Place, array: Any, properties_format: PropertiesFormat) -> list[bytes]:
    kind = array.type
    encoder = next((each for holds, each in _VALUE_TYPES if holds(kind)), None)
    if encoder is None:
        simple = "STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, BINARY, TIMESTAMP, DATE or DECIMAL"
        raise _type_error("applicationProperties", f"a map of {kind}", f"one of {simple}")
    if encoder is string:
        texts = _texts(place, array)
        return _encode_each(place, texts, encoded_from_json if properties_format == "json" else string, _NULL)
    if pa.types.is_decimal(kind) and properties_format == "json":
        return _encode_each(place, array.to_pylist(), _decimal128, _NULL)
    if pa.types.is_floating(kind):  # 0.0 and -0.0 are equal, and NaN is not equal to itself
        return [_NULL if value is None else encoder(value) for value in array.to_pylist()]
    return _encode_each(place, _to_ms(array) if pa.types.is_timestamp(kind) else array.to_pylist(), encoder, _NULL)


class RowEncoder:
    """Encodes the rows of RecordBatches that have these columns.

    `columns` are those of `SINK_COLUMNS` that the batches have, under these names. The values of application properties
    keep their primitive type; texts stay texts, or with properties_format "json" become what `properties.from_json`
    reads in them. Decimals become texts, or with "json" AMQP's decimal128, of at most 34 digits.
    """

    def __init__(self, columns: Iterable[str], *, properties_format: PropertiesFormat = "text") -> None:
        self._columns = tuple(columns)
        self._format: PropertiesFormat = properties_format
        self._keys: dict[bytes, bytes] = {}
        for name in self._columns:
            if name not in SINK_COLUMNS:
                raise ConnectorError(
                    Code.SCHEMA_UNSUPPORTED, f"there is no column {name}; there are {', '.join(SINK_COLUMNS)}"
                )

    def encode(self, batch: Any, ids: Callable[[int], str | None] | None = None) -> Iterator[EncodedRow]:
        """Yield the rows of a pyarrow.RecordBatch as messages, in order.

        `ids` gives the message id of the row with an index when its column has none. All rows are looked at before the
        first is yielded. Raises ConnectorError: VALUE_INVALID naming column, value and limit; SCHEMA_UNSUPPORTED for a
        column's type.
        """
        count = batch.num_rows
        arrays = {name: batch.column(name) for name in self._columns}
        # A column without any value is as good as none, and cheaper.
        arrays = {name: array for name, array in arrays.items() if array.null_count < count}
        for name, array in arrays.items():
            if not _KINDS[name][0](array.type):
                raise _type_error(name, array.type, _KINDS[name][1])
        texts = {name: _texts(_in_column(name), arrays[name]) for name in _TEXT_COLUMNS if name in arrays}
        if ids is not None:
            texts["messageId"] = _message_ids(texts.get("messageId"), count, ids)
        _check_keys(texts.get("sessionId"), texts.get("partitionKey"))
        ttls, times = arrays.get("timeToLiveMs"), arrays.get("scheduledEnqueueTime")
        bodies = [octets or b"" for octets in _octets(arrays["body"])] if "body" in arrays else None
        pieces = zip(
            repeat(b"") if ttls is None else _encode_each(_in_column("timeToLiveMs"), ttls.to_pylist(), _header),
            _annotations(texts.get("partitionKey"), None if times is None else _to_ms(times)),
            _properties(texts, count),
            self._application_properties(arrays.get("applicationProperties")),
            map(data_start, map(len, bodies)) if bodies else repeat(data_start(0)),
            bodies or repeat(b""),
            strict=False,
        )
        names = ("sessionId", "partitionKey", "messageId", "entity")
        session_ids, partition_keys, message_ids, targets = (_texts_of(texts.get(name)) for name in names)
        for index, data, session_id, partition_key, message_id, target in zip(
            range(count), map(b"".join, pieces), session_ids, partition_keys, message_ids, targets, strict=False
        ):
            key = partition_key if session_id is None else session_id
            yield EncodedRow(index, data, key, session_id, partition_key, message_id, target)

    def _application_properties(self, array: Any) -> Iterable[bytes]:
        if array is None:
            return repeat(b"")
        # Offsets count from the beginning of the children, of which a slice sees a part.
        offsets = array.offsets.to_pylist()
        first, length = offsets[0], offsets[-1] - offsets[0]
        names = _octets(array.keys.slice(first, length))

        def place(index: int) -> str:
            row = bisect_right(offsets, first + index) - 1
            name = (names[index] or b"").decode(errors="replace")
            return f"application property {name!r:.60} of row {row} in an Arrow batch"

        keys = [self._key(name) for name in _texts(place, array.keys.slice(first, length))]
        values = _property_values(place, array.items.slice(first, length), self._format)
        entries = list(map(bytes.__add__, keys, values))
        sections = []
        for start, stop, is_null in zip(offsets, offsets[1:], array.is_null().to_pylist(), strict=False):
            if is_null or start == stop:
                sections.append(b"")
            else:
                items = b"".join(entries[start - first : stop - first])
                sections.append(section(0x74, 0xC1, 2 * (stop - start), items))
        return sections

    def _key(self, name: bytes | None) -> bytes:
        name = name or b""
        encoded = self._keys.get(name)
        if encoded is None:
            if len(self._keys) >= _KEYS_MAX:
                self._keys.clear()
            encoded = self._keys[name] = string(name)
        return encoded


def _message_ids(given: list[bytes | None] | None, count: int, ids: Callable[[int], str | None]) -> list[bytes | None]:
    """Return the message ids, those from `ids` where none is given."""
    filled: list[bytes | None] = []
    for index, octets in enumerate([None] * count if given is None else given):
        made = ids(index) if octets is None else None
        filled.append(octets if made is None else made.encode())
    return filled


def _check_keys(session_ids: list[bytes | None] | None, partition_keys: list[bytes | None] | None) -> None:
    if session_ids is not None and partition_keys is not None:
        for row, (session_id, key) in enumerate(zip(session_ids, partition_keys, strict=True)):
            if session_id is not None and key is not None and session_id != key:
                problem = f"it must be equal to sessionId, {session_id.decode()!r:.60}, when both are there"
                raise _invalid(_in_column("partitionKey")(row), key, problem)


def _texts_of(texts: list[bytes | None] | None) -> Iterable[str | None]:
    return repeat(None) if texts is None else [None if octets is None else octets.decode() for octets in texts]
