"""What can be asked of a partition, and what it answers with.

A command is data: it names what is wanted and who is to be told. `Partition.apply` turns it into a `Step`: changes for
the store and effects for the world. Knows no store, no clock and no wire.

Every command has `fail(error)`: the worker calls it instead of any effect when the batch that holds the command could
not be committed (R3). `done` and `reply` callables are called exactly once, on the event-loop thread, and must not
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from ..address import SubQueue
from ..errors import BrokerError
from ..message.message import Message
from ..outcomes import Abandon, Outcome, Release
from .records import SEQUENCE_NUMBER_MAX, Record
from .step import Delivery, Extent, PartitionRef, Received, ReceiveMode, SessionGrant

Done = Callable[[BrokerError | None], None]
Numbered = Callable[[list[int | None]], None]


class WithReply:
    """A command that ends in `reply(result or BrokerError)`."""

    __slots__ = ()
    reply: Callable[[BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with the error."""
        self.reply(error)


class FireAndForget:
    """A command that nobody waits for; after a failed commit it is found in the store or tried again."""

    __slots__ = ()

    def fail(self, error: BrokerError) -> None:
        """Say nothing."""


@dataclass(slots=True)
class Send:
    """Store `messages` in this partition, all or none; `done(None)` once they are durable."""

    messages: Sequence[Message]
    done: Done
    elsewhere: Callable[[BrokerError], None] | None = None  # tries another partition when this one's store fails
    numbered: Numbered | None = None  # gets the sequence numbers before `done`; None for duplicates, which are not kept

    def fail(self, error: BrokerError) -> None:
        """Tell the sender that nothing was stored, or try elsewhere."""
        (self.elsewhere or self.done)(error)


@dataclass(slots=True)
class Schedule(WithReply):
    """Store `messages` until their scheduled times; `reply` gets their sequence numbers."""

    messages: Sequence[Message]
    reply: Callable[[list[int] | BrokerError], None]
    numbers: Sequence[int] = ()  # those that were reserved, inside a transaction


@dataclass(slots=True)
class Reserve(WithReply):
    """Give out `count` sequence numbers; `reply` gets them."""

    count: int
    reply: Callable[[list[int] | BrokerError], None]


@dataclass(slots=True)
class CancelScheduled(WithReply):
    """Remove scheduled messages, all or none; `reply(None)` when they are gone."""

    numbers: Sequence[int]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class Forwarded(WithReply):
    """Messages from the outbox of partition `source_index` of queue `source_id`, by their numbers there (R4).

    `reply(None)` once they are durable here, or had been before. With `same_entity` the source is another partition of
    this entity, which has taken the messages: they stay as they are, and nothing is refused.
    """

    source_id: int
    source_index: int
    records: Sequence[tuple[int, Record]]
    reply: Callable[[BrokerError | None], None]
    same_entity: bool = False


@dataclass(slots=True)
class Receive:
    """Hand over up to `count` available messages of `sub_queue`, locked or removed according to `mode`."""

    sub_queue: SubQueue
    count: int
    mode: ReceiveMode
    reply: Callable[[Received[Delivery]], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with nothing."""
        self.reply(Received([], False, error))


@dataclass(slots=True)
class ReceiveFromSession:
    """Hand over up to `count` messages of the session held as `grant`."""

    grant: int
    count: int
    mode: ReceiveMode
    reply: Callable[[Received[Delivery]], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with nothing."""
        self.reply(Received([], False, error))


@dataclass(slots=True)
class AcceptSession:
    """Give the session named `session_id` to a receiver, or with None the idle one with the oldest message.

    `reply` gets a `Received` with one `SessionGrant` or none. `announce` is called when the session has messages
    (again), `lost` when the holding ends by itself.
    """

    session_id: str | None
    announce: Callable[[None], None]
    lost: Callable[[BrokerError], None]
    reply: Callable[[Received[SessionGrant]], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with nothing."""
        self.reply(Received([], False, error))


@dataclass(slots=True)
class ReleaseSession(FireAndForget):
    """The receiver gives the session back; what it had not settled is available again, uncounted."""

    grant: int


@dataclass(slots=True)
class RenewSession(WithReply):
    """Start the lock duration of a held session anew; `reply` gets the new end (Unix ms)."""

    session_id: str
    reply: Callable[[int | BrokerError], None]


@dataclass(slots=True)
class SetSessionState(WithReply):
    """Keep `state` for a held session; None clears it."""

    session_id: str
    state: bytes | None
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class GetSessionState(WithReply):
    """The state of a held session, None if it has none."""

    session_id: str
    reply: Callable[[bytes | BrokerError | None], None]


@dataclass(slots=True)
class ListSessions(WithReply):
    """The names of sessions: with active messages or state, or (with `updated_after`) with a later change of state."""

    updated_after: int | None
    reply: Callable[[list[str] | BrokerError], None]


@dataclass(slots=True)
class Settle:
    """End the lock `token` of a message of `sub_queue` with `outcome`; without `done` nobody wants to hear of it."""

    token: bytes
    outcome: Outcome
    done: Done | None
    sub_queue: SubQueue = SubQueue.ACTIVE

    def fail(self, error: BrokerError) -> None:
        """Tell the receiver, if it waits, that the settlement did not happen."""
        if self.done is not None:
            self.done(error)


@dataclass(slots=True)
class Renew(WithReply):
    """Start the lock durations of `tokens`, of messages of `sub_queue`, anew.

    `reply` gets the new ends (Unix ms) or the error for all of them.
    """

    sub_queue: SubQueue
    tokens: Sequence[bytes]
    reply: Callable[[list[int] | BrokerError], None]


@dataclass(slots=True)
class Peek(WithReply):
    """Show up to `count` messages of `sub_queue` from `from_sequence_number` on, of about `bytes_max` bytes in all.

    With `session_id` only those of that session. The answer is a list of (sequence number, encoded message); the first
    message is there whatever its size.
    """

    sub_queue: SubQueue
    from_sequence_number: int
    count: int
    bytes_max: int
    session_id: str | None
    reply: Callable[[list[tuple[int, bytes]] | BrokerError], None]
    is_use: bool = True  # False: the entity does not count as used by it


@dataclass(slots=True)
class GetExtent(WithReply):
    """Tell the `Extent` of a sub-queue."""

    sub_queue: SubQueue
    reply: Callable[[Extent | BrokerError], None]


@dataclass(slots=True)
class ReceiveDeferred(WithReply):
    """Hand over the deferred messages with these sequence numbers; all of them or an error."""

    sub_queue: SubQueue
    sequence_numbers: Sequence[int]
    mode: ReceiveMode
    session_id: str | None
    reply: Callable[[list[Delivery] | BrokerError], None]


@dataclass(slots=True)
class DeleteMessages(WithReply):
    """Delete up to `count` available messages enqueued before `before_at`, oldest first; `reply` gets how many.

    With `before_number` only those with a lower sequence number.
    """

    sub_queue: SubQueue
    count: int
    before_at: int
    session_id: str | None
    reply: Callable[[int | BrokerError], None]
    before_number: int = SEQUENCE_NUMBER_MAX


@dataclass(slots=True)
class Resubmit(WithReply):
    """Take dead-lettered messages from this partition and send them anew to `target`, each whole or not at all.

    `target` is a partition of the same messaging store: this partition, or that of the topic. `reply` gets,
    by number, None for those that went and the BrokerError for those that stay.
    """

    numbers: Sequence[int]
    target: PartitionRef
    reply: Callable[[dict[int, BrokerError | None] | BrokerError], None]


@dataclass(slots=True)
class Commit(WithReply):
    """A transaction: all its operations or none; `reply(None)` when they are durable.

    Each operation names its partition; all of them are in the same messaging store.
    """

    operations: Sequence[tuple[PartitionRef, Operation]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class Examine(WithReply):
    """Look whether an operation could be done now, as part of a transaction; `reply` gets why not, or None."""

    operation: Operation
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class Transfer:
    """Inside a transaction: a message for another entity, which leaves through this partition's outbox.

    With `number` it is to be scheduled in another partition of the same entity, which has reserved that number for it.
    """

    message: Message
    destination: str
    number: int | None = None


def is_unanswered(request: Request) -> bool:
    """Whether nobody waits for a command, and nothing in the store brings it up again: it is tried until it is done.

    A message that a client completes, defers or dead-letters without waiting comes back at the end of its lock instead.
    """
    if isinstance(request, Settle):
        return request.done is None and isinstance(request.outcome, Release | Abandon)
    return isinstance(request, ReleaseSession | AdoptSequence)


Operation = Send | Schedule | CancelScheduled | Settle | SetSessionState | Transfer
"""What can be part of a transaction."""


@dataclass(slots=True)
class AdoptSequence(FireAndForget):
    """Go on with the sequence numbers of another partition of the same messaging store."""

    source: PartitionRef


@dataclass(slots=True)
class ReadOutbox(WithReply):
    """The first `count` messages that wait in the outboxes with numbers above `after`: (home, number, record)."""

    count: int
    reply: Callable[[list[tuple[int, int, Record]] | BrokerError], None]
    after: int = -1


@dataclass(slots=True)
class Delivered(WithReply):
    """Messages of the outboxes (home, number) have arrived elsewhere: forget them."""

    rows: Sequence[tuple[int, int]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class Redirect(WithReply):
    """Messages of the outboxes (home, number, turn) go to other partitions than they were meant for.

    They get new numbers: a partition takes numbers from an outbox in ascending order only.
    """

    rows: Sequence[tuple[int, int, int]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class Undeliverable(WithReply):
    """A message of an outbox can't go where it should: dead-letter it (or, without a reason, make it active here)."""

    home: int
    number: int
    reason: str | None
    description: str
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True)
class ExpireLocks(FireAndForget):
    """End the locks, of messages and of sessions, whose time is over."""


@dataclass(slots=True)
class ProcessDue(FireAndForget):
    """These rows of the `due` table are due: (instant, what, number)."""

    rows: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])


@dataclass(slots=True)
class DeleteRows(WithReply):
    """Remove up to `limit` messages of this partition; `reply` gets whether any are left. For deleted entities."""

    limit: int
    reply: Callable[[bool | BrokerError], None]


Request = (
    Send
    | Schedule
    | Reserve
    | CancelScheduled
    | Forwarded
    | Receive
    | ReceiveFromSession
    | AcceptSession
    | ReleaseSession
    | RenewSession
    | SetSessionState
    | GetSessionState
    | ListSessions
    | Settle
    | Renew
    | Peek
    | GetExtent
    | ReceiveDeferred
    | DeleteMessages
    | Resubmit
    | Commit
    | Examine
    | AdoptSequence
    | ReadOutbox
    | Delivered
    | Redirect
    | Undeliverable
    | ExpireLocks
    | ProcessDue
    | DeleteRows
)
