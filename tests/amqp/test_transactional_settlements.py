"""Settlements within transactions: confirmed at once, settled by the commit, and open again after a rollback."""

from __future__ import annotations

import pytest

from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from emubus.broker.errors import BrokerError, Condition
from emubus.codec.types import Described, Symbol, Uint, Ulong

from .fakes import token
from .transacting import (
    DISCHARGE,
    ID,
    TRANSACTIONAL,
    command,
    condition,
    declare,
    discharge,
    disposed,
    within,
    within_answer,
)
from .wire import ACCEPTED, DETACH, DISPOSITION, END, Wire, accepted, frame, modified, rejected, released

REFUSAL = BrokerError(Condition.NOT_ALLOWED, "Local transactions cannot span multiple top-level entities.")

SETTLEMENTS: list[tuple[Described, int, Outcome]] = [
    (accepted, 0x24, Complete()),
    (released, 0x26, Release()),
    (modified(), 0x27, Abandon()),
    (modified(True, False, {Symbol("a"): 1}), 0x27, Abandon({"a": 1})),
    (modified(None, True), 0x27, Defer()),
    (rejected(), 0x25, DeadLetter()),
    (
        rejected("com.microsoft:dead-letter", "text", {Symbol("DeadLetterReason"): "why", "b": True}),
        0x25,
        DeadLetter("why", None, {"b": True}),
    ),
    (rejected("amqp:decode-error", "text"), 0x25, DeadLetter("amqp:decode-error", "text")),
    (Described(Symbol("amqp:accepted:list"), []), 0x24, Complete()),
]


@pytest.fixture
async def receiving(open_transaction: Wire) -> Wire:
    """Three messages were received on handle 1."""
    open_transaction.attach_receiver(handle=1, credit=3)
    open_transaction.broker.q.put(b"one", b"two", b"three")
    await open_transaction.turn()
    return open_transaction


@pytest.mark.parametrize(("outcome", "code", "meant"), SETTLEMENTS)
async def test_a_transactional_settlement_is_confirmed_with_the_same_state(
    receiving: Wire, outcome: Described, code: int, meant: Outcome
) -> None:
    receiving.dispose(within(outcome), 0)
    (answer,) = receiving.read()
    assert disposed(answer) == (0, 0, False, within_answer(code))
    assert receiving.broker.transactions.work == [("settle", ID, "q", token(1), meant)]
    assert receiving.broker.q.settled == []


async def test_a_commit_settles_what_was_settled_within_the_transaction(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0)
    receiving.dispose(within(rejected()), 2)
    receiving.read()
    receiving.write(receiving.transfer(command(Ulong(DISCHARGE), [ID, False]), handle=9))
    *settled, discharged = sorted(receiving.read(), key=lambda frame: bool(frame.get(0)))
    assert [disposed(each) for each in settled] == [
        (0, 0, True, within_answer(0x24)),
        (2, 2, True, within_answer(0x25)),
    ]
    assert discharged.get(4) == accepted
    receiving.dispose(accepted, 0)
    assert await receiving.turn() == []  # the delivery is no more


async def test_after_a_rollback_the_delivery_is_settled_like_any_other(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0, 1)
    receiving.read()
    assert discharge(receiving, [ID, True]).get(4) == accepted
    receiving.dispose(modified(True), 0)
    receiving.dispose(accepted, 1, settled=True)
    (answer,) = receiving.read()
    assert disposed(answer) == (0, 0, True, Described(0x27, [False, False]))
    assert receiving.broker.q.settled == [(token(1), Abandon()), (token(2), Complete())]
    receiving.dispose(accepted, 0, 1)
    assert await receiving.turn() == []


async def test_after_a_rollback_the_delivery_can_be_part_of_another_transaction(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0)
    receiving.read()
    discharge(receiving, [ID, True])
    other = declare(receiving).get(4).value[0]
    receiving.dispose(within(rejected(), other), 0)
    (answer,) = receiving.read()
    assert disposed(answer) == (0, 0, False, Described(TRANSACTIONAL, [other, Described(0x25, [])]))
    receiving.write(receiving.transfer(command(Ulong(DISCHARGE), [other, False]), handle=9))
    settled = [each for each in receiving.read() if not each.get(0)]
    assert [disposed(each) for each in settled] == [
        (0, 0, True, Described(TRANSACTIONAL, [other, Described(0x25, [])]))
    ]


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
async def test_a_settlement_and_its_discharge_in_one_write_are_both_answered(receiving: Wire, fail: bool) -> None:
    channel, fields = 0, [True, Uint(0), None, False, within(accepted), None]
    together = frame(channel, DISPOSITION, fields) + receiving.transfer(command(Ulong(DISCHARGE), [ID, fail]), handle=9)
    receiving.write(together)
    settlement, discharged = sorted(receiving.read(), key=lambda each: bool(each.get(0)))
    assert disposed(settlement) == (0, 0, not fail, within_answer(0x24))
    assert discharged.get(4) == accepted


async def test_a_disposition_that_follows_a_rollback_in_the_same_write_is_the_one_that_is_answered(
    receiving: Wire,
) -> None:
    first = frame(0, DISPOSITION, [True, Uint(0), None, False, within(accepted), None])
    second = frame(0, DISPOSITION, [True, Uint(0), None, False, released, None])
    rollback = receiving.transfer(command(Ulong(DISCHARGE), [ID, True]), handle=9)
    receiving.write(first + rollback + second)
    answers = [each for each in receiving.read() if not each.get(0)]
    assert disposed(answers[-1]) == (0, 0, True, Described(0x26, []))
    assert receiving.broker.q.settled == [(token(1), Release())]


async def test_a_client_may_settle_after_it_has_heard_that_its_outcome_is_in_the_transaction(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0)
    receiving.read()
    receiving.dispose(within(accepted), 0, settled=True)
    assert await receiving.turn() == []
    assert receiving.broker.transactions.let_go == [token(1)]
    assert discharge(receiving, [ID, False]).get(4) == accepted  # and nothing else


async def settled_on_channel_1(wire: Wire) -> None:
    """A message was received on channel 1 and accepted within the transaction."""
    wire.begin(1)
    wire.attach_receiver(handle=1, channel=1, credit=1)
    wire.broker.q.put(b"one")
    await wire.turn()
    wire.send(1, DISPOSITION, [True, Uint(0), None, False, within(accepted), None])
    wire.read()


async def test_a_commit_after_the_receivers_amqp_session_has_ended_says_nothing_on_it(open_transaction: Wire) -> None:
    await settled_on_channel_1(open_transaction)
    open_transaction.send(1, END, [])
    open_transaction.read()
    assert discharge(open_transaction, [ID, False]).get(4) == accepted


async def test_a_commit_settles_the_deliveries_of_a_link_that_was_closed_meanwhile(open_transaction: Wire) -> None:
    wire = open_transaction
    await settled_on_channel_1(wire)
    wire.send(1, DETACH, [Uint(1), True])
    wire.read()
    wire.write(wire.transfer(command(Ulong(DISCHARGE), [ID, False]), handle=9))
    settled, discharged = sorted(wire.read(), key=lambda each: bool(each.get(0)))
    assert disposed(settled) == (0, 0, True, within_answer(0x24))
    assert discharged.get(4) == accepted


async def test_a_settlement_that_can_t_be_in_the_transaction_is_rejected(receiving: Wire) -> None:
    receiving.broker.transactions.error = REFUSAL
    receiving.dispose(within(accepted), 0)
    (answer,) = receiving.read()
    assert (answer.get(3), condition(answer)) == (True, "amqp:not-allowed")


@pytest.mark.parametrize("outcome", [None, 5, Described(Ulong(0x99), []), Described(Ulong(0x23), [])])
async def test_a_transactional_settlement_without_an_outcome_is_rejected(receiving: Wire, outcome: object) -> None:
    receiving.dispose(within(outcome), 0)
    assert condition(receiving.read()[0]) == "amqp:invalid-field"
    assert receiving.broker.transactions.work == []


async def test_a_settlement_that_the_client_has_settled_is_done_and_not_answered(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0, 1, settled=True)
    assert await receiving.turn() == []
    assert [each[3] for each in receiving.broker.transactions.work] == [token(1), token(2)]
    assert receiving.broker.transactions.let_go == [token(1), token(2)]  # a rollback gives them to others
    receiving.dispose(within(accepted), 2)
    assert [each.get(4).descriptor for each in receiving.read()] == [TRANSACTIONAL]
    assert receiving.broker.transactions.let_go == [token(1), token(2)]


async def test_a_range_is_confirmed_one_by_one_or_as_a_range(receiving: Wire) -> None:
    receiving.dispose(within(accepted), 0, 2)
    states = {
        number: each.get(4)
        for each in receiving.read()
        for number in range(each.get(1), (each.get(2) or each.get(1)) + 1)
    }
    assert states == dict.fromkeys(range(3), Described(TRANSACTIONAL, [ID, Described(ACCEPTED, [])]))
