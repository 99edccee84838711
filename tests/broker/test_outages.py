"""Outages of messaging stores: what goes on, what fails, what comes back (P13 to P18). No wire."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from emubus.broker.api import Complete, Outage, OutageKind, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.stores.recovery import PAUSE_MS_MAX

from .driving import decoded, encoded, read
from .namespace import Receiver, loop_turns, open_broker, per_partition, send

OUT = (2, 7, 11)
QUEUE = QueueDescription("p", enable_partitioning=True)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def keyed(key: str, body: str = "x") -> bytes:
    return encoded(body, annotations={"x-opt-partition-key": key})


def begin(broker: Broker, kind: OutageKind, stores: Any = OUT, **options: Any) -> None:
    for index in stores:
        broker.outages.begin(index, Outage(kind), **options)


async def test_a_store_whose_worker_stops_by_a_mistake_refuses_and_the_others_go_on(
    clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = open_broker(QUEUE, clock=clock)
    stopped = partition_for_key("a", 16)
    monkeypatch.setattr(broker.namespace.workers[stopped]._runner, "run", asyncio.Event)  # can't be awaited
    begin(broker, OutageKind.SLOW, (stopped,))
    broker.outages.end(stopped)
    await loop_turns(5)
    for _ in range(32):
        await send(broker, "p", encoded())
    for _ in range(2):
        with pytest.raises(BrokerError) as refused:
            await send(broker, "p", keyed("a"))
        assert refused.value.condition is Condition.SERVER_BUSY
        broker.outages.end(stopped)  # only a restart helps
    places = per_partition(await Receiver(broker, "p").drain())
    assert (sum(places.values()), stopped in places) == (32, False)


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_p13_messages_without_a_key_go_elsewhere(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QUEUE, clock=clock)
    begin(broker, kind)
    for _ in range(130):
        await send(broker, "p", encoded())
    for index in OUT:
        broker.outages.end(index)
    clock.advance(1_000)
    places = per_partition(await Receiver(broker, "p").drain())
    assert sum(places.values()) == 130
    assert set(places) == set(range(16)) - set(OUT)


async def peeked(broker: Broker, first: int = 0) -> tuple[list[int], BrokerError | None]:
    """The bodies that a client sees that goes on behind the last number until there is no more, or an error."""
    seen: list[int] = []
    try:
        while page := await broker.messages.peek("p", first, 7, 1 << 18):
            messages = [read(payload) for payload in page]
            seen += [int(bytes(message.body)) for message in messages]
            first = messages[-1].annotations["x-opt-sequence-number"] + 1
    except BrokerError as error:
        broker.outages.end(OUT[0])
        rest, _ = await peeked(broker, first)
        return seen + rest, error
    return seen, None


async def test_p23_what_a_store_that_is_out_holds_is_peeked_after_the_outage_exactly_once(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    for number in range(160):
        await send(broker, "p", encoded(str(number)))
    begin(broker, OutageKind.DOWN, OUT[:1])
    seen, error = await peeked(broker)
    assert error is not None
    assert error.condition is Condition.SERVER_BUSY
    assert sorted(seen) == list(range(160))


async def test_p23_an_outage_of_another_store_does_not_hide_a_message_session(clock: Clock) -> None:
    broker = open_broker(replace(QUEUE, requires_session=True), clock=clock)
    for number in range(3):
        await send(broker, "p", encoded(str(number), group_id="a"))
    place = partition_for_key("a", 16)
    begin(broker, OutageKind.DOWN, set(range(16)) - {place})
    shown = [read(payload) for payload in await broker.messages.peek("p", 0, 10, 1 << 18, "a")]
    assert [bytes(message.body) for message in shown] == [b"0", b"1", b"2"]


@pytest.mark.parametrize("kind", [OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL])
async def test_p14_messages_with_a_key_fail_for_exactly_the_affected_keys(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QUEUE, clock=clock)
    begin(broker, kind)
    failed: dict[str, Condition] = {}
    for number in range(100):
        key = f"key-{number}"
        try:
            await send(broker, "p", keyed(key))
        except BrokerError as error:
            failed[key] = error.condition
    affected = [f"key-{n}" for n in range(100) if partition_for_key(f"key-{n}", 16) in OUT]
    assert failed == dict.fromkeys(affected, Condition.SERVER_BUSY)


async def test_p15_receiving_goes_on_and_the_rest_comes_back_whole_and_in_order(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    for number in range(160):
        await send(broker, "p", encoded(str(number)))
    begin(broker, OutageKind.DOWN)
    receiver = Receiver(broker, "p")
    found = await receiver.drain()
    assert len(found) == 130
    assert not set(per_partition(found)) & set(OUT)
    for index in OUT:
        broker.outages.end(index)
    rest = await receiver.receive(30)
    assert set(per_partition(rest)) == set(OUT)
    for index in OUT:
        numbers = [d.sequence_number for d in rest if d.sequence_number >> 48 == index]
        assert numbers == sorted(numbers)


async def test_p15_a_lock_survives_an_outage_of_its_store(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    await send(broker, "p", keyed("a"))
    receiver = Receiver(broker, "p")
    (delivery,) = await receiver.receive(1)
    index = delivery.sequence_number >> 48
    begin(broker, OutageKind.DOWN, [index])
    error = await receiver.settle(delivery, Complete())
    assert error is not None
    assert error.condition is Condition.SERVER_BUSY
    broker.outages.end(index)
    assert await receiver.settle(delivery, Complete()) is None


async def test_p16_sessions_fail_for_the_affected_partition_only(clock: Clock) -> None:
    broker = open_broker(QueueDescription("p", enable_partitioning=True, requires_session=True), clock=clock)
    begin(broker, OutageKind.DOWN)
    for number in range(30):
        name = f"s{number}"
        affected = partition_for_key(name, 16) in OUT
        try:
            await send(broker, "p", encoded(group_id=name))
            assert not affected
        except BrokerError:
            assert affected


@pytest.mark.parametrize("kind", list(OutageKind))
async def test_p17_create_update_and_delete_fail_and_leave_nothing_half_made(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QUEUE, clock=clock)
    begin(broker, kind, [5])
    administration = broker.administration
    for change in (
        lambda: administration.create(QueueDescription("new")),
        lambda: administration.update(QueueDescription("p", enable_partitioning=True, max_delivery_count=3)),
        lambda: administration.delete("p"),
    ):
        with pytest.raises(BrokerError) as refused:
            change()
        assert refused.value.condition is Condition.SERVER_BUSY
    assert [entity.path for entity in broker.namespace.entities()] == ["p"]
    entity = broker.namespace.entity("p")
    assert entity is not None
    assert entity.description == QUEUE
    broker.outages.end(5)
    administration.create(QueueDescription("new"))


async def test_p17_a_store_whose_disk_fails_refuses_changes_until_it_works_again(clock: Clock) -> None:
    is_failing = False

    def disk(name: str) -> None:
        if is_failing:
            raise OSError(5, "Input/output error")

    broker = open_broker(QUEUE, clock=clock, failpoint=disk)
    entity = broker.namespace.entity("p")
    assert entity is not None
    administration = broker.administration
    administration.update(replace(QUEUE, max_delivery_count=5))
    is_failing = True
    with pytest.raises(BrokerError):
        await send(broker, "p", keyed("a"))
    changes: list[Callable[[], object]] = [
        lambda: administration.create(QueueDescription("new")),
        lambda: administration.update(replace(QUEUE, max_delivery_count=3)),
        lambda: administration.delete("p"),
    ]
    for change in changes:
        with pytest.raises(BrokerError, match="Input/output error") as refused:
            change()
        assert refused.value.condition is Condition.SERVER_BUSY
        clock.advance(PAUSE_MS_MAX)  # the store was tried, and fails still
    assert [each.path for each in broker.namespace.entities()] == ["p"]
    assert entity.description == replace(QUEUE, max_delivery_count=5)
    is_failing = False
    with pytest.raises(BrokerError):
        changes[0]()
    clock.advance(PAUSE_MS_MAX)
    changes[0]()
    assert sorted(each.path for each in broker.namespace.entities()) == ["new", "p"]


async def test_p17_counts_are_of_what_can_be_reached_and_the_status_is_limited(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    entity = broker.namespace.entity("p")
    assert entity is not None
    assert not entity.is_limited
    begin(broker, OutageKind.DOWN)
    assert entity.is_limited
    for index in OUT:
        broker.outages.end(index)
    assert not entity.is_limited


async def test_p18_an_outage_can_end_by_itself(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    begin(broker, OutageKind.DOWN, range(16), duration_ms=5_000)
    with pytest.raises(BrokerError):
        await send(broker, "p", encoded())
    clock.advance(5_000)
    await send(broker, "p", encoded())


async def test_p18_a_slow_store_answers_later(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    for index in range(16):
        broker.outages.begin(index, Outage(OutageKind.SLOW, delay_ms=2_000))
    sending = asyncio.create_task(send(broker, "p", encoded()))
    await loop_turns(100)
    assert not sending.done()
    clock.advance(2_000)
    await sending
    for index in range(16):
        broker.outages.end(index)


async def test_a_topic_goes_on_through_an_outage(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t", enable_partitioning=True))
    broker.administration.create(SubscriptionDescription("t", "s"))
    begin(broker, OutageKind.DOWN)
    for _ in range(26):
        await send(broker, "t", encoded())
    assert len(await Receiver(broker, "t/Subscriptions/s").drain()) == 26


async def test_nothing_is_lost_or_doubled_by_commits_that_fail_for_a_while(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    accepted: set[str] = set()
    for round_number in range(10):
        if round_number % 3 == 1:
            begin(broker, OutageKind.FAILING, range(16))
        for number in range(20):
            name = f"{round_number}-{number}"
            try:
                await send(broker, "p", keyed(name, name))
                accepted.add(name)
            except BrokerError:
                pass
        for index in range(16):
            broker.outages.end(index)
        clock.advance(1_000)
    found = [bytes(message.body).decode() for message in decoded(await Receiver(broker, "p").drain())]
    assert sorted(found) == sorted(accepted)
