"""The broker's AMQP codec and the connector's read any bytes alike: the same value, or both refuse.

They represent some values differently, which the comparison levels: a decimal is bytes or text, an array has the exact
constructor or the type's name, a descriptor of array elements that is null counts as none, and the broker's maps are
dicts, in which equal keys fall together. A map whose key is itself a collection is refused by the broker alone: no dict
can hold it.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from struct import pack
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from emubus.codec import decode as encoding
from emubus.codec.errors import DecodeError
from emubus.codec.skip import skip as broker_skip
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
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from emubus.spark_connector.codec import decimals, values
from emubus.spark_connector.codec.values import MALFORMED, NULL, Elements, Value

Plain = tuple[Any, ...]

WIDTHS = {
    0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x45: 0, 0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x56: 1,
    0x60: 2, 0x61: 2, 0x70: 4, 0x71: 4, 0x72: 4, 0x73: 4, 0x74: 4, 0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x84: 8,
    0x94: 16, 0x98: 16,
}  # fmt: skip
VARIABLE = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)
NAMES: dict[type, str] = {
    Symbol: "symbol", Char: "char", Ubyte: "ubyte", Ushort: "ushort", Uint: "uint", Ulong: "ulong", Byte: "byte",
    Short: "short", Int: "int", Long: "long", Timestamp: "timestamp", bool: "boolean", str: "string", bytes: "binary",
    int: "long", type(None): "null", uuid.UUID: "uuid",
}  # fmt: skip
DECIMALS: dict[type, str] = {Decimal32: "decimal32", Decimal64: "decimal64", Decimal128: "decimal128"}
ELEMENT_NAMES = {code: kind for code, (kind, _) in values._KINDS.items()}
COLLECTION_AS_KEY = "a map key that is itself a collection"


# ---- both representations, levelled


def of_broker(value: object) -> Plain:
    """The type's name and the value, from what `encoding.decode` gives."""
    kind = type(value)
    if isinstance(value, Described):
        return "described", of_broker(value.descriptor), of_broker(value.value)
    if isinstance(value, Array):
        name = ELEMENT_NAMES[value.type_code]
        descriptor = None if value.descriptor is None else of_broker(value.descriptor)
        return "array", name, tuple(of_broker(each) for each in value.values), descriptor
    if isinstance(value, list):
        return "list", tuple(of_broker(each) for each in value)
    if isinstance(value, dict):
        return "map", tuple((of_broker(key), of_broker(entry)) for key, entry in value.items())
    if kind in DECIMALS:
        return DECIMALS[kind], decimals.to_text(bytes(value))  # type: ignore[call-overload]
    if isinstance(value, float):
        return "float" if kind is Float else "double", pack(">d", value)
    return NAMES[kind], str.__str__(value) if isinstance(value, str) else value


def of_connector(value: Value) -> Plain:
    """The same, from what `values.read` gives."""
    name, plain = value
    if name == "described":
        return name, of_connector(plain[0]), of_connector(plain[1])
    if name == "array":
        return name, *_elements(plain)
    if name == "list":
        return name, tuple(of_connector(each) for each in plain)
    if name == "map":
        return name, _fallen_together([(of_connector(key), of_connector(entry)) for key, entry in plain])
    if name in ("float", "double"):
        return name, pack(">d", plain)
    return name, plain


def _elements(elements: Elements) -> tuple[str, Plain, Plain | None]:
    found = tuple(of_connector(Value(elements.type, each)) for each in elements.values)
    described = elements.descriptor not in (None, NULL)
    return elements.type, found, of_connector(elements.descriptor) if described and elements.descriptor else None


def _fallen_together(pairs: list[tuple[Plain, Plain]]) -> Plain:
    """As in a dict: of keys that Python holds equal the first stays, with the value of the last."""
    found: dict[Any, tuple[Plain, Plain]] = {}
    for key, entry in pairs:
        same = _as_python(key)
        found[same] = (found[same][0] if same in found else key, entry)
    return tuple(found.values())


def _as_python(key: Plain) -> Any:
    name, plain = key[0], key[1]
    if name in ("float", "double"):
        return encoding.decode(b"\x82" + plain)[0]
    if name.startswith("decimal"):
        return name, plain
    if name in ("described", "array"):
        return key
    return plain


def read_by_broker(data: bytes) -> tuple[Plain, int] | str:
    """What the broker's codec reads, or why not."""
    try:
        value, end = encoding.decode(data)
    except DecodeError as error:
        return str(error)
    return of_broker(value), end


def read_by_connector(data: bytes) -> tuple[Plain, int] | str:
    """What the connector's codec reads, or why not."""
    try:
        value, end = values.read(data, 0, len(data))
    except MALFORMED as error:
        return str(error) or "malformed"
    return of_connector(value), end


# ---- bytes that are AMQP, or almost


def _with_sizes(codes: tuple[int, int], joined: tuple[int, bytes], wide: bool) -> bytes:
    count, items = joined
    if wide or len(items) > 250 or count > 250:
        return bytes((codes[1],)) + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items
    return bytes((codes[0], len(items) + 1, count)) + items


def _variable(code: int, content: bytes) -> bytes:
    return bytes((code,)) + len(content).to_bytes(1 if code < 0xB0 else 4, "big") + content


FIXED = st.sampled_from(sorted(WIDTHS)).flatmap(
    lambda code: st.binary(min_size=WIDTHS[code], max_size=WIDTHS[code]).map(lambda rest: bytes((code,)) + rest)
)
TEXT = st.text(max_size=6).map(str.encode) | st.binary(max_size=6)
SIMPLE = FIXED | st.builds(_variable, st.sampled_from(VARIABLE), TEXT)


def _arrays(draw_element: Callable[[int], st.SearchStrategy[bytes]]) -> st.SearchStrategy[bytes]:
    def of_code(code: int) -> st.SearchStrategy[bytes]:
        elements = st.lists(draw_element(code), max_size=20)
        return st.builds(
            lambda items, descriptor, wide: _with_sizes(
                (0xE0, 0xF0), (len(items), descriptor + bytes((code,)) + b"".join(items)), wide
            ),
            elements,
            st.just(b"") | SIMPLE.map(lambda value: b"\x00" + value),
            st.booleans(),
        )

    return st.sampled_from([*sorted(WIDTHS), *VARIABLE]).flatmap(of_code)


def _element(code: int) -> st.SearchStrategy[bytes]:
    if code in WIDTHS:
        return st.binary(min_size=WIDTHS[code], max_size=WIDTHS[code])
    return TEXT.map(lambda content: _variable(code, content)[1:])


def _around(inner: st.SearchStrategy[bytes]) -> st.SearchStrategy[bytes]:
    joined = st.lists(inner, max_size=4).map(lambda items: (len(items), b"".join(items)))
    return (
        st.builds(_with_sizes, st.sampled_from([(0xC0, 0xD0), (0xC1, 0xD1)]), joined, st.booleans())
        | _arrays(_element)
        | st.builds(lambda descriptor, value: b"\x00" + descriptor + value, inner, inner)
    )


ENCODED = st.recursive(SIMPLE, _around, max_leaves=12)


def _spoiled(data: bytes, changes: list[tuple[int, int]], cut: int) -> bytes:
    octets = bytearray(data)
    for at, octet in changes:
        octets[at % len(octets)] = octet
    return bytes(octets[: len(octets) - cut % len(octets)] if cut else octets)


SPOILED = st.builds(
    _spoiled, ENCODED, st.lists(st.tuples(st.integers(0, 200), st.integers(0, 255)), max_size=3), st.integers(0, 3)
)


@settings(max_examples=400, deadline=None)
@given(st.binary(max_size=40) | ENCODED | SPOILED)
@example(b"\xe0\x02\x10\x40")
@example(b"\xe0\x02\x11\x40")
@example(b"\xa3\x02\xc3\xa4")
@example(b"\xa3\x01\xff")
@example(b"\xe0\x01\x00\x40")
@example(b"\xe0\x04\x00\x00\x40\x40")
@example(b"\xc1\x05\x04\x41\x40\x54\x01")
@example(b"\x00" * 70)
@example(b"\x00\x40" * 64 + b"\x40")
@example(b"\x00\x40" * 65 + b"\x40")
def test_both_codecs_read_the_same_value_or_both_refuse(data: bytes) -> None:
    by_broker, by_connector = read_by_broker(data), read_by_connector(data)
    if isinstance(by_broker, str) and COLLECTION_AS_KEY in by_broker:
        return
    if isinstance(by_broker, str) or isinstance(by_connector, str):
        assert (isinstance(by_broker, str), isinstance(by_connector, str)) == (True, True), (by_broker, by_connector)
        assert by_broker  # of the condition that says so
    else:
        assert by_broker == by_connector


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=40) | ENCODED | SPOILED)
def test_both_codecs_jump_over_the_same_bytes_or_both_refuse(data: bytes) -> None:
    try:
        by_broker = broker_skip(data)
    except DecodeError:
        by_broker = None
    try:
        by_connector: int | None = values.skip(data, 0)
    except MALFORMED:
        by_connector = None
    if by_connector is not None and by_connector > len(data):
        by_connector = None  # the connector's callers compare with the end of what encloses the value
    assert by_broker == by_connector


def test_the_limits_of_both_codecs_are_the_same() -> None:
    assert encoding.NESTING_MAX == values.NESTING_MAX
    assert encoding.ZERO_WIDTH_ELEMENTS_MAX == values.ZERO_WIDTH_ELEMENTS_MAX


@pytest.mark.parametrize(("count", "accepted"), [(16, True), (17, False)])
@pytest.mark.parametrize("code", [0x40, 0x41, 0x42, 0x43, 0x44, 0x45])
def test_an_array_of_elements_without_bytes_has_the_same_limit_in_both(code: int, count: int, accepted: bool) -> None:
    data = bytes((0xE0, 2, count, code))
    assert (not isinstance(read_by_broker(data), str), not isinstance(read_by_connector(data), str)) == (accepted,) * 2
