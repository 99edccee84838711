"""A queue while the broker runs: its partitions, their dispatchers, and what senders and consumers do to them.

Knows which partition lives in which messaging store and who waits for messages. Refuses to decide about messages
(`partition.py`) and to know links (`amqp/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import TypeVar

from . import sentences
from .address import SubQueue
from .commands import Command, Delivery, Done, Peek, ReceiveMode, Renew, Send, Settle, TakeDeferred
from .description import EntityStatus, QueueDescription
from .dispatcher import Demand, Dispatcher
from .errors import BrokerError, Condition
from .ids import partition_index_of
from .message import Message, parse_message, split_batch
from .outcomes import Outcome
from .records import HOMES, PARTITION_SHIFT, SEQUENCE_NUMBER_MAX
from .router import Router
from .worker import Worker

SEND_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
RECEIVE_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})
T = TypeVar("T")

BATCH_MESSAGES_MAX = 4500  # in one envelope; what the service allows per batch


class QueuePartition:
    """Where partition `index` of `queue` lives; the worker's view of it (`worker.PartitionRef`)."""

    __slots__ = ("index", "partitioned", "queue", "queue_id", "size_bytes_max", "worker")

    def __init__(self, queue: Queue, index: int, worker: Worker) -> None:
        self.queue = queue
        self.queue_id = queue.queue_id
        self.index = index
        self.partitioned = queue.partitioned
        self.size_bytes_max = queue.partition_bytes_max
        self.worker = worker

    @property
    def description(self) -> QueueDescription:
        """What the queue is now."""
        return self.queue.description

    def announce(self, sub_queue: SubQueue) -> None:
        """Tell the dispatcher of `sub_queue` that this partition has messages."""
        self.queue.dispatchers[sub_queue].announce(self.index)

    def submit(self, command: Command) -> None:
        """Hand `command` to the worker of this partition's store."""
        self.worker.submit(self, command)


class Queue:
    """A queue with one partition per worker in `workers`: 1 for an unpartitioned queue, else the profile's count.

    `partition_bytes_max` is how much one partition may hold.
    """

    def __init__(
        self,
        queue_id: int,
        description: QueueDescription,
        workers: Sequence[Worker],
        partition_bytes_max: int,
    ) -> None:
        self.queue_id = queue_id
        self.description = description
        self.partition_bytes_max = partition_bytes_max
        self.partitioned = description.enable_partitioning
        self.partitions = [QueuePartition(self, index, worker) for index, worker in enumerate(workers)]
        self.dispatchers = {sub_queue: Dispatcher(sub_queue, len(workers), self._ask) for sub_queue in SubQueue}
        self._router = Router(len(workers))

    @property
    def path(self) -> str:
        """The entity path, as it was created."""
        return self.description.name

    def _ask(self, index: int, command: Command) -> None:
        self.partitions[index].submit(command)

    # ---- verbs

    def send(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery; see `broker.Sender.send`."""
        try:
            messages = self._parse(data, batch=batch)
            index = self._router.route(messages, duplicate_detection=self.description.requires_duplicate_detection)
        except BrokerError as error:
            done(error)
            return
        self.partitions[index].submit(Send(messages, done))

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """End the lock `token`; a token that was never given out here is answered as a lost lock."""
        index = partition_index_of(token)
        if index < len(self.partitions):
            self.partitions[index].submit(Settle(token, outcome, done))
        elif done is not None:
            done(sentences.lock_lost())

    async def renew(self, tokens: Sequence[bytes]) -> list[int]:
        """Renew the locks `tokens`: their new ends (Unix ms) in the same order, or BrokerError(message-lock-lost)."""
        groups = self._by_partition((partition_index_of(token), token) for token in tokens)
        ends: dict[bytes, int] = {}
        for index, group in groups.items():
            answer: list[int] = await self._request(index, partial(Renew, group))
            ends.update(zip(group, answer, strict=True))
        return [ends[token] for token in tokens]

    async def peek(self, sub_queue: SubQueue, first: int, count: int, bytes_max: int) -> list[bytes]:
        """Encoded messages from sequence number `first` on, partition after partition (P23)."""
        index = max(0, first) >> PARTITION_SHIFT if self.partitioned else 0
        found: list[bytes] = []
        while index < len(self.partitions) and len(found) < count and bytes_max > 0:
            ask = partial(Peek, sub_queue, first, count - len(found), bytes_max)
            rows: list[tuple[int, bytes]] = await self._request(index, ask)
            if rows and found and bytes_max < len(rows[0][1]):
                break
            found.extend(payload for _, payload in rows)
            bytes_max -= sum(len(payload) for _, payload in rows)
            index += 1
            first = index << PARTITION_SHIFT
        return found

    async def take_deferred(self, sub_queue: SubQueue, numbers: Sequence[int], mode: ReceiveMode) -> list[Delivery]:
        """The deferred messages with these sequence numbers; BrokerError(message-not-found) if any is missing."""
        groups = self._by_partition((self._index_of_number(number), number) for number in numbers)
        deliveries: list[Delivery] = []
        for index, group in groups.items():
            taken: list[Delivery] = await self._request(index, partial(TakeDeferred, sub_queue, group, mode))
            deliveries += taken
        order = {number: place for place, number in enumerate(numbers)}
        return sorted(deliveries, key=lambda delivery: order[delivery.sequence_number])

    # ---- what is in it

    def message_counts(self) -> list[int]:
        """Messages per home (see `records.Home`), over the partitions that were used since the start."""
        totals = [0] * len(HOMES)
        for place in self.partitions:
            partition = place.worker.partition(self.queue_id)
            if partition is not None:
                totals = [a + b for a, b in zip(totals, partition.counters.messages, strict=True)]
        return totals

    def describe(self, description: QueueDescription) -> None:
        """Follow a changed description (the partitioning can't change, P1)."""
        self.description = description
        for place in self.partitions:
            place.worker.describe(self.queue_id, description)

    # ---- helpers

    def _parse(self, data: bytes, *, batch: bool) -> list[Message]:
        description = self.description
        if description.status in SEND_REFUSED:
            raise sentences.disabled(self.path, description.status.value)
        if not batch:
            messages = [parse_message(data)]
        else:
            encoded = split_batch(data)
            if len(encoded) > BATCH_MESSAGES_MAX:
                raise BrokerError(
                    Condition.MESSAGE_SIZE_EXCEEDED,
                    f"The batch holds {len(encoded)} messages; at most {BATCH_MESSAGES_MAX} are allowed.",
                )
            messages = [parse_message(each) for each in encoded]
        if description.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise sentences.session_id_missing()
        return messages

    def _index_of_number(self, number: int) -> int:
        if not 0 <= number <= SEQUENCE_NUMBER_MAX:
            raise sentences.deferred_not_found()
        return number >> PARTITION_SHIFT if self.partitioned else 0

    def _by_partition(self, pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
        groups: dict[int, list[T]] = {}
        for index, item in pairs:
            groups.setdefault(index, []).append(item)
        return groups

    async def _request(self, index: int, make: Callable[[Callable[[T | BrokerError], None]], Command]) -> T:
        """Submit a command that replies, and wait for its answer."""
        if index >= len(self.partitions):
            raise sentences.lock_lost()
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def reply(result: T | BrokerError) -> None:
            if answer.cancelled():
                return
            if isinstance(result, BrokerError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.partitions[index].submit(make(reply))
        return await answer


class Sender:
    """A link's way into a queue."""

    def __init__(self, queue: Queue, message_bytes_max: int, batch_bytes_max: int) -> None:
        self._queue = queue
        self.entity_path = queue.path
        self.message_bytes_max = message_bytes_max
        self.batch_bytes_max = batch_bytes_max

    def send(self, data: bytes, *, batch: bool, done: Done) -> None:
        """Store one delivery: `data` is the whole payload, an envelope of messages when `batch`.

        `done(None)` comes after the commit; `done(BrokerError)` says why nothing was stored.
        """
        size_bytes_max = self.batch_bytes_max if batch else self.message_bytes_max
        if len(data) > size_bytes_max:
            done(sentences.too_large(len(data), size_bytes_max))
            return
        self._queue.send(data, batch=batch, done=done)

    def close(self) -> None:
        """The link is gone; what it sent is still stored."""


class Consumer:
    """A link's way out of a sub-queue of a queue."""

    def __init__(
        self,
        queue: Queue,
        sub_queue: SubQueue,
        mode: ReceiveMode,
        deliver: Callable[[Sequence[Delivery]], None],
    ) -> None:
        self.entity_path = queue.path
        self._queue = queue
        self._dispatcher = queue.dispatchers[sub_queue]
        self._demand = Demand(mode, deliver)

    def set_credit(self, count: int) -> None:
        """From now on at most `count` more messages may be handed over (absolute, not added)."""
        self._dispatcher.set_demand(self._demand, count)

    def drain(self, drained: Callable[[], None]) -> None:
        """Hand over what is available within the credit, then call `drained()`; the credit is 0 then."""
        self._dispatcher.drain(self._demand, drained)

    def settle(self, token: bytes, outcome: Outcome, done: Done | None) -> None:
        """End the lock `token` with `outcome`; `done` hears of it after the commit."""
        self._queue.settle(token, outcome, done)

    def close(self) -> None:
        """The link is gone. Locks stay until they expire [wire 5.8]."""
        self._dispatcher.close(self._demand)
