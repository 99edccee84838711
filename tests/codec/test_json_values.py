"""AMQP values as JSON: exactly, in two forms and those of older files, and as people read them."""

from __future__ import annotations

import json
import math
import uuid
from base64 import b64encode

import pytest
from hypothesis import given, settings

from emubus.codec import decimals
from emubus.codec.decode import NESTING_MAX, decode, decode_exactly
from emubus.codec.encode import encode
from emubus.codec.json_values import compact, from_json, shown, to_json
from emubus.codec.types import (
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

from ..rounds import rounds
from ..spark.codec.strategies import VALUES, exact

AT = Timestamp(1_767_225_600_123)
TEN = decimals.from_text("1.10", 16)
UUID = uuid.UUID(int=7)
FORMS: list[tuple[object, object, object, object]] = [
    (None, None, None, None),
    (True, True, True, True),
    ("text", "text", "text", "text"),
    (Ubyte(1), {"type": "ubyte", "value": 1}, {"ubyte": 1}, 1),
    (Ushort(1), {"type": "ushort", "value": 1}, {"ushort": 1}, 1),
    (Uint(1), {"type": "uint", "value": 1}, {"uint": 1}, 1),
    (Ulong(1 << 63), {"type": "ulong", "value": str(1 << 63)}, {"ulong": 1 << 63}, 1 << 63),
    (Byte(-1), {"type": "byte", "value": -1}, {"byte": -1}, -1),
    (Short(-1), {"type": "short", "value": -1}, {"short": -1}, -1),
    (Int(-1), {"type": "int", "value": -1}, {"int": -1}, -1),
    (Long(-1), {"type": "long", "value": -1}, -1, -1),
    (Long(-(1 << 62)), {"type": "long", "value": str(-(1 << 62))}, -(1 << 62), -(1 << 62)),
    (Float(0.5), {"type": "float", "value": 0.5}, {"float": 0.5}, 0.5),
    (0.1, {"type": "double", "value": 0.1}, 0.1, 0.1),
    (-math.inf, {"type": "double", "value": "-Infinity"}, {"double": "-Infinity"}, "-Infinity of a double"),
    (Decimal128(TEN), {"type": "decimal128", "value": "1.10"}, {"decimal128": "1.10"}, "1.10 of a decimal128"),
    (Char("é"), {"type": "char", "value": "é"}, {"char": "é"}, "é"),
    (Symbol("s"), {"type": "symbol", "value": "s"}, {"symbol": "s"}, "s"),
    (
        AT,
        {"type": "timestamp", "value": "2026-01-01T00:00:00.123Z"},
        {"timestamp": "2026-01-01T00:00:00.123Z"},
        "2026-01-01T00:00:00.123Z of a timestamp",
    ),
    (UUID, {"type": "uuid", "value": str(UUID)}, {"uuid": str(UUID)}, f"{UUID} of a uuid"),
    (b"\xff", {"type": "binary", "value": "/w=="}, {"binary": "/w=="}, "/w== of a binary"),
    ([Int(1), "a"], [{"type": "int", "value": 1}, "a"], {"list": [{"int": 1}, "a"]}, [1, "a"]),
    (
        MapItems([("k", Int(1))]),
        {"type": "map", "value": [["k", {"type": "int", "value": 1}]]},
        {"map": [["k", {"int": 1}]]},
        {"k": 1},
    ),
    (
        Array(0x71, (Int(1),)),
        {"type": "array", "code": 0x71, "value": [{"type": "int", "value": 1}]},
        {"array": ["int", [{"int": 1}]]},
        [1],
    ),
    (
        Described(Symbol("d"), "x"),
        {"type": "described", "descriptor": {"type": "symbol", "value": "d"}, "value": "x"},
        {"described": [{"symbol": "d"}, "x"]},
        {"type": "described", "descriptor": "d", "value": "x"},
    ),
]


def wire(tree: object) -> object:
    """What JSON makes of it; it has no NaN."""
    return json.loads(json.dumps(tree, allow_nan=False))


@pytest.mark.parametrize(("value", "long", "short", "read"), FORMS, ids=lambda each: str(each)[:30])
def test_a_value_has_these_forms(value: object, long: object, short: object, read: object) -> None:
    if isinstance(read, str) and " of a " in read:
        text, _, kind = read.partition(" of a ")
        read = {"type": kind, "value": text}
    assert (to_json(value), compact(value), shown(value)) == (long, short, read)
    for form in (long, short):
        assert exact(from_json(wire(form))) == exact(value)


@settings(max_examples=rounds(100, 5_000))
@given(VALUES)
def test_every_value_comes_back_from_both_exact_forms(value: object) -> None:
    assert exact(from_json(wire(compact(value)))) == exact(value)
    encoded = encode(value)
    decoded, _ = decode_exactly(encoded)
    assert encode(from_json(wire(to_json(decoded)))) == encode(decoded)


@settings(max_examples=rounds(100, 5_000))
@given(VALUES)
def test_every_value_is_shown(value: object) -> None:
    wire(shown(value))


def test_a_map_is_shown_alike_however_it_was_decoded() -> None:
    encoded = encode(MapItems([("a", Int(1)), (Symbol("b"), [UUID])]))
    assert shown(decode(encoded)[0]) == shown(decode_exactly(encoded)[0])


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ({"type": "timestamp", "value": int(AT)}, AT),
        ({"type": "timestamp", "value": str(1 << 62)}, Timestamp(1 << 62)),
        ({"type": "timestamp", "value": "2026-01-01T01:00:00.123+01:00"}, AT),
        ({"type": "timestamp", "value": "2026-01-01T00:00:00.123"}, AT),
        ({"type": "decimal128", "value": b64encode(TEN).decode()}, Decimal128(TEN)),
        ({"type": "decimal64", "value": b64encode(bytes(8)).decode()}, Decimal64(bytes(8))),
        ({"type": "decimal32", "value": b64encode(bytes(4)).decode()}, Decimal32(bytes(4))),
        ({"type": "double", "value": "inf"}, math.inf),
        ({"type": "float", "value": "-inf"}, Float(-math.inf)),
        ({"type": "float", "value": 0.10000000149011612}, Float(0.10000000149011612)),
        ({"type": "list", "value": [1]}, [Long(1)]),
        ({"type": "string", "value": "x"}, "x"),
        ({"type": "null", "value": None}, None),
        (5, Long(5)),
        (5.0, 5.0),
    ],
    ids=str,
)
def test_older_and_other_spellings_are_read(written: object, value: object) -> None:
    assert exact(from_json(written)) == exact(value)
    assert math.isnan(float(str(from_json({"type": "double", "value": "nan"}))))


@pytest.mark.parametrize(
    "written",
    [
        {},
        {"a": 1},
        {"a": 1, "b": 2},
        {"type": "uint"},
        {"type": 5, "value": 5},
        {"type": "uint", "value": "x"},
        {"type": "uint", "value": "5"},
        {"type": "uint", "value": True},
        {"type": "uint", "value": 1, "unit": "s"},
        {"type": "boolean", "value": 1},
        {"type": "null", "value": 1},
        {"type": "binary", "value": "?"},
        {"type": "map", "value": [1]},
        {"type": "map", "value": [[1]]},
        {"type": "array", "value": []},
        {"type": "array", "code": "x", "value": []},
        {"type": "moon", "value": 1},
        {"type": "symbol", "value": 1},
        {"type": "char", "value": "ab"},
        {"type": "char", "value": "\ud800"},
        {"type": "uuid", "value": "5"},
        {"type": "float", "value": 1e300},
        {"type": "double", "value": "x"},
        {"type": "double", "value": 10**400},
        {"type": "timestamp", "value": "noon"},
        {"type": "timestamp", "value": True},
        {"type": "decimal32", "value": "x"},
        {"type": "decimal32", "value": "12345678"},
        {"type": "decimal64", "value": b64encode(bytes(4)).decode()},
        {"array": ["int", [5]]},
        {"array": ["described", []]},
        {"described": ["a"]},
    ],
    ids=lambda each: str(each)[:50],
)
def test_json_that_is_no_value_is_refused(written: object) -> None:
    with pytest.raises(ValueError, match=r"value|AMQP type|decimal"):
        from_json(written)


def test_values_nest_no_deeper_than_the_codec_decodes() -> None:
    for shape in (lambda inner: [inner], lambda inner: {"list": [inner]}, lambda inner: {"described": [1, inner]}):
        tree: object = None
        for _ in range(NESTING_MAX + 2):
            tree = shape(tree)
        with pytest.raises(ValueError, match="nested more than"):
            from_json(tree)


def test_a_decimal_of_net_is_shown_as_it_was_meant() -> None:
    octets = bytes.fromhex("0c3c0000000000000000000000000001")
    assert shown(Decimal128(octets)) == {"type": "decimal128", "value": "0.01"}
    assert exact(from_json(to_json(Decimal128(octets)))) == exact(Decimal128(octets))


def test_half_a_surrogate_pair_is_not_shown() -> None:
    assert shown({"a\ud800": "b\udfff"}) == {"a?": "b?"}
