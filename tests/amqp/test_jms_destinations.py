"""Temporary queues and topics of JMS, what the library for JMS 2.0 makes, and delivery delays."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from emubus.broker.access import Access
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription, TopicDescription
from emubus.codec.types import Described, Long, Symbol, Timestamp, Uint, Ulong

from ..broker.namespace import send
from .asking import sections
from .jms_client import LIBRARY, JmsClient, message, premium_broker, refusal, subscriptions, symbols
from .test_browsing import START, bodies
from .wire import ATTACH, DETACH, Frame

LIFETIME = {Symbol("lifetime-policy"): Described(Ulong(0x2B), [])}


@pytest.fixture
async def broker() -> AsyncIterator[Broker]:
    async with premium_broker() as broker:
        yield broker


def make_temporary(client: JmsClient, kind: str) -> list[Frame]:
    target = [None, Uint(0), Symbol("link-detach"), None, True, LIFETIME, symbols(f"temporary-{kind}")]
    return client.attach(f"qpid-jms:temp-{kind}-creator:ID:1:{client.handle}", [], target, receives=False)


def made(client: JmsClient, kind: str) -> str:
    (attach,) = make_temporary(client, kind)
    assert attach.code == ATTACH
    return str(attach.fields[6].value[0])


def consume(client: JmsClient, address: str, capability: str) -> list[Frame]:
    source = [address, Uint(0), Symbol("link-detach"), *[None] * 7, symbols(capability)]
    return client.attach(f"qpid-jms:receiver:{client.handle}:{address}", source, [], receives=True)


def produce(client: JmsClient, address: str, capability: str) -> list[Frame]:
    return client.attach(f"s{client.handle}", [], [address, *[None] * 5, symbols(capability)], receives=False)


async def test_a_temporary_queue_takes_replies_of_others_until_its_client_deletes_it(broker: Broker) -> None:
    client, replier = JmsClient(broker), JmsClient(broker, "ID:2")
    queue, creator = made(client, "queue"), 1
    entity = broker.namespace.entity(queue)
    assert entity is not None
    assert isinstance(entity.description, QueueDescription)
    consume(client, queue, "temporary-queue")
    await replier.send("reply", address=queue)
    assert bodies(await client.receive(1)) == ["reply"]
    client.wire.send(0, DETACH, [Uint(creator), True])
    (answer,) = await client.frames(DETACH)
    assert answer.get(2) is None
    assert broker.namespace.entity(queue) is None
    client.wire.clock.advance(client.wire.limits.deleted_pause_ms)
    (closed,) = await client.frames(DETACH)
    assert closed.get(2).value[0] == "amqp:not-found"
    assert refusal(produce(replier, queue, "temporary-queue"))[0] == "amqp:not-found"


async def test_temporary_destinations_go_with_their_connection(broker: Broker) -> None:
    client = JmsClient(broker)
    names = [made(client, "queue"), made(client, "topic"), made(client, "queue")]
    assert len(set(names)) == 3
    client.wire.lose()
    assert [broker.namespace.entity(name) for name in names] == [None, None, None]


async def test_a_temporary_topic_gives_each_consumer_a_copy(broker: Broker) -> None:
    client = JmsClient(broker)
    topic = made(client, "topic")
    consume(client, topic, "temporary-topic")
    consume(client, topic, "temporary-topic")
    assert len(subscriptions(broker)) == 3
    await send(broker, topic, message("news"))
    assert bodies(await client.receive(1, 2)) == ["news"]
    assert bodies(await client.receive(1, 3)) == ["news"]
    client.wire.lose()
    assert len(subscriptions(broker)) == 1


async def test_a_dynamic_node_of_another_kind_is_refused(broker: Broker) -> None:
    client = JmsClient(broker)
    target = [None, None, None, None, True]
    assert refusal(client.attach("x", [], target, receives=False))[0] == "amqp:not-implemented"
    assert refusal(client.attach("y", [None, None, None, None, True], [], receives=True))[0] == "amqp:not-implemented"


async def test_who_may_not_manage_makes_no_temporary_queue(broker: Broker) -> None:
    client = JmsClient(broker, access=Access(verify=True))
    count = len(list(broker.namespace.entities()))
    assert refusal(make_temporary(client, "queue"))[0] == "amqp:unauthorized-access"
    assert len(list(broker.namespace.entities())) == count


async def test_the_library_for_jms_2_makes_what_is_missing_and_plain_clients_do_not(broker: Broker) -> None:
    idle = {"com.microsoft:queue-auto-delete-on-idle-duration-in-seconds": 600}
    library, plain = JmsClient(broker, properties=LIBRARY | idle), JmsClient(broker)
    assert refusal(produce(plain, "new", "queue"))[0] == "amqp:not-found"
    produce(library, "new", "queue")
    consume(library, "events", "topic")
    assert refusal(produce(library, "gone", "temporary-queue"))[0] == "amqp:not-found"
    assert refusal(consume(library, "new2/$DeadLetterQueue", "queue"))[0] == "amqp:not-found"
    count = len(list(broker.namespace.entities()))
    assert refusal(produce(library, "/", "queue"))[0] == "com.microsoft:argument-out-of-range"
    assert len(list(broker.namespace.entities())) == count
    queue, topic = broker.namespace.entity("new"), broker.namespace.entity("events")
    assert queue is not None
    assert topic is not None
    assert isinstance(topic.description, TopicDescription)
    assert queue.description.auto_delete_on_idle_ms == 600_000
    library.wire.lose()
    assert broker.namespace.entity("new") is queue


@pytest.mark.parametrize("kind", [Long, Timestamp])
@pytest.mark.parametrize("address", ["q", "t"])
async def test_a_delivery_delay_schedules_the_message_and_stays_readable(
    broker: Broker, address: str, kind: type[Long] | type[Timestamp]
) -> None:
    client, clock = JmsClient(broker), broker.clock
    assert isinstance(clock, Clock)
    if address == "t":
        client.subscribe("s")
    else:
        consume(client, "q", "queue")
    consumer = client.handle
    await client.send("later", address=address, x_opt_delivery_time=kind(START + 3_000))
    await client.send("past", address=address, x_opt_delivery_time=kind(START - 1))
    assert bodies(await client.receive(1, consumer)) == ["past"]
    client.wire.flow(consumer, 1, count=1)
    clock.advance(2_999)
    assert await client.wire.turn(20) == []
    clock.advance(1)
    (transfer,) = await client.frames(0x14)
    assert bodies([transfer]) == ["later"]
    assert sections(transfer.payload)[0x72]["x-opt-delivery-time"] == START + 3_000


async def test_a_delayed_message_of_another_type_is_delivered_at_once(broker: Broker) -> None:
    client = JmsClient(broker)
    consume(client, "q", "queue")
    consumer = client.handle
    await client.send("now", address="q", x_opt_delivery_time="soon")
    assert bodies(await client.receive(1, consumer)) == ["now"]
