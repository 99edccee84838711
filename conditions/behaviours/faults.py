"""The behaviours of faults: one kind each, for the operations that a test chose.

Knows what each kind does. Does not know how an effect is done.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import partial
from typing import Final

from ...broker import service_errors
from ...broker.amounts import Probability, Span
from ...broker.errors import BrokerError, Condition
from ..behaviour import Circumstances, Parameter, Row, Value, Way, share
from ..condition import StartedCondition
from ..faults import DELAYING, STRIKES, Fault, FaultKind, FaultOperation
from ..strikes import Attempt, Effect, Strike
from .operations import ByChance

_KINDS: Final[Mapping[FaultKind, tuple[Effect, str, str]]] = {
    FaultKind.SERVER_BUSY: (
        Effect.REFUSE,
        "The operation is refused.",
        "`com.microsoft:server-busy`, error code 50009",
    ),
    FaultKind.DROPPED_LINK: (
        Effect.DETACH,
        "The link is detached; nothing is done.",
        "detach, `amqp:link:detach-forced`",
    ),
    FaultKind.DROPPED_CONNECTION: (Effect.CUT, "The connection is cut; nothing is done.", "TCP reset"),
    FaultKind.LOST_LOCK: (
        Effect.LOSE_LOCK,
        "The lock ends as if expired.",
        "`com.microsoft:message-lock-lost` or `session-lock-lost`",
    ),
    FaultKind.DELAYED_CONFIRMATION: (Effect.DELAY, "Done at once, confirmed later.", "the outcome, late"),
    FaultKind.MISSING_CONFIRMATION: (Effect.FORGET, "Done, never confirmed.", "nothing"),
}


class InjectedFault(ByChance):
    OPERATIONS = tuple(FaultOperation)

    def __init__(self, on: Circumstances, operations: Collection[FaultOperation] = ()) -> None:
        super().__init__(on)
        self.kind = FaultKind(on.row.name)
        self.operations = tuple(operations) or STRIKES[self.kind]

    @property
    def title(self) -> str:
        return f"the fault '{self.kind.value}'"

    @property
    def late_ms(self) -> int:
        """How much later the outcome comes; 0 for the kinds that do not delay it."""
        return self.number("delay_ms") if self.kind in DELAYING else 0

    def applies(self, attempt: Attempt) -> bool:
        return attempt.operation in self.operations

    def effect(self, attempt: Attempt) -> Strike:
        effect, _, _ = _KINDS[self.kind]
        refusal = service_errors.throttled(self.on.broker.name) if effect is Effect.REFUSE else None
        return Strike(effect, refusal, self.late_ms)


def fault_of(condition: StartedCondition) -> Fault:
    """What is known of the fault that a condition is."""
    (behaviour,) = condition.behaviours
    assert isinstance(behaviour, InjectedFault)
    return Fault(
        condition.number,
        behaviour.kind,
        condition.entity,
        behaviour.operations,
        condition.left,
        behaviour.ratio("share"),
        behaviour.late_ms,
        condition.struck_count,
    )


def fault_row(kind: FaultKind, operations: Collection[FaultOperation]) -> Row:
    """The row of a fault for some operations; BrokerError (argument-error) for one that the kind can't strike."""
    impossible = [each.value for each in operations if each not in STRIKES[kind]]
    if impossible:
        allowed = ", ".join(STRIKES[kind])
        text = f"A fault of kind {kind} can strike {allowed}, not {', '.join(impossible)}."
        raise BrokerError(Condition.ARGUMENT_ERROR, text)
    return _row(kind, operations)


def fault_values(kind: FaultKind, probability: float, delay_ms: int) -> dict[str, Value]:
    """The values of a fault's parameters. BrokerError: argument-out-of-range."""
    likely, delay = Probability(probability, "probability"), Span(delay_ms, "delay_ms")
    return {"share": likely, **({"delay_ms": delay} if kind in DELAYING else {})}


def _row(kind: FaultKind, operations: Collection[FaultOperation] = ()) -> Row:
    _, about, wire = _KINDS[kind]
    delay = (Parameter("delay_ms", "The delay.", 1_000, "ms"),) if kind in DELAYING else ()
    about = f"{about} It can strike: {', '.join(STRIKES[kind])}."
    make = partial(InjectedFault, operations=operations)
    return Row(kind.value, "Faults", about, "entity", wire, "wire contract", (share(), *delay), make, Way.FAULT)


ROWS: Final = tuple(_row(kind) for kind in FaultKind)
