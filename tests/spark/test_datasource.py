"""The format as Spark users meet it: registered, read and written by its name, in Python and in SQL."""

from __future__ import annotations

from pathlib import Path
from queue import SimpleQueue
from typing import TYPE_CHECKING

import pytest
from pyspark.sql.datasource import CaseInsensitiveDict, DataSourceReader
from pyspark.sql.types import BinaryType, StringType, StructField, StructType

import emubus.spark_connector
from emubus.spark_connector import ProgressListener, QueryProgress, ServiceBusDataSource, observed, register
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.schema import source_schema
from emubus.spark_connector.sink.writer import BatchWriter, StreamWriter
from emubus.spark_connector.source.batch import BatchReader
from emubus.spark_connector.source.stream import StreamReader

from .conftest import MakeQueue, Send

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOWHERE = {"connectionString": "Endpoint=sb://localhost:1", "sasToken": "t", "queue": "q"}
BODIES = StructType([StructField("body", StringType())])


def asked(**raw: str) -> ServiceBusDataSource:
    """The data source as Spark makes it: with lower-cased options."""
    return ServiceBusDataSource(options=CaseInsensitiveDict(NOWHERE | raw))


# ---- without Spark


def test_every_name_that_the_package_offers_is_there() -> None:
    found = {name: getattr(emubus.spark_connector, name).__name__ for name in emubus.spark_connector.__all__}
    assert found == {name: name for name in emubus.spark_connector.__all__}
    with pytest.raises(AttributeError, match=r"'emubus\.spark_connector' has no attribute 'nothing'"):
        emubus.spark_connector.__getattr__("nothing")


def test_the_format_is_called_servicebus() -> None:
    assert ServiceBusDataSource.name() == "servicebus"


def test_each_question_of_spark_is_answered_without_a_connection() -> None:
    made = [
        asked().schema(),
        type(asked().reader(BODIES)),
        type(asked(mode="drain").streamReader(BODIES)),
        type(asked().writer(BODIES, overwrite=False)),
        type(asked().streamWriter(BODIES, overwrite=False)),
    ]
    assert made == [source_schema(), BatchReader, StreamReader, BatchWriter, StreamWriter]


def test_filters_are_not_taken_from_spark() -> None:
    assert type(asked().reader(BODIES)).pushFilters is DataSourceReader.pushFilters
    with pytest.raises(ConnectorError, match="'filterpushdown': take startingPosition and endingPosition"):
        asked(filterPushdown="true").reader(BODIES)


def test_a_wrong_option_is_reported_as_soon_as_the_schema_is_asked_for() -> None:
    with pytest.raises(ConnectorError, match=r"\[SERVICEBUS_UNKNOWN_OPTION\] .*did you mean peekBatchSize\?"):
        asked(peekBatchSiz="5").schema()


def test_a_wrong_schema_is_reported_when_the_query_is_planned() -> None:
    wrong = StructType([StructField("payload", BinaryType())])
    for question in (
        lambda: asked().reader(wrong),
        lambda: asked().streamReader(wrong),
        lambda: asked().writer(wrong, overwrite=False),
        lambda: asked().streamWriter(wrong, overwrite=False),
    ):
        with pytest.raises(ConnectorError, match=r"\[SERVICEBUS_SCHEMA_UNSUPPORTED\] .* has no column 'payload'"):
            question()


def test_messages_cannot_be_overwritten() -> None:
    with pytest.raises(ConnectorError) as batch:
        asked().writer(BODIES, overwrite=True)
    with pytest.raises(ConnectorError) as stream:
        asked().streamWriter(BODIES, overwrite=True)
    assert [str(error.value) for error in (batch, stream)] == [
        '[SERVICEBUS_MODE_UNSUPPORTED] messages that are sent can\'t be overwritten: use mode("append") instead',
        '[SERVICEBUS_MODE_UNSUPPORTED] messages that are sent can\'t be overwritten, as outputMode("complete") would: '
        'use outputMode("append") or foreachBatch',
    ]


# ---- in Spark


def test_what_is_written_is_read_back_by_the_formats_name(
    spark: SparkSession, options: dict[str, str], make_queue: MakeQueue
) -> None:
    queue = make_queue(enable_partitioning=True)
    rows = [("m1", "one", "a"), ("m2", "two", "b"), ("m3", "three", "a")]
    frame = spark.createDataFrame(rows, "messageId string, body string, partitionKey string")
    frame.write.format("servicebus").options(**options, queue=queue).mode("append").save()
    read = (
        spark.read.format("ServiceBus")
        .schema("messageId string, body string, partitionKey string")
        .options(**options, queueName=queue)
        .load()
    )
    assert sorted(tuple(row) for row in read.collect()) == rows


def test_a_view_in_sql_reads_and_counts(spark: SparkSession, options: dict[str, str], queue: str, send: Send) -> None:
    send(queue, "one", "two", "three")
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW messages USING servicebus OPTIONS "
        f"(connectionString '{options['connectionString']}', queueName '{queue}')"
    )
    found = spark.sql("SELECT count(*) AS count, max(sequenceNumber) AS last, max(CAST(body AS STRING)) FROM messages")
    assert [tuple(row) for row in found.collect()] == [(3, 3, "two")]


def test_registering_twice_does_no_harm(spark: SparkSession, options: dict[str, str], queue: str) -> None:
    register(spark)
    assert spark.read.format("servicebus").options(**options, queue=queue).load().schema == source_schema()


def test_a_stream_reads_and_writes_once_each_and_goes_on_where_it_was(
    spark: SparkSession, options: dict[str, str], make_queue: MakeQueue, send: Send, tmp_path: Path
) -> None:
    source, target = make_queue(), make_queue()
    reported: SimpleQueue[QueryProgress] = SimpleQueue()
    spark.streams.addListener(ProgressListener(reported.put))

    def run() -> list[str]:
        reader = spark.readStream.format("servicebus").schema("body string, messageId string")
        query = (
            observed(reader.options(**options, queueName=source, maxEventsPerTrigger="2").load())
            .writeStream.format("servicebus")
            .options(**options, queue=target)
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .queryName("copy")
            .trigger(availableNow=True)
            .start()
        )
        assert query.awaitTermination(60)
        copied = spark.read.format("servicebus").schema("body string").options(**options, queue=target).load()
        return [row.body for row in copied.collect()]

    send(source, *(f"m{number}" for number in range(5)))
    assert sorted(run()) == [f"m{number}" for number in range(5)]
    send(source, "m5")
    assert sorted(run()) == [f"m{number}" for number in range(6)]
    batches: dict[int, QueryProgress] = {}
    while sum(each.rows for each in batches.values()) < 6:
        progress = reported.get(timeout=60)
        if progress.rows:
            batches[progress.batch] = progress
    found = [(each.sources, each.rows, each.body_bytes, each.rows_written, each.lag) for each in batches.values()]
    assert found == [((source,), rows, 2 * rows, rows, lag) for rows, lag in ((2, 3), (2, 1), (1, 0), (1, 0))]
