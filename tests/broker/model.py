"""A queue partition in its plainest form: lists and loops, to compare the real one with.

Names distinguish the messages. `order` is the sequence number that a message should have, and `picture` all
that should be stored, so that the real store can be compared with it as a whole. A model can be forked: one goes on as
if a command had been stored, the other as if not.
"""

from __future__ import annotations

from collections import Counter
from copy import copy
from dataclasses import dataclass, replace

from emubus.broker.address import SubQueue
from emubus.broker.api import Abandon, Complete, DeadLetter, Defer, Home, Outcome, Release
from emubus.broker.partition.records import HOMES, Due, session_number

from .tearing import Picture, hash_of

SEEN = tuple[str, int]  # name, delivery count
TAKEN = tuple[SEEN, int]  # and the number of the lock
LINES = {
    SubQueue.ACTIVE: (Home.ACTIVE, Home.DEFERRED),
    SubQueue.DEAD_LETTER: (Home.DEAD_LETTER, Home.DEAD_LETTER_DEFERRED),
    SubQueue.TRANSFER_DEAD_LETTER: (Home.TRANSFER_DEAD_LETTER, Home.TRANSFER_DEAD_LETTER_DEFERRED),
}
LINE_OF = {home: line for line, homes in LINES.items() for home in homes}
DEFERRED = {homes[1] for homes in LINES.values()}
MAIN = (Home.ACTIVE, Home.DEFERRED)
EXPIRED, UNDELIVERED = "TTLExpiredException", "MaxDeliveryCountExceeded"


@dataclass(eq=False)
class Item:
    order: int
    name: str
    session: str | None = None
    home: Home = Home.ACTIVE
    count: int = 0
    ttl_ms: int | None = None
    expires_at: int = 0
    due_at: int = 0  # of a scheduled one
    enqueued_at: int = 0
    origin: int = 0  # its enqueued sequence number
    hops: int = 0
    note: str = ""
    reason: str | None = None  # why it was dead-lettered
    locked_until: int | None = None  # None: not locked; in a session the session's end counts
    lock: int = 0  # which lock it is, or was
    lock_turn: int = 0  # locks that end together end in the order in which they began

    @property
    def line(self) -> SubQueue | None:
        return SubQueue.ACTIVE if self.home is Home.SCHEDULED else LINE_OF.get(self.home)

    @property
    def is_in_session(self) -> bool:
        return self.session is not None and self.home in MAIN

    def fork(self) -> Item:
        other = Item.__new__(Item)
        other.__dict__.update(self.__dict__)
        return other

    def reported(self) -> tuple[object, ...]:
        return (
            self.name,
            self.count,
            self.enqueued_at,
            self.expires_at,
            self.origin,
            self.hops,
            self.note,
            self.reason,
        )


@dataclass
class Held:
    name: str
    holding: int
    until: int
    turn: int
    token: bytes | None = None


class Model:
    """A plain model of what must be true of a partition."""

    def __init__(
        self, lock_ms: int, deliveries_max: int, dead_letter_expired: bool, sessions: bool, window_ms: int | None
    ) -> None:
        self.lock_ms = lock_ms
        self.deliveries_max = deliveries_max
        self.dead_letter_expired = dead_letter_expired
        self.sessions = sessions
        self.window_ms = window_ms  # of duplicate detection, None without
        self.items: list[Item] = []
        self.held: dict[str, Held] = {}
        self.states: dict[str, bytes] = {}
        self.changed_at: dict[str, int] = {}  # of those states
        self.remembered: dict[str, int] = {}  # message ids, until when
        self.forgets: set[tuple[int, str]] = set()
        self.forwarded_up_to: dict[tuple[int, int], int] = {}
        self.orders = 0
        self.turns = 0

    def fork(self) -> Model:
        """The same again, to go on by itself."""
        other = copy(self)
        other.items = [item.fork() for item in self.items]
        other.held = {name: replace(held) for name, held in self.held.items()}
        other.states, other.changed_at = dict(self.states), dict(self.changed_at)
        other.remembered, other.forgets = dict(self.remembered), set(self.forgets)
        other.forwarded_up_to = dict(self.forwarded_up_to)
        return other

    def picture(self) -> Picture:
        """What must be stored."""
        sessions = {
            name: session_number(name) for name in {item.session or "" for item in self.items} | set(self.states)
        }
        counts = Counter(item.home for item in self.items)
        active = [item for item in self.items if item.home is Home.ACTIVE]
        return {
            "messages": {(item.home, item.order): item.reported() for item in self.items},
            "next": self.orders + 1,
            "counts": [counts[home] for home in HOMES],
            "bytes miscounted": 0,
            "state bytes miscounted": 0,
            "due": {(Due.EXPIRE, item.expires_at, item.order) for item in active if item.expires_at}
            | {(Due.ACTIVATE, item.due_at, item.order) for item in self.items if item.home is Home.SCHEDULED}
            | {(Due.FORGET, until, hash_of(message_id)) for until, message_id in self.forgets},
            "duplicates": {hash_of(message_id): until for message_id, until in self.remembered.items()},
            "forwarded": self.forwarded_up_to,
            "in sessions": {(sessions[item.session], item.order) for item in active if item.session is not None},
            "session states": {sessions[name]: (state, self.changed_at[name]) for name, state in self.states.items()},
        }

    # ---- arrivals

    def send(self, name: str, message_id: str, session: str | None, now: int, ttl_ms: int | None = None) -> None:
        if not self._is_duplicate(message_id, now):
            self._arrive(Item(0, name, session, ttl_ms=ttl_ms), now)

    def schedule(self, name: str, message_id: str, session: str | None, now: int, at: int, ttl_ms: int | None) -> None:
        """By the command for it; a duplicate gets a number for nothing."""
        order = self._order()
        if not self._is_duplicate(message_id, now):
            self._wait(Item(order, name, session, ttl_ms=ttl_ms, due_at=at), now)

    def send_scheduled(
        self, name: str, message_id: str, session: str | None, now: int, at: int, ttl_ms: int | None
    ) -> None:
        """By a send."""
        if not self._is_duplicate(message_id, now):
            self._wait(Item(self._order(), name, session, ttl_ms=ttl_ms, due_at=at), now)

    def forwarded(
        self, source: tuple[int, int], number: int, name: str, message_id: str, session: str | None, now: int
    ) -> None:
        if number <= self.forwarded_up_to.get(source, 0):
            return
        self.forwarded_up_to[source] = number
        if not self._is_duplicate(message_id, now):
            self._arrive(Item(0, name, session, origin=77, hops=1, note="from afar"), now)

    def cancel(self, orders: list[int]) -> bool:
        found = [item for item in self.items if item.home is Home.SCHEDULED and item.order in orders]
        if len(found) != len(set(orders)):
            return False
        for item in found:
            self.items.remove(item)
        return True

    def transfer(self, name: str, session: str | None, now: int, ttl_ms: int | None) -> None:
        order = self._order()
        item = Item(order, name, session, Home.TRANSFER_OUTBOX, ttl_ms=ttl_ms, enqueued_at=now, origin=order)
        item.note = "elsewhere"
        self.items.append(item)

    def outbox(self, count: int) -> list[tuple[Home, int, str]]:
        waiting = [item for item in self._sorted() if item.home is Home.TRANSFER_OUTBOX]
        return [(item.home, item.order, item.name) for item in waiting[:count]]

    def delivered(self, orders: list[int]) -> None:
        self.items = [i for i in self.items if not (i.home is Home.TRANSFER_OUTBOX and i.order in orders)]

    def undeliverable(self, order: int, reason: str | None, now: int) -> None:
        for item in self.items:
            if item.home is Home.TRANSFER_OUTBOX and item.order == order:
                item.note = ""
                if reason is None:
                    self.items.remove(item)
                    self._arrive(item, now)
                else:
                    item.home, item.reason = Home.TRANSFER_DEAD_LETTER, reason
                return

    # ---- receiving

    def take(self, line: SubQueue, count: int, now: int, remove: bool) -> list[TAKEN]:
        home = LINES[line][0]
        return self._take([item for item in self._sorted() if item.home is home], count, now, remove)

    def take_from_session(self, name: str, holding: int, count: int, now: int) -> list[TAKEN] | None:
        held = self.held.get(name)
        if held is None or held.holding != holding or held.until <= now:
            return None
        mine = [item for item in self._sorted() if item.home is Home.ACTIVE and item.session == name]
        return self._take(mine, count, now, remove=False)

    def _take(self, candidates: list[Item], count: int, now: int, remove: bool) -> list[TAKEN]:
        out: list[TAKEN] = []
        for item in candidates:
            if len(out) == count:
                break
            if item.locked_until is not None:
                continue
            if item.expires_at and item.expires_at <= now:
                self._expire(item)
                continue
            if remove:
                self.items.remove(item)
            else:
                self._lock(item, now)
            out.append(((item.name, item.count), item.lock))
        return out

    def take_deferred(self, line: SubQueue, orders: list[int], now: int, session: str | None) -> list[TAKEN] | None:
        in_session = self.sessions and line is SubQueue.ACTIVE
        if in_session and not self.holds(session, now):
            return None
        found = []
        for order in dict.fromkeys(orders):
            item = next((i for i in self.items if i.order == order and i.home is LINES[line][1]), None)
            if item is None or item.locked_until is not None or (in_session and item.session != session):
                return None
            found.append(item)
        for item in found:
            self._lock(item, now)
        return [((item.name, item.count), item.lock) for item in found]

    def peek(self, line: SubQueue) -> list[str]:
        return [item.name for item in self._sorted() if item.line is line]

    def extent(self, line: SubQueue) -> tuple[int, int, int]:
        here = [item for item in self.items if item.line is line]
        first = min((item.order for item in here), default=self.orders + 1)
        return first, self.orders + 1, sum(item.home is not Home.SCHEDULED for item in here)

    def delete(self, line: SubQueue, count: int, before: int, before_order: int, now: int) -> int:
        found = [
            item
            for item in self._sorted()
            if item.home is LINES[line][0]
            and item.locked_until is None
            and item.enqueued_at < before
            and item.order < before_order
        ]
        deleted = 0
        for item in found:
            if deleted == count:
                break
            if 0 < item.expires_at <= now:
                self._expire(item)
            else:
                self.items.remove(item)
                deleted += 1
        return deleted

    # ---- sessions

    def holds(self, name: str | None, now: int) -> bool:
        return name is not None and name in self.held and self.held[name].until > now

    def accept(self, name: str | None, now: int, token: bytes | None = None) -> Held | None:
        if name is None:
            idle = [i for i in self._sorted() if i.home is Home.ACTIVE and i.session not in self.held]
            name = idle[0].session if idle else None
        elif name in self.held:
            held = self.held[name]
            if token is None or held.token != token:
                return None
            self._prolong(held, now)
            held.holding = held.turn
            return held
        if name is None:
            return None
        turn = self._turn()
        self.held[name] = Held(name, turn, now + self.lock_ms, turn, token)
        return self.held[name]

    def renew_session(self, name: str, now: int) -> int | None:
        if not self.holds(name, now):
            return None
        return self._prolong(self.held[name], now)

    def _prolong(self, held: Held, now: int) -> int:
        name = held.name
        held.until, held.turn = now + self.lock_ms, self._turn()
        for item in self.items:
            if item.locked_until is not None and item.is_in_session and item.session == name:
                item.locked_until = held.until
        return held.until

    def give_back(self, name: str, holding: int, now: int) -> None:
        if name in self.held and self.held[name].holding == holding:
            self._release(name, now, counted=False)

    def _release(self, name: str, now: int, *, counted: bool) -> None:
        del self.held[name]
        mine = [i for i in self.items if i.is_in_session and i.session == name and i.locked_until is not None]
        for item in sorted(mine, key=lambda item: item.lock_turn):
            item.locked_until = None
            if counted:
                self._failed(item, now)
            else:
                self._available(item, now)

    def set_state(self, name: str, now: int, state: bytes | None) -> bool:
        if not self.holds(name, now):
            return False
        self.states.pop(name, None)
        self.changed_at.pop(name, None)
        if state:
            self.states[name], self.changed_at[name] = state, now
        return True

    def list_sessions(self) -> list[str]:
        return sorted({i.session for i in self.items if i.home is Home.ACTIVE and i.session} | set(self.states))

    # ---- settling

    def can_settle(self, name: str, lock: int, outcome: Outcome, now: int) -> bool:
        item = self.find(name)
        if item is None or item.locked_until is None or item.lock != lock:
            return False
        if self.sessions and item.home in MAIN:
            if not self.holds(item.session, now):
                return False
        elif item.locked_until <= now:
            return False
        return not (isinstance(outcome, DeadLetter) and item.home not in MAIN)

    def settle(self, name: str, lock: int, outcome: Outcome, now: int) -> bool:
        if not self.can_settle(name, lock, outcome, now):
            return False
        item = self.find(name)
        assert item is not None
        item.locked_until = None
        match outcome:
            case Complete():
                self.items.remove(item)
            case Release():
                self._available(item, now)
            case Abandon():
                self._failed(item, now)
            case Defer():
                counted = item.home in MAIN
                item.count += counted
                if counted and item.count >= self.deliveries_max:
                    self._bury(item, UNDELIVERED)
                else:
                    item.home = LINES[LINE_OF[item.home]][1]
            case DeadLetter(reason):
                self._bury(item, reason)
        return True

    def renew(self, line: SubQueue, name: str, lock: int, now: int) -> int | None:
        item = self.find(name)
        if item is None or item.locked_until is None or item.lock != lock or item.locked_until <= now:
            return None
        if self.sessions and (line is SubQueue.ACTIVE or item.home in MAIN):
            return None  # the message session is locked, not the message
        item.locked_until, item.lock_turn = now + self.lock_ms, self._turn()
        return item.locked_until

    # ---- time

    def expire_locks(self, now: int) -> None:
        timed = [
            item
            for item in self.items
            if item.locked_until is not None and item.locked_until <= now and not (self.sessions and item.home in MAIN)
        ]
        for item in sorted(timed, key=lambda item: item.lock_turn):
            item.locked_until = None
            self._failed(item, now)
        for held in sorted(self.held.values(), key=lambda held: held.turn):
            if held.until <= now:
                self._release(held.name, now, counted=True)

    def fall_due(self, now: int) -> None:
        due = [
            (item.expires_at, 0, item.order, item)
            for item in self.items
            if item.home is Home.ACTIVE and item.locked_until is None and item.expires_at and item.expires_at <= now
        ]
        due += [
            (item.due_at, 2, item.order, item)
            for item in self.items
            if item.home is Home.SCHEDULED and item.due_at <= now
        ]
        for _, what, _, item in sorted(due, key=lambda each: each[:3]):
            if what == 0:
                self._expire(item)
            else:
                self.items.remove(item)
                item.origin = 0
                self._arrive(item, now)
        for until, message_id in [each for each in self.forgets if each[0] <= now]:
            self.forgets.remove((until, message_id))
            if self.remembered.get(message_id, now + 1) <= now:
                del self.remembered[message_id]

    def restart(self) -> None:
        self.held.clear()
        for item in self.items:
            item.locked_until = None

    # ---- helpers

    def find(self, name: str) -> Item | None:
        return next((item for item in self.items if item.name == name), None)

    def _is_duplicate(self, message_id: str, now: int) -> bool:
        if self.window_ms is None:
            return False
        if self.remembered.get(message_id, 0) > now:
            return True
        self.remembered[message_id] = now + self.window_ms
        self.forgets.add((now + self.window_ms, message_id))
        return False

    def _arrive(self, item: Item, now: int) -> None:
        """It becomes active, under a new number; its time to live begins."""
        item.home, item.order, item.enqueued_at, item.due_at = Home.ACTIVE, self._order(), now, 0
        item.expires_at = 0 if item.ttl_ms is None else now + item.ttl_ms
        item.origin = item.origin or item.order
        self.items.append(item)

    def _wait(self, item: Item, now: int) -> None:
        item.home, item.enqueued_at, item.origin = Home.SCHEDULED, now, item.order
        self.items.append(item)

    def _sorted(self) -> list[Item]:
        return sorted(self.items, key=lambda item: item.order)

    def _order(self) -> int:
        self.orders += 1
        return self.orders

    def _turn(self) -> int:
        self.turns += 1
        return self.turns

    def _lock(self, item: Item, now: int) -> None:
        item.locked_until = now + self.lock_ms
        item.lock = item.lock_turn = self._turn()

    def _failed(self, item: Item, now: int) -> None:
        counted = item.home in MAIN
        item.count += counted
        if counted and item.count >= self.deliveries_max:
            self._bury(item, UNDELIVERED)
        else:
            self._available(item, now)

    def _available(self, item: Item, now: int) -> None:
        if item.home is Home.ACTIVE and item.expires_at and item.expires_at <= now:
            self._expire(item)

    def _expire(self, item: Item) -> None:
        if self.dead_letter_expired:
            self._bury(item, EXPIRED)
        else:
            self.items.remove(item)

    def _bury(self, item: Item, reason: str | None) -> None:
        item.home, item.expires_at, item.reason = Home.DEAD_LETTER, 0, reason
