"""One message as bytes: what arrives, what is kept, what is handed out [wire 4.3, 4.4, 5.4].

Knows which fields and annotations of a message mean something to Service Bus, and which of them the broker owns. The
sender's annotations, properties, application properties, body and footer are kept and delivered byte for byte; the
broker writes the header and its own annotations anew and splices the expiry and dead-letter reasons in, and a message
id where the sender gave none. Must not depend on queues, clocks and storage. `sections` finds the bytes of a section,
`message_header` and `message_annotations` read theirs, `message_bounds` knows what is too large.

A `Message` belongs to whoever parsed it and does not change. A stored message is a byte string in a form of this
module: a fixed head, the header section up to its delivery count, the sender's delivery annotations if there are any,
the sender's message annotations, the other sections. This is the hot path of the whole broker: measure before and
after a change.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from enum import IntEnum
from struct import Struct
from typing import Final

from ...codec.decode import decode
from ...codec.encode import encode, list_from_items, map_from_items
from ...codec.errors import DecodeError
from ...codec.sections import (
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
from ...codec.skip import skip
from ...codec.types import Ulong
from ..errors import BrokerError, decode_refusal
from ..ids import new_message_id
from .annotations import NO_ANNOTATIONS, identifier, read_annotations, read_delivery_annotations, value_at
from .bounds import STANDARD_BOUNDS, MessageBounds, check_bounds
from .header import NO_HEADER, header_start, read_header

_TTL_MS_MAX: Final = 0xFFFF_FFFF


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


_UNREAD: Final = str(b"\0not read yet", "ascii")  # told from any text by identity

# --- An arriving message ------------------------------------------------------------------------------------


class Message:
    """What the broker needs of an arriving message; made by `parse_message`, immutable."""

    __slots__ = (
        "_at",
        "_bare",
        "_data",
        "_delivery_entries",
        "_entries",
        "_entries_count",
        "_header",
        "_message_id",
        "_session_id",
        "partition_key",
        "scheduled_enqueue_at",
        "size_bytes",
        "ttl_ms",
        "via_partition_key",
    )

    size_bytes: int
    """Length of the message as it arrived."""
    ttl_ms: int | None
    partition_key: str | None
    via_partition_key: str | None
    scheduled_enqueue_at: int | None

    def __init__(self, data: bytes, at: list[int], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._data = data
        self._at = at
        self._message_id: str | None = _UNREAD
        self._session_id: str | None = _UNREAD
        stop = at[HEADER + 7]
        self._header = read_header(data[at[HEADER] : stop]) if stop else NO_HEADER
        self.ttl_ms = self._header.ttl_ms
        delivery_stop = at[DELIVERY_ANNOTATIONS + 7]
        self._delivery_entries = (
            read_delivery_annotations(data, at[DELIVERY_ANNOTATIONS], delivery_stop) if delivery_stop else None
        )
        annotations_stop = at[MESSAGE_ANNOTATIONS + 7]
        (
            self._entries_count,
            self._entries,
            self.partition_key,
            self.via_partition_key,
            self.scheduled_enqueue_at,
        ) = read_annotations(data, at[MESSAGE_ANNOTATIONS], annotations_stop) if annotations_stop else NO_ANNOTATIONS
        # In order, the bare sections begin where the last of the others ends.
        self._bare = annotations_stop or delivery_stop or stop
        if at[PROPERTIES + 7]:
            check_items(data, at[PROPERTIES], at[PROPERTIES + 7])
        if at[APPLICATION_PROPERTIES + 7]:
            check_items(data, at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7])

    @property
    def durable(self) -> bool:
        """Whether the sender asked for a durable message; the broker keeps all of them alike."""
        return bool(self._header.durable)

    @property
    def priority(self) -> int | None:
        """The sender's priority, which has no effect."""
        return self._header.priority

    @property
    def message_id(self) -> str | None:
        """Canonical text of the message id: a string as it is, ulong in decimal, uuid in its usual form, binary in hex.

        Raises BrokerError: INVALID_FIELD for another type, DECODE_ERROR.
        """
        text = self._message_id
        if text is _UNREAD:
            value = self.field(_Field.MESSAGE_ID)
            if isinstance(value, bytes):
                text = value.hex()
            elif isinstance(value, Ulong | uuid.UUID):
                text = str(value)
            else:
                text = None if value is None else identifier("message-id", value)
            self._message_id = text
        return text

    @property
    def session_id(self) -> str | None:
        """The message session that the message belongs to: its group-id. Raises BrokerError as `message_id` does."""
        text = self._session_id
        if text is _UNREAD:
            value = self.field(_Field.GROUP_ID)
            text = self._session_id = None if value is None else identifier("group-id", value)
        return text

    def field(self, position: int) -> object:
        """Return one field of the properties, None when it is null or not there. Raises BrokerError(DECODE_ERROR)."""
        if not self._at[PROPERTIES + 7]:
            return None
        count, pos = open_items(self._data, self._at[PROPERTIES] + 3)
        if position >= count:
            return None
        try:
            return value_at(self._data, skip(self._data, pos, position) if position else pos)
        except DecodeError as error:
            raise decode_refusal(error) from None

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
        if expires_at is None:
            ttl_ms = None
            bare = self._data[self._bare :]
        else:
            ttl_ms = min(max(expires_at - enqueued_at, 0), _TTL_MS_MAX)
            bare = self._bare_with_expiry(enqueued_at, expires_at)
        start = header_start(self._header, ttl_ms)
        count, entries = self._entries_count, self._entries
        if self._delivery_entries is None:
            return _FORM_HEAD.pack(_PLAIN, len(start), count, len(entries)) + start + entries + bare
        delivery_count, delivery_entries = self._delivery_entries
        head = _FORM_HEAD.pack(_WITH_DELIVERY_ANNOTATIONS, len(start), count, len(entries))
        more = _DELIVERY_HEAD.pack(delivery_count, len(delivery_entries))
        return head + more + start + delivery_entries + entries + bare

    def _bare_with_expiry(self, enqueued_at: int, expires_at: int) -> bytes:
        data, start, stop = self._data, self._at[PROPERTIES], self._at[PROPERTIES + 7]
        if not stop:
            start = stop = self._bare
        expiry, creation = b"\x83" + _pack_i64(expires_at), b"\x83" + _pack_i64(enqueued_at)
        properties = list_with_fields(data, start, stop, _Field.ABSOLUTE_EXPIRY_TIME, expiry, creation)
        return b"\x00\x53\x73" + properties + data[stop:]


def parse_message(data: bytes) -> Message:
    """Return what the broker needs of an encoded message, whatever the order and form of its sections.

    Raises BrokerError: DECODE_ERROR when it is no message, INVALID_FIELD for an annotation of the wrong type.
    """
    try:
        return Message(*_located(data), len(data))
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _cut_off(data) from None


def parse_sent(data: bytes, bounds: MessageBounds = STANDARD_BOUNDS) -> Message:
    """As `parse_message`, for what a client sends: within `bounds`, and with a message id for its receivers.

    The service gives a message without a message id one, and JavaScript's SDK can't settle a message without.
    `message_id` stays None here, because what the sender did not give is no key; `size_bytes` is that of what arrived.
    Raises what `message_bounds.check_bounds` raises, too.
    """
    try:
        usual, at = _located(data)
        if _has_message_id(usual, at):
            message = Message(usual, at, len(data))
        else:
            message = Message(*_with_message_id(usual, at, new_message_id()), len(data))
            message._message_id = None
        if bounds.need_a_look(usual, at):
            keys = {
                "x-opt-partition-key": message.partition_key,
                "x-opt-via-partition-key": message.via_partition_key,
            }
            check_bounds(usual, at, keys, bounds)
        return message
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _cut_off(data) from None


def _cut_off(data: bytes) -> BrokerError:
    return decode_refusal(DecodeError(len(data), "the message is cut off"))


def _located(data: bytes) -> tuple[bytes, list[int]]:
    """Return the message in its usual form, and where its sections lie."""
    at = locate(data)
    if at is not None:
        return data, at
    usual = canonical(data)
    at = locate(usual, mixed=True)
    if at is None:
        raise DecodeError(0, "no sections of a message")
    return usual, at


def _has_message_id(data: bytes, at: list[int]) -> bool:
    if not at[PROPERTIES + 7]:
        return False
    count, pos = open_items(data, at[PROPERTIES] + 3)
    return count > 0 and data[pos] != 0x40


def _with_message_id(data: bytes, at: list[int], message_id: str) -> tuple[bytes, list[int]]:
    """Return a message without a message id with one (up to 255 characters of ASCII), and where its sections lie."""
    value = bytes((0xA1, len(message_id))) + message_id.encode("ascii")
    stop = at[PROPERTIES + 7]
    if stop:
        start = at[PROPERTIES]
        count, pos = open_items(data, start + 3)
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
    try:
        messages = data_sections(data)
        if not messages:
            raise DecodeError(len(data), "a batch without a data section holds no message")
    except DecodeError as error:
        raise decode_refusal(error) from None
    return messages


# --- The stored form ----------------------------------------------------------------------------------------

# version, bytes of the header section without delivery count, items of the sender's annotations, bytes of these
_FORM_HEAD: Final = Struct(">BBII")
_FORM_HEAD_BYTES: Final = _FORM_HEAD.size
# Versions: with the second, items and bytes of the sender's delivery annotations follow the head.
_PLAIN: Final = 1
_WITH_DELIVERY_ANNOTATIONS: Final = 2
_DELIVERY_HEAD: Final = Struct(">II")


def _key(name: str) -> bytes:
    return bytes((0xA3, len(name))) + name.encode("ascii")


# delivery-count; section, size and count of a map32; sequence number; enqueued time
_DELIVERY_START: Final = Struct(">BI4sII24sq22sq")
_DELIVERY_ENTRIES_BYTES: Final = _DELIVERY_START.size - 13  # what counts for the size of the map
_MAP32_HEAD: Final = Struct(">4sII")
_NO_DELIVERY_COUNT: Final = b"\x70\0\0\0\0"
_ANNOTATIONS_HEAD: Final = b"\x00\x53\x72\xd1"
_SEQUENCE_NUMBER: Final = _key("x-opt-sequence-number") + b"\x81"
_ENQUEUED_TIME: Final = _key("x-opt-enqueued-time") + b"\x83"
_LOCKED_UNTIL: Final = _key("x-opt-locked-until") + b"\x83"
_MESSAGE_STATES: Final = tuple(_key("x-opt-message-state") + bytes((0x54, state)) for state in range(3))
_PARTITION_ID: Final = _key("x-opt-partition-id") + b"\x61"
_ENQUEUE_SEQUENCE_NUMBER: Final = _key("x-opt-enqueue-sequence-number") + b"\x81"
_DEADLETTER_SOURCE: Final = _key("x-opt-deadletter-source")
_DELIVERY_ANNOTATIONS: Final = b"\x00\x53\x71"
_LOCK_TOKEN: Final = _key("x-opt-lock-token") + b"\x98"
_ONLY_LOCK_TOKEN: Final = _DELIVERY_ANNOTATIONS + b"\xc1" + bytes((1 + len(_LOCK_TOKEN) + 16, 2)) + _LOCK_TOKEN
_NO_DELIVERY_ANNOTATIONS: Final = _DELIVERY_ANNOTATIONS + b"\xc1\x01\x00"
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
    deleted: bool = False,
) -> bytes:
    """Return the whole encoded message as a client gets it [wire 5.4]; instants in Unix milliseconds.

    `state` is 0 active, 1 deferred, 2 scheduled. `lock_token` (16 bytes as in a delivery-tag) puts the token into the
    delivery annotations, too. With `deleted` the client receives and deletes: it gets delivery annotations even if
    there are none, as from the service. What is None is left out.
    """
    version, start_bytes, entries_count, entries_bytes = _FORM_HEAD.unpack_from(stored)
    start_at = _FORM_HEAD_BYTES
    annotations = b""
    if version != _PLAIN:
        start_at, entries_at, annotations = _with_delivery_annotations(stored, start_bytes, lock_token)
    else:
        entries_at = start_at + start_bytes
        if lock_token is not None:
            annotations = _ONLY_LOCK_TOKEN + _rfc_order(lock_token)
        elif deleted:
            annotations = _NO_DELIVERY_ANNOTATIONS
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
    if annotations:  # they belong between the header, which ends with the delivery count, and the message annotations
        start = start[:5] + annotations + start[5:]
    return stored[start_at : start_at + start_bytes] + start + more + stored[entries_at:]


def _with_delivery_annotations(stored: bytes, start_bytes: int, lock_token: bytes | None) -> tuple[int, int, bytes]:
    """Return where header and annotations begin in a form of the second version, and the delivery annotations."""
    count, size = _DELIVERY_HEAD.unpack_from(stored, _FORM_HEAD_BYTES)
    start_at = _FORM_HEAD_BYTES + _DELIVERY_HEAD.size
    delivery_at = start_at + start_bytes
    entries = stored[delivery_at : delivery_at + size]
    if lock_token is not None:
        entries += _LOCK_TOKEN + _rfc_order(lock_token)
        count += 2
    return start_at, delivery_at + size, _DELIVERY_ANNOTATIONS + map_from_items(count, entries)


def _rfc_order(token: bytes) -> bytes:
    """Return the bytes of an AMQP uuid for a lock token in .NET order [wire 5.3]."""
    return token[3::-1] + token[5:3:-1] + token[7:5:-1] + token[8:]


def parse_stored(stored: bytes) -> Message:
    """Return a stored message as if it arrived again, for a move to another entity: forwarding, activation.

    Its `ttl_ms` is the effective one that it was stored with; `size_bytes` is the size of what is kept. Never raises
    for what `Message.stored` and `with_application_properties` gave.
    """
    version, start_bytes, entries_count, entries_bytes = _FORM_HEAD.unpack_from(stored)
    start_at, annotations = _FORM_HEAD_BYTES, b""
    if version != _PLAIN:
        start_at, entries_at, annotations = _with_delivery_annotations(stored, start_bytes, None)
    else:
        entries_at = start_at + start_bytes
    header = stored[start_at : start_at + start_bytes]
    section = _MAP32_HEAD.pack(_ANNOTATIONS_HEAD, entries_bytes + 4, entries_count)
    return parse_message(header + _NO_DELIVERY_COUNT + annotations + section + stored[entries_at:])


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
    """Return the entries with string keys of the map section at `start`. Raises BrokerError(DECODE_ERROR)."""
    entries = _decoded(data, start + 3)
    return {str(k): v for k, v in entries.items() if isinstance(k, str)} if isinstance(entries, dict) else {}


def properties_fields(stored: bytes) -> dict[str, object]:
    """Return the properties that are not null, decoded, by their AMQP names ("message-id", "group-id", …).

    Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
    """
    bare_at, at = _locate_bare(stored)
    if not at[PROPERTIES + 7]:
        return {}
    fields = _decoded(stored, bare_at + at[PROPERTIES] + 3)
    if not isinstance(fields, list):
        return {}
    return {name: value for name, value in zip(PROPERTY_NAMES, fields, strict=False) if value is not None}


def _locate_bare(stored: bytes) -> tuple[int, list[int]]:
    """Return where the bare sections begin, and where each of them lies from there."""
    version, start_bytes, _, entries_bytes = _FORM_HEAD.unpack_from(stored)
    bare_at = _FORM_HEAD_BYTES + start_bytes + entries_bytes
    if version != _PLAIN:
        bare_at += _DELIVERY_HEAD.size + _DELIVERY_HEAD.unpack_from(stored, _FORM_HEAD_BYTES)[1]
    try:
        at = locate(stored[bare_at:], mixed=True)
        if at is None:
            raise DecodeError(bare_at, "a stored message whose sections are not in order")
    except DecodeError as error:
        raise decode_refusal(error) from None
    return bare_at, at


def _decoded(data: bytes, pos: int) -> object:
    """Return the value at `pos`. Raises BrokerError(DECODE_ERROR)."""
    try:
        return decode(data, pos)[0]
    except DecodeError as error:
        raise decode_refusal(error) from None
