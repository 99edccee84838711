"""Where the sections of an encoded message lie [AMQP 3.2].

Knows the sections' descriptors in all their spellings and the constructors that their values may have. Does not know
what is in them. Pure functions; they raise what `values.MALFORMED` lists.
"""

from __future__ import annotations

from typing import Final

from .values import read, skip, u32

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES = range(0x70, 0x75)
DATA, SEQUENCE, VALUE, FOOTER = range(0x75, 0x79)
"""The sections' numeric descriptors."""

_LIST, _MAP = b"\x45\xc0\xd0", b"\xc1\xd1"
_CONSTRUCTORS: Final = {
    HEADER: _LIST,
    DELIVERY_ANNOTATIONS: _MAP,
    MESSAGE_ANNOTATIONS: _MAP,
    PROPERTIES: _LIST,
    APPLICATION_PROPERTIES: _MAP,
    DATA: b"\xa0\xb0",
    SEQUENCE: _LIST,
    VALUE: bytes(range(256)),
    FOOTER: _MAP,
}
_SYMBOLS: Final = {
    "amqp:header:list": HEADER,
    "amqp:delivery-annotations:map": DELIVERY_ANNOTATIONS,
    "amqp:message-annotations:map": MESSAGE_ANNOTATIONS,
    "amqp:properties:list": PROPERTIES,
    "amqp:application-properties:map": APPLICATION_PROPERTIES,
    "amqp:data:binary": DATA,
    "amqp:amqp-sequence:list": SEQUENCE,
    "amqp:amqp-value:*": VALUE,
    "amqp:footer:map": FOOTER,
}

ANY_WIDTH: Final = -1
"""Stands in `HEADS` for a value that has to be skipped over."""


def _width(code: int, constructor: int) -> int:
    if code == VALUE:
        return ANY_WIDTH
    return 0 if constructor == 0x45 else 4 if constructor & 0xF0 in (0xB0, 0xD0) else 1


HEADS: Final = {
    bytes((0, 0x53, code, constructor)): (code, _width(code, constructor))
    for code, constructors in _CONSTRUCTORS.items()
    for constructor in constructors
}
"""The first four bytes of a section in its usual form: the section, and the bytes that tell its value's size."""


def described(data: bytes, pos: int) -> tuple[int, int]:
    """Return which section begins at `pos`, however its descriptor is written, and the offset of its value."""
    if data[pos] != 0:
        raise ValueError(f"a section begins with 0x00, not with 0x{data[pos]:02x} (offset {pos})")
    (name, plain), value_at = read(data, pos + 1, len(data))
    code = _SYMBOLS.get(plain, 0) if name == "symbol" else plain if name == "ulong" else 0
    if code not in _CONSTRUCTORS:
        raise ValueError(f"{plain!r:.60} describes no section of a message (offset {pos})")
    if data[value_at] not in _CONSTRUCTORS[code]:
        raise ValueError(f"0x{data[value_at]:02x} begins no value of the section {code:#x} (offset {value_at})")
    return code, value_at


def section_at(data: bytes, pos: int) -> tuple[int, int, int]:
    """Return of the section at `pos`: its descriptor, the offset of its value and the offset behind it."""
    usual = HEADS.get(data[pos : pos + 4])
    if usual is None:
        code, value_at = described(data, pos)
        stop = skip(data, value_at)
    else:
        code, width = usual
        value_at = pos + 3
        if width == 1:
            stop = pos + 5 + data[pos + 4]
        elif width == 4:
            stop = pos + 8 + u32(data, pos + 4)[0]
        else:
            stop = skip(data, value_at)
    if stop > len(data):
        raise ValueError(f"the section at {pos} ends at {stop}, the message at {len(data)}")
    return code, value_at, stop


def open_items(data: bytes, value_at: int) -> tuple[int, int]:
    """Return the number of items of the list or map at `value_at`, and the offset of the first."""
    constructor = data[value_at]
    if constructor < 0xC0:
        return 0, value_at + 1
    if constructor < 0xD0:
        return data[value_at + 2], value_at + 3
    return u32(data, value_at + 5)[0], value_at + 9


def binary_at(data: bytes, value_at: int, stop: int) -> bytes:
    """Return the binary at `value_at`, which ends at `stop`."""
    return data[value_at + (2 if data[value_at] < 0xB0 else 5) : stop]
