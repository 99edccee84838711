"""Copies whose key the action of a rule changes: each goes to the partition of its new key (P10). No wire."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from proton import timestamp

from emubus.broker.api import Home, Outage, OutageKind, ReceiveMode, SessionReceiver, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)

from .driving import decoded, encoded, read
from .namespace import WAIT_S, Receiver, forwarding_count, loop_turns, open_broker, per_partition, send

ABC = partition_for_key("abc", 16)
NAMES = [f"m{number:02}" for number in range(12)]


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def rule(action: str | None) -> tuple[RuleDescription, ...]:
    return (RuleDescription("r", TrueFilter(), action),)


def with_topic(broker: Broker, action: str, **subscription: Any) -> None:
    broker.administration.create(TopicDescription("t", enable_partitioning=True))
    broker.administration.create(SubscriptionDescription("t", "s", rules=rule(action), **subscription))


async def settled(clock: Clock) -> None:
    """What waits to be tried again has been tried."""
    for _ in range(3):
        clock.advance(1_000)
        await loop_turns(60)


async def receive_session(broker: Broker, session_id: str, count: int) -> list[str]:
    """The bodies of up to `count` messages of a session, in order."""
    granted: asyncio.Future[SessionReceiver] = asyncio.get_running_loop().create_future()
    broker.accept_session(
        "t/Subscriptions/s",
        session_id,
        mode=ReceiveMode.RECEIVE_AND_DELETE,
        timeout_ms=60_000,
        granted=granted.set_result,
        refused=granted.set_exception,
        detached=lambda _: None,
    )
    consumer = await asyncio.wait_for(granted, WAIT_S)
    got: list[Any] = []
    consumer.deliver = got.extend
    consumer.set_credit(count)
    await loop_turns(60)
    return bodies(got)


def bodies(deliveries: Sequence[Any]) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


def in_session(name: str) -> bytes:
    return encoded(name, group_id=f"session {name}")


def counts(broker: Broker, home: Home) -> int:
    entity = broker.namespace.entity("t/Subscriptions/s")
    assert entity is not None
    return entity.message_counts()[home]


async def test_messages_of_many_sessions_become_one_session_in_one_partition(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.SessionId = 'abc'", requires_session=True)
    for name in NAMES:
        await send(broker, "t", in_session(name))
    await settled(clock)
    assert sorted(await receive_session(broker, "abc", 20)) == NAMES
    assert counts(broker, Home.OUTBOX) == 0


async def test_copies_keep_their_order_on_the_way_to_another_partition(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.SessionId = 'abc'", requires_session=True)
    broker.outages.begin(ABC, Outage(OutageKind.FAILING))
    for name in NAMES:
        await send(broker, "t", encoded(name, group_id="one"))
    await settled(clock)
    assert counts(broker, Home.OUTBOX) == 12
    broker.outages.end(ABC)
    await settled(clock)
    assert await receive_session(broker, "abc", 20) == NAMES


async def test_a_copy_on_its_way_survives_a_restart_and_arrives_once(tmp_path: Path, clock: Clock) -> None:
    broker = open_broker(folder=tmp_path, clock=clock)
    with_topic(broker, "SET sys.PartitionKey = 'abc'")
    broker.outages.begin(ABC, Outage(OutageKind.DOWN))
    for name in NAMES:
        await send(broker, "t", encoded(name, annotations={"x-opt-partition-key": "one"}))
    await broker.stop()
    broker = open_broker(folder=tmp_path, clock=clock)
    await settled(clock)
    deliveries = await Receiver(broker, "t/Subscriptions/s").drain()
    assert bodies(deliveries) == NAMES
    assert set(per_partition(deliveries)) == {ABC}


async def test_a_copy_without_a_key_any_more_stays_and_one_with_a_message_id_goes_where_duplicates_are_found(
    clock: Clock,
) -> None:
    broker = open_broker(clock=clock)
    topic = TopicDescription("t", enable_partitioning=True, requires_duplicate_detection=True)
    broker.administration.create(topic)
    broker.administration.create(SubscriptionDescription("t", "s", rules=rule("SET sys.MessageId = 'abc'")))
    broker.administration.create(SubscriptionDescription("t", "bare", rules=rule("REMOVE sys.MessageId")))
    for name in NAMES:
        await send(broker, "t", encoded(name, id=name))
    await settled(clock)
    moved = await Receiver(broker, "t/Subscriptions/s").drain()
    assert (sorted(bodies(moved)), set(per_partition(moved))) == (NAMES, {ABC})
    stayed = per_partition(await Receiver(broker, "t/Subscriptions/bare").drain())
    assert stayed == Counter(partition_for_key(name, 16) for name in NAMES)


async def test_a_copy_keeps_its_time_to_live_and_its_enqueued_number_on_the_way(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.PartitionKey = 'abc'", dead_letter_on_expiration=True)
    broker.outages.begin(ABC, Outage(OutageKind.DOWN))
    one = partition_for_key("one", 16)
    await send(broker, "t", encoded("kept", ttl=60, annotations={"x-opt-partition-key": "one"}))
    await settled(clock)
    clock.advance(20_000)
    broker.outages.end(ABC)
    await settled(clock)
    (peeked,) = await broker.messages.peek("t/Subscriptions/s", 0, 10, 1 << 20)
    shown = read(peeked).annotations
    assert shown["x-opt-enqueue-sequence-number"] == (one << 48) + 1
    assert shown["x-opt-sequence-number"] == (ABC << 48) + 1
    clock.advance(40_000)
    await loop_turns(60)
    assert bodies(await Receiver(broker, "t/Subscriptions/s/$DeadLetterQueue").drain()) == ["kept"]


async def test_a_copy_whose_keys_differ_is_forwarded_by_its_session(clock: Clock) -> None:
    broker = open_broker(QueueDescription("to", enable_partitioning=True), clock=clock)
    with_topic(broker, "SET sys.SessionId = 'abc'", forward_to="to")
    await send(broker, "t", encoded("both", annotations={"x-opt-partition-key": "one"}))
    await settled(clock)
    deliveries = await Receiver(broker, "to").drain()
    assert (bodies(deliveries), set(per_partition(deliveries))) == (["both"], {ABC})
    (message,) = decoded(deliveries)
    assert (message.group_id, message.annotations["x-opt-partition-key"]) == ("abc", "one")


async def test_copies_of_scheduled_messages_go_where_their_new_key_is(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.SessionId = 'abc'", requires_session=True)
    due_at = timestamp(clock.now_ms() + 5_000)
    for name in NAMES:
        data = encoded(name, group_id=name, annotations={"x-opt-scheduled-enqueue-time": due_at})
        await send(broker, "t", data)
    clock.advance(5_000)
    await settled(clock)
    assert sorted(await receive_session(broker, "abc", 20)) == NAMES


async def test_with_a_deleted_subscription_its_copies_on_the_way_are_gone(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.PartitionKey = 'abc'")
    broker.outages.begin(ABC, Outage(OutageKind.FAILING))
    for name in NAMES:
        await send(broker, "t", encoded(name, annotations={"x-opt-partition-key": "one"}))
    await settled(clock)
    broker.outages.end(ABC)
    broker.administration.delete("t/Subscriptions/s")
    await settled(clock)
    assert forwarding_count(broker) == 0
    assert broker.namespace.catalog.deleted == {}
    broker.administration.create(SubscriptionDescription("t", "s"))
    await settled(clock)
    assert await Receiver(broker, "t/Subscriptions/s").drain() == []


async def test_of_a_full_topic_no_copy_is_lost_that_the_topic_has_taken(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    with_topic(broker, "SET sys.PartitionKey = 'abc'")
    subscription = broker.namespace.entity("t/Subscriptions/s")
    assert subscription is not None
    subscription.partitions[ABC].size_bytes_max = 1_000
    for name in NAMES:
        await send(broker, "t", encoded(name, annotations={"x-opt-partition-key": "one"}))
    await settled(clock)
    assert bodies(await Receiver(broker, "t/Subscriptions/s").drain()) == NAMES
