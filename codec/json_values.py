"""AMQP values as JSON [AMQP 1.6]: exactly, and back; or as people and tests read them.

*Exact*: `to_json` writes null, true, false, strings and lists as themselves, and every other value as
`{"type": "int", "value": 5}`; `compact` writes longs and finite doubles as themselves, too, and other values as
`{"int": 5}`, which a column of a table has room for. Both spell a value alike, and `from_json` reads both:

| Type | Spelling |
|---|---|
| whole numbers | 5; in `to_json` a text beyond 2^53, which not every reader of JSON keeps |
| `float`, `double` | the shortest number that reads back the same, or "NaN", "Infinity", "-Infinity" |
| `decimal32` … | "1.10" |
| `timestamp` | "2026-01-01T00:00:00.000Z"; outside the years 1 to 9999 milliseconds |
| `uuid`, `symbol`, `char` | a text |
| `binary` | base64 |
| `map` | [[key, value], …] |
| `array` | items, beside them the `code` of their constructor; compact: ["int", [item, …], descriptor] |
| `described` | the value, beside it its `descriptor`; compact: [descriptor, value] |

Files of older versions have instants in milliseconds, decimals as base64 and NaN in other letters: these are read, too.

*Shown*: `shown` writes numbers, symbols, maps and arrays as JSON has them, without their types, and only what JSON has
no form for as `{"type", "value"}`.

Values are those of `codec.types`, as `decode_exactly` gives them; `shown` takes those of `decode`, too. Pure.
"""

from __future__ import annotations

import math
import uuid
from base64 import b64decode, b64encode
from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from struct import Struct
from typing import Final

from . import decimals
from .decode import NESTING_MAX
from .types import (
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

EXACT_MAX: Final = (1 << 53) - 1
"""Largest whole number that every reader of JSON keeps."""
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT_MS_MIN: Final = -62_135_596_800_000  # 0001-01-01
INSTANT_MS_MAX: Final = 253_402_300_799_999  # the last millisecond of 9999
_FLOAT_MAX: Final = 3.4028235677973366e38  # what rounds to the largest number of 32 bits
_f32: Final = Struct(">f")
_INTEGERS: Final = (Ubyte, Byte, Ushort, Short, Uint, Int, Ulong, Long)
_DECIMALS: Final[Mapping[type[bytes], int]] = {Decimal32: 4, Decimal64: 8, Decimal128: 16}
_BARE: Final = frozenset({"string", "boolean", "null"})
_BARE_NUMBERS: Final = frozenset({"long", "double"})
_WIDEST: Final = {name: code for code, name in CONSTRUCTORS.items()}
"""By type name: the constructor that holds any value of the type."""


# ---------------------------------------------------------------- spelling


def instant_text(at_ms: int) -> str:
    """Return an instant in Unix milliseconds as ISO 8601 in UTC; outside the years 1 to 9999 as the bare number."""
    if not INSTANT_MS_MIN <= at_ms <= INSTANT_MS_MAX:
        return str(at_ms)
    return (_EPOCH + timedelta(milliseconds=at_ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def float_text(number: float, *, single: bool = False) -> str:
    """Return the shortest text that reads back as the same number; `single` for AMQP's float, which has 32 bits."""
    if math.isnan(number):
        return "NaN"
    if math.isinf(number):
        return "Infinity" if number > 0 else "-Infinity"
    if single:
        for digits in range(6, 10):
            short = float(f"{number:.{digits}g}")
            if abs(short) <= _FLOAT_MAX and _f32.unpack(_f32.pack(short))[0] == number:
                return repr(short)
    return repr(float(number))


def _finite_or_text(number: float) -> float | str:
    return float(number) if math.isfinite(number) else float_text(number)


def _float32_json(number: float) -> float | str:
    text = float_text(number, single=True)
    return float(text) if math.isfinite(number) else text


def _base64(octets: bytes) -> str:
    return b64encode(octets).decode("ascii")


_Spelling = Callable[..., object]
_SPELLED: Final[tuple[tuple[tuple[type, ...], _Spelling], ...]] = (
    ((int, *_INTEGERS), int),
    (tuple(_DECIMALS), decimals.to_text),
    ((Symbol, Char), str.__str__),
    ((float,), _finite_or_text),
    ((Float,), _float32_json),
    ((Timestamp,), lambda at: instant_text(at) if INSTANT_MS_MIN <= at <= INSTANT_MS_MAX else int(at)),
    ((bytes,), _base64),
    ((uuid.UUID,), str),
)
_SPELLINGS: Final = dict[type, _Spelling]((kind, spelling) for kinds, spelling in _SPELLED for kind in kinds)
"""How a value without parts is written, but for null, true, false and strings, which are themselves."""


def to_json(value: object) -> object:
    """Return a value with its type and those of its parts, which are objects with `type` and `value`."""
    match value:
        case None | bool():
            return value
        case list():
            return [to_json(each) for each in value]
        case MapItems():
            return {"type": "map", "value": [[to_json(key), to_json(each)] for key, each in value]}
        case Array():
            more = {} if value.descriptor is None else {"descriptor": to_json(value.descriptor)}
            return {
                "type": "array",
                "code": value.type_code,
                **more,
                "value": [to_json(each) for each in value.values],
            }
        case Described():
            return {"type": "described", "descriptor": to_json(value.descriptor), "value": to_json(value.value)}
        case _:
            if type(value) is str:
                return value
            spelled = _SPELLINGS[type(value)](value)
            if isinstance(spelled, int) and abs(spelled) > EXACT_MAX:
                spelled = str(spelled)
            return {"type": TYPE_NAMES[type(value)], "value": spelled}


def compact(value: object) -> object:
    """As `to_json`, in the shorter form: an object with one member, whose name is the type."""
    kind = type(value)
    name = TYPE_NAMES[kind]
    if name in _BARE:
        return value
    if (spelling := _SPELLINGS.get(kind)) is not None:
        spelled = spelling(value)
        return spelled if name in _BARE_NUMBERS and not isinstance(spelled, str) else {name: spelled}
    match value:
        case list():
            return {"list": [compact(each) for each in value]}
        case MapItems():
            return {"map": [[compact(key), compact(each)] for key, each in value]}
        case Array():
            more = [] if value.descriptor is None else [compact(value.descriptor)]
            return {"array": [CONSTRUCTORS[value.type_code], [compact(each) for each in value.values], *more]}
        case Described():
            return {"described": [compact(value.descriptor), compact(value.value)]}
        case _:
            raise TypeError(f"{kind.__name__} is no value that decode_exactly gives")


def shown(value: object) -> object:
    """Return a value as people and tests read it: the types of numbers, symbols, maps and arrays are lost.

    Decimals are what their sender meant (`decimals.meant`); half a surrogate pair, which UTF-8 can't hold, becomes "?".
    """
    match value:
        case None | bool():
            return value
        case Timestamp():
            return {"type": "timestamp", "value": instant_text(value)}
        case int():
            return int(value)
        case float() if math.isfinite(value):
            return float(value)
        case str():
            return clean(str.__str__(value))
        case list():
            return [shown(each) for each in value]
        case Array():
            return [shown(each) for each in value.values]
        case dict() | MapItems():
            return shown_map(value)
        case Described():
            return {"type": "described", "descriptor": shown(value.descriptor), "value": shown(value.value)}
        case Decimal32() | Decimal64() | Decimal128():
            return {"type": TYPE_NAMES[type(value)], "value": decimals.meant(value)}
        case _:
            kind = type(value)
            return {"type": "double" if kind is Float else TYPE_NAMES[kind], "value": _SPELLINGS[kind](value)}


def shown_map(values: Mapping[str, object] | Mapping[object, object] | MapItems) -> dict[str, object]:
    """Return a map as `shown` does; its keys become texts."""
    return {clean(str(key)): shown(value) for key, value in values.items()}


def clean(text: str) -> str:
    """Return a text without halves of surrogate pairs."""
    return text if text.isascii() else text.encode(errors="replace").decode()


# ---------------------------------------------------------------- and back


def from_json(tree: object, depth: int = 0) -> object:
    """Return the value that `to_json` or `compact` has written. Raises ValueError for anything else.

    A whole number without a type is a long, another one a double. Whether a number is in the range of its type is for
    `encode` to say.
    """
    if depth > NESTING_MAX:
        raise ValueError(f"values are nested more than {NESTING_MAX} deep")
    match tree:
        case None | bool() | str() | float():
            return tree
        case int():
            return Long(tree)
        case list():
            return [from_json(each, depth + 1) for each in tree]
        case {"type": name, "value": of, **more}:
            if more and name not in ("array", "described"):
                raise ValueError(f"a value of type {name!r:.60} has a type and a value only")
            if name == "array" and "code" in more:
                return _coded_array(of, more, depth + 1)
            if name == "described" and "descriptor" in more:
                return Described(from_json(more["descriptor"], depth + 1), from_json(of, depth + 1))
        case dict() if len(tree) == 1:
            ((name, of),) = tree.items()
        case _:
            raise ValueError("a value is null, true, false, a number, a text, a list, or has a type and a value")
    maker = _MAKERS.get(name) if isinstance(name, str) else None
    if maker is None:
        raise ValueError(f"{name!r:.60} is no AMQP type")
    return maker(of, depth)


_Maker = Callable[[object, int], object]
"""Makes a value of what JSON says of it; the number is how deep it lies."""


def _require_string(tree: object) -> str:
    if not isinstance(tree, str):
        raise ValueError(f"the value {tree!r:.60} is no JSON string")
    return tree


def _require_array(tree: object) -> list[object]:
    if not isinstance(tree, list):
        raise ValueError(f"the value {tree!r:.60} is no JSON array")
    return tree


def _require_integer(tree: object) -> int:
    """A whole number; a text only where `to_json` writes one."""
    if isinstance(tree, str) and tree.removeprefix("-").isdecimal() and len(tree) <= 20 and abs(int(tree)) > EXACT_MAX:
        return int(tree)
    if not isinstance(tree, int) or isinstance(tree, bool):
        raise ValueError(f"the value {tree!r:.60} is no integer")
    return tree


def _integer_maker(kind: type[int]) -> _Maker:
    return lambda tree, _: kind(_require_integer(tree))


def _require_boolean(tree: object, _depth: int) -> bool:
    if not isinstance(tree, bool):
        raise ValueError(f"the value {tree!r:.60} is neither true nor false")
    return tree


def _double(tree: object, _depth: int) -> float:
    if isinstance(tree, bool) or not isinstance(tree, int | float | str):
        raise ValueError(f"the value {tree!r:.60} is no number")
    try:
        return float(tree)
    except (OverflowError, ValueError):
        raise ValueError(f"the value {tree!r:.60} is no number, or too large") from None


def _float(tree: object, depth: int) -> Float:
    """The nearest number of 32 bits, which the shortest text of a float stands for."""
    try:
        return Float(_f32.unpack(_f32.pack(_double(tree, depth)))[0])
    except OverflowError:
        raise ValueError(f"the value {tree!r:.60} is too large for a float") from None


def _instant(tree: object, _depth: int) -> Timestamp:
    if isinstance(tree, int) and not isinstance(tree, bool):
        return Timestamp(tree)
    written = _require_string(tree)
    if written.removeprefix("-").isdecimal():
        return Timestamp(_require_integer(written))
    try:
        at = datetime.fromisoformat(written)
    except ValueError:
        raise ValueError(f"the value {written!r:.60} is no instant in ISO 8601") from None
    at = at if at.tzinfo else at.replace(tzinfo=UTC)
    return Timestamp((at - _EPOCH) // timedelta(milliseconds=1))


def _uuid(tree: object, _depth: int) -> uuid.UUID:
    try:
        return uuid.UUID(_require_string(tree))
    except ValueError:
        raise ValueError(f"the value {tree!r:.60} is no UUID") from None


def _bytes(tree: object) -> bytes:
    try:
        return b64decode(_require_string(tree), validate=True)
    except ValueError:
        raise ValueError(f"the value {tree!r:.60} is no base64") from None


def _decimal(kind: type[bytes], width: int) -> _Maker:
    def make(tree: object, _depth: int) -> bytes:
        written = _require_string(tree)
        octets = _bytes(written) if written.endswith("=") else decimals.from_text(written, width)
        if len(octets) != width:
            raise ValueError(f"the value {written!r:.60} has {len(octets)} bytes, a decimal{8 * width} has {width}")
        return kind(octets)

    return make


def _symbol(tree: object, _depth: int) -> Symbol:
    return Symbol(_require_string(tree))


def _char(tree: object, _depth: int) -> Char:
    if not isinstance(tree, str) or len(tree) != 1 or 0xD800 <= ord(tree) <= 0xDFFF:
        raise ValueError(f"the value {tree!r:.60} is not one character")
    return Char(tree)


def _null(tree: object, _depth: int) -> None:
    if tree is not None:
        raise ValueError(f"the value {tree!r:.60} is not null")


def _pair(tree: object, depth: int) -> tuple[object, object]:
    pair = _require_array(tree)
    if len(pair) != 2:
        raise ValueError(f"the value has {len(pair)} items, not the two of a pair")
    return from_json(pair[0], depth + 1), from_json(pair[1], depth + 1)


def _coded_array(of: object, more: Mapping[object, object], depth: int) -> Array:
    """An array as `to_json` writes it: it may have any constructor of its type."""
    values = tuple(from_json(each, depth) for each in _require_array(of))
    return Array(_require_integer(more["code"]), values, from_json(more.get("descriptor"), depth))


def _array(tree: object, depth: int) -> Array:
    """An array as `compact` writes it."""
    parts = _require_array(tree)
    if not 2 <= len(parts) <= 3:
        raise ValueError(f"the value of an array is [type, […]] or [type, […], descriptor], not {len(parts)} items")
    name = _require_string(parts[0])
    values = [from_json(item, depth + 1) for item in _require_array(parts[1])]
    if name not in _WIDEST or any(TYPE_NAMES[type(value)] != name for value in values):
        raise ValueError(f"the values of an array are all of its type, here {name!r:.60}")
    descriptor = from_json(parts[2], depth + 1) if len(parts) == 3 else None
    return Array(_WIDEST[name], tuple(values), descriptor)


_MAKERS: Final[Mapping[str, _Maker]] = {
    **{TYPE_NAMES[kind]: _integer_maker(kind) for kind in _INTEGERS},
    **{TYPE_NAMES[kind]: _decimal(kind, width) for kind, width in _DECIMALS.items()},
    "null": _null,
    "boolean": _require_boolean,
    "float": _float,
    "double": _double,
    "char": _char,
    "timestamp": _instant,
    "uuid": _uuid,
    "binary": lambda tree, _: _bytes(tree),
    "string": lambda tree, _: _require_string(tree),
    "symbol": _symbol,
    "list": lambda tree, depth: [from_json(item, depth + 1) for item in _require_array(tree)],
    "map": lambda tree, depth: MapItems(_pair(item, depth) for item in _require_array(tree)),
    "array": _array,
    "described": lambda tree, depth: Described(*_pair(tree, depth)),
}
assert _MAKERS.keys() == set(TYPE_NAMES.values()), "every type of AMQP is read"
