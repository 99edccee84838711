"""Where an encoded value ends, without looking into it [AMQP 1.6]: in Python here, and in C where that was built.

A peer decides how many values there are. `_walk.c` takes 2 ns for each, the loop here 100 ns and more.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from .errors import DecodeError
from .native import native_module
from .types import CONSTRUCTORS

_u32: Final = Struct(">I").unpack_from
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

WIDTHS: Final = tuple(
    _DESCRIBED if code == 0 else _SUBCATEGORY[code >> 4] if code in CONSTRUCTORS else _UNKNOWN for code in range(256)
)
"""By constructor byte: the whole length of a value, constructor included; 0 or less when it is not fixed."""


def skip_in_python(data: bytes | memoryview, offset: int = 0, count: int = 1, /) -> int:
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
                pos += 5 + _u32(data, pos + 1)[0]
            elif width == _DESCRIBED:  # a descriptor and a value in the place of one value
                pos += 1
                count += 2
            else:
                raise DecodeError(pos, f"no type has the constructor 0x{data[pos]:02x}")
            count -= 1
    except IndexError:
        raise DecodeError(pos, "a value is missing or cut off") from None
    except StructError:  # the size itself is cut off: what is there of it says where the value would end
        pos += 5 + int.from_bytes(data[pos + 1 : pos + 5], "big")
        if count > 1:
            raise DecodeError(pos, "a value is missing or cut off") from None
    if pos > len(data):
        raise DecodeError(offset, f"a value ends at {pos}, the data at {len(data)}")
    return pos


skip = skip_in_python
_native: Final = native_module(f"{__package__}._walk")
IS_NATIVE: Final = _native is not None
"""Whether the functions in C are in use."""
if _native is not None:
    skip = _native.skip
