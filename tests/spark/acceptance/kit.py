"""What queries leave behind: their checkpoints, their Parquet files, and what is in queues; and how queries are killed.

Reads Spark's files itself, so that it can look while no Spark runs: a file counts if Spark's own list of files has it,
a batch is committed if there is a commit of it.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pyarrow import parquet
from pyspark.sql.types import LongType, StringType, StructField, StructType

from emubus.spark_connector.options import source_options
from emubus.spark_connector.source.batch import BatchReader
from emubus.spark_connector.timing import monotonic_s
from emubus.spark_connector.wire.management import PartitionRange
from emubus.spark_connector.wire.pool import pooled

from ..conftest import SPARK_CONF
from ..idle import close_idle
from .processes import READY_S_MAX, Driver, Event, kill

ROWS = StructType([StructField("sequenceNumber", LongType()), StructField("body", StringType())])
LOOK_S, LOOK_S_MAX = 0.7, 10.0
FAIL_S_MAX = 600.0

Row = tuple[int, int]
"""A message as it is compared: its sequence number, and the number in its body."""


def driver_conf(folder: Path) -> dict[str, str]:
    """How a driver of its own is configured; tasks are tried once."""
    return {**SPARK_CONF, "spark.local.dir": str(folder / "local")}


# ---- Spark's files


def committed(checkpoint: Path) -> Any:
    """The offset of the only source up to which batches are committed, as JSON; None before the first one."""
    batches = _numbers(checkpoint / "commits")
    if not batches:
        return None
    return json.loads((checkpoint / "offsets" / str(max(batches))).read_text().splitlines()[2])


def following(offset: Any) -> dict[int, int]:
    """The next sequence number of each partition, from an offset of the connector's source."""
    return {} if offset is None else {int(each): int(each) << 48 | number for each, number in offset["p"].items()}


def parquet_files(folder: Path) -> list[str]:
    """All files that Spark's list of files has."""
    listed: set[str] = set()
    for path in (folder / "_spark_metadata").glob("*"):
        if not path.name.startswith("."):
            listed |= {json.loads(line)["path"] for line in path.read_text().splitlines()[1:]}
    return [unquote(urlsplit(url).path) for url in listed]


def parquet_rows(folder: Path) -> list[Row]:
    """The rows of these files."""
    rows: list[Row] = []
    for file in parquet_files(folder):
        rows += _rows(parquet.read_table(file, columns=["sequenceNumber", "body"]))
    return sorted(rows)


def _numbers(folder: Path) -> list[int]:
    return [int(path.name) for path in folder.glob("*") if path.name.isdigit()]


def _rows(table: Any) -> list[Row]:
    return list(zip(table.column(0).to_pylist(), map(int, table.column(1).to_pylist()), strict=True))


# ---- queues


def queue_rows(connection_string: str, queue: str) -> list[Row]:
    """Every message in a queue."""
    raw = {"connectionString": connection_string, "queue": queue, "peekBatchSize": "2000"}
    reader = BatchReader(source_options(raw, streaming=False), ROWS)
    found = sorted(row for task in reader.partitions() for batch in reader.read(task) for row in _rows(batch))
    close_idle()
    return found


def partitions(connection_string: str, queue: str) -> list[PartitionRange]:
    """Where the partitions of a queue begin and end, and how much they hold."""
    options = source_options({"connectionString": connection_string, "queue": queue}, streaming=False).connection
    with pooled(options.endpoint, options.credential) as connection:
        found: list[PartitionRange] | None = connection.management(queue).partitions()
    close_idle()
    assert found is not None
    return found


# ---- killing


@dataclass
class Killing:
    """Kills a driver's workers, or the driver, at random moments, and keeps count of what it did to each query."""

    driver: Driver
    chance: random.Random
    restarts: Counter[str] = field(default_factory=Counter[str])
    batches: Counter[str] = field(default_factory=Counter[str])
    errors: list[str] = field(default_factory=list[str])

    def note(self, event: Event) -> None:
        """Something happened to a query."""
        if event["event"] == "failed":
            self.restarts[event["query"]] += 1
            self.errors.append(event["error"])
        elif event["event"] == "batch":
            self.batches[event["query"]] += 1

    def let_work(self, query: str) -> None:
        """Let the query work for up to two batches and a moment."""
        for _ in range(self.chance.randrange(3)):
            assert self.driver.wait_for("batch", query, self.note), self.driver.errors()
        self.listen(self.chance.uniform(0, 0.5))

    def kill_workers(self, query: str) -> None:
        """Kill one Python worker of running tasks, or all, again and again until the query has failed of it."""
        restarts = self.restarts[query]
        deadline_s, look_s = monotonic_s() + FAIL_S_MAX, LOOK_S
        while self.restarts[query] == restarts:
            assert monotonic_s() < deadline_s, f"{query} does not fail\n{self.driver.errors()}"
            workers = self.driver.workers()
            for pid in self.chance.sample(workers, self.chance.choice([1, len(workers)])) if workers else []:
                kill(pid)
            self.listen(look_s, until=query)
            look_s = min(2 * look_s, LOOK_S_MAX)  # a busy machine needs longer to begin a task that can be killed

    def crash_driver(self, *queries: str) -> None:
        """Kill the driver, and start another one.

        Each query has ended a batch by then: if a driver dies while Spark writes the first entry of a checkpoint, Spark
        itself refuses that checkpoint ever after (STATE_STORE_CHECKPOINT_LOCATION_NOT_EMPTY).
        """
        for query in queries:
            if not self.batches[query]:
                assert self.driver.wait_for("batch", query, self.note), self.driver.errors()
        self.driver.crash()
        for query in queries:
            self.restarts[query] += 1

    def finish(self, seconds: float = READY_S_MAX) -> None:
        """Let the queries come to their end; AssertionError if they don't in so many seconds."""
        self.driver.finish()
        assert self.driver.wait_for("ended", "", self.note, seconds), self.driver.errors()

    def listen(self, seconds: float, until: str | None = None) -> None:
        """Hear what happens for so long, or until a query fails."""
        deadline_s = monotonic_s() + seconds
        while (event := self.driver.next_event(deadline_s - monotonic_s())) is not None:
            self.note(event)
            if (event["event"], event["query"]) == ("failed", until):
                return
