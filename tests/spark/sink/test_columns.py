"""What becomes of rows and columns, as Microsoft's SDK shows it."""

from __future__ import annotations

import pickle
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql import Row

from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.schema import SINK_COLUMNS
from emubus.spark_connector.sink.task import Task
from emubus.spark_connector.sink.writer import write_rows

from .kit import Rig, body_of, frame, in_task, properties_of, sequence_number_of, text_of, texts, written

TEXT_MAP = pa.map_(pa.string(), pa.string())
LATER = datetime(2099, 5, 17, 12, 30, 15, 250_000, tzinfo=UTC)


def test_every_column_arrives_as_what_it_is(rig: Rig) -> None:
    rig.create(QueueDescription("columns"))
    ddl = (
        "subject string, BODY binary, messageid string, sessionId string, PartitionKey string, contentType string, "
        "correlationId string, to string, replyTo string, replyToSessionId string, timeToLiveMs bigint, "
        "scheduledEnqueueTime timestamp, applicationProperties map<string,string>"
    )
    row = {
        "subject": "a subject",
        "BODY": b"\x00\xff body",
        "messageid": "id 1",
        "sessionId": "of mine",
        "PartitionKey": "of mine",
        "contentType": "application/x",
        "correlationId": "what came before",
        "to": "somewhere",
        "replyTo": "here",
        "replyToSessionId": "there",
        "timeToLiveMs": 3_600_000,
        "scheduledEnqueueTime": LATER,
        "applicationProperties": [("ä", "ö"), ("none", None)],
    }
    types = {
        name: {"BODY": pa.binary(), "timeToLiveMs": pa.int64(), "applicationProperties": TEXT_MAP}.get(
            name, pa.string()
        )
        for name in row
    } | {"scheduledEnqueueTime": pa.timestamp("us", tz="UTC")}
    written(rig.writer(ddl, queue="columns"), frame([row], types))
    (message,) = rig.peek("columns")
    assert {
        "subject": message.subject,
        "BODY": b"".join(message.body),
        "messageid": message.message_id,
        "sessionId": message.session_id,
        "PartitionKey": message.partition_key,
        "contentType": message.content_type,
        "correlationId": message.correlation_id,
        "to": message.to,
        "replyTo": message.reply_to,
        "replyToSessionId": message.reply_to_session_id,
        "timeToLiveMs": (message.time_to_live or timedelta()) // timedelta(milliseconds=1),
        "scheduledEnqueueTime": message.scheduled_enqueue_time_utc,
        "applicationProperties": [(key, value and value.decode()) for key, value in properties_of(message)],
    } == row
    assert set(map(str.lower, row)) == {column.name.lower() for column in SINK_COLUMNS} - {"entity"}


def test_null_columns_are_left_out_and_a_null_body_is_empty(rig: Rig) -> None:
    rig.create(QueueDescription("nulls"))
    writer = rig.writer("value string, subject string, messageId string", queue="nulls", messageIdPolicy="column")
    types = {"value": pa.string(), "subject": pa.string(), "messageId": pa.string()}
    written(writer, frame([{"value": None, "subject": None, "messageId": None}], types))
    (message,) = rig.peek("nulls")
    assert (body_of(message), message.subject, from_service(message.message_id)) == ("", None, True)


def test_application_properties_keep_the_type_of_the_map(rig: Rig) -> None:
    rig.create(QueueDescription("typed"))
    for ddl, kind, value in [
        ("int", pa.int32(), -5),
        ("bigint", pa.int64(), 1 << 40),
        ("double", pa.float64(), 0.1),
        ("boolean", pa.bool_(), True),
        ("decimal(10,2)", pa.decimal128(10, 2), Decimal("1.50")),
    ]:
        writer = rig.writer(f"body string, applicationProperties map<string,{ddl}>", queue="typed")
        batch = frame(
            [{"body": ddl, "applicationProperties": [("p", value)]}],
            {"body": pa.string(), "applicationProperties": pa.map_(pa.string(), kind)},
        )
        written(writer, batch)
    found = [properties_of(message)[0][1] for message in rig.peek("typed")]
    assert found == [-5, 1 << 40, 0.1, True, b"1.50"]


def test_each_row_goes_to_the_entity_that_it_names(rig: Rig) -> None:
    for name in ("one", "two"):
        rig.create(QueueDescription(name))
    rig.create(TopicDescription("three"))
    rig.create(SubscriptionDescription("three", "all"))
    targets = ["one", "two", "three"]
    done = written(rig.writer("body string, topic string"), texts(range(90), topic=lambda number: targets[number % 3]))
    assert done.rows == 90
    assert rig.bodies("one") == [str(n) for n in range(0, 90, 3)]
    assert rig.bodies("two") == [str(n) for n in range(1, 90, 3)]
    assert [body_of(each) for each in rig.peek("three", "all")] == [str(n) for n in range(2, 90, 3)]


def test_a_row_that_names_no_entity_is_an_error_that_tells_which(rig: Rig) -> None:
    writer = rig.writer("body string, queue string")
    batch = frame([{"body": "0", "queue": None}], {"body": pa.string(), "queue": pa.string()})
    with in_task(4), pytest.raises(ConnectorError, match="Row 0 of Spark partition 4 names no entity"):
        written(writer, batch)


@pytest.mark.parametrize(
    ("ddl", "options", "text"),
    [
        ("body string, colour string", {}, "no column 'colour'.*there are: .*messageId"),
        ("body string, subjekt string", {}, "no column 'subjekt': did you mean 'subject'"),
        ("subject string", {}, "needs a column 'body'"),
        ("body string, value binary", {}, "'body' and 'value' are the same"),
        ("body int", {}, "'body' is INT: cast it"),
        ("body string, sequenceNumber bigint", {"ignoreReadOnlyColumns": "false"}, "'sequenceNumber' is set by the"),
    ],
)
def test_columns_that_the_sink_does_not_take_are_refused_before_anything_is_written(
    rig: Rig, ddl: str, options: dict[str, str], text: str
) -> None:
    with pytest.raises(ConnectorError, match=text):
        rig.writer(ddl, queue="q", **options)


def test_columns_that_only_the_service_sets_are_left_out_and_logged_once(
    rig: Rig, caplog: pytest.LogCaptureFixture
) -> None:
    rig.create(QueueDescription("readonly"))
    caplog.set_level("INFO", logger="emubus.spark")
    batch = frame([{"sequenceNumber": 77, "body": "x", "state": "active"}])
    for _ in range(2):
        written(rig.writer("sequenceNumber bigint, body string, state string", queue="readonly"), batch)
    assert [(sequence_number_of(each), text_of(each)) for each in rig.stored("readonly")] == [(1, "x"), (2, "x")]
    assert [record.getMessage() for record in caplog.records if "not written" in record.getMessage()] == [
        "Columns that are not written to Service Bus: sequenceNumber, state"
    ]


def test_an_entity_named_by_option_is_the_target_whatever_the_column_says(rig: Rig) -> None:
    rig.create(QueueDescription("by-option"))
    written(rig.writer("body string, topic string", queue="by-option"), texts([0], topic=lambda number: "elsewhere"))
    assert rig.bodies("by-option") == ["0"]


def test_a_value_that_no_message_can_hold_is_an_error_that_names_column_row_and_limit(rig: Rig) -> None:
    rig.create(QueueDescription("values"))
    writer = rig.writer("body string, sessionId string", queue="values")
    with pytest.raises(ConnectorError, match=r"sessionId of row \d .* 1\d\d characters, 128") as caught:
        written(writer, texts(range(3), sessionId=lambda number: "x" * (128 + number)))
    assert caught.value.code == "VALUE_INVALID"


# ---- message ids


def test_rows_without_an_id_get_the_same_one_when_the_task_is_repeated(rig: Rig) -> None:
    rig.create(QueueDescription("ids"))
    writer = pickle.loads(pickle.dumps(rig.writer("body string, messageId string", queue="ids")))
    batch = texts(range(3), messageId=lambda number: "own" if number == 1 else None)
    for _ in range(2):
        with in_task(7):
            written(writer, batch, batch)
    found = [str(message.message_id) for message in rig.peek("ids")]
    job, partition, digest = found[0].split("/")
    assert (partition, len(digest)) == ("7", 24)
    assert found[1::3] == ["own"] * 4
    assert found[:6] == found[6:]
    assert found[3:6:2] == [f"{found[0]}/1", f"{found[2]}/1"]  # equal rows of one task are counted
    assert found[2].startswith(f"{job}/7/")


def test_two_writes_get_different_ids(rig: Rig) -> None:
    rig.create(QueueDescription("jobs"))
    for _ in range(2):
        written(rig.writer("body string", queue="jobs"), texts([0]))
    one, other = (message.message_id for message in rig.peek("jobs"))
    assert one != other


def test_the_ids_of_a_stream_name_query_batch_partition_and_row(rig: Rig) -> None:
    rig.create(QueueDescription("streams"))
    for _ in range(2):  # a writer is made anew for each attempt
        with in_task(3, query="q-1", batch=12):
            written(rig.stream_writer("body string", queue="streams"), texts(range(2)))
    found = [str(message.message_id) for message in rig.peek("streams")]
    assert found[:2] == found[2:]
    assert [each.rpartition("/")[0] for each in found] == ["q-1/12/3"] * 4
    assert len(set(found)) == 2


def from_service(message_id: str | None) -> bool:
    """Whether a message id is one that the service gives to a message without."""
    return re.fullmatch("[0-9a-f]{32}", message_id or "") is not None


@pytest.mark.parametrize(("policy", "expected"), [("column", [False, True]), ("none", [True, True])])
def test_the_policy_of_message_ids_decides_who_gets_one(rig: Rig, policy: str, expected: list[bool]) -> None:
    name = f"policy-{policy}"
    rig.create(QueueDescription(name))
    writer = rig.writer("body string, messageId string", queue=name, messageIdPolicy=policy)
    written(writer, texts(range(2), messageId=lambda number: None if number else "own"))
    assert [from_service(message.message_id) for message in rig.peek(name)] == expected


# ---- around it


def test_a_partition_without_rows_opens_no_connection(rig: Rig) -> None:
    nowhere = Rig(rig.server, port=1)
    assert written(nowhere.writer("body string", queue="q")).rows == 0
    assert written(nowhere.writer("body string", queue="q", transactional=True), texts([0]).slice(0, 0)).rows == 0


def test_rows_of_a_spark_without_arrow_streams_are_written_alike(rig: Rig) -> None:
    rig.create(QueueDescription("rows"))
    writer = rig.stream_writer(
        "applicationProperties map<string,int>, body string, expiresAt timestamp, scheduledEnqueueTime timestamp",
        queue="rows",
    )
    spark_row: Any = Row  # its hints know texts only
    local = LATER.astimezone().replace(tzinfo=None)
    rows = [spark_row({"n": number}, str(number), local, local) for number in range(2500)]
    plan = writer._plan
    assert write_rows(writer._options, plan.columns, plan.of_rows(rows), Task("t", "t")).rows == 2500
    found = rig.peek("rows")
    assert [body_of(each) for each in found] == [str(number) for number in range(2500)]
    assert properties_of(found[-1]) == [("n", 2499)]
    assert found[-1].scheduled_enqueue_time_utc == LATER
    assert str(found[-1].message_id).startswith("t/0/")
    assert len({message.message_id for message in found}) == 2500


def test_commit_and_abort_tell_what_was_written(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.create(QueueDescription("columns"))
    caplog.set_level("INFO", logger="emubus.spark")
    writer, stream = rig.writer("body string", queue="columns"), rig.stream_writer("body string", queue="columns")
    done = written(writer, texts(range(10)))
    writer.commit([done, done])
    writer.abort([done, None])
    stream.commit([done], 5)
    stream.abort([None], 5)
    size = done.size_bytes
    stays = "What had been sent stays sent, also by tasks that failed, whose errors say how much"
    assert [record.getMessage() for record in caplog.records if record.name == "emubus.spark"][-4:] == [
        f"Written: 20 rows in 2 deliveries ({2 * size} bytes) by 2 finished tasks; 0 deliveries repeated, 0 rows "
        "skipped.",
        f"The write failed. {stays}: 10 rows in 1 deliveries ({size} bytes) by 1 finished tasks; "
        "0 deliveries repeated, 0 rows skipped.",
        f"Batch 5 written: 10 rows in 1 deliveries ({size} bytes) by 1 finished tasks; 0 deliveries repeated, 0 rows "
        "skipped.",
        f"Batch 5 failed. {stays}: 0 rows in 0 deliveries (0 bytes) by 0 finished tasks; "
        "0 deliveries repeated, 0 rows skipped.",
    ]


def test_a_task_that_fails_says_how_many_rows_it_had_sent(rig: Rig) -> None:
    rig.create(QueueDescription("partly"))
    writer = rig.writer("body string", queue="partly", batchSizeBytes=1024, maxInFlight=1)

    def batches() -> Iterator[pa.RecordBatch]:
        yield texts(range(136))
        yield frame([{"body": "x" * 300_000}])

    with pytest.raises(
        ConnectorError, match=r"onOversize=skip\. (\d+) rows of this task had been sent before"
    ) as caught:
        writer.write(batches())
    sent = re.findall(r"(\d+) rows of this task", str(caught.value))
    assert sent == [str(len(rig.bodies("partly")))]
    assert int(sent[0]) > 100
