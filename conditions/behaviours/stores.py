"""Stores and subsystems that are out for a time.

Knows which one, for how long, and what clients see. Does not know what an outage does: the broker does.
"""

from __future__ import annotations

from typing import Final

from ...broker.api import Outage, OutageKind
from ...broker.errors import BrokerError
from .. import texts
from ..behaviour import Behaviour, Parameter, Row, key_of, share
from ..faults import FaultOperation
from ..strikes import Attempt, Effect, Strike

ALLOTTED_MS: Final = 8_000


class StoreOut(Behaviour):
    def begin(self) -> None:
        on = self.on
        count, asked = len(on.broker.namespace.workers), self.number("store")
        self._index = on.chance.between("store", 0, count - 1) if asked < 0 else min(asked, count - 1)
        on.plan(on.started_at, f"store {self._index} is {self.word('kind')} for {self.number('ms')} ms")
        if on.record(f"store {self._index}", self.word("kind")):
            on.broker.outages.begin(self._index, Outage(OutageKind(self.word("kind")), 0), self.number("ms"))

    def end(self) -> None:
        super().end()
        self.on.broker.outages.end(self._index)


class KeyedRefused(Behaviour):
    """While a store is out, a message with a key of a partition in it is refused as the service refuses it."""

    def strike(self, attempt: Attempt) -> Strike | None:
        """Refuse a message that belongs to a partition that is out."""
        if attempt.operation is not FaultOperation.SEND or not self.covers(attempt.address):
            return None
        if not self._is_out(attempt):
            return None
        scope = key_of(attempt.address)
        if not self.chosen(scope) or not self.on.record(scope, "message with a key refused"):
            return None
        is_late = self.word("error") == "timeout"
        error = texts.timed_out(ALLOTTED_MS) if is_late else texts.internal()
        return Strike(Effect.REFUSE, error, self.number("ms") if is_late else 0)

    def _is_out(self, attempt: Attempt) -> bool:
        entity, message = self.on.broker.namespace.entity(key_of(attempt.address)), attempt.first()
        if entity is None or message is None or not entity.is_limited:
            return False
        try:
            index = entity.keyed_index(message)
        except BrokerError:  # its keys contradict each other: the broker says so
            return False
        return index is not None and not entity.partitions[index].worker.available


class EntityAway(Behaviour):
    """A subsystem restarts: nothing is answered, and after a while that it took too long."""

    def strike(self, attempt: Attempt) -> Strike | None:
        left_ms = self.on.started_at + self.number("ms") - self.on.clock.now_ms()
        scope = key_of(attempt.address)
        if left_ms <= 0 or not scope or not self.covers(attempt.address):
            return None
        if not self.on.record(scope, f"{attempt.request or attempt.operation} not answered"):
            return None
        if attempt.operation is FaultOperation.RECEIVE:
            return Strike(Effect.LIMIT, count=0, delay_ms=left_ms)
        return Strike(Effect.REFUSE, texts.timed_out(ALLOTTED_MS), self.number("answer_ms"))


ROWS: Final = (
    Row(
        "store-out",
        "Stores",
        "A messaging store is out for a time: messages with a key of a partition in it are refused.",
        "store",
        "`com.microsoft:server-busy`",
        "documentation (partitioned entities)",
        (
            Parameter("store", "Index of the store; -1: by the seed.", -1, "", -1, 99),
            Parameter("kind", "What fails.", "down", choices=("down", "failing", "full")),
            Parameter("ms", "How long.", 20_000, "ms", 1),
        ),
        StoreOut,
    ),
    Row(
        "keyed-refused",
        "Stores",
        "While a store is out, a message with a key of a partition in it is refused; messages with other keys are not.",
        "entity",
        "rejected, `com.microsoft:timeout` or `amqp:internal-error`",
        "documentation (partitioned entities); which of the errors is inferred",
        (
            share(),
            Parameter("error", "The error.", "timeout", choices=("timeout", "internal")),
            Parameter("ms", "Time until the client gets a time-out.", 0, "ms"),
        ),
        KeyedRefused,
    ),
    Row(
        "entity-away",
        "Stores",
        "A subsystem restarts: what clients ask of an entity is not answered for a while, and then fails. Receivers "
        "get nothing. An attach fails at once.",
        "entity",
        "`com.microsoft:timeout`, late",
        "documentation (asynchronous messaging)",
        (
            Parameter("ms", "How long the entity is away.", 60_000, "ms", 1),
            Parameter("answer_ms", "Time until the error of an operation.", 8_000, "ms"),
        ),
        EntityAway,
    ),
)
