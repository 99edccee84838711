"""Encoded AMQP values to Python values that keep their exact types [AMQP 1.6].

Knows every primitive encoding, described values and arrays; which Python value stands for which AMQP type stands in
`types`. Does not know what a message section or a performative is.

Input is hostile: every size and count is checked against the bytes that are there, nesting is limited, and whatever
is wrong with the bytes is raised as `DecodeError`. Everything here is a pure function.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from .errors import DecodeError
from .native import native_module
from .skip import WIDTHS
from .types import (
    Array,
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    MapItems,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

NESTING_MAX: Final = 64
"""How deep lists, maps, arrays and descriptions may lie in each other; real clients refuse more, too."""

ZERO_WIDTH_ELEMENTS_MAX: Final = 16
"""Elements of an array whose element type takes no bytes (null, true, …): nothing else limits them.

Such an array takes 5 bytes: a message of 256 KB could hold 50 000 of them. 16 elements each are 6 MB of memory, 1 000
would be 400 MB. Clients write booleans as 0x56, one byte each, and have no use for an array of nulls.
"""

# (data, offset behind the constructor, end of what encloses the value, depth) -> (value, offset behind it)
_Decoder = Callable[[bytes, int, int, int], tuple[object, int]]
_Table = dict[int, _Decoder]
_MapOf = Callable[[list[object]], object]


def decode(data: bytes | memoryview, offset: int = 0, end: int | None = None) -> tuple[object, int]:
    """Return the value that begins at `offset` and the offset behind it, which is `end` (of the data) at most.

    Raises DecodeError. Map keys that Python holds equal (the symbol and the string "a", 1 and True) fall together: the
    last one wins. A map key that is itself a collection is refused. A memoryview is copied first; bytes are not.
    """
    if offset < 0:
        raise DecodeError(offset, "an offset before the beginning")
    whole = data if isinstance(data, bytes) else bytes(data)
    return _decode_value(_DECODERS, whole, offset, len(whole) if end is None else end, 0)


def decode_exactly(data: bytes, offset: int = 0, end: int | None = None) -> tuple[object, int]:
    """As `decode`, but maps come as `MapItems`, which keep every entry whatever its key."""
    return _decode_value(_EXACT_DECODERS, data, offset, len(data) if end is None else end, 0)


def is_readable_in_python(data: bytes, offset: int, /) -> bool:
    """Whether `decode` returns a value: for what others will decode, and this process does not need."""
    try:
        decode(data, offset)
    except DecodeError:
        return False
    return True


def _decode_value(table: _Table, data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    if pos >= end:
        raise DecodeError(pos, "a value is missing")
    decoder = table.get(data[pos])
    if decoder is None:
        raise DecodeError(pos, f"no type has the constructor 0x{data[pos]:02x}")
    return decoder(data, pos + 1, end, depth)


def _constant_decoder(make: Callable[[], object]) -> _Decoder:
    def decode_constant(_data: bytes, pos: int, _end: int, _depth: int) -> tuple[object, int]:
        return make(), pos

    return decode_constant


def _fixed_decoder(layout: str, convert: Callable[[Any], object]) -> _Decoder:
    struct = Struct(layout)
    unpack, width = struct.unpack_from, struct.size

    def decode_fixed(data: bytes, pos: int, end: int, _depth: int) -> tuple[object, int]:
        stop = pos + width
        if stop > end:
            raise DecodeError(pos, f"{width} bytes expected, {end - pos} are there")
        try:
            return convert(unpack(data, pos)[0]), stop
        except ValueError as error:
            raise DecodeError(pos, str(error)) from None

    return decode_fixed


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise ValueError(f"0x{octet:02x} is no boolean")
    return octet == 1


def _char(code_point: int) -> Char:
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise ValueError(f"0x{code_point:x} is no Unicode scalar value")
    return Char(chr(code_point))


def _uuid(octets: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=octets)


def _text(octets: bytes) -> str:
    return octets.decode("utf-8")


def _symbol(octets: bytes) -> Symbol:
    return Symbol(octets, "utf-8")  # some clients do not keep symbols to ASCII


def _variable(width: int, convert: Callable[[bytes], object]) -> _Decoder:
    def decode_variable(data: bytes, pos: int, end: int, _depth: int) -> tuple[object, int]:
        start = pos + width
        stop = start + int.from_bytes(data[pos:start], "big")
        if stop > end:
            raise DecodeError(pos, f"a value ends at {stop}, what encloses it at {end}")
        try:
            return convert(data[start:stop]), stop
        except ValueError as error:
            raise DecodeError(start, str(error)) from None

    return decode_variable


def _open_compound(data: bytes, pos: int, end: int, depth: int, width: int) -> tuple[int, int, int]:
    """Read size and count of a list, map or array: (count, offset of the content, offset behind it)."""
    content = pos + 2 * width
    stop = pos + width + int.from_bytes(data[pos : pos + width], "big")
    if not content <= stop <= end:
        raise DecodeError(pos, f"a value from {content} to {stop} in what ends at {end}")
    if depth >= NESTING_MAX:
        raise DecodeError(pos, f"values are nested deeper than {NESTING_MAX}")
    return int.from_bytes(data[pos + width : content], "big"), content, stop


def _decode_items(table: _Table, data: bytes, pos: int, stop: int, count: int, depth: int) -> list[object]:
    if count > stop - pos:
        raise DecodeError(pos, f"{count} items in {stop - pos} bytes")
    items: list[object] = []
    for _ in range(count):
        item, pos = _decode_value(table, data, pos, stop, depth)
        items.append(item)
    if pos != stop:
        raise DecodeError(pos, f"the last item ends here, the value that encloses it at {stop}")
    return items


def _list_decoder(table: _Table, width: int) -> _Decoder:
    def decode_list(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        return _decode_items(table, data, content, stop, count, depth + 1), stop

    return decode_list


def _map_decoder(table: _Table, width: int, map_of: _MapOf) -> _Decoder:
    def decode_map(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        if count % 2:
            raise DecodeError(pos, f"a map of {count} keys and values")
        items = _decode_items(table, data, content, stop, count, depth + 1)
        try:
            return map_of(items), stop
        except TypeError:
            raise DecodeError(content, "a map key that is itself a collection") from None

    return decode_map


def _dict_of(items: list[object]) -> dict[object, object]:
    return dict(zip(items[::2], items[1::2], strict=True))


def _map_items_of(items: list[object]) -> MapItems:
    return MapItems(zip(items[::2], items[1::2], strict=True))


def _array(table: _Table, width: int) -> _Decoder:
    """A decoder for arrays whose size and count have `width` bytes.

    The count is checked against the bytes before a list is made: elements of no width could claim billions of values.
    """

    def decode_array(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        descriptor: object = None
        if content < stop and data[content] == 0:
            descriptor, content = _decode_value(table, data, content + 1, stop, depth + 1)
        decoder = table.get(data[content]) if content < stop else None
        if decoder is None or data[content] == 0:
            raise DecodeError(content, "an array without an element type")
        type_code, content = data[content], content + 1
        width_min = WIDTHS[type_code] - 1 if WIDTHS[type_code] > 0 else 1
        if count > (ZERO_WIDTH_ELEMENTS_MAX if width_min == 0 else (stop - content) // width_min):
            raise DecodeError(pos, f"{count} array elements in {stop - content} bytes")
        values: list[object] = []
        for _ in range(count):
            value, content = decoder(data, content, stop, depth + 1)
            values.append(value)
        if content != stop:
            raise DecodeError(content, f"the last array element ends here, the array at {stop}")
        return Array(type_code, tuple(values), descriptor), stop

    return decode_array


def _described_decoder(table: _Table) -> _Decoder:
    def decode_described(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        if depth >= NESTING_MAX:
            raise DecodeError(pos, f"values are nested deeper than {NESTING_MAX}")
        descriptor, pos = _decode_value(table, data, pos, end, depth + 1)
        value, pos = _decode_value(table, data, pos, end, depth + 1)
        return Described(descriptor, value), pos

    return decode_described


_SIMPLE_DECODERS: Final[_Table] = {
    0x40: _constant_decoder(lambda: None),
    0x41: _constant_decoder(lambda: True),
    0x42: _constant_decoder(lambda: False),
    0x43: _constant_decoder(lambda: Uint(0)),
    0x44: _constant_decoder(lambda: Ulong(0)),
    0x45: _constant_decoder(list),
    0x50: _fixed_decoder(">B", Ubyte),
    0x51: _fixed_decoder(">b", Byte),
    0x52: _fixed_decoder(">B", Uint),
    0x53: _fixed_decoder(">B", Ulong),
    0x54: _fixed_decoder(">b", Int),
    0x55: _fixed_decoder(">b", Long),
    0x56: _fixed_decoder(">B", _boolean),
    0x60: _fixed_decoder(">H", Ushort),
    0x61: _fixed_decoder(">h", Short),
    0x70: _fixed_decoder(">I", Uint),
    0x71: _fixed_decoder(">i", Int),
    0x72: _fixed_decoder(">f", Float),
    0x73: _fixed_decoder(">I", _char),
    0x74: _fixed_decoder("4s", Decimal32),
    0x80: _fixed_decoder(">Q", Ulong),
    0x81: _fixed_decoder(">q", Long),
    0x82: _fixed_decoder(">d", float),
    0x83: _fixed_decoder(">q", Timestamp),
    0x84: _fixed_decoder("8s", Decimal64),
    0x94: _fixed_decoder("16s", Decimal128),
    0x98: _fixed_decoder("16s", _uuid),
    0xA0: _variable(1, bytes),
    0xA1: _variable(1, _text),
    0xA3: _variable(1, _symbol),
    0xB0: _variable(4, bytes),
    0xB1: _variable(4, _text),
    0xB3: _variable(4, _symbol),
}


def _decoders(map_of: _MapOf) -> _Table:
    """Return the decoder of each constructor; `map_of` makes a map of its keys and values by turns."""
    table = dict(_SIMPLE_DECODERS)
    table[0x00] = _described_decoder(table)
    for short, wide, decoder in ((0xC0, 0xD0, _list_decoder), (0xE0, 0xF0, _array)):
        table[short], table[wide] = decoder(table, 1), decoder(table, 4)
    table[0xC1], table[0xD1] = _map_decoder(table, 1, map_of), _map_decoder(table, 4, map_of)
    return table


_DECODERS: Final = _decoders(_dict_of)
_EXACT_DECODERS: Final = _decoders(_map_items_of)

is_readable = is_readable_in_python
_native: Final = native_module(f"{__package__}._walk")
if _native is not None:
    is_readable = _native.is_readable
