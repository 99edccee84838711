"""Subscriptions and temporary destinations of JMS in the broker: outages, restarts, and what has their path later."""

from __future__ import annotations

from pathlib import Path

import pytest

from emubus.broker.admin.jms import RETRY_AFTER_MS, TopicConsumer
from emubus.broker.api import Entity, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import (
    JmsSubscription,
    QueueDescription,
    SelectorFilter,
    SubscriptionDescription,
    TopicDescription,
)
from emubus.broker.model.profiles import Profile

from .driving import encoded, read
from .namespace import Receiver, open_broker, send

DURABLE = TopicConsumer("t", "s", JmsSubscription("c", True, False), "k = 1")
SHARED = TopicConsumer("t", "s", JmsSubscription("", False, True))
OWN = TopicConsumer("t", None, JmsSubscription("", False, False), "k = 1")


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def premium(clock: Clock, folder: Path | None = None) -> Broker:
    broker = open_broker(clock=clock, folder=folder, profile=Profile.PREMIUM)
    for name in ("t", "u"):
        if broker.entity(name) is None:
            broker.administration.create(TopicDescription(name))
    return broker


def names(broker: Broker) -> set[str]:
    return {each.path for each in broker.entities()} - {"t", "u"}


def begin_outage(broker: Broker) -> None:
    for worker in broker.workers:
        broker.begin_outage(worker.index, Outage(OutageKind.DOWN))


def end_outage(broker: Broker) -> None:
    for worker in broker.workers:
        broker.end_outage(worker.index)


async def published(broker: Broker, *numbers: int) -> None:
    for number in numbers:
        await send(broker, "t", encoded(str(number), properties={"k": number}))


async def bodies(receiver: Receiver, count: int) -> list[bytes]:
    messages = [read(delivery.payload) for delivery in await receiver.receive(count)]  # they own the bodies' memory
    return [bytes(message.body) for message in messages]


async def test_what_its_client_leaves_during_an_outage_goes_when_the_stores_are_back(clock: Clock) -> None:
    broker = premium(clock)
    left: list[Entity] = [broker.jms.subscribe(OWN), broker.jms.subscribe(SHARED)]
    temporary = broker.jms.make(QueueDescription)
    assert len(names(broker)) == 3
    begin_outage(broker)
    for each in left:
        broker.jms.left(each)
    broker.jms.delete(temporary)
    clock.advance(RETRY_AFTER_MS)
    assert len(names(broker)) == 3
    end_outage(broker)
    clock.advance(RETRY_AFTER_MS)
    assert names(broker) == set()


async def test_a_subscription_that_is_joined_again_before_the_stores_are_back_stays(clock: Clock) -> None:
    broker = premium(clock)
    shared = broker.jms.subscribe(SHARED)
    begin_outage(broker)
    broker.jms.left(shared)
    receiver = Receiver(broker, broker.jms.subscribe(SHARED).path)
    end_outage(broker)
    clock.advance(RETRY_AFTER_MS)
    assert names(broker) == {shared.path}
    receiver.consumer.close()
    broker.jms.left(shared)
    assert names(broker) == set()


async def test_what_was_left_does_not_take_another_entity_of_its_path_with_it(clock: Clock) -> None:
    broker = premium(clock)
    shared = broker.jms.subscribe(SHARED)
    begin_outage(broker)
    broker.jms.left(shared)
    end_outage(broker)
    broker.administration.delete(shared.path)
    again = broker.jms.subscribe(SHARED)
    clock.advance(RETRY_AFTER_MS)
    assert broker.entity(shared.path) is again


async def test_a_subscription_that_is_not_there_is_not_made_while_a_store_is_out(clock: Clock) -> None:
    broker = premium(clock)
    broker.begin_outage(3, Outage(OutageKind.DOWN))
    with pytest.raises(BrokerError) as refused:
        broker.jms.subscribe(DURABLE)
    assert refused.value.condition is Condition.SERVER_BUSY
    assert names(broker) == set()
    broker.end_outage(3)
    assert names(broker) == set()
    broker.jms.subscribe(DURABLE)
    assert names(broker) == {"t/Subscriptions/s$c$D"}


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_a_durable_subscription_keeps_what_its_selector_matches_over_an_outage(
    clock: Clock, kind: OutageKind
) -> None:
    broker = premium(clock)
    path = broker.jms.subscribe(DURABLE).path
    await published(broker, 1, 2)
    for worker in broker.workers:
        broker.begin_outage(worker.index, Outage(kind))
    with pytest.raises(BrokerError):
        await published(broker, 1)
    end_outage(broker)
    clock.advance(1_000)
    await published(broker, 2, 1)
    assert not broker.jms.needs_creation(DURABLE)
    receiver = Receiver(broker, path)
    assert await bodies(receiver, 2) == [b"1", b"1"]
    assert await receiver.drain() == []


async def test_a_restart_keeps_what_is_durable_with_its_selector_and_messages(clock: Clock, tmp_path: Path) -> None:
    broker = premium(clock, tmp_path)
    durable = broker.jms.subscribe(DURABLE)
    for consumer in (SHARED, OWN):
        broker.jms.subscribe(consumer)
    broker.jms.make(TopicDescription)
    temporary = broker.jms.make(QueueDescription)
    await send(broker, temporary.path, encoded("gone"))
    await published(broker, 1, 2)
    await broker.stop()
    again = premium(clock, tmp_path)
    assert names(again) == {durable.path}
    found = again.jms.durable_subscription("s", "c")
    assert isinstance(found.description, SubscriptionDescription)
    assert found.description.rules[0].filter == SelectorFilter("k = 1")
    await published(again, 2, 1)
    assert await bodies(Receiver(again, found.path), 2) == [b"1", b"1"]


async def test_a_durable_subscription_is_found_on_whichever_topic_in_any_case_and_not_once_it_is_gone(
    clock: Clock,
) -> None:
    broker = premium(clock)
    broker.administration.create(SubscriptionDescription("u", "s$C$D"))  # has the name, and is not of JMS
    path = broker.jms.subscribe(DURABLE).path
    assert broker.jms.durable_subscription("S", "C").path == path
    broker.administration.delete("t")
    with pytest.raises(BrokerError) as refused:
        broker.jms.durable_subscription("s", "c")
    assert refused.value.condition is Condition.NOT_FOUND
    assert broker.jms.needs_creation(DURABLE)
