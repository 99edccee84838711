"""Properties over HTTP and over AMQP: the same message, whichever side sends and whichever receives."""

from __future__ import annotations

import json
import math
import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from azure.servicebus import (
    ServiceBusClient,
    ServiceBusMessage,
    ServiceBusReceivedMessage,
    ServiceBusReceiveMode,
)
from azure.servicebus.amqp import AmqpAnnotatedMessage, AmqpMessageBodyType
from hypothesis import given
from hypothesis import strategies as st

from emubus.codec import decimals
from emubus.codec.types import (
    Decimal32,
    Decimal64,
    Decimal128,
    Described,
    Float,
    Int,
    Symbol,
    Timestamp,
    Ubyte,
)
from emubus.testing import EmubusServer
from emubus.web.rest.texts import (
    header_text,
    http_date,
    http_date_in,
    instant_in,
    property_in,
    property_text,
)

from .rest import Rest

WAIT_S = 60
AT = datetime(2011, 3, 4, 8, 49, 37, tzinfo=UTC)
DATE = "Fri, 04 Mar 2011 08:49:37 GMT"
AT_MS = 1_299_228_577_000

HEADERS_SENT = [
    ("Content-Type", "application/json; charset=utf-8"),
    ("Product", '"Windows 7 Ultimate"'),
    ("Price", "299.98"),
    ("Count", "-42"),
    ("Large", "8555111000"),
    ("Larger", "9223372036854775808"),
    ("Yes", "true"),
    ("No", "false"),
    ("Order-Time", f'"{DATE}"'),
    ("Quoted", r'"a \"quoted\" C:\temp"'),
    ("Number-Text", '"42"'),
]
PROPERTIES_SENT = {
    "Product": "Windows 7 Ultimate",
    "Price": 299.98,
    "Count": -42,
    "Large": 8555111000,
    "Larger": 9223372036854775808.0,
    "Yes": True,
    "No": False,
    "Order-Time": AT_MS,
    "Quoted": r'a "quoted" C:\temp',
    "Number-Text": "42",
}
OF_AMQP: dict[str | bytes, Any] = {
    "text": 'a "quoted" C:\\temp',
    "int": 42,
    "double": 2.5,
    "whole": 3.0,
    "yes": True,
    "no": False,
    "uuid": uuid.UUID(int=7),
    "at": AT,
    "lines": "a\r\nInjected: 1",
    "no header name": 1,
    "Content-Length": 5,
    "Connection": "close",
    "nothing": None,
}
OF_AMQP_SHOWN = {
    "text": r'"a \"quoted\" C:\temp"',
    "int": "42",
    "double": "2.5",
    "whole": "3.0",
    "yes": "true",
    "no": "false",
    "uuid": f'"{uuid.UUID(int=7)}"',
    "at": f'"{DATE}"',
    "lines": r'"a\u000d\u000aInjected: 1"',
}


def by_sdk(sdk: ServiceBusClient, queue: str) -> ServiceBusReceivedMessage:
    with sdk.get_queue_receiver(queue, receive_mode=ServiceBusReceiveMode.RECEIVE_AND_DELETE) as receiver:
        (message,) = receiver.receive_messages(max_wait_time=WAIT_S)
    return message


def send_by_sdk(sdk: ServiceBusClient, queue: str, message: ServiceBusMessage | AmqpAnnotatedMessage) -> None:
    with sdk.get_queue_sender(queue) as sender:
        sender.send_messages(message)


def application_properties(message: ServiceBusReceivedMessage) -> dict[str, Any]:
    found: dict[Any, Any] = dict(message.application_properties or {})
    return {key.decode(): value.decode() if isinstance(value, bytes) else value for key, value in found.items()}


# ---- from HTTP to AMQP


def test_p21_a_message_sent_over_http_is_read_over_amqp_as_it_was_meant(rest: Rest, sdk: ServiceBusClient) -> None:
    reported = {
        "CorrelationId": "c",
        "Label": "M1",
        "MessageId": "m",
        "ReplyTo": "r",
        "ReplyToSessionId": "rs",
        "SessionId": "s",
        "To": "t",
        "TimeToLive": 90,
        "PartitionKey": "s",
        "ViaPartitionKey": "ignored",
        "ForcePersistence": True,
        "SequenceNumber": 12345,
        "Unknown": {"a": 1},
    }
    assert rest.send("plain", b'{"a":1}', HEADERS_SENT, **reported).status == 201
    got = by_sdk(sdk, "plain")
    assert (got.body_type, b"".join(got.body)) == (AmqpMessageBodyType.DATA, b'{"a":1}')
    assert {
        "CorrelationId": got.correlation_id,
        "Label": got.subject,
        "MessageId": got.message_id,
        "ReplyTo": got.reply_to,
        "ReplyToSessionId": got.reply_to_session_id,
        "SessionId": got.session_id,
        "To": got.to,
        "ContentType": got.content_type,
        "PartitionKey": got.partition_key,
        "TimeToLive": got.time_to_live,
    } == {
        **{name: reported[name] for name in ("CorrelationId", "Label", "MessageId", "ReplyTo", "ReplyToSessionId")},
        "SessionId": "s",
        "To": "t",
        "ContentType": "application/json; charset=utf-8",
        "PartitionKey": "s",
        "TimeToLive": timedelta(seconds=90),
    }
    assert application_properties(got) == PROPERTIES_SENT


def test_a_message_sent_over_http_is_one_data_section(bus: EmubusServer, rest: Rest) -> None:
    rest.send("plain", b"raw \xff")
    rest.send("plain", b"")
    assert [each.body for each in bus.peek("plain")] == [
        {"kind": "data", "text": None, "base64": "cmF3IP8=", "json": None},
        {"kind": "data", "text": "", "base64": None, "json": None},
    ]


def test_headers_of_http_and_of_what_requests_pass_through_are_no_properties(
    bus: EmubusServer, rest: Rest, sdk: ServiceBusClient
) -> None:
    headers = [
        ("Accept", "*/*"),
        ("Accept-Encoding", "gzip"),
        ("User-Agent", "curl/8"),
        ("Authorization", "SharedAccessSignature sr=x"),
        ("Cache-Control", "no-cache"),
        ("Sec-Fetch-Site", "same-origin"),
        ("DNT", "1"),
        ("X-Forwarded-For", "10.0.0.1"),
        ("X-Forwarded-Port", "443"),
        ("x-ms-retrypolicy", "NoRetry"),
        ("x-ms-version", "2011-06-01"),
        ("Postman-Token", "2a0a1c6e-0000-4000-8000-000000000000"),
        ("traceparent", "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"),
        ("Request-Id", "|abc.def."),
        ("X-Request-Id", '"mine"'),
        ("Priority", "u=1, i"),
        ("Mine", "1"),
    ]
    assert rest.send("plain", b"x", headers).status == 201
    assert application_properties(by_sdk(sdk, "plain")) == {"X-Request-Id": "mine", "Mine": 1}


@pytest.mark.parametrize(
    ("headers", "problem"),
    [
        ([("Hello", "world")], "The value 'world' of the HTTP header 'Hello' is invalid"),
        ([("Hello", "True")], "The value 'True' of the HTTP header 'Hello' is invalid"),
        ([("Hello", '"open')], "The value '\"open' of the HTTP header 'Hello' is invalid"),
        ([("Hello", "")], "The value '' of the HTTP header 'Hello' is invalid"),
        ([("Hello", DATE)], f"The value '{DATE}' of the HTTP header 'Hello' is invalid"),
        ([("Hello", "1"), ("hello", "2")], "The HTTP header 'hello' is given more than once."),
        ([("Content-Type", "text/caf\xe9")], "The message can't be encoded: "),
        ([("BrokerProperties", "{'Label': 'x'}")], "The value '{'Label': 'x'}' of the HTTP header 'BrokerProperties'"),
        ([("BrokerProperties", "[]")], "The value '[]' of the HTTP header 'BrokerProperties' is invalid"),
        ([("BrokerProperties", '{"TimeToLive":NaN}')], "The value '{\"TimeToLive\":NaN}' of the HTTP header"),
        ([("BrokerProperties", '{"TimeToLive":1' + "0" * 400 + "}")], 'The value \'{"TimeToLive":1000'),
    ],
)
def test_a_header_that_is_malformed_is_refused_with_its_name_and_value(
    rest: Rest, headers: list[tuple[str, str]], problem: str
) -> None:
    answer = rest.send("plain", b"x", headers)
    assert answer.status == 400
    assert answer.detail.startswith(problem), answer.detail
    assert rest.receive("plain").status == 204


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("TimeToLive", 0),
        ("TimeToLive", -1),
        ("TimeToLive", "soon"),
        ("TimeToLive", "PT5M"),
        ("TimeToLive", "inf"),
        ("TimeToLive", True),
        ("TimeToLiveTimeSpan", "0:0:40s"),
        ("ScheduledEnqueueTimeUtc", "tomorrow"),
        ("ScheduledEnqueueTimeUtc", 5),
        ("Label", ["x"]),
        ("SessionId", {"x": 1}),
    ],
)
def test_a_broker_property_that_is_malformed_is_refused_with_its_name_and_value(
    rest: Rest, name: str, value: object
) -> None:
    for answer in (
        rest.send("plain", b"x", (), **{name: value}),
        rest.send_batch("plain", {"Body": "x", "BrokerProperties": {name: value}}),
    ):
        assert answer.status == 400
        assert f"of the broker property '{name}' is invalid: it is not " in answer.detail
    assert rest.receive("plain").status == 204


@pytest.mark.parametrize("name", ["MessageId", "SessionId", "PartitionKey"])
def test_an_identifier_that_is_too_long_is_refused(rest: Rest, name: str) -> None:
    answer = rest.send("plain", b"x", (), **{name: "x" * 129})
    assert (answer.status, "has 129 characters; it must not have more than 128" in answer.detail) == (400, True)


def test_scalars_in_the_place_of_strings_are_their_texts_and_empty_ones_are_nothing(rest: Rest) -> None:
    reported = {"MessageId": 5, "Label": True, "CorrelationId": 0.5, "To": "", "SessionId": None, "TimeToLive": ""}
    rest.send("plain", b"x", (), **reported)
    got = rest.receive("plain").broker
    assert [got[name] for name in ("MessageId", "Label", "CorrelationId")] == ["5", "true", "0.5"]
    assert not {"To", "SessionId", "ScheduledEnqueueTimeUtc"} & got.keys()


def test_large_properties_are_taken(rest: Rest) -> None:
    large = "x" * 30_000
    assert rest.send("plain", b"x", [("Large", f'"{large}"')], Label="y" * 30_000).status == 201
    got = rest.receive("plain")
    assert (got.custom["Large"], got.broker["Label"]) == (f'"{large}"', "y" * 30_000)


def test_a_property_that_is_too_large_is_refused(rest: Rest) -> None:
    answer = rest.send("plain", b"x", [("Large", f'"{"x" * 40_000}"')])
    assert answer.status == 500
    assert b"40000 bytes; at most 32768 are allowed. Shorten it, or send it in the body." in answer.content


# ---- from AMQP to HTTP


def test_p21_a_message_sent_over_amqp_is_read_over_http_as_it_was_meant(
    bus: EmubusServer, rest: Rest, sdk: ServiceBusClient
) -> None:
    bus.freeze()
    message = ServiceBusMessage(
        b"raw \x00\xff",
        application_properties=OF_AMQP,
        content_type="text/plain",
        correlation_id="c",
        message_id="m",
        partition_key="k",
        reply_to="r",
        reply_to_session_id="rs",
        subject="M1",
        time_to_live=timedelta(seconds=90),
        to="t",
    )
    send_by_sdk(sdk, "parts", message)
    got = rest.peek_lock("parts")
    assert (got.content, got.headers["Content-Type"]) == (b"raw \x00\xff", "text/plain")
    times = {name: got.broker.pop(name) for name in ("EnqueuedTimeUtc", "LockedUntilUtc")}
    enqueued_at, until_at = (http_date_in(text) for text in times.values())
    assert enqueued_at is not None
    assert until_at is not None
    reported = got.broker
    assert (until_at - enqueued_at) // 1000 == 60
    number = reported["SequenceNumber"]
    assert {name: reported[name] for name in reported if name not in times} == {
        "CorrelationId": "c",
        "DeliveryCount": 1,
        "EnqueuedSequenceNumber": 0,
        "Label": "M1",
        "LockToken": str(got.lock_token),
        "MessageId": "m",
        "PartitionKey": "k",
        "ReplyTo": "r",
        "ReplyToSessionId": "rs",
        "SequenceNumber": number,
        "State": "Active",
        "TimeToLive": 90,
        "To": "t",
    }
    assert list(reported) == sorted(reported)
    assert got.custom == OF_AMQP_SHOWN


def test_p21_a_message_that_never_expires_says_so_and_nothing_that_is_not_set(
    rest: Rest, sdk: ServiceBusClient
) -> None:
    send_by_sdk(sdk, "plain", AmqpAnnotatedMessage(data_body=[b"x"]))
    got = rest.receive("plain")
    assert got.broker.keys() == {
        "DeliveryCount",
        "EnqueuedSequenceNumber",
        "EnqueuedTimeUtc",
        "MessageId",
        "SequenceNumber",
        "State",
        "TimeToLive",
    }
    assert got.broker["TimeToLive"] == 922337203685.47754


@pytest.mark.parametrize(
    ("value", "content"),
    [
        ("grüße €", "grüße €".encode()),
        (b"\x00\xff", b"\x00\xff"),
        (None, b""),
        (42, b"42"),
        ({"a": [1, "b"]}, b'{"a": [1, "b"]}'),
    ],
)
def test_p21_a_value_body_is_read_over_http(rest: Rest, sdk: ServiceBusClient, value: object, content: bytes) -> None:
    send_by_sdk(sdk, "plain", AmqpAnnotatedMessage(value_body=value))
    assert rest.receive("plain").content == content


def test_p21_several_data_sections_are_one_body_and_a_sequence_is_json(rest: Rest, sdk: ServiceBusClient) -> None:
    send_by_sdk(sdk, "plain", AmqpAnnotatedMessage(data_body=[b"one ", b"two"]))
    send_by_sdk(sdk, "plain", AmqpAnnotatedMessage(sequence_body=[[1, "two"], [3]]))
    assert rest.receive("plain").content == b"one two"
    assert json.loads(rest.receive("plain").content) == [1, "two", 3]


def test_an_answer_has_no_header_that_old_clients_would_take_for_a_property(rest: Rest) -> None:
    rest.send("plain", b"x", [("Mine", "1")])
    got = rest.peek_lock("plain")
    assert got.headers.keys() == {
        "BrokerProperties",
        "Content-Type",
        "Date",
        "Location",
        "Mine",
        "Server",
        "Transfer-Encoding",
    }


def test_p21_what_came_over_http_goes_back_over_http_unchanged(rest: Rest) -> None:
    headers = [
        ("A", '"tab\\there \\"x\\""'),
        ("B", "0.1"),
        ("C", f'"{DATE}"'),
        ("D", '""'),
        ("E", '"gr\xc3\xbc\xc3\x9fe"'),
    ]
    rest.send("parts", b"x", headers)
    assert rest.receive("parts").custom == dict(headers)


# ---- texts


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("-9223372036854775808", -(1 << 63)),
        ("9223372036854775808", float(1 << 63)),
        ("1e3", 1000.0),
        (".5", 0.5),
        ("true", True),
        ('""', ""),
        ('"true"', "true"),
        (f'"{DATE}"', Timestamp(AT_MS)),
        ('"Sat, 04 Mar 2011 08:49:37 GMT"', "Sat, 04 Mar 2011 08:49:37 GMT"),  # it was a Friday
        ('"Fri, 31 Feb 2011 08:49:37 GMT"', "Fri, 31 Feb 2011 08:49:37 GMT"),
        ('"Thu, 01 Jan 1970 00:00:00 GMT"', Timestamp(0)),
        ('"Mon, 01 Jan 0001 00:00:00 GMT"', Timestamp(-62_135_596_800_000)),
    ],
)
def test_the_type_of_a_property_is_reported_by_its_text(text: str, value: object) -> None:
    found = property_in(text)
    assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    "text", ["", '"', "TRUE", "1_000", "0x1", "\u0661", "1 2", "nan", "--1", "'x'", "12e", "1.2.3"]
)
def test_a_text_that_has_no_type_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="^" if text else "^$"):
        property_in(text)


@given(
    st.text(st.characters(exclude_categories=["Cs", "Cc"]))
    | st.booleans()
    | st.integers(-(1 << 63), (1 << 63) - 1)
    | st.floats(allow_nan=False)
)
def test_every_value_that_has_a_text_comes_back_from_it(value: object) -> None:
    text = property_text(value)
    assert text is not None
    found = property_in(text)
    if isinstance(value, str) and http_date_in(value) is not None:
        assert isinstance(found, Timestamp)
    else:
        assert (type(found), found) == (type(value), value)


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (math.nan, "NaN"),
        (-math.inf, "-Infinity"),
        (Float(3.140000104904175), "3.1400001"),
        (Int(-5), "-5"),
        (Ubyte(255), "255"),
        (Symbol("s"), '"s"'),
        (Timestamp(AT_MS + 999), f'"{DATE}"'),
        (Timestamp(1 << 62), None),
        (Described(Symbol("com.microsoft:timespan"), 900_000_000), "90.0"),
        (Described(Symbol("com.microsoft:uri"), "http://x"), '"http://x"'),
        (Described(Symbol("com.microsoft:datetime-offset"), AT_MS * 10_000 + 621_355_968_000_000_000), f'"{DATE}"'),
        (Described(Symbol("other"), 5), None),
        (Decimal128(decimals.from_text("19.90", 16)), "19.90"),
        (Decimal64(decimals.from_text("-1E+3", 8)), "-1000"),
        (Decimal32(decimals.from_text("0.5", 4)), "0.5"),
        (Decimal128(decimals.from_text("1E+6000", 16)), None),
        (Decimal128(bytes.fromhex("0c3c00000000000000000000000007c6")), "19.90"),  # as .NET writes it
        (Decimal128(decimals.from_text("NaN", 16)), None),
        (b"x", None),
        ([1], None),
        (None, None),
    ],
)
def test_values_of_amqp_types_are_reported_as_texts_where_they_can_be(value: object, text: str | None) -> None:
    assert property_text(value) == text


@pytest.mark.parametrize("encoding", ["utf-8", "latin-1"])
def test_a_header_is_utf_8_or_else_latin_1(encoding: str) -> None:
    assert header_text("grüße".encode(encoding)) == "grüße"


@pytest.mark.parametrize(
    ("text", "at"),
    [
        (f" {DATE}", AT_MS),
        ("2011-03-04T08:49:37Z", AT_MS),
        ("2011-03-04T08:49:37", AT_MS),
        ("2011-03-04T09:49:37.5+01:00", AT_MS + 500),
        ("yesterday", None),
        ("", None),
    ],
)
def test_an_instant_is_an_http_date_or_iso_8601(text: str, at: int | None) -> None:
    assert instant_in(text) == at


@given(st.integers(-62_135_596_800_000, 253_402_300_799_999))
def test_dates_come_back_to_the_second(at: int) -> None:
    text = http_date(at)
    assert text is not None
    assert http_date_in(text) == at // 1000 * 1000


@pytest.mark.parametrize(
    "headers", [[("Origin", "{own}")], [("Sec-Fetch-Mode", "navigate")], [("Accept-Language", "en")], []]
)
def test_a_browser_does_not_take_a_message_for_a_page(rest: Rest, headers: list[tuple[str, str]]) -> None:
    own = [("Content-Type", "text/html"), ("Content-Security-Policy", '"mine"'), ("X-Content-Type-Options", '"mine"')]
    rest.send("plain", b"<script>alert(1)</script>", own)
    asked = [(name, value.format(own=f"http://{rest.host}")) for name, value in headers]
    got = rest.ask("DELETE", "/plain/messages/head?timeout=0", headers=asked)
    assert (got.status, got.content, got.headers["Content-Type"]) == (200, b"<script>alert(1)</script>", "text/html")
    kept = [got.headers.get(name) for name in ("Content-Security-Policy", "X-Content-Type-Options")]
    assert kept == (["sandbox; default-src 'none'", "nosniff"] if headers else ['"mine"', '"mine"'])
