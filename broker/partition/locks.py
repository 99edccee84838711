"""The locks of one partition: of messages (`Lock`) and of message sessions (`HeldSession`), with tokens and ends.

Locks are in memory only; they end with the process. `Locks` records its changes until the batch is committed and undoes
them on rollback. Does not know what happens to a message when its lock ends (`settle`). Owned by a partition's state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from itertools import count, groupby, repeat
from operator import attrgetter
from typing import Final, NamedTuple

from ..errors import BrokerError
from ..identity import folded
from .contract import SharedLock
from .ready_queue import ReadyQueue, SessionQueue
from .records import Home
from .requests import AcceptSession


class LockGroup:
    """What the locks of one answer to a receiver share; within a message session they end with the session's lock."""

    __slots__ = ("home", "locks", "own_until_at", "rank", "ready_queue", "session_lock")

    def __init__(
        self, home: Home, ready_queue: ReadyQueue | SessionQueue, until_at: int, session_lock: HeldSession | None
    ) -> None:
        self.home = home
        self.ready_queue = ready_queue
        self.own_until_at = until_at
        """The end of the locks outside a session (Unix ms)."""
        self.session_lock = session_lock
        # By sequence number; a session's locks are together, whatever answer they come from.
        self.locks: dict[int, Lock] = {} if session_lock is None else session_lock.locks
        self.rank = 0
        """Of its first lock; it orders groups with the same end."""

    @property
    def until_at(self) -> int:
        """The end of the locks (Unix ms)."""
        return self.own_until_at if self.session_lock is None else self.session_lock.until_at

    @property
    def session(self) -> int:
        """The number of the session, 0 without session."""
        return 0 if self.session_lock is None else self.session_lock.number


class Lock(NamedTuple):
    """The lock of one message; `rank` orders locks with the same end."""

    token: bytes
    number: int
    size_bytes: int  # of the stored row: a complete does not read the store
    expires_at: int  # Unix ms, 0: never
    rank: int
    group: LockGroup

    @property
    def until_at(self) -> int:
        """The end of the lock (Unix ms)."""
        return self.group.until_at


group_of: Final[Callable[[Lock], LockGroup]] = attrgetter("group")
number_of: Final[Callable[[Lock], int]] = attrgetter("number")
size_bytes_of: Final[Callable[[Lock], int]] = attrgetter("size_bytes")
expires_at_of: Final[Callable[[Lock], int]] = attrgetter("expires_at")
_new_lock: Final[Callable[[tuple[object, ...]], Lock]] = partial(tuple.__new__, Lock)  # faster than `Lock(…)`


class Locks:
    """All locks of a partition.

    Invariants: a number has at most one lock; `timed` has the groups outside sessions that have locks, ordered by end
    unless the lock duration has changed.
    """

    __slots__ = ("_last_rank", "by_number", "by_token", "timed", "undo")

    def __init__(self) -> None:
        self.by_token: dict[bytes, Lock] = {}
        self.by_number: dict[int, Lock] = {}
        self.timed: OrderedDict[int, LockGroup] = OrderedDict()  # by rank
        self._last_rank = 0
        self.undo: list[Callable[[], None]] = []
        """What undoes the batch's changes; empty if it has changed no lock."""

    def __len__(self) -> int:
        return len(self.by_token)

    def add(
        self,
        group: LockGroup,
        tokens: Sequence[bytes],
        numbers: Sequence[int],
        sizes_bytes: Sequence[int],
        expiries: Sequence[int],
    ) -> None:
        """Add the locks of a new `group`; the sequences have the fields of `Lock`."""
        first = self._last_rank + 1
        self._last_rank += len(tokens)
        group.rank = first
        ranks = count(first)
        locks = list(map(_new_lock, zip(tokens, numbers, sizes_bytes, expiries, ranks, repeat(group))))
        self.undo.append(partial(self._drop, locks))
        self.by_token.update(zip(tokens, locks, strict=True))
        self.by_number.update(zip(numbers, locks, strict=True))
        group.locks.update(zip(numbers, locks, strict=True))
        if group.session_lock is None and locks:
            self.timed[first] = group

    def remove(self, locks: Sequence[Lock]) -> None:
        self.undo.append(partial(self._restore, locks))
        self._drop(locks)

    def _drop(self, locks: Sequence[Lock]) -> None:
        by_token, by_number = self.by_token, self.by_number
        for token, number, _, _, _, group in locks:
            del by_token[token]
            del by_number[number]
            of_group = group.locks
            del of_group[number]
            if not of_group and group.session_lock is None:
                del self.timed[group.rank]

    def _restore(self, locks: Sequence[Lock]) -> None:
        for lock in locks:
            group = lock.group
            self.by_token[lock.token] = self.by_number[lock.number] = group.locks[lock.number] = lock
            if group.session_lock is None:
                self.timed[group.rank] = group

    def keep(self, known_end: int | None) -> bool:
        """Keep the changes of the batch; whether a lock outside sessions ends before `known_end` (Unix ms)."""
        self.undo.clear()
        if not self.timed:
            return False
        return known_end is None or next(iter(self.timed.values())).own_until_at < known_end

    def roll_back(self) -> None:
        """Undo the changes of the batch, the last one first."""
        while self.undo:
            self.undo.pop()()
        for group in self.timed.values():
            sort_by_rank(group.locks)
        self.sort()

    def find(self, token: bytes, now: int) -> Lock | None:
        """The lock with `token`, None if it has expired (even if no timer has ended it yet)."""
        lock = self.by_token.get(token)
        return None if lock is None or lock.until_at <= now else lock

    def find_all(self, tokens: Iterable[bytes], now: int) -> dict[bytes, Lock]:
        """The locks that `find` returns for these tokens, by token."""
        found: dict[bytes, Lock] = {}
        group, ended = None, True
        for token in tokens:
            lock = self.by_token.get(token)
            if lock is None:
                continue
            if lock.group is not group:
                group = lock.group
                ended = (group.own_until_at if group.session_lock is None else group.until_at) <= now
            if not ended:
                found[token] = lock
        return found

    def renew(self, locks: Iterable[Lock], until_at: int) -> None:
        """Set a later end of locks outside sessions (Unix ms)."""
        for old, of_group in groupby(locks, group_of):
            renewed = list(of_group)
            self.remove(renewed)
            self.add(
                LockGroup(old.home, old.ready_queue, until_at, None),
                [lock.token for lock in renewed],
                [lock.number for lock in renewed],
                [lock.size_bytes for lock in renewed],
                [lock.expires_at for lock in renewed],
            )

    def first(self) -> LockGroup | None:
        """The locks outside sessions with the earliest end."""
        return next(iter(self.timed.values()), None)

    def sort(self) -> None:
        """Order the locks by end."""
        self.timed = OrderedDict(sorted(self.timed.items(), key=lambda item: (item[1].until_at, item[0])))

    def check_invariants(self) -> None:
        assert {lock.number: lock for lock in self.by_token.values()} == self.by_number
        assert all(lock.group.locks[number] is lock for number, lock in self.by_number.items())
        groups = {lock.group for lock in self.by_token.values()}
        assert {group.rank: group for group in groups if group.session_lock is None} == self.timed
        distinct = {id(group.locks): len(group.locks) for group in groups}
        assert sum(distinct.values()) == len(self.by_token)
        for group in groups:
            ranks = [lock.rank for lock in group.locks.values()]
            assert ranks == sorted(ranks)


def sort_by_rank(locks: dict[int, Lock]) -> None:
    """Order locks by rank, in the order of their deliveries."""
    ordered = sorted(locks.items(), key=lambda item: item[1].rank)
    locks.clear()
    locks.update(ordered)


class HeldSession:
    """A session that a receiver has locked; `grant` identifies the lock, `until_at` is its end (Unix ms). A shared lock
    has a `token`, which stays when another receiver takes it over."""

    def __init__(
        self,
        request: AcceptSession,
        name: str,
        number: int,
        grant: int,
        until_at: int,
        ready_queue: SessionQueue,
        token: bytes | None,
    ):
        self.name = name  # as its receiver wrote it
        self.identity = folded(name)
        self.number = number
        self.grant = grant
        self.until_at = until_at
        self.rank = grant  # order among sessions with the same end
        self.ready_queue = ready_queue
        self.head: int | None = None  # sequence number of its row in `session_heads`, if it has one
        self.locks: dict[int, Lock] = {}
        self.token = token
        self._holder = request

    @property
    def announce(self) -> Callable[[None], None]:
        """Effect: tell the receiver that the session has messages (again)."""
        return self._holder.announce

    @property
    def lost(self) -> Callable[[BrokerError], None]:
        """Effect: tell the receiver that its lock is over."""
        return self._holder.lost

    @property
    def ended_idle(self) -> Callable[[int], None]:
        """Effect: tell the receiver that its lock has expired with no message locked; the argument is the instant."""
        return self._holder.ended_idle

    @property
    def by(self) -> str:
        """The client that holds the session."""
        return self._holder.by

    def is_shared_with(self, shared: SharedLock | None) -> bool:
        """Whether a receiver shows the token of the lock."""
        return shared is not None and shared.token is not None and shared.token == self.token

    def hand_over(self, request: AcceptSession, grant: int, until_at: int) -> Callable[[], None]:
        """Make another receiver the holder; the session's message locks stay. What is returned undoes it."""
        undo = partial(self._hold, self._holder, self.grant, self.until_at, self.rank)
        self._hold(request, grant, until_at, grant)
        return undo

    def _hold(self, request: AcceptSession, grant: int, until_at: int, rank: int) -> None:
        self._holder = request
        self.grant, self.until_at, self.rank = grant, until_at, rank
        self.ready_queue.announce_to(request.announce)

    def set_end(self, until_at: int, rank: int) -> None:
        """Set the end of the lock (Unix ms); `rank` orders sessions with the same end."""
        self.until_at, self.rank = until_at, rank

    def set_head(self, number: int | None) -> None:
        """Set the sequence number of the session's row in `session_heads`, None without a row."""
        self.head = number

    def sort_locks(self) -> None:
        sort_by_rank(self.locks)
