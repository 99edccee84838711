"""Time to live: what becomes of messages that nobody received in time."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import EMPTY_WAIT_MS, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import IGNORES_MISSING_MESSAGES, SHOWS_THE_EXPIRY_THAT_WAS_SENT, partitioned_only

pytestmark = pytest.mark.sdk

TTL_MS = 10_000


def test_an_expired_message_is_not_delivered(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "short-lived", "ttl_ms": TTL_MS}, {"body": "long-lived"})
    server.advance(TTL_MS + 1)
    receiver = sdk.receiver(queue)
    assert receiver.receive_one().body == "long-lived"
    assert receiver.receive(1, EMPTY_WAIT_MS) == []
    assert sdk.receiver(queue, sub_queue="dead-letter").peek_all() == []


def test_a_message_is_delivered_until_it_expires(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x", "ttl_ms": TTL_MS})
    server.advance(TTL_MS - 1)
    message = sdk.receiver(queue).receive_one()
    assert message.ttl_ms == TTL_MS
    if sdk.name not in SHOWS_THE_EXPIRY_THAT_WAS_SENT:
        assert message.expires_at_ms == server.clock.now_ms() + 1


def test_an_expired_message_is_dead_lettered_where_the_queue_says_so(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue = make_queue(dead_letter_on_expiration=True)
    sdk.send(queue, {"body": "x", "message_id": "the message", "ttl_ms": TTL_MS})
    server.advance(TTL_MS + 1)
    message = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (message.body, message.message_id) == ("x", "the message")
    assert (message.dead_letter_reason, message.dead_letter_description) == (
        "TTLExpiredException",
        "The message expired and was dead lettered.",
    )
    assert sdk.receiver(queue).peek_all() == []


@partitioned_only
def test_a_deferred_message_expires_when_it_is_asked_for(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(dead_letter_on_expiration=True)
    sdk.send(queue, {"body": "x", "ttl_ms": TTL_MS})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.defer(message)
    receiver.peek_until(lambda peeked: [each.state for each in peeked] == ["deferred"])
    server.advance(TTL_MS + 1)
    assert [each.body for each in receiver.peek_all()] == ["x"]
    if sdk.name in IGNORES_MISSING_MESSAGES:
        assert receiver.receive_deferred(message.sequence_number) == []
    else:
        with pytest.raises(SdkError) as missing:
            receiver.receive_deferred(message.sequence_number)
        assert missing.value.kind == "message-not-found"
    dead = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (dead.body, dead.dead_letter_reason) == ("x", "TTLExpiredException")


def test_the_queue_limits_the_time_to_live(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(default_ttl_ms=TTL_MS)
    sdk.send(queue, {"body": "none of its own"}, {"body": "too long", "ttl_ms": 10 * TTL_MS})
    received = sdk.receiver(queue).receive_all(2)
    assert {message.ttl_ms for message in received} == {TTL_MS}
    if sdk.name not in SHOWS_THE_EXPIRY_THAT_WAS_SENT:
        assert {message.expires_at_ms for message in received} == {server.clock.now_ms() + TTL_MS}


def test_a_message_that_expires_while_locked_can_still_be_completed(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x", "ttl_ms": TTL_MS})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    server.advance(TTL_MS + 1)
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []
    assert sdk.receiver(queue, sub_queue="dead-letter").peek_all() == []
