"""Walking over values and sections: the functions in C give what those in Python give, and raise what they raise."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from emubus.codec import decode, sections, skip
from emubus.codec.encode import encode
from emubus.codec.errors import DecodeError
from emubus.codec.types import Described, Symbol, Ulong

from .encoded import ENCODED, SPOILED

SYMBOLS = {
    0x70: "amqp:header:list",
    0x71: "amqp:delivery-annotations:map",
    0x72: "amqp:message-annotations:map",
    0x73: "amqp:properties:list",
    0x74: "amqp:application-properties:map",
    0x75: "amqp:data:binary",
    0x76: "amqp:amqp-sequence:list",
    0x77: "amqp:amqp-value:*",
    0x78: "amqp:footer:map",
}
DESCRIPTORS = st.sampled_from(range(0x6F, 0x7A)).flatmap(
    lambda code: st.sampled_from(
        [
            bytes((0x53, code)),
            b"\x80" + code.to_bytes(8, "big"),
            encode(Symbol(SYMBOLS.get(code, "amqp:other:map"))),
            b"\xb3" + len(SYMBOLS.get(code, "")).to_bytes(4, "big") + SYMBOLS.get(code, "").encode(),
            b"\x44",
        ]
    )
)
VALUES = st.sampled_from([b"\xa0\0", b"\xb0\0\0\0\0", b"\xa0\1x", b"\x40", b"\x45", b"\xc1\1\0"]) | ENCODED | SPOILED
SECTION = st.builds(lambda descriptor, value: b"\0" + descriptor + value, DESCRIPTORS, VALUES)
MESSAGES = st.lists(SECTION, max_size=8).map(b"".join) | st.lists(
    st.sampled_from(
        [b"\0\x53\x75\xa0\0", b"\0\x53\x75\xb0\0\0\0\1x", b"\0\x53\x76\x45", b"\0\x53\x76\xc0\1\0", b"\0\x53"]
    ),
    max_size=8,
).map(b"".join)


def outcome(function: Callable[..., object], *arguments: object) -> object:
    try:
        return function(*arguments)
    except DecodeError as error:
        return error.offset, error.problem


@given(ENCODED | SPOILED, st.integers(-1, 8), st.integers(-1, 5))
@example(b"\xb0\0\0", 0, 1)
@example(b"\xb0\0\0", 0, 2)
@example(b"\xb0\xff\xff\xff\xff", 0, 1)
@example(b"\xa1", 0, 1)
@example(b"\0\0\0\x40\x40\x40\x40", 0, 1)
@example(b"\x9f", 0, 1)
@example(b"", 0, 0)
@example(b"\x40", 0, 1 << 40)
def test_values_are_skipped_alike(data: bytes, offset: int, count: int) -> None:
    expected = outcome(skip.skip_in_python, data, offset, count)
    assert outcome(skip.skip, data, offset, count) == expected
    assert outcome(skip.skip, memoryview(data), offset, count) == expected


def test_what_has_no_bytes_is_refused() -> None:
    for arguments in ((), ("text",), (b"\x40", "0"), (b"\x40", 0, 1, 1)):
        with pytest.raises(TypeError):
            skip.skip(*arguments)


@given(ENCODED | SPOILED | MESSAGES, st.integers(-1, 3))
@example(b"\x00" * 63 + b"\x40" * 64, 0)
@example(b"\x00" * 64 + b"\x40" * 65, 0)
@example(b"\xc1\3\2\x45\x40", 0)
@example(b"\xc1\5\2\0\x40\x45\x40", 0)
@example(b"\xc1\5\2\xe0\2\0\xc0\x40", 0)
@example(b"\xc1\7\2\xe0\4\1\xc0\1\0\x40", 0)
@example(b"\xe0\2\0\x9f", 0)
@example(b"\xe0\2\0\xa2", 0)
@example(b"\xe0\2\0\xa0", 0)
@example(b"\xe0\2\x11\x40", 0)
@example(b"\x73\0\0\xd8\0", 0)
@example(b"\xa1\1\xff", 0)
def test_what_can_be_decoded_is_known_alike(data: bytes, offset: int) -> None:
    assert decode.is_readable(data, offset) == decode.is_readable_in_python(data, offset)


@given(MESSAGES)
@example(encode(Described(Symbol("amqp:data:binary"), b"x")) + encode(Described(Ulong(0x70), [])))
def test_sections_are_gathered_alike(data: bytes) -> None:
    assert sections.gather(data) == sections.gather_in_python(data)


@given(MESSAGES)
def test_data_sections_are_found_alike(data: bytes) -> None:
    assert sections.find_data_sections(data) == sections.find_data_sections_in_python(data)


@given(MESSAGES, st.integers(0, 12), st.sampled_from([sections.DATA, sections.SEQUENCE]))
def test_sections_of_a_code_end_alike(data: bytes, pos: int, code: int) -> None:
    assert sections.sections_end(data, pos, code) == sections.sections_end_in_python(data, pos, code)


@given(MESSAGES)
def test_a_message_is_brought_into_the_usual_form_or_refused(data: bytes) -> None:
    found = outcome(sections.canonical, data)
    if isinstance(found, bytes) and found:
        assert sections.locate(found, mixed=True) is not None
