"""One partition of an entity: a pure state machine that decides everything about the partition's messages (R2).

A handler executes one request: it changes memory, and adds rows for the store and effects for callers to the batch's
`Turn`. It reads stored rows only through the turn's view. Does not know clocks (a turn has its instant),
sockets, other stores, and how a batch is committed. Owned by the `Worker` of its messaging store.

**Homes.** A message is in one home (`records.Home`), which is part of its row's key. Besides the rows there are in
memory: the ready queues (windows over the available messages of ACTIVE and the two dead-letter homes; numbers of those
of a held session), the locks, the held sessions, and the counters. A locked message stays in its home; a lock is in
memory only (docs/decisions/0009).

    handlers   requests                            moves
    enqueue    Send, Schedule, StoreForwarded      new -> ACTIVE, SCHEDULED, OUTBOX or DEAD_LETTER
               CancelScheduled, ProcessDue         SCHEDULED -> ACTIVE or gone; ACTIVE -> DEAD_LETTER or gone
    receive    Receive, ReceiveFromSession,        locked where it is, or gone
               ReceiveDeferred, DeleteMessages
               ClaimMessages                       ACTIVE -> DEFERRED, and of a dead-letter home; DEFERRED -> gone
    settle     Settle, ExpireLocks                 locked -> available again, DEFERRED, DEAD_LETTER or gone
    outbox     SendDeadLetters, Redirect,          DEAD_LETTER -> DEAD_LETTER_OUTBOX; an outbox -> gone, once its
               Undeliverable, DeleteForwarded      target has it, or back, or to a dead-letter home
    sessions   AcceptSession, ReleaseSession       none; the locks of a session end with it
    here       Commit, Resubmit, DeleteRows        those of the operations; to a sibling; all -> gone

docs/architecture/life-cycle.md has every move with its request; it is made by running them.

**What a batch may undo.** After each batch `keep` or `roll_back` is called, or the partition is dropped:

* rows, effects, counts and events were nowhere but in the turn;
* counters and ready queues are read again from the store, so no handler keeps an available message elsewhere;
* locks and held sessions are in no store: each change of them records what undoes it (docs/decisions/0006);
* what decides nothing stays: the last use, the partition to which the next copy without a key goes.

**Who adds a handler** keeps to this; the simulations (`tests/broker/test_partition_simulation.py`,
`tests/broker/test_namespace_simulation.py`) find most of what doesn't:

1. Exactly one effect answers a request, and `fail` does in its place; its class is in HANDLERS or SESSION_HANDLERS.
2. The view lacks what this request itself has changed: a handler that looks twice remembers it (`seen_ids`, `gone`).
3. Rows change through `state.rows`, or the counters are wrong; a ready queue changes in the same handler as the row.
4. Locks change through `Locks`, held sessions with an entry in `_undo`, or a refused batch costs others their locks.
5. Sessions that may have lost messages need `update_heads` at the end of the request.
6. What adds is known to `stores.batches` (`adds`, `written_bytes_max`), or it takes the room kept for deletions.
7. A request that nobody waits for and no row repeats is in `must_be_retried`; a run is divided by its `slice`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError
from ..message.message import Message
from ..message.stored import without_dead_letter_reason
from ..model.descriptions import TopicDescription
from .contract import Counted, EventKind, PartitionRef
from .enqueue import EnqueueHandlers
from .outbox import OutboxHandlers
from .ready_queue import Reader, WindowBudget
from .receive import ReceiveHandlers
from .records import (
    DUPLICATES,
    FORWARDED,
    HOMES,
    MESSAGES,
    SESSION_HEADS,
    SESSION_MESSAGES,
    SESSION_STATE,
    SESSIONS,
    STATE,
    STATE_KEY,
    Counters,
    Home,
    Record,
    large_bytes_of,
    message_key,
)
from .requests import (
    AcceptSession,
    CancelScheduled,
    CheckOperation,
    ClaimMessages,
    Commit,
    DeleteForwarded,
    DeleteMessages,
    DeleteRows,
    ExpireLocks,
    GetExtent,
    GetSessionState,
    ListNumbers,
    ListSessions,
    LockMessages,
    NextDeadLetter,
    Operation,
    Peek,
    ProcessDue,
    ReadOutbox,
    Receive,
    ReceiveDeferred,
    ReceiveFromSession,
    Redirect,
    ReleaseSession,
    Renew,
    RenewSession,
    Reserve,
    Resubmit,
    Schedule,
    Send,
    SendDeadLetters,
    SetSessionState,
    Settle,
    StoreForwarded,
    Transfer,
    Undeliverable,
)
from .sessions import MessageSessions
from .settle import SettleHandlers
from .state import PartitionState
from .turn import Turn

PREFIXED_TABLES = (SESSIONS, SESSION_MESSAGES, SESSION_HEADS, SESSION_STATE, DUPLICATES, FORWARDED)

Handler = Callable[..., None]
"""Takes a request and the turn that it is executed in."""


class _Handlers(dict[type, Handler]):
    """The handlers that a partition has needed, by type of request: there are thousands of partitions."""

    __slots__ = ("_find",)

    def __init__(self, find: Callable[[type], Handler]) -> None:
        self._find = find

    def __missing__(self, kind: type) -> Handler:
        handler = self[kind] = self._find(kind)
        return handler


class Partition:
    """The partition `ref`, loaded from `view` (the committed rows); `budget` limits its read-ahead.

    `sibling(ref, view)` opens another partition of the same store, for example of a topic's subscription.

    Invariants (`check_invariants`): those of ready queues, locks and sessions; no ready queue contains a locked number;
    the counters match the stored rows; a topic's total is the sum of its partitions' counters.
    """

    def __init__(
        self,
        ref: PartitionRef,
        view: Reader,
        budget: WindowBudget,
        sibling: Callable[[PartitionRef, Reader], Partition],
    ) -> None:
        self.state = PartitionState(ref, view, budget)
        self._sibling = sibling
        description = ref.description
        with_sessions = not isinstance(description, TopicDescription) and description.requires_session
        self.has_sessions = with_sessions
        self._settle = SettleHandlers(self.state, with_sessions)
        self._sessions = MessageSessions(self.state, self._settle) if with_sessions else None
        self._receive = ReceiveHandlers(self.state, self._sessions)
        self.enqueue = EnqueueHandlers(self.state, self._sessions, lambda other, at: sibling(other, at).enqueue)
        self._outbox = OutboxHandlers(self.state, self.enqueue)
        self.handlers: Mapping[type, Handler] = _Handlers(self._handler)
        """By type of request: each executes one, updates memory, and adds changes and effects to the turn. At the end
        of the batch the worker calls `keep` or `roll_back`."""

    # ---- the worker's interface

    def keep(self) -> None:
        """Keep the changes of the batch: it is committed, or had nothing to store."""
        self.state.locks.undo.clear()
        if self._sessions is not None:
            self._sessions.keep()

    def roll_back(self, view: Reader) -> None:
        """Undo the batch: reload ready queues and counters from `view` (the committed rows), restore the locks."""
        self.state.roll_back(view)
        if self._sessions is not None:
            self._sessions.roll_back()

    @property
    def counters(self) -> Counters:
        return self.state.counters

    def next_lock_end(self) -> int | None:
        """When the earliest lock of a message or a session ends (Unix ms), None without locks."""
        first = next(iter(self.state.locks.timed.values()), None)
        session_end = None if self._sessions is None else self._sessions.next_end()
        if first is None:
            return session_end
        return first.own_until_at if session_end is None else min(first.own_until_at, session_end)

    def locked_count(self) -> int:
        return len(self.state.locks)

    def is_held(self, session_id: str) -> bool:
        """Whether a receiver holds this message session."""
        return self._sessions is not None and self._sessions.is_held(session_id)

    def session_ends(self) -> dict[str, int]:
        """The ends of session locks (Unix ms), by session."""
        return {} if self._sessions is None else self._sessions.ends()

    def session_holders(self) -> dict[str, str]:
        return {} if self._sessions is None else self._sessions.holders()

    def close(self) -> None:
        """Release the memory of the partition; do not use the object afterwards."""
        for ready_queue in self.state.ready_queues.values():
            ready_queue.close()
        self.state.rows.leave_topic()

    def lose_sessions(self) -> None:
        """Report a lost lock to the receiver of each held session, because the broker drops this partition's memory."""
        if self._sessions is not None:
            self._sessions.lose_all()

    def announce_held(self) -> None:
        """Announce possible messages to the receiver of each held session."""
        if self._sessions is not None:
            self._sessions.announce_held()

    def description_changed(self) -> None:
        """Adapt to a changed description; locks keep their ends, and dead letters may have another way to go."""
        self.state.locks.sort()
        if self.counters.messages[Home.DEAD_LETTER]:
            self.state.ready_queues[SubQueue.DEAD_LETTER].read_again()

    def check_invariants(self, view: Reader) -> None:
        """Assert the class's invariants against `view` (the committed rows)."""
        state = self.state
        state.locks.check_invariants()
        for ready_queue in state.ready_queues.values():
            ready_queue.check_invariants()
        if self._sessions is not None:
            self._sessions.check_invariants()
        sizes: list[int] = []
        for home in HOMES:
            start, stop = message_key(state.queue_id, home, 0), message_key(state.queue_id, home + 1, 0)
            rows = view.scan(MESSAGES, start, stop, 1 << 30)
            assert len(rows) == self.counters.messages[home], (home, len(rows), self.counters.messages)
            sizes += (len(row) for _, row in rows)
        states = view.scan(SESSION_STATE, STATE_KEY.pack(state.queue_id), STATE_KEY.pack(state.queue_id + 1), 1 << 30)
        assert sum(sizes) == self.counters.bytes_used
        assert large_bytes_of(sizes) == self.counters.large_bytes
        assert sum(len(row) for _, row in states) == self.counters.state_bytes
        total = state.rows.total
        if state.ref.routing is not None and total is not None and total.bytes_used is not None:
            known = total.bytes_used
            total.set_bytes(None)
            assert known == state.bytes_used(view)

    def _handler(self, kind: type) -> Handler:
        if kind in SESSION_HANDLERS and self._sessions is not None:
            return SESSION_HANDLERS[kind](self._sessions)
        return HANDLERS[kind](self)

    # ---- requests that need several handlers

    def _expire_locks(self, request: ExpireLocks, turn: Turn) -> None:
        self._settle.expire_locks(request, turn)
        if self._sessions is not None:
            self._sessions.expire(turn)

    def _resubmit(self, request: Resubmit, turn: Turn) -> None:
        target = self if request.target.queue_id == self.state.queue_id else self._sibling(request.target, turn.view)
        answer: dict[int, BrokerError | None] = {}
        accepted: list[Message] = []
        moved: list[int] = []
        seen_ids: set[int] = set()
        for number in dict.fromkeys(request.numbers):
            found = self._receive.dead_lettered(number, turn.view)
            if isinstance(found, BrokerError):
                answer[number] = found
                continue
            message = without_dead_letter_reason(found.message)
            if target.enqueue.would_be_dropped(message, turn, seen_ids):
                answer[number] = service_errors.would_be_dropped(number, message.message_id or "")
                continue
            answer[number] = target.enqueue.refusal([*accepted, message], turn)
            if answer[number] is None:
                accepted.append(message)
                moved.append(number)
                self._receive.remove_dead_letter(found, turn)
        if accepted:
            self.state.mark_used(turn.now)
            numbers = target.enqueue.store_all(accepted, turn, counted=Counted.RESUBMITTED)
            for number, new in zip(moved, numbers, strict=True):
                source = self.state.queue_id, number
                turn.note(EventKind.RESUBMITTED, target.state.ref, [new], source=source)
        turn.effects.append((request.reply, answer))

    def _commit(self, request: Commit, turn: Turn) -> None:
        """Commit a transaction: check all operations first, then execute them (P29)."""
        by_partition: dict[int, tuple[Partition, list[Operation]]] = {}
        for ref, operation in request.operations:
            partition = self if ref.queue_id == self.state.queue_id else self._sibling(ref, turn.view)
            by_partition.setdefault(ref.queue_id, (partition, []))[1].append(operation)
        for partition, operations in by_partition.values():
            error = partition.commit_refusal(operations, turn)
            if error is not None:
                turn.effects.append((request.reply, error))
                return
        for partition, operations in by_partition.values():
            partition.commit(operations, turn)
        turn.effects.append((request.reply, None))

    def _check_operation(self, request: CheckOperation, turn: Turn) -> None:
        turn.effects.append((request.reply, self.commit_refusal([request.operation], turn)))

    def commit(self, operations: Sequence[Operation], turn: Turn) -> None:
        """Execute operations that passed `commit_refusal`."""
        sent = [message for each in operations if isinstance(each, Send) for message in each.messages]
        seen_ids: set[int] = set()  # shared, so that operations detect duplicates among each other
        self.enqueue.store_all(sent, turn, seen_ids)
        for operation in operations:
            match operation:
                case Schedule():
                    self.enqueue.store_scheduled(operation.messages, turn, operation.numbers, seen_ids)
                case Transfer():
                    self._outbox.transfer(operation, turn)
                case Settle():
                    locks = [self.state.locks.by_token[token] for token in operation.tokens]
                    self._settle.end(locks, operation.outcome, turn)
                case CancelScheduled():
                    removed = self.enqueue.remove_scheduled(operation.numbers, turn)
                    turn.count(self.state.queue_id, Counted.CANCELED, len(removed))
                    turn.note(EventKind.CANCELED, self.state.ref, operation.numbers)
                case SetSessionState():
                    assert self._sessions is not None
                    self._sessions.store_state(operation.session_id, operation.state, turn)
                case Send():
                    pass

    def commit_refusal(self, operations: Sequence[Operation], turn: Turn) -> BrokerError | None:
        """The error if these operations can't all be executed now, else None."""
        messages: list[Message] = []
        for operation in operations:
            error: BrokerError | None = None
            match operation:
                case Send() | Schedule():
                    messages += operation.messages
                case Transfer():
                    if operation.number is None:  # otherwise the other partition has checked its size
                        messages.append(operation.message)
                case Settle():
                    error = self.settle_refusal(operation, turn.now)
                case CancelScheduled():
                    error = self.enqueue.cancel_refusal(operation.numbers, turn.view)
                case SetSessionState():
                    assert self._sessions is not None
                    error = self._sessions.state_refusal(operation.session_id, turn.now)
            if error is not None:
                return error
        return self.enqueue.refusal(messages, turn) if messages else None

    def settle_refusal(self, operation: Settle, now: int) -> BrokerError | None:
        """The error if the lock can't end with this outcome now, else None."""
        return self._settle.refusal(operation, now)

    def _delete_rows(self, request: DeleteRows, turn: Turn) -> None:
        state = self.state
        queue_id = state.queue_id
        rows = turn.view.scan(MESSAGES, message_key(queue_id, 0, 0), message_key(queue_id + 1, 0, 0), request.limit)
        for key, row in rows:
            number = int.from_bytes(key[-8:], "big")
            state.rows.remove(Home(key[4]), (number,), (len(row),), turn, (Record.unpack(row).expires_at,))
        remaining = request.limit - len(rows)
        for table in PREFIXED_TABLES:
            if remaining <= 0:
                break
            others = turn.view.scan(table, STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1), remaining)
            turn.changes.extend((table, key, None) for key, _ in others)
            if table == SESSION_STATE:
                state.rows.add_state_bytes(-sum(len(each) for _, each in others), turn)
            remaining -= len(others)
        if remaining > 0:
            turn.changes.append((STATE, STATE_KEY.pack(queue_id), None))
            turn.touched.pop(queue_id, None)
        turn.effects.append((request.reply, remaining <= 0))


HANDLERS: Final[dict[type, Callable[[Partition], Handler]]] = {
    Send: lambda partition: partition.enqueue.send,
    Schedule: lambda partition: partition.enqueue.schedule,
    Reserve: lambda partition: partition.enqueue.reserve,
    CancelScheduled: lambda partition: partition.enqueue.cancel,
    StoreForwarded: lambda partition: partition._outbox.store_forwarded,
    ProcessDue: lambda partition: partition.enqueue.process_due,
    ReadOutbox: lambda partition: partition._outbox.read,
    DeleteForwarded: lambda partition: partition._outbox.delivered,
    Redirect: lambda partition: partition._outbox.redirect,
    NextDeadLetter: lambda partition: partition._outbox.next_dead_letter,
    SendDeadLetters: lambda partition: partition._outbox.send_dead_letters,
    Undeliverable: lambda partition: partition._outbox.undeliverable,
    Receive: lambda partition: partition._receive.receive,
    ReceiveFromSession: lambda partition: partition._receive.receive_from_session,
    ReceiveDeferred: lambda partition: partition._receive.receive_deferred,
    LockMessages: lambda partition: partition._receive.lock_by_numbers,
    ClaimMessages: lambda partition: partition._receive.claim,
    Peek: lambda partition: partition._receive.peek,
    ListNumbers: lambda partition: partition._receive.list_numbers,
    GetExtent: lambda partition: partition._receive.get_extent,
    DeleteMessages: lambda partition: partition._receive.delete,
    Settle: lambda partition: partition._settle.settle,
    Renew: lambda partition: partition._settle.renew,
    ExpireLocks: lambda partition: partition._expire_locks,
    Resubmit: lambda partition: partition._resubmit,
    Commit: lambda partition: partition._commit,
    CheckOperation: lambda partition: partition._check_operation,
    DeleteRows: lambda partition: partition._delete_rows,
}
"""What a request is handled by, in every partition."""
SESSION_HANDLERS: Final[dict[type, Callable[[MessageSessions], Handler]]] = {
    AcceptSession: lambda sessions: sessions.accept,
    ReleaseSession: lambda sessions: sessions.release,
    RenewSession: lambda sessions: sessions.renew,
    SetSessionState: lambda sessions: sessions.set_state,
    GetSessionState: lambda sessions: sessions.get_state,
    ListSessions: lambda sessions: sessions.list,
}
"""What a request is handled by where messages have sessions."""
