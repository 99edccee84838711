"""Whatever comes from the wire: a row, or a ConnectorError that can be read, and never anything else."""

from __future__ import annotations

import pickle
import uuid

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st
from proton import Message, int32, symbol, timestamp

from emubus.codec.encode import encode
from emubus.codec.types import MapItems, Symbol
from emubus.spark_connector.codec import ArrowRows, head, source_columns, split_peek_reply
from emubus.spark_connector.errors import Code, ConnectorError

from ...rounds import rounds
from .kit import peeked, row_of, with_sections
from .strategies import VALUES

RICH = peeked(
    id="id",
    group_id="group",
    subject="é" * 10,
    correlation_id=uuid.UUID(int=5),
    ttl=3,
    expiry_time=5,
    body=b"octets",
    annotations={"x-opt-partition-key": "key", "x-opt-scheduled-enqueue-time": timestamp(4)},
    properties={"text": "t", "n": 5, "i": int32(70_000), "null": None, "at": timestamp(6), "DeadLetterReason": "why"},
)
NESTED = peeked(body={"list": [1, [2.5, {"k": uuid.UUID(int=1)}]], "text": "t"}, inferred=False)
REPLY = bytes(Message(body={"messages": [{"message": RICH}, {"message": NESTED, symbol("x"): 5}]}).encode())


def taken(data: bytes) -> int | None:
    """Decode in both formats; return the row's number, None when it was refused as it should be."""
    numbers = []
    for properties_format in ("text", "json"):
        rows = ArrowRows(source_columns(), properties_format="json" if properties_format == "json" else "text")
        try:
            numbers.append(rows.append(data))
        except ConnectorError as error:
            refused = pickle.loads(pickle.dumps(error))
            assert (refused.code, "malformed" in refused.text) == (Code.MALFORMED_MESSAGE, True)
            return None
        batch = rows.take()
        batch.validate(full=True)
        assert batch.column("sequenceNumber").to_pylist() == numbers[-1:]
    assert numbers[0] == numbers[1] == head(data).sequence_number
    return numbers[0]


@st.composite
def damaged(draw: st.DrawFn, whole: bytes) -> bytes:
    """Return the message with some bytes changed, removed or put in."""
    data = bytearray(whole)
    for _ in range(draw(st.integers(1, 4))):
        at = draw(st.integers(0, max(len(data) - 1, 0)))
        kind = draw(st.sampled_from(["set", "cut", "put", "end"]))
        if kind == "set" and data:
            data[at] = draw(st.sampled_from(INTERESTING) | st.integers(0, 255))
        elif kind == "cut":
            del data[at : at + draw(st.integers(1, 8))]
        elif kind == "put":
            data[at:at] = draw(st.binary(min_size=1, max_size=8))
        else:
            del data[at:]
    return bytes(data)


INTERESTING = list(
    b"\x00\x01\x40\x41\x43\x45\x53\x54\x55\x56\x71\x73\x80\x81\x83\x84\x98\xa0\xa1\xa3\xb0\xb1\xc0\xc1\xd0\xd1\xe0\xf0\xff"
)


@settings(max_examples=rounds(200, 4_000))
@given(damaged(RICH))
def test_a_damaged_message_is_a_row_or_refused(data: bytes) -> None:
    taken(data)


@settings(max_examples=200)
@given(damaged(NESTED))
def test_a_damaged_value_is_a_row_or_refused(data: bytes) -> None:
    taken(data)


@settings(max_examples=150)
@given(st.binary(max_size=60) | st.binary(max_size=60).map(lambda octets: b"\x00\x53" + octets))
def test_any_octets_are_a_row_or_refused(data: bytes) -> None:
    taken(data)
    taken(with_sections(data))


@settings(max_examples=200)
@given(damaged(REPLY))
def test_a_damaged_reply_is_split_or_refused(data: bytes) -> None:
    codes = set()
    try:
        for message in split_peek_reply(data):
            taken(message)
    except ConnectorError as error:
        codes.add(error.code)
    assert codes <= {Code.MALFORMED_MESSAGE}


@settings(max_examples=150)
@given(VALUES, VALUES, st.lists(st.tuples(VALUES, VALUES), max_size=3), st.lists(VALUES, max_size=13))
def test_values_of_any_type_in_any_place_make_a_row_or_are_refused(
    body: object, note: object, entries: list[tuple[object, object]], fields: list[object]
) -> None:
    properties = b"\x00\x53\x73" + encode(fields)
    application = b"\x00\x53\x74" + encode(MapItems(entries))
    annotations = b"\x00\x53\x72" + encode(MapItems([(Symbol("x-opt-message-state"), note)]))
    taken(with_sections(b"\x00\x53\x77" + encode(body)))
    taken(with_sections(properties, application))
    taken(annotations + with_sections())


def test_a_count_that_lies_costs_nothing() -> None:
    array_of_nulls = b"\xf0\x00\x00\x00\x05\xff\xff\xff\xff\x40"
    list_of_many = b"\xd0\x00\x00\x00\x04\xff\xff\xff\xff"
    many_described = b"\x00" * 100_000
    for value in (array_of_nulls, list_of_many, many_described):
        assert taken(with_sections(b"\x00\x53\x77" + value)) is None
        assert taken(with_sections(b"\x00\x53\x74\xd1\x00\x00\x00\x04\xff\xff\xff\xff" + value)) is None


def test_many_small_data_sections_are_put_together_in_time() -> None:
    message = with_sections(b"\x00\x53\x75\xa0\x01x" * 100_000)
    assert row_of(message)["body"] == b"x" * 100_000


def test_an_empty_batch_is_valid() -> None:
    batch = ArrowRows(source_columns()).take()
    batch.validate(full=True)
    assert (batch.num_rows, isinstance(batch, pa.RecordBatch)) == (0, True)
