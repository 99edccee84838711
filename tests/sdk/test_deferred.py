"""Deferred messages: received by number, in either mode, locked like any other."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import EMPTY_WAIT_MS, FIRST_EMPTY_WAIT_MS, Receiver, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import IGNORES_MISSING_MESSAGES, partitioned_only

pytestmark = pytest.mark.sdk

LOCK_MS = 30_000


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    return make_queue(lock_duration_ms=LOCK_MS)


def deferred(sdk: Sdk, queue: str, count: int = 1, key: str = "key") -> tuple[Receiver, list[int]]:
    """A receiver that deferred messages, and their numbers. Each `{}` of the key becomes the message's place."""
    sdk.send(queue, *[{"body": f"{number}", "partition_key": key.format(number)} for number in range(count)])
    receiver = sdk.receiver(queue)
    messages = receiver.receive_all(count)
    for message in messages:
        receiver.defer(message)
    receiver.peek_until(lambda peeked: [each.state for each in peeked] == ["deferred"] * count)
    return receiver, [message.sequence_number for message in sorted(messages, key=lambda each: each.body or "")]


def test_p24_several_deferred_messages_are_received_at_once(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver, numbers = deferred(sdk, queue, 3)
    received = receiver.receive_deferred(*numbers)
    assert {message.sequence_number: message.body for message in received} == dict(
        zip(numbers, ["0", "1", "2"], strict=True)
    )
    assert {message.locked_until_ms for message in received} == {server.clock.now_ms() + LOCK_MS}
    receiver.complete(*received)
    assert receiver.peek_until(lambda messages: messages == []) == []


@partitioned_only
def test_deferred_messages_of_several_partitions_need_several_requests(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue, 5, "key {}")
    assert len({number >> 48 for number in numbers}) > 1
    with pytest.raises(SdkError, match="ReceiveBatch of sequence numbers from different partitions"):
        receiver.receive_deferred(*numbers)
    assert [message.body for number in numbers for message in receiver.receive_deferred(number)] == list("01234")


def test_a_deferred_message_is_received_and_deleted(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue)
    deleting = sdk.receiver(queue, "receive-and-delete")
    assert deleting.receive(1, FIRST_EMPTY_WAIT_MS) == []
    (message,) = deleting.receive_deferred(*numbers)
    assert (message.body, message.handle) == ("0", None)
    assert receiver.peek_all() == []


@partitioned_only
def test_a_deferred_message_that_is_locked_is_not_received_again(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue)
    receiver.receive_deferred(*numbers)
    assert_missing(sdk, receiver, *numbers)


@partitioned_only
def test_a_number_that_names_no_deferred_message_is_refused(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue)
    assert_missing(sdk, receiver, numbers[0] + 1_000)
    assert_missing(sdk, receiver, numbers[0], numbers[0] + 1_000)
    assert [message.body for message in receiver.receive_deferred(*numbers)] == ["0"]


def assert_missing(sdk: Sdk, receiver: Receiver, *numbers: int) -> None:
    """These can't be received."""
    if sdk.name in IGNORES_MISSING_MESSAGES:
        assert receiver.receive_deferred(*numbers) == []
        return
    with pytest.raises(SdkError) as missing:
        receiver.receive_deferred(*numbers)
    assert missing.value.kind == "message-not-found"


@partitioned_only
def test_the_lock_of_a_deferred_message_is_renewed(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver, numbers = deferred(sdk, queue)
    (message,) = receiver.receive_deferred(*numbers)
    server.advance(LOCK_MS - 10_000)
    assert receiver.renew_lock(message) == server.clock.now_ms() + LOCK_MS
    server.advance(LOCK_MS - 10_000)
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []


@partitioned_only
def test_a_deferred_message_whose_lock_expires_stays_deferred(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver, numbers = deferred(sdk, queue)
    (message,) = receiver.receive_deferred(*numbers)
    server.advance(LOCK_MS + 1)
    with pytest.raises(SdkError) as lost:
        receiver.complete(message)
    assert lost.value.kind == "lock-lost"
    assert receiver.receive(1, EMPTY_WAIT_MS) == []
    (again,) = receiver.receive_deferred(*numbers)
    assert again.sequence_number == message.sequence_number


@partitioned_only
def test_a_deferred_message_is_deferred_again(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue)
    receiver.defer(receiver.receive_deferred(*numbers)[0])
    assert [(message.body, message.delivery_count) for message in receiver.receive_deferred(*numbers)] == [("0", 2)]


@partitioned_only
def test_deferring_counts_as_a_delivery_and_so_does_abandoning_afterwards(sdk: Sdk, queue: str) -> None:
    receiver, numbers = deferred(sdk, queue)
    (message,) = receiver.receive_deferred(*numbers)
    receiver.abandon(message)
    (again,) = receiver.receive_deferred(*numbers)
    assert (message.delivery_count, again.delivery_count) == (1, 2)
    receiver.dead_letter(again)
    dead = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (dead.body, dead.delivery_count) == ("0", 2)


def test_a_deferral_at_the_last_delivery_dead_letters(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=1)
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    receiver.defer(receiver.receive_one())
    dead = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (dead.body, dead.delivery_count) == ("x", 1)
