"""Scheduled messages, duplicates, topics, forwarding: how messages get where they belong. No wire."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from emubus.broker.api import Abandon, DeadLetter, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.service_errors import forwards

from .driving import decoded, encoded, read
from .namespace import Receiver, loop_turns, open_broker, send

START = 1_800_000_000_000


def bodies(deliveries: Any) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


def later(clock: Clock, ms: int, body: str = "x", **fields: Any) -> bytes:
    from proton import timestamp

    annotations = {"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + ms)}
    return encoded(body, annotations=annotations, **fields)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=START, frozen=True)


@pytest.fixture(params=[False, True], ids=["plain", "partitioned"])
def queue(request: pytest.FixtureRequest) -> QueueDescription:
    return QueueDescription("q", enable_partitioning=request.param)


async def settle_down() -> None:
    """Let workers and forwarders finish what they have begun; nothing here waits for real time."""
    await loop_turns(200)


# ---- schedule


async def test_a_scheduled_message_becomes_active_at_its_time(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    (number,) = await broker.messages.schedule("q", [later(clock, 5_000, "a")])
    receiver = Receiver(broker, "q")
    assert await receiver.drain() == []
    assert read((await broker.messages.peek("q", 0, 10, 1 << 20))[0]).annotations["x-opt-message-state"] == 2
    clock.advance(5_000)
    (delivery,) = await receiver.receive(1)
    message = decoded([delivery])[0]
    assert delivery.sequence_number != number
    assert message.annotations["x-opt-enqueued-time"] == START + 5_000
    assert message.annotations["x-opt-scheduled-enqueue-time"] == START + 5_000


async def test_scheduling_counts_as_use(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    assert broker.administration.accessed_at(broker.namespace.find_target("q")) is None
    await broker.messages.schedule("q", [later(clock, 5_000, "a")])
    assert broker.administration.accessed_at(broker.namespace.find_target("q")) == START


@pytest.mark.parametrize("path", ["q", "t"])
async def test_a_message_that_was_scheduled_is_received_as_such(path: str, clock: Clock) -> None:
    is_queue = path == "q"
    broker = (
        open_broker(QueueDescription("q"), clock=clock)
        if is_queue
        else topic_broker(clock, SubscriptionDescription("t", "s"))
    )
    address = "q" if is_queue else "t/Subscriptions/s"
    await send(broker, path, encoded("now"))
    await send(broker, path, later(clock, 5_000, "later"))
    clock.advance(5_000)
    received = await Receiver(broker, address).receive(2)
    states = {bodies([each])[0]: read(each.payload).annotations.get("x-opt-message-state") for each in received}
    assert states == {"now": None, "later": 2}
    peeked = [
        read(each).annotations["x-opt-message-state"] for each in await broker.messages.peek(address, 0, 9, 1 << 20)
    ]
    assert peeked == [0, 0]


async def test_an_operator_sees_of_a_message_that_was_scheduled_where_it_is(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await send(broker, "q", later(clock, 5_000))
    clock.advance(5_000)
    await settle_down()
    (locked,) = await broker.messages.lock_by_number("q", range(1, 5))
    assert read(locked.payload).annotations["x-opt-message-state"] == 0


async def test_a_message_sent_with_a_scheduled_time_waits_too(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    await send(broker, "q", later(clock, 1_000, "later"))
    await send(broker, "q", later(clock, -1_000, "now"))
    receiver = Receiver(broker, "q")
    assert bodies(await receiver.drain()) == ["now"]
    clock.advance(1_000)
    assert bodies(await receiver.receive(1)) == ["later"]


async def test_schedules_survive_a_restart(clock: Clock, queue: QueueDescription, tmp_path: Path) -> None:
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    await broker.messages.schedule("q", [later(clock, 5_000, "a")])
    await broker.stop()
    clock.advance(6_000)
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    assert bodies(await Receiver(broker, "q").receive(1)) == ["a"]


async def test_a_cancelled_message_never_comes(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    numbers = await broker.messages.schedule("q", [later(clock, 1_000, "a"), later(clock, 1_000, "b")])
    await broker.messages.cancel_scheduled("q", numbers[:1])
    with pytest.raises(BrokerError, match=r"Messages not found\. Missing sequence numbers") as refused:
        await broker.messages.cancel_scheduled("q", numbers[:1])
    assert refused.value.condition is Condition.MESSAGE_NOT_FOUND
    clock.advance(1_000)
    receiver = Receiver(broker, "q")
    assert bodies(await receiver.receive(1)) == ["b"]
    with pytest.raises(BrokerError):
        await broker.messages.cancel_scheduled("q", numbers[1:])


async def test_the_time_to_live_of_a_scheduled_message_begins_when_it_is_active(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    await broker.messages.schedule("q", [later(clock, 60_000, ttl=10)])
    clock.advance(60_000)
    await settle_down()
    clock.advance(9_000)
    assert len(await Receiver(broker, "q").drain()) == 1


# ---- duplicates


async def test_a_duplicate_is_accepted_and_dropped(clock: Clock, queue: QueueDescription) -> None:
    queue = replace(queue, requires_duplicate_detection=True, duplicate_window_ms=60_000)
    broker = open_broker(queue, clock=clock)
    for body in ("first", "second"):
        await send(broker, "q", encoded(body, id="m"))
    await send(broker, "q", encoded("other", id="n"))
    receiver = Receiver(broker, "q", ReceiveMode.RECEIVE_AND_DELETE)
    assert sorted(bodies(await receiver.drain())) == ["first", "other"]
    clock.advance(59_000)
    await send(broker, "q", encoded("third", id="m"))
    assert bodies(await receiver.drain()) == []
    clock.advance(1_000)
    await settle_down()
    await send(broker, "q", encoded("fourth", id="m"))
    assert bodies(await receiver.drain()) == ["fourth"]


async def test_duplicates_are_remembered_over_a_restart(clock: Clock, queue: QueueDescription, tmp_path: Path) -> None:
    queue = replace(queue, requires_duplicate_detection=True)
    for _ in range(2):
        broker = open_broker(queue, clock=clock, folder=tmp_path)
        await send(broker, "q", encoded("a", id="m"))
        await broker.stop()
    broker = open_broker(queue, clock=clock, folder=tmp_path)
    assert len(await Receiver(broker, "q").drain()) == 1


async def test_a_batch_is_checked_message_by_message(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True), clock=clock)
    await send(broker, "q", encoded("a", id="1"))
    parts = [encoded("b", id="1"), encoded("c", id="2"), encoded("d", id="2")]
    data = b"".join(b"\x00\x53\x75\xb0" + len(each).to_bytes(4, "big") + each for each in parts)
    await send(broker, "q", data, batch=True)
    assert bodies(await Receiver(broker, "q").drain()) == ["a", "c"]


async def test_a_scheduled_message_takes_part_in_duplicate_detection(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", requires_duplicate_detection=True), clock=clock)
    await broker.messages.schedule("q", [later(clock, 1_000, "a", id="m")])
    await send(broker, "q", encoded("b", id="m"))
    assert await Receiver(broker, "q").drain() == []
    clock.advance(1_000)
    assert bodies(await Receiver(broker, "q").receive(1)) == ["a"]


# ---- topics


def topic_broker(clock: Clock, *subscriptions: SubscriptionDescription, **topic: Any) -> Broker:
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t", **topic))
    for each in subscriptions:
        broker.administration.create(each)
    return broker


@pytest.mark.parametrize("partitioned", [False, True])
async def test_every_subscription_gets_a_copy_with_numbers_of_its_own(clock: Clock, partitioned: bool) -> None:
    names = ("a", "b")
    subscriptions = [SubscriptionDescription("t", name) for name in names]
    broker = topic_broker(clock, *subscriptions, enable_partitioning=partitioned)
    for number in range(20):
        await send(broker, "t", encoded(str(number)))
    for name in names:
        found = await Receiver(broker, f"T/SUBSCRIPTIONS/{name}").drain()
        assert sorted(bodies(found), key=int) == [str(number) for number in range(20)]
        assert all("x-opt-enqueue-sequence-number" in message.annotations for message in decoded(found))


async def test_a_subscription_sees_what_comes_after_it(clock: Clock) -> None:
    broker = topic_broker(clock)
    await send(broker, "t", encoded("lost"))
    broker.administration.create(SubscriptionDescription("t", "s"))
    await send(broker, "t", encoded("seen"))
    assert bodies(await Receiver(broker, "t/Subscriptions/s").drain()) == ["seen"]


async def test_a_subscription_has_a_dead_letter_queue(clock: Clock) -> None:
    broker = topic_broker(clock, SubscriptionDescription("t", "s", max_delivery_count=1))
    await send(broker, "t", encoded("a"))
    receiver = Receiver(broker, "t/Subscriptions/s")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, Abandon())
    (dead,) = decoded(await Receiver(broker, "t/subscriptions/s/$deadletterqueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "MaxDeliveryCountExceeded"


async def test_the_shorter_time_to_live_of_topic_and_subscription_counts(clock: Clock) -> None:
    short = SubscriptionDescription("t", "short", default_ttl_ms=1_000)
    long = SubscriptionDescription("t", "long", default_ttl_ms=60_000)
    broker = topic_broker(clock, short, long, default_ttl_ms=30_000)
    await send(broker, "t", encoded())
    clock.advance(1_000)
    assert await Receiver(broker, "t/Subscriptions/short").drain() == []
    assert len(await Receiver(broker, "t/Subscriptions/long").drain()) == 1
    clock.advance(60_000)
    assert await Receiver(broker, "t/Subscriptions/long").drain() == []


async def test_a_scheduled_message_to_a_topic_is_copied_when_it_is_due(clock: Clock) -> None:
    broker = topic_broker(clock, SubscriptionDescription("t", "s"))
    await broker.messages.schedule("t", [later(clock, 1_000, "a")])
    assert await Receiver(broker, "t/Subscriptions/s").drain() == []
    clock.advance(1_000)
    assert bodies(await Receiver(broker, "t/Subscriptions/s").receive(1)) == ["a"]


async def test_a_message_without_session_goes_to_the_dead_letters_of_a_session_subscription(clock: Clock) -> None:
    sessions = SubscriptionDescription("t", "s", requires_session=True)
    broker = topic_broker(clock, sessions, SubscriptionDescription("t", "plain"))
    await send(broker, "t", encoded("a"))
    (dead,) = decoded(await Receiver(broker, "t/Subscriptions/s/$DeadLetterQueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "Session ID is null."
    assert len(await Receiver(broker, "t/Subscriptions/plain").drain()) == 1


async def test_nothing_can_be_received_from_a_topic_or_sent_to_a_subscription(clock: Clock) -> None:
    broker = topic_broker(clock, SubscriptionDescription("t", "s"))
    for attempt in (
        lambda: Receiver(broker, "t"),
        lambda: broker.open_sender("t/Subscriptions/s", detached=print),
    ):
        with pytest.raises(BrokerError) as refused:
            attempt()
        assert refused.value.condition is Condition.NOT_ALLOWED


# ---- forwarding


async def test_p30_messages_are_forwarded_with_their_key(clock: Clock, queue: QueueDescription) -> None:
    target = QueueDescription("target", enable_partitioning=True)
    broker = open_broker(replace(queue, forward_to="target"), target, clock=clock)
    for number in range(40):
        await send(broker, "q", encoded(str(number), annotations={"x-opt-partition-key": f"k{number % 5}"}))
    found = await Receiver(broker, "target").receive(40)
    assert Counter(bodies(found)) == {str(number): 1 for number in range(40)}
    places: dict[str, set[int]] = {}
    order: dict[str, list[int]] = {}
    for delivery, message in sorted(zip(found, decoded(found), strict=True), key=lambda pair: pair[0].sequence_number):
        key = message.annotations["x-opt-partition-key"]
        places.setdefault(key, set()).add(delivery.sequence_number >> 48)
        order.setdefault(key, []).append(int(bytes(message.body)))
    assert all(len(each) == 1 for each in places.values())
    assert all(numbers == sorted(numbers) for numbers in order.values())


async def test_only_a_message_from_elsewhere_tells_the_number_that_it_had_there(clock: Clock) -> None:
    broker = open_broker(QueueDescription("from", forward_to="to"), QueueDescription("to"), clock=clock)
    await send(broker, "to", encoded("first"))
    await send(broker, "from", encoded("second"))
    await settle_down()
    found = {
        bytes(message.body).decode(): message.annotations.get("x-opt-enqueue-sequence-number")
        for message in decoded(await Receiver(broker, "to").drain())
    }
    assert found == {"first": None, "second": 1}


async def test_forwarding_goes_on_after_a_restart(clock: Clock, tmp_path: Path) -> None:
    source = QueueDescription("q", forward_to="target")
    broker = open_broker(source, QueueDescription("target"), clock=clock, folder=tmp_path)
    for number in range(100):
        await send(broker, "q", encoded(str(number)))
    await broker.stop()
    broker = open_broker(source, QueueDescription("target"), clock=clock, folder=tmp_path)
    assert bodies(await Receiver(broker, "target").receive(100)) == [str(number) for number in range(100)]


async def test_the_fifth_hop_goes_to_the_dead_letter_queue(clock: Clock) -> None:
    chain = [QueueDescription(f"q{n}", forward_to=f"q{n + 1}") for n in range(6)]
    broker = open_broker(*chain, QueueDescription("q6"), clock=clock)
    await send(broker, "q0", encoded("a"))
    (dead,) = decoded(await Receiver(broker, "q4/$DeadLetterQueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "MaxTransferHopCountExceeded"


async def test_dead_letters_are_forwarded_with_their_source(clock: Clock) -> None:
    source = QueueDescription("q", forward_dead_letters_to="grave")
    broker = open_broker(source, QueueDescription("grave"), clock=clock)
    await send(broker, "q", encoded("a"))
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    await receiver.settle(delivery, DeadLetter("bad", "very"))
    (message,) = decoded(await Receiver(broker, "grave").receive(1))
    assert message.annotations["x-opt-deadletter-source"] == "q"
    assert message.properties == {"DeadLetterReason": "bad", "DeadLetterErrorDescription": "very"}


async def test_what_cannot_be_forwarded_is_dead_lettered(clock: Clock) -> None:
    target = QueueDescription("target", status=EntityStatus.DISABLED)
    broker = open_broker(QueueDescription("q", forward_to="target"), target, clock=clock)
    await send(broker, "q", encoded("a"))
    (dead,) = decoded(await Receiver(broker, "q/$DeadLetterQueue").receive(1))
    assert dead.properties["DeadLetterReason"] == "MessagingEntityDisabled"


async def test_nothing_can_be_received_from_an_entity_that_forwards(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", forward_to="target"), QueueDescription("target"), clock=clock)
    with pytest.raises(BrokerError) as refused:
        Receiver(broker, "q")
    assert refused.value.condition is Condition.NOT_ALLOWED


async def test_nothing_can_be_received_from_a_dead_letter_queue_that_is_forwarded(clock: Clock) -> None:
    source = QueueDescription("q", forward_dead_letters_to="grave")
    broker = open_broker(source, QueueDescription("grave"), clock=clock)
    with pytest.raises(BrokerError) as refused:
        Receiver(broker, "q/$DeadLetterQueue")
    assert refused.value.condition is Condition.NOT_ALLOWED
    assert refused.value.description == forwards().description
    await Receiver(broker, "q").drain()


# ---- entities come and go


async def test_a_deleted_queue_is_gone_with_its_messages_and_its_links(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(queue, clock=clock)
    gone: list[BrokerError] = []
    broker.open_sender("q", detached=gone.append)
    for _ in range(20):
        await send(broker, "q", encoded())
    broker.administration.delete("q")
    assert [error.condition for error in gone] == [Condition.NOT_FOUND]
    await settle_down()
    broker.administration.create(queue)
    assert await Receiver(broker, "q").drain() == []
    assert broker.namespace.catalog.deleted == {}


async def test_deleting_a_topic_deletes_its_subscriptions(clock: Clock) -> None:
    broker = topic_broker(clock, SubscriptionDescription("t", "s"))
    broker.administration.delete("t")
    assert broker.namespace.entity("t/Subscriptions/s") is None


async def test_an_idle_queue_is_deleted(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", auto_delete_on_idle_ms=300_000), clock=clock)
    clock.advance(200_000)
    await send(broker, "q", encoded())
    clock.advance(200_000)
    assert broker.namespace.entity("q") is not None
    clock.advance(100_000)
    assert broker.namespace.entity("q") is None


async def test_receiving_from_an_empty_queue_counts_as_use(clock: Clock, queue: QueueDescription) -> None:
    broker = open_broker(replace(queue, auto_delete_on_idle_ms=300_000), clock=clock)
    entity = broker.namespace.find_target("q")
    receiver = Receiver(broker, "q")
    for minutes in (1, 4, 4):
        clock.advance(minutes * 60_000)
        assert await receiver.drain() == []
        assert broker.administration.accessed_at(entity) == clock.now_ms()
    receiver.consumer.close()
    assert broker.namespace.entity("q") is entity


async def test_asking_for_a_message_session_counts_as_use(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", requires_session=True), clock=clock)
    clock.advance(1_000)
    wait = broker.accept_session(
        "q", None, mode=ReceiveMode.PEEK_LOCK, timeout_ms=1_000, granted=print, refused=print, detached=print
    )
    assert broker.administration.accessed_at(broker.namespace.find_target("q")) == START + 1_000
    wait.cancel()


async def test_looking_into_a_queue_keeps_it_from_being_idle(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q", auto_delete_on_idle_ms=300_000), clock=clock)
    clock.advance(200_000)
    await broker.messages.peek("q", 0, 1, 1 << 20)
    clock.advance(200_000)
    assert broker.namespace.entity("q") is not None


async def test_changing_the_status_detaches_the_links(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    gone: list[BrokerError] = []
    broker.open_sender("q", detached=gone.append)
    broker.administration.update(QueueDescription("q", status=EntityStatus.DISABLED))
    assert [error.condition for error in gone] == [Condition.ENTITY_DISABLED]


async def test_the_oldest_messages_are_deleted_in_a_batch(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    for number in range(10):
        await send(broker, "q", encoded(str(number)))
        clock.advance(1_000)
    locked = Receiver(broker, "q")
    await locked.receive(1)
    assert await broker.messages.delete_messages("q", 3, START + 5_000) == 3
    assert await broker.messages.delete_messages("q", 100, START + 5_000) == 1
    assert bodies(await Receiver(broker, "q").drain()) == ["5", "6", "7", "8", "9"]
