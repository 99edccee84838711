"""Forwarding: what arrives in one entity goes on to another, as it was sent."""

from __future__ import annotations

from collections import Counter

import pytest

from .client import Sdk
from .conftest import MakeQueue, MakeSubscription, MakeTopic
from .driver import SdkError
from .features import only_clients, partitioned_only, unpartitioned_only

pytestmark = pytest.mark.sdk

SENT = {"body": "x", "message_id": "m", "partition_key": "k", "properties": {"colour": "red"}}
HOPS_MAX = 4


def test_p30_a_queue_forwards_to_a_queue(sdk: Sdk, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(forward_to=target)
    sdk.send(source, SENT)
    message = sdk.receiver(target).receive_one()
    assert (message.as_sent(), message.delivery_count) == (SENT, 0)


@partitioned_only
def test_p30_the_key_of_a_forwarded_message_decides_about_its_partition(sdk: Sdk, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(forward_to=target)
    keys = [f"key {number}" for number in range(4)]
    for queue in (target, source):
        sdk.send(queue, *[{"body": f"to {queue}", "partition_key": key} for key in keys])
    received = sdk.receiver(target, "receive-and-delete").receive_all(8)
    assert len({(message.partition_key, message.partition) for message in received}) == len(keys)


@partitioned_only
def test_messages_without_a_key_are_forwarded_to_all_partitions_alike(sdk: Sdk, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(forward_to=target)
    sdk.send(source, *[{"body": f"{number}"} for number in range(32)])
    received = sdk.receiver(target, "receive-and-delete").receive_all(32)
    assert Counter(message.partition for message in received) == dict.fromkeys(range(16), 2)


@partitioned_only
def test_subscriptions_forward_to_queues_and_queues_to_topics(
    sdk: Sdk, make_queue: MakeQueue, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    target, topic = make_queue(), make_topic()
    make_subscription(topic, "on", forward_to=target)
    make_subscription(topic, "here")
    source = make_queue(forward_to=topic)
    sdk.send(source, SENT)
    assert sdk.receiver(target).receive_one().as_sent() == SENT
    assert sdk.receiver(topic, subscription="here").receive_one().as_sent() == SENT


@only_clients("javascript", "dotnet")
@unpartitioned_only
def test_what_is_forwarded_into_sessions_keeps_its_session_and_their_order(
    sdk: Sdk, make_queue: MakeQueue, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    target = make_queue(requires_session=True)
    topic = make_topic()
    make_subscription(topic, forward_to=target)
    sessions = ("first", "second")
    sdk.send(topic, *[{"body": f"{n}", "session_id": session} for n in range(3) for session in sessions], how="batch")
    for session in sessions:
        received = sdk.accept_session(target, session).receive_all(3)
        assert [(each.session_id, each.body) for each in received] == [(session, f"{n}") for n in range(3)]


@partitioned_only
def test_dead_letters_are_forwarded_with_their_source(sdk: Sdk, make_queue: MakeQueue) -> None:
    target = make_queue()
    source = make_queue(forward_dead_letters_to=target)
    sdk.send(source, SENT)
    receiver = sdk.receiver(source)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells")
    message = sdk.receiver(target).receive_one()
    assert (message.body, message.dead_letter_reason, message.dead_letter_description) == ("x", "spoilt", "it smells")
    assert message.dead_letter_source == source


@partitioned_only
def test_a_message_that_is_forwarded_too_often_is_dead_lettered(sdk: Sdk, make_queue: MakeQueue) -> None:
    queues = [make_queue()]
    for _ in range(HOPS_MAX + 1):
        queues.append(make_queue(forward_to=queues[-1]))
    sdk.send(queues[-2], SENT)
    assert sdk.receiver(queues[0]).receive_one().as_sent() == SENT
    sdk.send(queues[-1], SENT)
    message = sdk.receiver(queues[1], sub_queue="dead-letter").receive_one()
    assert message.dead_letter_reason == "MaxTransferHopCountExceeded"
    assert sdk.receiver(queues[0]).peek(10)[1:] == []


@partitioned_only
def test_nothing_is_received_from_a_queue_that_forwards(sdk: Sdk, make_queue: MakeQueue) -> None:
    source = make_queue(forward_to=make_queue())
    with pytest.raises(SdkError) as refused:
        sdk.receiver(source).receive()
    assert refused.value.kind == "not-allowed"


@partitioned_only
def test_nothing_is_received_from_a_dead_letter_queue_that_forwards(sdk: Sdk, make_queue: MakeQueue) -> None:
    source = make_queue(forward_dead_letters_to=make_queue())
    with pytest.raises(SdkError) as refused:
        sdk.receiver(source, sub_queue="dead-letter").receive()
    assert refused.value.kind == "not-allowed"


@partitioned_only
def test_what_cannot_be_forwarded_is_dead_lettered_where_it_is(sdk: Sdk, make_queue: MakeQueue) -> None:
    source = make_queue(forward_to="there-is-no-such-target")
    sdk.send(source, SENT)
    message = sdk.receiver(source, sub_queue="dead-letter").receive_one()
    assert (message.body, message.message_id) == ("x", "m")
    assert message.dead_letter_reason
