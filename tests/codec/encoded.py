"""Encoded AMQP values of every constructor, also in forms that no encoder chooses, and spoiled ones."""

from __future__ import annotations

from collections.abc import Callable

from hypothesis import strategies as st

WIDTHS = {
    0x40: 0, 0x41: 0, 0x42: 0, 0x43: 0, 0x44: 0, 0x45: 0, 0x50: 1, 0x51: 1, 0x52: 1, 0x53: 1, 0x54: 1, 0x55: 1, 0x56: 1,
    0x60: 2, 0x61: 2, 0x70: 4, 0x71: 4, 0x72: 4, 0x73: 4, 0x74: 4, 0x80: 8, 0x81: 8, 0x82: 8, 0x83: 8, 0x84: 8,
    0x94: 16, 0x98: 16,
}  # fmt: skip
VARIABLE = (0xA0, 0xA1, 0xA3, 0xB0, 0xB1, 0xB3)


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
