"""Python values to encoded AMQP values, each in the shortest encoding of its type [AMQP 1.6].

Knows every primitive encoding, described values and arrays; `types` lists which Python value stands for which AMQP
type. A value that its type cannot hold is a mistake of the caller: TypeError or ValueError. Pure functions.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterable, Mapping, Sequence
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Any, Final

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
    except (StructError, OverflowError) as error:  # OverflowError: a double that is beyond a float
        raise ValueError(f"{value!r:.40} does not fit {type(value).__name__}: {error}") from None


def encode_list(values: Sequence[object]) -> bytes:
    return list_from_items(len(values), b"".join(map(encode, values)))


def encode_map(entries: Mapping[Any, object] | MapItems) -> bytes:
    """Return a map of the entries, in their order."""
    return map_from_items(2 * len(entries), b"".join(encode(key) + encode(value) for key, value in entries.items()))


def encode_array(type_code: int, values: Iterable[object], descriptor: object = None) -> bytes:
    """Return an array whose elements share the constructor `type_code` (0x83 timestamp, 0x98 uuid).

    Raises ValueError for a value that this very encoding cannot hold (256 bytes of text in 0xa1, 1 in 0x43).
    """
    body = _array_body(type_code, list(values), descriptor)
    return _in_shortest_form(0xE0, *body)


def encode_described(descriptor: object, encoded_value: bytes) -> bytes:
    """Return an already encoded value with a descriptor in front."""
    return b"\x00" + encode(descriptor) + encoded_value


def list_from_items(count: int, items: bytes) -> bytes:
    """Return a list around `count` encoded items."""
    if not count:
        return b"\x45"
    return _in_shortest_form(0xC0, count, items)


def map_from_items(count: int, items: bytes) -> bytes:
    """Return a map around `count` encoded items: keys and values by turns, so the count is even."""
    return _in_shortest_form(0xC1, count, items)


def _in_shortest_form(short_code: int, count: int, items: bytes) -> bytes:
    """Return an array, list or map with 8-bit size and count if these are enough, else with 32-bit ones."""
    if _is_short(count, items):
        return bytes((short_code,)) + _with_size_and_count(1, count, items)
    return bytes((short_code + 0x10,)) + _with_size_and_count(4, count, items)


def _is_short(count: int, items: bytes) -> bool:
    return count <= 255 and len(items) <= 254


def _with_size_and_count(width: int, count: int, items: bytes) -> bytes:
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
    except (StructError, OverflowError) as error:
        raise ValueError(f"an element does not fit constructor 0x{type_code:02x}: {error}") from None
    except AttributeError:
        raise TypeError(f"an element is of another type than constructor 0x{type_code:02x}") from None


def _prefixed_encoder(width: int, convert: Callable[[Any], bytes]) -> _Encoder:
    def encode_prefixed(value: Any) -> bytes:
        octets = convert(value)
        return len(octets).to_bytes(width, "big") + octets

    def encode_checked(value: Any) -> bytes:
        try:
            return encode_prefixed(value)
        except OverflowError:
            raise ValueError(f"{value!r:.40} is too long for a {8 * width}-bit size") from None

    return encode_checked


def _short_or_long(short: int, long: int, convert: Callable[[Any], bytes]) -> _Encoder:
    def encode_variable(value: Any) -> bytes:
        octets = convert(value)
        size = len(octets)
        return bytes((short, size)) + octets if size < 256 else bytes((long,)) + _U32.pack(size) + octets

    return encode_variable


def _integer_encoder(
    code: int, layout: str, small: tuple[int, int, int] | None = None, zero: int | None = None
) -> _Encoder:
    """`small` is the constructor of the one-byte form, and the least and the largest value that it holds."""
    pack, prefix = Struct(layout).pack, bytes((code,))
    # Without a one-byte form no value is between the two. A range would be slow: it walks for subclasses of int.
    small_code, small_min, small_max = small or (0, 0, -1)

    def encode_integer(value: int) -> bytes:
        if value == 0 and zero is not None:
            return bytes((zero,))
        if small_min <= value <= small_max:
            return bytes((small_code, value & 0xFF))
        return prefix + pack(value)

    return encode_integer


def _encoder_of_only(only: object) -> _Encoder:
    def encode_nothing(value: Any) -> bytes:
        if value != only:
            raise ValueError(f"{value!r} in an array that holds only {only!r}")
        return b""

    return encode_nothing


def _encoder_of_bytes(size: int) -> _Encoder:
    def encode_raw(value: bytes) -> bytes:
        octets = _octets(value)
        if len(octets) != size:
            raise ValueError(f"{len(octets)} bytes where {size} belong")
        return octets

    return encode_raw


def _octets(value: object) -> bytes:
    if not isinstance(value, bytes):  # of a number n, `bytes` would make n zeros
        raise TypeError(f"{type(value).__name__} where bytes belong")
    return bytes(value)


def _utf8(text: str) -> bytes:
    return text.encode("utf-8")


def _uuid_bytes(value: uuid.UUID) -> bytes:
    return value.bytes


def _list_body(values: Sequence[object]) -> tuple[int, bytes]:
    return len(values), b"".join(map(encode, values))


def _map_body(entries: Mapping[Any, object] | MapItems) -> tuple[int, bytes]:
    return 2 * len(entries), b"".join(encode(key) + encode(value) for key, value in entries.items())


def _array_element_encoder(width: int, body: Callable[[Any], tuple[int, bytes]]) -> _Encoder:
    return lambda value: _with_size_and_count(width, *body(value))


def _nested_array_body(array: Array) -> tuple[int, bytes]:
    return _array_body(array.type_code, array.values, array.descriptor)


# What follows the shared constructor, for each element of an array.
_ELEMENTS: Final[dict[int, _Encoder]] = {
    **{
        code: _encoder_of_only(only)
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
    0x74: _encoder_of_bytes(4),
    0x80: Struct(">Q").pack,
    0x81: Struct(">q").pack,
    0x82: Struct(">d").pack,
    0x83: Struct(">q").pack,
    0x84: _encoder_of_bytes(8),
    0x94: _encoder_of_bytes(16),
    0x98: _uuid_bytes,
    0xA0: _prefixed_encoder(1, _octets),
    0xA1: _prefixed_encoder(1, _utf8),
    0xA3: _prefixed_encoder(1, _utf8),
    0xB0: _prefixed_encoder(4, _octets),
    0xB1: _prefixed_encoder(4, _utf8),
    0xB3: _prefixed_encoder(4, _utf8),
    0xC0: _array_element_encoder(1, _list_body),
    0xC1: _array_element_encoder(1, _map_body),
    0xD0: _array_element_encoder(4, _list_body),
    0xD1: _array_element_encoder(4, _map_body),
    0xE0: _array_element_encoder(1, _nested_array_body),
    0xF0: _array_element_encoder(4, _nested_array_body),
}

_encode_long: Final = _integer_encoder(0x81, ">q", small=(0x55, -128, 127))

_ENCODERS: Final[dict[type, _Encoder]] = {
    type(None): lambda _: b"\x40",
    bool: lambda value: b"\x41" if value else b"\x42",
    int: _encode_long,
    Long: _encode_long,
    Int: _integer_encoder(0x71, ">i", small=(0x54, -128, 127)),
    Short: _integer_encoder(0x61, ">h"),
    Byte: _integer_encoder(0x51, ">b"),
    Ulong: _integer_encoder(0x80, ">Q", small=(0x53, 0, 255), zero=0x44),
    Uint: _integer_encoder(0x70, ">I", small=(0x52, 0, 255), zero=0x43),
    Ushort: _integer_encoder(0x60, ">H"),
    Ubyte: _integer_encoder(0x50, ">B"),
    Timestamp: _integer_encoder(0x83, ">q"),
    float: lambda value: b"\x82" + _ELEMENTS[0x82](value),
    Float: lambda value: b"\x72" + _ELEMENTS[0x72](value),
    Char: lambda value: b"\x73" + _ELEMENTS[0x73](value),
    Decimal32: lambda value: b"\x74" + _ELEMENTS[0x74](value),
    Decimal64: lambda value: b"\x84" + _ELEMENTS[0x84](value),
    Decimal128: lambda value: b"\x94" + _ELEMENTS[0x94](value),
    uuid.UUID: lambda value: b"\x98" + value.bytes,
    bytes: _short_or_long(0xA0, 0xB0, bytes),
    str: _short_or_long(0xA1, 0xB1, _utf8),
    Symbol: _short_or_long(0xA3, 0xB3, _utf8),
    list: encode_list,
    tuple: encode_list,
    dict: encode_map,
    MapItems: encode_map,
    Array: lambda value: encode_array(value.type_code, value.values, value.descriptor),
    Described: lambda value: encode_described(value.descriptor, encode(value.value)),
}
