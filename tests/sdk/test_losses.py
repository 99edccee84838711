"""Links and connections that are lost while messages are in hand: locks stay, and the SDKs find their way back."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.testing import EmubusServer

from .client import FIRST_EMPTY_WAIT_MS, RECONNECT_WAIT_MS, Message, Receiver, Sdk
from .conftest import MakeQueue
from .driver import DriverProcess, SdkError
from .features import (
    ACCEPTS_OVER_THE_LOST_CONNECTION,
    FAILS_WHAT_MEETS_A_LOSS,
    NOTICES_LOSSES_WHEN_IT_RECEIVES,
    PREFETCHES,
    SETTLES_NOTHING_OF_A_LOST_CONNECTION,
    only_clients,
    partitioned_only,
)

pytestmark = [pytest.mark.sdk, partitioned_only]

LOCK_MS = 30_000
Lose = Callable[[str], None]


@pytest.fixture(params=["link", "connection"])
def lost(request: pytest.FixtureRequest) -> str:
    """What is lost."""
    return str(request.param)


@pytest.fixture
def lose(sdk: Sdk, lost: str, server: EmubusServer) -> Lose:
    """Drops the links to a queue, or the connections that have one; there is at least one."""

    def lose(queue: str) -> None:
        dropped = server.drop_links(queue) if lost == "link" else server.drop_connections(queue)
        assert dropped > 0
        if sdk.name in FAILS_WHAT_MEETS_A_LOSS:
            sdk.hear_of_loss(queue)

    return lose


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    return make_queue(lock_duration_ms=LOCK_MS)


def shown(messages: list[Message]) -> list[tuple[str | None, int, int]]:
    return sorted((message.body, message.sequence_number, message.delivery_count) for message in messages)


def next_message(receiver: Receiver) -> Message:
    """The next message that a receiver gets after a loss; Go's first receive call tells of the loss by giving none."""
    for _ in range(3):
        for message in receiver.receive(1, RECONNECT_WAIT_MS):
            return message
    raise AssertionError("no message arrives")


def notice(sdk: Sdk, receiver: Receiver, queue: str) -> None:
    """Use the receiver until the SDK has something in place of what was lost.

    Python asks over the lost link unless it has received since. JavaScript must not receive: it would send outcomes of
    earlier messages over its new link, where nobody knows them.
    """
    if sdk.name in NOTICES_LOSSES_WHEN_IT_RECEIVES:
        sdk.send(queue, {"body": "noticed"})
        receiver.complete(next_message(receiver))
    else:
        receiver.peek_all()


def test_locked_messages_come_again_after_their_locks_only(
    sdk: Sdk, queue: str, lose: Lose, server: EmubusServer
) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(3)])
    receiver = sdk.receiver(queue)
    taken = receiver.receive_all(3)
    lose(queue)
    other = sdk.receiver(queue)
    assert other.receive(3, FIRST_EMPTY_WAIT_MS) == []
    other.close()
    sdk.send(queue, {"body": "3"})
    taken.append(next_message(receiver))
    assert sorted(message.body or "" for message in taken) == ["0", "1", "2", "3"]
    assert [message.delivery_count for message in taken] == [0] * 4
    server.advance(LOCK_MS + 1)
    again = receiver.receive_all(4)
    assert shown(again) == [(body, number, 1) for body, number, _ in shown(taken)]
    receiver.complete(*again)
    assert receiver.peek_until(lambda messages: messages == []) == []


def test_a_lock_is_renewed_after_the_loss(sdk: Sdk, queue: str, lose: Lose, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    lose(queue)
    server.advance(LOCK_MS - 10_000)
    assert receiver.renew_lock(message) == server.clock.now_ms() + LOCK_MS


def test_messages_are_settled_in_every_way_after_the_loss(
    sdk: Sdk, queue: str, lost: str, lose: Lose, server: EmubusServer
) -> None:
    sdk.send(queue, *[{"body": body} for body in ("complete", "abandon", "defer", "dead-letter")])
    receiver = sdk.receiver(queue)
    held = {message.body: message for message in receiver.receive_all(4)}
    lose(queue)
    notice(sdk, receiver, queue)
    if lost == "connection" and sdk.name in SETTLES_NOTHING_OF_A_LOST_CONNECTION:
        with pytest.raises(SdkError) as late:
            receiver.complete(held["complete"])
        assert late.value.kind == "timeout"
        server.advance(LOCK_MS + 1)
        assert [message.delivery_count for message in receiver.receive_all(4)] == [1] * 4
        return
    receiver.complete(held["complete"])
    receiver.abandon(held["abandon"])
    receiver.defer(held["defer"])
    receiver.dead_letter(held["dead-letter"], "spoilt", "it smells")
    left = receiver.peek_until(lambda messages: len(messages) == 2)
    assert {message.body: (message.state, message.delivery_count) for message in left} == {
        "abandon": ("active", 1),
        "defer": ("deferred", 1),
    }
    dead_letters = sdk.receiver(queue, sub_queue="dead-letter").peek_all()
    assert [(message.body, message.dead_letter_reason) for message in dead_letters] == [("dead-letter", "spoilt")]


def test_a_sender_goes_on_without_an_error(sdk: Sdk, queue: str, lose: Lose) -> None:
    sdk.send(queue, {"body": "0"})
    for number in range(1, 4):
        lose(queue)
        sdk.send(queue, {"body": f"{number}"})
    peeked = sdk.receiver(queue).peek_all()
    assert sorted(message.body or "" for message in peeked) == ["0", "1", "2", "3"]


def test_a_message_session_is_accepted_again(sdk: Sdk, make_queue: MakeQueue, lost: str, lose: Lose) -> None:
    queue = make_queue(requires_session=True, lock_duration_ms=LOCK_MS)
    sdk.send(queue, *[{"body": f"{number}", "session_id": "a"} for number in range(3)], how="batch")
    first = sdk.accept_session(queue, "a")
    first.complete(first.receive_one())
    first.receive_one()
    lose(queue)
    if lost == "connection" and sdk.name in ACCEPTS_OVER_THE_LOST_CONNECTION:
        with pytest.raises(SdkError, match="connlost"):
            sdk.accept_session(queue, "a")
    second = sdk.accept_session(queue, "a")
    assert [message.body for message in second.receive_all(2)] == ["1", "2"]


@only_clients(*PREFETCHES)
def test_p20_what_a_killed_client_had_prefetched_comes_back_after_its_locks(
    sdk: Sdk, queue: str, server: EmubusServer, start: Callable[[str], DriverProcess]
) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(5)])
    driver = start(sdk.name)
    holder = Sdk(driver).receiver(queue, prefetch=10)
    holder.receive_one()
    receiver = sdk.receiver(queue)
    assert receiver.receive(5, FIRST_EMPTY_WAIT_MS) == []
    driver.kill()
    server.advance(LOCK_MS - 1)
    assert receiver.receive(5, FIRST_EMPTY_WAIT_MS) == []
    server.advance(2)
    again = receiver.receive_all(5)
    assert sorted((message.body, message.delivery_count) for message in again) == [(f"{n}", 1) for n in range(5)]


@only_clients(*PREFETCHES)
def test_p21_nothing_is_lost_by_what_another_client_has_prefetched(
    sdk: Sdk, queue: str, start: Callable[[str], DriverProcess]
) -> None:
    sdk.send(queue, *[{"body": f"{number}"} for number in range(5)])
    holder = Sdk(start(sdk.name)).receiver(queue, prefetch=10)
    held = [holder.receive_one()]
    receiver = sdk.receiver(queue)
    assert receiver.receive(5, FIRST_EMPTY_WAIT_MS) == []
    assert len(receiver.peek_all()) == 5
    held += holder.receive_all(4)
    assert sorted(message.body or "" for message in held) == ["0", "1", "2", "3", "4"]
    assert [message.delivery_count for message in held] == [0] * 5
    holder.complete(*held)
    assert receiver.peek_until(lambda messages: messages == []) == []
