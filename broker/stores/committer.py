"""Commits batches of several stores on the threads of a pool, so that stores that are ready together share the trips.

Knows when another thread pays and how outcomes come back to the event loop. Does not know requests, partitions and
outages. A **job** is one call on the pool: it commits one waiting batch after the other, of whichever store. Why few
jobs, and when more: docs/decisions/0014. Used on the event loop; `_run` alone runs on the threads. Owned by the
`Namespace`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Executor
from typing import Final, Protocol

from ...storage import CommitTogether
from ..clock import Clock

JOBS_OF_FAST_COMMITS: Final = 2
SLOW_COMMIT_US: Final = 2_000  # longer commits wait for the disk more than they cost: they run on all threads
REPORT_AFTER_US: Final = 2_000  # a job reports its outcomes at its end; if batches wait, after so long or a shared trip
STUCK_US: Final = 50_000  # a job in a longer commit does not count: another one may start in its place
LOOK_AFTER_MS: Final = 10  # between looks at jobs that report nothing, because one commit takes long


class Committable(Protocol):
    """The part of a store's batch that is needed here (`storage.Batch`)."""

    @property
    def shared(self) -> CommitTogether | None:
        """What commits it together with others (see `storage.Batch.shared`)."""
        ...

    def commit(self) -> None:
        """Commit; any thread may call it."""
        ...


_Waiting = tuple[Committable, asyncio.Future[None]]


class _Job:
    """A call on the pool; `began_us` (stopwatch) is when its current commit began, `is_shared` that one of several
    batches. Written by its thread.
    """

    __slots__ = ("began_us", "is_shared")

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us
        self.is_shared = False


class Committer:
    """Commits on at most `threads` threads of `pool` at a time."""

    def __init__(self, pool: Executor, threads: int, clock: Clock) -> None:
        self._pool = pool
        self._threads = threads
        self._clock = clock
        self._alone: deque[_Waiting] = deque()  # batches that wait; jobs take them
        self._together: deque[_Waiting] = deque()  # those that share a trip
        self._done: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()  # jobs add to it
        self._jobs: set[_Job] = set()
        self._last_commit_us = 0  # the duration of the last commit; written by jobs
        self._starting = False  # jobs start at the end of this turn of the event loop
        self._looking = False  # a look at the jobs is due

    def commit(self, batch: Committable) -> asyncio.Future[None]:
        """Commit `batch` on a thread; the future gets None or the exception of `batch.commit()`."""
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        (self._alone if batch.shared is None else self._together).append((batch, ended))
        if not self._starting and len(self._jobs) < self._threads:
            self._starting = True
            loop.call_soon(self._start_jobs)  # after the other stores that are ready in this turn
        return ended

    def _start_jobs(self) -> None:
        self._starting = False
        loop = asyncio.get_running_loop()
        now_us = self._clock.stopwatch_us()
        batch_count = self._trip_count()
        job_count = max(min(self._jobs_max(now_us) - len(self._jobs), batch_count), 0)
        for _ in range(job_count):
            job = _Job(now_us)
            self._jobs.add(job)
            self._pool.submit(self._run, job, loop.call_soon_threadsafe)
        if batch_count > job_count:  # some wait behind others
            self._look_later()

    def _trip_count(self) -> int:
        """Return how many jobs the waiting batches could use.

        Those that are shared take one trip to the disk, and none while a job is on such a trip: it takes them next.
        """
        needs_trip = bool(self._together) and not any(job.is_shared for job in self._jobs)
        return len(self._alone) + needs_trip

    def _is_waited_for(self) -> bool:
        return bool(self._alone or self._together)

    def _look_later(self) -> None:
        if not self._looking:
            self._looking = True
            self._clock.call_after(LOOK_AFTER_MS, self._look)

    def _jobs_max(self, now_us: int) -> int:
        if self._last_commit_us > SLOW_COMMIT_US:
            return self._threads
        stuck = sum([now_us - job.began_us > STUCK_US for job in self._jobs])
        return min(JOBS_OF_FAST_COMMITS + stuck, self._threads)

    def _run(self, job: _Job, call_on_loop: Callable[..., object]) -> None:
        """Commit waiting batches until there is none (on a thread)."""
        stopwatch_us = self._clock.stopwatch_us
        job.began_us = reported_us = stopwatch_us()
        while True:
            was_shared, job.is_shared = job.is_shared, False
            group = self._next_group(prefers_alone=was_shared)
            if not group:
                break
            job.is_shared = group[0][0].shared is not None
            self._done.extend(zip([ended for _, ended in group], _errors_of(group), strict=True))
            now_us = stopwatch_us()
            self._last_commit_us = now_us - job.began_us
            job.began_us = now_us
            if self._is_waited_for() and (job.is_shared or now_us - reported_us > REPORT_AFTER_US):
                reported_us = now_us
                call_on_loop(self._report)
        call_on_loop(self._end, job)

    def _next_group(self, prefers_alone: bool) -> list[_Waiting]:
        """Take a waiting batch that commits alone, or all that share a trip; none if no batch waits (on a thread)."""
        if prefers_alone:
            return self._next_alone() or self._next_together()
        return self._next_together() or self._next_alone()

    def _next_alone(self) -> list[_Waiting]:
        try:
            return [self._alone.popleft()]
        except IndexError:
            return []

    def _next_together(self) -> list[_Waiting]:
        group: list[_Waiting] = []
        others: list[_Waiting] = []  # of another trip
        try:
            while True:
                item = self._together.popleft()
                (group if not group or item[0].shared is group[0][0].shared else others).append(item)
        except IndexError:
            self._together.extendleft(reversed(others))
            return group

    def _report(self) -> None:
        """Set the outcomes of the commits that are done."""
        while self._done:
            ended, error = self._done.popleft()
            if ended.done():  # the caller was cancelled
                continue
            if error is None:
                ended.set_result(None)
            else:
                ended.set_exception(error)
        if self._is_waited_for():
            self._start_jobs()

    def _end(self, job: _Job) -> None:
        self._jobs.discard(job)
        self._report()

    def _look(self) -> None:
        """Set outcomes that jobs would report after a long commit only; start a job in place of one that is stuck."""
        self._looking = False
        self._report()
        if self._jobs:
            self._look_later()


def _errors_of(group: Sequence[_Waiting]) -> Sequence[BaseException | None]:
    """Commit the batches of a group; return each one's error."""
    first = group[0][0]
    try:
        if first.shared is not None:
            return first.shared.commit([batch for batch, _ in group])
        first.commit()
    except BaseException as error:
        return [error] * len(group)
    return [None]
