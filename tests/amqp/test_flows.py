"""Flows with `echo`: the answer is the state of the link, or of the AMQP session if the flow is for none."""

from __future__ import annotations

import pytest

from emubus.codec.types import Described, Uint, Ulong

from .wire import ATTACH, FLOW, SOURCE, TARGET, TRANSFER, Frame, Wire


def link_state(frame: Frame) -> list[object]:
    """Handle, delivery-count, credit, available, drain and echo of a flow."""
    assert frame.code == FLOW
    return [frame.get(index) for index in range(4, 10)]


def ask(wire: Wire, handle: int | None, *, count: int | None = None, credit: int | None = None) -> None:
    def uint(value: int | None) -> Uint | None:
        return None if value is None else Uint(value)

    fields = [Uint(0), Uint(5000), Uint(0), Uint(5000), uint(handle), uint(count), uint(credit), None, False, True]
    wire.send(0, FLOW, fields)


async def test_a_flow_for_the_amqp_session_is_answered_by_one_for_the_amqp_session(wire: Wire) -> None:
    wire.attach_receiver(credit=5)
    ask(wire, None)
    (flow,) = await wire.turn()
    assert (flow.code, flow.fields[0], flow.fields[4:]) == (FLOW, 0, [])


async def test_a_receiver_hears_count_credit_and_that_nothing_is_available(wire: Wire) -> None:
    wire.attach_receiver(handle=3, credit=5)
    wire.broker.q.put(b"one", b"two")
    await wire.turn()
    ask(wire, 3, count=2, credit=3)
    (flow,) = await wire.turn()
    assert link_state(flow) == [0, 2, 3, 0, False, False]


async def test_a_receiver_without_credit_gets_nothing(wire: Wire) -> None:
    wire.attach_receiver()
    ask(wire, 0, count=0, credit=0)
    (flow,) = await wire.turn()
    assert link_state(flow) == [0, 0, 0, None, False, False]


async def test_messages_that_come_with_the_credit_come_before_the_answer(wire: Wire) -> None:
    wire.attach_receiver()
    wire.broker.q.put(b"one")
    ask(wire, 0, count=0, credit=4)
    transfer, flow = await wire.turn()
    assert transfer.code == TRANSFER
    assert link_state(flow) == [0, 1, 3, 0, False, False]
    assert flow.fields[2] == 1  # next-outgoing-id


async def test_what_the_window_keeps_back_is_available(wire: Wire) -> None:
    wire.begin(1, window=1)
    wire.attach_receiver(channel=1)
    wire.broker.q.put(b"one", b"two", b"three")
    wire.flow(0, 5, channel=1, window=1)
    assert [each.code for each in await wire.turn()] == [TRANSFER]
    wire.send(1, FLOW, [Uint(1), Uint(0), Uint(0), Uint(9), Uint(0), Uint(1), Uint(4), None, False, True])
    (flow,) = await wire.turn()
    assert link_state(flow) == [0, 1, 4, 2, False, False]


@pytest.mark.parametrize("initial_count", [0, 7, 0xFFFF_FFFF])
async def test_a_sender_hears_what_has_come_and_what_it_may_send(wire: Wire, initial_count: int) -> None:
    source, target = Described(Ulong(SOURCE), ["me"]), Described(Ulong(TARGET), ["q"])
    fields = ["mine", Uint(0), False, None, None, source, target, None, None, Uint(initial_count)]
    wire.send(0, ATTACH, fields)
    wire.write(wire.transfer(b"one") + wire.transfer(b"two"))
    await wire.turn()
    ask(wire, 0, count=(initial_count + 2) % 2**32)
    (flow,) = await wire.turn()
    assert link_state(flow) == [0, (initial_count + 2) % 2**32, 998, None, False, False]


async def test_each_question_of_its_own_gets_an_answer(wire: Wire) -> None:
    wire.attach_receiver(credit=5)
    for _ in range(100):
        ask(wire, 0, count=0, credit=5)
    assert [link_state(each) for each in await wire.turn()] == [[0, 0, 5, 0, False, False]] * 100


@pytest.mark.parametrize("address", ["$cbs", "q/$management"])
async def test_links_of_nodes_answer_too(wire: Wire, address: str) -> None:
    wire.attach_receiver(address, credit=5)
    wire.attach_sender(address, 1)
    ask(wire, 0, count=0, credit=5)
    ask(wire, 1, count=0)
    flows = await wire.turn()
    assert [link_state(each) for each in flows] == [[0, 0, 5, 0, False, False], [1, 0, 100, None, False, False]]
