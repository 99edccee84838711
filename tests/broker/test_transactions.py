"""Transactions: all or nothing, in one partition. No wire."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.api import Complete, ReceiveMode, TransactionRef
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription

from .driving import decoded, encoded, read
from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send

OWNER = object()


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def bodies(deliveries: Any) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


def work(broker: Broker, ref: TransactionRef, address: str, data: bytes) -> None:
    sender = broker.open_sender(address, detached=print)
    broker.work.send(ref, sender, data, batch=False)


async def discharge(broker: Broker, ref: TransactionRef, *, fail: bool = False) -> BrokerError | None:
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.discharge(ref, fail=fail, done=answer.set_result)
    return await asyncio.wait_for(answer, WAIT_S)


async def test_a_commit_makes_sends_and_settlements_true_together(clock: Clock, tmp_path: Path) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock, folder=tmp_path)
    await send(broker, "q", encoded("old"))
    receiver = Receiver(broker, "q")
    (old,) = await receiver.receive(1)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("new"))
    broker.work.settle(transaction_id, "q", old.token, Complete())
    assert await receiver.drain() == []
    assert await discharge(broker, transaction_id) is None
    assert bodies(await receiver.drain()) == ["new"]
    await broker.stop()
    broker = open_broker(QueueDescription("q"), clock=clock, folder=tmp_path)
    assert bodies(await Receiver(broker, "q").drain()) == ["new"]


async def test_a_rollback_leaves_no_trace(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", encoded("old"))
    receiver = Receiver(broker, "q")
    (old,) = await receiver.receive(1)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("new"))
    broker.work.settle(transaction_id, "q", old.token, Complete())
    assert await discharge(broker, transaction_id, fail=True) is None
    assert await receiver.drain() == []
    assert await receiver.settle(old, Complete()) is None  # still locked by its receiver


@pytest.mark.parametrize("ending", ["rollback", "failure", "owner", "closing", "time", "refused commit"])
async def test_a_rollback_gives_others_what_its_receiver_has_let_go_of(clock: Clock, ending: str) -> None:
    broker = open_broker(QueueDescription("q", lock_duration_ms=300_000), QueueDescription("other"), clock=clock)
    await send(broker, "q", encoded("kept"))
    await send(broker, "q", encoded("let go"))
    receiver = Receiver(broker, "q")
    kept, let_go = await receiver.receive(2)
    transaction_id = broker.transactions.declare(OWNER)
    broker.work.settle(transaction_id, "q", kept.token, Complete())
    broker.work.settle(transaction_id, "q", let_go.token, Complete(), settled=True)
    if ending == "failure":
        with pytest.raises(BrokerError, match="cannot span"):
            work(broker, transaction_id, "other", encoded("elsewhere"))
    if ending == "owner":
        broker.transactions.leave(OWNER)
    elif ending == "closing":
        broker.transactions.close()
    elif ending == "time":
        clock.advance(120_000)
    elif ending == "refused commit":
        assert await receiver.settle(kept, Complete()) is None
        assert await discharge(broker, transaction_id) is not None
    else:
        await discharge(broker, transaction_id, fail=ending == "rollback")
    again = await receiver.receive(1)
    (message,) = decoded(again)
    assert (bytes(message.body).decode(), message.delivery_count) == ("let go", 1)
    assert await receiver.drain() == []


async def test_a_lock_that_is_lost_before_the_commit_rolls_everything_back(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", encoded("old"))
    receiver = Receiver(broker, "q")
    (old,) = await receiver.receive(1)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("new"))
    broker.work.settle(transaction_id, "q", old.token, Complete())
    clock.advance(60_000)
    error = await discharge(broker, transaction_id)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    assert bodies(await receiver.drain()) == ["old"]


@pytest.mark.parametrize("leaving", ["owner", "time"])
async def test_an_abandoned_transaction_is_rolled_back(clock: Clock, leaving: str) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("new"))
    if leaving == "owner":
        broker.transactions.leave(OWNER)
    else:
        clock.advance(120_000)
    error = await discharge(broker, transaction_id)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_UNKNOWN_ID
    assert await Receiver(broker, "q").drain() == []
    assert broker.transactions.open_count() == 0


async def test_p26_a_send_to_a_partitioned_queue_needs_a_key(clock: Clock) -> None:
    broker = open_broker(QueueDescription("p", enable_partitioning=True), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    with pytest.raises(BrokerError, match="needs a SessionId, a PartitionKey or a MessageId") as refused:
        work(broker, transaction_id, "p", encoded("x"))
    assert refused.value.condition is Condition.NOT_ALLOWED
    work(broker, transaction_id, "p", encoded("x", id="a message id is a key here"))


async def test_p27_all_sends_of_a_transaction_have_the_same_key(clock: Clock) -> None:
    broker = open_broker(QueueDescription("p", enable_partitioning=True), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    for body in "ab":
        work(broker, transaction_id, "p", encoded(body, annotations={"x-opt-partition-key": "k"}))
    with pytest.raises(BrokerError, match="must have the same partition key") as refused:
        work(broker, transaction_id, "p", encoded("c", annotations={"x-opt-partition-key": "other"}))
    assert refused.value.condition is Condition.NOT_ALLOWED
    error = await discharge(broker, transaction_id)  # some clients don't look at the refusal of a send
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    assert await Receiver(broker, "p").drain() == []


async def test_p28_messages_of_different_sessions_in_one_transaction(clock: Clock) -> None:
    partitioned = QueueDescription("p", enable_partitioning=True, requires_session=True)
    broker = open_broker(partitioned, QueueDescription("plain", requires_session=True), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "p", encoded("a", group_id="1"))
    with pytest.raises(BrokerError):
        work(broker, transaction_id, "p", encoded("b", group_id="2"))
    with pytest.raises(BrokerError, match="SessionId was not set"):
        work(broker, transaction_id, "p", encoded("b", annotations={"x-opt-partition-key": "1"}))
    other = broker.transactions.declare(OWNER)
    for session in "12":
        work(broker, other, "plain", encoded("a", group_id=session))
    assert await discharge(broker, other) is None
    assert await broker.sessions.names("plain", None) == ["1", "2"]


@pytest.mark.parametrize("session_aware", [True, False])
async def test_p28_a_message_without_session_for_a_session_aware_topic_is_refused_when_it_is_sent(
    clock: Clock, session_aware: bool
) -> None:
    """Else the transaction would be committed, and the copy for the session subscription be dead-lettered."""
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t", enable_partitioning=True))
    broker.administration.create(SubscriptionDescription("t", "plain"))
    broker.administration.create(SubscriptionDescription("t", "sessions", requires_session=session_aware))
    keyed = encoded("x", annotations={"x-opt-partition-key": "k"})
    transaction_id = broker.transactions.declare(OWNER)
    if session_aware:
        with pytest.raises(BrokerError, match="The SessionId was not set on a message") as refused:
            work(broker, transaction_id, "t", keyed)
        assert refused.value.condition is Condition.NOT_ALLOWED
        transaction_id = broker.transactions.declare(OWNER)
        keyed = encoded("x", group_id="s")
    work(broker, transaction_id, "t", keyed)
    assert await discharge(broker, transaction_id) is None
    counts = [
        sum(broker.namespace.find(f"t/Subscriptions/{name}")[0].message_counts()) for name in ("plain", "sessions")
    ]
    assert counts == [1, 1]


async def test_a_transaction_stays_within_one_top_level_entity(clock: Clock) -> None:
    broker = open_broker(QueueDescription("a"), QueueDescription("b"), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "a", encoded("x"))
    with pytest.raises(BrokerError, match="Local transactions cannot span multiple top-level entities") as refused:
        work(broker, transaction_id, "b", encoded("x"))
    assert refused.value.condition is Condition.NOT_ALLOWED


async def test_a_topic_and_its_subscription_are_one_top_level_entity(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s"))
    await send(broker, "t", encoded("old"))
    receiver = Receiver(broker, "t/Subscriptions/s")
    (old,) = await receiver.receive(1)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "t", encoded("new"))
    broker.work.settle(transaction_id, "t/Subscriptions/s", old.token, Complete())
    assert await discharge(broker, transaction_id) is None
    assert bodies(await receiver.drain()) == ["new"]


async def test_the_lost_lock_of_a_message_sessions_dead_letter_is_a_message_lock(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    await send(broker, "s", encoded("one", group_id="a"))
    transaction_id = broker.transactions.declare(OWNER)
    for address, lost in (
        ("s", Condition.SESSION_LOCK_LOST),
        ("s/$DeadLetterQueue", Condition.MESSAGE_LOCK_LOST),
    ):
        with pytest.raises(BrokerError) as refused:
            broker.work.settle(transaction_id, address, bytes(16), Complete())
        assert refused.value.condition is lost
    dead_letters = broker.open_receiver(
        "s/$DeadLetterQueue", mode=ReceiveMode.PEEK_LOCK, deliver=lambda _: None, detached=lambda _: None
    )
    assert dead_letters.address == "s/$DeadLetterQueue"  # by which its link settles in transactions


async def test_settlements_of_two_partitions_are_refused(clock: Clock) -> None:
    broker = open_broker(QueueDescription("p", enable_partitioning=True), clock=clock)
    for _ in range(2):
        await send(broker, "p", encoded("x"))
    first, second = await Receiver(broker, "p").receive(2)
    transaction_id = broker.transactions.declare(OWNER)
    broker.work.settle(transaction_id, "p", first.token, Complete())
    with pytest.raises(BrokerError, match="multiple entities or partitions"):
        broker.work.settle(transaction_id, "p", second.token, Complete())


async def test_a_transaction_through_one_entity_reaches_another(clock: Clock) -> None:
    broker = open_broker(QueueDescription("via"), QueueDescription("target"), clock=clock)
    await send(broker, "via", encoded("in"))
    (delivery,) = await Receiver(broker, "via").receive(1)
    transaction_id = broker.transactions.declare(OWNER, lambda: broker.namespace.entity("via"))
    broker.work.settle(transaction_id, "via", delivery.token, Complete())
    work(broker, transaction_id, "target", encoded("out"))
    assert await Receiver(broker, "target").drain() == []
    assert await discharge(broker, transaction_id) is None
    assert bodies(await Receiver(broker, "target").receive(1)) == ["out"]


async def test_the_way_to_other_entities_may_be_known_only_after_the_declaration(clock: Clock) -> None:
    broker = open_broker(QueueDescription("via"), QueueDescription("target"), clock=clock)
    await send(broker, "via", encoded("in"))
    found: list[Any] = [None]
    transaction_id = broker.transactions.declare(OWNER, lambda: found[0])
    found[0] = broker.namespace.entity("via")
    (delivery,) = await Receiver(broker, "via").receive(1)
    broker.work.settle(transaction_id, "via", delivery.token, Complete(), settled=True)
    work(broker, transaction_id, "target", encoded("out"))
    assert await discharge(broker, transaction_id) is None
    assert bodies(await Receiver(broker, "target").receive(1)) == ["out"]


async def test_a_transfer_to_a_missing_entity_is_dead_lettered_where_it_left(clock: Clock) -> None:
    broker = open_broker(QueueDescription("via"), clock=clock)
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    via = broker.namespace.entity("via")
    assert via is not None
    broker.transactions.transfer(None, via, encoded("lost"), "nowhere", answer.set_result)
    assert await asyncio.wait_for(answer, WAIT_S) is None
    (dead,) = decoded(await Receiver(broker, "via/$Transfer/$DeadLetterQueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "MessagingEntityNotFound"


async def test_scheduling_in_a_transaction_tells_the_numbers_and_keeps_them(clock: Clock) -> None:
    from proton import timestamp

    broker = open_broker(QueueDescription("q"), clock=clock)
    at = timestamp(clock.now_ms() + 1_000)
    transaction_id = broker.transactions.declare(OWNER)
    data = encoded("later", annotations={"x-opt-scheduled-enqueue-time": at})
    numbers = await broker.work.schedule(transaction_id, "q", [data])
    assert await broker.messages.peek("q", 0, 10, 1 << 20) == []
    assert await discharge(broker, transaction_id) is None
    await broker.messages.cancel_scheduled("q", numbers)


async def test_a_transaction_holds_at_most_a_hundred_messages(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    for _ in range(100):
        work(broker, transaction_id, "q", encoded("x"))
    with pytest.raises(BrokerError) as refused:
        work(broker, transaction_id, "q", encoded("x"))
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED


async def test_a_transfer_through_an_entity_outside_the_transaction_is_refused(clock: Clock) -> None:
    broker = open_broker(QueueDescription("a"), QueueDescription("via"), QueueDescription("to"), clock=clock)
    via = broker.namespace.entity("via")
    assert via is not None
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "a", encoded("x"))
    answers: list[BrokerError | None] = []
    broker.transactions.transfer(transaction_id, via, encoded("y"), "to", answers.append)
    assert [answer.condition for answer in answers if answer is not None] == [Condition.NOT_ALLOWED]
    error = await discharge(broker, transaction_id)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK


async def test_transfers_of_a_transaction_leave_through_one_entity(clock: Clock) -> None:
    broker = open_broker(QueueDescription("a"), QueueDescription("b"), QueueDescription("to"), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    answers: list[BrokerError | None] = []
    for name in ("a", "b"):
        via = broker.namespace.entity(name)
        assert via is not None
        broker.transactions.transfer(transaction_id, via, encoded(name), "to", answers.append)
    assert answers[0] is None
    assert answers[1] is not None
    assert "cannot span multiple top-level entities" in answers[1].description


async def test_sent_and_scheduled_messages_of_a_transaction_are_duplicates_of_each_other(clock: Clock) -> None:
    from proton import timestamp

    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True), clock=clock)
    at = {"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + 1_000)}
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("sent", id="1"))
    for body in ("scheduled", "again"):
        await broker.work.schedule(transaction_id, "q", [encoded(body, id="2", annotations=at)])
    await broker.work.schedule(transaction_id, "q", [encoded("third", id="1", annotations=at)])
    assert await discharge(broker, transaction_id) is None
    found = await broker.messages.peek("q", 0, 10, 1 << 20)
    messages = [read(payload) for payload in found]
    assert [bytes(message.body).decode() for message in messages] == ["scheduled", "sent"]


async def test_a_transaction_on_an_entity_that_was_deleted_is_rolled_back(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    transaction_id = broker.transactions.declare(OWNER)
    work(broker, transaction_id, "q", encoded("x"))
    entity = broker.namespace.entity("q")
    assert entity is not None
    broker.administration.delete("q")
    await loop_turns(20)
    error = await discharge(broker, transaction_id)
    assert error is not None
    assert error.condition is Condition.TRANSACTION_ROLLBACK
    assert sum(entity.partitions[0].worker.counters(entity.queue_id).messages) == 0
