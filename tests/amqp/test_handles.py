"""Handles and link names that are used out of turn: the answers of the standard, and what stays untouched by them."""

from __future__ import annotations

import pytest

from emubus.amqp.limits import Limits
from emubus.amqp.wire.engine import lib
from emubus.amqp.wire.handles import LATE_HANDLES_MAX
from emubus.broker.api import Complete, Release
from emubus.codec.types import Described, Uint, Ulong

from ..tracking import untracked
from .fakes import token
from .wire import (
    ATTACH,
    BATCH,
    BEGIN,
    CLOSE,
    DETACH,
    DISPOSITION,
    END,
    FLOW,
    SOURCE,
    TARGET,
    TRANSFER,
    Frame,
    Wire,
    accepted,
    frame,
    released,
)


def codes(frames: list[Frame]) -> list[int]:
    return [each.code for each in frames]


def error_of(each: Frame) -> tuple[str, str]:
    """Condition and text, without its tail if it has one, of a detach, end or close with an error of three fields."""
    condition, text, info = each.fields[2 if each.code == DETACH else 0].value
    assert info == {}
    return condition, untracked(text) if "TrackingId:" in text else text


def attach(name: object, handle: object, receives: object, channel: int = 0) -> bytes:
    ends = [Described(Ulong(SOURCE), ["q"]), Described(Ulong(TARGET), ["q"])]
    return frame(channel, ATTACH, [name, handle, receives, None, None, *ends, None, None, Uint(0)])


# ---- names


@pytest.mark.parametrize("channel", [0, 1])
async def test_an_attach_with_the_name_of_a_receiver_takes_its_place(wire: Wire, channel: int) -> None:
    if channel:
        wire.begin(channel)
    wire.attach_receiver(name="mine", credit=1)
    wire.write(attach("mine", Uint(5), True, channel))
    detach, attached = wire.read()
    assert (detach.channel, detach.code, detach.fields[:2]) == (0, DETACH, [0, True])
    assert error_of(detach) == ("amqp:link:stolen", "The link 'mine' was attached again, on handle 5.")
    assert (attached.channel, attached.code, attached.fields[0]) == (channel, ATTACH, "mine")
    wire.send(0, DETACH, [Uint(0), True])  # the client's answer
    assert await wire.turn() == []
    wire.broker.q.put(b"one")
    wire.flow(5, 1, channel=channel)
    (transfer,) = await wire.turn()
    assert (transfer.channel, transfer.fields[0], transfer.payload) == (channel, attached.fields[1], b"one")


async def test_an_attach_with_the_name_of_a_sender_takes_its_place(wire: Wire) -> None:
    wire.attach_sender(name="mine")
    wire.write(attach("mine", Uint(1), False))
    detach, attached, flow = wire.read()
    assert (error_of(detach)[0], attached.code, flow.code) == ("amqp:link:stolen", ATTACH, FLOW)
    wire.write(wire.transfer(b"new", 1))
    assert codes(await wire.turn()) == [DISPOSITION]
    assert wire.broker.q.sent == [(b"new", False)]


async def test_what_comes_on_a_stolen_link_before_the_client_s_answer_is_left_out(wire: Wire) -> None:
    wire.attach_sender(name="mine")
    wire.write(wire.transfer(b"one"))
    wire.write(attach("mine", Uint(1), False))
    wire.read()
    late = wire.transfer(b"late", 0)  # it uses up a delivery-id
    wire.write(late + frame(0, DETACH, [Uint(0), True]) + wire.transfer(b"two", 1))
    (disposition,) = await wire.turn()
    assert disposition.fields == [True, 2, 2, True, accepted]
    assert wire.broker.q.sent == [(b"one", False), (b"two", False)]


async def test_a_handle_of_a_stolen_link_is_in_use_until_the_client_s_answer(wire: Wire) -> None:
    wire.attach_receiver(name="mine")
    wire.write(attach("mine", Uint(1), True))
    wire.read()
    wire.write(attach("other", Uint(0), True))
    (end,) = wire.read()
    assert error_of(end)[0] == "amqp:session:handle-in-use"


async def test_a_receiver_that_waits_for_a_message_session_can_be_stolen(wire: Wire) -> None:
    assert wire.attach_receiver(name="mine", filter={"com.microsoft:session-filter": None}) == []
    wire.write(attach("mine", Uint(1), True))
    refused, detach, attached = wire.read()
    assert (refused.code, refused.fields[5:7]) == (ATTACH, [None, None])
    assert error_of(detach)[0] == "amqp:link:stolen"
    assert (attached.code, attached.fields[0]) == (ATTACH, "mine")


async def test_links_with_one_name_and_opposite_roles_are_two_links(wire: Wire) -> None:
    wire.write(attach("pair", Uint(0), True) + attach("pair", Uint(1), False))
    assert codes(wire.read()) == [ATTACH, ATTACH, FLOW]


async def test_a_name_is_free_after_its_amqp_session(wire: Wire) -> None:
    wire.begin(1)
    wire.write(attach("mine", Uint(0), True, 1) + frame(1, END, []))
    wire.read()
    wire.write(attach("mine", Uint(0), True))
    assert codes(wire.read()) == [ATTACH]


# ---- settling behind the detach


@pytest.fixture
async def left(wire: Wire, closed: bool) -> Wire:
    """A receiver that is detached with two deliveries unsettled."""
    wire.attach_receiver(name="mine", credit=2)
    wire.broker.q.put(b"one", b"two")
    assert codes(await wire.turn()) == [TRANSFER, TRANSFER]
    wire.send(0, DETACH, [Uint(0), closed])
    (detach,) = wire.read()
    assert (detach.code, detach.get(1) or False) == (DETACH, closed)
    return wire


either = pytest.mark.parametrize("closed", [True, False], ids=["closed", "detached"])


@either
async def test_what_is_settled_behind_the_detach_is_applied_and_answered(left: Wire) -> None:
    left.dispose(accepted, 0)
    assert [each.fields for each in await left.turn()] == [[False, 0, None, True, accepted]]
    left.dispose(released, 1, settled=True)
    assert await left.turn() == []
    assert left.broker.q.settled == [(token(1), Complete()), (token(2), Release())]


@either
async def test_a_link_that_is_settled_behind_its_detach_leaves_nothing_in_proton(left: Wire) -> None:
    left.dispose(accepted, 0, 1)
    await left.turn()
    assert not lib.pn_link_head(left.engine.connection, 0)


@either
async def test_a_link_can_come_back_under_its_name_while_the_old_one_is_settled(left: Wire) -> None:
    assert codes(left.attach_receiver(name="mine")) == [ATTACH]
    left.dispose(accepted, 0, 1)
    (disposition,) = await left.turn()
    assert disposition.fields == [False, 0, 1, True, accepted]
    left.broker.q.put(b"three")
    left.flow(0, 1)
    assert [each.payload for each in await left.turn()] == [b"three"]


@either
async def test_a_delivery_whose_lock_is_lost_is_answered_behind_the_detach(left: Wire) -> None:
    left.broker.q.locked.clear()
    left.dispose(accepted, 0)
    (disposition,) = await left.turn()
    assert disposition.fields[4].value[0].value[0] == "com.microsoft:message-lock-lost"


@either
async def test_with_the_amqp_session_the_deliveries_are_gone(left: Wire) -> None:
    left.write(frame(0, END, []) + frame(0, BEGIN, [None, Uint(0), Uint(10), Uint(10)]))
    assert codes(left.read()) == [END, BEGIN]
    left.dispose(accepted, 0, 1)
    assert await left.turn() == []
    assert left.broker.q.settled == []


async def test_only_so_many_links_wait_for_their_deliveries() -> None:
    wire = Wire(limits=Limits(lingering_links_max=2))
    wire.open()
    for _ in range(3):
        wire.attach_receiver(credit=1)
        wire.broker.q.put(b"m")
        await wire.turn()
        wire.send(0, DETACH, [Uint(0), True])
    await wire.turn()
    wire.dispose(accepted, 0, 2)
    (disposition,) = await wire.turn()
    assert disposition.fields == [False, 1, 2, True, accepted]
    assert wire.broker.q.settled == [(token(2), Complete()), (token(3), Complete())]
    wire.lose()


# ---- handles that are not attached any more


@pytest.mark.parametrize(
    "late",
    [
        frame(0, DETACH, [Uint(0), True]),
        frame(0, DETACH, [Uint(0)]),
        frame(0, FLOW, [Uint(0), Uint(9), Uint(0), Uint(9), Uint(0), Uint(0), Uint(9)]),
        frame(0, FLOW, [Uint(0), Uint(9), Uint(0), Uint(9), Uint(0), Uint(0), Uint(9), None, True, True]),
    ],
    ids=["detach", "suspend", "flow", "drain"],
)
async def test_what_comes_behind_the_detach_is_left_out(wire: Wire, late: bytes) -> None:
    wire.attach_receiver()
    wire.send(0, DETACH, [Uint(0), True])
    wire.read()
    wire.write(late)
    assert await wire.turn() == []
    assert codes(wire.attach_receiver()) == [ATTACH]


@pytest.mark.parametrize("message_format", [0, BATCH])
async def test_a_transfer_behind_the_detach_is_left_out_and_others_go_on(wire: Wire, message_format: int) -> None:
    wire.attach_sender()
    wire.attach_sender(handle=1)
    sent = wire.transfer(b"one") + frame(0, DETACH, [Uint(0), True]) + wire.transfer(b"late", format=message_format)
    wire.write(sent + wire.transfer(b"two", 1) + wire.transfer(b"three", 1))
    disposition, detach = await wire.turn()
    assert disposition.fields == [True, 2, 3, True, accepted]
    assert detach.fields == [0, True]
    assert [data for data, _ in wire.broker.q.sent] == [b"one", b"two", b"three"]


async def test_handles_are_not_remembered_for_ever(wire: Wire) -> None:
    for handle in range(LATE_HANDLES_MAX + 1):
        wire.attach_receiver(handle=handle)
        wire.send(0, DETACH, [Uint(handle), True])
    wire.read()
    wire.send(0, DETACH, [Uint(1), True])
    assert wire.read() == []
    wire.send(0, DETACH, [Uint(0), True])
    (end,) = wire.read()
    assert error_of(end)[0] == "amqp:session:unattached-handle"


# ---- what ends an AMQP session, and only that

UNATTACHED = "amqp:session:unattached-handle"
NO_ATTACH = "An attach must have a name (string), a handle (uint) and a role (boolean)."


@pytest.mark.parametrize(
    ("wrong", "condition", "text"),
    [
        (frame(1, DETACH, [Uint(7), True]), UNATTACHED, "A detach came on handle 7, which is not attached."),
        (
            frame(1, FLOW, [Uint(0), Uint(9), Uint(0), Uint(9), Uint(7), Uint(0), Uint(9)]),
            UNATTACHED,
            "A flow came on handle 7, which is not attached.",
        ),
        (
            frame(1, TRANSFER, [Uint(7), Uint(0), b"t", Uint(0)], b"x"),
            UNATTACHED,
            "A transfer came on handle 7, which is not attached.",
        ),
        (frame(1, DETACH, []), "amqp:invalid-field", "A detach must have a handle (uint)."),
        (frame(1, TRANSFER, [], b"x"), "amqp:invalid-field", "A transfer must have a handle (uint)."),
        (frame(1, FLOW, [None, None, None, None, "0"]), "amqp:invalid-field", "A flow must have a handle (uint)."),
        (
            attach("new", Uint(0), True, 1),
            "amqp:session:handle-in-use",
            "An attach of link 'new' came on handle 0, which is in use.",
        ),
        (attach(None, Uint(9), True, 1), "amqp:invalid-field", NO_ATTACH),
        (attach("new", None, True, 1), "amqp:invalid-field", NO_ATTACH),
        (attach("new", Uint(9), None, 1), "amqp:invalid-field", NO_ATTACH),
        (attach("new", "9", True, 1), "amqp:invalid-field", NO_ATTACH),
        (frame(1, ATTACH, []), "amqp:invalid-field", NO_ATTACH),
    ],
)
async def test_a_wrong_handle_ends_the_amqp_session_and_nothing_else(
    wire: Wire, wrong: bytes, condition: str, text: str
) -> None:
    wire.attach_sender()
    wire.begin(1)
    wire.attach_receiver(handle=0, channel=1, credit=1)
    wire.write(wrong)
    (end,) = wire.read()
    assert (end.channel, end.code) == (1, END)
    assert error_of(end) == (condition, text)
    assert wire.broker.q.consumers == []
    # What the client sends until it has read the end counts for nothing.
    wire.write(wrong + frame(1, DETACH, [Uint(0), True]) + frame(1, DISPOSITION, [True, Uint(0), None, True, accepted]))
    assert await wire.turn() == []
    wire.write(wire.transfer(b"one"))
    assert codes(await wire.turn()) == [DISPOSITION]
    wire.send(1, END, [])
    assert await wire.turn() == []
    assert wire.begin(1).code == BEGIN
    assert codes(wire.attach_receiver(handle=0, channel=1)) == [ATTACH]


async def test_messages_that_the_client_s_window_keeps_back_go_with_the_connection(wire: Wire) -> None:
    """Proton keeps an end until it has sent them, and the client will not open its window for a frame we wait for."""
    wire.begin(1, window=0)
    wire.attach_receiver(handle=0, channel=1)
    wire.broker.q.put(b"one")
    wire.flow(0, 1, channel=1, window=0)
    await wire.turn()
    wire.send(1, DETACH, [Uint(7), True])
    (close,) = wire.read()
    assert (close.code, error_of(close)[0]) == (CLOSE, "amqp:session:unattached-handle")


async def test_a_transfer_on_a_receiver_s_link_closes_the_link_and_nothing_else(wire: Wire) -> None:
    wire.attach_receiver(name="mine")
    wire.attach_sender(handle=1)
    wire.write(wire.transfer(b"wrong") + wire.transfer(b"right", 1))
    disposition, detach = await wire.turn()
    assert detach.fields[:2] == [0, True]
    assert error_of(detach) == ("amqp:not-allowed", "A transfer came on the link 'mine', on which the client receives.")
    assert disposition.fields == [True, 1, 1, True, accepted]
    wire.send(0, DETACH, [Uint(0), True])
    assert await wire.turn() == []
    assert codes(wire.attach_receiver(name="mine")) == [ATTACH]
