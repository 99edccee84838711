"""Commits of several stores on the threads of a pool: which of them must not wait for others. No store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from emubus.broker.clock import Clock
from emubus.broker.stores.committer import LOOK_AFTER_MS, SLOW_COMMIT_US, STUCK_US, Committer

from .rowless import RowlessBatch

THREADS = 4
LIMIT_S = 20


class Pool(ThreadPoolExecutor):
    """A pool that counts its jobs."""

    def __init__(self) -> None:
        super().__init__(THREADS)
        self.job_count = 0

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        self.job_count += 1
        return super().submit(fn, *args, **kwargs)


class HandClock(Clock):
    """Time that only the test moves; `elapsed_us` is what the stopwatch shows."""

    def __init__(self) -> None:
        super().__init__(manual=True)
        self.elapsed_us = 0

    def stopwatch_us(self) -> int:  # type: ignore[override]
        return self.elapsed_us


class Commit(RowlessBatch):
    """A batch whose commit does what the test says, and counts."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        super().__init__()
        self._act = act
        self.count = 0

    def commit(self) -> None:
        self.count += 1
        self._act()


class Held(RowlessBatch):
    """A batch whose commit hangs until it is released."""

    def __init__(self) -> None:
        super().__init__()
        self._began = threading.Event()
        self._released = threading.Event()

    def commit(self) -> None:
        self._began.set()
        assert self._released.wait(LIMIT_S)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._began.wait, LIMIT_S)

    def release(self) -> None:
        self._released.set()


@pytest.fixture
def clock() -> HandClock:
    return HandClock()


@pytest.fixture
async def pool() -> AsyncIterator[Pool]:
    with Pool() as pool:
        yield pool


async def outcomes(ended: Sequence[asyncio.Future[None]]) -> list[BaseException | None]:
    async with asyncio.timeout(LIMIT_S):
        return await asyncio.gather(*ended, return_exceptions=True)


async def test_batches_of_one_turn_take_two_jobs_that_report_once(
    pool: Pool, clock: HandClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    loop = asyncio.get_running_loop()
    reports: list[object] = []
    call = loop.call_soon_threadsafe

    def counting(callback: Callable[..., object], *args: Any) -> object:
        reports.append(callback)
        return call(callback, *args)

    monkeypatch.setattr(loop, "call_soon_threadsafe", counting)
    committer = Committer(pool, THREADS, clock)
    batches = [Commit() for _ in range(16)]
    assert await outcomes([committer.commit(batch) for batch in batches]) == [None] * 16
    assert [batch.count for batch in batches] == [1] * 16
    assert pool.job_count == 2
    pool.shutdown()  # the job that found nothing more may end last
    assert len(reports) == 2


async def test_a_single_batch_takes_one_job(pool: Pool, clock: HandClock) -> None:
    committer = Committer(pool, THREADS, clock)
    assert await outcomes([committer.commit(Commit())]) == [None]
    assert pool.job_count == 1


async def test_a_commit_that_fails_fails_alone(pool: Pool, clock: HandClock) -> None:
    def fail() -> None:
        raise OSError("the disk of this store")

    committer = Committer(pool, THREADS, clock)
    found = await outcomes([committer.commit(Commit(fail) if number == 3 else Commit()) for number in range(8)])
    assert [str(error) for error in found] == ["None"] * 3 + ["the disk of this store"] + ["None"] * 4


async def test_stores_that_hang_do_not_hold_up_the_others(pool: Pool, clock: HandClock) -> None:
    committer = Committer(pool, THREADS, clock)
    hanging = [Held(), Held()]
    ended = [committer.commit(batch) for batch in hanging]
    others = [committer.commit(Commit()) for _ in range(6)]
    for batch in hanging:
        await batch.begun()
    clock.elapsed_us = STUCK_US + 1
    clock.advance(LOOK_AFTER_MS)
    assert await outcomes(others) == [None] * 6
    assert not any(each.done() for each in ended)
    for batch in hanging:
        batch.release()
    assert await outcomes(ended) == [None] * 2


async def test_no_job_starts_beside_two_that_go_on(pool: Pool, clock: HandClock) -> None:
    committer = Committer(pool, THREADS, clock)
    held = [Held(), Held()]
    ended = [committer.commit(batch) for batch in held]
    ended += [committer.commit(Commit()) for _ in range(6)]
    for batch in held:
        await batch.begun()
    clock.elapsed_us = STUCK_US
    clock.advance(LOOK_AFTER_MS)
    assert pool.job_count == 2
    for batch in held:
        batch.release()
    await outcomes(ended)


async def test_an_outcome_does_not_wait_for_a_long_commit_behind_it(pool: Pool, clock: HandClock) -> None:
    committer = Committer(pool, 1, clock)
    long = Held()
    first, last = committer.commit(Commit()), committer.commit(long)
    await long.begun()
    clock.advance(LOOK_AFTER_MS)
    assert first.done()
    assert not last.done()
    long.release()
    assert await outcomes([last]) == [None]


async def test_outcomes_of_slow_commits_are_reported_one_by_one(pool: Pool, clock: HandClock) -> None:
    def take_long() -> None:
        clock.elapsed_us += SLOW_COMMIT_US + 1

    committer = Committer(pool, 1, clock)
    held = Held()
    first, last = committer.commit(Commit(take_long)), committer.commit(held)
    assert await outcomes([first]) == [None]
    assert not last.done()
    held.release()
    assert await outcomes([last]) == [None]


async def test_slow_commits_run_on_all_threads(pool: Pool, clock: HandClock) -> None:
    def take_long() -> None:
        clock.elapsed_us += SLOW_COMMIT_US + 1

    committer = Committer(pool, THREADS, clock)
    await outcomes([committer.commit(Commit(take_long))])
    all_at_once = threading.Barrier(THREADS)

    def wait_for_the_others() -> None:
        all_at_once.wait(LIMIT_S)
        take_long()

    found = await outcomes([committer.commit(Commit(wait_for_the_others)) for _ in range(2 * THREADS)])
    assert found == [None] * 2 * THREADS


async def test_a_caller_that_is_cancelled_takes_nothing_with_it(pool: Pool, clock: HandClock) -> None:
    committer = Committer(pool, 1, clock)
    held, other = Held(), Commit()
    first, second = committer.commit(held), committer.commit(other)
    await held.begun()
    first.cancel()
    held.release()
    assert await outcomes([second]) == [None]
    assert other.count == 1


async def test_many_stores_commit_all_of_their_batches_in_their_order(pool: Pool) -> None:
    committer = Committer(pool, THREADS, Clock())
    order: list[list[int]] = [[] for _ in range(16)]

    async def store(index: int) -> None:
        for number in range(100):
            await committer.commit(Commit(lambda number=number: order[index].append(number)))  # type: ignore[misc]

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(store(index) for index in range(16)))
    assert order == [list(range(100))] * 16
