"""AMQP values as text, as JSON that keeps their types, and as plain JSON: application properties and odd bodies.

*Text* (applicationPropertiesFormat=text) is what a reader expects to see; the type is lost. *Typed JSON* (=json) has
string, boolean, long, double and null as "x", true, 5, 5.0, null. Every other type is an object with one member named
by it: {"int":5}, {"uuid":"…"}, {"timestamp":"2026-01-01T00:00:00.000Z"}, {"binary":"<base64>"}, {"decimal128":"1.10"},
{"list":[…]}, {"map":[[key,value],…]}, {"array":["int",[{"int":1}],descriptor]}, {"described":[descriptor,value]};
`from_json` gives back the very value. *Plain JSON* is for bodies that are no bytes: types are lost, maps are objects.
Does not know messages and columns. Pure functions.
"""

from __future__ import annotations

import json
import math
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Any, Final

from .values import NESTING_MAX, NULL, Elements, Value, i64, write

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

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_INSTANT_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01
_INSTANT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of 9999
_TICKS_PER_MS: Final = 10_000
_f32: Final = Struct(">f")
_INTEGERS: Final = ("ubyte", "byte", "ushort", "short", "uint", "int", "ulong", "long")


def instant_text(at_ms: int) -> str:
    """Return an instant in Unix milliseconds as ISO 8601 in UTC; outside the years 1 to 9999 as the bare number."""
    if not _INSTANT_MS_MIN <= at_ms <= _INSTANT_MS_MAX:
        return str(at_ms)
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _instant(told: object) -> int:
    if isinstance(told, int) and not isinstance(told, bool):
        return told
    at = datetime.fromisoformat(_is_text(told))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return (at - _EPOCH) // timedelta(milliseconds=1)


def float_text(number: float, *, single: bool = False) -> str:
    """Return the shortest text that reads back as the same number; `single` for AMQP's float, which has 32 bits."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if single:
        for digits in range(6, 10):
            short = float(f"{number:.{digits}g}")
            if abs(short) <= 3.4028235677973366e38 and _f32.unpack(_f32.pack(short))[0] == number:
                return repr(short)
    return repr(number)


json_string: Final = json.encoder.encode_basestring
"""The JSON of a text, which is its `typed_json`."""


def _dumps(tree: object) -> str:
    return json.dumps(tree, ensure_ascii=False, separators=(",", ":"))


# --- Text and plain JSON -----------------------------------------------------------------------------


def text(value: Value) -> str | None:
    """Return the value as text: numbers in decimal, instants in ISO 8601, binary in base64, collections as JSON."""
    name, plain = value
    if name in ("string", "symbol", "char") or name.startswith("decimal"):
        return str(plain)
    if name == "null":
        return None
    if name == "described":
        return _described_text(*plain)
    tree = _plain(value)
    return tree if isinstance(tree, str) else _dumps(tree)


def _described_text(descriptor: Value, value: Value) -> str | None:
    """What .NET's SDK writes beyond AMQP's types: instants and spans in ticks of 100 ns [wire 4.3]."""
    if value.type == "long" and descriptor.value == "com.microsoft:datetime-offset":
        return instant_text(value.value // _TICKS_PER_MS + _INSTANT_MS_MIN)
    if value.type == "long" and descriptor.value == "com.microsoft:timespan":
        sign = "-" if value.value < 0 else ""
        seconds, ticks = divmod(abs(value.value), 10_000_000)
        days, seconds = divmod(seconds, 86_400)
        clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
        return sign + (f"{days}." if days else "") + clock + (f".{ticks:07}" if ticks else "")
    return text(value)


def plain_json(value: Value) -> str:
    """Return the value as JSON without AMQP's types; what JSON has no form for becomes a string as `text` gives it."""
    return _dumps(_plain(value))


def _plain(value: Value) -> object:
    name, plain = value
    plainer = _PLAIN.get(name)
    return plain if plainer is None else plainer(plain)


def _plain_float(number: float, *, single: bool = False) -> object:
    shown = float_text(number, single=single)
    return float(shown) if math.isfinite(number) else shown


_PLAIN: Final[dict[str, Callable[[Any], object]]] = {
    "float": lambda plain: _plain_float(plain, single=True),
    "double": _plain_float,
    "timestamp": instant_text,
    "uuid": str,
    "binary": lambda plain: b64encode(plain).decode(),
    "list": lambda plain: [_plain(item) for item in plain],
    "map": lambda plain: {text(key) or "": _plain(item) for key, item in plain},
    "array": lambda plain: [_plain(Value(plain.type, item)) for item in plain.values],
    "described": lambda plain: _plain(plain[1]) if _plain_only(plain[1]) else _described_text(*plain),
}


def _plain_only(value: Value) -> bool:
    return value.type != "long"


# --- JSON that keeps the types -----------------------------------------------------------------------


def typed_json(value: Value) -> str:
    """Return the value as JSON from which `from_json` makes it again."""
    return _dumps(_typed(value))


def _typed(value: Value) -> object:
    name, plain = value
    if name in ("string", "boolean", "long", "null"):
        return plain
    if name == "double" and math.isfinite(plain):
        return plain
    maker = _TYPED.get(name)
    return {name: plain if maker is None else maker(plain)}


_TYPED: Final[dict[str, Callable[[Any], object]]] = {
    "float": lambda plain: _plain_float(plain, single=True),
    "double": _plain_float,
    "timestamp": lambda plain: instant_text(plain) if _INSTANT_MS_MIN <= plain <= _INSTANT_MS_MAX else plain,
    "uuid": str,
    "binary": lambda plain: b64encode(plain).decode(),
    "list": lambda plain: [_typed(item) for item in plain],
    "map": lambda plain: [[_typed(key), _typed(item)] for key, item in plain],
    "array": lambda plain: [
        plain.type,
        [_typed(Value(plain.type, item)) for item in plain.values],
        *([] if plain.descriptor is None else [_typed(plain.descriptor)]),
    ],
    "described": lambda plain: [_typed(plain[0]), _typed(plain[1])],
}


def from_json(told: str | bytes) -> Value:
    """Return the value that typed JSON stands for. Raises ValueError for what it is not."""
    try:
        tree = json.loads(told)
    except RecursionError:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}") from None
    return _value(tree, 0)


def _value(tree: object, depth: int) -> Value:
    if depth > NESTING_MAX:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}")
    if tree is None:
        return NULL
    if isinstance(tree, str):
        return Value("string", tree)
    if isinstance(tree, bool):
        return Value("boolean", tree)
    if isinstance(tree, int):
        return Value("long", tree)
    if isinstance(tree, float):
        return Value("double", tree)
    if not isinstance(tree, dict) or len(tree) != 1:
        raise ValueError('a collection is written as {"list":[…]}, {"map":[[key,value],…]} or {"array":[type,[…]]}')
    ((name, inner),) = tree.items()
    maker = _MAKERS.get(name)
    if maker is None:
        raise ValueError(f"{name!r:.60} is no AMQP type")
    return Value(name, maker(inner, depth))


def _is_text(told: object) -> str:
    if not isinstance(told, str):
        raise ValueError(f"{told!r:.60} is no JSON string")
    return told


def _is_list(told: object) -> list[Any]:
    if not isinstance(told, list):
        raise ValueError(f"{told!r:.60} is no JSON array")
    return told


def _is_integer(told: object, _depth: int) -> int:
    if not isinstance(told, int) or isinstance(told, bool):
        raise ValueError(f"{told!r:.60} is no integer")
    return told


def _is_boolean(told: object, _depth: int) -> bool:
    if not isinstance(told, bool):
        raise ValueError(f"{told!r:.60} is neither true nor false")
    return told


def _is_number(told: object, _depth: int) -> float:
    if isinstance(told, bool) or not isinstance(told, int | float | str):
        raise ValueError(f"{told!r:.60} is no number")
    try:
        return float(told)
    except OverflowError:
        raise ValueError(f"{told!r:.60} is too large") from None


def _is_single(told: object, depth: int) -> float:
    """Return the nearest number of 32 bits, which the shortest text of a float stands for."""
    try:
        return float(_f32.unpack(_f32.pack(_is_number(told, depth)))[0])
    except OverflowError:
        raise ValueError(f"{told!r:.60} is too large for a float") from None


def _is_char(told: object, _depth: int) -> str:
    if not isinstance(told, str) or len(told) != 1 or 0xD800 <= ord(told) <= 0xDFFF:
        raise ValueError(f"{told!r:.60} is not one character")
    return told


def _is_pair(told: object, depth: int) -> tuple[Value, Value]:
    pair = _is_list(told)
    if len(pair) != 2:
        raise ValueError(f"a pair has two items, not {len(pair)}")
    return _value(pair[0], depth + 1), _value(pair[1], depth + 1)


def _is_array(told: object, depth: int) -> Elements:
    parts = _is_list(told)
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"an array is written as [type,[…]] or [type,[…],descriptor], not with {len(parts)} items")
    name = _is_text(parts[0])
    values = [_value(item, depth + 1) for item in _is_list(parts[1])]
    if name not in _MAKERS or name == "described" or any(value.type != name for value in values):
        raise ValueError(f"the elements of an array are all of the type it tells, here {name!r:.60}")
    descriptor = _value(parts[2], depth + 1) if len(parts) == 3 else None
    return Elements(name, [value.value for value in values], descriptor)


_MAKERS: Final[dict[str, Callable[[Any, int], Any]]] = {
    **dict.fromkeys(_INTEGERS, _is_integer),
    **dict.fromkeys(("string", "symbol", "decimal32", "decimal64", "decimal128"), lambda told, _: _is_text(told)),
    "null": lambda _told, _depth: None,
    "boolean": _is_boolean,
    "float": _is_single,
    "double": _is_number,
    "char": _is_char,
    "timestamp": lambda told, _: _instant(told),
    "uuid": lambda told, _: uuid.UUID(_is_text(told)),
    "binary": lambda told, _: b64decode(_is_text(told), validate=True),
    "list": lambda told, depth: [_value(item, depth + 1) for item in _is_list(told)],
    "map": lambda told, depth: [_is_pair(item, depth) for item in _is_list(told)],
    "array": _is_array,
    "described": _is_pair,
}


# --- The usual values of fixed width, straight from their bytes ---------------------------------------------

_AtOnce = dict[int, tuple[int, Callable[[bytes, int], str | None]]]
_i8, _i32, _f64 = Struct(">b").unpack_from, Struct(">i").unpack_from, Struct(">d").unpack_from

_IN_BOTH: Final[_AtOnce] = {
    0x41: (1, lambda _data, _pos: "true"),
    0x42: (1, lambda _data, _pos: "false"),
    0x55: (2, lambda data, pos: str(_i8(data, pos + 1)[0])),
    0x81: (9, lambda data, pos: str(i64(data, pos + 1)[0])),
}
TEXT_AT_ONCE: Final[_AtOnce] = {
    **_IN_BOTH,
    0x40: (1, lambda _data, _pos: None),
    0x54: (2, lambda data, pos: str(_i8(data, pos + 1)[0])),
    0x71: (5, lambda data, pos: str(_i32(data, pos + 1)[0])),
    0x82: (9, lambda data, pos: float_text(_f64(data, pos + 1)[0])),
    0x83: (9, lambda data, pos: instant_text(i64(data, pos + 1)[0])),
}
"""By constructor: the width of the value with it, and its text as `text` gives it."""
JSON_AT_ONCE: Final[_AtOnce] = {
    **_IN_BOTH,
    0x40: (1, lambda _data, _pos: "null"),
    0x54: (2, lambda data, pos: f'{{"int":{_i8(data, pos + 1)[0]}}}'),
    0x71: (5, lambda data, pos: f'{{"int":{_i32(data, pos + 1)[0]}}}'),
    0x83: (9, lambda data, pos: typed_json(Value("timestamp", i64(data, pos + 1)[0]))),
}
"""By constructor: the width of the value with it, and its JSON as `typed_json` gives it."""


def encoded_from_json(told: str | bytes) -> bytes:
    """Return the encoding of the value that typed JSON stands for. Raises ValueError for what it is not."""
    return write(from_json(told))
