"""Queries of all modes under `kill -9` of drivers, executors, Python workers and the broker, round after round.

    python -m tests.spark.acceptance.kill_rounds --kills 200 --seed 1 [--round 25] [--standard]

A round: a sender fills a topic whose subscriptions are browsed, claimed and drained into Parquet files; three queries
write what they browse to queues: one with duplicate detection, one without, and one with it that makes two equal rows
of each message and deals them anew. Kills come at random moments, when each query has done a batch since its driver
started. After `--round` kills everything comes to its end, and each number must be in the files and in the first queue
once, in the second at least once, in the third twice, and gone from what was claimed and drained. Odd rounds have two
executors as processes of their own; in even rounds the driver is the executor, so that a killed worker ends its query.
With `--standard` the source asks for no operation that only emubus has.
"""

from __future__ import annotations

import argparse
import random
import sys
import tempfile
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from .kit import Killing, driver_conf, parquet_rows, queue_rows
from .processes import HERE, Broker, Child, Children, Driver, kill

KINDS: Final = ("worker", "worker", "executor", "executor", "broker", "broker", "driver")
TOPIC: Final = "numbers"
READ: Final = ("browse", "claim", "drain")
ONCE, AT_LEAST_ONCE, TWICE = "once", "at-least-once", "twice"
REMEMBERED: Final = {  # for longer than a slow machine takes from one attempt at a batch to the next
    "RequiresDuplicateDetection": True,
    "DuplicateDetectionHistoryTimeWindow": "P1D",
}
QUEUES: Final[dict[str, dict[str, object]]] = {
    ONCE: {"EnablePartitioning": True, **REMEMBERED},
    AT_LEAST_ONCE: {"EnablePartitioning": True},
    TWICE: {"EnablePartitioning": True, **REMEMBERED},
}
LOCK: Final = "PT5S"
EVERY: Final = "500 milliseconds"
LIMIT: Final = 1_000  # messages of a batch
PAUSE_S_MAX: Final = 2.0  # between a batch and a kill, so that kills hit all parts of a batch
FINISHES_MAX: Final = 4
SCHEMA: Final = "sequenceNumber BIGINT, body STRING"
MASTERS: Final = ("local[2]", "local-cluster[2,1,512]")
PATIENCE: Final = {  # a machine that is busy with other things slows Spark down, and no round fails of it
    "spark.deploy.maxExecutorRetries": "-1",  # else a master ends an application whose executors were killed ten times
    "spark.python.authenticate.socketTimeout": "300s",
    "spark.network.timeout": "600s",
    "spark.executor.heartbeatInterval": "60s",
}
END_S_MAX: Final = 1_800.0


def topic() -> dict[str, object]:
    """The topic, as the broker's configuration file has it."""
    properties = {"LockDuration": LOCK, "MaxDeliveryCount": 1_000}
    return {
        "Name": TOPIC,
        "Properties": {"EnablePartitioning": True, **REMEMBERED},
        "Subscriptions": [{"Name": mode, "Properties": properties} for mode in READ],
    }


def path_of(mode: str) -> str:
    """The subscription that is read in a mode."""
    return f"{TOPIC}/Subscriptions/{mode}"


def plan_of(connection_string: str, folder: Path, master: str, operations: str) -> dict[str, Any]:
    """A query for each mode of reading, and for each queue."""
    queries: dict[str, dict[str, Any]] = {}
    for name in (*READ, *QUEUES):
        mode = name if name in READ else "browse"
        options = {"connectionString": connection_string}
        read = {**options, "entityPath": path_of(mode), "mode": mode, "maxMessagesPerTrigger": str(LIMIT)}
        read["serviceOperations"] = operations
        if mode == "claim":
            read["claimId"] = "rounds"
        write = {"checkpointLocation": str(folder / f"{name}-checkpoint")}
        write |= (
            {**options, "queue": name, "batchSizeBytes": "4096"} if name in QUEUES else {"path": str(folder / name)}
        )
        queries[name] = {
            "read": {"format": "servicebus", "options": read, "schema": SCHEMA},
            "select": ["sequenceNumber", "body"],
            "write": {"format": "servicebus" if name in QUEUES else "parquet", "options": write},
            "every": EVERY,
        }
    queries[TWICE] |= {"copies": 2, "partitions": 3}
    conf = {**driver_conf(folder), **PATIENCE, "spark.executor.memory": "512m"}
    return {"conf": conf, "master": master, "queries": queries}


@dataclass
class Tally:
    """Kills by kind, numbers sent, and what is wrong, by query."""

    kills: Counter[str] = field(default_factory=Counter[str])
    sent: int = 0
    lost: Counter[str] = field(default_factory=Counter[str])
    doubled: Counter[str] = field(default_factory=Counter[str])
    left: Counter[str] = field(default_factory=Counter[str])
    errors: Counter[str] = field(default_factory=Counter[str])

    def __str__(self) -> str:
        return (
            f"{self.kills.total()} kills {dict(self.kills)}, {self.sent} numbers through {len(READ) + len(QUEUES)} "
            f"queries: lost {self.lost.total()} {dict(self.lost)}, doubled {self.doubled.total()} {dict(self.doubled)} "
            f"({AT_LEAST_ONCE} not counted), left behind {dict(self.left)}, failures of the connector "
            f"{dict(self.errors)}"
        )

    @property
    def is_right(self) -> bool:
        """Whether nothing is lost, doubled, left or failed by itself."""
        return not (self.lost + self.doubled + self.left + self.errors)

    def judge(self, name: str, numbers: Counter[int], sent: int) -> None:
        """Compare what a query has written with what was sent."""
        copies = 2 if name == TWICE else 1
        self.lost[name] += sum(max(0, copies - numbers[number]) for number in range(sent))
        if name != AT_LEAST_ONCE:
            self.doubled[name] += sum(max(0, count - copies) for count in numbers.values())


class Round:
    """One round in a folder of its own."""

    def __init__(self, children: Children, chance: random.Random, master: str, tally: Tally, operations: str) -> None:
        self._chance = chance
        self._tally = tally
        self._folder = children.folder
        self._broker = Broker(children, QUEUES, [topic()])
        self._sender: Child = children.start(
            [sys.executable, "-P", str(HERE / "sender.py"), self._broker.connection_string, TOPIC]
        )
        plan = plan_of(self._broker.connection_string, children.folder, master, operations)
        self._driver = Driver(children, plan)
        self._killing = Killing(self._driver, chance)
        self._at_work: set[str] = set()  # queries that have done a batch since the driver started

    def play(self, kills: int) -> None:
        """Kill so often, come to the end, and judge."""
        for _ in range(kills):
            self._await_batch()
            self._killing.listen(self._chance.uniform(0, PAUSE_S_MAX))
            self._tally.kills[self._kill(self._chance.choice(KINDS))] += 1
        self._sender.tell("finish")
        sent = int(self._sender.line_with(r"^(\d+)$"))
        self._finish()
        self._judge(sent)

    def _await_batch(self) -> None:
        """Wait until a query has done a batch, and each has since the driver started."""
        while (event := self._driver.next_event(END_S_MAX)) is not None:
            self._killing.note(event)
            if event["event"] == "batch":
                self._at_work.add(event["query"])
                if self._at_work >= {*READ, *QUEUES}:
                    return
        raise AssertionError(f"there are no more batches\n{self._driver.errors()}")

    def _kill(self, kind: str) -> str:
        """Kill something; what it was. Without executors of its own, the driver's workers are killed instead."""
        pids = {"executor": self._driver.executors(), "worker": self._driver.workers()}
        if kind == "executor" and not pids[kind]:
            kind = "worker"
        if kind == "broker":
            self._broker.crash()
        elif pids.get(kind):
            kill(self._chance.choice(pids[kind]))
        else:
            self._killing.crash_driver(*READ, *QUEUES)
            self._at_work.clear()
            return "driver"
        return kind

    def _finish(self) -> None:
        """Let all queries come to their end; again while messages are left that were locked when a claim broke off."""
        for _ in range(FINISHES_MAX):
            self._killing.finish(END_S_MAX)
            if not self._left():
                return
            self._driver.restart()

    def _left(self) -> Counter[str]:
        rows = {mode: queue_rows(self._broker.connection_string, path_of(mode)) for mode in READ if mode != "browse"}
        return Counter({mode: len(found) for mode, found in rows.items() if found})

    def _judge(self, sent: int) -> None:
        self._tally.sent += sent
        for mode in READ:
            self._tally.judge(mode, Counter(number for _, number in parquet_rows(self._folder / mode)), sent)
        for queue in QUEUES:
            found = queue_rows(self._broker.connection_string, queue)
            self._tally.judge(queue, Counter(number for _, number in found), sent)
        self._tally.left += self._left()
        own = [error for error in self._killing.errors if "SERVICEBUS_" in error]
        self._tally.errors += Counter(error[error.index("SERVICEBUS_") :][:200] for error in own)


def main(arguments: list[str]) -> int:
    """The command line; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.acceptance.kill_rounds")
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--round", type=int, default=25, help="kills between two verdicts")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--standard", action="store_true", help="read with serviceOperations=standard")
    options = parser.parse_args(arguments)
    operations = "standard" if options.standard else "all"
    tally = Tally()
    for number, first in enumerate(range(0, options.kills, options.round)):
        seed = options.seed + number
        with tempfile.TemporaryDirectory(prefix=f"emubus-spark-{seed}-") as folder, Children(Path(folder)) as children:
            game = Round(children, random.Random(seed), MASTERS[seed % 2], tally, operations)
            game.play(min(options.round, options.kills - first))
        sys.stdout.write(f"up to seed {seed}: {tally}\n")
        sys.stdout.flush()
    return 0 if tally.is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
