"""Receiving: in either mode, waiting on an empty queue, and one receive after another."""

from __future__ import annotations

import pytest

from .client import EMPTY_WAIT_MS, FIRST_EMPTY_WAIT_MS, Message, Sdk
from .features import PREFETCHES_AGAIN_WHEN_IT_SETTLES, only_clients, partitioned_only

pytestmark = pytest.mark.sdk


def test_a_completed_message_is_gone(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "a"}, {"body": "b"})
    receiver = sdk.receiver(queue)
    receiver.complete(*receiver.receive_all(2))
    assert receiver.peek_until(lambda messages: messages == []) == []


def test_receive_and_delete_leaves_nothing(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(5)], how="batch")
    receiver = sdk.receiver(queue, "receive-and-delete")
    received = receiver.receive_all(5)
    assert sorted(message.body or "" for message in received) == ["0", "1", "2", "3", "4"]
    assert [message.handle for message in received] == [None] * 5
    assert receiver.peek_all() == []


def test_messages_of_one_sender_are_received_in_order(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}", "partition_key": "one"} for number in range(10)], how="batch")
    received = sdk.receiver(queue, "receive-and-delete").receive_all(10)
    assert [message.body for message in received] == [f"{number}" for number in range(10)]


def test_a_receiver_that_waited_in_vain_gets_the_next_message(sdk: Sdk, queue: str) -> None:
    receiver = sdk.receiver(queue)
    assert receiver.receive(5, FIRST_EMPTY_WAIT_MS) == []
    assert receiver.receive(5, EMPTY_WAIT_MS) == []
    sdk.send(queue, {"body": "late"})
    message = receiver.receive_one()
    assert (message.body, message.delivery_count) == ("late", 0)
    receiver.complete(message)
    assert receiver.receive(5, EMPTY_WAIT_MS) == []


def test_two_equal_receive_calls_give_one_message_each(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "a"}, {"body": "b"})
    receiver = sdk.receiver(queue)
    first, second = receiver.receive_one(), receiver.receive_one()
    assert {first.body, second.body} == {"a", "b"}
    assert [first.delivery_count, second.delivery_count] == [0, 0]
    receiver.complete(first, second)
    assert receiver.peek_until(lambda messages: messages == []) == []


def test_a_receive_call_gives_no_more_messages_than_it_asks_for(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(5)], how="batch")
    receiver = sdk.receiver(queue)
    received = receiver.receive(3)
    while len(received) < 3:
        received += receiver.receive(3 - len(received))
    rest = receiver.receive_all(2)
    assert sorted(message.body or "" for message in [*received, *rest]) == ["0", "1", "2", "3", "4"]
    assert [message.delivery_count for message in [*received, *rest]] == [0] * 5


def test_messages_left_by_a_closed_receiver_go_to_the_next(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(4)], how="batch")
    first = sdk.receiver(queue)
    taken = first.receive_one()
    first.complete(taken)
    first.close()
    received = sdk.receiver(queue).receive_all(3)
    assert sorted(message.body or "" for message in [taken, *received]) == ["0", "1", "2", "3"]
    assert [message.delivery_count for message in received] == [0] * 3


@only_clients("python-sync", "python-aio", "dotnet")  # Java releases nothing when it closes
@partitioned_only
def test_what_a_closed_receiver_fetched_ahead_goes_to_the_next_and_counts_as_no_delivery(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(20)], how="batch")
    first = sdk.receiver(queue, prefetch=10)
    taken = first.receive_one()
    first.complete(taken)
    first.close()
    received = sdk.receiver(queue).receive_all(19)
    assert sorted(message.body or "" for message in [taken, *received]) == [f"{number:02}" for number in range(20)]
    assert [message.delivery_count for message in received] == [0] * 19


def test_a_prefetching_receiver_gets_every_message_once(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(20)], how="batch")
    receiver = sdk.receiver(queue, prefetch=10)
    received: list[Message] = []
    while len(received) < 20:
        more = receiver.receive(20 - len(received))
        assert more, f"20 messages expected, received {received}"
        received += more
        if sdk.name in PREFETCHES_AGAIN_WHEN_IT_SETTLES:
            receiver.complete(*more)
    assert sorted(message.body or "" for message in received) == [f"{number:02}" for number in range(20)]
    if sdk.name not in PREFETCHES_AGAIN_WHEN_IT_SETTLES:
        receiver.complete(*received)
    assert receiver.peek_until(lambda messages: messages == []) == []
