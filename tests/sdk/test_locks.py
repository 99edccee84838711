"""Locks: for how long, renewed, expired, and that they keep others away."""

from __future__ import annotations

import pytest

from emubus.testing import EmubusServer

from .client import FIRST_EMPTY_WAIT_MS, Sdk
from .conftest import MakeQueue
from .driver import SdkError

pytestmark = pytest.mark.sdk

LOCK_MS = 30_000


def test_a_lock_holds_for_the_lock_duration_of_the_queue(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    message = sdk.receiver(queue).receive_one()
    assert (message.enqueued_at_ms, message.locked_until_ms) == (server.clock.now_ms(), server.clock.now_ms() + LOCK_MS)


def test_p24_renewing_a_lock_extends_it_from_now(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    server.advance(LOCK_MS - 10_000)
    assert receiver.renew_lock(message) == server.clock.now_ms() + LOCK_MS
    server.advance(LOCK_MS - 10_000)
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []


def test_an_expired_lock_is_lost_and_the_message_delivered_again(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    server.advance(LOCK_MS + 1)
    if sdk.confirms_settlement:
        with pytest.raises(SdkError) as lost:
            receiver.complete(message)
        assert lost.value.kind == "lock-lost"
    else:
        receiver.complete(message)
    again = receiver.receive_one()
    assert (again.body, again.sequence_number) == ("x", message.sequence_number)
    assert (again.delivery_count, again.locked_until_ms) == (1, server.clock.now_ms() + LOCK_MS)


def test_an_expired_lock_cannot_be_renewed(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    server.advance(LOCK_MS + 1)
    with pytest.raises(SdkError) as lost:
        receiver.renew_lock(message)
    assert lost.value.kind == "lock-lost"


def test_p20_a_message_held_by_one_receiver_is_not_given_to_another(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, {"body": "x"})
    first, second = sdk.receiver(queue), sdk.receiver(queue)
    message = first.receive_one()
    assert second.receive(1, FIRST_EMPTY_WAIT_MS) == []
    first.abandon(message)
    again = second.receive_one()
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)


def test_a_lock_outlives_its_receiver(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    first = sdk.receiver(queue)
    message = first.receive_one()
    first.close()
    second = sdk.receiver(queue)
    assert second.receive(1, FIRST_EMPTY_WAIT_MS) == []
    server.advance(LOCK_MS + 1)
    again = second.receive_one()
    assert (again.sequence_number, again.delivery_count) == (message.sequence_number, 1)


def test_locks_that_expire_too_often_dead_letter_the_message(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS, max_delivery_count=2)
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    for _ in range(2):
        receiver.receive_one()
        server.advance(LOCK_MS + 1)
    dead_letter = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (dead_letter.body, dead_letter.dead_letter_reason, dead_letter.dead_letter_description) == (
        "x",
        "MaxDeliveryCountExceeded",
        "Message could not be consumed after 2 delivery attempts.",
    )
    assert receiver.peek_all() == []
