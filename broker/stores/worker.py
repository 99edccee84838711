"""The worker of one messaging store: take a batch from the inbox, execute it, commit once, call the effects (R3).

Knows the order of these steps and the handling of their failures. Does not know what a request does (`partition`).
While a commit runs on a thread, the inbox collects the next batch: a group commit without a timer. Owns the open
partitions and timers of its store; runs on the event loop. Owned by the `Namespace`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import structlog

from ...storage import FLUSHING_BYTES, Batch, Store, StoreError, StoreFull, View
from .. import service_errors
from ..address import SubQueue
from ..clock import Clock
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..partition.partition import Partition
from ..partition.records import DUE, STATE, STATE_KEY, Counters, Home
from ..partition.requests import DeleteRows, ExpireLocks, ProcessDue, Request, Send, must_be_retried
from ..partition.state import forwarded_from
from ..partition.step import Delays, NoObserver, Observer, PartitionRef
from ..partition.turn import Turn
from .batches import BATCH_BYTES_MAX, Submitted, can_split, halves, next_batch, split_receives
from .commit_stats import CommitStats
from .committer import Committer
from .first_rows import first_rows
from .matching import Matching
from .message_counts import MessageCounts
from .open_partitions import OpenPartitions
from .outage import HEALTHY, Outage, OutageKind
from .pace import Pace
from .recovery import Failure, Recovery
from .timers import StoreTimers

BATCH_REQUESTS_MAX = 1000
BATCH_US = 10_000  # a batch that has taken longer ends: the rest is the next one, and others' requests come before it
LOOK_EVERY = 4  # requests: looking at the time costs as much as a tenth of the cheapest one
RETRY_AFTER_MS = 250  # after a failed commit
FAULTS_MAX = 1000  # kinds of faults that are counted; there should be none

log = structlog.get_logger(__name__)


class Worker:
    """Drives the partitions of `store`; `index` is the number of the messaging store.

    `resolve(queue_id)` returns a queue's partition in this store, None for a deleted queue; `partitions()` returns all
    of them. `committer` commits for stores that block; it and `pace` are those of all workers. `failpoint(name)` marks
    a step of the commit for tests. `observer` learns what happens to messages.
    """

    def __init__(
        self,
        index: int,
        store: Store,
        clock: Clock,
        committer: Committer,
        pace: Pace,
        resolve: Callable[[int], PartitionRef | None],
        partitions: Callable[[], Iterable[PartitionRef]],
        failpoint: Callable[[str], None],
        observer: Observer | None = None,
    ) -> None:
        self.index = index
        self._store = store
        self._clock = clock
        self._committer = committer
        self._pace = pace
        self._resolve = resolve
        self._partitions = partitions
        self._failpoint = failpoint
        self._observer = observer or NoObserver()
        self._open = OpenPartitions()
        self._inbox: list[Submitted] = []
        self._to_retry: list[Submitted] = []  # before the inbox, once the store works
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers = StoreTimers(clock, self._locks_ended, self._wake.set)
        self._stopping = False
        self._outage_gate: asyncio.Future[None] | None = None  # a commit waits for it during an outage
        self.idle_lock = asyncio.Lock()  # held while a batch runs
        self.commit_stats = CommitStats()
        self.message_counts = MessageCounts()
        self._faults: dict[tuple[object, ...], int] = {}  # of this program: how often, by entity, request and error
        self._flush_failed = False  # since the task woke last
        self._committing = False  # if a commit fails now, its outcome is unknown
        self.outage: Outage | None = None
        self._is_full = False  # it refuses what adds, and takes what deletes
        self._recovery = Recovery(
            clock, "messaging store", store.recover, self._recovered, waits=store.blocking, store=index
        )
        self._matching = Matching(clock, pace, self._enter)
        self.delays: Delays | None = None
        """What is late on purpose."""

    # ---- the interface for the broker

    def start(self) -> list[int]:
        """Start the loop and the timers; return the queue ids of partitions with messages that may be forwarded.

        Raises UnreadableRowError and StoreError.
        """
        found = first_rows(self.index, self._store)
        self._timers.start(found.due_at)
        loop = asyncio.get_running_loop()
        self._store.on_flush_wanted(lambda: loop.call_soon_threadsafe(self._wake.set))
        self._task = asyncio.create_task(self._run(), name=f"store-{self.index:02}")
        self._task.add_done_callback(self._ended)
        return found.with_outboxes

    async def stop(self) -> None:
        """Finish the inbox, then close the store; later requests fail."""
        self.end_outage()
        self._matching.release_all()
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await asyncio.wait([self._task])
        await self._recovery.stop()
        self._timers.stop()
        self._open.close()
        self._store.close()
        self.outage = Outage(OutageKind.DOWN)

    @property
    def available(self) -> bool:
        """Whether the store accepts requests."""
        return self._recovery.failure is None and (self.outage is None or not self.outage.is_down)

    @property
    def failure(self) -> Failure | None:
        """Why the store fails without an outage; it is tried again until it works."""
        return self._recovery.failure

    @property
    def health(self) -> str:
        """HEALTHY, the kind of the outage, or that of one that its disk makes."""
        if self.outage is not None:
            return self.outage.kind.value
        if self._recovery.failure is not None:
            return OutageKind.FAILING.value
        return OutageKind.FULL.value if self._is_full else HEALTHY

    @property
    def is_committing(self) -> bool:
        """Whether a commit waits for the disk; any thread may ask."""
        return self._committing and self.idle_lock.locked()

    @property
    def trouble(self) -> str | None:
        """Why requests may be refused, as the end of a sentence: an outage of any kind, or a failure."""
        if self.outage is not None:
            return f"it is {self.outage.kind.value}"
        return None if self._recovery.failure is None else self._recovery.failure.cause

    def submit(self, ref: PartitionRef, request: Request) -> None:
        """Add `request` to the inbox; while the store is down or fails, fail it or keep it for a retry."""
        if not self.available:
            if must_be_retried(request):
                self._to_retry.append((ref, request))
                return
            error = service_errors.store_unavailable(self.index, self.trouble or "")
            asyncio.get_running_loop().call_soon(request.fail, error)
            return
        if type(request) is not Send or not self._matching.takes(ref, request):
            self._enter(ref, request)

    def _enter(self, ref: PartitionRef, request: Request) -> None:
        """Add a request to the inbox."""
        self._inbox.append((ref, request))
        self._wake.set()

    def use_delays(self, delays: Delays | None) -> None:
        """From now on these delays hold: what is no longer late comes at once."""
        self.delays = delays
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
        self.outage = outage
        if outage.is_down:
            self._refuse_inbox()

    def end_outage(self) -> None:
        """End the outage and continue a delayed commit; a worker that `_ended` stays down until the next start."""
        if self.outage is None or (self._task is not None and self._task.done()):
            return
        self.outage = None
        if self._outage_gate is not None and not self._outage_gate.done():
            self._outage_gate.set_result(None)
        self._resume(self._partitions())

    def copy_to(self, folder: Path) -> Callable[[], None]:
        """Prepare a copy of the store (see `storage.Store.copy_to`); the caller holds `idle_lock`."""
        return self._store.copy_to(folder)

    def view(self) -> View:
        """Open a view of the committed rows (see `storage.View`). Raises StoreError."""
        return self._store.view()

    def partition(self, queue_id: int) -> Partition | None:
        """The open partition of a queue, for reading only; None if it is not open."""
        return self._open.by_queue_id.get(queue_id)

    def open_partitions(self) -> Sequence[Partition]:
        """The partitions in memory, for reading only."""
        return list(self._open.by_queue_id.values())

    def counters(self, queue_id: int) -> Counters:
        """The counters of a queue's partition, from memory or from the store. Raises StoreError."""
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
        return self._open.last_activity_at(queue_id)

    def description_changed(self, queue_id: int) -> None:
        """Adapt the open partition of a queue to its changed description."""
        partition = self._open.by_queue_id.get(queue_id)
        if partition is not None:
            partition.description_changed()

    def remove(self, queue_id: int) -> None:
        """Close the partition of a deleted queue."""
        self._open.remove(queue_id)
        self.message_counts.remove(queue_id)

    # ---- the loop

    async def _run(self) -> None:
        while True:
            is_failing = self._recovery.failure is not None  # then `_recovered` wakes it
            if is_failing or (not self._inbox and not self._timers.is_due):
                if self._stopping:
                    return
                may_flush = self.outage is None and not self._flush_failed and not is_failing
                if may_flush and self._store.wants_flush:
                    await self._flush_for_room()
                    continue
                self._wake.clear()
                await self._wake.wait()
                self._flush_failed = False
                continue
            async with self.idle_lock:
                await self._next_batch()

    async def flush(self) -> None:
        """Let the store put what its journal has into its own file. The caller holds `idle_lock`. StoreError."""
        if self._store.has_pending:
            await self._commit(self._store.begin(FLUSHING_BYTES, frees=True), True, 0)

    async def _flush_for_room(self) -> None:
        try:
            async with self.idle_lock:
                await self.flush()
        except StoreError as error:  # the next batch tries again
            self._flush_failed = True
            self._clock.call_after(RETRY_AFTER_MS, self._wake.set)
            if not self._has_state(error):
                log.error("flush failed", store=self.index, cause=str(error))

    def _ended(self, task: asyncio.Task[None]) -> None:
        """After an error of this module: take the store down, so that its requests are refused instead of waiting."""
        if not task.cancelled() and (error := task.exception()) is not None:
            log.critical("messaging store stopped", store=self.index, exc_info=error)
            self.begin_outage(Outage(OutageKind.DOWN))

    async def _next_batch(self) -> None:
        inbox = self._inbox
        requests, self._inbox = inbox[:BATCH_REQUESTS_MAX], inbox[BATCH_REQUESTS_MAX:]
        self._committing = False
        self._open.touched.clear()
        try:
            if self._timers.is_due:
                requests = [*requests, *self._timers.due_requests(self._store, self._resolve)]
                self._timers.arm()  # even if no row is due
        except StoreError as error:
            self._begin_to_fail(str(error))  # also if only these rows can't be read: the store can't keep its time
            self._refuse(requests, error)
            return
        for part in split_receives(requests):
            await self._run_batches(part)

    async def _run_batches(self, requests: list[Submitted]) -> None:
        """Execute `requests` in order, in as many batches as necessary.

        If a batch does not fit into the store, or fails before its commit, retry it in halves, down to single requests
        and single messages of a run: only what fails by itself fails.
        """
        while requests or self._timers.orphans:
            count = len(requests)
            self._committing = False
            if not self.available:  # it began to fail with the batch before
                self._answer(requests, service_errors.store_unavailable(self.index, self.trouble or ""))
                return
            try:
                count, expected_bytes, adds = next_batch(requests)
                await self._pace.wait(requests[:count], expected_bytes)
                done_count = await self._run_batch(requests[:count], expected_bytes, adds)
                if done_count < count:
                    await self._pace.pause()
                    requests = self._others_first(requests, done_count)
                    continue
            except StoreError as error:
                if isinstance(error, StoreFull) and error.grows:
                    self._roll_back(requests[:count])
                    continue  # the store grows at the next batch
                if self._may_fit_in_parts(error) and can_split(requests[:count]):
                    await self._retry_in_halves(requests[:count], error)
                else:
                    self._refuse(requests[:count], error)
                    self._timers.orphans.clear()  # the timers find them again
                done_count = count
            except Exception as error:
                if not self._committing and can_split(requests[:count]):
                    await self._retry_in_halves(requests[:count], error)
                else:
                    self._fault(requests[:count], error)
                done_count = count
            requests = requests[done_count:]

    def _may_fit_in_parts(self, error: StoreError) -> bool:
        """Whether a part of the batch may succeed: there was no room for all, or a row of one request can't be read."""
        return isinstance(error, StoreFull) or (self._store.failure is None and not self._committing)

    def _fault(self, requests: Sequence[Submitted], error: Exception) -> None:
        """End a request that fails by itself, with a fault of this program.

        The traceback is logged once for each kind of request of a queue, then how often it happened, at 2, 4, 8, …
        times. A row of the `due` table stays behind until the next start: it would fail for ever, and have each batch
        that it is in executed anew.
        """
        names: dict[str, object] = {"store": self.index, "requests": len(requests)}
        if len(requests) == 1:
            ((ref, request),) = requests
            names |= {"entity": ref.path, "request": type(request).__name__}
            if isinstance(request, ProcessDue) and not self._committing:
                self._timers.set_aside(ref.queue_id, request.rows)
        kind = (names.get("entity"), names.get("request"), type(error)) if len(self._faults) < FAULTS_MAX else ()
        times = self._faults[kind] = self._faults.get(kind, 0) + 1
        if times == 1:
            log.error("batch failed", **names, exc_info=error)
        elif not times & (times - 1):
            log.error("batch failed again", **names, times=times, cause=repr(error))
        make = UnknownOutcomeError if self._committing else BrokerError
        failure = make(Condition.INTERNAL_ERROR, "The broker failed; see its log.")
        self._fail(requests, failure, is_unknown=self._committing)

    def _others_first(self, requests: list[Submitted], done_count: int) -> list[Submitted]:
        """What is left of requests whose batch was long, behind those that have come for other partitions since."""
        busy = {ref.queue_id for ref, _ in requests[:done_count]}
        others = [each for each in self._inbox if each[0].queue_id not in busy]
        if others:
            self._inbox = [each for each in self._inbox if each[0].queue_id in busy]
        return others + requests[done_count:]

    async def _retry_in_halves(self, requests: list[Submitted], error: Exception) -> None:
        if not isinstance(error, StoreFull):
            write = log.warning if isinstance(error, StoreError) else log.debug  # `_fault` logs the request at fault
            write("batch retried in halves", store=self.index, cause=str(error), requests=len(requests))
        refs = self._roll_back(requests)
        for half in halves(requests):
            await self._run_batches(half)
        self.announce(refs.values())

    async def _run_batch(self, requests: Sequence[Submitted], expected_bytes: int, adds: bool) -> int:
        """Execute the first of `requests` in one batch; return their number."""
        stopwatch_us, pace, timers = self._clock.stopwatch_us, self._pace, self._timers
        began_us = stopwatch_us()
        self._open.touched.clear()
        self._committing = False
        batch = self._store.begin(expected_bytes, frees=not adds)
        turn = Turn(self._clock.now_ms(), batch, [] if self._observer.is_on else None)
        try:
            done_count, changed = self._apply(requests, turn, batch)
            changed = turn.write_counters(batch) or changed
            orphans = list(timers.orphans)
            for key in orphans:
                batch.delete(DUE, key)
        except BaseException:
            batch.abort()
            raise
        pace.add(stopwatch_us() - began_us)
        changed = changed or bool(orphans)
        await self._commit(batch, changed, done_count)
        if self._is_full and adds and changed:
            self._is_full = False
            log.info("messaging store has room again", store=self.index)
        began_us = stopwatch_us()
        self._open.keep()
        del timers.orphans[: len(orphans)]
        timers.watch_locks(self._open.touched)
        if turn.next_due is not None:
            timers.row_added(turn.next_due)
        timers.arm()
        self.message_counts.add(turn.counts)
        turn.release(self._observer)
        pace.add(stopwatch_us() - began_us)
        if changed:
            self._failpoint("effects-released")
        return done_count

    async def _commit(self, batch: Batch, changed: bool, request_count: int) -> None:
        if not changed:
            batch.abort()
            return
        began_us = self._clock.stopwatch_us()
        if self.outage is not None:
            self._outage_gate = asyncio.get_running_loop().create_future()
            try:
                await self.outage.before_commit(self._clock, self._outage_gate)
            except StoreError:
                batch.abort()
                raise
        self._committing = True
        if self._store.blocking:
            await self._committer.commit(batch)
        else:
            batch.commit()
        self.commit_stats.committed(request_count, self._clock.stopwatch_us() - began_us)

    def _apply(self, requests: Sequence[Submitted], turn: Turn, batch: Batch) -> tuple[int, bool]:
        """Apply requests until the batch is large, or has taken long.

        Returns their number, and whether there are changes besides counters.
        """
        partitions, touched, touch = self._open.by_queue_id, self._open.touched, self._open.touch
        written_bytes = done_count = until_us = 0
        partition: Partition | None = None
        last_ref: PartitionRef | None = None
        for ref, request in requests:
            if written_bytes > BATCH_BYTES_MAX:
                break
            if done_count % LOOK_EVERY == LOOK_EVERY - 1:
                now_us = self._clock.stopwatch_us()
                if not until_us:
                    until_us = now_us + BATCH_US
                elif now_us > until_us:
                    break
            done_count += 1
            if partition is None or ref is not last_ref:
                gone = ref.gone
                if gone is not None and type(request) is not DeleteRows:
                    # It came before the entity was deleted or purged. A number that it took now would be given again:
                    # the entity's successor goes on where this one was at that moment.
                    turn.effects.append((request.fail, gone))
                    continue
                partition, last_ref = partitions.get(ref.queue_id) or touch(ref, batch), ref
                touched[ref.queue_id] = partition
            partition.apply(request, turn)
            written_bytes += turn.write_to(batch)
        return done_count, written_bytes > 0

    def _refuse(self, requests: Sequence[Submitted], error: StoreError) -> None:
        """Fail a batch that the store refused: nothing of it is stored, or its outcome is unknown."""
        self.commit_stats.failed()
        if not self._has_state(error):
            log.error("commit failed", store=self.index, cause=str(error), requests=len(requests))
        is_unknown = self._committing and not isinstance(error, StoreFull)
        refusal = service_errors.outcome_unknown if is_unknown else service_errors.store_unavailable
        self._fail(requests, refusal(self.index, str(error)), is_unknown=is_unknown)

    def _has_state(self, error: StoreError) -> bool:
        """Whether `error` means that the store fails, and is tried again until it works, or that it is full.

        Then its beginning and its end are logged, and not each request that is refused.
        """
        if self._store.failure is not None:
            self._begin_to_fail(self._store.failure)
        if isinstance(error, StoreFull) and self.outage is None and not self._is_full:
            self._is_full = True
            log.error("messaging store is full", store=self.index, cause=str(error), effect="sends are refused")
        return self._is_full or self._recovery.failure is not None

    def _begin_to_fail(self, cause: str) -> None:
        self._recovery.fail(cause)
        self._refuse_inbox()

    def _recovered(self) -> None:
        self._resume(self._partitions())

    def _refuse_inbox(self) -> None:
        requests, self._inbox = self._inbox, []
        self._answer(requests, service_errors.store_unavailable(self.index, self.trouble or ""))

    def _fail(self, requests: Sequence[Submitted], error: BrokerError, *, is_unknown: bool) -> None:
        """After a failed batch: undo it in memory, report the error to the callers, later announce its messages again.

        With `is_unknown` the batch's outcome is unknown.
        """
        refs = self._drop(requests) if is_unknown else self._roll_back(requests)
        self._answer(requests, error)
        # Not immediately: a store that refuses every commit would cause a busy loop.
        self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, lambda: self._resume(refs.values()))

    def _answer(self, requests: Sequence[Submitted], error: BrokerError) -> None:
        """Report the error of these requests; keep those that must be retried."""
        for ref, request in requests:
            request.fail(error)
            if must_be_retried(request) and error.condition is Condition.SERVER_BUSY:
                self._to_retry.append((ref, request))

    def _roll_back(self, requests: Sequence[Submitted]) -> dict[int, PartitionRef]:
        """Undo a batch that is not stored, including its locks; return its partitions by queue id.

        If the store can't be read, drop their memory.
        """
        try:
            with self._store.view() as view:
                self._open.roll_back(view)
        except StoreError:
            return self._drop(requests)
        refs = self._open.refs_of_batch(ref for ref, _ in requests)
        self._open.touched.clear()
        return refs

    def _drop(self, requests: Sequence[Submitted]) -> dict[int, PartitionRef]:
        """Drop the partitions of a batch with an unknown outcome; return their refs by queue id."""
        refs = self._open.refs_of_batch(ref for ref, _ in requests)
        self._open.drop(refs)
        self._open.touched.clear()
        return refs

    def _resume(self, refs: Iterable[PartitionRef]) -> None:
        """Retry kept requests, read `due` again, and announce the messages of these partitions."""
        self._timers.read_again()
        self._wake.set()
        if not self.available:
            return  # its end does all this
        again, self._to_retry = self._to_retry, []
        self._inbox[:0] = (each for each in again if self._resolve(each[0].queue_id) is not None)
        self._timers.watch_locks(self._open.by_queue_id)  # some may have ended during the outage
        self._timers.arm()
        self.announce(refs)

    def _locks_ended(self, queue_id: int) -> None:
        if queue_id in self._open.by_queue_id:
            self.submit(self._open.refs[queue_id], ExpireLocks())
