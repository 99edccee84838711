"""The timers of a messaging store: for the ends of locks and for rows of its `due` table.

Keeps the earliest instants in memory, and one timer of the broker's clock. Does not know how a partition ends a lock or
processes a row. Owned by the store's worker.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from ...storage import Store
from ..clock import Clock, Timer
from ..partition.contract import Delays, PartitionRef
from ..partition.partition import Partition
from ..partition.records import DUE, DUE_KEY, Due
from ..partition.requests import ProcessDue, Request

DUE_ROWS_MAX: Final = 500  # per batch
DUE_ROWS_AT_ONCE: Final = 16  # per request; 1 for a topic, which copies each activated message
FIRST_DUE: Final = b""
LAST_DUE: Final = b"\xff" * (DUE_KEY.size + 1)


class StoreTimers:
    """The timers of one store.

    `locks_ended(queue_id)` is called when the earliest lock of a partition ends, `rows_due()` when `due` rows are due.
    """

    def __init__(self, clock: Clock, locks_ended: Callable[[int], None], rows_due: Callable[[], None]) -> None:
        self._clock = clock
        self._locks_ended = locks_ended
        self._rows_due = rows_due
        self._lock_ends: list[tuple[int, int]] = []  # (instant, queue id), a heap
        self.lock_end_of: dict[int, int] = {}
        """By queue id: the earliest end of its locks that is waited for; a later one need not be told."""
        self.unwatched: set[int] = set()
        """Queues whose earliest lock has ended, until a batch has ended it: no later end of theirs is in the heap."""
        self._next_due: int | None = None
        self._due_from = FIRST_DUE  # earlier rows were read; the remaining ones are of locked messages
        self._aside: set[bytes] = set()  # keys of rows that can't be processed
        self._delays: Delays | None = None
        self._timer: Timer | None = None
        self._timer_at: int | None = None
        self.is_due = False  # rows are due now
        self.orphans: list[bytes] = []  # keys of `due` rows of deleted queues; the next batch deletes them

    def start(self, first_due: int | None) -> None:
        """Start with the earliest instant of the `due` table (Unix ms), None if it is empty."""
        self._next_due = first_due
        self.arm()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def use_delays(self, delays: Delays | None) -> None:
        """Process rows as late as these delays say."""
        self._delays = delays

    def read_again(self) -> None:
        """Have the next batch read `due` from its first row."""
        self._due_from = FIRST_DUE
        self.is_due = True

    def set_aside(self, queue_id: int, rows: Sequence[tuple[int, int, int]]) -> None:
        """Process these rows (instant, what, number) no more in this run of the program."""
        self._aside.update(DUE_KEY.pack(at, queue_id, what, number) for at, what, number in rows)

    def batch_ended(
        self, touched: Mapping[int, Partition], changed: Mapping[int, Partition], next_due: int | None, now: int
    ) -> None:
        """A batch is stored that has executed requests at `now` (Unix ms) to the partitions `touched`, by queue id.

        Those in `changed` may have a lock that ends before `lock_end_of`; `next_due` is the earliest instant of the new
        rows of `due` (Unix ms).
        """
        if next_due is not None:
            self._due_from = min(self._due_from, DUE_KEY.pack(next_due, 0, 0, 0))
            if self._next_due is None or next_due < self._next_due:
                self._next_due = next_due
        self.watch_locks(changed, ended_at=now)
        if self.unwatched:
            # Their locks may have gone before they were to end: then that batch has changed nothing.
            self.watch_locks({each: touched[each] for each in self.unwatched if each in touched}, ended_at=now)
        if next_due is not None or (
            self._lock_ends and (self._timer_at is None or self._lock_ends[0][0] < self._timer_at)
        ):
            self.arm()

    def watch_locks(self, partitions: Mapping[int, Partition], *, ended_at: int = -1) -> None:
        """Note the earliest end of a lock of each partition (by queue id).

        A batch at `ended_at` has left a lock that had ended: the batch that was to end it is still to come, or failed
        and comes again with the store's pause (`Worker.resume_later`). To note it here would call for it at once, again
        and again while the store refuses it.
        """
        for queue_id, partition in partitions.items():
            at = partition.next_lock_end()
            if queue_id in self.unwatched and at is not None and at <= ended_at:
                continue
            self.unwatched.discard(queue_id)
            known = self.lock_end_of.get(queue_id)
            if at is not None and (known is None or at < known):
                self.lock_end_of[queue_id] = at
                heapq.heappush(self._lock_ends, (at, queue_id))

    def arm(self) -> None:
        """Set the timer to the earliest instant."""
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
            if self.lock_end_of.get(queue_id) == at:
                del self.lock_end_of[queue_id]
                self.unwatched.add(queue_id)
                self._locks_ended(queue_id)
        if self._next_due is not None and self._next_due <= now:
            self.is_due = True
            self._next_due = None
            self._rows_due()
        self.arm()

    def due_requests(
        self, store: Store, resolve: Callable[[int], PartitionRef | None]
    ) -> list[tuple[PartitionRef, Request]]:
        """Return requests for the due rows; add rows of deleted queues to `orphans`. Raises StoreError."""
        end_ms = self._clock.now_ms() + 1
        end = DUE_KEY.pack(end_ms, 0, 0, 0)
        with store.view() as view:
            rows = view.scan(DUE, self._due_from, end, DUE_ROWS_MAX)
            due_from = rows[-1][0] + b"\0" if len(rows) == DUE_ROWS_MAX else max(end, self._due_from)
            following = view.scan(DUE, due_from, LAST_DUE, 1)
        self.is_due = False
        self._due_from = due_from
        self._next_due = DUE_KEY.unpack(following[0][0])[0] if following else None
        by_queue: dict[int, list[tuple[int, int, int]]] = {}
        for key, _ in rows:
            if key in self._aside:
                continue
            at, queue_id, what, number = DUE_KEY.unpack(key)
            if self._delays is None or not self._is_late(self._delays, key, resolve(queue_id), end_ms):
                by_queue.setdefault(queue_id, []).append((at, what, number))
        requests: list[tuple[PartitionRef, Request]] = []
        for queue_id, due in by_queue.items():
            ref = resolve(queue_id)
            if ref is None:
                self.orphans += (DUE_KEY.pack(at, queue_id, what, number) for at, what, number in due)
                continue
            at_once = DUE_ROWS_AT_ONCE if ref.routing is None else 1
            requests += ((ref, ProcessDue(due[start : start + at_once])) for start in range(0, len(due), at_once))
        return requests

    def _is_late(self, delays: Delays, key: bytes, ref: PartitionRef | None, end_ms: int) -> bool:
        """Whether a row is processed later on purpose: then it is read again, and those behind it."""
        at, _, what, _ = DUE_KEY.unpack(key)
        if ref is None or what not in (Due.ACTIVATE, Due.EXPIRE):
            return False
        late_at = at + delays.due_late_ms(ref.path, is_activation=what == Due.ACTIVATE)
        if late_at < end_ms:
            return False
        self._due_from = min(self._due_from, key)
        # A row behind it that is due by now was read with it, or is read with it again.
        is_first = self._next_due is None or self._next_due < end_ms
        self._next_due = late_at if is_first else min(self._next_due or late_at, late_at)
        return True
