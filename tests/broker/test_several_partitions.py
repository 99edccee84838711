"""Requests that touch several partitions of an entity: scheduling, cancelling, and full partitions. No wire."""

from __future__ import annotations

import asyncio
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from proton import timestamp

from emubus.broker.api import Home, Outage, OutageKind, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition, UnknownOutcomeError
from emubus.broker.model.descriptions import QueueDescription
from emubus.storage import Batch, Store, StoreFailed, View
from emubus.storage.contract import StoreWithoutJournal

from .driving import decoded, encoded
from .namespace import Receiver, loop_turns, open_broker, send

QUEUE = QueueDescription("p", enable_partitioning=True)
OUTAGES = (OutageKind.DOWN, OutageKind.FAILING, OutageKind.FULL)
FIRST, SECOND = 4, 9


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def key_for(partition: int) -> str:
    return next(key for key in map(str, range(1_000)) if partition_for_key(key, 16) == partition)


def later(clock: Clock, body: str, partition: int | None = None) -> bytes:
    annotations: dict[str, Any] = {"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + 60_000)}
    if partition is not None:
        annotations["x-opt-partition-key"] = key_for(partition)
    return encoded(body, annotations=annotations)


def scheduled(broker: Broker) -> int:
    """How many messages are scheduled, or on their way to be."""
    entity = broker.namespace.entity("p")
    assert entity is not None
    counts = entity.message_counts()
    return counts[Home.SCHEDULED] + counts[Home.TRANSFER_OUTBOX]


async def settled(clock: Clock) -> None:
    for _ in range(3):
        clock.advance(1_000)
        await loop_turns(60)


async def bodies_when_due(broker: Broker, clock: Clock) -> list[str]:
    clock.advance(60_000)
    await settled(clock)
    return sorted(bytes(message.body).decode() for message in decoded(await Receiver(broker, "p").drain()))


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("out", [FIRST, SECOND])
async def test_a_schedule_of_two_keys_stores_nothing_while_the_store_of_one_is_out(
    clock: Clock, kind: OutageKind, out: int
) -> None:
    broker = open_broker(QUEUE, clock=clock)
    broker.outages.begin(out, Outage(kind))
    both = [later(clock, "a", FIRST), later(clock, "b", SECOND)]
    with pytest.raises(BrokerError) as refused:
        await broker.messages.schedule("p", both)
    assert refused.value.condition is Condition.SERVER_BUSY
    assert scheduled(broker) == 0
    broker.outages.end(out)
    await settled(clock)
    numbers = await broker.messages.schedule("p", both)
    assert [number >> 48 for number in numbers] == [FIRST, SECOND]
    assert await bodies_when_due(broker, clock) == ["a", "b"]


async def test_messages_scheduled_together_can_be_cancelled_at_once(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    numbers = await broker.messages.schedule("p", [later(clock, str(index), index) for index in range(16)])
    assert [number >> 48 for number in numbers] == list(range(16))
    await broker.messages.cancel_scheduled("p", numbers)
    assert scheduled(broker) == 0


class Unconfirmed(StoreWithoutJournal):
    """A store whose next commit fails when `tears`: after it is stored if `keeps`, else before."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.blocking, self.waits = store.blocking, store.waits
        self.commits_left: int | None = None
        self.keeps = False

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Batch:
        batch = self._store.begin(expected_bytes, frees=frees)
        if self.commits_left is None:
            return batch
        return cast("Batch", Torn(self, batch))  # it passes on what it does not define

    def view(self) -> View:
        return self._store.view()

    @property
    def failure(self) -> str | None:
        return self._store.failure

    def recover(self) -> None:
        self._store.recover()

    def copy_to(self, path: Path) -> Any:
        return self._store.copy_to(path)

    def close(self) -> None:
        self._store.close()


class Torn:
    """A batch of such a store."""

    def __init__(self, store: Unconfirmed, batch: Batch) -> None:
        self._store = store
        self._batch = batch

    def __getattr__(self, name: str) -> Any:
        return getattr(self._batch, name)

    def commit(self) -> None:
        if self._store.commits_left:
            self._store.commits_left -= 1
            self._batch.commit()
            return
        self._store.commits_left = None
        if self._store.keeps:
            self._batch.commit()
        else:
            self._batch.abort()
        raise StoreFailed(None, "commit failed: the disk failed")


@pytest.mark.parametrize("keeps", [True, False])
@pytest.mark.parametrize("place", [FIRST, SECOND])
@pytest.mark.parametrize("commits_before", [0, 1, 2])
async def test_a_client_that_schedules_again_after_an_error_has_no_message_twice(
    clock: Clock, keeps: bool, place: int, commits_before: int
) -> None:
    stores: list[Unconfirmed] = []

    def wrap(store: Store) -> Store:
        stores.append(Unconfirmed(store))
        return stores[-1]

    broker = open_broker(QUEUE, clock=clock, wrap=wrap)
    stores[place].keeps = keeps
    stores[place].commits_left = commits_before
    both = [later(clock, "a", FIRST), later(clock, "b", SECOND)]
    for _ in range(3):
        try:
            await broker.messages.schedule("p", both)
            break
        except BrokerError:
            await settled(clock)
            assert scheduled(broker) == 0
    await settled(clock)
    assert scheduled(broker) == 2
    assert await bodies_when_due(broker, clock) == ["a", "b"]


@pytest.mark.parametrize("kind", OUTAGES)
async def test_a_schedule_without_a_key_goes_elsewhere_as_a_send_does(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QUEUE, clock=clock)
    for index in (1, 2, 9):
        broker.outages.begin(index, Outage(kind))
    for number in range(48):
        await broker.messages.schedule("p", [later(clock, f"{number:02}")])
    await broker.messages.schedule("p", [later(clock, "x"), later(clock, "y", 4)])
    assert scheduled(broker) == 50


async def test_a_cancellation_with_an_unknown_number_cancels_none(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    known = await broker.messages.schedule("p", [later(clock, "a", FIRST), later(clock, "b", SECOND)])
    for unknown in ((SECOND << 48) + 77, 7 << 48, 99 << 48):
        with pytest.raises(BrokerError) as refused:
            await broker.messages.cancel_scheduled("p", [*known, unknown])
        assert refused.value.condition is Condition.MESSAGE_NOT_FOUND
        assert refused.value.description.endswith(f"Missing sequence numbers: {unknown & 0xFFFFFFFFFFFF}")
        assert scheduled(broker) == 2
    await broker.messages.cancel_scheduled("p", known)
    assert scheduled(broker) == 0


def shrink(broker: Broker, size_bytes_max: int, *indexes: int) -> None:
    entity = broker.namespace.entity("p")
    assert entity is not None
    for index in indexes:
        entity.partitions[index].size_bytes_max = size_bytes_max


async def test_messages_without_a_key_go_past_a_full_partition(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    shrink(broker, 1, 3)
    answers = await asyncio.gather(*(send(broker, "p", encoded("x")) for _ in range(48)), return_exceptions=True)
    assert answers == [None] * 48
    await broker.messages.schedule("p", [later(clock, "x")])


async def test_messages_scheduled_together_fit_if_each_has_room_where_it_belongs(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    shrink(broker, 1_000, *range(16))
    entity = broker.namespace.entity("p")
    assert entity is not None
    long = "x" * 500
    await broker.messages.schedule("p", [later(clock, long, FIRST), later(clock, long, SECOND), later(clock, long)])
    await settled(clock)
    assert scheduled(broker) == 3
    with pytest.raises(BrokerError) as refused:
        await broker.messages.schedule("p", [later(clock, long, FIRST), later(clock, "x", 5)])
    assert refused.value.condition is Condition.RESOURCE_LIMIT_EXCEEDED
    assert scheduled(broker) == 3


async def test_the_error_of_a_full_entity_has_the_figures_of_the_whole_entity(clock: Clock) -> None:
    broker = open_broker(QUEUE, clock=clock)
    shrink(broker, 1_000, *range(16))
    errors: list[BrokerError] = []
    for _ in range(300):
        try:
            await send(broker, "p", encoded("x" * 300))
        except BrokerError as error:
            errors.append(error)
    entity = broker.namespace.entity("p")
    assert entity is not None
    used = entity.totals_now().bytes_used
    assert {error.condition for error in errors} == {Condition.RESOURCE_LIMIT_EXCEEDED}
    (text,) = Counter(error.description for error in errors)
    assert f"Size of entity in bytes:{used}, Max entity size in bytes: 16000" in text
    with pytest.raises(BrokerError) as refused:
        await send(broker, "p", encoded("x" * 300, annotations={"x-opt-partition-key": key_for(5)}))
    assert refused.value.description == text


@pytest.mark.parametrize("kind", OUTAGES)
@pytest.mark.parametrize("out", [FIRST, SECOND])
async def test_a_cancellation_removes_nothing_while_the_store_of_one_message_is_out(
    clock: Clock, kind: OutageKind, out: int
) -> None:
    broker = open_broker(QUEUE, clock=clock)
    numbers = await broker.messages.schedule("p", [later(clock, "a", FIRST), later(clock, "b", SECOND)])
    broker.outages.begin(out, Outage(kind))
    with pytest.raises(BrokerError) as refused:
        await broker.messages.cancel_scheduled("p", numbers)
    assert refused.value.condition is Condition.SERVER_BUSY
    broker.outages.end(out)
    await settled(clock)
    assert scheduled(broker) == 2
    await broker.messages.cancel_scheduled("p", numbers)
    assert scheduled(broker) == 0


@pytest.mark.parametrize("keeps", [True, False])
async def test_the_error_of_a_cancellation_that_a_failing_disk_cut_in_two_says_how_many_are_cancelled(
    clock: Clock, keeps: bool
) -> None:
    stores: list[Unconfirmed] = []

    def wrap(store: Store) -> Store:
        stores.append(Unconfirmed(store))
        return stores[-1]

    broker = open_broker(QUEUE, clock=clock, wrap=wrap)
    numbers = await broker.messages.schedule("p", [later(clock, "a", FIRST), later(clock, "b", SECOND)])
    await settled(clock)
    stores[SECOND].keeps = keeps
    stores[SECOND].commits_left = 1  # that by which the store shows that it commits
    with pytest.raises(UnknownOutcomeError) as refused:
        await broker.messages.cancel_scheduled("p", numbers)
    text = "1 of 2 scheduled messages are cancelled; a store failed then. Peek the rest."
    assert (refused.value.condition, refused.value.description) == (Condition.SERVER_BUSY, text)
    await settled(clock)
    assert scheduled(broker) == (0 if keeps else 1)
    with pytest.raises(BrokerError) as again:
        await broker.messages.cancel_scheduled("p", numbers)
    assert again.value.condition is Condition.MESSAGE_NOT_FOUND
