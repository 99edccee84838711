"""The message-format that is written into Proton's frames."""

from __future__ import annotations

import struct

import pytest

from emubus.spark_connector.wire.envelopes import MARK, EnvelopeMarker

NUMBER = b"\x00\x00\x00\x00\x00\x00\x01\x02"


def transfer(tag: bytes, payload: bytes, *, message_format: bytes = b"\x43", wide: bool = False) -> bytes:
    """A transfer frame as Proton writes it; `wide` has the long forms of list, handle and delivery-id."""
    handle, delivery = (b"\x70\x00\x00\x01\x00", b"\x70\x00\x01\x00\x00") if wide else (b"\x43", b"\x52\x07")
    fields = handle + delivery + b"\xa0" + bytes((len(tag),)) + tag + message_format + b"\x42\x42"
    head = b"\xd0" + struct.pack(">II", len(fields) + 4, 6) if wide else b"\xc0" + bytes((len(fields) + 1, 6))
    body = b"\x00\x53\x14" + head + fields + payload
    return struct.pack(">IBBH", 8 + len(body), 2, 0, 1) + body


def expected(frame: bytes) -> bytes:
    return frame.replace(b"\xa0\x0c" + MARK + NUMBER + b"\x43", b"\xa0\x08" + NUMBER + b"\x70\x80\x01\x37\x00")


HEADER = b"AMQP\x00\x01\x00\x00"
EMPTY = b"\x00\x00\x00\x08\x02\x00\x00\x00"
TAG = MARK + NUMBER
MARKED = [transfer(TAG, b"p" * 300), transfer(TAG, b"q" * 70, wide=True), transfer(TAG, b"")]
REWRITTEN = list(map(expected, MARKED))
STREAM = b"".join([HEADER, MARKED[0], EMPTY, transfer(NUMBER, MARK * 9), MARKED[1], MARKED[2], EMPTY, MARKED[0]])
WANTED = b"".join(
    [HEADER, REWRITTEN[0], EMPTY, transfer(NUMBER, MARK * 9), REWRITTEN[1], REWRITTEN[2], EMPTY, REWRITTEN[0]]
)


def passed_through(stream: bytes, chunk_bytes: int) -> bytes:
    """What goes out when Proton has so much output at a time; what isn't taken comes again with more."""
    marker, out, at, size = EnvelopeMarker(), b"", 0, chunk_bytes
    while at < len(stream):
        view = memoryview(bytearray(stream[at : at + size]))
        taken = marker.mark(view)
        assert taken > 0 or at + size < len(stream)
        out += bytes(view[:taken])
        at += taken
        size = chunk_bytes if taken else size + chunk_bytes
    return out


@pytest.mark.parametrize("chunk_bytes", [*range(1, 140), len(STREAM)])
def test_marked_transfers_get_the_batch_format_however_the_output_is_cut(chunk_bytes: int) -> None:
    assert MARK not in REWRITTEN[0]
    assert passed_through(STREAM, chunk_bytes) == WANTED


def test_a_frame_keeps_its_length() -> None:
    assert [len(frame) for frame in REWRITTEN] == [len(frame) for frame in MARKED]


@pytest.mark.parametrize(
    "frame",
    [
        transfer(MARK + NUMBER[:4], b"x" * 50),
        transfer(MARK + NUMBER, b"x" * 50, message_format=b"\x52\x05"),
        struct.pack(">IBBH", 28, 2, 0, 0) + b"\x00\x53\x15" + b"\xa0\x0c" + MARK + bytes(11),
        struct.pack(">IBBH", 28, 2, 1, 0) + b"\x00\x53\x14" + b"\xa0\x0c" + MARK + bytes(11),
    ],
)
def test_other_frames_stay_as_they_are(frame: bytes) -> None:
    assert passed_through(frame, len(frame)) == frame
