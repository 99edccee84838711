"""The conditions and faults that are on: started by name, asked by adapters, ended by time, count or command.

Knows in which order behaviours are asked: faults first, then conditions in their order, each by its rows; the first
that strikes wins. A fault is a condition of one behaviour with a number among faults. Does not know what behaviours
do. Owned by the AMQP server, on whose event loop everything runs.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from ..broker.amounts import Period, Seed, Times
from ..broker.api import Totals
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError, Condition
from ..broker.ids import chance
from .bucket import Bucket
from .chance import SEED_MAX, Stream
from .delaying import Delaying
from .network import Network
from .strikes import AdminRefusal, AdminRequest, Attempt, Passing, Strike, TlsFailure

if TYPE_CHECKING:
    from .behaviour import Behaviour, Row, Shared, Value
    from .condition import StartedCondition, Struck
    from .faults import Fault, FaultKind, FaultOperation

CONDITIONS_MAX: Final = 100
ENDED_MAX: Final = 100
"""Ended conditions whose strikes can still be read, and as many faults."""
FAULTS_MAX: Final = 1_000
FAULT_STRUCK_MAX: Final = 20
"""How many of its last strikes a fault lists, as the page shows them: there may be many faults."""

T = TypeVar("T")
log = structlog.get_logger()


class Conditions:
    """The conditions and faults of one server.

    `watch` gives functions that are called when the first of either begins or the last ends. `draw` gives the chance
    of faults, which have no seed: from 0 up to and without 1.
    """

    def __init__(self, clock: Clock, broker: Broker, network: Network, draw: Callable[[], float] = chance) -> None:
        self._draw = draw
        self._clock = clock
        self._broker = broker
        self._network = network
        self._conditions: dict[int, StartedCondition] = {}
        self._ended: dict[int, StartedCondition] = {}
        self._ended_faults: deque[StartedCondition] = deque(maxlen=ENDED_MAX)
        self._faults: dict[int, StartedCondition] = {}
        self._behaviours: list[Behaviour] = []
        self._last_number = 0
        self._last_fault = 0
        self._watchers: list[Callable[[], None]] = []
        self._delaying = Delaying(clock, broker)
        self.counts: Counter[str] = Counter()
        """Strikes by behaviour since the start of the server."""

    @property
    def are_on(self) -> bool:
        return bool(self._conditions)

    @property
    def are_set(self) -> bool:
        """Whether any condition or fault is on: then `strike` must be asked."""
        return bool(self._behaviours)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed()` when the first condition or fault begins and when the last one has ended."""
        self._watchers.append(changed)

    # ---- on and off

    def list(self) -> list[StartedCondition]:
        """The conditions that are on, the oldest first."""
        return list(self._conditions.values())

    def get(self, number: int) -> StartedCondition | None:
        """A condition that is on or has ended lately."""
        return self._conditions.get(number) or self._ended.get(number)

    def is_on(self, number: int) -> bool:
        return number in self._conditions

    def start(
        self,
        name: str,
        *,
        seed: int = 0,
        entity: str | None = None,
        duration_ms: int | None = None,
        count: int | None = None,
        values: Mapping[str, Value] | None = None,
    ) -> StartedCondition:
        """Start a preset or a single behaviour, for a time, for a number of strikes, or until it is ended.

        `values` has parameters, of a preset as `behaviour.parameter`. BrokerError: not-found for an unknown name,
        argument-error for a parameter, argument-out-of-range, resource-limit-exceeded.
        """
        seed = Seed(seed, "seed")
        left = None if count is None else Times(count, "count")
        duration_ms = None if duration_ms is None else Period(duration_ms, "duration_ms")
        if len(self._conditions) >= CONDITIONS_MAX:
            text = f"At most {CONDITIONS_MAX} conditions can be on at a time."
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        from .condition import StartedCondition  # not needed for the start of a server, as the presets
        from .presets import PRESETS

        found = behaviours_of(name, values or {})
        preset, now = PRESETS.get(name), self._clock.now_ms()
        if duration_ms is None and preset is not None and preset.lasts_ms is not None:
            entity_count = sum(1 for _ in self._broker.namespace.entities()) if entity is None else 1
            duration_ms = preset.lasts_ms + entity_count * preset.lasts_ms_per_entity
        self._last_number += 1
        ends_at = None if duration_ms is None else now + duration_ms
        condition = StartedCondition(self._last_number, name, seed, entity, now, ends_at, left)
        self._begin(condition, found)
        return condition

    def _begin(self, condition: StartedCondition, found: Collection[tuple[Row, Mapping[str, Value]]]) -> None:
        from .behaviour import Shared  # not needed for the start of a server

        shared, ends_at = Shared(Bucket(self._clock)), condition.ends_at
        condition.begin([self._made(condition, row, given, shared) for row, given in found])
        log.info(
            "condition begins",
            condition=condition.number,
            is_fault=condition.is_fault,
            name=condition.name,
            seed=condition.seed,
            entity=condition.entity,
            ends_at=ends_at,
        )
        before = self.are_on, self.are_set
        self._kin(condition)[condition.number] = condition
        self._use_behaviours()
        self._announce_change(before)
        if ends_at is not None:
            self._clock.call_at(ends_at, partial(self._end, condition))
        for each in condition.behaviours:
            each.begin()

    def _kin(self, condition: StartedCondition) -> dict[int, StartedCondition]:
        """What is on of its kind: faults or conditions, which have numbers of their own."""
        return self._faults if condition.is_fault else self._conditions

    def end(self, number: int) -> bool:
        """End a condition; False for one that is not on."""
        condition = self._conditions.get(number)
        if condition is None:
            return False
        self._end(condition)
        return True

    def _end(self, condition: StartedCondition) -> None:
        before = self.are_on, self.are_set
        if self._kin(condition).pop(condition.number, None) is None:
            return  # ended before its time or its count was over
        self._use_behaviours()
        for each in condition.behaviours:
            each.end()
        if condition.is_fault:
            self._ended_faults.append(condition)
        else:
            self._ended[condition.number] = condition
            while len(self._ended) > ENDED_MAX:
                del self._ended[next(iter(self._ended))]
        log.info(
            "condition ended",
            condition=condition.number,
            is_fault=condition.is_fault,
            name=condition.name,
            struck_count=condition.struck_count,
        )
        self._announce_change(before)

    def _use_behaviours(self) -> None:
        """Ask the behaviours of the faults and conditions that are on."""
        started = (*self._faults.values(), *self._conditions.values())
        self._behaviours = [each for condition in started for each in condition.behaviours]
        self._delaying.use([each for each in self._behaviours if each.delays])

    def end_all(self) -> int:
        """End all conditions; return their number."""
        numbers = list(self._conditions)
        for number in numbers:
            self.end(number)
        return len(numbers)

    def all_started(self) -> Sequence[StartedCondition]:
        """The conditions and faults that are on, and those that have ended lately, the oldest first of each kind."""
        conditions = self._conditions | self._ended
        return [
            *(conditions[number] for number in sorted(conditions)),
            *sorted((*self._ended_faults, *self._faults.values()), key=lambda each: each.number),
        ]

    def start_over(self) -> None:
        """End all conditions, clear all faults, and forget them."""
        self.clear_faults()
        self.end_all()
        self._ended.clear()
        self._ended_faults.clear()

    # ---- faults

    def faults(self) -> Sequence[Fault]:
        """The faults that can still strike, the oldest first."""
        from .behaviours.faults import fault_of

        return [fault_of(each) for each in self._faults.values() if each.left != 0]

    def struck_by_fault(self, number: int) -> Sequence[Struck]:
        """The last strikes of a fault that is set."""
        condition = self._faults.get(number)
        return [] if condition is None else list(condition.struck)

    def set_fault(
        self,
        kind: FaultKind,
        *,
        entity: str | None = None,
        operations: Collection[FaultOperation] = (),
        count: int | None = None,
        probability: float = 1.0,
        delay_ms: int = 0,
    ) -> Fault:
        """Set a fault for `count` times, None until it is cleared; without `operations` for all that it can strike.

        `delay_ms` is for the kinds in `faults.DELAYING`; others have none.
        Raises BrokerError: argument-error for an operation that the kind can't strike, argument-out-of-range,
        resource-limit-exceeded.
        """
        from .behaviours.faults import fault_of, fault_row, fault_values
        from .condition import StartedCondition, Struck

        left = None if count is None else Times(count, "count")
        values = fault_values(kind, probability, delay_ms)
        row = fault_row(kind, operations)
        if len(self._faults) >= FAULTS_MAX:
            text = f"At most {FAULTS_MAX} faults can be set at a time."
            raise BrokerError(Condition.RESOURCE_LIMIT_EXCEEDED, text)
        self._last_fault += 1
        seed, now = int(self._draw() * SEED_MAX), self._clock.now_ms()
        struck = deque[Struck](maxlen=FAULT_STRUCK_MAX)
        condition = StartedCondition(
            self._last_fault, kind.value, seed, entity, now, None, left, is_fault=True, struck=struck
        )
        self._begin(condition, [(row, values)])
        return fault_of(condition)

    def clear_fault(self, number: int) -> bool:
        """Clear a fault; False for one that is not set, or used up."""
        fault = self._faults.get(number)
        if fault is None or fault.left == 0:
            return False
        self._end(fault)
        return True

    def clear_faults(self) -> int:
        """Clear all faults; return their number."""
        return sum(self.clear_fault(number) for number in list(self._faults))

    # ---- behaviours

    def _made(self, condition: StartedCondition, row: Row, values: Mapping[str, Value], shared: Shared) -> Behaviour:
        """A behaviour with chance of its own: its stream depends on seed and name, not on what runs beside it."""
        from .behaviour import Circumstances
        from .condition import Planned

        assert row.make is not None
        stream = Stream(condition.seed, row.name)

        def record(scope: str, what: str) -> bool:
            return self._struck(condition, row.name, scope, what, stream.count(scope))

        return row.make(
            Circumstances(
                row=row,
                condition=condition.name,
                values=values,
                entity=condition.entity,
                started_at=condition.started_at,
                ends_at=condition.ends_at,
                seed=condition.seed,
                chance=stream,
                clock=self._clock,
                broker=self._broker,
                network=self._network,
                shared=shared,
                record=record,
                plan=lambda at, what: condition.plan.append(Planned(at, row.name, what)),
            )
        )

    def _struck(self, condition: StartedCondition, behaviour: str, scope: str, what: str, decision: int) -> bool:
        struck = condition.strike(self._clock.now_ms(), behaviour, scope, what, decision)
        if struck is None:
            return False
        self.counts[behaviour] += 1
        log.info(
            "condition struck",
            condition=condition.number,
            is_fault=condition.is_fault,
            name=condition.name,
            behaviour=behaviour,
            scope=scope,
            what=what,
            decision=decision,
            tracking_id=struck.tracking_id,
        )
        if condition.left == 0:
            self._clock.call_at(struck.at, partial(self._end, condition))
        return True

    def _announce_change(self, before: tuple[bool, bool]) -> None:
        """Tell the watchers if the first condition or fault has begun since, or the last one has ended."""
        if before == (self.are_on, self.are_set):
            return
        for changed in self._watchers:
            changed()

    # ---- what adapters ask

    def changed(self) -> None:
        """A link or connection has come or gone."""
        for each in self._behaviours:
            each.changed()

    def opening(self) -> BrokerError | None:
        """The error with which a new connection is closed."""
        return next(_without_none(each.opening() for each in self._behaviours), None)

    def handshake(self) -> TlsFailure | None:
        """How the TLS handshake of a new connection fails; None: it does not."""
        return next(_without_none(each.handshake() for each in self._behaviours), None)

    def accepts(self, connection: int) -> bool:
        return all(each.accepts(connection) for each in self._behaviours)

    def carry(self, passing: Passing) -> tuple[int, int | None]:
        """How much later bytes arrive (ms), and after how many of them the connection is reset; None: it is not."""
        delay_ms = sum(each.delay_ms(passing) for each in self._behaviours)
        return delay_ms, next(_without_none(each.cut_at(passing) for each in self._behaviours), None)

    def putting_token(self, connection: int, audience: str) -> BrokerError | None:
        """The refusal of a token; None: it is read."""
        return next(_without_none(each.putting_token(connection, audience) for each in self._behaviours), None)

    def links_per_session_max(self, usual: int) -> int:
        """How many links an AMQP session may have."""
        return min([usual, *_without_none(each.links_per_session_max() for each in self._behaviours)])

    def strike(self, attempt: Attempt) -> Strike | None:
        """What happens to an operation in place of what the client wants; None: nothing unusual."""
        for each in self._behaviours:
            strike = each.strike(attempt)
            if strike is not None:
                return replace(strike, cause=each.title)
        return None

    def cache_max(self, address: str) -> tuple[int, str]:
        """How many messages more than asked for a front end takes, and keeps locked; and the condition that is why."""
        most, cause = 0, ""
        for each in self._behaviours:
            count = each.cache_max(address)
            if count > most:
                most, cause = count, each.title
        return most, cause

    def room(self, address: str, unsettled: Callable[[], int]) -> int | None:
        """How many more messages a client gets while its AMQP session has so many unsettled; None: any number."""
        return min(_without_none(each.room(address, unsettled) for each in self._behaviours), default=None)

    def delivered(self, address: str, count: int, link: Callable[[], str]) -> None:
        """A client got messages of an entity over a link."""
        for each in self._behaviours:
            each.delivered(address, count, link)

    def before_admin(self, request: AdminRequest) -> AdminRefusal | None:
        """The refusal of a request of an administration client; None: it is granted."""
        return next(_without_none(each.before_admin(request) for each in self._behaviours), None)

    def after_admin(self, request: AdminRequest) -> None:
        """A request of an administration client was granted."""
        for each in self._behaviours:
            each.after_admin(request)

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        """The counts of an entity that an administration client sees."""
        for each in self._behaviours:
            totals = each.totals_shown(path, totals)
        return totals


def _without_none(values: Iterator[T | None]) -> Iterator[T]:
    return (each for each in values if each is not None)


def no_condition(what: str, name: str, known: Collection[str]) -> str:
    """What to say of a name that is unknown: the nearest one, or all."""
    from difflib import get_close_matches  # only for a mistake: a start does not need it

    close = get_close_matches(name.lower(), known, n=1)
    if close:
        return f"There is no {what} '{name}'; did you mean {close[0]}? docs/CONDITIONS.md has all {len(known)}."
    return f"There is no {what} '{name}'; there are: {', '.join(known)}."


def behaviours_of(name: str, values: Mapping[str, Value]) -> list[tuple[Row, dict[str, Value]]]:
    """The rows of a preset or behaviour, each with all its values. BrokerError as for `Conditions.start`."""
    from .presets import PRESETS
    from .table import BEHAVIOURS, read_values

    if name in BEHAVIOURS:
        given = {each.removeprefix(f"{name}."): value for each, value in values.items()}
        return [(BEHAVIOURS[name], read_values(BEHAVIOURS[name], given))]
    preset = PRESETS.get(name)
    if preset is None:
        raise BrokerError(Condition.NOT_FOUND, no_condition("condition", name, (*PRESETS, *BEHAVIOURS)))
    given_of: dict[str, dict[str, Value]] = {each: dict(preset.behaviours[each]) for each in preset.behaviours}
    for each, value in values.items():
        behaviour, _, parameter = each.partition(".")
        if behaviour not in given_of:
            text = f"{name} has no '{each}'; parameters are named behaviour.parameter, of: {', '.join(given_of)}."
            raise BrokerError(Condition.ARGUMENT_ERROR, text)
        given_of[behaviour][parameter] = value
    return [(BEHAVIOURS[each], read_values(BEHAVIOURS[each], given)) for each, given in given_of.items()]
