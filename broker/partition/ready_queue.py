"""Ready queues: the available messages of a sub-queue (`ReadyQueue`) or a session (`SessionQueue`) of one partition.

A queue has a small window of rows in memory, read ahead of demand (R7); the store has the rest, in the same order.
Returned messages (abandoned, lock expired, released) are in memory by number only; the queue reads them again. Does not
know receivers, delivery counts and time. Owned by a `Partition`.
"""

from __future__ import annotations

import heapq
from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Container, Sequence
from operator import itemgetter
from typing import Protocol

from ..address import SubQueue
from .contract import Selection
from .records import (
    MESSAGES,
    SEQUENCE_NUMBER_MAX,
    SESSION_MESSAGES,
    Home,
    message_key,
    session_message_key,
    unpack_message_key,
    value_of,
)

WINDOW_MESSAGES_MAX = 512  # per queue
WINDOW_BYTES_MAX = 2 << 20  # per queue
READ_MESSAGES_MAX = 256  # per read of the store
RETURNED_MAX = 4096  # numbers in memory of messages that came below those that were read; then they are read again
SELECTION_TESTS_MAX = 1024  # messages that one request tests against a selection


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


class Cursor:
    """How far a selection has tested a queue: all below `next_read` but the `returned` ones (a heap of numbers)."""

    __slots__ = ("is_at_end", "next_read", "returned")

    def __init__(self) -> None:
        self.next_read = 0
        self.returned: list[int] = []
        self.is_at_end = False  # there was nothing left to test

    def put_back(self, number: int) -> None:
        """A message is available again."""
        if number < self.next_read:  # else it is still to be read
            heapq.heappush(self.returned, number)

    def arrive(self, number: int) -> None:
        """A message with any number is new."""
        self.put_back(number)
        if len(self.returned) > RETURNED_MAX:
            self.next_read = self.returned[0]
            self.returned.clear()

    def next_rows(self, view: Reader, queue_id: int, home: Home, limit: int) -> list[tuple[int, bytes]]:
        """Return the next rows to test, at most `limit`; `next_read` does not change."""
        while self.returned:
            number = heapq.heappop(self.returned)
            row = view.get(MESSAGES, message_key(queue_id, home, number))
            if row is not None:
                return [(number, row)]
        start, stop = message_key(queue_id, home, self.next_read), message_key(queue_id, home + 1, 0)
        rows = view.scan(MESSAGES, start, stop, limit)
        self.is_at_end = len(rows) < limit
        return [(unpack_message_key(key)[2], row) for key, row in rows]

    def tested(self, number: int) -> None:
        self.next_read = max(self.next_read, number + 1)


class ReadyQueue:
    """The available messages of one sub-queue of one partition, in sequence order.

    `locked` are the numbers of locked messages, which are in the store but not available.

    Invariants: the window is ascending and below `next_read`; every available message is in the window, among the
    returned ones, or in the store at or above `next_read` (then `more_in_store`).
    """

    __slots__ = (
        "_announce",
        "_budget",
        "_cursors",
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
        self.gone: set[int] = set()  # removed numbers below next_read that `take` must skip
        self._queue_id = queue_id
        self._budget = budget
        self._window: deque[tuple[int, bytes]] = deque()
        self._window_bytes = 0
        self._returned: list[int] = []
        self._locked = locked
        self._cursors: dict[Selection, Cursor] = {}

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the dispatcher that the queue has messages."""
        self._announce(sub_queue)

    def take_announcement(self) -> bool:
        """Whether messages have not been announced yet; marks them as announced."""
        first = not self.announced
        self.announced = True
        return first

    def announce_again(self) -> None:
        """Announce the next message, because the dispatcher knows that the queue is empty."""
        self.announced = False

    def append(self, number: int, record: bytes) -> None:
        """Append a new message, whose number is the highest; `record` is its row."""
        self.extend(number, ((b"", record),))

    def extend(self, number: int, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Append new messages with the numbers from `number` on, the highest; `rows` are their keys and rows."""
        if self.more_in_store:
            return
        window, budget, first = self._window, self._budget, number
        left = min(WINDOW_BYTES_MAX - self._window_bytes, budget.bytes_max - budget.bytes_used)
        used_bytes = 0
        for _, row in rows:
            if len(window) >= WINDOW_MESSAGES_MAX or used_bytes + len(row) > left:
                self.more_in_store = True
                break
            window.append((number, row))
            used_bytes += len(row)
            number += 1
        if number > first:
            self.next_read = number
        self._window_bytes += used_bytes
        budget.bytes_used += used_bytes

    def first(self, view: Reader, average_bytes: int) -> tuple[int, bytes] | None:
        """The message that `take` returns next (sequence number, row), None if the queue is empty; it stays."""
        rows = self.take(view, 1, 1, average_bytes)
        if not rows:
            return None
        heapq.heappush(self._returned, rows[0][0])
        return rows[0]

    def arrive(self, number: int, record: bytes) -> None:
        """Add a new message with any number, as dead letters have; `record` is its row, which is in the store."""
        for cursor in self._cursors.values():
            cursor.arrive(number)
        if number >= self.next_read:
            self.extend(number, ((b"", record),))
        elif len(self._returned) < RETURNED_MAX:
            heapq.heappush(self._returned, number)
        else:
            first = min(number, self._returned[0])
            self.read_again(first if not self._window else min(first, self._window[0][0]))

    def read_again(self, first: int = 0) -> None:
        """Read the store again from the number `first` on, below which no message is available."""
        self.close()
        self.next_read = first
        self._returned.clear()
        self.gone.clear()
        self.more_in_store = True

    def put_back(self, number: int) -> None:
        """Make a received message available again, in its order."""
        for cursor in self._cursors.values():
            cursor.put_back(number)
        if number < self.next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def remove(self, number: int) -> None:
        """Skip an available message that another handler removed from the store."""
        if number < self.next_read:
            self.gone.add(number)

    def has_more(self) -> bool:
        """Whether `take` may return another message."""
        return bool(self._window or self._returned or self.more_in_store)

    def take(self, view: Reader, count: int, bytes_max: int, average_bytes: int) -> list[tuple[int, bytes]]:
        """Remove and return the next available messages (sequence number, row): `count`, fewer if the queue is empty.

        The message that brings the rows to `bytes_max` bytes is the last one. `average_bytes` is the average size of a
        row; it limits the read-ahead.
        """
        found: list[tuple[int, bytes]] = []
        while len(found) < count and bytes_max > 0:
            if not self._window and self.more_in_store:
                self._read_ahead(view, average_bytes)
            if self._returned and (not self._window or self._returned[0] < self._window[0][0]):
                rows = self._take_returned(view)
            elif self._window:
                rows = self._take_window(count - len(found), bytes_max)
            elif self.more_in_store:
                continue  # all rows of the last read were locked
            else:
                break
            if self.gone:
                removed = self.gone.intersection([number for number, _ in rows])
                self.gone -= removed
                rows = [row for row in rows if row[0] not in removed]
            found += rows
            bytes_max -= sum(map(len, map(value_of, rows)))
        return found

    def take_selected(
        self, view: Reader, selection: Selection, count: int, bytes_max: int, average_bytes: int
    ) -> list[tuple[int, bytes]]:
        """Like `take`, only messages of the selection; those before and between them stay as they are.

        A request tests a limited number of messages: `has_more_for` tells whether others are left.
        """
        cursor = self._cursor_of(selection)
        found: list[tuple[int, bytes]] = []
        tests_left = SELECTION_TESTS_MAX
        cursor.is_at_end = False
        while len(found) < count and bytes_max > 0 and tests_left > 0 and not cursor.is_at_end:
            limit = min(READ_MESSAGES_MAX, tests_left, max(1, WINDOW_BYTES_MAX // max(1, average_bytes)))
            for number, row in cursor.next_rows(view, self._queue_id, self.home, limit):
                if len(found) == count or bytes_max <= 0:
                    cursor.is_at_end = False
                    break
                tests_left -= 1
                cursor.tested(number)
                if number not in self._locked and selection.matches(row):
                    self.lift(number)
                    found.append((number, row))
                    bytes_max -= len(row)
        return found

    def has_more_for(self, selection: Selection) -> bool:
        """Whether messages are left to be tested against a selection."""
        return not self._cursor_of(selection).is_at_end

    def _cursor_of(self, selection: Selection) -> Cursor:
        cursor = self._cursors.get(selection)
        if cursor is None:
            self._cursors = {each: known for each, known in self._cursors.items() if not each.is_closed}
            cursor = self._cursors[selection] = Cursor()
        return cursor

    def lift(self, number: int) -> None:
        """Take an available message out of memory: it is locked out of the order of the queue."""
        at = bisect_left(self._window, number, key=itemgetter(0))
        if at < len(self._window) and self._window[at][0] == number:
            size = len(self._window[at][1])
            self._window_bytes -= size
            self._budget.bytes_used -= size
            del self._window[at]
        elif number in self._returned:
            self._returned.remove(number)
            heapq.heapify(self._returned)

    def _take_returned(self, view: Reader) -> list[tuple[int, bytes]]:
        """Remove the first of the returned messages; return its row, nothing if it is not in the store any more."""
        number = heapq.heappop(self._returned)
        row = view.get(MESSAGES, message_key(self._queue_id, self.home, number))
        if row is None:
            self.gone.discard(number)
            return []
        return [(number, row)]

    def _take_window(self, count: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Remove and return rows at the front of the window, those before a returned message."""
        window = self._window
        if not self._returned and len(window) <= count and self._window_bytes <= bytes_max:
            rows, size = list(window), self._window_bytes
            window.clear()
        else:
            rows, size = [], 0
            stop = self._returned[0] if self._returned else SEQUENCE_NUMBER_MAX
            while window and len(rows) < count and size < bytes_max and window[0][0] < stop:
                row = window.popleft()
                rows.append(row)
                size += len(row[1])
        self._window_bytes -= size
        self._budget.bytes_used -= size
        return rows

    def restart(self, *, more_in_store: bool) -> None:
        """Drop the window and read the store again; `more_in_store`: it has messages."""
        self.close()
        self.announced = True  # the worker announces it again
        self.more_in_store = more_in_store
        self.next_read = 0
        self.gone.clear()
        self._returned.clear()
        self._cursors.clear()

    def close(self) -> None:
        """Drop the window and release its bytes from the budget."""
        self._budget.bytes_used -= self._window_bytes
        self._window_bytes = 0
        self._window.clear()

    def check_invariants(self) -> None:
        numbers = [number for number, _ in self._window]
        assert numbers == sorted(set(numbers))
        assert not numbers or numbers[-1] < self.next_read
        assert self._window_bytes == sum(len(record) for _, record in self._window)
        assert all(number < self.next_read for number in self._returned)
        assert not set(self._returned) & set(numbers)
        # One that is gone may be locked elsewhere: a dead letter keeps its number.
        available = {*numbers, *self._returned} - self.gone
        assert not any(number in self._locked for number in available)
        assert all(number < cursor.next_read for cursor in self._cursors.values() for number in cursor.returned)

    def _read_ahead(self, view: Reader, average_bytes: int) -> None:
        left = min(WINDOW_BYTES_MAX, max(0, self._budget.bytes_max - self._budget.bytes_used))
        limit = max(1, min(READ_MESSAGES_MAX, left // max(1, average_bytes)))
        rows = view.scan(
            MESSAGES,
            message_key(self._queue_id, self.home, self.next_read),
            message_key(self._queue_id, self.home + 1, 0),
            limit,
        )
        if rows:
            self.next_read = unpack_message_key(rows[-1][0])[2] + 1
        locked = self._locked  # from before `restart`
        read = [(number, row) for key, row in rows if (number := unpack_message_key(key)[2]) not in locked]
        size = sum([len(row) for _, row in read])
        self._window.extend(read)
        self._window_bytes += size
        self._budget.bytes_used += size
        if len(rows) < limit:
            self.more_in_store = False


NUMBERS_READ_MAX = 64  # per read of the store


class SessionQueue:
    """The active messages of one session, in sequence order; its window has numbers only.

    `locked` are the numbers of locked messages, which are in the store but not available.
    """

    def __init__(self, queue_id: int, session: int, announce: Callable[[None], None], locked: Container[int]) -> None:
        self.home = Home.ACTIVE
        self.deferred_home = Home.DEFERRED
        self.sub_queue = SubQueue.ACTIVE
        self.announced = False
        self._announce = announce
        self._queue_id = queue_id
        self._session = session
        self._locked = locked
        self._ahead: deque[int] = deque()
        self._returned: list[int] = []
        self._next_read = 0
        self.more_in_store = True

    def take_announcement(self) -> bool:
        """Whether returned messages have not been announced yet; marks them as announced."""
        first = not self.announced
        self.announced = True
        return first

    def announce_to(self, announce: Callable[[None], None]) -> None:
        self._announce = announce

    def message_added(self) -> None:
        """Note that the store has a new message of the session."""
        self.more_in_store = True

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the session's receiver that the queue has messages."""
        self._announce(None)

    def put_back(self, number: int) -> None:
        """Make a received message available again, in its order."""
        if number < self._next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def lift(self, number: int) -> None:
        """Take an available message out of memory: it is locked out of the order of the session."""
        if number in self._ahead:
            self._ahead.remove(number)
        if number in self._returned:
            self._returned.remove(number)
            heapq.heapify(self._returned)

    def restart(self) -> None:
        """Drop the window and read the store again."""
        self._ahead.clear()
        self._returned.clear()
        self._next_read = 0
        self.more_in_store = True

    def has_more(self) -> bool:
        return bool(self._ahead or self._returned or self.more_in_store)

    def take(self, view: Reader, count: int, bytes_max: int) -> list[tuple[int, bytes]]:
        """Remove and return the next messages (sequence number, row): `count`, fewer if the queue is empty.

        The message that brings the rows to `bytes_max` bytes is the last one.
        """
        found: list[tuple[int, bytes]] = []
        while len(found) < count and bytes_max > 0:
            number = self._next_number(view)
            if number is None:
                break
            if number in self._locked:  # by its number, or from before `restart`: the receiver has it
                continue
            row = view.get(MESSAGES, message_key(self._queue_id, Home.ACTIVE, number))
            if row is not None:
                found.append((number, row))
                bytes_max -= len(row)
        return found

    def _next_number(self, view: Reader) -> int | None:
        """Remove and return the lowest number, None if there is none."""
        if not self._ahead and self.more_in_store:
            self._read_ahead(view)
        ahead, returned = self._ahead, self._returned
        if not ahead and not returned:
            return None
        number = returned[0] if returned and (not ahead or returned[0] < ahead[0]) else ahead[0]
        if ahead and ahead[0] == number:
            ahead.popleft()
        while returned and returned[0] == number:  # a lock from before `restart` ended after the number was read
            heapq.heappop(returned)
        return number

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
