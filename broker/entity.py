"""An entity while the broker runs: its partitions, who waits for its messages, and the requests that reach them.

Knows which partition lives in which messaging store. Refuses to decide about messages (`partition.py`), to find
entities by address (`broker.py`) and to know links (`links.py`). Queues, topics and subscriptions are made of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ..storage import StoreError
from . import sentences
from .address import SubQueue
from .commands import (
    CancelScheduled,
    Clear,
    Command,
    DeleteMessages,
    Delivery,
    Done,
    Extent,
    ListSessions,
    Measure,
    Peek,
    Placed,
    ReceiveMode,
    Renew,
    Resubmit,
    Schedule,
    Send,
    Settle,
    TakeDeferred,
)
from .description import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription, entity_key
from .dispatcher import Dispatcher
from .errors import BrokerError, Condition, UnknownOutcomeError
from .ids import partition_index_of
from .message import Message, parse_sent, split_batch
from .outcomes import Complete, Outcome, Release
from .records import HOMES, PARTITION_SHIFT, SEQUENCE_NUMBER_MAX
from .router import Router
from .rows import ByteTotal
from .state import FanOut
from .worker import Worker

T = TypeVar("T")

BATCH_MESSAGES_MAX = 4500  # in one envelope; what the service allows per batch
SEND_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
RECEIVE_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})

Description = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class Totals:
    """What an entity holds: messages per home (see `records.Home`) and bytes; `is_limited` if that is not all."""

    messages: list[int]
    bytes_used: int
    is_limited: bool


class EntityPartition:
    """Where partition `index` of `entity` lives; the worker's and the partition's view of it (`state.PartitionRef`)."""

    __slots__ = ("entity", "index", "partitioned", "queue_id", "size_bytes_max", "worker")

    def __init__(self, entity: Entity, index: int, worker: Worker, size_bytes_max: int) -> None:
        self.entity = entity
        self.queue_id = entity.queue_id
        self.index = index
        self.partitioned = entity.partitioned
        self.size_bytes_max = size_bytes_max
        self.worker = worker

    @property
    def description(self) -> Description:
        """What the entity is now."""
        return self.entity.description

    @property
    def path(self) -> str:
        """The entity path."""
        return self.entity.path

    @property
    def fan_out(self) -> FanOut | None:
        """How a topic finds the subscriptions of a message."""
        return self.entity.fan_out

    @property
    def total(self) -> ByteTotal | None:
        """What a topic and its subscriptions hold in this store."""
        totals = self.entity.totals
        return totals[self.index] if totals else None

    def announce(self, sub_queue: SubQueue) -> None:
        """Tell the dispatcher of `sub_queue` that this partition has messages."""
        self.entity.dispatchers[sub_queue].announce(self.index)

    def announce_session(self, argument: None) -> None:
        """Tell those who wait for any session that this partition has one."""
        del argument
        self.entity.session_dispatcher.announce(self.index)

    def announce_outbox(self, argument: None) -> None:
        """Tell the forwarder that messages wait here to go elsewhere."""
        del argument
        self.entity.on_outbox(self)

    def submit(self, command: Command) -> None:
        """Hand `command` to the worker of this partition's store; of a deleted entity all but its clearing fails."""
        gone = self.entity.gone
        if gone is not None and type(command) is not Clear:
            asyncio.get_running_loop().call_soon(command.fail, gone)
            return
        self.worker.submit(self, command)

    async def request(self, make: Callable[[Callable[[Any], None]], Command]) -> Any:
        """Submit the command that `make(reply)` builds, and wait for what it replies; raises the BrokerError."""
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def reply(result: Any) -> None:
            if answer.done():
                return
            if isinstance(result, BrokerError):
                answer.set_exception(result)
            else:
                answer.set_result(result)

        self.submit(make(reply))
        return await answer


class Entity:
    """A queue, topic or subscription with one partition per worker: 1 if unpartitioned, else the profile's count.

    `partition_bytes_max` is how much one partition may hold; `on_outbox` is told of partitions whose outbox fills.
    """

    fan_out: FanOut | None = None
    totals: Sequence[ByteTotal] = ()  # of a topic and its subscriptions, by partition

    def __init__(
        self,
        queue_id: int,
        description: Description,
        workers: Sequence[Worker],
        partition_bytes_max: int,
        on_outbox: Callable[[EntityPartition], None],
        *,
        partitioned: bool,
    ) -> None:
        self.queue_id = queue_id
        self.description = description
        self.partitioned = partitioned
        self.on_outbox = on_outbox
        self.partitions = [
            EntityPartition(self, index, worker, partition_bytes_max) for index, worker in enumerate(workers)
        ]
        self.dispatchers = {sub_queue: Dispatcher(len(workers), self._ask) for sub_queue in SubQueue}
        self.session_dispatcher = Dispatcher(len(workers), self._ask)
        self.attached: set[Callable[[BrokerError], None]] = set()  # links to tell when the entity goes away
        self.gone: BrokerError | None = None  # it is deleted: nothing may be stored for it any more
        self._router = Router(len(workers))

    @property
    def path(self) -> str:
        """The entity path, as it was created."""
        description = self.description
        return description.path if isinstance(description, SubscriptionDescription) else description.name

    @property
    def top_level_key(self) -> str:
        """The queue or topic that it belongs to, for comparing."""
        description = self.description
        name = description.topic_name if isinstance(description, SubscriptionDescription) else description.name
        return entity_key(name)

    def _ask(self, index: int, command: Command) -> None:
        self.partitions[index].submit(command)

    # ---- sending

    def send(self, data: bytes, *, batch: bool, done: Done, placed: Placed | None = None) -> None:
        """Store one delivery; see `links.Sender.send`."""
        try:
            messages = self.parse(data, batch=batch)
            index, keyed = self.route(messages)
        except BrokerError as error:
            done(error)
            return
        place = self.partitions[index]
        if keyed or len(self.partitions) == 1:
            place.submit(Send(messages, done, placed=placed))
        else:
            place.submit(Send(messages, done, self._elsewhere(messages, done, index, placed), placed))

    def parse(self, data: bytes, *, batch: bool) -> list[Message]:
        """The messages in a delivery; BrokerError if the entity doesn't take them as they are."""
        description = self.description
        if description.status in SEND_REFUSED:
            raise sentences.disabled(self.path, description.status.value)
        if not batch:
            messages = [parse_sent(data)]
        else:
            encoded = split_batch(data)
            if len(encoded) > BATCH_MESSAGES_MAX:
                raise BrokerError(
                    Condition.MESSAGE_SIZE_EXCEEDED,
                    f"The batch holds {len(encoded)} messages; at most {BATCH_MESSAGES_MAX} are allowed.",
                )
            messages = [parse_sent(each) for each in encoded]
        if isinstance(description, QueueDescription) and description.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise sentences.session_id_missing()
        return messages

    def route(self, messages: Sequence[Message]) -> tuple[int, bool]:
        """The partition for a delivery, and whether a key chose it; BrokerError for contradicting keys (P8 to P12)."""
        description = self.description
        duplicates = not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection
        index = self._router.route_keyed(messages, duplicate_detection=duplicates)
        if index is not None:
            return index, True
        for _ in self.partitions:
            index = self._router.next()
            if self.partitions[index].worker.available:
                break
        assert index is not None
        return index, False

    def place_of_forwarded(self, message: Message, number: int) -> EntityPartition:
        """The partition for the message with sequence number `number` of an outbox; BrokerError for its keys.

        Without a key the number decides, so that it is the same at every attempt: a partition tells what comes twice by
        the highest number that it has taken, and would drop one that had been meant for another partition before.
        """
        description = self.description
        duplicates = not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection
        index = self._router.route_keyed([message], duplicate_detection=duplicates)
        return self.partitions[number % len(self.partitions) if index is None else index]

    def _elsewhere(
        self, messages: Sequence[Message], done: Done, tried: int, placed: Placed | None
    ) -> Callable[[BrokerError], None]:
        """What to do when a store fails a message without a key: the next partition takes it (P13)."""
        left = len(self.partitions) - 1

        def again(error: BrokerError) -> None:
            nonlocal left, tried
            known = error.condition is Condition.SERVER_BUSY and not isinstance(error, UnknownOutcomeError)
            if left == 0 or not known:  # what may be stored here must not be stored there, too
                done(error)
                return
            left -= 1
            tried = (tried + 1) % len(self.partitions)
            self.partitions[tried].submit(Send(messages, done, again, placed))

        return again

    async def schedule(self, messages: Sequence[Message]) -> list[int]:
        """Store messages until their scheduled times; their sequence numbers, in order.

        Those of one partition are stored all or none, and those without a key are of one.
        """
        routes = [self.route([message]) for message in messages]
        for_unkeyed = next((index for index, keyed in routes if not keyed), 0)
        places = [index if keyed else for_unkeyed for index, keyed in routes]
        numbers: dict[int, int] = {}
        for index, positions in self._by_partition(zip(places, range(len(messages)), strict=True)).items():
            group = [messages[position] for position in positions]
            numbers.update(zip(positions, await self.partitions[index].request(partial(Schedule, group)), strict=True))
        return [numbers[position] for position in range(len(messages))]

    async def cancel_scheduled(self, numbers: Sequence[int]) -> None:
        """Remove scheduled messages; BrokerError (message-not-found) if any is not there (any more)."""
        if any(self._index_of_number(number) is None for number in numbers):
            raise sentences.scheduled_not_found(numbers)
        for index, group in self._by_partition((self._index_of_number(n) or 0, n) for n in numbers).items():
            await self.partitions[index].request(partial(CancelScheduled, group))

    # ---- receiving

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
        if any(index >= len(self.partitions) for index in groups):
            raise sentences.lock_lost()
        ends: dict[bytes, int] = {}
        for index, group in groups.items():
            answer: list[int] = await self.partitions[index].request(partial(Renew, group))
            ends.update(zip(group, answer, strict=True))
        return [ends[token] for token in tokens]

    async def peek(
        self, sub_queue: SubQueue, first: int, count: int, bytes_max: int, session_id: str | None
    ) -> list[bytes]:
        """Encoded messages from sequence number `first` on, partition after partition (P23)."""
        index = max(0, first) >> PARTITION_SHIFT if self.partitioned else 0
        found: list[bytes] = []
        while index < len(self.partitions) and len(found) < count and bytes_max > 0:
            place = self.partitions[index]
            if place.worker.available:
                ask = partial(Peek, sub_queue, first, count - len(found), bytes_max, session_id)
                rows: list[tuple[int, bytes]] = await place.request(ask)
                if rows and found and bytes_max < len(rows[0][1]):
                    break
                found.extend(payload for _, payload in rows)
                bytes_max -= sum(len(payload) for _, payload in rows)
                if rows and len(found) < count and await self._has_from(place, sub_queue, rows[-1][0] + 1, session_id):
                    break  # the next one was too large: another partition's must not come before it
            index += 1
            first = index << PARTITION_SHIFT
        return found

    async def _has_from(self, place: EntityPartition, sub_queue: SubQueue, first: int, session_id: str | None) -> bool:
        """Whether a partition has a message of that number or a later one."""
        return bool(await place.request(partial(Peek, sub_queue, first, 1, 1, session_id)))

    async def take_deferred(
        self, sub_queue: SubQueue, numbers: Sequence[int], mode: ReceiveMode, session_id: str | None
    ) -> list[Delivery]:
        """The deferred messages with these sequence numbers; BrokerError(message-not-found) if any is missing."""
        if any(self._index_of_number(number) is None for number in numbers):
            raise sentences.deferred_not_found()
        groups = self._by_partition((self._index_of_number(n) or 0, n) for n in numbers)
        deliveries: list[Delivery] = []
        # All partitions or none: until the last has answered, nothing that cannot be taken back.
        mode_of_each = mode if len(groups) == 1 else ReceiveMode.PEEK_LOCK
        try:
            for index, group in groups.items():
                ask = partial(TakeDeferred, sub_queue, group, mode_of_each, session_id)
                deliveries += await self.partitions[index].request(ask)
        except BrokerError:
            for delivery in deliveries:
                self.settle(delivery.token, Release(), None)
            raise
        if mode is not mode_of_each:
            for delivery in deliveries:
                self.settle(delivery.token, Complete(), None)
        order = {number: position for position, number in enumerate(numbers)}
        return sorted(deliveries, key=lambda delivery: order[delivery.sequence_number])

    async def delete_messages(self, sub_queue: SubQueue, count: int, before_at: int, session_id: str | None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); how many it were."""
        if self.partitioned:
            raise BrokerError(
                Condition.NOT_ALLOWED, f"Messages can't be deleted in batches from '{self.path}': it is partitioned."
            )
        ask = partial(DeleteMessages, sub_queue, count, before_at, session_id)
        return int(await self.partitions[0].request(ask))

    async def extents(self, sub_queue: SubQueue) -> list[Extent | None]:
        """What each partition has of a sub-queue; None for those that can't be reached."""
        return [
            await place.request(partial(Measure, sub_queue)) if place.worker.available else None
            for place in self.partitions
        ]

    async def delete_before(self, sub_queue: SubQueue, partition_id: int, number: int, count: int) -> int:
        """Delete up to `count` available messages of a partition with a sequence number below `number`; how many."""
        place = self._partition(partition_id)
        ask = partial(DeleteMessages, sub_queue, count, SEQUENCE_NUMBER_MAX, None, before_number=number)
        return int(await place.request(lambda reply: ask(reply=reply)))

    async def peek_partition(
        self, sub_queue: SubQueue, partition_id: int, first: int, count: int, bytes_max: int, session_id: str | None
    ) -> list[bytes]:
        """Encoded messages of one partition from sequence number `first` on; BrokerError while its store is out."""
        ask = partial(Peek, sub_queue, first, count, bytes_max, session_id)
        rows: list[tuple[int, bytes]] = await self._partition(partition_id).request(ask)
        return [payload for _, payload in rows]

    async def resubmit(self, numbers: Sequence[int], target: Entity) -> dict[int, BrokerError | None]:
        """Send dead-lettered messages anew to the queue itself, or to the topic of the subscription: `target`.

        The answer tells by number why a message stays where it is, None for those that went. Each is moved whole, with
        the keys that it had, to the same partition. Raises BrokerError (entity-disabled) for a target that takes none.
        """
        if target.description.status in SEND_REFUSED:
            raise sentences.disabled(target.path, target.description.status.value)
        answer: dict[int, BrokerError | None] = {
            number: sentences.dead_letter_not_found(number)
            for number in numbers
            if self._index_of_number(number) is None
        }
        known = [number for number in numbers if number not in answer]
        for index, group in self._by_partition((self._index_of_number(each) or 0, each) for each in known).items():
            ask = partial(Resubmit, group, target.partitions[index])
            try:
                answer |= await self.partitions[index].request(ask)
            except BrokerError as error:  # that store is out
                answer |= dict.fromkeys(group, error)
        return {number: answer[number] for number in numbers}

    @property
    def requires_session(self) -> bool:
        """Whether it is received from through message sessions."""
        description = self.description
        return not isinstance(description, TopicDescription) and description.requires_session

    def place_of_session(self, session_id: str) -> int:
        """The partition of a message session, which is that of its messages (P10)."""
        return self._router.place(session_id)

    async def list_sessions(self, updated_after: int | None) -> list[str]:
        """The names of the message sessions, sorted; see `commands.ListSessions`."""
        names: list[str] = []
        for place in self.partitions:
            if place.worker.available:
                names += await place.request(partial(ListSessions, updated_after))
        return sorted(names)

    # ---- what is in it

    def totals_now(self) -> Totals:
        """What all partitions together hold, but for those that can't be reached (P17)."""
        messages, bytes_used, is_limited = [0] * len(HOMES), 0, False
        for place in self.partitions:
            try:
                if place.worker.available:
                    counters = place.worker.counters(self.queue_id)
                    messages = [a + b for a, b in zip(messages, counters.messages, strict=True)]
                    bytes_used += counters.bytes_used
                    continue
            except StoreError:
                pass
            is_limited = True
        return Totals(messages, bytes_used, is_limited)

    def message_counts(self) -> list[int]:
        """Messages per home (see `records.Home`), over the partitions that can be reached."""
        return self.totals_now().messages

    @property
    def is_limited(self) -> bool:
        """Whether a partition can't be reached now: the availability status is `Limited` then (P17)."""
        return not all(place.worker.available for place in self.partitions)

    @property
    def has_waiting_receivers(self) -> bool:
        """Whether somebody waits for its messages or sessions."""
        return self.session_dispatcher.is_waited_for or any(each.is_waited_for for each in self.dispatchers.values())

    def describe(self, description: Description) -> None:
        """Follow a changed description (partitioning and sessions can't change)."""
        self.description = description
        for place in self.partitions:
            place.worker.described_anew(self.queue_id)

    def detach_all(self, error: BrokerError) -> None:
        """Tell every attached link that the entity is gone, or closed to it."""
        for detached in list(self.attached):
            detached(error)
        self.attached.clear()

    # ---- helpers

    def _partition(self, partition_id: int) -> EntityPartition:
        if not 0 <= partition_id < len(self.partitions):
            raise BrokerError(
                Condition.ARGUMENT_OUT_OF_RANGE,
                f"'{self.path}' has no partition {partition_id}: it has {len(self.partitions)}, counted from 0.",
            )
        return self.partitions[partition_id]

    def _index_of_number(self, number: int) -> int | None:
        if not 0 <= number <= SEQUENCE_NUMBER_MAX:
            return None
        index = number >> PARTITION_SHIFT if self.partitioned else 0
        return index if index < len(self.partitions) else None

    def _by_partition(self, pairs: Iterable[tuple[int, T]]) -> dict[int, list[T]]:
        groups: dict[int, list[T]] = {}
        for index, item in pairs:
            groups.setdefault(index, []).append(item)
        return groups
