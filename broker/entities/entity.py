"""An entity while the broker runs: its partitions, who waits for its messages, and the requests that reach them.

Knows which partition lives in which messaging store. Refuses to decide about messages (`partition.py`), to find
entities by address (`broker.py`) and to know links (`links.py`). Queues, topics and subscriptions are made of this.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError, Condition, UnknownOutcomeError
from ..ids import partition_index_of
from ..message.bounds import STANDARD_BOUNDS, MessageBounds
from ..message.message import Message, parse_sent, split_batch
from ..model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription, entity_key
from ..outcomes import Outcome
from ..partition.records import HOMES, PARTITION_SHIFT, SEQUENCE_NUMBER_MAX, ByteTotal
from ..partition.requests import (
    Clear,
    Command,
    DeleteMessages,
    Done,
    ListSessions,
    Measure,
    Peek,
    Placed,
    Resubmit,
    Send,
    Settle,
)
from ..partition.step import Extent, FanOut
from ..stores.worker import Worker
from .dispatcher import Dispatcher
from .receive_quota import Receives
from .router import Router, kept_key_of, partition_for_key

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


def is_known_refusal(error: BrokerError) -> bool:
    """Whether an error says that a partition has stored nothing, and another one may: it is out, or full."""
    if isinstance(error, UnknownOutcomeError):  # what may be stored here must not be stored there, too
        return False
    return error.condition in (Condition.SERVER_BUSY, Condition.RESOURCE_LIMIT_EXCEEDED)


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
    def bounds(self) -> MessageBounds:
        """What is too large in a message."""
        return self.entity.bounds

    @property
    def name_in_errors(self) -> str:
        """How the service's brokers call the entity."""
        return self.entity.name_in_errors

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
        bounds: MessageBounds = STANDARD_BOUNDS,
        namespace: str = "",
    ) -> None:
        self.bounds = bounds
        self.receives = Receives()
        self.queue_id = queue_id
        self.namespace = namespace
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
        self.received_at = 0  # when a receiver last asked for messages (Unix ms), whether or not there were any
        self._router = Router(len(workers))

    @property
    def path(self) -> str:
        """The entity path, as it was created."""
        description = self.description
        return description.path if isinstance(description, SubscriptionDescription) else description.name

    @property
    def name_in_errors(self) -> str:
        """How the service's brokers call it: `ns:Queue:q`, `ns:Topic:t`, `ns:Topic:t|s`."""
        return service_errors.name_of(self.namespace, self.path, topic=isinstance(self.description, TopicDescription))

    def disabled(self) -> BrokerError:
        """The refusal of what its status does not allow."""
        description = self.description
        topic = isinstance(description, TopicDescription)
        return service_errors.disabled(self.namespace, self.path, description.status.value, topic=topic)

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
            place.submit(Send(messages, done, partial(self._refused, done), placed))
        else:
            place.submit(Send(messages, done, self._elsewhere(messages, done, index, placed), placed))

    def parse(self, data: bytes, *, batch: bool) -> list[Message]:
        """The messages in a delivery; BrokerError if the entity doesn't take them as they are."""
        description = self.description
        if description.status in SEND_REFUSED:
            raise self.disabled()
        if not batch:
            messages = [parse_sent(data, self.bounds)]
        else:
            encoded = split_batch(data)
            if len(encoded) > BATCH_MESSAGES_MAX:
                raise BrokerError(
                    Condition.MESSAGE_SIZE_EXCEEDED,
                    f"The batch holds {len(encoded)} messages; at most {BATCH_MESSAGES_MAX} are allowed.",
                )
            messages = [parse_sent(each, self.bounds) for each in encoded]
        if isinstance(description, QueueDescription) and description.requires_session:
            for message in messages:
                if message.session_id is None:
                    raise service_errors.session_id_missing()
        return messages

    def route(self, messages: Sequence[Message]) -> tuple[int, bool]:
        """The partition for a delivery, and whether a key chose it; BrokerError for contradicting keys (P8 to P12)."""
        description = self.description
        duplicates = not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection
        index = self._router.route_keyed(messages, duplicate_detection=duplicates)
        if index is not None:
            return index, True
        return self.next_index(), False

    def next_index(self) -> int:
        """The partition whose turn it is, past those whose stores are out (P11, P13)."""
        index = self._router.next()
        for _ in self.partitions[1:]:
            if self.partitions[index].worker.available:
                break
            index = self._router.next()
        return index

    def place_of_forwarded(self, message: Message, turn: int) -> tuple[EntityPartition, bool]:
        """The partition for a message of an outbox, and whether its key chose it (P30).

        Without a key the turn decides that the message got with its place in the outbox, so that it is the same at
        every attempt: a partition drops what comes twice, by the highest number of the outbox that it has taken.
        """
        description = self.description
        duplicates = not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection
        key = kept_key_of(message, duplicate_detection=duplicates)
        count = len(self.partitions)
        if key is None:
            return self.partitions[turn % count], count == 1
        return self.partitions[partition_for_key(key, count) if count > 1 else 0], True

    def _elsewhere(
        self, messages: Sequence[Message], done: Done, tried: int, placed: Placed | None
    ) -> Callable[[BrokerError], None]:
        """What to do when a partition does not take a message without a key: the next one takes it (P13)."""
        left = len(self.partitions) - 1

        def again(error: BrokerError) -> None:
            nonlocal left, tried
            if left == 0 or not is_known_refusal(error):
                done(self.reported(error))
                return
            left -= 1
            tried = (tried + 1) % len(self.partitions)
            self.partitions[tried].submit(Send(messages, done, again, placed))

        return again

    def _refused(self, done: Done, error: BrokerError) -> None:
        done(self.reported(error))

    def reported(self, error: BrokerError) -> BrokerError:
        """What a sender hears of a partition's error: of a full one the figures of the whole entity."""
        if error.condition is not Condition.RESOURCE_LIMIT_EXCEEDED:
            return error
        used = 0
        for place in self.partitions:
            beside = () if self.fan_out is None else self.fan_out.subscriptions(place.index)
            with suppress(StoreError):
                used += sum(place.worker.counters(ref.queue_id).bytes_used for ref in (place, *beside))
        size_bytes_max = sum(place.size_bytes_max for place in self.partitions)
        kind = "Queue" if self.fan_out is None else "Topic"
        return service_errors.entity_full(kind, self.name_in_errors, used, size_bytes_max)

    # ---- receiving

    def settle(self, token: bytes, outcome: Outcome, done: Done | None, sub_queue: SubQueue = SubQueue.ACTIVE) -> None:
        """End the lock `token`; a token that was never given out here is answered as a lost lock."""
        index = partition_index_of(token)
        if index < len(self.partitions):
            self.partitions[index].submit(Settle(token, outcome, done, sub_queue))
        elif done is not None:
            done(service_errors.lock_lost())

    async def peek(
        self, sub_queue: SubQueue, first: int, count: int, bytes_max: int, session_id: str | None
    ) -> list[bytes]:
        """Encoded messages from sequence number `first` on, partition after partition (P23).

        A client goes on behind the last number that it was shown. So an answer ends before a partition that can't be
        reached: what is in there is shown after the outage. BrokerError (server-busy) if it is the first.
        """
        index = max(0, first) >> PARTITION_SHIFT if self.partitioned else 0
        own = None if session_id is None else self.place_of_session(session_id)  # the only one that may have some
        found: list[bytes] = []
        while index < len(self.partitions) and len(found) < count and bytes_max > 0:
            place = self.partitions[index]
            if own is None or index == own:
                ask = partial(Peek, sub_queue, first, count - len(found), bytes_max, session_id)
                try:
                    rows: list[tuple[int, bytes]] = await place.request(ask)
                    if rows and found and bytes_max < len(rows[0][1]):
                        break
                    found.extend(payload for _, payload in rows)
                    bytes_max -= sum(len(payload) for _, payload in rows)
                    following = rows[-1][0] + 1 if rows and len(found) < count else None
                    if following is not None and await self._has_from(place, sub_queue, following, session_id):
                        break  # the next one was too large: another partition's must not come before it
                except BrokerError as error:
                    if found and error.condition is Condition.SERVER_BUSY:
                        break
                    raise
            index += 1
            first = index << PARTITION_SHIFT
        return found

    async def _has_from(self, place: EntityPartition, sub_queue: SubQueue, first: int, session_id: str | None) -> bool:
        """Whether a partition has a message of that number or a later one."""
        return bool(await place.request(partial(Peek, sub_queue, first, 1, 1, session_id)))

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
            raise target.disabled()
        answer: dict[int, BrokerError | None] = {
            number: service_errors.dead_letter_not_found(number)
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

    def place_of_number(self, number: int) -> EntityPartition | None:
        """The partition that gave out a sequence number; None if no partition of the entity can have."""
        index = self._index_of_number(number)
        return None if index is None else self.partitions[index]

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
    def is_reachable(self) -> bool:
        """Whether the store of at least one partition can be reached now."""
        return any(place.worker.available for place in self.partitions)

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
