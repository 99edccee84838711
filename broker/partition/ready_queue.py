"""Ready queues: the available messages of a sub-queue (`ReadyQueue`) or a session (`SessionQueue`) of one partition.

A queue has a small window of rows in memory, read ahead of demand (R7); the store has the rest, in the same order.
Returned messages (abandoned, lock expired, released) are in memory by number only; the queue reads them again. Does not
know receivers, delivery counts and time. Owned by a `Partition`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container, Sequence
from typing import Protocol

from ..address import SubQueue
from .records import MESSAGES, SESSION_MESSAGES, Home, message_key, session_message_key

WINDOW_MESSAGES_MAX = 512  # per queue
WINDOW_BYTES_MAX = 2 << 20  # per queue
READ_MESSAGES_MAX = 256  # per read of the store


class Reader(Protocol):
    """The read half of a store's batch or view."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value at `key`, None without one."""
        ...

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Rows with start <= key < stop in key order, at most `limit`."""
        ...


class WindowBudget:
    """The limit of bytes in all windows of a messaging store (R6)."""

    __slots__ = ("bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0


class ReadyQueue:
    """The available messages of one sub-queue of one partition, in sequence order.

    `locked` are the numbers of locked messages, which are in the store but not available.

    Invariants: the window is ascending and below `next_read`; every available message is in the window, among the
    returned ones, or in the store at or above `next_read` (then `more_in_store`).
    """

    __slots__ = (
        "_announce",
        "_budget",
        "_locked",
        "_queue_id",
        "_returned",
        "_window",
        "_window_bytes",
        "announced",
        "deferred_home",
        "gone",
        "home",
        "more_in_store",
        "next_read",
        "sub_queue",
    )

    def __init__(
        self,
        sub_queue: SubQueue,
        home: Home,
        queue_id: int,
        budget: WindowBudget,
        announce: Callable[[SubQueue], None],
        locked: Container[int],
        *,
        more_in_store: bool,
    ) -> None:
        self.sub_queue = sub_queue
        self.home = home
        self.deferred_home = Home(home + 1)
        self._announce = announce
        self.announced = True  # a new dispatcher asks every partition once
        self.more_in_store = more_in_store
        self.next_read = 0
        self.gone: set[int] = set()  # removed numbers below next_read that `next` must skip
        self._queue_id = queue_id
        self._budget = budget
        self._window: deque[tuple[int, bytes]] = deque()
        self._window_bytes = 0
        self._returned: list[int] = []
        self._locked = locked

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the dispatcher that the queue has messages."""
        self._announce(sub_queue)

    def is_first_announcement(self) -> bool:
        """Whether messages have not been announced yet; marks them as announced."""
        first = not self.announced
        self.announced = True
        return first

    def announce_again(self) -> None:
        """Announce the next message, because the dispatcher knows that the queue is empty."""
        self.announced = False

    def append(self, number: int, record: bytes) -> None:
        """Append a new message, whose number is the highest; `record` is its row."""
        size = len(record)
        if self.more_in_store or not self._fits(size):
            self.more_in_store = True
            return
        self._window.append((number, record))
        self._window_bytes += size
        self._budget.bytes_used += size
        self.next_read = number + 1

    def extend(self, number: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append new messages with the numbers from `number` on, the highest; `rows` are their keys and rows."""
        for _, row in rows:
            size = len(row)
            if self.more_in_store or not self._fits(size):
                self.more_in_store = True
                return
            self._window.append((number, row))
            self._window_bytes += size
            self._budget.bytes_used += size
            number += 1
            self.next_read = number

    def put_back(self, number: int) -> None:
        """Make a received message available again, in its order."""
        if number < self.next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def remove(self, number: int) -> None:
        """Skip an available message that another handler removed from the store."""
        if number < self.next_read:
            self.gone.add(number)

    def has_more(self) -> bool:
        """Whether `next` may return another message."""
        return bool(self._window or self._returned or self.more_in_store)

    def next(self, view: Reader, average_bytes: int) -> tuple[int, bytes] | None:
        """Remove and return the next available message (sequence number, row), None if the queue is empty.

        `average_bytes` is the average size of a row; it limits the read-ahead.
        """
        while True:
            window = self._window
            if not window and self.more_in_store:
                self._read_ahead(view, average_bytes)
            if self._returned and (not window or self._returned[0] < window[0][0]):
                number = heapq.heappop(self._returned)
                record = view.get(MESSAGES, message_key(self._queue_id, self.home, number))
                if record is None:
                    self.gone.discard(number)
                    continue
                found = (number, record)
            elif window:
                found = window.popleft()
                size = len(found[1])
                self._window_bytes -= size
                self._budget.bytes_used -= size
            elif self.more_in_store:
                continue  # all rows of the last read were locked
            else:
                return None
            if self.gone and found[0] in self.gone:
                self.gone.discard(found[0])
                continue
            return found

    def restart(self, *, more_in_store: bool) -> None:
        """Drop the window and read the store again; `more_in_store`: it has messages."""
        self.close()
        self.announced = True  # the worker announces it again
        self.more_in_store = more_in_store
        self.next_read = 0
        self.gone.clear()
        self._returned.clear()

    def close(self) -> None:
        """Drop the window and release its bytes from the budget."""
        self._budget.bytes_used -= self._window_bytes
        self._window_bytes = 0
        self._window.clear()

    def check_invariants(self) -> None:
        """Assert the class's invariants about memory."""
        numbers = [number for number, _ in self._window]
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[-1] < self.next_read
        assert self._window_bytes == sum(len(record) for _, record in self._window)
        assert all(number < self.next_read for number in self._returned)
        assert not set(self._returned) & set(numbers)
        assert not any(number in self._locked for number in (*numbers, *self._returned))

    def _fits(self, size: int) -> bool:
        return (
            len(self._window) < WINDOW_MESSAGES_MAX
            and self._window_bytes + size <= WINDOW_BYTES_MAX
            and self._budget.bytes_used + size <= self._budget.bytes_max
        )

    def _read_ahead(self, view: Reader, average_bytes: int) -> None:
        left = min(WINDOW_BYTES_MAX, max(0, self._budget.bytes_max - self._budget.bytes_used))
        limit = max(1, min(READ_MESSAGES_MAX, left // max(1, average_bytes)))
        rows = view.scan(
            MESSAGES,
            message_key(self._queue_id, self.home, self.next_read),
            message_key(self._queue_id, self.home + 1, 0),
            limit,
        )
        for key, record in rows:
            number = int.from_bytes(key[-8:], "big")
            self.next_read = number + 1
            if number not in self._locked:  # a lock from before `restart`
                self._window.append((number, record))
                self._window_bytes += len(record)
                self._budget.bytes_used += len(record)
        if len(rows) < limit:
            self.more_in_store = False


NUMBERS_READ_MAX = 64  # per read of the store


class SessionQueue:
    """The active messages of one session, in sequence order; its window has numbers only."""

    def __init__(self, queue_id: int, session: int, announce: Callable[[None], None]) -> None:
        self.home = Home.ACTIVE
        self.deferred_home = Home.DEFERRED
        self.sub_queue = SubQueue.ACTIVE
        self.announced = False
        self._announce = announce
        self._queue_id = queue_id
        self._session = session
        self._ahead: deque[int] = deque()
        self._returned: list[int] = []
        self._next_read = 0
        self.more_in_store = True

    def is_first_announcement(self) -> bool:
        """Whether returned messages have not been announced yet; marks them as announced."""
        first = not self.announced
        self.announced = True
        return first

    def message_added(self) -> None:
        """Note that the store has a new message of the session."""
        self.more_in_store = True

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the session's receiver that the queue has messages."""
        del sub_queue
        self._announce(None)

    def put_back(self, number: int) -> None:
        """Make a received message available again, in its order."""
        if number < self._next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def restart(self) -> None:
        """Drop the window; callers of `next` must skip locked messages."""
        self._ahead.clear()
        self._returned.clear()
        self._next_read = 0
        self.more_in_store = True

    def has_more(self) -> bool:
        """Whether `next` may return another message."""
        return bool(self._ahead or self._returned or self.more_in_store)

    def next(self, view: Reader) -> tuple[int, bytes] | None:
        """Remove and return the next message (sequence number, row), None if the queue is empty."""
        while True:
            if not self._ahead and self.more_in_store:
                self._read_ahead(view)
            if self._returned and (not self._ahead or self._returned[0] < self._ahead[0]):
                number = heapq.heappop(self._returned)
            elif self._ahead:
                number = self._ahead.popleft()
            else:
                return None
            row = view.get(MESSAGES, message_key(self._queue_id, Home.ACTIVE, number))
            if row is not None:
                return number, row

    def _read_ahead(self, view: Reader) -> None:
        rows = view.scan(
            SESSION_MESSAGES,
            session_message_key(self._queue_id, self._session, self._next_read),
            session_message_key(self._queue_id, self._session + 1, 0),
            NUMBERS_READ_MAX,
        )
        self._ahead.extend(int.from_bytes(key[-8:], "big") for key, _ in rows)
        if rows:
            self._next_read = self._ahead[-1] + 1
        self.more_in_store = len(rows) == NUMBERS_READ_MAX
