"""The AMQP 1.0 type system as bytes: single values in and out, exact types kept [AMQP 1.6].

Knows every primitive encoding, described values and arrays; which Python value stands for which AMQP type
stands in `amqptypes` (whose names are importable from here, too). Does not know what a message section or
a performative is.

Input is hostile: every size and count is checked against the bytes that are there, nesting is limited, and
whatever is wrong with it comes out as `BrokerError(Condition.DECODE_ERROR)` naming the offset, as no other
exception. Everything here is a pure function; nothing has an owner.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Any, Final

from ..broker.errors import BrokerError, Condition
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
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)

__all__ = [
    "NESTING_MAX",
    "ZERO_WIDTH_ELEMENTS_MAX",
    "Array",
    "Byte",
    "Char",
    "Decimal32",
    "Decimal64",
    "Decimal128",
    "Described",
    "Float",
    "Int",
    "Long",
    "Short",
    "Symbol",
    "Timestamp",
    "Ubyte",
    "Uint",
    "Ulong",
    "Ushort",
    "decode",
    "encode",
    "encode_array",
    "encode_described",
    "encode_list",
    "encode_map",
    "list_from_items",
    "malformed",
    "map_from_items",
    "skip",
]

NESTING_MAX: Final = 64
"""How deep lists, maps, arrays and descriptions may lie in each other; real clients refuse more, too."""

ZERO_WIDTH_ELEMENTS_MAX: Final = 16
"""Elements of an array whose element type takes no bytes (null, true, …): nothing else limits them.

Such an array takes 5 bytes: a message of 256 KB could hold 50 000 of them. 16 elements each are 6 MB of memory, 1 000
would be 400 MB. Clients write booleans as 0x56, one byte each, and have no use for an array of nulls. The codec of
`spark_connector` has the same limit.
"""


def malformed(offset: int, problem: str) -> BrokerError:
    """Return the error for bytes that are no AMQP: what is wrong, and where."""
    return BrokerError(Condition.DECODE_ERROR, f"malformed AMQP data at offset {offset}: {problem}")


# --- Jumping over values --------------------------------------------------------------------------

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

# By constructor byte: the whole length of a value, constructor included, or one of the four marks above.
_WIDTHS: Final = tuple(
    _DESCRIBED if code == 0 else _SUBCATEGORY[code >> 4] if code in _KNOWN_CODES else _UNKNOWN for code in range(256)
)


def skip(data: bytes | memoryview, offset: int = 0, count: int = 1) -> int:
    """Return the offset behind the `count` values that begin at `offset`, without looking into them.

    Raises BrokerError(DECODE_ERROR) when they do not end within `data`.
    """
    if offset < 0:
        raise malformed(offset, "an offset before the beginning")
    pos = offset
    try:
        while count > 0:
            width = _WIDTHS[data[pos]]
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
                raise malformed(pos, f"no type has the constructor 0x{data[pos]:02x}")
            count -= 1
    except IndexError:
        raise malformed(pos, "a value is missing or cut off") from None
    if pos > len(data):
        raise malformed(offset, f"a value ends at {pos}, the data at {len(data)}")
    return pos


# --- Decoding -------------------------------------------------------------------------------------

# (data, offset behind the constructor, end of what encloses the value, depth) -> (value, offset behind it)
_Decoder = Callable[[bytes, int, int, int], tuple[object, int]]


def decode(data: bytes | memoryview, offset: int = 0) -> tuple[object, int]:
    """Return the value that begins at `offset` and the offset behind it.

    Raises BrokerError(DECODE_ERROR). Map keys that Python holds equal (the symbol and the string "a", 1 and
    True) fall together: the last one wins. A memoryview is copied first; bytes are not.
    """
    if offset < 0:
        raise malformed(offset, "an offset before the beginning")
    whole = data if isinstance(data, bytes) else bytes(data)
    return _decode_value(whole, offset, len(whole), 0)


def _decode_value(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    if pos >= end:
        raise malformed(pos, "a value is missing")
    decoder = _DECODERS.get(data[pos])
    if decoder is None:
        raise malformed(pos, f"no type has the constructor 0x{data[pos]:02x}")
    return decoder(data, pos + 1, end, depth)


def _constant(make: Callable[[], object]) -> _Decoder:
    def decode_constant(_data: bytes, pos: int, _end: int, _depth: int) -> tuple[object, int]:
        return make(), pos

    return decode_constant


def _fixed(layout: str, convert: Callable[[Any], object]) -> _Decoder:
    struct = Struct(layout)
    unpack, width = struct.unpack_from, struct.size

    def decode_fixed(data: bytes, pos: int, end: int, _depth: int) -> tuple[object, int]:
        stop = pos + width
        if stop > end:
            raise malformed(pos, f"{width} bytes expected, {end - pos} are there")
        try:
            return convert(unpack(data, pos)[0]), stop
        except ValueError as error:
            raise malformed(pos, str(error)) from None

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
            raise malformed(pos, f"a value ends at {stop}, what encloses it at {end}")
        try:
            return convert(data[start:stop]), stop
        except ValueError as error:
            raise malformed(start, str(error)) from None

    return decode_variable


def _open_compound(data: bytes, pos: int, end: int, depth: int, width: int) -> tuple[int, int, int]:
    """Read size and count of a list, map or array: (count, offset of the content, offset behind it)."""
    content = pos + 2 * width
    stop = pos + width + int.from_bytes(data[pos : pos + width], "big")
    if not content <= stop <= end:
        raise malformed(pos, f"a value from {content} to {stop} in what ends at {end}")
    if depth >= NESTING_MAX:
        raise malformed(pos, f"values are nested deeper than {NESTING_MAX}")
    return int.from_bytes(data[pos + width : content], "big"), content, stop


def _decode_items(data: bytes, pos: int, stop: int, count: int, depth: int) -> list[object]:
    if count > stop - pos:
        raise malformed(pos, f"{count} items in {stop - pos} bytes")
    items: list[object] = []
    for _ in range(count):
        item, pos = _decode_value(data, pos, stop, depth)
        items.append(item)
    if pos != stop:
        raise malformed(pos, f"the last item ends here, the value that encloses it at {stop}")
    return items


def _list(width: int) -> _Decoder:
    def decode_list(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        return _decode_items(data, content, stop, count, depth + 1), stop

    return decode_list


def _map(width: int) -> _Decoder:
    def decode_map(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        if count % 2:
            raise malformed(pos, f"a map of {count} keys and values")
        items = _decode_items(data, content, stop, count, depth + 1)
        try:
            return dict(zip(items[::2], items[1::2], strict=True)), stop
        except TypeError:
            raise malformed(content, "a map key that is itself a collection") from None

    return decode_map


def _array(width: int) -> _Decoder:
    def decode_array(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
        count, content, stop = _open_compound(data, pos, end, depth, width)
        descriptor: object = None
        if content < stop and data[content] == 0:
            descriptor, content = _decode_value(data, content + 1, stop, depth + 1)
        decoder = _DECODERS.get(data[content]) if content < stop else None
        if decoder is None or data[content] == 0:
            raise malformed(content, "an array without an element type")
        type_code, content = data[content], content + 1
        width_min = _WIDTHS[type_code] - 1 if _WIDTHS[type_code] > 0 else 1
        if count > (ZERO_WIDTH_ELEMENTS_MAX if width_min == 0 else (stop - content) // width_min):
            raise malformed(pos, f"{count} array elements in {stop - content} bytes")
        values: list[object] = []
        for _ in range(count):
            value, content = decoder(data, content, stop, depth + 1)
            values.append(value)
        if content != stop:
            raise malformed(content, f"the last array element ends here, the array at {stop}")
        return Array(type_code, tuple(values), descriptor), stop

    return decode_array


def _decode_described(data: bytes, pos: int, end: int, depth: int) -> tuple[object, int]:
    if depth >= NESTING_MAX:
        raise malformed(pos, f"values are nested deeper than {NESTING_MAX}")
    descriptor, pos = _decode_value(data, pos, end, depth + 1)
    value, pos = _decode_value(data, pos, end, depth + 1)
    return Described(descriptor, value), pos


_DECODERS: Final[dict[int, _Decoder]] = {
    0x00: _decode_described,
    0x40: _constant(lambda: None),
    0x41: _constant(lambda: True),
    0x42: _constant(lambda: False),
    0x43: _constant(lambda: Uint(0)),
    0x44: _constant(lambda: Ulong(0)),
    0x45: _constant(list),
    0x50: _fixed(">B", Ubyte),
    0x51: _fixed(">b", Byte),
    0x52: _fixed(">B", Uint),
    0x53: _fixed(">B", Ulong),
    0x54: _fixed(">b", Int),
    0x55: _fixed(">b", Long),
    0x56: _fixed(">B", _boolean),
    0x60: _fixed(">H", Ushort),
    0x61: _fixed(">h", Short),
    0x70: _fixed(">I", Uint),
    0x71: _fixed(">i", Int),
    0x72: _fixed(">f", Float),
    0x73: _fixed(">I", _char),
    0x74: _fixed("4s", Decimal32),
    0x80: _fixed(">Q", Ulong),
    0x81: _fixed(">q", Long),
    0x82: _fixed(">d", float),
    0x83: _fixed(">q", Timestamp),
    0x84: _fixed("8s", Decimal64),
    0x94: _fixed("16s", Decimal128),
    0x98: _fixed("16s", _uuid),
    0xA0: _variable(1, bytes),
    0xA1: _variable(1, _text),
    0xA3: _variable(1, _symbol),
    0xB0: _variable(4, bytes),
    0xB1: _variable(4, _text),
    0xB3: _variable(4, _symbol),
    0xC0: _list(1),
    0xC1: _map(1),
    0xD0: _list(4),
    0xD1: _map(4),
    0xE0: _array(1),
    0xF0: _array(4),
}


# --- Encoding -------------------------------------------------------------------------------------

_U32: Final = Struct(">I")
_Encoder = Callable[[Any], bytes]


def encode(value: object) -> bytes:
    """Return the shortest encoding of a value of the types that `decode` gives; a tuple counts as a list.

    Raises TypeError for any other type and ValueError for a value outside the range of its type: those are
    mistakes of the caller, never of a peer.
    """
    encoder = _ENCODERS.get(type(value))
    if encoder is None:
        encoder = next((_ENCODERS[base] for base in type(value).__mro__ if base in _ENCODERS), None)
        if encoder is None:
            raise TypeError(f"AMQP has no type for {type(value).__name__}")
    try:
        return encoder(value)
    except StructError as error:
        raise ValueError(f"{value!r} does not fit {type(value).__name__}: {error}") from None


def encode_list(values: Sequence[object]) -> bytes:
    """Return a list of the values."""
    return list_from_items(len(values), b"".join(map(encode, values)))


def encode_map(entries: Mapping[Any, object]) -> bytes:
    """Return a map of the entries, in their order."""
    return map_from_items(2 * len(entries), b"".join(encode(key) + encode(value) for key, value in entries.items()))


def encode_array(type_code: int, values: Iterable[object], descriptor: object = None) -> bytes:
    """Return an array whose elements share the constructor `type_code` (0x83 timestamp, 0x98 uuid).

    Raises ValueError for a value that this very encoding cannot hold (256 bytes of text in 0xa1, 1 in 0x43).
    """
    body = _array_body(type_code, list(values), descriptor)
    return b"\xe0" + _sized(1, *body) if _is_short(*body) else b"\xf0" + _sized(4, *body)


def encode_described(descriptor: object, encoded_value: bytes) -> bytes:
    """Return an already encoded value with a descriptor in front."""
    return b"\x00" + encode(descriptor) + encoded_value


def list_from_items(count: int, items: bytes) -> bytes:
    """Return a list around `count` encoded items."""
    if not count:
        return b"\x45"
    return b"\xc0" + _sized(1, count, items) if _is_short(count, items) else b"\xd0" + _sized(4, count, items)


def map_from_items(count: int, items: bytes) -> bytes:
    """Return a map around `count` encoded items: keys and values by turns, so the count is even."""
    return b"\xc1" + _sized(1, count, items) if _is_short(count, items) else b"\xd1" + _sized(4, count, items)


def _is_short(count: int, items: bytes) -> bool:
    return count <= 255 and len(items) <= 254


def _sized(width: int, count: int, items: bytes) -> bytes:
    """Return size and count in `width` bytes each, and the items."""
    if width == 1:
        if not _is_short(count, items):
            raise ValueError(f"{count} items of {len(items)} bytes do not fit an 8-bit size")
        return bytes((len(items) + 1, count)) + items
    return _U32.pack(len(items) + 4) + _U32.pack(count) + items


def _array_body(type_code: int, values: Sequence[object], descriptor: object) -> tuple[int, bytes]:
    element = _ELEMENTS.get(type_code)
    if element is None:
        raise ValueError(f"no type has the constructor 0x{type_code:02x}")
    start = b"" if descriptor is None else b"\x00" + encode(descriptor)
    try:
        return len(values), start + bytes((type_code,)) + b"".join(map(element, values))
    except StructError as error:
        raise ValueError(f"an element does not fit constructor 0x{type_code:02x}: {error}") from None


def _prefixed(width: int, convert: Callable[[Any], bytes]) -> _Encoder:
    def encode_prefixed(value: Any) -> bytes:
        octets = convert(value)
        return len(octets).to_bytes(width, "big") + octets

    def encode_checked(value: Any) -> bytes:
        try:
            return encode_prefixed(value)
        except OverflowError:
            raise ValueError(f"{value!r:.40} is too long for a {8 * width}-bit size") from None

    return encode_checked


def _either(short: int, long: int, convert: Callable[[Any], bytes]) -> _Encoder:
    def encode_variable(value: Any) -> bytes:
        octets = convert(value)
        size = len(octets)
        return bytes((short, size)) + octets if size < 256 else bytes((long,)) + _U32.pack(size) + octets

    return encode_variable


def _integer(code: int, layout: str, small: tuple[int, range] | None = None, zero: int | None = None) -> _Encoder:
    pack, prefix = Struct(layout).pack, bytes((code,))

    def encode_integer(value: int) -> bytes:
        if value == 0 and zero is not None:
            return bytes((zero,))
        if small is not None and value in small[1]:
            return bytes((small[0], value & 0xFF))
        return prefix + pack(value)

    return encode_integer


def _exactly(only: object) -> _Encoder:
    def encode_nothing(value: Any) -> bytes:
        if value != only:
            raise ValueError(f"{value!r} in an array that holds only {only!r}")
        return b""

    return encode_nothing


def _raw(size: int) -> _Encoder:
    def encode_raw(value: bytes) -> bytes:
        if len(value) != size:
            raise ValueError(f"{len(value)} bytes where {size} belong")
        return bytes(value)

    return encode_raw


def _utf8(text: str) -> bytes:
    return text.encode("utf-8")


def _uuid_bytes(value: uuid.UUID) -> bytes:
    return value.bytes


def _list_body(values: Sequence[object]) -> tuple[int, bytes]:
    return len(values), b"".join(map(encode, values))


def _map_body(entries: Mapping[Any, object]) -> tuple[int, bytes]:
    return 2 * len(entries), b"".join(encode(key) + encode(value) for key, value in entries.items())


def _in_array(width: int, body: Callable[[Any], tuple[int, bytes]]) -> _Encoder:
    return lambda value: _sized(width, *body(value))


def _nested_array_body(array: Array) -> tuple[int, bytes]:
    return _array_body(array.type_code, array.values, array.descriptor)


# What follows the shared constructor, for each element of an array.
_ELEMENTS: Final[dict[int, _Encoder]] = {
    **{
        code: _exactly(only)
        for code, only in ((0x40, None), (0x41, True), (0x42, False), (0x43, 0), (0x44, 0), (0x45, []))
    },
    **{code: Struct(">B").pack for code in (0x50, 0x52, 0x53)},
    **{code: Struct(">b").pack for code in (0x51, 0x54, 0x55)},
    0x56: Struct(">?").pack,
    0x60: Struct(">H").pack,
    0x61: Struct(">h").pack,
    0x70: Struct(">I").pack,
    0x71: Struct(">i").pack,
    0x72: Struct(">f").pack,
    0x73: lambda char: _U32.pack(ord(char)),
    0x74: _raw(4),
    0x80: Struct(">Q").pack,
    0x81: Struct(">q").pack,
    0x82: Struct(">d").pack,
    0x83: Struct(">q").pack,
    0x84: _raw(8),
    0x94: _raw(16),
    0x98: _uuid_bytes,
    0xA0: _prefixed(1, bytes),
    0xA1: _prefixed(1, _utf8),
    0xA3: _prefixed(1, _utf8),
    0xB0: _prefixed(4, bytes),
    0xB1: _prefixed(4, _utf8),
    0xB3: _prefixed(4, _utf8),
    0xC0: _in_array(1, _list_body),
    0xC1: _in_array(1, _map_body),
    0xD0: _in_array(4, _list_body),
    0xD1: _in_array(4, _map_body),
    0xE0: _in_array(1, _nested_array_body),
    0xF0: _in_array(4, _nested_array_body),
}

_INT8: Final = range(-128, 128)
_encode_long: Final = _integer(0x81, ">q", small=(0x55, _INT8))

_ENCODERS: Final[dict[type, _Encoder]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _encode_long,
    Long: _encode_long,
    Int: _integer(0x71, ">i", small=(0x54, _INT8)),
    Short: _integer(0x61, ">h"),
    Byte: _integer(0x51, ">b"),
    Ulong: _integer(0x80, ">Q", small=(0x53, range(256)), zero=0x44),
    Uint: _integer(0x70, ">I", small=(0x52, range(256)), zero=0x43),
    Ushort: _integer(0x60, ">H"),
    Ubyte: _integer(0x50, ">B"),
    Timestamp: _integer(0x83, ">q"),
    float: lambda value: b"\x82" + _ELEMENTS[0x82](value),
    Float: lambda value: b"\x72" + _ELEMENTS[0x72](value),
    Char: lambda value: b"\x73" + _ELEMENTS[0x73](value),
    Decimal32: lambda value: b"\x74" + _ELEMENTS[0x74](value),
    Decimal64: lambda value: b"\x84" + _ELEMENTS[0x84](value),
    Decimal128: lambda value: b"\x94" + _ELEMENTS[0x94](value),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: _either(0xA0, 0xB0, bytes),
    str: _either(0xA1, 0xB1, _utf8),
    Symbol: _either(0xA3, 0xB3, _utf8),
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    Array: lambda value: encode_array(value.type_code, value.values, value.descriptor),
    Described: lambda value: encode_described(value.descriptor, encode(value.value)),
}
