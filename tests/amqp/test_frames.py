"""The frame reader and the frame padder by themselves."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.amqp.wire.frame_reader import FrameReader
from emubus.amqp.wire.handles import Kind
from emubus.amqp.wire.proton_repairs.padding import FramePadder, with_lower_frame_size
from emubus.codec.frames import AMQP_HEADER
from emubus.codec.types import Described, Symbol, Uint, Ulong

from .wire import (
    ACCEPTED,
    ATTACH,
    BATCH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    ERROR,
    FLOW,
    OPEN,
    TRANSFER,
    frame,
    read_frames,
    rejected,
)

EMPTY = b"\0\0\0\x08\x02\0\0\0"
MESSAGE = frame(0, TRANSFER, [Uint(0), Uint(0), b"tag", Uint(0), False], b"\x70\x80\x01\x37\x00 is no format here")
BATCHED = frame(0, TRANSFER, [Uint(0), Uint(1), b"tag", Uint(BATCH), False], b"envelope")
DRAIN = frame(0, FLOW, [Uint(0), Uint(1), Uint(0), Uint(1), Uint(0), Uint(0), Uint(9), None, True])
ECHO = frame(0, FLOW, [Uint(0), Uint(1), Uint(0), Uint(1), None, None, None, None, False, True])
PLAIN_FLOW = frame(0, FLOW, [Uint(0), Uint(1), Uint(0), Uint(1), Uint(0), Uint(0), Uint(9)])
OPENED = frame(0, OPEN, ["client"])


def kinds(data: bytes) -> list[Kind]:
    return [kind for _, kind in FrameReader(65536).feed(data)]


def test_only_the_message_format_makes_a_batch() -> None:
    assert kinds(MESSAGE) == [Kind.PLAIN]
    assert kinds(BATCHED) == [Kind.BATCH]


def test_a_flow_asks_when_it_says_drain_or_echo() -> None:
    assert [kinds(each) for each in (DRAIN, ECHO, PLAIN_FLOW)] == [
        [Kind.FLOW_WANTS_REPLY],
        [Kind.FLOW_WANTS_REPLY],
        [Kind.PLAIN],
    ]


def test_frames_that_need_attention_come_alone_and_in_order() -> None:
    stream = OPENED + EMPTY + MESSAGE + BATCHED + BATCHED + PLAIN_FLOW + DRAIN + MESSAGE
    pieces = FrameReader(65536).feed(stream)
    assert b"".join(data for data, _ in pieces) == stream
    assert [kind for _, kind in pieces] == [
        Kind.OPEN,
        Kind.PLAIN,
        Kind.BATCH,
        Kind.BATCH,
        Kind.PLAIN,
        Kind.FLOW_WANTS_REPLY,
        Kind.PLAIN,
    ]


def test_an_unusual_descriptor_and_an_extended_header_are_understood() -> None:
    body = b"\x00\x80" + (TRANSFER).to_bytes(8, "big") + BATCHED[11:]
    long = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x00" + body
    body = b"\0\0\0\0" + BATCHED[8:]
    extended = (8 + len(body)).to_bytes(4, "big") + b"\x03\x00\x00\x00" + body
    assert kinds(long) == [Kind.BATCH]
    assert kinds(extended) == [Kind.BATCH]


def test_frames_on_a_channel_that_was_ended_are_left_out_until_it_begins_again() -> None:
    def on_one(code: int) -> bytes:
        return frame(1, code, [Uint(0)])

    stream = [on_one(END), on_one(DETACH), on_one(TRANSFER), MESSAGE, on_one(END), on_one(BEGIN), on_one(DETACH)]
    assert b"".join(data for data, _ in FrameReader(65536).feed(b"".join(stream))) == b"".join(
        (stream[0], MESSAGE, stream[5], stream[6])
    )


@pytest.mark.parametrize("size", [0, 7, 65537, 0xFFFFFFFF])
def test_a_size_that_no_frame_has_goes_through_with_all_that_follows(size: int) -> None:
    reader = FrameReader(65536)
    broken = size.to_bytes(4, "big")
    assert reader.feed(MESSAGE + broken + b"more") == [(MESSAGE + broken + b"more", Kind.PLAIN)]
    assert reader.feed(BATCHED) == [(BATCHED, Kind.PLAIN)]


@given(st.lists(st.integers(0, 1000), max_size=8))
def test_the_pieces_are_the_same_however_the_stream_is_cut(cuts: list[int]) -> None:
    stream = OPENED + MESSAGE + BATCHED + EMPTY + DRAIN + MESSAGE + MESSAGE
    reader = FrameReader(65536)
    fed: list[tuple[bytes, Kind]] = []
    for start, stop in pairwise([0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]):
        fed += reader.feed(stream[start:stop])
    assert b"".join(data for data, _ in fed) == stream
    assert [kind for _, kind in fed if kind] == [Kind.OPEN, Kind.BATCH, Kind.FLOW_WANTS_REPLY]


@given(frames_max=st.integers(1, 9), cut=st.integers(0, 500))
def test_no_more_frames_are_taken_than_asked_for_and_none_is_lost(frames_max: int, cut: int) -> None:
    frames = [OPENED, *[MESSAGE] * 5, BATCHED, EMPTY, *[DRAIN] * 3, MESSAGE]
    stream = b"".join(frames)
    reader, whole = FrameReader(65536), list[bytes]()
    for part in (stream[:cut], stream[cut:]):
        left = part
        while left:
            before = len(b"".join(whole))
            whole += [piece for piece, _ in reader.feed(left, frames_max)]
            taken = b"".join(whole)[before:]
            assert len(taken) <= frames_max * max(map(len, frames))
            left = reader.left
    assert b"".join(whole) == stream


@given(st.binary(max_size=300), st.integers(8, 60))
def test_whatever_is_in_a_frame_it_comes_out_whole(body: bytes, code: int) -> None:
    data = (11 + len(body)).to_bytes(4, "big") + b"\x02\0\0\0" + bytes((0, 0x53, code)) + body
    assert b"".join(piece for piece, _ in FrameReader(65536).feed(data)) == data


FIELD_COUNTS = {OPEN: 10, BEGIN: 8, ATTACH: 14, FLOW: 11, TRANSFER: 11, DISPOSITION: 6, DETACH: 3, END: 1, CLOSE: 1}


@pytest.mark.parametrize(("code", "count"), FIELD_COUNTS.items())
@pytest.mark.parametrize("given_count", [0, 1, 2])
def test_every_performative_gets_all_its_fields(code: int, count: int, given_count: int) -> None:
    fields = [None, Uint(5)][:given_count] if code not in (END, CLOSE) else [None] * min(given_count, 1)
    padded, rest = read_frames(FramePadder().feed(AMQP_HEADER + frame(3, code, fields, b"payload")))
    assert rest == b""
    assert padded[0].channel == 3
    assert padded[0].payload == b"payload"
    assert padded[0].fields == fields + [None] * (count - len(fields))


def error(*fields: object) -> Described:
    return Described(Ulong(ERROR), list(fields))


def test_errors_get_three_fields_wherever_they_are() -> None:
    short, full = error(Symbol("a"), "b"), error(Symbol("a"), "b", None)
    for code, before in ((DETACH, [Uint(0), True]), (END, []), (CLOSE, [])):
        frames, _ = read_frames(FramePadder().feed(AMQP_HEADER + frame(0, code, [*before, short])))
        assert frames[0].fields == [*before, full]
    disposition = frame(0, DISPOSITION, [True, Uint(0), None, True, rejected("a", "b")])
    frames, _ = read_frames(FramePadder().feed(AMQP_HEADER + disposition))
    assert frames[0].fields == [True, 0, None, True, Described(Ulong(0x25), [error(Symbol("a"), "b", None)]), None]


def test_other_states_are_left_as_they_are() -> None:
    disposition = frame(0, DISPOSITION, [True, Uint(0), None, True, Described(ACCEPTED, [])])
    frames, _ = read_frames(FramePadder().feed(AMQP_HEADER + disposition))
    assert frames[0].fields == [True, 0, None, True, Described(ACCEPTED, []), None]


@given(st.lists(st.integers(0, 400), max_size=8))
def test_padding_does_not_mind_how_the_output_is_cut(cuts: list[int]) -> None:
    stream = AMQP_HEADER + OPENED + EMPTY + MESSAGE + DRAIN + BATCHED
    padder = FramePadder()
    fed = b""
    for start, stop in pairwise([0, *sorted(min(cut, len(stream)) for cut in cuts), len(stream)]):
        fed += padder.feed(stream[start:stop])
    assert fed == FramePadder().feed(stream)


def test_the_clients_frame_size_is_lowered_in_place() -> None:
    lower = with_lower_frame_size(frame(0, OPEN, ["client", None, Uint(1048576), Uint(9)]), 16)
    frames, _ = read_frames(lower)
    assert frames[0].fields == ["client", None, 1048560, 9]


@pytest.mark.parametrize("fields", [[], ["client"], ["client", None, None], ["client", None, Uint(7)]])
def test_an_open_without_a_large_frame_size_stays_as_it_is(fields: list[object]) -> None:
    opened = frame(0, OPEN, fields)
    assert with_lower_frame_size(opened, 16) == opened
