"""Requests to a partition, as data.

A request holds its arguments and the callable that gets the answer. `Partition.handlers` execute it and add changes and
effects to a `Turn`. Does not know stores, clocks and the wire. Without methods to compare and print requests a start is
3 ms shorter. Every request has `fail(error)`: if the request's batch is not committed, the worker calls it instead of
the request's effects (R3). Exactly one call of `done` or `reply` answers a request, on the event-loop thread; they must
not raise.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import field, replace
from operator import attrgetter
from typing import Final, Protocol

from ..address import SubQueue
from ..errors import BrokerError
from ..lazy_dataclass import dataclass
from ..message.message import Message
from ..outcomes import Abandon, Outcome, Release
from .contract import (
    Claimed,
    Delivery,
    Extent,
    PartitionRef,
    Received,
    ReceiveMode,
    Run,
    Selection,
    SessionGrant,
    SharedLock,
)
from .records import SEQUENCE_NUMBER_MAX, Record

Done = Callable[[BrokerError | None], None]
Numbered = Callable[[list[int | None]], None]
RunDone = Callable[[Sequence[int], BrokerError | None], None]
"""Gets the outcome of deliveries or dispositions of a run, by their positions in it; once for each position."""
size_bytes_of: Final[Callable[[Message], int]] = attrgetter("size_bytes")
"""The size of a message: a comprehension would be one more frame for each run."""


def alone(done: Done) -> RunDone:
    """Return what passes the outcome of a run of one to `done`."""
    return lambda _, error: done(error)


class Request(Protocol):
    """A request to a partition: one of the classes below that a partition has a handler for."""

    def fail(self, error: BrokerError) -> None:
        """Answer with the error instead of the request's effects."""
        ...


class WithReply:
    """A request that is answered with `reply(result or BrokerError)`."""

    __slots__ = ()
    reply: Callable[[BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        self.reply(error)


class WithReceived:
    """A request that is answered with `reply(Received)`; the error of a failed commit is in it."""

    __slots__ = ()
    reply: Callable[..., None]

    def fail(self, error: BrokerError) -> None:
        """Answer with nothing."""
        self.reply(Received([], False, error))


class FireAndForget:
    """A request without an answer; after a failed commit the worker finds its cause in the store or retries it."""

    __slots__ = ()

    def fail(self, error: BrokerError) -> None:
        """Do nothing."""


def unanswered(*_: object) -> None:
    """The answer of an operation of a transaction, which is answered as a whole."""


@dataclass(slots=True, eq=False, repr=False)
class Send:
    """Store a run of `messages`, each on its own, or all or none: what of a run or batch goes to this partition.

    `positions` are those of the messages in their run. `ended(part, None)` follows once the messages are durable;
    `ended(part, error)` says that nothing of the part is stored. A message that is refused by itself is a part. As an
    operation of a transaction it has messages only.
    """

    messages: Sequence[Message]
    positions: Sequence[int] = ()
    done: RunDone = unanswered
    ended: Callable[[Send, BrokerError | None], None] = unanswered
    whole: bool = False  # all or none
    numbered: Numbered | None = None  # gets the sequence numbers before `ended`; None for dropped duplicates
    tried: int = 0  # index of this partition, for a part without keys
    left: int | None = None  # other partitions that may take it; None for a part with keys
    by: str = ""  # the client
    matches: Mapping[int, object] | None = None  # of a topic's messages by their identities, if they are known
    summed_bytes: int = -1  # of the messages, once `total_bytes` has been asked

    def total_bytes(self) -> int:
        """The bytes of all messages: the plan of a batch asks, and the partition."""
        if self.summed_bytes < 0:
            self.summed_bytes = sum(map(size_bytes_of, self.messages))
        return self.summed_bytes

    def fail(self, error: BrokerError) -> None:
        """Report that the part is refused."""
        self.ended(self, error)

    def slice(self, start: int, stop: int) -> Send:
        messages, positions = self.messages[start:stop], self.positions[start:stop]
        return replace(self, messages=messages, positions=positions, summed_bytes=-1)


@dataclass(slots=True, eq=False, repr=False)
class Schedule(WithReply):
    """Store `messages` until their scheduled times; `reply` gets their sequence numbers."""

    messages: Sequence[Message]
    reply: Callable[[list[int] | BrokerError], None]
    numbers: Sequence[int] = ()  # reserved numbers, inside a transaction


@dataclass(slots=True, eq=False, repr=False)
class Reserve(WithReply):
    """Reserve `count` sequence numbers; `reply` gets them."""

    count: int
    reply: Callable[[list[int] | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class CancelScheduled(WithReply):
    """Remove scheduled messages, or deliver them now, all or none; `reply(None)` once that is done."""

    numbers: Sequence[int]
    reply: Callable[[BrokerError | None], None]
    is_delivery: bool = False


@dataclass(slots=True, eq=False, repr=False)
class StoreForwarded(WithReply):
    """Store messages from the outbox of partition `source_index` of queue `source_id` (R4).

    `records` are (number in the outbox, record). `reply(None)` once they are durable here, perhaps since an earlier
    request. With `same_entity` they come from another partition of this entity: stored unchanged, whatever their size.
    """

    source_id: int
    source_index: int
    records: Sequence[tuple[int, Record]]
    reply: Callable[[BrokerError | None], None]
    same_entity: bool = False


@dataclass(slots=True, eq=False, repr=False)
class Receive(WithReceived):
    """Receive up to `count` available messages of `sub_queue`, of the selection; `mode` locks or removes them."""

    sub_queue: SubQueue
    count: int
    mode: ReceiveMode
    reply: Callable[[Received[Delivery]], None]
    selection: Selection | None = None
    by: str = ""


@dataclass(slots=True, eq=False, repr=False)
class ClaimMessages(WithReply):
    """Defer up to `count` available messages of `sub_queue` below number `before`, and give them `properties`.

    In the same commit it deletes the deferred messages of the runs `finished`, but for those that are locked. `reply`
    gets a `Claimed`. There are no locks in between, and no delivery is built.
    """

    sub_queue: SubQueue
    count: int
    before: int
    properties: Mapping[str, object]
    finished: Sequence[Run]
    reply: Callable[[Claimed | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class ReceiveFromSession(WithReceived):
    """Receive up to `count` messages of the session with the lock `grant`."""

    grant: int
    count: int
    mode: ReceiveMode
    reply: Callable[[Received[Delivery]], None]
    by: str = ""


@dataclass(slots=True, eq=False, repr=False)
class AcceptSession(WithReceived):
    """Lock the session `session_id` for a receiver, or with None the idle session with the oldest message.

    `reply` gets a `Received` with one `SessionGrant` or none. `announce` is called when the session has messages
    (again). When the session's lock expires, `ended_idle` gets the instant if no message was locked, else `lost` is
    called, as when the lock is taken over. With `shared` the lock has a token.
    """

    session_id: str | None
    announce: Callable[[None], None]
    lost: Callable[[BrokerError], None]
    ended_idle: Callable[[int], None]
    reply: Callable[[Received[SessionGrant]], None]
    by: str = ""
    shared: SharedLock | None = None


@dataclass(slots=True, eq=False, repr=False)
class ReleaseSession(FireAndForget):
    """Unlock a session; its unsettled messages become available again, with the same delivery count."""

    grant: int
    taken: str = ""  # with 0 as `grant`: this session, whose receiver loses its lock


@dataclass(slots=True, eq=False, repr=False)
class RenewSession(WithReply):
    """Renew the lock of a held session; `reply` gets its new end (Unix ms)."""

    session_id: str
    reply: Callable[[int | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class SetSessionState(WithReply):
    """Store `state` for a held session; None clears it."""

    session_id: str
    state: bytes | None
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class GetSessionState(WithReply):
    """Get the state of a held session, None without state."""

    session_id: str
    reply: Callable[[bytes | BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class ListSessions(WithReply):
    """List sessions that have active messages or state, or whose state changed after `updated_after` (Unix ms)."""

    updated_after: int | None
    reply: Callable[[list[str] | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class Settle:
    """End the locks of a run of `tokens` of messages of `sub_queue` with `outcome`, each on its own.

    `positions` are those of the tokens in their run. `done(positions, error or None)` follows the commit, once for all
    positions with the same result. Without `done` no caller waits for it, and `positions` may be empty. As an operation
    of a transaction it ends all locks or none. `came_at` is when it came (Unix ms) if it was kept back since: a lock
    that held then is ended.
    """

    tokens: Sequence[bytes]
    positions: Sequence[int]
    outcome: Outcome
    done: RunDone | None
    sub_queue: SubQueue = SubQueue.ACTIVE
    came_at: int | None = None

    def fail(self, error: BrokerError) -> None:
        """Report the error to the receiver if it waits."""
        if self.done is not None:
            self.done(self.positions, error)

    def slice(self, start: int, stop: int) -> Settle:
        return replace(self, tokens=self.tokens[start:stop], positions=self.positions[start:stop])


@dataclass(slots=True, eq=False, repr=False)
class Renew(WithReply):
    """Renew the locks `tokens` of messages of `sub_queue`, all or none; `reply` gets the new ends (Unix ms)."""

    sub_queue: SubQueue
    tokens: Sequence[bytes]
    reply: Callable[[list[int] | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class Peek(WithReply):
    """Peek up to `count` messages of `sub_queue` from `from_sequence_number` on, about `bytes_max` bytes together.

    With `session_id` only messages of that session. `reply` gets a list of (sequence number, encoded message).
    """

    sub_queue: SubQueue
    from_sequence_number: int
    count: int
    bytes_max: int
    session_id: str | None
    reply: Callable[[list[tuple[int, bytes]] | BrokerError], None]
    is_use: bool = True  # False: AutoDeleteOnIdle ignores this request
    deferred_only: bool = False
    go_on: Callable[[Peek], None] | None = None  # gets the request for the rest, if this one looked at many rows
    found: Sequence[tuple[int, bytes]] = ()  # by the requests before it


@dataclass(slots=True, eq=False, repr=False)
class ListNumbers(WithReply):
    """List the first `count` sequence numbers of a sub-queue from `from_sequence_number` on; `reply` gets them."""

    sub_queue: SubQueue
    from_sequence_number: int
    count: int
    reply: Callable[[list[int] | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class GetExtent(WithReply):
    """Get the `Extent` of a sub-queue."""

    sub_queue: SubQueue
    reply: Callable[[Extent | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class ReceiveDeferred(WithReply):
    """Receive the deferred messages with these sequence numbers, all or none.

    With `expires` those whose time to live is over expire now, and are missing.
    """

    sub_queue: SubQueue
    sequence_numbers: Sequence[int]
    mode: ReceiveMode
    session_id: str | None
    reply: Callable[[list[Delivery] | BrokerError], None]
    expires: bool = False


@dataclass(slots=True, eq=False, repr=False)
class LockMessages(WithReply):
    """Lock those of these messages that are available or deferred, for an operator; `reply` gets the locked ones."""

    sub_queue: SubQueue
    sequence_numbers: Sequence[int]
    reply: Callable[[list[Delivery] | BrokerError], None]
    grant: int = 0  # of the session lock to which their locks belong


@dataclass(slots=True, eq=False, repr=False)
class DeleteMessages(WithReply):
    """Delete up to `count` available messages enqueued before `before_at`, oldest first; `reply` gets the count.

    `before_at` is in Unix ms. With `before_number` only messages with a lower sequence number, with `numbers` only
    these.
    """

    sub_queue: SubQueue
    count: int
    before_at: int
    session_id: str | None
    reply: Callable[[int | BrokerError], None]
    before_number: int = SEQUENCE_NUMBER_MAX
    numbers: Sequence[int] | None = None


@dataclass(slots=True, eq=False, repr=False)
class Resubmit(WithReply):
    """Move dead-lettered messages of this partition to `target` in the same store: itself, or its topic's partition.

    `reply` gets, by sequence number, None for a message that moved (as a new one), else why it stays.
    """

    numbers: Sequence[int]
    target: PartitionRef
    reply: Callable[[dict[int, BrokerError | None] | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class Commit(WithReply):
    """Commit operations of a transaction, all or none, each with its partition, all in the same messaging store."""

    operations: Sequence[tuple[PartitionRef, Operation]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class CheckOperation(WithReply):
    """Check an operation of a transaction without executing it; `reply` gets the error or None."""

    operation: Operation
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Transfer:
    """Operation of a transaction: put a message for the entity `destination` into this partition's outbox.

    With `number` another partition of the same entity schedules the message under this reserved number.
    """

    message: Message
    destination: str
    number: int | None = None


def must_be_retried(request: Request) -> bool:
    """Whether the worker must retry a request: no caller waits for it, and no stored row repeats it.

    An unanswered complete, defer or dead-letter is not retried: its message becomes available when the lock ends.
    """
    if isinstance(request, Settle):
        return request.done is None and isinstance(request.outcome, Release | Abandon)
    return isinstance(request, ReleaseSession)


Operation = Send | Schedule | CancelScheduled | Settle | SetSessionState | Transfer
"""The operations of a transaction."""


@dataclass(slots=True, eq=False, repr=False)
class ReadOutbox(WithReply):
    """Read the first `count` outbox messages with numbers above `after`; `reply` gets (home, number, record)."""

    count: int
    reply: Callable[[list[tuple[int, int, Record]] | BrokerError], None]
    after: int = -1


@dataclass(slots=True, eq=False, repr=False)
class DeleteForwarded(WithReply):
    """Delete outbox messages (home, number) that their targets have stored."""

    rows: Sequence[tuple[int, int]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class Redirect(WithReply):
    """Give outbox messages (home, number, new target index) other target partitions.

    They get new numbers, because a target accepts numbers of an outbox only in ascending order.
    """

    rows: Sequence[tuple[int, int, int]]
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class NextDeadLetter(WithReply):
    """Look at the next dead letter that may be forwarded; `reply` gets (number, record), None without one."""

    reply: Callable[[tuple[int, Record] | BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class SendDeadLetters(WithReply):
    """Move up to `count` available dead letters into the outbox; `reply` gets how many."""

    count: int
    reply: Callable[[int | BrokerError], None]


@dataclass(slots=True, eq=False, repr=False)
class Undeliverable(WithReply):
    """Take a message out of an outbox, because its target refuses it or it is to stay.

    With `reason` it is dead-lettered, without one it becomes active here. A dead letter goes back to its queue; with
    `reason` it is not forwarded again in this run of the broker, unless the entity is changed.
    """

    home: int
    number: int
    reason: str | None
    description: str
    reply: Callable[[BrokerError | None], None]


@dataclass(slots=True, eq=False, repr=False)
class ExpireLocks(FireAndForget):
    """End the expired locks of messages and sessions."""


@dataclass(slots=True, eq=False, repr=False)
class ProcessDue(FireAndForget):
    """Process due rows of the `due` table: (instant in Unix ms, `Due` code, number)."""

    rows: Sequence[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def slice(self, start: int, stop: int) -> ProcessDue:
        return ProcessDue(self.rows[start:stop])


@dataclass(slots=True, eq=False, repr=False)
class DeleteRows(WithReply):
    """Delete up to `limit` rows of this partition of a deleted entity; `reply` gets True if rows may remain."""

    limit: int
    reply: Callable[[bool | BrokerError], None]
