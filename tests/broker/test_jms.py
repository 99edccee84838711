"""Subscriptions and temporary destinations of JMS in the broker: outages, restarts, and what has their path later."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from emubus.broker.access import Access
from emubus.broker.admin.jms import RETRY_AFTER_MS, TopicConsumer
from emubus.broker.api import Entity, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.claims import Claims
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.keys import Right, SharedKey
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
ALL = Claims(Access(verify=False), Clock(), 10, lambda: None, list[str]().append)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def premium(clock: Clock, folder: Path | None = None) -> Broker:
    broker = open_broker(clock=clock, folder=folder, profile=Profile.PREMIUM)
    for name in ("t", "u"):
        if broker.namespace.entity(name) is None:
            broker.administration.create(TopicDescription(name))
    return broker


def names(broker: Broker) -> set[str]:
    return {each.path for each in broker.namespace.entities()} - {"t", "u"}


def begin_outage(broker: Broker) -> None:
    for worker in broker.namespace.workers:
        broker.outages.begin(worker.index, Outage(OutageKind.DOWN))


def end_outage(broker: Broker) -> None:
    for worker in broker.namespace.workers:
        broker.outages.end(worker.index)


async def published(broker: Broker, *numbers: int) -> None:
    for number in numbers:
        await send(broker, "t", encoded(str(number), properties={"k": number}))


async def bodies(receiver: Receiver, count: int) -> list[bytes]:
    messages = [read(delivery.payload) for delivery in await receiver.receive(count)]  # they own the bodies' memory
    return [bytes(message.body) for message in messages]


async def test_what_its_client_leaves_during_an_outage_goes_when_the_stores_are_back(clock: Clock) -> None:
    broker = premium(clock)
    left: list[Entity] = [broker.jms.subscribe(OWN, ALL), broker.jms.subscribe(SHARED, ALL)]
    temporary = broker.jms.make(QueueDescription, ALL)
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
    shared = broker.jms.subscribe(SHARED, ALL)
    begin_outage(broker)
    broker.jms.left(shared)
    receiver = Receiver(broker, broker.jms.subscribe(SHARED, ALL).path)
    end_outage(broker)
    clock.advance(RETRY_AFTER_MS)
    assert names(broker) == {shared.path}
    receiver.consumer.close()
    broker.jms.left(shared)
    assert names(broker) == set()


async def test_what_was_left_does_not_take_another_entity_of_its_path_with_it(clock: Clock) -> None:
    broker = premium(clock)
    shared = broker.jms.subscribe(SHARED, ALL)
    begin_outage(broker)
    broker.jms.left(shared)
    end_outage(broker)
    broker.administration.delete(shared.path)
    again = broker.jms.subscribe(SHARED, ALL)
    clock.advance(RETRY_AFTER_MS)
    assert broker.namespace.entity(shared.path) is again


async def test_a_subscription_that_is_not_there_is_not_made_while_a_store_is_out(clock: Clock) -> None:
    broker = premium(clock)
    broker.outages.begin(3, Outage(OutageKind.DOWN))
    with pytest.raises(BrokerError) as refused:
        broker.jms.subscribe(DURABLE, ALL)
    assert refused.value.condition is Condition.SERVER_BUSY
    assert names(broker) == set()
    broker.outages.end(3)
    assert names(broker) == set()
    broker.jms.subscribe(DURABLE, ALL)
    assert names(broker) == {"t/Subscriptions/s$c$D"}


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_a_durable_subscription_keeps_what_its_selector_matches_over_an_outage(
    clock: Clock, kind: OutageKind
) -> None:
    broker = premium(clock)
    path = broker.jms.subscribe(DURABLE, ALL).path
    await published(broker, 1, 2)
    for worker in broker.namespace.workers:
        broker.outages.begin(worker.index, Outage(kind))
    with pytest.raises(BrokerError):
        await published(broker, 1)
    end_outage(broker)
    clock.advance(1_000)
    await published(broker, 2, 1)
    assert broker.jms.subscribe(DURABLE, holding(broker, t=Right.LISTEN)).path == path
    receiver = Receiver(broker, path)
    assert await bodies(receiver, 2) == [b"1", b"1"]
    assert await receiver.drain() == []


async def test_a_restart_keeps_what_is_durable_with_its_selector_and_messages(clock: Clock, tmp_path: Path) -> None:
    broker = premium(clock, tmp_path)
    durable = broker.jms.subscribe(DURABLE, ALL)
    for consumer in (SHARED, OWN):
        broker.jms.subscribe(consumer, ALL)
    broker.jms.make(TopicDescription, ALL)
    temporary = broker.jms.make(QueueDescription, ALL)
    await send(broker, temporary.path, encoded("gone"))
    await published(broker, 1, 2)
    await broker.stop()
    again = premium(clock, tmp_path)
    assert names(again) == {durable.path}
    found = again.namespace.entity(durable.path)
    assert found is not None
    assert isinstance(found.description, SubscriptionDescription)
    assert found.description.rules[0].filter == SelectorFilter("k = 1")
    await published(again, 2, 1)
    assert await bodies(Receiver(again, found.path), 2) == [b"1", b"1"]


async def test_a_durable_subscription_is_found_on_whichever_topic_in_any_case_and_not_once_it_is_gone(
    clock: Clock,
) -> None:
    broker = premium(clock)
    broker.administration.create(SubscriptionDescription("u", "s$C$D"))  # has the name, and is not of JMS
    broker.jms.subscribe(DURABLE, ALL)
    assert broker.jms.unsubscribe("S", "C", ALL) == "t"
    assert names(broker) == {"u/Subscriptions/s$C$D"}
    with pytest.raises(BrokerError) as refused:
        broker.jms.unsubscribe("s", "c", ALL)
    assert refused.value.condition is Condition.NOT_FOUND


# ---- rights

OTHER = replace(DURABLE, topic_name="u")


def holding(broker: Broker, **rights: Right) -> Claims:
    """What a client may do that has a right on each of these topics."""
    keys = [SharedKey(f"{path}-key", "text", frozenset({right}), path) for path, right in rights.items()]
    access = Access([], verify=True, entity_keys=lambda _: keys)
    claims = Claims(access, broker.clock, 10, lambda: None, list[str]().append)
    for path in rights:
        claims.show_key(f"{path}-key", "text")
    return claims


def refused(act: Callable[[], object]) -> tuple[Condition, str]:
    with pytest.raises(BrokerError) as raised:
        act()
    return raised.value.condition, raised.value.description


async def test_a_subscription_of_a_topic_that_the_caller_may_not_listen_to_is_neither_replaced_nor_told_of(
    clock: Clock,
) -> None:
    broker = premium(clock)
    victim = broker.jms.subscribe(DURABLE, ALL)
    await published(broker, 1)
    receiver = Receiver(broker, victim.path)  # in use, which is no one else's business
    stranger, mine = holding(broker), holding(broker, u=Right.MANAGE)
    assert broker.jms.subscribe(OTHER, mine).path == "u/Subscriptions/s$c$D"
    assert names(broker) == {victim.path, "u/Subscriptions/s$c$D"}
    assert broker.jms.unsubscribe("s", "c", mine) == "u"
    for client in (mine, holding(broker, u=Right.LISTEN), stranger):
        said = [refused(lambda: broker.jms.unsubscribe(name, "c", client)) for name in ("s", "n")]  # noqa: B023
        assert said[0][0] is (Condition.UNAUTHORIZED_ACCESS if client is stranger else Condition.NOT_FOUND)
        assert said[0] == (said[1][0], said[1][1].replace("n$c$D", "s$c$D"))
        assert "'sb://localhost/t'" not in said[0][1]
    assert names(broker) == {victim.path}
    assert await bodies(receiver, 1) == [b"1"]


async def test_who_may_listen_to_a_topic_only_neither_replaces_nor_removes_its_subscriptions(clock: Clock) -> None:
    broker = premium(clock)
    victim = broker.jms.subscribe(DURABLE, ALL)
    client = holding(broker, t=Right.LISTEN, u=Right.MANAGE)
    for act in (
        lambda: broker.jms.subscribe(OTHER, client),
        lambda: broker.jms.subscribe(replace(DURABLE, selector=None), client),
        lambda: broker.jms.unsubscribe("s", "c", client),
    ):
        condition, text = refused(act)
        assert condition is Condition.UNAUTHORIZED_ACCESS
        assert "'Manage' claim(s) are required to perform this operation. Resource: 'sb://localhost/t'" in text
    assert names(broker) == {victim.path}
    assert broker.jms.subscribe(DURABLE, client) is victim
    both = holding(broker, t=Right.MANAGE, u=Right.MANAGE)
    assert broker.jms.subscribe(OTHER, both).path == "u/Subscriptions/s$c$D"  # replaced, as the service does
    assert names(broker) == {"u/Subscriptions/s$c$D"}


async def test_a_consumer_finds_the_subscription_of_its_own_topic_whatever_others_have_that_name(clock: Clock) -> None:
    broker = premium(clock)
    own = broker.jms.subscribe(DURABLE, ALL)
    other = broker.jms.subscribe(OTHER, holding(broker, u=Right.MANAGE))
    Receiver(broker, other.path)
    assert broker.jms.subscribe(DURABLE, ALL) is own


async def test_a_destination_needs_manage_on_it_and_a_temporary_one_on_the_namespace(clock: Clock) -> None:
    broker = premium(clock)
    client = holding(broker, new=Right.MANAGE, other=Right.SEND)
    for name in (None, "other"):
        condition, _ = refused(lambda: broker.jms.make(QueueDescription, client, name))  # noqa: B023
        assert condition is Condition.UNAUTHORIZED_ACCESS
    assert names(broker) == set()
    assert broker.jms.make(QueueDescription, client, "new").path == "new"
