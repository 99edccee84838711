"""What adapters ask before they do what a client wants, and what they do instead when a behaviour strikes.

Knows the forms that a bad moment can take for an operation of a client or for a request of an administration client.
Does not know why it comes: behaviours do. Pure data.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from ..broker.errors import BrokerError, Condition
from ..broker.tracking import Form
from .fault_table import FaultOperation


class Effect(StrEnum):
    """What happens to an operation."""

    REFUSE = "refuse"  # nothing is done; the client gets the error
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


@dataclass(frozen=True, slots=True)
class Attempt:
    """An operation that a client is about to have done. `count` gives its number of messages, where it has one.

    `request` is the name of a management operation without its prefix, such as `peek-message`. `has_key`: whether what
    is sent belongs to one partition.
    """

    operation: FaultOperation
    address: str
    count: Callable[[], int]
    request: str = ""
    has_key: Callable[[], bool] = lambda: False


@dataclass(frozen=True, slots=True)
class Strike:
    """What happens to an attempt, in place of what the client wants."""

    effect: Effect
    error: BrokerError | None = None
    delay_ms: int = 0
    count: int = 0


class FormedError(BrokerError):
    """An error whose tail is not the one that its place usually has; without a `form` it has none."""

    def __init__(self, condition: Condition, description: str, form: Form | None) -> None:
        super().__init__(condition, description)
        self.form = form


@dataclass(frozen=True, slots=True)
class AdminRequest:
    """A request of an administration client for `path`: a queue, topic, subscription or rule, or a list of them.

    `is_create` is False for a PUT that updates.
    """

    method: str
    path: str
    is_create: bool


@dataclass(frozen=True, slots=True)
class AdminRefusal:
    """The answer to a request that fails: an HTTP status and a text. `is_done`: what was asked for is done first."""

    status: int
    text: str
    is_done: bool = False
