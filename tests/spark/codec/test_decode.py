"""Messages to rows: what Proton and other clients encode, and what the columns then hold."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from proton import Described, Message, byte, char, float32, int32, symbol, timestamp, ubyte, uint, ulong

from emubus.codec.encode import encode
from emubus.codec.types import Int, Long, MapItems, Symbol, Timestamp, Uint, Ulong
from emubus.spark_connector.codec import ArrowRows, Column, head, source_columns, split_peek_reply
from emubus.spark_connector.errors import Code, ConnectorError

from .kit import ENQUEUED_AT_MS, NUMBER, column, peeked, row_of, service_annotations, with_sections

UUID = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")


def at(at_ms: int) -> datetime:
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


NOTHING = {each.name: None for each in source_columns()} | {
    "sequenceNumber": NUMBER,
    "enqueuedTime": at(ENQUEUED_AT_MS),
    "partitionId": 5,
    "deliveryCount": 0,
    "state": "active",
    "applicationProperties": {},
}


def test_every_field_of_a_message_becomes_its_column() -> None:
    message = peeked(
        state=2,
        annotations={
            "x-opt-partition-key": "key",
            "x-opt-scheduled-enqueue-time": timestamp(1_800_000_000_001),
            "x-opt-enqueue-sequence-number": 9,
            "x-opt-deadletter-source": "orders",
            "x-opt-other": "else",
        },
        id="id",
        group_id="group",
        subject="subject",
        content_type="text/plain",
        correlation_id="correlation",
        address="to",
        reply_to="reply",
        reply_to_group_id="reply-group",
        expiry_time=1_900_000_000,
        creation_time=1_700_000_000,
        ttl=61.5,
        delivery_count=3,
        durable=True,
        priority=7,
        user_id=b"user",
        body=b"\x00\xff",
        properties={"DeadLetterReason": "why", "DeadLetterErrorDescription": "because", "n": 1},
    )
    assert row_of(message) == {
        "body": b"\x00\xff",
        "messageId": "id",
        "sequenceNumber": NUMBER,
        "enqueuedTime": at(ENQUEUED_AT_MS),
        "partitionId": 5,
        "sessionId": "group",
        "partitionKey": "key",
        "subject": "subject",
        "contentType": "text/plain",
        "correlationId": "correlation",
        "to": "to",
        "replyTo": "reply",
        "replyToSessionId": "reply-group",
        "expiresAt": at(1_900_000_000_000),
        "timeToLiveMs": 61_500,
        "scheduledEnqueueTime": at(1_800_000_000_001),
        "deliveryCount": 3,
        "enqueuedSequenceNumber": 9,
        "state": "scheduled",
        "deadLetterSource": "orders",
        "deadLetterReason": "why",
        "deadLetterErrorDescription": "because",
        "applicationProperties": {"DeadLetterReason": "why", "DeadLetterErrorDescription": "because", "n": "1"},
    }


def test_what_a_message_lacks_is_null() -> None:
    assert row_of(with_sections()) == NOTHING


@pytest.mark.parametrize("wanted", source_columns(), ids=lambda each: each.name)
def test_a_column_is_the_same_alone_as_among_all(wanted: Column) -> None:
    message = peeked(id=UUID, body=b"x", subject="s", reply_to_group_id="r", ttl=5, properties={"a": 1})
    assert row_of(message, [wanted]) == {wanted.name: row_of(message)[wanted.name]}


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        ("text", "text"),
        ("é" * 200, "é" * 200),
        (ulong(0), "0"),
        (ulong(200), "200"),
        (ulong((1 << 64) - 1), str((1 << 64) - 1)),
        (UUID, str(UUID)),
        (b"\xff\x01", "ff01"),
        (b"x" * 300, "78" * 300),
    ],
    ids=str,
)
def test_an_id_of_any_type_becomes_text(reported: object, shown: str) -> None:
    message = peeked(id=reported, correlation_id=reported)
    assert (column(message, "messageId"), column(message, "correlationId")) == (shown, shown)


LONG = "x" * 70_000


@pytest.mark.parametrize(
    ("reported", "shown"),
    [
        (b"octets", b"octets"),
        (b"", b""),
        (b"x" * 70_000, LONG.encode()),
        ("text é", "text é".encode()),
        (LONG, LONG.encode()),
        (b"\xff", b"\xff"),
        (symbol("sym"), b"sym"),
        (None, None),
        (5, b"5"),
        (int32(5), b"5"),
        (1.5, b"1.5"),
        (True, b"true"),
        (UUID, f'"{UUID}"'.encode()),
        (timestamp(0), b'"1970-01-01T00:00:00.000Z"'),
        (float("nan"), b'"NaN"'),
        ({"é": [1, None, {"b": b"\x00"}]}, '{"é":[1,null,{"b":"AA=="}]}'.encode()),
        ([], b"[]"),
        (Described(symbol("com.microsoft:timespan"), 10_000_000), b'"00:00:01"'),
    ],
    ids=lambda each: str(each)[:30],
)
def test_a_body_of_any_kind_becomes_octets(reported: object, shown: bytes | None) -> None:
    as_value = peeked(body=reported, inferred=False)
    assert column(as_value, "body") == shown
    if isinstance(reported, bytes):
        assert column(peeked(body=reported, inferred=True), "body") == reported


def test_sequences_become_one_json_list() -> None:
    message = peeked(body=[1, "two"], inferred=True)
    assert column(message, "body") == b'[1,"two"]'
    assert column(message + b"\x00\x53\x76\xc0\x03\x01\x54\x03", "body") == b'[1,"two",3]'


def test_data_sections_are_put_together() -> None:
    message = with_sections(b"\x00\x53\x75\xa0\x02ab", b"\x00\x53\x75\xb0\x00\x00\x00\x01c", b"\x00\x53\x75\xa0\x00")
    assert column(message, "body") == b"abc"


def test_a_body_read_as_text_shows_what_is_no_utf_8_as_such() -> None:
    text = [Column("body", "string")]
    assert row_of(peeked(body="é".encode()), text) == {"body": "é"}
    assert row_of(peeked(body=b"a\xffb"), text) == {"body": "a\ufffdb"}
    assert row_of(with_sections(), text) == {"body": None}


PROPERTIES = {
    "text": "t",
    "long text": "é" * 200,
    "long": 5,
    "int": int32(-5),
    "big int": int32(70_000),
    "byte": byte(-1),
    "ubyte": ubyte(255),
    "uint": uint(0),
    "ulong": ulong(1 << 63),
    "double": 2.5,
    "float": float32(0.1),
    "yes": True,
    "no": False,
    "null": None,
    "char": char("c"),
    "at": timestamp(1),
    "uuid": UUID,
    "octets": b"\x00",
    "symbol": symbol("s"),
}


def test_application_properties_are_shown_as_text() -> None:
    assert column(peeked(properties=PROPERTIES), "applicationProperties") == {
        "text": "t",
        "long text": "é" * 200,
        "long": "5",
        "int": "-5",
        "big int": "70000",
        "byte": "-1",
        "ubyte": "255",
        "uint": "0",
        "ulong": "9223372036854775808",
        "double": "2.5",
        "float": "0.1",
        "yes": "true",
        "no": "false",
        "null": None,
        "char": "c",
        "at": "1970-01-01T00:00:00.001Z",
        "uuid": str(UUID),
        "octets": "AA==",
        "symbol": "s",
    }


def test_application_properties_as_json_tell_their_types() -> None:
    assert column(peeked(properties=PROPERTIES), "applicationProperties", "json") == {
        "text": '"t"',
        "long text": '"' + "é" * 200 + '"',
        "long": "5",
        "int": '{"int":-5}',
        "big int": '{"int":70000}',
        "byte": '{"byte":-1}',
        "ubyte": '{"ubyte":255}',
        "uint": '{"uint":0}',
        "ulong": '{"ulong":9223372036854775808}',
        "double": "2.5",
        "float": '{"float":0.1}',
        "yes": "true",
        "no": "false",
        "null": "null",
        "char": '{"char":"c"}',
        "at": '{"timestamp":"1970-01-01T00:00:00.001Z"}',
        "uuid": f'{{"uuid":"{UUID}"}}',
        "octets": '{"binary":"AA=="}',
        "symbol": '{"symbol":"s"}',
    }


@pytest.mark.parametrize("properties_format", ["text", "json"])
def test_dead_letter_reasons_are_text_in_either_format(properties_format: str) -> None:
    message = peeked(properties={"DeadLetterReason": "é\n", "DeadLetterErrorDescription": 5})
    row = row_of(message, properties_format="json" if properties_format == "json" else "text")
    assert (row["deadLetterReason"], row["deadLetterErrorDescription"]) == ("é\n", "5")


def section(code: int, *items: object, as_map: bool = False) -> bytes:
    value = MapItems(list(zip(items[::2], items[1::2], strict=True))) if as_map else list(items)
    return bytes((0, 0x53, code)) + encode(value)


def test_fields_that_should_be_text_become_text_whatever_they_are() -> None:
    items = [
        Long(1),
        b"u",
        UUID,
        Timestamp(0),
        True,
    ]
    row = row_of(with_sections(section(0x73, *items, b"\xff", [])))
    shown = {"messageId": "1", "to": str(UUID), "subject": "1970-01-01T00:00:00.000Z", "replyTo": "true"}
    assert row == NOTHING | shown | {"correlationId": "ff", "contentType": "[]"}


def test_sections_may_come_in_any_order_and_with_any_descriptor() -> None:
    annotations = section(0x72, Symbol("x-opt-sequence-number"), Long(3), as_map=True)
    header = b"\x00\xa3\x10amqp:header:list" + encode([True] * 2 + [Uint(9)])
    properties = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x73" + encode(["id"])
    body = b"\x00\xb3\x00\x00\x00\x10amqp:data:binary\xa0\x01x"
    delivery = section(0x71, Symbol("x-opt-lock-token"), UUID, as_map=True)
    footer = section(0x78, Symbol("sum"), Int(1), as_map=True)
    for message in (
        header + delivery + annotations + properties + body + footer,
        body + delivery + properties + header + footer + annotations,
    ):
        row = row_of(message)
        assert (row["timeToLiveMs"], row["messageId"], row["body"], row["sequenceNumber"]) == (9, "id", b"x", 3)
        assert head(message) == (3, 0, 0)


def test_long_lists_and_maps_and_texts_are_read() -> None:
    def large(constructor: int, count: int, items: bytes) -> bytes:
        return bytes((constructor,)) + (len(items) + 4).to_bytes(4, "big") + count.to_bytes(4, "big") + items

    text = b"\xb1\x00\x00\x00\x01i"
    key = b"\xb1\x00\x00\x00\x01k"
    properties = b"\x00\x53\x73" + large(0xD0, 7, text + b"\x40" * 5 + b"\xb3\x00\x00\x00\x01c")
    application = b"\x00\x53\x74" + large(0xD1, 2, key + text)
    empty_list = b"\x00\x53\x70\x45"
    row = row_of(empty_list + with_sections(properties, application))
    assert (row["messageId"], row["contentType"], row["applicationProperties"]) == ("i", "c", {"k": "i"})


def test_annotations_may_have_text_keys_and_any_integer() -> None:
    items = ["x-opt-sequence-number", Ulong(7), Symbol("x-opt-enqueued-time")]
    items += [
        Long(4),
        Int(5),
        [],
        Symbol("x-opt-message-state"),
        Long(1),
    ]
    assert head(section(0x72, *items, as_map=True)) == (7, 1, 4)


def test_messages_of_different_layouts_are_distinguished() -> None:
    """Annotations that begin alike are read by the layout of the first; what then differs must not be mixed up."""
    keys = ["x-opt-partition-key", "x-opt-partition-kez"]
    for key in (*keys, *keys):
        messages = [peeked(number, annotations={key: text}) for number, text in enumerate(("ab", "cd", "e"), 1)]
        rows = ArrowRows([Column("sequenceNumber", "bigint"), Column("partitionKey", "string")])
        assert [rows.append(message) for message in messages] == [1, 2, 3]
        shown = ["ab", "cd", "e"] if key == keys[0] else [None] * 3
        assert rows.take().to_pydict() == {"sequenceNumber": [1, 2, 3], "partitionKey": shown}


def test_a_message_without_expiry_expires_after_its_time_to_live() -> None:
    assert column(peeked(ttl=2), "expiresAt") == at(ENQUEUED_AT_MS + 2000)
    assert column(peeked(ttl=2, expiry_time=1), "expiresAt") == at(1000)
    assert column(peeked(), "expiresAt") is None


@pytest.mark.parametrize(
    ("sent_ms", "shown_ms"),
    [((1 << 63) - 1, 253_402_300_799_999), (-(1 << 63), -62_135_596_800_000), (-1, -1)],
)
def test_an_instant_that_spark_cannot_show_is_the_nearest_that_it_can(sent_ms: int, shown_ms: int) -> None:
    message = peeked(annotations={"x-opt-scheduled-enqueue-time": timestamp(sent_ms)})
    rows = ArrowRows([Column("scheduledEnqueueTime", "timestamp")])
    rows.append(message)
    (shown,) = rows.take().column(0).cast("int64").to_pylist()
    assert shown == shown_ms * 1000


@pytest.mark.parametrize(("state", "shown"), [(0, "active"), (1, "deferred"), (2, "scheduled"), (3, "3")])
def test_states_have_names(state: int, shown: str) -> None:
    assert (column(peeked(state=state), "state"), head(peeked(state=state)).state) == (shown, state)


def test_head_tells_what_is_needed_before_a_row_is_made() -> None:
    assert head(memoryview(peeked(state=1, body=b"x"))) == (NUMBER, 1, ENQUEUED_AT_MS)


def test_rows_are_taken_once() -> None:
    rows = ArrowRows([Column("sequenceNumber", "bigint")])
    messages = [peeked(number) for number in (1, 2)]
    assert [rows.append(memoryview(message)) for message in messages] == [1, 2]
    assert (rows.rows, rows.size_bytes) == (2, sum(map(len, messages)))
    assert rows.take().to_pydict() == {"sequenceNumber": [1, 2]}
    assert (rows.rows, rows.size_bytes) == (0, 0)
    rows.append(peeked(3))
    assert rows.take().to_pydict() == {"sequenceNumber": [3]}
    assert rows.take().to_pydict() == {"sequenceNumber": []}


def test_messages_are_taken_up_to_a_number_and_by_their_states() -> None:
    rows = ArrowRows([Column("sequenceNumber", "bigint")])
    messages = [peeked(1), peeked(2, state=1), peeked(3, state=2), peeked(4), peeked(7), peeked(8)]
    assert rows.extend(messages[:3], before=7) == 3
    assert rows.extend(messages[3:], before=7) == 7
    assert rows.take().to_pydict() == {"sequenceNumber": [1, 4]}
    assert rows.extend(messages, before=100, states=(0, 1)) == 8
    assert rows.take().to_pydict() == {"sequenceNumber": [1, 2, 4, 7, 8]}
    assert rows.extend([], before=7) == -1


def test_a_peek_reply_is_split_into_its_messages() -> None:
    messages = [peeked(number, body=b"x" * size) for number, size in ((1, 0), (2, 100), (3, 70_000))]
    reply = Message(
        body={"messages": [{"message": message} for message in messages]}, id=5, properties={"statusCode": int32(200)}
    )
    assert split_peek_reply(reply.encode()) == messages
    more = [{"other": 1, "message": message, symbol("third"): None} for message in messages]
    assert split_peek_reply(Message(body={"x": [1], symbol("messages"): more}).encode()) == messages


@pytest.mark.parametrize("body", [None, {}, {"messages": []}, {"messages": None}, {"other": 5}], ids=str)
def test_a_peek_reply_may_tell_of_no_message(body: Any) -> None:
    assert split_peek_reply(Message(body=body).encode()) == []


@pytest.mark.parametrize(
    "body", ["text", {"messages": 5}, {"messages": [{}]}, {"messages": [{"message": "x"}]}, {"messages": [5]}]
)
def test_a_peek_reply_of_another_shape_is_refused(body: Any) -> None:
    with pytest.raises(ConnectorError, match=r"SERVICEBUS_MALFORMED_MESSAGE.*reply to a peek") as refused:
        split_peek_reply(Message(body=body).encode())
    assert refused.value.code == Code.MALFORMED_MESSAGE


MALFORMED = {
    "no number": bytes(Message(body=b"x").encode()),
    "cut off": peeked(body=b"x" * 20)[:-1],
    "a second kind of body": with_sections(b"\x00\x53\x75\xa0\x01x", b"\x00\x53\x77\x40"),
    "a body of two values": with_sections(b"\x00\x53\x77\x40", b"\x00\x53\x77\x40"),
    "no section": with_sections(b"\x00\x53\x79\x40"),
    "no descriptor": with_sections(b"\x40"),
    "properties that are a map": with_sections(b"\x00\x53\x73\xc1\x01\x00"),
    "an odd map": with_sections(b"\x00\x53\x74\xc1\x02\x01\x40"),
    "text that is no UTF-8": with_sections(b"\x00\x53\x73\xc0\x04\x01\xa1\x01\xff"),
    "fields behind the list's end": with_sections(b"\x00\x53\x73\xc0\x03\x01\xa1\x05", b"\x00\x53\x75\xa0\x01x"),
    "an expiry that is no instant": with_sections(b"\x00\x53\x73\xc0\x0c\x09" + b"\x40" * 8 + b"\xa1\x01x"),
    "a list in a header": b"\x00\x53\x70\xc0\x05\x03\x40\x40\xa1\x00" + with_sections(),
}


@pytest.mark.parametrize("kind", MALFORMED)
def test_a_malformed_message_is_named_by_its_number(kind: str) -> None:
    rows = ArrowRows(source_columns())
    rows.append(peeked(1))
    named = "sequence number cannot be read" if kind == "no number" else f"message {NUMBER} is malformed"
    if kind == "a list in a header":
        named = "malformed"
    for take in (rows.append, lambda message: rows.extend([message], before=1 << 62)):
        with pytest.raises(ConnectorError, match=named) as refused:
            take(MALFORMED[kind])
        assert (refused.value.code, refused.value.retriable) == (Code.MALFORMED_MESSAGE, False)
    assert rows.take().num_rows == 1


@pytest.mark.parametrize(
    "wrong",
    [
        {"x-opt-sequence-number": "5"},
        {"x-opt-sequence-number": ulong(1 << 63)},
        {"x-opt-partition-key": 5},
        {"x-opt-enqueued-time": None, "x-opt-message-state": 1.5},
    ],
    ids=str,
)
def test_an_annotation_of_the_wrong_type_is_malformed(wrong: dict[str, Any]) -> None:
    message = Message()
    annotations: dict[Any, Any] = service_annotations() | {symbol(key): value for key, value in wrong.items()}
    message.annotations = annotations
    with pytest.raises(ConnectorError, match=f"the annotation {list(wrong)[-1]} is of type"):
        ArrowRows(source_columns()).append(message.encode())


def test_a_column_that_there_is_not_is_refused() -> None:
    with pytest.raises(ConnectorError, match=r"SCHEMA_UNSUPPORTED. there is no column bodies; there are body, "):
        ArrowRows([Column("bodies", "binary")])
    with pytest.raises(ConnectorError, match="column Body cannot be int, only binary or string"):
        ArrowRows([Column("Body", "int")])


def test_a_column_that_must_not_be_null_is_refused_when_it_is() -> None:
    rows = ArrowRows([Column("subject", "string", nullable=False)])
    rows.append(peeked(subject="s"))
    assert rows.take().to_pydict() == {"subject": ["s"]}
    rows.append(peeked())
    with pytest.raises(ConnectorError, match="column subject is NOT NULL in the schema, but null in a message"):
        rows.take()
    rows = ArrowRows([Column("applicationProperties", "map<string,string>", values_nullable=False)])
    rows.append(peeked(properties={"a": None}))
    with pytest.raises(ConnectorError, match="a value of applicationProperties is NOT NULL"):
        rows.take()


def test_wanted_messages_are_picked_whatever_the_others_hold() -> None:
    broken = with_sections(b"\x00\x53\x75\xa0\x09", number=NUMBER + 3)  # a body that is cut off
    messages = [
        peeked(NUMBER, state=1, body=b"deferred"),
        peeked(NUMBER + 1, state=0, body=b"active"),
        peeked(NUMBER + 2, state=1, body=b"of another"),
        broken,
        peeked(NUMBER + 4, state=1, body=b"last"),
    ]
    rows, wanted = ArrowRows([Column("body", "binary")]), {NUMBER, NUMBER + 1, NUMBER + 4, NUMBER + 5}
    rows.pick(messages, wanted, (1,))
    assert (rows.rows, wanted) == (2, {NUMBER + 1, NUMBER + 5})
    assert rows.take().to_pydict() == {"body": [b"deferred", b"last"]}
    with pytest.raises(ConnectorError, match=f"message {NUMBER + 3} is malformed"):
        rows.pick(messages, {NUMBER, NUMBER + 3}, (0, 1))
    assert rows.rows == 1
