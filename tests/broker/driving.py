"""A partition driven by hand: one batch at a time, without loop, threads or real time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from proton import Message as ProtonMessage

from emubus.broker.address import SubQueue
from emubus.broker.api import TABLES, Delivery, Outcome, ReceiveMode
from emubus.broker.errors import BrokerError
from emubus.broker.message.bounds import STANDARD_BOUNDS, MessageBounds
from emubus.broker.message.delivered import DeliveryEncoder
from emubus.broker.message.message import Message, parse_message
from emubus.broker.message.stored_form import token_uuids
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.contract import Delays, Received
from emubus.broker.partition.partition import Partition
from emubus.broker.partition.ready_queue import WindowBudget
from emubus.broker.partition.records import DUE, DUE_KEY
from emubus.broker.partition.requests import Receive, Request, Send, Settle
from emubus.broker.partition.turn import Turn
from emubus.storage import StoreError, StoreFailed
from emubus.storage.memory_store import MemoryStore

NOTHING = object()


def encoded(body: str = "x", **fields: Any) -> bytes:
    """A message as a client would encode it; `fields` are those of Proton's Message."""
    return bytes(ProtonMessage(body=body.encode(), inferred=True, **fields).encode())


def delivery_bytes(
    stored: bytes,
    *,
    sequence_number: int,
    enqueued_at: int,
    delivery_count: int,
    locked_until_at: int | None = None,
    state: int | None = None,
    partition_id: int | None = None,
    enqueue_sequence_number: int | None = None,
    dead_letter_source: str | None = None,
    lock_token: bytes | None = None,
    deleted: bool = False,
) -> bytes:
    """A stored message as a client gets it; see `DeliveryEncoder`."""
    encoder = DeliveryEncoder(
        locked_until_at=locked_until_at,
        state=state,
        partition_id=partition_id,
        with_lock_token=lock_token is not None,
        deleted=deleted,
    )
    (uuid,) = [b""] if lock_token is None else token_uuids([lock_token])
    return encoder.encode(
        stored,
        0,
        uuid,
        sequence_number,
        enqueued_at,
        delivery_count,
        enqueue_sequence_number,
        dead_letter_source,
    )


def settle_alone(
    token: bytes,
    outcome: Outcome,
    done: Callable[[BrokerError | None], None],
    sub_queue: SubQueue = SubQueue.ACTIVE,
) -> Settle:
    """A run of one settlement."""
    return Settle((token,), (0,), outcome, lambda _, error: done(error), sub_queue)


def send_whole(messages: Sequence[Message], done: Callable[[BrokerError | None], None]) -> Send:
    """A request that stores messages, all or none."""
    return Send(messages, range(len(messages)), lambda *_: None, lambda _, error: done(error), whole=True)


@dataclass
class Place:
    """A partition as the worker knows it (`PartitionRef`)."""

    description: QueueDescription
    queue_id: int = 7
    index: int = 3
    partitioned: bool = True
    size_bytes_max: int = 1 << 30
    first_counter: int = 1
    gone: None = None
    bounds: MessageBounds = STANDARD_BOUNDS
    routing: None = None
    total: None = None
    delays: Delays | None = None
    announced: list[SubQueue] = field(default_factory=list[SubQueue])
    sessions_announced: int = 0
    outbox_announced: int = 0

    @property
    def path(self) -> str:
        return self.description.name

    @property
    def name_in_errors(self) -> str:
        return f"ns:Queue:{self.path}"

    def announce(self, sub_queue: SubQueue) -> None:
        self.announced.append(sub_queue)

    def announce_session(self, argument: None) -> None:
        self.sessions_announced += 1

    def announce_outbox(self, argument: None) -> None:
        self.outbox_announced += 1


class Driver:
    """One partition over a memory store; `now` is set by the test; `refusing` makes every commit fail."""

    def __init__(self, description: QueueDescription, **place: Any) -> None:
        self.refusing = False
        self.store = MemoryStore(TABLES, self._failpoint)
        self.place = Place(description, **place)
        self.budget = WindowBudget(1 << 20)
        self.now = 1_700_000_000_000
        self.partition: Partition | None = None

    def _failpoint(self, name: str) -> None:
        if self.refusing and name == "batch-applied":
            raise StoreFailed(None, "refused by the test")

    def run(self, *requests: Request) -> None:
        """One batch: decide, commit, release the effects; after a refused commit everything in memory is dropped."""
        batch = self.store.begin(1 << 20)
        turn = Turn(self.now, batch)
        if self.partition is None:
            self.partition = Partition(self.place, batch, self.budget, self._no_sibling)
        for request in requests:
            self.partition.handlers[type(request)](request, turn)
            turn.write_to(batch)
        turn.write_counters(batch)
        try:
            batch.commit()
        except StoreError:
            self.reopen()
            for request in requests:
                request.fail(BrokerError.__new__(BrokerError))
            return
        self.partition.keep()
        for effect, argument in turn.effects:
            effect(argument)

    @staticmethod
    def _no_sibling(ref: object, view: object) -> Partition:
        raise AssertionError(f"{ref} was asked for, but a queue's partition stands alone")

    def reopen(self) -> None:
        """Forget the memory, as a restart does."""
        if self.partition is not None:
            self.partition.close()
        self.partition = None

    def check(self) -> None:
        """The partition's invariants hold against what is stored."""
        if self.partition is not None:
            with self.store.view() as view:
                self.partition.check_invariants(view)

    def due_rows(self) -> list[tuple[int, int, int]]:
        """The rows of the `due` table up to now, as the worker would read them."""
        with self.store.view() as view:
            rows = view.scan(DUE, b"", DUE_KEY.pack(self.now + 1, 0, 0, 0), 1 << 20)
        return [(at, what, number) for at, _, what, number in (DUE_KEY.unpack(key) for key, _ in rows)]

    def rows_left(self) -> dict[str, int]:
        """How many rows each table holds; `due` is left out, its rows go when they are due."""
        with self.store.view() as view:
            counts = {table: len(view.scan(table, b"", b"\xff" * 30, 1 << 20)) for table in TABLES if table != DUE}
        return {table: count for table, count in counts.items() if count}

    # ---- the usual commands, with their answers

    def send(self, *data: bytes) -> BrokerError | None:
        answers: list[BrokerError | None] = []
        self.run(send_whole([parse_message(each) for each in data], answers.append))
        (answer,) = answers
        return answer

    def take(
        self, count: int = 1, mode: ReceiveMode = ReceiveMode.PEEK_LOCK, sub_queue: SubQueue = SubQueue.ACTIVE
    ) -> list[Delivery]:
        answers: list[Received[Any]] = []
        self.run(Receive(sub_queue, count, mode, answers.append))
        (answer,) = answers
        return answer.deliveries

    def settle(self, token: bytes, outcome: Outcome) -> BrokerError | None:
        answers: list[BrokerError | None] = []
        self.run(settle_alone(token, outcome, answers.append))
        (answer,) = answers
        return answer

    def ask(self, make: Callable[..., Any], *arguments: object) -> Any:
        """Run a command that ends in a `reply` and return what it was called with."""
        answers: list[Any] = []
        self.run(make(*arguments, answers.append))
        (answer,) = answers
        return answer


def decoded(deliveries: Sequence[Delivery]) -> list[Any]:
    """The messages inside deliveries (Proton's Message), as a client would read them."""
    return [read(delivery.payload) for delivery in deliveries]


def read(payload: bytes) -> Any:
    """One encoded message as Proton's Message."""
    message = ProtonMessage()
    message.decode(payload)
    return message
