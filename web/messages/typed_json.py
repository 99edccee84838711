"""AMQP values as JSON that keeps their types, and back [AMQP 1.6].

null, true, false, strings and lists stand for themselves. Every other value is `{"type", "value"}`: numbers by their
names (`int`, `timestamp`), `binary` and decimals in base64, a `map` as pairs, an `array` with the `code` of its
constructor and its descriptor, a `described` value with its descriptor. Whole numbers that a double can't hold, and
NaN, are strings. A plain number is read as a long or a double. Pure.
"""

from __future__ import annotations

import base64
import math
import uuid
from collections.abc import Callable, Iterable, Mapping
from typing import Final

from ...codec.decode import NESTING_MAX
from ...codec.types import (
    TYPE_NAMES,
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

_EXACT_MAX: Final = (1 << 53) - 1
"""Largest whole number that every reader of JSON keeps."""

_INTEGERS: Final[Mapping[str, type[int]]] = {
    TYPE_NAMES[kind]: kind for kind in (Ubyte, Ushort, Uint, Ulong, Byte, Short, Int, Long, Timestamp)
}
_BYTES: Final[Mapping[str, type[bytes]]] = {
    TYPE_NAMES[kind]: kind for kind in (bytes, Decimal32, Decimal64, Decimal128)
}


def to_json(value: object) -> object:
    """An AMQP value, as `decode_exactly` gives it, as JSON."""
    match value:
        case None | bool():
            return value
        case Symbol() | Char():
            found: object = str.__str__(value)
        case str():
            return value
        case list():
            return [to_json(each) for each in value]
        case float():
            found = float(value) if math.isfinite(value) else str(float(value))
        case int():
            found = int(value) if abs(value) <= _EXACT_MAX else str(int(value))
        case uuid.UUID():
            found = str(value)
        case bytes():
            found = base64.b64encode(value).decode("ascii")
        case MapItems():
            found = [[to_json(key), to_json(each)] for key, each in value]
        case Array():
            more = {} if value.descriptor is None else {"descriptor": to_json(value.descriptor)}
            items = [to_json(each) for each in value.values]
            return {"type": "array", "code": value.type_code, **more, "value": items}
        case Described():
            return {"type": "described", "descriptor": to_json(value.descriptor), "value": to_json(value.value)}
        case _:
            raise TypeError(f"AMQP has no type for {type(value).__name__}")
    return {"type": TYPE_NAMES[type(value)], "value": found}


def from_json(value: object, depth: int = 0) -> object:
    """The AMQP value that `to_json` has written. Raises ValueError for anything else."""
    if depth > NESTING_MAX:
        raise ValueError(f"values are nested more than {NESTING_MAX} deep")
    match value:
        case None | bool() | str() | float():
            return value
        case int():
            return Long(value)
        case list():
            return [from_json(each, depth + 1) for each in value]
        case {"type": str(name), "value": of, **more}:
            if more and name not in ("array", "described"):
                raise ValueError(f"a value of type '{name[:40]}' has a type and a value only")
            return _typed(name, of, {str(key): each for key, each in more.items()}, depth + 1)
        case _:
            raise ValueError("a value is null, true, false, a number, a text, a list, or has a type and a value")


def _typed(name: str, of: object, more: Mapping[str, object], depth: int) -> object:
    try:
        if name in _INTEGERS:
            return _INTEGERS[name](_whole(of))
        if name in _BYTES:
            return _BYTES[name](base64.b64decode(_text(of), validate=True))
        if name == "map":
            return MapItems((from_json(key, depth), from_json(each, depth)) for key, each in map(_items, _items(of)))
        if name == "array":
            values = tuple(from_json(each, depth) for each in _items(of))
            return Array(_whole(more["code"]), values, from_json(more.get("descriptor"), depth))
        if name == "described":
            return Described(from_json(more["descriptor"], depth), from_json(of, depth))
        return _SIMPLE[name](of)
    except (TypeError, KeyError, AttributeError, ValueError):
        raise ValueError(f"the value of type '{name[:40]}' is not as such a value is written") from None


def _whole(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, int | str):
        raise TypeError
    return int(value)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise TypeError
    return value


def _number(value: object) -> float:
    """A number, which may be a text: NaN is."""
    if not isinstance(value, int | float | str):
        raise TypeError
    return float(value)


def _items(value: object) -> Iterable[object]:
    if not isinstance(value, Iterable):
        raise TypeError
    return value


_SIMPLE: Final[Mapping[str, Callable[[object], object]]] = {
    "string": _text,
    "symbol": lambda value: Symbol(_text(value)),
    "char": lambda value: Char(_text(value)),
    "float": lambda value: Float(_number(value)),
    "double": _number,
    "uuid": lambda value: uuid.UUID(_text(value)),
}
