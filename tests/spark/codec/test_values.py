"""AMQP values: bytes, text and JSON, against Proton and by property."""

from __future__ import annotations

import json
import math
import uuid
from typing import Any

import proton
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.spark_connector.codec import decimals
from emubus.spark_connector.codec.properties import float_text, from_json, instant_text, plain_json, text, typed_json
from emubus.spark_connector.codec.values import MALFORMED, NESTING_MAX, NULL, Elements, Value, read, skip, write

from .strategies import VALUES

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@given(VALUES)
def test_a_value_written_is_read_again(value: Value) -> None:
    data = write(value)
    assert read(data, 0, len(data)) == (value, len(data))
    assert skip(data, 0) == len(data)


@given(VALUES)
def test_typed_json_gives_the_very_value_back(value: Value) -> None:
    assert from_json(typed_json(value)) == value


@given(VALUES)
def test_every_value_has_a_text_and_plain_json(value: Value) -> None:
    json.loads(plain_json(value))
    assert (text(value) is None) == (value == NULL or (value.type == "described" and text(value.value[1]) is None))


def by_proton(value: object) -> bytes:
    """Encode a value alone with Proton."""
    data = proton.Data()
    data.put_object(value)
    return bytes(data.encode())


UNDESCRIBED: Any = proton.UNDESCRIBED
THEIR_ARRAY = proton.Array(UNDESCRIBED, proton.Data.INT, 1, 2)
TYPES = [
    (Value("null", None), None, None, "null"),
    (Value("boolean", True), True, "true", "true"),
    (Value("boolean", False), False, "false", "false"),
    (Value("ubyte", 200), proton.ubyte(200), "200", '{"ubyte":200}'),
    (Value("ushort", 60_000), proton.ushort(60_000), "60000", '{"ushort":60000}'),
    (Value("uint", 0), proton.uint(0), "0", '{"uint":0}'),
    (Value("uint", 4_000_000_000), proton.uint(4_000_000_000), "4000000000", '{"uint":4000000000}'),
    (Value("ulong", 1 << 63), proton.ulong(1 << 63), "9223372036854775808", '{"ulong":9223372036854775808}'),
    (Value("byte", -7), proton.byte(-7), "-7", '{"byte":-7}'),
    (Value("short", -700), proton.short(-700), "-700", '{"short":-700}'),
    (Value("int", -5), proton.int32(-5), "-5", '{"int":-5}'),
    (Value("int", 70_000), proton.int32(70_000), "70000", '{"int":70000}'),
    (Value("long", 5), 5, "5", "5"),
    (Value("long", -(1 << 62)), -(1 << 62), "-4611686018427387904", "-4611686018427387904"),
    (Value("float", 0.5), proton.float32(0.5), "0.5", '{"float":0.5}'),
    (Value("double", 5.0), 5.0, "5.0", "5.0"),
    (Value("double", math.inf), math.inf, "Infinity", '{"double":"Infinity"}'),
    (Value("char", "é"), proton.char("é"), "é", '{"char":"é"}'),
    (
        Value("timestamp", 1_767_225_600_123),
        proton.timestamp(1_767_225_600_123),
        "2026-01-01T00:00:00.123Z",
        '{"timestamp":"2026-01-01T00:00:00.123Z"}',
    ),
    (Value("uuid", UUID), UUID, str(UUID), f'{{"uuid":"{UUID}"}}'),
    (Value("binary", b"\xff\x00a"), b"\xff\x00a", "/wBh", '{"binary":"/wBh"}'),
    (Value("string", 'a "b"\n'), 'a "b"\n', 'a "b"\n', '"a \\"b\\"\\n"'),
    (Value("string", "x" * 300), "x" * 300, "x" * 300, '"' + "x" * 300 + '"'),
    (Value("symbol", "sym"), proton.symbol("sym"), "sym", '{"symbol":"sym"}'),
    (Value("decimal32", "1.10"), proton.decimal32(0x3180006E), "1.10", '{"decimal32":"1.10"}'),
    (Value("decimal64", "-3"), proton.decimal64(0xB1C0000000000003), "-3", '{"decimal64":"-3"}'),
    (
        Value("decimal128", "1"),
        proton.decimal128(bytes.fromhex("30400000000000000000000000000001")),
        "1",
        '{"decimal128":"1"}',
    ),
    (Value("list", [Value("long", 1), Value("string", "a")]), [1, "a"], '[1,"a"]', '{"list":[1,"a"]}'),
    (Value("list", []), [], "[]", '{"list":[]}'),
    (
        Value("map", [(Value("string", "k"), Value("int", 2))]),
        {"k": proton.int32(2)},
        '{"k":2}',
        '{"map":[["k",{"int":2}]]}',
    ),
    (
        Value("array", Elements("int", [1, 2], None)),
        THEIR_ARRAY,
        "[1,2]",
        '{"array":["int",[{"int":1},{"int":2}]]}',
    ),
    (
        Value("described", (Value("symbol", "com.example:thing"), Value("string", "x"))),
        proton.Described(proton.symbol("com.example:thing"), "x"),
        "x",
        '{"described":[{"symbol":"com.example:thing"},"x"]}',
    ),
]


@pytest.mark.parametrize(("value", "theirs", "shown", "typed"), TYPES, ids=lambda each: str(each)[:30])
def test_proton_and_we_understand_each_other(value: Value, theirs: object, shown: str | None, typed: str) -> None:
    encoded = by_proton(theirs)
    assert read(encoded, 0, len(encoded)) == (value, len(encoded))
    data = proton.Data()
    data.decode(write(value))
    data.next()
    assert (data.get_object(), text(value), typed_json(value)) == (theirs, shown, typed)


@pytest.mark.parametrize(
    ("ticks", "kind", "shown"),
    [
        (639_028_224_001_230_000, "datetime-offset", "2026-01-01T00:00:00.123Z"),
        (90_061 * 10_000_000 + 5, "timespan", "1.01:01:01.0000005"),
        (-10_000_000, "timespan", "-00:00:01"),
    ],
)
def test_dotnet_instants_and_spans_are_shown_as_such(ticks: int, kind: str, shown: str) -> None:
    described = Value("described", (Value("symbol", "com.microsoft:" + kind), Value("long", ticks)))
    assert text(described) == shown


@pytest.mark.parametrize(
    ("octets", "shown"),
    [
        ("32800001", "1"),
        ("b2800001", "-1"),
        ("f8000000", "-Infinity"),
        ("7c000000", "NaN"),
        ("77f8967f", "9.999999E+96"),
        ("6c9fffff", "0x6c9fffff"),  # a significand of more than seven digits
        ("7c000001", "0x7c000001"),  # NaN with a payload
    ],
)
def test_a_decimal_keeps_all_its_bits(octets: str, shown: str) -> None:
    assert decimals.to_text(bytes.fromhex(octets)) == shown
    assert decimals.from_text(shown, 4).hex() == octets


@given(st.sampled_from([4, 8, 16]).flatmap(lambda size: st.binary(min_size=size, max_size=size)))
def test_any_decimal_comes_back_from_its_text(octets: bytes) -> None:
    assert decimals.from_text(decimals.to_text(octets), len(octets)) == octets


@given(st.floats(width=32, allow_nan=False, allow_infinity=False))
def test_a_float_is_shown_as_short_as_can_be(number: float) -> None:
    shown = float_text(number, single=True)
    assert from_json(f'{{"float":{shown}}}') == Value("float", number)
    assert len(shown) <= len(repr(number))


def test_floats_that_are_no_numbers_are_spelled_as_spark_reads_them() -> None:
    assert [float_text(each) for each in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]
    assert math.isnan(from_json('{"float":"NaN"}').value)


@pytest.mark.parametrize(
    ("at_ms", "shown"),
    [
        (0, "1970-01-01T00:00:00.000Z"),
        (-1, "1969-12-31T23:59:59.999Z"),
        (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        (253_402_300_800_000, "253402300800000"),
        (-62_135_596_800_001, "-62135596800001"),
    ],
)
def test_an_instant_that_no_calendar_has_is_shown_as_milliseconds(at_ms: int, shown: str) -> None:
    assert instant_text(at_ms) == shown


def test_an_instant_may_be_written_in_any_zone_or_as_milliseconds() -> None:
    told = ['"2026-01-01T01:00:00.123+01:00"', '"2026-01-01T00:00:00.123"', "1767225600123"]
    assert [from_json(f'{{"timestamp":{each}}}') for each in told] == [Value("timestamp", 1_767_225_600_123)] * 3


@pytest.mark.parametrize(
    "told",
    [
        "",
        "abc",
        "[1]",
        "{}",
        '{"a":1,"b":2}',
        '{"int":"5"}',
        '{"int":true}',
        '{"boolean":1}',
        '{"number":5}',
        '{"char":"ab"}',
        '{"char":"\\ud800"}',
        '{"uuid":"5"}',
        '{"binary":"?"}',
        '{"symbol":5}',
        '{"float":true}',
        '{"double":"x"}',
        '{"float":1e300}',
        '{"timestamp":"noon"}',
        '{"timestamp":true}',
        '{"decimal32":"x"}',
        '{"decimal32":"12345678"}',
        '{"decimal32":"0x00"}',
        '{"list":5}',
        '{"map":[[1]]}',
        '{"array":["int",[5]]}',
        '{"array":["int"]}',
        '{"array":[5,[]]}',
        '{"array":["described",[]]}',
        '{"described":["a"]}',
        '{"ubyte":256}',
        '{"symbol":"é"}',
        "9223372036854775808",
        '"\\ud800"',
        '{"list":[' * (NESTING_MAX + 2) + "]}" * (NESTING_MAX + 2),
        "[" * 100_000,
    ],
)
def test_json_that_tells_no_value_is_refused(told: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        write(from_json(told))


@pytest.mark.parametrize(
    "encoded",
    [
        "",
        "01",
        "ff",
        "71000000",
        "a105616263",
        "a102ff",
        "a101ff",
        "5602",
        "730000d800",
        "7300110000",
        "73ffffffff",
        "c0",
        "c00101",
        "c003014040",
        "c1020140",
        "d0ffffffffffffffff",
        "e00301",
        "e0020100",
        "f00000000affffffff40",
        "00" * 200,
        "c00401c00101",
    ],
)
def test_bytes_that_are_no_value_are_refused(encoded: str) -> None:
    data = bytes.fromhex(encoded)
    with pytest.raises(MALFORMED):
        read(data, 0, len(data))


def nested(depth: int) -> bytes:
    data = write(NULL)
    for _ in range(depth):
        data = write(Value("list", [NULL])).replace(b"\x40", data) if depth < 3 else b"\xd0" + sized(data)
    return data


def sized(data: bytes) -> bytes:
    return (len(data) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + data


def test_nesting_is_limited() -> None:
    deep: Any = nested(NESTING_MAX)
    assert read(deep, 0, len(deep))[1] == len(deep)
    deeper = nested(NESTING_MAX + 1)
    with pytest.raises(ValueError, match="nested deeper than 64"):
        read(deeper, 0, len(deeper))
