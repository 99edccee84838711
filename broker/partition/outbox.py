"""The handlers for messages between entities: read and delete outbox rows, store messages of other outboxes (R4, P30).

An outbox row stays until its target has made the message durable. A target stores the highest number that it accepted
from each outbox, so it stores a repeated message once. Owned by a `Partition`; works on its state.
"""

from __future__ import annotations

from ..address import SubQueue
from ..message.stored import parse_stored
from .enqueue import EnqueueHandlers
from .ready_queue import Reader
from .records import (
    FORWARDED,
    FORWARDED_KEY,
    MESSAGES,
    NUMBER,
    OUTBOXES,
    SCHEDULED_ELSEWHERE,
    Home,
    Record,
    message_key,
)
from .requests import DeleteForwarded, ReadOutbox, Redirect, StoreForwarded, Undeliverable
from .state import PartitionState
from .step import Step


class OutboxHandlers:
    """Handlers of the forwarder's requests, to the source partition and to the target partition."""

    def __init__(self, state: PartitionState, enqueue: EnqueueHandlers) -> None:
        self._state = state
        self._enqueue = enqueue

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
            if record.other_path == SCHEDULED_ELSEWHERE:
                self._enqueue.store_scheduled([message], now, view, step, [record.enqueued_number], seen_ids)
            elif request.same_entity:
                record.update(target_index=0)
                self._enqueue.put(record, self._state.rows.new_number(), message, view, step)
            elif not self._enqueue.is_duplicate(message, now, view, step, seen_ids):
                self._enqueue.activate(
                    message, record.enqueued_number, now, view, step, record.hops + 1, record.other_path
                )
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
                rows.put(Home(home), rows.new_number(), record.pack(), step)
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
                self._enqueue.activate(
                    parse_stored(record.stored), record.enqueued_number, now, view, step, record.hops
                )
            else:
                transfer = home is Home.TRANSFER_OUTBOX
                sub_queue = SubQueue.TRANSFER_DEAD_LETTER if transfer else SubQueue.DEAD_LETTER
                if home is not Home.OUTBOX:
                    record.update(other_path="")  # it has not been forwarded
                properties = {"DeadLetterReason": request.reason, "DeadLetterErrorDescription": request.description}
                if home is Home.DEAD_LETTER_OUTBOX:
                    properties = {}  # it keeps the reason for which it was dead-lettered
                state.dead_letter_record(record, properties, step, sub_queue, forward=False)
        step.effects.append((request.reply, None))
