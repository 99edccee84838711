"""Messages as real clients encode them come back so that the same clients read what they wrote."""

from __future__ import annotations

import uuid
from datetime import UTC, datetime, timedelta
from typing import Any

import proton
import pytest
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage
from azure.servicebus._pyamqp._decode import decode_payload
from azure.servicebus._pyamqp._encode import encode_payload
from azure.servicebus._transport._pyamqp_transport import PyamqpTransport

from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.message import parse_message

from .driving import delivery_bytes

ENQUEUED_AT = 1767225600000
TTL_MS = 60_000
TOKEN = uuid.UUID("00112233-4455-6677-8899-aabbccddeeff")
TAG = bytes.fromhex("33221100554477668899aabbccddeeff")


def deliver(stored: bytes, lock_token: bytes | None = None) -> bytes:
    return delivery_bytes(
        stored,
        sequence_number=17,
        enqueued_at=ENQUEUED_AT,
        delivery_count=2,
        locked_until_at=ENQUEUED_AT + 30_000,
        state=0,
        partition_id=3,
        enqueue_sequence_number=17,
        lock_token=lock_token,
    )


def proton_message() -> proton.Message:
    message = proton.Message(id=TOKEN, subject="s", group_id="session", correlation_id="c", ttl=5)
    message.durable = True
    values: Any = {"a": proton.ulong(1), "b": proton.timestamp(5), "c": 0.5, "d": proton.char("x")}
    message.properties = values
    message.annotations = {proton.symbol("x-opt-partition-key"): "session", proton.symbol("mine"): 1}
    message.inferred = True
    message.body = b"body" * 300
    return message


@pytest.mark.parametrize("ttl_ms", [None, TTL_MS])
def test_a_message_of_proton_comes_back_as_proton_wrote_it(ttl_ms: int | None) -> None:
    sent = proton_message()
    parsed = parse_message(bytes(sent.encode()))
    assert (parsed.message_id, parsed.session_id, parsed.partition_key) == (str(TOKEN), "session", "session")
    received: Any = proton.Message()
    received.decode(deliver(parsed.stored(ENQUEUED_AT, ttl_ms)))
    assert (received.id, received.subject, received.group_id) == (TOKEN, "s", "session")
    assert (received.durable, received.delivery_count) == (True, 2)
    assert received.properties == sent.properties
    assert {key: type(value) for key, value in received.properties.items()} == {
        "a": proton.ulong,
        "b": proton.timestamp,
        "c": float,
        "d": proton.char,
    }
    assert bytes(received.body) == sent.body
    assert received.expiry_time == (0 if ttl_ms is None else (ENQUEUED_AT + TTL_MS) / 1000)
    assert received.ttl == (0 if ttl_ms is None else 60)


def written_by_azure(**fields: Any) -> bytes:
    output = bytearray()
    message = ServiceBusMessage(b"body", **fields)
    encode_payload(output, PyamqpTransport.to_outgoing_amqp_message(message.raw_amqp_message))
    return bytes(output)


@pytest.mark.parametrize("ttl_ms", [None, TTL_MS])
def test_a_message_of_the_python_sdk_is_read_back_by_the_python_sdk(ttl_ms: int | None) -> None:
    data = written_by_azure(
        message_id="id-1",
        session_id="session",
        partition_key="session",
        subject="s",
        application_properties={"a": 1, "b": "x"},
    )
    message = parse_message(data)
    assert (message.message_id, message.session_id, message.partition_key) == ("id-1", "session", "session")
    delivered = deliver(message.stored(ENQUEUED_AT, ttl_ms), lock_token=TAG)
    read = decode_payload(memoryview(delivered))
    assert read.header is not None
    assert read.properties is not None
    assert read.message_annotations is not None
    assert read.header.delivery_count == 2
    assert read.properties.message_id == b"id-1"
    assert read.properties.absolute_expiry_time == (None if ttl_ms is None else ENQUEUED_AT + ttl_ms)
    assert read.message_annotations[b"x-opt-sequence-number"] == 17
    assert read.message_annotations[b"x-opt-partition-key"] == b"session"
    assert read.application_properties == {b"a": 1, b"b": b"x"}
    assert b"".join(bytes(part) for part in read.data or ()) == b"body"


def test_the_bytes_of_a_delivery_are_a_message_of_the_python_sdk_without_a_receiver() -> None:
    stored = parse_message(written_by_azure(message_id="id-1", subject="s", application_properties={"a": 1}))
    message = ServiceBusReceivedMessage.from_bytes(deliver(stored.stored(ENQUEUED_AT, TTL_MS), lock_token=TAG))
    assert (message.message_id, message.subject, message.application_properties) == ("id-1", "s", {b"a": 1})
    assert (message.sequence_number, message.delivery_count, message.lock_token) == (17, 2, TOKEN)
    enqueued_at = datetime.fromtimestamp(ENQUEUED_AT / 1000, UTC)
    assert message.enqueued_time_utc == enqueued_at
    assert message.locked_until_utc == enqueued_at + timedelta(seconds=30)
    assert message.expires_at_utc == enqueued_at + timedelta(milliseconds=TTL_MS)


@pytest.mark.parametrize("key", ["key", "k" * 128, "ä" * 128])
def test_a_partition_key_that_python_sends_back_as_binary_is_the_string_that_it_was(key: str) -> None:
    sent = proton.Message(body=b"x", inferred=True)
    names = ("x-opt-partition-key", "x-opt-via-partition-key")
    values: Any = {proton.symbol(name): key.encode() for name in names}
    sent.annotations = {proton.symbol("before"): 1, **values, proton.symbol("after"): b"stays"}
    parsed = parse_message(bytes(sent.encode()))
    assert (parsed.partition_key, parsed.via_partition_key) == (key, key)
    received: Any = proton.Message()
    received.decode(deliver(parsed.stored(ENQUEUED_AT, None)))
    assert {name: received.annotations[name] for name in ("before", *names, "after")} == {
        "before": 1,
        **dict.fromkeys(names, key),
        "after": b"stays",
    }


def test_a_partition_key_that_is_no_text_is_refused() -> None:
    sent = proton.Message(body=b"x", inferred=True)
    sent.annotations = {proton.symbol("x-opt-partition-key"): b"\xff"}
    with pytest.raises(BrokerError) as refused:
        parse_message(bytes(sent.encode()))
    assert refused.value.condition is Condition.DECODE_ERROR
