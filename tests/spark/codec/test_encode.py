"""Rows to messages and envelopes, as Proton reads them."""

from __future__ import annotations

import decimal
import re
from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from proton import byte, float32, int32, short, symbol, timestamp

from emubus.codec.decode import decode_exactly
from emubus.codec.encode import encode
from emubus.codec.types import Decimal128
from emubus.spark_connector.codec import (
    SINK_COLUMNS,
    EncodedRow,
    RowEncoder,
    data_overhead,
    envelope,
    envelope_overhead,
)
from emubus.spark_connector.codec.decode import PropertiesFormat
from emubus.spark_connector.codec.properties import typed_json
from emubus.spark_connector.errors import Code, ConnectorError

from .kit import decoded
from .strategies import TEXTS, VALUES, exact

TYPES = {name: pa.string() for name in SINK_COLUMNS} | {
    "body": pa.binary(),
    "timeToLiveMs": pa.int64(),
    "scheduledEnqueueTime": pa.timestamp("us", tz="UTC"),
    "applicationProperties": pa.map_(pa.string(), pa.string()),
}


def batch_of(**columns: Any) -> Any:
    """Return a RecordBatch; a column is a list of values of its usual type, or an Arrow array."""
    arrays = [
        column if isinstance(column, pa.Array) else pa.array(column, TYPES[name]) for name, column in columns.items()
    ]
    return pa.RecordBatch.from_arrays(arrays, names=list(columns))


def encoded(
    batch: Any, *, properties_format: PropertiesFormat = "text", ids: Callable[[int], str | None] | None = None
) -> list[EncodedRow]:
    encoder = RowEncoder(batch.schema.names, properties_format=properties_format)
    return list(encoder.encode(batch, ids))


def one(**columns: Any) -> Any:
    """Return the message that Proton reads for a row."""
    (row,) = encoded(batch_of(**{name: [value] for name, value in columns.items()}))
    return decoded(row.data)


def test_every_column_becomes_its_field() -> None:
    message = one(
        body=b"\x00\xff",
        messageId="id",
        sessionId="group",
        partitionKey="group",
        subject="subject é",
        contentType="text/plain",
        correlationId="correlation",
        to="to",
        replyTo="reply",
        replyToSessionId="reply-group",
        timeToLiveMs=61_500,
        scheduledEnqueueTime=datetime(2026, 1, 1, 0, 0, 0, 123_999, tzinfo=UTC),
        applicationProperties={"a": "b", "none": None, "é": "é" * 300},
        entity="orders",
    )
    assert bytes(message.body) == b"\x00\xff"
    assert message.inferred
    assert (message.id, message.group_id, message.subject, message.content_type) == (
        "id",
        "group",
        "subject é",
        "text/plain",
    )
    assert (message.correlation_id, message.address, message.reply_to) == ("correlation", "to", "reply")
    assert (message.reply_to_group_id, message.ttl, message.durable) == ("reply-group", 61.5, False)
    assert message.annotations == {
        symbol("x-opt-partition-key"): "group",
        symbol("x-opt-scheduled-enqueue-time"): timestamp(1_767_225_600_123),
    }
    assert message.properties == {"a": "b", "none": None, "é": "é" * 300}


def test_what_is_null_is_left_out() -> None:
    rows = encoded(batch_of(**{name: [None] for name in SINK_COLUMNS}))
    assert rows == [EncodedRow(0, b"\x00\x53\x75\xa0\x00", None, None, None, None, None)]
    (half, _) = encoded(batch_of(body=[b"x", b"y"], subject=[None, "s"], timeToLiveMs=[None, 1], sessionId=[None, "s"]))
    assert half.data == b"\x00\x53\x75\xa0\x01x"


def test_a_row_tells_what_envelopes_are_made_by() -> None:
    batch = batch_of(
        body=[b"a", b"b", b"c"],
        sessionId=["s", "s", None],
        partitionKey=[None, "s", "p"],
        messageId=["1", None, None],
        entity=["x", "y", "z"],
    )
    rows = encoded(batch, ids=lambda index: f"made-{index}" if index == 1 else None)
    reported = [(row.index, row.key, row.session_id, row.partition_key, row.message_id, row.target) for row in rows]
    assert reported == [
        (0, "s", "s", None, "1", "x"),
        (1, "s", "s", "s", "made-1", "y"),
        (2, "p", None, "p", None, "z"),
    ]
    assert [decoded(row.data).id for row in rows] == ["1", "made-1", None]


def test_ids_are_asked_for_only_where_none_is() -> None:
    asked: list[int] = []
    encoded(batch_of(body=[b""] * 3, messageId=["a", None, "c"]), ids=lambda index: asked.append(index))
    encoded(batch_of(body=[b""] * 2), ids=lambda index: asked.append(index))
    assert asked == [1, 0, 1]


@pytest.mark.parametrize("size", [0, 1, 127, 255, 256, 70_000])
def test_bodies_of_any_size_are_written(size: int) -> None:
    message = one(body=b"x" * size)
    assert bytes(message.body) == b"x" * size
    (row,) = encoded(batch_of(body=pa.array(["é" * size])))
    message = decoded(row.data)
    assert bytes(message.body) == ("é" * size).encode()


def test_a_text_body_goes_out_as_it_is_even_if_it_is_no_utf_8() -> None:
    broken = pa.Array.from_buffers(pa.string(), 1, pa.array([b"a\xff"]).buffers())
    (row,) = encoded(batch_of(body=broken))
    message = decoded(row.data)
    assert bytes(message.body) == b"a\xff"


def test_texts_in_large_arrays_are_the_same() -> None:
    (row,) = encoded(batch_of(body=pa.array([b"x"], pa.large_binary()), messageId=pa.array(["é"], pa.large_string())))
    message = decoded(row.data)
    assert (message.id, bytes(message.body)) == ("é", b"x")


VALUES_BY_TYPE = [
    (pa.bool_(), [True, False, None], [True, False, None]),
    (pa.int8(), [-1, 0, None], [byte(-1), byte(0), None]),
    (pa.int16(), [-300], [short(-300)]),
    (pa.int32(), [-5, 70_000], [int32(-5), int32(70_000)]),
    (pa.int64(), [-5, 1 << 60], [-5, 1 << 60]),
    (pa.float32(), [0.5, -0.0], [float32(0.5), float32(-0.0)]),
    (pa.float64(), [0.1, float("inf")], [0.1, float("inf")]),
    (pa.binary(), [b"\xff", b"x" * 300], [b"\xff", b"x" * 300]),
    (pa.large_string(), ["a", ""], ["a", ""]),
    (pa.timestamp("us", tz="UTC"), [1_500, -1], [timestamp(1), timestamp(-1)]),
    (pa.date32(), [date(2026, 1, 2)], ["2026-01-02"]),
    (pa.decimal128(10, 2), [decimal.Decimal("1.50")], ["1.50"]),
]


@pytest.mark.parametrize(("kind", "values", "shown"), VALUES_BY_TYPE, ids=lambda each: str(each)[:20])
def test_properties_keep_the_type_of_their_map(kind: Any, values: list[Any], shown: list[Any]) -> None:
    properties = pa.array([[(f"k{i}", value) for i, value in enumerate(values)]], pa.map_(pa.string(), kind))
    (row,) = encoded(batch_of(body=[b""], applicationProperties=properties))
    message = decoded(row.data)
    got = [bytes(value) if isinstance(value, memoryview) else value for value in message.properties.values()]
    assert [(type(value), value) for value in got] == [(type(value), value) for value in shown]


def test_decimals_are_amqps_where_types_are_kept() -> None:
    kind = pa.map_(pa.string(), pa.decimal128(38, 2))
    properties = pa.array([[("k", decimal.Decimal("-3.10")), ("none", None)]], kind)
    (row,) = encoded(batch_of(body=[b""], applicationProperties=properties), properties_format="json")
    start = row.data.index(b"\xa1\x01k") + 3
    value, _ = decode_exactly(row.data, start, len(row.data))
    assert (type(value), typed_json(value)) == (Decimal128, '{"decimal128":"-3.10"}')
    properties = pa.array([[("k", decimal.Decimal("1" * 36 + ".10"))]], kind)
    with pytest.raises(ConnectorError, match=r"VALUE_INVALID.*application property 'k' of row 0.*34 digits"):
        encoded(batch_of(body=[b""], applicationProperties=properties), properties_format="json")


@given(VALUES)
def test_a_property_as_json_becomes_the_value_that_it_tells(value: Any) -> None:
    batch = batch_of(body=[b""], applicationProperties=[{"k": typed_json(value)}])
    (row,) = encoded(batch, properties_format="json")
    start = row.data.index(b"\xa1\x01k") + 3
    end = len(row.data) - len(b"\x00\x53\x75\xa0\x00")
    assert exact(decode_exactly(row.data, start, end)[0]) == exact(value)
    assert row.data[start:end] == encode(value)


def test_a_slice_of_a_batch_is_encoded_as_its_rows_are() -> None:
    whole = batch_of(
        body=[str(n).encode() for n in range(6)],
        messageId=[f"id-{n}" for n in range(6)],
        applicationProperties=[{f"k{i}": str(n) for i in range(n)} if n != 4 else None for n in range(6)],
    )
    rows = encoded(whole)
    for start, length in ((0, 6), (2, 3), (5, 1), (3, 0)):
        sliced = encoded(whole.slice(start, length))
        assert [row.data for row in sliced] == [row.data for row in rows[start : start + length]]
        assert [row.index for row in sliced] == list(range(length))
    assert [decoded(row.data).properties for row in rows[3:5]] == [{"k0": "3", "k1": "3", "k2": "3"}, None]


REFUSED: list[tuple[dict[str, Any], str]] = [
    ({"messageId": "x" * 129}, "messageId of row 1 .*'xxx.*: it has 129 characters, 128 are possible"),
    ({"sessionId": "é" * 129}, "sessionId of row 1 .*: it has 129 characters"),
    ({"partitionKey": "x" * 129}, "partitionKey of row 1 .*: it has 129 characters"),
    ({"sessionId": "s", "partitionKey": "p"}, "partitionKey of row 1 .*'p': it must be equal to sessionId, 's'"),
    ({"contentType": "é"}, "contentType of row 1 .*'é': possible are ASCII characters"),
    ({"timeToLiveMs": -1}, "timeToLiveMs of row 1 .*-1: possible are 0 to 4294967295 ms"),
    ({"timeToLiveMs": 1 << 32}, "timeToLiveMs of row 1 .*4294967296"),
    ({"applicationProperties": {"a": "1", "b": "no json"}}, "application property 'b' of row 1 .*'no json'"),
]


@pytest.mark.parametrize(("columns", "text"), REFUSED, ids=lambda each: str(each)[:40])
def test_a_value_that_cannot_be_sent_is_named(columns: dict[str, Any], text: str) -> None:
    empty = {name: {"x": "1"} if name == "applicationProperties" else None for name in columns}
    batch = batch_of(body=[b"", b""], **{name: [empty[name], value] for name, value in columns.items()})
    with pytest.raises(ConnectorError, match=text) as refused:
        encoded(batch, properties_format="json")
    assert (refused.value.code, "\n" in refused.value.text) == (Code.VALUE_INVALID, False)


def test_identifiers_may_have_as_many_characters_as_there_may_be_whatever_their_bytes() -> None:
    assert one(messageId="é" * 128, sessionId="x" * 128).id == "é" * 128


@pytest.mark.parametrize("name", ["messageId", "subject", "applicationProperties"])
def test_text_that_is_no_utf_8_is_refused(name: str) -> None:
    broken = pa.Array.from_buffers(pa.string(), 2, pa.array([b"a", b"\xff"]).buffers())
    column = broken
    if name == "applicationProperties":
        column = pa.MapArray.from_arrays([0, 1, 2], pa.array(["k", "key"]), broken)
    with pytest.raises(ConnectorError, match=f"{'property .key.' if name[0] == 'a' else name} of row 1 .*utf-8"):
        encoded(batch_of(**{name: column}))


@pytest.mark.parametrize(
    ("name", "array", "text"),
    [
        ("body", pa.array([1]), "column body is int64; it must be STRING or BINARY"),
        ("messageId", pa.array([b"x"]), "column messageId is binary; it must be STRING"),
        ("timeToLiveMs", pa.array(["1"]), "column timeToLiveMs is string; it must be BIGINT"),
        ("scheduledEnqueueTime", pa.array([1]), "column scheduledEnqueueTime is int64; it must be TIMESTAMP"),
        (
            "applicationProperties",
            pa.array(["{}"]),
            "column applicationProperties is string; it must be MAP<STRING, …>",
        ),
        ("applicationProperties", pa.array([[(1, "a")]], pa.map_(pa.int32(), pa.string())), "it must be MAP<STRING"),
        ("applicationProperties", pa.array([[("a", [1])]], pa.map_(pa.string(), pa.list_(pa.int8()))), "a map of list"),
    ],
)
def test_a_column_of_the_wrong_type_is_refused(name: str, array: Any, text: str) -> None:
    with pytest.raises(ConnectorError, match=re.escape(text)) as refused:
        encoded(batch_of(**{name: array}))
    assert refused.value.code == Code.SCHEMA_UNSUPPORTED


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConnectorError, match="there is no column sequenceNumber; there are body, "):
        RowEncoder(["body", "sequenceNumber"])


@pytest.mark.parametrize("unit", ["s", "ms", "us", "ns"])
def test_instants_of_any_unit_are_rounded_down_to_milliseconds(unit: str) -> None:
    per_s = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}[unit]
    array = pa.array([2 * per_s, -3 * per_s, -1], pa.timestamp(unit, tz="UTC"))
    rows = encoded(batch_of(scheduledEnqueueTime=array))
    times = [decoded(row.data).annotations[symbol("x-opt-scheduled-enqueue-time")] for row in rows]
    assert times == [2000, -3000, -1000 if unit == "s" else -1]


@given(
    st.lists(st.binary(max_size=300), min_size=1, max_size=20),
    st.none() | st.just("s") | TEXTS.filter(lambda text: "\0" not in text),  # Proton reads no further than a NUL
    st.none() | TEXTS.filter(lambda text: "\0" not in text),
    st.booleans(),
)
def test_an_envelope_holds_its_messages_and_tells_of_the_first(
    bodies: list[bytes], session_id: str | None, message_id: str | None, has_key: bool
) -> None:
    key = session_id if has_key else None
    count = len(bodies)
    batch = batch_of(
        body=bodies, sessionId=[session_id] * count, messageId=[message_id] * count, partitionKey=[key] * count
    )
    rows = encoded(batch)
    data = envelope([row.data for row in rows], rows[0])
    assert len(data) == envelope_overhead(rows[0]) + sum(len(row.data) + data_overhead(len(row.data)) for row in rows)
    whole = decoded(data[: envelope_overhead(rows[0])] + b"\x00\x53\x75\xa0\x00")
    assert (whole.id, whole.group_id) == (message_id, session_id)
    assert whole.annotations == (None if key is None else {symbol("x-opt-partition-key"): key})
    pos, found = envelope_overhead(rows[0]), []
    while pos < len(data):
        assert data[pos : pos + 3] == b"\x00\x53\x75"
        value, pos = decode_exactly(data, pos + 3)
        assert isinstance(value, bytes)
        found.append(value)
    assert found == [row.data for row in rows]
