"""Transactions: operations collected and committed as one request to one messaging store (P25 to P29).

Knows which operations may share a transaction, and what ends one: commit, rollback, the end of its owner, time.
Nothing is stored before the commit. A transaction belongs to the connection that declared it; its id is unknown to
other connections. Does not know the wire. Owned by the `Broker`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from .. import service_errors
from ..address import SubQueue
from ..clock import Clock
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..ids import new_transaction_id, partition_index_of_token
from ..message.message import Message
from ..outcomes import Abandon, Outcome
from ..partition.requests import (
    CancelScheduled,
    CheckOperation,
    Commit,
    Done,
    Operation,
    Request,
    Reserve,
    Schedule,
    Send,
    SetSessionState,
    Settle,
    Transfer,
)
from .entity import Entity, PartitionHandle, parse_delivery
from .router import key_of
from .topic import TopicSubscriptions
from .transaction import FindVia, Transaction, TransactionRef

TIMEOUT_MS = 120_000  # from the declaration [wire 8]
TIMED_OUT_KEPT_MAX = 1_000
"""So many transactions whose time was over are known apart from those that were never declared."""


class Transactions:
    """The open transactions of a broker, each with at most `operations_max` messages."""

    def __init__(self, clock: Clock, operations_max: int) -> None:
        self._clock = clock
        self._operations_max = operations_max
        self._open: dict[bytes, Transaction] = {}
        self._timed_out: dict[bytes, tuple[object, object]] = {}  # connection and owner, oldest first
        self._count_of: Counter[object] = Counter()  # by connection
        self._bytes_of: Counter[object] = Counter()  # of the messages, by connection

    def declare(self, owner: object, via: FindVia = lambda: None, *, connection: object = None) -> TransactionRef:
        """Begin a transaction of `connection` that ends with `owner` at the latest; return its id (16 bytes).

        `via()` returns the entity for transfers to other entities, or None as long as it is unknown.
        """
        ref = TransactionRef(connection, new_transaction_id())
        timer = self._clock.call_at(self._clock.now_ms() + TIMEOUT_MS, lambda: self._time_out(ref, owner))
        self._open[ref.id] = Transaction(ref, owner, via, timer)
        self._count_of[connection] += 1
        return ref

    def discharge(self, ref: TransactionRef, *, fail: bool, done: Done) -> None:
        """End a transaction: commit it, or roll back if `fail`. `done(None)` comes when the outcome is durable."""
        try:
            transaction = self._open_transaction(ref, is_work=False)
        except BrokerError as error:
            self._timed_out.pop(ref.id, None)
            done(error)
            return
        gone = next(
            (handle.entity.gone for handle, _ in transaction.operations if handle.entity.gone is not None), None
        )
        failure = transaction.failure or gone
        if fail or failure is not None:
            self._roll_back(ref.id)
            done(None if fail else _rolled_back(failure))
            return
        self._forget(ref.id)
        if not transaction.operations:
            done(None)
            return

        def committed(error: BrokerError | None) -> None:
            self._free(transaction)
            if error is not None:
                _abandon(transaction.let_go)
            else:
                for call in transaction.on_commit:
                    call()
            done(_rolled_back(error))

        cancelled = transaction.cancelled
        operations = [(handle, _without_cancelled(each, cancelled)) for handle, each in transaction.operations]
        operations[0][0].submit(Commit(operations, committed))

    def leave(self, owner: object) -> None:
        """Roll back the open transactions of an owner that is gone."""
        for transaction_id in [key for key, each in self._open.items() if each.owner is owner]:
            self._roll_back(transaction_id)
        self._timed_out = {key: whose for key, whose in self._timed_out.items() if whose[1] is not owner}

    def close(self) -> None:
        """Roll back everything."""
        for transaction_id in list(self._open):
            self._roll_back(transaction_id)

    def open_count(self) -> int:
        return len(self._open)

    def open_count_of(self, connection: object) -> int:
        """Return the number of open transactions of `connection`."""
        return self._count_of[connection]

    def bytes_of(self, connection: object) -> int:
        """Return the bytes of the messages that transactions of `connection` have collected."""
        return self._bytes_of[connection]

    # ---- work

    @contextmanager
    def working(self, ref: TransactionRef) -> Iterator[Transaction]:
        """Add an operation; a refusal dooms the transaction, because some clients ignore the answer [wire 8]."""
        transaction = self._find(ref)
        try:
            yield transaction
        except BrokerError as error:
            transaction.fail(error)
            raise

    def send(self, ref: TransactionRef, entity: Entity, data: bytes, *, batch: bool) -> None:
        """Add a send. Raises BrokerError if the transaction can't contain it."""
        with self.working(ref) as transaction:
            messages = entity.parse(data, batch=batch)
            if transaction.via is not None and not _same_top_level(transaction.via, entity):
                for message in messages:
                    self._transfer(transaction, message, entity.path)
            else:
                handle = self._partition_for(transaction, entity, messages)
                self._add(transaction, handle, Send(messages))

    async def schedule(self, ref: TransactionRef, entity: Entity, messages: Sequence[Message]) -> list[int]:
        """Add scheduled messages; return the sequence numbers reserved for them."""
        with self.working(ref) as transaction:
            handle = self._partition_for(transaction, entity, messages)
            numbers: list[int] = await handle.request(partial(Reserve, len(messages)))
            self._add(self._find(ref), handle, Schedule(messages, _ignore, numbers))
        return numbers

    async def cancel(self, ref: TransactionRef, entity: Entity, numbers: Sequence[int]) -> None:
        """Add a cancellation of scheduled messages. Raises BrokerError (message-not-found) if one is missing.

        A message that this transaction has scheduled leaves the transaction.
        """
        with self.working(ref) as transaction:
            handles = {entity.partition_of_number(number) for number in numbers}
            handle = handles.pop()
            if handle is None or not transaction.cancelled.isdisjoint(numbers):
                raise service_errors.scheduled_not_found(numbers)
            if handles:
                raise service_errors.transaction_spans_partitions()
            self._bind_reachable(transaction, handle)
            own = _scheduled_by(transaction, handle)
            stored = [number for number in dict.fromkeys(numbers) if number not in own]
            if stored:
                operation = CancelScheduled(stored, _ignore)
                await handle.request(partial(CheckOperation, operation))
                transaction = self._find(ref)
                if not transaction.cancelled.isdisjoint(numbers):  # by a request during the await
                    raise service_errors.scheduled_not_found(numbers)
                self._add(transaction, handle, operation)
            transaction.cancelled.update(numbers)

    async def set_state(self, ref: TransactionRef, entity: Entity, session_id: str, state: bytes | None) -> None:
        """Add a new state of a held message session. Raises BrokerError (session-lock-lost)."""
        with self.working(ref) as transaction:
            handle = entity.partitions[entity.partition_index_of_session(session_id)]
            self._bind_reachable(transaction, handle)
            operation = SetSessionState(session_id, state, _ignore)
            await handle.request(partial(CheckOperation, operation))
            self._add(self._find(ref), handle, operation)

    def settle(
        self,
        ref: TransactionRef,
        entity: Entity,
        sub_queue: SubQueue,
        token: bytes,
        outcome: Outcome,
        *,
        settled: bool = False,
        on_commit: Callable[[], None] | None = None,
    ) -> None:
        """Add a settlement. Raises BrokerError if the lock is lost or the message is in another partition.

        A commit calls `on_commit()`. A rollback leaves the message locked, so that its receiver can settle it again
        [wire 8]. A receiver that has `settled` the delivery (JMS clients at once, others after the answer) can't: a
        rollback then abandons the message [AMQP 4.4.2].
        """
        with self.working(ref) as transaction:
            if settled and token in transaction.tokens:
                handle = entity.partitions[partition_index_of_token(token)]
            else:
                handle = self._add_settlement(transaction, entity, Settle((token,), (), outcome, None, sub_queue))
            if settled:
                transaction.let_go.append((handle, token))
            if on_commit is not None:
                transaction.on_commit.append(on_commit)

    def _add_settlement(self, transaction: Transaction, entity: Entity, operation: Settle) -> PartitionHandle:
        (token,) = operation.tokens
        index = partition_index_of_token(token)
        if index >= len(entity.partitions) or token in transaction.tokens:
            raise service_errors.lock_lost()
        handle = entity.partitions[index]
        partition = handle.worker.partition(entity.queue_id)
        error = (
            service_errors.lock_lost()
            if partition is None
            else partition.settle_refusal(operation, self._clock.now_ms())
        )
        if error is not None:
            raise error
        self._bind_reachable(transaction, handle)
        self._add(transaction, handle, operation)
        transaction.tokens.add(token)
        return handle

    def transfer(
        self,
        ref: TransactionRef | None,
        via: Entity,
        data: bytes,
        destination: str,
        done: Done,
        *,
        batch: bool = False,
    ) -> None:
        """Send a delivery through `via` to `destination`, in a transaction or (with None) by itself."""
        try:
            messages = parse_delivery(data, via.bounds, batch=batch)
            if ref is None:
                handle = via.partitions[via.route(messages)[0]]
                operations: list[tuple[PartitionHandle, Operation]] = [
                    (handle, Transfer(message, destination)) for message in messages
                ]
                request: Request = Commit(operations, done)
                handle.submit(request)
                return
            with self.working(ref) as transaction:
                transaction.via = transaction.via or via
                if not _same_top_level(transaction.via, via):
                    raise service_errors.transaction_spans_entities()
                for message in messages:
                    self._transfer(transaction, message, destination)
        except BrokerError as error:
            done(error)
        else:
            done(None)

    # ---- helpers

    def _open_transaction(self, ref: TransactionRef, *, is_work: bool) -> Transaction:
        """Return the open transaction that the connection of `ref` has declared. Raises BrokerError."""
        transaction = self._open.get(ref.id)
        if transaction is not None and transaction.ref.connection is ref.connection:
            return transaction
        connection, _ = self._timed_out.get(ref.id, (None, None))
        if connection is ref.connection and ref.id in self._timed_out:
            raise service_errors.transaction_over(ref.id, TIMEOUT_MS // 1000, is_work=is_work)
        raise service_errors.transaction_undeclared(is_work=is_work)

    def _time_out(self, ref: TransactionRef, owner: object) -> None:
        """The time of a transaction is over: roll it back, and remember it until its connection discharges it."""
        self._roll_back(ref.id)
        self._timed_out[ref.id] = (ref.connection, owner)
        if len(self._timed_out) > TIMED_OUT_KEPT_MAX:
            del self._timed_out[next(iter(self._timed_out))]

    def _find(self, ref: TransactionRef) -> Transaction:
        transaction = self._open_transaction(ref, is_work=True)
        transaction.via = transaction.via or transaction.find_via()
        return transaction

    def _forget(self, transaction_id: bytes) -> None:
        transaction = self._open.pop(transaction_id, None)
        if transaction is not None:
            transaction.timer.cancel()
            connection = transaction.ref.connection
            self._count_of[connection] -= 1
            if not self._count_of[connection]:
                del self._count_of[connection]

    def _free(self, transaction: Transaction) -> None:
        """What a transaction has collected is stored, or dropped."""
        connection = transaction.ref.connection
        self._bytes_of[connection] -= transaction.size_bytes
        if not self._bytes_of[connection]:
            del self._bytes_of[connection]

    def _roll_back(self, transaction_id: bytes) -> None:
        transaction = self._open.get(transaction_id)
        self._forget(transaction_id)
        if transaction is not None:
            self._free(transaction)
            _abandon(transaction.let_go)

    def _add(self, transaction: Transaction, handle: PartitionHandle, operation: Operation) -> None:
        count = _message_count(operation)
        if transaction.message_count + count > self._operations_max:
            raise service_errors.transaction_too_large(self._operations_max)
        size_bytes = _size_of(operation)
        transaction.add(handle, operation, count, size_bytes)
        self._bytes_of[transaction.ref.connection] += size_bytes

    def _transfer(self, transaction: Transaction, message: Message, destination: str) -> None:
        """Add a transfer to another entity, through the outbox of the committing partition."""
        via = transaction.via
        assert via is not None
        handle = transaction.handle
        if handle is None:
            key = message.via_partition_key or key_of(message, duplicate_detection=True)
            if via.partitioned and key is None:
                raise _key_needed(via)
            handle = via.partitions[via.partition_index_of_key(key or "")]
            self._bind(transaction, handle)
        elif not _same_top_level(handle.entity, via):
            raise service_errors.transaction_spans_entities()
        else:
            handle = via.partitions[handle.index]
        self._add(transaction, handle, Transfer(message, destination))

    def _partition_for(self, transaction: Transaction, entity: Entity, messages: Sequence[Message]) -> PartitionHandle:
        """Return the partition for messages of a transaction (P26 to P28)."""
        if not entity.partitioned:
            handle = entity.partitions[0]
            self._bind(transaction, handle)
            return handle
        needs_session = _is_session_aware(entity)
        for message in messages:
            if needs_session and message.session_id is None:
                raise service_errors.session_id_missing()
            key = key_of(message, duplicate_detection=True)
            if key is None:
                raise _key_needed(entity)
            if transaction.key is not None and not entity.is_same_key(key, transaction.key):
                raise BrokerError(
                    Condition.NOT_ALLOWED,
                    f"All messages of a transaction on the partitioned entity '{entity.path}' must have the same "
                    f"partition key; this one has '{key}', the others '{transaction.key}'.",
                )
            transaction.key = key
        handle = entity.partitions[entity.partition_index_of_key(transaction.key or "")]
        self._bind(transaction, handle)
        return handle

    def _bind(self, transaction: Transaction, handle: PartitionHandle) -> None:
        """Bind the transaction to one partition of one top-level entity. Raises BrokerError for another one."""
        bound = transaction.handle
        if bound is None:
            transaction.handle = handle
        elif not _same_top_level(bound.entity, handle.entity):
            raise service_errors.transaction_spans_entities()
        elif bound.worker is not handle.worker or bound.index != handle.index:
            raise service_errors.transaction_spans_partitions()

    def _bind_reachable(self, transaction: Transaction, handle: PartitionHandle) -> None:
        """Like `_bind`, for operations that can't be transferred."""
        if transaction.via is not None and not _same_top_level(transaction.via, handle.entity):
            raise service_errors.transaction_spans_entities()
        self._bind(transaction, handle)


def _message_count(operation: Operation) -> int:
    match operation:
        case Send() | Schedule():
            return len(operation.messages)
        case CancelScheduled():
            return len(operation.numbers)
        case Settle():
            return len(operation.tokens)
        case SetSessionState() | Transfer():
            return 1


def _size_of(operation: Operation) -> int:
    match operation:
        case Send() | Schedule():
            return sum(message.size_bytes for message in operation.messages)
        case Transfer():
            return operation.message.size_bytes
        case SetSessionState():
            return len(operation.state or b"")
        case CancelScheduled() | Settle():
            return 0


def _scheduled_by(transaction: Transaction, handle: PartitionHandle) -> set[int]:
    """Return the sequence numbers that the transaction has scheduled in a partition."""
    return {
        number
        for where, operation in transaction.operations
        if where is handle and isinstance(operation, Schedule)
        for number in operation.numbers
    }


def _without_cancelled(operation: Operation, cancelled: set[int]) -> Operation:
    """Return an operation without the messages that its transaction has scheduled and cancelled."""
    if not isinstance(operation, Schedule) or cancelled.isdisjoint(operation.numbers):
        return operation
    pairs = zip(operation.messages, operation.numbers, strict=True)
    left = [(message, number) for message, number in pairs if number not in cancelled]
    return Schedule([message for message, _ in left], operation.reply, [number for _, number in left])


def _is_session_aware(entity: Entity) -> bool:
    """Whether a queue, or a subscription of a topic, requires message sessions (P28)."""
    if isinstance(entity.routing, TopicSubscriptions):
        return any(each.requires_session for each in entity.routing.entities())
    return entity.requires_session


def _ignore(result: object) -> None:
    """The reply of a single operation; the commit has one reply for all."""


def _abandon(locks: Sequence[tuple[PartitionHandle, bytes]]) -> None:
    """Abandon the locks that their receivers have settled."""
    for handle, token in locks:
        handle.submit(Settle((token,), (), Abandon(), None))


def _same_top_level(one: Entity, other: Entity) -> bool:
    return one.top_level_key == other.top_level_key


def _key_needed(entity: Entity) -> BrokerError:
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"A message sent to the partitioned entity '{entity.path}' within a transaction needs a SessionId, a "
        "PartitionKey or a MessageId.",
    )


def _rolled_back(error: BrokerError | None) -> BrokerError | None:
    if error is None:
        return None
    if isinstance(error, UnknownOutcomeError):
        return UnknownOutcomeError(
            error.condition, f"Whether the transaction was committed is not known: {error.description}"
        )
    text = f"The transaction was rolled back: {error.description}"
    return BrokerError(Condition.TRANSACTION_ROLLBACK, text)
