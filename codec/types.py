"""Python values that stand for the AMQP types that Python has no type for [AMQP 1.6].

Python's own types stand for the ones that they match: `None`, `bool`, `float` (double), `str`, `bytes`
(binary), `uuid.UUID`, `list`, `dict`; a plain `int` stands for a long. Each of the others is a thin subclass
here, so that a value keeps its AMQP type from `decode` to `encode`. Ranges are not
checked here: `encode` does that. Everything is immutable; nothing has an owner.
"""

from __future__ import annotations

from dataclasses import dataclass


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
