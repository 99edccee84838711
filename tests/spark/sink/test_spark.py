"""Writes by a real Spark: the writers' life between its processes, tasks tried again, a query started again."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from emubus.broker.model.descriptions import QueueDescription

from .kit import Rig, annotation, text_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = 4000
LARGE = 300 * 1024
FIRST_AT_S = 1_700_000_000


def test_a_frame_is_written_with_the_tasks_that_failed_in_the_middle_tried_again(
    spark: SparkSession, rig: Rig, options: dict[str, str]
) -> None:
    from pyspark import TaskContext
    from pyspark.sql.functions import col, udf

    rig.create(QueueDescription("tried-again", enable_partitioning=True, requires_duplicate_detection=True))

    def fail_once(number: int) -> str:
        context = TaskContext.get()
        if context is not None and context.attemptNumber() == 0 and number % (ROWS // 2) == 1900:
            raise RuntimeError("a task fails in its middle")
        return str(number)

    made = spark.range(ROWS, numPartitions=2).select(
        udf(fail_once, "string", useArrow=False)(col("id")).alias("VALUE"),
        (col("id") % 50).cast("string").alias("partitionKey"),
    )
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
    try:
        writing = made.write.format("servicebus").mode("append").options(**options)
        writing.option("queue", "tried-again").option("batchSizeBytes", "1024").option("maxInFlight", "2").save()
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    found = rig.stored("tried-again")
    assert Counter(int(text_of(message)) for message in found) == Counter(range(ROWS))
    by_key: dict[str, list[int]] = {}
    for message in found:
        by_key.setdefault(annotation(message, "x-opt-partition-key"), []).append(int(text_of(message)))
    half = ROWS // 2
    for numbers in by_key.values():  # each key has rows of both tasks, each task's in order
        for own in ([n for n in numbers if n < half], [n for n in numbers if n >= half]):
            assert own == sorted(own)


def test_a_query_that_failed_in_the_middle_of_a_batch_goes_on_without_loss_or_repetition(
    spark: SparkSession, rig: Rig, options: dict[str, str], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    rig.create(QueueDescription("restarted", requires_duplicate_detection=True))
    folder = tmp_path / "in"
    folder.mkdir()
    expected: list[str] = []
    for number in range(3):
        lines = [f"{number}-{line}" for line in range(1000)]
        expected += lines
        if number == 1:
            lines.append("x" * LARGE)
        path = folder / f"{number}.txt"
        path.write_text("\n".join(lines))
        os.utime(path, (FIRST_AT_S + number, FIRST_AT_S + number))  # Spark takes the older file first

    def run(on_oversize: str) -> None:
        frame: DataFrame = spark.readStream.option("maxFilesPerTrigger", 1).text(str(folder))
        query = (
            frame.writeStream.format("servicebus")
            .options(**options, queue="restarted", onOversize=on_oversize, batchSizeBytes="1024", maxInFlight="2")
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination()

    with pytest.raises(StreamingQueryException, match=r"SERVICEBUS_MESSAGE_TOO_LARGE.*Row 1000 of Spark partition 0"):
        run("fail")
    assert 1000 < len(rig.bodies("restarted")) <= 2000  # the second batch is there in part
    run("skip")
    found = rig.stored("restarted")
    assert Counter(map(text_of, found)) == Counter(expected)
    query_id, batch_id, partition, _ = str(found[0].id).split("/")
    batches = Counter(str(message.id).rpartition("/")[0] for message in found)
    assert batches == {f"{query_id}/{batch}/0": 1000 for batch in range(3)}
    assert (len(query_id), batch_id, partition) == (36, "0", "0")
