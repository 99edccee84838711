"""AMQP values of all types, for property tests."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from hypothesis import strategies as st

from emubus.codec.types import (
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

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=40)
LONG_TEXTS = st.integers(250, 300).map(lambda size: "é" * size)
WIDEST = {name: code for code, name in CONSTRUCTORS.items()}


def exact(value: object) -> tuple[Any, ...]:
    """Return the value with the names of its types, equal for the very same value only."""
    name = TYPE_NAMES[type(value)]
    if isinstance(value, Described):
        return name, exact(value.descriptor), exact(value.value)
    if isinstance(value, Array):
        element = CONSTRUCTORS[value.type_code]
        return name, element, tuple(map(exact, value.values)), exact(value.descriptor)
    if isinstance(value, list):
        return name, tuple(map(exact, value))
    if isinstance(value, dict | MapItems):
        return name, tuple((exact(key), exact(entry)) for key, entry in value.items())
    return name, struct.pack(">d", value) if isinstance(value, float) else value


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.integers(max(low, -200), 300 if high > 300 else high)


def _octets(size: int) -> st.SearchStrategy[bytes]:
    return st.binary(min_size=size, max_size=size)


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": _integers(8, signed=False).map(Ubyte),
    "ushort": _integers(16, signed=False).map(Ushort),
    "uint": _integers(32, signed=False).map(Uint),
    "ulong": _integers(64, signed=False).map(Ulong),
    "byte": _integers(8, signed=True).map(Byte),
    "short": _integers(16, signed=True).map(Short),
    "int": _integers(32, signed=True).map(Int),
    "long": _integers(64, signed=True).map(Long),
    "float": st.floats(allow_nan=False, width=32).map(Float),
    "double": st.floats(allow_nan=False),
    "decimal32": _octets(4).map(Decimal32),
    "decimal64": _octets(8).map(Decimal64),
    "decimal128": _octets(16).map(Decimal128),
    "char": st.characters(exclude_categories=["Cs"]).map(Char),
    "timestamp": (_integers(64, signed=True) | st.integers(-62_135_596_800_000, 253_402_300_799_999)).map(Timestamp),
    "uuid": _octets(16).map(lambda octets: uuid.UUID(bytes=octets)),
    "binary": st.binary(max_size=300),
    "string": TEXTS | LONG_TEXTS,
    "symbol": SYMBOLS.map(Symbol),
}
PRIMITIVES = st.none() | st.one_of(list(PLAIN.values()))
_DESCRIPTORS = PLAIN["symbol"] | PLAIN["ulong"]


def _arrays() -> st.SearchStrategy[Array]:
    return st.sampled_from(sorted(PLAIN)).flatmap(
        lambda name: st.builds(
            lambda items, descriptor: Array(WIDEST[name], tuple(items), descriptor),
            st.lists(PLAIN[name], max_size=4),
            st.none() | _DESCRIPTORS,
        )
    )


def _larger(inner: st.SearchStrategy[Any]) -> st.SearchStrategy[Any]:
    return (
        st.lists(inner, max_size=5)
        | st.lists(st.tuples(inner, inner), max_size=4).map(MapItems)
        | st.builds(Described, _DESCRIPTORS, inner)
    )


VALUES = st.recursive(PRIMITIVES | _arrays(), _larger, max_leaves=12)
