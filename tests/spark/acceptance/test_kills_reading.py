"""A query that drains a queue into Parquet is killed again and again, and loses and repeats nothing."""

from __future__ import annotations

import random
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest

from ...rounds import rounds
from .kit import Killing, committed, driver_conf, following, parquet_rows, partitions, queue_rows
from .processes import HERE, Broker, Child, Children, Driver

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1800)]

WORKER_KILLS, DRIVER_KILLS = rounds((2, 1), (17, 3))
QUEUE, QUERY = "numbers", "drained"
LIMIT = 1000  # messages per micro-batch
QUEUES = {QUEUE: {"EnablePartitioning": True, "RequiresDuplicateDetection": True, "LockDuration": "PT5S"}}
FINISHES_MAX = 4  # deletion by receiving leaves what a killed driver has locked to a later run


@dataclass
class Scene:
    """A broker, a sender and what the query writes."""

    broker: Broker
    sender: Child
    folder: Path
    operations: str

    @property
    def plan(self) -> dict[str, object]:
        options = {"connectionString": self.broker.connection_string, "queue": QUEUE, "mode": "drain"}
        options["serviceOperations"] = self.operations
        return {
            "conf": driver_conf(self.folder),
            "queries": {
                QUERY: {
                    "read": {
                        "format": "servicebus",
                        "options": {**options, "maxMessagesPerTrigger": str(LIMIT)},
                        "schema": "sequenceNumber BIGINT, body STRING",
                    },
                    "select": ["sequenceNumber", "body"],
                    "write": {
                        "format": "parquet",
                        "options": {"path": str(self.rows), "checkpointLocation": str(self.checkpoint)},
                    },
                }
            },
        }

    @property
    def rows(self) -> Path:
        return self.folder / "rows"

    @property
    def checkpoint(self) -> Path:
        return self.folder / "checkpoint"

    def sent(self, line: str) -> int:
        """How many numbers are confirmed for sure; with the line "finish", when all are."""
        self.sender.tell(line)
        return int(self.sender.line_with(r"^(\d+)$"))

    def check_midway(self) -> None:
        """Nothing is lost, nothing is twice, and what is gone from the queue is committed."""
        sent = self.sent("count")
        written, done = parquet_rows(self.rows), following(committed(self.checkpoint))
        there = queue_rows(self.broker.connection_string, QUEUE)
        numbers = [number for _, number in written]
        assert len(numbers) == len(set(numbers))
        assert set(range(sent)) - set(numbers) - {number for _, number in there} == set()
        gone = sorted(number for number, _ in set(written) - set(there))
        assert [number for number in gone if number >= done[number >> 48]] == []


@pytest.mark.parametrize("operations", ["all", "standard"])
def test_a_drained_queue_is_in_parquet_exactly_once_however_often_it_is_killed(tmp_path: Path, operations: str) -> None:
    seed = random.randrange(1_000_000)
    print(f"seed {seed}")  # noqa: T201
    chance = random.Random(seed)
    kills = chance.sample(["worker"] * WORKER_KILLS + ["driver"] * DRIVER_KILLS, WORKER_KILLS + DRIVER_KILLS)
    broker_dies_before = chance.randrange(1, len(kills))
    with Children(tmp_path) as children:
        broker = Broker(children, QUEUES)
        sender = children.start([sys.executable, "-P", str(HERE / "sender.py"), broker.connection_string, QUEUE])
        scene = Scene(broker, sender, tmp_path, operations)
        driver = Driver(children, scene.plan)
        killing = Killing(driver, chance)
        for number, kind in enumerate(kills):
            killing.let_work(QUERY)
            if number == broker_dies_before:
                broker.crash()
            if kind == "worker":
                killing.kill_workers(QUERY)
            else:
                killing.crash_driver(QUERY)
                scene.check_midway()
        sent = scene.sent("finish")
        killing.finish()
        for _ in range(FINISHES_MAX if operations == "standard" else 0):
            if not queue_rows(broker.connection_string, QUEUE):
                break
            driver.restart()
            killing.finish()
        written = parquet_rows(scene.rows)
        assert sorted(number for _, number in written) == list(range(sent))
        found = partitions(broker.connection_string, QUEUE)
        assert [each.message_count for each in found] == [0] * 16
        done = following(committed(scene.checkpoint))
        assert done == {each.partition_id: each.next_sequence_number for each in found}
    assert killing.restarts[QUERY] >= WORKER_KILLS + DRIVER_KILLS
    assert [error for error in killing.errors if "SERVICEBUS_" in error] == []
