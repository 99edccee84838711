"""Requests that take part in a transaction: cancelling scheduled messages, setting the state of a session. No wire."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest
from proton import timestamp

from emubus.broker.api import Complete, Delivery, ReceiveMode, SessionReceiver, TransactionRef
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.storage import StoreFailed

from .driving import decoded, encoded
from .namespace import WAIT_S, Receiver, open_broker, send

OWNER = object()
PLAIN = QueueDescription("q")
IN_SESSIONS = QueueDescription("s", requires_session=True)
PARTITIONED = QueueDescription("p", enable_partitioning=True)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


async def end(broker: Broker, ref: TransactionRef, *, fail: bool = False) -> BrokerError | None:
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.discharge(ref, fail=fail, done=answer.set_result)
    return await asyncio.wait_for(answer, WAIT_S)


async def schedule(
    broker: Broker, clock: Clock, *bodies: str, address: str = "q", ref: TransactionRef | None = None
) -> list[int]:
    """Schedule messages for a minute later; their numbers."""
    annotations = {"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + 60_000), "x-opt-partition-key": "k"}
    messages = [encoded(body, annotations=annotations) for body in bodies]
    if ref is None:
        return await broker.messages.schedule(address, messages)
    return await broker.work.schedule(ref, address, messages)


async def seen(broker: Broker, address: str = "q") -> list[str]:
    """The bodies of all messages of a queue, scheduled ones too."""
    payloads = await broker.messages.peek(address, 0, 100, 1 << 20)
    messages = decoded([Delivery(b"", payload, 0) for payload in payloads])
    return [bytes(message.body).decode() for message in messages]


async def held_session(broker: Broker, name: str = "a") -> SessionReceiver:
    granted: asyncio.Future[SessionReceiver] = asyncio.get_running_loop().create_future()
    broker.accept_session(
        "s",
        name,
        mode=ReceiveMode.PEEK_LOCK,
        timeout_ms=0,
        granted=granted.set_result,
        refused=granted.set_exception,
        detached=lambda _: None,
    )
    return await asyncio.wait_for(granted, WAIT_S)


# ---- scheduled messages


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
async def test_a_cancellation_comes_true_with_the_commit_and_not_before(clock: Clock, fail: bool) -> None:
    broker = open_broker(PLAIN, clock=clock)
    numbers = await schedule(broker, clock, "a", "b", "c")
    ref = broker.transactions.declare(OWNER)
    await broker.work.cancel(ref, "q", numbers[:2])
    assert await seen(broker) == ["a", "b", "c"]
    assert await end(broker, ref, fail=fail) is None
    assert await seen(broker) == (["a", "b", "c"] if fail else ["c"])
    clock.advance(60_000)
    assert len(await Receiver(broker, "q").receive(3 if fail else 1)) == (3 if fail else 1)


async def test_cancelling_a_message_that_is_not_there_is_refused_at_once_and_ends_in_a_rollback(clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock)
    (number,) = await schedule(broker, clock, "a")
    ref = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError) as refused:
        await broker.work.cancel(ref, "q", [number, number + 7])
    assert refused.value.condition is Condition.MESSAGE_NOT_FOUND
    error = await end(broker, ref)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    assert await seen(broker) == ["a"]


async def test_the_same_message_is_cancelled_once_in_a_transaction(clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock)
    (number,) = await schedule(broker, clock, "a")
    ref = broker.transactions.declare(OWNER)
    one = broker.work.cancel(ref, "q", [number])
    two = broker.work.cancel(ref, "q", [number])
    answers = await asyncio.gather(one, two, return_exceptions=True)
    assert [type(answer) for answer in answers] == [type(None), BrokerError]
    assert await end(broker, ref) is not None
    assert await seen(broker) == ["a"]


async def test_what_a_transaction_schedules_it_can_cancel(clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock)
    (stored,) = await schedule(broker, clock, "stored")
    ref = broker.transactions.declare(OWNER)
    first, _, third = await schedule(broker, clock, "a", "b", "c", ref=ref)
    await broker.work.cancel(ref, "q", [first, stored, third])
    with pytest.raises(BrokerError) as refused:
        await broker.messages.cancel_scheduled("q", [first])  # outside it, the message does not exist yet
    assert refused.value.condition is Condition.MESSAGE_NOT_FOUND
    assert await end(broker, ref) is None
    assert await seen(broker) == ["b"]


async def test_a_message_that_another_client_cancels_first_rolls_the_transaction_back(clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock)
    numbers = await schedule(broker, clock, "a", "b")
    ref = broker.transactions.declare(OWNER)
    await broker.work.cancel(ref, "q", numbers)
    await broker.messages.cancel_scheduled("q", numbers[:1])
    error = await end(broker, ref)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    assert await seen(broker) == ["b"]


async def test_cancellations_of_two_partitions_are_refused(clock: Clock) -> None:
    broker = open_broker(PARTITIONED, clock=clock)
    (number,) = await schedule(broker, clock, "a", address="p")
    other = number + (1 << 48) if number >> 48 < 15 else number - (1 << 48)
    ref = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError, match="cannot span multiple entities or partitions") as refused:
        await broker.work.cancel(ref, "p", [number, other])
    assert refused.value.condition is Condition.NOT_ALLOWED


async def test_a_number_that_no_partition_can_have_given_out_is_not_found(clock: Clock) -> None:
    broker = open_broker(PLAIN, clock=clock)
    ref = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError) as refused:
        await broker.work.cancel(ref, "q", [-1])
    assert refused.value.condition is Condition.MESSAGE_NOT_FOUND


# ---- states of message sessions


@pytest.mark.parametrize("fail", [False, True], ids=["commit", "rollback"])
async def test_the_state_of_a_session_comes_true_with_the_commit_and_not_before(clock: Clock, fail: bool) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock)
    await held_session(broker)
    await broker.sessions.set_state("s", "a", b"old")
    ref = broker.transactions.declare(OWNER)
    await broker.work.set_state(ref, "s", "a", b"between")
    await broker.work.set_state(ref, "s", "a", b"new")
    assert await broker.sessions.state("s", "a") == b"old"
    assert await end(broker, ref, fail=fail) is None
    assert await broker.sessions.state("s", "a") == (b"old" if fail else b"new")


async def test_a_state_and_the_last_message_of_its_session_go_together(clock: Clock, tmp_path: Path) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock, folder=tmp_path)
    await send(broker, "s", encoded("m", group_id="a"))
    consumer = await held_session(broker)
    delivered: asyncio.Future[Sequence[Delivery]] = asyncio.get_running_loop().create_future()
    consumer.deliver = delivered.set_result
    consumer.set_credit(1)
    (delivery,) = await asyncio.wait_for(delivered, WAIT_S)
    ref = broker.transactions.declare(OWNER)
    broker.work.settle(ref, "s", delivery.token, Complete())
    await broker.work.set_state(ref, "s", "a", b"done")
    assert await end(broker, ref) is None
    await broker.stop()
    broker = open_broker(IN_SESSIONS, clock=clock, folder=tmp_path)
    await held_session(broker)
    assert await broker.sessions.state("s", "a") == b"done"
    assert await broker.messages.peek("s", 0, 10, 1 << 20) == []


async def test_the_state_of_a_session_that_is_not_held_is_refused_at_once(clock: Clock) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock)
    ref = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError) as refused:
        await broker.work.set_state(ref, "s", "a", b"new")
    assert refused.value.condition is Condition.SESSION_LOCK_LOST


async def test_a_session_that_is_lost_before_the_commit_rolls_everything_back(clock: Clock) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock)
    await held_session(broker)
    ref = broker.transactions.declare(OWNER)
    await broker.work.set_state(ref, "s", "a", b"new")
    clock.advance(60_000)
    error = await end(broker, ref)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    await held_session(broker)
    assert await broker.sessions.state("s", "a") is None


async def test_a_state_larger_than_a_message_is_refused(clock: Clock) -> None:
    broker = open_broker(IN_SESSIONS, clock=clock)
    await held_session(broker)
    ref = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError) as refused:
        await broker.work.set_state(ref, "s", "a", bytes(256 * 1024 + 1))
    assert refused.value.condition is Condition.MESSAGE_SIZE_EXCEEDED
    assert await end(broker, ref) is not None


async def test_states_and_cancellations_stay_within_one_top_level_entity(clock: Clock) -> None:
    broker = open_broker(PLAIN, IN_SESSIONS, clock=clock)
    await held_session(broker)
    (number,) = await schedule(broker, clock, "a")
    for first_is_state in (False, True):
        ref = broker.transactions.declare(OWNER)
        state, cancel = (
            broker.work.set_state(ref, "s", "a", b"new"),
            broker.work.cancel(ref, "q", [number]),
        )
        await (state if first_is_state else cancel)
        with pytest.raises(BrokerError, match="cannot span multiple top-level entities") as refused:
            await (cancel if first_is_state else state)
        assert refused.value.condition is Condition.NOT_ALLOWED


# ---- all or nothing


@pytest.mark.parametrize(("step", "stored"), [("commit-started", False), ("committed", True)])
async def test_p29_cancellations_schedules_and_sends_are_all_there_after_a_failed_commit_or_none(
    clock: Clock, tmp_path: Path, step: str, stored: bool
) -> None:
    failing: set[str] = set()

    def failpoint(name: str) -> None:
        if name in failing:
            failing.clear()
            raise StoreFailed(None, "commit failed: I/O error")

    broker = open_broker(PLAIN, clock=clock, folder=tmp_path, failpoint=failpoint)
    old = await schedule(broker, clock, "old")
    ref = broker.transactions.declare(OWNER)
    await broker.work.cancel(ref, "q", old)
    await schedule(broker, clock, "new", ref=ref)
    broker.work.send(ref, broker.open_sender("q", detached=print), encoded("sent"), batch=False)
    failing.add(step)
    assert await end(broker, ref) is not None
    await broker.stop()
    broker = open_broker(PLAIN, clock=clock, folder=tmp_path)
    assert sorted(await seen(broker)) == (["new", "sent"] if stored else ["old"])
