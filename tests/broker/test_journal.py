"""A broker whose stores share a journal: idle stores make room in it, and sends go on when one of them can't.

A half of the journal holds a few messages only. No wire.
"""

from __future__ import annotations

import asyncio
import errno
import os
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from emubus.broker.api import TABLES, Complete, Outage, OutageKind, partition_for_key
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, UnknownOutcomeError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.stores.group_commits import SYNC_AFTER_MS
from emubus.storage import Journal, Store, StoreFull, read_journal, replay
from emubus.storage.journal import journal as journal_file
from emubus.storage.journal import reading

from .driving import decoded, encoded
from .namespace import WAIT_S, Receiver, loop_turns, open_broker, send

QUEUE = QueueDescription("p", enable_partitioning=True)
HALF_BYTES = 8192
KEYS = {partition_for_key(f"key {number}", 16): f"key {number}" for number in range(300)}
BUSY, IDLE = 3, (5, 9)


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    for module in (journal_file, reading):
        monkeypatch.setattr(module, "HALF_BYTES", HALF_BYTES)
    made = Journal(tmp_path / "journal", "1")
    yield made
    made.close()


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


Opened = tuple[Broker, list[Store]]


@pytest.fixture
def opened(tmp_path: Path, journal: Journal, clock: Clock) -> Callable[[], Opened]:
    """Open a broker with one queue, and return it with its stores."""

    def call() -> Opened:
        stores: list[Store] = []

        def keep(store: Store) -> Store:
            stores.append(store)
            return store

        return open_broker(QUEUE, folder=tmp_path, clock=clock, journal=journal, wrap=keep), stores

    return call


async def put(broker: Broker, store: int, *bodies: str) -> None:
    """Send messages to the partition in a store, one after the other."""
    for body in bodies:
        await send(broker, "p", encoded(body, annotations={"x-opt-partition-key": KEYS[store]}))


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(WAIT_S):
        while not condition():
            await loop_turns()


async def bodies(broker: Broker) -> list[str]:
    """What can be received, sorted."""
    return sorted(bytes(message.body).decode() for message in decoded(await Receiver(broker, "p").drain()))


async def keep_busy(broker: Broker, journal: Journal, laps: int) -> list[str]:
    """Send to one store until so many laps have begun; return the bodies."""
    sent: list[str] = []
    until_lap = journal.lap + laps
    while journal.lap < until_lap:
        sent.append(f"busy {len(sent):04} of {until_lap}")
        await put(broker, BUSY, sent[-1])
        assert len(sent) < 1000
    return sent


async def test_idle_stores_write_their_rows_into_their_files_when_the_journal_wants_room(
    opened: Callable[[], Opened], journal: Journal
) -> None:
    broker, stores = opened()
    for index in IDLE:
        await put(broker, index, f"idle {index}")
    assert [stores[index].has_pending for index in IDLE] == [True, True]
    sent = await keep_busy(broker, journal, 1)
    await until(lambda: not any(stores[index].has_pending for index in IDLE))
    sent += await keep_busy(broker, journal, 4)
    assert await bodies(broker) == sorted([*sent, *(f"idle {index}" for index in IDLE)])
    await broker.stop()
    assert journal.is_empty


@pytest.mark.parametrize("kind", list(OutageKind))
async def test_sends_go_on_when_the_outage_of_one_store_keeps_a_lap_from_beginning(
    opened: Callable[[], Opened], journal: Journal, clock: Clock, kind: OutageKind
) -> None:
    broker, stores = opened()
    (out, _) = IDLE
    await put(broker, out, "before")
    broker.outages.begin(out, Outage(kind, delay_ms=1000))
    sent = [f"{number:03}" for number in range(120)]
    for number, body in enumerate(sent):
        await put(broker, (BUSY, IDLE[1])[number % 2], body)
    assert (journal.lap, stores[out].has_pending, stores[out].wants_flush) == (2, True, True)
    with capture_logs() as logs:
        for _ in range(20):
            clock.advance(250)
            await loop_turns(3)
    assert [line["event"] for line in logs if line["event"] == "flush failed"] == []
    broker.outages.end(out)
    clock.advance(1_000)
    await until(lambda: not stores[out].has_pending)
    await put(broker, out, "after")
    sent += await keep_busy(broker, journal, 3)
    assert await bodies(broker) == sorted(["before", "after", *sent])
    await broker.stop()


async def test_without_room_on_the_disk_for_the_journal_sends_go_into_the_files(
    opened: Callable[[], Opened], journal: Journal, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    broker, stores = opened()
    await put(broker, BUSY, "before")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        for index in range(16):
            await put(broker, index, f"full {index:02}")
        assert [index for index in range(16) if stores[index].has_pending] == []
    await put(broker, BUSY, "later")
    assert stores[BUSY].has_pending
    assert await bodies(broker) == sorted(["before", "later", *(f"full {index:02}" for index in range(16))])
    await broker.stop()


async def test_a_journal_that_fails_leaves_one_outcome_unknown_and_sends_go_on(
    opened: Callable[[], Opened], journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    broker, stores = opened()
    await put(broker, IDLE[0], "idle")
    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", broken)
        with pytest.raises(UnknownOutcomeError, match="Input/output error"):
            await put(broker, BUSY, "unknown")
    clock.advance(1_000)
    await until(lambda: not any(store.has_pending for store in stores))
    await put(broker, BUSY, "next")  # into the file, or into the journal if that works again by now
    await put(broker, IDLE[1], "other")
    assert await bodies(broker) == ["idle", "next", "other"]
    await broker.stop()
    assert journal.is_empty


async def test_a_sync_that_fails_is_said_once_and_nothing_newer_is_stored_before_its_tail(
    tmp_path: Path, journal: Journal, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Durability `second`: what was acknowledged in the last second is written again before a file takes anything."""

    def broken(_: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    unsynced = Journal(tmp_path / "unsynced", "2", waits=False)
    broker = open_broker(QUEUE, folder=tmp_path, clock=clock, journal=unsynced)
    await put(broker, BUSY, "acknowledged")
    with monkeypatch.context() as patch, capture_logs() as logs:
        patch.setattr(os, "fdatasync", broken)
        clock.advance(SYNC_AFTER_MS)
        await until(lambda: unsynced.failed)
        await until(lambda: any(line["event"] == "journal fails" for line in logs))
        with pytest.raises(BrokerError, match="Input/output error"):
            await put(broker, BUSY, "refused")
        with pytest.raises(BrokerError):
            await put(broker, IDLE[0], "refused, too")
        assert unsynced.tail_bytes > 0
    (line,) = [line for line in logs if line["event"] == "journal fails"]
    assert f"{unsynced.tail_bytes} bytes are confirmed and may not be on the disk" in line["cause"]
    for _ in range(20):
        clock.advance(1_000)
        await loop_turns(3)
    await until(lambda: not unsynced.failed)
    assert unsynced.tail_bytes == 0
    await until(lambda: all(worker.available for worker in broker.namespace.workers))
    await put(broker, BUSY, "later")
    assert await bodies(broker) == ["acknowledged", "later"]
    await broker.stop()
    unsynced.close()


async def test_locks_and_settlements_survive_the_way_from_the_journal_into_the_file(
    opened: Callable[[], Opened], journal: Journal
) -> None:
    broker, stores = opened()
    receiver = Receiver(broker, "p")
    await put(broker, IDLE[0], "first", "second")
    first, second = await receiver.receive(2)
    assert await receiver.settle(first, Complete()) is None
    sent = await keep_busy(broker, journal, 1)
    await until(lambda: not stores[IDLE[0]].has_pending)
    assert await receiver.settle(second, Complete()) is None
    assert await bodies(broker) == sent
    await broker.stop()


async def test_what_a_killed_broker_acknowledged_is_there_after_the_replay(
    opened: Callable[[], Opened], journal: Journal, tmp_path: Path, clock: Clock
) -> None:
    broker, stores = opened()
    sent = await keep_busy(broker, journal, 2)
    await put(broker, IDLE[0], "idle")
    killed = tmp_path / "killed"
    for store in stores:
        name = store.path.name  # type: ignore[attr-defined]
        (killed / name).mkdir(parents=True)
        (killed / name / "data.mdb").write_bytes((tmp_path / name / "data.mdb").read_bytes())
    (killed / "namespace").mkdir()
    (killed / "namespace" / "data.mdb").write_bytes((tmp_path / "namespace" / "data.mdb").read_bytes())
    entries = read_journal(journal.path, journal.id)
    await broker.stop()
    for store in stores:
        name = store.path.name  # type: ignore[attr-defined]
        replay(killed / name, TABLES, journal.id, [entry for entry in entries if entry.store == name])
    again = open_broker(folder=killed, clock=clock)
    assert await bodies(again) == sorted([*sent, "idle"])


async def test_a_store_whose_flush_failed_once_is_asked_again(
    opened: Callable[[], Opened], journal: Journal, clock: Clock
) -> None:
    broker, stores = opened()
    await put(broker, IDLE[0], "idle")
    file = stores[IDLE[0]].file  # type: ignore[attr-defined]
    finish, failures = file.finish, list[int]()

    def fail_once(txn: object) -> None:
        if not failures:
            failures.append(1)
            file.finish = finish
            txn.abort()  # type: ignore[attr-defined]
            raise StoreFull(None, "no room")
        finish(txn)

    file.finish = fail_once
    await keep_busy(broker, journal, 1)
    await until(lambda: bool(failures))
    clock.advance(60_000)
    await loop_turns(20)
    for number in range(200):
        await put(broker, BUSY, f"more {number}")
        clock.advance(1_000)
    assert not stores[IDLE[0]].has_pending
    assert journal.lap > 2


async def test_a_copy_that_fails_at_one_store_waits_for_the_flushes_of_the_others(
    opened: Callable[[], Opened], journal: Journal, clock: Clock, tmp_path: Path
) -> None:

    broker, stores = opened()
    for index in IDLE:
        await put(broker, index, f"idle {index}")
    failing, slow = (stores[index].file for index in IDLE)  # type: ignore[attr-defined]
    finish_failing, finish_slow, began, go_on = failing.finish, slow.finish, threading.Event(), threading.Event()

    def fail(txn: object) -> None:
        assert began.wait(20)
        failing.finish = finish_failing
        txn.abort()  # type: ignore[attr-defined]
        raise StoreFull(None, "no room")

    def hold(txn: object) -> None:
        slow.finish = finish_slow
        began.set()
        assert go_on.wait(20)
        finish_slow(txn)

    failing.finish, slow.finish = fail, hold
    copying = asyncio.create_task(broker.maintenance.copy_to(tmp_path / "copy"))
    assert await asyncio.to_thread(began.wait, 20)
    asyncio.get_running_loop().call_later(1, go_on.set)  # with the bug, copy_to has ended before that
    with pytest.raises(BrokerError):
        await copying
    try:
        await put(broker, IDLE[1], "after")
    finally:
        go_on.set()
    assert "after" in await bodies(broker)
