"""Consumers of JMS on topics: their subscriptions' names and lives, who may share one, and unsubscribing."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from emubus.amqp.injection.faults import Faults, Target
from emubus.broker.broker import Broker
from emubus.broker.model.descriptions import JmsSubscription, SelectorFilter, SubscriptionDescription
from emubus.codec.types import Symbol

from .jms_client import LIBRARY, JmsClient, premium_broker, refusal, subscriptions
from .test_browsing import bodies
from .wire import ATTACH, DETACH, accepted

PLAIN = "t/Subscriptions/plain"


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with premium_broker() as broker:
        yield broker


def described(broker: Broker, path: str) -> SubscriptionDescription:
    entity = broker.namespace.entity(path)
    assert entity is not None
    assert isinstance(entity.description, SubscriptionDescription)
    return entity.description


async def test_a_connection_is_offered_delays_and_shared_subscriptions(broker: Broker) -> None:
    assert JmsClient(broker).opened.get(7).values == (Symbol("DELAYED_DELIVERY"), Symbol("SHARED-SUBS"))


async def test_a_durable_subscription_keeps_messages_while_its_consumer_is_away(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    (attach,) = client.subscribe("sub")
    assert attach.fields[5].value[0] == "t"
    assert described(broker, "t/Subscriptions/sub$c1$D").jms == JmsSubscription("c1", True, False)
    await client.detach(client.handle, closed=False)
    await client.send("one", "two")
    client.subscribe("sub")
    assert bodies(await client.receive(2)) == ["one", "two"]
    client.wire.dispose(accepted, 0, 1, settled=True)
    client.wire.lose()
    again = JmsClient(broker, "c1")
    await again.send("three")
    again.subscribe("sub")
    assert bodies(await again.receive(1)) == ["three"]


async def test_client_ids_and_names_keep_subscriptions_apart(broker: Broker) -> None:
    for container in ("c1", "c2"):
        client = JmsClient(broker, container)
        client.subscribe("s1")
        client.subscribe("s2")
    expected = [f"t/Subscriptions/{name}${client}$D" for name in ("s1", "s2") for client in ("c1", "c2")]
    assert subscriptions(broker) == [PLAIN, *expected]


async def test_an_unshared_consumer_that_is_not_durable_has_a_subscription_as_long_as_it_lives(broker: Broker) -> None:
    client = JmsClient(broker)
    await client.send("before")
    client.subscribe("qpid-jms:receiver:ID:1:t", durable=False)
    own, _ = sorted(set(subscriptions(broker)), key=lambda path: path == PLAIN)
    assert own.endswith("$$ND")
    assert described(broker, own).jms == JmsSubscription("", False, False)
    subscriber = client.handle
    await client.send("after")
    assert bodies(await client.receive(1, subscriber)) == ["after"]
    await client.detach(subscriber)
    assert subscriptions(broker) == [PLAIN]
    client.subscribe("qpid-jms:receiver:ID:2:t", durable=False)
    client.wire.lose()
    assert subscriptions(broker) == [PLAIN]


async def test_a_second_consumer_of_an_unshared_subscription_is_refused(broker: Broker) -> None:
    JmsClient(broker, "c1").subscribe("sub")
    for topic in ("t", "u"):
        condition, text = refusal(JmsClient(broker, "c1").subscribe("sub", topic))
        assert condition == "amqp:not-allowed"
        assert text.startswith(
            "Cannot create a new consumer on subscriber sub$c1$D because there is already a subscriber using the same "
            "name with an active consumer on the same or different topic."
        )


async def test_names_that_differ_in_case_are_one_subscription(broker: Broker) -> None:
    JmsClient(broker, "c1").subscribe("Orders")
    assert refusal(JmsClient(broker, "c1").subscribe("orders"))[0] == "amqp:not-allowed"
    assert set(subscriptions(broker)) == {PLAIN, "t/Subscriptions/Orders$c1$D"}


@pytest.mark.parametrize(
    ("durable", "names", "full_name"),
    [(True, ("s|global", "s|global2"), "s$$D"), (False, ("s|global-volatile1", "s|global-volatile2"), "s$$ND")],
)
async def test_consumers_share_a_subscription(
    broker: Broker, durable: bool, names: tuple[str, str], full_name: str
) -> None:
    one, two = JmsClient(broker, "ID:1"), JmsClient(broker, "ID:2")
    one.subscribe(names[0], durable=durable, shared="shared global")
    one.subscribe(names[1], durable=durable, shared="shared global")
    two.subscribe(names[0], durable=durable, shared="shared global")
    path = f"t/Subscriptions/{full_name}"
    assert subscriptions(broker) == sorted((PLAIN, path))
    assert described(broker, path).jms == JmsSubscription("", durable, True)
    await two.send("one", "two")
    assert bodies(await one.receive(1, 1)) == ["one"]
    assert bodies(await two.receive(1, 1)) == ["two"]
    await one.detach(1, closed=not durable)
    two.wire.lose()
    assert path in subscriptions(broker)
    one.wire.lose()
    assert (path in subscriptions(broker)) is durable


async def test_a_shared_subscription_of_a_client_id_has_it_in_its_name(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    client.subscribe("s", shared="shared")
    client.subscribe("s|2", shared="shared")
    client.subscribe("s|volatile1", durable=False, shared="shared")
    assert subscriptions(broker) == [PLAIN, "t/Subscriptions/s$c1$D", "t/Subscriptions/s$c1$ND"]


async def test_a_name_is_shared_or_not(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    client.subscribe("s")
    await client.detach(client.handle, closed=False)
    condition, text = refusal(client.subscribe("s", shared="shared"))
    assert condition == "amqp:not-allowed"
    assert text.startswith("The subscriber s$c1$D is not shared")


async def test_a_selector_filters_what_arrives_and_another_one_makes_the_subscription_anew(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    (attach,) = client.subscribe("s", selector="k < 10")
    assert next(iter(attach.fields[5].value[7].values())).value == "k < 10"
    path = "t/Subscriptions/s$c1$D"
    assert described(broker, path).rules[0].filter == SelectorFilter("k < 10")
    await client.detach(client.handle, closed=False)
    await client.send("small", k=1)
    await client.send("large", k=100)
    await client.send("small too", k=2)
    client.subscribe("s", selector="k < 10")
    subscriber = client.handle
    assert bodies(await client.receive(2)) == ["small", "small too"]
    assert refusal(JmsClient(broker, "c1").subscribe("s", selector="k < 11"))[0] == "amqp:not-allowed"
    await client.detach(subscriber, closed=False)
    client.subscribe("s", selector="k < 11")
    await client.send("other", k=3)
    assert bodies(await client.receive(1, client.handle - 1)) == ["other"]


async def test_another_topic_makes_a_durable_subscription_anew(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    client.subscribe("s", "t")
    await client.detach(client.handle, closed=False)
    client.subscribe("s", "u")
    assert subscriptions(broker) == [PLAIN, "u/Subscriptions/s$c1$D"]


async def test_a_plain_subscription_of_the_links_name_serves_clients_of_jms_1_1(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    await client.send("one")
    client.subscribe("plain")
    assert bodies(await client.receive(1)) == ["one"]
    assert subscriptions(broker) == [PLAIN]
    JmsClient(broker, "c1", LIBRARY).subscribe("plain")
    assert subscriptions(broker) == [PLAIN, "t/Subscriptions/plain$c1$D"]


@pytest.mark.parametrize(("shared", "link", "name"), [("", "s", "s"), ("shared global", "s|global", "s|global")])
async def test_unsubscribing_removes_the_subscription(broker: Broker, shared: str, link: str, name: str) -> None:
    client = JmsClient(broker, "c1")
    client.subscribe(link, shared=shared)
    condition, _ = refusal(JmsClient(broker, "c1").unsubscribe(name))
    assert condition == "amqp:not-allowed"
    await client.detach(client.handle, closed=False)
    (attach,) = client.unsubscribe(name)
    assert (attach.code, attach.fields[5].value[0]) == (ATTACH, "t")
    await client.detach(client.handle)
    assert subscriptions(broker) == [PLAIN]
    assert refusal(client.unsubscribe(name))[0] == "amqp:not-found"
    client.subscribe(link, shared=shared)
    assert len(subscriptions(broker)) == 2


async def test_a_fault_of_a_subscription_strikes_its_consumer_and_one_of_the_topic_does_not(broker: Broker) -> None:
    client = JmsClient(broker, "c1")
    client.subscribe("sub")
    faults = Faults([client.wire.server.context], client.wire.state.conditions)
    assert faults.drop_links(Target("t")) == 0
    assert faults.drop_links(Target("t/subscriptions/SUB$c1$D")) == 1
    (detach,) = await client.frames(DETACH)
    assert detach.get(2).value[0] == "amqp:link:detach-forced"


async def test_a_missing_topic_is_not_made(broker: Broker) -> None:
    assert refusal(JmsClient(broker, "c1").subscribe("s", "missing"))[0] == "amqp:not-found"
    assert broker.namespace.entity("missing") is None


async def test_idle_times_of_the_client_are_those_of_its_subscriptions(broker: Broker) -> None:
    idle = {"com.microsoft:subscriber-auto-delete-on-idle-duration-in-seconds": 600}
    JmsClient(broker, "c1", LIBRARY | idle).subscribe("s")
    assert described(broker, "t/Subscriptions/s$c1$D").auto_delete_on_idle_ms == 600_000


@pytest.mark.parametrize("name", ["n" * 51, "a/b", ""])
async def test_the_name_that_the_client_gives_obeys_the_rules_of_names(broker: Broker, name: str) -> None:
    assert refusal(JmsClient(broker, "c" * 60).subscribe(name))[0] == "com.microsoft:argument-out-of-range"
    client = JmsClient(broker, "c" * 60)
    client.subscribe("n" * 50)
    assert subscriptions(broker)[0] == f"t/Subscriptions/{'n' * 50}${'c' * 60}$D"
