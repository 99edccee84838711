"""An exercise: all presets one after the other, in an order that a seed gives, each with times that fit its share.

Knows the plan of an exercise. Does not start anything: `emubus exercise` does, over the control API. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..conditions.behaviour import Value
from ..conditions.chance import fraction
from ..conditions.presets import PRESETS

REST_SHARE: Final = 0.2
"""Of a preset's share of the time, what is left without any condition: clients recover."""


@dataclass(frozen=True, slots=True)
class Step:
    """A preset of an exercise: on for `on_ms`, then a rest; `values` are its parameters where they differ."""

    name: str
    on_ms: int
    rest_ms: int
    values: Mapping[str, Value]


def steps(duration_ms: int, seed: int, names: Sequence[str], entity_count: int) -> list[Step]:
    """The steps of an exercise: each preset once, in the order of the seed, with the same share of the time."""
    ordered = sorted(names, key=lambda name: fraction(seed, "exercise", name, 1))
    share_ms = duration_ms // max(1, len(ordered))
    rest_ms = int(share_ms * REST_SHARE)
    on_ms = max(1, share_ms - rest_ms)
    return [Step(name, on_ms, rest_ms, fitting(name, on_ms, entity_count)) for name in ordered]


def fitting(name: str, on_ms: int, entity_count: int) -> dict[str, Value]:
    """The times of a preset that do not fit into `on_ms`, made shorter."""

    def part(divisor: int) -> int:
        return max(1, on_ms // divisor)

    gap_ms = part(2 * max(1, entity_count))
    wanted: Mapping[str, Mapping[str, int]] = {
        "throttled": {"throttle-classic.burst_ms": part(16), "throttle-classic.gap_ms": part(4)},
        "rolling-upgrade": {
            "broker-move.gap_min_ms": gap_ms // 2,
            "broker-move.gap_max_ms": gap_ms,
            "broker-move.away_min_ms": part(12),
            "broker-move.away_max_ms": part(6),
            "gateway-restart.after_ms": part(2),
        },
        "broker-failover": {
            "store-out.ms": part(2),
            "reroute-slow.ms_min": part(16),
            "reroute-slow.ms": part(8),
            "phantom-not-found.ms": part(4),
        },
        "far-away": {
            "reset.ms_min": part(4),
            "reset.ms_max": part(2),
            "half-open.ms": part(4),
            "websocket-cut.ms": part(3),
        },
        "laggy-admin": {
            "counts-stale.lag_ms": part(3),
            "create-not-visible.ms": part(8),
            "conflict-cleanup.ms": part(6),
            "rule-late.ms": part(8),
        },
        "quiet-hours": {
            "idle-link.idle_ms": part(4),
            "idle-connection.first_ms": part(8),
            "idle-connection.later_ms": part(4),
            "silent-connection.idle_ms": part(2),
        },
    }
    return {each: min(ms, usual(name, each)) for each, ms in wanted.get(name, {}).items()}


def usual(name: str, parameter: str) -> int:
    """The value that a preset gives a parameter, or the table's."""
    from ..conditions.table import BEHAVIOURS  # only now: the table imports every behaviour

    behaviour, _, key = parameter.partition(".")
    given = PRESETS[name].behaviours[behaviour].get(key)
    if given is None:
        given = next(each.default for each in BEHAVIOURS[behaviour].parameters if each.name == key)
    return int(given)
