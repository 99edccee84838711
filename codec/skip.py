"""Where an encoded value ends, without looking into it [AMQP 1.6]."""

from __future__ import annotations

from typing import Final

from .errors import DecodeError

_SIZE8, _SIZE32, _DESCRIBED, _UNKNOWN = 0, -1, -2, -3

# [AMQP 1.2] the high nibble of a constructor tells how long the value is.
_SUBCATEGORY: Final = {
    0x4: 1,
    0x5: 2,
    0x6: 3,
    0x7: 5,
    0x8: 9,
    0x9: 17,
    0xA: _SIZE8,
    0xB: _SIZE32,
    0xC: _SIZE8,
    0xD: _SIZE32,
    0xE: _SIZE8,
    0xF: _SIZE32,
}

_KNOWN_CODES: Final = frozenset(
    b"\x40\x41\x42\x43\x44\x45\x50\x51\x52\x53\x54\x55\x56\x60\x61\x70\x71\x72\x73\x74\x80\x81\x82\x83\x84\x94\x98"
    b"\xa0\xa1\xa3\xb0\xb1\xb3\xc0\xc1\xd0\xd1\xe0\xf0"
)

WIDTHS: Final = tuple(
    _DESCRIBED if code == 0 else _SUBCATEGORY[code >> 4] if code in _KNOWN_CODES else _UNKNOWN for code in range(256)
)
"""By constructor byte: the whole length of a value, constructor included; 0 or less when it is not fixed."""


def skip(data: bytes | memoryview, offset: int = 0, count: int = 1) -> int:
    """Return the offset behind the `count` values that begin at `offset`, without looking into them.

    Raises DecodeError when they do not end within `data`.
    """
    if offset < 0:
        raise DecodeError(offset, "an offset before the beginning")
    pos = offset
    try:
        while count > 0:
            width = WIDTHS[data[pos]]
            if width > 0:
                pos += width
            elif width == _SIZE8:
                pos += 2 + data[pos + 1]
            elif width == _SIZE32:
                pos += 5 + int.from_bytes(data[pos + 1 : pos + 5], "big")
            elif width == _DESCRIBED:  # a descriptor and a value in the place of one value
                pos += 1
                count += 2
            else:
                raise DecodeError(pos, f"no type has the constructor 0x{data[pos]:02x}")
            count -= 1
    except IndexError:
        raise DecodeError(pos, "a value is missing or cut off") from None
    if pos > len(data):
        raise DecodeError(offset, f"a value ends at {pos}, the data at {len(data)}")
    return pos
