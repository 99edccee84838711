"""A queue partition in its plainest form: lists and loops, to compare the real one with."""

from __future__ import annotations

from dataclasses import dataclass

from emubus.broker.outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release


@dataclass
class Item:
    number: int
    name: str
    place: str = "active"  # active, deferred, dead, dead-deferred
    count: int = 0
    expires_at: int = 0
    locked_until: int | None = None  # None: not locked
    lock_turn: int = 0  # locks that end together end in the order in which they began

    @property
    def line(self) -> str:
        return "dead" if self.place.startswith("dead") else "active"


class Model:
    """What must be true of a partition, told as simply as possible. Locks are held by item number."""

    def __init__(self, lock_ms: int, deliveries_max: int, dead_letter_expired: bool) -> None:
        self.lock_ms = lock_ms
        self.deliveries_max = deliveries_max
        self.dead_letter_expired = dead_letter_expired
        self.items: list[Item] = []
        self.next_number = 1
        self.lock_turns = 0

    def send(self, name: str, now: int, ttl_ms: int | None) -> None:
        self.items.append(Item(self._number(), name, expires_at=0 if ttl_ms is None else now + ttl_ms))

    def take(self, line: str, count: int, now: int, remove: bool) -> list[tuple[int, str, int]]:
        out: list[tuple[int, str, int]] = []
        for item in sorted(self.items, key=lambda item: item.number):
            if len(out) == count:
                break
            if item.place != line or item.locked_until is not None:
                continue
            if item.expires_at and item.expires_at <= now:
                self._expire(item)
                continue
            out.append((item.number, item.name, item.count))
            if remove:
                self.items.remove(item)
            else:
                self._lock(item, now)
        return out

    def take_deferred(self, line: str, number: int, now: int) -> tuple[int, str, int] | None:
        place = "deferred" if line == "active" else "dead-deferred"
        item = self._find(number)
        if item is None or item.place != place or item.locked_until is not None:
            return None
        self._lock(item, now)
        return item.number, item.name, item.count

    def settle(self, number: int, outcome: Outcome, now: int) -> bool:
        item = self._find(number)
        if item is None or item.locked_until is None or item.locked_until <= now:
            return False
        if isinstance(outcome, DeadLetter) and item.line == "dead":
            return False
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

    def renew(self, number: int, now: int) -> bool:
        item = self._find(number)
        if item is None or item.locked_until is None or item.locked_until <= now:
            return False
        self._lock(item, now)
        return True

    def expire_locks(self, now: int) -> None:
        ended = [item for item in self.items if item.locked_until is not None and item.locked_until <= now]
        for item in sorted(ended, key=lambda item: item.lock_turn):
            item.locked_until = None
            self._failed(item, now)

    def expire_messages(self, now: int) -> None:
        due = [
            item
            for item in self.items
            if item.place == "active" and item.locked_until is None and item.expires_at and item.expires_at <= now
        ]
        for item in sorted(due, key=lambda item: (item.expires_at, item.number)):
            self._expire(item)

    def restart(self) -> None:
        for item in self.items:
            item.locked_until = None

    def peek(self, line: str) -> list[tuple[int, str]]:
        return [(item.number, item.name) for item in sorted(self.items, key=lambda i: i.number) if item.line == line]

    def _number(self) -> int:
        self.next_number += 1
        return self.next_number - 1

    def _lock(self, item: Item, now: int) -> None:
        item.locked_until = now + self.lock_ms
        self.lock_turns += 1
        item.lock_turn = self.lock_turns

    def _find(self, number: int) -> Item | None:
        return next((item for item in self.items if item.number == number), None)

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
        item.place, item.number, item.expires_at = "dead", self._number(), 0
