"""A running queue, topic or subscription: its state, its verbs, and the handles of its partitions.

An entity has one partition per worker, and knows which one lives in which messaging store. It routes each request to a
partition, or asks one partition after the other. Does not decide about messages (`partition/`) and does not find
entities by address (`namespace.py`). `Entity` and `PartitionHandle` know each other, so they share a file.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TypeVar

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..ids import positions_by_partition
from ..lazy_dataclass import dataclass
from ..message.bounds import STANDARD_BOUNDS, MessageBounds
from ..message.message import Message, parse_sent, split_batch
from ..model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription, entity_key
from ..outcomes import Outcome
from ..partition.contract import Delivery, Extent, SessionGrant, SubscriptionRouting
from ..partition.records import HOMES, PARTITION_SHIFT, SEQUENCE_NUMBER_MAX, ByteTotal, Counters, topic_bytes
from ..partition.requests import (
    DeleteMessages,
    GetExtent,
    ListNumbers,
    ListSessions,
    Numbered,
    Peek,
    Request,
    Resubmit,
    RunDone,
    Send,
    Settle,
)
from ..partition.state import forwarded_from
from ..stores.worker import Worker
from .dispatcher import Dispatcher, ReceiveQuota
from .router import Dealer, Router, key_of

T = TypeVar("T")

PART_COPIES_MAX = 1024  # of the messages of one part to a topic
SEND_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
RECEIVE_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})

Description = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages per home (see `records.Home`) and bytes of an entity; `is_limited` if a partition is unreachable."""

    messages: list[int]
    bytes_used: int
    is_limited: bool


def is_known_refusal(error: BrokerError) -> bool:
    """Whether a partition has certainly stored nothing, so that another may: its store is out, or it is full."""
    if isinstance(error, UnknownOutcomeError):  # another partition could store the message twice
        return False
    return error.condition in (Condition.SERVER_BUSY, Condition.RESOURCE_LIMIT_EXCEEDED)


def parse_delivery(data: bytes, bounds: MessageBounds, *, batch: bool) -> list[Message]:
    """Parse and judge each message of a delivery, whatever becomes of the others. Raises BrokerError for a bad one."""
    if not batch:
        return [parse_sent(data, bounds)]
    return [parse_sent(each, bounds) for each in split_batch(data)]


class PartitionHandle:
    """The handle of partition `index` of `entity`, in memory or not; implements `contract.PartitionRef`."""

    __slots__ = (
        "bounds",
        "description",
        "entity",
        "first_counter",
        "gone",
        "index",
        "partitioned",
        "path",
        "queue_id",
        "routing",
        "size_bytes_max",
        "submit",
        "total",
        "worker",
    )

    def __init__(self, entity: Entity, index: int, worker: Worker, size_bytes_max: int, first_counter: int) -> None:
        self.entity = entity
        self.queue_id = entity.queue_id
        self.index = index
        self.partitioned = entity.partitioned
        self.size_bytes_max = size_bytes_max
        self.first_counter = first_counter
        self.worker = worker
        self.submit: Callable[[Request], None] = partial(worker.submit, self)
        """Submits a request to the worker."""
        # What each message asks for is copied from the entity, which sets it again where it changes.
        self.gone: BrokerError | None = None
        """Why the entity does nothing any more; None as long as it exists."""
        self.bounds = entity.bounds
        """The size limits for messages."""
        self.description = entity.description
        self.path = entity.path
        self.routing: SubscriptionRouting | None = None
        """The routing of a topic to its subscriptions; None for other entities."""
        self.total: ByteTotal | None = None
        """The bytes of a topic and its subscriptions in this store."""

    def size_of(self, counters: Counters) -> int:
        """What the partition takes of the entity's size."""
        is_copy = isinstance(self.description, SubscriptionDescription)
        return counters.copy_bytes if is_copy else counters.size_bytes

    @property
    def name_in_errors(self) -> str:
        """The service's internal name of the entity."""
        return self.entity.name_in_errors

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the dispatchers of `sub_queue` that this partition has messages."""
        self.entity.dispatchers[sub_queue].announce(self.index)
        for dispatcher in list(self.entity.selecting[sub_queue]):
            dispatcher.announce(self.index)

    def announce_session(self, argument: None) -> None:
        """Announce an idle session of this partition to the session dispatcher."""
        self.entity.session_dispatcher.announce(self.index)

    def announce_outbox(self, argument: None) -> None:
        """Announce messages in an outbox of this partition to the forwarder."""
        self.entity.on_outbox(self)

    async def request(self, make: Callable[[Callable[[T | BrokerError], None]], Request]) -> T:
        """Submit the request that `make(reply)` builds; return its reply, or raise the BrokerError."""
        answer: asyncio.Future[T] = asyncio.get_running_loop().create_future()

        def reply(result: T | BrokerError) -> None:
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

    `partition_bytes_max` limits one partition; a partition calls `on_outbox(handle)` when its outbox has messages.
    `first_counters` are the lowest of its partitions, as of `Entry.first_counters`; `exact_keys` as of `Router`.
    """

    def __init__(
        self,
        queue_id: int,
        description: Description,
        workers: Sequence[Worker],
        partition_bytes_max: int,
        on_outbox: Callable[[PartitionHandle], None],
        *,
        partitioned: bool,
        bounds: MessageBounds = STANDARD_BOUNDS,
        namespace: str = "",
        receive_quota: ReceiveQuota | None = None,
        first_counters: Sequence[int] | None = None,
        exact_keys: bool = False,
    ) -> None:
        self.bounds = bounds
        self.receive_quota = receive_quota or ReceiveQuota()
        self.queue_id = queue_id
        self.namespace = namespace
        self._adopt(description)
        self.partitioned = partitioned
        self.on_outbox = on_outbox
        self.routing: SubscriptionRouting | None = None  # of a topic to its subscriptions
        self.partitions = [
            PartitionHandle(self, index, worker, partition_bytes_max, first)
            for index, (worker, first) in enumerate(zip(workers, first_counters or [1] * len(workers), strict=True))
        ]
        self._submits = [handle.submit for handle in self.partitions]
        self.dispatchers = {sub_queue: Dispatcher[Delivery](self._submits) for sub_queue in SubQueue}
        self.selecting: dict[SubQueue, set[Dispatcher[Delivery]]] = {sub_queue: set() for sub_queue in SubQueue}
        """A dispatcher for each receiver with a selection: a partition may have messages for one and not for others."""
        self.session_dispatcher = Dispatcher[SessionGrant](self._submits)
        self.attached: set[Callable[[BrokerError], None]] = set()  # detaches a link
        self.gone: BrokerError | None = None  # set when the entity is deleted: it stores nothing any more
        self.received_at = 0  # last time a receiver asked for messages (Unix ms)
        self._router = Router(len(workers), exact_keys=exact_keys)
        self.dealer = Dealer(workers)

    def _adopt(self, description: Description) -> None:
        """Keep a description, and what messages and receivers ask of it again and again."""
        self.description = description
        self.path = description.path if isinstance(description, SubscriptionDescription) else description.name
        """The entity path in its original spelling."""
        self.detects_duplicates = (
            not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection
        )
        """Whether a message is stored once within a window of time, by its message id."""
        self.requires_session = not isinstance(description, TopicDescription) and description.requires_session
        """Whether receivers must use message sessions."""

    @property
    def name_in_errors(self) -> str:
        """The service's internal name: `ns:Queue:q`, `ns:Topic:t`, `ns:Topic:t|s`."""
        return service_errors.name_of(self.namespace, self.path, topic=isinstance(self.description, TopicDescription))

    def disabled(self) -> BrokerError:
        """Return the error for an operation that the status forbids."""
        description = self.description
        topic = isinstance(description, TopicDescription)
        return service_errors.disabled(self.namespace, self.path, description.status.value, topic=topic)

    @property
    def top_level_key(self) -> str:
        """The name of its queue or topic in compared form."""
        description = self.description
        name = description.topic_name if isinstance(description, SubscriptionDescription) else description.name
        return entity_key(name)

    def dispatcher_for_selection(self, sub_queue: SubQueue) -> Dispatcher[Delivery]:
        """Return a dispatcher for one receiver, which removes it from `selecting` when it closes."""
        dispatcher = Dispatcher[Delivery](self._submits)
        self.selecting[sub_queue].add(dispatcher)
        return dispatcher

    @property
    def needs_key(self) -> bool:
        """Whether a message without a key is refused (P8)."""
        return len(self.partitions) > 1 and self.detects_duplicates

    def totals_now(self) -> Totals:
        """Return the sum of all reachable partitions (P17)."""
        messages, bytes_used, is_limited = [0] * len(HOMES), 0, False
        found = self.counters_now()
        for handle in self.partitions:
            counters = found.get(handle.index)
            if counters is None:
                is_limited = True
                continue
            messages = [a + b for a, b in zip(messages, counters.messages, strict=True)]
            bytes_used += handle.size_of(counters)
        return Totals(messages, bytes_used, is_limited)

    def counters_now(self) -> Mapping[int, Counters]:
        """Return the counters of the reachable partitions, by index; to be read at once."""
        found: dict[int, Counters] = {}
        for handle in self.partitions:
            with suppress(StoreError):
                if handle.worker.available:
                    found[handle.index] = handle.worker.counters(self.queue_id)
        return found

    def next_counters(self) -> list[int]:
        """Return the counter of each partition that its next message gets. StoreError."""
        return [handle.worker.counters(self.queue_id).next_counter for handle in self.partitions]

    def message_counts(self) -> list[int]:
        """Return messages per home (see `records.Home`) over the reachable partitions."""
        return self.totals_now().messages

    @property
    def is_reachable(self) -> bool:
        """Whether the store of at least one partition is available."""
        return any(handle.worker.available for handle in self.partitions)

    @property
    def is_limited(self) -> bool:
        """Whether a partition is unreachable: the availability status is then `Limited` (P17)."""
        return not all(handle.worker.available for handle in self.partitions)

    @property
    def has_waiting_receivers(self) -> bool:
        """Whether a receiver waits for messages or sessions."""
        dispatchers = (*self.dispatchers.values(), *(each for some in self.selecting.values() for each in some))
        return self.session_dispatcher.is_waited_for or any(each.is_waited_for for each in dispatchers)

    def describe(self, description: Description) -> None:
        """Apply a changed description (partitioning and sessions can't change)."""
        self._adopt(description)
        for handle in self.partitions:
            handle.description, handle.path = description, self.path
            handle.worker.description_changed(self.queue_id)
            if handle.worker.has_outgoing(self.queue_id, *forwarded_from(description)):
                self.on_outbox(handle)  # what waits may have another target now

    def delete(self, gone: BrokerError) -> None:
        """Mark the entity as deleted: later requests fail with `gone`."""
        self.gone = gone
        for handle in self.partitions:
            handle.gone = gone

    def route_to(self, routing: SubscriptionRouting) -> None:
        """Route the messages of a topic to its subscriptions."""
        self.routing = routing
        for handle in self.partitions:
            handle.routing = routing

    def count_into(self, totals: Sequence[ByteTotal]) -> None:
        """Count the bytes of each partition into these totals of a topic, which its subscriptions share."""
        for handle, total in zip(self.partitions, totals, strict=True):
            handle.total = total

    def detach_all(self, error: BrokerError) -> None:
        """Detach every link with `error`."""
        for detached in list(self.attached):
            detached(error)
        self.attached.clear()

    # ---- routing

    def route(self, messages: Sequence[Message]) -> tuple[int, bool]:
        """Return the partition for a delivery, and whether a key chose it. BrokerError: keys contradict (P8 to P12)."""
        index = self._router.route_keyed(messages, duplicate_detection=self.detects_duplicates)
        if index is not None:
            return index, True
        return self.dealer.next(), False

    def keyed_index(self, message: Message) -> int | None:
        """Return the partition that the key of a message chooses, None without a key. BrokerError: keys contradict."""
        key = key_of(message, duplicate_detection=self.detects_duplicates)
        return None if key is None else self._router.handle(key)

    def partition_for_forwarded(self, message: Message, turn: int) -> tuple[PartitionHandle, bool]:
        """Return the partition for a message of an outbox, and whether its key chose it (P30).

        Without a key the stored `turn` of the record decides, so that every attempt goes to the same partition: a
        partition drops repetitions by the highest outbox number that it has stored.
        """
        key = key_of(message, duplicate_detection=self.detects_duplicates)
        count = len(self.partitions)
        if key is None:
            return self.partitions[turn % count], count == 1
        return self.partitions[self._router.handle(key)], True

    def holds_session(self, session_id: str | None) -> bool:
        """Whether a receiver holds this message session."""
        if session_id is None or not self.requires_session:
            return False
        handle = self.partitions[self.partition_index_of_session(session_id)]
        partition = handle.worker.partition(handle.queue_id)
        return partition is not None and partition.is_held(session_id)

    def partition_index_of_session(self, session_id: str) -> int:
        """Return the partition index of a message session and its messages (P10)."""
        return self._router.handle(session_id)

    def partition_index_of_key(self, key: str) -> int:
        """Return the partition index of messages with this effective partition key (P8)."""
        return self._router.handle(key)

    def is_same_key(self, key: str, other: str) -> bool:
        """Whether two effective partition keys are one."""
        return self._router.identity(key) == self._router.identity(other)

    @property
    def exact_keys(self) -> bool:
        """Whether keys that differ in case are two keys."""
        return self._router.exact_keys

    # ---- sending

    def send(
        self,
        run: Sequence[bytes],
        done: RunDone,
        by: str = "",
        *,
        whole: bool = False,
        numbered: Numbered | None = None,
    ) -> None:
        """Store a run of deliveries of one message each, each on its own; with `whole` one batch, all of it or nothing.

        `done(positions, error)` gets the outcomes by position in the run, once for each: None after the commit, or why
        nothing of it is stored. `numbered` gets the sequence numbers of a batch or of a run of one before that, None
        for dropped duplicates. `by` is the client.
        """
        if whole:
            (batch,) = run
            self._send_batch(batch, done, by, numbered)
            return
        if self.description.status in SEND_REFUSED:
            done(range(len(run)), self.disabled())
            return
        positions: list[int] = []
        messages: list[Message] = []
        bounds, requires_session = self.bounds, self.requires_session
        for position, data in enumerate(run):
            try:
                message = parse_sent(data, bounds)
                if requires_session and message.session_id is None:
                    raise service_errors.session_id_missing()
            except BrokerError as error:
                done((position,), error.with_traceback(None))  # which has this frame, and `done` keeps the error
            else:
                positions.append(position)
                messages.append(message)
        if not messages:
            return
        if len(self.partitions) == 1:
            self._submit_parts(0, positions, messages, done, by, numbered)
            return
        duplicates, partition_of = self.detects_duplicates, self._router.handle
        groups: dict[int | None, tuple[list[int], list[Message]]] = {}
        for position, message in zip(positions, messages, strict=True):
            key = key_of(message, duplicate_detection=duplicates)
            index = None if key is None else partition_of(key)
            group = groups.get(index)
            if group is None:
                group = groups[index] = [], []
            group[0].append(position)
            group[1].append(message)
        for index, group in groups.items():
            if index is not None:
                self._submit_parts(index, *group, done, by, numbered)
            elif duplicates:  # the MessageId would be the key (P8)
                done(group[0], service_errors.key_missing())
            else:
                self._deal(*group, done, by, numbered)

    def _send_batch(self, batch: bytes, done: RunDone, by: str, numbered: Numbered | None) -> None:
        """Store the messages of a batch in one partition (P12), all or none."""
        try:
            messages = self.parse(batch, batch=True)
            index, keyed = self.route(messages)
            if not keyed and self.needs_key:
                raise service_errors.key_missing()
        except BrokerError as error:
            done((0,), error.with_traceback(None))
            return
        left = None if keyed else len(self.partitions) - 1
        positions = range(len(messages))
        part = Send(messages, positions, lambda _, error: done((0,), error), self._ended, True, numbered, by=by)
        self._submit(replace(part, tried=index, left=left), index)

    def _deal(
        self, positions: list[int], messages: list[Message], done: RunDone, by: str, numbered: Numbered | None
    ) -> None:
        """Send messages without keys to the partitions in turn (P11), what one partition gets of them together."""
        groups: dict[int, tuple[list[int], list[Message]]] = {}
        start = 0
        for index, count in self.dealer.deal(len(messages)):
            stop = start + count
            group = groups.setdefault(index, ([], []))
            group[0].extend(positions[start:stop])
            group[1].extend(messages[start:stop])
            start = stop
        left = len(self.partitions) - 1
        for index, group in groups.items():
            self._submit_parts(index, *group, done, by, numbered, left)

    def _submit_parts(
        self,
        index: int,
        positions: list[int],
        messages: list[Message],
        done: RunDone,
        by: str,
        numbered: Numbered | None,
        left: int | None = None,
    ) -> None:
        """Submit messages to a partition, divided so that a part with a topic's copies is little more than a batch.

        `left` other partitions may take a part that this one refuses; None if a key has chosen this one.
        """
        routing = self.routing
        size = len(messages) if routing is None else max(1, PART_COPIES_MAX // max(1, routing.copies_max))
        for start in range(0, len(messages), size):
            stop = start + size
            part = Send(
                messages[start:stop],
                positions[start:stop],
                done,
                self._ended,
                numbered=numbered,
                tried=index,
                left=left,
                by=by,
            )
            self._submit(part, index)

    def _submit(self, part: Send, index: int) -> None:
        if part.left is not None:
            self.dealer.in_flight += len(part.positions)
        self.partitions[index].submit(part)

    def _ended(self, part: Send, error: BrokerError | None) -> None:
        """Report the outcome of a part, or offer it to the next partition after a refusal (P13)."""
        if part.left is not None:
            self.dealer.in_flight -= len(part.positions)
        if error is None:
            part.done(part.positions, None)
        elif not part.left or not is_known_refusal(error):
            part.done(part.positions, self.reported(error))
        else:
            index = (part.tried + 1) % len(self.partitions)
            self._submit(replace(part, tried=index, left=part.left - 1), index)

    def parse(self, data: bytes, *, batch: bool) -> list[Message]:
        """Parse and judge all messages of a delivery. Raises BrokerError if the entity refuses one of them."""
        if self.description.status in SEND_REFUSED:
            raise self.disabled()
        messages = parse_delivery(data, self.bounds, batch=batch)
        if self.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise service_errors.session_id_missing()
        return messages

    def reported(self, error: BrokerError) -> BrokerError:
        """Return the sender's error for a partition's error: a full partition reports the figures of the entity."""
        if error.condition is not Condition.RESOURCE_LIMIT_EXCEEDED:
            return error
        used = 0
        for handle in self.partitions:
            beside = () if self.routing is None else self.routing.subscriptions(handle.index)
            with suppress(StoreError):
                copies = [handle.worker.counters(ref.queue_id) for ref in beside]
                used += topic_bytes(handle.worker.counters(handle.queue_id), copies)
        size_bytes_max = sum(handle.size_bytes_max for handle in self.partitions)
        kind = "Queue" if self.routing is None else "Topic"
        return service_errors.entity_full(kind, self.name_in_errors, used, size_bytes_max)

    # ---- receiving

    def settle(
        self, run: Sequence[bytes], outcome: Outcome, done: RunDone | None, sub_queue: SubQueue = SubQueue.ACTIVE
    ) -> None:
        """End the locks of a run of tokens with `outcome`, each on its own; `done` gets the results by position.

        The lock of a foreign token is lost.
        """
        if len(self.partitions) == 1:
            self.partitions[0].submit(Settle(run, range(len(run)), outcome, done, sub_queue))
            return
        groups = positions_by_partition(run)
        for index, positions in groups.items():
            if index < len(self.partitions):
                tokens = run if len(groups) == 1 else [run[position] for position in positions]
                self.partitions[index].submit(Settle(tokens, positions, outcome, done, sub_queue))
            elif done is not None:
                done(positions, service_errors.lock_lost())

    def store_late(self) -> None:
        """Have its stores begin to store the completions that they keep back (`late_completions`)."""
        for handle in self.partitions:
            handle.worker.store_late()

    async def peek(
        self, sub_queue: SubQueue, first: int, count: int, bytes_max: int, session_id: str | None
    ) -> list[bytes]:
        """Return encoded messages from sequence number `first` on, partition after partition, ascending (P23).

        `bytes_max` limits the sum of encoded sizes. The client continues after the last number of the answer, so the
        answer ends before an unreachable partition. Raises BrokerError (server-busy) if the first one is unreachable.
        """
        found: list[bytes] = []
        for handle in self._partitions_from(first, session_id):
            start = max(first, handle.index << PARTITION_SHIFT)
            ask = partial(Peek, sub_queue, start, count - len(found), bytes_max, session_id, go_on=handle.submit)
            try:
                rows: list[tuple[int, bytes]] = await handle.request(ask)
                if found and rows and len(rows[0][1]) > bytes_max:
                    break  # a partition answers with its first message, even if that is too large
                found.extend(payload for _, payload in rows)
                bytes_max -= sum(len(payload) for _, payload in rows)
                if len(found) >= count or bytes_max <= 0:
                    break
                if rows and await self._has_from(handle, sub_queue, rows[-1][0] + 1, session_id):
                    break  # the next message didn't fit; later partitions must not overtake it
            except BrokerError as error:
                if found and error.condition is Condition.SERVER_BUSY:
                    break
                raise
        return found

    def _partitions_from(self, number: int, session_id: str | None) -> Sequence[PartitionHandle]:
        """Return the partitions with sequence numbers from `number` on; of a message session only its own."""
        start = max(0, number) >> PARTITION_SHIFT if self.partitioned else 0
        if session_id is None:
            return self.partitions[start:]
        own = self.partition_index_of_session(session_id)
        return self.partitions[own : own + 1] if own >= start else ()

    async def _has_from(self, handle: PartitionHandle, sub_queue: SubQueue, first: int, session_id: str | None) -> bool:
        """Whether a partition has a message from that number on."""
        return bool(await handle.request(partial(Peek, sub_queue, first, 1, 1, session_id)))

    async def delete_messages(self, sub_queue: SubQueue, count: int, before_at: int, session_id: str | None) -> int:
        """Delete up to `count` available messages enqueued before `before_at` (Unix ms); return how many."""
        if self.partitioned:
            raise BrokerError(
                Condition.NOT_ALLOWED, f"Messages can't be deleted in batches from '{self.path}': it is partitioned."
            )
        ask = partial(DeleteMessages, sub_queue, count, before_at, session_id)
        return int(await self.partitions[0].request(ask))

    async def extents(self, sub_queue: SubQueue) -> list[Extent | None]:
        """Return the extent of a sub-queue in each partition; None for an unreachable one."""
        return [
            await handle.request(partial(GetExtent, sub_queue)) if handle.worker.available else None
            for handle in self.partitions
        ]

    async def list_numbers(self, sub_queue: SubQueue, partition_id: int, first: int, count: int) -> list[int]:
        """Return the first `count` sequence numbers that a partition of a sub-queue has from `first` on."""
        found: list[int] = await self.partition(partition_id).request(partial(ListNumbers, sub_queue, first, count))
        return found

    async def delete_before(self, sub_queue: SubQueue, partition_id: int, number: int, count: int) -> int:
        """Delete up to `count` available messages of a partition below `number`; return how many."""
        ask = partial(DeleteMessages, sub_queue, count, SEQUENCE_NUMBER_MAX, None, before_number=number)
        return int(await self.partition(partition_id).request(ask))

    async def delete_by_number(self, sub_queue: SubQueue, numbers: Sequence[int]) -> int:
        """Delete those of these messages that are available; return how many."""
        deleted = 0
        for handle, some in self.by_partition(numbers).items():
            ask = partial(DeleteMessages, sub_queue, len(some), SEQUENCE_NUMBER_MAX, None, numbers=some)
            deleted += int(await handle.request(ask))
        return deleted

    async def peek_partition(
        self,
        sub_queue: SubQueue,
        partition_id: int,
        first: int,
        count: int,
        bytes_max: int,
        session_id: str | None,
        *,
        deferred_only: bool = False,
    ) -> list[bytes]:
        """Peek one partition from sequence number `first` on. Raises BrokerError while its store is out."""
        handle = self.partition(partition_id)
        ask = partial(
            Peek, sub_queue, first, count, bytes_max, session_id, deferred_only=deferred_only, go_on=handle.submit
        )
        rows: list[tuple[int, bytes]] = await handle.request(ask)
        return [payload for _, payload in rows]

    async def resubmit(self, numbers: Sequence[int], target: Entity) -> dict[int, BrokerError | None]:
        """Resubmit dead-lettered messages to `target`: the queue itself, or the topic of the subscription.

        Returns an error per number, None for a moved message. A message moves to the same partition and keeps its keys.
        Raises BrokerError (entity-disabled) if `target` refuses messages.
        """
        if target.description.status in SEND_REFUSED:
            raise target.disabled()
        answer: dict[int, BrokerError | None] = {}
        for handle, group in self.by_partition(numbers).items():
            ask = partial(Resubmit, group, target.partitions[handle.index])
            try:
                answer |= await handle.request(ask)
            except BrokerError as error:  # the store is out
                answer |= dict.fromkeys(group, error)
        return {
            number: answer[number] if number in answer else service_errors.dead_letter_not_found(number)
            for number in numbers
        }

    async def list_sessions(self, updated_after: int | None) -> list[str]:
        """Return the sorted names of the message sessions; see `requests.ListSessions`."""
        names: list[str] = []
        for handle in self.partitions:
            if handle.worker.available:
                names += await handle.request(partial(ListSessions, updated_after))
        return sorted(names)

    # ---- helpers

    def partition(self, partition_id: int) -> PartitionHandle:
        """Return a partition by its id. Raises BrokerError (argument-out-of-range)."""
        if not 0 <= partition_id < len(self.partitions):
            raise BrokerError(
                Condition.ARGUMENT_OUT_OF_RANGE,
                f"'{self.path}' has no partition {partition_id}: it has {len(self.partitions)}, counted from 0.",
            )
        return self.partitions[partition_id]

    def partition_of_number(self, number: int) -> PartitionHandle | None:
        """Return the partition that assigned a sequence number; None if there is no such partition."""
        if not 0 <= number <= SEQUENCE_NUMBER_MAX:
            return None
        index = number >> PARTITION_SHIFT if self.partitioned else 0
        return self.partitions[index] if index < len(self.partitions) else None

    def by_partition(self, numbers: Iterable[int]) -> dict[PartitionHandle, list[int]]:
        """Group sequence numbers by the partition that assigned them, without those of no partition."""
        pairs = [(self.partition_of_number(number), number) for number in numbers]
        return grouped((handle, number) for handle, number in pairs if handle is not None)


def grouped(pairs: Iterable[tuple[PartitionHandle, T]]) -> dict[PartitionHandle, list[T]]:
    """Group values by partition, in order."""
    groups: dict[PartitionHandle, list[T]] = {}
    for handle, item in pairs:
        groups.setdefault(handle, []).append(item)
    return groups
