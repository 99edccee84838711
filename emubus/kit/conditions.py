"""Conditions in the test kit: what one reports, one for a `with` block, and all presets one after the other.

Does not know how one is started, read and ended: the verbs do (`verbs.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import Self

from ..broker.errors import BrokerError, Condition
from ..conditions.behaviour import Value
from ..conditions.condition import Planned, Struck
from ..conditions.engine import Conditions
from .exercise import Step


@dataclass(frozen=True, slots=True)
class ConditionReport:
    """A condition: its number, what it planned, and what struck, the oldest first. Instants are Unix ms."""

    number: int
    name: str
    seed: int
    entity: str | None
    is_on: bool
    ends_at: int | None
    plan: Sequence[Planned]
    struck_count: int
    struck: Sequence[Struck]


class Exercise:
    """A loop over presets: each is on while the body of the loop runs."""

    def __init__(self, planned: Sequence[Step], condition_of: Callable[[Step], RunningCondition]) -> None:
        self.order = tuple(each.name for each in planned)
        self._planned = planned
        self._condition_of = condition_of
        self._started: list[RunningCondition] = []

    def __iter__(self) -> Iterator[RunningCondition]:
        """Start each preset; it ends with the body of the loop, also when that fails."""
        for step in self._planned:
            with self._condition_of(step) as on:
                self._started.append(on)
                yield on

    @property
    def reports(self) -> list[ConditionReport]:
        """What was on so far, with what struck."""
        return [each.report for each in self._started]


class RunningCondition:
    """A condition that is on inside a `with` block: `report` reads what struck, the end of the block ends it."""

    def __init__(
        self,
        start: Callable[[], ConditionReport],
        report: Callable[[int], ConditionReport],
        end: Callable[[int], None],
    ) -> None:
        self._start = start
        self._report = report
        self._end = end
        self.number = 0

    @property
    def report(self) -> ConditionReport:
        """The condition with what struck so far, also after its end."""
        return self._report(self.number)

    def __enter__(self) -> Self:
        self.number = self._start().number
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(self.number)


def report_of(conditions: Conditions, number: int) -> ConditionReport:
    """The report of a condition; BrokerError (not-found)."""
    condition = conditions.get(number)
    if condition is None:
        raise BrokerError(Condition.NOT_FOUND, f"There is no condition {number}.")
    return ConditionReport(
        number,
        condition.name,
        condition.seed,
        condition.entity,
        conditions.is_on(number),
        condition.ends_at,
        tuple(condition.plan),
        condition.struck_count,
        tuple(condition.struck),
    )


def parameters_of(name: str, values: Mapping[str, Value]) -> dict[str, Value]:
    """The parameters of a condition, by their names in the table, from the names of arguments in Python."""
    found: dict[str, Value] = {}
    for key, value in values.items():
        behaviour, split, parameter = key.partition("__")
        found[f"{behaviour.replace('_', '-')}.{parameter}" if split else f"{name}.{key}"] = value
    return found
