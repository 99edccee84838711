"""The handlers that end or renew locks: settle, renew, expire.

Knows outcomes, delivery counts and MaxDeliveryCount, and the home of a message after its lock ends. Does not know how
messages are locked (`receive`). Owned by a `Partition`; works on its state.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from itertools import groupby
from typing import Final

from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError
from ..message.bounds import changes_refusal
from ..message.stored import EncodedProperties, encoded_properties, with_encoded_properties
from ..outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from .contract import Counted, EventKind
from .locks import Lock, expires_at_of, group_of, number_of, size_bytes_of
from .records import MESSAGES, Home, Record, message_key
from .requests import ExpireLocks, Renew, RunDone, Settle
from .state import PartitionState
from .turn import Turn

MAIN_HOMES = (Home.ACTIVE, Home.DEFERRED)  # of the entity itself, not of a dead-letter queue
REASON_DELIVERY_COUNT = "MaxDeliveryCountExceeded"
EVENTS: Final[Mapping[type[Outcome], tuple[EventKind, Counted]]] = {
    Complete: (EventKind.COMPLETED, Counted.COMPLETED),
    Abandon: (EventKind.ABANDONED, Counted.ABANDONED),
    Defer: (EventKind.DEFERRED, Counted.DEFERRED),
    Release: (EventKind.RELEASED, Counted.RELEASED),
}
"""The events of outcomes and what they count as; a dead-lettering is noted where the message moves."""

NONE_REFUSED: Final[Mapping[bytes, BrokerError]] = {}


class SettleHandlers:
    """Handlers of settle, renew and expire requests; `sessions`: the entity requires sessions."""

    def __init__(self, state: PartitionState, sessions: bool) -> None:
        self._state = state
        self._sessions = sessions
        self._encoded: tuple[Mapping[str, object], EncodedProperties] = ({}, {})  # the last outcome's properties

    def settle(self, request: Settle, turn: Turn) -> None:
        """End each lock of a run on its own: those that can't end so are refused, the others end together."""
        now = turn.now if request.came_at is None else request.came_at
        found = self._state.locks.find_all(request.tokens, now)
        refused = NONE_REFUSED
        if not isinstance(request.outcome, Complete):
            refused = self._refused(found, request.outcome)
            for token in refused:
                del found[token]
        if found:
            self.end(list(found.values()), request.outcome, turn)
        if request.done is not None:
            self._answer(request, request.done, found, refused, turn)

    def _answer(
        self,
        request: Settle,
        done: RunDone,
        found: dict[bytes, Lock],
        refused: Mapping[bytes, BrokerError],
        turn: Turn,
    ) -> None:
        """Answer for the positions of a run whose locks `found` have ended; uses `found` up."""
        if len(found) == len(request.tokens):
            turn.effects.append((partial(done, request.positions), None))
            return
        settled, lost = list[int](), list[int]()
        for token, position in zip(request.tokens, request.positions, strict=True):
            if token in refused:
                turn.effects.append((partial(done, (position,)), refused[token]))
            else:
                # A repeated token is refused: the first one ended the lock.
                (lost if found.pop(token, None) is None else settled).append(position)
        if lost:
            turn.effects.append((partial(done, lost), self._lock_lost(request.sub_queue)))
        if settled:
            turn.effects.append((partial(done, settled), None))

    def refusal(self, request: Settle, now: int) -> BrokerError | None:
        """The error if one of the locks can't end with this outcome now, else None."""
        found = self._state.locks.find_all(request.tokens, now)
        if len(found) < len(request.tokens):
            return self._lock_lost(request.sub_queue)
        return next(iter(self._refused(found, request.outcome).values()), None)

    def _refused(self, found: Mapping[bytes, Lock], outcome: Outcome) -> Mapping[bytes, BrokerError]:
        """The errors of those locks that can't end with this outcome, by token."""
        if isinstance(outcome, DeadLetter):
            refused = {
                token: service_errors.dead_letter_of_dead_letter()
                for token, lock in found.items()
                if lock.group.home not in MAIN_HOMES
            }
            if refused:
                return refused
        changes = _changes(outcome)
        if not changes or changes is self._encoded[0]:  # those passed
            return NONE_REFUSED
        error = changes_refusal(changes, self._state.ref.bounds)
        return NONE_REFUSED if error is None else dict.fromkeys(found, error)

    def end(self, locks: Sequence[Lock], outcome: Outcome, turn: Turn) -> None:
        """End locks, whose settlement passed `refusal`, with one outcome."""
        state = self._state
        state.mark_used(turn.now)
        state.locks.remove(locks)
        for group, of_group in groupby(locks, group_of):
            ended = list(of_group)
            numbers = list(map(number_of, ended))
            if type(outcome) in EVENTS:
                event, counted = EVENTS[type(outcome)]
                turn.counts.append((state.queue_id, counted, group.ready_queue.sub_queue, len(ended)))
                if turn.events is not None:
                    changes = {name: str(value) for name, value in _changes(outcome).items()}
                    turn.note(event, state.ref, numbers, properties=changes)
            if isinstance(outcome, Complete):
                sizes, expiries = list(map(size_bytes_of, ended)), list(map(expires_at_of, ended))
                if group.session_lock is None:
                    state.rows.remove(group.home, numbers, sizes, turn, expiries)
                else:
                    state.remove(group.home, numbers, sizes, expiries, group.session, turn)
            else:
                for lock in ended:
                    self._move(lock, outcome, turn)

    def _move(self, lock: Lock, outcome: Outcome, turn: Turn) -> None:
        """Move a message whose lock has ended to the home that the outcome gives it."""
        state, home = self._state, lock.group.home
        row = turn.view.get(MESSAGES, message_key(state.queue_id, home, lock.number))
        if row is None:  # the entity is being deleted
            return
        match outcome:
            case Release():
                self._make_available(lock, row, turn)
            case Abandon(properties):
                self.attempt_failed(lock, self._modified(row, properties), len(row), turn)
            case Defer(properties):
                self._defer(lock, self._modified(row, properties), len(row), turn)
            case DeadLetter():
                state.dead_letter(home, lock.number, row, _changes(outcome), turn, lock.group.session)

    def attempt_failed(self, lock: Lock, record: Record, old_bytes: int, turn: Turn) -> None:
        """Count a failed delivery attempt, then make the message available again or dead-letter it.

        `old_bytes` is the size of the stored row. A dead letter keeps its delivery count, as in the service.
        """
        state = self._state
        home = lock.group.home
        counted = home in MAIN_HOMES
        record.update(delivery_count=record.delivery_count + counted)
        row = record.pack()
        state.rows.replace(home, lock.number, row, old_bytes, turn)
        if counted and record.delivery_count >= state.receivable.max_delivery_count:
            self._delivered_too_often(lock, row, turn)
        else:
            self._make_available(lock, row, turn)

    def _delivered_too_often(self, lock: Lock, row: bytes, turn: Turn) -> None:
        limit = self._state.receivable.max_delivery_count
        text = f"Message could not be consumed after {limit} delivery attempts."
        reason = {"DeadLetterReason": REASON_DELIVERY_COUNT, "DeadLetterErrorDescription": text}
        self._state.dead_letter(lock.group.home, lock.number, row, reason, turn, lock.group.session)

    def release(self, locks: Sequence[Lock], turn: Turn, *, counted: bool) -> None:
        """End locks without a settlement: they expired (`counted`), or their session is released."""
        self._state.locks.remove(locks)
        for lock in locks:
            row = turn.view.get(MESSAGES, message_key(self._state.queue_id, lock.group.home, lock.number))
            if row is None:
                continue
            what = Counted.LOCKS_EXPIRED if counted else Counted.RELEASED
            turn.count(self._state.queue_id, what, detail=lock.group.ready_queue.sub_queue)
            if turn.events is not None:
                kind = EventKind.LOCK_EXPIRED if counted else EventKind.RELEASED
                turn.note(kind, self._state.ref, [lock.number])
            if counted:
                self.attempt_failed(lock, Record.unpack(row), len(row), turn)
            else:
                self._make_available(lock, row, turn)

    def renew(self, request: Renew, turn: Turn) -> None:
        """Renew the locks of all tokens, or of none."""
        locks = self._state.locks
        found = [locks.find(token, turn.now) for token in request.tokens]
        valid = [lock for lock in found if lock is not None]
        if self._locks_sessions(request.sub_queue) or any(lock.group.session_lock is not None for lock in valid):
            turn.effects.append((request.reply, service_errors.renew_in_session()))
            return
        if len(valid) != len(found):
            turn.effects.append((request.reply, service_errors.lock_lost()))
            return
        until_at = turn.now + self._state.receivable.lock_duration_ms
        turn.note(EventKind.LOCK_RENEWED, self._state.ref, [lock.number for lock in valid], until_at=until_at)
        locks.renew({lock.token: lock for lock in valid}.values(), until_at)  # a repeated token once
        turn.effects.append((request.reply, [until_at] * len(valid)))

    def expire_locks(self, request: ExpireLocks, turn: Turn) -> None:
        """End the expired locks outside sessions."""
        while (group := self._state.locks.first()) is not None and group.until_at <= turn.now:
            self.release(list(group.locks.values()), turn, counted=True)

    def _lock_lost(self, sub_queue: SubQueue) -> BrokerError:
        """The error for a token without a lock."""
        return service_errors.session_lock_lost() if self._locks_sessions(sub_queue) else service_errors.lock_lost()

    def _locks_sessions(self, sub_queue: SubQueue) -> bool:
        """Whether receivers of a sub-queue lock message sessions; dead letters have locks of their own."""
        return self._sessions and sub_queue is SubQueue.ACTIVE

    def _make_available(self, lock: Lock, row: bytes, turn: Turn) -> None:
        group = lock.group
        if group.home is not group.ready_queue.home:
            return  # deferred messages stay deferred
        expires_at = Record.unpack(row).expires_at
        if expires_at and expires_at <= turn.now:
            self._state.expire(lock.number, row, group.session, turn)
            return
        group.ready_queue.put_back(lock.number)
        if group.session_lock is None:
            self._state.announce_ready(group.ready_queue, turn)
            if group.home is Home.DEAD_LETTER and self._state.dead_letters_go_to is not None:
                turn.effects.append((self._state.ref.announce_outbox, None))
        else:
            turn.effects.append((group.session_lock.announce, None))

    def _defer(self, lock: Lock, record: Record, old_bytes: int, turn: Turn) -> None:
        """Defer a message, or dead-letter it if this was its last delivery (Azure/azure-service-bus#375)."""
        state, group = self._state, lock.group
        home = group.ready_queue.deferred_home
        counted = group.home in MAIN_HOMES
        record.update(delivery_count=record.delivery_count + counted)
        row = record.pack()
        if counted and record.delivery_count >= state.receivable.max_delivery_count:
            state.rows.replace(group.home, lock.number, row, old_bytes, turn)
            self._delivered_too_often(lock, row, turn)
            return
        if group.home is home:
            state.rows.replace(home, lock.number, row, old_bytes, turn)
            return
        # Deferred messages don't expire: `remove` also deletes the row in `due`.
        state.remove(group.home, (lock.number,), (old_bytes,), (lock.expires_at,), group.session, turn)
        state.rows.put(home, [(state.rows.key(home, lock.number), row)], turn)

    def _modified(self, row: bytes, properties: Mapping[str, object]) -> Record:
        """The record of a row with application properties added or replaced."""
        record = Record.unpack(row)
        if properties:
            if properties is not self._encoded[0]:  # many messages may have one outcome
                self._encoded = properties, encoded_properties(properties)
            record.update(stored=with_encoded_properties(record.stored, self._encoded[1]))
        return record


def _changes(outcome: Outcome) -> Mapping[str, object]:
    """The application properties that an outcome sets."""
    match outcome:
        case Abandon() | Defer():
            return outcome.properties
        case DeadLetter(reason, description, properties):
            reasons = {"DeadLetterReason": reason, "DeadLetterErrorDescription": description}
            return {**properties, **{name: text for name, text in reasons.items() if text is not None}}
    return {}
