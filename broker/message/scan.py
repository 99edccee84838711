"""Reads a message in the form that SDKs write, in one pass: in Python here, in C where the wheel was built with it.

The parser (`message.parse_sent`) reads all other messages. It is the reference: property tests hold both scans against
it. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ...codec.errors import DecodeError
from ...codec.native import native_module
from ...codec.skip import skip
from ..errors import BrokerError
from .annotations import read_annotations
from .header import NO_HEADER, header_start, read_header
from .stored_form import FORM_HEAD, PLAIN

Scanned = tuple[bytes, str | None, str | None]


_u32: Final = Struct(">I").unpack_from
_NO_HEADER_START: Final = header_start(NO_HEADER, None)
_STRING8, _NULL = 0xA1, 0x40
_GROUP_ID: Final = 10
"""Position of the session id in the properties [AMQP 3.2.4]."""


@lru_cache(1024)
def _header_start(section: bytes) -> bytes | None:
    """The delivered header of a header section; None for one with a time to live, or a malformed one."""
    try:
        header = read_header(section)
    except DecodeError:
        return None
    return header_start(header, None) if header.ttl_ms is None else None


def scan_in_python(data: bytes, key_length_max: int, message_bytes_max: int) -> Scanned | None:
    """Return (stored form, session id, partition key), None for a message that is unusual in any way.

    Unusual: another order or encoding of the sections, a time to live, a schedule, delivery annotations, an annotation
    of the broker, several body sections, a message id that is missing or no short string, a key longer than
    `key_length_max` bytes, more than `message_bytes_max` bytes. The stored form is that of `Message.stored` without a
    time to live.
    """
    if len(data) > message_bytes_max:
        return None
    try:
        pos, start, count, entries, partition_key = 0, _NO_HEADER_START, 0, b"", None
        if data.startswith(b"\x00\x53\x70", pos):
            pos = 4 if data[3] == 0x45 else 5 + data[4] if data[3] == 0xC0 else 0
            start = _header_start(data[:pos]) or b""
        if data.startswith(b"\x00\x53\x72\xc1", pos):
            stop = pos + 5 + data[pos + 4]
            count, entries, partition_key, via, scheduled = read_annotations(data, pos, stop)
            if via is not None or scheduled is not None or len(partition_key or "") > key_length_max:
                return None
            pos = stop
        bare = pos
        if not start or not data.startswith(b"\x00\x53\x73\xc0", pos):
            return None
        stop, session_id = pos + 5 + data[pos + 4], None
        if data[pos + 5] > _GROUP_ID:
            at = skip(data, pos + 6, _GROUP_ID)
            if data[at] == _STRING8 and data[at + 1] <= key_length_max:
                session_id = data[at + 2 : at + 2 + data[at + 1]].decode()
            elif data[at] != _NULL:
                return None
        if data[pos + 6] != _STRING8 or data[pos + 7] > key_length_max or not data[pos + 5]:
            return None
        if skip(data, pos + 6, data[pos + 5]) != stop or not _is_rest_usual(data, stop):
            return None
    except (IndexError, StructError, DecodeError, UnicodeDecodeError, BrokerError):
        return None
    return (
        FORM_HEAD.pack(PLAIN, len(start), count, len(entries)) + start + entries + data[bare:],
        session_id,
        partition_key,
    )


def _is_rest_usual(data: bytes, pos: int) -> bool:
    """Whether what follows the properties are application properties or none, and one body section or none."""
    if data.startswith(b"\x00\x53\x74", pos):
        if data[pos + 3] == 0xC1:
            stop, count, items = pos + 5 + data[pos + 4], data[pos + 5], pos + 6
        elif data[pos + 3] == 0xD1:
            stop, count, items = pos + 8 + _u32(data, pos + 4)[0], _u32(data, pos + 8)[0], pos + 12
        else:
            return False
        if count & 1 or skip(data, items, count) != stop:
            return False
        pos = stop
    if pos == len(data):
        return True
    if data.startswith(b"\x00\x53\x75\xb0", pos):
        return len(data) == pos + 8 + int(_u32(data, pos + 4)[0])
    return data.startswith(b"\x00\x53\x75\xa0", pos) and pos + 5 + data[pos + 4] == len(data)


scan = scan_in_python
_native: Final = native_module(f"{__package__}._scan")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
if _native is not None:
    scan = _native.scan
