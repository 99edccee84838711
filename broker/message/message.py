"""An arriving message: parses it, and encodes its stored form [wire 4.3, 4.4, 5.4].

Knows the fields and annotations that Service Bus uses. The sender's annotations, properties, application properties,
body and footer are stored and delivered byte for byte; the broker replaces the header and its own annotations, inserts
expiry and dead-letter reasons, and adds a missing message id. Must not depend on queues, clocks and storage.
`codec.sections` finds the bytes of a section, `header` and `annotations` read theirs, `bounds` has the size limits.

`scan` finds what the broker needs of every message, if it has the form that SDKs write; `Parsed` reads all the rest,
when it is needed, and all of other messages. `stored_form` has the layout of a stored message: a fixed head, the header
section up to its delivery count, the sender's delivery annotations if any, the sender's message annotations, the other
sections. This is the broker's hot path: measure before and after a change.
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
from .annotations import NO_ANNOTATIONS, Annotations, identifier, read_annotations, read_delivery_annotations, value_at
from .bounds import STANDARD_BOUNDS, MessageBounds, check_bounds, check_size
from .header import NO_HEADER, header_start, read_header
from .scan import scan
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


class Parsed:
    """The sections of a message in canonical form, and what the broker reads of them.

    `at` has the positions of the sections, as from `sections.locate`. Raises DecodeError, IndexError, and BrokerError
    (INVALID_FIELD) for an annotation of the wrong type.
    """

    __slots__ = ("annotations", "at", "bare", "data", "delivery_entries", "header")

    annotations: Annotations | None
    """The sender's, without those of the broker; None if they were not to be read."""
    bare: int
    """Where the sections behind the annotations begin."""
    delivery_entries: tuple[int, bytes] | None

    def __init__(
        self, data: bytes, at: list[int], *, reads_header: bool = True, reads_annotations: bool = True
    ) -> None:
        self.data = data
        self.at = at
        stop, delivery_stop = at[HEADER + 7], at[DELIVERY_ANNOTATIONS + 7]
        annotations_stop = at[MESSAGE_ANNOTATIONS + 7]
        self.header = read_header(data[at[HEADER] : stop]) if stop and reads_header else NO_HEADER
        self.bare = annotations_stop or delivery_stop or stop  # the sections are in order
        self.delivery_entries = None
        self.annotations = None
        if not reads_annotations:
            return
        if delivery_stop:
            self.delivery_entries = read_delivery_annotations(data, at[DELIVERY_ANNOTATIONS], delivery_stop)
        self.annotations = (
            read_annotations(data, at[MESSAGE_ANNOTATIONS], annotations_stop) if annotations_stop else NO_ANNOTATIONS
        )
        for section in (PROPERTIES, APPLICATION_PROPERTIES):
            if at[section + 7]:
                check_items(data, at[section], at[section + 7])

    @property
    def application_at(self) -> int:
        """Where the application properties begin; -1 without any."""
        return self.at[APPLICATION_PROPERTIES] if self.at[APPLICATION_PROPERTIES + 7] else -1

    def ttl_ms(self) -> int | None:
        """How long the sender wants the message to live; see `effective_ttl`."""
        ttl_ms = self.header.ttl_ms
        return None if ttl_ms is None else effective_ttl(ttl_ms, *self.times())

    def times(self) -> tuple[int | None, int | None]:
        """The sender's absolute-expiry-time and creation-time; None for what is missing or no timestamp."""
        data, start, stop = self.data, self.at[PROPERTIES], self.at[PROPERTIES + 7]
        count, pos = open_items(data, start + 3) if stop else (0, 0)
        if count <= _Field.ABSOLUTE_EXPIRY_TIME:
            return None, None
        pos = skip(data, pos, _Field.ABSOLUTE_EXPIRY_TIME)
        creation_pos = skip(data, pos) if count > _Field.CREATION_TIME else -1
        return _instant_at(data, pos), None if creation_pos < 0 else _instant_at(data, creation_pos)

    def field(self, position: int) -> object:
        """Return one field of the properties, None if it is null or missing. Raises BrokerError(DECODE_ERROR)."""
        at = self.at
        if not at[PROPERTIES + 7]:
            return None
        count, pos = open_items(self.data, at[PROPERTIES] + 3)
        if position >= count:
            return None
        try:
            return value_at(self.data, skip(self.data, pos, position) if position else pos)
        except DecodeError as error:
            raise decode_refusal(error) from None

    def message_id(self) -> str | None:
        """The message id as text. Raises BrokerError: INVALID_FIELD, DECODE_ERROR."""
        value = self.field(_Field.MESSAGE_ID)
        if isinstance(value, bytes):
            return value.hex()
        if isinstance(value, Ulong | uuid.UUID):
            return str(value)
        return None if value is None else identifier("message-id", value)

    def session_id(self) -> str | None:
        """The session id (AMQP's group-id). Raises BrokerError: INVALID_FIELD, DECODE_ERROR."""
        value = self.field(_Field.GROUP_ID)
        return None if value is None else identifier("group-id", value)

    def stored(self, enqueued_at: int, ttl_ms: int | None, head: bytes) -> bytes:
        """Return `head` and the stored form; see `Message.stored`."""
        assert self.annotations is not None, "a message without its annotations can't be stored"
        bare = self.data[self.bare :] if ttl_ms is None else self._bare_with_expiry(enqueued_at, ttl_ms)
        start = header_start(self.header, None if ttl_ms is None else min(ttl_ms, _TTL_MS_MAX))
        count, entries, *_ = self.annotations
        if self.delivery_entries is None:
            return b"".join((head, FORM_HEAD.pack(PLAIN, len(start), count, len(entries)), start, entries, bare))
        delivery_count, delivery_entries = self.delivery_entries
        form_head = FORM_HEAD.pack(WITH_DELIVERY_ANNOTATIONS, len(start), count, len(entries))
        more = DELIVERY_HEAD.pack(delivery_count, len(delivery_entries))
        return head + form_head + more + start + delivery_entries + entries + bare

    def _bare_with_expiry(self, enqueued_at: int, ttl_ms: int) -> bytes:
        data, start, stop = self.data, self.at[PROPERTIES], self.at[PROPERTIES + 7]
        if not stop:
            start = stop = self.bare
        expiry, creation = self.times()
        if expiry is not None and creation is not None and expiry - creation == ttl_ms:
            return data[self.bare :]
        created_at = enqueued_at if creation is None else creation
        expires_at = min(created_at + ttl_ms, INSTANT_MS_MAX)
        times = b"\x83" + _pack_i64(expires_at), b"\x83" + _pack_i64(created_at)
        properties = list_with_fields(data, start, stop, _Field.ABSOLUTE_EXPIRY_TIME, *times)
        return b"\x00\x53\x73" + properties + data[stop:]


class Message:
    """What the broker needs of every message, and on demand the rest of it; `parse_message` makes it. Immutable.

    Reading its keys never fails: what `parse_sent` refuses (an id or session id of a wrong type, or no UTF-8) is None
    here. A row of an older release, which did not judge every message, may hold such a key: no handler of rows has to
    be ready for an error, and the message moves like one without that key.
    """

    __slots__ = (
        "_message_id",
        "_parsed",
        "application_at",
        "encoded",
        "form",
        "partition_key",
        "scheduled_enqueue_at",
        "session_id",
        "size_bytes",
        "ttl_ms",
        "via_partition_key",
    )

    def __init__(
        self,
        encoded: bytes,
        size_bytes: int,
        form: bytes | None,
        session_id: str | None,
        partition_key: str | None,
        application_at: int,
        parsed: Parsed | None = None,
        message_id: str | None = _UNREAD,
    ) -> None:
        self.encoded = encoded
        """The message as it arrived, with the id that it got if it had none."""
        self.size_bytes = size_bytes
        """Length of the message as it arrived."""
        self.form = form
        """The stored form without a time to live, if the scan has made it."""
        self.session_id = session_id
        """The session id (AMQP's group-id)."""
        self.partition_key = partition_key
        self.application_at = application_at
        """Where the application properties begin; -1 without any."""
        self._parsed = parsed
        self._message_id = message_id
        self.ttl_ms: int | None = None
        """How long the sender wants it to live; see `effective_ttl`."""
        self.via_partition_key: str | None = None
        self.scheduled_enqueue_at: int | None = None
        """When the sender wants it to be available (Unix ms)."""
        if parsed is not None:
            self.ttl_ms = parsed.ttl_ms()
            if parsed.annotations is not None:
                self.via_partition_key, self.scheduled_enqueue_at = parsed.annotations[3:]

    @classmethod
    def of(cls, parsed: Parsed, size_bytes: int) -> Message:
        """Return a message that was `size_bytes` long as it arrived."""
        try:
            session_id = parsed.session_id()
        except BrokerError:
            session_id = None
        partition_key = None if parsed.annotations is None else parsed.annotations[2]
        return cls(parsed.data, size_bytes, None, session_id, partition_key, parsed.application_at, parsed)

    @classmethod
    def without_annotations(cls, data: bytes, *, reads_header: bool) -> Message:
        """Return a delivered message to read properties, application properties and perhaps the header of.

        The broker wrote most of the annotations; reading them takes longer than all the rest. `session_id` is not read
        either: it is a field of the properties. Raises BrokerError (DECODE_ERROR).
        """
        try:
            at = locate(data)
            if at is not None:
                parsed = Parsed(data, at, reads_header=reads_header, reads_annotations=False)
                return cls(data, len(data), None, None, None, parsed.application_at, parsed)
        except (DecodeError, IndexError):
            pass  # the parser says what is wrong
        return parse_message(data)

    def parsed(self) -> Parsed:
        """Return all of the message; a scanned one is parsed at the first call."""
        if self._parsed is None:
            at = locate(self.encoded)
            assert at is not None, "scan() takes only messages that locate() takes"
            self._parsed = Parsed(self.encoded, at)
        return self._parsed

    @property
    def durable(self) -> bool:
        """Whether the sender marked the message as durable; this has no effect."""
        return bool(self.parsed().header.durable)

    @property
    def priority(self) -> int | None:
        """The sender's priority; this has no effect."""
        return self.parsed().header.priority

    @property
    def message_id(self) -> str | None:
        """The message id as text: a string unchanged, ulong in decimal, uuid in its usual form, binary in hex."""
        text = self._message_id
        if text is _UNREAD:
            try:
                text = self.parsed().message_id()
            except BrokerError:
                text = None
            self._message_id = text
        return text

    def times(self) -> tuple[int | None, int | None]:
        """The sender's absolute-expiry-time and creation-time; None for what is missing or no timestamp."""
        return self.parsed().times()

    def field(self, position: int) -> object:
        """Return one field of the properties, None if it is null or missing. Raises BrokerError(DECODE_ERROR)."""
        return self.parsed().field(position)

    def application_properties(self) -> dict[str, object]:
        """Decode and return the application properties with string keys.

        Raises BrokerError(DECODE_ERROR) for a malformed value, because parsing does not decode values.
        """
        return named_values(self.encoded, self.application_at) if self.application_at >= 0 else {}

    def located(self) -> tuple[bytes, list[int]]:
        """Return the message with its sections in order, and their positions (as from `sections.locate`)."""
        return self.encoded, self.parsed().at

    def stored(self, enqueued_at: int, ttl_ms: int | None, head: bytes = b"") -> bytes:
        """Return `head` and the stored form of the message; `ttl_ms` is the effective time to live.

        Clients read it from the header and as the difference of absolute-expiry-time and creation-time. The sender's
        pair stays if it says the same; else creation-time is the sender's or `enqueued_at` (Unix ms). Without a
        `ttl_ms` the header has none, and the properties do not change.
        """
        if ttl_ms is None and self.form is not None:
            return head + self.form
        return self.parsed().stored(enqueued_at, ttl_ms, head)


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


def parse_message(data: bytes, size_bytes: int | None = None) -> Message:
    """Parse an encoded message with its sections in any order and encoding; `size_bytes` if it arrived with more.

    Raises BrokerError: DECODE_ERROR for other bytes, INVALID_FIELD for an annotation of the wrong type.
    """
    try:
        return Message.of(Parsed(*_canonical(data)), len(data) if size_bytes is None else size_bytes)
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _cut_off_error(data) from None


def parse_sent(data: bytes, bounds: MessageBounds = STANDARD_BOUNDS) -> Message:
    """Parse a client's message as `parse_message` does, judge it, and add a missing message id for receivers.

    Every way in comes through here, so that what passes can be stored, routed and moved without an error. Also raises
    BrokerError: INVALID_FIELD for a key of a wrong type, DECODE_ERROR for one that is no UTF-8, NOT_ALLOWED for a
    SessionId that differs from the PartitionKey (P9), and the errors of `bounds.check_bounds`.

    The service adds a message id too; JavaScript's SDK can't settle a message without one. The result's `message_id`
    stays None, because a generated id is no key of a partition or duplicate; its `size_bytes` does not count the
    added id.
    """
    found = scan(data, bounds.key_length_max, bounds.scanned_bytes_max, new_message_id)
    if found is not None:
        form, session_id, partition_key, with_id, application_at = found
        if session_id is not None and partition_key is not None and session_id != partition_key:
            raise service_errors.key_mismatch(session_id, partition_key)
        if with_id is None:
            return Message(data, len(data), form, session_id, partition_key, application_at)
        return Message(with_id, len(data), form, session_id, partition_key, application_at, None, None)
    try:
        return _parse_unusual(data, bounds)
    except DecodeError as error:
        raise decode_refusal(error) from None
    except IndexError:
        raise _cut_off_error(data) from None


def _parse_unusual(data: bytes, bounds: MessageBounds) -> Message:
    """Parse and judge a message that `scan` has not taken. Raises DecodeError, IndexError, BrokerError."""
    usual, at = _canonical(data)
    check_size(usual, at, bounds)
    has_id = _has_message_id(usual, at)
    parsed = Parsed(usual, at) if has_id else Parsed(*_with_message_id(usual, at, new_message_id()))
    assert parsed.annotations is not None
    partition_key, via_partition_key = parsed.annotations[2:4]
    if bounds.may_be_exceeded(usual, at):
        keys = {"x-opt-partition-key": partition_key, "x-opt-via-partition-key": via_partition_key}
        check_bounds(usual, at, keys, bounds)
    message_id, session_id = parsed.message_id() if has_id else None, parsed.session_id()
    if session_id is not None and partition_key is not None and session_id != partition_key:
        raise service_errors.key_mismatch(session_id, partition_key)
    return Message(parsed.data, len(data), None, session_id, partition_key, parsed.application_at, parsed, message_id)


def _cut_off_error(data: bytes) -> BrokerError:
    return decode_refusal(DecodeError(len(data), "the message is cut off"))


def _canonical(data: bytes) -> tuple[bytes, list[int]]:
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
