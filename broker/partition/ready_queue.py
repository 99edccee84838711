"""The waiting line of one sub-queue in one partition: which available message comes next.

Knows sequence numbers and a small window of records read ahead of demand (R7); everything else stays in the store,
whose key order is the order of the line. Messages that come back (abandoned, lock expired, released) are kept by
number only and read again. Does not know why a message is taken, counts and time. Owned by a `Partition`.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Container
from typing import Protocol

from ..address import SubQueue
from .records import MESSAGES, SESSION_MESSAGES, Home, message_key, session_message_key

WINDOW_MESSAGES_MAX = 512  # per line
WINDOW_BYTES_MAX = 2 << 20  # per line
READ_MESSAGES_MAX = 256  # read from the store at once


class Reader(Protocol):
    """The read half of a store's batch or view."""

    def get(self, table: str, key: bytes) -> bytes | None:
        """The value at `key`, if any."""
        ...

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Rows with start <= key < stop in key order, at most `limit`."""
        ...


class WindowBudget:
    """How many bytes all windows of a messaging store may hold together (R6)."""

    __slots__ = ("bytes_max", "bytes_used")

    def __init__(self, bytes_max: int) -> None:
        self.bytes_max = bytes_max
        self.bytes_used = 0


class ReadyQueue:
    """The available messages of one sub-queue of one partition, in sequence order.

    `locked` are the numbers of the messages that receivers have; they are in the store, but not available.

    Invariants: the window is ascending and lies below `next_read`; every available message is in the window, among
    the returned ones, or in the store at or above `next_read` (then `more_in_store`).
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
        self.announced = True  # a fresh dispatcher asks every partition once before it believes it empty
        self.more_in_store = more_in_store
        self.next_read = 0
        self.gone: set[int] = set()  # numbers below next_read that left the line without being taken
        self._queue_id = queue_id
        self._budget = budget
        self._window: deque[tuple[int, bytes]] = deque()
        self._window_bytes = 0
        self._returned: list[int] = []
        self._locked = locked

    def announce(self, sub_queue: SubQueue) -> None:
        """Tell the dispatcher that there are messages."""
        self._announce(sub_queue)

    def is_first_announcement(self) -> bool:
        """Whether the dispatcher has yet to hear that there are messages; it counts as announced then."""
        first = not self.announced
        self.announced = True
        return first

    def announce_again(self) -> None:
        """The dispatcher knows that there is nothing: the next message is announced."""
        self.announced = False

    def append(self, number: int, record: bytes) -> None:
        """A new message joined at the end (its number is higher than all before)."""
        size = len(record)
        if self.more_in_store or not self._fits(size):
            self.more_in_store = True
            return
        self._window.append((number, record))
        self._window_bytes += size
        self._budget.bytes_used += size
        self.next_read = number + 1

    def put_back(self, number: int) -> None:
        """A message that was taken is available again, at its old place."""
        if number < self.next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def remove(self, number: int) -> None:
        """An available message was removed from the store by other means than `next`."""
        if number < self.next_read:
            self.gone.add(number)

    def has_more(self) -> bool:
        """Whether `next` may still find something."""
        return bool(self._window or self._returned or self.more_in_store)

    def next(self, view: Reader, average_bytes: int) -> tuple[int, bytes] | None:
        """Take the next available message off the line: (sequence number, record), or None when there is none.

        `average_bytes` is the usual size of a record here; it bounds how much is read ahead.
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
                continue  # what was read had all gone meanwhile
            else:
                return None
            if self.gone and found[0] in self.gone:
                self.gone.discard(found[0])
                continue
            return found

    def restart(self, *, more_in_store: bool) -> None:
        """Forget what was read: all that is available is in the store, as `more_in_store` says."""
        self.close()
        self.announced = True  # the worker announces it anew
        self.more_in_store = more_in_store
        self.next_read = 0
        self.gone.clear()
        self._returned.clear()

    def close(self) -> None:
        """Give the window's bytes back to the budget."""
        self._budget.bytes_used -= self._window_bytes
        self._window_bytes = 0
        self._window.clear()

    def check_invariants(self) -> None:
        """Assert what the class docstring promises about memory."""
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
            if number not in self._locked:  # as one before `restart` may be
                self._window.append((number, record))
                self._window_bytes += len(record)
                self._budget.bytes_used += len(record)
        if len(rows) < limit:
            self.more_in_store = False


NUMBERS_READ_MAX = 64  # of a session's messages, ahead of demand


class SessionQueue:
    """The active messages of one session, in order; a session's own `ReadyQueue`."""

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
        """Whether the holder has yet to hear that messages came back; it counts as announced then."""
        first = not self.announced
        self.announced = True
        return first

    def message_added(self) -> None:
        """The session has a new message, which is in the store."""
        self.more_in_store = True

    def announce(self, sub_queue: SubQueue) -> None:
        """Tell the holder that there are messages."""
        del sub_queue
        self._announce(None)

    def put_back(self, number: int) -> None:
        """A message that was taken is available again, at its old place."""
        if number < self._next_read:  # else it is read from the store
            heapq.heappush(self._returned, number)

    def restart(self) -> None:
        """Forget what was read; those who read pass over messages that are in the holder's hands."""
        self._ahead.clear()
        self._returned.clear()
        self._next_read = 0
        self.more_in_store = True

    def has_more(self) -> bool:
        """Whether `next` may still find something."""
        return bool(self._ahead or self._returned or self.more_in_store)

    def next(self, view: Reader) -> tuple[int, bytes] | None:
        """Take the next message off the line: (sequence number, row), or None when there is none."""
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
