"""How far behind a query is, from what Spark reports."""

from __future__ import annotations

import json
import logging
from types import SimpleNamespace
from typing import Any

import pytest

from emubus.spark_connector.lag import LagListener, servicebus_lag
from emubus.spark_connector.source.offsets import ClaimOffset, Offset, SeenOffset, base_of


def source(end: Any, latest: Any) -> dict[str, Any]:
    return {"description": "servicebus", "endOffset": end, "latestOffset": latest}


ENDS = Offset("q", {0: 5, 1: base_of(1) + 5})
LATEST = Offset("q", {0: 9, 1: base_of(1) + 5, 2: base_of(2) + 3})
PROGRESS = {
    "sources": [
        source(json.dumps(ENDS.to_json()), json.dumps(LATEST.to_json())),
        source("7", "9"),
        source(json.dumps(ClaimOffset("q", "c").to_json()), None),
        source("not json", "not json"),
    ]
}


def as_object(progress: dict[str, Any]) -> Any:
    return SimpleNamespace(sources=[SimpleNamespace(**each) for each in progress["sources"]])


@pytest.mark.parametrize(
    "progress", [PROGRESS, json.dumps(PROGRESS), as_object(PROGRESS)], ids=["dict", "text", "object"]
)
def test_the_lag_is_reported_by_entity_and_partition(progress: Any) -> None:
    assert servicebus_lag(progress) == {"q": {0: 4, 1: 0, 2: 2}}


def test_offsets_that_are_maps_already_are_taken_as_they_are() -> None:
    assert servicebus_lag({"sources": [source(ENDS.to_json(), LATEST.to_json())]}) == {"q": {0: 4, 1: 0, 2: 2}}


def test_the_lag_of_a_sub_queue_is_what_is_to_be_read() -> None:
    latest = SeenOffset("q/$DeadLetterQueue").to_json() | {"unread": {"0": 2, "3": 0}, "out": [7]}
    end = SeenOffset("q/$DeadLetterQueue", seen=((1, 9),), batch=((3, 1),)).to_json()
    assert servicebus_lag({"sources": [source(end, latest)]}) == {"q/$DeadLetterQueue": {0: 2, 3: 0, 7: 1}}


def test_without_progress_there_is_no_lag() -> None:
    assert servicebus_lag(None) == {}
    assert servicebus_lag({}) == {}
    assert servicebus_lag({"sources": [source(None, json.dumps(LATEST.to_json()))]}) == {"q": {0: 8, 1: 4, 2: 2}}


def test_a_new_queue_has_no_lag() -> None:
    start = Offset("q", {each: base_of(each) for each in range(3)})
    empty = Offset("q", {each: base_of(each) + 1 for each in range(3)})
    assert servicebus_lag({"sources": [source(start.to_json(), empty.to_json())]}) == {"q": {0: 0, 1: 0, 2: 0}}


def test_a_listener_logs_the_lag(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "emubus.spark"):
        LagListener().onQueryProgress(SimpleNamespace(progress=as_object(PROGRESS)))
    assert caplog.messages == ["q: 6 sequence numbers to read, by partition {0: 4, 2: 2}"]
