"""Topics: every subscription gets its own copy of every message, and is a queue of its own."""

from __future__ import annotations

import pytest

from emubus.broker.model.descriptions import RuleDescription, TrueFilter
from emubus.testing import EmubusServer

from .client import How, Sdk
from .conftest import MakeSubscription, MakeTopic
from .driver import SdkError
from .features import only_clients, partitioned_only

pytestmark = pytest.mark.sdk

SENT = {"body": "x", "message_id": "the message", "subject": "s", "properties": {"colour": "red"}}


@pytest.mark.parametrize("how", ["single", "batch"])
def test_every_subscription_gets_a_copy_of_every_message(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription, how: How
) -> None:
    topic = make_topic()
    subscriptions = [make_subscription(topic, name) for name in ("one", "two", "three")]
    sdk.send(topic, SENT, {"body": "y"}, how=how)
    for subscription in subscriptions:
        received = sdk.receiver(topic, "receive-and-delete", subscription=subscription).receive_all(2)
        assert sorted(message.body or "" for message in received) == ["x", "y"]
        assert SENT in [message.as_sent() for message in received]


@partitioned_only
def test_a_message_without_an_id_gets_one_the_same_for_every_subscription(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    names = [make_subscription(topic, name) for name in ("one", "two")]
    sdk.send(topic, {"body": "x"})
    received = [sdk.receiver(topic, subscription=name).receive_one() for name in names]
    assert received[0].message_id
    assert received[0].message_id == received[1].message_id


def test_settling_in_one_subscription_leaves_the_others_alone(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    one, two = make_subscription(topic, "one"), make_subscription(topic, "two")
    sdk.send(topic, SENT)
    receiver = sdk.receiver(topic, subscription=one)
    receiver.abandon(receiver.receive_one())
    message = receiver.receive_one()
    assert message.delivery_count == 1
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []
    other = sdk.receiver(topic, subscription=two).receive_one()
    assert (other.as_sent(), other.delivery_count) == (SENT, 0)


@partitioned_only
def test_p10_copies_that_a_rule_puts_into_one_session_are_received_by_its_one_holder(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    rule = RuleDescription("into one session", TrueFilter(), "SET sys.SessionId = 'abc'")
    make_subscription(topic, "all", rules=(rule,), requires_session=True)
    names = [f"{number:02}" for number in range(12)]
    sdk.send(topic, *[{"body": name, "session_id": f"session {name}"} for name in names])
    receiver = sdk.accept_session(topic, "abc", subscription="all", mode="receive-and-delete")
    received = receiver.receive_all(12)
    assert sorted(message.body or "" for message in received) == names
    assert {message.session_id for message in received} == {"abc"}
    assert len({message.partition for message in received}) == 1


@partitioned_only
def test_a_subscription_has_a_dead_letter_queue_of_its_own(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    one, two = make_subscription(topic, "one"), make_subscription(topic, "two")
    sdk.send(topic, SENT)
    receiver = sdk.receiver(topic, subscription=one)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells")
    dead_letters = sdk.receiver(topic, subscription=one, sub_queue="dead-letter")
    message = dead_letters.receive_one()
    assert (message.body, message.dead_letter_reason, message.dead_letter_description) == ("x", "spoilt", "it smells")
    dead_letters.complete(message)
    assert dead_letters.peek_until(lambda messages: messages == []) == []
    assert sdk.receiver(topic, subscription=two, sub_queue="dead-letter").peek_all() == []


@partitioned_only
def test_a_subscription_sees_what_is_sent_after_it_was_made(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    sdk.send(topic, {"body": "to nobody"})
    early = make_subscription(topic, "early")
    sdk.send(topic, {"body": "to one"})
    late = make_subscription(topic, "late")
    sdk.send(topic, {"body": "to both"})
    seen = {
        name: sorted(message.body or "" for message in sdk.receiver(topic, subscription=name).peek_all())
        for name in (early, late)
    }
    assert seen == {"early": ["to both", "to one"], "late": ["to both"]}


@partitioned_only
def test_p10_copies_of_messages_with_one_key_stay_in_order(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    subscription = make_subscription(topic)
    for number in range(4):
        sdk.send(topic, {"body": f"{number}", "partition_key": "the key"})
    received = sdk.receiver(topic, "receive-and-delete", subscription=subscription).receive_all(4)
    assert [message.body for message in received] == ["0", "1", "2", "3"]
    assert len({message.partition for message in received}) == 1


@partitioned_only
def test_a_topic_itself_cannot_be_received_from(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    make_subscription(topic)
    sdk.send(topic, SENT)
    with pytest.raises(SdkError):
        sdk.receiver(topic).receive()


@only_clients("javascript", "dotnet")  # Python and Go attach a receiver before they peek
@partitioned_only
def test_messages_that_are_scheduled_in_a_topic_are_seen_under_its_name_and_nowhere_else(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription, server: EmubusServer
) -> None:
    topic = make_topic()
    name = make_subscription(topic)
    (number,) = sdk.schedule(topic, server.clock.now_ms() + 60_000, {"body": "later"})
    (seen,) = sdk.receiver(topic).peek()
    assert (seen.body, seen.state, seen.sequence_number) == ("later", "scheduled", number)
    assert sdk.receiver(topic, subscription=name).peek() == []


@partitioned_only
def test_receiving_from_a_missing_subscription_fails(sdk: Sdk, make_topic: MakeTopic) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.receiver(make_topic(), subscription="missing").receive()
    assert refused.value.kind == "not-found"
