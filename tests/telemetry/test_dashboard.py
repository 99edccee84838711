"""The Grafana dashboard of the examples: its metrics and labels exist, and its files refer to each other."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from emubus.config import load_config
from emubus.telemetry.metric_table import METRICS, MetricKind

FOLDER = Path(__file__).parent.parent.parent / "examples" / "grafana"
OF_PROCESS = {"process_cpu_seconds_total", "process_resident_memory_bytes"}
WORDS = re.compile(r"\b(?:emubus|process)_\w+")
BY = re.compile(r"\bby \(([\w, ]+)\)")
SELECTED = re.compile(r"(\w+)(?:=~|!=|=)\"")
IN_LEGEND = re.compile(r"{{(\w+)}}")

DASHBOARD: dict[str, Any] = json.loads((FOLDER / "dashboard.json").read_text())


def labels_by_name() -> dict[str, set[str]]:
    """The labels of every series that Prometheus gets, by its name."""
    found = {name: set[str]() for name in OF_PROCESS}
    for metric in METRICS.values():
        names = [metric.full_name]
        if metric.kind is MetricKind.HISTOGRAM:
            names = [f"{metric.name}_{end}" for end in ("bucket", "sum", "count")]
        for name in names:
            found[name] = {*metric.labels, *({"le"} if name.endswith("_bucket") else ())}
    return found


def targets() -> Iterator[tuple[str, str]]:
    """The query and the legend of each line in a panel."""
    for panel in DASHBOARD["panels"]:
        yield from ((each["expr"], each["legendFormat"]) for each in panel.get("targets", ()))


@pytest.mark.parametrize(("query", "legend"), list(targets()))
def test_the_metrics_and_labels_of_a_query_exist(query: str, legend: str) -> None:
    known = labels_by_name()
    names = WORDS.findall(query)
    assert names
    assert set(names) <= set(known)
    used = {label.strip() for group in BY.findall(query) for label in group.split(",")}
    used |= set(SELECTED.findall(query)) | set(IN_LEGEND.findall(legend))
    assert used <= set.intersection(*(known[name] for name in names))


def test_each_counter_of_messages_is_drawn_or_left_out_on_purpose() -> None:
    drawn = {name for query, _ in targets() for name in WORDS.findall(query)}
    counters = {metric.full_name for metric in METRICS.values() if metric.kind is MetricKind.COUNTER}
    assert counters - drawn == {"emubus_messages_purged_total"}  # an act of an operator, not of clients


def test_panels_do_not_lie_upon_each_other() -> None:
    cells = [
        (column, line)
        for panel in DASHBOARD["panels"]
        for place in [panel["gridPos"]]
        for column in range(place["x"], place["x"] + place["w"])
        for line in range(place["y"], place["y"] + place["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(column for column, _ in cells) < 24
    assert len({panel["id"] for panel in DASHBOARD["panels"]}) == len(DASHBOARD["panels"])


def test_the_files_refer_to_each_other() -> None:
    services = yaml.safe_load((FOLDER / "compose.yml").read_text())["services"]
    (source,) = yaml.safe_load((FOLDER / "provisioning" / "datasources" / "prometheus.yml").read_text())["datasources"]
    uids = {each["datasource"]["uid"] for panel in DASHBOARD["panels"] for each in panel.get("targets", ())}
    assert uids == {source["uid"]}
    assert source["url"].startswith("http://prometheus:")
    (job,) = yaml.safe_load((FOLDER / "prometheus.yml").read_text())["scrape_configs"]
    assert job["static_configs"] == [{"targets": ["servicebus:5300"]}]
    (provider,) = yaml.safe_load((FOLDER / "provisioning" / "dashboards" / "emubus.yml").read_text())["providers"]
    mounts = dict(
        each.removesuffix(":ro").split(":") for name in services for each in services[name].get("volumes", ())
    )
    assert all((FOLDER / each).exists() for each in mounts)
    assert mounts["./dashboard.json"].startswith(provider["options"]["path"] + "/")
    assert {"servicebus", "prometheus", "grafana"} == set(services)
    entities = load_config({}, services["servicebus"]["environment"]).topology
    assert [each.name for each in entities.queues] == ["orders", "payments"]
