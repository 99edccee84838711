"""Peeking: every message once, in order, and nothing is locked by it."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import Sdk

pytestmark = pytest.mark.sdk


def test_p23_peeking_page_by_page_shows_every_message_once(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(25)], how="batch")
    sdk.send(queue, *[{"body": f"{number:02}"} for number in range(25, 30)])
    peeked = sdk.receiver(queue).peek_all(page=7)
    assert sorted(message.body or "" for message in peeked) == [f"{number:02}" for number in range(30)]
    numbers = [message.sequence_number for message in peeked]
    assert numbers == sorted(set(numbers))


def test_p23_peeking_shows_messages_in_every_state(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver = sdk.receiver(queue)
    sdk.send(queue, *[{"body": f"deferred {number}"} for number in range(3)])
    for message in receiver.receive_all(3):
        receiver.defer(message)
    sdk.send(queue, {"body": "locked"})
    receiver.receive_one()
    at = server.clock.now_ms() + 60_000
    sdk.schedule(queue, at, *[{"body": f"scheduled {number}"} for number in range(3)])
    sdk.send(queue, {"body": "active"})
    receiver.peek_until(lambda messages: [each.state for each in messages].count("deferred") == 3)
    peeked = receiver.peek_all(page=2)
    assert sorted((message.body, message.state) for message in peeked) == [
        ("active", "active"),
        ("deferred 0", "deferred"),
        ("deferred 1", "deferred"),
        ("deferred 2", "deferred"),
        ("locked", "active"),
        ("scheduled 0", "scheduled"),
        ("scheduled 1", "scheduled"),
        ("scheduled 2", "scheduled"),
    ]
    numbers = [message.sequence_number for message in peeked]
    assert numbers == sorted(set(numbers))


def test_peeking_again_goes_on_where_the_sdk_stands(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, *[{"body": f"{number}", "partition_key": "one"} for number in range(4)], how="batch")
    receiver = sdk.receiver(queue)
    bodies = [[message.body for message in receiver.peek(2)] for _ in range(2)]
    assert bodies == ([["0", "1"], ["2", "3"]] if sdk.keeps_peek_cursor else [["0", "1"], ["0", "1"]])


def test_peeking_an_empty_queue_shows_nothing(sdk: Sdk, queue: str) -> None:
    assert sdk.receiver(queue).peek(10) == []


def test_a_peeked_message_is_not_locked(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x", "message_id": "the message"})
    receiver = sdk.receiver(queue)
    (peeked,) = receiver.peek(1)
    assert (peeked.as_sent(), peeked.locked_until_ms) == ({"body": "x", "message_id": "the message"}, None)
    received = receiver.receive_one()
    assert received.sequence_number == peeked.sequence_number
    assert received.delivery_count == 0


def test_a_locked_message_can_be_peeked(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    received = receiver.receive_one()
    peeked = receiver.peek_all()
    assert [(m.sequence_number, m.body, m.state) for m in peeked] == [(received.sequence_number, "x", "active")]


def test_dead_letters_can_be_peeked(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells")
    dead_letters = sdk.receiver(queue, sub_queue="dead-letter")
    peeked = dead_letters.peek_until(lambda messages: messages != [])
    assert [(m.body, m.dead_letter_reason, m.dead_letter_description) for m in peeked] == [("x", "spoilt", "it smells")]
