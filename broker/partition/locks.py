"""The locks of one partition: of messages (`Lock`) and of message sessions (`HeldSession`), with tokens and ends.

Locks are in memory only; they end with the process. `Locks` records its changes until the batch is committed and undoes
them on rollback. Does not know what happens to a message when its lock ends (`settle`). Owned by a partition's state.
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
    """The queue that a locked message came from and returns to: a ready queue or a session's queue."""

    home: Home
    deferred_home: Home
    sub_queue: SubQueue

    def is_first_announcement(self) -> bool:
        """Whether messages have not been announced yet; marks them as announced."""
        ...

    def put_back(self, number: int) -> None:
        """Make a message available again."""
        ...

    @property
    def announce(self) -> Callable[[SubQueue], None]:
        """Effect: the queue has messages."""
        ...


class SessionLock(Protocol):
    """The session lock of a locked message: its end, the session's other locks, its announcement."""

    until_at: int
    locks: dict[int, Lock]

    @property
    def announce(self) -> Callable[[None], None]:
        """Effect: the session has messages (again)."""
        ...


class Lock:
    """The lock of one message; within a message session (`session_lock`) it ends with the session's lock."""

    __slots__ = (
        "_until_at",
        "delivery_count",
        "expires_at",
        "home",
        "number",
        "rank",
        "ready_queue",
        "session",
        "session_lock",
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
        session_lock: SessionLock | None = None,
        session: int = 0,
    ) -> None:
        self.token = token
        self.number = number
        self.home = home
        self.ready_queue = ready_queue
        self._until_at = until_at
        self.delivery_count = delivery_count
        self.expires_at = expires_at  # Unix ms, 0: never
        self.size_bytes = size_bytes  # of the stored row: a complete does not read the store
        self.session_lock = session_lock
        self.session = session  # the session's number or 0
        self.rank = 0  # order among locks with the same end

    @property
    def until_at(self) -> int:
        """The end of the lock (Unix ms)."""
        return self._until_at if self.session_lock is None else self.session_lock.until_at

    @until_at.setter
    def until_at(self, at: int) -> None:
        self._until_at = at


class Locks:
    """All locks of a partition.

    Invariants: a number has at most one lock; `timed` (the locks outside sessions) is ordered by end, unless the lock
    duration has changed.
    """

    __slots__ = ("_changes", "_last_rank", "by_number", "by_token", "timed")

    def __init__(self) -> None:
        self.by_token: dict[bytes, Lock] = {}
        self.by_number: dict[int, Lock] = {}
        self.timed: OrderedDict[bytes, Lock] = OrderedDict()  # outside sessions, by end
        self._last_rank = 0
        # Of the current batch: added and removed locks; renewed ones with their earlier end and rank.
        self._changes: list[Lock | tuple[Lock, int, int]] = []

    def __len__(self) -> int:
        return len(self.by_token)

    def add(self, lock: Lock) -> None:
        """Add a lock of a delivered message."""
        self._changes.append(lock)
        self._last_rank = lock.rank = self._last_rank + 1
        self.by_token[lock.token] = self.by_number[lock.number] = lock
        if lock.session_lock is None:
            self.timed[lock.token] = lock
        else:
            lock.session_lock.locks[lock.number] = lock

    def remove(self, lock: Lock) -> None:
        """Remove a lock."""
        self._changes.append(lock)
        del self.by_token[lock.token]
        del self.by_number[lock.number]
        if lock.session_lock is None:
            del self.timed[lock.token]
        else:
            del lock.session_lock.locks[lock.number]

    def keep(self) -> None:
        """Keep the changes of the committed batch."""
        self._changes.clear()

    def roll_back(self) -> None:
        """Undo the changes of the batch, the last one first."""
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
        """The lock with `token`, None if it has expired (even if no timer has ended it yet)."""
        lock = self.by_token.get(token)
        return None if lock is None or lock.until_at <= now else lock

    def renew(self, lock: Lock, until_at: int) -> None:
        """Set a later end of a lock outside sessions (Unix ms)."""
        self._changes.append((lock, lock.until_at, lock.rank))
        self._last_rank = lock.rank = self._last_rank + 1
        lock.until_at = until_at
        self.timed.move_to_end(lock.token)

    def first(self) -> Lock | None:
        """The lock outside sessions with the earliest end."""
        return next(iter(self.timed.values()), None)

    def sort(self) -> None:
        """Order the locks by end."""
        self.timed = OrderedDict(sorted(self.timed.items(), key=lambda item: (item[1].until_at, item[1].rank)))

    def check_invariants(self) -> None:
        """Assert the class's invariants."""
        assert {lock.number: lock for lock in self.by_token.values()} == self.by_number
        assert set(self.timed) == {token for token, lock in self.by_token.items() if lock.session_lock is None}


class HeldSession:
    """A session that a receiver has locked; `grant` identifies the lock, `until_at` is its end (Unix ms)."""

    def __init__(
        self, request: AcceptSession, name: str, number: int, grant: int, until_at: int, ready_queue: SessionQueue
    ):
        self.name = name
        self.number = number
        self.grant = grant
        self.until_at = until_at
        self.rank = grant  # order among sessions with the same end
        self.ready_queue = ready_queue
        self.head: int | None = None  # sequence number of its row in `session_heads`, if it has one
        self.locks: dict[int, Lock] = {}
        self.announce: Callable[[None], None] = request.announce
        self.lost = request.lost

    def set_end(self, until_at: int, rank: int) -> None:
        """Set the end of the lock (Unix ms); `rank` orders sessions with the same end."""
        self.until_at, self.rank = until_at, rank

    def set_head(self, number: int | None) -> None:
        """Set the sequence number of the session's row in `session_heads`, None without a row."""
        self.head = number

    def sort_locks(self) -> None:
        """Order the locks by delivery."""
        self.locks = dict(sorted(self.locks.items(), key=lambda item: item[1].rank))
