"""Clients that settle what they received: every outcome, confirmed in kind."""

from __future__ import annotations

from uuid import UUID

import pytest

from emubus.amqp.limits import Limits
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Described, Symbol, Timestamp, Uint, Ulong

from .fakes import token
from .wire import DISPOSITION, FLOW, REJECTED, TRANSFER, UNPACED_US, Wire, accepted, frame, modified, rejected, released

DEAD_LETTER = "com.microsoft:dead-letter"
REASON, DESCRIPTION = "DeadLetterReason", "DeadLetterErrorDescription"

OUTCOMES: list[tuple[str, Described, Outcome]] = [
    ("accepted", accepted, Complete()),
    ("released", released, Release()),
    ("empty modified", modified(), Abandon()),
    ("modified, failed", modified(True, False), Abandon()),
    ("modified with changes", modified(False, False, {Symbol("a"): 1, "b": "x"}), Abandon({"a": 1, "b": "x"})),
    ("modified, undeliverable", modified(True, True), Defer()),
    ("undeliverable with changes", modified(None, True, {Symbol("a"): Timestamp(5)}), Defer({"a": Timestamp(5)})),
    ("bare rejected", rejected(), DeadLetter()),
    (
        "rejected with string keys",
        rejected(DEAD_LETTER, None, {REASON: "why", DESCRIPTION: "more", "a": UUID(int=5)}),
        DeadLetter("why", "more", {"a": UUID(int=5)}),
    ),
    (
        "rejected with symbol keys",
        rejected(DEAD_LETTER, "text", {Symbol(REASON): "why", Symbol(DESCRIPTION): "more"}),
        DeadLetter("why", "more"),
    ),
    (
        "rejected with values that are no strings",
        rejected(DEAD_LETTER, "text", {REASON: Timestamp(5), Symbol(DESCRIPTION): UUID(int=7), "a": "x"}),
        DeadLetter(None, None, {REASON: Timestamp(5), DESCRIPTION: UUID(int=7), "a": "x"}),
    ),
    (
        "rejected with one value that is no string",
        rejected(DEAD_LETTER, "text", {REASON: "why", DESCRIPTION: True}),
        DeadLetter("why", None, {DESCRIPTION: True}),
    ),
    ("rejected with nulls", rejected(DEAD_LETTER, None, {Symbol(REASON): None}), DeadLetter()),
    ("rejected with text", rejected(DEAD_LETTER, "text", {Symbol("a"): True}), DeadLetter(None, "text", {"a": True})),
    ("rejected by a plain client", rejected("amqp:decode-error", "text"), DeadLetter("amqp:decode-error", "text")),
]


@pytest.fixture
async def receiving(wire: Wire) -> Wire:
    """Ten messages were received and nothing was said to them."""
    wire.attach_receiver(credit=10)
    wire.broker.q.put(*[b"m%d" % number for number in range(10)])
    await wire.turn()
    return wire


@pytest.mark.parametrize(("state", "outcome"), [row[1:] for row in OUTCOMES], ids=[row[0] for row in OUTCOMES])
async def test_an_outcome_reaches_the_broker_and_is_confirmed_in_kind(
    receiving: Wire, state: Described, outcome: Outcome
) -> None:
    receiving.flow(0, 0, count=10)
    receiving.dispose(state, 3)
    assert receiving.broker.q.settled == [(token(4), outcome)]
    (confirmation,) = [each for each in receiving.read() if each.code == DISPOSITION]
    assert confirmation.fields[:2] == [False, 3]
    assert confirmation.get(3) is True
    answered = confirmation.get(4)
    assert answered.descriptor == state.descriptor
    if answered.descriptor == REJECTED:  # an error would make it a failure
        assert [field for field in answered.value if field is not None] == []


@pytest.mark.parametrize(("state", "outcome"), [row[1:] for row in OUTCOMES], ids=[row[0] for row in OUTCOMES])
async def test_a_settled_disposition_is_done_and_not_answered(
    receiving: Wire, state: Described, outcome: Outcome
) -> None:
    receiving.flow(0, 0, count=10)
    receiving.dispose(state, 3, settled=True)
    assert receiving.broker.q.settled == [(token(4), outcome)]
    assert await receiving.turn() == []


async def test_a_range_is_settled_one_by_one_and_confirmed_as_a_range(receiving: Wire) -> None:
    receiving.dispose(accepted, 2, 7)
    assert [each for each, _ in receiving.broker.q.settled] == [token(number) for number in range(3, 9)]
    (confirmation,) = receiving.read()
    assert confirmation.fields[:5] == [False, 2, 7, True, accepted]


async def test_an_abandoned_message_is_back_before_the_credit_that_came_after_it(wire: Wire) -> None:
    wire.attach_receiver(credit=1)
    wire.broker.q.put(b"m0", b"m1")
    await wire.turn()  # the message is written: Proton tells of it when it hears from us again
    abandoned = frame(0, DISPOSITION, [True, Uint(0), None, False, modified(), None])
    granted = [Uint(1), Uint(5000), Uint(0), Uint(5000), Uint(0), Uint(1), Uint(2), None, False, False]
    wire.write(abandoned + frame(0, FLOW, granted))
    received = [each.payload for each in await wire.turn() if each.code == TRANSFER]
    assert received == [b"m0", b"m1"]


async def test_what_a_range_settles_takes_several_turns_if_it_takes_long() -> None:
    wire = Wire(limits=Limits(slice_us=0, turn_us=UNPACED_US), is_paced=True)
    wire.open()
    wire.attach_receiver(credit=100)
    wire.broker.q.put(*[b"m%d" % number for number in range(100)])
    await wire.turn()
    wire.send(0, DISPOSITION, [True, Uint(0), Uint(99), True, modified(True, False)])
    wire.send(0, FLOW, [Uint(0), Uint(5000), Uint(0), Uint(5000), Uint(0), Uint(0), Uint(7)])
    assert 0 < len(wire.broker.q.settled) < 20
    assert wire.server.context.wire.flow.is_stopped
    await wire.turn(40)
    assert [each for each, _ in wire.broker.q.settled] == [token(number) for number in range(1, 101)]
    assert not wire.server.context.wire.flow.is_stopped
    wire.lose()


async def test_confirmations_of_one_turn_are_one_range_whatever_their_order(receiving: Wire) -> None:
    receiving.broker.q.waiting = []
    for number in range(10):
        receiving.dispose(accepted, number)
    receiving.broker.q.waiting.reverse()
    receiving.broker.q.answer_all()
    (confirmation,) = await receiving.turn()
    assert confirmation.fields[:5] == [False, 0, 9, True, accepted]


async def test_a_lost_lock_is_rejected_with_its_condition(receiving: Wire) -> None:
    receiving.broker.q.locked.clear()
    for number, state in enumerate((accepted, modified(), rejected(DEAD_LETTER, "x"), released)):
        receiving.dispose(state, number)
        (confirmation,) = receiving.read()
        assert confirmation.fields[:4] == [False, number, None, True]
        condition, text, info = confirmation.get(4).value[0].value
        assert condition == "com.microsoft:message-lock-lost"
        assert text.startswith("The lock supplied is invalid.")
        assert info == {}


async def test_an_outcome_that_is_said_twice_is_done_once(receiving: Wire) -> None:
    receiving.broker.q.waiting = []
    receiving.dispose(accepted, 0)
    receiving.dispose(accepted, 0)
    receiving.dispose(released, 0)
    receiving.broker.q.answer_all()
    assert receiving.broker.q.settled == [(token(1), Complete())]
    (confirmation,) = await receiving.turn()
    assert confirmation.get(4) == accepted
    receiving.dispose(accepted, 0)
    assert await receiving.turn() == []


async def test_a_client_that_settles_while_we_are_at_it_needs_no_confirmation(receiving: Wire) -> None:
    receiving.broker.q.waiting = []
    receiving.dispose(accepted, 0)
    receiving.dispose(accepted, 0, settled=True)
    assert receiving.broker.q.settled == [(token(1), Complete())]
    receiving.broker.q.answer_all()
    assert await receiving.turn() == []


async def test_both_in_one_write_are_done_once(receiving: Wire) -> None:
    from .wire import frame

    receiving.write(
        frame(0, DISPOSITION, [True, Uint(0), None, False, accepted])
        + frame(0, DISPOSITION, [True, Uint(0), None, True, accepted])
    )
    assert receiving.broker.q.settled == [(token(1), Complete())]
    assert await receiving.turn() == []


async def test_a_received_state_changes_nothing(receiving: Wire) -> None:
    receiving.dispose(Described(Ulong(0x23), [Uint(0), Ulong(0)]), 0)
    receiving.dispose(None, 0)
    assert receiving.broker.q.settled == []
    receiving.dispose(accepted, 0)
    assert receiving.broker.q.settled == [(token(1), Complete())]


async def test_settling_without_an_outcome_leaves_the_lock_to_expire(receiving: Wire) -> None:
    receiving.dispose(None, 0, settled=True)
    assert receiving.broker.q.settled == []
    assert await receiving.turn() == []


async def test_an_unknown_delivery_is_nobodys_business(receiving: Wire) -> None:
    receiving.dispose(accepted, 100, 200)
    receiving.dispose(accepted, 100, settled=True)
    assert await receiving.turn() == []


async def test_a_state_that_we_don_t_know_is_rejected(receiving: Wire) -> None:
    receiving.dispose(Described(Ulong(0x35), [b"txn", accepted]), 0)
    (confirmation,) = receiving.read()
    assert confirmation.get(4).value[0].value[0] == "amqp:not-implemented"
    assert receiving.broker.q.settled == []


async def test_a_confirmation_that_comes_after_the_amqp_session_is_gone_is_dropped(receiving: Wire) -> None:
    receiving.broker.q.waiting = []
    receiving.dispose(accepted, 0, 4)
    receiving.send(0, 0x17, [])
    receiving.read()
    receiving.broker.q.answer_all(BrokerError(Condition.SERVER_BUSY, "Too late."))
    assert await receiving.turn() == []
