"""The handlers for messages between entities: read and delete outbox rows, store messages of other outboxes (R4, P30).

Dead letters that go on wait in the dead-letter queue, and are in the outbox only while a target is known to take them.
An outbox row stays until its target has made the message durable. A target stores the highest number that it accepted
from each outbox, so it stores a repeated message once. Owned by a `Partition`; works on its state.
"""

from __future__ import annotations

from typing import Final

from ..address import SubQueue
from ..message.message import Message
from ..message.stored import parse_stored
from .contract import Counted, EventKind
from .enqueue import EnqueueHandlers, Origin
from .records import (
    FORWARDED,
    FORWARDED_KEY,
    MESSAGES,
    NUMBER,
    OUTBOXES,
    PARTITION_SHIFT,
    SCHEDULED_ELSEWHERE,
    Home,
    Record,
    message_key,
)
from .requests import (
    DeleteForwarded,
    NextDeadLetter,
    ReadOutbox,
    Redirect,
    SendDeadLetters,
    StoreForwarded,
    Transfer,
    Undeliverable,
)
from .state import PartitionState
from .turn import Turn

SENT_BYTES_MAX: Final = 4 << 20  # of dead letters that one request moves into the outbox


class OutboxHandlers:
    """Handlers of the forwarder's requests, to the source partition and to the target partition."""

    def __init__(self, state: PartitionState, enqueue: EnqueueHandlers) -> None:
        self._state = state
        self._enqueue = enqueue

    def transfer(self, operation: Transfer, turn: Turn) -> None:
        """Store a message of a transaction for another entity."""
        if operation.number is not None:
            self._transfer_scheduled(operation.message, operation.number, turn)
            return
        stored = operation.message.stored(turn.now, operation.message.ttl_ms)
        number = self._state.rows.new_number()
        record = Record(
            stored, turn.now, 0, number, 0, 0, operation.destination, self._state.target_index_of(operation.message)
        )
        rows = self._state.rows
        rows.put(Home.TRANSFER_OUTBOX, [(rows.key(Home.TRANSFER_OUTBOX, number), record.pack())], turn)
        turn.count(self._state.queue_id, Counted.SENT)
        turn.note(EventKind.SENT, self._state.ref, [number], [operation.message])
        turn.note(EventKind.FORWARDING, self._state.ref, [number], to=operation.destination)
        turn.effects.append((self._state.ref.announce_outbox, None))

    def _transfer_scheduled(self, message: Message, number: int, turn: Turn) -> None:
        at = turn.now if message.scheduled_enqueue_at is None else message.scheduled_enqueue_at
        stored = message.stored(at, message.ttl_ms)
        record = Record(stored, turn.now, 0, number, 0, 0, SCHEDULED_ELSEWHERE, number >> PARTITION_SHIFT)
        rows = self._state.rows
        rows.put(Home.TRANSFER_OUTBOX, [(rows.key(Home.TRANSFER_OUTBOX, rows.new_number()), record.pack())], turn)
        turn.effects.append((self._state.ref.announce_outbox, None))

    def store_forwarded(self, request: StoreForwarded, turn: Turn) -> None:
        """Store messages of another partition's outbox; drop those that an earlier request stored."""
        key = FORWARDED_KEY.pack(self._state.queue_id, request.source_id, request.source_index)
        known = turn.view.get(FORWARDED, key)
        highest = 0 if known is None else NUMBER.unpack(known)[0]
        new = [(number, record) for number, record in request.records if number > highest]
        messages = [parse_stored(record.stored) for _, record in new]
        error = self._enqueue.refusal(messages, turn) if new and not request.same_entity else None
        if error is not None or not new:
            turn.effects.append((request.reply, error))
            return
        seen_ids: set[int] = set()
        for (number, record), message in zip(new, messages, strict=True):
            highest = number
            source = request.source_id, number
            if record.other_path == SCHEDULED_ELSEWHERE:
                self._enqueue.store_scheduled([message], turn, [record.enqueued_number], seen_ids)
            elif request.same_entity:
                record.update(target_index=0)
                moved_to = self._state.rows.new_number()
                turn.note(EventKind.FORWARDED, self._state.ref, [moved_to], source=source)
                self._enqueue.put(record, moved_to, message, turn)
            else:
                is_duplicate = self._enqueue.is_duplicate(message, turn, seen_ids)
                numbers: list[int | None] = [None] if is_duplicate else []
                turn.note(EventKind.FORWARDED, self._state.ref, numbers, [message], source)
                if not is_duplicate:
                    turn.count(self._state.queue_id, Counted.FORWARDED)
                    origin = Origin(record.enqueued_number, record.hops + 1, record.other_path)
                    numbers.append(self._enqueue.activate(message, turn, origin))
        turn.changes.append((FORWARDED, key, NUMBER.pack(highest)))
        turn.touched[self._state.queue_id] = self._state.counters
        self._state.mark_used(turn.now)
        turn.effects.append((request.reply, None))

    def read(self, request: ReadOutbox, turn: Turn) -> None:
        """Answer with the first outbox rows in order of their numbers."""
        queue_id = self._state.queue_id
        rows: list[tuple[int, int, Record]] = []
        for home in OUTBOXES:
            if self._state.counters.messages[home]:
                start, stop = message_key(queue_id, home, request.after + 1), message_key(queue_id, home + 1, 0)
                found = turn.view.scan(MESSAGES, start, stop, request.count)
                rows += ((home, int.from_bytes(key[-8:], "big"), Record.unpack(row)) for key, row in found)
        rows.sort(key=lambda row: row[1])
        turn.effects.append((request.reply, rows[: request.count]))

    def next_dead_letter(self, request: NextDeadLetter, turn: Turn) -> None:
        """Answer with the dead letter that is forwarded next."""
        state = self._state
        found = state.ready_queues[SubQueue.DEAD_LETTER].first(turn.view, state.average_bytes())
        turn.effects.append((request.reply, None if found is None else (found[0], Record.unpack(found[1]))))

    def send_dead_letters(self, request: SendDeadLetters, turn: Turn) -> None:
        """Move the first dead letters into the outbox, whose numbers ascend, unlike theirs."""
        state, rows = self._state, self._state.rows
        taken = state.ready_queues[SubQueue.DEAD_LETTER].take(
            turn.view, request.count, SENT_BYTES_MAX, state.average_bytes()
        )
        for number, row in taken:
            record = Record.unpack(row)
            rows.remove(Home.DEAD_LETTER, (number,), (len(row),), turn)
            record.update(expires_at=number, target_index=state.target_index_of(parse_stored(record.stored)))
            leaving = rows.new_number()
            rows.put(Home.DEAD_LETTER_OUTBOX, [(rows.key(Home.DEAD_LETTER_OUTBOX, leaving), record.pack())], turn)
            source = state.queue_id, number
            turn.note(EventKind.FORWARDING, state.ref, [leaving], source=source, to=state.dead_letters_go_to)
        turn.effects.append((request.reply, len(taken)))

    def _dead_letter_returns(self, record: Record, request: Undeliverable, turn: Turn) -> None:
        state = self._state
        number = record.own_number or request.number
        if not record.own_number:
            record.update(other_path="")  # of an older release
        turn.note(EventKind.RELEASED, state.ref, [number], source=(state.queue_id, request.number))
        record.update(expires_at=0, target_index=0)
        ready_queue, row = state.ready_queues[SubQueue.DEAD_LETTER], record.pack()
        state.rows.put(Home.DEAD_LETTER, [(state.rows.key(Home.DEAD_LETTER, number), row)], turn)
        if request.reason is None or state.dead_letters_go_to is None:
            ready_queue.arrive(number, row)
            state.announce_ready(ready_queue, turn)

    def delivered(self, request: DeleteForwarded, turn: Turn) -> None:
        """Delete outbox rows that their targets have stored."""
        for home, number in request.rows:
            row = turn.view.get(MESSAGES, message_key(self._state.queue_id, home, number))
            if row is not None:
                self._state.rows.remove(Home(home), (number,), (len(row),), turn)
        turn.effects.append((request.reply, None))

    def redirect(self, request: Redirect, turn: Turn) -> None:
        """Give outbox rows another target partition and a new number, which no target has seen."""
        rows = self._state.rows
        for home, number, target_index in request.rows:
            row = turn.view.get(MESSAGES, message_key(self._state.queue_id, home, number))
            if row is not None:
                record = Record.unpack(row)
                record.update(target_index=target_index)
                rows.remove(Home(home), (number,), (len(row),), turn)
                renumbered = rows.new_number()
                rows.put(Home(home), [(rows.key(Home(home), renumbered), record.pack())], turn)
                source = self._state.queue_id, number
                turn.note(EventKind.FORWARDING, self._state.ref, [renumbered], source=source)
        turn.effects.append((request.reply, None))

    def undeliverable(self, request: Undeliverable, turn: Turn) -> None:
        """Dead-letter an outbox message that its target refuses, or make it available here."""
        state = self._state
        home = Home(request.home)
        row = turn.view.get(MESSAGES, message_key(state.queue_id, home, request.number))
        if row is not None:
            record = Record.unpack(row)
            state.rows.remove(home, (request.number,), (len(row),), turn)
            if home is Home.DEAD_LETTER_OUTBOX:
                self._dead_letter_returns(record, request, turn)
            elif request.reason is None:
                numbers: list[int | None] = []
                turn.note(EventKind.RELEASED, state.ref, numbers, source=(state.queue_id, request.number))
                origin = Origin(record.enqueued_number, record.hops)
                numbers.append(self._enqueue.activate(parse_stored(record.stored), turn, origin))
            else:
                transfer = home is Home.TRANSFER_OUTBOX
                sub_queue = SubQueue.TRANSFER_DEAD_LETTER if transfer else SubQueue.DEAD_LETTER
                if transfer:
                    record.update(other_path="")  # it has not been forwarded
                record.update(target_index=0)
                properties = {"DeadLetterReason": request.reason, "DeadLetterErrorDescription": request.description}
                source = state.queue_id, request.number
                state.dead_letter_record(record, request.number, properties, turn, sub_queue, source=source)
        turn.effects.append((request.reply, None))
