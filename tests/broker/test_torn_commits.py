"""Commits that fail, and the worker behind them: callers hear of it once, and the store alone says what is (R3).

A disk can fail after the last page was written: everything is stored, and nobody knows. No wire.
"""

from __future__ import annotations

import asyncio
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from typing import Any

import pytest

from emubus.broker.api import Complete, Defer, Outage, OutageKind, ReceiveMode, SessionReceiver
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.entities.links import IDLE_LOSS_MS
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.requests import Reserve
from emubus.storage import StoreFailed

from .driving import decoded, encoded
from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send

PLAIN = QueueDescription("plain")
PARTITIONED = QueueDescription("p", enable_partitioning=True)
IN_SESSIONS = QueueDescription("s", requires_session=True)


class Disk:
    """A failpoint of all stores: the next `count` commits fail, before or after everything is written."""

    def __init__(self) -> None:
        self.count = 0
        self.step = "committed"
        self.likely: Callable[[], str | None] = lambda: None

    def fail(self, step: str, count: int = 1) -> None:
        self.step, self.count = step, count

    def __call__(self, name: str) -> None:
        if name == "batch-applied" and (step := self.likely()) is not None:
            self.fail(step)
        if self.count and name == self.step:
            self.count -= 1
            raise StoreFailed(None, "commit failed: I/O error")


@pytest.fixture
def disk() -> Disk:
    return Disk()


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def bodies(deliveries: Any) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


def store_of(broker: Broker, path: str) -> int:
    entity = broker.namespace.entity(path)
    assert entity is not None
    return entity.partitions[0].worker.index


async def after_a_failure(clock: Clock) -> None:
    """The consumers ask the store again."""
    clock.advance(1_000)
    await loop_turns(3)


async def test_what_was_stored_without_being_confirmed_fails_its_sender_and_is_there(disk: Disk, clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock, failpoint=disk)
    disk.fail("committed")
    with pytest.raises(UnknownOutcomeError) as refused:
        await send(broker, "plain", encoded("there"))
    assert refused.value.condition is Condition.SERVER_BUSY
    assert "could not confirm the operation: store (in memory): commit failed: I/O error" in refused.value.description
    assert "All of it is stored or nothing; which of both is not known." in refused.value.description
    await after_a_failure(clock)
    assert bodies(await Receiver(broker, "plain").drain()) == ["there"]


async def test_a_message_that_may_be_stored_in_one_partition_is_not_stored_in_another_one(
    disk: Disk, clock: Clock
) -> None:
    broker = open_broker(PARTITIONED, clock=clock, failpoint=disk)
    disk.fail("committed")
    with pytest.raises(UnknownOutcomeError):
        await send(broker, "p", encoded("once"))
    await after_a_failure(clock)
    assert bodies(await Receiver(broker, "p").drain()) == ["once"]


async def test_a_settlement_that_was_stored_without_being_confirmed_stays_true(disk: Disk, clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock, failpoint=disk)
    await send(broker, "plain", encoded())
    receiver = Receiver(broker, "plain")
    (delivery,) = await receiver.receive(1)
    disk.fail("committed")
    assert isinstance(await receiver.settle(delivery, Complete()), UnknownOutcomeError)
    await after_a_failure(clock)
    again = await receiver.settle(delivery, Complete())
    assert again is not None
    assert again.condition is Condition.MESSAGE_LOCK_LOST
    assert await receiver.drain() == []


@pytest.mark.parametrize(("step", "stored"), [("commit-started", False), ("committed", True)])
async def test_a_transaction_whose_commit_is_not_confirmed_is_not_said_to_be_rolled_back(
    disk: Disk, clock: Clock, step: str, stored: bool
) -> None:
    broker = open_broker(PLAIN, clock=clock, failpoint=disk)
    transaction_id = broker.transactions.declare(None)
    sender = broker.open_sender("plain", detached=print)
    for body in ("a", "b"):
        broker.work.send(transaction_id, sender, encoded(body), batch=False)
    disk.fail(step)
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.discharge(transaction_id, fail=False, done=answer.set_result)
    error = await asyncio.wait_for(answer, WAIT_S)
    assert isinstance(error, UnknownOutcomeError)
    assert error.description.startswith("Whether the transaction was committed is not known: ")
    await after_a_failure(clock)
    assert bodies(await Receiver(broker, "plain").drain()) == (["a", "b"] if stored else [])


async def test_messages_are_scheduled_together_or_not_at_all(disk: Disk, clock: Clock) -> None:
    from proton import timestamp

    broker = open_broker(PLAIN, clock=clock, failpoint=disk)
    later = {"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + 60_000)}
    messages = [encoded(body, annotations=later) for body in ("a", "b", "c")]
    commits = 0

    def second_commit_fails() -> str | None:
        nonlocal commits
        commits += 1
        return "commit-started" if commits == 2 else None

    disk.likely = second_commit_fails
    assert await broker.messages.schedule("plain", messages) == [1, 2, 3]
    with pytest.raises(BrokerError):
        await broker.messages.schedule("plain", messages)
    assert len(await broker.messages.peek("plain", 0, 10, 1 << 20)) == 3


async def test_numbers_that_were_reserved_are_not_given_out_again_after_a_failure(disk: Disk, clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock, failpoint=disk)
    entity = broker.namespace.entity("plain")
    assert entity is not None
    reserved = await entity.partitions[0].request(partial(Reserve, 3))
    disk.fail("commit-started")
    with pytest.raises(BrokerError):
        await send(broker, "plain", encoded())
    await send(broker, "plain", encoded())
    await after_a_failure(clock)
    (delivery,) = await Receiver(broker, "plain").receive(1)
    assert delivery.sequence_number > max(reserved)


async def test_a_store_that_can_begin_no_batch_takes_no_locks_from_those_who_ask_for_nothing(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = [f"q{number}" for number in range(40)]  # some of them share a store
    broker = open_broker(*(QueueDescription(name) for name in names), clock=clock)
    stores = {name: store_of(broker, name) for name in names}
    first, second = next((a, b) for a in names for b in names if a < b and stores[a] == stores[b])
    await send(broker, first, encoded())
    receiver = Receiver(broker, first)
    (delivery,) = await receiver.receive(1)

    def begin(expected_bytes: int, *, frees: bool) -> None:
        raise StoreFailed(None, "can't begin a batch: I/O error")

    with monkeypatch.context() as patch:
        patch.setattr(broker.namespace.workers[stores[first]]._store, "begin", begin)
        with pytest.raises(BrokerError, match="Nothing of it was stored"):
            await send(broker, second, encoded())
    assert await receiver.settle(delivery, Complete()) is None


# ---- message sessions


class Holder:
    """A receiver that holds a message session."""

    def __init__(self, broker: Broker, session_id: str) -> None:
        self.consumer: SessionReceiver | None = None
        self.lost: list[BrokerError] = []
        self.got: list[str] = []
        broker.accept_session(
            "s",
            session_id,
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=1_000,
            granted=self._granted,
            refused=self.lost.append,
            detached=self.lost.append,
        )

    def _granted(self, consumer: SessionReceiver) -> None:
        consumer.deliver = lambda deliveries: self.got.extend(bodies(deliveries))
        self.consumer = consumer


async def test_who_lost_a_session_reaches_none_that_another_one_holds_since(disk: Disk, clock: Clock) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock, failpoint=disk)
    await send(broker, "s", encoded("1", group_id="a"))
    await send(broker, "s", encoded("2", group_id="b"))
    before = Holder(broker, "a")
    await loop_turns(3)
    assert before.consumer is not None
    index = store_of(broker, "s")
    broker.outages.begin(index, Outage(OutageKind.SLOW, 1_000))
    disk.fail("commit-started")
    sending = asyncio.create_task(send(broker, "s", encoded("3", group_id="b")))
    await loop_turns(3)
    now = Holder(broker, "b")  # while that commit runs; it will fail, and the session "a" be lost
    before.consumer.close()
    other = Holder(broker, "b")
    broker.outages.end(index)
    clock.advance(1_000)
    with pytest.raises(BrokerError):
        await sending
    await loop_turns(3)
    assert now.consumer is not None
    assert [error.condition for error in other.lost] == [Condition.SESSION_CANNOT_BE_LOCKED]
    now.consumer.set_credit(5)
    await loop_turns(3)
    assert now.got == ["2"]


async def test_a_session_whose_time_ends_while_its_store_is_down_is_lost_when_it_is_back(clock: Clock) -> None:
    others = [QueueDescription(f"q{number}") for number in range(40)]  # some of them share its store
    broker = open_broker(IN_SESSIONS, *others, clock=clock)
    holder = Holder(broker, "a")
    await loop_turns(3)
    index = store_of(broker, "s")
    await send(broker, next(each.name for each in others if store_of(broker, each.name) == index), encoded())
    broker.outages.begin(index, Outage(OutageKind.DOWN))
    clock.advance(60_000 + IDLE_LOSS_MS)
    await loop_turns(3)
    assert holder.lost == []
    broker.outages.end(index)
    clock.advance(0)
    await loop_turns(3)
    assert [error.condition for error in holder.lost] == [Condition.SESSION_LOCK_LOST]


# ---- anything


@pytest.mark.parametrize("seed", range(1, 11))
async def test_what_was_accepted_is_received_and_nothing_twice_though_commits_are_torn(seed: int, clock: Clock) -> None:
    chance = random.Random(seed)
    disk = Disk()
    queues = (PLAIN, PARTITIONED, QueueDescription("f", forward_to="p"))
    broker = open_broker(*queues, clock=clock, failpoint=disk)
    disk.likely = lambda: chance.choice(("commit-started", "committed")) if chance.random() < 0.1 else None
    accepted: set[str] = set()
    for number in range(400):
        name = f"{number:03}"
        fields = {"annotations": {"x-opt-partition-key": chance.choice("abc")}} if chance.random() < 0.3 else {}
        sent = send(broker, chance.choice(("plain", "p", "f")), encoded(name, **fields))
        (answer,) = await asyncio.gather(sent, return_exceptions=True)
        if answer is None:
            accepted.add(name)
        else:
            assert isinstance(answer, BrokerError)
            assert answer.condition is Condition.SERVER_BUSY
        if number % 20 == 0:
            await after_a_failure(clock)
    disk.likely = lambda: None
    disk.count = 0
    for _ in range(5):
        await after_a_failure(clock)
        await loop_turns(100)
    found = Counter(bodies([*await Receiver(broker, "plain").drain(), *await Receiver(broker, "p").drain()]))
    assert accepted <= set(found)
    assert set(found.values()) == {1}
    assert len(accepted) > 300


@pytest.mark.parametrize("mode", list(ReceiveMode))
async def test_deferred_messages_of_several_partitions_are_taken_together_or_not_at_all(
    clock: Clock, mode: ReceiveMode
) -> None:
    broker = open_broker(PARTITIONED, clock=clock)
    for body in ("a", "b"):
        await send(broker, "p", encoded(body))
    receiver = Receiver(broker, "p")
    first, second = await receiver.receive(2)
    await receiver.settle(first, Defer())
    with pytest.raises(BrokerError) as refused:
        await broker.messages.receive_by_sequence_number("p", [first.sequence_number, second.sequence_number], mode)
    assert refused.value.condition is Condition.MESSAGE_NOT_FOUND
    await receiver.settle(second, Defer())
    both = [second.sequence_number, first.sequence_number]
    found = await broker.messages.receive_by_sequence_number("p", both, mode)
    assert [delivery.sequence_number for delivery in found] == both
    await loop_turns(5)
    left = await broker.messages.peek("p", 0, 10, 1 << 20)
    assert len(left) == (0 if mode is ReceiveMode.RECEIVE_AND_DELETE else 2)
