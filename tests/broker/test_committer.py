"""Commits of several stores on the threads of a pool: who shares a trip, and who must not wait for whom. No store."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from emubus.broker.clock import Clock
from emubus.broker.stores.committer import LOOK_AFTER_MS, SLOW_COMMIT_US, STUCK_US, Committer

from .namespace import loop_turns

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


class Commit:
    """A batch whose commit does what the test says, and counts."""

    def __init__(self, act: Callable[[], object] = lambda: None) -> None:
        self._act = act
        self.count = 0

    @property
    def shared(self) -> None:
        return

    def commit(self) -> None:
        self.count += 1
        self._act()


class Held:
    """A batch whose commit hangs until it is released."""

    def __init__(self) -> None:
        self._began = threading.Event()
        self._released = threading.Event()

    @property
    def shared(self) -> None:
        return

    def commit(self) -> None:
        self._began.set()
        assert self._released.wait(LIMIT_S)

    async def begun(self) -> None:
        assert await asyncio.to_thread(self._began.wait, LIMIT_S)

    def release(self) -> None:
        self._released.set()


class Trip:
    """Commits its batches together, and remembers who went with whom; `act` is done once for each call."""

    def __init__(self, calls: list[str], act: Callable[[], object] = lambda: None) -> None:
        self._calls = calls
        self._act = act

    def commit(self, batches: Sequence[object]) -> list[BaseException | None]:
        mine = [batch for batch in batches if isinstance(batch, Passenger)]
        self._calls.append(" ".join(batch.name for batch in mine))
        self._act()
        return [batch.error for batch in mine]


class Passenger:
    """A batch that a trip commits, or that commits alone."""

    def __init__(
        self, name: str, calls: list[str], trip: Trip | None = None, error: BaseException | None = None
    ) -> None:
        self.name = name
        self.shared = trip
        self.error = error
        self._calls = calls

    def commit(self) -> None:
        assert self.shared is None
        self._calls.append(self.name)
        if self.error is not None:
            raise self.error


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


# ---- batches that share a trip


async def test_batches_with_the_same_trip_go_together_and_the_others_alone_in_their_order(
    pool: Pool, clock: HandClock
) -> None:
    calls: list[str] = []
    first, second = Trip(calls), Trip(calls)
    places = {"s": first, "t": second, "a": None}
    committer = Committer(pool, 1, clock)
    names = ("s1", "a1", "s2", "t1", "s3", "a2", "t2")
    batches = [Passenger(name, calls, places[name[0]]) for name in names]
    assert await outcomes([committer.commit(batch) for batch in batches]) == [None] * 7
    assert calls == ["s1 s2 s3", "a1", "t1 t2", "a2"]
    assert pool.job_count == 1


async def test_each_batch_of_a_trip_gets_its_own_error(pool: Pool, clock: HandClock) -> None:
    calls: list[str] = []
    trip = Trip(calls)
    errors = [OSError("disk") if number in (1, 4, 7) else None for number in range(9)]
    batches = [Passenger(str(n), calls, None if n > 6 else trip, error) for n, error in enumerate(errors)]
    committer = Committer(pool, THREADS, clock)
    assert await outcomes([committer.commit(batch) for batch in batches]) == errors
    assert sorted(calls) == ["0 1 2 3 4 5 6", "7", "8"]


async def test_a_trip_that_fails_fails_for_its_batches_and_no_other(pool: Pool, clock: HandClock) -> None:
    def fail() -> None:
        raise RuntimeError("a mistake")

    calls: list[str] = []
    broken, sound = Trip(calls, fail), Trip(calls)
    committer = Committer(pool, 1, clock)
    batches = [Passenger(str(n), calls, (broken, sound, None)[n % 3]) for n in range(9)]
    found = await outcomes([committer.commit(batch) for batch in batches])
    assert [str(error) for error in found] == ["a mistake", "None", "None"] * 3
    assert await outcomes([committer.commit(Passenger("more", calls))]) == [None]


async def test_a_trip_takes_one_job_however_many_batches_it_has(pool: Pool, clock: HandClock) -> None:
    calls: list[str] = []
    trip = Trip(calls)
    committer = Committer(pool, THREADS, clock)
    batches = [Passenger("x", calls, trip) for _ in range(16)]
    assert await outcomes([committer.commit(batch) for batch in batches]) == [None] * 16
    assert (pool.job_count, len(calls)) == (1, 1)


async def test_what_comes_during_a_trip_goes_together_on_the_next_one(pool: Pool, clock: HandClock) -> None:
    calls: list[str] = []
    held = Held()
    trip = Trip(calls, held.commit)
    committer = Committer(pool, THREADS, clock)
    ended = [committer.commit(Passenger("first", calls, trip))]
    await held.begun()
    for number in range(5):
        ended.append(committer.commit(Passenger(str(number), calls, trip)))
        await loop_turns(2)
    assert (calls, pool.job_count) == (["first"], 1)
    held.release()
    assert await outcomes(ended) == [None] * 6
    assert (calls, pool.job_count) == (["first", "0 1 2 3 4"], 1)


async def test_a_batch_that_commits_alone_does_not_wait_for_a_trip(pool: Pool, clock: HandClock) -> None:
    calls: list[str] = []
    held = Held()
    committer = Committer(pool, THREADS, clock)
    on_trip = committer.commit(Passenger("s", calls, Trip(calls, held.commit)))
    await held.begun()
    assert await outcomes([committer.commit(Passenger("alone", calls))]) == [None]
    assert not on_trip.done()
    held.release()
    assert await outcomes([on_trip]) == [None]


async def test_a_caller_on_a_trip_that_is_cancelled_takes_nothing_with_it(pool: Pool, clock: HandClock) -> None:
    calls: list[str] = []
    held = Held()
    trip = Trip(calls, held.commit)
    committer = Committer(pool, 1, clock)
    first, second = (committer.commit(Passenger(name, calls, trip)) for name in ("1", "2"))
    await held.begun()
    first.cancel()
    held.release()
    assert await outcomes([second]) == [None]
    assert calls == ["1 2"]


async def test_many_stores_that_share_now_and_then_commit_all_of_their_batches_in_their_order(pool: Pool) -> None:
    calls: list[str] = []
    trips = [Trip(calls), Trip(calls), None]
    committer = Committer(pool, THREADS, Clock())

    async def store(index: int) -> None:
        for number in range(60):
            name = f"{index}.{number}"
            error = KeyError(name) if number % 7 == 0 else None
            batch = Passenger(name, calls, trips[(index + number // 5) % 3], error)
            assert await outcomes([committer.commit(batch)]) == [error]

    async with asyncio.timeout(LIMIT_S):
        await asyncio.gather(*(store(index) for index in range(12)))
    committed = [name.split(".") for call in calls for name in call.split()]
    for index in range(12):
        assert [int(number) for store_index, number in committed if store_index == str(index)] == list(range(60))
