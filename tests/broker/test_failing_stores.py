"""Stores that their disk fails: what is refused, what goes on, when they are tried again, and what the log says."""

from __future__ import annotations

import errno
from collections.abc import Callable

import pytest
import structlog

from emubus.broker.api import Complete, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.stores.recovery import PAUSE_MS_MAX, PAUSE_MS_MIN, Recovery
from emubus.storage import Batch, StoreFull

from .driving import decoded, encoded
from .namespace import Receiver, loop_turns, open_broker, per_partition, send

QUEUE = QueueDescription("p", enable_partitioning=True)
BROKEN = partition_for_key("a", 16)


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, manual=True)


class Disk:
    """A failpoint of all stores: it fails for those of its threads that commit while `error` is set."""

    def __init__(self) -> None:
        self.error: OSError | None = None
        self.attempts = 0

    def __call__(self, name: str) -> None:
        self.attempts += name == "recovering"
        if self.error is not None and name in ("commit-started", "recovering"):
            raise self.error


def keyed(key: str, body: str = "x") -> bytes:
    return encoded(body, annotations={"x-opt-partition-key": key})


def break_store(broker: Broker, disk: Disk, index: int) -> None:
    """Only this store's commits and recoveries reach the disk that may fail."""
    for worker in broker.namespace.workers:
        if worker.index != index:
            worker._store._failpoint = lambda _: None  # type: ignore[attr-defined]
    disk.error = OSError(errno.EIO, "Input/output error")


@pytest.fixture
def disk() -> Disk:
    return Disk()


async def refused(broker: Broker, payload: bytes) -> BrokerError:
    with pytest.raises(BrokerError) as raised:
        await send(broker, "p", payload)
    assert raised.value.condition is Condition.SERVER_BUSY
    return raised.value


async def test_a_store_that_fails_is_gone_around_and_comes_back_by_itself(clock: Clock, disk: Disk) -> None:
    broker = open_broker(QUEUE, clock=clock, failpoint=disk)
    entity = broker.namespace.entity("p")
    assert entity is not None
    await send(broker, "p", keyed("a", "kept"))
    break_store(broker, disk, BROKEN)
    assert "not known" in str(await refused(broker, keyed("a")))  # the disk failed during this commit
    assert "Nothing of it was stored" in str(await refused(broker, keyed("a")))
    assert entity.is_limited
    assert [worker.index for worker in broker.namespace.workers if worker.health == "failing"] == [BROKEN]
    for _ in range(32):
        await send(broker, "p", encoded("around"))
    clock.advance(PAUSE_MS_MIN)
    await refused(broker, keyed("a"))
    disk.error = None
    clock.advance(2 * PAUSE_MS_MIN)
    assert not entity.is_limited
    await send(broker, "p", keyed("a", "after"))
    found = await Receiver(broker, "p").drain()
    assert sorted({bytes(each.body).decode() for each in decoded(found)}) == ["after", "around", "kept"]
    assert per_partition(found)[BROKEN] == 2


async def test_a_store_that_fails_costs_nothing_while_nobody_asks(clock: Clock, disk: Disk) -> None:
    """With rows that are due all the while, which the worker can't read."""
    broker = open_broker(QUEUE, clock=clock, failpoint=disk)
    await send(broker, "p", encoded("short", annotations={"x-opt-partition-key": "a"}, ttl=1.0))
    break_store(broker, disk, BROKEN)
    await refused(broker, keyed("a"))
    with structlog.testing.capture_logs() as said:
        clock.advance(3_600_000)
        await loop_turns(1_000)
    assert disk.attempts < 3_600_000 / PAUSE_MS_MAX + 12
    assert said == []
    disk.error = None
    with structlog.testing.capture_logs() as said:
        clock.advance(PAUSE_MS_MAX)
        await loop_turns(50)
    assert [(each["event"], each["store"]) for each in said] == [("messaging store works again", BROKEN)]
    assert await Receiver(broker, "p").drain() == []  # it has expired


async def test_receivers_that_waited_get_what_a_store_holds_once_it_works(clock: Clock, disk: Disk) -> None:
    broker = open_broker(QUEUE, clock=clock, failpoint=disk)
    await send(broker, "p", keyed("a", "kept"))
    break_store(broker, disk, BROKEN)
    await refused(broker, keyed("a"))
    receiver = Receiver(broker, "p")
    assert await receiver.drain() == []
    disk.error = None
    clock.advance(PAUSE_MS_MIN)
    (delivery,) = await receiver.receive(1)
    assert await receiver.settle(delivery, Complete()) is None


async def test_a_server_stops_with_a_store_that_fails(clock: Clock, disk: Disk) -> None:
    broker = open_broker(QUEUE, clock=clock, failpoint=disk)
    break_store(broker, disk, BROKEN)
    await refused(broker, keyed("a"))
    await broker.stop()


async def test_a_full_store_refuses_sends_takes_settlements_and_says_so_once(clock: Clock, disk: Disk) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock, failpoint=disk)
    receiver = Receiver(broker, "q")
    for _ in range(3):
        await send(broker, "q", encoded())
    deliveries = await receiver.receive(3)
    (store,) = {worker for worker in broker.namespace.workers if worker.open_partitions()}
    begin = store._store.begin

    def full(expected_bytes: int, *, frees: bool) -> Batch:
        if frees:
            return begin(expected_bytes, frees=frees)
        raise StoreFull(None, "no room")

    with structlog.testing.capture_logs() as said, pytest.MonkeyPatch.context() as patch:
        patch.setattr(store._store, "begin", full)
        for delivery in deliveries:
            with pytest.raises(BrokerError, match=r"no room.*Nothing of it was stored"):
                await send(broker, "q", encoded())
            assert await receiver.settle(delivery, Complete()) is None
        assert store.health == "full"
    with structlog.testing.capture_logs() as after:
        await send(broker, "q", encoded())
    assert store.health == "available"
    assert [each["event"] for each in (*said, *after)] == ["messaging store is full", "messaging store has room again"]


def attempts_at(clock: Clock, times: list[int], error: Callable[[], Exception | None]) -> Recovery:
    def attempt() -> None:
        times.append(clock.now_ms())
        failure = error()
        if failure is not None:
            raise failure

    return Recovery(clock, "thing", attempt, lambda: None, waits=False, name="it")


async def test_attempts_come_later_and_later_and_begin_anew_after_a_while_without_failure(clock: Clock) -> None:
    broken, times = True, list[int]()
    recovery = attempts_at(clock, times, lambda: OSError("still") if broken else None)
    start = clock.now_ms()
    recovery.fail("first")
    for _ in range(1_200):
        clock.advance(100)
    pauses = [after - before for before, after in zip([start, *times], times, strict=False)]
    assert pauses == [100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 30_000, 30_000]
    assert recovery.failure is not None
    assert (recovery.failure.cause, recovery.failure.since) == ("still", start)
    broken = False
    clock.advance(30_000)
    assert recovery.failure is None
    recovery.fail("again")  # soon after: it goes on where it was
    assert (clock.advance(29_999), recovery.failure is None) == (None, False)
    assert (clock.advance(1), recovery.failure is None) == (None, True)
    clock.advance(PAUSE_MS_MAX)
    recovery.fail("long after")
    assert (clock.advance(100), recovery.failure is None) == (None, True)
    await recovery.stop()
