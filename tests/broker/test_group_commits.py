"""Commits of several stores in groups: which batches go together, and what becomes of each. No store."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

import pytest

from emubus.broker.clock import Clock
from emubus.broker.stores import group_commits
from emubus.broker.stores.committer import Committer
from emubus.broker.stores.group_commits import RETRY_AFTER_MS, SYNC_AFTER_MS, SYNC_BYTES
from emubus.broker.stores.recovery import PAUSE_MS_MIN

from .namespace import loop_turns
from .rowless import RowlessBatch

LIMIT_S = 20


class Log:
    """Commits groups as the test says, and remembers which batches were in one.

    A held group ends with `release`. `refusals` is how often `start` must be tried again; `start_error` and
    `finish_error` are mistakes of this class. One that does not wait ends a group where it starts, if it may, and has
    a tail of so many bytes afterwards.
    """

    def __init__(self, calls: list[str], *, held: bool = False, waits: bool = True, group_bytes: int = 1) -> None:
        self.waits = waits
        self.has_ended = False
        self.heres: list[bool] = []
        self.may_sync = threading.Event()
        self.may_sync.set()
        self._group_bytes = 0 if waits else group_bytes
        self.tail_bytes = 0
        self.syncs = 0
        self.sync_fails = False
        self.refusals = 0
        self.start_error: Exception | None = None
        self.finish_error: Exception | None = None
        self.failure: str | None = None
        self.recoveries = 0
        self._calls = calls
        self._held = held
        self._errors: list[BaseException | None] | None = None
        self._ended, self._end = os.pipe()

    def start(self, batches: Sequence[object], *, here: bool = False) -> bool:
        assert self._errors is None, "a group is under way"
        if self.start_error is not None:
            raise self.start_error
        if self.refusals:
            self.refusals -= 1
            return False
        mine = [batch for batch in batches if isinstance(batch, Batch)]
        self._calls.append(" ".join(batch.name for batch in mine))
        self._errors = [batch.error for batch in mine]
        self.tail_bytes += self._group_bytes
        self.heres.append(here)
        self.has_ended = here
        if not self._held and not here:
            os.write(self._end, b"\0")
        return True

    @property
    def failed(self) -> bool:
        return self.failure is not None

    def release(self) -> None:
        self._held = False
        os.write(self._end, b"\0")

    def fileno(self) -> int:
        return self._ended

    def finish(self) -> list[BaseException | None]:
        if not self.has_ended:
            os.read(self._ended, 1)
        errors, self._errors = self._errors, None
        if self.finish_error is not None:
            raise self.finish_error
        assert errors is not None
        return errors

    def sync(self) -> None:
        assert self.may_sync.wait(LIMIT_S)
        self.syncs += 1
        if self.sync_fails:
            self.failure = "its disk failed"
            raise OSError(self.failure)
        self.tail_bytes = 0

    def recover(self) -> None:
        self.recoveries += 1
        self.failure = None

    def close(self) -> None:
        os.close(self._ended)
        os.close(self._end)


class Batch(RowlessBatch):
    """A batch that a log commits, or that commits alone."""

    def __init__(
        self, name: str, calls: list[str], shared: Log | None = None, error: BaseException | None = None
    ) -> None:
        super().__init__(shared)
        self.name = name
        self.error = error
        self._calls = calls

    def commit(self) -> None:
        assert self.shared is None
        self._calls.append(self.name)
        if self.error is not None:
            raise self.error


@pytest.fixture(autouse=True)
def no_write_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """Batches are written on the loop, however busy the machine is; a test of slow writes makes all slow."""
    monkeypatch.setattr(group_commits, "SLOW_WRITE_US", 3_600_000_000)


@pytest.fixture
def calls() -> list[str]:
    return []


@pytest.fixture
def clock() -> Clock:
    return Clock(manual=True)


@pytest.fixture
async def committer(clock: Clock) -> AsyncIterator[Committer]:
    with ThreadPoolExecutor(1) as pool:
        committer = Committer(pool, 1, clock)
        yield committer
        await committer.forget_groups()


@pytest.fixture
def log(calls: list[str]) -> Iterator[Log]:
    with closing(Log(calls)) as log:
        yield log


@pytest.fixture
def held(calls: list[str]) -> Iterator[Log]:
    with closing(Log(calls, held=True)) as log:
        yield log


@contextmanager
def closing(log: Log) -> Iterator[Log]:
    yield log
    log.close()


async def outcomes(ended: Sequence[asyncio.Future[None]]) -> list[BaseException | None]:
    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*ended, return_exceptions=True)


async def test_batches_of_one_turn_go_together_and_those_without_a_log_alone_in_their_order(
    committer: Committer, calls: list[str], log: Log, held: Log
) -> None:
    held.release()
    os.read(held.fileno(), 1)
    logs = {"s": log, "t": held, "a": None}
    names = ("s1", "a1", "s2", "t1", "s3", "a2", "t2")
    batches = [Batch(name, calls, logs[name[0]]) for name in names]
    assert await outcomes([committer.commit(batch) for batch in batches]) == [None] * 7
    assert sorted(calls) == ["a1", "a2", "s1 s2 s3", "t1 t2"]
    assert [call for call in calls if call[0] == "a"] == ["a1", "a2"]


async def test_each_batch_of_a_group_gets_its_own_error(committer: Committer, calls: list[str], log: Log) -> None:
    errors = [OSError("disk") if number in (1, 4, 7) else None for number in range(9)]
    batches = [Batch(str(n), calls, None if n > 6 else log, error) for n, error in enumerate(errors)]
    assert await outcomes([committer.commit(batch) for batch in batches]) == errors
    assert sorted(calls) == ["0 1 2 3 4 5 6", "7", "8"]


@pytest.mark.parametrize("place", ["start_error", "finish_error"])
async def test_a_group_that_breaks_fails_its_batches_and_no_other(
    committer: Committer, calls: list[str], log: Log, held: Log, place: str
) -> None:
    held.release()
    os.read(held.fileno(), 1)
    setattr(log, place, RuntimeError("a mistake"))
    batches = [Batch(str(n), calls, (log, held, None)[n % 3]) for n in range(9)]
    found = await outcomes([committer.commit(batch) for batch in batches])
    assert [str(error) for error in found] == ["a mistake", "None", "None"] * 3
    setattr(log, place, None)
    assert await outcomes([committer.commit(Batch("more", calls, log))]) == [None]


async def test_what_comes_while_a_group_is_under_way_is_the_next_one(
    committer: Committer, calls: list[str], held: Log
) -> None:
    ended = [committer.commit(Batch("first", calls, held))]
    for number in range(5):
        await loop_turns(2)
        ended.append(committer.commit(Batch(str(number), calls, held)))
    assert (calls, any(each.done() for each in ended)) == (["first"], False)
    held.release()
    assert await outcomes(ended) == [None] * 6
    assert calls == ["first", "0 1 2 3 4"]


async def test_a_batch_that_commits_alone_does_not_wait_for_a_group(
    committer: Committer, calls: list[str], held: Log
) -> None:
    in_group = committer.commit(Batch("s", calls, held))
    assert await outcomes([committer.commit(Batch("alone", calls))]) == [None]
    assert not in_group.done()
    held.release()
    assert await outcomes([in_group]) == [None]


async def test_a_caller_that_is_cancelled_takes_nothing_with_it(
    committer: Committer, calls: list[str], held: Log
) -> None:
    first, second = (committer.commit(Batch(name, calls, held)) for name in ("1", "2"))
    await loop_turns(2)
    first.cancel()
    held.release()
    assert await outcomes([second]) == [None]
    assert calls == ["1 2"]


async def test_while_another_thread_commits_a_group_waits_and_loses_nothing(
    committer: Committer, calls: list[str], log: Log, clock: Clock
) -> None:
    log.refusals = 2
    ended = [committer.commit(Batch("1", calls, log))]
    await loop_turns(3)
    ended.append(committer.commit(Batch("2", calls, log)))
    await loop_turns(3)
    assert calls == []
    for _ in range(2):
        clock.advance(RETRY_AFTER_MS)
        await loop_turns(3)
    assert await outcomes(ended) == [None] * 2
    assert calls == ["1 2"]


async def test_a_log_may_have_the_file_descriptor_of_one_that_was_forgotten(
    committer: Committer, calls: list[str]
) -> None:
    for name in ("1", "2", "3"):
        with closing(Log(calls)) as log:
            assert await outcomes([committer.commit(Batch(name, calls, log))]) == [None]
            await committer.forget_groups()
    assert calls == ["1", "2", "3"]


async def test_many_stores_that_share_now_and_then_commit_all_of_their_batches_in_their_order(
    committer: Committer, calls: list[str], log: Log
) -> None:
    with closing(Log(calls)) as other:
        logs: list[Log | None] = [log, other, None]
        await asyncio.gather(*(store(index, committer, logs, calls) for index in range(12)))
        await committer.forget_groups()
    committed = [name.split(".") for call in calls for name in call.split()]
    for index in range(12):
        assert [int(number) for store_index, number in committed if store_index == str(index)] == list(range(60))


async def store(index: int, committer: Committer, logs: Sequence[Log | None], calls: list[str]) -> None:
    """Commit sixty batches, one after the other."""
    for number in range(60):
        name = f"{index}.{number}"
        error = KeyError(name) if number % 7 == 0 else None
        batch = Batch(name, calls, logs[(index + number // 5) % 3], error)
        assert await outcomes([committer.commit(batch)]) == [error]


async def test_a_log_that_has_failed_is_made_to_work_again_after_a_while(
    committer: Committer, calls: list[str], log: Log, clock: Clock
) -> None:
    log.failure = "its disk failed"
    await outcomes([committer.commit(Batch("1", calls, log))])
    assert [each.cause for each in committer.failures] == ["its disk failed"]
    assert log.recoveries == 0
    clock.advance(PAUSE_MS_MIN)
    while committer.failures:  # its thread
        await loop_turns()
    assert log.recoveries == 1


# ---- what does not wait for the disk


@pytest.fixture
def unsynced(calls: list[str]) -> Iterator[Log]:
    with closing(Log(calls, waits=False)) as log:
        yield log


async def until_synced(log: Log, count: int) -> None:
    async with asyncio.timeout(LIMIT_S):
        while log.syncs < count or log.tail_bytes:
            await loop_turns()
    await loop_turns(3)


async def test_a_batch_that_need_not_be_on_the_disk_is_committed_where_it_comes(
    committer: Committer, calls: list[str], unsynced: Log
) -> None:
    ended = [committer.commit(Batch(name, calls, unsynced)) for name in "ab"]
    assert [each.done() for each in ended] == [True, True]
    assert (calls, unsynced.heres) == (["a", "b"], [True, True])
    error = OSError("disk")
    assert await outcomes([committer.commit(Batch("c", calls, unsynced, error))]) == [error]


async def test_what_is_confirmed_is_synced_once_within_the_second(
    committer: Committer, calls: list[str], unsynced: Log, clock: Clock
) -> None:
    for number in range(9):
        committer.commit(Batch(str(number), calls, unsynced))
        clock.advance(SYNC_AFTER_MS // 10)
        await loop_turns(3)
    assert (unsynced.syncs, unsynced.tail_bytes) == (0, 9)
    clock.advance(SYNC_AFTER_MS - 9 * (SYNC_AFTER_MS // 10))
    await until_synced(unsynced, 1)
    clock.advance(10_000)
    await loop_turns(3)
    assert unsynced.syncs == 1  # there is nothing more to sync
    committer.commit(Batch("more", calls, unsynced))
    clock.advance(SYNC_AFTER_MS)
    await until_synced(unsynced, 2)
    assert SYNC_AFTER_MS < 1_000


async def test_a_large_tail_is_synced_at_once(committer: Committer, calls: list[str]) -> None:
    with closing(Log(calls, waits=False, group_bytes=SYNC_BYTES // 2)) as log:
        committer.commit(Batch("1", calls, log))
        await loop_turns(5)
        assert log.syncs == 0
        committer.commit(Batch("2", calls, log))
        await until_synced(log, 1)
        await committer.forget_groups()


async def test_groups_go_on_while_a_sync_waits_and_wait_for_one_that_takes_long(
    committer: Committer, calls: list[str], unsynced: Log, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    unsynced.may_sync.clear()
    committer.commit(Batch("1", calls, unsynced))
    clock.advance(SYNC_AFTER_MS)
    await loop_turns(3)
    assert committer.commit(Batch("2", calls, unsynced)).done()
    monkeypatch.setattr(group_commits, "SYNC_LATE_US", -1)
    late = [committer.commit(Batch(name, calls, unsynced)) for name in ("3", "4")]
    await loop_turns(5)
    assert (calls, [each.done() for each in late]) == (["1", "2"], [False, False])
    unsynced.may_sync.set()
    assert await outcomes(late) == [None, None]
    assert calls == ["1", "2", "3 4"]


async def test_after_a_slow_write_the_thread_of_the_log_writes_for_a_while(
    committer: Committer, calls: list[str], unsynced: Log, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(group_commits, "SLOW_WRITE_US", -1)
    assert await outcomes([committer.commit(Batch("slow", calls, unsynced))]) == [None]
    assert await outcomes([committer.commit(Batch("next", calls, unsynced))]) == [None]
    assert unsynced.heres == [True, False]


async def test_a_sync_that_fails_makes_the_log_fail_and_is_tried_again(
    committer: Committer, calls: list[str], unsynced: Log, clock: Clock
) -> None:
    unsynced.sync_fails = True
    committer.commit(Batch("1", calls, unsynced))
    clock.advance(SYNC_AFTER_MS)
    async with asyncio.timeout(LIMIT_S):
        while not committer.failures:
            await loop_turns()
    assert [each.cause for each in committer.failures] == ["its disk failed"]
    unsynced.sync_fails = False
    clock.advance(PAUSE_MS_MIN)
    while committer.failures:  # its thread
        await loop_turns()
    committer.commit(Batch("2", calls, unsynced))
    clock.advance(SYNC_AFTER_MS)
    await until_synced(unsynced, 2)


async def test_the_end_waits_for_a_sync(calls: list[str], unsynced: Log, clock: Clock) -> None:
    with ThreadPoolExecutor(1) as pool:
        committer = Committer(pool, 1, clock)
        unsynced.may_sync.clear()
        committer.commit(Batch("1", calls, unsynced))
        clock.advance(SYNC_AFTER_MS)
        ending = asyncio.create_task(committer.forget_groups())
        await loop_turns(5)
        assert not ending.done()
        unsynced.may_sync.set()
        await asyncio.wait_for(ending, LIMIT_S)
    assert unsynced.syncs == 1
