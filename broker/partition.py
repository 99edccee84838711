"""One partition of a queue: the pure state machine that decides everything about its messages (R2).

Knows sequence numbers, locks, delivery counts, time to live and dead-lettering. Commands come in, changes for the
store and effects for the world come out; what is stored is seen only through the view that is handed in. Refuses to
know clocks (`now` is an argument), sockets, other partitions and how a batch is committed. Owned by the `Worker` of its
messaging store.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Mapping
from typing import Protocol

from . import sentences
from .address import SubQueue
from .commands import (
    Clear,
    Command,
    Delivery,
    ExpireLocks,
    ExpireMessages,
    Peek,
    ReceiveMode,
    Renew,
    Send,
    Settle,
    Step,
    Take,
    TakeDeferred,
    Taken,
)
from .description import QueueDescription
from .errors import BrokerError, Condition
from .ids import new_lock_token
from .line import Line, Reader, WindowBudget
from .message import Message, delivery_bytes, with_application_properties
from .outcomes import Abandon, Complete, DeadLetter, Defer, Outcome, Release
from .records import (
    COUNTER_MASK,
    DUE,
    HEAD_BYTES,
    HOMES,
    MESSAGES,
    PARTITION_SHIFT,
    RECORD_VERSION,
    STATE,
    STATE_KEY,
    Counters,
    Home,
    due_key,
    message_key,
    pack_head,
    unpack_head,
)

TAKE_BYTES_MAX = 4 << 20  # one answer to a receiver; more is asked for again
REASON_EXPIRED = "TTLExpiredException"
REASON_DELIVERY_COUNT = "MaxDeliveryCountExceeded"
TEXT_EXPIRED = "The message expired and was dead lettered."
PEEK_STATES = {
    Home.DEFERRED: 1,
    Home.DEAD_LETTER_DEFERRED: 1,
    Home.TRANSFER_DEAD_LETTER_DEFERRED: 1,
    Home.SCHEDULED: 2,
}
PEEK_HOMES = {
    SubQueue.ACTIVE: (Home.ACTIVE, Home.DEFERRED, Home.SCHEDULED),
    SubQueue.DEAD_LETTER: (Home.DEAD_LETTER, Home.DEAD_LETTER_DEFERRED),
    SubQueue.TRANSFER_DEAD_LETTER: (Home.TRANSFER_DEAD_LETTER, Home.TRANSFER_DEAD_LETTER_DEFERRED),
}


class PartitionRef(Protocol):
    """One partition of a queue, as it is known before its memory exists."""

    queue_id: int
    index: int
    partitioned: bool
    size_bytes_max: int

    @property
    def description(self) -> QueueDescription:
        """What the queue is now."""
        ...

    def announce(self, sub_queue: SubQueue) -> None:
        """An effect: messages became available in a line of this partition that was said to be empty."""
        ...


class Lock:
    """A message in the hands of a receiver; volatile: it ends with the process."""

    __slots__ = ("delivery_count", "expires_at", "home", "line", "number", "size_bytes", "token", "until_at")

    def __init__(
        self,
        token: bytes,
        number: int,
        home: Home,
        line: Line,
        until_at: int,
        delivery_count: int,
        expires_at: int,
        size_bytes: int,
    ) -> None:
        self.token = token
        self.number = number
        self.home = home
        self.line = line
        self.until_at = until_at
        self.delivery_count = delivery_count
        self.expires_at = expires_at  # Unix ms, 0: never
        self.size_bytes = size_bytes  # of the stored record: completing it needs no look at the store


class Partition:
    """The partition that `ref` names, as `view` (the committed rows) has it; `budget` bounds its read-ahead.

    Invariants (`check_invariants`): a locked number is in exactly one lock and in no line; locks are ordered by their
    end as long as the lock duration does not change; the counters equal the rows in the store.
    """

    def __init__(self, ref: PartitionRef, view: Reader, budget: WindowBudget) -> None:
        self.queue_id = ref.queue_id
        self.index = ref.index
        self.description = ref.description
        self.counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(ref.queue_id)))
        self._size_bytes_max = ref.size_bytes_max
        self.last_activity_at = 0
        self._partition_id = ref.index if ref.partitioned else None
        self._number_base = ref.index << PARTITION_SHIFT if ref.partitioned else 0
        self._locks: OrderedDict[bytes, Lock] = OrderedDict()
        self._locked: dict[int, Lock] = {}
        self._lines = {
            sub_queue: Line(
                sub_queue,
                home,
                ref.queue_id,
                budget,
                ref.announce,
                more_in_store=self.counters.messages[home] > 0,
            )
            for sub_queue, home in (
                (SubQueue.ACTIVE, Home.ACTIVE),
                (SubQueue.DEAD_LETTER, Home.DEAD_LETTER),
                (SubQueue.TRANSFER_DEAD_LETTER, Home.TRANSFER_DEAD_LETTER),
            )
        }
        self._main = self._lines[SubQueue.ACTIVE]
        self._handlers: dict[type, Callable[..., None]] = {
            Send: self._send,
            Take: self._take,
            Settle: self._settle,
            Renew: self._renew,
            Peek: self._peek,
            TakeDeferred: self._take_deferred,
            ExpireLocks: self._expire_locks,
            ExpireMessages: self._expire_messages,
            Clear: self._clear,
        }

    # ---- what the worker calls

    def apply(self, command: Command, now: int, view: Reader, step: Step) -> None:
        """Add to `step` what `command` means at the instant `now` (Unix ms); memory is as if it were committed."""
        self._handlers[type(command)](command, now, view, step)

    def next_lock_end(self) -> int | None:
        """When the earliest lock ends (Unix ms), if any message is locked."""
        for lock in self._locks.values():
            return lock.until_at
        return None

    def locked_count(self) -> int:
        """How many messages are locked now."""
        return len(self._locks)

    def close(self) -> None:
        """Forget everything that is only in memory; the partition object is of no use afterwards."""
        for line in self._lines.values():
            line.close()

    def describe(self, description: QueueDescription) -> None:
        """Follow a changed description; locks keep the ends that they have."""
        self.description = description
        self._locks = OrderedDict(sorted(self._locks.items(), key=lambda item: item[1].until_at))

    def check_invariants(self, view: Reader) -> None:
        """Assert the invariants of the class docstring against the committed rows in `view`."""
        assert {lock.number: lock for lock in self._locks.values()} == self._locked
        for line in self._lines.values():
            line.check_invariants()
        bytes_used = 0
        for home in HOMES:
            rows = view.scan(
                MESSAGES,
                message_key(self.queue_id, home, 0),
                message_key(self.queue_id, home + 1, 0),
                1 << 30,
            )
            assert len(rows) == self.counters.messages[home], (home, len(rows), self.counters.messages)
            bytes_used += sum(len(record) for _, record in rows)
        assert bytes_used == self.counters.bytes_used

    # ---- sending

    def _send(self, command: Send, now: int, view: Reader, step: Step) -> None:
        del view
        size_bytes = sum(message.size_bytes for message in command.messages)
        if self.counters.bytes_used + size_bytes > self._size_bytes_max:
            error = sentences.entity_full(self.description.name, self.counters.bytes_used, self._size_bytes_max)
            step.effects.append((command.done, error))
            return
        for message in command.messages:
            self._store_new(message, now, step)
        self.last_activity_at = now
        step.effects.append((command.done, None))
        self._announce(self._main, step)

    def _store_new(self, message: Message, now: int, step: Step) -> None:
        ttl_ms = message.ttl_ms
        default_ttl_ms = self.description.default_ttl_ms
        if default_ttl_ms is not None and (ttl_ms is None or default_ttl_ms < ttl_ms):
            ttl_ms = default_ttl_ms
        expires_at = None if ttl_ms is None else now + ttl_ms
        number = self._new_number()
        record = pack_head(RECORD_VERSION, 0, now, expires_at or 0, number) + message.stored(now, expires_at)
        self._put(Home.ACTIVE, number, record, step)
        if expires_at is not None:
            self._put_due(expires_at, Home.ACTIVE, number, step)
        self._main.append(number, record)

    def _new_number(self) -> int:
        counter = self.counters.next_counter
        self.counters.next_counter = counter + 1
        return self._number_base | (counter & COUNTER_MASK)

    # ---- receiving

    def _take(self, command: Take, now: int, view: Reader, step: Step) -> None:
        line = self._lines[command.sub_queue]
        deliveries: list[Delivery] = []
        bytes_left = TAKE_BYTES_MAX
        average_bytes = self._average_bytes()
        while len(deliveries) < command.count and bytes_left > 0:
            found = line.next(view, average_bytes)
            if found is None:
                break
            number, record = found
            expires_at = unpack_head(record)[3]
            if expires_at and expires_at <= now:
                self._expire(line.home, number, record, step)
                continue
            deliveries.append(self._hand_over(line, line.home, number, record, command.mode, now, step))
            bytes_left -= len(record)
        more = line.has_more()
        if not more:
            line.announced = False
        if deliveries:
            self.last_activity_at = now
        step.effects.append((command.reply, Taken(deliveries, more)))

    def _hand_over(
        self, line: Line, home: Home, number: int, record: bytes, mode: ReceiveMode, now: int, step: Step
    ) -> Delivery:
        _, delivery_count, enqueued_at, expires_at, enqueued_number = unpack_head(record)
        token = new_lock_token(self.index)
        until_at: int | None = None
        if mode is ReceiveMode.PEEK_LOCK:
            until_at = now + self.description.lock_duration_ms
            lock = Lock(token, number, home, line, until_at, delivery_count, expires_at, len(record))
            self._locks[token] = self._locked[number] = lock
        else:
            self._remove(home, number, len(record), expires_at, step)
        payload = delivery_bytes(
            record[HEAD_BYTES:],
            sequence_number=number,
            enqueued_at=enqueued_at,
            delivery_count=delivery_count,
            locked_until_at=until_at,
            state=None if home is line.home else 1,
            partition_id=self._partition_id,
            enqueue_sequence_number=enqueued_number,
            lock_token=token if home is not line.home and until_at is not None else None,
        )
        return Delivery(token, payload, number)

    def _take_deferred(self, command: TakeDeferred, now: int, view: Reader, step: Step) -> None:
        line = self._lines[command.sub_queue]
        home = line.deferred_home
        found: list[tuple[int, bytes]] = []
        for number in command.sequence_numbers:
            record = view.get(MESSAGES, message_key(self.queue_id, home, number))
            if record is None or number in self._locked:
                step.effects.append((command.reply, sentences.deferred_not_found()))
                return
            found.append((number, record))
        deliveries = [self._hand_over(line, home, number, record, command.mode, now, step) for number, record in found]
        step.effects.append((command.reply, deliveries))

    def _peek(self, command: Peek, now: int, view: Reader, step: Step) -> None:
        del now
        rows: list[tuple[int, Home, bytes]] = []
        limit = self._read_limit(command.count, command.bytes_max)
        first = max(0, command.from_sequence_number)
        truncated_at: int | None = None  # beyond this number one of the homes was not read any more
        for home in PEEK_HOMES[command.sub_queue]:
            if not self.counters.messages[home]:
                continue
            found = view.scan(
                MESSAGES,
                message_key(self.queue_id, home, first),
                message_key(self.queue_id, home + 1, 0),
                limit,
            )
            rows.extend((int.from_bytes(key[-8:], "big"), home, record) for key, record in found)
            if len(found) == limit:
                last = int.from_bytes(found[-1][0][-8:], "big")
                truncated_at = last if truncated_at is None else min(truncated_at, last)
        rows.sort(key=lambda row: row[0])
        answer: list[tuple[int, bytes]] = []
        bytes_left = command.bytes_max
        for number, home, record in rows[: command.count]:
            if truncated_at is not None and number > truncated_at:
                break
            payload = self._peeked(number, home, record)
            bytes_left -= len(payload)
            if answer and bytes_left < 0:
                break
            answer.append((number, payload))
        step.effects.append((command.reply, answer))

    def _peeked(self, number: int, home: Home, record: bytes) -> bytes:
        _, delivery_count, enqueued_at, _, enqueued_number = unpack_head(record)
        return delivery_bytes(
            record[HEAD_BYTES:],
            sequence_number=number,
            enqueued_at=enqueued_at,
            delivery_count=delivery_count,
            locked_until_at=None,
            state=PEEK_STATES.get(home, 0),
            partition_id=self._partition_id,
            enqueue_sequence_number=enqueued_number,
        )

    # ---- settling

    def _settle(self, command: Settle, now: int, view: Reader, step: Step) -> None:
        error: BrokerError | None = None
        lock = self._locks.get(command.token)
        if lock is None or lock.until_at <= now:
            error = sentences.lock_lost()  # an overdue lock is ended by the timer, which counts it
        else:
            error = self._end_lock(lock, command.outcome, now, view, step)
            self.last_activity_at = now
        if command.done is not None:
            step.effects.append((command.done, error))

    def _end_lock(self, lock: Lock, outcome: Outcome, now: int, view: Reader, step: Step) -> BrokerError | None:
        if isinstance(outcome, DeadLetter) and lock.line is not self._main:
            return BrokerError(
                Condition.NOT_ALLOWED,
                "A message in a dead-letter queue can't be dead-lettered again; complete it instead.",
            )
        self._unlock(lock)
        if isinstance(outcome, Complete):
            self._remove(lock.home, lock.number, lock.size_bytes, lock.expires_at, step)
            return None
        record = view.get(MESSAGES, message_key(self.queue_id, lock.home, lock.number))
        if record is None:  # the queue is being deleted
            return sentences.lock_lost()
        match outcome:
            case Release():
                self._back_to_line(lock, record, now, step)
            case Abandon(properties):
                self._attempt_failed(lock, self._modified(record, properties), len(record), now, step)
            case Defer(properties):
                self._move_to_deferred(lock, self._modified(record, properties), len(record), step)
            case DeadLetter(reason, description, properties):
                changes: dict[str, object] = dict(properties)
                if reason is not None:
                    changes["DeadLetterReason"] = reason
                if description is not None:
                    changes["DeadLetterErrorDescription"] = description
                self._dead_letter(lock.home, lock.number, record, changes, step)
        return None

    def _unlock(self, lock: Lock) -> None:
        del self._locks[lock.token]
        del self._locked[lock.number]

    def _modified(self, record: bytes, properties: Mapping[str, object]) -> bytes:
        if not properties:
            return record
        return record[:HEAD_BYTES] + with_application_properties(record[HEAD_BYTES:], properties)

    def _attempt_failed(self, lock: Lock, record: bytes, old_bytes: int, now: int, step: Step) -> None:
        """A delivery attempt ended without success: count it, then back to its place or to the dead-letter queue."""
        version, _, enqueued_at, expires_at, enqueued_number = unpack_head(record)
        delivery_count = lock.delivery_count + 1
        record = pack_head(version, delivery_count, enqueued_at, expires_at, enqueued_number) + record[HEAD_BYTES:]
        self._replace(lock.home, lock.number, record, old_bytes, step)
        limit = self.description.max_delivery_count
        if lock.line is self._main and delivery_count >= limit:
            text = f"Message could not be consumed after {limit} delivery attempts."
            reason = {"DeadLetterReason": REASON_DELIVERY_COUNT, "DeadLetterErrorDescription": text}
            self._dead_letter(lock.home, lock.number, record, reason, step)
        else:
            self._back_to_line(lock, record, now, step)

    def _back_to_line(self, lock: Lock, record: bytes, now: int, step: Step) -> None:
        if lock.home is not lock.line.home:
            return  # deferred messages stay deferred
        expires_at = unpack_head(record)[3]
        if expires_at and expires_at <= now:
            self._expire(lock.home, lock.number, record, step)
            return
        lock.line.give_back(lock.number)
        self._announce(lock.line, step)

    def _move_to_deferred(self, lock: Lock, record: bytes, old_bytes: int, step: Step) -> None:
        home = lock.line.deferred_home
        if lock.home is home:
            self._replace(home, lock.number, record, old_bytes, step)
            return
        self._remove(lock.home, lock.number, old_bytes, unpack_head(record)[3], step)  # deferred messages don't expire
        self._put(home, lock.number, record, step)

    def _dead_letter(
        self, home: Home, number: int, record: bytes, properties: Mapping[str, object], step: Step
    ) -> None:
        """Move a message to the dead-letter queue, under a new number so that its order is the order of arrival."""
        version, delivery_count, enqueued_at, expires_at, enqueued_number = unpack_head(record)
        self._remove(home, number, len(record), expires_at, step)
        head = pack_head(version, delivery_count, enqueued_at, 0, enqueued_number)
        moved = head + with_application_properties(record[HEAD_BYTES:], properties)
        line = self._lines[SubQueue.DEAD_LETTER]
        new_number = self._new_number()
        self._put(line.home, new_number, moved, step)
        line.append(new_number, moved)
        self._announce(line, step)

    def _renew(self, command: Renew, now: int, view: Reader, step: Step) -> None:
        del view
        locks = [self._locks.get(token) for token in command.tokens]
        valid = [lock for lock in locks if lock is not None and lock.until_at > now]
        if len(valid) != len(locks):
            step.effects.append((command.reply, sentences.lock_lost()))
            return
        until_at = now + self.description.lock_duration_ms
        for lock in valid:
            lock.until_at = until_at
            self._locks.move_to_end(lock.token)
        step.effects.append((command.reply, [until_at] * len(valid)))

    # ---- time

    def _expire_locks(self, command: ExpireLocks, now: int, view: Reader, step: Step) -> None:
        del command
        while self._locks:
            lock = next(iter(self._locks.values()))
            if lock.until_at > now:
                return
            self._unlock(lock)
            record = view.get(MESSAGES, message_key(self.queue_id, lock.home, lock.number))
            if record is not None:
                self._attempt_failed(lock, record, len(record), now, step)

    def _expire_messages(self, command: ExpireMessages, now: int, view: Reader, step: Step) -> None:
        del now
        for due_at, home_code, number in command.rows:
            home = Home(home_code)
            record = view.get(MESSAGES, message_key(self.queue_id, home, number))
            if record is None:
                step.changes.append((DUE, due_key(due_at, self.queue_id, home, number), None))
            elif number not in self._locked:  # a locked one may still be completed; the end of its lock decides
                self._main.remove(number)
                self._expire(home, number, record, step)

    def _expire(self, home: Home, number: int, record: bytes, step: Step) -> None:
        if self.description.dead_letter_on_expiration:
            reason = {"DeadLetterReason": REASON_EXPIRED, "DeadLetterErrorDescription": TEXT_EXPIRED}
            self._dead_letter(home, number, record, reason, step)
        else:
            self._remove(home, number, len(record), unpack_head(record)[3], step)

    # ---- deleting

    def _clear(self, command: Clear, now: int, view: Reader, step: Step) -> None:
        del now
        start, stop = message_key(self.queue_id, 0, 0), message_key(self.queue_id + 1, 0, 0)
        rows = view.scan(MESSAGES, start, stop, command.limit)
        for key, record in rows:
            number = int.from_bytes(key[-8:], "big")
            self._remove(Home(key[4]), number, len(record), unpack_head(record)[3], step)
        step.effects.append((command.reply, len(rows) == command.limit))

    # ---- rows

    def _put(self, home: Home, number: int, record: bytes, step: Step) -> None:
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), record))
        self.counters.messages[home] += 1
        self.counters.bytes_used += len(record)

    def _replace(self, home: Home, number: int, record: bytes, old_bytes: int, step: Step) -> None:
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), record))
        self.counters.bytes_used += len(record) - old_bytes

    def _remove(self, home: Home, number: int, size_bytes: int, expires_at: int, step: Step) -> None:
        step.changes.append((MESSAGES, message_key(self.queue_id, home, number), None))
        if expires_at:
            step.changes.append((DUE, due_key(expires_at, self.queue_id, home, number), None))
        self.counters.messages[home] -= 1
        self.counters.bytes_used -= size_bytes

    def _put_due(self, at: int, home: Home, number: int, step: Step) -> None:
        step.changes.append((DUE, due_key(at, self.queue_id, home, number), b""))
        if step.next_due is None or at < step.next_due:
            step.next_due = at

    def _announce(self, line: Line, step: Step) -> None:
        if not line.announced:
            line.announced = True
            step.effects.append((line.announce, line.sub_queue))

    def _average_bytes(self) -> int:
        stored = sum(self.counters.messages)
        return self.counters.bytes_used // stored if stored else 1

    def _read_limit(self, count: int, bytes_max: int) -> int:
        return max(1, min(count, 1 + 2 * bytes_max // max(1, self._average_bytes())))
