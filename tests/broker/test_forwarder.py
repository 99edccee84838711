"""Forwarding through failures: each message arrives once, and none waits for a store that it does not need. No wire."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from emubus.broker import service_errors
from emubus.broker.api import DeadLetter, Home, Outage, OutageKind, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.partition.records import Record
from emubus.broker.partition.requests import StoreForwarded

from .driving import Driver, decoded, encoded
from .namespace import Receiver, forwarding_count, loop_turns, open_broker, per_partition, send

SOURCE = QueueDescription("from", forward_to="to")
TARGET = QueueDescription("to", enable_partitioning=True)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def bodies(deliveries: Any) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


def store_of(broker: Broker, path: str) -> int:
    entity = broker.namespace.entity(path)
    assert entity is not None
    return entity.partitions[0].worker.index


def key_for(partition: int) -> str:
    return next(key for key in map(str, range(1_000)) if partition_for_key(key, 16) == partition)


async def send_at_once(broker: Broker, address: str, messages: list[bytes]) -> None:
    await asyncio.gather(*(send(broker, address, data) for data in messages))


async def settled(clock: Clock) -> None:
    """Let the forwarder make the attempts for which it waits."""
    for _ in range(3):
        clock.advance(1_000)
        await loop_turns(50)


@pytest.mark.parametrize("kind", [OutageKind.FAILING, OutageKind.FULL, OutageKind.DOWN])
async def test_no_message_is_lost_or_doubled_when_a_partition_of_the_target_fails(
    clock: Clock, kind: OutageKind
) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    out = (store_of(broker, "from") + 1) % 16
    broker.outages.begin(out, Outage(kind))
    names = [f"{number:02}" for number in range(60)]
    await send_at_once(broker, "from", [encoded(name) for name in names])
    await settled(clock)
    broker.outages.end(out)
    await settled(clock)
    assert Counter(bodies(await Receiver(broker, "to").drain())) == Counter(names)


async def test_messages_for_a_partition_that_is_out_hold_up_no_others(clock: Clock) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    out, other = ((store_of(broker, "from") + step) % 16 for step in (1, 2))
    broker.outages.begin(out, Outage(OutageKind.DOWN))
    lost = [encoded(f"{n:03}", annotations={"x-opt-partition-key": key_for(out)}) for n in range(200)]
    await send_at_once(broker, "from", lost)
    await settled(clock)
    await send(broker, "from", encoded("other", annotations={"x-opt-partition-key": key_for(other)}))
    await settled(clock)
    receiver = Receiver(broker, "to")
    assert bodies(await receiver.drain()) == ["other"]
    broker.outages.end(out)
    await settled(clock)
    assert bodies(await receiver.drain()) == [f"{number:03}" for number in range(200)]


async def test_what_a_deleted_target_did_not_take_is_dead_lettered_where_it_came_from(clock: Clock) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    slow, other = ((store_of(broker, "from") + step) % 16 for step in (1, 2))
    broker.outages.begin(slow, Outage(OutageKind.SLOW, 500))
    first, second = (
        encoded(name, annotations={"x-opt-partition-key": key_for(index)})
        for name, index in (("taken", slow), ("left", other))
    )
    await send_at_once(broker, "from", [first, second])
    await loop_turns(50)
    broker.outages.end(slow)  # the commit under way goes on
    broker.administration.delete("to")
    await settled(clock)
    assert bodies(await Receiver(broker, "from/$DeadLetterQueue").drain()) == ["left"]
    for worker in broker.namespace.workers:
        assert worker.partition(2) is None or sum(worker.counters(2).messages) == 0
    assert broker.namespace.catalog.deleted == {}


async def test_a_deleted_entity_is_forwarded_from_no_more(clock: Clock) -> None:
    broker = open_broker(SOURCE, QueueDescription("to"), clock=clock)
    out = store_of(broker, "to")
    broker.outages.begin(out, Outage(OutageKind.DOWN))
    await send(broker, "from", encoded())
    await loop_turns(20)
    broker.outages.end(out)
    broker.administration.delete("from")
    await settled(clock)
    assert forwarding_count(broker) == 0
    assert await Receiver(broker, "to").drain() == []


async def test_a_target_takes_what_fits_and_the_rest_is_dead_lettered(clock: Clock) -> None:
    broker = open_broker(SOURCE, QueueDescription("to"), clock=clock)
    entity = broker.namespace.entity("to")
    assert entity is not None
    entity.partitions[0].size_bytes_max = 3_000
    names = [f"{number:02}" for number in range(10)]
    await send_at_once(broker, "from", [encoded(name + "x" * 600) for name in names])
    await settled(clock)
    there = [body[:2] for body in bodies(await Receiver(broker, "to").drain())]
    dead = decoded(await Receiver(broker, "from/$DeadLetterQueue").drain())
    assert there == names[: len(there)]
    assert len(there) > 2
    assert [bytes(message.body).decode()[:2] for message in dead] == names[len(there) :]
    assert {message.properties["DeadLetterReason"] for message in dead} == {"QuotaExceeded"}


def test_what_comes_a_second_time_needs_no_room() -> None:
    driver = Driver(QueueDescription("q"), size_bytes_max=1_000)
    record = Record(parse_message(encoded("x" * 800)).stored(driver.now, None), driver.now, 0, 1)
    answers: list[BrokerError | None] = []
    for _ in range(2):
        answers.append(driver.ask(StoreForwarded, 8, 0, [(1, record)]))
    assert answers == [None, None]
    assert len(driver.take(5)) == 1


async def test_a_subscription_that_forwards_is_never_idle(clock: Clock) -> None:
    broker = open_broker(QueueDescription("to"), clock=clock)
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s", forward_to="to", auto_delete_on_idle_ms=300_000))
    broker.administration.create(SubscriptionDescription("t", "idle", auto_delete_on_idle_ms=300_000))
    for _ in range(4):
        clock.advance(200_000)
        await send(broker, "t", encoded())
        await loop_turns(20)
    assert [entity.path for entity in broker.namespace.entities()] == ["to", "t", "t/Subscriptions/s"]
    assert len(await Receiver(broker, "to").drain()) == 4


def unkeyed(count: int) -> list[bytes]:
    return [encoded(f"{number:02}") for number in range(count)]


@pytest.mark.parametrize("source_is_partitioned", [True, False])
async def test_messages_without_a_key_are_spread_evenly_over_the_target(
    clock: Clock, source_is_partitioned: bool
) -> None:
    source = QueueDescription("from", forward_to="to", enable_partitioning=source_is_partitioned)
    broker = open_broker(source, TARGET, clock=clock)
    for data in unkeyed(32):
        await send(broker, "from", data)
    await settled(clock)
    assert per_partition(await Receiver(broker, "to").drain()) == dict.fromkeys(range(16), 2)


async def test_messages_with_a_key_between_them_do_not_disturb_the_turns_of_those_without(clock: Clock) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    for data in unkeyed(32):
        await send(broker, "from", data)
        await send(broker, "from", encoded("keyed", annotations={"x-opt-partition-key": key_for(3)}))
    await settled(clock)
    found = await Receiver(broker, "to").drain()
    spread = [each for each, body in zip(found, bodies(found), strict=True) if body != "keyed"]
    assert per_partition(spread) == dict.fromkeys(range(16), 2)


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_messages_without_a_key_do_not_wait_for_stores_that_are_out(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    out = [(store_of(broker, "from") + step) % 16 for step in (1, 2, 9)]
    for index in out:
        broker.outages.begin(index, Outage(kind))
    await send_at_once(broker, "from", unkeyed(200))
    await loop_turns(300)
    assert forwarding_count(broker) == 0
    for index in out:
        broker.outages.end(index)
    await settled(clock)
    found = await Receiver(broker, "to").drain()
    assert Counter(bodies(found)) == Counter(f"{number:02}" for number in range(200))
    assert set(per_partition(found)) == set(range(16)) - set(out)


async def test_a_message_that_a_partition_may_have_stored_is_given_to_no_other(tmp_path: Path, clock: Clock) -> None:
    """The target's commit is stored but not confirmed; then its store goes down, also over a restart."""
    broker = open_broker(SOURCE, TARGET, folder=tmp_path, clock=clock)
    entity = broker.namespace.entity("to")
    assert entity is not None
    target = entity.partitions[0]
    done: list[BrokerError | None] = []
    original = target.submit

    def unconfirmed(request: Any) -> None:
        """Do the work, but answer as after a commit that was not confirmed."""
        if type(request) is StoreForwarded:
            reply = request.reply
            request.reply = lambda error: reply(service_errors.outcome_unknown(0, "the disk failed"))
            done.append(None)
        original(request)

    target.submit = unconfirmed
    await send_at_once(broker, "from", unkeyed(32))
    await loop_turns(100)
    assert done
    broker.outages.begin(0, Outage(OutageKind.DOWN))
    await settled(clock)
    await broker.stop()
    broker = open_broker(SOURCE, TARGET, folder=tmp_path, clock=clock)
    broker.outages.begin(0, Outage(OutageKind.DOWN))
    await settled(clock)
    broker.outages.end(0)
    await settled(clock)
    assert Counter(bodies(await Receiver(broker, "to").drain())) == Counter(f"{number:02}" for number in range(32))


async def test_a_full_partition_of_the_target_leaves_messages_without_a_key_to_the_others(clock: Clock) -> None:
    broker = open_broker(SOURCE, TARGET, clock=clock)
    entity = broker.namespace.entity("to")
    assert entity is not None
    for index in (1, 5):
        entity.partitions[index].size_bytes_max = 1
    await send_at_once(broker, "from", unkeyed(64))
    await settled(clock)
    found = per_partition(await Receiver(broker, "to").drain())
    assert (sum(found.values()), set(found)) == (64, set(range(16)) - {1, 5})


async def test_a_dead_letter_that_is_forwarded_shows_where_it_comes_from_and_no_number_of_there(clock: Clock) -> None:
    dead = QueueDescription("from", forward_dead_letters_to="to")
    broker = open_broker(dead, QueueDescription("to"), QueueDescription("on", forward_to="to"), clock=clock)
    await send(broker, "from", encoded("dead"))
    receiver = Receiver(broker, "from")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, DeadLetter())
    await send(broker, "on", encoded("forwarded"))
    await settled(clock)
    shown = {
        bytes(message.body).decode(): (
            message.annotations.get("x-opt-deadletter-source"),
            message.annotations.get("x-opt-enqueue-sequence-number"),
        )
        for message in decoded(await Receiver(broker, "to").drain())
    }
    assert shown == {"dead": ("from", None), "forwarded": (None, 1)}


@pytest.mark.parametrize(
    ("path", "shown"), [("From/Here", "from/here"), ("Topic/Subscriptions/Mine", "topic/Subscriptions/Mine")]
)
async def test_the_source_of_a_dead_letter_has_queues_and_topics_in_lower_case(
    clock: Clock, path: str, shown: str
) -> None:
    source = QueueDescription("From/Here", forward_dead_letters_to="to")
    broker = open_broker(source, QueueDescription("to"), clock=clock)
    broker.administration.create(TopicDescription("Topic"))
    broker.administration.create(SubscriptionDescription("Topic", "Mine", forward_dead_letters_to="to"))
    await send(broker, path.partition("/Subscriptions/")[0], encoded("dead"))
    receiver = Receiver(broker, path)
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, DeadLetter())
    await settled(clock)
    (message,) = decoded(await Receiver(broker, "to").drain())
    assert message.annotations["x-opt-deadletter-source"] == shown


async def test_a_message_that_was_sent_through_another_path_shows_no_dead_letter_source(clock: Clock) -> None:
    broker = open_broker(QueueDescription("via"), QueueDescription("to"), clock=clock)
    via = broker.namespace.entity("via")
    assert via is not None
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.transactions.transfer(None, via, encoded("sent"), "to", answer.set_result)
    assert await answer is None
    await settled(clock)
    (message,) = decoded(await Receiver(broker, "to").drain())
    assert "x-opt-deadletter-source" not in message.annotations


@pytest.mark.parametrize("turns", range(12))
async def test_a_target_that_comes_at_any_moment_of_an_attempt_gets_the_dead_letter(clock: Clock, turns: int) -> None:
    broker = open_broker(QueueDescription("from", forward_dead_letters_to="to"), clock=clock)
    await send(broker, "from", encoded("dead"))
    receiver = Receiver(broker, "from")
    (delivery,) = await receiver.receive(1)
    settling = asyncio.ensure_future(receiver.settle(delivery, DeadLetter()))
    await loop_turns(turns)
    broker.administration.create(QueueDescription("to"))
    assert await settling is None
    await settled(clock)
    assert bodies(await Receiver(broker, "to").drain()) == ["dead"]


async def test_a_dead_letter_that_is_forwarded_to_its_own_queue_counts_its_hops(clock: Clock) -> None:
    broker = open_broker(QueueDescription("loop", forward_dead_letters_to="loop"), clock=clock)
    await send(broker, "loop", encoded("again"))
    receiver = Receiver(broker, "loop")
    rounds = 0
    while deliveries := await receiver.drain():
        rounds += 1
        assert await receiver.settle(deliveries[0], DeadLetter()) is None
        await settled(clock)
        assert rounds < 10
    assert rounds == 5
    entity = broker.namespace.entity("loop")
    assert entity is not None
    assert {home: count for home, count in enumerate(entity.message_counts()) if count} == {Home.DEAD_LETTER: 1}
