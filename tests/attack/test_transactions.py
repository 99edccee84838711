"""Transactions and ids under attack: a client without a key guesses, ends others' transactions, and opens many."""

from __future__ import annotations

import random
from collections.abc import Callable

import pytest
from structlog.testing import capture_logs

from emubus.amqp.limits import Limits
from emubus.broker.access import Access
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.ids import new_lock_tokens, new_message_id, new_transaction_id
from emubus.broker.keys import SharedKey
from emubus.broker.model.descriptions import QueueDescription
from emubus.codec.types import Ulong

from ..amqp.fakes import FakeBroker
from ..amqp.transacting import DECLARED, DISCHARGE, command, condition, coordinate, declare, discharge, within
from ..amqp.wire import DETACH, Wire, accepted
from ..broker.namespace import _brokers_stop, brokers_stop, open_broker

__all__ = ["_brokers_stop", "brokers_stop"]

KEY = SharedKey("k", "v")
_WORD = 0xFFFFFFFF
_STATE_WORDS = 624


def untempered(word: int) -> int:
    """The state behind an output of the Mersenne Twister."""
    word ^= word >> 18
    word ^= (word << 15) & 0xEFC60000
    found = word
    for _ in range(5):
        found = word ^ ((found << 7) & 0x9D2C5680)
    word = found & _WORD
    for _ in range(3):
        found = word ^ (found >> 11)
    return found & _WORD


def cloned(outputs: list[int]) -> random.Random:
    """A generator that goes on where the one of these 624 outputs of 32 bits stopped, if that was Python's."""
    clone = random.Random()
    clone.setstate((3, (*map(untempered, outputs), _STATE_WORDS), None))
    return clone


def test_the_clone_of_pythons_generator_goes_on_like_it() -> None:
    original = random.Random(1)
    clone = cloned([original.getrandbits(32) for _ in range(_STATE_WORDS)])
    assert [clone.getrandbits(128) for _ in range(9)] == [original.getrandbits(128) for _ in range(9)]


@pytest.mark.parametrize(
    "make",
    [
        lambda: int(new_message_id(), 16),
        lambda: int.from_bytes(new_transaction_id(), "big"),
        lambda: int.from_bytes(new_lock_tokens(0, 1)[0], "big") >> 16,
    ],
    ids=["message", "transaction", "lock token"],
)
def test_the_ids_that_a_client_has_seen_do_not_tell_the_next(make: Callable[[], int]) -> None:
    outputs: list[int] = []
    while len(outputs) < _STATE_WORDS:  # the generator gives the lowest word first
        seen = int(new_message_id(), 16)
        outputs += [(seen >> shift) & _WORD for shift in range(0, 128, 32)]
    guesses = {cloned(outputs).getrandbits(bits) for bits in (112, 128)}
    assert make() not in guesses


def test_ids_do_not_repeat() -> None:
    made = [made for _ in range(5_000) for made in (*new_lock_tokens(0, 2), new_transaction_id())]
    assert len(set(made)) == len(made)


class Two:
    """A client with a key and one without, each on a connection to the same broker; both have a coordinator."""

    def __init__(self, broker: Broker | FakeBroker, limits: Limits | None = None) -> None:
        clock = Clock(start_at=1_700_000_000_000, frozen=True)
        access = Access((KEY,), verify=True)
        self.owner, self.stranger = (
            Wire(broker=broker, access=access, limits=limits or Limits(), clock=clock)  # type: ignore[arg-type]
            for _ in range(2)
        )
        for wire in (self.owner, self.stranger):
            wire.open()
            if wire is self.owner:
                wire.server.context.claims.show_key(KEY.name, KEY.key)
            coordinate(wire)

    def close(self) -> None:
        self.owner.lose()
        self.stranger.lose()


@pytest.mark.parametrize("fail", [True, False])
async def test_a_stranger_can_not_end_the_transaction_of_another_connection(fail: bool) -> None:
    broker = open_broker(QueueDescription("q"))
    two = Two(broker)
    transaction = declare(two.owner).get(4).value[0]
    with capture_logs() as logs:
        answer = discharge(two.stranger, [transaction, fail])
    assert condition(answer) == "amqp:transaction:unknown-id"
    warnings = [entry["event"] for entry in logs if entry["log_level"] == "warning"]
    assert warnings == ["transaction command refused"]
    assert discharge(two.owner, [transaction, False]).get(4) == accepted
    two.close()
    await broker.stop()


async def test_a_stranger_that_declares_all_it_can_leaves_transactions_for_those_with_a_key() -> None:
    broker = FakeBroker()
    limits = Limits(transactions_max=8, unclaimed_transactions_max=4, unclaimed_transactions_per_connection_max=3)
    two = Two(broker, limits)
    second = Two(broker, limits)
    answers = [declare(wire).get(4).descriptor for wire in (two.stranger, second.stranger) for _ in range(6)]
    assert answers == [DECLARED] * 3 + [0x25] * 3 + [DECLARED] + [0x25] * 5
    assert [declare(two.owner).get(4).descriptor for _ in range(5)] == [DECLARED] * 4 + [0x25]
    two.close()
    second.close()


async def test_the_transactions_of_a_stranger_end_with_its_connection() -> None:
    broker = FakeBroker()
    limits = Limits(unclaimed_transactions_per_connection_max=2)
    for _ in range(3):
        two = Two(broker, limits)
        assert [declare(two.stranger).get(4).descriptor for _ in range(3)] == [DECLARED, DECLARED, 0x25]
        two.close()
        assert broker.transactions.declared == {}


async def test_work_with_the_id_of_another_connection_leaves_that_transaction_as_it_was() -> None:
    broker = FakeBroker()
    two = Two(broker)
    transaction = declare(two.owner).get(4).value[0]
    two.stranger.server.context.claims.show_key(KEY.name, KEY.key)  # it may send, but not in this transaction
    two.stranger.attach_sender(handle=1)
    two.stranger.write(two.stranger.transfer(b"m", handle=1, state=within(transaction=transaction)))
    (answer,) = two.stranger.read()
    assert (answer.code, answer.get(2).value[0]) == (DETACH, "amqp:transaction:unknown-id")
    assert broker.transactions.work == []
    two.owner.write(two.owner.transfer(command(Ulong(DISCHARGE), [transaction, False]), handle=9))
    assert two.owner.read()[0].get(4) == accepted
    assert broker.transactions.ended == [(transaction, False)]
    two.close()
