"""The locks of one partition: which messages are in receivers' hands, and until when.

Knows tokens, numbers and ends. Volatile: a lock ends with the process. A batch that the store does not take changes no
lock: its changes are recorded until the commit, and undone without one. Refuses to decide what the end of a lock means.
Owned by a partition's state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Protocol

from ..address import SubQueue
from .ready_queue import SessionQueue
from .records import Home
from .requests import AcceptSession


class LockSource(Protocol):
    """Where a message came from and goes back to: a ready queue, or the queue of a message session."""

    home: Home
    deferred_home: Home
    sub_queue: SubQueue

    def is_first_announcement(self) -> bool:
        """Whether the dispatcher has yet to hear that there are messages; it counts as announced then."""
        ...

    def put_back(self, number: int) -> None:
        """The message is available again."""
        ...

    @property
    def announce(self) -> Callable[[SubQueue], None]:
        """An effect: there are messages."""
        ...


class Holding(Protocol):
    """What a lock within a message session shares with the session: its end, and who is told of messages."""

    until_at: int
    locks: dict[int, Lock]

    @property
    def announce(self) -> Callable[[None], None]:
        """An effect: the session has messages (again)."""
        ...


class Lock:
    """A message in a receiver's hands; within a message session (`holding`) it ends when the session's lock does."""

    __slots__ = (
        "_until_at",
        "delivery_count",
        "expires_at",
        "holding",
        "home",
        "number",
        "rank",
        "ready_queue",
        "session",
        "size_bytes",
        "token",
    )

    def __init__(
        self,
        token: bytes,
        number: int,
        home: Home,
        ready_queue: LockSource,
        until_at: int,
        delivery_count: int,
        expires_at: int,
        size_bytes: int,
        holding: Holding | None = None,
        session: int = 0,
    ) -> None:
        self.token = token
        self.number = number
        self.home = home
        self.ready_queue = ready_queue
        self._until_at = until_at
        self.delivery_count = delivery_count
        self.expires_at = expires_at  # Unix ms, 0: never
        self.size_bytes = size_bytes  # of the stored row: completing it needs no look at the store
        self.holding = holding
        self.session = session  # the session's number, 0 outside sessions
        self.rank = 0  # locks that end at the same instant end in this order

    @property
    def until_at(self) -> int:
        """When it ends (Unix ms)."""
        return self._until_at if self.holding is None else self.holding.until_at

    @until_at.setter
    def until_at(self, at: int) -> None:
        self._until_at = at


class Locks:
    """All locks of a partition.

    Invariants: a number is locked once; locks outside sessions are ordered by their end as long as the lock duration
    does not change.
    """

    __slots__ = ("_changes", "_last_rank", "by_number", "by_token", "timed")

    def __init__(self) -> None:
        self.by_token: dict[bytes, Lock] = {}
        self.by_number: dict[int, Lock] = {}
        self.timed: OrderedDict[bytes, Lock] = OrderedDict()  # those that end by themselves
        self._last_rank = 0
        # Of the batch under way: locks that were added or removed; and renewed ones, with the end and turn before.
        self._changes: list[Lock | tuple[Lock, int, int]] = []

    def __len__(self) -> int:
        return len(self.by_token)

    def add(self, lock: Lock) -> None:
        """A message was handed over."""
        self._changes.append(lock)
        self._last_rank = lock.rank = self._last_rank + 1
        self.by_token[lock.token] = self.by_number[lock.number] = lock
        if lock.holding is None:
            self.timed[lock.token] = lock
        else:
            lock.holding.locks[lock.number] = lock

    def remove(self, lock: Lock) -> None:
        """The message is in nobody's hands any more."""
        self._changes.append(lock)
        del self.by_token[lock.token]
        del self.by_number[lock.number]
        if lock.holding is None:
            del self.timed[lock.token]
        else:
            del lock.holding.locks[lock.number]

    def keep(self) -> None:
        """The batch is committed: its changes stay."""
        self._changes.clear()

    def roll_back(self) -> None:
        """The batch is not stored: undo its changes, the last one first."""
        changes, self._changes = self._changes, []
        for change in reversed(changes):
            if isinstance(change, tuple):
                lock, until_at, rank = change
                lock.until_at, lock.rank = until_at, rank
            elif change.token in self.by_token:
                self.remove(change)
            else:
                rank = change.rank
                self.add(change)
                change.rank = rank
        self._changes.clear()
        self.sort()

    def find(self, token: bytes, now: int) -> Lock | None:
        """The lock of that token, unless its time is over (the timer has yet to end it, and count it)."""
        lock = self.by_token.get(token)
        return None if lock is None or lock.until_at <= now else lock

    def renew(self, lock: Lock, until_at: int) -> None:
        """Move the end of a lock outside sessions."""
        self._changes.append((lock, lock.until_at, lock.rank))
        self._last_rank = lock.rank = self._last_rank + 1
        lock.until_at = until_at
        self.timed.move_to_end(lock.token)

    def first(self) -> Lock | None:
        """The lock outside sessions that ends next."""
        return next(iter(self.timed.values()), None)

    def sort(self) -> None:
        """Restore the order of ends."""
        self.timed = OrderedDict(sorted(self.timed.items(), key=lambda item: (item[1].until_at, item[1].rank)))

    def check_invariants(self) -> None:
        """Assert the invariants of the class docstring."""
        assert {lock.number: lock for lock in self.by_token.values()} == self.by_number
        assert set(self.timed) == {token for token, lock in self.by_token.items() if lock.holding is None}


class HeldSession:
    """A session in the hands of a receiver."""

    def __init__(
        self, request: AcceptSession, name: str, number: int, grant: int, until_at: int, ready_queue: SessionQueue
    ):
        self.name = name
        self.number = number
        self.grant = grant
        self.until_at = until_at
        self.rank = grant  # holdings that end at the same instant end in this order
        self.ready_queue = ready_queue
        self.head: int | None = None  # the number of its row in `session_heads`, if it had messages
        self.locks: dict[int, Lock] = {}
        self.announce: Callable[[None], None] = request.announce
        self.lost = request.lost

    def set_end(self, until_at: int, rank: int) -> None:
        """The lock of the session ends at `until_at` (Unix ms); `rank` orders those that end together."""
        self.until_at, self.rank = until_at, rank

    def set_head(self, number: int | None) -> None:
        """The session's row in `session_heads` has this sequence number, or there is none."""
        self.head = number

    def sort_locks(self) -> None:
        """Bring the locks of the taken messages into the order in which they were given."""
        self.locks = dict(sorted(self.locks.items(), key=lambda item: item[1].rank))
