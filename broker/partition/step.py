"""What comes out of a partition: changes and effects of a batch, deliveries, the answers to requests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Generic, Protocol, TypeVar

from ..address import SubQueue
from ..errors import BrokerError
from ..message.bounds import MessageBounds
from ..message.message import Message
from ..model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from .records import (
    ByteTotal,
    Counters,
)

T = TypeVar("T")


class ReceiveMode(Enum):
    """Whether a delivery locks the message or removes it."""

    PEEK_LOCK = auto()
    RECEIVE_AND_DELETE = auto()


@dataclass(slots=True)
class Delivery:
    """A message on its way to a receiver: its lock token (also the delivery-tag), its bytes, its sequence number."""

    token: bytes
    payload: bytes
    sequence_number: int


@dataclass(slots=True)
class SessionGrant:
    """A message session in the hands of a receiver: `grant` names this holding of it, `until_at` its end (Unix ms)."""

    session_id: str
    grant: int
    partition_index: int
    until_at: int


@dataclass(slots=True)
class Received(Generic[T]):
    """The answer to a request for messages or sessions: what was found, and whether the partition has more."""

    deliveries: list[T]
    more: bool
    error: BrokerError | None = None


class Step:
    """What one batch of commands wants: `changes` (table, key, value or None to delete) and `effects` (call, argument).

    `touched` are the counters that changed, by queue id. `next_due` is the earliest instant (Unix ms) that the changes
    added to the `due` table, if any.
    """

    __slots__ = ("changes", "effects", "next_due", "touched")

    def __init__(self) -> None:
        self.changes: list[tuple[str, bytes, bytes | None]] = []
        self.effects: list[tuple[Callable[..., None], object]] = []
        self.touched: dict[int, Counters] = {}
        self.next_due: int | None = None

    def due_at(self, at: int) -> None:
        """A change adds a row to the `due` table for the instant `at` (Unix ms)."""
        if self.next_due is None or at < self.next_due:
            self.next_due = at


@dataclass(frozen=True, slots=True)
class Extent:
    """What a partition has of a sub-queue: the lowest sequence number that is there, the next one that will be given
    (the same when it is empty), and how many messages are there, scheduled ones not counted."""

    partition_id: int
    first_sequence_number: int
    next_sequence_number: int
    message_count: int


Receivable = QueueDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True)
class RoutedMessage:
    """A message for one subscription: the subscription's partition, and the message as its rules made it.

    The partition `ref` is in the topic's messaging store. With `error` the rules failed on the message, and the copy is
    for the dead-letter queue.
    """

    ref: PartitionRef
    message: Message
    error: tuple[str, str] | None = None
    target_index: int | None = None  # the partition of the subscription that its new key names, if that is another one


class SubscriptionRouting(Protocol):
    """Which subscriptions get a message; the partitions of all are in the same messaging store (R4)."""

    @property
    def copies_max(self) -> int:
        """How many copies of one message there may be."""
        ...

    def route(self, message: Message, partition_index: int, now: int) -> list[RoutedMessage]:
        """The copies of a message that a topic took."""
        ...

    def subscriptions(self, partition_index: int) -> list[PartitionRef]:
        """The partitions of all subscriptions beside the topic's partition of that index."""
        ...


class PartitionRef(Protocol):
    """One partition of an entity, as it is known before its memory exists."""

    queue_id: int
    index: int
    partitioned: bool
    size_bytes_max: int

    @property
    def description(self) -> Receivable | TopicDescription:
        """What the entity is now."""
        ...

    @property
    def path(self) -> str:
        """The entity path."""
        ...

    @property
    def bounds(self) -> MessageBounds:
        """What is too large in a message, and how often it may be forwarded."""
        ...

    @property
    def name_in_errors(self) -> str:
        """How the service's brokers call the entity."""
        ...

    @property
    def routing(self) -> SubscriptionRouting | None:
        """How a topic finds the subscriptions of a message; None for entities that keep their messages."""
        ...

    @property
    def total(self) -> ByteTotal | None:
        """What a topic and its subscriptions hold beside each other in this store; None for queues."""
        ...

    def announce(self, sub_queue: SubQueue) -> None:
        """An effect: messages became available in a line of this partition that was said to be empty."""
        ...

    def announce_session(self, argument: None) -> None:
        """An effect: a message session that nobody holds has messages."""
        ...

    def announce_outbox(self, argument: None) -> None:
        """An effect: messages wait in an outbox."""
        ...
