"""Presets: behaviours that come together on a bad day, with values that differ from the table's.

Knows names and values. Does not know how a condition runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from .behaviour import Value


@dataclass(frozen=True, slots=True)
class Preset:
    """Behaviours with their values, in the order in which they are asked; `lasts_ms` None: until it is ended."""

    name: str
    about: str
    behaviours: Mapping[str, Mapping[str, Value]]
    lasts_ms: int | None = None
    lasts_ms_per_entity: int = 0
    """What is added for each entity in the scope."""


PRESETS: Final[Mapping[str, Preset]] = {
    preset.name: preset
    for preset in (
        Preset(
            "throttled",
            "A Standard namespace at its limit.",
            {
                "throttle-credits": {"credits_per_s": 100, "settle_cost": 1},
                "throttle-admin": {"credits_per_s": 100},
                "throttle-classic": {"share": 0.01, "operations": "send", "burst_ms": 2_000, "gap_ms": 28_000},
                "throttle-loses-locks": {"lose_probability": 0.01},
            },
        ),
        Preset(
            "rolling-upgrade",
            "A night of maintenance: each entity moves once, and a gateway restarts.",
            {
                "broker-move": {"gap_min_ms": 5_000, "gap_max_ms": 20_000},
                "gateway-restart": {"share": 0.5, "after_ms": 30_000},
                "internal-error": {"share": 0.02},
                "throttle-classic": {"share": 0.05, "operations": "send"},
            },
            lasts_ms=60_000,
            lasts_ms_per_entity=10_000,
        ),
        Preset(
            "broker-failover",
            "A node dies: a messaging store is out, and what is bridged meanwhile is late.",
            {
                "store-out": {"ms": 20_000},
                "keyed-refused": {"error": "timeout"},
                "reroute-slow": {"ms_min": 5_000, "ms": 15_000},
                "accepted-not-visible": {"share": 0.1, "ms": 30_000},
                "container-close": {"share": 0.01},
                "phantom-not-found": {"ms": 12_000, "entities": "one"},
                "admin-limited": {"cleanup_ms": 10_000},
                "conflict-cleanup": {"ms": 10_000},
            },
            lasts_ms=90_000,
        ),
        Preset(
            "partition-quirks",
            "A partitioned entity on an ordinary day.",
            {
                "foreign-cache": {"cache_max": 16},
                "aged-lock": {"share": 0.05},
                "peek-partition-end": {},
                "peek-short": {"share": 0.05},
                "trickle": {"gap_ms": 25},
            },
        ),
        Preset(
            "far-away",
            "Clients on another continent, behind a proxy.",
            {
                "latency": {"median_ms": 140, "p99_ms": 900},
                "trickle": {"gap_ms": 40},
                "reset": {"ms_min": 180_000, "ms_max": 600_000},
                "websocket-cut": {"ms": 100_000, "idle_only": "yes"},
                "half-open": {"ms": 90_000, "connections": "one"},
            },
        ),
        Preset(
            "unsure",
            "The worst for clients that want each message processed exactly once.",
            {
                "accept-lost": {"share": 0.03, "then": "any"},
                "settle-lost": {"share": 0.03},
                "settle-unconfirmed": {"share": 0.02},
                "lock-lost": {"share": 0.02},
                "short-lock": {"share": 0.1, "cut_ms": 12_000},
                "discharge-lost": {"share": 0.03},
            },
        ),
        Preset(
            "laggy-admin",
            "Management under way.",
            {
                "counts-stale": {"lag_ms": 30_000},
                "counts-odd": {"share": 0.02},
                "create-not-visible": {"ms": 3_000},
                "conflict-running": {"share": 0.05},
                "conflict-cleanup": {"ms": 10_000},
                "admin-500-done": {"share": 0.02},
                "rule-late": {"ms": 5_000},
                "scheduled-late": {"ms": 15_000},
                "expiry-late": {"ms": 60_000},
            },
        ),
        Preset(
            "quiet-hours",
            "Nobody works at night: made for a clock that is moved.",
            {"idle-link": {}, "idle-connection": {}, "silent-connection": {}},
        ),
    )
}
