"""Queries that write to queues are killed again and again: each row arrives, and only once if the queue sees to it."""

from __future__ import annotations

import random
from collections import Counter
from pathlib import Path

import pytest

from ...rounds import rounds
from .kit import Killing, committed, driver_conf, queue_rows
from .processes import Broker, Children, Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WORKER_KILLS, DRIVER_KILLS = rounds((2, 1), (19, 1))
ONCE, AT_LEAST_ONCE = "once", "at-least-once"
QUEUES = {  # ids are known for longer than a slow machine takes from one attempt at a batch to the next
    ONCE: {
        "EnablePartitioning": True,
        "RequiresDuplicateDetection": True,
        "DuplicateDetectionHistoryTimeWindow": "P1D",
    },
    AT_LEAST_ONCE: {},
}
ROWS_PER_BATCH = 1200


def plan_of(broker: Broker, folder: Path) -> dict[str, object]:
    """One query for each queue; the queue's name is the query's. Small deliveries make tasks worth killing."""
    queries = {}
    for name in QUEUES:
        options = {"connectionString": broker.connection_string, "queue": name}
        options |= {"batchSizeBytes": "1024", "maxInFlight": "1", "checkpointLocation": str(folder / name)}
        source = {"rowsPerBatch": str(ROWS_PER_BATCH if name == ONCE else ROWS_PER_BATCH // 6), "numPartitions": "2"}
        queries[name] = {
            "read": {"format": "rate-micro-batch", "options": source},
            "select": ["CAST(value AS STRING) AS body"],
            "write": {"format": "servicebus", "options": options},
        }
    return {"conf": driver_conf(folder), "queries": queries}


def _is_cut_off(error: str) -> bool:
    """Whether the broker died while a task without duplicate detection had sent a part of its rows: it can't go on."""
    return f"Identifier: {AT_LEAST_ONCE} " in error and "[SERVICEBUS_UNAVAILABLE]" in error and "stay sent" in error


def test_each_row_is_in_the_queue_exactly_once_however_often_it_is_killed(tmp_path: Path) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    kills = chance.sample(["worker"] * WORKER_KILLS + ["driver"] * DRIVER_KILLS, WORKER_KILLS + DRIVER_KILLS)
    broker_dies_before = chance.randrange(1, len(kills))
    with Children(tmp_path) as children:
        broker = Broker(children, QUEUES)
        killing = Killing(Driver(children, plan_of(broker, tmp_path)), chance)
        for number, kind in enumerate(kills):
            killing.let_work(ONCE)
            if number == broker_dies_before:
                broker.crash()
            if kind == "worker":
                killing.kill_workers(ONCE)
            else:
                killing.crash_driver(*QUEUES)
        killing.kill_workers(AT_LEAST_ONCE)  # the kills above hit it by chance only
        killing.finish()
        found = {name: Counter(number for _, number in queue_rows(broker.connection_string, name)) for name in QUEUES}
        counts = {name: committed(tmp_path / name)["offset"] for name in QUEUES}
    assert found[ONCE] == Counter(range(counts[ONCE]))
    assert set(found[AT_LEAST_ONCE]) == set(range(counts[AT_LEAST_ONCE]))
    assert killing.restarts[ONCE] >= WORKER_KILLS + DRIVER_KILLS
    assert killing.restarts[AT_LEAST_ONCE] > DRIVER_KILLS
    assert [error for error in killing.errors if "SERVICEBUS_" in error and not _is_cut_off(error)] == []
