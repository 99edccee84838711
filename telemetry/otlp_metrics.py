"""Metrics as OpenTelemetry has them. Names are those of `/metrics`, without `_total`."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    HistogramDataPoint,
    Metric,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Histogram as HistogramData
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope

from .metric_table import Family, Histogram, MetricKind

SCHEMA_URL: Final = ""
_UNITS: Final = {"seconds": "s", "bytes": "By"}


def metrics_data(
    families: Iterable[Family], resource: Resource, scope: InstrumentationScope, began_ns: int, now_ns: int
) -> MetricsData:
    """The metrics of a server that began to count at `began_ns` (Unix ns)."""
    metrics = [_metric(each, began_ns, now_ns) for each in families]
    of_scope = ScopeMetrics(scope, metrics, SCHEMA_URL)
    return MetricsData([ResourceMetrics(resource, [of_scope], SCHEMA_URL)])


def _metric(family: Family, began_ns: int, now_ns: int) -> Metric:
    metric = family.metric
    numbers: list[NumberDataPoint] = []
    histograms: list[HistogramDataPoint] = []
    for values, value in family.points:
        labels = dict(zip(metric.labels, values, strict=True))
        if isinstance(value, Histogram):
            histograms.append(_histogram(labels, value, began_ns, now_ns))
        else:
            numbers.append(NumberDataPoint(labels, began_ns, now_ns, value))
    data: HistogramData | Sum | Gauge
    match metric.kind:
        case MetricKind.HISTOGRAM:
            data = HistogramData(histograms, AggregationTemporality.CUMULATIVE)
        case MetricKind.COUNTER:
            data = Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True)
        case MetricKind.GAUGE:
            data = Gauge(numbers)
    return Metric(metric.name, metric.about, _UNITS.get(metric.unit, "1"), data)


def _histogram(labels: dict[str, str], value: Histogram, began_ns: int, now_ns: int) -> HistogramDataPoint:
    return HistogramDataPoint(
        labels,
        began_ns,
        now_ns,
        sum(value.counts),
        value.total,
        value.counts,
        value.bounds,
        min=None,  # type: ignore[arg-type] # optional in the protocol, and not known
        max=None,  # type: ignore[arg-type]
    )
