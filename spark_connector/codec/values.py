"""AMQP 1.0 values as bytes, with their exact types [AMQP 1.6]: jumping over them, reading them, writing them.

Knows every primitive encoding, arrays and described values; a value is a `Value`, its AMQP type's name next to a plain
Python value. Does not know sections, columns and text forms. Whatever is wrong with the bytes is a `ValueError`, an
`IndexError` or a `struct.error` (together `MALFORMED`): the modules that know which message it is make a readable error
of it. Pure functions; nothing has an owner.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Any, Final, NamedTuple

from . import decimals

__all__ = ["MALFORMED", "NESTING_MAX", "NULL", "Value", "read", "skip", "write"]

NESTING_MAX: Final = 64
"""How deep lists, maps, arrays and descriptions may lie in each other: more than clients need, safe for the stack."""

ZERO_WIDTH_ELEMENTS_MAX: Final = 16
"""Elements of an array whose element type takes no bytes (null, true, …): nothing else limits them. The broker's codec
has the same limit, for the reason that is written there; a test compares the two codecs."""

MALFORMED: Final = (ValueError, IndexError, StructError)
"""What reading bytes that are no AMQP raises; a UnicodeDecodeError is a ValueError."""

u32: Final = Struct(">I").unpack_from
i64: Final = Struct(">q").unpack_from


class Value(NamedTuple):
    """An AMQP value.

    `type` is the type's name in the specification, or "described"; `value` by type: None, bool, int (timestamp: Unix
    milliseconds), float, str (string, symbol, char; decimals as text, see `decimals`), bytes, UUID; a list of Values;
    for a map a list of pairs of Values; for an array `Elements`; for described a pair of Values: descriptor, value.
    """

    type: str
    value: Any


class Elements(NamedTuple):
    """What an array holds: the one type of its elements, their plain values, and their common descriptor."""

    type: str
    values: list[Any]
    descriptor: Value | None


NULL: Final = Value("null", None)

# --- Jumping over values --------------------------------------------------------------------------

_BY_SIZE8, _BY_SIZE32, _BY_DESCRIPTOR, _NONE = 0, -1, -2, -3
_LENGTHS: Final = {4: 1, 5: 2, 6: 3, 7: 5, 8: 9, 9: 17}  # by the constructor's high nibble, constructor included
_CODES: Final = frozenset(
    b"\x40\x41\x42\x43\x44\x45\x50\x51\x52\x53\x54\x55\x56\x60\x61\x70\x71\x72\x73\x74\x80\x81\x82\x83\x84\x94\x98"
    b"\xa0\xa1\xa3\xb0\xb1\xb3\xc0\xc1\xd0\xd1\xe0\xf0"
)


def _way(code: int) -> int:
    if code == 0:
        return _BY_DESCRIPTOR
    if code not in _CODES:
        return _NONE
    nibble = code >> 4
    return _LENGTHS[nibble] if nibble < 0xA else _BY_SIZE32 if nibble & 1 else _BY_SIZE8


_WAYS: Final = tuple(map(_way, range(256)))


def skip(data: bytes, pos: int, count: int = 1) -> int:
    """Return the offset behind the `count` values at `pos`; it may lie behind the data's end. Raises MALFORMED."""
    while count > 0:
        way = _WAYS[data[pos]]
        if way > 0:
            pos += way
        elif way == _BY_SIZE8:
            pos += 2 + data[pos + 1]
        elif way == _BY_SIZE32:
            pos += 5 + u32(data, pos + 1)[0]
        elif way == _BY_DESCRIPTOR:
            pos += 1
            count += 2
        else:
            raise ValueError(f"no AMQP type has the constructor 0x{data[pos]:02x} (offset {pos})")
        count -= 1
    return pos


# --- Reading --------------------------------------------------------------------------------------

# (data, offset behind the constructor, end of what encloses it, depth) -> (plain value, offset behind it)
_Reader = Callable[[bytes, int, int, int], tuple[Any, int]]


def read(data: bytes, pos: int, end: int, depth: int = 0) -> tuple[Value, int]:
    """Return the value at `pos`, which must end at `end` or before it, and the offset behind it. Raises MALFORMED."""
    if pos >= end:
        raise ValueError(f"a value is missing at offset {pos}")
    code = data[pos]
    if code == 0:
        return _read_described(data, pos + 1, end, depth)
    kind = _KINDS.get(code)
    if kind is None:
        raise ValueError(f"no AMQP type has the constructor 0x{code:02x} (offset {pos})")
    plain, pos = kind[1](data, pos + 1, end, depth)
    return Value(kind[0], plain), pos


def _read_described(data: bytes, pos: int, end: int, depth: int) -> tuple[Value, int]:
    _check_depth(depth)
    descriptor, pos = read(data, pos, end, depth + 1)
    value, pos = read(data, pos, end, depth + 1)
    return Value("described", (descriptor, value)), pos


def _check_depth(depth: int) -> None:
    if depth >= NESTING_MAX:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}")


def _check_end(stop: int, end: int) -> None:
    if stop > end:
        raise ValueError(f"a value ends at {stop}, what encloses it at {end}")


def _constant(plain: object) -> _Reader:
    def read_constant(_data: bytes, pos: int, _end: int, _depth: int) -> tuple[Any, int]:
        return plain, pos

    return read_constant


def _fixed(layout: str, convert: Callable[[Any], object] | None = None) -> _Reader:
    struct = Struct(layout)
    unpack, width = struct.unpack_from, struct.size

    def read_fixed(data: bytes, pos: int, end: int, _depth: int) -> tuple[Any, int]:
        _check_end(pos + width, end)
        (raw,) = unpack(data, pos)
        return (raw if convert is None else convert(raw)), pos + width

    return read_fixed


def _variable(width: int, convert: Callable[[bytes], object]) -> _Reader:
    def read_variable(data: bytes, pos: int, end: int, _depth: int) -> tuple[Any, int]:
        start = pos + width
        stop = start + int.from_bytes(data[pos:start], "big")
        _check_end(stop, end)
        return convert(data[start:stop]), stop

    return read_variable


def _char(code_point: int) -> str:
    if code_point > 0x10FFFF or 0xD800 <= code_point <= 0xDFFF:
        raise ValueError(f"0x{code_point:x} is no Unicode scalar value")
    return chr(code_point)


def _uuid(octets: bytes) -> uuid.UUID:
    return uuid.UUID(bytes=octets)


def _open(data: bytes, pos: int, end: int, depth: int, width: int) -> tuple[int, int, int]:
    """Return (count, offset of the content, offset behind it) of a list, map or array."""
    _check_depth(depth)
    content = pos + 2 * width
    stop = pos + width + int.from_bytes(data[pos : pos + width], "big")
    _check_end(stop, end)
    _check_end(content, stop)
    return int.from_bytes(data[pos + width : content], "big"), content, stop


def _read_items(data: bytes, pos: int, end: int, depth: int, width: int) -> tuple[list[Value], int]:
    count, pos, stop = _open(data, pos, end, depth, width)
    items: list[Value] = []
    for _ in range(count):  # each takes a byte or more, so a lying count ends at `stop`
        item, pos = read(data, pos, stop, depth + 1)
        items.append(item)
    if pos != stop:
        raise ValueError(f"the last of {count} items ends at {pos}, what encloses it at {stop}")
    return items, stop


def _list(width: int) -> _Reader:
    def read_list(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        return _read_items(data, pos, end, depth, width)

    return read_list


def _map(width: int) -> _Reader:
    def read_map(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        items, stop = _read_items(data, pos, end, depth, width)
        return list(zip(items[::2], items[1::2], strict=True)), stop

    return read_map


def _array(width: int) -> _Reader:
    def read_array(data: bytes, pos: int, end: int, depth: int) -> tuple[Any, int]:
        count, pos, stop = _open(data, pos, end, depth, width)
        descriptor: Value | None = None
        if data[pos] == 0:
            descriptor, pos = read(data, pos + 1, stop, depth + 1)
        kind = _KINDS.get(data[pos])
        if kind is None:
            raise ValueError(f"an array without an element type (offset {pos})")
        if _WAYS[data[pos]] == 1 and count > ZERO_WIDTH_ELEMENTS_MAX:
            raise ValueError(f"{count} array elements that take no bytes; the limit is {ZERO_WIDTH_ELEMENTS_MAX}")
        pos += 1
        plain: list[Any] = []
        for _ in range(count):
            element, pos = kind[1](data, pos, stop, depth + 1)
            plain.append(element)
        if pos != stop:
            raise ValueError(f"the last of {count} array elements ends at {pos}, the array at {stop}")
        return Elements(kind[0], plain, descriptor), stop

    return read_array


def _boolean(octet: int) -> bool:
    if octet > 1:
        raise ValueError(f"0x{octet:02x} is no boolean")
    return octet == 1


_KINDS: Final[dict[int, tuple[str, _Reader]]] = {
    0x40: ("null", _constant(None)),
    0x41: ("boolean", _constant(True)),
    0x42: ("boolean", _constant(False)),
    0x43: ("uint", _constant(0)),
    0x44: ("ulong", _constant(0)),
    0x45: ("list", lambda _data, pos, _end, _depth: ([], pos)),
    0x50: ("ubyte", _fixed(">B")),
    0x51: ("byte", _fixed(">b")),
    0x52: ("uint", _fixed(">B")),
    0x53: ("ulong", _fixed(">B")),
    0x54: ("int", _fixed(">b")),
    0x55: ("long", _fixed(">b")),
    0x56: ("boolean", _fixed(">B", _boolean)),
    0x60: ("ushort", _fixed(">H")),
    0x61: ("short", _fixed(">h")),
    0x70: ("uint", _fixed(">I")),
    0x71: ("int", _fixed(">i")),
    0x72: ("float", _fixed(">f")),
    0x73: ("char", _fixed(">I", _char)),
    0x74: ("decimal32", _fixed("4s", decimals.to_text)),
    0x80: ("ulong", _fixed(">Q")),
    0x81: ("long", _fixed(">q")),
    0x82: ("double", _fixed(">d")),
    0x83: ("timestamp", _fixed(">q")),
    0x84: ("decimal64", _fixed("8s", decimals.to_text)),
    0x94: ("decimal128", _fixed("16s", decimals.to_text)),
    0x98: ("uuid", _fixed("16s", _uuid)),
    0xA0: ("binary", _variable(1, bytes)),
    0xA1: ("string", _variable(1, bytes.decode)),
    0xA3: ("symbol", _variable(1, bytes.decode)),  # UTF-8, for some clients do not keep symbols to ASCII
    0xB0: ("binary", _variable(4, bytes)),
    0xB1: ("string", _variable(4, bytes.decode)),
    0xB3: ("symbol", _variable(4, bytes.decode)),
    0xC0: ("list", _list(1)),
    0xC1: ("map", _map(1)),
    0xD0: ("list", _list(4)),
    0xD1: ("map", _map(4)),
    0xE0: ("array", _array(1)),
    0xF0: ("array", _array(4)),
}

# --- Writing --------------------------------------------------------------------------------------

# By type: the constructor that holds any value of the type, and how the plain value is packed behind it.
_PACKERS: Final[dict[str, tuple[int, Callable[[Any], bytes]]]] = {
    "null": (0x40, lambda _plain: b""),
    "boolean": (0x56, lambda plain: b"\x01" if plain else b"\x00"),
    "ubyte": (0x50, Struct(">B").pack),
    "byte": (0x51, Struct(">b").pack),
    "ushort": (0x60, Struct(">H").pack),
    "short": (0x61, Struct(">h").pack),
    "uint": (0x70, Struct(">I").pack),
    "int": (0x71, Struct(">i").pack),
    "ulong": (0x80, Struct(">Q").pack),
    "long": (0x81, Struct(">q").pack),
    "float": (0x72, Struct(">f").pack),
    "double": (0x82, Struct(">d").pack),
    "timestamp": (0x83, Struct(">q").pack),
    "char": (0x73, lambda plain: ord(plain).to_bytes(4, "big")),
    "decimal32": (0x74, lambda plain: decimals.from_text(plain, 4)),
    "decimal64": (0x84, lambda plain: decimals.from_text(plain, 8)),
    "decimal128": (0x94, lambda plain: decimals.from_text(plain, 16)),
    "uuid": (0x98, lambda plain: plain.bytes),
    "binary": (0xB0, lambda plain: _counted(plain)),
    "string": (0xB1, lambda plain: _counted(plain.encode())),
    "symbol": (0xB3, lambda plain: _counted(plain.encode("ascii"))),
    "list": (0xD0, lambda plain: _compound(len(plain), b"".join(map(write, plain)))),
    "map": (0xD1, lambda plain: _compound(2 * len(plain), b"".join(write(k) + write(v) for k, v in plain))),
    "array": (0xF0, lambda plain: _compound(len(plain.values), _elements(plain))),
}
_SMALL_INTEGERS: Final = {
    "uint": (0x52, range(256)),
    "ulong": (0x53, range(256)),
    "int": (0x54, range(-128, 128)),
    "long": (0x55, range(-128, 128)),
}
_ZEROS: Final = {"uint": b"\x43", "ulong": b"\x44"}
_pack_u32: Final = Struct(">I").pack


def _counted(octets: bytes) -> bytes:
    return _pack_u32(len(octets)) + octets


def _compound(count: int, items: bytes) -> bytes:
    return _pack_u32(len(items) + 4) + _pack_u32(count) + items


def _elements(elements: Elements) -> bytes:
    code, pack = _PACKERS[elements.type]
    start = b"" if elements.descriptor is None else b"\x00" + write(elements.descriptor)
    return start + bytes((code,)) + b"".join(map(pack, elements.values))


def write(value: Value) -> bytes:
    """Return the shortest encoding of a value (array elements: the widest). Raises ValueError if it is too big."""
    name, plain = value
    if name == "described":
        return b"\x00" + write(plain[0]) + write(plain[1])
    if name == "boolean":
        return b"\x41" if plain else b"\x42"
    if name in _SMALL_INTEGERS:
        if plain == 0 and name in _ZEROS:
            return _ZEROS[name]
        code, small = _SMALL_INTEGERS[name]
        if plain in small:
            return bytes((code, plain & 0xFF))
    code, pack = _PACKERS[name]
    try:
        body = pack(plain)
    except (StructError, OverflowError) as error:
        raise ValueError(f"{plain!r:.60} is no {name}: {error}") from None
    if code in (0xB0, 0xB1, 0xB3) and len(body) < 260:
        return bytes((code - 0x10, len(body) - 4)) + body[4:]
    if code >= 0xD0:
        if name == "list" and not plain:
            return b"\x45"
        if len(body) < 263 and body[4:7] == b"\0\0\0":  # size and count in one byte each
            return bytes((code - 0x10, len(body) - 7, body[7])) + body[8:]
    return bytes((code,)) + body
