"""What can be asked of a partition, and what it answers with.

A command is data: it names what is wanted and who is to be told. `Partition.apply` turns it into a `Step`: changes for
the store and effects for the world. Knows no store, no clock and no wire.

Every command has `fail(error)`: the worker calls it instead of any effect when the batch that holds the command could
not be committed (R3). `done` and `reply` callables are called exactly once, on the event-loop thread, and must not
raise.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any

from .address import SubQueue
from .errors import BrokerError
from .message import Message
from .outcomes import Outcome

Done = Callable[[BrokerError | None], None]


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
class Taken:
    """The answer to `Take`: what was found, and whether this partition has more (`more`)."""

    deliveries: list[Delivery]
    more: bool
    error: BrokerError | None = None


class Step:
    """What one batch of commands wants: `changes` (table, key, value or None to delete) and `effects` (call, argument).

    `next_due` is the earliest expiry (Unix ms) that the changes added to the `due` table, if any.
    """

    __slots__ = ("changes", "effects", "next_due")

    def __init__(self) -> None:
        self.changes: list[tuple[str, bytes, bytes | None]] = []
        self.effects: list[tuple[Callable[[Any], None], Any]] = []
        self.next_due: int | None = None


@dataclass(slots=True)
class Send:
    """Store `messages` in this partition, all or none; `done(None)` once they are durable."""

    messages: Sequence[Message]
    done: Done

    def fail(self, error: BrokerError) -> None:
        """Tell the sender that nothing was stored."""
        self.done(error)


@dataclass(slots=True)
class Take:
    """Hand over up to `count` available messages of `sub_queue`, locked or removed according to `mode`."""

    sub_queue: SubQueue
    count: int
    mode: ReceiveMode
    reply: Callable[[Taken], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with nothing."""
        self.reply(Taken([], False, error))


@dataclass(slots=True)
class Settle:
    """End the lock `token` with `outcome`; without `done` nobody wants to hear of it."""

    token: bytes
    outcome: Outcome
    done: Done | None

    def fail(self, error: BrokerError) -> None:
        """Tell the receiver that the settlement did not happen."""
        if self.done is not None:
            self.done(error)


@dataclass(slots=True)
class Renew:
    """Start the lock durations of `tokens` anew; `reply` gets the new ends (Unix ms) or the error for all of them."""

    tokens: Sequence[bytes]
    reply: Callable[[list[int] | BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with the error."""
        self.reply(error)


@dataclass(slots=True)
class Peek:
    """Show up to `count` messages of `sub_queue` from `from_sequence_number` on, of about `bytes_max` bytes in all.

    The answer is a list of (sequence number, encoded message); the first message is there whatever its size.
    """

    sub_queue: SubQueue
    from_sequence_number: int
    count: int
    bytes_max: int
    reply: Callable[[list[tuple[int, bytes]] | BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with the error."""
        self.reply(error)


@dataclass(slots=True)
class TakeDeferred:
    """Hand over the deferred messages with these sequence numbers; all of them or an error."""

    sub_queue: SubQueue
    sequence_numbers: Sequence[int]
    mode: ReceiveMode
    reply: Callable[[list[Delivery] | BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with the error."""
        self.reply(error)


@dataclass(slots=True)
class ExpireLocks:
    """End the locks whose time is over."""

    def fail(self, error: BrokerError) -> None:
        """Nobody waits for this; the deadline is met again when the partition is reopened."""


@dataclass(slots=True)
class ExpireMessages:
    """Drop or dead-letter the messages named by these rows of the `due` table: (instant, home, sequence number)."""

    rows: Sequence[tuple[int, int, int]]

    def fail(self, error: BrokerError) -> None:
        """Nobody waits for this; the rows are still there."""


@dataclass(slots=True)
class Clear:
    """Remove up to `limit` rows of this partition; `reply` gets whether any are left. Used when a queue is deleted."""

    limit: int
    reply: Callable[[bool | BrokerError], None]

    def fail(self, error: BrokerError) -> None:
        """Answer with the error."""
        self.reply(error)


Command = Send | Take | Settle | Renew | Peek | TakeDeferred | ExpireLocks | ExpireMessages | Clear
