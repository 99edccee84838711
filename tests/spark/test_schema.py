"""Columns: what a read may ask for, what a write may send, and what is said of the rest."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from emubus.spark_connector.codec import SINK_COLUMNS as ENCODED_COLUMNS
from emubus.spark_connector.codec import SOURCE_TYPES, Column
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.schema import (
    MAP_VALUES,
    READ_ONLY_COLUMNS,
    SINK_COLUMNS,
    SOURCE_COLUMNS,
    SinkField,
    origin_fields,
    sink_fields,
    source_columns,
    source_schema,
)

TEXTS = MapType(StringType(), StringType())


def frame(**columns: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns.items()])


def refused_read(schema: StructType) -> str:
    with pytest.raises(ConnectorError) as error:
        source_columns(schema)
    assert "\n" not in str(error.value)
    return str(error.value)


def refused_write(schema: StructType, *, entity: str | None = "q", ignore_read_only: bool = True) -> str:
    with pytest.raises(ConnectorError) as error:
        sink_fields(schema, entity=entity, ignore_read_only=ignore_read_only)
    assert "\n" not in str(error.value)
    return str(error.value)


# ---- reading


def test_a_read_gives_all_columns_by_default() -> None:
    assert source_schema().simpleString() == (
        "struct<body:binary,messageId:string,sequenceNumber:bigint,enqueuedTime:timestamp,partitionId:int,"
        "sessionId:string,partitionKey:string,subject:string,contentType:string,correlationId:string,to:string,"
        "replyTo:string,replyToSessionId:string,expiresAt:timestamp,timeToLiveMs:bigint,scheduledEnqueueTime:timestamp,"
        "deliveryCount:int,enqueuedSequenceNumber:bigint,state:string,deadLetterSource:string,deadLetterReason:string,"
        "deadLetterErrorDescription:string,applicationProperties:map<string,string>>"
    )
    assert [column.name for column in source_columns(source_schema())] == list(SOURCE_TYPES)


def test_a_read_takes_some_columns_in_any_order_and_case_and_the_body_as_text() -> None:
    schema = frame(SEQUENCENUMBER=LongType(), body=StringType()).add("messageId", StringType(), nullable=False)
    assert source_columns(schema) == (
        Column("SEQUENCENUMBER", "bigint"),
        Column("body", "string"),
        Column("messageId", "string", nullable=False),
    )


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (frame(), "a read needs at least one column in .schema(…)"),
        (frame(offset=LongType()), "a Service Bus source has no column 'offset': did you mean 'sequenceNumber'?"),
        (frame(bodi=StringType()), "a Service Bus source has no column 'bodi': did you mean 'body'?"),
        (
            frame(zzzz=LongType()),
            f"a Service Bus source has no column 'zzzz'; there are: {', '.join(SOURCE_TYPES)}, entity",
        ),
        (frame(body=IntegerType()), "column 'body' can't be INT: declare it BINARY or STRING"),
        (frame(entity=LongType()), "column 'entity' can't be BIGINT: declare it STRING"),
        (frame(enqueuedTime=TimestampNTZType()), "column 'enqueuedTime' can't be TIMESTAMP_NTZ: declare it TIMESTAMP"),
        (
            frame(applicationProperties=MapType(StringType(), LongType())),
            "column 'applicationProperties' can't be MAP<STRING, BIGINT>: declare it MAP<STRING, STRING>",
        ),
        (
            frame(body=BinaryType(), Body=BinaryType()),
            "columns 'body' and 'Body' in .schema(…) are the same",
        ),
    ],
)
def test_a_column_that_cannot_be_read_is_named_with_what_it_can_be(schema: StructType, text: str) -> None:
    assert refused_read(schema) == f"[SERVICEBUS_SCHEMA_UNSUPPORTED] {text}"


# ---- writing


def test_a_write_finds_its_columns_in_any_order_and_case_and_by_their_other_names() -> None:
    schema = frame(SESSIONID=StringType(), VALUE=StringType(), topic=StringType(), scheduledEnqueueTime=TimestampType())
    assert sink_fields(schema, entity=None, ignore_read_only=True) == (
        SinkField("sessionId", 0, "SESSIONID"),
        SinkField("body", 1, "VALUE"),
        SinkField("entity", 2, "topic"),
        SinkField("scheduledEnqueueTime", 3, "scheduledEnqueueTime"),
    )


def test_a_target_named_by_an_option_goes_before_the_column() -> None:
    schema = frame(body=StringType(), entity=StringType())
    assert sink_fields(schema, entity="q", ignore_read_only=True) == (SinkField("body", 0, "body"),)


def test_a_frame_that_was_read_can_be_written() -> None:
    fields = sink_fields(source_schema(), entity="q", ignore_read_only=True)
    assert {field.column for field in fields} == {column.name for column in SINK_COLUMNS} - {"entity"}
    assert {
        field.name for field in source_schema() if field.name not in {found.name for found in fields}
    } == READ_ONLY_COLUMNS


@pytest.mark.parametrize("kind", MAP_VALUES)
def test_application_properties_have_primitive_values(kind: type[DataType]) -> None:
    schema = frame(body=StringType(), applicationProperties=MapType(StringType(), kind()))
    assert [field.column for field in sink_fields(schema, entity="q", ignore_read_only=True)] == [
        "body",
        "applicationProperties",
    ]


@pytest.mark.parametrize(
    ("schema", "text"),
    [
        (frame(messageId=StringType()), "a write needs a column 'body' (or 'value') of type STRING or BINARY"),
        (
            frame(body=StringType(), value=StringType()),
            "columns 'body' and 'value' are the same to a Service Bus sink",
        ),
        (frame(body=LongType()), "column 'body' is BIGINT: cast it to STRING or BINARY"),
        (
            frame(body=StringType(), scheduledEnqueueTime=DateType()),
            "column 'scheduledEnqueueTime' is DATE: cast it to TIMESTAMP",
        ),
        (
            frame(body=StringType(), timeToLiveMs=StringType()),
            "column 'timeToLiveMs' is STRING: cast it to BIGINT or INT",
        ),
        (
            frame(body=StringType(), applicationProperties=StringType()),
            "column 'applicationProperties' is STRING: cast it to MAP<STRING, STRING>",
        ),
        (
            frame(body=StringType(), applicationProperties=MapType(StringType(), TEXTS)),
            "column 'applicationProperties' is MAP<STRING, MAP<STRING, STRING>>: its keys must be STRING and its "
            "values one of STRING, BOOLEAN, TINYINT, SMALLINT, INT, BIGINT, FLOAT, DOUBLE, DECIMAL, TIMESTAMP, BINARY",
        ),
        (
            frame(body=ArrayType(StructType([StructField("userName", StringType())]))),
            "column 'body' is ARRAY<STRUCT<userName: STRING>>: cast it to STRING or BINARY",
        ),
        (
            frame(body=StringType(), label=StringType()),
            "a Service Bus sink has no column 'label': did you mean 'subject'?",
        ),
        (
            frame(body=StringType(), zzzz=StringType()),
            "a Service Bus sink has no column 'zzzz'; there are: "
            + ", ".join(name for column in SINK_COLUMNS for name in column.names),
        ),
        (
            frame(body=StringType(), correlationID2=StringType()),
            "a Service Bus sink has no column 'correlationID2': did you mean 'correlationId'?",
        ),
    ],
)
def test_a_column_that_cannot_be_written_is_named_with_what_it_can_be(schema: StructType, text: str) -> None:
    assert refused_write(schema) == f"[SERVICEBUS_SCHEMA_UNSUPPORTED] {text}"


def test_a_column_of_the_service_is_refused_when_it_shall_not_be_left_out() -> None:
    schema = frame(body=StringType(), sequencenumber=LongType())
    assert [field.column for field in sink_fields(schema, entity="q", ignore_read_only=True)] == ["body"]
    assert refused_write(schema, ignore_read_only=False) == (
        "[SERVICEBUS_SCHEMA_UNSUPPORTED] column 'sequencenumber' is set by the service: drop it, or leave it out with "
        "ignoreReadOnlyColumns=true"
    )


def test_a_write_without_any_target_is_refused() -> None:
    assert refused_write(frame(body=StringType()), entity=None) == (
        "[SERVICEBUS_OPTION_INVALID] nothing to write to: name a queue or topic by the option queue or topic, or in a "
        "column 'entity'"
    )


def test_the_entity_of_a_row_is_its_target_or_part_of_its_origin() -> None:
    schema = source_schema(of_several=True)
    assert schema.fieldNames() == ["entity", *SOURCE_TYPES]
    assert sink_fields(schema, entity=None, ignore_read_only=True)[0] == SinkField("entity", 0, "entity")
    assert "entity" not in [field.column for field in origin_fields(schema, entity=None)]
    assert origin_fields(schema, entity="q")[0] == SinkField("entity", 0, "entity")


# ---- the tables


def test_the_tables_name_the_columns_that_the_codec_knows() -> None:
    assert [column.name for column in SOURCE_COLUMNS] == list(SOURCE_TYPES)
    assert [column.name for column in SINK_COLUMNS] == list(ENCODED_COLUMNS)
