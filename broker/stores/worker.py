"""The worker of one messaging store: its inbox and its life, from the start over outages to the stop.

Requests wait in the inbox; one task takes what is there and has the `BatchRunner` execute it. While a commit waits for
the disk, the inbox collects the next batch: a group commit without a timer. A request that comes while the store is
down or fails is refused, or kept if nobody waits for it. Owns the open partitions, the timers and the health of its
store. Does not know how a batch is executed (`batch_runner`), nor what a request does (`partition`). On the event loop.
Owned by the `Namespace`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator, Iterable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

import structlog

from ...storage import Store, StoreError, View
from .. import service_errors
from ..address import SubQueue
from ..clock import Clock
from ..errors import BrokerError, Condition
from ..partition.contract import Delays, NoObserver, Observer, PartitionRef
from ..partition.partition import Partition
from ..partition.records import STATE, STATE_KEY, Counters, Home
from ..partition.requests import DeleteRows, ExpireLocks, Receive, Request, Send, Settle, must_be_retried
from ..partition.state import forwarded_from
from ..turns import Pace, TurnEnd
from .batch_runner import BatchRunner
from .batches import Submitted, split_receives
from .committer import Committer
from .counting import MessageCounts
from .first_rows import first_rows
from .health import StoreHealth
from .late_completions import LateCompletions
from .matching import Matching
from .open_partitions import OpenPartitions
from .outage import Outage, OutageKind
from .recovery import Failure
from .timers import StoreTimers

BATCH_REQUESTS_MAX: Final = 1000  # taken from the inbox at a time
RETRY_AFTER_MS: Final = 250  # after a failed commit

log = structlog.get_logger(__name__)


class Worker:
    """Drives the partitions of `store`, which is messaging store `index`.

    `resolve(queue_id)` returns a queue's partition in this store, None for a deleted queue; `partitions()` returns all
    of them. `committer` commits for stores that block; it, `pace` and `turn_end` are those of all workers.
    `failpoint(name)` marks a step of the commit for tests. `observer` learns what happens to messages.
    """

    def __init__(
        self,
        index: int,
        store: Store,
        clock: Clock,
        committer: Committer,
        pace: Pace,
        turn_end: TurnEnd,
        resolve: Callable[[int], PartitionRef | None],
        partitions: Callable[[], Iterable[PartitionRef]],
        failpoint: Callable[[str], None],
        observer: Observer | None = None,
    ) -> None:
        self.index = index
        self._store = store
        self._clock = clock
        self._resolve = resolve
        self._partitions = partitions
        self._open = OpenPartitions()
        self._inbox: list[Submitted] = []
        self._to_retry: list[Submitted] = []  # before the inbox, once the store works
        self._waiting: asyncio.Future[None] | None = None  # while there is nothing to do; `_wake` ends it
        self._turn_end = turn_end
        self._is_called = False  # `_work` is, at the end of the turn
        self._begun: _Begun | None = None  # what `_work` has begun, and the task goes on with
        self._late = LateCompletions(clock, self._store_late)
        self._observer = observer or NoObserver()
        self._task: asyncio.Task[None] | None = None
        self._timers = StoreTimers(clock, self._locks_ended, self._wake)
        self._stopping = False
        self._flush_wanted = False  # by the store's journal
        self.idle_lock = asyncio.Lock()  # held while a batch runs
        self._health = StoreHealth(index, store, clock, self._refuse_inbox, lambda: self._resume(partitions()))
        self._runner = BatchRunner(
            index,
            store,
            clock,
            committer,
            pace,
            self._health,
            self._open,
            self._timers,
            self,
            self._observer,
            failpoint,
        )
        self.commit_stats = self._runner.commit_stats
        self._matching = Matching(clock, pace, self._enter)

    # ---- the interface for the broker

    def start(self) -> list[int]:
        """Start the loop and the timers; return the queue ids of partitions with messages that may be forwarded.

        Raises UnreadableRowError and StoreError.
        """
        found = first_rows(self.index, self._store)
        self._timers.start(found.due_at)
        loop = asyncio.get_running_loop()
        self._flush_wanted = self._store.wants_flush
        self._store.on_flush_wanted(lambda: loop.call_soon_threadsafe(self._want_flush))
        self._task = asyncio.create_task(self._run(), name=f"store-{self.index:02}")
        self._task.add_done_callback(self._ended)
        return found.with_outboxes

    async def stop(self) -> None:
        """Finish the inbox, then close the store; later requests fail."""
        self.end_outage()
        self._matching.release_all()
        self._late.stop()
        self._inbox += self._late.take_all()
        self._stopping = True
        self._wake()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._health.stop()
        self._timers.stop()
        self._open.close()
        self._store.close()
        self._health.begin_outage(Outage(OutageKind.DOWN))

    @property
    def available(self) -> bool:
        """Whether the store accepts requests."""
        return self._health.available

    @property
    def outage(self) -> Outage | None:
        """The outage that there is on purpose."""
        return self._health.outage

    @property
    def failure(self) -> Failure | None:
        """Why the store fails without an outage; it is tried again until it works."""
        return self._health.failure

    @property
    def health(self) -> str:
        """HEALTHY, the kind of the outage, or that of one that its disk makes."""
        return self._health.word

    @property
    def trouble(self) -> str | None:
        """Why requests may be refused, as the end of a sentence: an outage of any kind, or a failure."""
        return self._health.trouble

    @property
    def is_committing(self) -> bool:
        """Whether a commit waits for the disk; any thread may ask."""
        return self._runner.is_committing and self.idle_lock.locked()

    @property
    def message_counts(self) -> MessageCounts:
        """What became of the messages of each queue."""
        self.store_late()
        return self._runner.message_counts

    def submit(self, ref: PartitionRef, request: Request) -> None:
        """Add `request` to the inbox; while the store is down or fails, fail it or keep it for a retry.

        On a deleted entity every request but `DeleteRows` fails.
        """
        if ref.gone is not None and type(request) is not DeleteRows:
            asyncio.get_running_loop().call_soon(request.fail, ref.gone)
            return
        if not self._health.available:
            if must_be_retried(request):
                self._to_retry.append((ref, request))
                return
            error = service_errors.store_unavailable(self.index, self.trouble or "")
            asyncio.get_running_loop().call_soon(request.fail, error)
            return
        if type(request) is Settle and self._keeps_back(ref, request):
            return
        if self._late.waiting and type(request) is not Receive:
            self._inbox += self._late.take_all()
        # Only a topic has rules that take long.
        if type(request) is not Send or ref.routing is None or not self._matching.takes(ref, request):
            self._inbox.append((ref, request))
            self._call()

    def _keeps_back(self, ref: PartitionRef, request: Settle) -> bool:
        # An observer hears of things when they happen, and an outage shows what is lost.
        return self._health.outage is None and self._late.takes(ref, request)

    def store_late(self) -> None:
        """Execute what was kept back (`late_completions`), as far as it need not wait for something."""
        if self._late.waiting:
            self._store_late()
            if self._task is not None:
                self._work()

    def _store_late(self) -> None:
        self._inbox += self._late.take_all()
        self._call()

    def _call(self) -> None:
        """Have the inbox looked at, at the end of this turn."""
        if self._waiting is not None and not self._is_called:
            self._is_called = True
            self._turn_end.call(self._work)

    def _enter(self, ref: PartitionRef, request: Request) -> None:
        """Add a request to the inbox."""
        self._inbox.append((ref, request))
        self._wake()

    def use_delays(self, delays: Delays | None) -> None:
        """From now on these delays hold: what is no longer late comes at once."""
        self._runner.use_delays(delays)
        self._timers.use_delays(delays)
        self._resume(list(self._open.refs.values()))

    def announce(self, refs: Iterable[PartitionRef]) -> None:
        """Announce possible messages, sessions and outbox messages of these partitions."""
        for ref in refs:
            for sub_queue in SubQueue:
                ref.announce(sub_queue)
            ref.announce_session(None)
            partition = self._open.by_queue_id.get(ref.queue_id)
            if partition is not None:
                partition.announce_held()
            if self.has_outgoing(ref.queue_id, *forwarded_from(ref.description)):
                ref.announce_outbox(None)

    def begin_outage(self, outage: Outage) -> None:
        """Simulate `outage` until `end_outage`; if the store goes down, fail the requests in the inbox."""
        self.store_late()  # they came before it
        self._health.begin_outage(outage)
        if outage.is_down:
            self._refuse_inbox()

    def end_outage(self) -> None:
        """End the outage and continue a delayed commit; a worker that `_ended` stays down until the next start."""
        if self.outage is None or (self._task is not None and self._task.done()):
            return
        self._health.begin_outage(None)
        self._runner.end_delay()
        self._resume(self._partitions())

    def copy_to(self, folder: Path) -> Callable[[], None]:
        """Prepare a copy of the store (see `storage.Store.copy_to`); the caller holds `idle_lock`."""
        return self._store.copy_to(folder)

    def view(self) -> View:
        """Open a view of the committed rows (see `storage.View`). Raises StoreError."""
        self.store_late()
        return self._store.view()

    def partition(self, queue_id: int) -> Partition | None:
        """The open partition of a queue, for reading only; None if it is not open."""
        self.store_late()
        return self._open.by_queue_id.get(queue_id)

    def open_partitions(self) -> Sequence[Partition]:
        """The partitions in memory, for reading only."""
        self.store_late()
        return list(self._open.by_queue_id.values())

    def counters(self, queue_id: int) -> Counters:
        """The counters of a queue's partition, from memory or from the store. Raises StoreError."""
        self.store_late()
        partition = self._open.by_queue_id.get(queue_id)
        if partition is not None:
            return partition.counters
        ref = self._resolve(queue_id)
        with self._store.view() as view:
            return Counters.unpack(view.get(STATE, STATE_KEY.pack(queue_id)), 1 if ref is None else ref.first_counter)

    def has_outgoing(self, queue_id: int, *homes: Home) -> bool:
        """Whether a queue's partition has messages in these homes; True if the store can't be read."""
        try:
            messages = self.counters(queue_id).messages
        except StoreError:
            return True
        return any(messages[home] for home in homes)

    def last_activity_at(self, queue_id: int) -> int:
        """The last use of a queue's partition (Unix ms), 0 if unused since the start."""
        self.store_late()
        return self._open.last_activity_at(queue_id)

    def description_changed(self, queue_id: int) -> None:
        """Adapt the open partition of a queue to its changed description."""
        partition = self._open.by_queue_id.get(queue_id)
        if partition is not None:
            partition.description_changed()

    def remove(self, queue_id: int) -> None:
        """Close the partition of a deleted queue."""
        self._open.remove(queue_id)
        self._runner.message_counts.remove(queue_id)

    # ---- the loop

    async def _run(self) -> None:
        health, loop = self._health, asyncio.get_running_loop()
        while True:
            if self._begun is None and (health.is_failing or (not self._inbox and not self._timers.is_due)):
                if self._stopping:
                    return
                if self._flush_wanted and health.outage is None and not health.is_failing:
                    await self._flush_for_room()
                    continue
                self._waiting = loop.create_future()
                await self._waiting  # `_resume` wakes a store that was failing
                continue
            if self._begun is not None:
                begun, self._begun = self._begun, None
                await begun
            else:
                await self._round()

    async def _round(self) -> None:
        """Execute what is in the inbox, and what is due."""
        async with self.idle_lock:
            if self._timers.is_due:
                self._inbox += self._late.take_all()
            inbox = self._inbox
            requests, self._inbox = inbox[:BATCH_REQUESTS_MAX], inbox[BATCH_REQUESTS_MAX:]
            if self._timers.is_due and not self._add_due(requests):
                return
            if len(requests) == 1 or not self._store.waits:  # deliveries would gain nothing by a batch of their own
                await self._runner.run(requests)
            else:
                for part in split_receives(requests):
                    await self._runner.run(part)

    def _work(self) -> None:
        """Begin a round here and now, without a turn of the loop; the task goes on with one that waits for something.

        Only what the task would do next, and nothing of what is rare: an outage is timed by the task that waits for it.
        """
        self._is_called = False
        waiting, health = self._waiting, self._health
        if waiting is None or waiting.done() or not self._inbox:
            return
        if self._stopping or not health.available or health.outage is not None:
            self._wake()
            return
        self._waiting = None  # the task is not to be woken meanwhile
        steps = self._round()
        try:
            waits_for = steps.send(None)
        except StopIteration:
            pass
        except BaseException as error:
            self._begun = _Begun(None, error)
        else:
            self._begun = _Begun(steps, waits_for)
        self._waiting = waiting
        if self._begun is not None or self._inbox or self._timers.is_due or self._flush_wanted or health.is_failing:
            self._wake()

    def _wake(self) -> None:
        """Have the loop look at the requests that wait."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.set_result(None)

    def _add_due(self, requests: list[Submitted]) -> bool:
        """Add what is due to the requests; False after they were refused, because it can't be read."""
        try:
            requests += self._timers.due_requests(self._store, self._resolve)
        except StoreError as error:
            self._open.touched.clear()
            self._health.fail(str(error))  # also if only these rows can't be read: the store can't keep its time
            self._runner.refuse(requests, error)
            return False
        self._timers.arm()  # even if no row is due
        return True

    async def flush(self) -> None:
        """Let the store put what its journal has into its own file. The caller holds `idle_lock`. StoreError."""
        await self._runner.flush()

    def _want_flush(self) -> None:
        self._flush_wanted = True
        self._wake()

    async def _flush_for_room(self) -> None:
        """The journal wants room: a batch may have made it meanwhile."""
        self._flush_wanted = False
        if not self._store.wants_flush:
            return
        try:
            async with self.idle_lock:
                await self._runner.flush()
        except StoreError as error:  # the next batch tries again
            self._clock.call_after(RETRY_AFTER_MS, self._want_flush)
            if not self._health.is_known(error):
                log.error("flush failed", store=self.index, cause=str(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """After an error of this module: take the store down, so that its requests are refused instead of waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("messaging store stopped", store=self.index, exc_info=error)
            self.begin_outage(Outage(OutageKind.DOWN))

    # ---- for the batches (`batch_runner.Host`)

    def answer(self, requests: Sequence[Submitted], error: BrokerError) -> None:
        """Report the error of these requests; keep those that must be retried."""
        for ref, request in requests:
            request.fail(error)
            if must_be_retried(request) and error.condition is Condition.SERVER_BUSY:
                self._to_retry.append((ref, request))

    def others_than(self, busy: set[int]) -> list[Submitted]:
        """Take the waiting requests of other queues than these."""
        others = [each for each in self._inbox if each[0].queue_id not in busy]
        if others:
            self._inbox = [each for each in self._inbox if each[0].queue_id in busy]
        return others

    def resume_later(self, refs: Iterable[PartitionRef]) -> None:
        """Resume after a failed batch, not immediately: a store that refuses every commit would cause a busy loop."""
        self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, lambda: self._resume(refs))

    def _refuse_inbox(self) -> None:
        requests, self._inbox = [*self._inbox, *self._late.take_all()], []
        self.answer(requests, service_errors.store_unavailable(self.index, self.trouble or ""))

    def _resume(self, refs: Iterable[PartitionRef]) -> None:
        """Retry kept requests, read `due` again, and announce the messages of these partitions."""
        self._timers.read_again()
        self._wake()
        if not self._health.available:
            return  # its end does all this
        again, self._to_retry = self._to_retry, []
        self._inbox[:0] = (each for each in again if self._resolve(each[0].queue_id) is not None)
        self._timers.watch_locks(self._open.by_queue_id)  # some may have ended during the outage
        self._timers.arm()
        self.announce(refs)

    def _locks_ended(self, queue_id: int) -> None:
        if queue_id in self._open.by_queue_id:
            self.submit(self._open.refs[queue_id], ExpireLocks())
        else:
            self._timers.unwatched.discard(queue_id)


class _Begun:
    """A coroutine that was begun outside a task and waits for a future: a task that awaits this goes on with it.

    Without a coroutine the error that it has ended with is raised there.
    """

    __slots__ = ("_steps", "_waits_for")

    def __init__(self, steps: Coroutine[object, None, None] | None, waits_for: object) -> None:
        self._steps = steps
        self._waits_for = waits_for

    def __await__(self) -> Generator[object, None, None]:
        steps, waits_for = self._steps, self._waits_for
        if steps is None:
            assert isinstance(waits_for, BaseException)
            raise waits_for
        while True:
            try:
                yield waits_for
            except BaseException as error:
                step = partial(steps.throw, error)
            else:
                step = partial(steps.send, None)
            try:
                waits_for = step()
            except StopIteration:
                return
