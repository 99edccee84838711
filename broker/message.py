"""One message as bytes: what arrives, what is kept, what is handed out [wire 4.3, 4.4, 5.4].

Knows which fields and annotations of a message mean something to Service Bus, and which of them the broker owns. The
sender's properties, application properties, body and footer are kept and delivered byte for byte; the broker writes
the header and its own annotations anew and splices the expiry and dead-letter reasons in, and a message id where the
sender gave none. Refuses to know queues, clocks and how anything is stored. Where bytes lie within a section is the
business of `sections`.

A `Message` belongs to whoever parsed it and does not change. A stored message is a byte string in a form of this
module: a fixed head, the header section up to its delivery count, the sender's annotations, the other sections. This
is the hot path of the whole broker: measure before and after a change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import IntEnum
from functools import lru_cache
from struct import Struct
from typing import Final

from .encoding import Described, Timestamp, Ubyte, Uint, Ulong, decode, encode, list_from_items, malformed, skip
from .errors import BrokerError, Condition
from .ids import new_message_id
from .sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DELIVERY_ANNOTATIONS,
    FOOTER,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    canonical,
    check_items,
    data_sections,
    list_with_fields,
    locate,
    map_with_entries,
    open_items,
)

IDENTIFIER_CHARS_MAX: Final = 128
"""Longest message id, session id and partition key, in characters (a binary message id: in bytes) [wire 10.13]."""

_TTL_MS_MAX: Final = 0xFFFF_FFFF
_FORM_VERSION: Final = 1
_HEADERS_CACHED_MAX: Final = 1024
_HEADER_CACHED_BYTES_MAX: Final = 40  # keeps the cache small; a header as clients write it takes 5 to 25 bytes


class _Field(IntEnum):
    """Position of a field in the properties list [AMQP 3.2.4]."""

    MESSAGE_ID = 0
    USER_ID = 1
    TO = 2
    SUBJECT = 3
    REPLY_TO = 4
    CORRELATION_ID = 5
    CONTENT_TYPE = 6
    CONTENT_ENCODING = 7
    ABSOLUTE_EXPIRY_TIME = 8
    CREATION_TIME = 9
    GROUP_ID = 10
    GROUP_SEQUENCE = 11
    REPLY_TO_GROUP_ID = 12


PROPERTY_NAMES: Final = tuple(field.name.lower().replace("_", "-") for field in _Field)
"""The fields of the properties section in their order, by their AMQP names [AMQP 3.2.4]."""


class _Owner(IntEnum):
    """What is done with an annotation that Service Bus knows: the broker's are dropped, the sender's are read."""

    BROKER = 0
    PARTITION_KEY = 1
    VIA_PARTITION_KEY = 2
    SCHEDULED_ENQUEUE_TIME = 3


_OWNERS: Final = {
    b"x-opt-sequence-number": _Owner.BROKER,
    b"x-opt-enqueued-time": _Owner.BROKER,
    b"x-opt-locked-until": _Owner.BROKER,
    b"x-opt-message-state": _Owner.BROKER,
    b"x-opt-lock-token": _Owner.BROKER,
    b"x-opt-enqueue-sequence-number": _Owner.BROKER,
    b"x-opt-offset": _Owner.BROKER,
    b"x-opt-partition-id": _Owner.BROKER,
    b"x-opt-deadletter-source": _Owner.BROKER,
    b"x-opt-partition-key": _Owner.PARTITION_KEY,
    b"x-opt-via-partition-key": _Owner.VIA_PARTITION_KEY,
    b"x-opt-scheduled-enqueue-time": _Owner.SCHEDULED_ENQUEUE_TIME,
}
_STRINGS: Final = b"\xa1\xa3\xb1\xb3"
_BINARIES: Final = b"\xa0\xb0"  # what Python makes of strings that it sends again; next to each is the string
_UNREAD: Final = str(b"\0not read yet", "ascii")  # told from any text by identity

# --- The header section -----------------------------------------------------------------------------

_HeaderFields = tuple[bool, int | None, int | None]  # durable, priority, ttl in ms


def _header_start(durable: bool, priority: int | None, ttl_ms: int | None) -> bytes:
    """Return a header section as it is delivered, up to the delivery count (a five-byte uint, appended later)."""
    fields = b"".join(
        (
            b"\x41" if durable else b"\x42",
            b"\x40" if priority is None else bytes((0x50, priority)),
            b"\x40" if ttl_ms is None else b"\x70" + ttl_ms.to_bytes(4, "big"),
            b"\x42",  # first-acquirer
        )
    )
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 6, 5)) + fields


def _read_header(section: bytes) -> tuple[_HeaderFields, bytes]:
    """Return the fields that are kept, and the section without a ttl to be delivered when the message never expires."""
    described, _ = decode(section)
    fields = described.value if isinstance(described, Described) else None
    if not isinstance(fields, list):
        raise malformed(0, "a header that is no list")
    durable, priority, ttl_ms = (*fields[:3], None, None, None)[:3]
    if not (
        isinstance(durable, bool | None) and isinstance(priority, Ubyte | None) and isinstance(ttl_ms, Uint | None)
    ):
        raise malformed(0, "a header field of the wrong type")
    kept = (bool(durable), None if priority is None else int(priority), None if ttl_ms is None else int(ttl_ms))
    return kept, _header_start(kept[0], kept[1], None)


# Senders write the same few headers again and again, and a queue has one default time to live.
_read_header_cached = lru_cache(_HEADERS_CACHED_MAX)(_read_header)
_header_start_cached = lru_cache(_HEADERS_CACHED_MAX)(_header_start)
_NO_HEADER: Final = ((False, None, None), _header_start(False, None, None))

# --- An arriving message ------------------------------------------------------------------------------------


class Message:
    """What the broker needs of an arriving message; made by `parse_message`, immutable."""

    __slots__ = (
        "_at",
        "_bare",
        "_data",
        "_entries",
        "_entries_count",
        "_header_start",
        "_message_id",
        "_session_id",
        "durable",
        "partition_key",
        "priority",
        "scheduled_enqueue_at",
        "size_bytes",
        "ttl_ms",
        "via_partition_key",
    )

    size_bytes: int
    """Length of the message as it arrived."""
    ttl_ms: int | None
    durable: bool
    priority: int | None
    partition_key: str | None
    via_partition_key: str | None
    scheduled_enqueue_at: int | None

    def __init__(self, data: bytes, at: list[int], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._data = data
        self._at = at
        self._message_id: str | None = _UNREAD
        self._session_id: str | None = _UNREAD
        self.partition_key = self.via_partition_key = self.scheduled_enqueue_at = None
        self._entries = b""
        self._entries_count = 0
        stop = at[HEADER + 7]
        if stop:
            section = data[at[HEADER] : stop]
            read = _read_header_cached if len(section) <= _HEADER_CACHED_BYTES_MAX else _read_header
            (self.durable, self.priority, self.ttl_ms), self._header_start = read(section)
        else:
            (self.durable, self.priority, self.ttl_ms), self._header_start = _NO_HEADER
        if at[MESSAGE_ANNOTATIONS + 7]:
            self._read_annotations(at[MESSAGE_ANNOTATIONS], at[MESSAGE_ANNOTATIONS + 7])
        # In order, the bare sections begin where the last of the others ends.
        self._bare = at[9] or at[8] or stop
        if at[PROPERTIES + 7]:
            check_items(data, at[PROPERTIES], at[PROPERTIES + 7])
        if at[APPLICATION_PROPERTIES + 7]:
            check_items(data, at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7])

    def _read_annotations(self, start: int, stop: int) -> None:
        """Read the annotations that mean something and keep all but the broker's."""
        data = self._data
        count, pos = open_items(data, start)
        kept_from, kept = pos, list[bytes]()
        kept_count = count
        for _ in range(count >> 1):
            constructor = data[pos]
            if constructor in _STRINGS:
                key_pos = pos + (2 if constructor < 0xB0 else 5)
                value_pos = skip(data, pos)
                owner = _OWNERS.get(data[key_pos:value_pos])
            else:
                value_pos = skip(data, pos)
                owner = None
            next_pos = skip(data, value_pos)
            if owner is not None:
                if owner is _Owner.BROKER:
                    kept.append(data[kept_from:pos])
                    kept_from = next_pos
                    kept_count -= 2
                else:
                    value = data[value_pos:next_pos]
                    if value[0] in _BINARIES and owner is not _Owner.SCHEDULED_ENQUEUE_TIME:
                        value = bytes((value[0] + 1,)) + value[1:]
                        kept += (data[kept_from:value_pos], value)
                        kept_from = next_pos
                    self._read_annotation(owner, value)
            pos = next_pos
        if pos != stop or count & 1:
            raise malformed(start, f"{count} annotation keys and values do not fill the section to {stop}")
        self._entries = b"".join((*kept, data[kept_from:stop])) if kept else data[kept_from:stop]
        self._entries_count = kept_count

    def _read_annotation(self, owner: _Owner, encoded: bytes) -> None:
        value = _value_at(encoded, 0)
        if value is None:
            return
        if owner is _Owner.SCHEDULED_ENQUEUE_TIME:
            if not isinstance(value, Timestamp):
                raise _wrong_type("x-opt-scheduled-enqueue-time", "timestamp", value)
            self.scheduled_enqueue_at = int(value)
        elif owner is _Owner.PARTITION_KEY:
            self.partition_key = _identifier("x-opt-partition-key", value)
        else:
            self.via_partition_key = _identifier("x-opt-via-partition-key", value)

    @property
    def message_id(self) -> str | None:
        """Canonical text of the message id: a string as it is, ulong in decimal, uuid in its usual form, binary in hex.

        Raises BrokerError: ARGUMENT_OUT_OF_RANGE when it is too long, INVALID_FIELD for another type, DECODE_ERROR.
        """
        text = self._message_id
        if text is _UNREAD:
            value = self.field(_Field.MESSAGE_ID)
            if isinstance(value, bytes):
                if len(value) > IDENTIFIER_CHARS_MAX:
                    raise _too_long("message-id", len(value))
                text = value.hex()
            elif isinstance(value, Ulong | uuid.UUID):
                text = str(value)
            else:
                text = None if value is None else _identifier("message-id", value)
            self._message_id = text
        return text

    @property
    def session_id(self) -> str | None:
        """The message session that the message belongs to: its group-id. Raises BrokerError as `message_id` does."""
        text = self._session_id
        if text is _UNREAD:
            value = self.field(_Field.GROUP_ID)
            text = self._session_id = None if value is None else _identifier("group-id", value)
        return text

    def field(self, position: int) -> object:
        """Return one field of the properties, None when it is null or not there. Raises BrokerError(DECODE_ERROR)."""
        if not self._at[PROPERTIES + 7]:
            return None
        count, pos = open_items(self._data, self._at[PROPERTIES])
        if position >= count:
            return None
        return _value_at(self._data, skip(self._data, pos, position) if position else pos)

    def application_properties(self) -> dict[str, object]:
        """Return the application properties, decoded anew; an entry whose key is no string is left out.

        Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
        """
        at = self._at
        return _named_values(self._data, at[APPLICATION_PROPERTIES]) if at[APPLICATION_PROPERTIES + 7] else {}

    def located(self) -> tuple[bytes, list[int]]:
        """Return the message with its sections in order, and where each of them lies (as from `sections.locate`)."""
        return self._data, self._at

    def stored(self, enqueued_at: int, expires_at: int | None) -> bytes:
        """Return the message in the form that is kept; both instants in Unix milliseconds.

        With `expires_at`, the delivered header has the effective ttl and the properties tell absolute-expiry-time and,
        unless the sender did, creation-time. Without, the header has no ttl and no property changes.
        """
        start, entries = self._header_start, self._entries
        if expires_at is None:
            bare = self._data[self._bare :]
        else:
            ttl_ms = min(max(expires_at - enqueued_at, 0), _TTL_MS_MAX)
            start = _header_start_cached(self.durable, self.priority, ttl_ms)
            bare = self._bare_with_expiry(enqueued_at, expires_at)
        return _FORM_HEAD.pack(_FORM_VERSION, len(start), self._entries_count, len(entries)) + start + entries + bare

    def _bare_with_expiry(self, enqueued_at: int, expires_at: int) -> bytes:
        data, start, stop = self._data, self._at[PROPERTIES], self._at[PROPERTIES + 7]
        if not stop:
            start = stop = self._bare
        expiry, creation = b"\x83" + _pack_i64(expires_at), b"\x83" + _pack_i64(enqueued_at)
        properties = list_with_fields(data, start, stop, _Field.ABSOLUTE_EXPIRY_TIME, expiry, creation)
        return b"\x00\x53\x73" + properties + data[stop:]


def _value_at(data: bytes, pos: int) -> object:
    """Return the value at `pos`, which `skip` has been over; short strings, nearly all there is, go a shorter way."""
    if data[pos] != 0xA1:
        return decode(data, pos)[0]
    try:
        return data[pos + 2 : pos + 2 + data[pos + 1]].decode()
    except UnicodeDecodeError as error:
        raise malformed(pos, str(error)) from None


def _identifier(name: str, value: object) -> str:
    if not isinstance(value, str):
        raise _wrong_type(name, "string", value)
    if len(value) > IDENTIFIER_CHARS_MAX:
        raise _too_long(name, len(value))
    return str(value)


def _too_long(name: str, length: int) -> BrokerError:
    return BrokerError(
        Condition.ARGUMENT_OUT_OF_RANGE,
        f"The {name} of the message has {length} characters; it must not have more than {IDENTIFIER_CHARS_MAX}.",
    )


def _wrong_type(name: str, expected: str, value: object) -> BrokerError:
    return BrokerError(
        Condition.INVALID_FIELD, f"The {name} of the message is of type {type(value).__name__}, not {expected}."
    )


def parse_message(data: bytes) -> Message:
    """Return what the broker needs of an encoded message, whatever the order and form of its sections.

    Raises BrokerError: DECODE_ERROR when it is no message, ARGUMENT_OUT_OF_RANGE for a partition key that is too
    long, INVALID_FIELD for an annotation of the wrong type.
    """
    try:
        return Message(*_located(data), len(data))
    except IndexError:
        raise malformed(len(data), "the message is cut off") from None


def parse_sent(data: bytes) -> Message:
    """As `parse_message`, for what a client sends: a message without a message id gets one for its receivers.

    The service does so, and JavaScript's SDK can't settle a message without. `message_id` stays None here, because what
    the sender did not give is no key; `size_bytes` is that of what arrived. Raises ARGUMENT_OUT_OF_RANGE for a message
    id that is too long, too.
    """
    try:
        usual, at = _located(data)
        if _has_message_id(usual, at):
            message = Message(usual, at, len(data))
            if at[PROPERTIES + 7] - at[PROPERTIES] > IDENTIFIER_CHARS_MAX:  # else there is no room for a longer one
                value = message.field(_Field.MESSAGE_ID)
                if isinstance(value, str | bytes) and len(value) > IDENTIFIER_CHARS_MAX:
                    raise _too_long("message-id", len(value))
            return message
        message = Message(*_with_message_id(usual, at, new_message_id()), len(data))
        message._message_id = None
        return message
    except IndexError:
        raise malformed(len(data), "the message is cut off") from None


def _located(data: bytes) -> tuple[bytes, list[int]]:
    """Return the message in its usual form, and where its sections lie."""
    at = locate(data)
    if at is not None:
        return data, at
    usual = canonical(data)
    at = locate(usual)
    if at is None:
        raise malformed(0, "no sections of a message")
    return usual, at


def _has_message_id(data: bytes, at: list[int]) -> bool:
    if not at[PROPERTIES + 7]:
        return False
    count, pos = open_items(data, at[PROPERTIES])
    return count > 0 and data[pos] != 0x40


def _with_message_id(data: bytes, at: list[int], message_id: str) -> tuple[bytes, list[int]]:
    """Return a message without a message id with one (up to 255 characters of ASCII), and where its sections lie."""
    value = bytes((0xA1, len(message_id))) + message_id.encode("ascii")
    stop = at[PROPERTIES + 7]
    if stop:
        start = at[PROPERTIES]
        count, pos = open_items(data, start)
        properties = list_from_items(max(count, 1), value + data[pos + (count > 0) : stop])
    else:
        start = stop = at[MESSAGE_ANNOTATIONS + 7] or at[DELIVERY_ANNOTATIONS + 7] or at[HEADER + 7]
        properties = list_from_items(1, value)
    section = b"\x00\x53\x73" + properties
    shift = len(section) - (stop - start)
    moved = at.copy()
    moved[PROPERTIES], moved[PROPERTIES + 7] = start, start + len(section)
    for rank in (APPLICATION_PROPERTIES, BODY, FOOTER):
        if at[rank + 7]:
            moved[rank] += shift
            moved[rank + 7] += shift
    return data[:start] + section + data[stop:], moved


def split_batch(data: bytes) -> list[bytes]:
    """Return the encoded messages of a transfer with message-format 0x80013700: one in each data section, one or more.

    All else in the envelope is ignored [wire 4.4]. The messages are not looked into.
    Raises BrokerError(DECODE_ERROR).
    """
    messages = data_sections(data)
    if not messages:
        raise malformed(len(data), "a batch without a data section holds no message")
    return messages


# --- The stored form ----------------------------------------------------------------------------------------

# version, bytes of the header section without delivery count, items of the sender's annotations, bytes of these
_FORM_HEAD: Final = Struct(">BBII")
_FORM_HEAD_BYTES: Final = _FORM_HEAD.size


def _key(name: str) -> bytes:
    return bytes((0xA3, len(name))) + name.encode("ascii")


# delivery-count; section, size and count of a map32; sequence number; enqueued time
_DELIVERY_START: Final = Struct(">BI4sII24sq22sq")
_DELIVERY_ENTRIES_BYTES: Final = _DELIVERY_START.size - 13  # what counts for the size of the map
_ANNOTATIONS_START: Final = Struct(">BI4sII")
_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72\xd1"
_SEQUENCE_NUMBER: Final = _key("x-opt-sequence-number") + b"\x81"
_ENQUEUED_TIME: Final = _key("x-opt-enqueued-time") + b"\x83"
_LOCKED_UNTIL: Final = _key("x-opt-locked-until") + b"\x83"
_MESSAGE_STATES: Final = tuple(_key("x-opt-message-state") + bytes((0x54, state)) for state in range(3))
_PARTITION_ID: Final = _key("x-opt-partition-id") + b"\x61"
_ENQUEUE_SEQUENCE_NUMBER: Final = _key("x-opt-enqueue-sequence-number") + b"\x81"
_DEADLETTER_SOURCE: Final = _key("x-opt-deadletter-source")
_LOCK_TOKEN: Final = b"\x00\x53\x71\xc1" + bytes((1 + 18 + 17, 2)) + _key("x-opt-lock-token") + b"\x98"
_pack_i64 = Struct(">q").pack
_pack_i16 = Struct(">h").pack


def delivery_bytes(
    stored: bytes,
    *,
    sequence_number: int,
    enqueued_at: int,
    delivery_count: int,
    locked_until_at: int | None,
    state: int | None,
    partition_id: int | None,
    enqueue_sequence_number: int | None,
    dead_letter_source: str | None = None,
    lock_token: bytes | None = None,
) -> bytes:
    """Return the whole encoded message as a client gets it [wire 5.4]; instants in Unix milliseconds.

    `state` is 0 active, 1 deferred, 2 scheduled. `lock_token` (16 bytes as in a delivery-tag) puts the token into the
    delivery annotations, too. What is None is left out.
    """
    _, start_bytes, entries_count, entries_bytes = _FORM_HEAD.unpack_from(stored)
    entries_at = _FORM_HEAD_BYTES + start_bytes
    bare_at = entries_at + entries_bytes
    more, more_count = b"", 4
    if locked_until_at is not None:
        more, more_count = _LOCKED_UNTIL + _pack_i64(locked_until_at), 6
    if enqueue_sequence_number is not None:
        more += _ENQUEUE_SEQUENCE_NUMBER + _pack_i64(enqueue_sequence_number)
        more_count += 2
    if state is not None:
        more += _MESSAGE_STATES[state]
        more_count += 2
    if partition_id is not None:
        more += _PARTITION_ID + _pack_i16(partition_id)
        more_count += 2
    if dead_letter_source is not None:
        more += _DEADLETTER_SOURCE + encode(str(dead_letter_source))
        more_count += 2
    start = _DELIVERY_START.pack(
        0x70,
        delivery_count,
        _ANNOTATIONS_HEAD,
        _DELIVERY_ENTRIES_BYTES + len(more) + entries_bytes,
        more_count + entries_count,
        _SEQUENCE_NUMBER,
        sequence_number,
        _ENQUEUED_TIME,
        enqueued_at,
    )
    if lock_token is not None:  # delivery annotations belong between the header and the message annotations
        start = start[:5] + _LOCK_TOKEN + _rfc_order(lock_token) + start[5:]
    return stored[_FORM_HEAD_BYTES:entries_at] + start + more + stored[entries_at:bare_at] + stored[bare_at:]


def _rfc_order(token: bytes) -> bytes:
    """Return the bytes of an AMQP uuid for a lock token in .NET order [wire 5.3]."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def parse_stored(stored: bytes) -> Message:
    """Return a stored message as if it arrived again, for a move to another entity: forwarding, activation.

    Its `ttl_ms` is the effective one that it was stored with; `size_bytes` is the size of what is kept. Never raises
    for what `Message.stored` and `with_application_properties` gave.
    """
    _, start_bytes, entries_count, entries_bytes = _FORM_HEAD.unpack_from(stored)
    entries_at = _FORM_HEAD_BYTES + start_bytes
    section = _ANNOTATIONS_START.pack(0x70, 0, _ANNOTATIONS_HEAD, entries_bytes + 4, entries_count)
    return parse_message(stored[_FORM_HEAD_BYTES:entries_at] + section + stored[entries_at:])


_DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")


def without_dead_letter_reason(message: Message) -> Message:
    """Return a message without the application properties that tell why it was dead-lettered; all else as it is."""
    data, at = message.located()
    start, stop = at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7]
    if not stop:
        return message
    section = b"\x00\x53\x74" + map_with_entries(data, start, stop, {}, _DEAD_LETTER_PROPERTIES)
    return parse_message(data[:start] + section + data[stop:])


def with_application_properties(stored: bytes, changes: Mapping[str, object]) -> bytes:
    """Return the stored message with application properties added or replaced; all else keeps its bytes.

    Values are Python values or wrapper types of `encoding`. Raises TypeError or ValueError for a value that AMQP
    cannot hold.
    """
    bare_at, at = _locate_bare(stored)
    bare = stored[bare_at:]
    start, stop = at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7]
    if not stop:
        start = stop = at[PROPERTIES + 7]
    section = b"\x00\x53\x74" + map_with_entries(bare, start, stop, changes)
    return stored[:bare_at] + bare[:start] + section + bare[stop:]


def application_properties(stored: bytes) -> dict[str, object]:
    """Return the application properties, decoded; an entry whose key is no string is left out.

    Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
    """
    bare_at, at = _locate_bare(stored)
    if not at[APPLICATION_PROPERTIES + 7]:
        return {}
    return _named_values(stored, bare_at + at[APPLICATION_PROPERTIES])


def _named_values(data: bytes, start: int) -> dict[str, object]:
    """Return the entries with string keys of the map section at `start`."""
    entries, _ = decode(data, start + 3)
    return {str(k): v for k, v in entries.items() if isinstance(k, str)} if isinstance(entries, dict) else {}


def properties_fields(stored: bytes) -> dict[str, object]:
    """Return the properties that are not null, decoded, by their AMQP names ("message-id", "group-id", …).

    Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
    """
    bare_at, at = _locate_bare(stored)
    if not at[PROPERTIES + 7]:
        return {}
    fields, _ = decode(stored, bare_at + at[PROPERTIES] + 3)
    if not isinstance(fields, list):
        return {}
    return {name: value for name, value in zip(PROPERTY_NAMES, fields, strict=False) if value is not None}


def _locate_bare(stored: bytes) -> tuple[int, list[int]]:
    """Return where the bare sections begin, and where each of them lies from there."""
    _, start_bytes, _, entries_bytes = _FORM_HEAD.unpack_from(stored)
    bare_at = _FORM_HEAD_BYTES + start_bytes + entries_bytes
    at = locate(stored[bare_at:])
    if at is None:
        raise malformed(bare_at, "a stored message whose sections are not in order")
    return bare_at, at
