"""Progress of queries as the package's listener reports it."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from emubus.spark_connector import ProgressListener, QueryProgress, servicebus_progress
from emubus.spark_connector.source.offsets import ClaimOffset, Offset

REPORT: dict[str, Any] = {
    "id": "8e9f5dc7",
    "name": "copy",
    "batchId": 4,
    "numInputRows": 10,
    "processedRowsPerSecond": 2.5,
    "sources": [
        {
            "description": "org.apache.spark.PythonMicroBatchStream@afb624c",
            "startOffset": None,
            "endOffset": json.dumps(Offset("orders", {0: 6}).to_json()),
            "latestOffset": json.dumps(Offset("orders", {0: 9}).to_json()),
        },
        {"description": "FileStreamSource", "startOffset": "1", "endOffset": "no json", "latestOffset": None},
    ],
    "sink": {"description": "org.apache.spark.PythonTable@221dfcbb", "numOutputRows": 8},
    "observedMetrics": {"servicebus": {"bytes": 77}},
}
EXPECTED = QueryProgress("copy", 4, ("orders",), 10, 2.5, 8, 77, 3)


def as_object(report: dict[str, Any]) -> Any:
    """The report as Spark's own class has it."""
    sources = [SimpleNamespace(**each) for each in report["sources"]]
    return SimpleNamespace(**(report | {"sources": sources, "sink": SimpleNamespace(**report["sink"])}))


@pytest.mark.parametrize("report", [REPORT, json.dumps(REPORT), as_object(REPORT)], ids=["dict", "text", "object"])
def test_a_report_names_the_entity_and_has_its_figures(report: Any) -> None:
    assert servicebus_progress(report) == EXPECTED


def test_what_spark_does_not_know_is_none() -> None:
    claimed = {"endOffset": ClaimOffset("orders", "c").to_json(), "latestOffset": None}
    report = {"id": "8e9f5dc7", "name": None, "batchId": 0, "numInputRows": 0, "processedRowsPerSecond": 0.0}
    found = servicebus_progress({**report, "sources": [claimed], "sink": {"numOutputRows": -1}})
    assert found == QueryProgress("8e9f5dc7", 0, ("orders",), 0, 0.0, None, None, None)


def test_partitions_that_cannot_be_reached_are_named() -> None:
    latest = Offset("orders", {0: 9}).to_json() | {"out": [7, 2]}
    found = servicebus_progress({**REPORT, "sources": [{**REPORT["sources"][0], "latestOffset": latest}]})
    assert found is not None
    assert found.unavailable == {"orders": (2, 7)}
    assert str(found).endswith(", partitions 2, 7 of orders unavailable")


def test_queries_of_other_sources_are_passed_over() -> None:
    other = {**REPORT, "sources": REPORT["sources"][1:]}
    found: list[QueryProgress] = []
    listener = ProgressListener(found.append)
    for report in (other, REPORT, None):
        listener.onQueryProgress(SimpleNamespace(progress=report))
    assert found == [EXPECTED]


def test_without_a_function_the_listener_logs_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "emubus.spark"):
        ProgressListener().onQueryProgress(SimpleNamespace(progress=REPORT))
    assert caplog.messages == [
        "orders: batch 4 of query copy, 10 rows read (2 rows/s), 77 bytes, 8 rows written, 3 to read"
    ]
