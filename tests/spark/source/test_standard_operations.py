"""`serviceOperations=standard`: nothing is asked for that only emubus has, so a test goes the way of production."""

from __future__ import annotations

from typing import Any

import pytest

from emubus.spark_connector.wire import requests
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import Spark, numbers, options_of, send_texts, settle_by_sdk, stored

COUNT = 160
MODES: dict[str, dict[str, Any]] = {
    "browse": {},
    "drain": {"mode": "drain"},
    "claim": {"mode": "claim", "claimId": "c"},
}


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Each request to `$management` as text, with the names of operation, properties and fields."""
    found: list[str] = []
    begin = requests.Requests.begin

    def noted(self: requests.Requests, operation: str, body: Any, properties: Any) -> Any:
        found.append(f"{operation} {sorted(body)} {sorted(properties)}")
        return begin(self, operation, body, properties)

    monkeypatch.setattr(requests.Requests, "begin", noted)
    return found


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("mode", MODES)
def test_a_query_asks_for_nothing_that_the_service_does_not_know(
    server: EmubusServer, make_queue: MakeQueue, asked: list[str], mode: str, partitioned: bool
) -> None:
    queue = make_queue(enable_partitioning=partitioned)
    send_texts(server, queue, COUNT)
    query = Spark(options_of(server, queue, **MODES[mode], serviceOperations="standard", maxMessagesPerTrigger=50))
    query.run()
    assert sorted(query.rows) == (numbers(COUNT // 16) if partitioned else list(range(1, COUNT + 1)))
    assert stored(server, queue) == (COUNT if mode == "browse" else 0)
    assert asked != []
    assert [each for each in asked if "emubus" in each] == []


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_a_dead_letter_queue_is_read_without_operations_of_emubus(
    server: EmubusServer, queue: str, asked: list[str], mode: str
) -> None:
    send_texts(server, queue, 8)
    settle_by_sdk(server, queue, 8, "dead_letter_message")
    query = Spark(options_of(server, queue, mode=mode, subQueue="deadLetter", serviceOperations="standard"))
    query.run()
    assert sorted(query.rows) == list(range(1, 9))
    assert [each for each in asked if "emubus" in each] == []


@pytest.mark.parametrize("mode", MODES)
def test_a_query_goes_on_the_other_way_from_its_checkpoint_and_back(
    server: EmubusServer, make_queue: MakeQueue, mode: str
) -> None:
    queue = make_queue(enable_partitioning=True)
    query = Spark(options_of(server, queue, **MODES[mode]))
    for round_, operations in enumerate(("all", "standard", "all", "standard"), 1):
        send_texts(server, queue, 16)
        query.options = options_of(server, queue, **MODES[mode], serviceOperations=operations)
        query.run()
        assert sorted(query.rows) == numbers(round_)
    assert stored(server, queue) == (64 if mode == "browse" else 0)
