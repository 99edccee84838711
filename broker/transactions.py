"""Transactions: work that is collected, and committed as one command to one messaging store (P25 to P29).

Knows which operations may be in a transaction together, and what ends it: commit, rollback, its owner's
departure, time. Nothing is stored before the commit; a rollback forgets. Refuses to know the wire. Owned by the
`Broker`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from . import sentences
from .clock import Clock, Timer
from .commands import Command, Commit, Done, Reserve, Schedule, Send, Settle, Transfer
from .description import QueueDescription
from .entity import Entity, EntityPartition
from .errors import BrokerError, Condition, UnknownOutcomeError
from .ids import new_lock_token, partition_index_of
from .message import Message, parse_sent, split_batch
from .outcomes import Abandon, Outcome
from .router import key_of, partition_for_key

TIMEOUT_MS = 120_000  # from the declaration [wire 8]

Operation = Send | Schedule | Settle | Transfer
FindVia = Callable[[], Entity | None]


class Transaction:
    """Collected work. `place` is the partition that commits it; `via` the entity whose outbox serves other entities.

    `find_via` is asked for that with every piece of work until there is one: JMS clients declare a transaction before
    they open any link to an entity.
    """

    def __init__(self, owner: object, find_via: FindVia, timer: Timer) -> None:
        self.owner = owner
        self.find_via = find_via
        self.via: Entity | None = None
        self.timer = timer
        self.place: EntityPartition | None = None
        self.key: str | None = None
        self.operations: list[tuple[EntityPartition, Operation]] = []
        self.tokens: set[bytes] = set()
        self.let_go: list[tuple[EntityPartition, bytes]] = []  # locks that their receivers won't settle again
        self.failure: BrokerError | None = None  # an operation was refused: nothing of the rest may be committed


class Transactions:
    """The open transactions of a broker; `operations_max` bounds each."""

    def __init__(self, clock: Clock, operations_max: int) -> None:
        self._clock = clock
        self._operations_max = operations_max
        self._open: dict[bytes, Transaction] = {}

    def declare(self, owner: object, via: FindVia = lambda: None) -> bytes:
        """Begin a transaction that ends with `owner` at the latest; its id (16 bytes).

        `via()` is the entity through which messages for others leave, or None as long as there is none.
        """
        transaction_id = new_lock_token(0)
        timer = self._clock.call_at(self._clock.now_ms() + TIMEOUT_MS, lambda: self._roll_back(transaction_id))
        self._open[transaction_id] = Transaction(owner, via, timer)
        return transaction_id

    def discharge(self, transaction_id: bytes, *, fail: bool, done: Done) -> None:
        """End a transaction; `done(None)` when its work is durable, or forgotten if `fail`."""
        transaction = self._open.get(transaction_id)
        if transaction is None:
            done(_unknown(transaction_id))
            return
        gone = next((place.entity.gone for place, _ in transaction.operations if place.entity.gone is not None), None)
        failure = transaction.failure or gone
        if fail or failure is not None:
            self._roll_back(transaction_id)
            done(None if fail else _rolled_back(failure))
            return
        self._forget(transaction_id)
        if not transaction.operations:
            done(None)
            return

        def committed(error: BrokerError | None) -> None:
            if error is not None:
                _abandon(transaction.let_go)
            done(_rolled_back(error))

        transaction.operations[0][0].submit(Commit(transaction.operations, committed))

    def leave(self, owner: object) -> None:
        """The owner is gone: roll back everything that it left open."""
        for transaction_id in [key for key, each in self._open.items() if each.owner is owner]:
            self._roll_back(transaction_id)

    def close(self) -> None:
        """Roll back everything."""
        for transaction_id in list(self._open):
            self._roll_back(transaction_id)

    def open_count(self) -> int:
        """How many transactions are open."""
        return len(self._open)

    # ---- work

    @contextmanager
    def working(self, transaction_id: bytes) -> Iterator[Transaction]:
        """Add work to a transaction. What is refused dooms it: some clients don't look at the answer [wire 8]."""
        transaction = self._find(transaction_id)
        try:
            yield transaction
        except BrokerError as error:
            transaction.failure = transaction.failure or error
            raise

    def send(self, transaction_id: bytes, entity: Entity, data: bytes, *, batch: bool) -> None:
        """Add a send; BrokerError if it can't be part of the transaction."""
        with self.working(transaction_id) as transaction:
            messages = entity.parse(data, batch=batch)
            if transaction.via is not None and not _same_top_level(transaction.via, entity):
                for message in messages:
                    self._transfer(transaction, message, entity.path)
            else:
                place = self._place_for(transaction, entity, messages)
                self._add(transaction, place, Send(messages, _ignore))

    async def schedule(self, transaction_id: bytes, entity: Entity, messages: Sequence[Message]) -> list[int]:
        """Add messages to be scheduled; the sequence numbers that they will have."""
        with self.working(transaction_id) as transaction:
            place = self._place_for(transaction, entity, messages)
            numbers: list[int] = await place.request(partial(Reserve, len(messages)))
            self._add(self._find(transaction_id), place, Schedule(messages, _ignore, numbers))
        return numbers

    def settle(
        self, transaction_id: bytes, entity: Entity, token: bytes, outcome: Outcome, *, settled: bool = False
    ) -> None:
        """Add a settlement; BrokerError if the lock is lost or the message is of another partition.

        A rollback leaves the message locked, for its receiver to settle it again [wire 8]. But if that has `settled` it
        at once, as JMS clients do, nobody can: the message is abandoned [AMQP 4.4.2].
        """
        with self.working(transaction_id) as transaction:
            place = self._add_settlement(transaction, entity, token, outcome)
            if settled:
                transaction.let_go.append((place, token))

    def _add_settlement(
        self, transaction: Transaction, entity: Entity, token: bytes, outcome: Outcome
    ) -> EntityPartition:
        if transaction.via is not None and not _same_top_level(transaction.via, entity):
            raise _spans()
        index = partition_index_of(token)
        if index >= len(entity.partitions) or token in transaction.tokens:
            raise sentences.lock_lost()
        place = entity.partitions[index]
        operation = Settle(token, outcome, None)
        partition = place.worker.partition(entity.queue_id)
        error = (
            sentences.lock_lost() if partition is None else partition.settle_refusal(operation, self._clock.now_ms())
        )
        if error is not None:
            raise error
        self._bind(transaction, place)
        self._add(transaction, place, operation)
        transaction.tokens.add(token)
        return place

    def transfer(
        self,
        transaction_id: bytes | None,
        via: Entity,
        data: bytes,
        destination: str,
        done: Done,
        *,
        batch: bool = False,
    ) -> None:
        """Send a delivery through `via` to `destination`, as part of a transaction or (with None) by itself."""
        try:
            messages = [parse_sent(each) for each in (split_batch(data) if batch else [data])]
            if transaction_id is None:
                place = via.partitions[via.route(messages)[0]]
                operations: list[tuple[EntityPartition, Operation]] = [
                    (place, Transfer(message, destination)) for message in messages
                ]
                command: Command = Commit(operations, done)
                place.submit(command)
                return
            with self.working(transaction_id) as transaction:
                transaction.via = transaction.via or via
                if not _same_top_level(transaction.via, via):
                    raise _spans()
                for message in messages:
                    self._transfer(transaction, message, destination)
        except BrokerError as error:
            done(error)
        else:
            done(None)

    # ---- helpers

    def _find(self, transaction_id: bytes) -> Transaction:
        transaction = self._open.get(transaction_id)
        if transaction is None:
            raise _unknown(transaction_id)
        transaction.via = transaction.via or transaction.find_via()
        return transaction

    def _forget(self, transaction_id: bytes) -> None:
        transaction = self._open.pop(transaction_id, None)
        if transaction is not None:
            transaction.timer.cancel()

    def _roll_back(self, transaction_id: bytes) -> None:
        transaction = self._open.get(transaction_id)
        self._forget(transaction_id)
        if transaction is not None:
            _abandon(transaction.let_go)

    def _add(self, transaction: Transaction, place: EntityPartition, operation: Operation) -> None:
        count = len(operation.messages) if isinstance(operation, Send | Schedule) else 1
        held = sum(len(each.messages) if isinstance(each, Send | Schedule) else 1 for _, each in transaction.operations)
        if held + count > self._operations_max:
            raise BrokerError(
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"A transaction holds at most {self._operations_max} messages; this one would hold {held + count}.",
            )
        transaction.operations.append((place, operation))

    def _transfer(self, transaction: Transaction, message: Message, destination: str) -> None:
        """A message for another entity leaves through the outbox of the partition that commits."""
        via = transaction.via
        assert via is not None
        place = transaction.place
        if place is None:
            key = message.via_partition_key or key_of(message, duplicate_detection=True)
            if via.partitioned and key is None:
                raise _key_needed(via)
            place = via.partitions[partition_for_key(key or "", len(via.partitions))]
            self._bind(transaction, place)
        elif not _same_top_level(place.entity, via):
            raise _spans()
        else:
            place = via.partitions[place.index]
        self._add(transaction, place, Transfer(message, destination))

    def _place_for(self, transaction: Transaction, entity: Entity, messages: Sequence[Message]) -> EntityPartition:
        """The partition that takes messages of a transaction (P26 to P28)."""
        if not entity.partitioned:
            place = entity.partitions[0]
            self._bind(transaction, place)
            return place
        description = entity.description
        needs_session = isinstance(description, QueueDescription) and description.requires_session
        for message in messages:
            if needs_session and message.session_id is None:
                raise sentences.session_id_missing()
            key = key_of(message, duplicate_detection=True)
            if key is None:
                raise _key_needed(entity)
            if transaction.key is not None and key != transaction.key:
                raise BrokerError(
                    Condition.NOT_ALLOWED,
                    f"All messages of a transaction on the partitioned entity '{entity.path}' must have the same "
                    f"partition key; this one has '{key}', the others '{transaction.key}'.",
                )
            transaction.key = key
        place = entity.partitions[partition_for_key(transaction.key or "", len(entity.partitions))]
        self._bind(transaction, place)
        return place

    def _bind(self, transaction: Transaction, place: EntityPartition) -> None:
        """Make sure that everything is in one partition of one top-level entity."""
        bound = transaction.place
        if bound is None:
            transaction.place = place
        elif not _same_top_level(bound.entity, place.entity):
            raise _spans()
        elif bound.worker is not place.worker or bound.index != place.index:
            raise BrokerError(
                Condition.NOT_ALLOWED, "Transactions cannot span multiple entities or partitions of an entity."
            )


def _ignore(result: object) -> None:
    """Operations of a transaction are answered together."""


def _abandon(locks: Sequence[tuple[EntityPartition, bytes]]) -> None:
    """Let others have what the receivers have let go of."""
    for place, token in locks:
        place.submit(Settle(token, Abandon(), None))


def _same_top_level(one: Entity, other: Entity) -> bool:
    return one.top_level_key == other.top_level_key


def _spans() -> BrokerError:
    return BrokerError(
        Condition.NOT_ALLOWED, "Local transactions cannot span multiple top-level entities such as queue or topic."
    )


def _key_needed(entity: Entity) -> BrokerError:
    return BrokerError(
        Condition.NOT_ALLOWED,
        f"A message sent to the partitioned entity '{entity.path}' within a transaction needs a SessionId, a "
        "PartitionKey or a MessageId.",
    )


def _unknown(transaction_id: bytes) -> BrokerError:
    return BrokerError(
        Condition.TRANSACTION_UNKNOWN_ID,
        f"The transaction '{transaction_id.hex()}' is unknown: it has ended or took more than {TIMEOUT_MS // 1000} s.",
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
