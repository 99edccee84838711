"""The size of an entity: messages above 1 MB count once more [SB: service-bus-quotas], states of message sessions count
[SB: message-sessions]. The broker over stores in memory, whose counters each test compares with its rows at its end."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from emubus.broker.api import TABLES, Abandon, Complete, DeadLetter, Defer, Outage, OutageKind, Outcome, ReceiveMode
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.broker.model.profiles import Profile
from emubus.broker.partition.records import (
    MESSAGES,
    OLD_STATE_VALUE,
    SESSION_STATE,
    STATE,
    STATE_KEY,
    Counters,
    message_key,
    session_number_key,
)
from emubus.broker.partition.upgrades import STORE_UPGRADES
from emubus.storage.contract import upgrade_rows
from emubus.storage.memory_store import MemoryStore

from .driving import encoded
from .namespace import Receiver, loop_turns, open_broker, send
from .test_sessions import Holder

MB = 1 << 20
LARGE = encoded("x" * (2 * MB))
A_MESSAGE = MB - 1_000
HEAD_MAX = 1_000
"""At most so many bytes has a row here besides its message."""


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def size_of(broker: Broker, path: str) -> int:
    """The size of an entity as SizeInBytes shows it."""
    entity = broker.namespace.entity(path)
    assert entity is not None
    of_topic = isinstance(entity.description, TopicDescription)
    return (broker.namespace.totals_of_topic(entity) if of_topic else entity.totals_now()).bytes_used


def is_times_large(size_bytes: int, times: int) -> bool:
    return 0 <= size_bytes - times * len(LARGE) <= times * HEAD_MAX


def large_queue(clock: Clock) -> Broker:
    return open_broker(QueueDescription("q", max_message_bytes=4 * MB), clock=clock, profile=Profile.PREMIUM)


async def test_a_message_above_a_megabyte_counts_twice_in_its_queue(clock: Clock) -> None:
    broker = large_queue(clock)
    await send(broker, "q", LARGE)
    assert is_times_large(size_of(broker, "q"), 2)
    await send(broker, "q", encoded("x" * 1_000))
    await send(broker, "q", LARGE)
    assert is_times_large(size_of(broker, "q") - 1_000, 4)
    receiver = Receiver(broker, "q")
    for delivery in await receiver.receive(3):
        assert await receiver.settle(delivery, Complete()) is None
    assert size_of(broker, "q") == 0


@pytest.mark.parametrize("outcome", [Abandon(), Defer(), DeadLetter("r")], ids=repr)
async def test_it_counts_twice_wherever_it_goes_in_its_queue(outcome: Outcome, clock: Clock) -> None:
    broker = large_queue(clock)
    await send(broker, "q", LARGE)
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, outcome) is None
    assert is_times_large(size_of(broker, "q"), 2)


async def test_a_message_of_a_megabyte_counts_once_also_with_a_reason(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock, profile=Profile.PREMIUM)
    await send(broker, "q", encoded("x" * A_MESSAGE))
    assert A_MESSAGE < size_of(broker, "q") < A_MESSAGE + HEAD_MAX
    receiver = Receiver(broker, "q")
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, DeadLetter("r" * 4_000, "d" * 4_000)) is None
    assert A_MESSAGE + 8_000 < size_of(broker, "q") < A_MESSAGE + 8_000 + HEAD_MAX


@pytest.mark.parametrize("subscriptions", [1, 3])
async def test_it_counts_for_each_subscription_of_a_topic_and_once_more(subscriptions: int, clock: Clock) -> None:
    broker = open_broker(clock=clock, profile=Profile.PREMIUM)
    broker.administration.create(TopicDescription("t", max_message_bytes=4 * MB))
    names = [f"s{number}" for number in range(subscriptions)]
    for name in names:
        broker.administration.create(SubscriptionDescription("t", name))
    await send(broker, "t", LARGE)
    assert is_times_large(size_of(broker, "t"), subscriptions + 1)
    for left, name in zip(range(subscriptions, 0, -1), names, strict=True):
        assert is_times_large(size_of(broker, f"t/Subscriptions/{name}"), 1)
        assert is_times_large(size_of(broker, "t"), left + 1)
        receiver = Receiver(broker, f"t/Subscriptions/{name}")
        (delivery,) = await receiver.receive(1)
        assert await receiver.settle(delivery, Complete()) is None
    assert size_of(broker, "t") == 0


@pytest.mark.parametrize(("of_topic", "room", "fits"), [(False, 3, False), (False, 5, True), (True, 3, False)])
async def test_what_is_full_refuses_a_large_message_by_what_it_would_count(
    of_topic: bool, room: int, fits: bool, clock: Clock
) -> None:
    broker = open_broker(clock=clock, profile=Profile.PREMIUM)
    description = (TopicDescription if of_topic else QueueDescription)("e", max_message_bytes=4 * MB)
    broker.administration.create(description)
    if of_topic:
        broker.administration.create(SubscriptionDescription("e", "s"))
    entity = broker.namespace.entity("e")
    assert entity is not None
    await send(broker, "e", LARGE)
    used = size_of(broker, "e")
    entity.partitions[0].size_bytes_max = room * len(LARGE)
    if fits:
        await send(broker, "e", LARGE)
        assert is_times_large(size_of(broker, "e"), 4)
        return
    with pytest.raises(BrokerError) as refused:
        await send(broker, "e", LARGE)
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    assert f"Size of entity in bytes:{used}, " in refused.value.description


# ---- states of message sessions


async def test_the_state_of_a_session_takes_room_of_its_queue(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    await send(broker, "s", encoded("a", group_id="a"))
    holder = Holder(broker, "a")
    await holder.accepted()
    before = size_of(broker, "s")
    for state in (bytes(10_000), bytes(4_000), b"", bytes(7_000), None):
        await broker.sessions.set_state("s", "a", state)
        assert size_of(broker, "s") == before + len(state or b"")
    await asyncio.gather(*(broker.sessions.set_state("s", "a", bytes(each)) for each in (5_000, 100, 3_000)))
    assert size_of(broker, "s") == before + 3_000
    (delivery,) = await holder.receive(1)
    assert await holder.settle(delivery, Complete()) is None
    assert size_of(broker, "s") == 3_000


async def test_the_state_of_a_session_of_a_subscription_takes_room_of_its_topic(clock: Clock) -> None:
    broker = open_broker(clock=clock)
    broker.administration.create(TopicDescription("t"))
    broker.administration.create(SubscriptionDescription("t", "s", requires_session=True))
    await send(broker, "t", encoded("a", group_id="a"))
    before = size_of(broker, "t")
    answer: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    address = "t/Subscriptions/s"
    broker.accept_session(
        address,
        "a",
        mode=ReceiveMode.PEEK_LOCK,
        timeout_ms=1_000,
        granted=answer.set_result,
        refused=answer.set_exception,
        detached=print,
    )
    await answer
    await broker.sessions.set_state(address, "a", bytes(2_000))
    assert (size_of(broker, address), size_of(broker, "t")) == (before + 2_000, before + 2_000)


async def test_states_alone_fill_a_queue(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    entity = broker.namespace.entity("s")
    assert entity is not None
    entity.partitions[0].size_bytes_max = 10_000
    holder = Holder(broker, "a")
    await holder.accepted()
    await broker.sessions.set_state("s", "a", bytes(10_000))
    with pytest.raises(BrokerError) as refused:
        await send(broker, "s", encoded("a", group_id="a"))
    assert "Size of entity in bytes:10000, Max entity size in bytes: 10000" in refused.value.description
    await broker.sessions.set_state("s", "a", None)
    await send(broker, "s", encoded("a", group_id="a"))


async def test_a_state_is_stored_in_a_full_queue(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    await send(broker, "s", encoded("a", group_id="a"))
    entity = broker.namespace.entity("s")
    assert entity is not None
    entity.partitions[0].size_bytes_max = size_of(broker, "s")
    holder = Holder(broker, "a")
    await holder.accepted()
    with pytest.raises(BrokerError):
        await send(broker, "s", encoded("a", group_id="a"))
    await broker.sessions.set_state("s", "a", bytes(500))
    assert await broker.sessions.state("s", "a") == bytes(500)


async def test_a_state_that_could_not_be_stored_takes_no_room(clock: Clock) -> None:
    broker = open_broker(QueueDescription("s", requires_session=True), clock=clock)
    holder = Holder(broker, "a")
    await holder.accepted()
    await broker.sessions.set_state("s", "a", bytes(1_000))
    entity = broker.namespace.entity("s")
    assert entity is not None
    store = entity.partitions[0].worker.index
    broker.outages.begin(store, Outage(OutageKind.FULL))
    with pytest.raises(BrokerError):
        await broker.sessions.set_state("s", "a", bytes(9_000))
    broker.outages.end(store)
    assert size_of(broker, "s") == 1_000


async def test_sizes_are_the_same_after_a_restart_and_gone_with_the_entity(clock: Clock, tmp_path: Path) -> None:
    queue = QueueDescription("s", requires_session=True, max_message_bytes=4 * MB)
    broker = open_broker(queue, clock=clock, profile=Profile.PREMIUM, folder=tmp_path)
    await send(broker, "s", encoded("x" * (2 * MB), group_id="a"))
    await (holder := Holder(broker, "a")).accepted()
    await broker.sessions.set_state("s", "a", bytes(5_000))
    size_bytes = size_of(broker, "s")
    assert is_times_large(size_bytes - 5_000, 2)
    assert holder.lost == []
    await broker.stop()
    broker = open_broker(queue, clock=clock, profile=Profile.PREMIUM, folder=tmp_path)
    assert size_of(broker, "s") == size_bytes
    broker.administration.delete("s")
    await loop_turns(50)
    broker.administration.create(queue)
    assert size_of(broker, "s") == 0


# ---- a folder of format 5 or older


def test_an_older_store_gets_the_bytes_that_its_counters_lack() -> None:
    store = MemoryStore(TABLES)
    rows = {1: 10, 2: 3 * MB, 3: 20, 4: 2 * MB}
    old = OLD_STATE_VALUE.pack(5, sum(rows.values()), len(rows), *[0] * 9)
    batch = store.begin(8 * MB)
    for number, size in rows.items():
        batch.put(MESSAGES, message_key(7, 0, number), bytes(size))
    batch.put(MESSAGES, message_key(8, 0, 1), bytes(4 * MB))  # another queue's
    for session, size in ((1, 100), (9, 50)):
        batch.put(SESSION_STATE, session_number_key(7, session), bytes(size))
    batch.put(SESSION_STATE, session_number_key(8, 1), bytes(70))
    batch.put(STATE, STATE_KEY.pack(7), old)
    batch.put(STATE, STATE_KEY.pack(9), OLD_STATE_VALUE.pack(3, 0, *[0] * 10))
    upgrade_rows(batch, 5, STORE_UPGRADES)
    batch.commit()
    with store.view() as view:
        counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(7)))
        empty = Counters.unpack(view.get(STATE, STATE_KEY.pack(9)))
    assert (counters.next_counter, counters.bytes_used, counters.messages[0]) == (5, sum(rows.values()), 4)
    assert (counters.large_bytes, counters.state_bytes) == (5 * MB, 150)
    assert (empty.next_counter, empty.size_bytes) == (3, 0)
