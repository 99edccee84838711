"""Clients that receive the messages of one message session: the held attach, the grant, the loss."""

from __future__ import annotations

from typing import Any

import pytest

from emubus.amqp.links.message_sessions import dotnet_ticks
from emubus.broker.access import Access
from emubus.broker.api import Complete, Delivery, ReceiveMode
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.encode import encode
from emubus.codec.types import Described, Long, Symbol, Ubyte, Uint, Ulong

from .fake_verbs import FakeSessionConsumer, FakeWait
from .fakes import token
from .wire import ATTACH, DETACH, DISPOSITION, FLOW, TRANSFER, Wire, accepted, released

FILTER = "com.microsoft:session-filter"
GO = Ulong(0x137000000C)
TIMED_OUT = BrokerError(Condition.TIMEOUT, "The operation did not complete within the allotted time.")
LOST = BrokerError(Condition.SESSION_LOCK_LOST, "The session lock has expired on the message session.")


def attach(wire: Wire, session: object, **more: Any) -> FakeWait:
    """Attach for a message session; nothing may be answered before the broker has said something."""
    timeout = more.pop("timeout", None)
    properties = {Symbol("com.microsoft:timeout"): timeout} if timeout is not None else None
    assert wire.attach_receiver(filter={Symbol(FILTER): session}, properties=properties, **more) == []
    return wire.broker.waits[-1]


async def granted(wire: Wire, **more: Any) -> FakeSessionConsumer:
    consumer = attach(wire, "s-1", **more).grant()
    assert [each.code for each in await wire.turn()] == [ATTACH]
    return consumer


# ---- the attach


async def test_an_attach_is_held_without_a_word_until_there_is_a_session(wire: Wire) -> None:
    wait = attach(wire, None)
    assert (wait.address, wait.session_id, wait.mode) == ("q", None, ReceiveMode.PEEK_LOCK)
    assert await wire.turn(10) == []
    wait.grant("found")
    (frame,) = await wire.turn()
    assert frame.code == ATTACH


@pytest.mark.parametrize("name", ["s-1", "", "ä ö", Described(GO, "s-1"), Described(Symbol(FILTER), "s-1")])
async def test_the_answer_names_the_session_as_the_client_did(wire: Wire, name: object) -> None:
    wait = attach(wire, name)
    text = name.value if isinstance(name, Described) else name
    assert wait.session_id == text
    wait.grant()
    (frame,) = await wire.turn()
    echoed = frame.fields[5].value[7][FILTER]
    assert encode(echoed) == encode(name)


async def test_the_answer_names_no_filter_but_that_of_the_session(wire: Wire) -> None:
    wire.attach_receiver(filter={Symbol(FILTER): None, Symbol("no-local"): Described(Ulong(0x468C00000003), "x")})
    wire.broker.waits[-1].grant("found")
    (frame,) = await wire.turn()
    assert frame.fields[5].value[7] == {FILTER: "found"}


@pytest.mark.parametrize(("name", "echoed"), [(None, "found"), (Described(GO, None), Described(GO, "found"))])
async def test_the_next_available_session_is_named_in_the_clients_encoding(
    wire: Wire, name: object, echoed: object
) -> None:
    wait = attach(wire, name)
    assert wait.session_id is None
    wait.grant("found")
    (frame,) = await wire.turn()
    assert encode(frame.fields[5].value[7][FILTER]) == encode(echoed)


async def test_the_answer_tells_how_long_the_lock_lasts_in_dotnets_ticks(wire: Wire) -> None:
    attach(wire, "s-1", snd=Ubyte(0), name="link", size=Ulong(77)).grant(until_at=1_767_225_600_000)
    await wire.turns(2)
    raw = bytes(wire.socket.output)
    (frame,) = wire.read()
    name, handle, role, snd, rcv, source, target, _, _, count, size, _, _, properties = frame.fields
    assert (name, handle, role, snd, rcv, count, size) == ("link", 0, False, 0, 1, 0, 77)
    assert (source.value[0], target.value[0]) == ("q", "client")
    assert properties == {"com.microsoft:locked-until-utc": 639028224000000000}
    assert encode(Symbol("com.microsoft:locked-until-utc")) + b"\x81\x08\xde\x48\xc8\xb4\xf8\x00\x00" in raw


def test_the_epoch_in_ticks_is_what_dotnet_says() -> None:
    assert dotnet_ticks(0) == 621_355_968_000_000_000
    assert encode(Long(dotnet_ticks(0)))[0] == 0x81


@pytest.mark.parametrize(
    ("asked", "waited"),
    [(None, 65_000), (Uint(0), 0), (Uint(59_900), 59_900), (Uint(4_000_000_000), 65_000), ("soon", 65_000)],
)
async def test_a_receiver_waits_as_long_as_it_says_up_to_a_limit(wire: Wire, asked: object, waited: int) -> None:
    assert attach(wire, None, timeout=asked).timeout_ms == waited


async def test_a_refusal_is_an_empty_attach_and_a_detach_in_one_write(wire: Wire) -> None:
    wait = attach(wire, None)
    writes = wire.socket.writes
    wait.refused(TIMED_OUT)
    answer, detach = await wire.turn()
    assert (answer.code, answer.get(5), answer.get(6)) == (ATTACH, None, None)
    assert (detach.code, detach.fields[1]) == (DETACH, True)
    assert detach.fields[2].value[0] == "com.microsoft:timeout"
    assert wire.socket.writes == writes + 1
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert (await granted(wire)).closed is False  # handle and name are free again


async def test_what_the_broker_refuses_at_once_is_refused_at_once(wire: Wire) -> None:
    wire.broker.accept_error = BrokerError(Condition.NOT_ALLOWED, "There are no sessions here.")
    answer, detach = wire.attach_receiver(filter={Symbol(FILTER): "s-1"})
    assert (answer.get(5), detach.fields[2].value[0]) == (None, "amqp:not-allowed")


@pytest.mark.parametrize("name", [5, Described(GO, 5), b"binary"])
async def test_a_filter_that_is_no_text_is_refused(wire: Wire, name: object) -> None:
    _, detach = wire.attach_receiver(filter={Symbol(FILTER): name})
    assert detach.fields[2].value[0] == "amqp:invalid-field"
    assert wire.broker.waits == []


async def test_it_takes_the_right_to_listen() -> None:
    wire = Wire(access=Access((), verify=True))
    wire.open()
    _, detach = wire.attach_receiver(filter={Symbol(FILTER): "s-1"})
    assert detach.fields[2].value[0] == "amqp:unauthorized-access"
    assert wire.broker.waits == []
    wire.lose()


# ---- clients that leave while they wait


async def test_a_client_that_detaches_while_it_waits_hears_no_more(wire: Wire) -> None:
    wait = attach(wire, None)
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert wait.cancelled
    late = wait.grant("late")
    wait.refused(TIMED_OUT)
    assert await wire.turn() == []
    assert late.closed
    assert (await granted(wire)).closed is False


async def test_a_client_that_ends_its_amqp_session_while_it_waits_hears_the_end_only(wire: Wire) -> None:
    wire.begin(1)
    wait = attach(wire, None, channel=1)
    wire.send(1, 0x17, [])
    (end,) = await wire.turn()
    assert (end.code, wait.cancelled) == (0x17, True)
    assert wait.grant("late").closed
    assert await wire.turn() == []


async def test_a_client_that_closes_or_vanishes_while_it_waits_gives_the_wait_up(bare: Wire) -> None:
    bare.open()
    wait = attach(bare, None)
    bare.lose()
    assert wait.cancelled
    assert wait.grant("late").closed


async def test_a_close_while_an_attach_is_held_is_answered_by_a_close_only(wire: Wire) -> None:
    wait = attach(wire, None)
    wire.send(0, 0x18, [])
    assert [each.code for each in await wire.turn()] == [0x18]
    wire.lose()
    assert wait.cancelled


# ---- the link


async def test_credit_messages_settlements_and_drains_are_as_on_any_link(wire: Wire) -> None:
    consumer = await granted(wire)
    wire.flow(0, 5)
    assert consumer.credit == 5
    consumer.deliver([Delivery(token(1), b"one", 1)])
    (transfer,) = await wire.turn()
    assert (transfer.code, transfer.fields[2], transfer.payload) == (TRANSFER, token(1), b"one")
    wire.dispose(accepted, 0)
    (confirmation,) = wire.read()
    assert (confirmation.get(4), consumer.settled) == (accepted, [(token(1), Complete())])
    wire.flow(0, 4, count=1, drain=True)
    (flow,) = wire.read()
    assert (flow.code, flow.get(5), flow.get(6), flow.get(8)) == (FLOW, 5, 0, True)


async def test_credit_that_came_before_the_grant_counts(wire: Wire) -> None:
    wait = attach(wire, "s-1")
    wire.flow(0, 3)
    consumer = wait.grant()
    assert consumer.credit == 3


async def test_a_settled_sender_means_receive_and_delete(wire: Wire) -> None:
    wait = attach(wire, "s-1", snd=Ubyte(1))
    assert wait.mode is ReceiveMode.RECEIVE_AND_DELETE
    consumer = wait.grant()
    assert (await wire.turn())[0].get(3) == 1
    wire.flow(0, 1)
    consumer.deliver([Delivery(token(1), b"one", 1)])
    assert (await wire.turn())[0].get(4) is True


async def test_a_client_that_detaches_gives_the_session_back(wire: Wire) -> None:
    consumer = await granted(wire)
    wire.send(0, DETACH, [Uint(0), True])
    (detach,) = wire.read()
    assert (detach.code, detach.get(1), consumer.closed) == (DETACH, True, True)


async def test_a_lost_session_closes_the_link_and_refuses_what_is_settled_afterwards(wire: Wire) -> None:
    consumer = await granted(wire)
    wire.flow(0, 5)
    consumer.deliver([Delivery(token(number), b"m", number) for number in range(3)])
    await wire.turn()
    consumer.detached(LOST)
    (detach,) = await wire.turn()
    assert (detach.code, detach.get(1), detach.get(2).value[0]) == (DETACH, True, "com.microsoft:session-lock-lost")
    assert consumer.closed
    wire.dispose(accepted, 0, 1)
    wire.dispose(released, 2, settled=True)
    dispositions = wire.read()
    assert {each.code for each in dispositions} == {DISPOSITION}
    assert {each.get(4).value[0].value[0] for each in dispositions} == {"com.microsoft:session-lock-lost"}
    assert consumer.settled == []
    wire.flow(0, 5, count=3)
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert (await granted(wire)).closed is False


async def test_settlements_that_are_under_way_when_the_session_is_lost_are_still_answered(wire: Wire) -> None:
    consumer = await granted(wire, credit=1)
    consumer.deliver([Delivery(token(1), b"m", 1)])
    await wire.turn()
    waiting: list[Any] = []
    consumer.settle = lambda run, outcome, done: waiting.append(done)  # type: ignore[method-assign]
    wire.dispose(accepted, 0)
    consumer.detached(LOST)
    waiting.pop()((0,), LOST)
    frames = await wire.turn()
    assert sorted(each.code for each in frames) == [DISPOSITION, DETACH]
    (confirmation,) = [each for each in frames if each.code == DISPOSITION]
    assert confirmation.get(4).value[0].value[0] == "com.microsoft:session-lock-lost"


async def test_a_broker_that_loses_a_session_twice_is_heard_once(wire: Wire) -> None:
    consumer = await granted(wire)
    consumer.detached(LOST)
    consumer.detached(LOST)
    assert [each.code for each in await wire.turn()] == [DETACH]


async def test_a_link_that_is_closed_again_after_its_session_was_lost_is_closed_once(wire: Wire) -> None:
    consumer = await granted(wire)
    consumer.detached(LOST)
    assert [each.code for each in await wire.turn()] == [DETACH]
    (pointer,) = wire.server.context.wire.links
    wire.server.detach(pointer, BrokerError(Condition.DETACH_FORCED, "Something else."))
    assert await wire.turn() == []
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert (await granted(wire)).closed is False


async def test_a_drain_that_finds_its_credit_used_up_is_answered_on_a_link_whose_attach_was_held(wire: Wire) -> None:
    wait = attach(wire, None)
    wire.attach_sender(handle=5)  # its answer is written while the other attach is still held
    consumer = wait.grant("found")
    await wire.turn()
    wire.flow(0, 1)
    consumer.deliver([Delivery(token(1), b"one", 1)])
    assert [each.code for each in await wire.turn()] == [TRANSFER]
    wire.flow(0, 1, drain=True)  # written before the message arrived
    (flow,) = await wire.turn()
    assert (flow.code, [flow.get(index) for index in (4, 5, 6, 8)]) == (FLOW, [1, 1, 0, True])  # our handle
