"""What becomes of messages whose target does not take them: each row of docs/reference/waiting.md."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from docs.generate.waiting import PAGE, ROWS, Fate, Obstacle, Row, Way, page
from emubus.broker.api import Complete, DeadLetter, Home, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.model.profiles import Profile

from .driving import decoded, encoded, read
from .namespace import Receiver, forwarding_count, loop_turns, open_broker, send

TARGET = QueueDescription("target")
STATUS = {
    Obstacle.DISABLED: EntityStatus.DISABLED,
    Obstacle.SEND_DISABLED: EntityStatus.SEND_DISABLED,
    Obstacle.RECEIVE_DISABLED: EntityStatus.RECEIVE_DISABLED,
}
BODIES = ["1", "2"]
TOO_LARGE_BYTES = 2 << 20  # twice what an entity of Premium takes if it is not asked for more


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


async def settled(clock: Clock, rounds: int = 3) -> None:
    """Let the forwarder make its attempts."""
    for _ in range(rounds):
        clock.advance(1_000)
        await loop_turns(50)


def counts(broker: Broker, path: str) -> dict[Home, int]:
    """How many messages are where in an entity."""
    entity = broker.namespace.entity(path)
    assert entity is not None
    return {Home(home): count for home, count in enumerate(entity.message_counts()) if count}


def there(broker: Broker, path: str = "target") -> int:
    """How many messages have arrived."""
    return 0 if broker.namespace.entity(path) is None else counts(broker, path).get(Home.ACTIVE, 0)


def put_up(broker: Broker, obstacle: Obstacle) -> Callable[[], object]:
    """Put up an obstacle; returns what takes it away."""
    administration, target = broker.administration, broker.namespace.entity("target")
    assert target is not None
    match obstacle:
        case Obstacle.MISSING:
            administration.delete("target")
            return lambda: administration.create(TARGET)
        case Obstacle.FULL:
            part = target.partitions[0]
            size, part.size_bytes_max = part.size_bytes_max, 1
            return lambda: setattr(part, "size_bytes_max", size)
        case Obstacle.OUT:
            store = target.partitions[0].worker.index
            broker.outages.begin(store, Outage(OutageKind.DOWN))
            return lambda: broker.outages.end(store)
        case Obstacle.DISABLED | Obstacle.SEND_DISABLED | Obstacle.RECEIVE_DISABLED:
            administration.update(replace(TARGET, status=STATUS[obstacle]))
    return lambda: administration.update(TARGET)


def namespace_for(row: Row, clock: Clock) -> Broker:
    """A source on one store, and its target on another one."""
    to = "source" if row.obstacle is Obstacle.HOPS else "target"
    source = QueueDescription("source")
    if row.way is Way.FORWARD:
        source = replace(source, forward_to=to)
    if row.way is Way.DEAD_LETTER:
        source = replace(source, forward_dead_letters_to=to)
    target = replace(
        TARGET,
        requires_session=row.obstacle is Obstacle.NO_SESSION,
        requires_duplicate_detection=row.obstacle is Obstacle.DUPLICATE,
    )
    profile = Profile.STANDARD
    if row.obstacle is Obstacle.TOO_LARGE:
        profile, source = Profile.PREMIUM, replace(source, max_message_bytes=4 << 20)
    broker = open_broker(source, target, clock=clock, profile=profile)
    stores = [entity.partitions[0].worker.index for entity in broker.namespace.entities()]
    assert len(set(stores)) == 2
    return broker


async def set_out(broker: Broker, way: Way, body: str) -> None:
    """Send a message on its way."""
    data = encoded(body, id=body[:2])
    if way is Way.TRANSFER:
        via = broker.namespace.entity("source")
        assert via is not None
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        broker.transactions.transfer(None, via, data, "target", answer.set_result)
        assert await answer is None
        return
    await send(broker, "source", data)
    if way is Way.DEAD_LETTER:
        await bury(broker)


async def bury(broker: Broker) -> None:
    receiver = Receiver(broker, "source")
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, DeadLetter("bad", None, {})) is None
    await loop_turns(20)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.way.name} {row.obstacle.name}")
async def test_each_row(row: Row, clock: Clock) -> None:
    broker = namespace_for(row, clock)
    if row.obstacle is Obstacle.TOO_LARGE:
        with pytest.raises(BrokerError, match="exceeds the limit"):
            await send(broker, "target", encoded("." * TOO_LARGE_BYTES))
    if row.obstacle is Obstacle.DUPLICATE:
        for body in BODIES:
            await send(broker, "target", encoded("first", id=body))
    take_away = put_up(broker, row.obstacle)
    for body in BODIES:
        await set_out(broker, row.way, body + "." * (TOO_LARGE_BYTES if row.obstacle is Obstacle.TOO_LARGE else 0))
    await settled(clock)
    if (row.way, row.obstacle) == (Way.DEAD_LETTER, Obstacle.HOPS):
        while there(broker, "source"):  # they come back until they have had their hops
            await bury(broker)
            await settled(clock)
    match row.fate:
        case Fate.ARRIVES:
            assert there(broker) == 2
            assert counts(broker, "source") == {}
        case Fate.IS_DROPPED:
            assert (there(broker), counts(broker, "source")) == (2, {})
        case Fate.IS_BURIED | Fate.STAYS:
            assert counts(broker, "source") == {Home.DEAD_LETTER: 2}
            dead = [
                read(each).properties for each in await broker.messages.peek("source/$DeadLetterQueue", 0, 9, 1 << 20)
            ]
            assert {each["DeadLetterReason"] for each in dead} == {row.reason or "bad"}
            assert there(broker) == 0
        case Fate.IS_BURIED_IN_TRANSFER:
            assert counts(broker, "source") == {Home.TRANSFER_DEAD_LETTER: 2}
            dead = [
                message.properties
                for message in decoded(await Receiver(broker, "source/$Transfer/$DeadLetterQueue").drain())
            ]
            assert {each["DeadLetterReason"] for each in dead} == {row.reason}
        case Fate.WAITS:
            if row.obstacle is not Obstacle.OUT:
                assert there(broker) == 0
            home = Home.TRANSFER_OUTBOX if row.way is Way.TRANSFER else Home.DEAD_LETTER
            if row.obstacle in (Obstacle.MISSING, Obstacle.FULL):
                assert counts(broker, "source") == {home: 2}
            take_away()
            await settled(clock)
            assert counts(broker, "source") == {}
            arrived = decoded(await Receiver(broker, "target").drain())
            assert [bytes(message.body).decode() for message in arrived] == BODIES


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "python -m docs.generate.waiting"


def test_each_way_has_each_obstacle_once() -> None:
    cases = [(row.way, row.obstacle) for row in ROWS]
    assert len(cases) == len(set(cases))
    assert set(cases) == {(way, each) for way in Way for each in Obstacle} - {(Way.TRANSFER, Obstacle.HOPS)}


# ---- dead letters that wait


async def test_what_waits_is_seen_in_the_dead_letter_queue_and_can_be_acted_on(clock: Clock) -> None:
    source = QueueDescription("source", forward_dead_letters_to="target")
    broker = open_broker(source, TARGET, clock=clock)
    broker.administration.delete("target")
    for body in ("1", "2", "3"):
        await set_out(broker, Way.DEAD_LETTER, body)
    seen = [read(each) for each in await broker.messages.peek("source/$DeadLetterQueue", 0, 9, 1 << 20)]
    assert [each.annotations["x-opt-sequence-number"] for each in seen] == [1, 2, 3]
    assert {each.properties["DeadLetterReason"] for each in seen} == {"bad"}
    with pytest.raises(BrokerError) as refused:
        Receiver(broker, "source/$DeadLetterQueue")
    assert refused.value.condition is Condition.NOT_ALLOWED
    entity = broker.namespace.entity("source")
    assert entity is not None
    assert await entity.resubmit([2], entity) == {2: None}
    assert await broker.messages.delete_by_number("source/$DeadLetterQueue", [3]) == 1
    broker.administration.create(TARGET)
    await settled(clock)
    assert [bytes(each.body) for each in decoded(await Receiver(broker, "target").drain())] == [b"1"]
    assert counts(broker, "source") == {Home.ACTIVE: 1}


async def test_what_waits_can_be_received_once_dead_letters_go_on_no_more(clock: Clock) -> None:
    source = QueueDescription("source", forward_dead_letters_to="target")
    broker = open_broker(source, TARGET, clock=clock)
    broker.administration.delete("target")
    await set_out(broker, Way.DEAD_LETTER, "1")
    broker.administration.update(QueueDescription("source"))
    await settled(clock)
    (delivery,) = await Receiver(broker, "source/$DeadLetterQueue").receive(1)
    assert delivery.sequence_number == 1
    assert forwarding_count(broker) == 0


async def test_dead_letters_that_are_there_go_on_when_that_is_set(clock: Clock) -> None:
    broker = open_broker(QueueDescription("source"), TARGET, clock=clock)
    for body in BODIES:
        await send(broker, "source", encoded(body))
    receiver = Receiver(broker, "source")
    for delivery in reversed(await receiver.receive(2)):
        await receiver.settle(delivery, DeadLetter("bad", None, {}))
    held = await Receiver(broker, "source/$DeadLetterQueue").receive(1)
    broker.administration.update(QueueDescription("source", forward_dead_letters_to="target"))
    await settled(clock)
    assert there(broker) == 1  # the other one is locked
    clock.advance(61_000)
    await settled(clock)
    assert len(held) == 1
    arrived = [bytes(each.body).decode() for each in decoded(await Receiver(broker, "target").drain())]
    assert sorted(arrived) == BODIES
    assert counts(broker, "source") == {}


async def test_a_target_takes_dead_letters_as_it_gets_room_and_in_order(clock: Clock) -> None:
    broker = open_broker(QueueDescription("source", forward_dead_letters_to="target"), TARGET, clock=clock)
    target = broker.namespace.entity("target")
    assert target is not None
    target.partitions[0].size_bytes_max = 2_500
    names = [f"{number:02}" for number in range(9)]
    for name in names:
        await set_out(broker, Way.DEAD_LETTER, name + "x" * 600)
    await settled(clock)
    receiver = Receiver(broker, "target")
    got: list[str] = []
    while len(got) < len(names):
        found = await receiver.drain()
        assert 0 < len(found) < 5
        got += [bytes(each.body).decode()[:2] for each in decoded(found)]
        assert counts(broker, "source").get(Home.DEAD_LETTER, 0) == len(names) - len(got)
        for delivery in found:
            await receiver.settle(delivery, Complete())
        await settled(clock)
    assert got == names


async def test_dead_letters_of_a_subscription_keep_their_number_in_the_topic(clock: Clock) -> None:
    broker = open_broker(TARGET, clock=clock)
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s", forward_dead_letters_to="target"))
    for body in ("0", "1"):
        await send(broker, "t", encoded(body))
    receiver = Receiver(broker, "t/Subscriptions/s")
    for delivery in await receiver.receive(2):
        await receiver.settle(delivery, DeadLetter("bad", None, {}))
    await settled(clock)
    arrived = [each.annotations for each in decoded(await Receiver(broker, "target").drain())]
    assert [each["x-opt-enqueue-sequence-number"] for each in arrived] == [1, 2]
    assert {each["x-opt-deadletter-source"] for each in arrived} == {"t/Subscriptions/s"}


async def test_a_start_looks_for_dead_letters_only_where_they_go_on(clock: Clock, tmp_path: Path) -> None:
    entities = QueueDescription("source", forward_dead_letters_to="target"), QueueDescription("other"), TARGET
    broker = open_broker(*entities, clock=clock, folder=tmp_path)
    broker.administration.delete("target")
    await set_out(broker, Way.DEAD_LETTER, "1")
    await send(broker, "other", encoded())
    receiver = Receiver(broker, "other")
    await receiver.settle((await receiver.receive(1))[0], DeadLetter("bad", None, {}))
    await broker.stop()
    broker = open_broker(*entities, clock=clock, folder=tmp_path)  # with the target, as in a configuration file
    await settled(clock)
    assert there(broker) == 1
    other = broker.namespace.entity("other")
    assert other is not None
    assert other.partitions[0].worker.partition(other.queue_id) is None  # not in memory
    assert counts(broker, "other") == {Home.DEAD_LETTER: 1}
