"""Runs the requests of one messaging store in batches: execute, commit once, release the effects (R3).

The steps of a batch are numbered, here and where a commit goes on (`committer`, `group_commits`, `storage/journal`):

1. The store begins a batch, and the turn of its requests.
2. Each partition executes its requests: memory changes, rows go into the batch, effects aside.
3. The counters of the partitions that have changed go into the batch, and `due` rows of deleted queues out of it.
4. The batch is committed; the loop goes on meanwhile. Without a change it is dropped.
   4.1 It waits for its group; `committer` makes the groups, and has a job on another thread commit what commits alone.
   4.2 `group_commits` starts a group with all batches that wait, of any store.
   4.3 `storage/journal/journal.py` packs their rows, plans one write and has it made.
   4.4 `group_commits` takes the outcomes, starts the next group, and sets the outcome of each batch.
5. Memory is kept: locks and held sessions have no more to undo, timers know the new instants.
6. The effects are released: events, answers, deliveries, announcements.

Before 4 has begun a failure undoes the batch: memory as the store has it, locks as before. What failed is then found by
halving, down to single requests and single messages of a run. Once 4 has begun, a failure leaves the outcome unknown,
and the memory of the batch's partitions is dropped; only no room is known to have stored nothing.

Knows the order of these steps and what ends them. Does not know what a request does (`partition`), where requests come
from (`worker`), and how what was done is counted (`counting`). On the event loop. Owned by the store's worker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Final, Protocol

import structlog

from ...storage import FLUSHING_BYTES, Batch, Store, StoreError, StoreFull, no_failpoint
from .. import service_errors
from ..clock import Clock
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..partition.contract import Delays, Observer, PartitionRef
from ..partition.partition import Partition
from ..partition.records import DUE
from ..partition.requests import DeleteRows, ProcessDue
from ..partition.turn import Turn
from ..turns import LARGE_TURN_US, Pace
from .batches import BATCH_BYTES_MAX, Submitted, can_split, halves, next_batch
from .committer import Committer
from .counting import CommitStats, MessageCounts
from .health import StoreHealth
from .open_partitions import OpenPartitions
from .outage import Outage
from .timers import StoreTimers

BATCH_US: Final = 10_000
"""A batch that has taken longer ends: the rest is the next one, and others' requests come before it."""

LOOK_EVERY: Final = 4
"""Requests between two looks at the time, which cost as much as a tenth of the cheapest request."""

SMALL_BATCH_US: Final = 100
"""What a small batch is charged without looking at the time: steps 1 to 3 of a message alone took 18 to 39 us, and step
6 writes its answer to a connection. Too little makes a turn with sixteen of them longer than it should be, too much
sends large ones to the next turn."""

FAULTS_MAX: Final = 1000
"""Kinds of faults that are counted; there should be none."""

assert SMALL_BATCH_US < LARGE_TURN_US < BATCH_US, "a batch would end before the turn that it may use up"

log = structlog.get_logger(__name__)


class Host(Protocol):
    """What takes requests and gets back those that were not executed: the store's worker."""

    def answer(self, requests: Sequence[Submitted], error: BrokerError) -> None:
        """Report the error of these requests; keep those that must be retried."""
        ...

    def others_than(self, busy: set[int]) -> list[Submitted]:
        """Take the waiting requests of other queues than these."""
        ...

    def announce(self, refs: Iterable[PartitionRef]) -> None:
        """Announce possible messages, sessions and outbox messages of these partitions."""
        ...

    def resume_later(self, refs: Iterable[PartitionRef]) -> None:
        """Soon retry kept requests, read `due` again, and announce the messages of these partitions."""
        ...


class BatchRunner:
    """Runs batches of `store`, whose partitions are `partitions`; `failpoint(name)` marks a step for tests.

    `committer` commits for stores that block; it and `pace` are those of all stores. `observer` learns what happens to
    messages.
    """

    def __init__(
        self,
        index: int,
        store: Store,
        clock: Clock,
        committer: Committer,
        pace: Pace,
        health: StoreHealth,
        partitions: OpenPartitions,
        timers: StoreTimers,
        host: Host,
        observer: Observer,
        failpoint: Callable[[str], None],
    ) -> None:
        self._index = index
        self._store = store
        self._clock = clock
        self._committer = committer
        self._pace = pace
        self._health = health
        self._partitions = partitions
        self._timers = timers
        self._host = host
        self._observer = observer
        self._failpoint = None if failpoint is no_failpoint else failpoint
        self.commit_stats = CommitStats()
        self.message_counts = MessageCounts()
        self._delays: Delays | None = None
        self.is_committing = False
        """A commit has begun: if it fails now, its outcome is unknown."""
        self._outage_gate: asyncio.Future[None] | None = None  # a commit waits for it during an outage
        self._faults: dict[tuple[object, ...], int] = {}  # of this program: how often, by entity, request and error

    async def run(self, requests: Sequence[Submitted]) -> None:
        """Execute `requests` in order, in as many batches as necessary.

        If a batch does not fit into the store, or fails before its commit, retry it in halves, down to single requests
        and single messages of a run: only what fails by itself fails.
        """
        while requests or self._timers.orphans:
            count = len(requests)
            self.is_committing = False
            if not self._health.available:  # it began to fail with the batch before
                self._host.answer(requests, self._unavailable())
                return
            try:
                count, expected_bytes, adds, large = next_batch(requests)
                if self._pace.used_us > LARGE_TURN_US:
                    await self._pace.wait(large=large)
                done_count = await self._run_batch(requests[:count], expected_bytes, adds=adds, large=large)
                if done_count < count:
                    await self._pace.pause()
                    busy = {ref.queue_id for ref, _ in requests[:done_count]}
                    requests = [*self._host.others_than(busy), *requests[done_count:]]
                    continue
            except StoreError as error:
                if isinstance(error, StoreFull) and error.grows:
                    self._roll_back(requests[:count])
                    continue  # the store grows at the next batch
                if self._may_fit_in_parts(error) and can_split(requests[:count]):
                    await self._retry_in_halves(requests[:count], error)
                else:
                    self.refuse(requests[:count], error)
                    self._timers.orphans.clear()  # the timers find them again
            except Exception as error:
                if not self.is_committing and can_split(requests[:count]):
                    await self._retry_in_halves(requests[:count], error)
                else:
                    self._fail_for_fault(requests[:count], error)
            requests = requests[count:]
        self.is_committing = False

    async def flush(self) -> None:
        """Let the store put what its journal has into its own file. StoreError."""
        if self._store.has_pending:
            self.is_committing = False
            batch = self._store.begin(FLUSHING_BYTES, frees=True)
            began_us = self._clock.stopwatch_us()
            if self._health.outage is not None:
                await self._suffer(self._health.outage, batch)
            self.is_committing = True
            if self._store.blocking:
                await self._committer.commit(batch)
            else:
                batch.commit()
            self.commit_stats.committed(0, self._clock.stopwatch_us() - began_us)

    def refuse(self, requests: Sequence[Submitted], error: StoreError) -> None:
        """Fail a batch that the store refused: nothing of it is stored, or its outcome is unknown."""
        self.commit_stats.failed()
        if not self._health.is_known(error):
            log.error("commit failed", store=self._index, cause=str(error), requests=len(requests))
        is_unknown = self.is_committing and not isinstance(error, StoreFull)
        refusal = service_errors.outcome_unknown if is_unknown else service_errors.store_unavailable
        self._fail(requests, refusal(self._index, str(error)), is_unknown=is_unknown)

    def use_delays(self, delays: Delays | None) -> None:
        """From now on this is what is late on purpose."""
        self._delays = delays

    def end_delay(self) -> None:
        """An outage has ended: continue a commit that it delays."""
        if self._outage_gate is not None and not self._outage_gate.done():
            self._outage_gate.set_result(None)

    # ---- one batch

    async def _run_batch(self, requests: Sequence[Submitted], expected_bytes: int, *, adds: bool, large: bool) -> int:
        """Execute the first of `requests` in one batch, in the steps of the module's head; return their number."""
        stopwatch_us, pace, timers, partitions = self._clock.stopwatch_us, self._pace, self._timers, self._partitions
        began_us = stopwatch_us() if large else 0
        partitions.touched.clear()
        batch = self._store.begin(expected_bytes, frees=not adds)  # 1
        turn = Turn(self._clock.now_ms(), batch, [] if self._observer.is_on else None, self._delays)
        try:
            done_count, changed = self._apply(requests, turn, batch)  # 2
            if turn.touched:  # 3
                turn.write_counters(batch)
                changed = True
            orphan_count = self._delete_orphans(batch) if timers.orphans else 0
        except BaseException:
            batch.abort()
            raise
        committed_us = applied_us = stopwatch_us() if large or changed or orphan_count else 0
        pace.add(applied_us - began_us if large else SMALL_BATCH_US)
        if changed or orphan_count:  # 4
            now_us = applied_us
            if self._health.outage is not None:
                await self._suffer(self._health.outage, batch)
                now_us = 0
            self.is_committing = True
            if self._store.blocking:
                groups = self._committer.groups.get(batch.shared)
                await (self._committer.commit(batch) if groups is None else groups.commit(batch, now_us))
            else:
                batch.commit()
            committed_us = stopwatch_us()
            self.commit_stats.committed(done_count, committed_us - applied_us)
            if adds and self._health.is_full:
                self._health.has_room()
        else:
            batch.abort()
        of_earlier_ends: dict[int, Partition] = {}
        for queue_id, partition in partitions.touched.items():  # 5
            locks = partition.state.locks
            if partition.has_sessions:
                partition.keep()
                of_earlier_ends[queue_id] = partition
            elif locks.undo and locks.keep(timers.lock_end_of.get(queue_id)):
                of_earlier_ends[queue_id] = partition
        del timers.orphans[:orphan_count]
        if of_earlier_ends or turn.next_due is not None or timers.unwatched:
            timers.batch_ended(partitions.touched, of_earlier_ends, turn.next_due, turn.now)
        if turn.counts:
            self.message_counts.add(turn.counts)
        turn.release(self._observer)  # 6
        if large:
            pace.add(stopwatch_us() - committed_us)
        if self._failpoint is not None and (changed or orphan_count):
            self._failpoint("effects-released")
        return done_count

    def _delete_orphans(self, batch: Batch) -> int:
        """Delete `due` rows of deleted queues; return how many."""
        for key in self._timers.orphans:
            batch.delete(DUE, key)
        return len(self._timers.orphans)

    async def _suffer(self, outage: Outage, batch: Batch) -> None:
        """Before a commit: wait as long as the outage delays it. StoreError if it fails it."""
        self._outage_gate = asyncio.get_running_loop().create_future()
        try:
            await outage.before_commit(self._clock, self._outage_gate)
        except StoreError:
            batch.abort()
            raise

    def _apply(self, requests: Sequence[Submitted], turn: Turn, batch: Batch) -> tuple[int, bool]:
        """Step 2: apply requests until the batch is large, or has taken long.

        Returns their number, and whether there are changes besides counters.
        """
        open_partitions, touched = self._partitions.by_queue_id, self._partitions.touched
        touch = self._partitions.touch
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
                partition, last_ref = open_partitions.get(ref.queue_id) or touch(ref, batch), ref
                touched[ref.queue_id] = partition
            partition.handlers[type(request)](request, turn)
            if turn.rows or turn.changes or turn.removed:
                written_bytes += turn.write_to(batch)
        return done_count, written_bytes > 0

    # ---- a batch that fails

    def _unavailable(self) -> BrokerError:
        return service_errors.store_unavailable(self._index, self._health.trouble or "")

    def _may_fit_in_parts(self, error: StoreError) -> bool:
        """Whether a part of the batch may succeed: there was no room for all, or a row of one request can't be read."""
        return isinstance(error, StoreFull) or (self._store.failure is None and not self.is_committing)

    async def _retry_in_halves(self, requests: Sequence[Submitted], error: Exception) -> None:
        if not isinstance(error, StoreFull):
            write = (
                log.warning if isinstance(error, StoreError) else log.debug
            )  # `_fail_for_fault` logs the request at fault
            write("batch retried in halves", store=self._index, cause=str(error), requests=len(requests))
        refs = self._roll_back(requests)
        for half in halves(requests):
            await self.run(half)
        self._host.announce(refs.values())

    def _fail_for_fault(self, requests: Sequence[Submitted], error: Exception) -> None:
        """End a request that fails by itself, with a fault of this program.

        The traceback is logged once for each kind of request of a queue, then how often it happened, at 2, 4, 8, …
        times. A row of the `due` table stays behind until the next start: it would fail for ever, and have each batch
        that it is in executed anew.
        """
        names: dict[str, object] = {"store": self._index, "requests": len(requests)}
        if len(requests) == 1:
            ((ref, request),) = requests
            names |= {"entity": ref.path, "request": type(request).__name__}
            if isinstance(request, ProcessDue) and not self.is_committing:
                self._timers.set_aside(ref.queue_id, request.rows)
        kind = (names.get("entity"), names.get("request"), type(error)) if len(self._faults) < FAULTS_MAX else ()
        times = self._faults[kind] = self._faults.get(kind, 0) + 1
        if times == 1:
            log.error("batch failed", **names, exc_info=error)
        elif not times & (times - 1):
            log.error("batch failed again", **names, times=times, cause=repr(error))
        make = UnknownOutcomeError if self.is_committing else BrokerError
        failure = make(Condition.INTERNAL_ERROR, "The broker failed; see its log.")
        self._fail(requests, failure, is_unknown=self.is_committing)

    def _fail(self, requests: Sequence[Submitted], error: BrokerError, *, is_unknown: bool) -> None:
        """After a failed batch: undo it in memory, report the error to the callers, later announce its messages again.

        With `is_unknown` the batch's outcome is unknown.
        """
        refs = self._drop(requests) if is_unknown else self._roll_back(requests)
        self._host.answer(requests, error)
        self._host.resume_later(refs.values())

    def _roll_back(self, requests: Sequence[Submitted]) -> dict[int, PartitionRef]:
        """Undo a batch that is not stored, including its locks; return its partitions by queue id.

        If the store can't be read, drop their memory.
        """
        try:
            with self._store.view() as view:
                self._partitions.roll_back(view)
        except StoreError:
            return self._drop(requests)
        refs = self._partitions.refs_of_batch(ref for ref, _ in requests)
        self._partitions.touched.clear()
        return refs

    def _drop(self, requests: Sequence[Submitted]) -> dict[int, PartitionRef]:
        """Drop the partitions of a batch with an unknown outcome; return their refs by queue id."""
        refs = self._partitions.refs_of_batch(ref for ref, _ in requests)
        self._partitions.drop(refs)
        self._partitions.touched.clear()
        return refs
