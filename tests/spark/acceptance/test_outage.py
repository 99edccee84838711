"""Three of sixteen stores are out while queries read and write: nothing fails, and nothing is missing afterwards."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emubus.broker.api import OutageKind
from emubus.spark_connector.timing import monotonic_s
from emubus.testing import EmubusServer

from ...rounds import rounds
from ..conftest import MakeQueue
from ..source.kit import send_texts, stored
from .kit import parquet_rows, partitions, queue_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

OUT = [2, 7, 11]
HIDDEN = {"all": OUT, "standard": [1, 2, 6, 7, 10, 11]}
"""Partitions that can't be read to their ends: a standard peek at the end of one goes on into the next."""

BOTH_WAYS = pytest.mark.parametrize("operations", rounds(("all",), tuple(HIDDEN)))
COUNT = 320
PROGRESS_S_MAX = 600
LOOK_S = 1


def wait_until_read(query: StreamingQuery, folder: Path, numbers: set[int]) -> set[int]:
    """What is read when these numbers are; AssertionError if they aren't in time, or the query ends."""
    deadline_s = monotonic_s() + PROGRESS_S_MAX
    while not numbers <= (found := {number for _, number in parquet_rows(folder)}):
        assert monotonic_s() < deadline_s
        assert not query.awaitTermination(LOOK_S)
    return found


@pytest.mark.timeout(1800)
@BOTH_WAYS
def test_a_query_reads_what_it_can_in_an_outage_and_the_rest_after_it(
    spark: SparkSession,
    server: EmubusServer,
    options: dict[str, str],
    make_queue: MakeQueue,
    tmp_path: Path,
    operations: str,
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, COUNT)
    hidden = HIDDEN[operations]
    behind = {number for each, number in queue_rows(server.connection_string, queue) if each >> 48 in hidden}
    assert len(behind) == len(hidden) * COUNT // 16
    reader = spark.readStream.format("servicebus").schema("sequenceNumber BIGINT, body STRING")
    frame = reader.options(**options, queue=queue, mode="drain", serviceOperations=operations).load()
    server.begin_outage(OUT, OutageKind.DOWN)
    try:
        query = (
            frame.writeStream.format("parquet")
            .options(path=str(tmp_path / "rows"), checkpointLocation=str(tmp_path / "checkpoint"))
            .start()
        )
        assert wait_until_read(query, tmp_path / "rows", set(range(COUNT)) - behind).isdisjoint(behind)
    finally:
        server.end_outage(OUT)
    try:
        send_texts(server, queue, COUNT, first=COUNT)
        wait_until_read(query, tmp_path / "rows", set(range(2 * COUNT)))
    finally:
        query.stop()
    assert Counter(number for _, number in parquet_rows(tmp_path / "rows")) == Counter(range(2 * COUNT))


@pytest.mark.timeout(1800)
@BOTH_WAYS
def test_tasks_wait_for_stores_that_go_out_after_they_were_planned(
    spark: SparkSession, server: EmubusServer, options: dict[str, str], make_queue: MakeQueue, operations: str
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, COUNT)
    reader = spark.read.format("servicebus").schema("body STRING").options(**options, queue=queue)
    frame = reader.option("serviceOperations", operations).load()
    assert frame.rdd.getNumPartitions() == 16
    server.begin_outage(OUT, OutageKind.DOWN)
    found: list[int] = []

    def collect() -> None:
        spark.sparkContext.setJobGroup(queue, "reads through an outage")
        found.extend(int(row.body) for row in frame.collect())

    reading = threading.Thread(target=collect)
    reading.start()
    try:
        # Two tasks run at a time; they are all that can be done before both of them meet a store that is out.
        deadline_s = monotonic_s() + PROGRESS_S_MAX
        while finished_tasks(spark, queue) < HIDDEN[operations][1] - 1:
            assert monotonic_s() < deadline_s
            reading.join(LOOK_S)
        assert reading.is_alive()
    finally:
        server.end_outage(OUT)
        reading.join(PROGRESS_S_MAX)
    assert sorted(found) == list(range(COUNT))


def finished_tasks(spark: SparkSession, group: str) -> int:
    """How many tasks of a group's jobs are done."""
    tracker = spark.sparkContext.statusTracker()
    jobs = [tracker.getJobInfo(job) for job in tracker.getJobIdsForGroup(group)]
    stages = [tracker.getStageInfo(stage) for job in jobs if job is not None for stage in job.stageIds]
    return sum(stage.numCompletedTasks for stage in stages if stage is not None)


@pytest.mark.timeout(1800)
def test_a_write_waits_for_the_partitions_that_are_out(
    spark: SparkSession, server: EmubusServer, options: dict[str, str], make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(enable_partitioning=True, requires_duplicate_detection=True)
    rows = spark.readStream.format("rate-micro-batch").options(rowsPerBatch=str(COUNT), numPartitions="2").load()
    frame = rows.selectExpr("CAST(value AS STRING) AS body", "CAST(value AS STRING) AS partitionKey")
    server.begin_outage(OUT, OutageKind.DOWN)
    try:
        query = (
            frame.writeStream.format("servicebus")
            .options(**options, queue=queue, checkpointLocation=str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        deadline_s = monotonic_s() + PROGRESS_S_MAX
        while sum(each.message_count for each in partitions(server.connection_string, queue)) < 200:
            assert monotonic_s() < deadline_s
            assert not query.awaitTermination(LOOK_S)
    finally:
        server.end_outage(OUT)
    assert query.awaitTermination(PROGRESS_S_MAX)
    assert Counter(number for _, number in queue_rows(server.connection_string, queue)) == Counter(range(COUNT))
    assert stored(server, queue) == COUNT
