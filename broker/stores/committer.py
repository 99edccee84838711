"""Commits batches of several stores: those that can be together in groups, the others on the threads of a pool.

Knows when another thread pays and how outcomes come back to the event loop. Does not know requests, partitions and
outages, nor groups (`group_commits.py`). A **job** is one call on the pool: it commits one waiting batch after the
other, of any store. Why few jobs, and when more: docs/decisions/0014. Used on the event loop; `_run` alone runs on the
threads. Owned by the `Namespace`.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from ...storage import Batch, CommitTogether
from ..clock import Clock
from .group_commits import GroupCommits, report
from .recovery import Failure

JOBS_OF_FAST_COMMITS: Final = 2
"""With more, threads take the GIL from the loop while it works; with one, a commit waits for another's disk. Measured,
as the others here, with `bench/compare.py REF --cells 'send-part*'`; docs/decisions/0014 has the figures."""

SLOW_COMMIT_US: Final = 2_000
"""Longer commits wait for the disk more than they cost: they run on all threads."""

REPORT_AFTER_US: Final = 2_000
"""A job reports its outcomes at its end; if batches wait, after so long. Each report wakes the loop."""

STUCK_US: Final = 50_000
"""A job in a longer commit does not count: another one may start in its place, so one bad file holds no other store."""

LOOK_AFTER_MS: Final = 10
"""Between looks at jobs that report nothing, because one commit takes long."""

assert LOOK_AFTER_MS * 1_000 < STUCK_US, "a stuck job is seen before the next one could be"

_Waiting = tuple[Batch, asyncio.Future[None]]


class _Job:
    """A call on the pool; `began_us` (stopwatch) is when its current commit began. Written by its thread."""

    __slots__ = ("began_us",)

    def __init__(self, began_us: int) -> None:
        self.began_us = began_us


class Committer:
    """Commits on at most `threads` threads of `pool` at a time, and in groups."""

    def __init__(self, pool: Executor, threads: int, clock: Clock) -> None:
        self._pool = pool
        self._threads = threads
        self._clock = clock
        self.groups: dict[CommitTogether | None, GroupCommits] = {}
        """By what commits them together (`Batch.shared`, never None): a batch of one may go there directly."""
        self._waiting: deque[_Waiting] = deque()  # batches that commit alone; jobs take them
        self._done: deque[tuple[asyncio.Future[None], BaseException | None]] = deque()  # jobs add to it
        self._jobs: set[_Job] = set()
        self._last_commit_us = 0  # the duration of the last commit; written by jobs
        self._starting = False  # jobs start at the end of this turn of the event loop
        self._looking = False  # a look at the jobs is due

    def commit(self, batch: Batch) -> asyncio.Future[None]:
        """Step 4.1 of a batch (`batch_runner`): commit it without waiting for the disk.

        The future gets None or the exception of the commit.
        """
        together = batch.shared
        if together is not None:
            groups = self.groups.get(together)
            if groups is None:
                groups = self.groups[together] = GroupCommits(together, self._clock)
            return groups.commit(batch)
        loop = asyncio.get_running_loop()
        ended: asyncio.Future[None] = loop.create_future()
        self._waiting.append((batch, ended))
        if not self._starting and len(self._jobs) < self._threads:
            self._starting = True
            loop.call_soon(self._start_jobs)  # after the other stores that are ready in this turn
        return ended

    @property
    def failures(self) -> list[Failure]:
        """Why some batches do not commit in groups, which they otherwise would."""
        return [groups.failure for groups in self.groups.values() if groups.failure is not None]

    async def forget_groups(self) -> None:
        """Stop watching the journals of groups, which are about to be closed; no group may be under way."""
        for groups in self.groups.values():
            await groups.close()
        self.groups.clear()

    def _start_jobs(self) -> None:
        self._starting = False
        loop = asyncio.get_running_loop()
        now_us = self._clock.stopwatch_us()
        batch_count = len(self._waiting)
        job_count = max(min(self._jobs_max(now_us) - len(self._jobs), batch_count), 0)
        for _ in range(job_count):
            job = _Job(now_us)
            self._jobs.add(job)
            self._pool.submit(self._run, job, loop.call_soon_threadsafe)
        if batch_count > job_count:  # some wait behind others
            self._look_later()

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
            try:
                batch, ended = self._waiting.popleft()
            except IndexError:
                break
            self._done.append((ended, _error_of(batch)))
            now_us = stopwatch_us()
            self._last_commit_us = now_us - job.began_us
            job.began_us = now_us
            if self._waiting and now_us - reported_us > REPORT_AFTER_US:
                reported_us = now_us
                call_on_loop(self._report)
        call_on_loop(self._end, job)

    def _report(self) -> None:
        """Set the outcomes of the commits that are done."""
        while self._done:
            report(*self._done.popleft())
        if self._waiting:
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


def _error_of(batch: Batch) -> BaseException | None:
    try:
        batch.commit()
    except BaseException as error:
        return error
    return None
