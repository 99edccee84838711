"""AMQP values as text, as JSON that keeps their types, and as plain JSON: application properties and odd bodies.

*Text* (applicationPropertiesFormat=text) is what a reader expects to see; the type is lost. *Typed JSON* (=json) is the
compact form of `codec/json_values.py`: string, boolean, long, double and null are "x", true, 5, 5.0, null, and every
other type is an object with one member named by it, such as {"int":5}. *Plain JSON* is for bodies that are no bytes:
types are lost, maps are objects. Values are those of `codec.types`, as `codec.decode_exactly` gives them. Does not know
messages and columns. Pure functions.
"""

from __future__ import annotations

import json
import math
import uuid
from base64 import b64encode
from collections.abc import Callable
from struct import Struct
from typing import Any, Final

from ...codec import decimals, json_values
from ...codec.decode import NESTING_MAX
from ...codec.encode import encode
from ...codec.json_values import INSTANT_MS_MIN, compact, float_text, instant_text
from ...codec.types import (
    Array,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Long,
    MapItems,
    Symbol,
    Timestamp,
)

__all__ = [
    "JSON_AT_ONCE",
    "TEXT_AT_ONCE",
    "encoded_from_json",
    "float_text",
    "from_json",
    "instant_text",
    "json_string",
    "plain_json",
    "text",
    "typed_json",
]

_TICKS_PER_MS: Final = 10_000
_LONGS: Final = (int, Long)
_DECIMALS: Final = (Decimal32, Decimal64, Decimal128)

json_string: Final = json.encoder.encode_basestring
"""The JSON of a text, which is its `typed_json`."""


def _dumps(tree: object) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


# --- Text and plain JSON -----------------------------------------------------------------------------


def text(value: object) -> str | None:
    """Return the value as text: numbers in decimal, instants in ISO 8601, binary in base64, collections as JSON."""
    if value is None:
        return None
    if isinstance(value, Described):
        return _described_text(value)
    tree = _json_value(value)
    return tree if isinstance(tree, str) else _dumps(tree)


def _described_text(described: Described) -> str | None:
    """What .NET's SDK writes beyond AMQP's types: instants and spans in ticks of 100 ns [wire 4.3]."""
    kind, value = described.descriptor, described.value
    if isinstance(value, int) and type(value) in _LONGS:
        if kind == "com.microsoft:datetime-offset":
            return instant_text(value // _TICKS_PER_MS + INSTANT_MS_MIN)
        if kind == "com.microsoft:timespan":
            sign = "-" if value < 0 else ""
            seconds, ticks = divmod(abs(value), 10_000_000)
            days, seconds = divmod(seconds, 86_400)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            return sign + (f"{days}." if days else "") + clock + (f".{ticks:07}" if ticks else "")
    return text(value)


def plain_json(value: object) -> str:
    """Return the value as JSON without AMQP's types; what JSON has no form for becomes a string as `text` gives it."""
    return _dumps(_json_value(value))


def _json_value(value: object) -> object:
    plainer = _PLAIN.get(type(value))
    return value if plainer is None else plainer(value)


def _finite_or_text(number: float) -> object:
    return number if math.isfinite(number) else float_text(number)


def _finite_single_or_text(number: float) -> object:
    short = float_text(number, single=True)
    return float(short) if math.isfinite(number) else short


_PLAIN: Final[dict[type, Callable[[Any], object]]] = {
    Symbol: str,
    Char: str,
    Float: _finite_single_or_text,
    float: _finite_or_text,
    **dict.fromkeys(_DECIMALS, decimals.to_text),
    Timestamp: instant_text,
    uuid.UUID: str,
    bytes: lambda octets: b64encode(octets).decode(),
    list: lambda items: [_json_value(item) for item in items],
    MapItems: lambda entries: {text(key) or "": _json_value(item) for key, item in entries},
    Array: lambda array: [_json_value(item) for item in array.values],
    Described: lambda it: _described_text(it) if type(it.value) in _LONGS else _json_value(it.value),
}


# --- JSON that keeps the types -----------------------------------------------------------------------


def typed_json(value: object) -> str:
    """Return the value as JSON from which `from_json` makes it again."""
    return _dumps(compact(value))


def from_json(source: str | bytes) -> object:
    """Return the value that typed JSON stands for, in one of the forms that `codec/json_values.py` reads.

    Raises ValueError if it stands for none. Whether a number is in the range of its type is for `encode` to say.
    """
    try:
        tree = json.loads(source)
    except RecursionError:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}") from None
    return json_values.from_json(tree)


# --- The usual values of fixed width, straight from their bytes ---------------------------------------------

_AtOnce = dict[int, tuple[int, Callable[[bytes, int], str | None]]]
_i8, _i32, _i64, _f64 = (Struct(layout).unpack_from for layout in (">b", ">i", ">q", ">d"))

_IN_BOTH: Final[_AtOnce] = {
    0x41: (1, lambda _data, _pos: "true"),
    0x42: (1, lambda _data, _pos: "false"),
    0x55: (2, lambda data, pos: str(_i8(data, pos + 1)[0])),
    0x81: (9, lambda data, pos: str(_i64(data, pos + 1)[0])),
}
TEXT_AT_ONCE: Final[_AtOnce] = {
    **_IN_BOTH,
    0x40: (1, lambda _data, _pos: None),
    0x54: (2, lambda data, pos: str(_i8(data, pos + 1)[0])),
    0x71: (5, lambda data, pos: str(_i32(data, pos + 1)[0])),
    0x82: (9, lambda data, pos: float_text(_f64(data, pos + 1)[0])),
    0x83: (9, lambda data, pos: instant_text(_i64(data, pos + 1)[0])),
}
"""By constructor: the width of the value with it, and its text as `text` gives it."""
JSON_AT_ONCE: Final[_AtOnce] = {
    **_IN_BOTH,
    0x40: (1, lambda _data, _pos: "null"),
    0x54: (2, lambda data, pos: f'{{"int":{_i8(data, pos + 1)[0]}}}'),
    0x71: (5, lambda data, pos: f'{{"int":{_i32(data, pos + 1)[0]}}}'),
    0x83: (9, lambda data, pos: typed_json(Timestamp(_i64(data, pos + 1)[0]))),
}
"""By constructor: the width of the value with it, and its JSON as `typed_json` gives it."""


def encoded_from_json(source: str | bytes) -> bytes:
    """Return the encoding of the value that typed JSON stands for. Raises ValueError if it stands for none."""
    return encode(from_json(source))
