"""Reading through a real Spark: the whole way from `format("servicebus")` to rows and checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from azure.servicebus import ServiceBusClient

from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.lag import servicebus_lag
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import send_texts, stored

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

SCHEMA = "sequenceNumber BIGINT, partitionId INT, body STRING"
TIMEOUT_S = 60


def streamed(spark: SparkSession, options: dict[str, str], entity: str, **more: object) -> DataFrame:
    given = options | {name: str(value) for name, value in more.items()}
    return spark.readStream.format("servicebus").schema(SCHEMA).options(**given, queue=entity).load()


def run_to_parquet(frame: DataFrame, folder: Path) -> StreamingQuery:
    query = (
        frame.writeStream.format("parquet")
        .option("path", str(folder / "rows"))
        .option("checkpointLocation", str(folder / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(TIMEOUT_S)
    return query


def bodies(frame: DataFrame) -> list[int]:
    return sorted(int(row.body) for row in frame.select("body").collect())


def test_a_batch_reads_all_columns_of_all_partitions(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 320)
    frame = spark.read.format("servicebus").options(**options, queue=queue).load()
    rows = frame.selectExpr("sequenceNumber", "partitionId", "cast(body AS STRING) AS body", "state").collect()
    assert sorted(int(row.body) for row in rows) == list(range(320))
    assert {row.partitionId for row in rows} == set(range(16))
    assert all(row.sequenceNumber >> 48 == row.partitionId and row.state == "active" for row in rows)


def test_a_frame_that_is_joined_with_a_part_of_itself_has_all_its_rows(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 64)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")
    try:
        reader = spark.read.format("servicebus").schema(SCHEMA)
        frame = reader.options(**options, queue=queue).load()
        part = frame.where("partitionId = 3 AND sequenceNumber > 844424930131970")
        found = frame.alias("a").join(part.alias("b"), "body", "left").select("b.sequenceNumber").collect()
        assert sorted(row.sequenceNumber or 0 for row in found) == [0] * 62 + [3 << 48 | 3, 3 << 48 | 4]
        assert (part.count(), frame.count()) == (2, 64)
    finally:
        spark.conf.unset("spark.sql.python.filterPushdown.enabled")


def test_available_now_reads_in_limited_batches_and_goes_on_after_a_restart(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 100)
    frame = streamed(spark, options, queue, maxMessagesPerTrigger=60)
    first = run_to_parquet(frame, tmp_path)
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == [60, 40]
    assert servicebus_lag(first.recentProgress[0])[queue].keys() == set(range(16))
    assert sum(servicebus_lag(first.recentProgress[0])[queue].values()) == 40
    send_texts(server, queue, 20, first=100)
    run_to_parquet(frame, tmp_path)
    assert bodies(spark.read.parquet(str(tmp_path / "rows"))) == list(range(120))
    assert stored(server, queue) == 120


def test_several_entities_are_one_frame_that_says_where_each_row_is_from(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, tmp_path: Path
) -> None:
    def send_to(name: str, count: int) -> None:
        server.create(QueueDescription(name))
        send_texts(server, name, count)

    send_to("spark-several-a", 20)
    send_to("spark-several-b", 10)
    both = spark.read.format("servicebus").options(**options, entities="spark-several-a,spark-several-b").load()
    assert both.columns[0] == "entity"
    assert {row.entity: row["count"] for row in both.groupBy("entity").count().collect()} == {
        "spark-several-a": 20,
        "spark-several-b": 10,
    }
    reader = spark.readStream.format("servicebus").schema("entity STRING, body STRING")
    frame = reader.options(**options, entityPattern="spark-several-*", mode="drain", maxMessagesPerTrigger="12").load()
    first = run_to_parquet(frame, tmp_path)
    assert [progress.numInputRows for progress in first.recentProgress if progress.numInputRows] == [12, 12, 6]
    send_to("spark-several-c", 5)
    run_to_parquet(frame, tmp_path)
    written = spark.read.parquet(str(tmp_path / "rows"))
    expected = {("a", number) for number in range(20)} | {("b", number) for number in range(10)}
    expected |= {("c", number) for number in range(5)}
    found = [(row.entity.removeprefix("spark-several-"), int(row.body)) for row in written.collect()]
    assert sorted(found) == sorted(expected)
    assert [stored(server, f"spark-several-{each}") for each in "abc"] == [0, 0, 0]


def test_drain_leaves_nothing_behind(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 150)
    frame = streamed(spark, options, queue, mode="drain", maxMessagesPerTrigger=100)
    run_to_parquet(frame, tmp_path)
    assert bodies(spark.read.parquet(str(tmp_path / "rows"))) == list(range(150))
    assert stored(server, queue) == 0


def test_a_running_stream_sees_what_is_sent_meanwhile(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, queue: str
) -> None:
    name = "seen_meanwhile"
    frame = streamed(spark, options, queue, startingPosition="latest")
    send_texts(server, queue, 5)
    query = frame.writeStream.format("memory").queryName(name).start()
    try:
        query.processAllAvailable()
        send_texts(server, queue, 5, first=5)
        query.processAllAvailable()
        assert bodies(spark.table(name)) == [5, 6, 7, 8, 9]
    finally:
        query.stop()


def test_claims_share_a_queue_with_another_consumer(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, queue: str, tmp_path: Path
) -> None:
    send_texts(server, queue, 60)
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        others = receiver.receive_messages(20, max_wait_time=1)
        frame = streamed(spark, options, queue, mode="claim", claimId="spark", maxMessagesPerTrigger=30)
        run_to_parquet(frame, tmp_path)
        found = bodies(spark.read.parquet(str(tmp_path / "rows")))
        assert sorted([*found, *(int(str(each)) for each in others)]) == list(range(60))
        for each in others:
            receiver.complete_message(each)
    assert stored(server, queue) == 0


def test_a_replaced_queue_fails_the_query_with_a_line_that_says_what_to_do(
    spark: SparkSession, options: dict[str, str], server: EmubusServer, tmp_path: Path
) -> None:
    server.create(QueueDescription("replaced-in-spark"))
    send_texts(server, "replaced-in-spark", 5)
    frame = streamed(spark, options, "replaced-in-spark")
    run_to_parquet(frame, tmp_path)
    server.delete("replaced-in-spark")
    server.create(QueueDescription("replaced-in-spark"))
    failure: Any = None
    try:
        run_to_parquet(frame, tmp_path)
    except Exception as error:
        failure = error
    assert "[SERVICEBUS_DATA_LOSS] replaced-in-spark: the checkpoint is of generation " in str(failure)
