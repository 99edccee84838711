"""The state of a running entity (description, partition handles, dispatchers, links) and the handle of a partition.

`Entity` (`entity.py`) adds the verbs. Knows which partition lives in which messaging store. Does not decide about
messages (`partition/`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue
from ..errors import BrokerError
from ..message.bounds import STANDARD_BOUNDS, MessageBounds
from ..message.message import Message
from ..model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription, entity_key
from ..partition.records import HOMES, ByteTotal
from ..partition.requests import (
    DeleteRows,
    Request,
)
from ..partition.state import forwarded_from
from ..partition.step import Delays, Delivery, SessionGrant, SubscriptionRouting
from ..stores.worker import Worker
from .dispatcher import Dispatcher, ReceiveQuota
from .router import Router, key_of

T = TypeVar("T")

BACKLOG_MESSAGES = 64  # in flight without keys: up to here each message goes to the next partition
BACKLOG_PARTS = 4  # a longer backlog is divided into about so many parts: each costs a commit
PART_MESSAGES_MAX = 64

SEND_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.SEND_DISABLED})
RECEIVE_REFUSED = frozenset({EntityStatus.DISABLED, EntityStatus.RECEIVE_DISABLED})


Description = QueueDescription | TopicDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class Totals:
    """Messages per home (see `records.Home`) and bytes of an entity; `is_limited` if a partition is unreachable."""

    messages: list[int]
    bytes_used: int
    is_limited: bool


class PartitionHandle:
    """The handle of partition `index` of `entity`, in memory or not; implements `step.PartitionRef`."""

    __slots__ = ("entity", "first_counter", "index", "partitioned", "queue_id", "size_bytes_max", "worker")

    def __init__(self, entity: EntityBase, index: int, worker: Worker, size_bytes_max: int, first_counter: int) -> None:
        self.entity = entity
        self.queue_id = entity.queue_id
        self.index = index
        self.partitioned = entity.partitioned
        self.size_bytes_max = size_bytes_max
        self.first_counter = first_counter
        self.worker = worker

    @property
    def gone(self) -> BrokerError | None:
        """Why the entity does nothing any more; None as long as it exists."""
        return self.entity.gone

    @property
    def description(self) -> Description:
        """The current description of the entity."""
        return self.entity.description

    @property
    def path(self) -> str:
        """The entity path."""
        return self.entity.path

    @property
    def bounds(self) -> MessageBounds:
        """The size limits for messages."""
        return self.entity.bounds

    @property
    def name_in_errors(self) -> str:
        """The service's internal name of the entity."""
        return self.entity.name_in_errors

    @property
    def delays(self) -> Delays | None:
        """What is late on purpose; None as a rule."""
        return self.worker.delays

    @property
    def routing(self) -> SubscriptionRouting | None:
        """The routing of a topic to its subscriptions; None for other entities."""
        return self.entity.routing

    @property
    def total(self) -> ByteTotal | None:
        """The bytes of a topic and its subscriptions in this store."""
        totals = self.entity.totals
        return totals[self.index] if totals else None

    def announce(self, sub_queue: SubQueue) -> None:
        """Announce to the dispatchers of `sub_queue` that this partition has messages."""
        self.entity.dispatchers[sub_queue].announce(self.index)
        for dispatcher in list(self.entity.selecting[sub_queue]):
            dispatcher.announce(self.index)

    def announce_session(self, argument: None) -> None:
        """Announce an idle session of this partition to the session dispatcher."""
        del argument
        self.entity.session_dispatcher.announce(self.index)

    def announce_outbox(self, argument: None) -> None:
        """Announce messages in an outbox of this partition to the forwarder."""
        del argument
        self.entity.on_outbox(self)

    def resize(self, size_bytes_max: int) -> None:
        """Change the size limit of the partition."""
        self.size_bytes_max = size_bytes_max

    def submit(self, request: Request) -> None:
        """Submit `request` to the worker; on a deleted entity every request but `DeleteRows` fails."""
        gone = self.entity.gone
        if gone is not None and type(request) is not DeleteRows:
            asyncio.get_running_loop().call_soon(request.fail, gone)
            return
        self.worker.submit(self, request)

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


class EntityBase:
    """A queue, topic or subscription with one partition per worker: 1 if unpartitioned, else the profile's count.

    `partition_bytes_max` limits one partition; a partition calls `on_outbox(handle)` when its outbox has messages.
    `first_counters` are the lowest of its partitions, as of `Entry.first_counters`; `exact_keys` as of `Router`.
    """

    routing: SubscriptionRouting | None = None
    totals: Sequence[ByteTotal] = ()  # shared by a topic and its subscriptions, by partition

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
        self.description = description
        self.partitioned = partitioned
        self.on_outbox = on_outbox
        self.partitions = [
            PartitionHandle(self, index, worker, partition_bytes_max, first)
            for index, (worker, first) in enumerate(zip(workers, first_counters or [1] * len(workers), strict=True))
        ]
        self.dispatchers = {sub_queue: Dispatcher[Delivery](len(workers), self._ask) for sub_queue in SubQueue}
        self.selecting: dict[SubQueue, set[Dispatcher[Delivery]]] = {sub_queue: set() for sub_queue in SubQueue}
        """A dispatcher for each receiver with a selection: a partition may have messages for one and not for others."""
        self.session_dispatcher = Dispatcher[SessionGrant](len(workers), self._ask)
        self.attached: set[Callable[[BrokerError], None]] = set()  # detaches a link
        self.gone: BrokerError | None = None  # set when the entity is deleted: it stores nothing any more
        self.received_at = 0  # last time a receiver asked for messages (Unix ms)
        self._router = Router(len(workers), exact_keys=exact_keys)
        self._unkeyed_in_flight = 0
        self._part_index = len(workers) - 1  # the partition whose part is being dealt
        self._part_left = 0  # how many messages it gets yet
        self._part_length = 1  # in this round over all partitions

    @property
    def path(self) -> str:
        """The entity path in its original spelling."""
        description = self.description
        return description.path if isinstance(description, SubscriptionDescription) else description.name

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
        dispatcher = Dispatcher[Delivery](len(self.partitions), self._ask)
        self.selecting[sub_queue].add(dispatcher)
        return dispatcher

    def _ask(self, index: int, request: Request) -> None:
        self.partitions[index].submit(request)

    @property
    def detects_duplicates(self) -> bool:
        """Whether a message is stored once within a window of time, by its message id."""
        description = self.description
        return not isinstance(description, SubscriptionDescription) and description.requires_duplicate_detection

    @property
    def needs_key(self) -> bool:
        """Whether a message without a key is refused (P8)."""
        return len(self.partitions) > 1 and self.detects_duplicates

    @property
    def requires_session(self) -> bool:
        """Whether receivers must use message sessions."""
        description = self.description
        return not isinstance(description, TopicDescription) and description.requires_session

    def totals_now(self) -> Totals:
        """Return the sum of all reachable partitions (P17)."""
        messages, bytes_used, is_limited = [0] * len(HOMES), 0, False
        for handle in self.partitions:
            try:
                if handle.worker.available:
                    counters = handle.worker.counters(self.queue_id)
                    messages = [a + b for a, b in zip(messages, counters.messages, strict=True)]
                    bytes_used += counters.bytes_used
                    continue
            except StoreError:
                pass
            is_limited = True
        return Totals(messages, bytes_used, is_limited)

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
        self.description = description
        for handle in self.partitions:
            handle.worker.description_changed(self.queue_id)
            if handle.worker.has_outgoing(self.queue_id, *forwarded_from(description)):
                self.on_outbox(handle)  # what waits may have another target now

    def delete(self, gone: BrokerError) -> None:
        """Mark the entity as deleted: later requests fail with `gone`."""
        self.gone = gone

    def asked_for_messages(self, now: int) -> None:
        """Record that a receiver asked for messages or sessions at `now` (Unix ms)."""
        self.received_at = now

    def use_subscriptions(self, routing: SubscriptionRouting) -> None:
        """Set the routing of a topic to its subscriptions."""
        self.routing = routing

    def use_totals(self, totals: Sequence[ByteTotal]) -> None:
        """Set the byte totals, by partition, that a topic shares with its subscriptions."""
        self.totals = totals

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
        return self.next_index(), False

    def keyed_index(self, message: Message) -> int | None:
        """Return the partition that the key of a message chooses, None without a key. BrokerError: keys contradict."""
        key = key_of(message, duplicate_detection=self.detects_duplicates)
        return None if key is None else self._router.handle(key)

    def dealt(self, count: int) -> Iterator[tuple[int, int]]:
        """Deal `count` messages without keys to the partitions in turn (P11): yields (partition index, how many).

        One message each, so that few messages spread over all partitions. With a backlog in flight a partition gets a
        part before its successor's turn: one commit stores it whole. Parts have a turn of their own; those of one
        round over all partitions have the same length, more with a longer backlog, and an interrupted part goes on
        later. So any stretch of messages is even over the partitions.
        """
        in_flight, end = self._unkeyed_in_flight, self._unkeyed_in_flight + count
        while in_flight < end:
            if in_flight <= BACKLOG_MESSAGES:
                index, taken = self.next_index(), 1
            else:
                index = self._part_for_backlog(in_flight)
                taken = min(end - in_flight, self._part_left)
                self._part_left -= taken
            yield index, taken
            in_flight += taken

    def _part_for_backlog(self, in_flight: int) -> int:
        """Return the partition whose part goes on, or the next one in turn whose store is available."""
        for _ in self.partitions:
            if self._part_left and self.partitions[self._part_index].worker.available:
                break
            self._part_index = (self._part_index + 1) % len(self.partitions)
            if not self._part_index:
                self._part_length = min(in_flight // BACKLOG_PARTS, PART_MESSAGES_MAX)
            self._part_left = self._part_length
        return self._part_index

    def count_unkeyed(self, by: int) -> None:
        """Count messages without keys that are on their way to a partition; negative once they have an outcome."""
        self._unkeyed_in_flight += by

    def next_index(self) -> int:
        """Return the next partition in turn, skipping unavailable stores (P11, P13)."""
        index = self._router.next()
        for _ in self.partitions[1:]:
            if self.partitions[index].worker.available:
                break
            index = self._router.next()
        return index

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
