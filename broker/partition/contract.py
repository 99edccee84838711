"""The contract of a partition: the types of its answers, what happened to messages, and what it counts of them.

Also the interfaces that a partition needs of its entity (`PartitionRef`) and of its topic (`SubscriptionRouting`), and
the port through which an observer learns what happened to messages. Does not know requests, stores and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from enum import Enum, StrEnum, auto
from functools import partial
from typing import Final, Generic, NamedTuple, Protocol, TypeVar

from ..address import SubQueue
from ..errors import BrokerError
from ..lazy_dataclass import dataclass
from ..message.bounds import MessageBounds
from ..message.message import Message
from ..model.descriptions import QueueDescription, RuleDescription, SubscriptionDescription, TopicDescription
from .records import ByteTotal

T = TypeVar("T")


class ReceiveMode(Enum):
    """Whether a delivery locks the message or removes it."""

    PEEK_LOCK = auto()
    RECEIVE_AND_DELETE = auto()


class Selection:
    """The messages that one receiver takes: those of which `matches(row)` is true. `close` ends it."""

    __slots__ = ("is_closed", "matches")

    def __init__(self, matches: Callable[[bytes], bool]) -> None:
        self.matches = matches
        self.is_closed = False

    def close(self) -> None:
        """The receiver is closed: queues forget the selection."""
        self.is_closed = True


class Delivery(NamedTuple):
    """A message for a receiver: lock token (16 bytes, also the delivery-tag), encoded message, sequence number."""

    token: bytes
    payload: bytes
    sequence_number: int


new_delivery: Final[Callable[[tuple[object, ...]], Delivery]] = partial(tuple.__new__, Delivery)
"""`Delivery(*fields)` for many: it takes a third of the time."""


@dataclass(slots=True)
class SessionGrant:
    """The lock of a message session: `grant` identifies it, `until_at` is its end (Unix ms). Who shows the `token` of a
    shared lock takes it over; None for an exclusive one."""

    session_id: str
    grant: int
    partition_index: int
    until_at: int
    token: bytes | None = None


@dataclass(frozen=True, slots=True)
class SharedLock:
    """A receiver asks for a lock of a message session that others may take over; with `token` it takes one over."""

    token: bytes | None = None


@dataclass(slots=True)
class Received(Generic[T]):
    """The answer to a request for messages or sessions: the deliveries, and whether the partition may have more."""

    deliveries: list[T]
    more: bool
    error: BrokerError | None = None


Run = tuple[int, int]
"""A sequence number, and how many consecutive ones begin with it."""


@dataclass(frozen=True, slots=True)
class Claimed:
    """The answer to a claim: the messages that are deferred now, in no order; whether there may be more of them; and
    the finished ones that are locked, and so not deleted."""

    numbers: Sequence[int]
    more: bool = False
    kept: Sequence[int] = ()


class EventKind(StrEnum):
    """What happened to messages, or to a message session."""

    SENT = "sent"
    REFUSED = "refused"
    ACTIVATED = "activated"  # the scheduled time has come
    ROUTED = "routed"  # the rules of a topic's subscriptions were tested
    COPIED = "copied"  # from a topic to a subscription
    FORWARDING = "forwarding"  # waits for its target
    FORWARDED = "forwarded"  # arrived
    LOCKED = "locked"
    RECEIVED = "received"  # and deleted
    LOCK_RENEWED = "lock-renewed"
    LOCK_EXPIRED = "lock-expired"
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    RELEASED = "released"  # available again, without a delivery attempt
    EXPIRED = "expired"
    DEAD_LETTERED = "dead-lettered"
    RESUBMITTED = "resubmitted"
    CANCELED = "canceled"
    DELETED = "deleted"
    SESSION_ACCEPTED = "session-accepted"
    SESSION_RELEASED = "session-released"
    SESSION_LOCK_EXPIRED = "session-lock-expired"
    STRUCK = "struck"  # by a condition or a fault


class Event(NamedTuple):
    """What happened to the messages `numbers` of the partition `ref`; None is a message that was not stored.

    `messages` has those that arrived, in the order of `numbers`. `source` is the (queue id, number) that a message had
    before. `facts` are values of JSON, but for `rules` of ROUTED: the rules of each subscription, by its path.
    """

    kind: EventKind
    ref: PartitionRef
    numbers: Sequence[int | None]
    messages: Sequence[Message]
    source: tuple[int, int] | None
    facts: Mapping[str, object]


new_event: Final[Callable[[tuple[object, ...]], Event]] = partial(tuple.__new__, Event)
"""`Event(*fields)` for many: it takes a third of the time."""


class Counted(StrEnum):
    """What is counted of messages, each where it happens; the values are the names of counters."""

    SENT = "sent"  # and stored, at once or for later
    DUPLICATES_DROPPED = "duplicates_dropped"
    FORWARDED = "forwarded"  # arrived from another entity
    COPIED = "copied"  # from a topic to a subscription
    RESUBMITTED = "resubmitted"
    DELIVERED = "delivered"
    RECEIVED_AND_DELETED = "received_and_deleted"  # these are delivered, too
    COMPLETED = "completed"
    ABANDONED = "abandoned"
    DEFERRED = "deferred"
    RELEASED = "released"  # available again, without a delivery attempt
    LOCKS_EXPIRED = "locks_expired"
    EXPIRED = "expired"  # also those that are dead-lettered for it
    DEAD_LETTERED = "dead_lettered"
    CANCELED = "canceled"
    DELETED = "deleted"  # by a request
    PURGED = "purged"  # with all others of the entity


Counts = tuple[int, Counted, str, int]
"""The queue id of a partition, what happened in it, the sub-queue or the reason of dead letters, and how often."""


class Observer(Protocol):
    """Learns of the events of committed batches. Before each batch it is asked whether it `is_on`."""

    @property
    def is_on(self) -> bool:
        """Whether it wants the events of the next batch."""
        ...

    def observe(self, now: int, events: Sequence[Event]) -> None:
        """Take the events of a batch that was executed at `now` (Unix ms); must not raise."""
        ...

    def forget(self) -> None:
        """The stores are exchanged: the same numbers will be other messages."""
        ...


class NoObserver:
    """The observer that wants nothing."""

    is_on = False

    def observe(self, now: int, events: Sequence[Event]) -> None:
        """Do nothing."""

    def forget(self) -> None:
        """Do nothing."""


@dataclass(frozen=True, slots=True)
class Extent:
    """The extent of a sub-queue in one partition: the lowest sequence number of its messages, the partition's next
    sequence number (both are equal if it is empty), and the message count without scheduled messages."""

    partition_id: int
    first_sequence_number: int
    next_sequence_number: int
    message_count: int


Receivable = QueueDescription | SubscriptionDescription


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class RoutedMessage:
    """A message for one subscription: the subscription's partition, and the message after the rules' actions.

    The partition `ref` is in the topic's messaging store. With `error` (reason, description) a rule failed on the
    message, and the copy goes to the dead-letter queue.
    """

    ref: PartitionRef
    message: Message
    error: tuple[str, str] | None = None
    target_index: int | None = None  # the subscription's partition for the message's new key, if it differs from `ref`


class SubscriptionRouting(Protocol):
    """Chooses the subscriptions of a message; their partitions are in the topic's messaging store (R4)."""

    @property
    def copies_max(self) -> int:
        """The highest number of copies of one message."""
        ...

    @property
    def rules(self) -> Mapping[str, Sequence[RuleDescription]]:
        """The present rules of each subscription, by its path; the same object until they change."""
        ...

    @property
    def evaluations_max(self) -> int:
        """How many rules are evaluated for one message at most."""
        ...

    def matching(self, message: Message, now: int) -> Generator[None, None, object]:
        """Evaluate the rules for a message at `now` (Unix ms), a few at each step; return what `route` may be given."""
        ...

    def route(
        self, message: Message, partition_index: int, now: int, matches: object | None = None
    ) -> list[RoutedMessage]:
        """The copies of a message for the subscriptions, at `now` (Unix ms); `matches` are what `matching` returned."""
        ...

    def subscriptions(self, partition_index: int) -> list[PartitionRef]: ...


class LockCut(NamedTuple):
    """How much earlier a lock ends, how much later than its end the client believes (ms), and what is the cause."""

    earlier_ms: int
    believed_ms: int
    cause: str = ""


NO_CUT: Final = LockCut(0, 0)


class Delays(Protocol):
    """What is late, or early, on purpose (`conditions`)."""

    def due_late_ms(self, path: str, *, is_activation: bool) -> int:
        """How much later a scheduled message becomes active, or a message is removed whose time to live is over."""
        ...

    def hidden_until(self, path: str, sub_queue: SubQueue, number: int, enqueued_at: int) -> int:
        """Until when receivers get neither this message nor later ones of its partition (Unix ms); 0: it is there."""
        ...

    def lock_cut(self, path: str) -> LockCut:
        """How much earlier the locks of the next answer to a receiver end."""
        ...

    def holds_rules(self, path: str, use: Callable[[], None]) -> bool:
        """Whether changed rules of a subscription are used later: by `use()`."""
        ...


class PartitionRef(Protocol):
    """One partition of an entity, as its entity describes it; the partition itself may not be open."""

    queue_id: int
    index: int
    partitioned: bool
    size_bytes_max: int
    first_counter: int
    """The lowest of its sequence numbers, without the partition's bits."""

    @property
    def gone(self) -> BrokerError | None:
        """Why the entity does nothing any more; None as long as it exists."""
        ...

    @property
    def description(self) -> Receivable | TopicDescription: ...

    @property
    def path(self) -> str: ...

    @property
    def bounds(self) -> MessageBounds:
        """The size limits of messages, and the highest number of hops."""
        ...

    @property
    def name_in_errors(self) -> str:
        """The entity's name in the service's error texts."""
        ...

    @property
    def routing(self) -> SubscriptionRouting | None:
        """The routing of a topic; None for queues and subscriptions."""
        ...

    @property
    def total(self) -> ByteTotal | None:
        """The bytes of a topic and its subscriptions in this store; None for queues."""
        ...

    def announce(self, sub_queue: SubQueue) -> None:
        """Effect: a ready queue of this partition, reported as empty before, has messages."""
        ...

    def announce_session(self, argument: None) -> None:
        """Effect: an idle message session has messages."""
        ...

    def announce_outbox(self, argument: None) -> None:
        """Effect: an outbox has messages."""
        ...
