"""Strategies for AMQP values, and a way to compare them with their exact types."""

from __future__ import annotations

import struct

from hypothesis import strategies as st

from emubus.broker.encoding import (
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
    return st.integers(-(1 << (bits - 1)), (1 << (bits - 1)) - 1) | st.integers(-200, 200).filter(
        lambda n: -(1 << (bits - 1)) <= n < (1 << (bits - 1))
    )


def _unsigned(bits: int) -> st.SearchStrategy[int]:
    return st.integers(0, (1 << bits) - 1) | st.integers(0, min(300, (1 << bits) - 1))


TEXT = st.text(max_size=300)
ASCII = st.text(st.characters(max_codepoint=127), max_size=300)
FLOATS = st.floats(width=32, allow_nan=False)

SCALARS: st.SearchStrategy[object] = st.one_of(
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
    st.characters().map(Char),
    st.binary(min_size=4, max_size=4).map(Decimal32),
    st.binary(min_size=8, max_size=8).map(Decimal64),
    st.binary(min_size=16, max_size=16).map(Decimal128),
    st.uuids(),
    st.binary(max_size=300),
    TEXT,
    ASCII.map(Symbol),
)


def _arrays(children: st.SearchStrategy[object]) -> st.SearchStrategy[Array]:
    lists = st.lists(children, max_size=3)
    maps = st.dictionaries(SCALARS, children, max_size=3)
    kinds: list[tuple[int, st.SearchStrategy[object]]] = [
        (0x40, st.none()),
        (0x41, st.just(value=True)),
        (0x43, st.just(Uint(0))),
        (0x45, st.just([])),
        (0x50, _unsigned(8).map(Ubyte)),
        (0x53, _unsigned(8).map(Ulong)),
        (0x54, _signed(8).map(Int)),
        (0x56, st.booleans()),
        (0x61, _signed(16).map(Short)),
        (0x70, _unsigned(32).map(Uint)),
        (0x72, FLOATS.map(Float)),
        (0x73, st.characters().map(Char)),
        (0x81, _signed(64).map(Long)),
        (0x83, _signed(64).map(Timestamp)),
        (0x94, st.binary(min_size=16, max_size=16).map(Decimal128)),
        (0x98, st.uuids()),
        (0xA3, ASCII.filter(lambda text: len(text) < 256).map(Symbol)),
        (0xB0, st.binary(max_size=300)),
        (0xB1, TEXT),
        (0xD0, lists),
        (0xD1, maps),
        (0xF0, st.lists(SCALARS.map(lambda _: None), max_size=3).map(lambda n: Array(0x40, tuple(n)))),
    ]
    descriptors = st.none() | _unsigned(64).map(Ulong) | ASCII.map(Symbol)
    return st.one_of(
        st.builds(Array, st.just(code), st.lists(items, max_size=5).map(tuple), descriptors) for code, items in kinds
    )


VALUES: st.SearchStrategy[object] = st.recursive(
    SCALARS,
    lambda children: st.one_of(
        st.lists(children, max_size=6),
        st.dictionaries(SCALARS, children, max_size=6),
        _arrays(children),
        st.builds(Described, _unsigned(64).map(Ulong) | ASCII.map(Symbol), children),
    ),
    max_leaves=12,
)
