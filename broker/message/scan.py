"""Reads a message in the form that SDKs write, in one pass: in Python here, and in C where that was built (`_scan.c`).

A sender writes the same header, annotations and fields into many of its messages: what the function in Python has read
of such a section, it finds again by the section's bytes. The parser (`message.parse_sent`) reads all other messages. It
is the reference: property tests hold both functions against it. Either may take a message that the other one does not.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final, NamedTuple

from ...codec.errors import DecodeError
from ...codec.native import native_module
from ...codec.skip import skip
from ..errors import BrokerError
from .annotations import NO_ANNOTATIONS, identifier, read_annotations, value_at
from .header import NO_HEADER, header_start, read_header
from .stored_form import FORM_HEAD, PLAIN

Scanned = tuple[bytes, str | None, str | None, bytes | None, int]

_SECTIONS_MAX: Final = 256  # of each kind that are remembered; each has at most 260 bytes
_HEADER, _NO_HEADER, _ANNOTATIONS = b"\x00\x53\x70\xc0", b"\x00\x53\x70\x45", b"\x00\x53\x72\xc1"
_PROPERTIES, _NO_PROPERTIES, _APPLICATION = b"\x00\x53\x73\xc0", b"\x00\x53\x73\x45", b"\x00\x53\x74\xc1"
_APPLICATION32 = b"\x00\x53\x74\xd1"
_DATA8, _DATA32, _VALUE = b"\x00\x53\x75\xa0", b"\x00\x53\x75\xb0", b"\x00\x53\x77"
_STRING8, _NULL = 0xA1, 0x40
_GROUP_ID: Final = 10
_ID_BYTES: Final = 32
_SIZE_MAX: Final = 255
_u32: Final = Struct(">I").unpack_from


class _Start(NamedTuple):
    """How a message with an id begins, and what the broker needs of that."""

    encoded: bytes
    """Header, annotations, and the properties up to the size of the id."""
    form: bytes | None
    """The stored form up to the bare sections; None for an unusual message."""
    partition_key: str | None
    key_length: int
    """The length of its longest key: message id or partition key."""
    bare: int
    """Where the bare sections begin."""
    rest: int
    """Where the fields behind the id begin."""
    rest_count: int
    stop: int
    """Where the properties end."""


class Scanner:
    """Scans messages one after the other, and remembers how the last one began: its sender's next one does, too."""

    def __init__(self) -> None:
        self._start = _Start(b"\xff", None, None, 0, 0, 0, 0, 0)  # no message begins so

    def scan(
        self, data: bytes, key_length_max: int, message_bytes_max: int, new_id: Callable[[], str]
    ) -> Scanned | None:
        """Return what the broker needs of a message in the form that SDKs write, None for an unusual message.

        (stored form, session id, partition key, message with an added id, position of its application properties)

        A message without an id gets `new_id()`, 32 ASCII characters; the fourth item is None for one that has an id.
        The position is that of the section in the message with its id, -1 without application properties.
        Unusual: another order or encoding of the sections, a time to live, a schedule, delivery annotations, an id
        that is no string of UTF-8, a key longer than `key_length_max`, more than `message_bytes_max` bytes. The stored
        form is that of `Message.stored` without a time to live.
        """
        if len(data) > message_bytes_max:
            return None
        with_id = None
        try:
            if not data.startswith(self._start.encoded):
                bare = _bare_at(data)
                if data[bare : bare + 4] != _PROPERTIES or data[bare + 6] != _STRING8:
                    with_id = _with_id(data, bare, new_id)
                    if with_id is None:
                        return None
                    data = with_id
                if with_id is None or not data.startswith(self._start.encoded):
                    self._start = _start_of(data, bare)
            return _scanned(data, self._start, key_length_max, with_id)
        except (BrokerError, DecodeError, IndexError, StructError, UnicodeDecodeError):
            return None  # the parser says what is wrong


def _bare_at(data: bytes) -> int:
    """Where the bare sections of a message begin, behind header and annotations."""
    pos = _header_end(data)
    return pos + 5 + data[pos + 4] if data[pos : pos + 4] == _ANNOTATIONS else pos


def _header_end(data: bytes) -> int:
    """Where the header of a message ends; Proton's is a list0."""
    start = data[:4]
    if start == _HEADER:
        return 5 + data[4]
    return 4 if start == _NO_HEADER else 0


def _with_id(data: bytes, bare: int, new_id: Callable[[], str]) -> bytes | None:
    """A message without an id with a new one, the first of its fields; None if that needs another encoding of them."""
    head = data[bare : bare + 4]
    count, stop, rest = 1, bare, bare
    if head == _NO_PROPERTIES:
        stop = rest = bare + 4
    elif head == _PROPERTIES:
        count, stop, rest = data[bare + 5], bare + 5 + data[bare + 4], bare + 6
        if count and data[rest] != _NULL:
            return None
        rest += count > 0
    size = 3 + _ID_BYTES + stop - rest
    if size > _SIZE_MAX:
        return None
    start = _PROPERTIES + bytes((size, max(count, 1), _STRING8, _ID_BYTES))
    return b"".join((data[:bare], start, new_id().encode("ascii"), data[rest:]))


def _start_of(data: bytes, bare: int) -> _Start:
    """How a message begins whose first field is its id. Raises DecodeError and BrokerError."""
    form, partition_key = _form_start(data[:bare])
    count, id_bytes = data[bare + 5], data[bare + 7]
    rest, stop = bare + 8 + id_bytes, bare + 5 + data[bare + 4]
    if not count or rest > stop:
        form = None
    key_length = max(id_bytes, len(partition_key or ""))
    return _Start(data[: bare + 8], form, partition_key, key_length, bare, rest, count - 1, stop)


def _scanned(data: bytes, start: _Start, key_length_max: int, with_id: bytes | None) -> Scanned | None:
    """What the broker needs of a message that begins with `start`; raises for some unusual messages."""
    _, form, partition_key, key_length, bare, rest, rest_count, pos = start
    if form is None or key_length > key_length_max:
        return None
    if not data[bare + 8 : rest].isascii():
        data[bare + 8 : rest].decode()  # raises for an id that is no UTF-8
    session_id = None
    if rest < pos or rest_count:
        session_id = _group_id(data[rest:pos], rest_count)
        if session_id is not None and len(session_id) > key_length_max:
            return None
    head = data[pos : pos + 4]
    application_at = -1
    if head == _APPLICATION:
        application_at, pos = pos, pos + 5 + data[pos + 4]
        item_count = data[application_at + 5]
        if item_count & 1 or skip(data, application_at + 6, item_count) != pos:
            return None
        head = data[pos : pos + 4]
    elif head == _APPLICATION32:
        application_at, pos = pos, pos + 8 + _u32(data, pos + 4)[0]
        item_count = _u32(data, application_at + 8)[0]
        if item_count & 1 or skip(data, application_at + 12, item_count) != pos:
            return None
        head = data[pos : pos + 4]
    end = pos + 8 + _u32(data, pos + 4)[0] if head == _DATA32 else _end(data, pos, head)
    if end != len(data):
        return None
    return form + data[bare:], session_id, partition_key, with_id, application_at


def _end(data: bytes, pos: int, head: bytes) -> int:
    """Where the body that begins at `pos` with `head` ends, a short data section or a value; `pos` for another one."""
    if head == _DATA8:
        return pos + 5 + data[pos + 4]
    return skip(data, pos + 3) if head[:3] == _VALUE else pos


@lru_cache(_SECTIONS_MAX)
def _form_start(sections: bytes) -> tuple[bytes | None, str | None]:
    """The stored form up to the bare sections of a message, and its partition key; `sections` are those before these.

    No form for a message with a time to live, a schedule or another key. Raises DecodeError and BrokerError.
    """
    header_end = _header_end(sections)
    header = read_header(sections[:header_end]) if header_end else NO_HEADER
    annotations = (
        read_annotations(sections, header_end, len(sections)) if header_end < len(sections) else NO_ANNOTATIONS
    )
    count, entries, partition_key, via_partition_key, scheduled_enqueue_at = annotations
    if not (header.ttl_ms is None and via_partition_key is None and scheduled_enqueue_at is None):
        return None, None
    start = header_start(header, None)
    return FORM_HEAD.pack(PLAIN, len(start), count, len(entries)) + start + entries, partition_key


@lru_cache(_SECTIONS_MAX)
def _group_id(fields: bytes, count: int) -> str | None:
    """The group id in the `count` fields behind the message id. Raises DecodeError and BrokerError."""
    position = _GROUP_ID - 1
    if skip(fields, 0, count) != len(fields):
        raise DecodeError(0, "the fields do not fill the properties")
    value = value_at(fields, skip(fields, 0, position)) if count > position else None
    return None if value is None else identifier("group-id", value)


scan_in_python = Scanner().scan
scan = scan_in_python
_native: Final = native_module(f"{__package__}._scan")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
if _native is not None:
    scan = _native.scan
