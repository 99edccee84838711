"""Values of rules: kinds, three-valued truth, comparison and arithmetic as in C# [wire 10.9].

Knows the kinds to which AMQP types map, the operators on each kind, and the text form of values; `numbers` calculates.
Does not know messages and expressions. Pure functions on immutable values. What each operator makes of each kind is the
table in docs/reference/operators.md.

UNKNOWN and null are one value, `None`; an operation on it is UNKNOWN. So is an operation that its kinds do not have.
"""

from __future__ import annotations

import math
import operator
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from ...codec import decimals, durations
from ...codec.durations import TICKS_PER_MS, format_duration
from ...codec.types import (
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Long,
    Symbol,
    Timestamp,
    Ulong,
)
from ..model.descriptions import PropertyValue, TypedText
from . import numbers
from .errors import FilterException

TEXT_CHARS_MAX: Final = 32 * 1024
"""Longest string that an expression may build: the size of one property [wire 10.13]."""

Truth = bool | None
"""TRUE, FALSE, and None for UNKNOWN."""


class Instant(int):
    """A point in time: ticks of 100 ns since 1970 UTC."""

    __slots__ = ()


class OffsetInstant(Instant):
    """A point in time that .NET sent as a DateTimeOffset; its offset is not sent."""

    __slots__ = ()


class Span(int):
    """A length of time: ticks of 100 ns."""

    __slots__ = ()


class Opaque:
    """Values without operators: binary, lists, maps, decimals that are no numbers."""

    __slots__ = ()


OPAQUE: Final = Opaque()
Value = bool | int | float | Decimal | str | uuid.UUID | Opaque | None

TIME_SPAN: Final = "com.microsoft:timespan"
DATE_TIME_OFFSET: Final = "com.microsoft:datetime-offset"
URI: Final = "com.microsoft:uri"
_TICKS_AT_1970: Final = 621_355_968_000_000_000  # .NET counts from the year 1
_INSTANTS: Final = range(-_TICKS_AT_1970, 3_155_378_976_000_000_000 - _TICKS_AT_1970)  # the years 1 to 9999
_INT32: Final = range(-(2**31), 2**31)
_INT64: Final = range(-(2**63), 2**63)
_UINT64_MAX: Final = 2**64 - 1

# ---------------------------------------------------------------- kinds


def _value_of_described(value: Any) -> Value:
    """Convert a described value: .NET sends types that AMQP lacks this way."""
    convert = _DESCRIBED.get(value.descriptor) if isinstance(value.descriptor, Symbol) else None
    return convert(value.value) if convert is not None else OPAQUE


_DESCRIBED: Final[Mapping[str, Callable[[Any], Value]]] = {
    TIME_SPAN: lambda ticks: Span(ticks) if isinstance(ticks, int) else OPAQUE,
    DATE_TIME_OFFSET: lambda ticks: OffsetInstant(ticks - _TICKS_AT_1970) if isinstance(ticks, int) else OPAQUE,
    URI: lambda text: str(text) if isinstance(text, str) else OPAQUE,
}


def _decimal_value(octets: bytes) -> Value:
    text = decimals.meant(octets)
    if not text[-1].isdigit() or text.startswith("0x"):  # infinite, or no number; .NET has neither
        return OPAQUE
    return Decimal(text)


def _unchanged(value: Any) -> Value:
    same: Value = value
    return same


_NORMALISERS: Final[Mapping[type[Any], Callable[[Any], Value]]] = {
    **dict.fromkeys((type(None), bool, float, str, uuid.UUID, Instant, OffsetInstant, Span, Decimal, Char), _unchanged),
    **dict.fromkeys((*numbers.INTEGERS, Float), _unchanged),
    **dict.fromkeys((Decimal32, Decimal64, Decimal128), _decimal_value),
    Symbol: str,
    Timestamp: lambda ms: Instant(ms * TICKS_PER_MS),
    Described: _value_of_described,
}


def normalise(raw: Any) -> Value:
    """Convert a decoded AMQP value to one of the exact types of this module; numbers and chars keep theirs."""
    convert = _NORMALISERS.get(type(raw))
    return OPAQUE if convert is None else convert(raw)


def to_amqp(value: Value) -> object:
    """Convert a computed value to AMQP; a plain integer is a long."""
    match value:
        case OffsetInstant():
            return Described(Symbol(DATE_TIME_OFFSET), Long(value + _TICKS_AT_1970))
        case Instant():
            return Timestamp(value // TICKS_PER_MS)
        case Span():
            return Described(Symbol(TIME_SPAN), Long(value))
        case Decimal():
            return Decimal128(decimals.from_text(str(value), 16))
        case _:
            return value


def from_description(value: PropertyValue) -> Value:
    """Convert the value of a parameter or a filter property; an integer of 32 bits is an int. Raises ValueError."""
    if isinstance(value, TypedText):
        read = TEXT_TYPES.get(value.type)
        if read is None:
            raise ValueError(f"values of type {value.type!r:.40} cannot be compared")
        return _in_64_bits(read(value.text))
    if type(value) is int and value in _INT32:
        return Int(value)
    return _in_64_bits(value)


def _in_64_bits(value: Value) -> Value:
    if type(value) is not int or value in _INT64:
        return value
    if value > _UINT64_MAX or value < 0:
        raise ValueError(f"{str(value)[:30]} does not fit 64 bits")
    return Ulong(value)


# Bits, so that two kinds of numbers joined by `|` say how they compare.
_INTEGER, _REAL, _DECIMAL, _CHAR, _TEXT, _BOOLEAN, _INSTANT, _SPAN, _GUID = (1 << bit for bit in range(9))
_NUMBERS: Final = _INTEGER | _REAL | _DECIMAL
_KINDS: Final[Mapping[type, int]] = {
    **dict.fromkeys(numbers.INTEGERS, _INTEGER),
    float: _REAL,
    Float: _REAL,
    Decimal: _DECIMAL,
    Char: _CHAR,
    str: _TEXT,
    bool: _BOOLEAN,
    Instant: _INSTANT,
    OffsetInstant: _INSTANT,
    Span: _SPAN,
    uuid.UUID: _GUID,
}
_kind = _KINDS.get

_WORDS: Final[Mapping[int, str]] = {
    **dict.fromkeys((_INTEGER, _REAL), "a number"),
    _DECIMAL: "a decimal",
    _CHAR: "a char",
    _TEXT: "a string",
    _BOOLEAN: "a boolean",
    _INSTANT: "a date",
    _SPAN: "a time span",
    _GUID: "a GUID",
}


def kind_text(value: Value) -> str:
    """Name the kind of a value that is not None, with its article."""
    return _WORDS.get(_kind(type(value), 0), "a value without operators")


def equality_key(value: Any) -> object:
    """Return a dict key: equal values have equal keys, but for a char, which equals its number, too.

    The reverse holds for strings, booleans, instants, spans and GUIDs, not for numbers.
    """
    kind = _kind(type(value))
    if kind == _TEXT:
        return value
    if kind is None:
        return kind, value
    if kind & _NUMBERS:
        return float(value)
    return str(value) if kind == _CHAR else (kind, value)  # separates TRUE from 1, and the subclasses of int


def is_equal_by_key(value: Any) -> bool:
    """Whether every value with the same `equality_key` is equal to this one."""
    return not _kind(type(value), 0) & _NUMBERS


# ---------------------------------------------------------------- comparison

Operator = Callable[[Any, Any], bool]
COMPARISONS: Final[Mapping[str, Operator]] = {
    "=": operator.eq,
    "<>": operator.ne,
    "!=": operator.ne,
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}
_EQUALITY_ONLY: Final = _BOOLEAN | _GUID


def compare(test: Operator, left: Any, right: Any) -> Truth:
    """Compare two values by one of `COMPARISONS`."""
    kind, other = _kind(type(left)), _kind(type(right))
    if kind == other:
        if kind is None or (kind & _EQUALITY_ONLY and test is not operator.eq and test is not operator.ne):
            return None
        return test(left, right)
    if kind is None or other is None:
        return None
    both = kind | other
    if not both & ~_NUMBERS:
        return test(float(left), float(right)) if both & _REAL else test(left, right)
    if both == _CHAR | _TEXT:
        return test(str(left), str(right))
    if both & _CHAR and not both & ~(_CHAR | _NUMBERS):
        return compare(test, *(ord(each) if type(each) is Char else each for each in (left, right)))
    return None


# ---------------------------------------------------------------- arithmetic


def add(left: Value, right: Value) -> Value:
    """Add numbers, a span to a date or a span; concatenate if one side is a string."""
    if type(left) is str or type(right) is str:
        if left is None or right is None or left is OPAQUE or right is OPAQUE:
            return None
        text = to_text(left) + to_text(right)
        if len(text) > TEXT_CHARS_MAX:
            raise FilterException(f"A string of {len(text)} characters is longer than {TEXT_CHARS_MAX}.")
        return text
    result = numbers.calculate(numbers.ADD, left, right)
    if result is None and type(right) is Span:
        if isinstance(left, Instant):
            return _instant(left, left + right)
        if type(left) is Span:
            return _span(left + right)
    return result


def subtract(left: Value, right: Value) -> Value:
    """Difference of numbers, of two dates (a span), of a date or a span and a span."""
    result = numbers.calculate(numbers.SUBTRACT, left, right)
    if result is None and isinstance(left, Instant):
        if isinstance(right, Instant):
            return _span(left - right)
        if type(right) is Span:
            return _instant(left, left - right)
    if result is None and type(left) is Span and type(right) is Span:
        return _span(left - right)
    return result


def multiply(left: Value, right: Value) -> Value:
    """Product of numbers, or of a span and a number that is no decimal."""
    result = numbers.calculate(numbers.MULTIPLY, left, right)
    if result is None:
        span, factor = (left, right) if type(left) is Span else (right, left)
        if type(span) is Span and _converts_to_double(factor):
            return _span_of_ticks(int(span) * numbers.double_of(factor))
    return result


def divide(left: Value, right: Value) -> Value:
    """Quotient of numbers, truncated for integers; of a span and a number a span, of two spans a double."""
    result = numbers.calculate(numbers.DIVIDE, left, right)
    if result is None and type(left) is Span:
        if type(right) is Span:
            return numbers.divide_doubles(float(left), float(right))
        if _converts_to_double(right):
            return _span_of_ticks(numbers.divide_doubles(float(left), numbers.double_of(right)))
    return result


def modulo(left: Value, right: Value) -> Value:
    """Remainder of the division, with the sign of the dividend."""
    return numbers.calculate(numbers.MODULO, left, right)


def negate(value: Value) -> Value:
    """The number or span with the other sign."""
    return _span(-value) if type(value) is Span else numbers.negated(value)


def plus(value: Value) -> Value:
    """The number or span itself; an integer smaller than an int becomes one."""
    return value if type(value) is Span else numbers.promoted(value)


_TOO_LONG: Final = "TimeSpan overflowed because the duration is too long."


def _converts_to_double(value: Value) -> bool:
    """Whether C# converts the value to a double."""
    return type(value) is Char or bool(_kind(type(value), 0) & (_INTEGER | _REAL))


def _span_of_ticks(ticks: float) -> Span:
    if not -(2.0**63) <= ticks < 2.0**63:  # also NaN
        raise FilterException(_TOO_LONG)
    return _span(round(ticks))


def _span(ticks: int) -> Span:
    if ticks not in _INT64:
        raise FilterException(_TOO_LONG)
    return Span(ticks)


def _instant(of: Instant, ticks: int) -> Instant:
    if ticks not in _INSTANTS:
        raise FilterException("The added or subtracted value results in an un-representable DateTime.")
    return type(of)(ticks)


ARITHMETIC: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
}

# ---------------------------------------------------------------- text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_TICK: Final = re.compile(r"\.\d{6}(\d)", re.ASCII)
_DECIMAL_TEXT: Final = re.compile(r"[+-]?(?:\d{1,60}(?:\.\d{0,60})?|\.\d{1,60})", re.ASCII)


def parse_instant(text: str) -> Instant:
    """Parse an ISO 8601 date and time, UTC without a zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    tick = _TICK.search(text)  # Python cuts off behind the microsecond
    return Instant((moment - _EPOCH) // timedelta(microseconds=1) * 10 + (int(tick.group(1)) if tick else 0))


def parse_span(text: str) -> Span:
    """Parse an ISO 8601 duration (`PT1M`) or a .NET TimeSpan (`00:01:00`, `1.02:03:04.5`). Raises ValueError."""
    ticks = durations.parse_span(text)
    if ticks not in _INT64:
        raise ValueError(f"{text!r:.40} is longer than 10675199 days")
    return Span(ticks)


def iso_span(span: Span) -> str:
    """Format a span as an ISO 8601 duration, exact to the tick."""
    sign, ticks = "-" if span < 0 else "", abs(int(span))
    if ticks % TICKS_PER_MS:
        seconds, below = divmod(ticks, 1_000 * TICKS_PER_MS)
        return f"{sign}PT{seconds}.{below:07}S"
    return sign + format_duration(ticks // TICKS_PER_MS)


def parse_decimal(text: str) -> Decimal:
    """Parse a decimal number that a decimal of .NET holds. Raises ValueError."""
    if _DECIMAL_TEXT.fullmatch(text) is None:
        raise ValueError(f"{text!r:.40} is no decimal number")
    try:
        return numbers.fitted(Decimal(text))
    except FilterException as error:
        raise ValueError(str(error)) from None


TEXT_TYPES: Final[Mapping[str, Callable[[str], Value]]] = {
    "dateTime": parse_instant,
    "duration": parse_span,
    "guid": uuid.UUID,
    "long": int,  # also for values that fit an int
    "decimal": parse_decimal,
}
"""Parsers of `TypedText` by XML Schema type; they raise ValueError."""


def to_text(value: Value) -> str:
    """Format a value like .NET in the invariant culture; dates in ISO 8601."""
    match value:
        case Instant():
            try:
                moment = _EPOCH + timedelta(microseconds=value // 10)
            except OverflowError:
                raise FilterException("An instant lies outside the years 1 to 9999.") from None
            tick = str(value % 10) if value % 10 else ""
            text = moment.isoformat(timespec="microseconds").replace("+00:00", f"{tick}Z")
            return text.replace(".000000Z", "Z")
        case Span():
            return _span_text(value)
        case Decimal():
            return format(value, "f")
        case float():
            return _float_text(value)
        case _:
            return str(value)


def _span_text(span: Span) -> str:
    seconds, ticks = divmod(abs(span), 1_000 * TICKS_PER_MS)
    minutes, seconds = divmod(seconds, 60)
    hours, minutes = divmod(minutes, 60)
    days, hours = divmod(hours, 24)
    sign = "-" if span < 0 else ""
    return f"{sign}{f'{days}.' if days else ''}{hours:02}:{minutes:02}:{seconds:02}" + (f".{ticks:07}" if ticks else "")


def _float_text(number: float) -> str:
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if math.isnan(number):
        return "NaN"
    return numbers.real_text(number)
