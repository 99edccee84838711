"""AMQP values as text, as JSON that keeps their types, and as plain JSON: application properties and odd bodies.

*Text* (applicationPropertiesFormat=text) is what a reader expects to see; the type is lost. *Typed JSON* (=json) has
string, boolean, long, double and null as "x", true, 5, 5.0, null. Every other type is an object with one member named
by it: {"int":5}, {"uuid":"…"}, {"timestamp":"2026-01-01T00:00:00.000Z"}, {"binary":"<base64>"}, {"decimal128":"1.10"},
{"list":[…]}, {"map":[[key,value],…]}, {"array":["int",[{"int":1}],descriptor]}, {"described":[descriptor,value]};
`from_json` gives back the very value, and takes the longer form {"type":"int","value":5}, too. *Plain JSON* is for
bodies that are no bytes: types are lost, maps are objects. Values are those of `codec.types`, as `codec.decode_exactly`
gives them. Does not know messages and columns. Pure functions.
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

from ...codec import decimals
from ...codec.decode import NESTING_MAX
from ...codec.encode import encode
from ...codec.types import (
    CONSTRUCTORS,
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
_Maker = Callable[[Any, int], object]
"""Makes a value of what JSON says of it; the number is how deep it lies."""
_LONGS: Final = (int, Long)
_DECIMALS: Final = (Decimal32, Decimal64, Decimal128)
_LONG_FORM: Final = frozenset({"type", "value"})
_WIDEST: Final = {name: code for code, name in CONSTRUCTORS.items()}
"""By type name: the constructor that holds any value of the type, which stands in arrays."""


def instant_text(at_ms: int) -> str:
    """Return an instant in Unix milliseconds as ISO 8601 in UTC; outside the years 1 to 9999 as the bare number."""
    if not _INSTANT_MS_MIN <= at_ms <= _INSTANT_MS_MAX:
        return str(at_ms)
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def _instant(tree: object, _depth: int) -> Timestamp:
    if isinstance(tree, int) and not isinstance(tree, bool):
        return Timestamp(tree)
    at = datetime.fromisoformat(_text_in(tree))
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Timestamp((at - _EPOCH) // timedelta(milliseconds=1))


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


def text(value: object) -> str | None:
    """Return the value as text: numbers in decimal, instants in ISO 8601, binary in base64, collections as JSON."""
    if value is None:
        return None
    if isinstance(value, Described):
        return _described_text(value)
    tree = _plain(value)
    return tree if isinstance(tree, str) else _dumps(tree)


def _described_text(described: Described) -> str | None:
    """What .NET's SDK writes beyond AMQP's types: instants and spans in ticks of 100 ns [wire 4.3]."""
    kind, value = described.descriptor, described.value
    if isinstance(value, int) and type(value) in _LONGS:
        if kind == "com.microsoft:datetime-offset":
            return instant_text(value // _TICKS_PER_MS + _INSTANT_MS_MIN)
        if kind == "com.microsoft:timespan":
            sign = "-" if value < 0 else ""
            seconds, ticks = divmod(abs(value), 10_000_000)
            days, seconds = divmod(seconds, 86_400)
            clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}"
            return sign + (f"{days}." if days else "") + clock + (f".{ticks:07}" if ticks else "")
    return text(value)


def plain_json(value: object) -> str:
    """Return the value as JSON without AMQP's types; what JSON has no form for becomes a string as `text` gives it."""
    return _dumps(_plain(value))


def _plain(value: object) -> object:
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
    list: lambda items: [_plain(item) for item in items],
    MapItems: lambda entries: {text(key) or "": _plain(item) for key, item in entries},
    Array: lambda array: [_plain(item) for item in array.values],
    Described: lambda it: _described_text(it) if type(it.value) in _LONGS else _plain(it.value),
}


# --- JSON that keeps the types -----------------------------------------------------------------------


def typed_json(value: object) -> str:
    """Return the value as JSON from which `from_json` makes it again."""
    return _dumps(_typed(value))


def _typed(value: object) -> object:
    name = TYPE_NAMES[type(value)]
    if name in ("string", "boolean", "long", "null"):
        return value
    if isinstance(value, float) and name == "double" and math.isfinite(value):
        return value
    maker = _TYPED.get(name)
    return {name: value if maker is None else maker(value)}


_TYPED: Final[dict[str, Callable[[Any], object]]] = {
    "float": _finite_single_or_text,
    "double": float_text,
    "timestamp": lambda at_ms: instant_text(at_ms) if _INSTANT_MS_MIN <= at_ms <= _INSTANT_MS_MAX else at_ms,
    "uuid": str,
    "binary": lambda octets: b64encode(octets).decode(),
    **dict.fromkeys(("decimal32", "decimal64", "decimal128"), decimals.to_text),
    "list": lambda items: [_typed(item) for item in items],
    "map": lambda entries: [[_typed(key), _typed(item)] for key, item in entries],
    "array": lambda array: [
        CONSTRUCTORS[array.type_code],
        [_typed(item) for item in array.values],
        *([] if array.descriptor is None else [_typed(array.descriptor)]),
    ],
    "described": lambda described: [_typed(described.descriptor), _typed(described.value)],
}


def from_json(source: str | bytes) -> object:
    """Return the value that typed JSON stands for.

    Raises ValueError if it stands for none. Whether a number is in the range of its type is for `encode` to say.
    """
    try:
        tree = json.loads(source)
    except RecursionError:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}") from None
    return _value(tree, 0)


def _value(tree: object, depth: int) -> object:
    if depth > NESTING_MAX:
        raise ValueError(f"values are nested deeper than {NESTING_MAX}")
    if tree is None or isinstance(tree, (str, int, float)):
        return tree
    if isinstance(tree, dict) and tree.keys() == _LONG_FORM:
        name, inner = tree["type"], tree["value"]
    elif isinstance(tree, dict) and len(tree) == 1:
        ((name, inner),) = tree.items()
    else:
        raise ValueError('a collection is written as {"list":[…]}, {"map":[[key,value],…]} or {"array":[type,[…]]}')
    if not isinstance(name, str):
        raise ValueError(f"{name!r:.60} is no AMQP type")
    maker = _MAKERS.get(name)
    if maker is None:
        raise ValueError(f"{name!r:.60} is no AMQP type")
    return maker(inner, depth)


def _text_in(tree: object) -> str:
    if not isinstance(tree, str):
        raise ValueError(f"{tree!r:.60} is no JSON string")
    return tree


def _list_in(tree: object) -> list[Any]:
    if not isinstance(tree, list):
        raise ValueError(f"{tree!r:.60} is no JSON array")
    return tree


def _integer(kind: type[int]) -> _Maker:
    def make(tree: object, _depth: int) -> int:
        if not isinstance(tree, int) or isinstance(tree, bool):
            raise ValueError(f"{tree!r:.60} is no integer")
        return kind(tree)

    return make


def _boolean(tree: object, _depth: int) -> bool:
    if not isinstance(tree, bool):
        raise ValueError(f"{tree!r:.60} is neither true nor false")
    return tree


def _double(tree: object, _depth: int) -> float:
    if isinstance(tree, bool) or not isinstance(tree, int | float | str):
        raise ValueError(f"{tree!r:.60} is no number")
    try:
        return float(tree)
    except OverflowError:
        raise ValueError(f"{tree!r:.60} is too large") from None


def _float(tree: object, depth: int) -> Float:
    """Return the nearest number of 32 bits, which the shortest text of a float stands for."""
    try:
        return Float(_f32.unpack(_f32.pack(_double(tree, depth)))[0])
    except OverflowError:
        raise ValueError(f"{tree!r:.60} is too large for a float") from None


def _null(tree: object, _depth: int) -> None:
    del tree


def _symbol(tree: object, _depth: int) -> Symbol:
    text = _text_in(tree)
    if not text.isascii():
        raise ValueError(f"{text!r:.60} is no symbol: possible are ASCII characters")
    return Symbol(text)


def _char(tree: object, _depth: int) -> Char:
    if not isinstance(tree, str) or len(tree) != 1 or 0xD800 <= ord(tree) <= 0xDFFF:
        raise ValueError(f"{tree!r:.60} is not one character")
    return Char(tree)


def _decimal(kind: type[bytes], width: int) -> _Maker:
    return lambda tree, _: kind(decimals.from_text(_text_in(tree), width))


def _pair(tree: object, depth: int) -> tuple[object, object]:
    pair = _list_in(tree)
    if len(pair) != 2:
        raise ValueError(f"a pair has two items, not {len(pair)}")
    return _value(pair[0], depth + 1), _value(pair[1], depth + 1)


def _array(tree: object, depth: int) -> Array:
    parts = _list_in(tree)
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"an array is written as [type,[…]] or [type,[…],descriptor], not with {len(parts)} items")
    name = _text_in(parts[0])
    values = [_value(item, depth + 1) for item in _list_in(parts[1])]
    if name not in _WIDEST or any(TYPE_NAMES[type(value)] != name for value in values):
        raise ValueError(f"the elements of an array are all of its type, here {name!r:.60}")
    descriptor = _value(parts[2], depth + 1) if len(parts) == 3 else None
    return Array(_WIDEST[name], tuple(values), descriptor)


_MAKERS: Final[dict[str, _Maker]] = {
    **{TYPE_NAMES[kind]: _integer(kind) for kind in (Ubyte, Byte, Ushort, Short, Uint, Int, Ulong, Long)},
    "null": _null,
    "boolean": _boolean,
    "float": _float,
    "double": _double,
    "decimal32": _decimal(Decimal32, 4),
    "decimal64": _decimal(Decimal64, 8),
    "decimal128": _decimal(Decimal128, 16),
    "char": _char,
    "timestamp": _instant,
    "uuid": lambda tree, _: uuid.UUID(_text_in(tree)),
    "binary": lambda tree, _: b64decode(_text_in(tree), validate=True),
    "string": lambda tree, _: _text_in(tree),
    "symbol": _symbol,
    "list": lambda tree, depth: [_value(item, depth + 1) for item in _list_in(tree)],
    "map": lambda tree, depth: MapItems(_pair(item, depth) for item in _list_in(tree)),
    "array": _array,
    "described": lambda tree, depth: Described(*_pair(tree, depth)),
}


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
