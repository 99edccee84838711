"""The handlers for messages between entities: read and delete outbox rows, store messages of other outboxes (R4, P30).

An outbox row stays until its target has made the message durable. A target stores the highest number that it accepted
from each outbox, so it stores a repeated message once. Owned by a `Partition`; works on its state.
"""

from __future__ import annotations

from ..address import SubQueue
from ..message.message import Message
from ..message.stored import parse_stored
from .enqueue import EnqueueHandlers
from .ready_queue import Reader
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
from .requests import DeleteForwarded, ReadOutbox, Redirect, StoreForwarded, Transfer, Undeliverable
from .state import PartitionState
from .step import Counted, EventKind, Step


class OutboxHandlers:
    """Handlers of the forwarder's requests, to the source partition and to the target partition."""

    def __init__(self, state: PartitionState, enqueue: EnqueueHandlers) -> None:
        self._state = state
        self._enqueue = enqueue

    def transfer(self, operation: Transfer, now: int, step: Step) -> None:
        """Store a message of a transaction for another entity."""
        if operation.number is not None:
            self._transfer_scheduled(operation.message, operation.number, now, step)
            return
        stored = operation.message.stored(now, operation.message.ttl_ms)
        number = self._state.rows.new_number()
        record = Record(
            stored, now, 0, number, 0, 0, operation.destination, self._state.target_index_of(operation.message)
        )
        self._state.rows.put(Home.TRANSFER_OUTBOX, number, record.pack(), step)
        step.count(self._state.queue_id, Counted.SENT)
        step.note(EventKind.SENT, self._state.ref, [number], [operation.message])
        step.note(EventKind.FORWARDING, self._state.ref, [number], to=operation.destination)
        step.effects.append((self._state.ref.announce_outbox, None))

    def _transfer_scheduled(self, message: Message, number: int, now: int, step: Step) -> None:
        at = now if message.scheduled_enqueue_at is None else message.scheduled_enqueue_at
        stored = message.stored(at, message.ttl_ms)
        record = Record(stored, now, 0, number, 0, 0, SCHEDULED_ELSEWHERE, number >> PARTITION_SHIFT)
        self._state.rows.put(Home.TRANSFER_OUTBOX, self._state.rows.new_number(), record.pack(), step)
        step.effects.append((self._state.ref.announce_outbox, None))

    def forwarded(self, request: StoreForwarded, now: int, view: Reader, step: Step) -> None:
        """Store messages of another partition's outbox; drop those that an earlier request stored."""
        key = FORWARDED_KEY.pack(self._state.queue_id, request.source_id, request.source_index)
        known = view.get(FORWARDED, key)
        highest = 0 if known is None else NUMBER.unpack(known)[0]
        new = [(number, record) for number, record in request.records if number > highest]
        messages = [parse_stored(record.stored) for _, record in new]
        error = self._enqueue.refusal(messages, now, view) if new and not request.same_entity else None
        if error is not None or not new:
            step.effects.append((request.reply, error))
            return
        seen_ids: set[int] = set()
        for (number, record), message in zip(new, messages, strict=True):
            highest = number
            source = request.source_id, number
            if record.other_path == SCHEDULED_ELSEWHERE:
                self._enqueue.store_scheduled([message], now, view, step, [record.enqueued_number], seen_ids)
            elif request.same_entity:
                record.update(target_index=0)
                moved_to = self._state.rows.new_number()
                step.note(EventKind.FORWARDED, self._state.ref, [moved_to], source=source)
                self._enqueue.put(record, moved_to, message, view, step)
            else:
                is_duplicate = self._enqueue.is_duplicate(message, now, view, step, seen_ids)
                numbers: list[int | None] = [None] if is_duplicate else []
                step.note(EventKind.FORWARDED, self._state.ref, numbers, [message], source)
                if not is_duplicate:
                    step.count(self._state.queue_id, Counted.FORWARDED)
                    hops = record.hops + 1
                    arrived = self._enqueue.activate(
                        message, record.enqueued_number, now, view, step, hops, record.other_path
                    )
                    numbers.append(arrived)
        step.changes.append((FORWARDED, key, NUMBER.pack(highest)))
        step.touched[self._state.queue_id] = self._state.counters
        self._state.mark_used(now)
        step.effects.append((request.reply, None))

    def read(self, request: ReadOutbox, now: int, view: Reader, step: Step) -> None:
        """Answer with the first outbox rows in order of their numbers."""
        del now
        queue_id = self._state.queue_id
        rows: list[tuple[int, int, Record]] = []
        for home in OUTBOXES:
            if self._state.counters.messages[home]:
                start, stop = message_key(queue_id, home, request.after + 1), message_key(queue_id, home + 1, 0)
                found = view.scan(MESSAGES, start, stop, request.count)
                rows += ((home, int.from_bytes(key[-8:], "big"), Record.unpack(row)) for key, row in found)
        rows.sort(key=lambda row: row[1])
        step.effects.append((request.reply, rows[: request.count]))

    def delivered(self, request: DeleteForwarded, now: int, view: Reader, step: Step) -> None:
        """Delete outbox rows that their targets have stored."""
        del now
        for home, number in request.rows:
            row = view.get(MESSAGES, message_key(self._state.queue_id, home, number))
            if row is not None:
                self._state.rows.remove(Home(home), number, len(row), 0, step)
        step.effects.append((request.reply, None))

    def redirect(self, request: Redirect, now: int, view: Reader, step: Step) -> None:
        """Give outbox rows another target partition and a new number, which no target has seen."""
        del now
        rows = self._state.rows
        for home, number, target_index in request.rows:
            row = view.get(MESSAGES, message_key(self._state.queue_id, home, number))
            if row is not None:
                record = Record.unpack(row)
                record.update(target_index=target_index)
                rows.remove(Home(home), number, len(row), 0, step)
                renumbered = rows.new_number()
                rows.put(Home(home), renumbered, record.pack(), step)
                source = self._state.queue_id, number
                step.note(EventKind.FORWARDING, self._state.ref, [renumbered], source=source)
        step.effects.append((request.reply, None))

    def undeliverable(self, request: Undeliverable, now: int, view: Reader, step: Step) -> None:
        """Dead-letter an outbox message that its target refuses, or make it active here."""
        state = self._state
        home = Home(request.home)
        row = view.get(MESSAGES, message_key(state.queue_id, home, request.number))
        if row is not None:
            record = Record.unpack(row)
            state.rows.remove(home, request.number, len(row), 0, step)
            if request.reason is None:
                numbers: list[int | None] = []
                step.note(EventKind.RELEASED, state.ref, numbers, source=(state.queue_id, request.number))
                stays = self._enqueue.activate(
                    parse_stored(record.stored), record.enqueued_number, now, view, step, record.hops
                )
                numbers.append(stays)
            else:
                transfer = home is Home.TRANSFER_OUTBOX
                sub_queue = SubQueue.TRANSFER_DEAD_LETTER if transfer else SubQueue.DEAD_LETTER
                if home is not Home.OUTBOX:
                    record.update(other_path="")  # it has not been forwarded
                properties = {"DeadLetterReason": request.reason, "DeadLetterErrorDescription": request.description}
                was_dead = home is Home.DEAD_LETTER_OUTBOX
                if was_dead:
                    properties = {}  # it keeps the reason for which it was dead-lettered
                source = state.queue_id, request.number
                state.dead_letter_record(
                    record, properties, step, sub_queue, forward=False, source=source, counts=not was_dead
                )
        step.effects.append((request.reply, None))
