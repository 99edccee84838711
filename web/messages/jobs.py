"""Jobs: one verb on many messages, with progress, a stop and the failures.

A job takes the messages present at its start, in batches; between two batches everybody else gets a turn, and nothing
is kept but counts and the first failures. One runs per entity, and a few at a time. Knows which messages are meant and
how far it is; `verbs` knows what is done. Owned by the HTTP server; ends with it.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from aiohttp import web

from ...broker.address import SubQueue
from ...broker.admin import figures
from ...broker.admin.overview import Overview, Seen
from ...broker.api import Entity
from ...broker.broker import Broker
from ...broker.clock import Clock
from ...broker.errors import BrokerError, Condition
from ...broker.model.descriptions import entity_key
from ..long_work import Pace
from .filter import MessageFilter
from .verbs import GONE, Failures, Plan, PlanRun

AT_ONCE: Final = 50
AT_ONCE_BYTES: Final = 2 << 20
READ_AT_ONCE: Final = 200
"""Messages that a filter looks at in one turn."""
NUMBERS_MAX: Final = 1_000
AWAY: Final = "its messaging store can't be reached"
FAILURES_MAX: Final = 100
RUNNING_MAX: Final = 8
KEPT_MAX: Final = 100
HOMES_OF: Final[Mapping[SubQueue, tuple[str, ...]]] = {
    SubQueue.ACTIVE: ("active", "deferred", "scheduled"),
    SubQueue.DEAD_LETTER: ("dead-letter", "dead-letter-deferred"),
    SubQueue.TRANSFER_DEAD_LETTER: ("transfer-dead-letter", "transfer-dead-letter-deferred"),
}
"""Where the messages of a sub-queue are, by the names of the counts."""


class JobState(StrEnum):
    """How far a job is."""

    RUNNING = "running"
    DONE = "done"
    STOPPED = "stopped"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class Selection:
    """Which messages of the sub-queue: these `numbers`, or with None all from `first` on that the filter lets
    through, of a partition or session if one is given; the first `most` of them, None for all."""

    numbers: Sequence[int] | None = None
    filter: MessageFilter = field(default_factory=MessageFilter)
    first: int = 0
    partition: int | None = None
    session: str | None = None
    most: int | None = None

    @property
    def is_filtered(self) -> bool:
        """Whether it may leave out messages of the sub-queue."""
        limits = (self.session, self.partition, self.most)
        asks = self.filter.sieves or self.first or any(each is not None for each in limits)
        return self.numbers is None and bool(asks)


@dataclass(slots=True)
class Job:
    """A job and its progress.

    `total` messages were there at the start, or were named, and `searched_count` of them were looked at. With a filter
    something is done with some of them only. `failures` has the first `FAILURES_MAX`: (sequence number, reason).
    `error` says why it ended early, or what it left out. Instants are Unix ms.
    """

    number: int
    plan: Plan
    target: str | None
    total: int
    is_filtered: bool
    started_at: int
    searched_count: int = 0
    done_count: int = 0
    failed_count: int = 0
    failures: list[tuple[int, str]] = field(default_factory=list[tuple[int, str]])
    error: str | None = None
    state: JobState = JobState.RUNNING
    ended_at: int | None = None
    is_stopping: bool = False

    @property
    def is_running(self) -> bool:
        return self.state is JobState.RUNNING

    @property
    def progress_count(self) -> int:
        """How many of the total it is past."""
        return self.searched_count if self.is_filtered else self.done_count + self.failed_count

    def count(self, numbers: Sequence[int], failures: Failures) -> None:
        """Add a batch."""
        self.done_count += len(numbers) - len(failures)
        self.failed_count += len(failures)
        room = FAILURES_MAX - len(self.failures)
        self.failures += list(failures.items())[:room]

    def searched(self, count: int) -> None:
        """Note that messages were looked at."""
        self.searched_count += count

    def stop(self) -> None:
        """Let it end after its current batch."""
        self.is_stopping = True

    def end(self, state: JobState, at: int, error: str | None = None) -> None:
        self.state, self.ended_at, self.error = state, at, error


class Jobs:
    """The running jobs, and the last ones."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._known: dict[int, Job] = {}
        self._tasks: dict[int, asyncio.Task[None]] = {}
        self._last_number = 0

    def all(self) -> list[Job]:
        """All that are known, the newest first."""
        return list(reversed(self._known.values()))

    def get(self, number: int) -> Job | None:
        return self._known.get(number)

    def of(self, path: str) -> Job | None:
        """The running or last job of an entity."""
        key = entity_key(path)
        return next((each for each in self.all() if entity_key(each.plan.path) == key), None)

    async def start(self, plan: Plan, selection: Selection, wait_ms: int) -> Job:
        """Begin a job; waits at most so long for its end.

        BrokerError: not-found, not-allowed (also while another job of the entity runs), resource-limit-exceeded.
        """
        plan_run = PlanRun(self._broker, plan)
        known = self.of(plan.path)
        if known is not None and known.is_running:
            raise BrokerError(Condition.NOT_ALLOWED, f"A job of '{plan_run.entity.path}' is running: stop it, or wait.")
        if len(self._tasks) >= RUNNING_MAX:
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, f"{RUNNING_MAX} jobs are running: stop one, or wait.")
        extents = await plan_run.entity.extents(plan.sub_queue)
        self._last_number += 1
        target = None if plan_run.target is None else plan_run.target.path
        job = Job(
            self._last_number,
            replace(plan, path=plan_run.entity.path),
            target,
            self._count(plan_run.entity, plan.sub_queue) if selection.numbers is None else len(selection.numbers),
            selection.is_filtered,
            self._clock.now_ms(),
        )
        self._keep(job)
        # Messages that come from now on have higher numbers, those that the job sends included.
        ends = [None if each is None else each.next_sequence_number for each in extents]
        task = asyncio.create_task(self._run(job, plan_run, selection, ends), name=f"job {job.number}")
        self._tasks[job.number] = task
        task.add_done_callback(lambda _: self._tasks.pop(job.number, None))
        await self.wait(job, wait_ms)
        return job

    async def wait(self, job: Job, wait_ms: int) -> None:
        """Wait for the end of a job, at most so long."""
        task = self._tasks.get(job.number)
        if task is not None and wait_ms:
            with suppress(TimeoutError):
                async with self._clock.time_limit(wait_ms):
                    await asyncio.wait([task])

    async def close(self) -> None:
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _count(self, entity: Entity, sub_queue: SubQueue) -> int:
        messages = Overview(self._broker.namespace).report(entity).messages
        return sum(messages[home] for home in HOMES_OF[sub_queue])

    def _keep(self, job: Job) -> None:
        self._known[job.number] = job
        ended = [number for number, each in self._known.items() if not each.is_running]
        for number in ended[: len(self._known) - KEPT_MAX]:
            del self._known[number]

    async def _run(self, job: Job, plan_run: PlanRun, selection: Selection, ends: Sequence[int | None]) -> None:
        state, error = JobState.FAILED, "The server stopped it."
        try:
            batches = _Batches(self._broker, plan_run.entity, job, selection, ends)
            async for batch in batches.all():
                job.count([each.sequence_number for each in batch], await plan_run.carry_out(batch))
                if job.is_stopping:
                    break
            state, error = JobState.STOPPED if job.is_stopping else JobState.DONE, batches.left_out
        except BrokerError as refusal:
            error = refusal.description
        finally:
            plan_run.close()
            job.end(state, self._clock.now_ms(), error or None)


class _Batches:
    """The messages of a job, a batch at a time; each batch is of one partition."""

    def __init__(
        self, broker: Broker, entity: Entity, job: Job, selection: Selection, ends: Sequence[int | None]
    ) -> None:
        self._overview = Overview(broker.namespace)
        self._entity = entity
        self._job = job
        self._selection = selection
        self._ends = ends

    def all(self) -> AsyncGenerator[list[Seen], None]:
        return self._searched() if self._selection.numbers is None else self._messages_numbered(self._selection.numbers)

    @property
    def left_out(self) -> str:
        """Which partitions were left out, "" for none."""
        away = [str(index) for index, end in enumerate(self._ends) if end is None]
        if not away or self._selection.numbers is not None:
            return ""
        return f"Partitions that could not be reached were left out: {', '.join(away)}."

    async def _messages_numbered(self, numbers: Sequence[int]) -> AsyncGenerator[list[Seen], None]:
        """The messages with these numbers, those of a partition together; a missing one has failed."""
        groups: dict[int, list[int]] = {}
        for number in sorted(set(numbers)):  # in the order of each session
            handle = self._entity.partition_of_number(number)
            groups.setdefault(-1 if handle is None else handle.index, []).append(number)
        for index, group in groups.items():
            for start in range(0, len(group), AT_ONCE):
                some = group[start : start + AT_ONCE]
                is_away = index >= 0 and self._ends[index] is None
                found = [] if index < 0 or is_away else await self._looked_up(some)
                missing = sorted(set(some) - {seen.sequence_number for seen in found})
                self._job.searched(len(some))
                self._job.count(missing, dict.fromkeys(missing, AWAY if is_away else GONE))
                if found:
                    yield found

    async def _looked_up(self, numbers: Sequence[int]) -> list[Seen]:
        sub_queue = self._job.plan.sub_queue
        found = [await self._overview.message(self._entity, sub_queue, number) for number in numbers]
        return [seen for seen in found if seen is not None]

    async def _searched(self) -> AsyncGenerator[list[Seen], None]:
        """The messages that the selection lets through, partition after partition."""
        selection = self._selection
        count, pace, left = READ_AT_ONCE if selection.filter.sieves else AT_ONCE, Pace(), selection.most
        for index, end in enumerate(self._ends):
            if end is None or selection.partition not in (None, index):
                continue
            first: int | None = max(selection.first, figures.placement_in(self._entity, index).first_number)
            while first is not None and first < end and not self._job.is_stopping:
                messages, first = await self._read(index, first, count)
                messages = [seen for seen in messages if seen.sequence_number < end]
                self._job.searched(len(messages))
                found = list(await selection.filter.chosen(messages, pace))[:left]
                for start in range(0, len(found), AT_ONCE):
                    yield found[start : start + AT_ONCE]
                if left is not None:
                    left -= len(found)
                    if not left:
                        return

    async def _read(self, index: int, first: int, count: int) -> tuple[list[Seen], int | None]:
        page = await self._overview.messages(
            self._entity,
            self._job.plan.sub_queue,
            first=first,
            count=count,
            bytes_max=AT_ONCE_BYTES,
            session_id=self._selection.session,
            partition_id=index,
        )
        return page.messages, page.next_sequence_number


JOBS: Final = web.AppKey("jobs", Jobs)
"""Where an application has its jobs."""


def add_jobs(app: web.Application, broker: Broker, clock: Clock) -> Jobs:
    """The jobs of an application; they end with it."""
    jobs = app[JOBS] = Jobs(broker, clock)

    async def close(_: web.Application) -> None:
        await jobs.close()

    app.on_cleanup.append(close)
    return jobs
