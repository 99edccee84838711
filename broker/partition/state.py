"""The state of one partition (ready queues, locks, rows, counters), and the moves that all handlers share.

Knows the homes of messages and how a message moves between them within the partition (R4). Does not know requests; the
handlers do (`enqueue`, `outbox`, `receive`, `settle`, `sessions`). Owned by a `Partition`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from itertools import repeat

from ..address import SubQueue
from ..message.message import INSTANT_MS_MAX, Message
from ..message.stored import with_application_properties
from ..model.descriptions import EntityDescription, TopicDescription
from .contract import Counted, EventKind, PartitionRef, Receivable
from .locks import Locks
from .ready_queue import Reader, ReadyQueue, SessionQueue, WindowBudget
from .records import (
    COUNTER_MASK,
    DUE,
    FORWARDED_FROM,
    LARGE_ROW_BYTES,
    MESSAGES,
    OUTBOXES,
    PARTITION_SHIFT,
    RECORD_VERSION,
    SESSION_MESSAGES,
    STATE,
    STATE_KEY,
    TARGETS_MAX,
    ByteTotal,
    Counters,
    Due,
    Home,
    Record,
    active_rows,
    due_key,
    large_bytes_of,
    message_key,
    pack_head,
    session_message_key,
    topic_bytes,
    value_of,
)
from .turn import Turn

REASON_EXPIRED = "TTLExpiredException"
TEXT_EXPIRED = "The message expired and was dead lettered."


class PartitionState:
    """Rows, ready queues and locks of the partition `ref`, loaded from `view` (the committed rows)."""

    def __init__(self, ref: PartitionRef, view: Reader, budget: WindowBudget) -> None:
        self.ref = ref
        self.queue_id = ref.queue_id
        self.index = ref.index
        self.partition_id = ref.index if ref.partitioned else None
        number_base = ref.index << PARTITION_SHIFT if ref.partitioned else 0
        counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(ref.queue_id)), ref.first_counter)
        self.rows = Rows(ref.queue_id, number_base, counters, ref.total)
        self.locks = Locks()
        self.last_activity_at = 0
        self.loaded_count = sum(counters.messages)
        """How many messages there were when the partition came into memory."""
        self._next_target = ref.index  # each source partition starts with another target
        self.ready_queues = {
            sub_queue: ReadyQueue(
                sub_queue,
                home,
                ref.queue_id,
                budget,
                ref.announce,
                self.locks.by_number,
                more_in_store=counters.messages[home] > 0,
            )
            for sub_queue, home in (
                (SubQueue.ACTIVE, Home.ACTIVE),
                (SubQueue.DEAD_LETTER, Home.DEAD_LETTER),
                (SubQueue.TRANSFER_DEAD_LETTER, Home.TRANSFER_DEAD_LETTER),
            )
        }
        self.active_queue = self.ready_queues[SubQueue.ACTIVE]

    @property
    def counters(self) -> Counters:
        return self.rows.counters

    def roll_back(self, view: Reader) -> None:
        """Undo a batch: reload ready queues and counters from `view` (the committed rows), restore the locks."""
        counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(self.queue_id)), self.ref.first_counter)
        self.rows.restart(counters)
        self.locks.roll_back()
        for ready_queue in self.ready_queues.values():
            ready_queue.restart(more_in_store=counters.messages[ready_queue.home] > 0)

    @property
    def receivable(self) -> Receivable:
        """The description of the queue or subscription; topics have no receivers."""
        description = self.ref.description
        assert not isinstance(description, TopicDescription)
        return description

    def bytes_used(self, view: Reader) -> int:
        """The bytes of the entity in this store; a topic's include its subscriptions'."""
        routing, total = self.ref.routing, self.rows.total
        if routing is None or total is None:
            return self.counters.size_bytes
        if total.bytes_used is None:
            copies: list[Counters] = []
            for ref in routing.subscriptions(self.index):
                counters = total.open.get(ref.queue_id)
                if counters is None:
                    counters = Counters.unpack(view.get(STATE, STATE_KEY.pack(ref.queue_id)))
                copies.append(counters)
            total.set_bytes(topic_bytes(self.counters, copies))
        return total.bytes_used or 0

    def announce_ready(self, ready_queue: ReadyQueue | SessionQueue, turn: Turn) -> None:
        """Announce that a ready queue has messages, once until the dispatcher asks for the next announcement."""
        if ready_queue.take_announcement():
            turn.effects.append((ready_queue.announce, ready_queue.sub_queue))

    def target_index_of(self, message: Message) -> int:
        """The target partition of a forwarded message: this index for one with a key, else round-robin."""
        if message.session_id is not None or message.partition_key is not None:
            return self.index
        target_index = self._next_target % TARGETS_MAX
        self._next_target = target_index + 1
        return target_index

    def mark_used(self, now: int) -> None:
        """Note that a client used the partition at `now` (Unix ms)."""
        self.last_activity_at = now

    # ---- moves

    def remove(
        self,
        home: Home,
        numbers: Sequence[int],
        sizes: Sequence[int],
        expiries: Sequence[int],
        session: int,
        turn: Turn,
    ) -> None:
        """Remove messages of one session, or of none (0), from `home`; the rest as in `Rows.remove`."""
        self.rows.remove(home, numbers, sizes, turn, expiries)
        if session and home is Home.ACTIVE:
            for number in numbers:
                key = session_message_key(self.queue_id, session, number)
                turn.changes.append((SESSION_MESSAGES, key, None))

    def dead_letter(
        self,
        home: Home,
        number: int,
        row: bytes,
        properties: Mapping[str, object],
        turn: Turn,
        session: int = 0,
    ) -> None:
        """Move a message to the dead-letter queue; `row` is its stored row, `session` its session's number or 0."""
        record = Record.unpack(row)
        self.remove(home, (number,), (len(row),), (record.expires_at,), session, turn)
        self.dead_letter_record(record, number, properties, turn, source=(self.queue_id, number))

    def dead_letter_record(
        self,
        record: Record,
        number: int,
        properties: Mapping[str, object],
        turn: Turn,
        sub_queue: SubQueue = SubQueue.DEAD_LETTER,
        *,
        source: tuple[int, int],
    ) -> None:
        """Store a message without a home in `sub_queue`, under the number that it has here.

        `source` is the (queue id, number) that it had before. Dead letters that are forwarded wait there, too
        (`outbox`).
        """
        record.update(expires_at=0, stored=with_application_properties(record.stored, properties))
        target = self.dead_letters_go_to if sub_queue is SubQueue.DEAD_LETTER else None
        reason, text = properties.get("DeadLetterReason"), properties.get("DeadLetterErrorDescription")
        turn.count(self.queue_id, Counted.DEAD_LETTERED, detail=str(reason or ""))
        if turn.events is not None:
            turn.note(EventKind.DEAD_LETTERED, self.ref, [number], (), source, reason=reason, text=text, to=target)
        self.put_dead_letter(record, number, sub_queue, turn)

    @property
    def dead_letters_go_to(self) -> str | None:
        """ForwardDeadLetteredMessagesTo, None without."""
        description = self.ref.description
        return None if isinstance(description, TopicDescription) else description.forward_dead_letters_to

    def put_dead_letter(self, record: Record, number: int, sub_queue: SubQueue, turn: Turn) -> None:
        """Store a dead letter and make it available; wake the forwarder if dead letters go on from here."""
        ready_queue = self.ready_queues[sub_queue]
        row = record.pack()
        self.rows.put(ready_queue.home, [(self.rows.key(ready_queue.home, number), row)], turn)
        ready_queue.arrive(number, row)
        self.announce_ready(ready_queue, turn)
        if sub_queue is SubQueue.DEAD_LETTER and self.dead_letters_go_to is not None:
            turn.effects.append((self.ref.announce_outbox, None))

    def expire(self, number: int, row: bytes, session: int, turn: Turn, home: Home = Home.ACTIVE) -> None:
        """Dead-letter or remove an active or deferred message after its time to live."""
        turn.count(self.queue_id, Counted.EXPIRED)
        if self.receivable.dead_letter_on_expiration:
            reason = {"DeadLetterReason": REASON_EXPIRED, "DeadLetterErrorDescription": TEXT_EXPIRED}
            self.dead_letter(home, number, row, reason, turn, session)
        else:
            turn.note(EventKind.EXPIRED, self.ref, [number])
            self.remove(home, (number,), (len(row),), (Record.unpack(row).expires_at,), session, turn)

    def put_active(self, record: Record, number: int, turn: Turn) -> bytes:
        """Store a message as active with its expiry and return its row; the caller updates the ready queue."""
        row = record.pack()
        self.rows.put(Home.ACTIVE, [(self.rows.key(Home.ACTIVE, number), row)], turn)
        if record.expires_at:
            self.rows.put_due(record.expires_at, Due.EXPIRE, number, turn)
        return row

    def put_new(
        self, messages: Sequence[Message], forms: Sequence[bytes], turn: Turn
    ) -> tuple[int, Sequence[tuple[bytes, bytes]]]:
        """Store new messages as active with their expiries; the caller updates the ready queue.

        `forms` are the forms of those that have one. Returns the number of the first, and the keys and rows.
        """
        default_ttl_ms = self.ref.description.default_ttl_ms
        first = number = self.rows.take_numbers(len(messages))
        if default_ttl_ms is None and len(forms) == len(messages):
            rows = active_rows(self.queue_id, number, turn.now, forms)
        else:
            rows = []
            for number, message in enumerate(messages, first):
                ttl_ms = min_ttl(message.ttl_ms, default_ttl_ms)
                expires_at = expiry(turn.now, ttl_ms)
                head = pack_head(RECORD_VERSION, 0, 0, 0, turn.now, expires_at, number)
                rows.append((message_key(self.queue_id, Home.ACTIVE, number), message.stored(turn.now, ttl_ms, head)))
                if expires_at:
                    self.rows.put_due(expires_at, Due.EXPIRE, number, turn)
        self.rows.put(Home.ACTIVE, rows, turn)
        return first, rows

    def average_bytes(self) -> int:
        counters = self.rows.counters
        stored = sum(counters.messages)
        return counters.bytes_used // stored if stored else 1


def forwarded_from(description: EntityDescription) -> tuple[Home, ...]:
    """Where the forwarder may find messages of an entity: in outboxes, and dead letters if they go on."""
    if isinstance(description, TopicDescription) or description.forward_dead_letters_to is None:
        return OUTBOXES
    return FORWARDED_FROM


def min_ttl(first_ms: int | None, second_ms: int | None) -> int | None:
    """The shorter time to live, None if there is none."""
    if first_ms is None:
        return second_ms
    return first_ms if second_ms is None else min(first_ms, second_ms)


def expiry(now: int, ttl_ms: int | None) -> int:
    """The instant at which a message expires that becomes active now (Unix ms), 0 for never."""
    return 0 if ttl_ms is None else min(now + ttl_ms, INSTANT_MS_MAX)


class Rows:
    """Rows and counters of partition `number_base >> 48` of the queue `queue_id`; `total` is its topic's."""

    __slots__ = ("counters", "number_base", "queue_id", "total")

    def __init__(self, queue_id: int, number_base: int, counters: Counters, total: ByteTotal | None = None) -> None:
        self.queue_id = queue_id
        self.number_base = number_base
        self.counters = counters
        self.total = total
        if total is not None:
            total.open[queue_id] = counters

    def leave_topic(self) -> None:
        if self.total is not None:
            self.total.forget(self.queue_id)
            self.total = None

    def restart(self, counters: Counters) -> None:
        """Replace the counters after a rolled-back batch."""
        self.counters = counters
        if self.total is not None:
            self.total.open[self.queue_id] = counters
            self.total.set_bytes(None)

    def new_number(self) -> int:
        """Take the next sequence number (P22)."""
        return self.number_base | (self.counters.take_counter() & COUNTER_MASK)

    def take_numbers(self, count: int) -> int:
        """Take the next `count` sequence numbers; return the first."""
        return self.number_base | (self.counters.take_counters(count) & COUNTER_MASK)

    def next_number(self) -> int:
        """The sequence number that `new_number` will return."""
        return self.number_base | (self.counters.next_counter & COUNTER_MASK)

    def key(self, home: Home, number: int) -> bytes:
        return message_key(self.queue_id, home, number)

    def put(self, home: Home, rows: Sequence[tuple[bytes, bytes]], turn: Turn) -> None:
        """Store new messages (key and row) in `home`, in the order of their keys."""
        size_bytes = sum(map(len, map(value_of, rows)))
        turn.rows.extend(rows)
        turn.row_bytes += size_bytes
        turn.row_runs += 1
        large_bytes = 0 if size_bytes <= LARGE_ROW_BYTES else large_bytes_of(map(len, map(value_of, rows)))
        self._count(home, len(rows), size_bytes, large_bytes, turn)

    def replace(self, home: Home, number: int, row: bytes, old_bytes: int, turn: Turn) -> None:
        """Replace the row of a message; `old_bytes` is the old row's size."""
        turn.changes.append((MESSAGES, message_key(self.queue_id, home, number), row))
        self._count(home, 0, len(row) - old_bytes, large_bytes_of((len(row),)) - large_bytes_of((old_bytes,)), turn)

    def add_state_bytes(self, count: int, turn: Turn) -> None:
        """Count bytes of the state of a message session, negative for what it had."""
        self.counters.add_state_bytes(count)
        turn.touched[self.queue_id] = self.counters
        if self.total is not None:
            self.total.add(count)

    def _count(self, home: Home, count: int, size_bytes: int, large_bytes: int, turn: Turn) -> None:
        self.counters.add(home, count, size_bytes, large_bytes)
        turn.touched[self.queue_id] = self.counters
        if self.total is not None:
            self.total.add(size_bytes)
            if large_bytes:  # how often it counts depends on all subscriptions
                self.total.set_bytes(None)

    def remove(
        self, home: Home, numbers: Sequence[int], sizes: Sequence[int], turn: Turn, expiries: Sequence[int] = ()
    ) -> None:
        """Delete messages of `home`, whose rows have these sizes.

        `expiries` are the ends of their times to live in the order of `numbers` (Unix ms, 0: never), for active ones:
        their `due` rows go, too.
        """
        queue_id = self.queue_id
        turn.removed.extend(map(message_key, repeat(queue_id), repeat(home), numbers))
        if home is Home.ACTIVE and any(expiries):
            for number, expires_at in zip(numbers, expiries, strict=True):
                if expires_at:
                    turn.changes.append((DUE, due_key(expires_at, queue_id, Due.EXPIRE, number), None))
        size_bytes = sum(sizes)
        large_bytes = 0 if size_bytes <= LARGE_ROW_BYTES else large_bytes_of(sizes)
        self._count(home, -len(numbers), -size_bytes, -large_bytes, turn)

    def put_due(self, at: int, what: Due, number: int, turn: Turn) -> None:
        """Add a `due` row for `at` (Unix ms)."""
        turn.changes.append((DUE, due_key(at, self.queue_id, what, number), b""))
        turn.due_at(at)

    def remove_due(self, at: int, what: Due, number: int, turn: Turn) -> None:
        """Delete the `due` row for `at` (Unix ms)."""
        turn.changes.append((DUE, due_key(at, self.queue_id, what, number), None))
