"""Conditions in the test kit: what one reports, one for a `with` block, and all presets one after the other.

Knows how the verbs that start, read and end a condition make up the others. Does not know where the emubus runs: the
two kits do (`in_process.py`, `remote.py`).
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from types import TracebackType
from typing import Final, Self

from ..broker.errors import BrokerError, Condition
from ..conditions.behaviour import Value
from ..conditions.condition import Planned, Struck
from ..conditions.engine import Conditions, no_condition
from ..conditions.presets import PRESETS
from .condition_names import ConditionName
from .exercise import Step, steps

MINUTE_MS: Final = 60_000
UNKNOWN_HOST: Final = "emubus.invalid"
"""A name that is never given an address [RFC 6761 6.4]."""


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


class ConditionVerbs(ABC):
    """The verbs about conditions that are made of others."""

    @cached_property
    def started_conditions(self) -> list[int]:
        """The numbers of the conditions that were started by this object since its last reset."""
        return []

    @abstractmethod
    def start_condition(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> ConditionReport:
        """Start a preset or a single behaviour."""

    @abstractmethod
    def condition(self, number: int) -> ConditionReport:
        """A condition with what struck so far."""

    @abstractmethod
    def end_condition(self, number: int) -> None:
        """End a condition; nothing if it has ended."""

    @abstractmethod
    def _entity_count(self) -> int:
        """How many entities there are."""

    @property
    @abstractmethod
    def connection_string(self) -> str:
        """The connection string, for data and administration clients."""

    @property
    def unresolved_connection_string(self) -> str:
        """The connection string with a host that has no address, in place of the emubus's: `name-unknown`."""
        return re.sub(r"(?<=Endpoint=sb://)(\[.*?\]|[^:;]*)", UNKNOWN_HOST, self.connection_string, count=1)

    def conditions(
        self,
        name: ConditionName | str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        **values: Value,
    ) -> RunningCondition:
        """A condition for a `with` block, with the arguments of `start_condition`."""
        start = partial(self.start_condition, name, seed=seed, entity=entity, duration_ms=duration_ms, count=count)
        return RunningCondition(self, partial(start, **values))

    def exercise(
        self, *, minutes: float = 10.0, seed: int = 0, presets: Sequence[str] = (), entity: str | None = None
    ) -> Exercise:
        """All presets, or these, one after the other in the order of the seed: a turn of a loop for each.

        Each is on while the body of the loop runs, at most for its share of `minutes` by the broker's clock, and its
        times are shortened to fit. BrokerError (not-found) for a name that is no preset.
        """
        unknown = [each for each in presets if each not in PRESETS]
        if unknown:
            text = no_condition("preset", unknown[0], PRESETS)
            raise BrokerError(Condition.NOT_FOUND, text)
        entity_count = 1 if entity is not None else self._entity_count()
        planned = steps(int(minutes * MINUTE_MS), seed, presets or tuple(PRESETS), entity_count)

        def condition_of(step: Step) -> RunningCondition:
            start = partial(self.start_condition, step.name, seed=seed, entity=entity, duration_ms=step.on_ms)
            values = {each.replace("-", "_").replace(".", "__"): value for each, value in step.values.items()}
            return RunningCondition(self, partial(start, **values))

        return Exercise(planned, condition_of)


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

    def __init__(self, emubus: ConditionVerbs, start: Callable[[], ConditionReport]) -> None:
        self._emubus = emubus
        self._start = start
        self.number = 0

    @property
    def report(self) -> ConditionReport:
        """The condition with what struck so far, also after its end."""
        return self._emubus.condition(self.number)

    def __enter__(self) -> Self:
        self.number = self._start().number
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._emubus.end_condition(self.number)


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
