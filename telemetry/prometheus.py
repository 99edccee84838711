"""Metrics as text: for Prometheus, or as OpenMetrics if that is what is asked for.

Knows `prometheus_client`. Metrics of the process (memory, processor time, open files) come from there.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import accumulate

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.exposition import choose_encoder
from prometheus_client.registry import Collector

from .metric_table import Family, Histogram, MetricKind


class Exposition(Collector):
    """The text of metrics; keeps the collectors of the process."""

    def __init__(self) -> None:
        self._families: Sequence[Metric] = ()
        self._process = CollectorRegistry()
        ProcessCollector(registry=self._process)
        PlatformCollector(registry=self._process)

    def collect(self) -> Iterator[Metric]:
        """The metrics of the text that is being made."""
        yield from self._families
        yield from self._process.collect()

    def text(self, families: Iterable[Family], accept: str) -> tuple[bytes, str]:
        """The text of metrics and its content type, in the form that the header `accept` asks for."""
        encode: Callable[[Collector], bytes]
        encode, content_type = choose_encoder(accept)
        self._families = [_as_metric(each) for each in families]
        return encode(self), content_type


def _as_metric(family: Family) -> Metric:
    metric = family.metric
    match metric.kind:
        case MetricKind.HISTOGRAM:
            histogram = HistogramMetricFamily(metric.name, metric.about, labels=metric.labels, unit=metric.unit)
            for labels, value in family.points:
                assert isinstance(value, Histogram)
                bounds = [*map(str, value.bounds), "+Inf"]
                histogram.add_metric(labels, list(zip(bounds, accumulate(value.counts), strict=True)), value.total)
            return histogram
        case MetricKind.COUNTER:
            counter = CounterMetricFamily(metric.name, metric.about, labels=metric.labels)
            for labels, value in family.points:
                assert not isinstance(value, Histogram)
                counter.add_metric(labels, value)
            return counter
        case MetricKind.GAUGE:
            gauge = GaugeMetricFamily(metric.name, metric.about, labels=metric.labels, unit=metric.unit)
            for labels, value in family.points:
                assert not isinstance(value, Histogram)
                gauge.add_metric(labels, value)
            return gauge
