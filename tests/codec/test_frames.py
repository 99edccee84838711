"""Frames are found one by one, whole and broken ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.codec.frames import AMQP_HEADER, BEGIN, CLOSE, EMPTY_FRAME, END, frame_ends, performatives, write_frame

FRAMES = [write_frame(0, BEGIN, b"\x45"), EMPTY_FRAME, write_frame(0x102, END, b"\xc0\x02\x01\x40")]


@given(st.lists(st.sampled_from(FRAMES), max_size=5), st.sampled_from(FRAMES), st.integers(0, 7))
def test_whole_frames_end_where_the_next_begins(frames: list[bytes], last: bytes, cut: int) -> None:
    data = b"".join(frames)
    ends = [len(b"".join(frames[: count + 1])) for count in range(len(frames))]
    assert frame_ends(data) == (ends, False)
    assert frame_ends(data + last[:cut]) == (ends, False)
    assert frame_ends(b"12345" + data, 5) == ([5 + end for end in ends], False)


@pytest.mark.parametrize(
    ("size", "size_max", "is_broken"), [(0, 99, True), (7, 99, True), (8, 99, False), (99, 99, False), (100, 99, True)]
)
def test_a_size_that_no_frame_has_ends_the_walk(size: int, size_max: int, is_broken: bool) -> None:
    data = EMPTY_FRAME + size.to_bytes(4, "big")
    assert frame_ends(data, 0, size_max) == ([8], is_broken)


def test_performatives_are_found_behind_the_protocol_header_and_between_other_frames() -> None:
    begin, empty, end = FRAMES
    sasl = end[:5] + b"\x01" + end[6:]
    extended = b"\x00\x00\x00\x10\x03\x00\x00\x00" + b"\x00\x00\x00\x00" + bytes((0, 0x53, CLOSE, 0x45))
    data = AMQP_HEADER + begin + empty + sasl + extended + end + begin[:9]
    last = len(data) - 9
    assert list(performatives(data)) == [(0, BEGIN, 8, 8 + len(begin)), (0x102, END, last - len(end), last)]
