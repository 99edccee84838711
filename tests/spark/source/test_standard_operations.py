"""Nothing is asked for that only emubus has, or nothing of that is answered: so a test goes the way of production.

The option `serviceOperations=standard` sees to it for one source, the condition `no-emubus-operations` for all clients.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass
from functools import partial
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


@pytest.mark.parametrize("mode", MODES)
def test_a_query_goes_on_while_emubus_forgets_its_own_operations_and_knows_them_again(
    server: EmubusServer, make_queue: MakeQueue, mode: str
) -> None:
    queue, other = make_queue(enable_partitioning=True), make_queue(enable_partitioning=True)
    query = Spark(options_of(server, queue, **MODES[mode]))
    for round_, is_on in enumerate((False, True, False), 1):
        send_texts(server, queue, 16)
        with server.conditions("no-emubus-operations", entity=queue) if is_on else nullcontext() as on:
            query.run()
        assert on is None or {each.what.partition(":")[0] for each in on.report.struck} == {"emubus"}
        assert sorted(query.rows) == numbers(round_)
    assert stored(server, queue) == (48 if mode == "browse" else 0)
    with server.conditions("no-emubus-operations", entity=queue) as on:
        Spark(options_of(server, other)).run()
        assert on.report.struck_count == 0


@dataclass
class Meeting(Spark):
    """A query that calls `turn` before its ninth step: its second batch is planned by then."""

    turn: Callable[[], object] = int
    seen: int = 0

    def step(self, name: str) -> None:
        self.seen += 1
        if self.seen == 9:
            self.turn()


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("is_on", [False, True])
def test_a_query_that_runs_meets_the_other_way(
    server: EmubusServer, make_queue: MakeQueue, mode: str, is_on: bool
) -> None:
    queue = make_queue(enable_partitioning=True)
    begin = partial(server.start_condition, "no-emubus-operations", entity=queue)
    query = Meeting(options_of(server, queue, **MODES[mode], maxMessagesPerTrigger=40))
    query.turn = server.end_conditions if is_on else begin
    send_texts(server, queue, COUNT)
    if is_on:
        begin()
    try:
        query.run()
    finally:
        server.end_conditions()
    assert query.seen > 9
    assert sorted(query.rows) == numbers(COUNT // 16)
