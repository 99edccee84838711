"""Python values that stand for the AMQP types that Python has no type for [AMQP 1.6].

Python's own types stand for the ones that they match: `None`, `bool`, `float` (double), `str`, `bytes`
(binary), `uuid.UUID`, `list`, `dict`; a plain `int` stands for a long. Each of the others is a thin subclass
here, so that a value keeps its AMQP type from `decode` to `encode`. Ranges are not
checked here: `encode` does that. Everything is immutable; nothing has an owner.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import Final


class Symbol(str):
    """A symbol: text from a constrained domain; ASCII by the standard, UTF-8 by some clients."""

    __slots__ = ()


class Char(str):
    """One Unicode scalar value."""

    __slots__ = ()


class Ubyte(int):
    """Unsigned, 8 bits."""

    __slots__ = ()


class Ushort(int):
    """Unsigned, 16 bits."""

    __slots__ = ()


class Uint(int):
    """Unsigned, 32 bits."""

    __slots__ = ()


class Ulong(int):
    """Unsigned, 64 bits."""

    __slots__ = ()


class Byte(int):
    """Signed, 8 bits."""

    __slots__ = ()


class Short(int):
    """Signed, 16 bits."""

    __slots__ = ()


class Int(int):
    """Signed, 32 bits."""

    __slots__ = ()


class Long(int):
    """Signed, 64 bits."""

    __slots__ = ()


class Timestamp(int):
    """An instant: signed 64-bit Unix milliseconds."""

    __slots__ = ()


class Float(float):
    """IEEE 754 binary32; a plain `float` is the double."""

    __slots__ = ()


class Decimal32(bytes):
    """The 4 bytes of an IEEE 754 decimal32, not looked into."""

    __slots__ = ()


class Decimal64(bytes):
    """The 8 bytes of an IEEE 754 decimal64, not looked into."""

    __slots__ = ()


class Decimal128(bytes):
    """The 16 bytes of an IEEE 754 decimal128, not looked into."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Described:
    """A value with a descriptor (a `Symbol` or `Ulong` in practice)."""

    descriptor: object
    value: object


@dataclass(frozen=True, slots=True)
class Array:
    """Values of one type: `type_code` is the constructor byte that all share.

    `descriptor` is None, or the one that describes each element.
    """

    type_code: int
    values: tuple[object, ...]
    descriptor: object = None


class MapItems(tuple[tuple[object, object], ...]):
    """A map as the pairs of its entries, in their order: what `decode_exactly` gives, as a dict may lose entries."""

    __slots__ = ()

    def items(self) -> MapItems:
        """Return the entries, as a dict's `items` does."""
        return self


TYPE_NAMES: Final[dict[type, str]] = {
    type(None): "null",
    bool: "boolean",
    Ubyte: "ubyte",
    Ushort: "ushort",
    Uint: "uint",
    Ulong: "ulong",
    Byte: "byte",
    Short: "short",
    Int: "int",
    Long: "long",
    int: "long",
    Float: "float",
    float: "double",
    Decimal32: "decimal32",
    Decimal64: "decimal64",
    Decimal128: "decimal128",
    Char: "char",
    Timestamp: "timestamp",
    uuid.UUID: "uuid",
    bytes: "binary",
    str: "string",
    Symbol: "symbol",
    list: "list",
    dict: "map",
    MapItems: "map",
    Array: "array",
    Described: "described",
}
"""The name that the standard gives to the AMQP type of a Python value, by the value's exact type."""

CONSTRUCTORS: Final[dict[int, str]] = {
    0x40: "null",
    0x41: "boolean",
    0x42: "boolean",
    0x43: "uint",
    0x44: "ulong",
    0x45: "list",
    0x50: "ubyte",
    0x51: "byte",
    0x52: "uint",
    0x53: "ulong",
    0x54: "int",
    0x55: "long",
    0x56: "boolean",
    0x60: "ushort",
    0x61: "short",
    0x70: "uint",
    0x71: "int",
    0x72: "float",
    0x73: "char",
    0x74: "decimal32",
    0x80: "ulong",
    0x81: "long",
    0x82: "double",
    0x83: "timestamp",
    0x84: "decimal64",
    0x94: "decimal128",
    0x98: "uuid",
    0xA0: "binary",
    0xA1: "string",
    0xA3: "symbol",
    0xB0: "binary",
    0xB1: "string",
    0xB3: "symbol",
    0xC0: "list",
    0xC1: "map",
    0xD0: "list",
    0xD1: "map",
    0xE0: "array",
    0xF0: "array",
}
"""The constructor bytes of all primitive encodings, narrow before wide, and the names of their types [AMQP 1.6]."""
