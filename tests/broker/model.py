"""A queue partition in its plainest form: lists and loops, to compare the real one with.

Messages are told apart by their names; `order` is the model's own idea of sequence numbers.
"""

from __future__ import annotations

from dataclasses import dataclass

from emubus.broker.outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release

SEEN = tuple[str, int]  # name, delivery count


@dataclass
class Item:
    order: int
    name: str
    session: str | None = None
    place: str = "active"  # active, deferred, scheduled, dead, dead-deferred
    count: int = 0
    ttl_ms: int | None = None
    expires_at: int = 0
    due_at: int = 0  # of a scheduled one
    enqueued_at: int = 0
    locked_until: int | None = None  # None: not locked; in a session the session's end counts
    lock_turn: int = 0  # locks that end together end in the order in which they began

    @property
    def line(self) -> str:
        return "dead" if self.place.startswith("dead") else "active"


@dataclass
class Held:
    name: str
    until: int
    turn: int


class Model:
    """What must be true of a partition, told as simply as possible."""

    def __init__(self, lock_ms: int, deliveries_max: int, dead_letter_expired: bool, sessions: bool) -> None:
        self.lock_ms = lock_ms
        self.deliveries_max = deliveries_max
        self.dead_letter_expired = dead_letter_expired
        self.sessions = sessions
        self.items: list[Item] = []
        self.held: dict[str, Held] = {}
        self.states: dict[str, bytes] = {}
        self.seen: dict[str, int] = {}
        self.orders = 0
        self.turns = 0

    # ---- arrivals

    def send(self, name: str, now: int, ttl_ms: int | None, session: str | None) -> None:
        expires_at = 0 if ttl_ms is None else now + ttl_ms
        item = Item(self._order(), name, session, ttl_ms=ttl_ms, expires_at=expires_at, enqueued_at=now)
        self.items.append(item)

    def is_duplicate(self, message_id: str, now: int, window_ms: int) -> bool:
        if self.seen.get(message_id, 0) > now:
            return True
        self.seen[message_id] = now + window_ms
        return False

    def schedule(self, name: str, now: int, at: int, session: str | None) -> None:
        self.items.append(Item(self._order(), name, session, place="scheduled", due_at=at, enqueued_at=now))

    def cancel(self, name: str) -> bool:
        item = self.find(name)
        if item is None or item.place != "scheduled":
            return False
        self.items.remove(item)
        return True

    # ---- receiving

    def take(self, line: str, count: int, now: int, remove: bool) -> list[SEEN]:
        return self._take([item for item in self._sorted() if item.place == line], count, now, remove)

    def take_from_session(self, name: str, count: int, now: int, remove: bool) -> list[SEEN]:
        held = self.held.get(name)
        if held is None or held.until <= now:
            return []
        mine = [item for item in self._sorted() if item.place == "active" and item.session == name]
        return self._take(mine, count, now, remove)

    def _take(self, candidates: list[Item], count: int, now: int, remove: bool) -> list[SEEN]:
        out: list[SEEN] = []
        for item in candidates:
            if len(out) == count:
                break
            if item.locked_until is not None:
                continue
            if item.expires_at and item.expires_at <= now:
                self._expire(item)
                continue
            out.append((item.name, item.count))
            if remove:
                self.items.remove(item)
            else:
                self._lock(item, now)
        return out

    def take_deferred(self, line: str, name: str, now: int, session: str | None) -> bool:
        place = "deferred" if line == "active" else "dead-deferred"
        item = self.find(name)
        if self.sessions and line == "active" and not self.holds(session, now):
            return False
        if item is None or item.place != place or item.locked_until is not None:
            return False
        if self.sessions and line == "active" and item.session != session:
            return False
        self._lock(item, now)
        return True

    def peek(self, line: str) -> list[str]:
        return [item.name for item in self._sorted() if item.line == line]

    def delete(self, count: int, before: int) -> int:
        found = [
            item
            for item in self._sorted()
            if item.place == "active" and item.locked_until is None and item.enqueued_at < before
        ]
        for item in found[:count]:
            self.items.remove(item)
        return len(found[:count])

    # ---- sessions

    def holds(self, name: str | None, now: int) -> bool:
        return name is not None and name in self.held and self.held[name].until > now

    def accept(self, name: str | None, now: int) -> str | None:
        if name is None:
            idle = [i for i in self._sorted() if i.place == "active" and i.session not in self.held]
            name = idle[0].session if idle else None
        elif name in self.held:
            return None
        if name is not None:
            self.held[name] = Held(name, now + self.lock_ms, self._turn())
        return name

    def renew_session(self, name: str, now: int) -> bool:
        if not self.holds(name, now):
            return False
        self.held[name] = Held(name, now + self.lock_ms, self._turn())
        for item in self.items:
            if item.locked_until is not None and item.session == name and item.line == "active":
                item.locked_until = now + self.lock_ms
        return True

    def release_session(self, name: str, now: int, *, counted: bool) -> None:
        del self.held[name]
        mine = [i for i in self.items if i.session == name and i.line == "active" and i.locked_until is not None]
        for item in sorted(mine, key=lambda item: item.lock_turn):
            item.locked_until = None
            if counted:
                self._failed(item, now)
            else:
                self._available(item, now)

    def set_state(self, name: str, now: int, state: bytes | None) -> bool:
        if not self.holds(name, now):
            return False
        if not state:
            self.states.pop(name, None)
        else:
            self.states[name] = state
        return True

    def list_sessions(self) -> list[str]:
        full = {item.session for item in self.items if item.place == "active" and item.session is not None}
        return sorted(full | set(self.states))

    # ---- settling

    def can_settle(self, name: str, outcome: Outcome, now: int) -> bool:
        item = self.find(name)
        if item is None or item.locked_until is None:
            return False
        if self.sessions and item.line == "active":
            if not self.holds(item.session, now):
                return False
        elif item.locked_until <= now:
            return False
        return not (isinstance(outcome, DeadLetter) and item.line == "dead")

    def settle(self, name: str, outcome: Outcome, now: int) -> bool:
        if not self.can_settle(name, outcome, now):
            return False
        item = self.find(name)
        assert item is not None
        item.locked_until = None
        if isinstance(outcome, Complete):
            self.items.remove(item)
        elif isinstance(outcome, Release):
            self._available(item, now)
        elif isinstance(outcome, Abandon):
            self._failed(item, now)
        elif isinstance(outcome, Defer):
            item.place = "deferred" if item.line == "active" else "dead-deferred"
        else:
            self._bury(item)
        return True

    def renew(self, name: str, now: int) -> bool:
        item = self.find(name)
        if self.sessions or item is None or item.locked_until is None or item.locked_until <= now:
            return False
        self._lock(item, now)
        return True

    # ---- time

    def expire_locks(self, now: int) -> None:
        timed = [
            item
            for item in self.items
            if item.locked_until is not None
            and item.locked_until <= now
            and not (self.sessions and item.line == "active")
        ]
        for item in sorted(timed, key=lambda item: item.lock_turn):
            item.locked_until = None
            self._failed(item, now)
        for held in sorted(self.held.values(), key=lambda held: held.turn):
            if held.until <= now:
                self.release_session(held.name, now, counted=True)

    def fall_due(self, now: int) -> None:
        due = [
            (item.expires_at, 0, item.order, item)
            for item in self.items
            if item.place == "active" and item.locked_until is None and item.expires_at and item.expires_at <= now
        ]
        due += [
            (item.due_at, 2, item.order, item)
            for item in self.items
            if item.place == "scheduled" and item.due_at <= now
        ]
        for _, what, _, item in sorted(due, key=lambda each: each[:3]):
            if what == 0:
                self._expire(item)
            else:
                item.place, item.order, item.enqueued_at = "active", self._order(), now

    def restart(self) -> None:
        self.held.clear()
        for item in self.items:
            item.locked_until = None

    # ---- helpers

    def find(self, name: str) -> Item | None:
        return next((item for item in self.items if item.name == name), None)

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
        item.lock_turn = self._turn()

    def _failed(self, item: Item, now: int) -> None:
        item.count += 1
        if item.line == "active" and item.count >= self.deliveries_max:
            self._bury(item)
        else:
            self._available(item, now)

    def _available(self, item: Item, now: int) -> None:
        if item.place == "active" and item.expires_at and item.expires_at <= now:
            self._expire(item)

    def _expire(self, item: Item) -> None:
        if self.dead_letter_expired:
            self._bury(item)
        else:
            self.items.remove(item)

    def _bury(self, item: Item) -> None:
        item.place, item.order, item.expires_at = "dead", self._order(), 0
