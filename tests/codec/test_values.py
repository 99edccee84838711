"""The AMQP type codec: every type comes back as it was, nothing malformed gets through, nothing else escapes."""

from __future__ import annotations

import pickle
import struct
import uuid
from collections.abc import Callable
from enum import StrEnum
from typing import Any

import proton
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emubus.codec.decode import NESTING_MAX, ZERO_WIDTH_ELEMENTS_MAX, decode, decode_exactly
from emubus.codec.encode import encode, encode_array, encode_list, encode_map
from emubus.codec.errors import DecodeError
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

from ..rounds import rounds
from .encoded import ENCODED, SPOILED


def exact(value: object) -> object:
    """Return something that is equal for equal values of equal types only, all the way down."""
    if isinstance(value, dict):
        return ("dict", [(exact(key), exact(item)) for key, item in value.items()])
    if isinstance(value, list | tuple):
        return (type(value).__name__, [exact(item) for item in value])
    if isinstance(value, Array):
        return ("Array", value.type_code, exact(value.values), exact(value.descriptor))
    if isinstance(value, Described):
        return ("Described", exact(value.descriptor), exact(value.value))
    if isinstance(value, float):
        return (type(value).__name__, struct.pack(">d", value))
    return (type(value).__name__, value)


def _signed(bits: int) -> st.SearchStrategy[int]:
    high = 1 << (bits - 1)
    return st.integers(-high, high - 1) | st.integers(-min(high, 200), min(high - 1, 200))


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1) | st.integers(0, min(300, (1 << bits) - 1))


TEXT = st.text(max_size=300)
ASCII = st.text(st.characters(max_codepoint=127), max_size=300)
FLOATS = st.floats(width=32, allow_nan=False)
CHARS = st.characters(codec="utf-8")

SCALARS: st.SearchStrategy[Any] = st.one_of(
    st.none(),
    st.booleans(),
    _unsigned(8).map(Ubyte),
    _unsigned(16).map(Ushort),
    _unsigned(32).map(Uint),
    _unsigned(64).map(Ulong),
    _signed(8).map(Byte),
    _signed(16).map(Short),
    _signed(32).map(Int),
    _signed(64).map(Long),
    _signed(64).map(Timestamp),
    st.floats(allow_nan=False),
    FLOATS.map(Float),
    CHARS.map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.uuids(),
    st.binary(max_size=300),
    TEXT,
    ASCII.map(Symbol),
)


def _arrays(children: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    kinds: list[tuple[int, st.SearchStrategy[Any]]] = [
        (0x40, st.none()),
        (0x41, st.just(value=True)),
        (0x43, st.just(Uint(0))),
        (0x45, st.builds(list)),
        (0x50, _unsigned(8).map(Ubyte)),
        (0x53, _unsigned(8).map(Ulong)),
        (0x54, _signed(8).map(Int)),
        (0x56, st.booleans()),
        (0x61, _signed(16).map(Short)),
        (0x70, _unsigned(32).map(Uint)),
        (0x72, FLOATS.map(Float)),
        (0x73, CHARS.map(Char)),
        (0x81, _signed(64).map(Long)),
        (0x83, _signed(64).map(Timestamp)),
        (0x94, st.binary(min_size=16, max_size=16).map(Decimal128)),
        (0x98, st.uuids()),
        (0xA3, ASCII.filter(lambda text: len(text) < 256).map(Symbol)),
        (0xB0, st.binary(max_size=300)),
        (0xB1, TEXT),
        (0xD0, st.lists(children, max_size=3)),
        (0xD1, st.dictionaries(SCALARS, children, max_size=3)),
        (0xF0, st.lists(st.none(), max_size=3).map(lambda nulls: Array(0x40, tuple(nulls)))),
    ]
    descriptors = st.none() | _unsigned(64).map(Ulong) | ASCII.map(Symbol)
    return st.sampled_from(kinds).flatmap(
        lambda kind: st.builds(Array, st.just(kind[0]), st.lists(kind[1], max_size=5).map(tuple), descriptors)
    )


VALUES: st.SearchStrategy[Any] = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(SCALARS, children, max_size=6),
        _arrays(children),
        st.builds(Described, _unsigned(64).map(Ulong) | ASCII.map(Symbol), children),
    ),
    max_leaves=12,
)


TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")

VECTORS: list[tuple[object, str]] = [
    (None, "40"),
    (True, "41"),
    (False, "42"),
    (Uint(0), "43"),
    (Uint(255), "52ff"),
    (Uint(0x80013700), "7080013700"),
    (Ulong(0), "44"),
    (Ulong(0x70), "5370"),
    (Ulong(0x137000000C), "80000000137000000c"),
    (Ubyte(7), "5007"),
    (Ushort(7), "600007"),
    (Byte(-1), "51ff"),
    (Short(38), "610026"),
    (Int(200), "71000000c8"),
    (Int(-1), "54ff"),
    (5, "5505"),
    (Long(639028224000000000), "8108de48c8b4f80000"),
    (Timestamp(253402300799999), "830000e677d21fdbff"),
    (Float(1.5), "723fc00000"),
    (1.5, "823ff8000000000000"),
    (Char("é"), "73000000e9"),
    (Decimal32(b"\x01\x02\x03\x04"), "7401020304"),
    (TOKEN, "9800112233445566778899aabbccddeeff"),
    (b"\x00\x01", "a0020001"),
    ("é", "a102c3a9"),
    (Symbol("x-opt"), "a305782d6f7074"),
    ([], "45"),
    ([None, 1], "c00402405501"),
    ({"a": True}, "c10502a1016141"),
    (Array(0x55, (1, 2)), "e00402550102"),
    (Described(Ulong(0x77), None), "00537740"),
]


@pytest.mark.parametrize(("value", "octets"), VECTORS)
def test_each_type_has_its_shortest_encoding(value: object, octets: str) -> None:
    assert encode(value).hex() == octets
    assert decode(bytes.fromhex(octets)) == (value, len(octets) // 2)


@given(VALUES)
def test_a_value_comes_back_with_its_exact_type(value: object) -> None:
    octets = encode(value)
    assert exact(decode(octets)[0]) == exact(value)
    assert decode(b"\x40" + octets, 1)[1] == skip(b"\x40" + octets, 1) == len(octets) + 1
    assert decode(memoryview(octets)) == decode(octets)
    assert skip(octets * 3, 0, 3) == 3 * len(octets)


@given(VALUES.map(encode), st.data())
def test_a_value_that_is_cut_off_is_refused(octets: bytes, data: st.DataObject) -> None:
    cut = octets[: data.draw(st.integers(0, len(octets) - 1))]
    for read in (decode, skip):
        with pytest.raises(DecodeError):
            read(cut, 0)


def end_of(read: Callable[[], int]) -> int | None:
    """Return what `read` returns, None when it refuses; whatever else it raises fails the test."""
    try:
        return read()
    except DecodeError:
        return None


def reads(octets: bytes, offset: int) -> tuple[int | None, int | None]:
    return end_of(lambda: decode(octets, offset)[1]), end_of(lambda: skip(octets, offset))


@given(st.binary(max_size=200), st.integers(-2, 12))
def test_any_bytes_give_a_value_or_a_decode_error(octets: bytes, offset: int) -> None:
    decoded, skipped = reads(octets, offset)
    assert decoded is None or decoded == skipped


@given(VALUES.map(encode), st.data())
def test_a_damaged_value_gives_a_value_or_a_decode_error(octets: bytes, data: st.DataObject) -> None:
    damaged = bytearray(octets)
    for _ in range(data.draw(st.integers(1, 3))):
        damaged[data.draw(st.integers(0, len(octets) - 1))] = data.draw(st.integers(0, 255))
    decoded, skipped = reads(bytes(damaged), 0)
    assert decoded is None or decoded == skipped


@pytest.mark.parametrize(
    "octets",
    [
        "",
        "99",  # a constructor of no type
        "5602",  # a boolean of value 2
        "a101ff",  # text that is not UTF-8
        "a301ff",  # a symbol that is not UTF-8
        "730000d800",  # a surrogate as char
        "c00101",  # a list that has no room for its item
        "c0030140" + "40",  # a list whose item does not fill it
        "c000",  # a list without a count
        "c1020140",  # a map with a key alone
        "c1040245" + "40",  # a map with a list as key
        "d000000004ffffffff",  # 4 billion items in no byte
        "f000000005ffffffff40",  # 4 billion nulls
        "f000000005ffffffff43",  # 4 billion zeros
        "e0020101" + "41",  # an array of described values without the descriptor's end
        "e00101",  # an array without element type
        "e0080100534000534040",  # an array whose elements are described twice
        "f0ffffffff00000000",
        "b0ffffffff",
        "71000000",  # an int of three bytes
        "a105616263",  # a text that is cut off
        "7300110000",  # no code point
        "c0",
        "d0ffffffffffffffff",
        "00" * 200,
        "c00401c00101",  # a list that ends behind the one around it
    ],
)
def test_malformed_bytes_are_refused(octets: str) -> None:
    with pytest.raises(DecodeError):
        decode(bytes.fromhex(octets))


def test_a_decode_error_says_what_is_wrong_and_where() -> None:
    with pytest.raises(DecodeError) as refused:
        decode(b"\x45\x99", 1)
    assert (refused.value.offset, refused.value.problem) == (1, "no type has the constructor 0x99")
    assert str(refused.value) == "malformed AMQP data at offset 1: no type has the constructor 0x99"
    assert str(pickle.loads(pickle.dumps(refused.value))) == str(refused.value)


def nested(depth: int) -> bytes:
    octets = b"\x40"
    for _ in range(depth):
        octets = b"\xd0" + (len(octets) + 4).to_bytes(4, "big") + b"\x00\x00\x00\x01" + octets
    return octets


def test_values_may_be_nested_up_to_a_limit() -> None:
    assert decode(nested(NESTING_MAX))[1] == len(nested(NESTING_MAX))
    for octets in (nested(NESTING_MAX + 1), b"\x00" * 100_000, b"\x00\x40" * 100_000):
        with pytest.raises(DecodeError):
            decode(octets)


def test_nesting_beyond_the_limit_is_skipped_without_looking_inside() -> None:
    assert skip(nested(1000)) == len(nested(1000))


def test_an_array_of_nothings_has_a_limit() -> None:
    accepted = encode_array(0x40, [None] * ZERO_WIDTH_ELEMENTS_MAX)
    assert decode(accepted)[0] == Array(0x40, (None,) * ZERO_WIDTH_ELEMENTS_MAX)
    with pytest.raises(DecodeError):
        decode(encode_array(0x40, [None] * (ZERO_WIDTH_ELEMENTS_MAX + 1)))


def test_an_offset_in_the_error_tells_where() -> None:
    with pytest.raises(DecodeError, match="at offset 4"):
        decode(encode_list([None]) + b"\x99", 4)


def test_a_plain_int_is_a_long_and_a_tuple_a_list() -> None:
    assert exact(decode(encode((1, 2**40)))[0]) == exact([Long(1), Long(2**40)])


@pytest.mark.parametrize("value", [object(), {1, 2}, 1j, bytearray(b"x")])
def test_a_python_type_without_amqp_type_is_a_type_error(value: object) -> None:
    with pytest.raises(TypeError):
        encode(value)


@pytest.mark.parametrize("value", [2**63, Ubyte(256), Uint(-1), Short(40000), Decimal32(b"x"), Symbol("\ud800")])
def test_a_value_outside_its_range_is_a_value_error(value: object) -> None:
    with pytest.raises(ValueError, match=r"fit|bytes|codec"):
        encode(value)


@pytest.mark.parametrize(
    ("type_code", "element"), [(0xA1, "x" * 256), (0x43, 1), (0x50, 256), (0x99, 1), (0xC0, [None] * 256)]
)
def test_an_element_that_its_array_cannot_hold_is_a_value_error(type_code: int, element: object) -> None:
    with pytest.raises(ValueError, match=r"fit|long|array|constructor"):
        encode_array(type_code, [element])


def test_a_subclass_is_encoded_as_what_it_is() -> None:
    class Name(StrEnum):
        ONE = "one"

    assert encode(Name.ONE) == encode("one")


def test_collections_grow_into_their_long_forms() -> None:
    assert encode_list([None] * 255)[:1] == b"\xd0"
    assert encode_list([None] * 254)[:1] == b"\xc0"
    assert encode_map({"k": "x" * 300})[:1] == b"\xd1"
    assert encode_array(0x40, [None] * 256)[:1] == b"\xf0"


UNDESCRIBED: Any = proton.UNDESCRIBED
PROTON_VALUES: list[Any] = [
    None,
    True,
    False,
    proton.ubyte(200),
    proton.ushort(60000),
    proton.uint(0),
    proton.uint(2**31),
    proton.ulong(0),
    proton.ulong(2**63),
    proton.byte(-3),
    proton.short(-300),
    proton.int32(-70000),
    -1,
    2**40,
    proton.timestamp(1767225600000),
    proton.float32(0.5),
    0.1,
    proton.char("ß"),
    TOKEN,
    b"\x00" * 260,
    "text",
    "é" * 300,
    proton.symbol("amqp:accepted:list"),
    [1, ["two", {proton.symbol("k"): None}]],
    {"a": proton.ulong(1), 2: [3]},
    proton.Described(proton.ulong(0x70), [None]),
    proton.Array(UNDESCRIBED, proton.Data.LONG, 1, 2, 3),
    proton.Array(proton.symbol("d"), proton.Data.UUID, TOKEN),
]


@pytest.mark.parametrize("value", PROTON_VALUES, ids=lambda value: type(value).__name__)
def test_proton_and_this_codec_read_each_other(value: Any) -> None:
    theirs = proton.Data()
    theirs.put_object(value)
    octets = bytes(theirs.encode())
    ours, stop = decode(octets)
    assert stop == len(octets)
    back = proton.Data()
    assert back.decode(encode(ours)) == len(encode(ours))
    back.rewind()
    back.next()
    assert back.get_object() == value
    theirs.rewind()
    theirs.next()
    assert type(back.get_object()) is type(theirs.get_object())


@settings(max_examples=rounds(200, 4_000))
@given(st.binary(max_size=40) | ENCODED | SPOILED)
@example(b"\xe0\x02\x10\x40")
@example(b"\xe0\x02\x11\x40")
@example(b"\xe0\x04\x00\x00\x40\x40")
@example(b"\x00\x40" * 64 + b"\x40")
@example(b"\x00\x40" * 65 + b"\x40")
def test_what_is_decoded_exactly_is_skipped_alike_and_comes_back(octets: bytes) -> None:
    end = end_of(lambda: decode_exactly(octets)[1])
    if end is not None:
        assert skip(octets) == end
        value, _ = decode_exactly(octets)
        again, _ = decode_exactly(encode(value))
        assert exact(again) == exact(value)


@settings(max_examples=rounds(200, 4_000))
@given(st.binary(max_size=40) | ENCODED | SPOILED)
@example(b"\xc1\x05\x04\x41\x40\x54\x01")
def test_maps_as_items_or_as_dicts_are_the_same_values(octets: bytes) -> None:
    try:
        value, end = decode(octets)
    except DecodeError as error:
        if error.problem == "a map key that is itself a collection":
            return
        assert end_of(lambda: decode_exactly(octets)[1]) is None
    else:
        exactly, exact_end = decode_exactly(octets)
        assert (exact(_with_dicts(exactly)), exact_end) == (exact(value), end)


def _with_dicts(value: object) -> object:
    if isinstance(value, MapItems):
        return {_with_dicts(key): _with_dicts(entry) for key, entry in value.items()}
    if isinstance(value, list):
        return list(map(_with_dicts, value))
    if isinstance(value, Described):
        return Described(_with_dicts(value.descriptor), _with_dicts(value.value))
    if isinstance(value, Array):
        return Array(value.type_code, tuple(map(_with_dicts, value.values)), _with_dicts(value.descriptor))
    return value


def test_map_items_keep_entries_that_a_dict_would_lose() -> None:
    items = MapItems([(Symbol("a"), "b"), ("a", "c"), ([], Uint(3)), (Long(1), None), (True, None)])
    assert exact(decode_exactly(encode(items))[0]) == exact(items)
    assert decode(encode(MapItems(items[:2])))[0] == {"a": "c"}


@pytest.mark.parametrize(("count", "accepted"), [(16, True), (17, False)])
@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_an_array_of_elements_without_bytes_has_a_limit(code: int, count: int, accepted: bool) -> None:
    assert (end_of(lambda: decode(bytes((0xE0, 2, count, code)))[1]) is not None) == accepted


@pytest.mark.parametrize("kind", [Int, Long, Uint, Ulong])
@pytest.mark.parametrize("number", [0, 1, 127, 128, 255, 256])
def test_integers_of_every_type_take_one_byte_where_that_is_enough(kind: type[int], number: int) -> None:
    is_short = number < (128 if kind in (Int, Long) else 256)
    width = 4 if kind in (Int, Uint) else 8
    assert len(encode(kind(number))) == (1 if number == 0 and kind in (Uint, Ulong) else 2 if is_short else 1 + width)
