"""Deliveries and dispositions that come in one read of the socket travel together, and each has its own outcome."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.amqp.wire.incoming_deliveries import RUN_MESSAGES_MAX
from emubus.amqp.wire.loops import (
    NO_TOKEN,
    passthrough_end,
    passthrough_end_in_python,
    without_tokens,
    without_tokens_in_python,
)
from emubus.broker.partition.requests import Settle
from emubus.broker.partition.settle import SettleHandlers
from emubus.broker.partition.turn import Turn
from emubus.broker.stores.late_completions import LATE_MS
from emubus.codec.decode import decode
from emubus.codec.encode import encode_described, encode_list
from emubus.codec.frames import AMQP_HEADER
from emubus.codec.types import Described, Uint, Ulong

from .asking import sections
from .test_over_the_broker import Together, both, message
from .wire import (
    ACCEPTED,
    BATCH,
    DETACH,
    DISPOSITION,
    FLOW,
    REJECTED,
    TRANSFER,
    Frame,
    accepted,
    frame,
    released,
)

__all__ = ["both"]  # a fixture

MALFORMED = b"\x00\x53\x73\xc0\x7f\x01"
TURNS_MAX = 400


def ranges(frames: list[Frame]) -> list[tuple[int, int, int]]:
    """First and last delivery of each disposition, and the code of its state."""
    return [
        (each.get(1), each.get(1) if each.get(2) is None else each.get(2), int(each.get(4).descriptor))
        for each in frames
        if each.code == DISPOSITION
    ]


async def until(both: Together, count: int, code: int) -> list[Frame]:
    """Frames until `count` of this code have come."""
    found: list[Frame] = []
    for _ in range(TURNS_MAX):
        found += await both.wire.turn()
        if sum(each.code == code for each in found) >= count:
            return found
    raise AssertionError(f"{len(found)} frames, not {count} of code {code:#x}")


async def received(both: Together, count: int, handle: int = 5) -> list[Frame]:
    both.wire.attach_receiver("q", handle)
    both.wire.flow(handle, count)
    return [each for each in await until(both, count, TRANSFER) if each.code == TRANSFER]


async def test_deliveries_of_one_read_are_accepted_by_one_disposition(both: Together) -> None:
    both.wire.attach_sender("q")
    both.wire.write(b"".join(both.wire.transfer(message(f"m{number}")) for number in range(5)))
    assert ranges(await until(both, 1, DISPOSITION)) == [(0, 4, ACCEPTED)]
    assert [sections(each.payload)[0x77] for each in await received(both, 5)] == [f"m{number}" for number in range(5)]


async def test_a_delivery_that_is_refused_fails_alone(both: Together) -> None:
    both.wire.attach_sender("q")
    both.wire.write(b"".join(both.wire.transfer(each) for each in (message("a"), MALFORMED, message("b"))))
    found = sorted(ranges(await until(both, 3, DISPOSITION)))
    assert found == [(0, 0, ACCEPTED), (1, 1, REJECTED), (2, 2, ACCEPTED)]
    assert [sections(each.payload)[0x77] for each in await received(both, 2)] == ["a", "b"]


async def test_a_batch_between_deliveries_keeps_its_place(both: Together) -> None:
    both.wire.attach_sender("q")
    inner = message("b1"), message("b2")
    envelope = b"".join(b"\x00\x53\x75\xa0" + bytes((len(each),)) + each for each in inner)
    both.wire.write(
        both.wire.transfer(message("a")) + both.wire.transfer(envelope, format=BATCH) + both.wire.transfer(message("c"))
    )
    await until(both, 1, DISPOSITION)
    assert [sections(each.payload)[0x77] for each in await received(both, 4)] == ["a", "b1", "b2", "c"]


async def test_what_follows_deliveries_in_the_same_read_does_not_overtake_them(both: Together) -> None:
    both.wire.attach_sender("q")
    detach = frame(0, DETACH, [Uint(0), True])
    both.wire.write(both.wire.transfer(message("a")) + both.wire.transfer(message("b")) + detach)
    await until(both, 1, DETACH)
    assert [sections(each.payload)[0x77] for each in await received(both, 2)] == ["a", "b"]


async def test_more_deliveries_than_a_run_has_all_get_their_outcomes(both: Together) -> None:
    both.wire.attach_sender("q")
    count = RUN_MESSAGES_MAX + 50
    both.wire.write(b"".join(both.wire.transfer(message(str(number))) for number in range(count)))
    accepted_ids: list[int] = []
    while len(accepted_ids) < count:
        for first, last, code in ranges(await until(both, 1, DISPOSITION)):
            assert code == ACCEPTED
            accepted_ids += range(first, last + 1)
    assert accepted_ids == list(range(count))


@pytest.mark.parametrize("settled", [True, False])
async def test_dispositions_of_one_read_end_their_locks(both: Together, settled: bool) -> None:
    await both.send(*(message(str(number)) for number in range(4)))
    transfers = await received(both, 4)
    ids = [each.get(1) for each in transfers]
    both.wire.write(
        b"".join(frame(0, DISPOSITION, [True, Uint(each), Uint(each), settled, accepted]) for each in ids[:3])
    )
    if not settled:
        assert ranges(await until(both, 1, DISPOSITION)) == [(ids[0], ids[2], ACCEPTED)]
    await both.wire.turn(5)
    both.clock.advance(600_000)
    (again,) = await received(both, 1, handle=6)
    assert sections(again.payload)[0x77] == "3"


@pytest.mark.parametrize("settled", [True, False])
async def test_dispositions_of_one_read_reach_the_broker_as_one_run(
    both: Together, settled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    lengths: list[int] = []
    settle = SettleHandlers.settle

    def counted(handlers: SettleHandlers, request: Settle, turn: Turn) -> None:
        lengths.append(len(request.tokens))
        settle(handlers, request, turn)

    monkeypatch.setattr(SettleHandlers, "settle", counted)
    await both.send(*(message(str(number)) for number in range(4)))
    ids = [each.get(1) for each in await received(both, 4)]
    both.wire.write(b"".join(frame(0, DISPOSITION, [True, Uint(each), None, settled, accepted]) for each in ids))
    await both.wire.turn()
    if settled:  # what has no answer is kept back for a moment
        assert lengths == []
        both.clock.advance(LATE_MS)
        await both.wire.turn()
    assert lengths == [4]


async def test_a_disposition_of_a_settled_delivery_is_passed_over_alone(both: Together) -> None:
    await both.send(*(message(str(number)) for number in range(3)))
    early, late, last = await received(both, 3)
    both.wire.send(0, DISPOSITION, [True, Uint(late.get(1)), None, True, None])  # settled without an outcome
    both.wire.write(
        b"".join(
            frame(0, DISPOSITION, [True, Uint(each.get(1)), None, False, accepted]) for each in (early, late, last)
        )
    )
    found = ranges(await until(both, 1, DISPOSITION))
    assert (found[0][0], found[0][2]) == (early.get(1), ACCEPTED)
    assert late.get(1) not in {number for first, stop, _ in found for number in range(first, stop + 1)}


@contextmanager
def no_garbage() -> Iterator[None]:
    """Fails if what happens inside leaves objects that only the cyclic collector finds."""
    gc.collect()
    gc.disable()
    try:
        yield
        assert gc.collect() == 0
    finally:
        gc.enable()


@pytest.mark.parametrize("address", ["q", "part"])
async def test_sends_receives_and_settlements_leave_no_garbage(both: Together, address: str) -> None:
    both.wire.attach_sender(address)
    both.wire.attach_receiver(address, 5)
    await both.wire.turn()

    got = 0

    async def round_trips(count: int) -> None:
        nonlocal got
        both.wire.write(b"".join(both.wire.transfer(message(str(number))) for number in range(count)))
        both.wire.flow(5, count, count=got)
        got += count
        transfers = [each for each in await until(both, count, TRANSFER) if each.code == TRANSFER]
        both.wire.write(
            b"".join(frame(0, DISPOSITION, [True, Uint(each.get(1)), None, True, accepted]) for each in transfers)
        )
        await both.wire.turn(5)

    await round_trips(20)  # what is made once
    with no_garbage():
        for _ in range(50):
            await round_trips(20)


FIELDS = st.one_of(st.booleans(), st.none(), st.integers(0, 300).map(Uint))
STATES = st.sampled_from([accepted, released, None])
TRANSFERS = st.builds(
    lambda handle, form, body: frame(0, TRANSFER, [Uint(handle), Uint(1), b"tag", Uint(form), False], body),
    st.sampled_from([0, 5]) | st.integers(0, 300),
    st.sampled_from([0, BATCH]),
    st.binary(max_size=40),
)
DISPOSITIONS = st.builds(
    lambda role, first, last, settled, state: frame(0, DISPOSITION, [role, first, last, settled, state]),
    st.booleans(),
    FIELDS,
    FIELDS,
    FIELDS,
    STATES,
)
UINTS = st.integers(0, 300).map(Uint)
FLOWS = st.builds(
    lambda first, uints, counts, ends, size: frame(0, FLOW, [first, *uints, *counts, *ends][:size]),
    UINTS | st.none(),
    st.lists(UINTS, min_size=4, max_size=4),
    st.lists(UINTS | st.none(), min_size=3, max_size=3),
    st.sampled_from([[False, False], [None, False, None], [True, None], [None, True], [False, False, {}]]),
    st.integers(4, 11),
)
OTHERS = st.sampled_from([b"\0\0\0\x08\x02\0\0\0", b"\0\0\0\x07"])
STREAMS = st.lists(TRANSFERS | DISPOSITIONS | FLOWS | OTHERS, max_size=6).map(b"".join)


@given(stream=STREAMS, changes=st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), max_size=3))
def test_frames_are_passed_through_alike_in_python_and_in_c(stream: bytes, changes: list[tuple[int, int]]) -> None:
    data = bytearray(stream)
    for at, value in changes:
        if at < len(data):
            data[at] = value
    sending: Any = {b"\0\0\x43", b"\0\0\x52\x05", b"\0\0\x70\0\0\0\x2c"}
    attached: Any = sending | {b"\0\0\x52" + bytes((handle,)) for handle in range(100)}
    for pos, count_max in ((0, 1_000), (len(data) // 2, 1_000), (0, 3), (0, 0)):
        expected = passthrough_end_in_python(bytes(data), pos, 1 << 16, sending, attached, count_max)
        assert expected[1] <= count_max
        assert passthrough_end(bytes(data), pos, 1 << 16, sending, attached, count_max) == expected


CREDIT = [Uint(0), Uint(9), Uint(1), Uint(9), Uint(5), Uint(0), Uint(1)]


@pytest.mark.parametrize(
    ("fields", "passes"),
    [
        (CREDIT, True),
        ([None, *CREDIT[1:], None, False, False], True),
        ([*CREDIT, None, True], False),  # drain
        ([*CREDIT, None, False, True], False),  # echo
        ([*CREDIT, None, False, False, {}], False),
        (CREDIT[:4], False),  # of the AMQP session
        ([*CREDIT[:4], Uint(6), *CREDIT[5:]], False),  # no such link
        ([Uint(0), None, *CREDIT[2:]], False),  # without a mandatory field
    ],
)
def test_a_flow_that_only_gives_credit_needs_nothing_but_proton(fields: list[Any], passes: bool) -> None:
    data = frame(0, FLOW, fields)
    wide = data[:11] + b"\xd0" + (data[12] + 3).to_bytes(4, "big") + data[13].to_bytes(4, "big") + data[14:]
    wide = len(wide).to_bytes(4, "big") + wide[4:]
    too_long = data[:12] + bytes((data[12] + 1,)) + data[13:]
    for sent, end in ((data, len(data)), (wide, len(wide)), (too_long, 0)):
        for passthrough in (passthrough_end, passthrough_end_in_python):
            found = passthrough(sent, 0, 1 << 16, set(), {b"\0\0\x52\x05"}, 9)
            assert found == ((end, 1) if passes and end else (0, 0))


# ---- deliveries without tokens


def transfer_of(tag: bytes, number: int, payload: bytes, *, is_long: bool) -> bytes:
    """A transfer as Proton writes it, with its list in the short or the long form."""
    fields = [Uint(number % 300), Uint(number), tag, Uint(0), True]
    items = encode_list(fields)
    if is_long:
        items = b"\xd0" + (items[1] + 3).to_bytes(4, "big") + items[2].to_bytes(4, "big") + items[3:]
    body = encode_described(Ulong(TRANSFER), items) + payload
    return (8 + len(body)).to_bytes(4, "big") + b"\x02\x00\x00\x01" + body


TAGS = st.sampled_from([NO_TOKEN, b"\x00" * 16, b"\x00" * 4, b"\xa0\x03\x00\x00\x00" * 3])
PAYLOADS = st.sampled_from([b"", b"x", b"\xa0\x03\x00\x00\x00", frame(0, TRANSFER, [Uint(0), Uint(0), NO_TOKEN])])
OTHERS = st.sampled_from([frame(0, FLOW, [Uint(0)]), b"\x00\x00\x00\x08\x02\x00\x00\x00"])
FRAMES = st.one_of(
    OTHERS,
    st.builds(
        lambda tag, number, payload, is_long: transfer_of(tag, number, payload, is_long=is_long),
        TAGS,
        st.integers(0, 0xFFFFFFFF),
        PAYLOADS,
        st.booleans(),
    ),
)


@given(st.lists(FRAMES, max_size=8), st.booleans())
def test_tags_of_deliveries_without_a_token_are_empty_and_nothing_else_changes(
    frames: list[bytes], is_first: bool
) -> None:
    output = (AMQP_HEADER if is_first else b"") + b"".join(frames)
    changed = without_tokens(output)
    assert changed == without_tokens_in_python(output)
    assert len(changed) == len(output)
    pos = len(AMQP_HEADER) if is_first else 0
    for each in frames:
        now = changed[pos : pos + len(each)]
        pos += len(each)
        if len(each) == 8:
            assert now == each
            continue
        (before, payload_at), (after, _) = decode(each, 8), decode(now, 8)
        assert isinstance(before, Described)
        assert isinstance(after, Described)
        assert isinstance(before.value, list)
        wanted = [b"" if value == NO_TOKEN else value for value in before.value]
        assert (after.value, now[:8], now[payload_at:]) == (wanted, each[:8], each[payload_at:])
