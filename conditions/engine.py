"""The conditions that are on: started by name, asked by adapters, ended by time, count or command.

Knows in which order behaviours are asked: that of the conditions, then of their rows; the first that strikes wins.
Does not know what behaviours do. Owned by the AMQP server, on whose event loop everything runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar

import structlog

from ..broker.amounts import Period, Seed, Times
from ..broker.api import Totals
from ..broker.broker import Broker
from ..broker.clock import Clock
from ..broker.errors import BrokerError
from ..broker.errors import Condition as ErrorCondition
from .bucket import Bucket
from .chance import Stream
from .delaying import Delaying
from .network import Network
from .strikes import AdminRefusal, AdminRequest, Attempt, Passing, Strike, TlsFailure

if TYPE_CHECKING:
    from .behaviour import Behaviour, Row, Shared, Value
    from .condition import Condition

CONDITIONS_MAX: Final = 100
ENDED_MAX: Final = 100
"""Ended conditions whose strikes can still be read."""

T = TypeVar("T")
log = structlog.get_logger()


class Conditions:
    """The conditions of one server. `watch` gives functions that are called when the first begins or the last ends."""

    def __init__(self, clock: Clock, broker: Broker, network: Callable[[], Network]) -> None:
        self._clock = clock
        self._broker = broker
        self._network = network
        self._conditions: dict[int, Condition] = {}
        self._ended: dict[int, Condition] = {}
        self._behaviours: list[Behaviour] = []
        self._last_number = 0
        self._watchers: list[Callable[[], None]] = []
        self._delaying = Delaying(clock, broker)
        self.counts: Counter[str] = Counter()
        """Strikes by behaviour since the start of the server."""

    @property
    def are_on(self) -> bool:
        return bool(self._behaviours)

    def watch(self, changed: Callable[[], None]) -> None:
        """Call `changed()` when the first condition begins and when the last one has ended."""
        self._watchers.append(changed)

    # ---- on and off

    def list(self) -> list[Condition]:
        """The conditions that are on, the oldest first."""
        return list(self._conditions.values())

    def get(self, number: int) -> Condition | None:
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
    ) -> Condition:
        """Start a preset or a single behaviour, for a time, for a number of strikes, or until it is ended.

        `values` has parameters, of a preset as `behaviour.parameter`. BrokerError: not-found for an unknown name,
        argument-error for a parameter, argument-out-of-range, resource-limit-exceeded.
        """
        seed = Seed(seed, "seed")
        left = None if count is None else Times(count, "count")
        duration_ms = None if duration_ms is None else Period(duration_ms, "duration_ms")
        if len(self._conditions) >= CONDITIONS_MAX:
            text = f"At most {CONDITIONS_MAX} conditions can be on at a time."
            raise BrokerError(ErrorCondition.RESOURCE_LIMIT_EXCEEDED, text)
        from .behaviour import Shared  # not needed for the start of a server, as the condition and the presets
        from .condition import Condition
        from .presets import PRESETS

        found = _behaviours_of(name, values or {})
        preset, now = PRESETS.get(name), self._clock.now_ms()
        if duration_ms is None and preset is not None and preset.lasts_ms is not None:
            entity_count = sum(1 for _ in self._broker.namespace.entities()) if entity is None else 1
            duration_ms = preset.lasts_ms + entity_count * preset.lasts_ms_per_entity
        self._last_number += 1
        ends_at = None if duration_ms is None else now + duration_ms
        condition = Condition(self._last_number, name, seed, entity, now, ends_at, left)
        shared = Shared(Bucket(self._clock))
        condition.begin([self._made(condition, row, given, shared) for row, given in found])
        self._conditions[condition.number] = condition
        log.info("condition begins", condition=condition.number, name=name, seed=seed, entity=entity, ends_at=ends_at)
        was_on = self.are_on
        self._use_behaviours()
        if not was_on:
            self._announce()
        if ends_at is not None:
            self._clock.call_at(ends_at, partial(self._expire, condition.number))
        for each in condition.behaviours:
            each.begin()
        return condition

    def end(self, number: int) -> bool:
        """End a condition; False for one that is not on."""
        condition = self._conditions.pop(number, None)
        if condition is None:
            return False
        self._use_behaviours()
        for each in condition.behaviours:
            each.end()
        self._ended[number] = condition
        while len(self._ended) > ENDED_MAX:
            del self._ended[next(iter(self._ended))]
        log.info("condition ended", condition=number, name=condition.name, struck_count=condition.struck_count)
        if not self.are_on:
            self._announce()
        return True

    def _use_behaviours(self) -> None:
        """Ask the behaviours of the conditions that are on."""
        self._behaviours = [each for other in self._conditions.values() for each in other.behaviours]
        self._delaying.use([each for each in self._behaviours if each.delays])

    def _expire(self, number: int) -> None:
        self.end(number)

    def end_all(self) -> int:
        """End all conditions; return their number."""
        numbers = list(self._conditions)
        for number in numbers:
            self.end(number)
        return len(numbers)

    def _made(self, condition: Condition, row: Row, values: Mapping[str, Value], shared: Shared) -> Behaviour:
        """A behaviour with chance of its own: its stream depends on seed and name, not on what runs beside it."""
        from .behaviour import Circumstances
        from .condition import Planned

        assert row.make is not None
        chance = Stream(condition.seed, row.name)

        def record(scope: str, what: str) -> bool:
            return self._struck(condition, row.name, scope, what, chance.count(scope))

        return row.make(
            Circumstances(
                row=row,
                condition=condition.name,
                values=values,
                entity=condition.entity,
                started_at=condition.started_at,
                ends_at=condition.ends_at,
                seed=condition.seed,
                chance=chance,
                clock=self._clock,
                broker=self._broker,
                network=self._network(),
                shared=shared,
                record=record,
                plan=lambda at, what: condition.plan.append(Planned(at, row.name, what)),
            )
        )

    def _struck(self, condition: Condition, behaviour: str, scope: str, what: str, decision: int) -> bool:
        struck = condition.strike(self._clock.now_ms(), behaviour, scope, what, decision)
        if struck is None:
            return False
        self.counts[behaviour] += 1
        log.info(
            "condition struck",
            condition=condition.number,
            name=condition.name,
            behaviour=behaviour,
            scope=scope,
            what=what,
            decision=decision,
            tracking_id=struck.tracking_id,
        )
        if condition.left == 0:
            self._clock.call_at(struck.at, partial(self._expire, condition.number))
        return True

    def _announce(self) -> None:
        for changed in self._watchers:
            changed()

    # ---- what adapters ask

    def changed(self) -> None:
        """A link or connection has come or gone."""
        for each in self._behaviours:
            each.changed()

    def opening(self) -> BrokerError | None:
        """The error with which a new connection is closed."""
        return next(_found(each.opening() for each in self._behaviours), None)

    def handshake(self) -> TlsFailure | None:
        """How the TLS handshake of a new connection fails; None: it does not."""
        return next(_found(each.handshake() for each in self._behaviours), None)

    def accepts(self, connection: int) -> bool:
        return all(each.accepts(connection) for each in self._behaviours)

    def carry(self, passing: Passing) -> tuple[int, int | None]:
        """How much later bytes arrive (ms), and after how many of them the connection is reset; None: it is not."""
        delay_ms = sum(each.delay_ms(passing) for each in self._behaviours)
        return delay_ms, next(_found(each.cut_at(passing) for each in self._behaviours), None)

    def putting_token(self, connection: int, audience: str) -> BrokerError | None:
        """The refusal of a token; None: it is read."""
        return next(_found(each.putting_token(connection, audience) for each in self._behaviours), None)

    def links_per_session_max(self, usual: int) -> int:
        """How many links an AMQP session may have."""
        return min([usual, *_found(each.links_per_session_max() for each in self._behaviours)])

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
        return min(_found(each.room(address, unsettled) for each in self._behaviours), default=None)

    def delivered(self, address: str, count: int, link: Callable[[], str]) -> None:
        """A client got messages of an entity over a link."""
        for each in self._behaviours:
            each.delivered(address, count, link)

    def administer(self, request: AdminRequest) -> AdminRefusal | None:
        """The refusal of a request of an administration client; None: it is granted."""
        return next(_found(each.administer(request) for each in self._behaviours), None)

    def administered(self, request: AdminRequest) -> None:
        """A request of an administration client was granted."""
        for each in self._behaviours:
            each.administered(request)

    def totals_shown(self, path: str, totals: Totals) -> Totals:
        """The counts of an entity that an administration client sees."""
        for each in self._behaviours:
            totals = each.totals_shown(path, totals)
        return totals


def _found(values: Iterator[T | None]) -> Iterator[T]:
    return (each for each in values if each is not None)


def _behaviours_of(name: str, values: Mapping[str, Value]) -> list[tuple[Row, dict[str, Value]]]:
    """The rows of a preset or behaviour, each with all its values. BrokerError as for `Conditions.start`."""
    from .presets import PRESETS
    from .table import BEHAVIOURS, read_values

    if name in BEHAVIOURS:
        given = {each.removeprefix(f"{name}."): value for each, value in values.items()}
        return [(BEHAVIOURS[name], read_values(BEHAVIOURS[name], given))]
    preset = PRESETS.get(name)
    if preset is None:
        known = ", ".join((*PRESETS, *BEHAVIOURS))
        raise BrokerError(ErrorCondition.NOT_FOUND, f"There is no condition '{name}'; there are: {known}.")
    given_of: dict[str, dict[str, Value]] = {each: dict(preset.behaviours[each]) for each in preset.behaviours}
    for each, value in values.items():
        behaviour, _, parameter = each.partition(".")
        if behaviour not in given_of:
            text = f"{name} has no '{each}'; parameters are named behaviour.parameter, of: {', '.join(given_of)}."
            raise BrokerError(ErrorCondition.ARGUMENT_ERROR, text)
        given_of[behaviour][parameter] = value
    return [(BEHAVIOURS[each], read_values(BEHAVIOURS[each], given)) for each, given in given_of.items()]
