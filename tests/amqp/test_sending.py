"""Clients that send: deliveries to the broker, outcomes back."""

from __future__ import annotations

import pytest
from structlog.testing import capture_logs

from emubus.amqp.limits import Limits
from emubus.amqp.link_context import PENDING_FACTOR
from emubus.amqp.wire.engine import lib
from emubus.amqp.wire.flow import BUFFERS_BYTES_MAX, CONNECTION_BUFFERS_BYTES_MAX, FEW_BUFFERS_BYTES
from emubus.amqp.wire.incoming_deliveries import KEEPING_BYTES, MEMBER_BYTES
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.ledger import LOOK_MS, PATIENCE_LOOKS, Caps, Ledger, Use
from emubus.broker.model.profiles import MIB, Profile, limits_for
from emubus.codec.encode import encode
from emubus.codec.frames import EMPTY_FRAME
from emubus.codec.types import Long, Ubyte, Uint, Ulong

from ..tracking import taken_apart, untracked
from .transacting import within
from .wire import (
    ATTACH,
    BATCH,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    REJECTED,
    SOURCE,
    TARGET,
    TRANSFER,
    Wire,
    accepted,
    frame,
)

REFUSAL = BrokerError(Condition.NOT_ALLOWED, "The broker says no.")


async def test_the_attach_is_answered_with_all_that_the_client_said_and_then_with_credit(wire: Wire) -> None:
    attach, flow = wire.attach_sender("amqps://h:1/Q", snd=Ubyte(2), rcv=Ubyte(0), name="my link")
    name, handle, role, snd, rcv, source, target, _, _, _, size, _, _, properties = attach.fields
    assert (attach.code, flow.code) == (ATTACH, FLOW)
    assert (name, handle, role, snd, rcv) == ("my link", 0, True, 2, 0)
    assert source.descriptor == SOURCE
    assert source.value[0] == "client"
    assert target.descriptor == TARGET
    assert target.value[0] == "amqps://h:1/Q"
    assert (size, type(size)) == (256 * 1024, Ulong)
    assert properties == {"com.microsoft:max-message-batch-size": 256 * 1024}
    assert type(properties["com.microsoft:max-message-batch-size"]) is Long
    next_incoming, _, next_outgoing, _, flow_handle, count, credit = flow.fields[:7]
    assert (next_incoming, next_outgoing, flow_handle, count, credit) == (0, 0, 0, 0, 1000)


@pytest.mark.parametrize(("profile", "bytes_max"), [(Profile.PREMIUM, MIB), (Profile.RELAXED, 100 * MIB)])
async def test_the_answer_states_the_largest_batch_whatever_a_message_of_the_entity_may_have(
    wire: Wire, profile: Profile, bytes_max: int
) -> None:
    wire.broker.limits = limits_for(profile)
    wire.broker.q.message_bytes_max = 50 * MIB
    attach, _ = wire.attach_sender()
    assert (attach.get(10), attach.get(13)) == (50 * MIB, {"com.microsoft:max-message-batch-size": bytes_max})


async def test_a_message_reaches_the_broker_as_it_came_and_is_accepted(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(wire.transfer(b"message"))
    assert wire.broker.q.sent == [(b"message", False)]
    (disposition,) = wire.read()
    assert disposition.code == DISPOSITION
    assert disposition.fields[:2] == [True, 0]
    assert disposition.get(3) is True
    assert disposition.get(4) == accepted


async def test_a_heartbeat_is_ignored_and_the_same_bytes_within_a_message_are_not(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(EMPTY_FRAME)
    transfer = wire.transfer(b"before" + EMPTY_FRAME + b"behind")
    at = transfer.index(EMPTY_FRAME)
    for part in (transfer[:at], EMPTY_FRAME, transfer[at + len(EMPTY_FRAME) :], EMPTY_FRAME):
        wire.write(part)
    assert wire.broker.q.sent == [(b"before" + EMPTY_FRAME + b"behind", False)]


async def test_outcomes_of_one_turn_go_out_as_one_range_in_one_write(wire: Wire) -> None:
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(b"".join(wire.transfer(b"m%d" % number) for number in range(500)))
    assert wire.read() == []
    wire.broker.q.waiting.reverse()  # outcomes come in any order
    writes = wire.socket.writes
    wire.broker.q.answer_all()
    assert wire.read() == []
    (disposition,) = await wire.turn()
    assert disposition.fields[:5] == [True, 0, 499, True, accepted]
    assert wire.socket.writes == writes + 1


async def test_a_refusal_is_rejected_with_an_error_of_three_fields(wire: Wire) -> None:
    wire.broker.q.error = REFUSAL
    wire.attach_sender()
    wire.write(wire.transfer(b"message"))
    (disposition,) = wire.read()
    assert disposition.get(3) is True
    state = disposition.get(4)
    assert state.descriptor == REJECTED
    condition, text, info = state.value[0].value
    assert (condition, taken_apart(text), info) == (
        "amqp:not-allowed",
        ("The broker says no.", "operation", "ns:Queue:q"),
        {},
    )


async def test_only_the_message_format_makes_a_batch(wire: Wire) -> None:
    wire.attach_sender()
    envelope = b"\x00\x53\x75" + encode(b"\x00\x53\x75" + encode(b"inner"))
    wire.write(
        wire.transfer(envelope) + wire.transfer(envelope, format=BATCH) + wire.transfer(envelope) + wire.transfer(b"x")
    )
    assert wire.broker.q.sent == [(envelope, False), (envelope, True), (envelope, False), (b"x", False)]


@pytest.mark.parametrize("transactional", [False, True])
async def test_a_batch_above_the_size_of_batches_closes_its_link_as_if_it_were_empty(
    wire: Wire, transactional: bool
) -> None:
    """On Premium a batch has 1 MB, whatever the entity takes as one message (azure-sdk-for-net 26109, 44914)."""
    wire.attach_sender()
    wire.broker.senders[-1].batch_bytes_max = 100
    state = within() if transactional else None
    wire.write(wire.transfer(bytes(101)) + wire.transfer(bytes(101), format=BATCH, state=state))
    detach = next(each for each in wire.read() if each.code == DETACH)
    condition, text, _ = detach.get(2).value
    assert (detach.get(1), condition) == (True, "amqp:not-allowed")
    assert "is force detached by the broker because publisher(link1) received a batch message with no data" in text
    assert [batch for _, batch in wire.broker.q.sent] == [False]


async def test_a_batch_of_many_frames_has_its_format_on_the_first(wire: Wire) -> None:
    wire.attach_sender()
    wire.attach_sender(handle=1)
    first = wire.transfer(b"first ", more=True, format=BATCH)
    last = frame(0, 0x14, [Uint(0), None, None, None, None, False], b"last")
    second = frame(0, 0x14, [Uint(1), Uint(1), b"u", Uint(0), False], b"plain")
    wire.write(first + last + second, chunk=11)
    assert wire.broker.q.sent == [(b"first last", True), (b"plain", False)]


async def test_deliveries_of_two_links_may_be_interleaved_frame_by_frame(wire: Wire) -> None:
    wire.attach_sender()
    wire.attach_sender(handle=1)
    wire.write(
        frame(0, 0x14, [Uint(0), Uint(0), b"a", Uint(0), False, True], b"one ")
        + frame(0, 0x14, [Uint(1), Uint(1), b"b", Uint(BATCH), False, True], b"two ")
        + frame(0, 0x14, [Uint(0), None, None, None, None, False], b"end")
        + frame(0, 0x14, [Uint(1), None, None, None, None, False], b"end")
    )
    assert wire.broker.q.sent == [(b"one end", False), (b"two end", True)]


async def test_a_message_larger_than_a_frame_arrives_whole(wire: Wire) -> None:
    wire.attach_sender()
    payload = bytes(range(256)) * 900
    parts = [payload[start : start + 60_000] for start in range(0, len(payload), 60_000)]
    data = b"".join(
        frame(0, 0x14, [Uint(0), Uint(0), b"t", Uint(0), False, number < len(parts) - 1], part)
        for number, part in enumerate(parts)
    )
    wire.write(data, chunk=9999)
    assert wire.broker.q.sent == [(payload, False)]
    assert [each.get(4) for each in wire.read()] == [accepted]
    assert wire.server.context.wire.flow.partial_bytes == 0


async def test_a_message_of_more_than_a_mebibyte_arrives_whole(wire: Wire) -> None:
    wire.broker.q.message_bytes_max = 4 * 1024 * 1024
    wire.attach_sender()
    payload = bytes(range(256)) * 9000
    for start in range(0, len(payload), 60_000):
        part = payload[start : start + 60_000]
        wire.write(frame(0, 0x14, [Uint(0), Uint(0), b"t", Uint(0), False, start + 60_000 < len(payload)], part))
    assert [(len(data), data == payload) for data, _ in wire.broker.q.sent] == [(len(payload), True)]


TOO_LARGE = "The received message (size:{} bytes) exceeds the limit (100000 bytes) currently allowed on the link."


async def test_what_exceeds_the_limit_closes_its_link_at_the_first_excess_byte(wire: Wire) -> None:
    wire.broker.q.message_bytes_max = 100_000
    wire.attach_sender()
    part = frame(0, 0x14, [Uint(0), Uint(0), b"t", Uint(0), False, True], bytes(50_000))
    for _ in range(2):
        wire.write(part)
    assert wire.read() == []
    assert wire.server.context.wire.flow.partial_bytes == 100_000
    wire.write(part)
    (detach,) = wire.read()
    assert (detach.code, detach.fields[:2]) == (DETACH, [0, True])
    condition, text, info = detach.fields[2].value
    assert (condition, untracked(text), info) == ("amqp:link:message-size-exceeded", TOO_LARGE.format(150_000), {})
    assert wire.server.context.wire.flow.partial_bytes == 0


async def test_the_rest_of_a_delivery_that_was_too_large_is_dropped_while_it_arrives(wire: Wire) -> None:
    wire.broker.q.message_bytes_max = 100_000
    wire.attach_sender()
    wire.attach_sender(handle=1)
    for number in range(40):
        wire.write(frame(0, 0x14, [Uint(0), Uint(0), b"t", Uint(0), False, number < 39], bytes(50_000)))
        assert wire.server.context.wire.flow.partial_bytes <= 100_000
        assert lib.pn_session_incoming_bytes(lib.pn_session_head(wire.engine.connection, 0)) <= 100_000
    detach, disposition = wire.read()
    assert detach.fields[2].value[0] == "amqp:link:message-size-exceeded"
    assert disposition.get(4).value[0].value == detach.fields[2].value
    assert wire.broker.q.sent == []
    wire.write(frame(0, 0x14, [Uint(1), Uint(1), b"u", Uint(0), False], b"next"))
    assert wire.broker.q.sent == [(b"next", False)]


@pytest.mark.parametrize("parts", [[100_001], [50_000, 50_001]])
async def test_a_delivery_too_large_that_comes_at_once_is_rejected_and_closes_its_link(parts: list[int]) -> None:
    wire = Wire(limits=Limits(frame_bytes_max=200_000))
    wire.open()
    wire.broker.q.message_bytes_max = 100_000
    wire.attach_sender()
    wire.write(wire.transfer(bytes(100)))
    wire.write(b"".join(wire.transfer(bytes(size), more=index + 1 < len(parts)) for index, size in enumerate(parts)))
    taken, refused, detach = wire.read()
    assert taken.fields[4] == accepted
    assert refused.fields[:2] == [True, 1]
    for condition, text, info in (refused.fields[4].value[0].value, detach.fields[2].value):
        assert (condition, untracked(text), info) == (
            "amqp:link:message-size-exceeded",
            TOO_LARGE.format(100_001),
            {},
        )
    assert len(wire.broker.q.sent) == 1
    wire.lose()


async def test_presettled_messages_are_stored_and_not_answered(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(wire.transfer(b"one", settled=True) + wire.transfer(b"two", settled=True))
    assert wire.broker.q.sent == [(b"one", False), (b"two", False)]
    assert await wire.turn() == []


async def test_a_presettled_message_that_is_refused_closes_its_link_and_is_logged(wire: Wire) -> None:
    wire.attach_sender()
    wire.broker.q.error = REFUSAL
    with capture_logs() as logs:
        wire.write(wire.transfer(b"three", settled=True))
    (detach,) = wire.read()
    assert detach.fields[:2] == [0, True]
    condition, text, info = detach.fields[2].value
    assert (condition, untracked(text), info) == (REFUSAL.condition.value, REFUSAL.description, {})
    assert [(entry["event"], entry["reason"]) for entry in logs if entry["log_level"] == "warning"] == [
        ("settled delivery refused", str(REFUSAL))
    ]


async def test_a_refusal_that_comes_after_the_link_is_logged(wire: Wire) -> None:
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(wire.transfer(b"three", settled=True) + frame(0, DETACH, [Uint(0), True]))
    wire.read()
    with capture_logs() as logs:
        wire.broker.q.answer_all(REFUSAL)
        assert await wire.turn() == []
    late = [entry for entry in logs if entry["event"] != "refused"]
    assert [(entry["event"], entry["reason"]) for entry in late] == [("delivery refused after its link", str(REFUSAL))]


async def test_an_aborted_delivery_never_was(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(wire.transfer(b"half", more=True, format=BATCH))
    wire.write(frame(0, 0x14, [Uint(0), Uint(0), None, None, None, False, None, None, None, True]))
    wire._delivery_ids[0] = 1
    wire.write(wire.transfer(b"whole"))
    assert wire.broker.q.sent == [(b"whole", False)]
    assert [each.fields[1] for each in wire.read()] == [1]
    assert wire.server.context.wire.flow.partial_bytes == 0


async def test_an_empty_message_is_given_to_the_broker_too(wire: Wire) -> None:
    wire.attach_sender()
    wire.write(wire.transfer(b""))
    assert wire.broker.q.sent == [(b"", False)]
    assert [each.get(4) for each in wire.read()] == [accepted]


async def test_credit_comes_back_with_outcomes_only(wire: Wire) -> None:
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(b"".join(wire.transfer(b"m") for _ in range(1000)))
    assert await wire.turn() == []
    waiting, wire.broker.q.waiting = wire.broker.q.waiting, []
    for done in waiting[:500]:
        done(None)
    assert [each.code for each in await wire.turn()] == [DISPOSITION]
    waiting[500](None)
    disposition, flow = sorted(await wire.turn(), key=lambda each: -each.code)
    assert disposition.fields[1] == 500
    assert flow.fields[4:7] == [0, 1000, 501]


def capped(connection: int, link_credit: int = 1_000) -> Wire:
    """A connection that may hold so many bytes; none is too few to count."""
    clock = Clock(start_at=1_700_000_000_000, manual=True)
    wire = Wire(
        limits=Limits(link_credit=link_credit),
        clock=clock,
        ledger=Ledger(clock, Caps(connection=connection, small=0, step=1)),
    )
    wire.open()
    return wire


def look(wire: Wire, times: int) -> None:
    """Let the ledger look at the connection so often."""
    for _ in range(times):
        wire.clock.advance(LOOK_MS)


async def test_too_much_that_waits_for_its_outcome_stops_the_reading_until_a_quarter_is_done() -> None:
    wire = capped(PENDING_FACTOR * 110_000)
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(b"".join(wire.transfer(bytes(30_000)) for _ in range(4)))
    await wire.turn()
    assert not wire.socket.reading
    waiting = wire.broker.q.waiting
    waiting[0](None)
    await wire.turn()
    assert not wire.socket.reading
    waiting[1](None)
    await wire.turn()
    assert wire.socket.reading
    assert wire.server.context.wire.flow.pending_bytes == 2 * (30_000 + KEEPING_BYTES)
    look(wire, PATIENCE_LOOKS)
    flow = wire.server.context.wire.flow
    assert wire.server.context.memory.kept - (flow.kept_bytes - flow.delivery_bytes) < 10_000
    wire.lose()
    assert flow.pending_bytes == 0


LARGE = bytes(60_000)


def send_large(wire: Wire, count: int) -> None:
    for _ in range(count):
        wire.write(wire.transfer(LARGE))


async def test_more_deliveries_wait_than_a_connection_may_keep_buffers_for() -> None:
    wire = Wire()
    wire.open()
    wire.broker.q.waiting = []
    wire.attach_sender()
    flow, fits = wire.server.context.wire.flow, CONNECTION_BUFFERS_BYTES_MAX // (len(LARGE) + KEEPING_BYTES)
    send_large(wire, fits)
    assert wire.socket.reading
    send_large(wire, 1)
    assert not wire.socket.reading
    wire.broker.q.answer_all()
    await wire.turn()
    assert wire.socket.reading
    assert (flow.pending_bytes, flow.kept_bytes) == (0, (fits + 1) * (len(LARGE) + KEEPING_BYTES))
    assert wire.server.context.memory.by_use()[Use.BUFFERS] == flow.kept_bytes
    wire.lose()
    assert flow.buffers.bytes == 0


async def test_where_others_keep_many_buffers_a_connection_gets_few_and_reuses_them() -> None:
    wire = Wire()
    wire.open()
    wire.broker.q.waiting = []
    wire.attach_sender()
    flow = wire.server.context.wire.flow
    send_large(wire, 20)
    wire.broker.q.answer_all()
    await wire.turn()
    kept = flow.kept_bytes
    flow.buffers.bytes += BUFFERS_BYTES_MAX  # of others
    while wire.socket.reading:
        send_large(wire, 1)
    assert flow.kept_bytes == kept
    assert flow.pending_bytes > kept // 2
    wire.lose()
    assert flow.buffers.bytes == BUFFERS_BYTES_MAX


async def test_a_new_connection_gets_few_buffers_where_others_keep_many() -> None:
    wire = Wire()
    wire.open()
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.server.context.wire.flow.buffers.bytes = BUFFERS_BYTES_MAX + 1
    send_large(wire, FEW_BUFFERS_BYTES // (len(LARGE) + KEEPING_BYTES))
    assert wire.socket.reading
    send_large(wire, 1)
    assert not wire.socket.reading
    wire.lose()


async def test_deliveries_count_until_their_outcomes_are_written() -> None:
    wire = Wire()
    wire.open()
    wire.attach_sender()
    flow, fits = wire.server.context.wire.flow, CONNECTION_BUFFERS_BYTES_MAX // (len(LARGE) + KEEPING_BYTES)
    wire.server.pause_writing()
    for _ in range(fits + 1):
        send_large(wire, 1)
        await wire.turn()
    assert (flow.pending_bytes, wire.socket.reading) == (0, False)
    wire.server.resume_writing()
    await wire.turn()
    assert (flow.unwritten_bytes, wire.socket.reading) == (0, True)
    wire.lose()


TINY_MEMBERS = [
    b"\x00\x53\x75\xa0\x05\x00\x53\x75\xa0\x00",
    b"\x00\x80" + bytes(7) + b"\x75\xb0\x00\x00\x00\x05\x00\x53\x75\xa0\x00",
    b"\x00\xa3\x10amqp:data:binary\xa0\x05\x00\x53\x75\xa0\x00",
]


@pytest.mark.parametrize("member", TINY_MEMBERS)
async def test_each_message_of_a_batch_counts_while_it_waits_in_whatever_form_it_is(member: bytes) -> None:
    batch = member * 1_000
    wire = capped(PENDING_FACTOR * (len(batch) + 1_000 * MEMBER_BYTES))
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(wire.transfer(bytes(len(batch))) + wire.transfer(batch, format=BATCH))
    await wire.turn()
    assert wire.server.context.wire.flow.pending_bytes >= 2 * (len(batch) + KEEPING_BYTES) + 1_000 * MEMBER_BYTES
    look(wire, 1)
    assert not wire.socket.reading
    for done in wire.broker.q.waiting:
        done(None)
    await wire.turn()
    assert (wire.server.context.wire.flow.pending_bytes, wire.socket.reading) == (0, True)


async def test_what_only_waits_for_the_store_closes_no_connection() -> None:
    wire = capped(60_000)
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(wire.transfer(bytes(30_000)))
    look(wire, 3 * PATIENCE_LOOKS)
    assert (wire.read(), wire.socket.reading) == ([], False)
    wire.broker.q.answer_all()
    assert [each.code for each in await wire.turn()] == [DISPOSITION]
    assert wire.socket.reading
    wire.lose()


async def test_unfinished_deliveries_close_the_connection_if_waiting_does_not_help() -> None:
    wire = capped(150_000)
    for handle in range(4):
        wire.attach_sender(handle=handle)
    for handle in range(4):
        fields = [Uint(handle), Uint(handle), b"t", Uint(0), False, True]
        wire.write(frame(0, 0x14, fields, bytes(40_000)))
    assert (wire.read(), wire.socket.reading) == ([], False)
    look(wire, PATIENCE_LOOKS - 1)
    assert wire.read() == []
    look(wire, 1)
    (close,) = wire.read()
    assert (close.code, close.fields[0].value[0]) == (0x18, "amqp:resource-limit-exceeded")
    wire.lose()


async def test_many_small_messages_beyond_the_credit_stop_the_reading_too() -> None:
    wire = capped(PENDING_FACTOR * 100 * KEEPING_BYTES + 8_000, link_credit=2)
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(b"".join(wire.transfer(b"") for _ in range(101)))
    await wire.turn()
    assert not wire.socket.reading
    wire.broker.q.answer_all()
    await wire.turn()
    assert wire.socket.reading
    assert wire.server.context.wire.flow.pending_bytes == 0
    wire.lose()


@pytest.mark.parametrize("frames", [1, 2])
async def test_aborted_deliveries_give_their_credit_back(frames: int) -> None:
    wire = Wire(limits=Limits(link_credit=4))
    wire.open()
    wire.attach_sender()
    for number in range(3):
        if frames == 2:
            wire.write(wire.transfer(b"half", more=True))
        fields = [Uint(0), Uint(number), number.to_bytes(4, "big"), Uint(0), None, False, None, None, None, True]
        wire.send(0, TRANSFER, fields)
        wire._delivery_ids[0] = number + 1
    (flow,) = await wire.turn()
    assert (flow.code, flow.get(5), flow.get(6)) == (FLOW, 3, 4)
    assert (
        wire.broker.q.sent,
        wire.server.context.wire.flow.pending_bytes,
        wire.server.context.wire.flow.partial_bytes,
    ) == (
        [],
        0,
        0,
    )
    wire.write(wire.transfer(b"whole"))
    assert wire.broker.q.sent == [(b"whole", False)]
    wire.lose()


@pytest.mark.parametrize("ending", ["detach", "end", "lost"])
async def test_an_outcome_that_comes_after_the_link_is_gone_is_dropped(wire: Wire, ending: str) -> None:
    wire.broker.q.waiting = []
    wire.attach_sender()
    wire.write(wire.transfer(b"message"))
    waiting = wire.broker.q.waiting
    if ending == "detach":
        wire.send(0, DETACH, [Uint(0), True])
    elif ending == "end":
        wire.send(0, END, [])
    else:
        wire.lose()
    codes = {"detach": [DETACH], "end": [END], "lost": []}
    assert [each.code for each in wire.read()] == codes[ending]
    waiting[0](None)
    assert await wire.turn() == []
    assert [sender.closed for sender in wire.broker.senders] == [True]


async def test_a_message_on_a_refused_link_is_refused_like_the_link(wire: Wire) -> None:
    wire.attach_sender("nothing")
    wire.write(wire.transfer(b"message") + wire.transfer(b"settled", settled=True))
    (answer,) = await wire.turn()  # settled without an outcome would be no answer
    assert (answer.get(1), answer.get(3), answer.get(4).descriptor) == (0, True, 0x25)
    assert answer.get(4).value[0].value[0] == "amqp:not-found"
    assert wire.broker.q.sent == []


async def test_a_second_link_of_the_same_name_in_the_other_direction_is_another_link(wire: Wire) -> None:
    wire.attach_sender(name="same")
    wire.attach_receiver(name="same", handle=1, credit=1)
    wire.write(wire.transfer(b"message"))
    assert wire.broker.q.sent == [(b"message", False)]
    wire.broker.q.put(b"other")
    assert [each.payload for each in await wire.turn() if each.payload] == [b"other"]


async def test_a_link_name_can_be_used_again_after_a_detach(wire: Wire) -> None:
    for _ in range(3):
        wire.attach_sender(name="again")
        wire.write(wire.transfer(b"message"))
        wire.send(0, DETACH, [Uint(0), True])
    assert len(wire.broker.q.sent) == 3
