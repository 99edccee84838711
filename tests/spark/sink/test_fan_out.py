"""Rows in are rows out: plans that make several equal rows of one message, into an entity with duplicate detection.

The property over all dealings of rows to tasks is in `test_ids`; here Spark itself deals them.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from ...rounds import rounds
from .kit import Rig

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

MESSAGES = 24
STEPS_MAX = 2


def plans() -> dict[str, Callable[[DataFrame], DataFrame]]:
    """What a plan may do with its rows, by name; it keeps the columns."""
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def windowed(frame: DataFrame) -> DataFrame:
        rank = f.row_number().over(Window.partitionBy("body").orderBy("sequenceNumber"))
        return frame.withColumn("rank", rank).where("rank <= 3").drop("rank")

    return {
        "explode": lambda frame: frame.withColumn("n", f.explode(f.sequence(f.lit(1), f.lit(3)))).drop("n"),
        "union": lambda frame: frame.unionAll(frame.where("sequenceNumber % 2 = 0")),
        "join": lambda frame: frame.join(frame.select("sequenceNumber").distinct(), "sequenceNumber").select(
            "body", "sequenceNumber", "enqueuedTime"
        ),
        "window": windowed,
        "repartition": lambda frame: frame.repartition(5),
        "by body": lambda frame: frame.repartition(3, "body"),
        "coalesce": lambda frame: frame.coalesce(2),
    }


def kill_once(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """The first attempt of every other task ends when half of its rows are on their way."""
    from pyspark import TaskContext

    context = TaskContext.get()
    assert context is not None
    ends = context.attemptNumber() == 0 and context.partitionId() % 2 == 0
    for batch in batches:
        yield batch.slice(0, batch.num_rows // 2)
        if ends:
            raise RuntimeError("this attempt is over")
        yield batch.slice(batch.num_rows // 2)


@pytest.mark.parametrize("seed", range(rounds(2, 20)))
def test_no_row_of_a_random_plan_is_lost_and_none_doubled_when_tasks_and_the_write_are_repeated(
    spark: SparkSession, server: EmubusServer, rig: Rig, seed: int
) -> None:
    chance = random.Random(seed)
    known = plans()
    names = [*chance.choices([*known], k=STEPS_MAX), chance.choice(["explode", "union"]), "repartition"]
    source, target = f"fan-out-source-{seed}", f"fan-out-target-{seed}"
    rig.create(QueueDescription(source, enable_partitioning=chance.random() < 0.5))
    rig.create(QueueDescription(target, requires_duplicate_detection=True))
    send_equal(spark, rig, source)
    spark.conf.set("spark.sql.adaptive.enabled", str(chance.random() < 0.5).lower())
    try:
        reader = spark.read.format("servicebus").schema("body STRING, sequenceNumber BIGINT, enqueuedTime TIMESTAMP")
        frame = reader.options(connectionString=rig.connection_string, queue=source).load()
        for name in names:
            frame = known[name](frame)
        rows = frame.collect()
        assert max(Counter(rows).values()) > 1, names  # or the plan has no equal rows
        writing = frame.mapInArrow(kill_once, frame.schema).write.format("servicebus").mode("append")
        for _ in range(2):
            writing.options(connectionString=rig.connection_string, queue=target, writeId=f"w-{seed}").save()
    finally:
        spark.conf.unset("spark.sql.adaptive.enabled")
    assert Counter(rig.bodies(target)) == Counter(row.body for row in rows), names


def send_equal(spark: SparkSession, rig: Rig, queue: str) -> None:
    """Messages of which several have one body."""
    frame = spark.range(MESSAGES).selectExpr("cast(id % 5 AS STRING) AS body")
    frame.write.format("servicebus").mode("append").options(connectionString=rig.connection_string, queue=queue).save()
