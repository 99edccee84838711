"""Injected faults: their kinds, the operations that each can hit, and the choice of the next one.

Knows the table of kinds and the faults that are set: for one entity or all, a number of times or until cleared, always
or with a probability. Does not know how to execute a fault (`amqp/injection/` does). Owned by the composition root.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from ..broker.address import parse_address
from ..broker.amounts import Probability, Span, Times
from ..broker.errors import BrokerError, Condition
from ..broker.ids import chance

FAULTS_MAX: Final = 1_000


class FaultKind(StrEnum):
    """The kinds of faults."""

    SERVER_BUSY = "server-busy"  # refused with a condition that clients retry; nothing is done
    DROPPED_LINK = "dropped-link"  # the link is detached; nothing is done
    DROPPED_CONNECTION = "dropped-connection"  # the connection is cut without a close; nothing is done
    LOST_LOCK = "lost-lock"  # the lock ends as if expired: the message is available again
    DELAYED_CONFIRMATION = "delayed-confirmation"  # done at once, confirmed later
    MISSING_CONFIRMATION = "missing-confirmation"  # done, never confirmed


class FaultOperation(StrEnum):
    """The client operations that a fault can hit."""

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
"""The operations that each kind can hit."""

DELAYING: Final = (FaultKind.DELAYED_CONFIRMATION,)
"""The kinds that have a delay; for others it is ignored."""


@dataclass(slots=True)
class Fault:
    """A fault that is set: for `left` more times, or with None until it is cleared."""

    number: int
    kind: FaultKind
    entity: str | None = None
    operations: Collection[FaultOperation] = ()
    left: int | None = None
    probability: float = 1.0
    delay_ms: int = 0
    hit_count: int = 0

    def covers(self, address: str) -> bool:
        """Whether the fault applies to a link to `address`: the entity, its sub-queues or its management node."""
        return self.entity is None or parse_address(address).key == parse_address(self.entity).key


class FaultTable:
    """The faults that are set. It calls `changed()` when the first is set and when the last is cleared."""

    def __init__(self, changed: Callable[[], None], draw: Callable[[], float] = chance) -> None:
        self._changed = changed
        self._draw = draw
        self._faults: dict[int, Fault] = {}
        self._last_number = 0

    @property
    def is_empty(self) -> bool:
        """Whether no fault is set."""
        return not self._faults

    def list(self) -> list[Fault]:
        """All faults that are set, the oldest first."""
        return list(self._faults.values())

    def add(
        self,
        kind: FaultKind,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        """Set a fault for `count` times, None until it is cleared; without `operations` for all that it can hit.

        `delay_ms` is for the kinds in `DELAYING`; others have none.
        Raises BrokerError: argument-error for an operation that the kind can't hit, argument-out-of-range,
        resource-limit-exceeded.
        """
        left = None if count is None else Times(count, "count")
        likely, delay = Probability(probability, "probability"), Span(delay_ms, "delay_ms")
        impossible = [each.value for each in operations if each not in STRIKES[kind]]
        if impossible:
            allowed = ", ".join(STRIKES[kind])
            raise BrokerError(
                Condition.ARGUMENT_ERROR, f"A fault of kind {kind} can strike {allowed}, not {', '.join(impossible)}."
            )
        if len(self._faults) >= FAULTS_MAX:
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, f"At most {FAULTS_MAX} faults can be set at a time.")
        self._last_number += 1
        hit = tuple(operations) or STRIKES[kind]
        fault = Fault(self._last_number, kind, entity, hit, left, likely, delay if kind in DELAYING else 0)
        self._faults[fault.number] = fault
        if len(self._faults) == 1:
            self._changed()
        return fault

    def remove(self, number: int) -> bool:
        """Clear a fault; return False for an unknown number."""
        if self._faults.pop(number, None) is None:
            return False
        if not self._faults:
            self._changed()
        return True

    def clear(self) -> int:
        """Clear all faults; return their number."""
        count = len(self._faults)
        self._faults.clear()
        if count:
            self._changed()
        return count

    def next_fault(self, address: str, operation: FaultOperation) -> Fault | None:
        """Return the fault that hits an operation on a link to `address`, or None, and count it."""
        for fault in self._faults.values():
            if operation in fault.operations and fault.covers(address) and self._draw() < fault.probability:
                fault.hit_count += 1
                if fault.left is not None:
                    fault.left -= 1
                    if fault.left <= 0:
                        self.remove(fault.number)
                return fault
        return None
