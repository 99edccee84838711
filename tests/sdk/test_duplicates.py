"""Duplicate detection: a message id is stored once within the window; the sender sees no error."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import Message, Sdk
from .conftest import MakeQueue, MakeSubscription, MakeTopic
from .features import partitioned_only

pytestmark = pytest.mark.sdk

WINDOW_MS = 60_000


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    return make_queue(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS)


def bodies(messages: list[Message]) -> list[str]:
    return sorted(message.body or "" for message in messages)


def test_p10_a_message_id_is_taken_once(sdk: Sdk, queue: str) -> None:
    for number in range(3):
        sdk.send(queue, {"body": f"first {number}", "message_id": f"m{number}"})
    for number in range(3):
        sdk.send(queue, {"body": f"second {number}", "message_id": f"m{number}"})
    assert bodies(sdk.receiver(queue).peek_all()) == ["first 0", "first 1", "first 2"]


@partitioned_only
def test_a_message_id_is_taken_again_after_the_window(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "first", "message_id": "m"})
    server.advance(WINDOW_MS - 1)
    sdk.send(queue, {"body": "too early", "message_id": "m"})
    server.advance(2)
    sdk.send(queue, {"body": "second", "message_id": "m"})
    assert bodies(sdk.receiver(queue).peek_all()) == ["first", "second"]


@partitioned_only
def test_a_duplicate_is_known_after_the_first_was_consumed(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "first", "message_id": "m"})
    receiver = sdk.receiver(queue, "receive-and-delete")
    receiver.receive_one()
    sdk.send(queue, {"body": "second", "message_id": "m"})
    assert receiver.peek_all() == []


@partitioned_only
def test_duplicates_in_a_batch_are_dropped_one_by_one(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "first", "message_id": "m", "partition_key": "k"})
    again = {"body": "again", "message_id": "m", "partition_key": "k"}
    sdk.send(queue, again, {"body": "new", "message_id": "n", "partition_key": "k"}, how="batch")
    assert bodies(sdk.receiver(queue).peek_all()) == ["first", "new"]


@partitioned_only
def test_the_same_message_id_under_another_key_is_no_duplicate(sdk: Sdk, queue: str) -> None:
    for key in ("one", "two", "one"):
        sdk.send(queue, {"body": key, "message_id": "m", "partition_key": key})
    assert bodies(sdk.receiver(queue).peek_all()) == ["one", "two"]


@partitioned_only
def test_a_scheduled_message_counts_as_the_first(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.schedule(queue, server.clock.now_ms() + WINDOW_MS // 2, {"body": "first", "message_id": "m"})
    sdk.send(queue, {"body": "second", "message_id": "m"})
    assert bodies(sdk.receiver(queue).peek_all()) == ["first"]


@partitioned_only
def test_a_topic_finds_duplicates_for_all_its_subscriptions(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic(requires_duplicate_detection=True, duplicate_window_ms=WINDOW_MS)
    for name in ("one", "two"):
        make_subscription(topic, name)
    for body in ("first", "second"):
        sdk.send(topic, {"body": body, "message_id": "m"})
    assert [bodies(sdk.receiver(topic, subscription=name).peek_all()) for name in ("one", "two")] == [["first"]] * 2
