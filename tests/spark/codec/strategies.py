"""AMQP values of all types, for property tests."""

from __future__ import annotations

import struct
import uuid
from typing import Any

from hypothesis import strategies as st

from emubus.spark_connector.codec import decimals
from emubus.spark_connector.codec.values import NULL, Elements, Value

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=40)
SYMBOLS = st.text(st.characters(codec="ascii"), max_size=40)
LONG_TEXTS = st.integers(250, 300).map(lambda size: "é" * size)


def _integers(bits: int, *, signed: bool) -> st.SearchStrategy[int]:
    low, high = (-(1 << (bits - 1)), (1 << (bits - 1)) - 1) if signed else (0, (1 << bits) - 1)
    return st.integers(low, high) | st.integers(max(low, -200), 300 if high > 300 else high)


def _single(number: float) -> float:
    single: float = struct.unpack(">f", struct.pack(">f", number))[0]
    return single


PLAIN: dict[str, st.SearchStrategy[Any]] = {
    "boolean": st.booleans(),
    "ubyte": _integers(8, signed=False),
    "ushort": _integers(16, signed=False),
    "uint": _integers(32, signed=False),
    "ulong": _integers(64, signed=False),
    "byte": _integers(8, signed=True),
    "short": _integers(16, signed=True),
    "int": _integers(32, signed=True),
    "long": _integers(64, signed=True),
    "float": st.floats(allow_nan=False, width=32).map(_single),
    "double": st.floats(allow_nan=False),
    "decimal32": st.binary(min_size=4, max_size=4).map(decimals.to_text),
    "decimal64": st.binary(min_size=8, max_size=8).map(decimals.to_text),
    "decimal128": st.binary(min_size=16, max_size=16).map(decimals.to_text),
    "char": st.characters(exclude_categories=["Cs"]),
    "timestamp": _integers(64, signed=True) | st.integers(-62_135_596_800_000, 253_402_300_799_999),
    "uuid": st.binary(min_size=16, max_size=16).map(lambda octets: uuid.UUID(bytes=octets)),
    "binary": st.binary(max_size=300),
    "string": TEXTS | LONG_TEXTS,
    "symbol": SYMBOLS,
}


def _of(name: str) -> st.SearchStrategy[Value]:
    return PLAIN[name].map(lambda plain: Value(name, plain))


PRIMITIVES = st.just(NULL) | st.one_of([_of(name) for name in PLAIN])


def _arrays() -> st.SearchStrategy[Value]:
    descriptors = st.none() | _of("symbol") | _of("ulong")
    return st.sampled_from(sorted(PLAIN)).flatmap(
        lambda name: st.builds(
            lambda items, descriptor: Value("array", Elements(name, items, descriptor)),
            st.lists(PLAIN[name], max_size=4),
            descriptors,
        )
    )


def _larger(inner: st.SearchStrategy[Value]) -> st.SearchStrategy[Value]:
    return (
        st.lists(inner, max_size=5).map(lambda items: Value("list", items))
        | st.lists(st.tuples(inner, inner), max_size=4).map(lambda pairs: Value("map", pairs))
        | st.tuples(_of("symbol") | _of("ulong"), inner).map(lambda pair: Value("described", pair))
    )


VALUES = st.recursive(PRIMITIVES | _arrays(), _larger, max_leaves=12)
