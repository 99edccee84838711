"""Any bytes in: a clean close or an answer, never an exception, never a line in the error log."""

from __future__ import annotations

import asyncio
from uuid import UUID

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from structlog.testing import capture_logs

from emubus.codec.encode import encode
from emubus.codec.frames import AMQP_HEADER, SASL_HEADER
from emubus.codec.types import Array, Described, Int, Symbol, Ubyte, Uint, Ulong

from ..rounds import rounds
from .wire import (
    ATTACH,
    BATCH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    OPEN,
    SOURCE,
    TARGET,
    TRANSFER,
    Wire,
    accepted,
    frame,
    modified,
    rejected,
    sasl_init,
)


def terminus(code: int, address: str | None) -> Described:
    rich = {Symbol("a"): Array(0xA3, (Symbol("b"), Symbol("c"))), Symbol("d"): Described(Ulong(5), [1, {"e": None}])}
    if code == TARGET:
        return Described(Ulong(code), [address, None, None, None, None, rich, Array(0xA3, (Symbol("x"),))])
    return Described(
        Ulong(code), [address, None, None, None, None, rich, Symbol("move"), rich, accepted, [Symbol("y")], Symbol("z")]
    )


def attach(name: str, handle: int, role: bool, address: str) -> bytes:
    ends = [terminus(SOURCE, address), terminus(TARGET, address)]
    fields: list[object] = [
        name,
        Uint(handle),
        role,
        Ubyte(0),
        Ubyte(1),
        *ends,
        None,
        None,
        Uint(0),
        Ulong(5),
        None,
        None,
        {},
    ]
    return frame(1, ATTACH, fields)


def transfer(handle: int, number: int, payload: bytes, message_format: int = 0, more: bool = False) -> bytes:
    return frame(
        1, TRANSFER, [Uint(handle), Uint(number), b"tag%d" % number, Uint(message_format), False, more], payload
    )


REQUEST = b"".join(
    (
        b"\x00\x53\x73" + encode(["id", None, None, None, "cbs"]),
        b"\x00\x53\x74" + encode({"operation": "put-token", "name": "sb://h/q"}),
        b"\x00\x53\x77" + encode("token"),
    )
)

CHANGES = {Symbol("a"): Array(0x98, (UUID(int=1),))}

VALID = [
    SASL_HEADER,
    sasl_init(),
    AMQP_HEADER,
    frame(0, OPEN, ["c", "h", Uint(65536), None, Uint(60000), None, None, None, None, {Symbol("product"): "p"}]),
    frame(1, BEGIN, [None, Uint(0), Uint(5000), Uint(5000), Uint(255)]),
    attach("cbs", 0, True, "$cbs"),
    attach("cbs", 1, False, "$cbs"),
    frame(1, FLOW, [Uint(0), Uint(5000), Uint(0), Uint(5000), Uint(0), Uint(0), Uint(10)]),
    transfer(1, 0, REQUEST),
    attach("s", 2, False, "q"),
    attach("r", 3, True, "q"),
    transfer(2, 1, b"one"),
    transfer(2, 2, b"two", BATCH),
    transfer(2, 3, b"thr", more=True),
    transfer(2, 3, b"ee"),
    frame(1, FLOW, [Uint(4), Uint(5000), Uint(0), Uint(5000), Uint(3), Uint(0), Uint(3), None, True]),
    frame(1, DISPOSITION, [True, Uint(1), None, False, accepted]),
    frame(1, DISPOSITION, [True, Uint(2), None, True, rejected("x", "y", {"a": Array(0x71, (Int(1), Int(2)))})]),
    frame(
        1,
        DISPOSITION,
        [True, Uint(3), Uint(9), False, modified(True, True, CHANGES)],
    ),
    frame(1, DETACH, [Uint(2), True]),
    frame(1, END, []),
    frame(0, CLOSE, []),
]
STREAM = b"".join(VALID)


async def converse(data: bytes, chunk: int) -> None:
    """Give all of `data` to a connection, turn the loop, lose it; look that nothing is left and nothing was logged."""
    with capture_logs() as logs:
        wire = Wire()
        wire.broker.q.put(b"m1", b"m2", b"m3")
        for start in range(0, len(data), chunk):
            if wire.socket.closed:
                break
            wire.server.data_received(data[start : start + chunk])
        wire.socket.take()  # what was echoed of rubbish is rubbish
        await wire.turns(4)
        wire.server.eof_received()
        wire.lose()
        await wire.turns(2)
    assert [entry for entry in logs if entry["log_level"] in ("error", "critical", "warning")] == []
    assert wire.connections == set()
    assert wire.server.context.wire.flow.pending_bytes == 0
    assert wire.server.context.wire.flow.partial_bytes == 0
    assert wire.broker.q.consumers == []
    assert all(sender.closed for sender in wire.broker.senders)


chunks = st.sampled_from([1, 7, 64, 100_000])


async def test_the_stream_that_the_others_are_made_of_is_understood() -> None:
    wire = Wire()
    wire.broker.q.put(b"m1", b"m2", b"m3")
    wire.write(STREAM)
    assert wire.broker.q.sent == [(b"one", False), (b"two", True), (b"three", False)]
    assert [each.code for each in await wire.turn()][-1] == CLOSE
    wire.lose()


@given(data=st.binary(max_size=200), chunk=chunks, skip=st.integers(0, len(VALID)))
def test_random_bytes_after_any_part_of_a_conversation(data: bytes, chunk: int, skip: int) -> None:
    asyncio.run(converse(b"".join(VALID[:skip]) + data, chunk))


@given(stop=st.integers(0, len(STREAM)), chunk=chunks)
def test_a_conversation_that_breaks_off_anywhere(stop: int, chunk: int) -> None:
    asyncio.run(converse(STREAM[:stop], chunk))


@given(
    changes=st.lists(st.tuples(st.integers(0, len(STREAM) - 1), st.integers(0, 255)), min_size=1, max_size=4),
    chunk=chunks,
)
@settings(max_examples=rounds(120, 3_000))
def test_a_conversation_with_wrong_bytes_in_it(changes: list[tuple[int, int]], chunk: int) -> None:
    data = bytearray(STREAM)
    for position, octet in changes:
        data[position] = octet
    asyncio.run(converse(bytes(data), chunk))


@given(order=st.lists(st.integers(3, len(VALID) - 1), max_size=30), chunk=chunks)
@settings(max_examples=rounds(120, 3_000))
def test_right_frames_in_the_wrong_order(order: list[int], chunk: int) -> None:
    asyncio.run(converse(b"".join(VALID[:4] + [VALID[index] for index in order]), chunk))


@given(
    code=st.integers(0x10, 0x18),
    fields=st.lists(
        st.one_of(
            st.none(),
            st.booleans(),
            st.integers(0, 0xFFFFFFFF).map(Uint),
            st.integers(0, 5).map(Uint),
            st.text(max_size=3),
            st.binary(max_size=3),
            st.just([]),
            st.just({}),
            st.just(accepted),
            st.just(terminus(SOURCE, "q")),
            st.just(terminus(TARGET, None)),
        ),
        max_size=14,
    ),
    channel=st.integers(0, 3),
    skip=st.integers(4, len(VALID)),
)
@settings(max_examples=rounds(120, 3_000))
def test_performatives_with_any_fields(code: int, fields: list[object], channel: int, skip: int) -> None:
    asyncio.run(converse(b"".join(VALID[:skip]) + frame(channel, code, fields, b"x"), 100_000))


@pytest.mark.parametrize("size", [0, 1, 7, 8, 9, 11, 65536, 65537, 2**31, 2**32 - 1])
def test_sizes_that_a_frame_may_claim(size: int) -> None:
    data = b"".join(VALID[:5]) + size.to_bytes(4, "big") + b"\x02\x00\x00\x01\x00\x53\x14\xc0\x0a\x05" + bytes(70_000)
    asyncio.run(converse(data, 9000))


@pytest.mark.parametrize("depth", [10, 1000, 15_000])
def test_lists_that_lie_very_deep(depth: int) -> None:
    nested = b"\x00\x53\x74" * depth + b"\x40"
    body = b"\x00\x53\x12\xd0" + (len(nested) + 4).to_bytes(4, "big") + (1).to_bytes(4, "big") + nested
    data = (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x01" + body
    asyncio.run(converse(b"".join(VALID[:5]) + data, 100_000))


BROKEN_ARRAYS = [
    b"\xe0\x07\x02\xa3\x01a\xa1\x01b",  # the second element's size is 0xa1
    b"\xe0\x02\x05\x98",
    b"\xe0\x03\x05\x00\xa3",
    b"\xf0\x00\x00\x00\x06\x00\x00\x00\x09\xa3\x01",
    b"\xe0\x05\x02\xe0\x02\x01\xff",
]


@pytest.mark.parametrize("broken", BROKEN_ARRAYS)
@pytest.mark.parametrize("place", [3, 5, 9, 17, 18, 19])
def test_broken_arrays_in_a_performative_never_reach_proton(broken: bytes, place: int) -> None:
    """Proton takes them and crashes when it writes them back, as in the answer to an attach."""
    good = encode(Array(0xA3, (Symbol("b"), Symbol("c"))))
    pieces = list(VALID)
    body = pieces[place][8:]
    for whole in (good, encode("b"), encode({}), encode(Array(0x71, (Int(1), Int(2)))), encode(Uint(65536))):
        if whole in body:
            changed = body.replace(whole, broken, 1)
            pieces[place] = (8 + len(changed)).to_bytes(4, "big") + pieces[place][4:8] + changed
            asyncio.run(converse(b"".join(pieces), 100_000))
