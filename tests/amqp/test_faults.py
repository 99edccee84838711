"""Faults made on purpose: links that are dropped, connections that are cut, and whom they leave alone."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from emubus.amqp.injection.faults import Faults, Target
from emubus.amqp.injection.receiving import FaultyReceiving
from emubus.amqp.injection.sending import send_or_fail
from emubus.amqp.links.incoming import IncomingLink
from emubus.amqp.links.outgoing import OutgoingLink
from emubus.broker.api import Abandon
from emubus.broker.errors import Condition
from emubus.broker.service_errors import throttled
from emubus.codec.types import Symbol, Uint
from emubus.conditions.engine import Conditions
from emubus.conditions.faults import FaultKind, FaultOperation

from ..tracking import untracked
from .fakes import FakeQueue
from .wire import ATTACH, DETACH, DISPOSITION, TRANSFER, Frame, Wire, accepted


def faults(*wires: Wire) -> Faults:
    return Faults([wire.server.context for wire in wires], wires[0].state.conditions)


@pytest.mark.parametrize(
    ("entity", "address", "covered"),
    [
        (None, "q", True),
        ("q", "q", True),
        ("q", "amqps://localhost:5672/Q", True),
        ("Q", "q/$management", True),
        ("q", "q/$DeadLetterQueue", True),
        ("q", "q2", False),
        ("q", "$cbs", False),
        ("t", "t/Subscriptions/s", False),
        ("t/Subscriptions/s", "T/subscriptions/S/$management", True),
    ],
)
def test_a_target_covers_an_entity_with_its_sub_queues_and_its_node(
    entity: str | None, address: str, covered: bool
) -> None:
    assert Target(entity).covers(address) is covered


async def test_dropped_links_are_detached_and_the_connection_stays(wire: Wire) -> None:
    wire.broker.queues["other"] = FakeQueue()
    for handle, address in enumerate(("q", "q/$management", "other")):
        wire.attach_sender(address, handle)
    wire.attach_receiver("q", 3, credit=2)
    wire.attach_receiver("other", 4, credit=2)
    assert faults(wire).drop_links(Target("q"), Condition.SERVER_BUSY) == 3
    frames = await wire.turn()
    assert {frame.fields[0] for frame in frames} == {0, 1, 3}
    assert {(frame.code, frame.fields[1]) for frame in frames} == {(DETACH, True)}
    errors = [frame.fields[2].value for frame in frames]
    assert {(condition, untracked(text)) for condition, text, _ in errors} == {
        ("com.microsoft:server-busy", throttled("ns").description)
    }
    assert [sender.closed for sender in wire.broker.senders] == [True, False]
    assert wire.broker.q.consumers == []
    wire.broker.queues["other"].put(b"m")
    assert [frame.code for frame in await wire.turn()] == [TRANSFER]


async def test_a_dropped_link_can_be_attached_again_under_its_name(wire: Wire) -> None:
    wire.attach_receiver(credit=2)
    faults(wire).drop_links(Target("q"))
    (detach,) = await wire.turn()
    assert detach.fields[2].value[0] == "amqp:link:detach-forced"
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert [frame.code for frame in wire.attach_receiver(credit=2)] == [ATTACH]
    wire.broker.q.put(b"m")
    assert [frame.code for frame in await wire.turn()] == [TRANSFER]


async def test_what_a_client_settles_on_a_dropped_link_is_not_heard(wire: Wire) -> None:
    wire.attach_receiver(credit=2)
    wire.broker.q.put(b"m")
    await wire.turn()
    faults(wire).drop_links(Target("q"))
    wire.dispose(accepted, 0)
    frames = await wire.turn()
    assert DISPOSITION not in [frame.code for frame in frames]
    assert len(wire.broker.q.locked) == 1


async def test_a_held_attach_is_refused(wire: Wire) -> None:
    wire.attach_receiver(filter={Symbol("com.microsoft:session-filter"): None})
    assert faults(wire).drop_links(Target("q")) == 1
    attach, detach = await wire.turn()
    assert (attach.code, attach.fields[5:7], detach.code) == (ATTACH, [None, None], DETACH)
    assert detach.fields[2].value[0] == "amqp:link:detach-forced"
    assert wire.broker.waits[-1].cancelled


async def test_connections_are_cut_where_they_have_a_link_to_the_entity(wire: Wire) -> None:
    others = [Wire(broker=wire.broker) for _ in range(2)]
    for other in others:
        other.open()
    wire.attach_receiver("q")
    others[0].broker.queues["other"] = FakeQueue()
    others[0].attach_receiver("other")
    everybody = faults(wire, *others)
    assert everybody.drop_connections(Target("q")) == 1
    assert [each.socket.closed for each in (wire, *others)] == [True, False, False]
    assert everybody.drop_connections(Target()) == 3
    assert [each.socket.closed for each in (wire, *others)] == [True, True, True]
    assert await wire.turn() == []
    for other in others:
        other.lose()


# ---- faults that strike when clients do something


@pytest.fixture
def table(wire: Wire) -> Conditions:
    """The faults of a server whose one connection is the wire."""
    return wire.state.conditions


def conditions(frames: list[Frame]) -> list[str]:
    """Of the errors in dispositions and detaches; empty for an outcome without one."""
    found: list[str] = []
    for frame in frames:
        error: Any = frame.get(4) if frame.code == DISPOSITION else frame.get(2)
        if frame.code == DISPOSITION:
            error = error.value[0] if error.value else None
        found.append("" if error is None else str(error.value[0]))
    return found


async def test_a_send_to_a_busy_server_is_rejected_and_nothing_is_sent(wire: Wire, table: Conditions) -> None:
    wire.attach_sender()
    table.set_fault(FaultKind.SERVER_BUSY, entity="q", count=1)
    for body in (b"1", b"2"):
        wire.write(wire.transfer(body))
    frames = await wire.turn()
    assert conditions(frames) == ["com.microsoft:server-busy", ""]
    assert wire.broker.q.sent == [(b"2", False)]


async def test_without_faults_nothing_stands_between_a_link_and_the_broker(wire: Wire, table: Conditions) -> None:
    wire.attach_sender()
    wire.attach_receiver(handle=1, credit=2)
    table.set_fault(FaultKind.SERVER_BUSY, count=1)
    sending, receiving = taps(wire)
    assert isinstance(sending, partial)
    assert sending.func is send_or_fail
    assert isinstance(receiving, FaultyReceiving)
    table.clear_faults()
    assert taps(wire) == [None, None]


def taps(wire: Wire) -> list[object]:
    """What stands between the links of messages and the broker, in the order of their attaches."""
    links = wire.server.context.wire.links.values()
    return [link.tap for link in links if isinstance(link, IncomingLink | OutgoingLink)]


async def test_a_delayed_confirmation_comes_with_the_clock_and_a_missing_one_never(
    wire: Wire, table: Conditions
) -> None:
    wire.attach_sender()
    table.set_fault(FaultKind.DELAYED_CONFIRMATION, delay_ms=5_000, count=1)
    wire.write(wire.transfer(b"late"))
    assert await wire.turn() == []
    assert wire.broker.q.sent == [(b"late", False)]
    wire.clock.advance(5_000)
    assert conditions(await wire.turn()) == [""]
    table.set_fault(FaultKind.MISSING_CONFIRMATION, count=1)
    wire.write(wire.transfer(b"never"))
    assert await wire.turn(20) == []
    assert len(wire.broker.q.sent) == 2


async def test_a_lost_lock_is_abandoned_and_the_settlement_refused(wire: Wire, table: Conditions) -> None:
    wire.attach_receiver(credit=1)
    wire.broker.q.put(b"m")
    await wire.turn()
    table.set_fault(FaultKind.LOST_LOCK, count=1)
    wire.dispose(accepted, 0)
    assert conditions(await wire.turn()) == ["com.microsoft:message-lock-lost"]
    assert [type(outcome) for _, outcome in wire.broker.q.settled] == [Abandon]


@pytest.mark.parametrize(
    ("kind", "condition"),
    [(FaultKind.SERVER_BUSY, "com.microsoft:server-busy"), (FaultKind.DROPPED_LINK, "amqp:link:detach-forced")],
)
async def test_credit_and_attaches_are_refused_by_a_detach(
    wire: Wire, table: Conditions, kind: FaultKind, condition: str
) -> None:
    table.set_fault(kind, operations=[FaultOperation.RECEIVE], count=1)
    wire.attach_receiver(credit=2)
    (detach,) = await wire.turn()
    assert (detach.code, conditions([detach])) == (DETACH, [condition])
    table.set_fault(kind, operations=[FaultOperation.ATTACH], count=1)
    attach, detach = wire.attach_sender(handle=1)
    assert (attach.code, conditions([detach])) == (ATTACH, [condition])
    assert wire.attach_sender(handle=2, name="again")[0].code == ATTACH


@pytest.mark.parametrize("operation", list(FaultOperation)[:4])
async def test_a_dropped_connection_is_cut_without_a_word(
    wire: Wire, table: Conditions, operation: FaultOperation
) -> None:
    wire.broker.q.put(b"m")
    wire.attach_receiver(credit=1)
    wire.attach_sender(handle=1)
    await wire.turn()
    table.set_fault(FaultKind.DROPPED_CONNECTION, operations=[operation])
    doings: dict[FaultOperation, Callable[[], object]] = {
        FaultOperation.ATTACH: lambda: wire.attach_sender(handle=2, name="new"),
        FaultOperation.SEND: lambda: wire.write(wire.transfer(b"x", handle=1)),
        FaultOperation.RECEIVE: lambda: wire.flow(0, 5, count=1),
        FaultOperation.SETTLE: lambda: wire.dispose(accepted, 0),
    }
    doings[operation]()
    await wire.turn(3)
    assert wire.socket.closed
    assert wire.broker.q.sent == []
    assert wire.broker.q.settled == []
