"""One encoded message to the parts that columns are made of; parts that no column needs are jumped over.

Knows the sections and the fields of the properties [AMQP 3.2]; sections may come in any order, as some clients write
them. Does not know Arrow (that is `columns`). A `MessageReader` belongs to who made it and keeps no message.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final, Literal, NamedTuple

from ...codec.decode import decode_exactly
from ...codec.errors import DecodeError
from ...codec.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    HEADER,
    HEADS,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    SEQUENCE,
    VALUE,
    open_items,
    section_at,
)
from ...codec.skip import skip
from ...codec.types import TYPE_NAMES, Long, Symbol
from ..errors import Code, ConnectorError
from .annotations import NO_ANNOTATIONS, NO_HEADER, Annotations, Header, read_annotations, read_header
from .properties import JSON_AT_ONCE, TEXT_AT_ONCE, from_json, json_string, plain_json, text, typed_json

MALFORMED: Final = (ValueError, IndexError, StructError)
"""What reading bytes that are no AMQP, or not the AMQP that belongs there, raises: DecodeError is a ValueError."""

_u32: Final = Struct(">I").unpack_from
_i64: Final = Struct(">q").unpack_from

PropertiesFormat = Literal["text", "json"]

FIELDS: Final = (
    "messageId",
    None,  # user-id
    "to",
    "subject",
    "replyTo",
    "correlationId",
    "contentType",
    None,  # content-encoding
    "expiresAt",
    None,  # creation-time
    "sessionId",
    None,  # group-sequence
    "replyToSessionId",
)
"""The columns that the fields of the properties become, by position [AMQP 3.2.4]."""

_TEXT, _INSTANT = 1, 2
EXPIRY: Final = FIELDS.index("expiresAt")
_IDENTIFIERS: Final = frozenset((FIELDS.index("messageId"), FIELDS.index("correlationId")))
_NO_PROPERTIES: Final[dict[str, str | None]] = {}
_NO_REASONS: Final[tuple[str | None, str | None]] = (None, None)


class Head(NamedTuple):
    """What is to be known of a message before it becomes a row."""

    sequence_number: int
    state: int
    """0 active, 1 deferred, 2 scheduled."""
    enqueued_at_ms: int


Parts = tuple[
    Annotations,
    Header,
    Sequence[str | int | None],
    Mapping[str, str | None],
    tuple[str | None, str | None],
    bytes | None,
]
"""A message taken apart: annotations, header, those fields of the properties that were asked for (by position, all
others None), application properties as text, dead-letter reason and description, body."""


def head(message: bytes | memoryview) -> Head:
    """Return sequence number, state and enqueued time, without looking at what follows the annotations.

    Raises ConnectorError(MALFORMED_MESSAGE); a message without a sequence number is malformed here.
    """
    try:
        return _head(bytes(message))
    except MALFORMED as error:
        raise ConnectorError(
            Code.MALFORMED_MESSAGE, f"a message from the service is malformed: {problem_of(error)}"
        ) from None


def _head(data: bytes) -> Head:
    pos, end = 0, len(data)
    while pos < end:
        rank, _, value_at, pos = section_at(data, pos)
        if rank == MESSAGE_ANNOTATIONS:
            annotations = read_annotations(data, value_at, pos)
            if annotations[0] is not None:
                return Head(annotations[0], annotations[2] or 0, annotations[1] or 0)
    raise ValueError("it has no annotation x-opt-sequence-number")


def problem_of(error: Exception) -> str:
    """Return what is wrong, from one of `MALFORMED`."""
    return f"{error.problem} (offset {error.offset})" if isinstance(error, DecodeError) else str(error)


def malformed(data: bytes, error: Exception) -> ConnectorError:
    """Return the error for a message that cannot be read, with its sequence number if that can."""
    try:
        which = f"message {_head(data).sequence_number}"
    except MALFORMED:
        which = "a message whose sequence number cannot be read"
    return ConnectorError(Code.MALFORMED_MESSAGE, f"{which} is malformed ({len(data)} bytes): {problem_of(error)}")


class MessageReader:
    """Reads the parts that some columns need."""

    def __init__(self, columns: Collection[str], properties_format: PropertiesFormat) -> None:
        wanted = [_INSTANT if name == "expiresAt" else _TEXT if name else 0 for name in FIELDS]
        wanted = [kind if name in columns else 0 for name, kind in zip(FIELDS, wanted, strict=True)]
        self._fields = tuple(wanted[: max((i + 1 for i, is_wanted in enumerate(wanted) if is_wanted), default=0)])
        self._no_fields: list[str | int | None] = [None] * len(self._fields)
        self._body = "body" in columns
        self._reasons = not {"deadLetterReason", "deadLetterErrorDescription"}.isdisjoint(columns)
        self._properties = "applicationProperties" in columns or self._reasons
        self._show = typed_json if properties_format == "json" else text
        self._at_once = JSON_AT_ONCE if properties_format == "json" else TEXT_AT_ONCE

    def read(self, data: bytes) -> Parts:
        """Return the parts of a message. Raises MALFORMED."""
        annotations, header, fields = NO_ANNOTATIONS, NO_HEADER, self._no_fields
        properties, reasons = _NO_PROPERTIES, _NO_REASONS
        bodies: list[tuple[int, int, int]] = []
        pos, end = 0, len(data)
        while pos < end:
            usual = HEADS.get(data[pos : pos + 4])  # as `section_at`, which would cost a call for each section
            if usual is None or usual[2] <= 0:
                rank, code, value_at, pos = section_at(data, pos)
            else:
                rank, code, width = usual
                value_at = pos + 3
                pos += 5 + data[pos + 4] if width == 1 else 8 + _u32(data, pos + 4)[0]
                if pos > end:
                    raise ValueError(f"the section at {value_at} ends at {pos}, the message at {end}")
            if rank == MESSAGE_ANNOTATIONS:
                annotations = read_annotations(data, value_at, pos)
            elif rank == HEADER:
                header = read_header(data, value_at, pos)
            elif rank == PROPERTIES:
                if self._fields:
                    fields = self._read_fields(data, value_at, pos)
            elif rank == APPLICATION_PROPERTIES:
                if self._properties:
                    properties, reasons = self._read_properties(data, value_at, pos)
            elif self._body and rank == BODY:
                bodies.append((code, value_at, pos))
        if annotations[0] is None:
            raise ValueError("it has no annotation x-opt-sequence-number")
        body = read_body(data, bodies) if bodies else None
        return annotations, header, fields, properties, reasons, body

    def _read_fields(self, data: bytes, value_at: int, stop: int) -> list[str | int | None]:
        fields: list[str | int | None] = []
        add = fields.append
        count, pos = open_items(data, value_at)
        for wanted in self._fields[:count]:
            constructor = data[pos]
            if constructor == 0x40:
                pos += 1
                add(None)
            elif (constructor == 0xA1 or constructor == 0xA3) and wanted < _INSTANT:
                start = pos + 2
                pos = start + data[pos + 1]
                add(data[start:pos].decode() if wanted else None)
            elif constructor == 0x83 and wanted == _INSTANT:
                add(_i64(data, pos + 1)[0])
                pos += 9
            else:
                start, pos = pos, skip(data, pos)
                add(_field(data, start, min(pos, stop), len(fields)) if wanted else None)
        if pos > stop:
            raise ValueError(f"the properties' fields end at {pos}, the section at {stop}")
        if len(fields) < len(self._fields):
            fields += [None] * (len(self._fields) - len(fields))
        return fields

    def _read_properties(
        self, data: bytes, value_at: int, stop: int
    ) -> tuple[dict[str, str | None], tuple[str | None, str | None]]:
        properties: dict[str, str | None] = {}
        show, at_once = self._show, self._at_once
        count, pos = open_items(data, value_at)
        for _ in range(count >> 1):
            if data[pos] == 0xA1:
                start = pos + 2
                pos = start + data[pos + 1]
                key = data[start:pos].decode()
            else:
                value, pos = decode_exactly(data, pos, stop)
                key = text(value) or ""
            constructor = data[pos]
            if constructor == 0xA1:
                start = pos + 2
                pos = start + data[pos + 1]
                shown = data[start:pos].decode()
                properties[key] = json_string(shown) if show is typed_json else shown
            elif constructor in at_once:
                width, shower = at_once[constructor]
                properties[key] = shower(data, pos)
                pos += width
            else:
                value, pos = decode_exactly(data, pos, stop)
                properties[key] = show(value)
        if pos != stop or count & 1:
            raise ValueError(f"{count} keys and values of application properties end at {pos}, the section at {stop}")
        return properties, self._reasons_in(properties) if self._reasons else _NO_REASONS

    def _reasons_in(self, properties: Mapping[str, str | None]) -> tuple[str | None, str | None]:
        reason, description = properties.get("DeadLetterReason"), properties.get("DeadLetterErrorDescription")
        if self._show is typed_json:
            reason = None if reason is None else text(from_json(reason))
            description = None if description is None else text(from_json(description))
        return reason, description


def _field(data: bytes, start: int, stop: int, index: int) -> str | int | None:
    """Return a field of the properties that is no short string and no timestamp."""
    value, _ = decode_exactly(data, start, stop)
    if index == EXPIRY:
        if isinstance(value, Long):
            return int(value)
        raise ValueError(f"the property absolute-expiry-time is of type {TYPE_NAMES[type(value)]}")
    if isinstance(value, bytes) and type(value) is bytes and index in _IDENTIFIERS:
        return value.hex()
    return text(value)


def read_body(data: bytes, bodies: list[tuple[int, int, int]]) -> bytes | None:
    """Return the body in sections (descriptor, offset of the value, offset behind it), as bytes.

    Data sections are put together. The string or binary of an amqp-value is taken as it is, its null is None, all else
    becomes plain JSON; the items of amqp-sequences become one JSON list.
    """
    code, value_at, stop = bodies[0]
    if len(bodies) == 1 and code == DATA:
        return _binary(data, value_at, stop)
    if any(other != code for other, _, _ in bodies) or (code == VALUE and len(bodies) > 1):
        raise ValueError("it has more than one kind of body")
    if code == DATA:
        return b"".join(_binary(data, at, end) for _, at, end in bodies)
    if code == SEQUENCE:
        sequences = (decode_exactly(data, at, end)[0] for _, at, end in bodies)
        return plain_json([item for items in sequences if isinstance(items, list) for item in items]).encode()
    value, _ = decode_exactly(data, value_at, stop)
    if value is None or (isinstance(value, bytes) and type(value) is bytes):
        return value
    if isinstance(value, str) and type(value) in (str, Symbol):
        return value.encode()
    return plain_json(value).encode()


def _binary(data: bytes, value_at: int, stop: int) -> bytes:
    """Return the binary at `value_at`, which ends at `stop`."""
    return data[value_at + (2 if data[value_at] < 0xB0 else 5) : stop]
