"""Settling: abandon, defer and dead-letter, and what becomes of the message."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from emubus.testing import EmubusServer

from .client import EMPTY_WAIT_MS, FIRST_EMPTY_WAIT_MS, Message, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import TAKES_A_REFUSED_DEAD_LETTER_FOR_DONE, only_clients

pytestmark = pytest.mark.sdk

AT_ONCE_S = 30.0  # an SDK waits at least 40 s for an answer that does not come, and then settles otherwise [wire 5.7]
LOCK_MS = 60_000
SENT = {"body": "x", "message_id": "the message", "properties": {"colour": "red", "size": "large"}}


def gone(messages: list[Message]) -> bool:
    return messages == []


def changed(sdk: Sdk, changes: dict[str, Any]) -> dict[str, Any]:
    """The properties of the message after a settlement with changes, where the SDK can send them."""
    return {"colour": "red", "size": "large", **(changes if sdk.modifies_properties else {})}


@only_clients("javascript")
def test_a_message_sent_without_an_id_is_settled_by_a_receiver_that_renews_locks(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue, renewing=True)  # it remembers what it renews by the message's id
    receiver.complete(receiver.receive_one())
    assert sdk.receiver(queue).peek_all() == []


def test_each_abandon_raises_the_delivery_count_by_one(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    counts = []
    for _ in range(3):
        message = receiver.receive_one()
        counts.append(message.delivery_count)
        receiver.abandon(message)
    assert counts == [0, 1, 2]
    assert receiver.receive_one().as_sent() == SENT


def test_every_settlement_is_answered_at_once(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(4)])
    receiver = sdk.receiver(queue)
    receiver.settle_s_max = AT_ONCE_S
    messages = receiver.receive_all(4)
    settlements: list[Callable[[Message], None]] = [
        receiver.complete,
        receiver.abandon,
        receiver.defer,
        receiver.dead_letter,
    ]
    for settle, message in zip(settlements, messages, strict=True):
        settle(message)
    left = receiver.peek_until(lambda peeked: len(peeked) == 2)
    assert {message.body: message.state for message in left} == {
        messages[1].body: "active",
        messages[2].body: "deferred",
    }


def test_abandon_changes_properties_of_the_message(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    receiver.abandon(receiver.receive_one(), {"colour": "blue", "new": True})
    message = receiver.receive_one()
    assert message.as_sent() == {**SENT, "properties": changed(sdk, {"colour": "blue", "new": True})}


def test_a_message_abandoned_too_often_is_dead_lettered(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=3)
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    for _ in range(3):
        receiver.abandon(receiver.receive_one())
    dead_letters = sdk.receiver(queue, sub_queue="dead-letter")
    message = dead_letters.receive_one()
    reason = "MaxDeliveryCountExceeded"
    description = "Message could not be consumed after 3 delivery attempts."
    assert (message.dead_letter_reason, message.dead_letter_description) == (reason, description)
    assert message.properties == {
        "colour": "red",
        "size": "large",
        "DeadLetterReason": reason,
        "DeadLetterErrorDescription": description,
    }
    assert (message.body, message.message_id) == ("x", "the message")
    assert receiver.peek_all() == []


def test_dead_lettering_keeps_the_message_and_says_why(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells", {"colour": "green"})
    message = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (message.dead_letter_reason, message.dead_letter_description) == ("spoilt", "it smells")
    why = {"DeadLetterReason": "spoilt", "DeadLetterErrorDescription": "it smells"}
    assert message.as_sent() == {**SENT, "properties": {**changed(sdk, {"colour": "green"}), **why}}
    assert receiver.peek_all() == []


def test_a_dead_letter_whose_description_is_too_long_stays_where_it_is_and_others_go_on(
    sdk: Sdk, queue: str, server: EmubusServer
) -> None:
    sdk.send(queue, {"body": "x"})
    receiver, other = sdk.receiver(queue), sdk.receiver(queue)
    message = receiver.receive_one()
    assert other.receive(1, FIRST_EMPTY_WAIT_MS) == []
    if sdk.confirms_settlement and sdk.name not in TAKES_A_REFUSED_DEAD_LETTER_FOR_DONE:
        with pytest.raises(SdkError) as refused:
            receiver.dead_letter(message, "spoilt", "x" * 33_000)
        assert refused.value.kind == "other"
        # JavaScript tries again, and its second try finds the delivery settled.
        own = {"javascript": "already settled", "dotnet": "cannot exceed 4096 characters"}
        why = own.get(sdk.name, "'DeadLetterErrorDescription': 33000 bytes")
        assert why in refused.value.message
    else:
        receiver.dead_letter(message, "spoilt", "x" * 33_000)
    receiver.close()
    sdk.send(queue, {"body": "y"})
    # Behind a refused settlement Go's first receive call of another receiver ends empty, and the next does not.
    assert [each.body for each in other.receive(2) or other.receive(2)] == ["y"]
    server.advance(LOCK_MS + 1)
    assert sorted((each.body, each.delivery_count) for each in other.receive_all(2)) == [("x", 1), ("y", 1)]
    assert sdk.receiver(queue, sub_queue="dead-letter").peek_all() == []


def test_dead_lettering_needs_no_reason(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    receiver.dead_letter(receiver.receive_one())
    message = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (message.body, message.message_id) == ("x", "the message")
    assert message.dead_letter_reason in (None, "")


def test_a_dead_letter_can_be_completed(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells")
    dead_letters = sdk.receiver(queue, sub_queue="dead-letter")
    dead_letters.complete(dead_letters.receive_one())
    assert dead_letters.peek_until(gone) == []


def test_a_deferred_message_is_received_by_its_sequence_number_only(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.defer(message)
    assert receiver.receive(1, EMPTY_WAIT_MS) == []
    peeked = receiver.peek_until(lambda messages: [m.state for m in messages] == ["deferred"])
    assert [each.sequence_number for each in peeked] == [message.sequence_number]
    assert [each.as_sent() for each in receiver.receive_deferred(message.sequence_number)] == [SENT]


@pytest.mark.parametrize("action", ["complete", "dead-letter"])
def test_a_deferred_message_is_settled_for_good(sdk: Sdk, queue: str, action: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.defer(message)
    receiver.peek_until(lambda messages: [m.state for m in messages] == ["deferred"])
    deferred = receiver.receive_deferred(message.sequence_number)
    if action == "complete":
        receiver.complete(*deferred)
        expected: list[str | None] = []
    else:
        receiver.dead_letter(deferred[0], "spoilt", "it smells")
        expected = ["spoilt"]
    assert receiver.peek_until(gone) == []
    dead_letters = sdk.receiver(queue, sub_queue="dead-letter").peek_all()
    assert [dead_letter.dead_letter_reason for dead_letter in dead_letters] == expected


def test_an_abandoned_deferred_message_stays_deferred(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.defer(message)
    receiver.peek_until(lambda messages: [m.state for m in messages] == ["deferred"])
    receiver.abandon(receiver.receive_deferred(message.sequence_number)[0])
    again = receiver.receive_deferred(message.sequence_number)
    assert [(each.as_sent(), each.sequence_number) for each in again] == [(SENT, message.sequence_number)]


def test_deferring_changes_properties_of_the_message(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, SENT)
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    receiver.defer(message, {"colour": "blue"})
    receiver.peek_until(lambda messages: [m.state for m in messages] == ["deferred"])
    received = receiver.receive_deferred(message.sequence_number)
    assert [each.properties for each in received] == [changed(sdk, {"colour": "blue"})]
