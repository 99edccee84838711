"""From a service to Spark's schema, through a file, and out again: what a client can set comes back unchanged."""

from __future__ import annotations

import io
import uuid
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import symbol, timestamp
from pyarrow import parquet
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from emubus.codec.encode import encode
from emubus.spark_connector.codec import SINK_COLUMNS, ArrowRows, RowEncoder, columns_of, source_columns
from emubus.spark_connector.schema import SOURCE_COLUMNS, source_schema

from .kit import decoded, peeked, row_of
from .strategies import PLAIN, SYMBOLS, TEXTS, VALUES

SENT_ON = [name for name in SINK_COLUMNS if name != "entity"]
# Proton, which writes these messages, ends texts of the properties section at a NUL.
IDS = st.none() | st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=128)
INSTANTS_MS = st.integers(-62_135_596_800_000, 253_402_300_799_999)


def through_parquet(batch: Any) -> Any:
    """Write and read the batch as a file, as a Spark job between source and sink may."""
    file = io.BytesIO()
    parquet.write_table(pa.Table.from_batches([batch]), file)
    (read,) = parquet.read_table(file).select(SENT_ON).to_batches()
    return read


def again(messages: list[bytes], properties_format: Any) -> list[bytes]:
    """Return the messages after a trip through rows and a file."""
    rows = ArrowRows(source_columns(), properties_format=properties_format)
    for message in messages:
        rows.append(message)
    batch = through_parquet(rows.take())
    return [row.data for row in RowEncoder(SENT_ON, properties_format=properties_format).encode(batch)]


@st.composite
def client_fields(draw: st.DrawFn) -> dict[str, Any]:
    """Return fields of a Proton message that Spark's columns hold, and `annotations`."""
    session_id = draw(IDS)
    fields: dict[str, Any] = {"id": draw(IDS), "group_id": session_id, "body": draw(st.binary(max_size=400))}
    for name in ("subject", "correlation_id", "address", "reply_to", "reply_to_group_id"):
        fields[name] = draw(st.none() | TEXTS)
    fields["content_type"] = draw(st.none() | SYMBOLS)
    fields["ttl"] = draw(st.none() | st.integers(1, 4_000_000))
    key = session_id if session_id is not None and draw(st.booleans()) else draw(IDS) if session_id is None else None
    at_ms = draw(st.none() | INSTANTS_MS)
    reported = {"x-opt-partition-key": key, "x-opt-scheduled-enqueue-time": None if at_ms is None else timestamp(at_ms)}
    fields["annotations"] = {name: value for name, value in reported.items() if value is not None}
    return {name: value for name, value in fields.items() if value is not None}


@given(st.lists(client_fields(), min_size=1, max_size=5))
def test_what_clients_set_goes_through_spark_and_comes_back(messages: list[dict[str, Any]]) -> None:
    sent = [peeked(**fields) for fields in messages]
    for before, after in zip(sent, again(sent, "json"), strict=True):
        theirs, ours = decoded(before), decoded(after)
        for name in ("id", "group_id", "subject", "correlation_id", "address", "reply_to", "reply_to_group_id", "ttl"):
            assert getattr(ours, name) == getattr(theirs, name), name
        assert (bytes(ours.body), ours.content_type) == (bytes(theirs.body), theirs.content_type)
        mine = {"x-opt-partition-key", "x-opt-scheduled-enqueue-time"}
        assert (ours.annotations or {}) == {k: v for k, v in theirs.annotations.items() if str(k) in mine}


@settings(max_examples=50)
@given(st.lists(st.dictionaries(TEXTS, VALUES, max_size=4), min_size=1, max_size=4))
def test_application_properties_as_json_keep_their_bytes(maps: list[dict[str, object]]) -> None:
    sections = [b"\x00\x53\x74" + encode(each) for each in maps]
    sent = [peeked()[:-4] + section + b"\x00\x53\x75\xa0\x00" for section in sections]
    for each, section, after in zip(maps, sections, again(sent, "json"), strict=True):
        assert after == (section if each else b"") + b"\x00\x53\x75\xa0\x00"


@given(st.lists(st.dictionaries(TEXTS, st.none() | TEXTS, max_size=4), min_size=1, max_size=4))
def test_application_properties_as_text_keep_texts(maps: list[dict[str, str | None]]) -> None:
    sent = [peeked(properties=each or None, body=b"") for each in maps]
    assert [decoded(after).properties or {} for after in again(sent, "text")] == maps


def test_typed_ids_come_back_as_text() -> None:
    (after,) = again([peeked(id=uuid.UUID(int=5), correlation_id=7, body=b"")], "text")
    assert (decoded(after).id, decoded(after).correlation_id) == (str(uuid.UUID(int=5)), "7")


def test_every_column_that_a_client_sets_is_in_the_trip() -> None:
    names = {column.name for column in source_columns()}
    assert set(SENT_ON) < names
    assert set(PLAIN) > {"string", "uuid", "timestamp"}


def test_the_schema_of_the_rows_is_spark_s() -> None:
    schema = source_schema()
    assert columns_of(schema) == source_columns()
    batch = ArrowRows(columns_of(schema)).take()
    assert batch.schema.equals(to_arrow_schema(schema, timezone="UTC"))


@pytest.mark.parametrize("column", SOURCE_COLUMNS, ids=lambda each: each.name)
def test_each_type_that_a_column_may_have_is_spark_s(column: Any) -> None:
    for kind in column.types:
        for name in (column.name, column.name.upper()):
            schema = StructType().add(name, kind, nullable=False)
            rows = ArrowRows(columns_of(schema))
            assert rows.take().schema.equals(to_arrow_schema(schema, timezone="UTC"))


def test_columns_come_in_the_order_that_was_asked_for() -> None:
    schema = StructType().add("BODY", "string").add("deliveryCount", "long").add("sequencenumber", "long")
    row = row_of(peeked(body=b"x", delivery_count=2), columns_of(schema))
    assert list(row.items()) == [("BODY", "x"), ("deliveryCount", 2), ("sequencenumber", (5 << 48) + 77)]


def test_keys_of_annotations_are_symbols() -> None:
    (after,) = again([peeked(annotations={"x-opt-partition-key": "k"}, body=b"")], "text")
    assert [type(key) for key in decoded(after).annotations] == [symbol]
