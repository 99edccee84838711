"""Faults made on purpose: links that are dropped, connections that are cut, and whom they leave alone."""

from __future__ import annotations

import pytest

from emubus.amqp.faults import AS_ASKED_FOR, Faults, Target
from emubus.broker.encoding import Symbol, Uint
from emubus.broker.errors import Condition

from .fakes import FakeQueue
from .wire import ATTACH, DETACH, DISPOSITION, TRANSFER, Wire, accepted


def faults(*wires: Wire) -> Faults:
    return Faults([wire.server for wire in wires])


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
    assert {tuple(frame.fields[2].value[:2]) for frame in frames} == {("com.microsoft:server-busy", AS_ASKED_FOR)}
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
