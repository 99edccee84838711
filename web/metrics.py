"""Prometheus metrics at `/metrics`, read from the broker's own counters on request.

Knows names, labels and units of the metrics (one table). Counts nothing itself, so metrics cost nothing per message. A
partition has metrics once it has held a message. The partitions are read in portions, so that the event loop goes on,
and the text is made on another thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator
from itertools import accumulate
from typing import Final

from aiohttp import web
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import generate_latest
from prometheus_client.registry import Collector

from ..broker.admin import figures
from ..broker.admin.figures import Distribution
from ..broker.errors import BrokerError
from ..broker.model.descriptions import EntityKind
from .authorization import require_manage
from .services import Services

PATH: Final = "/metrics"
PARTITIONS_AT_ONCE: Final = 500
PLACE: Final = ("entity", "partition", "store")

GAUGES: Final = {
    "emubus_messages": ("Messages by state", (*PLACE, "state")),
    "emubus_messages_locked": ("Messages locked by receivers", PLACE),
    "emubus_partition_size_bytes": ("Size of a partition's messages", PLACE),
    "emubus_partition_next_sequence_number": ("The next sequence number, without the partition id", PLACE),
    "emubus_partition_last_activity_timestamp_seconds": ("Time of the last use of a partition", PLACE),
    "emubus_entities": ("Queues, topics and subscriptions", ("kind",)),
    "emubus_store_available": ("1 while a messaging store is available, else 0", ("store",)),
    "emubus_amqp_connections": ("AMQP connections", ()),
    "emubus_amqp_links": ("AMQP links", ()),
    "emubus_faults": ("Injected faults that are set", ()),
    "emubus_conditions": ("Conditions that are on", ()),
}
COUNTERS: Final = {
    "emubus_store_commits": ("Commits", ("store",)),
    "emubus_store_commit_failures": ("Commits that failed", ("store",)),
    "emubus_condition_strikes": ("What conditions did to clients", ("behaviour",)),
}
HISTOGRAMS: Final = {
    "emubus_store_commit_duration_seconds": "Duration of commits",
    "emubus_store_batch_commands": "Commands per commit",
}


class FixedCollector(Collector):
    """Gives out metrics that were collected before."""

    def __init__(self, families: Iterable[Metric]) -> None:
        self._families = list(families)

    def collect(self) -> Iterator[Metric]:
        """The metrics."""
        return iter(self._families)


def add_metrics(app: web.Application, services: Services) -> None:
    """Answer `GET /metrics`; with `--auth sas` it needs the Manage right."""
    process = CollectorRegistry()
    ProcessCollector(registry=process)
    PlatformCollector(registry=process)

    async def metrics(request: web.Request) -> web.Response:
        try:
            require_manage(request, services)
        except BrokerError as error:
            return web.Response(status=401, text=error.description)
        families = [*await _of_partitions(services), *_of_stores(services), *_of_the_rest(services)]
        registry = CollectorRegistry()
        registry.register(FixedCollector(families))
        body = await asyncio.to_thread(lambda: generate_latest(registry) + generate_latest(process))
        return web.Response(body=body, headers={"Content-Type": CONTENT_TYPE_LATEST})

    app.router.add_get(PATH, metrics)


def _gauge(name: str) -> GaugeMetricFamily:
    about, labels = GAUGES[name]
    return GaugeMetricFamily(name, about, labels=labels)


def _counter(name: str) -> CounterMetricFamily:
    about, labels = COUNTERS[name]
    return CounterMetricFamily(name, about, labels=labels)


async def _of_partitions(services: Services) -> list[Metric]:
    messages, locked = _gauge("emubus_messages"), _gauge("emubus_messages_locked")
    size, following = _gauge("emubus_partition_size_bytes"), _gauge("emubus_partition_next_sequence_number")
    activity = _gauge("emubus_partition_last_activity_timestamp_seconds")
    for number, each in enumerate(figures.used_partitions(services.broker), 1):
        labels = [each.path, str(each.partition_id), str(each.store)]
        for state, count in each.messages.items():
            messages.add_metric([*labels, state], count)
        locked.add_metric(labels, each.locked_count)
        size.add_metric(labels, each.size_bytes)
        following.add_metric(labels, each.numbers_given)
        if each.last_activity_at is not None:
            activity.add_metric(labels, each.last_activity_at / 1000)
        if number % PARTITIONS_AT_ONCE == 0:
            await asyncio.sleep(0)
    return [messages, locked, size, following, activity]


def _of_stores(services: Services) -> list[Metric]:
    commits, failures = (_counter(f"emubus_store_{name}") for name in ("commits", "commit_failures"))
    durations, sizes = (HistogramMetricFamily(name, about, labels=["store"]) for name, about in HISTOGRAMS.items())
    available = _gauge("emubus_store_available")
    for each in figures.stores(services.broker):
        labels = [str(each.store)]
        commits.add_metric(labels, each.commit_count)
        failures.add_metric(labels, each.failed_commit_count)
        durations.add_metric(labels, *_histogram(each.commit_us, 1_000_000))
        sizes.add_metric(labels, *_histogram(each.commands, 1))
        available.add_metric(labels, int(each.is_available))
    return [commits, failures, durations, sizes, available]


def _histogram(values: Distribution, unit: int) -> tuple[list[tuple[str, float]], float]:
    """Cumulative counts, each with its bound as text, and the sum of all values; values are divided by `unit`."""
    bounds = [*(str(bound / unit) for bound in values.bounds), "+Inf"]
    return list(zip(bounds, accumulate(values.counts), strict=True)), values.total / unit


def _of_the_rest(services: Services) -> list[Metric]:
    entities = _gauge("emubus_entities")
    kinds = [entity.description.kind for entity in services.broker.entities()]
    for kind in EntityKind:
        entities.add_metric([kind], kinds.count(kind))
    counts = services.connection_counts()
    connections, links, faults = _gauge("emubus_amqp_connections"), _gauge("emubus_amqp_links"), _gauge("emubus_faults")
    connections.add_metric([], counts["connections"])
    links.add_metric([], counts["links"])
    faults.add_metric([], len(services.faults.table.list()))
    on = _gauge("emubus_conditions")
    on.add_metric([], len(services.conditions.list()))
    strikes = _counter("emubus_condition_strikes")
    for behaviour, count in services.conditions.counts.items():
        strikes.add_metric([behaviour], count)
    return [entities, connections, links, faults, on, strikes]
