"""The rows of one partition: every change to what is stored goes through here, and the counters with it.

Knows keys, counters and the `due` index. Does not know why a row changes. Owned by a `Partition`.
"""

from __future__ import annotations

from .records import COUNTER_MASK, DUE, MESSAGES, Counters, Due, Home, due_key, message_key
from .requests import Step


class ByteTotal:
    """How many bytes the partitions of a topic and of its subscriptions hold in one messaging store, all together.

    `bytes_used` follows every change of a row; None when it has to be added up anew: from `open`, the counters of those
    partitions that are in memory, and from the store.
    """

    __slots__ = ("bytes_used", "open")

    def __init__(self) -> None:
        self.bytes_used: int | None = None
        self.open: dict[int, Counters] = {}

    def forget(self, queue_id: int) -> None:
        """The memory of a partition is dropped, or it belongs to the topic no more."""
        self.open.pop(queue_id, None)
        self.bytes_used = None


class Rows:
    """Rows and counters of partition `number_base >> 48` of the queue `queue_id`; `total` is that of its topic."""

    __slots__ = ("counters", "number_base", "queue_id", "total")

    def __init__(self, queue_id: int, number_base: int, counters: Counters, total: ByteTotal | None = None) -> None:
        self.queue_id = queue_id
        self.number_base = number_base
        self.counters = counters
        self.total = total
        if total is not None:
            total.open[queue_id] = counters

    def leave_total(self) -> None:
        """Be no part of a topic any more."""
        if self.total is not None:
            self.total.forget(self.queue_id)
            self.total = None

    def restart(self, counters: Counters) -> None:
        """The rows are as they were before a batch, and these their counters."""
        self.counters = counters
        if self.total is not None:
            self.total.open[self.queue_id] = counters
            self.total.bytes_used = None

    def new_number(self) -> int:
        """The next sequence number (P22)."""
        counters = self.counters
        counter = counters.next_counter
        counters.next_counter = counter + 1
        return self.number_base | (counter & COUNTER_MASK)

    def next_number(self) -> int:
        """The sequence number that `new_number` would give."""
        return self.number_base | (self.counters.next_counter & COUNTER_MASK)

    def put(self, home: Home, number: int, row: bytes, step: Step) -> None:
        """Store a message that was not there."""
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), row))
        self.counters.messages[home] += 1
        self._add_bytes(len(row), step)

    def replace(self, home: Home, number: int, row: bytes, old_bytes: int, step: Step) -> None:
        """Store a message anew in its place."""
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), row))
        self._add_bytes(len(row) - old_bytes, step)

    def remove(self, home: Home, number: int, size_bytes: int, expires_at: int, step: Step) -> None:
        """Delete a message of `size_bytes`, and its row in `due` if it would have expired."""
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), None))
        if expires_at and home is Home.ACTIVE:
            step.changes.append((DUE, due_key(expires_at, self.queue_id, Due.EXPIRE, number), None))
        self.counters.messages[home] -= 1
        self._add_bytes(-size_bytes, step)

    def put_due(self, at: int, what: Due, number: int, step: Step) -> None:
        """Have the worker come back at `at` (Unix ms)."""
        step.changes.append((DUE, due_key(at, self.queue_id, what, number), b""))
        if step.next_due is None or at < step.next_due:
            step.next_due = at

    def remove_due(self, at: int, what: Due, number: int, step: Step) -> None:
        """Call off what was due at `at`."""
        step.changes.append((DUE, due_key(at, self.queue_id, what, number), None))

    def _add_bytes(self, count: int, step: Step) -> None:
        self.counters.bytes_used += count
        step.touched[self.queue_id] = self.counters
        total = self.total
        if total is not None and total.bytes_used is not None:
            total.bytes_used += count
