"""Samples the broker's counters each second, from the start of the server to its end.

Knows which counters there are and how two readings become rates. A sample reads only partitions in memory, since what
is not in memory does not change, and for ages the first row of a few. Owned by the composition root.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

import structlog

from ..broker.admin import figures
from ..broker.admin.figures import Activity
from ..broker.broker import Broker
from ..broker.clock import Clock, Timer
from ..broker.lazy_dataclass import dataclass
from .series import SPANS, Series, Span

EVERY_MS: Final = 1_000
ENTITIES_MAX: Final = 100
"""Entities with a series of their own; the one that has been quiet for longest makes room."""
OLDEST_READ_MAX: Final = 10
"""Entities whose oldest message is sought in a second, one row of each partition; others keep the last one."""
OF_ENTITY: Final = ("in", "out", "depth", "dead", "refused", "lock_losses", "age_s")
OF_NAMESPACE: Final = (*OF_ENTITY, "commit_ms", "stores_out")
"""Figures: messages per second in and out, active messages, dead letters, refusals and expired locks per second, the
age of the oldest active message (s; of the namespace the highest one), the mean duration of commits (ms; no value in a
second without one), and messaging stores with an outage or a failure."""

NOTHING: Final = Activity(0, 0, 0, 0, 0)
LATELY: Final = Span(1, 60)
"""How far the history of an entity's rates goes back."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Rates:
    """Messages per second in and out of an entity in the last sample, None before the first one.

    `history` has the messages per second in during `LATELY`, the oldest first.
    """

    in_per_s: float | None
    out_per_s: float | None
    history: Sequence[float]


class Sampler:
    """The series of the namespace, and of the entities in which something went on lately."""

    def __init__(self, broker: Broker, clock: Clock) -> None:
        self._broker = broker
        self._clock = clock
        self._timer: Timer | None = None
        self._began_us = clock.stopwatch_us()
        self._read_us = self._began_us
        self._before: Mapping[str, Activity] = {}
        self._refused_before: Mapping[str, int] = {}
        self._commits_before = (0, 0)
        self._namespace = Series(OF_NAMESPACE)
        self._entities: dict[str, Series] = {}
        self._oldest: dict[str, int | None] = {}
        """When the oldest active message of an entity was enqueued; the first one was sought longest ago."""
        self._rates: dict[str, tuple[float, float]] | None = None
        """In the last sample, of the entities to which or from which messages went."""

    # ---- life

    def start(self) -> None:
        """Take the first reading and go on each second."""
        self._before = figures.activity(self._broker.namespace)
        self._refused_before = dict(self._broker.refusals.counts)
        self._commits_before = figures.commits(self._broker.namespace)
        self._read_us = self._clock.stopwatch_us()
        self._await_next_second()

    def stop(self) -> None:
        """Take no more samples."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _await_next_second(self) -> None:
        self._timer = self._clock.call_after(EVERY_MS, self._tick)

    def _tick(self) -> None:
        try:
            self.sample()
        except Exception:  # charts must not stop the server
            log.exception("sample failed")
        self._await_next_second()

    # ---- samples

    @property
    def present_second(self) -> int:
        """The present second since the start."""
        return (self._clock.stopwatch_us() - self._began_us) // 1_000_000

    def sample(self) -> None:
        """Take one sample, of the time since the last one."""
        now_us = self._clock.stopwatch_us()
        elapsed_s = max((now_us - self._read_us) / 1e6, 1e-3)
        second = (now_us - self._began_us) // 1_000_000
        after, refused = figures.activity(self._broker.namespace), dict(self._broker.refusals.counts)
        total: dict[str, float] = dict.fromkeys(OF_ENTITY, 0.0)
        rates: dict[str, tuple[float, float]] = {}
        self._seek_oldest([path for path, each in after.items() if each.active_count])
        for path, each in after.items():
            before = self._before.get(path)
            refusals = refused.get(path, 0) - self._refused_before.get(path, 0)
            values = _values(before, each, refusals, elapsed_s)
            for name, value in values.items():
                total[name] += value
            values["age_s"] = self._age_s(path)
            total["age_s"] = max(total["age_s"], values["age_s"])
            if values["in"] or values["out"]:
                rates[path] = values["in"], values["out"]
            self._put(path, second, values, is_active=each != before or refusals > 0)
        all_refusals = sum(refused.values()) - sum(self._refused_before.values())
        total["refused"] = max(0, all_refusals) / elapsed_s
        commits, commit_us = figures.commits(self._broker.namespace)
        count = commits - self._commits_before[0]
        if count > 0:
            total["commit_ms"] = (commit_us - self._commits_before[1]) / count / 1_000
        total["stores_out"] = float(sum(each.is_out for each in figures.stores(self._broker.namespace)))
        self._namespace.put(second, total)
        self._rates, self._before, self._refused_before = rates, after, refused
        self._commits_before, self._read_us = (commits, commit_us), now_us

    def _seek_oldest(self, waiting: Collection[str]) -> None:
        """Find the oldest message of some of the entities that have any."""
        known = {path: at for path, at in self._oldest.items() if path in set(waiting)}
        unknown = [path for path in waiting if path not in known]
        for path in [*unknown, *known][:OLDEST_READ_MAX]:
            entity = self._broker.namespace.entity(path)
            known.pop(path, None)
            known[path] = None if entity is None else figures.oldest_at(entity)
        self._oldest = known

    def _age_s(self, path: str) -> float:
        at = self._oldest.get(path)
        return 0.0 if at is None else max(0, self._clock.now_ms() - at) / 1_000

    def _put(self, path: str, second: int, values: Mapping[str, float], *, is_active: bool) -> None:
        series = self._entities.get(path)
        if series is None:
            if not is_active:
                return
            while len(self._entities) >= ENTITIES_MAX:
                del self._entities[min(self._entities, key=lambda each: self._entities[each].changed_at_s)]
            series = self._entities[path] = Series(OF_ENTITY)
        series.put(second, values, is_active=is_active)

    # ---- what was sampled

    def samples(self, path: str | None, span: str) -> Mapping[str, list[float | None]]:
        """The samples of an entity (None: the namespace) over one of `SPANS`, by figure; empty without a series."""
        series = self._namespace if path is None else self._entities.get(path)
        if series is None:
            return {}
        found: Span = SPANS[span]
        return {name: series.last(name, found, self.present_second) for name in series.names}

    def rates(self, path: str) -> Rates:
        """The rates of an entity; they are known without a series, too."""
        if self._rates is None:
            return Rates(None, None, ())
        series = self._entities.get(path)
        history = () if series is None else series.last("in", LATELY, self.present_second)
        return Rates(*self._rates.get(path, (0.0, 0.0)), [each for each in history if each is not None])


def _values(before: Activity | None, after: Activity, refusals: int, elapsed_s: float) -> dict[str, float]:
    """The figures of one entity."""
    before = NOTHING if before is None else before  # it came into memory since
    came = max(0, after.came - before.came)
    gone = max(0, came - (after.messages_more - before.messages_more))
    losses = max(0, after.lock_losses - before.lock_losses)
    return {
        "in": came / elapsed_s,
        "out": gone / elapsed_s,
        "depth": float(after.active_count),
        "dead": float(after.dead_letter_count),
        "refused": max(0, refusals) / elapsed_s,
        "lock_losses": losses / elapsed_s,
    }
