"""Deleting messages without receiving them: the oldest first, up to a number, and only what is there for everybody."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import Message, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import clients_with, partitioned_only, unpartitioned_only

pytestmark = [pytest.mark.sdk, clients_with("delete_messages")]


def bodies(messages: list[Message]) -> list[str]:
    return sorted(message.body or "" for message in messages)


@unpartitioned_only
def test_messages_enqueued_before_an_instant_are_deleted(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, *[{"body": f"old {number}"} for number in range(5)])
    server.advance(1_000)
    between = server.clock.now_ms()
    sdk.send(queue, {"body": "new"})
    assert sdk.delete_messages(queue, 100, between) == 5
    assert bodies(sdk.receiver(queue).peek_all()) == ["new"]
    assert sdk.delete_messages(queue, 100, between) == 0


@unpartitioned_only
def test_no_more_messages_are_deleted_than_asked_for(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(5)])
    assert sdk.delete_messages(queue, 2, server.clock.now_ms() + 1) == 2
    assert bodies(sdk.receiver(queue).peek_all()) == ["2", "3", "4"]


@unpartitioned_only
def test_a_locked_message_is_not_deleted(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "0"}, {"body": "1"})
    receiver = sdk.receiver(queue)
    locked = receiver.receive_one()
    assert sdk.delete_messages(queue, 100, server.clock.now_ms() + 1) == 1
    receiver.abandon(locked)
    assert receiver.receive_one().body == locked.body


@unpartitioned_only
def test_dead_letters_are_deleted(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue()
    sdk.send(queue, {"body": "dead"}, {"body": "alive"})
    receiver = sdk.receiver(queue)
    receiver.dead_letter(receiver.receive_one())
    assert sdk.delete_messages(queue, 100, server.clock.now_ms() + 1, sub_queue="dead-letter") == 1
    assert sdk.receiver(queue, sub_queue="dead-letter").peek_all() == []
    assert len(receiver.peek_all()) == 1


@partitioned_only
def test_messages_of_a_partitioned_queue_are_not_deleted_in_batches(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    with pytest.raises(SdkError) as refused:
        sdk.delete_messages(queue, 100, server.clock.now_ms() + 1)
    assert refused.value.kind == "not-allowed"
    assert bodies(sdk.receiver(queue).peek_all()) == ["x"]
