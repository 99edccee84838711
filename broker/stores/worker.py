"""The worker of one messaging store: take the inbox, decide, commit once, release the effects (R3).

Knows the order of these steps and what a failure of one means; refuses to know what a command means (`partition.py`).
While a commit runs off the loop the next batch gathers in the inbox: that is the group commit, and no timer is needed
for it. Owns the partitions of its store and their timers; runs on the event loop.
"""

from __future__ import annotations

import asyncio
import heapq
import struct
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Executor
from pathlib import Path
from typing import TypeVar

import structlog

from ...storage import Batch, Store, StoreError, StoreFull, View
from .. import service_errors
from ..address import SubQueue
from ..clock import Clock, Timer
from ..errors import BrokerError, Condition
from ..model.catalog import UnreadableRowError
from ..partition.partition import Partition
from ..partition.ready_queue import Reader, WindowBudget
from ..partition.records import DUE, DUE_KEY, OUTBOXES, STATE, STATE_KEY, Counters
from ..partition.requests import Command, ExpireLocks, FallDue, Reserve, is_unanswered
from ..partition.step import PartitionRef, Step
from .batch_weight import written_bytes_max
from .commit_stats import CommitMeasures
from .outage import Outage, OutageKind

BATCH_COMMANDS_MAX = 1000  # bounds how long one batch keeps the loop from everything else
BATCH_BYTES_MAX = 1 << 20  # LMDB keeps the memory of the largest batch of each store for ever
WINDOW_BYTES_MAX = 4 << 20  # read-ahead of all partitions of one store
RETRY_AFTER_MS = 250  # after a failed commit, until consumers ask the store again
DUE_ROWS_MAX = 500  # expired messages looked at in one batch
DUE_ROWS_AT_ONCE = 16  # in one command; of a topic 1, since each activated message is copied
STATES_MAX = 1 << 24  # one row per entity: all of them
T = TypeVar("T")
FIRST_DUE, LAST_DUE = b"", b"\xff" * (DUE_KEY.size + 1)

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
        self._partitions: dict[int, Partition] = {}
        self._refs: dict[int, PartitionRef] = {}
        self._seen: dict[int, Partition] = {}  # the partitions of the batch under way
        self._inbox: list[tuple[PartitionRef, Command]] = []
        self._unanswered: list[tuple[PartitionRef, Command]] = []  # to be tried again before what is in the inbox
        self._wake = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._budget = WindowBudget(WINDOW_BYTES_MAX)
        self._lock_ends: list[tuple[int, int]] = []  # (instant, queue id), a heap
        self._lock_end_of: dict[int, int] = {}  # the entry of a queue in that heap
        self._next_due: int | None = None
        self._due_now = False
        self._orphans: list[bytes] = []  # rows of `due` whose queues are no more, to be deleted
        self._due_from = FIRST_DUE  # rows before it were looked at; those that stayed belong to locked messages
        self._timer: Timer | None = None
        self._timer_at: int | None = None
        self._stopping = False
        self._slowed: asyncio.Future[None] | None = None  # what a commit waits for under an outage
        self.turn = asyncio.Lock()  # whoever has it, no batch is under way
        self.measures = CommitMeasures()
        self._committing = False  # from here on a failure leaves open what is stored
        self._activity: dict[int, int] = {}  # when partitions were last used whose memory was dropped, by queue id
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
        if first:
            self._next_due = self._parsed(DUE, first[0], lambda key, _: int(DUE_KEY.unpack(key)[0]))
        read = [
            self._parsed(STATE, row, lambda key, row: (STATE_KEY.unpack(key)[0], Counters.unpack(row)))
            for row in states
        ]
        self._arm()
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
        if self._timer is not None:
            self._timer.cancel()
        for partition in self._partitions.values():
            partition.close()
        self._store.close()
        self.outage = Outage(OutageKind.DOWN)

    @property
    def available(self) -> bool:
        """Whether the store takes commands at all."""
        return self.outage is None or not self.outage.is_down

    def submit(self, ref: PartitionRef, command: Command) -> None:
        """Queue `command` for the next batch; while the store is down it fails instead, or waits if nobody asks."""
        if self.outage is not None and self.outage.is_down:
            if is_unanswered(command):
                self._unanswered.append((ref, command))
                return
            error = service_errors.store_unavailable(self.index, "it is down")
            asyncio.get_running_loop().call_soon(command.fail, error)
            return
        self._inbox.append((ref, command))
        self._wake.set()

    def probe(self) -> None:
        """Ask for a commit that changes nothing: after it `fault` shows whether the store works again."""
        for ref in list(self._refs.values())[:1]:
            if not self._stopping:
                self.submit(ref, Reserve(0, lambda _: None))

    def begin_outage(self, outage: Outage) -> None:
        """Behave as `outage` says until `end_outage`; what waits in the inbox of a store that goes down fails."""
        self.outage = outage
        if outage.is_down:
            commands, self._inbox = self._inbox, []
            self._answer(commands, service_errors.store_unavailable(self.index, "it is down"))

    def end_outage(self) -> None:
        """Work normally again; a commit that an outage holds up goes on."""
        if self.outage is None:
            return
        self.outage = None
        self.fault = None
        if self._slowed is not None and not self._slowed.done():
            self._slowed.set_result(None)
        self._resume(self._refs.values())

    def copy_to(self, folder: Path) -> Callable[[], None]:
        """Get ready to copy the store (see `storage.Store.copy_to`); the caller has the `turn`."""
        return self._store.copy_to(folder)

    def look(self) -> View:
        """The committed rows, for now (see `storage.View`). Raises StoreError."""
        return self._store.view()

    def partition(self, queue_id: int) -> Partition | None:
        """The partition as it is in memory, if it was used since the start; to be read, not to be changed."""
        return self._partitions.get(queue_id)

    def counters(self, queue_id: int) -> Counters:
        """What the partition of a queue counts, whether or not it was used since the start. Raises StoreError."""
        partition = self._partitions.get(queue_id)
        if partition is not None:
            return partition.counters
        with self._store.view() as view:
            return Counters.unpack(view.get(STATE, STATE_KEY.pack(queue_id)))

    def has_outbox(self, queue_id: int) -> bool:
        """Whether messages wait in the partition of a queue to go elsewhere; also if that can't be known now."""
        try:
            messages = self.counters(queue_id).messages
        except StoreError:
            return True
        return any(messages[home] for home in OUTBOXES)

    def last_activity_at(self, queue_id: int) -> int:
        """When the partition of a queue was last used (Unix ms), 0 if it was not since the start."""
        partition = self._partitions.get(queue_id)
        return self._activity.get(queue_id, 0) if partition is None else partition.state.last_activity_at

    def described_anew(self, queue_id: int) -> None:
        """The description of an entity changed; its partition here, if open, follows."""
        partition = self._partitions.get(queue_id)
        if partition is not None:
            partition.described_anew()

    def forget(self, queue_id: int) -> None:
        """Drop the memory of a partition whose queue is gone."""
        partition = self._partitions.pop(queue_id, None)
        self._refs.pop(queue_id, None)
        self._activity.pop(queue_id, None)
        if partition is not None:
            partition.close()

    # ---- the loop

    async def _run(self) -> None:
        while True:
            if not self._inbox and not self._due_now:
                if self._stopping:
                    return
                self._wake.clear()
                await self._wake.wait()
                continue
            async with self.turn:
                await self._next_batch()

    async def _next_batch(self) -> None:
        inbox = self._inbox
        commands, self._inbox = inbox[:BATCH_COMMANDS_MAX], inbox[BATCH_COMMANDS_MAX:]
        self._committing = False
        self._seen.clear()
        try:
            if self._due_now:
                commands = [*commands, *self._due_commands()]
                self._arm()  # also if nothing is due any more
        except StoreError as error:
            self._refuse(commands, error)
            return
        await self._work_off(commands)

    async def _work_off(self, commands: list[tuple[PartitionRef, Command]]) -> None:
        """Do `commands` in their order, in as many batches as they need.

        A batch that does not fit, or that fails before its commit, is tried again in halves, down to single commands:
        only the command that can't be done fails.
        """
        while commands or self._orphans:
            count = len(commands)
            self._committing = False
            try:
                count, expected_bytes = self._next_count(commands)
                done_count = await self._process(commands[:count], expected_bytes)
            except StoreError as error:
                if isinstance(error, StoreFull) and error.grows:
                    self._roll_back(commands[:count])
                    continue  # the store makes more room at its next batch
                if isinstance(error, StoreFull) and count > 1:
                    await self._work_off_halves(commands[:count], error)
                else:
                    self._refuse(commands[:count], error)
                    self._orphans.clear()  # they are found again
                done_count = count
            except Exception as error:
                if count > 1 and not self._committing:
                    await self._work_off_halves(commands[:count], error)
                else:
                    log.exception("batch failed", store=self.index, commands=count)
                    failure = BrokerError(Condition.INTERNAL_ERROR, "The broker failed; see its log.")
                    self._fail(commands[:count], failure, is_open=self._committing)
                done_count = count
            commands = commands[done_count:]

    async def _work_off_halves(self, commands: list[tuple[PartitionRef, Command]], error: Exception) -> None:
        log.warning("batch is tried again in halves", store=self.index, cause=str(error), commands=len(commands))
        refs = self._roll_back(commands)
        half = len(commands) // 2
        await self._work_off(commands[:half])
        await self._work_off(commands[half:])
        self._offer(refs.values())

    def _next_count(self, commands: Sequence[tuple[PartitionRef, Command]]) -> tuple[int, int]:
        """How many of `commands` come into the next batch, and how many bytes it writes at most."""
        sent_bytes = expected_bytes = largest_bytes = 0
        count = 0
        for ref, command in commands:
            if sent_bytes > BATCH_BYTES_MAX:
                break
            own_bytes, with_copies_bytes = written_bytes_max(ref, command)
            sent_bytes += own_bytes
            expected_bytes += with_copies_bytes
            if with_copies_bytes > largest_bytes:
                largest_bytes = with_copies_bytes
            count += 1
        # `_apply` stops behind the command that passes the limit.
        return count, min(expected_bytes, BATCH_BYTES_MAX + largest_bytes)

    async def _process(self, commands: Sequence[tuple[PartitionRef, Command]], expected_bytes: int) -> int:
        """Do the first of `commands` in one batch; how many it were."""
        step = Step()
        now = self._clock.now_ms()
        self._seen.clear()
        self._committing = False
        batch = self._store.begin(expected_bytes)
        try:
            done_count, changed = self._apply(commands, now, batch, step)
            for queue_id, counters in step.touched.items():
                batch.put(STATE, STATE_KEY.pack(queue_id), counters.pack())
            orphans = list(self._orphans)
            for key in orphans:
                batch.delete(DUE, key)
        except BaseException:
            batch.abort()
            raise
        changed = changed or bool(step.touched) or bool(orphans)
        await self._commit(batch, changed, done_count)
        for partition in self._seen.values():
            partition.keep()
        del self._orphans[: len(orphans)]
        self._set_timers(step)
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
            self._slowed = asyncio.get_running_loop().create_future()
            try:
                await self.outage.before_commit(self._clock, self._slowed)
            except StoreError:
                batch.abort()
                raise
        self._committing = True
        if self._store.blocking:
            await asyncio.get_running_loop().run_in_executor(self._pool, batch.commit)
        else:
            batch.commit()
        self.fault = None
        self.measures.committed(command_count, self._clock.stopwatch_us() - began_us)

    def _apply(
        self, commands: Sequence[tuple[PartitionRef, Command]], now: int, batch: Batch, step: Step
    ) -> tuple[int, bool]:
        """Decide about commands until the batch is large enough.

        The answer is how many it were, and whether anything has to be stored beside counters.
        """
        partitions = self._partitions
        changes = step.changes
        written_bytes = done_count = 0
        put, delete = batch.put, batch.delete
        for ref, command in commands:
            if written_bytes > BATCH_BYTES_MAX:
                break
            done_count += 1
            queue_id = ref.queue_id
            partition = partitions.get(queue_id)
            if partition is None:
                partition = self._open(ref, batch)
            self._seen[queue_id] = partition
            partition.apply(command, now, batch, step)
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

    def _open(self, ref: PartitionRef, view: Reader) -> Partition:
        partition = Partition(ref, view, self._budget, self._sibling)
        partition.state.last_activity_at = self._activity.pop(ref.queue_id, 0)
        self._partitions[ref.queue_id] = partition
        self._refs[ref.queue_id] = ref
        return partition

    def _sibling(self, ref: PartitionRef, view: Reader) -> Partition:
        """The partition of a subscription that a topic's partition puts a copy into; it belongs to the batch, too."""
        partition = self._partitions.get(ref.queue_id) or self._open(ref, view)
        self._seen[ref.queue_id] = partition
        return partition

    def _refuse(self, commands: Sequence[tuple[PartitionRef, Command]], error: StoreError) -> None:
        """The store said no to a batch: its callers hear whether nothing of it is stored, or that this is not known."""
        self.measures.failures += 1
        log.error("commit failed", store=self.index, cause=str(error), commands=len(commands))
        if not isinstance(error, StoreFull):
            if self.fault is None:
                self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, self.probe)
            self.fault = str(error)
        is_open = self._committing and not isinstance(error, StoreFull)
        refusal = service_errors.outcome_unknown if is_open else service_errors.store_unavailable
        self._fail(commands, refusal(self.index, str(error)), is_open=is_open)

    def _fail(self, commands: Sequence[tuple[PartitionRef, Command]], error: BrokerError, *, is_open: bool) -> None:
        """A batch failed: forget what memory made of it, report to the callers, offer the lines anew.

        With `is_open` it is not known whether the batch is stored.
        """
        refs = self._drop(commands) if is_open else self._roll_back(commands)
        self._answer(commands, error)
        # Not at once: a store that refuses every commit must not be asked in a tight loop.
        self._clock.call_at(self._clock.now_ms() + RETRY_AFTER_MS, lambda: self._resume(refs.values()))

    def _answer(self, commands: Sequence[tuple[PartitionRef, Command]], error: BrokerError) -> None:
        """Report that these commands failed; those that nobody asks about are kept to be tried again."""
        for ref, command in commands:
            command.fail(error)
            if is_unanswered(command) and error.condition is Condition.SERVER_BUSY:
                self._unanswered.append((ref, command))

    def _roll_back(self, commands: Sequence[tuple[PartitionRef, Command]]) -> dict[int, PartitionRef]:
        """Undo what memory made of a batch of which nothing is stored; the partitions of the batch, by queue id.

        Locks and held sessions are as before the batch. If not even reading works, memory is dropped.
        """
        try:
            with self._store.view() as view:
                for queue_id, partition in self._seen.items():
                    if self._partitions.get(queue_id) is partition:  # else it is gone meanwhile
                        partition.roll_back(view)
        except StoreError:
            return self._drop(commands)
        refs = self._refs_of(commands)
        self._seen.clear()
        return refs

    def _drop(self, commands: Sequence[tuple[PartitionRef, Command]]) -> dict[int, PartitionRef]:
        """Forget the partitions of a batch that may be stored, locks and held sessions with them; by queue id."""
        refs = self._refs_of(commands)
        for queue_id in refs:
            partition = self._partitions.pop(queue_id, None)
            if partition is not None:
                self._activity[queue_id] = partition.state.last_activity_at
                partition.close()
                partition.lose_sessions()
        self._seen.clear()
        return refs

    def _refs_of(self, commands: Sequence[tuple[PartitionRef, Command]]) -> dict[int, PartitionRef]:
        """The partitions of the batch under way, which `commands` make up, by queue id."""
        seen = {each: self._refs[each] for each in self._seen if each in self._refs}  # it may be gone meanwhile
        return {ref.queue_id: ref for ref, _ in commands} | seen

    def _resume(self, refs: Iterable[PartitionRef]) -> None:
        """Look at the store with fresh eyes: what is available, what has expired."""
        self._due_from = FIRST_DUE
        self._due_now = True
        if self.available:
            again, self._unanswered = self._unanswered, []
            self._inbox[:0] = (each for each in again if self._resolve(each[0].queue_id) is not None)
        self._wake.set()
        self._watch_locks(self._partitions)  # of those that ended meanwhile the store has not heard
        self._arm()
        self._offer(refs)

    def _offer(self, refs: Iterable[PartitionRef]) -> None:
        """Announce that these partitions may have messages, sessions and what is to be forwarded."""
        for ref in refs:
            for sub_queue in SubQueue:
                ref.announce(sub_queue)
            ref.announce_session(None)
            partition = self._partitions.get(ref.queue_id)
            if partition is not None:
                partition.announce_held()
            if self.has_outbox(ref.queue_id):
                ref.announce_outbox(None)

    # ---- time

    def _set_timers(self, step: Step) -> None:
        self._watch_locks(self._seen)
        if step.next_due is not None:
            self._due_from = min(self._due_from, DUE_KEY.pack(step.next_due, 0, 0, 0))
            if self._next_due is None or step.next_due < self._next_due:
                self._next_due = step.next_due
        self._arm()

    def _watch_locks(self, partitions: Mapping[int, Partition]) -> None:
        for queue_id, partition in partitions.items():
            at = partition.next_lock_end()
            known = self._lock_end_of.get(queue_id)
            if at is not None and (known is None or at < known):
                self._lock_end_of[queue_id] = at
                heapq.heappush(self._lock_ends, (at, queue_id))

    def _arm(self) -> None:
        at = self._next_due
        if self._lock_ends and (at is None or self._lock_ends[0][0] < at):
            at = self._lock_ends[0][0]
        if at == self._timer_at:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = None if at is None else self._clock.call_at(at, self._on_timer)

    def _on_timer(self) -> None:
        self._timer = self._timer_at = None
        now = self._clock.now_ms()
        while self._lock_ends and self._lock_ends[0][0] <= now:
            at, queue_id = heapq.heappop(self._lock_ends)
            if self._lock_end_of.get(queue_id) == at:
                del self._lock_end_of[queue_id]
                if queue_id in self._partitions:
                    self.submit(self._refs[queue_id], ExpireLocks())
        if self._next_due is not None and self._next_due <= now:
            self._due_now = True
            self._next_due = None
            self._wake.set()
        self._arm()

    def _due_commands(self) -> list[tuple[PartitionRef, Command]]:
        """What is due now; rows of queues that are no more go with the next batch. Raises StoreError."""
        end = DUE_KEY.pack(self._clock.now_ms() + 1, 0, 0, 0)
        with self._store.view() as view:
            rows = view.scan(DUE, self._due_from, end, DUE_ROWS_MAX)
            due_from = rows[-1][0] + b"\0" if len(rows) == DUE_ROWS_MAX else max(end, self._due_from)
            following = view.scan(DUE, due_from, LAST_DUE, 1)
        self._due_now = False
        self._due_from = due_from
        self._next_due = DUE_KEY.unpack(following[0][0])[0] if following else None
        by_queue: dict[int, list[tuple[int, int, int]]] = {}
        for key, _ in rows:
            at, queue_id, what, number = DUE_KEY.unpack(key)
            by_queue.setdefault(queue_id, []).append((at, what, number))
        commands: list[tuple[PartitionRef, Command]] = []
        for queue_id, due in by_queue.items():
            ref = self._resolve(queue_id)
            if ref is None:
                self._orphans += (DUE_KEY.pack(at, queue_id, what, number) for at, what, number in due)
                continue
            at_once = DUE_ROWS_AT_ONCE if ref.fan_out is None else 1
            commands += ((ref, FallDue(due[start : start + at_once])) for start in range(0, len(due), at_once))
        return commands


def _queue_counters(key: bytes, row: bytes) -> tuple[int, Counters]:
    return STATE_KEY.unpack(key)[0], Counters.unpack(row)
