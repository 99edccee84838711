"""The handlers that store messages in a partition: send, schedule, activate, publish, transfer, expire.

Knows duplicate detection, schedules, hops, and the copies of a topic for its subscriptions, all within one store (R4).
Does not know how outbox messages reach their targets (`outbox`). Owned by a `Partition`; works on its state.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from operator import attrgetter
from typing import Final, NamedTuple

from .. import service_errors
from ..errors import BrokerError
from ..identity import folded
from ..message.message import Message
from ..message.stored import parse_stored
from ..model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from .contract import Counted, EventKind, PartitionRef
from .ready_queue import Reader
from .records import (
    DUE,
    DUPLICATES,
    INSTANT,
    LARGE_ROW_BYTES,
    MESSAGES,
    NO_ENQUEUED_NUMBER,
    Due,
    Home,
    Record,
    due_key,
    duplicate_hash,
    large_bytes_of,
    message_key,
    session_number_key,
)
from .requests import CancelScheduled, ProcessDue, Reserve, Schedule, Send, size_bytes_of
from .sessions import MessageSessions
from .state import PartitionState, expiry, min_ttl
from .turn import Turn


class Origin(NamedTuple):
    """Where a message was before it becomes active here."""

    number: int = 0  # its enqueued sequence number; 0: it gets its own here
    hops: int = 0  # how often it was forwarded
    other_path: str = ""  # where it was dead-lettered
    was_scheduled: bool = False  # and its time has come


NEW: Final = Origin()
form_of: Final[Callable[[Message], bytes | None]] = attrgetter("form")
scheduled_for: Final[Callable[[Message], int | None]] = attrgetter("scheduled_enqueue_at")
SCHEDULED_HERE: Final = Origin(was_scheduled=True)


class EnqueueHandlers:
    """Handlers of send, schedule, cancel and due rows; `sibling` opens another partition of the same store."""

    def __init__(
        self,
        state: PartitionState,
        sessions: MessageSessions | None,
        sibling: Callable[[PartitionRef, Reader], EnqueueHandlers],
    ) -> None:
        self._state = state
        self._sessions = sessions
        self._sibling = sibling

    # ---- requests

    def send(self, request: Send, turn: Turn) -> None:
        """Store each message of a run on its own, or all or none."""
        messages = request.messages
        if request.matches:
            turn.matches.update(request.matches)
        error = self.refusal(messages, turn, request.total_bytes())
        if error is None:
            forms = list(filter(None, map(form_of, messages)))
            if request.numbered is None and self._only_appends(messages, forms):
                self._append(request, forms, turn)
            else:
                numbers = self.store_all(messages, turn, origin=request)
                if request.numbered is not None:
                    turn.effects.append((request.numbered, numbers))
        if error is None or request.whole:
            if error is not None:
                self._note_refused(request, error, turn)
            turn.effects.append((partial(request.ended, request), error))
            return
        seen_ids: set[int] = set()
        for start in range(len(messages)):  # there is room for some, perhaps
            part = request.slice(start, start + 1)
            error = self.refusal(part.messages, turn)
            if error is None:
                self.store_all(part.messages, turn, seen_ids, part)
            else:
                self._note_refused(part, error, turn)
            turn.effects.append((partial(part.ended, part), error))

    def _only_appends(self, messages: Sequence[Message], forms: Sequence[bytes]) -> bool:
        """Whether the messages only go to the end of the ready queue; `forms` are those of the ones that have one."""
        description = self._state.ref.description
        return (
            isinstance(description, QueueDescription)
            and not description.requires_session
            and not description.requires_duplicate_detection
            and description.forward_to is None
            and (len(forms) == len(messages) or set(map(scheduled_for, messages)) == {None})  # no form has a schedule
        )

    def _note_refused(self, run: Send, error: BrokerError, turn: Turn) -> None:
        ref, nowhere = self._state.ref, [None] * len(run.messages)
        turn.note(EventKind.REFUSED, ref, nowhere, run.messages, reason=error.description, by=run.by)

    def _append(self, request: Send, forms: Sequence[bytes], turn: Turn) -> None:
        """Store messages that `_only_appends` approved: `store_all` for a run, at a lower cost for each message."""
        state, messages = self._state, request.messages
        state.mark_used(turn.now)
        number, rows = state.put_new(messages, forms, turn)
        if turn.events is not None:
            numbers = range(number, number + len(rows))
            turn.note(EventKind.SENT, state.ref, numbers, messages, by=request.by, others_left=request.left)
        turn.counts.append((state.queue_id, Counted.SENT, "", len(rows)))
        ready_queue = state.active_queue
        ready_queue.extend(number, rows)
        if not ready_queue.announced:
            state.announce_ready(ready_queue, turn)

    def refusal(self, messages: Sequence[Message], turn: Turn, size_bytes: int | None = None) -> BrokerError | None:
        """The error if these messages, of `size_bytes` in all, would exceed the entity's size.

        Copies of a topic's, each counted once, may.
        """
        state = self._state
        if size_bytes is None:
            size_bytes = sum(map(size_bytes_of, messages))
        if size_bytes > LARGE_ROW_BYTES:
            size_bytes += large_bytes_of(map(size_bytes_of, messages))
        used = state.rows.counters.size_bytes if state.rows.total is None else state.bytes_used(turn.view)
        if used + size_bytes <= state.ref.size_bytes_max:
            return None
        kind = "Queue" if state.ref.routing is None else "Topic"
        return service_errors.entity_full(kind, state.ref.name_in_errors, used, state.ref.size_bytes_max)

    def store_all(
        self,
        messages: Sequence[Message],
        turn: Turn,
        seen_ids: set[int] | None = None,
        origin: Send | None = None,
        counted: Counted = Counted.SENT,
    ) -> list[int | None]:
        """Store messages that passed `refusal`; return their numbers in order, None for duplicates.

        `seen_ids` as for `store_scheduled`; `origin` is the request; messages count as `counted`.
        """
        self._state.mark_used(turn.now)
        seen_ids = set() if seen_ids is None else seen_ids
        numbers: list[int | None] = []
        if turn.events is not None and messages:
            by, left = ("", None) if origin is None else (origin.by, origin.left)
            turn.note(EventKind.SENT, self._state.ref, numbers, messages, by=by, others_left=left)
        for message in messages:
            if self.is_duplicate(message, turn, seen_ids):
                numbers.append(None)
                continue
            at = message.scheduled_enqueue_at
            if at is not None and at > turn.now:
                number = self._state.rows.new_number()
                self._schedule(message, number, at, turn)
            else:
                number = self.activate(message, turn)
            numbers.append(number)
        turn.count(self._state.queue_id, counted, len(numbers) - numbers.count(None))
        return numbers

    def schedule(self, request: Schedule, turn: Turn) -> None:
        """Schedule messages and answer with their sequence numbers."""
        error = self.refusal(request.messages, turn)
        turn.effects.append((request.reply, error or self.store_scheduled(request.messages, turn)))

    def store_scheduled(
        self,
        messages: Sequence[Message],
        turn: Turn,
        numbers: Sequence[int] = (),
        seen_ids: set[int] | None = None,
    ) -> list[int]:
        """Schedule messages that passed `refusal` and return their numbers; a duplicate gets an unused number.

        `numbers` are reserved numbers or empty. `seen_ids` has the duplicate hashes that this request stored before;
        the view does not contain them yet.
        """
        self._state.mark_used(turn.now)
        seen_ids = set() if seen_ids is None else seen_ids
        assigned = list(numbers) or [self._state.rows.new_number() for _ in messages]
        turn.touched[self._state.queue_id] = self._state.counters
        turn.note(EventKind.SENT, self._state.ref, assigned, messages)
        for message, number in zip(messages, assigned, strict=True):
            if not self.is_duplicate(message, turn, seen_ids):
                at = message.scheduled_enqueue_at
                self._schedule(message, number, turn.now if at is None else at, turn)
                turn.count(self._state.queue_id, Counted.SENT)
        return assigned

    def reserve(self, request: Reserve, turn: Turn) -> None:
        """Reserve sequence numbers for messages that a transaction or another partition's commit will schedule."""
        turn.touched[self._state.queue_id] = self._state.counters
        turn.effects.append((request.reply, [self._state.rows.new_number() for _ in range(request.count)]))

    def cancel(self, request: CancelScheduled, turn: Turn) -> None:
        """Remove scheduled messages, or deliver them now, all or none."""
        if (error := self.cancel_refusal(request.numbers, turn.view)) is None:
            removed = self.remove_scheduled(request.numbers, turn)
            if not request.is_delivery:
                turn.count(self._state.queue_id, Counted.CANCELED, len(removed))
                turn.note(EventKind.CANCELED, self._state.ref, request.numbers)
            for number, message in removed if request.is_delivery else ():
                self._activate(number, message, turn, is_early=True)
        turn.effects.append((request.reply, error))

    def cancel_refusal(self, numbers: Sequence[int], view: Reader) -> BrokerError | None:
        """The error if these scheduled messages can't all be removed, else None."""
        missing = [number for number in numbers if self._scheduled_row(number, view) is None]
        return service_errors.scheduled_not_found(missing) if missing else None

    def remove_scheduled(self, numbers: Sequence[int], turn: Turn) -> list[tuple[int, Message]]:
        """Remove scheduled messages that passed `cancel_refusal`; return them with their numbers."""
        rows, removed = self._state.rows, list[tuple[int, Message]]()
        for number in dict.fromkeys(numbers):
            row = self._scheduled_row(number, turn.view)
            assert row is not None
            record = Record.unpack(row)
            message = parse_stored(record.stored)
            removed.append((number, message))
            at = message.scheduled_enqueue_at
            rows.remove(Home.SCHEDULED, (number,), (len(row),), turn)
            rows.remove_due(record.enqueued_at if at is None else at, Due.ACTIVATE, number, turn)
        return removed

    def _scheduled_row(self, number: int, view: Reader) -> bytes | None:
        return view.get(MESSAGES, message_key(self._state.queue_id, Home.SCHEDULED, number))

    def process_due(self, request: ProcessDue, turn: Turn) -> None:
        """Process due rows: expire a message, activate one, or delete an old duplicate hash."""
        for due_at, code, number in request.rows:
            what = Due(code)
            if what is Due.EXPIRE:
                self._expire(due_at, number, turn)
                continue
            self._state.rows.remove_due(due_at, what, number, turn)
            turn.touched[self._state.queue_id] = self._state.counters
            if what is Due.ACTIVATE:
                self._activate_scheduled(number, turn)
            else:
                key = session_number_key(self._state.queue_id, number)
                row = turn.view.get(DUPLICATES, key)
                if row is not None and INSTANT.unpack(row)[0] <= turn.now:
                    turn.changes.append((DUPLICATES, key, None))
        if self._sessions is not None:
            self._sessions.update_heads(turn)

    # ---- a message gets a home

    def activate(
        self,
        message: Message,
        turn: Turn,
        origin: Origin = NEW,
        target_index: int | None = None,
        ttl_max_ms: int | None = None,
    ) -> int:
        """Store an active message: in the ready queue, its session, the outbox, or a topic's subscriptions.

        With `target_index` it is a copy for that partition of the subscription; `ttl_max_ms` is the topic's default.
        Returns its sequence number here; for a topic the enqueued sequence number of the copies.
        """
        state = self._state
        description = state.ref.description
        if isinstance(description, TopicDescription):
            return self._publish(message, origin, description.default_ttl_ms, turn)
        ttl_ms = min_ttl(min_ttl(message.ttl_ms, ttl_max_ms), description.default_ttl_ms)
        number = state.rows.new_number()
        record = Record(
            message.stored(turn.now, ttl_ms),
            turn.now,
            expiry(turn.now, ttl_ms),
            origin.number or number,
            hops=origin.hops,
            other_path=origin.other_path,
            was_scheduled=origin.was_scheduled,
        )
        self.put(record, number, message, turn, target_index)
        return number

    def put(self, record: Record, number: int, message: Message, turn: Turn, target_index: int | None = None) -> None:
        """Store `record` in its home here: the outbox, a session or the ready queue."""
        state = self._state
        description = state.receivable
        if description.forward_to is not None or target_index is not None:
            record.update(target_index=state.target_index_of(message) if target_index is None else target_index)
            if description.forward_to is not None and record.enqueued_number == NO_ENQUEUED_NUMBER:
                record.update(enqueued_number=number)
            self._to_outbox(record, number, turn, forwards=description.forward_to is not None)
        elif description.requires_session:
            name = message.session_id
            if name is None or self._sessions is None:
                self._dead_letter(record, number, service_errors.REASON_NO_SESSION, turn, (state.queue_id, number))
            else:
                self._sessions.add_message(name, number, turn)
                state.put_active(record, number, turn)
        else:
            row = state.put_active(record, number, turn)
            state.active_queue.append(number, row)
            state.announce_ready(state.active_queue, turn)

    def dead_letter_copy(self, message: Message, source: tuple[int, int], reason: tuple[str, str], turn: Turn) -> None:
        """Dead-letter a copy after a failed rule; `source`: (topic's queue id, number), `reason`: (it, its text)."""
        record = Record(message.stored(turn.now, None), turn.now, 0, source[1])
        self._dead_letter(record, self._state.rows.new_number(), reason, turn, source)

    def _publish(self, message: Message, origin: Origin, default_ttl_ms: int | None, turn: Turn) -> int:
        """Store the copies for the subscriptions; return their enqueued sequence number."""
        state = self._state
        routing = state.ref.routing
        assert routing is not None
        if origin.number <= 0:
            origin = origin._replace(number=state.rows.new_number())
        turn.touched[state.queue_id] = state.counters
        source = state.queue_id, origin.number
        if turn.events is not None:
            turn.note(EventKind.ROUTED, state.ref, [origin.number], [message], rules=routing.rules)
        for copy in routing.route(message, state.index, turn.now, turn.matches.get(id(message))):
            target = self._sibling(copy.ref, turn.view)
            turn.count(copy.ref.queue_id, Counted.COPIED)
            if copy.error is not None:
                target.dead_letter_copy(copy.message, source, copy.error, turn)
                continue
            numbers: list[int | None] = []
            turn.note(EventKind.COPIED, copy.ref, numbers, [copy.message], source)
            numbers.append(target.activate(copy.message, turn, origin, copy.target_index, default_ttl_ms))
        return origin.number

    def _schedule(self, message: Message, number: int, at: int, turn: Turn) -> None:
        state = self._state
        # The time to live starts at activation: only the stored form has it, the record does not expire.
        record = Record(message.stored(at, message.ttl_ms), turn.now, 0, number)
        state.rows.put(Home.SCHEDULED, [(state.rows.key(Home.SCHEDULED, number), record.pack())], turn)
        state.rows.put_due(at, Due.ACTIVATE, number, turn)

    def _activate_scheduled(self, number: int, turn: Turn) -> None:
        row = turn.view.get(MESSAGES, message_key(self._state.queue_id, Home.SCHEDULED, number))
        if row is None:
            return
        self._state.rows.remove(Home.SCHEDULED, (number,), (len(row),), turn)
        self._activate(number, parse_stored(Record.unpack(row).stored), turn)

    def _activate(self, number: int, message: Message, turn: Turn, *, is_early: bool = False) -> None:
        numbers, source = list[int | None](), (self._state.queue_id, number)
        turn.note(EventKind.ACTIVATED, self._state.ref, numbers, [message], source, is_early=is_early)
        numbers.append(self.activate(message, turn, SCHEDULED_HERE))

    def _expire(self, due_at: int, number: int, turn: Turn) -> None:
        state = self._state
        row = turn.view.get(MESSAGES, message_key(state.queue_id, Home.ACTIVE, number))
        if row is None:
            turn.changes.append((DUE, due_key(due_at, state.queue_id, Due.EXPIRE, number), None))
            turn.touched[state.queue_id] = state.counters
        elif number not in state.locks.by_number:  # a locked one may still be completed
            session = 0
            if self._sessions is None:
                state.active_queue.remove(number)
            else:
                name = parse_stored(Record.unpack(row).stored).session_id
                if name is not None:
                    session = self._sessions.number_of(name, turn.view)
                    self._sessions.message_removed(name)
            state.expire(number, row, session, turn)

    def would_be_dropped(self, message: Message, turn: Turn, seen_ids: set[int]) -> bool:
        """Whether a message duplicates a stored hash or one of `seen_ids`; adds its hash to `seen_ids`."""
        number = self._identity(message)
        return number is not None and self._is_known(number, turn, seen_ids)

    def _identity(self, message: Message) -> int | None:
        """The hash that identifies duplicates, None without duplicate detection or message id."""
        state = self._state
        description = state.ref.description
        if isinstance(description, SubscriptionDescription) or not description.requires_duplicate_detection:
            return None
        if (message_id := message.message_id) is None:
            return None
        key_text = folded(message.session_id or message.partition_key or "") if state.ref.partitioned else ""
        return duplicate_hash(f"{message_id}\0{key_text}")

    def _is_known(self, number: int, turn: Turn, seen_ids: set[int]) -> bool:
        if number in seen_ids:
            return True
        seen_ids.add(number)
        row = turn.view.get(DUPLICATES, session_number_key(self._state.queue_id, number))
        return row is not None and bool(INSTANT.unpack(row)[0] > turn.now)

    def is_duplicate(self, message: Message, turn: Turn, seen_ids: set[int]) -> bool:
        """Whether a message is a duplicate; if not, store its hash for the duplicate detection window."""
        if (number := self._identity(message)) is None:
            return False
        state = self._state
        if self._is_known(number, turn, seen_ids):
            turn.count(state.queue_id, Counted.DUPLICATES_DROPPED)
            return True
        description = state.ref.description
        assert not isinstance(description, SubscriptionDescription)
        key = session_number_key(state.queue_id, number)
        until = turn.now + description.duplicate_window_ms
        turn.changes.append((DUPLICATES, key, INSTANT.pack(until)))
        state.rows.put_due(until, Due.FORGET, number, turn)
        turn.touched[state.queue_id] = state.counters
        return False

    def _dead_letter(
        self, record: Record, number: int, reason: tuple[str, str], turn: Turn, source: tuple[int, int]
    ) -> None:
        properties = {"DeadLetterReason": reason[0], "DeadLetterErrorDescription": reason[1]}
        self._state.dead_letter_record(record, number, properties, turn, source=source)

    def _to_outbox(self, record: Record, number: int, turn: Turn, *, forwards: bool) -> None:
        hops_max = self._state.ref.bounds.forward_hops_max
        if forwards and record.hops >= hops_max:
            reason = service_errors.too_many_hops(hops_max)
            self._dead_letter(record, number, reason, turn, (self._state.queue_id, number))
            return
        if forwards:
            turn.note(EventKind.FORWARDING, self._state.ref, [number], to=self._state.receivable.forward_to)
        rows = self._state.rows
        rows.put(Home.OUTBOX, [(rows.key(Home.OUTBOX, number), record.pack())], turn)
        turn.effects.append((self._state.ref.announce_outbox, None))
