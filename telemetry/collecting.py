"""Reads the values of all metrics from the broker's own counters, when somebody asks for them.

Counts nothing itself. The partitions are read in portions, so that the event loop goes on; a partition has metrics once
it has held a message, an entity once something happened to one of its messages.
"""

from __future__ import annotations

import asyncio
import platform
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import Final

from ..broker.address import SubQueue
from ..broker.admin import figures
from ..broker.admin.figures import Distribution
from ..broker.broker import Broker
from ..broker.ledger import Ledger
from ..broker.model.descriptions import EntityKind
from ..conditions.engine import Conditions
from .metric_table import METRICS, Family, Histogram, counted_metric

AT_ONCE: Final = 500
"""Partitions, or entities, that are read in one turn of the event loop."""
SUB_QUEUES: Final = {
    SubQueue.ACTIVE: "active",
    SubQueue.DEAD_LETTER: "dead-letter",
    SubQueue.TRANSFER_DEAD_LETTER: "transfer-dead-letter",
}

Point = tuple[tuple[str, ...], float | Histogram]


@dataclass(frozen=True, slots=True)
class Sources:
    """Where values come from: the broker, the ledger, conditions and faults, counts of AMQP connections and links."""

    broker: Broker
    ledger: Ledger
    conditions: Conditions
    connection_counts: Callable[[], Mapping[str, int]]
    namespace: str | None = None
    """The name with which values are labelled, where there are several namespaces."""


def release() -> str:
    """The installed release, "0" without one."""
    try:
        return version("emubus")
    except PackageNotFoundError:
        return "0"


async def collect(sources: Sources) -> list[Family]:
    """All metrics that have a value, in the order of their table."""
    points: dict[str, list[Point]] = defaultdict(list)
    await _of_partitions(sources.broker, points)
    await _of_messages(sources.broker, points)
    _of_refusals(sources.broker, points)
    _of_stores(sources.broker, points)
    _of_ledger(sources.ledger, points)
    _of_the_rest(sources, points)
    found = [Family(metric, points[name]) for name, metric in METRICS.items() if name in points]
    return found if sources.namespace is None else [_with_namespace_label(each, sources.namespace) for each in found]


def _with_namespace_label(family: Family, namespace: str) -> Family:
    """The family with one label more on each value."""
    metric = replace(family.metric, labels=(*family.metric.labels, "namespace"))
    return Family(metric, [((*labels, namespace), value) for labels, value in family.points])


async def _of_partitions(broker: Broker, points: dict[str, list[Point]]) -> None:
    oldest: dict[str, int] = {}
    for number, each in enumerate(figures.used_partitions(broker.namespace), 1):
        place = (each.path, str(each.partition_id), str(each.store))
        for state, count in each.messages.items():
            points["emubus_messages"].append(((*place, state), count))
        points["emubus_messages_locked"].append((place, each.locked_count))
        points["emubus_partition_size_bytes"].append((place, each.size_bytes))
        points["emubus_partition_next_sequence_number"].append((place, each.numbers_given))
        if each.last_activity_at is not None:
            name = "emubus_partition_last_activity_timestamp_seconds"
            points[name].append((place, each.last_activity_at / 1000))
        if each.oldest_at is not None:
            oldest[each.path] = min(each.oldest_at, oldest.get(each.path, each.oldest_at))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)
    now = broker.clock.now_ms()
    for path, at in oldest.items():
        points["emubus_oldest_message_age_seconds"].append(((path,), max(0, now - at) / 1000))


async def _of_messages(broker: Broker, points: dict[str, list[Point]]) -> None:
    for number, (path, counts) in enumerate(figures.message_counts(broker.namespace), 1):
        for (what, detail), count in counts.items():
            metric = counted_metric(what)
            if metric.labels == ("entity",):
                labels: tuple[str, ...] = (path,)
            elif "sub_queue" in metric.labels:
                labels = path, SUB_QUEUES[SubQueue(detail)]
            else:
                labels = path, detail
            points[metric.name].append((labels, count))
        if number % AT_ONCE == 0:
            await asyncio.sleep(0)


def _of_refusals(broker: Broker, points: dict[str, list[Point]]) -> None:
    """Names come from clients: those without an entity are one series."""
    for name, counts in (("emubus_refusals", broker.refusals.counts), ("emubus_throttled", broker.refusals.throttled)):
        by_path: dict[str, int] = defaultdict(int)
        for path, count in counts.items():
            entity = broker.namespace.entity(path)
            by_path["" if entity is None else entity.path] += count
        points[name] += [((path,), count) for path, count in by_path.items()]
    points["emubus_errors"] += [((code,), count) for code, count in broker.refusals.by_code.items()]


def _of_stores(broker: Broker, points: dict[str, list[Point]]) -> None:
    for each in figures.stores(broker.namespace):
        store = (str(each.store),)
        points["emubus_store_commits"].append((store, each.commit_count))
        points["emubus_store_commit_failures"].append((store, each.failed_commit_count))
        points["emubus_store_commit_duration_seconds"].append((store, _histogram(each.commit_us, 1_000_000)))
        points["emubus_store_batch_commands"].append((store, _histogram(each.commands, 1)))
        points["emubus_store_available"].append((store, int(each.is_available)))


def _of_ledger(ledger: Ledger, points: dict[str, list[Point]]) -> None:
    report = ledger.survey()
    points["emubus_held_bytes"] += [((use.title,), size) for use, size in report.by_use.items()]
    points["emubus_held_limit_bytes"] += [
        (("connection",), report.connection_bytes_max),
        (("identity",), report.identity_bytes_max),
        (("strangers",), report.strangers_bytes_max),
        (("everything",), report.bytes_max),
    ]
    points["emubus_sockets"].append(((), report.sockets))
    if report.sockets_max is not None:
        points["emubus_sockets_limit"].append(((), report.sockets_max))
    points["emubus_strangers"].append(((), report.strangers))
    points["emubus_connections_expelled"].append(((), report.closed_count))
    points["emubus_connections_cut"].append(((), report.cut_count))


def _histogram(values: Distribution, unit: int) -> Histogram:
    return Histogram([bound / unit for bound in values.bounds], values.counts, values.total / unit)


def _of_the_rest(sources: Sources, points: dict[str, list[Point]]) -> None:
    broker = sources.broker
    build = (release(), platform.python_version(), broker.limits.profile.value)
    points["emubus_build_info"].append((build, 1))
    kinds = [entity.description.kind for entity in broker.namespace.entities()]
    points["emubus_entities"] += [((kind.value,), kinds.count(kind)) for kind in EntityKind]
    counts = sources.connection_counts()
    points["emubus_amqp_connections"].append(((), counts["connections"]))
    points["emubus_amqp_links"].append(((), counts["links"]))
    points["emubus_faults"].append(((), len(sources.conditions.faults())))
    points["emubus_conditions"].append(((), len(sources.conditions.list())))
    points["emubus_condition_strikes"] += [((name,), count) for name, count in sources.conditions.counts.items()]
