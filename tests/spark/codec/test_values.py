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

from emubus.codec import decimals
from emubus.codec.decode import NESTING_MAX, decode_exactly
from emubus.codec.encode import encode
from emubus.codec.skip import skip
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
from emubus.spark_connector.codec.properties import float_text, from_json, instant_text, plain_json, text, typed_json

from .strategies import VALUES, exact

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


@given(VALUES)
def test_a_value_encoded_is_decoded_again(value: object) -> None:
    data = encode(value)
    decoded, end = decode_exactly(data)
    assert (exact(decoded), end, skip(data)) == (exact(value), len(data), len(data))


@given(VALUES)
def test_typed_json_gives_the_very_value_back(value: object) -> None:
    assert exact(from_json(typed_json(value))) == exact(value)


def test_the_longer_form_of_typed_json_is_taken_too() -> None:
    long = '{"type":"int","value":5}'
    assert exact(from_json(long)) == exact(from_json('{"int":5}')) == exact(Int(5))
    assert exact(from_json(f'{{"value":[{long}],"type":"list"}}')) == exact(from_json(f"[{long}]")) == exact([Int(5)])
    assert exact(from_json('{"symbol":"é"}')) == exact(Symbol("é"))  # a reader may have met one
    for wrong in ('{"type":5,"value":5}', '{"type":"integer","value":5}', '{"type":"int"}'):
        with pytest.raises(ValueError, match="is no AMQP type"):
            from_json(wrong)


@given(VALUES)
def test_every_value_has_a_text_and_plain_json(value: object) -> None:
    json.loads(plain_json(value))
    assert (text(value) is None) == (value is None or (isinstance(value, Described) and text(value.value) is None))


def by_proton(value: object) -> bytes:
    """Encode a value alone with Proton."""
    data = proton.Data()
    data.put_object(value)
    return bytes(data.encode())


UNDESCRIBED: Any = proton.UNDESCRIBED
THEIR_ARRAY = proton.Array(UNDESCRIBED, proton.Data.INT, 1, 2)
TYPES = [
    (None, None, None, "null"),
    (True, True, "true", "true"),
    (False, False, "false", "false"),
    (Ubyte(200), proton.ubyte(200), "200", '{"ubyte":200}'),
    (Ushort(60_000), proton.ushort(60_000), "60000", '{"ushort":60000}'),
    (Uint(0), proton.uint(0), "0", '{"uint":0}'),
    (Uint(4_000_000_000), proton.uint(4_000_000_000), "4000000000", '{"uint":4000000000}'),
    (Ulong(1 << 63), proton.ulong(1 << 63), "9223372036854775808", '{"ulong":9223372036854775808}'),
    (Byte(-7), proton.byte(-7), "-7", '{"byte":-7}'),
    (Short(-700), proton.short(-700), "-700", '{"short":-700}'),
    (Int(-5), proton.int32(-5), "-5", '{"int":-5}'),
    (Int(70_000), proton.int32(70_000), "70000", '{"int":70000}'),
    (Long(5), 5, "5", "5"),
    (Long(-(1 << 62)), -(1 << 62), "-4611686018427387904", "-4611686018427387904"),
    (Float(0.5), proton.float32(0.5), "0.5", '{"float":0.5}'),
    (5.0, 5.0, "5.0", "5.0"),
    (math.inf, math.inf, "Infinity", '{"double":"Infinity"}'),
    (Char("é"), proton.char("é"), "é", '{"char":"é"}'),
    (
        Timestamp(1_767_225_600_123),
        proton.timestamp(1_767_225_600_123),
        "2026-01-01T00:00:00.123Z",
        '{"timestamp":"2026-01-01T00:00:00.123Z"}',
    ),
    (UUID, UUID, str(UUID), f'{{"uuid":"{UUID}"}}'),
    (b"\xff\x00a", b"\xff\x00a", "/wBh", '{"binary":"/wBh"}'),
    ('a "b"\n', 'a "b"\n', 'a "b"\n', '"a \\"b\\"\\n"'),
    ("x" * 300, "x" * 300, "x" * 300, '"' + "x" * 300 + '"'),
    (Symbol("sym"), proton.symbol("sym"), "sym", '{"symbol":"sym"}'),
    (Decimal32(decimals.from_text("1.10", 4)), proton.decimal32(0x3180006E), "1.10", '{"decimal32":"1.10"}'),
    (Decimal64(decimals.from_text("-3", 8)), proton.decimal64(0xB1C0000000000003), "-3", '{"decimal64":"-3"}'),
    (
        Decimal128(decimals.from_text("1", 16)),
        proton.decimal128(bytes.fromhex("30400000000000000000000000000001")),
        "1",
        '{"decimal128":"1"}',
    ),
    ([Long(1), "a"], [1, "a"], '[1,"a"]', '{"list":[1,"a"]}'),
    ([], [], "[]", '{"list":[]}'),
    (
        MapItems([("k", Int(2))]),
        {"k": proton.int32(2)},
        '{"k":2}',
        '{"map":[["k",{"int":2}]]}',
    ),
    (
        Array(0x71, (Int(1), Int(2))),
        THEIR_ARRAY,
        "[1,2]",
        '{"array":["int",[{"int":1},{"int":2}]]}',
    ),
    (
        Described(Symbol("com.example:thing"), "x"),
        proton.Described(proton.symbol("com.example:thing"), "x"),
        "x",
        '{"described":[{"symbol":"com.example:thing"},"x"]}',
    ),
]


@pytest.mark.parametrize(("value", "theirs", "shown", "typed"), TYPES, ids=lambda each: str(each)[:30])
def test_proton_and_we_understand_each_other(value: object, theirs: object, shown: str | None, typed: str) -> None:
    decoded, end = decode_exactly(encoded := by_proton(theirs))
    assert (exact(decoded), end) == (exact(value), len(encoded))
    data = proton.Data()
    data.decode(encode(value))
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
    described = Described(Symbol("com.microsoft:" + kind), Long(ticks))
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
    assert exact(from_json(f'{{"float":{shown}}}')) == exact(Float(number))
    assert len(shown) <= len(repr(number))


def test_floats_that_are_no_numbers_are_spelled_as_spark_reads_them() -> None:
    assert [float_text(each) for each in (math.nan, math.inf, -math.inf)] == ["NaN", "Infinity", "-Infinity"]
    not_a_number = from_json('{"float":"NaN"}')
    assert isinstance(not_a_number, Float)
    assert math.isnan(not_a_number)


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
    reported = ['"2026-01-01T01:00:00.123+01:00"', '"2026-01-01T00:00:00.123"', "1767225600123"]
    assert [exact(from_json(f'{{"timestamp":{each}}}')) for each in reported] == [("timestamp", 1_767_225_600_123)] * 3


@pytest.mark.parametrize(
    "reported",
    [
        "",
        "abc",
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
        "9223372036854775808",
        '"\\ud800"',
        '{"list":[' * (NESTING_MAX + 2) + "]}" * (NESTING_MAX + 2),
        "[" * 100_000,
    ],
)
def test_json_that_tells_no_value_is_refused(reported: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        encode(from_json(reported))
