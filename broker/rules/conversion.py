"""Type conversion by SET [wire 10.9].

Knows the types of system properties, and converts a value to the type of the property that it replaces. If the
conversion would lose data, an application property gets the type of the value, and a system property raises
`FilterException`. Pure.
"""

from __future__ import annotations

import math
import uuid
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Final

from ...codec import decimals
from ...codec.types import (
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
from ..message.bounds import IDENTIFIER_CHARS_MAX
from .errors import FilterException
from .names import Kind, SystemProperty
from .numbers import INTEGERS
from .values import (
    DATE_TIME_OFFSET,
    OPAQUE,
    TIME_SPAN,
    URI,
    Instant,
    OffsetInstant,
    Span,
    Value,
    parse_decimal,
    parse_instant,
    parse_span,
    to_amqp,
    to_text,
)

_IDENTIFIERS: Final = frozenset({"MessageId", "SessionId", "PartitionKey", "ViaPartitionKey"})
_FLOAT_MAX: Final = 3.4028234663852886e38
_INTEGER_CHARS_MAX: Final = 20
_BOOLEANS: Final[Mapping[str, bool]] = {"true": True, "false": False}


def system_value(known: SystemProperty, value: Value) -> Value:
    """Convert a value for a system property; None clears it. Raises FilterException."""
    if value is None:
        return None
    try:
        converted = _SYSTEM[known.kind](value)
    except ValueError as error:
        raise FilterException(f"SET sys.{known.name}: {error}") from None
    if known.name in _IDENTIFIERS and isinstance(converted, str) and len(converted) > IDENTIFIER_CHARS_MAX:
        raise FilterException(f"SET sys.{known.name}: {len(converted)} characters are more than {IDENTIFIER_CHARS_MAX}")
    return converted


def _text(value: Value) -> str:
    if value is OPAQUE:
        raise ValueError("this value has no text")
    text = to_text(value)
    text.encode()  # refuses lone surrogates
    return text


def _symbol(value: Value) -> str:
    text = _text(value)
    if not text.isascii():
        raise ValueError(f"{text!r:.40} is not ASCII")
    return text


def _span(value: Value) -> Span:
    span = parse_span(value) if isinstance(value, str) else value
    if not isinstance(span, Span) or span <= 0:
        raise ValueError(f"{'a value' if value is OPAQUE else to_text(value)!r:.40} is no time span above zero")
    return span


def _boolean(value: Value) -> bool:
    if isinstance(value, str):
        value = _BOOLEANS.get(value.strip().lower(), value)
    if not isinstance(value, bool):
        raise ValueError("the value is no boolean")
    return value


_SYSTEM: Final[Mapping[Kind, Callable[[Value], Value]]] = {
    Kind.TEXT: _text,
    Kind.SYMBOL: _symbol,
    Kind.SPAN: _span,
    Kind.BOOLEAN: _boolean,
}

# ---------------------------------------------------------------- application properties


def user_value(value: Value, raw: object, replaced: object) -> object:
    """Convert a value for an application property, to the type of `replaced` if that loses no data.

    `raw` is the AMQP value copied from another property, None for a computed one; `replaced` is the old value or None.
    `value` is not None. Raises FilterException for a list, map or binary that was not copied from a property.
    """
    convert = _DESCRIBED.get(replaced.descriptor) if isinstance(replaced, Described) else _USER.get(type(replaced))
    if convert is not None and value is not OPAQUE:
        try:
            return convert(value)
        except ValueError:
            pass
    if raw is not None:
        return raw
    if value is OPAQUE:
        raise FilterException("SET: a list, a map or a binary value can't be computed")
    return to_amqp(value)


def _integer_converter(make: Callable[[int], int], bits: int, *, signed: bool) -> Callable[[Value], int]:
    allowed = range(-(2 ** (bits - 1)), 2 ** (bits - 1)) if signed else range(2**bits)

    def convert(value: Value) -> int:
        if isinstance(value, str):
            value = int(value) if len(value) <= _INTEGER_CHARS_MAX and "_" not in value else value
        elif (isinstance(value, float) and value.is_integer()) or (
            type(value) is Decimal and value == value.to_integral_value() and value.adjusted() < _INTEGER_CHARS_MAX
        ):
            value = int(value)
        elif type(value) in INTEGERS:
            value = int(value)  # type: ignore[arg-type]
        if type(value) is not int or value not in allowed:
            raise ValueError("not an integer of this width")
        return make(value)

    return convert


def _double(value: Value) -> float:
    if type(value) is Decimal:
        if Decimal(repr(float(value))) != value:
            raise ValueError("not a double without a loss")
        return float(value)
    if isinstance(value, bool | Instant | Span) or not isinstance(value, int | float | str):
        raise ValueError("not a number")
    if isinstance(value, str) and "_" in value:
        raise ValueError("not a number")
    return float(value)


def _float(value: Value) -> Float:
    number = _double(value)
    if math.isfinite(number) and abs(number) > _FLOAT_MAX:
        raise ValueError("too large for a float")
    return Float(number)


def _decimal(make: Callable[[bytes], bytes], width: int) -> Callable[[Value], bytes]:
    def convert(value: Value) -> bytes:
        if isinstance(value, str):
            value = parse_decimal(value)
        elif isinstance(value, float) and math.isfinite(value):
            value = Decimal(f"{value:.15g}")  # a double has 15 sure digits; C# takes as many
        elif type(value) in INTEGERS:
            value = Decimal(int(value))  # type: ignore[arg-type]
        if type(value) is not Decimal:
            raise ValueError("not a decimal")
        return make(decimals.from_text(str(value), width))

    return convert


def _char(value: Value) -> Char:
    text = _text(value)
    if len(text) != 1:
        raise ValueError("not one character")
    return Char(text)


def _instant_of(value: Value) -> Instant:
    instant = parse_instant(value) if isinstance(value, str) else value
    if not isinstance(instant, Instant):
        raise ValueError("not an instant")
    return instant


def _timestamp(value: Value) -> object:
    return to_amqp(Instant(_instant_of(value)))


def _date_time_offset(value: Value) -> object:
    return to_amqp(OffsetInstant(_instant_of(value)))


def _guid(value: Value) -> uuid.UUID:
    return value if isinstance(value, uuid.UUID) else uuid.UUID(_text(value))


def _time_span(value: Value) -> object:
    span = parse_span(value) if isinstance(value, str) else value
    if not isinstance(span, Span):
        raise ValueError("not a time span")
    return to_amqp(span)


def _uri(value: Value) -> object:
    if type(value) is not str:
        raise ValueError("not a string")
    return Described(Symbol(URI), value)


_DESCRIBED: Final[Mapping[object, Callable[[Value], object]]] = {
    Symbol(TIME_SPAN): _time_span,
    Symbol(DATE_TIME_OFFSET): _date_time_offset,
    Symbol(URI): _uri,
}
"""By descriptor, for what .NET describes."""


_USER: Final[Mapping[type, Callable[[Value], object]]] = {
    str: _text,
    Symbol: lambda value: Symbol(_symbol(value)),
    Char: _char,
    bool: _boolean,
    Byte: _integer_converter(Byte, 8, signed=True),
    Short: _integer_converter(Short, 16, signed=True),
    Int: _integer_converter(Int, 32, signed=True),
    Long: _integer_converter(Long, 64, signed=True),
    int: _integer_converter(int, 64, signed=True),
    Ubyte: _integer_converter(Ubyte, 8, signed=False),
    Ushort: _integer_converter(Ushort, 16, signed=False),
    Uint: _integer_converter(Uint, 32, signed=False),
    Ulong: _integer_converter(Ulong, 64, signed=False),
    float: _double,
    Float: _float,
    Decimal32: _decimal(Decimal32, 4),
    Decimal64: _decimal(Decimal64, 8),
    Decimal128: _decimal(Decimal128, 16),
    Timestamp: _timestamp,
    uuid.UUID: _guid,
}
