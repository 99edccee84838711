"""What operators make of kinds of values, as data: one table for an operator, one row and column for a kind.

The tables follow ECMA-334 (C#), 12.4.7 and 12.10, since the page of SQL filters says that operators follow C#;
`test_csharp.py` compares them with what a C# program found. Cells that C# does not have and emubus fills are guesses;
the others are UNKNOWN. Shares no code with the broker.
"""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from emubus.codec import decimals
from emubus.codec.types import (
    Byte,
    Char,
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

TICKS_PER_S = 10_000_000
TICKS_AT_1970 = 621_355_968_000_000_000
GUIDS = {7: uuid.UUID(int=7), 2: uuid.UUID(int=2)}


@dataclass(frozen=True)
class Kind:
    """A kind of property: its name in C#, its AMQP type, a value for 7 and one for 2, and how these read as text."""

    name: str
    amqp: str
    seven: object
    two: object
    texts: tuple[str, str]
    words: str
    """What the story calls it."""


def number(name: str, amqp: str, make: Any) -> Kind:
    return Kind(name, amqp, make(7), make(2), ("7", "2"), "a number")


def decimal_128(value: object) -> Decimal128:
    return Decimal128(decimals.from_text(str(value), 16))


def span(seconds: float) -> Described:
    return Described(Symbol("com.microsoft:timespan"), Long(int(seconds * TICKS_PER_S)))


def offset(seconds: float) -> Described:
    return Described(Symbol("com.microsoft:datetime-offset"), Long(int(seconds * TICKS_PER_S) + TICKS_AT_1970))


def date(seconds: float) -> Timestamp:
    return Timestamp(int(seconds * 1_000))


AT = ("1970-01-01T00:00:07Z", "1970-01-01T00:00:02Z")
KINDS = {
    each.name: each
    for each in (
        Kind("null", "null", None, None, ("", ""), ""),
        Kind("bool", "boolean", True, False, ("True", "False"), "a boolean"),
        number("sbyte", "byte", Byte),
        number("byte", "ubyte", Ubyte),
        number("short", "short", Short),
        number("ushort", "ushort", Ushort),
        number("int", "int", Int),
        number("uint", "uint", Uint),
        number("long", "long", Long),
        number("ulong", "ulong", Ulong),
        Kind("char", "char", Char("\x07"), Char("\x02"), ("\x07", "\x02"), "a char"),
        number("float", "float", Float),
        number("double", "double", float),
        Kind("decimal", "decimal128", decimal_128(7), decimal_128(2), ("7", "2"), "a decimal"),
        Kind("string", "string", "7", "2", ("7", "2"), "a string"),
        Kind("symbol", "symbol", Symbol("7"), Symbol("2"), ("7", "2"), "a string"),
        Kind(
            "Uri",
            "com.microsoft:uri",
            Described(Symbol("com.microsoft:uri"), "7"),
            Described(Symbol("com.microsoft:uri"), "2"),
            ("7", "2"),
            "a string",
        ),
        Kind("Guid", "uuid", GUIDS[7], GUIDS[2], (str(GUIDS[7]), str(GUIDS[2])), "a GUID"),
        Kind("DateTime", "timestamp", date(7), date(2), AT, "a date"),
        Kind("DateTimeOffset", "com.microsoft:datetime-offset", offset(7), offset(2), AT, "a date"),
        Kind("TimeSpan", "com.microsoft:timespan", span(7), span(2), ("00:00:07", "00:00:02"), "a time span"),
        Kind("byte[]", "binary", b"\x07", b"\x02", ("", ""), "a value without operators"),
        Kind("list", "list, map, array, other described", [7], [2], ("", ""), "a value without operators"),
    )
}
SIGNED = ("sbyte", "short", "int", "long")
REALS = ("float", "double")
TEXTS = ("string", "symbol", "Uri")
DATES = ("DateTime", "DateTimeOffset")
NUMBERS = ("sbyte", "byte", "short", "ushort", "int", "uint", "long", "ulong", "char", "float", "double", "decimal")

# ---------------------------------------------------------------- arithmetic

ARITHMETIC = {"+": 9.0, "-": 5.0, "*": 14.0, "/": 3.5, "%": 1.0}
"""The operators, and what each makes of 7 and 2; of integers the division cuts off."""

# The kind of the result of two numbers, the same for all five operators. i int, u uint, l long, U ulong, f float,
# d double, m decimal; a guess has a question mark: C# has no operator for these two.
PROMOTIONS = """
        sbyte byte short ushort int uint long ulong char float double decimal
sbyte   i     i    i     i      i   l    l    U?    i    f     d      m
byte    i     i    i     i      i   u    l    U     i    f     d      m
short   i     i    i     i      i   l    l    U?    i    f     d      m
ushort  i     i    i     i      i   u    l    U     i    f     d      m
int     i     i    i     i      i   l    l    U?    i    f     d      m
uint    l     u    l     u      l   u    l    U     u    f     d      m
long    l     l    l     l      l   l    l    U?    l    f     d      m
ulong   U?    U    U?    U      U?  U    U?   U     U    f     d      m
char    i     i    i     i      i   u    l    U     i    f     d      m
float   f     f    f     f      f   f    f    f     f    f     d      d?
double  d     d    d     d      d   d    d    d     d    d     d      d?
decimal m     m    m     m      m   m    m    m     m    d?    d?     m
"""
LETTERS = {"i": "int", "u": "uint", "l": "long", "U": "ulong", "f": "float", "d": "double", "m": "decimal"}
ALL = tuple(name for name in KINDS if name not in ("null", "byte[]", "list"))
FACTORS = tuple(name for name in NUMBERS if name != "decimal")

# What else has a result: left kinds, right kinds, the kind of the result. TimeSpan with a number: .NET since Core 2.0.
SPECIAL: dict[str, list[tuple[tuple[str, ...], tuple[str, ...], str]]] = {
    "+": [
        (("symbol", "Uri"), ALL, "string?"),
        (ALL, ("symbol", "Uri"), "string?"),
        (("string",), ALL, "string"),
        (ALL, ("string",), "string"),
        (("DateTime",), ("TimeSpan",), "DateTime"),
        (("DateTimeOffset",), ("TimeSpan",), "DateTimeOffset"),
        (("TimeSpan",), ("TimeSpan",), "TimeSpan"),
    ],
    "-": [
        (DATES, DATES, "TimeSpan"),
        (("DateTime",), ("TimeSpan",), "DateTime"),
        (("DateTimeOffset",), ("TimeSpan",), "DateTimeOffset"),
        (("TimeSpan",), ("TimeSpan",), "TimeSpan"),
    ],
    "*": [(("TimeSpan",), FACTORS, "TimeSpan"), (FACTORS, ("TimeSpan",), "TimeSpan")],
    "/": [(("TimeSpan",), FACTORS, "TimeSpan"), (("TimeSpan",), ("TimeSpan",), "double")],
    "%": [],
}


@dataclass(frozen=True)
class Cell:
    """The kind of a result, or which comparisons there are ("all", "= <>"); None is UNKNOWN."""

    result: str | None
    is_guess: bool = False


UNKNOWN = Cell(None)


def promotions() -> dict[tuple[str, str], Cell]:
    head, *lines = (line.split() for line in PROMOTIONS.strip().splitlines())
    return {
        (left, right): Cell(LETTERS[cell[0]], cell.endswith("?"))
        for left, *cells in lines
        for right, cell in zip(head, cells, strict=True)
    }


def arithmetic(operator: str) -> dict[tuple[str, str], Cell]:
    """The table of an operator: the cell of each pair of kinds."""
    table = {(left, right): UNKNOWN for left in KINDS for right in KINDS}
    for lefts, rights, result in SPECIAL[operator]:
        table |= {(left, right): Cell(result.rstrip("?"), "?" in result) for left in lefts for right in rights}
    return table | promotions()


def expected(operator: str, left: Kind, right: Kind, result: str) -> object:
    """The value of a cell, with its AMQP type."""
    value = ARITHMETIC[operator]
    if result == "string":
        return left.texts[0] + right.texts[1]
    make: Any = {"DateTime": date, "DateTimeOffset": offset, "TimeSpan": span}.get(result)
    if make is not None:
        return make(value)
    if result == "decimal":
        return decimal_128(Decimal(value).normalize())
    if result in (*REALS,):
        return Float(value) if result == "float" else value
    return {"int": Int, "uint": Uint, "long": Long, "ulong": Ulong}[result](int(value))


# ---------------------------------------------------------------- one operand

# The kind of -x and of +x; C# has no minus for ulong.
UNARY = {
    **dict.fromkeys(("sbyte", "byte", "short", "ushort", "int", "char"), ("int", "int")),
    "uint": ("long", "uint"),
    "long": ("long", "long"),
    "ulong": ("long?", "ulong"),
    **{name: (name, name) for name in ("float", "double", "decimal", "TimeSpan")},
}

# ---------------------------------------------------------------- comparison

# The same for = <> != < <= > >=, IN (equality) and correlation filters (equality).
COMPARED: list[tuple[tuple[str, ...], tuple[str, ...], str]] = [
    (NUMBERS, NUMBERS, "all"),
    (REALS, ("decimal",), "all?"),
    (("decimal",), REALS, "all?"),
    (SIGNED, ("ulong",), "all?"),
    (("ulong",), SIGNED, "all?"),
    (TEXTS, TEXTS, "all?"),
    (("char",), TEXTS, "all?"),
    (TEXTS, ("char",), "all?"),
    (DATES, DATES, "all"),
    (("TimeSpan",), ("TimeSpan",), "all"),
    (("bool",), ("bool",), "= <>"),
    (("Guid",), ("Guid",), "= <>"),
]
COMPARISONS = ("=", "<>", "!=", "<", "<=", ">", ">=")
TRUTHS = {"=": "E", "<>": "LG", "!=": "LG", "<": "L", "<=": "LE", ">": "G", ">=": "EG"}
"""The relations for which each is true: less, equal, greater."""


def comparisons() -> dict[tuple[str, str], Cell]:
    """The table of comparisons; "= <>" means that there is no order."""
    table = {(left, right): UNKNOWN for left in KINDS for right in KINDS}
    for lefts, rights, which in COMPARED:
        table |= {(left, right): Cell(which.rstrip("?"), "?" in which) for left in lefts for right in rights}
    return table


# ---------------------------------------------------------------- SET

# SET of an existing property keeps its type where no data is lost: kinds of the old value, of the new one.
KEPT: list[tuple[tuple[str, ...], tuple[str, ...]]] = [
    (tuple(name for name in NUMBERS if name != "char"), tuple(name for name in (*NUMBERS, *TEXTS) if name != "char")),
    (("string", "symbol"), ALL),
    (
        ("char",),
        ("sbyte", "byte", "short", "ushort", "int", "uint", "long", "ulong", "char", *REALS, "decimal", *TEXTS),
    ),
    (("bool",), ("bool",)),
    (("Guid",), ("Guid",)),
    (DATES, DATES),
    (("TimeSpan",), ("TimeSpan",)),
    (("Uri",), TEXTS),
]
