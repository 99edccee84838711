"""Message sessions of one partition: their locks, messages, state, and the order in which receivers accept them.

Knows session names and numbers. Names that differ in case only name one session; its identity is the folded name. A
session has at most one receiver, which holds its lock. Receivers accept idle sessions in order of their oldest
messages; only a window of the idle sessions is in memory (R7). `now` is an argument.
Changes of locks are recorded until the batch is committed and undone on rollback. Owned by a `Partition`; works on its
state.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from functools import partial
from itertools import count

from sortedcontainers import SortedDict

from .. import service_errors
from ..errors import BrokerError
from ..identity import folded
from ..ids import new_lock_tokens
from .contract import EventKind, Received, SessionGrant, SharedLock
from .locks import HeldSession
from .ready_queue import Reader, SessionQueue
from .records import (
    NUMBER,
    SESSION_HEADS,
    SESSION_MESSAGE_KEY,
    SESSION_MESSAGES,
    SESSION_STATE,
    SESSION_VALUE,
    SESSIONS,
    STATE_KEY,
    session_key,
    session_message_key,
    session_number,
    session_number_key,
)
from .requests import AcceptSession, GetSessionState, ListSessions, ReleaseSession, RenewSession, SetSessionState
from .settle import SettleHandlers
from .state import PartitionState
from .turn import Turn

IDLE_WINDOW_MAX = 1024  # idle sessions known in memory
NAMES_CACHED_MAX = 10_000
LIST_ROWS_MAX = 1 << 20

# Unique in the process: after its partition was closed and opened again, a receiver still has its old grant, which must
# not match the lock of another receiver.
_grants = count(1)


class MessageSessions:
    """All message sessions of a partition.

    Invariants: a held session is not in the window of idle sessions; every other session with active messages has at
    least one row in `session_heads`, and is in the window unless its row is beyond it.
    """

    def __init__(self, state: PartitionState, settle: SettleHandlers) -> None:
        self._state = state
        self._settle = settle
        # By identity, as everything that has a session's text for its key.
        self._held: OrderedDict[str, HeldSession] = OrderedDict()  # by end of the lock
        self._by_grant: dict[int, HeldSession] = {}
        self._numbers: OrderedDict[str, int] = OrderedDict()
        self._idle: dict[int, str] = SortedDict()  # names by number
        self._idle_of: dict[str, int] = {}
        self._more_idle = True
        self._next_idle = 0
        self._announced = True
        self._shrunk: dict[str, str] = {}  # names of sessions that lost messages without a receiver, in this request
        self._state_bytes: dict[int, int] = {}  # of states that this batch has set, which the view lacks, by session
        self._undo: list[Callable[[], None]] = []  # undoes the batch's changes of session locks

    # ---- end of a batch

    def keep(self) -> None:
        """Keep the changes of the committed batch."""
        self._state_bytes.clear()
        self._undo.clear()

    def roll_back(self) -> None:
        """Undo the batch's changes of session locks, and reload the idle sessions."""
        self._state_bytes.clear()
        while self._undo:
            self._undo.pop()()
        self._held = OrderedDict(sorted(self._held.items(), key=lambda item: (item[1].until_at, item[1].rank)))
        for held in self._held.values():
            held.ready_queue.restart()
            held.sort_locks()
        self._numbers.clear()
        self._idle.clear()
        self._idle_of.clear()
        self._more_idle = True
        self._next_idle = 0
        self._announced = True  # the worker announces them again
        self._shrunk.clear()

    def announce_held(self) -> None:
        """Announce possible messages to every receiver of a session."""
        for held in list(self._held.values()):
            held.announce(None)

    # ---- messages of sessions

    def add_message(self, name: str, number: int, turn: Turn) -> int:
        """Add an active message to session `name`; return the session's number."""
        identity = folded(name)
        session = self._number(identity, turn.view) or self._new_session(identity, name, turn)
        key = session_message_key(self._state.queue_id, session, number)
        held = self._held.get(identity)
        if held is not None:
            held.ready_queue.message_added()
            if held.head is None:  # locks end with the process: then `accept` finds it by its head
                self._undo.append(partial(held.set_head, None))
                held.set_head(number)
                self._put_head(name, number, turn)
            turn.effects.append((held.announce, None))
        elif identity not in self._idle_of and self._first_message(session, turn.view) is None:
            self._add_head(name, number, turn)
        turn.changes.append((SESSION_MESSAGES, key, b""))
        return session

    def number_of(self, name: str, view: Reader) -> int:
        """The number of a session, 0 if the session is unknown."""
        return self._number(folded(name), view) or 0

    def message_removed(self, name: str) -> None:
        """Note that expiry or deletion removed a message of session `name`; `update_heads` must follow."""
        self._shrunk[folded(name)] = name

    def update_heads(self, turn: Turn) -> None:
        """Update the heads of the idle sessions that lost messages; remove the sessions without messages."""
        names, self._shrunk = self._shrunk, {}
        gone: dict[int, set[int]] = {}
        come: dict[int, int] = {}
        for table, key, value in turn.changes if names else ():
            if table == SESSION_MESSAGES:
                _, session, number = SESSION_MESSAGE_KEY.unpack(key)
                if value is None:
                    gone.setdefault(session, set()).add(number)
                else:
                    come[session] = min(number, come.get(session, number))
        for identity in sorted(names.keys() - self._held.keys()):  # the end of a session lock updates the others
            name, session = names[identity], session_number(identity)
            before = self._first_message(session, turn.view)
            left = [self._first_message(session, turn.view, gone.get(session, frozenset())), come.get(session)]
            first = min((number for number in left if number is not None), default=None)
            known = self._idle_of.get(identity)
            for stale in {before, known}:
                if stale is not None and stale != first:
                    self._remove_head(stale, turn)
            if first is None:
                self._drop_idle(identity)
                self._remove_row(identity, turn)
            elif first != before or known not in (None, first):
                self._drop_idle(identity)
                self._add_head(name, first, turn)

    def held(self, grant: int) -> HeldSession | None:
        """The session with the lock `grant`, None if the lock has ended."""
        return self._by_grant.get(grant)

    def held_by_name(self, name: str, now: int) -> HeldSession | None:
        """The held session `name`, None if it is not locked."""
        held = self._held.get(folded(name))
        return None if held is None or held.until_at <= now else held

    # ---- requests

    def accept(self, request: AcceptSession, turn: Turn) -> None:
        if request.session_id is None:
            found = self._next_head(turn)
            name = None if found is None else found
        else:
            name = request.session_id
            held = self._held.get(folded(name))
            if held is not None and held.is_shared_with(request.shared):
                granted = self._hand_over(held, request, turn)
                turn.effects.append((request.reply, Received([granted], more=True)))
                return
            if held is not None:
                error = service_errors.session_cannot_be_locked(name)
                turn.effects.append((request.reply, Received([], False, error)))
                return
        grants: list[SessionGrant] = []
        if name is not None:
            grants.append(self._grant_session(request, name, turn))
        more = bool(self._idle) or self._more_idle
        if not more:
            self._announced = False
        turn.effects.append((request.reply, Received(grants, more)))

    def release(self, request: ReleaseSession, turn: Turn) -> None:
        """Unlock a session; delivery counts do not change."""
        held = self._held.get(folded(request.taken)) if request.taken else self._by_grant.get(request.grant)
        if held is not None:
            self._end(held, turn, counted=False)
            if request.taken:
                turn.effects.append((held.lost, service_errors.session_lock_lost()))

    def renew(self, request: RenewSession, turn: Turn) -> None:
        held = self.held_by_name(request.session_id, turn.now)
        if held is None:
            turn.effects.append((request.reply, service_errors.session_lock_lost()))
            return
        self._undo.append(partial(held.set_end, held.until_at, held.rank))
        held.set_end(turn.now + self._state.receivable.lock_duration_ms, next(_grants))
        self._held.move_to_end(held.identity)
        turn.effects.append((request.reply, held.until_at))

    def set_state(self, request: SetSessionState, turn: Turn) -> None:
        error = self.state_refusal(request.session_id, turn.now)
        if error is None:
            self.store_state(request.session_id, request.state, turn)
        turn.effects.append((request.reply, error))

    def state_refusal(self, session_id: str, now: int) -> BrokerError | None:
        """The error if the session is not locked, else None."""
        return service_errors.session_lock_lost() if self.held_by_name(session_id, now) is None else None

    def store_state(self, session_id: str, state: bytes | None, turn: Turn) -> None:
        """Store a state after `state_refusal` returned None."""
        held = self._held[folded(session_id)]
        queue_id = self._state.queue_id
        key = session_number_key(queue_id, held.number)
        before = self._state_bytes.get(held.number)
        if before is None:
            before = len(turn.view.get(SESSION_STATE, key) or b"")
        self._state_bytes[held.number] = len(state or b"")
        self._state.rows.add_state_bytes(len(state or b"") - before, turn)
        # Empty bytes clear the state: Go's SDK sends them and expects none back.
        turn.changes.append((SESSION_STATE, key, state or None))
        value = SESSION_VALUE.pack(held.number, turn.now)
        turn.changes.append((SESSIONS, session_key(queue_id, held.name), value + held.name.encode()))

    def get_state(self, request: GetSessionState, turn: Turn) -> None:
        """Answer with the application's state of a session."""
        held = self.held_by_name(request.session_id, turn.now)
        answer: bytes | BrokerError | None
        if held is None:
            answer = service_errors.session_lock_lost()
        else:
            answer = turn.view.get(SESSION_STATE, session_number_key(self._state.queue_id, held.number))
        turn.effects.append((request.reply, answer))

    def list(self, request: ListSessions, turn: Turn) -> None:
        """Answer with names of sessions, in order of their keys."""
        queue_id = self._state.queue_id
        names: list[str] = []
        start, stop = STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1)
        for _, row in turn.view.scan(SESSIONS, start, stop, LIST_ROWS_MAX):
            session, changed_at = SESSION_VALUE.unpack_from(row)
            name = row[SESSION_VALUE.size :].decode()
            if request.updated_after is not None:
                wanted = changed_at > request.updated_after
            else:
                has_state = turn.view.get(SESSION_STATE, session_number_key(queue_id, session)) is not None
                wanted = has_state or self._first_message(session, turn.view) is not None
            if wanted:
                names.append(name)
        turn.effects.append((request.reply, names))

    # ---- time

    def is_held(self, name: str) -> bool:
        return folded(name) in self._held

    def ends(self) -> dict[str, int]:
        """The ends of all session locks (Unix ms), by identity."""
        return {identity: held.until_at for identity, held in self._held.items()}

    def holders(self) -> dict[str, str]:
        """The clients that hold sessions, by identity."""
        return {identity: held.by for identity, held in self._held.items()}

    def next_end(self) -> int | None:
        """The earliest end of a session lock (Unix ms), None without locks."""
        for held in self._held.values():
            return held.until_at
        return None

    def expire(self, turn: Turn) -> None:
        """End the expired session locks; their unsettled messages count as delivered."""
        while self._held:
            held = next(iter(self._held.values()))
            if held.until_at > turn.now:
                return
            is_idle = not held.locks
            self._end(held, turn, counted=True)
            if is_idle:
                turn.effects.append((held.ended_idle, held.until_at))
            else:
                turn.effects.append((held.lost, service_errors.session_lock_lost()))

    def lose_all(self) -> None:
        """Report a lost session lock to every receiver."""
        for held in self._held.values():
            held.lost(service_errors.session_lock_lost())

    def check_invariants(self) -> None:
        assert {held.grant for held in self._held.values()} == set(self._by_grant)
        assert not set(self._held) & set(self._idle_of)
        assert {folded(name): number for number, name in self._idle.items()} == self._idle_of

    # ---- helpers

    def _grant_session(self, request: AcceptSession, name: str, turn: Turn) -> SessionGrant:
        session = session_number(name)  # a message or a state writes its row
        until_at = turn.now + self._state.receivable.lock_duration_ms
        ready_queue = SessionQueue(self._state.queue_id, session, request.announce, self._state.locks.by_number)
        token = self._token(request.shared)
        held = HeldSession(request, name, session, next(_grants), until_at, ready_queue, token)
        held.set_head(self._first_message(session, turn.view))
        known = self._drop_idle(held.identity)
        if known is not None and known != held.head:  # a crash during a session lock left it
            self._remove_head(known, turn)
        if held.head is not None:
            key = session_number_key(self._state.queue_id, held.head)
            if turn.view.get(SESSION_HEADS, key) is None:
                self._put_head(name, held.head, turn)
        self._undo.append(partial(self._remove_held, held))
        self._add_held(held)
        turn.note(EventKind.SESSION_ACCEPTED, self._state.ref, (), session=name, by=request.by, until_at=until_at)
        self._state.mark_used(turn.now)
        return SessionGrant(name, held.grant, self._state.index, until_at, token)

    def _token(self, shared: SharedLock | None) -> bytes | None:
        """The token of a new lock. One that was shown for a lock which has ended, or which a restart of the process
        ended, goes on: its receiver is the same to those who know it."""
        if shared is None:
            return None
        return shared.token or new_lock_tokens(self._state.index, 1)[0]

    def _hand_over(self, held: HeldSession, request: AcceptSession, turn: Turn) -> SessionGrant:
        """Give a lock, with the message locks in it, to another receiver; the one that had it learns of it first."""
        turn.effects.append((held.lost, service_errors.session_lock_lost()))
        before = held.grant
        until_at = turn.now + self._state.receivable.lock_duration_ms
        undo = held.hand_over(request, next(_grants), until_at)
        self._undo.append(partial(self._moved, held, before, undo))
        del self._by_grant[before]
        self._by_grant[held.grant] = held
        self._held.move_to_end(held.identity)
        turn.note(EventKind.SESSION_ACCEPTED, self._state.ref, (), session=held.name, by=request.by, until_at=until_at)
        self._state.mark_used(turn.now)
        return SessionGrant(held.name, held.grant, self._state.index, until_at, held.token)

    def _moved(self, held: HeldSession, before: int, undo: Callable[[], None]) -> None:
        del self._by_grant[held.grant]
        undo()
        self._by_grant[before] = held

    def _end(self, held: HeldSession, turn: Turn, *, counted: bool) -> None:
        start = len(turn.changes)
        kind = EventKind.SESSION_LOCK_EXPIRED if counted else EventKind.SESSION_RELEASED
        turn.note(kind, self._state.ref, (), session=held.name)
        self._settle.release(list(held.locks.values()), turn, counted=counted)
        self._undo.append(partial(self._add_held, held))
        self._remove_held(held)
        # The view still has the messages that `release` dead-lettered or expired.
        gone = {int.from_bytes(key[-8:], "big") for table, key, _ in turn.changes[start:] if table == SESSION_MESSAGES}
        first = self._first_message(held.number, turn.view, gone)
        if held.head is not None and held.head != first:
            self._remove_head(held.head, turn)
        if first is not None:
            self._add_head(held.name, first, turn)
        else:
            self._remove_row(held.identity, turn)

    def _add_held(self, held: HeldSession) -> None:
        self._held[held.identity] = held
        self._by_grant[held.grant] = held

    def _remove_held(self, held: HeldSession) -> None:
        del self._held[held.identity]
        del self._by_grant[held.grant]

    def _remove_row(self, identity: str, turn: Turn) -> None:
        """Remove the row of an idle session without messages and without state."""
        queue_id = self._state.queue_id
        key, number = session_key(queue_id, identity), session_number(identity)
        if turn.view.get(SESSION_STATE, session_number_key(queue_id, number)) is None and turn.view.get(SESSIONS, key):
            turn.changes.append((SESSIONS, key, None))
            turn.touched[queue_id] = self._state.counters
            self._numbers.pop(identity, None)

    def _number(self, identity: str, view: Reader) -> int | None:
        """The number of a session that has a row."""
        number = self._numbers.get(identity)
        if number is not None:
            self._numbers.move_to_end(identity)
            return number
        row = view.get(SESSIONS, session_key(self._state.queue_id, identity))
        return None if row is None else self._know(identity, SESSION_VALUE.unpack_from(row)[0])

    def _new_session(self, identity: str, name: str, turn: Turn) -> int:
        """Store the row of a session; return its number."""
        number, queue_id = session_number(identity), self._state.queue_id
        row = SESSION_VALUE.pack(number, 0) + name.encode()
        turn.changes.append((SESSIONS, session_key(queue_id, identity), row))
        turn.touched[queue_id] = self._state.counters
        return self._know(identity, number)

    def _know(self, identity: str, number: int) -> int:
        self._numbers[identity] = number
        if len(self._numbers) > NAMES_CACHED_MAX:
            self._numbers.popitem(last=False)
        return number

    def _first_message(self, session: int, view: Reader, gone: Collection[int] = ()) -> int | None:
        """The number of the session's first message in `view` that is not in `gone`."""
        queue_id = self._state.queue_id
        start, stop = session_message_key(queue_id, session, 0), session_message_key(queue_id, session + 1, 0)
        for key, _ in view.scan(SESSION_MESSAGES, start, stop, len(gone) + 1):
            number = int.from_bytes(key[-8:], "big")
            if number not in gone:
                return number
        return None

    def _put_head(self, name: str, number: int, turn: Turn) -> None:
        key = session_number_key(self._state.queue_id, number)
        turn.changes.append((SESSION_HEADS, key, name.encode()))
        turn.touched[self._state.queue_id] = self._state.counters

    def _remove_head(self, number: int, turn: Turn) -> None:
        turn.changes.append((SESSION_HEADS, session_number_key(self._state.queue_id, number), None))
        turn.touched[self._state.queue_id] = self._state.counters

    def _add_head(self, name: str, number: int, turn: Turn) -> None:
        """Add an idle session with the first message `number`."""
        self._put_head(name, number, turn)
        if number < self._next_idle or (not self._more_idle and len(self._idle) < IDLE_WINDOW_MAX):
            self._idle[number] = name
            self._idle_of[folded(name)] = number
            self._next_idle = max(self._next_idle, number + 1)
        else:
            self._more_idle = True
        if not self._announced:
            self._announced = True
            turn.effects.append((self._state.ref.announce_session, None))

    def _drop_idle(self, identity: str) -> int | None:
        """Remove a session from the window of idle sessions; return its number there or None."""
        number = self._idle_of.pop(identity, None)
        if number is not None:
            del self._idle[number]
        return number

    def _next_head(self, turn: Turn) -> str | None:
        """The idle session with the oldest message; corrects stale rows of `session_heads`."""
        while True:
            while self._more_idle and (not self._idle or next(iter(self._idle)) >= self._next_idle):
                self._read_heads(turn)
            if not self._idle:
                return None
            number = next(iter(self._idle))
            name = self._idle[number]
            identity = folded(name)
            first = self._first_message(session_number(identity), turn.view)
            if first == number:
                return name  # after a crash the row finds the session; the end of the lock replaces it
            self._drop_idle(identity)
            self._remove_head(number, turn)
            if first is None:
                self._remove_row(identity, turn)
            else:  # its older messages were removed without a receiver
                self._put_head(name, first, turn)
                self._idle[first] = name
                self._idle_of[identity] = first

    def _read_heads(self, turn: Turn) -> None:
        queue_id = self._state.queue_id
        start, stop = session_number_key(queue_id, self._next_idle), session_number_key(queue_id + 1, 0)
        rows = turn.view.scan(SESSION_HEADS, start, stop, IDLE_WINDOW_MAX)
        for key, encoded in rows:
            number, name = NUMBER.unpack(key[-8:])[0], encoded.decode()
            identity = folded(name)
            held = self._held.get(identity)
            known = self._idle_of.get(identity) if held is None else held.head
            if held is None and known is None:
                self._idle[number] = name
                self._idle_of[identity] = number
            elif number != known:  # a crash left it; the session has another row
                self._remove_head(number, turn)
        if rows:
            self._next_idle = NUMBER.unpack(rows[-1][0][-8:])[0] + 1
        self._more_idle = len(rows) == IDLE_WINDOW_MAX
