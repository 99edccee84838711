"""What adapters ask before they do what a client wants, and what they do instead when a behaviour strikes.

Knows the forms that a bad moment can take for an operation of a client or for a request of an administration client.
Does not know why it comes: behaviours do. Pure data.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field
from enum import StrEnum
from typing import Final

from ..broker.errors import BrokerError, Condition
from ..broker.lazy_dataclass import dataclass
from ..broker.message.message import Message
from ..broker.tracking import Form
from .faults import FaultOperation


class Effect(StrEnum):
    """What happens to an operation."""

    REFUSE = "refuse"  # nothing is done; the client gets the error, after `delay_ms`
    DETACH = "detach"  # nothing is done; the link is detached with the error
    CUT = "cut"  # nothing is done; the connection is cut
    LOSE_LOCK = "lose-lock"  # the lock ends, and the client learns of it
    IGNORE = "ignore"  # nothing is done, nothing is answered
    HOLD = "hold"  # done after `delay_ms`
    DELAY = "delay"  # done at once, confirmed after `delay_ms`
    FORGET = "forget"  # done, never confirmed
    FORGET_AND_CUT = "forget-and-cut"  # done, then the connection is cut
    FORGET_AND_DETACH = "forget-and-detach"  # done, then the link is detached with the error
    LIMIT = "limit"  # at most `count` messages; for credit, what is left comes after `delay_ms`


_WHAT: Final[Mapping[Effect, str]] = {
    Effect.REFUSE: "refused",
    Effect.DETACH: "not done, and the link was detached",
    Effect.CUT: "not done, and the connection was cut",
    Effect.LOSE_LOCK: "refused, and the lock ended",
    Effect.IGNORE: "not done and not answered",
    Effect.HOLD: "done",
    Effect.DELAY: "done at once and confirmed",
    Effect.FORGET: "done and never confirmed",
    Effect.FORGET_AND_CUT: "done and not confirmed, and the connection was cut",
    Effect.FORGET_AND_DETACH: "done and not confirmed, and the link was detached",
    Effect.LIMIT: "limited",
}


class TlsFailure(StrEnum):
    """How a TLS handshake fails."""

    ALERT = "alert"  # the server ends it
    CERTIFICATE = "certificate"  # the client does not know who has issued the certificate


class Discharge(StrEnum):
    """The ways to end a transaction."""

    COMMIT = "commit"
    ROLLBACK = "rollback"


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Attempt:
    """An operation that a client is about to have done. `count` gives its number of messages, where it has one.

    `request` is the name of a management operation without its prefix, such as `peek-message`, and `body` what it asks
    for. What is sent has `size_bytes` and `first`, its first message, None if it can't be read; `is_batch`: whether it
    is an envelope of messages. `link` gives the link as the service's texts name it.
    """

    operation: FaultOperation | Discharge
    address: str
    count: Callable[[], int]
    request: str = ""
    body: Mapping[str, object] = field(default_factory=dict[str, object])
    first: Callable[[], Message | None] = lambda: None
    size_bytes: int = 0
    is_batch: bool = False
    link: Callable[[], str] = str


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens to an attempt, in place of what the client wants, and the `cause`: a condition or a fault."""

    effect: Effect
    error: BrokerError | None = None
    delay_ms: int = 0
    count: int = 0
    cause: str = ""

    @property
    def what(self) -> str:
        """What happens, as the end of a sentence: "the send was …"."""
        text = _WHAT[self.effect]
        if self.effect is Effect.REFUSE and self.error is not None:
            text += f" with {self.error.condition.value}"
        return f"{text}, {self.delay_ms} ms late" if self.delay_ms else text


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Passing:
    """Bytes that pass over a connection (by number), `inward` to the broker or out of it.

    `transfers` has where transfer frames begin in them (below 0: before them), and how many bytes each has.
    """

    connection: int
    inward: bool
    size_bytes: int
    transfers: tuple[tuple[int, int], ...] = ()


class FormedError(BrokerError):
    """An error whose tail is not the one that its place usually has; without a `form` it has none."""

    def __init__(self, condition: Condition, description: str, form: Form | None) -> None:
        super().__init__(condition, description)
        self.form = form


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AdminRequest:
    """A request of an administration client for `path`: a queue, topic, subscription or rule, or a list of them.

    `is_create` is False for a PUT that updates.
    """

    method: str
    path: str
    is_create: bool


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class AdminRefusal:
    """The answer to a request that fails: an HTTP status and a text. `is_done`: what was asked for is done first."""

    status: int
    text: str
    is_done: bool = False
