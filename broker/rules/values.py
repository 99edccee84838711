"""Values of rules: kinds, three-valued truth, comparison and arithmetic as in C# [wire 10.9].

Knows the kinds to which AMQP types map, the operators on each kind, and the text form of values. Does not know messages
and expressions. Pure functions on immutable values.

UNKNOWN and null are one value, `None`; an operation on it is UNKNOWN. Decisions where Service Bus publishes nothing:
integers have 64 bits and wrap around; division of an integer by zero and Int64.MinValue / -1 raise `FilterException`;
doubles follow IEEE 754; an integer with a double becomes a double; `+` with a string concatenates; incompatible kinds
give UNKNOWN.
"""

from __future__ import annotations

import math
import operator
import re
import uuid
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from ...codec.types import Byte, Char, Described, Float, Int, Long, Short, Symbol, Timestamp, Ubyte, Uint, Ulong, Ushort
from ..model.descriptions import PropertyValue, TypedText
from ..model.durations import parse_duration
from .errors import FilterException

TEXT_CHARS_MAX: Final = 32 * 1024
"""Longest string that an expression may build: the size of one property [wire 10.13]."""

Truth = bool | None
"""TRUE, FALSE, and None for UNKNOWN."""


class Instant(int):
    """A point in time: ticks of 100 ns since 1970 UTC."""

    __slots__ = ()


class Span(int):
    """A length of time: ticks of 100 ns."""

    __slots__ = ()


class Opaque:
    """Values without operators: binary, decimals, lists, maps."""

    __slots__ = ()


OPAQUE: Final = Opaque()
Value = bool | int | float | str | uuid.UUID | Opaque | None

TICKS_PER_MS: Final = 10_000
_TICKS_AT_1970: Final = 621_355_968_000_000_000  # .NET counts from the year 1
_INT64_MIN, _INT64_MAX, _UINT64_MAX = -(2**63), 2**63 - 1, 2**64 - 1

# ---------------------------------------------------------------- kinds


def _described(value: Any) -> Value:
    """Convert a described value: .NET sends types that AMQP lacks this way."""
    convert = _DESCRIBED.get(value.descriptor) if isinstance(value.descriptor, Symbol) else None
    return convert(value.value) if convert is not None else OPAQUE


_DESCRIBED: Final[Mapping[str, Callable[[Any], Value]]] = {
    "com.microsoft:timespan": lambda ticks: Span(ticks) if isinstance(ticks, int) else OPAQUE,
    "com.microsoft:datetime-offset": lambda ticks: (
        Instant(ticks - _TICKS_AT_1970) if isinstance(ticks, int) else OPAQUE
    ),
    "com.microsoft:uri": lambda text: str(text) if isinstance(text, str) else OPAQUE,
}


def _same(value: Any) -> Value:
    same: Value = value
    return same


_NORMALISERS: Final[Mapping[type[Any], Callable[[Any], Value]]] = {
    **dict.fromkeys((type(None), bool, int, float, str, uuid.UUID, Instant, Span), _same),
    **dict.fromkeys((Byte, Short, Int, Long, Ubyte, Ushort, Uint, Ulong), int),
    **dict.fromkeys((Symbol, Char), str),
    Float: float,
    Timestamp: lambda ms: Instant(ms * TICKS_PER_MS),
    Described: _described,
}


def normalise(raw: Any) -> Value:
    """Convert a decoded AMQP value to one of the exact types of this module."""
    convert = _NORMALISERS.get(type(raw))
    return OPAQUE if convert is None else convert(raw)


def to_amqp(value: Value) -> object:
    """Convert a computed value to AMQP; integers become longs."""
    if isinstance(value, Instant):
        return Timestamp(value // TICKS_PER_MS)
    if isinstance(value, Span):
        return Described(Symbol("com.microsoft:timespan"), Long(value))
    return value


def from_description(value: PropertyValue) -> Value:
    """Convert the value of a parameter or a filter property. Raises ValueError."""
    if isinstance(value, TypedText):
        read = TEXT_TYPES.get(value.type)
        if read is None:
            raise ValueError(f"values of type {value.type!r:.40} cannot be compared")
        return _in_64_bits(read(value.text))
    return _in_64_bits(value)


def _in_64_bits(value: Value) -> Value:
    if isinstance(value, int) and not _INT64_MIN <= value <= _UINT64_MAX:
        raise ValueError(f"{str(value)[:30]} does not fit 64 bits")
    return value


_NUMBER, _TEXT, _BOOLEAN, _INSTANT, _SPAN, _GUID = range(1, 7)
_KINDS: Final[Mapping[type, int]] = {
    int: _NUMBER,
    float: _NUMBER,
    str: _TEXT,
    bool: _BOOLEAN,
    Instant: _INSTANT,
    Span: _SPAN,
    uuid.UUID: _GUID,
}
_kind = _KINDS.get


def equality_key(value: Any) -> object:
    """Return a dict key: equal values have equal keys.

    The reverse holds for strings, booleans, instants, spans and GUIDs, not for numbers.
    """
    kind = _kind(type(value))
    if kind == _TEXT:
        return value
    if kind == _NUMBER:
        return float(value)
    return type(value), value  # separates TRUE from 1, and the subclasses of int from both


def keys_decide(value: Any) -> bool:
    """Whether every value with the same `equality_key` is equal to this one."""
    return type(value) is not int and type(value) is not float


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
_EQUALITY_ONLY: Final = (_BOOLEAN, _GUID)


def compare(test: Operator, left: Any, right: Any) -> Truth:
    """Compare two values by one of `COMPARISONS`."""
    kind = _kind(type(left))
    if kind is None or kind != _kind(type(right)):
        return None
    if kind == _NUMBER and type(left) is not type(right):
        return test(float(left), float(right))
    if kind in _EQUALITY_ONLY and test is not operator.eq and test is not operator.ne:
        return None
    return test(left, right)


# ---------------------------------------------------------------- arithmetic


def wrapped(number: int) -> int:
    """Wrap `number` to a signed 64-bit integer."""
    return ((number + 2**63) & _UINT64_MAX) - 2**63


def add(left: Value, right: Value) -> Value:
    """Add numbers; concatenate if one side is a string."""
    if isinstance(left, str) or isinstance(right, str):
        if left is None or right is None or left is OPAQUE or right is OPAQUE:
            return None
        text = to_text(left) + to_text(right)
        if len(text) > TEXT_CHARS_MAX:
            raise FilterException(f"A string of {len(text)} characters is longer than {TEXT_CHARS_MAX}.")
        return text
    return _numeric(left, right, operator.add, operator.add)


def subtract(left: Value, right: Value) -> Value:
    """Difference of numbers."""
    return _numeric(left, right, operator.sub, operator.sub)


def multiply(left: Value, right: Value) -> Value:
    """Product of numbers."""
    return _numeric(left, right, operator.mul, operator.mul)


def divide(left: Value, right: Value) -> Value:
    """Quotient of numbers; for integers truncated towards zero."""
    return _numeric(left, right, _divide_integers, _divide_doubles)


def modulo(left: Value, right: Value) -> Value:
    """Remainder of the division, with the sign of the dividend."""
    return _numeric(left, right, _modulo_integers, _modulo_doubles)


def negate(value: Value) -> Value:
    """The number with the other sign."""
    return subtract(0, value) if type(value) is int else -value if type(value) is float else None


def _numeric(left: Any, right: Any, integers: Callable[[Any, Any], Any], doubles: Callable[[Any, Any], Any]) -> Value:
    if _kind(type(left)) != _NUMBER or _kind(type(right)) != _NUMBER:
        return None
    if type(left) is int and type(right) is int:
        return wrapped(integers(left, right))
    result: float = doubles(float(left), float(right))
    return result


def _divide_integers(left: int, right: int) -> int:
    if right == 0:
        raise FilterException("Attempted to divide by zero.")
    if left == _INT64_MIN and right == -1:
        raise FilterException("Arithmetic operation resulted in an overflow.")
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo_integers(left: int, right: int) -> int:
    return left - right * _divide_integers(left, right)


def _divide_doubles(left: float, right: float) -> float:
    if right:
        return left / right
    if math.isnan(left) or math.isnan(right) or not left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _modulo_doubles(left: float, right: float) -> float:
    return math.fmod(left, right) if right and math.isfinite(left) else math.nan


ARITHMETIC: Final[Mapping[str, Callable[[Value, Value], Value]]] = {
    "+": add,
    "-": subtract,
    "*": multiply,
    "/": divide,
    "%": modulo,
}

# ---------------------------------------------------------------- text

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_CLOCK_SPAN: Final = re.compile(
    r"(?P<sign>-?)(?:(?P<days>\d{1,8})\.)?(?P<hours>\d{1,2}):(?P<minutes>\d{1,2})"
    r"(?::(?P<seconds>\d{1,2})(?:\.(?P<fraction>\d{1,7}))?)?",
    re.ASCII,
)


def parse_instant(text: str) -> Instant:
    """Parse an ISO 8601 date and time, UTC without a zone. Raises ValueError."""
    moment = datetime.fromisoformat(text)
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return Instant((moment - _EPOCH) // timedelta(microseconds=1) * 10)


def parse_span(text: str) -> Span:
    """Parse an ISO 8601 duration (`PT1M`) or a .NET TimeSpan (`00:01:00`, `1.02:03:04.5`). Raises ValueError."""
    match = _CLOCK_SPAN.fullmatch(text)
    if match is None:
        return Span(parse_duration(text) * TICKS_PER_MS)
    days, hours, minutes, seconds = (int(match.group(unit) or 0) for unit in ("days", "hours", "minutes", "seconds"))
    ticks = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1_000 * TICKS_PER_MS
    ticks += int((match.group("fraction") or "0").ljust(7, "0"))
    return Span(-ticks if match.group("sign") else ticks)


TEXT_TYPES: Final[Mapping[str, Callable[[str], Value]]] = {
    "dateTime": parse_instant,
    "duration": parse_span,
    "guid": uuid.UUID,
    "long": int,  # also for values that fit an int
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
            return moment.isoformat(timespec="microseconds").replace("+00:00", "Z").replace(".000000", "")
        case Span():
            return _span_text(value)
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
    text = repr(number)
    return "NaN" if math.isnan(number) else text.removesuffix(".0").upper()
