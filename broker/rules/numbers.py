"""Numbers of rules: promotion, arithmetic and rounding as in C# [wire 10.9].

Knows the kinds of numbers, which are the types of the codec, `int` (a long), `float` (a double) and `Decimal`. Does not
know other values. Pure functions.

The page of SQL filters says that operators follow C# [SB: service-bus-messaging-sql-filter]; C#'s rules are ECMA-334,
12.4.7 (promotion) and 12.10 (arithmetic). Where C# has no operator, a number is still a number here: a decimal with a
float or double is calculated as double, a ulong with a signed integer as an exact integer. Integers wrap around.
"""

from __future__ import annotations

import math
import operator
import struct
from collections.abc import Callable, Mapping
from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from ...codec.types import Byte, Char, Float, Int, Long, Short, Ubyte, Uint, Ulong, Ushort
from ..lazy_dataclass import dataclass
from .errors import FilterException

Number = int | float | Decimal
INTEGERS: Final = (Byte, Ubyte, Short, Ushort, Int, Uint, Long, int, Ulong)
"""The types of integers; a char is calculated with as one, too."""

_PLACES_MAX: Final = 28  # of a decimal of .NET, whose significand has 96 bits
_SIGNIFICAND_MAX: Final = 2**96 - 1
_PLAIN_MIN, _PLAIN_SINGLE_MAX, _PLAIN_MAX = -4, 8, 16  # powers of ten that .NET writes without an exponent
_WIDE: Final = Context(prec=80, rounding=ROUND_HALF_EVEN, traps=[])
_single: Final = struct.Struct("<f")

# ---------------------------------------------------------------- promotion


class _Mixed:
    """A ulong and a signed integer: a ulong if the result is one, otherwise a long."""


def _promotion(left: type, right: type) -> type:
    kinds = {left, right}
    if Decimal in kinds:
        return float if kinds & {float, Float} else Decimal
    if float in kinds:
        return float
    if Float in kinds:
        return Float
    if Ulong in kinds:
        return _Mixed if kinds & {Byte, Short, Int, Long, int} else Ulong
    if kinds & {int, Long}:
        return int
    if Uint in kinds:
        return int if kinds & {Byte, Short, Int} else Uint
    return Int


_OPERANDS: Final = (*INTEGERS, Char, Float, float, Decimal)
_PROMOTIONS: Final[Mapping[tuple[type, type], type]] = {
    (left, right): _promotion(left, right) for left in _OPERANDS for right in _OPERANDS
}
_LONG_MIN, _LONG_MAX = -(2**63), 2**63 - 1
_RANGES: Final[Mapping[type, range]] = {
    Int: range(-(2**31), 2**31),
    Uint: range(2**32),
    int: range(-(2**63), 2**63),
    Ulong: range(2**64),
    _Mixed: range(-(2**63), 2**64),
}
_MAKE: Final[Mapping[type, Callable[[int], int]]] = {Int: Int, Uint: Uint, int: int, Ulong: Ulong}


def integer_of(value: Any) -> int:
    """Return the plain `int` of an integer or of a char."""
    return ord(value) if type(value) is Char else int(value)


def double_of(value: Any) -> float:
    """Return the double of a number or of a char."""
    return float(ord(value)) if type(value) is Char else float(value)


def single(value: float) -> Float:
    """Round to binary32; what is too large becomes infinite."""
    try:
        return Float(_single.unpack(_single.pack(value))[0])
    except OverflowError:
        return Float(math.copysign(math.inf, value))


def real_text(value: float) -> str:
    """Return the shortest text that gives the same finite float or double, laid out as .NET does."""
    is_single = type(value) is Float
    shortest = repr(float(value))
    if is_single:
        texts = (f"{float(value):.{digits}g}" for digits in range(1, 9))
        shortest = next((text for text in texts if single(float(text)) == value), f"{float(value):.9g}")
    number = Decimal(shortest)
    exponent = number.adjusted()
    if not number or _PLAIN_MIN <= exponent <= (_PLAIN_SINGLE_MAX if is_single else _PLAIN_MAX):
        text = format(number, "f")
        return text.rstrip("0").rstrip(".") if "." in text else text
    return f"{number.normalize().scaleb(-exponent):f}E{exponent:+03d}"


def _wrapped_integer(value: int, kind: type) -> int:
    """Return an integer of `kind`, wrapped around if it does not fit."""
    if kind is _Mixed:
        kind = Ulong if 0 <= value < 2**64 else int
    allowed = _RANGES[kind]
    if value not in allowed:
        value = (value - allowed.start) % (allowed.stop - allowed.start) + allowed.start  # `len` has 63 bits only
    return _MAKE[kind](value)


def fitted(value: Decimal) -> Decimal:
    """Round to what a decimal of .NET holds: 96 bits, at most 28 places, half to even. Raises FilterException."""
    _, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and -_PLACES_MAX <= exponent <= 0 and len(digits) <= _PLACES_MAX:
        return value
    if value.is_finite() and value.adjusted() <= _PLACES_MAX:
        for places in range(min(max(-int(exponent), 0), _PLACES_MAX), -1, -1):
            rounded = value.quantize(Decimal(1).scaleb(-places), context=_WIDE)
            if abs(int(rounded.scaleb(places, context=_WIDE))) <= _SIGNIFICAND_MAX:
                return rounded
    raise FilterException("Value was either too large or too small for a Decimal.")


# ---------------------------------------------------------------- operators


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Operation:
    """An arithmetic operator on each kind of number; a division has results that no integer holds."""

    integers: Callable[[int, int], int]
    doubles: Callable[[float, float], float]
    decimals: Callable[[Decimal, Decimal], Decimal]
    divides: bool = False


def calculate(operation: Operation, left: Any, right: Any) -> Number | None:
    """Apply an operator to two numbers or chars, None if one is neither. Raises FilterException."""
    kind = _PROMOTIONS.get((type(left), type(right)))
    if kind is int and not operation.divides and type(left) is not Char and type(right) is not Char:
        result: int = operation.integers(left, right)  # the usual one
        if _LONG_MIN <= result <= _LONG_MAX:
            return result
    if kind is None:
        return None
    if kind is float:
        return operation.doubles(double_of(left), double_of(right))
    if kind is Decimal:
        first, second = (each if type(each) is Decimal else Decimal(integer_of(each)) for each in (left, right))
        if operation.divides and not second:
            raise FilterException("Attempted to divide by zero.")
        return fitted(operation.decimals(first, second))
    if kind is Float:
        return single(operation.doubles(single(double_of(left)), single(double_of(right))))
    first_int, second_int = integer_of(left), integer_of(right)
    if operation.divides:
        if second_int == 0:
            raise FilterException("Attempted to divide by zero.")
        if second_int == -1 and first_int == _RANGES[kind].start:
            raise FilterException("Arithmetic operation resulted in an overflow.")
    return _wrapped_integer(operation.integers(first_int, second_int), kind)


def negated(value: Any) -> Number | None:
    """The number with the other sign, None for what is no number; a uint becomes a long, a smaller integer an int."""
    kind = type(value)
    if kind is float:
        return -float(value)
    if kind is Float:
        return Float(-value)
    if kind is Decimal:
        return value.copy_negate() if value else Decimal(value)
    if kind not in INTEGERS and kind is not Char:
        return None
    return _wrapped_integer(-integer_of(value), int if kind in (Uint, Ulong, Long, int) else Int)


def promoted(value: Any) -> Number | None:
    """The number as unary plus gives it: an integer smaller than an int becomes an int."""
    kind = type(value)
    if kind in (float, Float, Decimal, Uint, Ulong, int):
        return value  # type: ignore[no-any-return]
    if kind not in INTEGERS and kind is not Char:
        return None
    return _wrapped_integer(integer_of(value), int if kind is Long else Int)


def _divide_integers(left: int, right: int) -> int:
    quotient = abs(left) // abs(right)
    return quotient if (left < 0) == (right < 0) else -quotient


def _modulo_integers(left: int, right: int) -> int:
    return left - right * _divide_integers(left, right)


def divide_doubles(left: float, right: float) -> float:
    """The quotient by IEEE 754."""
    if right:
        return left / right
    if math.isnan(left) or math.isnan(right) or not left:
        return math.nan
    return math.copysign(math.inf, left) * math.copysign(1.0, right)


def _modulo_doubles(left: float, right: float) -> float:
    return math.fmod(left, right) if right and math.isfinite(left) else math.nan


ADD: Final = Operation(operator.add, operator.add, _WIDE.add)
SUBTRACT: Final = Operation(operator.sub, operator.sub, _WIDE.subtract)
MULTIPLY: Final = Operation(operator.mul, operator.mul, _WIDE.multiply)
DIVIDE: Final = Operation(_divide_integers, divide_doubles, _WIDE.divide, divides=True)
MODULO: Final = Operation(_modulo_integers, _modulo_doubles, _WIDE.remainder, divides=True)
