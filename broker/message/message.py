"""An arriving message: parses it, and encodes its stored form [wire 4.3, 4.4, 5.4].

Knows the fields and annotations that Service Bus uses. The sender's annotations, properties, application properties,
body and footer are stored and delivered byte for byte; the broker replaces the header and its own annotations, inserts
expiry and dead-letter reasons, and adds a missing message id. Must not depend on queues, clocks and storage.
`codec.sections` finds the bytes of a section, `header` and `annotations` read theirs, `bounds` has the size limits.

A `Message` is immutable. `stored_form` has the layout of a stored message: a fixed head, the header section up to its
delivery count, the sender's delivery annotations if any, the sender's message annotations, the other sections. This is
the broker's hot path: measure before and after a change.
"""

from __future__ import annotations

import uuid
from enum import IntEnum
from struct import Struct
from typing import Final

from ...codec.encode import list_from_items
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
    open_items,
)
from ...codec.skip import skip
from ...codec.types import Ulong
from .. import service_errors
from ..errors import BrokerError, Condition, EmptyBatchError, decode_refusal
from ..ids import new_message_id
from .annotations import NO_ANNOTATIONS, identifier, read_annotations, read_delivery_annotations, value_at
from .bounds import STANDARD_BOUNDS, MessageBounds, check_bounds
from .header import NO_HEADER, header_start, read_header
from .scan import Scanned, scan
from .stored_form import DELIVERY_HEAD, FORM_HEAD, PLAIN, WITH_DELIVERY_ANNOTATIONS, named_values

_pack_i64, _unpack_i64 = Struct(">q").pack, Struct(">q").unpack_from
_TIMESTAMP: Final = 0x83

_TTL_MS_MAX: Final = 0xFFFF_FFFF
INSTANT_MS_MAX: Final = 253_402_300_799_999
"""The last instant that clients can show: 9999-12-31T23:59:59.999Z."""


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


_UNREAD: Final = str(b"\0not read yet", "ascii")  # compared by identity, so no text equals it
_NOT_LOCATED: Final[list[int]] = []

# --- An arriving message ------------------------------------------------------------------------------------


class Message:
    """The fields of a message that the broker uses, and its bytes; `parse_message` makes it. Immutable.

    Reading its keys never fails: what `parse_sent` refuses (an id or session id of a wrong type, or no UTF-8) is None
    here. A row of an older release, which did not judge every message, may hold such a key: no handler of rows has to
    be ready for an error, and the message moves like one without that key.
    """

    __slots__ = (
        "_application_at",
        "_at",
        "_bare",
        "_data",
        "_delivery_entries",
        "_entries",
        "_entries_count",
        "_header",
        "_message_id",
        "_session_id",
        "form",
        "partition_key",
        "scheduled_enqueue_at",
        "size_bytes",
        "ttl_ms",
        "via_partition_key",
    )

    size_bytes: int
    """Length of the message as it arrived."""
    form: bytes | None
    """The stored form without a time to live, if the scan has made it."""
    ttl_ms: int | None
    """How long the sender wants it to live; see `lifetime_ms`."""
    partition_key: str | None
    via_partition_key: str | None
    scheduled_enqueue_at: int | None

    def __init__(self, data: bytes, at: list[int], size_bytes: int) -> None:
        self.size_bytes = size_bytes
        self._data = data
        self.form = None
        self._message_id: str | None = _UNREAD
        self._session_id: str | None = _UNREAD
        self._read(at)

    @classmethod
    def scanned(cls, data: bytes, found: Scanned) -> Message:
        """Return the message of which `scan` has `found` form and keys; the rest is read when it is needed."""
        message = cls.__new__(cls)
        message.form, message._session_id, message.partition_key, with_id, message._application_at = found
        message.size_bytes = len(data)
        message._data = data if with_id is None else with_id
        message._message_id = _UNREAD if with_id is None else None
        message._at = _NOT_LOCATED
        message.ttl_ms = message.via_partition_key = message.scheduled_enqueue_at = None
        return message

    @classmethod
    def without_annotations(cls, data: bytes, *, reads_header: bool) -> Message:
        """Return a delivered message to read properties, application properties and perhaps the header of.

        The broker wrote most of the annotations; reading them takes longer than all the rest. Raises BrokerError
        (DECODE_ERROR).
        """
        try:
            at = locate(data)
        except (DecodeError, IndexError):
            at = None
        if at is None:
            return parse_message(data)
        application_at = at[APPLICATION_PROPERTIES] if at[APPLICATION_PROPERTIES + 7] else -1
        message = cls.scanned(data, (b"", _UNREAD, None, None, application_at))
        message._at = at
        if reads_header:
            stop = at[HEADER + 7]
            message._header = read_header(data[at[HEADER] : stop]) if stop else NO_HEADER
            message.ttl_ms = message._lifetime_ms()
        return message

    def _located(self) -> list[int]:
        """The positions of the sections."""
        if self._at is _NOT_LOCATED:
            at = locate(self._data)
            assert at is not None, "scan() takes only messages that locate() takes"
            self._read(at)
        return self._at

    def _read(self, at: list[int]) -> None:
        """Read all fields; `at` has the positions of the sections."""
        data = self._data
        self._at = at
        self._application_at = at[APPLICATION_PROPERTIES] if at[APPLICATION_PROPERTIES + 7] else -1
        stop = at[HEADER + 7]
        self._header = read_header(data[at[HEADER] : stop]) if stop else NO_HEADER
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
        # The sections are in order: the bare sections begin at the end of the annotations.
        self._bare = annotations_stop or delivery_stop or stop
        if at[PROPERTIES + 7]:
            check_items(data, at[PROPERTIES], at[PROPERTIES + 7])
        self.ttl_ms = self._lifetime_ms()
        if at[APPLICATION_PROPERTIES + 7]:
            check_items(data, at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7])

    def _lifetime_ms(self) -> int | None:
        ttl_ms = self._header.ttl_ms
        return None if ttl_ms is None else effective_ttl(ttl_ms, *self.times())

    def times(self) -> tuple[int | None, int | None]:
        """The sender's absolute-expiry-time and creation-time; None for what is missing or no timestamp."""
        at = self._located()
        data, start, stop = self._data, at[PROPERTIES], at[PROPERTIES + 7]
        count, pos = open_items(data, start + 3) if stop else (0, 0)
        if count <= _Field.ABSOLUTE_EXPIRY_TIME:
            return None, None
        pos = skip(data, pos, _Field.ABSOLUTE_EXPIRY_TIME)
        creation_pos = skip(data, pos) if count > _Field.CREATION_TIME else -1
        return _instant_at(data, pos), None if creation_pos < 0 else _instant_at(data, creation_pos)

    @property
    def encoded(self) -> bytes:
        """The message as it arrived, with the id that it got if it had none."""
        return self._data

    @property
    def durable(self) -> bool:
        """Whether the sender marked the message as durable; this has no effect."""
        self._located()
        return bool(self._header.durable)

    @property
    def priority(self) -> int | None:
        """The sender's priority; this has no effect."""
        self._located()
        return self._header.priority

    @property
    def message_id(self) -> str | None:
        """The message id as text: a string unchanged, ulong in decimal, uuid in its usual form, binary in hex."""
        text = self._message_id
        if text is _UNREAD:
            try:
                text = self._read_message_id()
            except BrokerError:
                text = None
            self._message_id = text
        return text

    @property
    def session_id(self) -> str | None:
        """The session id (AMQP's group-id)."""
        text = self._session_id
        if text is _UNREAD:
            try:
                text = self._read_session_id()
            except BrokerError:
                text = None
            self._session_id = text
        return text

    def check_keys(self) -> None:
        """Read the keys of a client's message; `parse_message` has read those in the annotations.

        Raises BrokerError: INVALID_FIELD for a key of a wrong type, DECODE_ERROR for one that is no UTF-8, NOT_ALLOWED
        for a SessionId that differs from the PartitionKey (P9).
        """
        if self._message_id is _UNREAD:
            self._message_id = self._read_message_id()
        session_id = self._session_id
        if session_id is _UNREAD:
            session_id = self._session_id = self._read_session_id()
        if session_id is not None and self.partition_key is not None and session_id != self.partition_key:
            raise service_errors.key_mismatch(session_id, self.partition_key)

    def _read_message_id(self) -> str | None:
        value = self.field(_Field.MESSAGE_ID)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, Ulong | uuid.UUID):
            return str(value)
        return None if value is None else identifier("message-id", value)

    def _read_session_id(self) -> str | None:
        value = self.field(_Field.GROUP_ID)
        return None if value is None else identifier("group-id", value)

    def field(self, position: int) -> object:
        """Return one field of the properties, None if it is null or missing. Raises BrokerError(DECODE_ERROR)."""
        at = self._located()
        if not at[PROPERTIES + 7]:
            return None
        count, pos = open_items(self._data, at[PROPERTIES] + 3)
        if position >= count:
            return None
        try:
            return value_at(self._data, skip(self._data, pos, position) if position else pos)
        except DecodeError as error:
            raise decode_refusal(error) from None

    def application_properties(self) -> dict[str, object]:
        """Decode and return the application properties with string keys.

        Raises BrokerError(DECODE_ERROR) for a malformed value, because parsing does not decode values.
        """
        return named_values(self._data, self._application_at) if self._application_at >= 0 else {}

    def located(self) -> tuple[bytes, list[int]]:
        """Return the message with its sections in order, and their positions (as from `sections.locate`)."""
        at = self._located()
        return self._data, at

    def stored(self, enqueued_at: int, ttl_ms: int | None, head: bytes = b"") -> bytes:
        """Return `head` and the stored form of the message; `ttl_ms` is the effective time to live.

        Clients read it from the header and as the difference of absolute-expiry-time and creation-time. The sender's
        pair stays if it says the same; else creation-time is the sender's or `enqueued_at` (Unix ms). Without a
        `ttl_ms` the header has none, and the properties do not change.
        """
        if ttl_ms is None and self.form is not None:
            return head + self.form
        self._located()
        bare = self._data[self._bare :] if ttl_ms is None else self._bare_with_expiry(enqueued_at, ttl_ms)
        start = header_start(self._header, None if ttl_ms is None else min(ttl_ms, _TTL_MS_MAX))
        count, entries = self._entries_count, self._entries
        if self._delivery_entries is None:
            return b"".join((head, FORM_HEAD.pack(PLAIN, len(start), count, len(entries)), start, entries, bare))
        delivery_count, delivery_entries = self._delivery_entries
        form_head = FORM_HEAD.pack(WITH_DELIVERY_ANNOTATIONS, len(start), count, len(entries))
        more = DELIVERY_HEAD.pack(delivery_count, len(delivery_entries))
        return head + form_head + more + start + delivery_entries + entries + bare

    def _bare_with_expiry(self, enqueued_at: int, ttl_ms: int) -> bytes:
        data, start, stop = self._data, self._at[PROPERTIES], self._at[PROPERTIES + 7]
        if not stop:
            start = stop = self._bare
        expiry, creation = self.times()
        if expiry is not None and creation is not None and expiry - creation == ttl_ms:
            return data[self._bare :]
        created_at = enqueued_at if creation is None else creation
        expires_at = min(created_at + ttl_ms, INSTANT_MS_MAX)
        times = b"\x83" + _pack_i64(expires_at), b"\x83" + _pack_i64(created_at)
        properties = list_with_fields(data, start, stop, _Field.ABSOLUTE_EXPIRY_TIME, *times)
        return b"\x00\x53\x73" + properties + data[stop:]


def effective_ttl(header_ttl_ms: int | None, expiry: object, creation: object) -> int | None:
    """The time to live of a message with these three fields, in milliseconds; None if it has no limit.

    A header can hold at most 49.7 days, so every SDK writes the ttl a second time, as the difference of
    absolute-expiry-time and creation-time, and .NET, JavaScript and Java read it there: the pair is the exact one
    [wire 10.4]. Without a ttl in the header it has no effect.
    """
    if header_ttl_ms is None or not (isinstance(expiry, int) and isinstance(creation, int) and expiry >= creation):
        return header_ttl_ms
    return min(expiry - creation, INSTANT_MS_MAX)


def _instant_at(data: bytes, pos: int) -> int | None:
    return _unpack_i64(data, pos + 1)[0] if data[pos] == _TIMESTAMP else None


def parse_message(data: bytes) -> Message:
    """Parse an encoded message with its sections in any order and encoding.

    Raises BrokerError: DECODE_ERROR for other bytes, INVALID_FIELD for an annotation of the wrong type.
    """
    try:
        return Message(*_located(data), len(data))
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _truncated(data) from None


def parse_sent(data: bytes, bounds: MessageBounds = STANDARD_BOUNDS) -> Message:
    """Parse a client's message as `parse_message` does, judge it, and add a missing message id for receivers.

    Every way in comes through here, so that what passes can be stored, routed and moved without an error. Also raises
    the errors of `Message.check_keys` and `bounds.check_bounds`.

    The service adds a message id too; JavaScript's SDK can't settle a message without one. The result's `message_id`
    stays None, because a generated id is no key of a partition or duplicate; its `size_bytes` does not count the
    added id.
    """
    found = scan(data, bounds.key_length_max, bounds.scanned_bytes_max, new_message_id)
    if found is not None:
        session_id = found[1]
        if session_id is not None and found[2] is not None and session_id != found[2]:
            raise service_errors.key_mismatch(session_id, found[2])
        return Message.scanned(data, found)
    try:
        usual, at = _located(data)
        if _has_message_id(usual, at):
            message = Message(usual, at, len(data))
        else:
            message = Message(*_with_message_id(usual, at, new_message_id()), len(data))
            message._message_id = None
        if bounds.may_be_exceeded(usual, at):
            keys = {
                "x-opt-partition-key": message.partition_key,
                "x-opt-via-partition-key": message.via_partition_key,
            }
            check_bounds(usual, at, keys, bounds)
        message.check_keys()
        return message
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _truncated(data) from None


def _truncated(data: bytes) -> BrokerError:
    return decode_refusal(DecodeError(len(data), "the message is cut off"))


def _located(data: bytes) -> tuple[bytes, list[int]]:
    """Return the message in canonical form, and the positions of its sections."""
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
    """Return the message with `message_id` (up to 255 ASCII characters) added, and the positions of its sections."""
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
    """Return the encoded messages, at least one, of a transfer with message-format 0x80013700: one per data section.

    Ignores other sections of the envelope [wire 4.4], and does not parse the messages. Raises
    BrokerError(DECODE_ERROR), EmptyBatchError.
    """
    try:
        messages = data_sections(data)
    except DecodeError as error:
        raise decode_refusal(error) from None
    if not messages:
        raise EmptyBatchError(Condition.NOT_ALLOWED, "The batch has no data section, so no message.")
    return messages
