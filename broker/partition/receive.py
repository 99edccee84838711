"""The handlers that deliver messages: receive, receive from a session, receive deferred, peek, delete.

Knows how to lock a message and to build its delivery. Does not know what ends a lock (`settle`). Owned by a
`Partition`; works on its state.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from itertools import chain, groupby, repeat
from operator import itemgetter
from typing import Final

from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError
from ..identity import folded
from ..ids import new_lock_tokens
from ..lazy_dataclass import dataclass
from ..message.bounds import changes_refusal
from ..message.delivered import DeliveryEncoder
from ..message.message import Message
from ..message.stored import encoded_properties, parse_stored
from ..model.descriptions import SubscriptionDescription
from .contract import (
    NO_CUT,
    Claimed,
    Counted,
    Delivery,
    EventKind,
    Extent,
    LockCut,
    Received,
    ReceiveMode,
    new_delivery,
)
from .locks import HeldSession, LockGroup
from .ready_queue import Reader, ReadyQueue, SessionQueue
from .records import MESSAGES, Home, Record, expiries_of, instants_of, message_key, numbers_of, tried, value_of
from .requests import (
    ClaimMessages,
    DeleteMessages,
    GetExtent,
    ListNumbers,
    LockMessages,
    Peek,
    Receive,
    ReceiveDeferred,
    ReceiveFromSession,
)
from .sessions import MessageSessions
from .state import PartitionState
from .turn import Turn

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

Row = tuple[int, bytes]
"""A message: its sequence number, and its row or its bytes for a client."""
Rows = list[Row]


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class DeadLettered:
    """An unlocked message of the dead-letter queue; `size_bytes` is the size of its row."""

    number: int
    home: Home
    size_bytes: int
    message: Message


PEEKED_ROWS_MAX: Final = 500  # of those that a peek in a session looks at in one go: some milliseconds
# What the service stamps as the end of a lock that has none of its own: messages of a session are locked as long as
# their session is, and .NET shows DateTimeOffset.MaxValue (azure-sdk-for-net#27057). 9999-12-31, the last millisecond.
GREATEST_MS: Final = 253_402_300_799_999


class ReceiveHandlers:
    """Handlers of receive, peek and delete requests."""

    def __init__(self, state: PartitionState, sessions: MessageSessions | None) -> None:
        self._state = state
        self._sessions = sessions
        self._of_subscription = isinstance(state.ref.description, SubscriptionDescription)

    def receive(self, request: Receive, turn: Turn) -> None:
        state, delays = self._state, turn.delays
        ready_queue, selection = state.ready_queues[request.sub_queue], request.selection
        if selection is None:
            take = partial(ready_queue.take, turn.view, average_bytes=state.average_bytes())
            taken, expiries, is_hidden = self._take(take, request.count, turn, ready_queue)
            more = ready_queue.has_more() and not is_hidden
        else:
            take = partial(ready_queue.take_selected, turn.view, selection, average_bytes=state.average_bytes())
            taken, expiries, is_hidden = self._take(take, request.count, turn, ready_queue)
            more = ready_queue.has_more_for(selection) and not is_hidden
        if not more:
            ready_queue.announce_again()
        if taken:
            state.mark_used(turn.now)
        cut = NO_CUT if delays is None or not taken else delays.lock_cut(state.ref.path)
        until_at = turn.now + state.receivable.lock_duration_ms - cut.earlier_ms
        group = LockGroup(ready_queue.home, ready_queue, until_at, None)
        deliveries = self._deliver(taken, expiries, group, request.mode, turn, request.by, cut.believed_ms)
        if cut.earlier_ms:
            state.locks.sort()
            if request.mode is ReceiveMode.PEEK_LOCK:
                self._note_cut(cut, deliveries, request.by, turn)
        turn.effects.append((request.reply, Received(deliveries, more)))

    def _note_cut(self, cut: LockCut, deliveries: Sequence[Delivery], by: str, turn: Turn) -> None:
        what = f"given a lock that ends {cut.earlier_ms} ms early"
        if cut.believed_ms:
            what += f", {cut.believed_ms} ms of which the client does not know"
        numbers = [each.sequence_number for each in deliveries]
        turn.note(EventKind.STRUCK, self._state.ref, numbers, cause=cut.cause, operation="delivery", what=what, by=by)

    def receive_from_session(self, request: ReceiveFromSession, turn: Turn) -> None:
        """Deliver the next messages of a held session."""
        assert self._sessions is not None
        held = self._sessions.held(request.grant)
        if held is None or held.until_at <= turn.now:
            turn.effects.append((request.reply, Received([], False, service_errors.session_lock_lost())))
            return
        take = partial(held.ready_queue.take, turn.view)
        taken, expiries, is_hidden = self._take(take, request.count, turn, held.ready_queue, held.number)
        self._state.mark_used(turn.now)
        group = LockGroup(Home.ACTIVE, held.ready_queue, held.until_at, held)
        deliveries = self._deliver(taken, expiries, group, request.mode, turn, request.by)
        more = held.ready_queue.has_more() and not is_hidden
        turn.effects.append((request.reply, Received(deliveries, more)))

    def receive_deferred(self, request: ReceiveDeferred, turn: Turn) -> None:
        """Deliver deferred messages by number, all or none."""
        state = self._state
        ready_queue = state.ready_queues[request.sub_queue]
        held: HeldSession | None = None
        if self._sessions is not None and request.sub_queue is SubQueue.ACTIVE:
            name = request.session_id
            if name is None:  # Go's SDK sends none: use the session of the messages
                name = self._session_of_deferred(request.sequence_numbers, turn.view)
            held = None if name is None else self._sessions.held_by_name(name, turn.now)
            if held is None:
                turn.effects.append((request.reply, service_errors.session_lock_lost()))
                return
        found: Rows = []
        for number in dict.fromkeys(request.sequence_numbers):  # a repeated number is locked once
            row = turn.view.get(MESSAGES, message_key(state.queue_id, ready_queue.deferred_home, number))
            if row is None or number in state.locks.by_number or (held is not None and not _is_of(row, held.identity)):
                turn.effects.append((request.reply, service_errors.deferred_not_found()))
                return
            found.append((number, row))
        if request.expires and self._expire_deferred(found, ready_queue.deferred_home, turn):
            turn.effects.append((request.reply, service_errors.deferred_not_found()))
            return
        group = self._new_group(ready_queue, ready_queue.deferred_home, turn.now, held)
        deliveries = self._deliver(found, expiries_of(found), group, request.mode, turn)
        turn.effects.append((request.reply, deliveries))

    def lock_by_numbers(self, request: LockMessages, turn: Turn) -> None:
        """Lock messages by number, wherever they stand in their queue; those of a session belong to its lock."""
        state, held = self._state, None
        if self._sessions is not None and request.sub_queue is SubQueue.ACTIVE:
            held = self._sessions.held(request.grant)
            if held is None or held.until_at <= turn.now:
                lost = service_errors.session_lock_lost
                error = lost() if request.grant else service_errors.session_receiver_required()
                turn.effects.append((request.reply, error))
                return
        source = state.ready_queues[request.sub_queue] if held is None else held.ready_queue
        locked: list[Delivery] = []
        for home in (source.home, source.deferred_home):
            found: Rows = []
            for number in dict.fromkeys(request.sequence_numbers):
                row = turn.view.get(MESSAGES, message_key(state.queue_id, home, number))
                if (
                    row is None
                    or number in state.locks.by_number
                    or (held is not None and not _is_of(row, held.identity))
                ):
                    continue
                found.append((number, row))
                if home is source.home:
                    source.lift(number)
            group = self._new_group(source, home, turn.now, held)
            by = "" if held is None else held.by
            locked += self._deliver(found, expiries_of(found), group, ReceiveMode.PEEK_LOCK, turn, by, by_operator=True)
        turn.effects.append((request.reply, locked))

    def peek(self, request: Peek, turn: Turn) -> None:
        """Answer with messages of all homes of a sub-queue, in order of their numbers."""
        if request.is_use:
            self._state.mark_used(turn.now)  # a peek counts as use [wire 10.8]
        found, following = self._peeked(request, turn.view)
        if following is None or request.go_on is None:
            turn.effects.append((request.reply, found))
        else:
            more = replace(request, from_sequence_number=following, found=found, is_use=False)
            turn.effects.append((request.go_on, more))

    def _peeked(self, request: Peek, view: Reader) -> tuple[Rows, int | None]:
        """The encoded messages that a peek asks for, by their numbers; the number from which on it is to be continued.

        The messages of a session may be few among very many, and each row is parsed: so many are looked at in one go.
        """
        found: Rows = list(request.found)
        bytes_left = request.bytes_max - sum(len(payload) for _, payload in found)
        rows_left = PEEKED_ROWS_MAX
        identity = None if request.session_id is None else folded(request.session_id)
        for home, rows in self._runs(self._homes(request), request.from_sequence_number, request.count, view):
            rows_left -= len(rows)
            last = rows[-1][0]
            if identity is not None:
                rows = [each for each in rows if _is_of(each[1], identity)]
            del rows[request.count - len(found) :]
            payloads = self._peek_payloads(rows, STATES.get(home, 0))
            for (number, _), payload in zip(rows, payloads, strict=True):
                bytes_left -= len(payload)
                if found and bytes_left < 0:
                    return found, None
                found.append((number, payload))
            if len(found) == request.count:
                break
            if rows_left <= 0 and request.go_on is not None and identity is not None:
                return found, last + 1
        return found, None

    def _peek_payloads(self, rows: Rows, state: int) -> list[bytes]:
        """Encode peeked messages of one home, in order; those that are locked have the end of their lock, no token."""
        locks = self._state.locks.by_number
        if not locks:
            return self._encoder(state).encode_rows(rows)
        payloads: list[bytes] = []
        ends = [None if (lock := locks.get(number)) is None else _shown_end(lock.group) for number, _ in rows]
        for until_at, run in groupby(zip(ends, rows, strict=True), itemgetter(0)):
            payloads += self._encoder(state, locked_until_at=until_at).encode_rows([row for _, row in run])
        return payloads

    def list_numbers(self, request: ListNumbers, turn: Turn) -> None:
        """Answer with numbers of all homes of a sub-queue, in order."""
        found: list[int] = []
        homes = PEEK_HOMES[request.sub_queue]
        for _, rows in self._runs(homes, request.from_sequence_number, request.count, turn.view):
            found += [number for number, _ in rows]
            if len(found) >= request.count:
                break
        turn.effects.append((request.reply, found[: request.count]))

    def get_extent(self, request: GetExtent, turn: Turn) -> None:
        state = self._state
        homes = [home for home in PEEK_HOMES[request.sub_queue] if state.counters.messages[home]]
        found = [next(self._home_rows(home, 0, turn.view, 1), None) for home in homes]
        firsts = [each[0] for each in found if each is not None]
        following = state.rows.next_number()
        count = sum(state.counters.messages[home] for home in homes if home is not Home.SCHEDULED)
        extent = Extent(state.partition_id or 0, min(firsts, default=following), following, count)
        turn.effects.append((request.reply, extent))

    def delete(self, request: DeleteMessages, turn: Turn) -> None:
        """Delete the oldest available messages that match the request; those whose time to live is over expire."""
        state = self._state
        ready_queue = state.ready_queues[request.sub_queue]
        identity = None if request.session_id is None else folded(request.session_id)
        home, wanted = ready_queue.home, request.numbers
        has_sessions = self._sessions is not None and home is Home.ACTIVE
        numbers: list[int] = []
        sizes: list[int] = []
        expiries: list[int] = []
        sessions: list[int] = []
        rows = self._home_rows(home, 0, turn.view) if wanted is None else self._rows_of(home, wanted, turn.view)
        for number, row in rows:
            if len(numbers) == request.count or number >= request.before_number:
                break
            enqueued_at, expires_at = instants_of(row)
            if number in state.locks.by_number or enqueued_at >= request.before_at:
                continue
            if identity is not None and not _is_of(row, identity):
                continue
            session = self._leave_session(row, turn.view) if has_sessions else 0
            ready_queue.remove(number)
            if 0 < expires_at <= turn.now:
                state.expire(number, row, session, turn)
                continue
            numbers.append(number)
            sizes.append(len(row))
            expiries.append(expires_at)
            sessions.append(session)
        if numbers:
            turn.note(EventKind.DELETED, state.ref, numbers)
            turn.count(state.queue_id, Counted.DELETED, len(numbers), request.sub_queue)
        if not has_sessions:
            state.remove(home, numbers, sizes, expiries, 0, turn)
        else:
            for number, size, expires_at, session in zip(numbers, sizes, expiries, sessions, strict=True):
                state.remove(home, (number,), (size,), (expires_at,), session, turn)
        if self._sessions is not None:
            self._sessions.update_heads(turn)
        turn.effects.append((request.reply, len(numbers)))

    def claim(self, request: ClaimMessages, turn: Turn) -> None:
        """Delete finished messages, then defer available ones: what a receive with locks and a settlement would do."""
        state, ready_queue = self._state, self._state.ready_queues[request.sub_queue]
        error = changes_refusal(request.properties, state.ref.bounds)
        if error is not None:
            turn.effects.append((request.reply, error))
            return
        kept = self._delete_finished(request, ready_queue, turn)
        take = partial(ready_queue.take, turn.view, average_bytes=state.average_bytes())
        taken, expiries, is_hidden = self._take(take, request.count, turn, ready_queue)
        beyond = [number for number, _ in taken if number >= request.before]
        for number in beyond:
            ready_queue.put_back(number)
        more = ready_queue.has_more() and not is_hidden and not beyond
        if beyond:
            mine = [each for each in zip(taken, expiries, strict=True) if each[0][0] < request.before]
            taken, expiries = [row for row, _ in mine], [at for _, at in mine]
        if taken:
            self._defer(taken, expiries, request, ready_queue, turn)
        state.mark_used(turn.now)
        turn.effects.append((request.reply, Claimed([number for number, _ in taken], more, kept)))

    def _defer(
        self, rows: Rows, expiries: Sequence[int], request: ClaimMessages, ready_queue: ReadyQueue, turn: Turn
    ) -> None:
        """Move available messages to the deferred ones; each has one delivery more, and stays whatever its count is."""
        state, home, to = self._state, ready_queue.home, ready_queue.deferred_home
        numbers, attempts = list(map(itemgetter(0), rows)), int(home is Home.ACTIVE)
        entries = encoded_properties(request.properties)
        state.remove(home, numbers, list(map(len, map(value_of, rows))), expiries, 0, turn)
        keys = map(message_key, repeat(state.queue_id), repeat(to), numbers)
        state.rows.put(to, list(zip(keys, tried(map(value_of, rows), attempts, entries), strict=True)), turn)
        turn.counts.append((state.queue_id, Counted.DEFERRED, request.sub_queue, len(rows)))
        if turn.events is not None:
            texts = {name: str(value) for name, value in request.properties.items()}
            turn.note(EventKind.DEFERRED, state.ref, numbers, properties=texts)

    def _delete_finished(self, request: ClaimMessages, ready_queue: ReadyQueue, turn: Turn) -> tuple[int, ...]:
        """Delete deferred messages, those that are there; the numbers of those that are locked."""
        state, home = self._state, ready_queue.deferred_home
        numbers: list[int] = []
        sizes: list[int] = []
        kept: list[int] = []
        for first, count in request.finished:
            start, stop = state.rows.key(home, first), state.rows.key(home, first + count)
            rows = turn.view.scan(MESSAGES, start, stop, count)
            if state.locks.by_number:
                locked = {number for number in numbers_of(rows) if number in state.locks.by_number}
                kept += sorted(locked)
                rows = [row for row, number in zip(rows, numbers_of(rows), strict=True) if number not in locked]
            numbers += numbers_of(rows)
            sizes += map(len, map(value_of, rows))
        if numbers:
            state.rows.remove(home, numbers, sizes, turn)
            turn.count(state.queue_id, Counted.DELETED, len(numbers), request.sub_queue)
            turn.note(EventKind.DELETED, state.ref, numbers)
        return tuple(kept)

    def dead_lettered(self, number: int, view: Reader) -> DeadLettered | BrokerError:
        """The message `number` of the dead-letter queue, or the error if it is locked or missing."""
        state = self._state
        ready_queue = state.ready_queues[SubQueue.DEAD_LETTER]
        for home in (ready_queue.home, ready_queue.deferred_home):
            row = view.get(MESSAGES, message_key(state.queue_id, home, number))
            if row is not None:
                if number in state.locks.by_number:
                    return service_errors.dead_letter_locked_by_receiver(number)
                return DeadLettered(number, home, len(row), parse_stored(Record.unpack(row).stored))
        return service_errors.dead_letter_not_found(number)

    def remove_dead_letter(self, found: DeadLettered, turn: Turn) -> None:
        """Remove the message that `dead_lettered` returned."""
        ready_queue = self._state.ready_queues[SubQueue.DEAD_LETTER]
        if found.home is ready_queue.home:
            ready_queue.remove(found.number)
        self._state.rows.remove(found.home, (found.number,), (found.size_bytes,), turn)

    # ---- helpers

    def _expire_deferred(self, rows: Rows, home: Home, turn: Turn) -> bool:
        """Expire those whose time to live is over; whether there were any."""
        expired = [
            (number, row) for (number, row), at in zip(rows, expiries_of(rows), strict=True) if 0 < at <= turn.now
        ]
        for number, row in expired:
            self._state.expire(number, row, 0, turn, home)
        return bool(expired)

    def _session_of_deferred(self, numbers: Sequence[int], view: Reader) -> str | None:
        for number in numbers:
            row = view.get(MESSAGES, message_key(self._state.queue_id, Home.DEFERRED, number))
            if row is not None:
                return parse_stored(Record.unpack(row).stored).session_id
        return None

    def _take(
        self,
        take: Callable[[int, int], list[tuple[int, bytes]]],
        count: int,
        turn: Turn,
        source: ReadyQueue | SessionQueue,
        session: int = 0,
    ) -> tuple[Rows, list[int], bool]:
        """Take up to `count` messages, and end those whose time to live is over; `session` is their session's number.

        `take(count, bytes_max)` removes messages from their queue `source` and returns them, none if it is empty.
        Returns the messages, the ends of their times to live (Unix ms, 0: none), and whether the next one is hidden on
        purpose: it stays in the queue with those behind it.
        """
        ref, delays = self._state.ref, turn.delays
        taken: Rows = []
        expiries: list[int] = []
        bytes_left = RECEIVE_BYTES_MAX
        while len(taken) < count and bytes_left > 0:
            rows = take(count - len(taken), bytes_left)
            if not rows:
                break
            ends = expiries_of(rows)
            if delays is None and not any(ends):
                taken += rows
                expiries += ends
                bytes_left -= sum(map(len, map(value_of, rows)))
                continue
            for at, (number, row) in enumerate(rows):
                if 0 < ends[at] <= turn.now:
                    self._state.expire(number, row, session, turn)
                elif delays is not None and (
                    delays.hidden_until(ref.path, source.sub_queue, number, Record.unpack(row).enqueued_at) > turn.now
                ):
                    for again, _ in rows[at:]:
                        source.put_back(again)
                    return taken, expiries, True
                else:
                    taken.append((number, row))
                    expiries.append(ends[at])
                    bytes_left -= len(row)
        return taken, expiries, False

    def _new_group(
        self,
        ready_queue: ReadyQueue | SessionQueue,
        home: Home,
        now: int,
        held: HeldSession | None,
    ) -> LockGroup:
        """The locks, still none, of messages that are delivered now; `held` is their session."""
        until_at = now + self._state.receivable.lock_duration_ms if held is None else held.until_at
        return LockGroup(home, ready_queue, until_at, held)

    def _deliver(
        self,
        rows: Rows,
        expiries: Sequence[int],
        group: LockGroup,
        mode: ReceiveMode,
        turn: Turn,
        by: str = "",
        believed_ms: int = 0,
        *,
        by_operator: bool = False,
    ) -> list[Delivery]:
        """Lock or remove the messages of one home and session, and build their deliveries for the client `by`.

        The receiver believes that the locks end `believed_ms` later than they do. `by_operator`: it is no client of
        the protocol, and the state says where a message is, as in a peek.
        """
        if not rows:
            return []
        state = self._state
        tokens = new_lock_tokens(state.index, len(rows))
        numbers = list(map(itemgetter(0), rows))
        turn.counts.append((state.queue_id, Counted.DELIVERED, group.ready_queue.sub_queue, len(numbers)))
        if turn.events is not None:
            if mode is ReceiveMode.PEEK_LOCK:
                turn.note(EventKind.LOCKED, state.ref, numbers, by=by, until_at=group.until_at)
            else:
                turn.note(EventKind.RECEIVED, state.ref, numbers, by=by)
        sizes = list(map(len, map(value_of, rows)))
        # Of a message that the receiver asked for by its number.
        is_ready = group.home is group.ready_queue.home
        message_state = (0 if by_operator else None) if is_ready else STATES[group.home]
        if mode is ReceiveMode.PEEK_LOCK:
            state.locks.add(group, tokens, numbers, sizes, expiries)
            shown_end = (group.own_until_at if group.session_lock is None else GREATEST_MS) + believed_ms
        else:
            shown_end = None
            turn.count(state.queue_id, Counted.RECEIVED_AND_DELETED, len(numbers), group.ready_queue.sub_queue)
            state.remove(group.home, numbers, sizes, expiries, group.session, turn)
        encoder = DeliveryEncoder(
            locked_until_at=shown_end,
            state=message_state,
            partition_id=state.partition_id,
            with_lock_token=shown_end is not None,
            deleted=shown_end is None,
            with_origins=self._of_subscription,
        )
        payloads = encoder.encode_rows(rows, tokens)
        return list(map(new_delivery, zip(tokens, payloads, numbers, strict=True)))

    def _encoder(
        self,
        state: int | None,
        locked_until_at: int | None = None,
    ) -> DeliveryEncoder:
        """The encoder of a peek for messages in `state`; locks end at `locked_until_at` (Unix ms) if they have any."""
        return DeliveryEncoder(
            locked_until_at=locked_until_at,
            state=state,
            partition_id=self._state.partition_id,
            with_lock_token=False,
            with_origins=self._of_subscription,
        )

    def _runs(self, homes: Sequence[Home], first: int, count: int, view: Reader) -> Iterator[tuple[Home, Rows]]:
        """Yield the rows of homes from a number on in order of the numbers, a run of one home at a time.

        `count` is how many are wanted.
        """
        sources = {
            home: self._home_chunks(home, max(0, first), view, min(SCAN_ROWS_MAX, count))
            for home in homes
            if self._state.counters.messages[home]
        }
        chunks = {home: chunk for home, source in sources.items() if (chunk := next(source, []))}
        while chunks:
            home = min(chunks, key=lambda each: chunks[each][0][0])
            chunk = chunks.pop(home)
            ends = [(other[0][0],) for other in chunks.values()]
            stop = bisect_left(chunk, min(ends)) if ends else len(chunk)
            yield home, chunk[:stop]
            chunk = chunk[stop:] or next(sources[home], [])
            if chunk:
                chunks[home] = chunk

    def _homes(self, request: Peek) -> tuple[Home, ...]:
        """Where the messages are that a peek shows."""
        if request.deferred_only:
            return (self._state.ready_queues[request.sub_queue].deferred_home,)
        return PEEK_HOMES[request.sub_queue]

    def _rows_of(self, home: Home, numbers: Sequence[int], view: Reader) -> Iterator[Row]:
        """Yield those of these messages that are in `home`, each once."""
        for number in dict.fromkeys(numbers):
            row = view.get(MESSAGES, message_key(self._state.queue_id, home, number))
            if row is not None:
                yield number, row

    def _home_rows(self, home: Home, first: int, view: Reader, at_once: int = SCAN_ROWS_MAX) -> Iterator[Row]:
        return chain.from_iterable(self._home_chunks(home, first, view, at_once))

    def _home_chunks(self, home: Home, first: int, view: Reader, at_once: int) -> Iterator[Rows]:
        """Yield the rows of a home from a number on, at most `at_once` at a time."""
        queue_id = self._state.queue_id
        stop = message_key(queue_id, home + 1, 0)
        # A page of large messages must not fill the memory: read only a few at once.
        limit = max(1, min(at_once, RECEIVE_BYTES_MAX // max(1, self._state.average_bytes())))
        while rows := view.scan(MESSAGES, message_key(queue_id, home, first), stop, limit):
            chunk = [(int.from_bytes(key[-8:], "big"), row) for key, row in rows]
            first = chunk[-1][0] + 1
            yield chunk
            if len(rows) < limit:
                return

    def _leave_session(self, row: bytes, view: Reader) -> int:
        """Note that a message leaves its session; return the session's number, 0 without session."""
        assert self._sessions is not None
        name = parse_stored(Record.unpack(row).stored).session_id
        if name is None:
            return 0
        self._sessions.message_removed(name)
        return self._sessions.number_of(name, view)


def _shown_end(group: LockGroup) -> int:
    """The end of locks as clients see it (Unix ms)."""
    return group.until_at if group.session_lock is None else GREATEST_MS


def _is_of(row: bytes, identity: str) -> bool:
    """Whether a message is of the session with this folded name."""
    # A peek reads every row: most of other sessions are known by their bytes, at a tenth of the cost of parsing.
    if identity.isascii() and identity.encode() not in row.lower():
        return False
    session_id = parse_stored(Record.unpack(row).stored).session_id
    return session_id is not None and folded(session_id) == identity
