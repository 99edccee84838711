"""Clients that receive: credit, drain, transfers, and what holds them back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.api import Delivery, ReceiveMode, Release
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Described, Symbol, Ubyte, Uint, Ulong

from ..tracking import taken_apart, untracked
from .fakes import FakeConsumer, token
from .wire import ATTACH, BEGIN, DETACH, END, FLOW, TARGET, TRANSFER, Frame, Wire, accepted, frame


def payloads(frames: list[Frame]) -> list[bytes]:
    return [each.payload for each in frames if each.code == TRANSFER]


def consumer(wire: Wire) -> FakeConsumer:
    return wire.broker.q.consumers[-1]


async def test_the_attach_is_answered_with_all_that_the_client_said(wire: Wire) -> None:
    (attach,) = wire.attach_receiver("amqps://h:1/q", name="r", snd=Ubyte(0), rcv=Ubyte(1), size=Ulong(12345))
    name, handle, role, snd, rcv, source, target, _, _, count, size, _, _, properties = attach.fields
    assert (name, handle, role, snd, rcv, count, size) == ("r", 0, False, 0, 1, 0, 12345)
    assert source.value[0] == "amqps://h:1/q"
    assert target.value[0] == "client"
    assert properties == {}


@pytest.mark.parametrize(
    ("snd", "answered", "mode"),
    [
        (None, 2, ReceiveMode.PEEK_LOCK),
        (Ubyte(0), 0, ReceiveMode.PEEK_LOCK),
        (Ubyte(1), 1, ReceiveMode.RECEIVE_AND_DELETE),
        (Ubyte(2), 2, ReceiveMode.PEEK_LOCK),
    ],
)
async def test_a_settled_sender_means_receive_and_delete(
    wire: Wire, snd: Ubyte | None, answered: int, mode: ReceiveMode
) -> None:
    (attach,) = wire.attach_receiver(snd=snd)
    assert attach.fields[3] == answered
    assert consumer(wire).mode is mode


async def test_a_target_without_address_is_still_a_target(wire: Wire) -> None:
    (attach,) = wire.attach_receiver(target=None)
    assert attach.fields[6].descriptor == TARGET
    assert attach.fields[6].value[0] is None


async def test_a_message_comes_with_its_lock_token_as_tag(wire: Wire) -> None:
    wire.attach_receiver(credit=5)
    wire.broker.q.put(b"one", b"two")
    first, second = await wire.turn()
    handle, number, tag, message_format, settled, more = [first.get(index) for index in range(6)]
    assert (handle, number, tag, message_format) == (0, 0, token(1), 0)
    assert not settled
    assert not more
    assert first.payload == b"one"
    assert (second.fields[1], second.fields[2], second.payload) == (1, token(2), b"two")


async def test_what_is_received_and_deleted_is_settled_already(wire: Wire) -> None:
    wire.attach_receiver(snd=Ubyte(1), credit=5)
    wire.broker.q.put(b"one", b"two")
    transfers = await wire.turn()
    assert [(each.get(1), each.get(2), each.get(4), each.payload) for each in transfers] == [
        (0, b"", True, b"one"),  # there is no lock, and no token
        (1, b"", True, b"two"),
    ]
    wire.dispose(accepted, 0, settled=True)  # JavaScript and .NET do that
    assert await wire.turn() == []


async def test_delivery_ids_count_over_all_links_of_a_session(wire: Wire) -> None:
    wire.attach_receiver(credit=1)
    wire.attach_receiver(handle=1, credit=2)
    wire.broker.q.put(b"one", b"two", b"three")
    frames = await wire.turn()
    assert [(each.fields[0], each.fields[1]) for each in frames] == [(0, 0), (1, 1), (1, 2)]


async def test_without_credit_nothing_comes(wire: Wire) -> None:
    wire.attach_receiver()
    wire.broker.q.put(b"one")
    assert await wire.turn() == []
    wire.flow(0, 1)
    assert payloads(await wire.turn()) == [b"one"]


async def test_a_large_message_is_cut_to_the_clients_frame_size(bare: Wire) -> None:
    bare.open(frame_size=1000)
    bare.attach_receiver(credit=1)
    payload = bytes(range(256)) * 20
    bare.broker.q.put(payload)
    frames = await bare.turn()
    assert b"".join(payloads(frames)) == payload
    assert [each.get(5) for each in frames[:-1]] == [True] * (len(frames) - 1)
    assert not frames[-1].get(5)
    assert all(len(each.payload) < 1000 for each in frames)


async def test_an_identical_flow_neither_zeroes_nor_doubles_the_credit(wire: Wire) -> None:
    wire.attach_receiver(credit=3)
    for _ in range(3):
        wire.flow(0, 3)
    assert consumer(wire).credit == 3
    wire.broker.q.put(*[b"m"] * 5)
    assert len(payloads(await wire.turn())) == 3
    wire.flow(0, 3, count=3)
    assert len(payloads(await wire.turn())) == 2


async def test_a_flow_that_is_older_than_our_transfers_counts_them(wire: Wire) -> None:
    wire.attach_receiver(credit=3)
    wire.broker.q.put(b"one", b"two")
    await wire.turn()
    wire.flow(0, 3, count=0)  # written before the two arrived
    assert consumer(wire).credit == 1


async def test_credit_can_be_taken_back(wire: Wire) -> None:
    wire.attach_receiver(credit=10)
    wire.flow(0, 0)
    wire.broker.q.put(b"one")
    assert await wire.turn() == []
    assert len(wire.broker.q.ready) == 1


async def test_messages_that_were_under_way_when_credit_was_taken_back_are_released(wire: Wire) -> None:
    wire.attach_receiver(credit=10)
    queue, receiver = wire.broker.q, consumer(wire)
    queue.locked = {token(1): b"one", token(2): b"two"}
    wire.flow(0, 1)
    receiver.deliver([Delivery(token(1), b"one", 1), Delivery(token(2), b"two", 2)])
    assert payloads(await wire.turn()) == [b"one"]
    assert queue.settled == [(token(2), Release())]


async def test_drain_delivers_available_messages_and_returns_the_rest_of_the_credit(wire: Wire) -> None:
    wire.attach_receiver()
    wire.broker.q.put(b"one", b"two")
    wire.flow(0, 5, drain=True)
    *transfers, flow = wire.read()
    assert payloads(transfers) == [b"one", b"two"]
    assert flow.code == FLOW
    handle, count, credit, available, drain, echo = [flow.get(index) for index in range(4, 10)]
    assert (handle, count, credit, bool(available), drain, bool(echo)) == (0, 5, 0, False, True, False)
    assert flow.fields[0] is not None
    wire.broker.q.put(b"three")
    assert await wire.turn() == []
    wire.flow(0, 1, count=5)
    assert payloads(wire.read()) == [b"three"]


async def test_a_drain_of_nothing_is_answered_at_once(wire: Wire) -> None:
    wire.attach_receiver(credit=3)
    wire.flow(0, 3, drain=True)
    (flow,) = wire.read()
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 3, 0, True]
    wire.flow(0, 2, count=3, drain=True)
    (flow,) = wire.read()
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 5, 0, True]


async def test_a_drain_waits_until_the_broker_has_looked_everywhere(wire: Wire) -> None:
    wire.attach_receiver()
    receiver = consumer(wire)
    drained: list[Callable[[], None]] = []
    receiver.drain = drained.append  # type: ignore[assignment, method-assign]
    wire.flow(0, 5, drain=True)
    assert await wire.turn() == []
    receiver.give([Delivery(token(1), b"late", 1)])
    drained.pop()()
    transfer, flow = await wire.turn()
    assert transfer.payload == b"late"
    assert [flow.get(index) for index in (5, 6, 8)] == [5, 0, True]


async def test_a_drain_that_is_taken_back_leaves_the_credit(wire: Wire) -> None:
    wire.attach_receiver()
    receiver = consumer(wire)
    drained: list[Callable[[], None]] = []
    receiver.drain = drained.append  # type: ignore[assignment, method-assign]
    wire.flow(0, 5, drain=True)
    wire.flow(0, 5)
    receiver.credit = 0
    drained.pop()()
    assert await wire.turn() == []
    assert receiver.credit == 5


async def test_a_drain_that_finds_no_credit_left_is_answered_all_the_same(wire: Wire) -> None:
    wire.attach_sender(handle=3)
    wire.begin(5)
    wire.attach_receiver(handle=7, channel=5, credit=2, name="other")
    wire.attach_receiver(handle=8, channel=5, credit=2)
    wire.broker.q.put(b"one", b"two", b"three", b"four")
    assert payloads(await wire.turn()) == [b"one", b"two", b"three", b"four"]
    wire.flow(8, 1, count=1, drain=True, channel=5)  # written before the second message arrived
    (flow,) = wire.read()
    assert (flow.channel, flow.code) == (1, FLOW)
    handle, count, credit, available, drain, echo = [flow.get(index) for index in range(4, 10)]
    assert (handle, count, credit, available, drain, echo) == (1, 2, 0, 0, True, False)
    assert None not in flow.fields[:4]
    wire.flow(7, 0, drain=True, channel=5)
    wire.flow(7, 3, count=2, drain=True, channel=5)
    first, second = wire.read()
    assert [first.get(index) for index in (4, 5, 6, 8)] == [0, 2, 0, True]
    assert [second.get(index) for index in (4, 5, 6, 8)] == [0, 5, 0, True]
    wire.flow(7, 0, count=5, drain=True, channel=5)
    (third,) = wire.read()
    assert [third.get(index) for index in (4, 5, 6, 8)] == [0, 5, 0, True]


async def test_two_drains_without_credit_in_one_write_get_an_answer_each(wire: Wire) -> None:
    wire.attach_receiver()
    wire.attach_receiver(handle=1)
    fields = [Uint(0), Uint(9), Uint(0), Uint(9), None, Uint(0), Uint(0), None, True]
    wire.write(b"".join(frame(0, FLOW, [*fields[:4], Uint(handle), *fields[5:]]) for handle in (0, 1)))
    assert [each.get(4) for each in wire.read()] == [0, 1]


async def test_the_answer_to_a_drain_waits_for_messages_that_wait_for_the_window(wire: Wire) -> None:
    wire.attach_receiver()
    wire.flow(0, 2, window=1)
    wire.broker.q.put(b"one", b"two")
    assert payloads(await wire.turn()) == [b"one"]
    wire.flow(0, 2, drain=True, window=1)
    assert await wire.turn() == []
    wire.send(0, FLOW, [Uint(1), Uint(100), Uint(0), Uint(5000)])
    transfer, flow = await wire.turn()
    assert transfer.payload == b"two"
    assert [flow.get(index) for index in (4, 5, 6, 8)] == [0, 2, 0, True]


async def test_a_flow_that_asks_is_answered_with_or_without_a_link(wire: Wire) -> None:
    wire.attach_receiver(credit=3)
    wire.attach_sender(handle=1)
    wire.flow(0, 3, echo=True)
    wire.flow(1, 0, echo=True)
    wire.send(0, FLOW, [Uint(0), Uint(9), Uint(0), Uint(9), None, None, None, None, None, True])
    flows = wire.read()
    assert [each.code for each in flows] == [FLOW] * 3
    assert all(None not in each.fields[:4] for each in flows)


async def test_a_session_window_that_is_full_holds_messages_back_until_it_opens(wire: Wire) -> None:
    wire.begin(1, window=2)
    wire.attach_receiver(channel=1)
    wire.flow(0, 10, channel=1, window=2)
    wire.broker.q.put(*[b"m%d" % number for number in range(5)])
    assert payloads(await wire.turn()) == [b"m0", b"m1"]
    wire.send(1, FLOW, [Uint(2), Uint(2), Uint(0), Uint(5000)])
    assert payloads(await wire.turn()) == [b"m2", b"m3"]
    wire.send(1, FLOW, [Uint(4), Uint(5), Uint(0), Uint(5000)])
    assert payloads(await wire.turn()) == [b"m4"]


async def test_a_full_window_stops_the_consumer_once_enough_is_kept() -> None:
    wire = Wire(limits=Limits(outgoing_bytes_max=10_000))
    wire.open()
    wire.begin(1, window=1)
    wire.attach_receiver(channel=1)
    wire.flow(0, 1000, channel=1, window=1)
    wire.broker.q.put(*[bytes(1000)] * 200)
    await wire.turn()
    kept = len(wire.broker.q.locked)
    assert kept < 50
    assert consumer(wire).credit == 0
    wire.send(1, FLOW, [Uint(1), Uint(1000), Uint(0), Uint(5000)])
    assert len(payloads(await wire.turn(20))) == 199
    wire.lose()


async def test_a_socket_that_takes_no_more_stops_proton_and_the_consumers(wire: Wire) -> None:
    wire.attach_receiver(credit=1000)
    wire.broker.q.put(b"one")
    assert payloads(await wire.turn()) == [b"one"]
    wire.server.pause_writing()
    assert consumer(wire).credit == 0
    wire.broker.q.put(b"two")
    wire.flow(0, 1000, count=1)
    assert await wire.turn() == []
    assert len(wire.broker.q.ready) == 1
    wire.server.resume_writing()
    assert payloads(await wire.turn()) == [b"two"]


async def test_a_drain_across_a_full_socket_is_answered_in_the_end(wire: Wire) -> None:
    wire.attach_receiver()
    wire.broker.q.put(b"one")
    wire.server.pause_writing()
    wire.flow(0, 5, drain=True)
    assert await wire.turn() == []
    wire.server.resume_writing()
    transfer, flow = await wire.turn()
    assert transfer.payload == b"one"
    assert [flow.get(index) for index in (5, 6, 8)] == [5, 0, True]


async def test_a_long_drain_goes_slice_by_slice() -> None:
    wire = Wire(limits=Limits(outgoing_bytes_max=1000, outgoing_slice_max=3))
    wire.open()
    wire.attach_receiver()
    wire.broker.q.put(*[b"m"] * 8)
    wire.flow(0, 20, drain=True)
    frames = wire.read() + await wire.turn(20)
    assert len(payloads(frames)) == 8
    assert [frames[-1].get(index) for index in (5, 6, 8)] == [20, 0, True]
    wire.lose()


async def test_a_client_that_detaches_gives_its_consumer_up_and_keeps_its_locks(wire: Wire) -> None:
    wire.attach_receiver(credit=1)
    wire.broker.q.put(b"one")
    await wire.turn()
    receiver = consumer(wire)
    wire.send(0, DETACH, [Uint(0), True])
    (detach,) = wire.read()
    assert (detach.code, detach.fields) == (DETACH, [0, True])
    assert receiver.closed
    assert wire.broker.q.settled == []
    assert len(wire.broker.q.locked) == 1


async def test_a_detach_without_close_is_answered_in_kind(wire: Wire) -> None:
    wire.attach_receiver()
    wire.send(0, DETACH, [Uint(0)])
    (detach,) = wire.read()
    assert detach.code == DETACH
    assert not detach.get(1)
    assert [each.code for each in wire.attach_receiver()] == [ATTACH]


async def test_deliveries_after_the_end_of_the_link_are_ignored(wire: Wire) -> None:
    wire.attach_receiver(credit=10)
    receiver = consumer(wire)
    wire.send(0, END, [])
    assert [each.code for each in wire.read()] == [END]
    receiver.deliver([Delivery(token(9), b"late", 9)])
    assert await wire.turn() == []


async def test_the_broker_can_detach_a_link(wire: Wire) -> None:
    wire.attach_receiver(credit=10)
    consumer(wire).detached(BrokerError(Condition.ENTITY_DISABLED, "It is disabled."))
    (detach,) = await wire.turn()
    assert detach.fields[:2] == [0, True]
    condition, text, info = detach.fields[2].value
    assert (condition, taken_apart(text), info) == (
        "com.microsoft:entity-disabled",
        ("It is disabled.", "broker", "ns:Queue:q"),
        {},
    )
    assert wire.broker.q.consumers == []
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []


async def test_a_session_that_ends_can_begin_again_on_its_channel(wire: Wire) -> None:
    for _ in range(3):
        wire.attach_receiver(credit=1)
        wire.broker.q.put(b"one")
        assert payloads(await wire.turn()) == [b"one"]
        wire.send(0, END, [])
        wire.send(0, DETACH, [Uint(0), True])  # Python does that
        assert [each.code for each in wire.read()] == [END]
        assert wire.begin(0).code == BEGIN


async def test_the_filter_of_a_consumer_s_own_messages_is_not_in_force_and_not_echoed(wire: Wire) -> None:
    own = {Symbol("no-local"): Described(Ulong(0x468C00000003), "NoLocalFilter{}"), Symbol("nothing"): None}
    (attach,) = wire.attach_receiver(filter=own)
    assert attach.fields[5].value[7:8] in ([], [None])


@pytest.mark.parametrize(
    "unknown",
    [
        {Symbol("f"): 5},
        {Symbol("any"): Described(Symbol("com.microsoft:message-receipts-filter:list"), [])},
        {Symbol("com.microsoft:non-exclusive-session-filter"): Described(Ulong(0x137000000E), ["s", None])},
        {Symbol("com.microsoft:session-filter"): "s", Symbol("f"): 5},
        {Symbol("jms-selector"): Described(Ulong(0x468C00000004), "a = 1"), Symbol("f"): 5},
    ],
    ids=["plain", "described", "non-exclusive", "in a session", "beside a selector"],
)
async def test_a_receiver_with_a_filter_that_we_don_t_know_is_refused(wire: Wire, unknown: dict[str, object]) -> None:
    attach, detach = wire.attach_receiver(filter=unknown, name="my link")
    assert (attach.code, attach.get(5), detach.code, detach.get(1)) == (ATTACH, None, DETACH, True)
    condition, text, _ = detach.get(2).value
    assert (condition, untracked(text)) == (
        "amqp:not-allowed",
        "The link 'my link' contains invalid filter type. System only support Jms or Apache selector filter type.",
    )
    assert wire.broker.waits == []
    _, detach = wire.attach_receiver("missing", 1, filter=unknown)
    assert detach.get(2).value[0] == "amqp:not-found"


@pytest.mark.parametrize(
    "selector",
    [
        {Symbol("jms-selector"): Described(Ulong(0x468C00000004), "a = 1")},
        {Symbol("any"): Described(Symbol("apache.org:selector-filter:string"), "a = 1")},
        {Symbol("apache.org:selector-filter:string"): "a = 1"},
    ],
    ids=["number", "symbol", "key"],
)
@pytest.mark.parametrize("session", [{}, {Symbol("com.microsoft:session-filter"): None}], ids=["plain", "session"])
@pytest.mark.parametrize("address", ["q", "q/$DeadLetterQueue"])
async def test_a_receiver_with_a_selector_is_refused_instead_of_getting_all_messages(
    wire: Wire, address: str, session: dict[Symbol, object], selector: dict[Symbol, object]
) -> None:
    attach, detach = wire.attach_receiver(address, filter=selector | session)
    assert (attach.code, attach.get(5), detach.code, detach.get(1)) == (ATTACH, None, DETACH, True)
    condition, text, _ = detach.get(2).value
    assert condition == "amqp:not-implemented"
    assert text.startswith(
        "The filter 'apache.org:selector-filter:string' (a message selector of JMS) is not supported here"
    )
