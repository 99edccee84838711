"""Scheduled messages: shown, not delivered, until their time has come; or taken back."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import EMPTY_WAIT_MS, FIRST_EMPTY_WAIT_MS, Sdk
from .conftest import MakeSubscription, MakeTopic
from .driver import SdkError
from .features import IGNORES_MISSING_MESSAGES, SHOWS_THE_EXPIRY_THAT_WAS_SENT, partitioned_only

pytestmark = pytest.mark.sdk

LATER_MS = 60_000


def cancel_too_late(sdk: Sdk, queue: str, *numbers: int) -> None:
    """Try to take messages back of which one is not scheduled (any more)."""
    if sdk.name in IGNORES_MISSING_MESSAGES:
        sdk.cancel_scheduled(queue, *numbers)
        return
    with pytest.raises(SdkError) as missing:
        sdk.cancel_scheduled(queue, *numbers)
    assert missing.value.kind == "message-not-found"


def test_p24_a_scheduled_message_arrives_when_its_time_has_come(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + LATER_MS
    (number,) = sdk.schedule(queue, at, {"body": "x", "message_id": "m"})
    receiver = sdk.receiver(queue)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    (peeked,) = receiver.peek_all()
    assert (peeked.body, peeked.state, peeked.scheduled_at_ms) == ("x", "scheduled", at)
    assert peeked.sequence_number == number
    server.advance(LATER_MS - 1)
    assert receiver.receive(1, EMPTY_WAIT_MS) == []
    server.advance(1)
    message = receiver.receive_one()
    assert (message.body, message.message_id, message.enqueued_at_ms) == ("x", "m", at)
    assert message.sequence_number != number


def test_a_message_sent_for_later_is_scheduled(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + LATER_MS
    sdk.send(queue, {"body": "later", "scheduled_at_ms": at}, {"body": "now"})
    sdk.send(queue, {"body": "never", "scheduled_at_ms": at})
    receiver = sdk.receiver(queue)
    seen = {message.body: message for message in receiver.peek_all()}
    assert {body: message.state for body, message in seen.items()} == {
        **dict.fromkeys(("later", "never"), "scheduled"),
        "now": "active",
    }
    sdk.cancel_scheduled(queue, seen["never"].sequence_number)
    receiver.complete(receiver.receive_one())
    server.advance(LATER_MS)
    message = receiver.receive_one()
    assert (message.body, message.enqueued_at_ms) == ("later", at)


@partitioned_only
def test_scheduled_messages_keep_their_order(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + LATER_MS
    sent = [{"body": f"{number}", "partition_key": "the key"} for number in range(5)]
    numbers = sdk.schedule(queue, at, *sent)
    assert numbers == sorted(set(numbers))
    assert len(numbers) == 5
    server.advance(LATER_MS)
    received = sdk.receiver(queue, "receive-and-delete").receive_all(5)
    assert [message.body for message in received] == ["0", "1", "2", "3", "4"]


def test_p24_a_scheduled_message_can_be_taken_back_once(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + LATER_MS
    kept, taken = sdk.schedule(queue, at, {"body": "kept", "partition_key": "k"}, {"body": "t", "partition_key": "k"})
    sdk.cancel_scheduled(queue, taken)
    receiver = sdk.receiver(queue)
    assert [message.sequence_number for message in receiver.peek_all()] == [kept]
    cancel_too_late(sdk, queue, taken)
    server.advance(LATER_MS)
    assert receiver.receive_one().body == "kept"
    cancel_too_late(sdk, queue, kept)


@partitioned_only
def test_messages_of_several_keys_are_taken_back_together_or_not_at_all(
    sdk: Sdk, queue: str, server: EmubusServer
) -> None:
    at = server.clock.now_ms() + LATER_MS
    keys = ("one key", "another key", "a third key")
    numbers = sdk.schedule(queue, at, *[{"body": key, "partition_key": key} for key in keys])
    assert len({number >> 48 for number in numbers}) == len(keys)
    receiver = sdk.receiver(queue)
    cancel_too_late(sdk, queue, *numbers, numbers[-1] + 1)
    assert sorted(message.body or "" for message in receiver.peek_all()) == sorted(keys)
    sdk.cancel_scheduled(queue, *numbers)
    assert receiver.peek_all() == []


@partitioned_only
def test_a_scheduled_message_of_a_topic_reaches_every_subscription(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription, server: EmubusServer
) -> None:
    topic = make_topic()
    at = server.clock.now_ms() + LATER_MS
    make_subscription(topic, "one")
    _, taken = sdk.schedule(topic, at, {"body": "x", "partition_key": "k"}, {"body": "y", "partition_key": "k"})
    make_subscription(topic, "two")
    sdk.cancel_scheduled(topic, taken)
    assert sdk.receiver(topic, subscription="one").peek_all() == []
    server.advance(LATER_MS)
    for name in ("one", "two"):
        message = sdk.receiver(topic, subscription=name).receive_one()
        assert (message.body, message.enqueued_at_ms) == ("x", at)


@partitioned_only
def test_the_time_to_live_of_a_scheduled_message_begins_at_its_time(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + LATER_MS
    sdk.schedule(queue, at, {"body": "x", "ttl_ms": 10_000})
    server.advance(LATER_MS)
    receiver = sdk.receiver(queue)
    (message,) = receiver.peek()
    assert (message.body, message.ttl_ms) == ("x", 10_000)
    if sdk.name not in SHOWS_THE_EXPIRY_THAT_WAS_SENT:
        assert message.expires_at_ms == at + 10_000
    server.advance(10_000 - 1)
    assert [each.body for each in receiver.peek_all()] == ["x"]
    server.advance(1)
    assert receiver.peek_all() == []
