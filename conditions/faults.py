"""The words of faults: their kinds, the operations that each can strike, and what is known of one that is set.

A fault is a condition of one behaviour (`behaviours/faults.py`) that has names and numbers of its own: a test sets
faults one by one, for exact operations. Pure data.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from enum import StrEnum
from typing import Final

from ..broker.lazy_dataclass import dataclass


class FaultKind(StrEnum):
    SERVER_BUSY = "server-busy"  # refused with a condition that clients retry; nothing is done
    DROPPED_LINK = "dropped-link"  # the link is detached; nothing is done
    DROPPED_CONNECTION = "dropped-connection"  # the connection is cut without a close; nothing is done
    LOST_LOCK = "lost-lock"  # the lock ends as if expired: the message is available again
    DELAYED_CONFIRMATION = "delayed-confirmation"  # done at once, confirmed later
    MISSING_CONFIRMATION = "missing-confirmation"  # done, never confirmed


class FaultOperation(StrEnum):
    """The operations of clients that faults and behaviours strike."""

    ATTACH = "attach"
    SEND = "send"
    RECEIVE = "receive"  # giving credit for messages
    SETTLE = "settle"
    RENEW = "renew"  # a lock of a message or of a message session
    REQUEST = "request"  # any other request to the management node: peek, schedule, session state, rules, …


_ALL: Final = tuple(FaultOperation)
_CONFIRMED: Final = (FaultOperation.SEND, FaultOperation.SETTLE, FaultOperation.RENEW, FaultOperation.REQUEST)
STRIKES: Final[Mapping[FaultKind, tuple[FaultOperation, ...]]] = {
    FaultKind.SERVER_BUSY: _ALL,
    FaultKind.DROPPED_LINK: _ALL,
    FaultKind.DROPPED_CONNECTION: _ALL,
    FaultKind.LOST_LOCK: (FaultOperation.SETTLE, FaultOperation.RENEW),
    FaultKind.DELAYED_CONFIRMATION: _CONFIRMED,
    FaultKind.MISSING_CONFIRMATION: _CONFIRMED,
}
"""The operations that each kind can strike."""

DELAYING: Final = (FaultKind.DELAYED_CONFIRMATION,)
"""The kinds that have a delay; for others it is ignored."""


@dataclass(frozen=True, slots=True)
class Fault:
    """What is known of a fault: it strikes `left` more times, or with None until it is cleared."""

    number: int
    kind: FaultKind
    entity: str | None = None
    operations: Collection[FaultOperation] = ()
    left: int | None = None
    probability: float = 1.0
    delay_ms: int = 0
    hit_count: int = 0
