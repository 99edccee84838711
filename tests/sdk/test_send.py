"""Sending: alone, as a list, as a batch; and every message arrives as it was sent."""

from __future__ import annotations

import base64
import hashlib
from typing import Any

import pytest

from .client import How, Sdk, made_body_sha256, plain_properties
from .driver import SdkError
from .features import SHOWS_THE_EXPIRY_THAT_WAS_SENT

pytestmark = pytest.mark.sdk

LARGE_BODY_BYTES = 200 * 1024
BATCH_BYTES_MAX = 256 * 1024
NOT_TEXT = bytes([0xFF, 0x00, 0xFE, 0x80])

TYPED_PROPERTIES: dict[str, Any] = {
    "int": {"type": "int", "value": 12345},
    "long": {"type": "long", "value": "-1234567890123"},
    "double": {"type": "double", "value": 1.5},
    "timestamp": {"type": "timestamp", "value": 1_700_000_000_123},
    "uuid": {"type": "uuid", "value": "00112233-4455-6677-8899-aabbccddeeff"},
    "binary": {"type": "binary", "value": base64.b64encode(NOT_TEXT).decode()},
    "decimal": {"type": "decimal", "value": "-79228162514264337593543950.335"},
    "duration": {"type": "duration", "value": 93_784_005},
    "date-time-offset": {"type": "date-time-offset", "value": "2026-11-25T23:59:58+00:00"},
    "uri": {"type": "uri", "value": "https://example.test/a?b=c"},
}


def spec(number: int) -> dict[str, Any]:
    return {"body": f"body {number}", "message_id": f"id {number}"}


@pytest.mark.parametrize("how", ["single", "list", "batch"])
def test_p24_messages_arrive_as_they_were_sent(sdk: Sdk, queue: str, how: How) -> None:
    sent = [spec(number) for number in range(5)]
    sdk.send(queue, *sent, how=how)
    received = sdk.receiver(queue).receive_all(5)
    assert sorted((message.as_sent() for message in received), key=lambda m: m["body"]) == sent
    assert [message.delivery_count for message in received] == [0] * 5
    assert [message.state for message in received] == ["active"] * 5


def test_a_batch_of_one_arrives_as_one_message(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, spec(1), how="batch")
    assert [message.as_sent() for message in sdk.receiver(queue).peek_all()] == [spec(1)]


def test_properties_of_a_batchs_first_message_are_its_own(sdk: Sdk, queue: str) -> None:
    first = {
        "body": "first",
        "message_id": "id 1",
        "subject": "the subject",
        "partition_key": "k",
        "ttl_ms": 3_600_000,
        "properties": {"colour": "red"},
    }
    second = {"body": "second", "message_id": "id 2", "partition_key": "k"}
    sdk.send(queue, first, second, how="batch")
    assert [message.as_sent() for message in sdk.receiver(queue).peek_all()] == [first, second]


def test_an_sdk_fills_a_batch_up_to_a_limit_of_its_own(sdk: Sdk, queue: str) -> None:
    assert sdk.fill_batch(queue, body_bytes=1100, max_bytes=4096) == 3
    received = sdk.receiver(queue, "receive-and-delete").receive_all(3)
    assert [message.body_sha256 for message in received] == [made_body_sha256(1100)] * 3


def test_the_largest_batch_that_an_sdk_makes_is_taken(sdk: Sdk, queue: str) -> None:
    count = sdk.fill_batch(queue, body_bytes=10_000)
    assert count == BATCH_BYTES_MAX // 10_000 or count == BATCH_BYTES_MAX // 10_000 - 1
    received = sdk.receiver(queue, "receive-and-delete").receive_all(count)
    assert {message.body_sha256 for message in received} == {made_body_sha256(10_000)}


def test_an_sdk_refuses_to_overfill_a_batch_and_nothing_is_sent(sdk: Sdk, queue: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, *[{"body_size": 100 * 1024} for _ in range(3)], how="batch")
    assert refused.value.kind == "message-size"
    assert sdk.receiver(queue).peek_all() == []


def test_a_large_message_arrives_unchanged(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body_size": LARGE_BODY_BYTES})
    message = sdk.receiver(queue).receive_one()
    assert (message.body_size, message.body_sha256) == (LARGE_BODY_BYTES, made_body_sha256(LARGE_BODY_BYTES))


@pytest.mark.parametrize("body", [b"", NOT_TEXT], ids=["empty", "not text"])
def test_a_body_arrives_byte_for_byte(sdk: Sdk, queue: str, body: bytes) -> None:
    sdk.send(queue, {"body_base64": base64.b64encode(body).decode()})
    message = sdk.receiver(queue).receive_one()
    assert (message.body_size, message.body_sha256) == (len(body), hashlib.sha256(body).hexdigest())


def test_every_property_arrives_as_it_was_set(sdk: Sdk, queue: str) -> None:
    sent = {
        "body": "grüße",
        "message_id": "the message",
        "subject": "the subject",
        "partition_key": "the key",
        "correlation_id": "the correlation",
        "content_type": "text/plain",
        "reply_to": "the answers",
        "reply_to_session_id": "the answers' group",
        "to": "the target",
        "ttl_ms": 3_600_000,
        "properties": {"text": "größe", "empty": "", "yes": True, "no": False},
    }
    sdk.send(queue, sent)
    message = sdk.receiver(queue).receive_one()
    assert message.as_sent() == sent
    if sdk.name not in SHOWS_THE_EXPIRY_THAT_WAS_SENT:
        assert message.expires_at_ms == message.enqueued_at_ms + 3_600_000


def test_a_session_id_arrives_as_it_was_set(sdk: Sdk, queue: str) -> None:
    sent = {"body": "x", "message_id": "the message", "session_id": "the group"}
    sdk.send(queue, sent)
    assert sdk.receiver(queue).receive_one().as_sent() == sent


@pytest.mark.parametrize("how", ["single", "batch"])
def test_typed_properties_arrive_with_value_and_type(sdk: Sdk, queue: str, how: How) -> None:
    properties = {name: value for name, value in TYPED_PROPERTIES.items() if name in sdk.property_types}
    sdk.send(queue, {"body": "x", "properties": properties}, how=how)
    assert sdk.receiver(queue).receive_one().properties == plain_properties(properties)
