"""The handlers that deliver messages: receive, receive from a session, receive deferred, peek, delete.

Knows how to lock a message and to build its delivery. Does not know what ends a lock (`settle`). Owned by a
`Partition`; works on its state.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError
from ..ids import new_lock_token
from ..message.delivered import delivery_bytes
from ..message.message import Message
from ..message.stored import parse_stored
from ..model.descriptions import SubscriptionDescription
from .locks import HeldSession, Lock, LockSource
from .ready_queue import Reader
from .records import MESSAGES, Home, Record, message_key, unpack_head
from .requests import DeleteMessages, GetExtent, Peek, Receive, ReceiveDeferred, ReceiveFromSession
from .sessions import MessageSessions
from .state import PartitionState
from .step import Delivery, Extent, Received, ReceiveMode, Step

RECEIVE_BYTES_MAX = 4 << 20  # per answer to a receiver, which then asks again
SCAN_ROWS_MAX = 500
STATES = {
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


@dataclass(frozen=True, slots=True)
class DeadLettered:
    """An unlocked message of the dead-letter queue; `size_bytes` is the size of its row."""

    number: int
    home: Home
    size_bytes: int
    message: Message


class ReceiveHandlers:
    """Handlers of receive, peek and delete requests."""

    def __init__(self, state: PartitionState, sessions: MessageSessions | None) -> None:
        self._state = state
        self._sessions = sessions
        self._of_subscription = isinstance(state.ref.description, SubscriptionDescription)

    def receive(self, request: Receive, now: int, view: Reader, step: Step) -> None:
        """Deliver available messages of a sub-queue."""
        state = self._state
        ready_queue = state.ready_queues[request.sub_queue]
        deliveries: list[Delivery] = []
        bytes_left = RECEIVE_BYTES_MAX
        average_bytes = state.average_bytes()
        while len(deliveries) < request.count and bytes_left > 0:
            found = ready_queue.next(view, average_bytes)
            if found is None:
                break
            number, row = found
            expires_at = unpack_head(row)[5]
            if expires_at and expires_at <= now:
                state.expire(number, row, 0, step)
                continue
            deliveries.append(self._deliver(ready_queue, ready_queue.home, number, row, request.mode, now, step))
            bytes_left -= len(row)
        more = ready_queue.has_more()
        if not more:
            ready_queue.announce_again()
        if deliveries:
            state.mark_used(now)
        step.effects.append((request.reply, Received(deliveries, more)))

    def receive_from_session(self, request: ReceiveFromSession, now: int, view: Reader, step: Step) -> None:
        """Deliver the next messages of a held session."""
        assert self._sessions is not None
        held = self._sessions.held(request.grant)
        if held is None or held.until_at <= now:
            step.effects.append((request.reply, Received([], False, service_errors.session_lock_lost())))
            return
        deliveries: list[Delivery] = []
        bytes_left = RECEIVE_BYTES_MAX
        while len(deliveries) < request.count and bytes_left > 0:
            found = held.ready_queue.next(view)
            if found is None:
                break
            number, row = found
            if number in self._state.locks.by_number:
                continue  # the receiver has it already
            expires_at = unpack_head(row)[5]
            if expires_at and expires_at <= now:
                self._state.expire(number, row, held.number, step)
                continue
            deliveries.append(self._deliver(held.ready_queue, Home.ACTIVE, number, row, request.mode, now, step, held))
            bytes_left -= len(row)
        self._state.mark_used(now)
        step.effects.append((request.reply, Received(deliveries, held.ready_queue.has_more())))

    def receive_deferred(self, request: ReceiveDeferred, now: int, view: Reader, step: Step) -> None:
        """Deliver deferred messages by number, all or none."""
        state = self._state
        ready_queue = state.ready_queues[request.sub_queue]
        held: HeldSession | None = None
        if self._sessions is not None and request.sub_queue is SubQueue.ACTIVE:
            name = request.session_id
            if name is None:  # Go's SDK sends none: use the session of the messages
                name = self._session_of_deferred(request.sequence_numbers, view)
            held = None if name is None else self._sessions.held_by_name(name, now)
            if held is None:
                step.effects.append((request.reply, service_errors.session_lock_lost()))
                return
        found: list[tuple[int, bytes]] = []
        for number in dict.fromkeys(request.sequence_numbers):  # a repeated number is locked once
            row = view.get(MESSAGES, message_key(state.queue_id, ready_queue.deferred_home, number))
            if row is None or number in state.locks.by_number or (held is not None and not _is_of(row, held.name)):
                step.effects.append((request.reply, service_errors.deferred_not_found()))
                return
            found.append((number, row))
        deliveries = [
            self._deliver(ready_queue, ready_queue.deferred_home, number, row, request.mode, now, step, held)
            for number, row in found
        ]
        step.effects.append((request.reply, deliveries))

    def peek(self, request: Peek, now: int, view: Reader, step: Step) -> None:
        """Answer with messages of all homes of a sub-queue, in order of their numbers."""
        if request.is_use:
            self._state.mark_used(now)  # a peek counts as use [wire 10.8]
        answer: list[tuple[int, bytes]] = []
        bytes_left = request.bytes_max
        for number, home, row in self._rows(request, view):
            if request.session_id is not None and not _is_of(row, request.session_id):
                continue
            payload = self._payload(number, home, Record.unpack(row), None, None, STATES.get(home, 0))
            bytes_left -= len(payload)
            if answer and bytes_left < 0:
                break
            answer.append((number, payload))
            if len(answer) == request.count:
                break
        step.effects.append((request.reply, answer))

    def get_extent(self, request: GetExtent, now: int, view: Reader, step: Step) -> None:
        """Answer with the extent of a sub-queue."""
        del now
        state = self._state
        homes = [home for home in PEEK_HOMES[request.sub_queue] if state.counters.messages[home]]
        found = [next(self._home_rows(home, 0, view, 1), None) for home in homes]
        firsts = [each[0] for each in found if each is not None]
        following = state.rows.next_number()
        count = sum(state.counters.messages[home] for home in homes if home is not Home.SCHEDULED)
        extent = Extent(state.partition_id or 0, min(firsts, default=following), following, count)
        step.effects.append((request.reply, extent))

    def delete(self, request: DeleteMessages, now: int, view: Reader, step: Step) -> None:
        """Delete the oldest available messages that match the request."""
        del now
        state = self._state
        ready_queue = state.ready_queues[request.sub_queue]
        deleted = 0
        for number, row in self._home_rows(ready_queue.home, 0, view):
            if deleted == request.count or number >= request.before_number:
                break
            record = Record.unpack(row)
            if number in state.locks.by_number or record.enqueued_at >= request.before_at:
                continue
            if request.session_id is not None and not _is_of(row, request.session_id):
                continue
            session = self._leave_session(record, view) if ready_queue.home is Home.ACTIVE else 0
            ready_queue.remove(number)
            state.remove(ready_queue.home, number, len(row), record.expires_at, session, step)
            deleted += 1
        if self._sessions is not None:
            self._sessions.update_heads(view, step)
        step.effects.append((request.reply, deleted))

    def dead_lettered(self, number: int, view: Reader) -> DeadLettered | BrokerError:
        """The message `number` of the dead-letter queue, or the error if it is locked or missing."""
        state = self._state
        ready_queue = state.ready_queues[SubQueue.DEAD_LETTER]
        for home in (ready_queue.home, ready_queue.deferred_home):
            row = view.get(MESSAGES, message_key(state.queue_id, home, number))
            if row is not None:
                if number in state.locks.by_number:
                    return service_errors.dead_letter_locked(number)
                return DeadLettered(number, home, len(row), parse_stored(Record.unpack(row).stored))
        return service_errors.dead_letter_not_found(number)

    def remove_dead_letter(self, found: DeadLettered, step: Step) -> None:
        """Remove the message that `dead_lettered` returned."""
        ready_queue = self._state.ready_queues[SubQueue.DEAD_LETTER]
        if found.home is ready_queue.home:
            ready_queue.remove(found.number)
        self._state.remove(found.home, found.number, found.size_bytes, 0, 0, step)

    # ---- helpers

    def _session_of_deferred(self, numbers: Sequence[int], view: Reader) -> str | None:
        for number in numbers:
            row = view.get(MESSAGES, message_key(self._state.queue_id, Home.DEFERRED, number))
            if row is not None:
                return parse_stored(Record.unpack(row).stored).session_id
        return None

    def _deliver(
        self,
        ready_queue: LockSource,
        home: Home,
        number: int,
        row: bytes,
        mode: ReceiveMode,
        now: int,
        step: Step,
        held: HeldSession | None = None,
    ) -> Delivery:
        """Lock or remove the message of `row`, and build its delivery; `held` is its session."""
        state = self._state
        record = Record.unpack(row)
        token = new_lock_token(self._state.index)
        session = 0 if held is None else held.number
        until_at: int | None = None
        if mode is ReceiveMode.PEEK_LOCK:
            until_at = now + state.receivable.lock_duration_ms if held is None else held.until_at
            state.locks.add(
                Lock(
                    token,
                    number,
                    home,
                    ready_queue,
                    until_at,
                    record.delivery_count,
                    record.expires_at,
                    len(row),
                    held,
                    session,
                )
            )
        else:
            state.remove(home, number, len(row), record.expires_at, session, step)
        by_number = home is not ready_queue.home
        lock_token = None if until_at is None else token
        deleted = mode is ReceiveMode.RECEIVE_AND_DELETE
        payload = self._payload(number, home, record, until_at, lock_token, 1 if by_number else None, deleted=deleted)
        return Delivery(token, payload, number)

    def _payload(
        self,
        number: int,
        home: Home,
        record: Record,
        until_at: int | None,
        lock_token: bytes | None,
        state: int | None,
        *,
        deleted: bool = False,
    ) -> bytes:
        """Return the encoded message for a client; `state` is 0 active, 1 deferred, 2 scheduled, None for none."""
        source = record.other_path or None
        has_origin = record.hops or self._of_subscription  # it had another number in its source
        return delivery_bytes(
            record.stored,
            sequence_number=number,
            enqueued_at=record.enqueued_at,
            delivery_count=record.delivery_count,
            locked_until_at=until_at,
            state=state,
            partition_id=self._state.partition_id,
            enqueue_sequence_number=record.enqueued_number if has_origin and record.enqueued_number >= 0 else None,
            dead_letter_source=source if home is not Home.TRANSFER_OUTBOX else None,
            lock_token=lock_token,
            deleted=deleted,
        )

    def _rows(self, request: Peek, view: Reader) -> Iterator[tuple[int, Home, bytes]]:
        """Yield (number, home, row) of all homes of a sub-queue, in order of the numbers."""
        first = max(0, request.from_sequence_number)
        sources = {
            home: self._home_rows(home, first, view, min(SCAN_ROWS_MAX, request.count))
            for home in PEEK_HOMES[request.sub_queue]
            if self._state.counters.messages[home]
        }
        heads = {home: found for home, source in sources.items() if (found := next(source, None)) is not None}
        while heads:
            home = min(heads, key=lambda each: heads[each][0])
            number, row = heads[home]
            yield number, home, row
            following = next(sources[home], None)
            if following is None:
                del heads[home]
            else:
                heads[home] = following

    def _home_rows(
        self, home: Home, first: int, view: Reader, at_once: int = SCAN_ROWS_MAX
    ) -> Iterator[tuple[int, bytes]]:
        queue_id = self._state.queue_id
        stop = message_key(queue_id, home + 1, 0)
        # A page of large messages must not fill the memory: read only a few at once.
        limit = max(1, min(at_once, RECEIVE_BYTES_MAX // max(1, self._state.average_bytes())))
        while True:
            rows = view.scan(MESSAGES, message_key(queue_id, home, first), stop, limit)
            for key, row in rows:
                number = int.from_bytes(key[-8:], "big")
                yield number, row
                first = number + 1
            if len(rows) < limit:
                return

    def _leave_session(self, record: Record, view: Reader) -> int:
        """Note that a message leaves its session; return the session's number, 0 without session."""
        if self._sessions is None:
            return 0
        name = parse_stored(record.stored).session_id
        if name is None:
            return 0
        self._sessions.message_removed(name)
        return self._sessions.number_of(name, view)


def _is_of(row: bytes, session_id: str) -> bool:
    return parse_stored(Record.unpack(row).stored).session_id == session_id
