"""docs/METRICS.md names every metric, and each counter of the broker has a metric."""

from __future__ import annotations

from docs.generate.metrics import PAGE, page
from emubus.broker.api import Counted
from emubus.telemetry.metric_table import COUNTED, METRICS, counted_metric


def test_the_page_has_the_metrics_of_the_code() -> None:
    assert PAGE.read_text() == page(), "write it anew: python -m docs.generate.metrics"


def test_everything_that_is_counted_has_a_metric_of_its_own() -> None:
    assert list(COUNTED) == list(Counted)
    assert len({counted_metric(what).name for what in Counted}) == len(Counted)
    assert all(metric.about for metric in METRICS.values())
