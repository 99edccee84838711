"""The byte layout of a stored message: a fixed head, header, annotations, the other sections; and what precedes it.

`message` writes it; `stored` and `delivered` read it. Pure.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Final, cast

from ...codec.decode import decode
from ...codec.encode import map_from_items
from ...codec.errors import DecodeError
from ..errors import decode_refusal

# What a row begins with: version (low 4 bits) and target index (high 4 bits), hops, bytes of the path, delivery count,
# enqueued at, expires at (0: never), enqueued sequence number; then the path (UTF-8: dead-letter source or transfer
# destination) and the stored message.
ROW_HEAD: Final = Struct(">BBHIqqq")
ROW_HEAD_BYTES: Final = ROW_HEAD.size
_VERSION_MASK: Final = 0x0F
_OF_SCHEDULED: Final = 2
# version, bytes of the header section without delivery count, items and bytes of the sender's annotations
FORM_HEAD: Final = Struct(">BBII")
FORM_HEAD_BYTES: Final = FORM_HEAD.size
# Versions; in the second, items and bytes of the sender's delivery annotations follow the head.
PLAIN: Final = 1
WITH_DELIVERY_ANNOTATIONS: Final = 2
DELIVERY_HEAD: Final = Struct(">II")


def is_of_scheduled(row: bytes) -> bool:
    """Whether a row is that of a message that became active at its scheduled time."""
    return row[0] & _VERSION_MASK == _OF_SCHEDULED


def annotation_key(name: str) -> bytes:
    """The key of an annotation, as an encoded symbol of up to 255 characters."""
    return bytes((0xA3, len(name))) + name.encode("ascii")


_SMALL_MAP: Final = 0xC1
_SHORT_STRING: Final = 0xA1
_DESCRIBED: Final = 0x00
_COMPOUND_MIN: Final = 0xC0  # constructors of lists, maps and arrays
ANNOTATIONS_HEAD: Final = b"\x00\x53\x72\xd1"
DELIVERY_ANNOTATIONS_HEAD: Final = b"\x00\x53\x71"
LOCK_TOKEN: Final = annotation_key("x-opt-lock-token") + b"\x98"
_UUID_BYTES: Final = 16
_SWAPPED_BYTES: Final = ((0, 3), (1, 2), (2, 1), (3, 0), (4, 5), (5, 4), (6, 7), (7, 6))
_uuids = Struct(f"{_UUID_BYTES}s").iter_unpack


def split_delivery_annotations(
    data: bytes, at: int, header_bytes: int, lock_uuid: bytes = b""
) -> tuple[int, int, bytes]:
    """Return the starts of header and annotations in the second version, and the section of delivery annotations.

    The stored form is `data` from `at` on. The section gets the lock token `lock_uuid` (as from `token_uuids`) unless
    it is empty.
    """
    count, size = DELIVERY_HEAD.unpack_from(data, at + FORM_HEAD_BYTES)
    header_at = at + FORM_HEAD_BYTES + DELIVERY_HEAD.size
    delivery_at = header_at + header_bytes
    entries = data[delivery_at : delivery_at + size]
    if lock_uuid:
        entries += LOCK_TOKEN + lock_uuid
        count += 2
    return header_at, delivery_at + size, DELIVERY_ANNOTATIONS_HEAD + map_from_items(count, entries)


def token_uuids(tokens: Sequence[bytes]) -> list[bytes]:
    """Return the bytes of an AMQP uuid for each lock token (16 bytes, .NET order) [wire 5.3]."""
    ordered = b"".join(tokens)
    swapped = bytearray(ordered)
    for at, other in _SWAPPED_BYTES:  # the same byte of all tokens at a time
        swapped[at::_UUID_BYTES] = ordered[other::_UUID_BYTES]
    return [uuid for (uuid,) in _uuids(swapped)]


def bare_at_of(data: bytes, at: int = 0) -> int:
    """Return the start of the bare sections, which are in order, each as an encoder usually writes it.

    The stored form is `data` from `at` on.
    """
    version, start_bytes, _, entries_bytes = FORM_HEAD.unpack_from(data, at)
    bare_at: int = at + FORM_HEAD_BYTES + start_bytes + entries_bytes
    if version != PLAIN:
        bare_at += DELIVERY_HEAD.size + DELIVERY_HEAD.unpack_from(data, at + FORM_HEAD_BYTES)[1]
    return bare_at


def named_values(data: bytes, start: int) -> dict[str, object]:
    """Return the entries with string keys of the map section at `start`. Raises BrokerError(DECODE_ERROR)."""
    usual = _usual_values(data, start + 3)
    if usual is not None:
        return usual
    entries = decoded(data, start + 3)
    return {str(k): v for k, v in entries.items() if isinstance(k, str)} if isinstance(entries, dict) else {}


def _usual_values(data: bytes, pos: int) -> dict[str, object] | None:
    """Return the entries of the map at `pos` if all keys are strings up to 255 bytes and no value has values in it.

    None for all other maps: the decoder, which takes two to five times as long, reads those, and finds what is wrong.
    """
    if data[pos] != _SMALL_MAP:
        return None
    stop, count, pos = pos + 2 + data[pos + 1], data[pos + 2], pos + 3
    items: list[object] = []
    try:
        while pos < stop:
            constructor = data[pos]
            if constructor == _SHORT_STRING:
                end = pos + 2 + data[pos + 1]
                items.append(data[pos + 2 : end].decode())
                pos = end
            elif len(items) % 2 and _DESCRIBED < constructor < _COMPOUND_MIN:
                value, pos = decode(data, pos, stop)
                items.append(value)
            else:
                return None
    except (IndexError, UnicodeDecodeError, DecodeError):
        return None
    if pos != stop or stop > len(data) or len(items) != count or count % 2:
        return None
    return dict(zip(cast("list[str]", items[::2]), items[1::2], strict=True))


def decoded(data: bytes, pos: int) -> object:
    """Return the value at `pos`. Raises BrokerError(DECODE_ERROR)."""
    try:
        return decode(data, pos)[0]
    except DecodeError as error:
        raise decode_refusal(error) from None
