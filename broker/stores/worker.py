"""The worker of one messaging store: take the inbox, decide, commit once, release the effects (R3).

Knows the order of these steps and what a failure of one means; refuses to know what a command means (`partition.py`).
While a commit runs off the loop the next batch gathers in the inbox: that is the group commit, and no timer is needed
for it. Owns the partitions of its store and their timers; runs on the event loop.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

import structlog

from ...storage import Batch, Store, StoreError, StoreFull, View
from .. import service_errors
from ..address import SubQueue
from ..clock import Clock
from ..errors import BrokerError, Condition
from ..model.catalog import UnreadableRowError
from ..partition.partition import Partition
from ..partition.records import DUE, DUE_KEY, OUTBOXES, STATE, STATE_KEY, Counters
from ..partition.requests import ExpireLocks, Request, Reserve, is_unanswered
from ..partition.step import PartitionRef, Step
from .batch_weight import written_bytes_max
from .commit_stats import CommitStats
from .open_partitions import OpenPartitions
from .outage import Outage, OutageKind
from .timers import FIRST_DUE, LAST_DUE, StoreTimers

BATCH_COMMANDS_MAX = 1000  # bounds how long one batch keeps the loop from everything else
BATCH_BYTES_MAX = 1 << 20  # LMDB keeps the memory of the largest batch of each store for ever
RETRY_AFTER_MS = 250  # after a failed commit, until consumers ask the store again
STATES_MAX = 1 << 24  # one row per entity: all of them
T = TypeVar("T")

log = structlog.get_logger(__name__)


class Worker:
    """Drives the partitions that live in `store`; `index` is the number of the messaging store.

    `resolve(queue_id)` finds the partition of a queue in this store, or None for a queue that is no more.
    `pool` runs commits that block on disk.
    """

    def __init__(
        self,
        index: int,
        store: Store,
        clock: Clock,
        pool: Executor,
        resolve: Callable[[int], PartitionRef | None],
        failpoint: Callable[[str], None],
    ) -> None:
        self.index = index
        self._store = store
        self._clock = clock
        self._pool = pool
        self._resolve = resolve
        self._failpoint = failpoint
        self._open = OpenPartitions()
        self._inbox: list[tuple[PartitionRef, Request]] = []
        self._unanswered: list[tuple[PartitionRef, Request]] = []  # to be tried again before what is in the inbox
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._timers = StoreTimers(clock, self._locks_ended, self._wake.set)
        self._stopping = False
        self._outage_gate: asyncio.Future[None] | None = None  # what a commit waits for under an outage
        self.idle_lock = asyncio.Lock()  # whoever has it, no batch is under way
        self.commit_stats = CommitStats()
        self._committing = False  # from here on a failure leaves open what is stored
        self.outage: Outage | None = None
        self.fault: str | None = None  # why the newest commit failed; None after one that succeeded

    # ---- what the rest of the broker calls

    def start(self) -> list[int]:
        """Begin to work; expired messages of an earlier run are due at once.

        The queue ids of partitions whose outboxes hold messages. UnreadableRowError, StoreError.
        """
        with self._store.view() as view:
            first = view.scan(DUE, FIRST_DUE, LAST_DUE, 1)
            states = view.scan(STATE, b"", b"\xff" * (STATE_KEY.size + 1), STATES_MAX)
        first_due = self._parsed(DUE, first[0], lambda key, _: int(DUE_KEY.unpack(key)[0])) if first else None
        read = [
            self._parsed(STATE, row, lambda key, row: (STATE_KEY.unpack(key)[0], Counters.unpack(row)))
            for row in states
        ]
        self._timers.start(first_due)
        self._task = asyncio.create_task(self._run(), name=f"store-{self.index:02}")
        return [queue_id for queue_id, counters in read if any(counters.messages[home] for home in OUTBOXES)]

    def _parsed(self, table: str, row: tuple[bytes, bytes], parse: Callable[[bytes, bytes], T]) -> T:
        """What a row says that a start needs; UnreadableRowError if it says nothing."""
        try:
            return parse(*row)
        except (struct.error, ValueError, IndexError) as error:
            raise UnreadableRowError(f"store-{self.index:02}", table, row[0], error) from error

    async def stop(self) -> None:
        """Finish what is in the inbox, then close the store; what comes later fails."""
        self.end_outage()
        self._stopping = True
        self._wake.set()
        if self._task is not None:
            await self._task
        self._timers.stop()
        self._open.close()
        self._store.close()
        self.outage = Outage(OutageKind.DOWN)

    @property
    def available(self) -> bool:
        """Whether the store takes commands at all."""
        return self.outage is None or not self.outage.is_down

    def submit(self, ref: PartitionRef, request: Request) -> None:
        """Queue `request` for the next batch; while the store is down it fails instead, or waits if nobody asks."""
        if self.outage is not None and self.outage.is_down:
            if is_unanswered(request):
                self._unanswered.append((ref, request))
                return
            error = service_errors.store_unavailable(self.index, "it is down")
            asyncio.get_running_loop().call_soon(request.fail, error)
            return
        self._inbox.append((ref, request))
        self._wake.set()

    def probe(self) -> None:
        """Ask for a commit that changes nothing: after it `fault` shows whether the store works again."""
        for ref in list(self._open.refs.values())[:1]:
            if not self._stopping:
                self.submit(ref, Reserve(0, lambda _: None))

    def begin_outage(self, outage: Outage) -> None:
        """Behave as `outage` says until `end_outage`; what waits in the inbox of a store that goes down fails."""
        self.outage = outage
        if outage.is_down:
            requests, self._inbox = self._inbox, []
            self._answer(requests, service_errors.store_unavailable(self.index, "it is down"))

    def end_outage(self) -> None:
        """Work normally again; a commit that an outage holds up goes on."""
        if self.outage is None:
            return
        self.outage = None
        self.fault = None
        if self._outage_gate is not None and not self._outage_gate.done():
            self._outage_gate.set_result(None)
        self._resume(self._open.refs.values())

    def copy_to(self, folder: Path) -> Callable[[], None]:
        """Get ready to copy the store (see `storage.Store.copy_to`); the caller has `idle_lock`."""
        return self._store.copy_to(folder)

    def read(self) -> View:
        """The committed rows, for now (see `storage.View`). Raises StoreError."""
        return self._store.view()

    def partition(self, queue_id: int) -> Partition | None:
        """The partition as it is in memory, if it was used since the start; to be read, not to be changed."""
        return self._open.by_queue_id.get(queue_id)

    def counters(self, queue_id: int) -> Counters:
        """What the partition of a queue counts, whether or not it was used since the start. Raises StoreError."""
        partition = self._open.by_queue_id.get(queue_id)
        if partition is not None:
            return partition.counters
        with self._store.view() as view:
            return Counters.unpack(view.get(STATE, STATE_KEY.pack(queue_id)))

    def has_outgoing(self, queue_id: int) -> bool:
        """Whether messages wait in the partition of a queue to go elsewhere; also if that can't be known now."""
        try:
            messages = self.counters(queue_id).messages
        except StoreError:
            return True
        return any(messages[home] for home in OUTBOXES)

    def last_activity_at(self, queue_id: int) -> int:
        """When the partition of a queue was last used (Unix ms), 0 if it was not since the start."""
        return self._open.last_activity_at(queue_id)

    def description_changed(self, queue_id: int) -> None:
        """The description of an entity changed; its partition here, if open, follows."""
        partition = self._open.by_queue_id.get(queue_id)
        if partition is not None:
            partition.description_changed()

    def drop(self, queue_id: int) -> None:
        """Drop the memory of a partition whose queue is gone."""
        self._open.remove(queue_id)

    # ---- the loop

    async def _run(self) -> None:
        while True:
            if not self._inbox and not self._timers.is_due:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            async with self.idle_lock:
                await self._next_batch()

    async def _next_batch(self) -> None:
        inbox = self._inbox
        requests, self._inbox = inbox[:BATCH_COMMANDS_MAX], inbox[BATCH_COMMANDS_MAX:]
        self._committing = False
        self._open.touched.clear()
        try:
            if self._timers.is_due:
                requests = [*requests, *self._timers.due_requests(self._store, self._resolve)]
                self._timers.arm()  # also if nothing is due any more
        except StoreError as error:
            self._refuse(requests, error)
            return
        await self._work_off(requests)

    async def _work_off(self, requests: list[tuple[PartitionRef, Request]]) -> None:
        """Do `requests` in their order, in as many batches as they need.

        A batch that does not fit, or that fails before its commit, is tried again in halves, down to single commands:
        only the command that can't be done fails.
        """
        while requests or self._timers.orphans:
            count = len(requests)
            self._committing = False
            try:
                count, expected_bytes = self._next_count(requests)
                done_count = await self._process(requests[:count], expected_bytes)
            except StoreError as error:
                if isinstance(error, StoreFull) and error.grows:
                    self._roll_back(requests[:count])
                    continue  # the store makes more room at its next batch
                if isinstance(error, StoreFull) and count > 1:
                    await self._work_off_halves(requests[:count], error)
                else:
                    self._refuse(requests[:count], error)
                    self._timers.orphans.clear()  # they are found again
                done_count = count
            except Exception as error:
                if count > 1 and not self._committing:
                    await self._work_off_halves(requests[:count], error)
                else:
                    log.exception("batch failed", store=self.index, requests=count)
                    failure = BrokerError(Condition.INTERNAL_ERROR, "The broker failed; see its log.")
                    self._fail(requests[:count], failure, is_open=self._committing)
                done_count = count
            requests = requests[done_count:]

    async def _work_off_halves(self, requests: list[tuple[PartitionRef, Request]], error: Exception) -> None:
        log.warning("batch is tried again in halves", store=self.index, cause=str(error), requests=len(requests))
        refs = self._roll_back(requests)
        half = len(requests) // 2
        await self._work_off(requests[:half])
        await self._work_off(requests[half:])
        self._offer(refs.values())

    def _next_count(self, requests: Sequence[tuple[PartitionRef, Request]]) -> tuple[int, int]:
        """How many of `requests` come into the next batch, and how many bytes it writes at most."""
        sent_bytes = expected_bytes = largest_bytes = 0
        count = 0
        for ref, request in requests:
            if sent_bytes > BATCH_BYTES_MAX:
                break
            own_bytes, with_copies_bytes = written_bytes_max(ref, request)
            sent_bytes += own_bytes
            expected_bytes += with_copies_bytes
            if with_copies_bytes > largest_bytes:
                largest_bytes = with_copies_bytes
            count += 1
        # `_apply` stops behind the command that passes the limit.
        return count, min(expected_bytes, BATCH_BYTES_MAX + largest_bytes)

    async def _process(self, requests: Sequence[tuple[PartitionRef, Request]], expected_bytes: int) -> int:
        """Do the first of `requests` in one batch; how many it were."""
        step = Step()
        now = self._clock.now_ms()
        self._open.touched.clear()
        self._committing = False
        batch = self._store.begin(expected_bytes)
        try:
            done_count, changed = self._apply(requests, now, batch, step)
            for queue_id, counters in step.touched.items():
                batch.put(STATE, STATE_KEY.pack(queue_id), counters.pack())
            orphans = list(self._timers.orphans)
            for key in orphans:
                batch.delete(DUE, key)
        except BaseException:
            batch.abort()
            raise
        changed = changed or bool(step.touched) or bool(orphans)
        await self._commit(batch, changed, done_count)
        self._open.keep()
        del self._timers.orphans[: len(orphans)]
        self._timers.watch_locks(self._open.touched)
        if step.next_due is not None:
            self._timers.row_added(step.next_due)
        self._timers.arm()
        for effect, argument in step.effects:
            effect(argument)
        if changed:
            self._failpoint("effects-released")
        return done_count

    async def _commit(self, batch: Batch, changed: bool, command_count: int) -> None:
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
            await asyncio.get_running_loop().run_in_executor(self._pool, batch.commit)
        else:
            batch.commit()
        self.fault = None
        self.commit_stats.committed(command_count, self._clock.stopwatch_us() - began_us)

    def _apply(
        self, requests: Sequence[tuple[PartitionRef, Request]], now: int, batch: Batch, step: Step
    ) -> tuple[int, bool]:
        """Decide about commands until the batch is large enough.

        The answer is how many it were, and whether anything has to be stored beside counters.
        """
        partitions, touched, touch = self._open.by_queue_id, self._open.touched, self._open.touch
        changes = step.changes
        written_bytes = done_count = 0
        put, delete = batch.put, batch.delete
        for ref, request in requests:
            if written_bytes > BATCH_BYTES_MAX:
                break
            done_count += 1
            partition = partitions.get(ref.queue_id)
            if partition is None:
                partition = touch(ref, batch)
            touched[ref.queue_id] = partition
            partition.apply(request, now, batch, step)
            if changes:
                for table, key, value in changes:
                    if value is None:
                        written_bytes += 1
                        delete(table, key)
                    else:
                        written_bytes += len(value) + 1
                        put(table, key, value)
                changes.clear()
        return done_count, written_bytes > 0

    def _refuse(self, requests: Sequence[tuple[PartitionRef, Request]], error: StoreError) -> None:
        """The store said no to a batch: its callers hear whether nothing of it is stored, or that this is not known."""
        self.commit_stats.failed()
        log.error("commit failed", store=self.index, cause=str(error), requests=len(requests))
        if not isinstance(error, StoreFull):
            if self.fault is None:
                self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, self.probe)
            self.fault = str(error)
        is_open = self._committing and not isinstance(error, StoreFull)
        refusal = service_errors.outcome_unknown if is_open else service_errors.store_unavailable
        self._fail(requests, refusal(self.index, str(error)), is_open=is_open)

    def _fail(self, requests: Sequence[tuple[PartitionRef, Request]], error: BrokerError, *, is_open: bool) -> None:
        """A batch failed: forget what memory made of it, report to the callers, offer the lines anew.

        With `is_open` it is not known whether the batch is stored.
        """
        refs = self._drop(requests) if is_open else self._roll_back(requests)
        self._answer(requests, error)
        # Not at once: a store that refuses every commit must not be asked in a tight loop.
        self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, lambda: self._resume(refs.values()))

    def _answer(self, requests: Sequence[tuple[PartitionRef, Request]], error: BrokerError) -> None:
        """Report that these commands failed; those that nobody asks about are kept to be tried again."""
        for ref, request in requests:
            request.fail(error)
            if is_unanswered(request) and error.condition is Condition.SERVER_BUSY:
                self._unanswered.append((ref, request))

    def _roll_back(self, requests: Sequence[tuple[PartitionRef, Request]]) -> dict[int, PartitionRef]:
        """Undo what memory made of a batch of which nothing is stored; the partitions of the batch, by queue id.

        Locks and held sessions are as before the batch. If not even reading works, memory is dropped.
        """
        try:
            with self._store.view() as view:
                self._open.roll_back(view)
        except StoreError:
            return self._drop(requests)
        refs = self._open.refs_of_batch(ref for ref, _ in requests)
        self._open.touched.clear()
        return refs

    def _drop(self, requests: Sequence[tuple[PartitionRef, Request]]) -> dict[int, PartitionRef]:
        """Forget the partitions of a batch that may be stored, locks and held sessions with them; by queue id."""
        refs = self._open.refs_of_batch(ref for ref, _ in requests)
        self._open.drop(refs)
        self._open.touched.clear()
        return refs

    def _resume(self, refs: Iterable[PartitionRef]) -> None:
        """Look at the store with fresh eyes: what is available, what has expired."""
        self._timers.read_again()
        if self.available:
            again, self._unanswered = self._unanswered, []
            self._inbox[:0] = (each for each in again if self._resolve(each[0].queue_id) is not None)
        self._wake.set()
        self._timers.watch_locks(self._open.by_queue_id)  # of those that ended meanwhile the store has not heard
        self._timers.arm()
        self._offer(refs)

    def _offer(self, refs: Iterable[PartitionRef]) -> None:
        """Announce that these partitions may have messages, sessions and what is to be forwarded."""
        for ref in refs:
            for sub_queue in SubQueue:
                ref.announce(sub_queue)
            ref.announce_session(None)
            partition = self._open.by_queue_id.get(ref.queue_id)
            if partition is not None:
                partition.announce_held()
            if self.has_outgoing(ref.queue_id):
                ref.announce_outbox(None)

    def _locks_ended(self, queue_id: int) -> None:
        if queue_id in self._open.by_queue_id:
            self.submit(self._open.refs[queue_id], ExpireLocks())
