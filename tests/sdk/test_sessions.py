"""Message sessions: taken by one receiver at a time, in order, with a state that stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.testing import EmubusServer

from .client import ACCEPT_WAIT_MS, EMPTY_WAIT_MS, Sdk, SessionReceiver
from .conftest import MakeQueue, MakeSubscription, MakeTopic
from .driver import DriverProcess, SdkError
from .features import (
    CLOSES_WITH_ITS_SESSION,
    PEEKS_BEYOND_ITS_SESSION,
    REACCEPTS_LOST_SESSIONS,
    TAKES_NO_EMPTY_SESSION_ID,
    clients_with,
    clients_without,
    everyone,
    only_clients,
    partitioned_only,
    unpartitioned_only,
)

pytestmark = pytest.mark.sdk

GREATEST_MS = 253_402_300_799_999  # messages of a session have no end of their own [wire 5.4]
LOCK_MS = 30_000
NOTHING_FREE_WAIT_MS = 5_000  # for JavaScript its connection's, too, which ends with another kind of error
STATE = bytes([0xFF, 0x00, 0xFE]) + "größe".encode()


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """A queue of message sessions."""
    return make_queue(requires_session=True, lock_duration_ms=LOCK_MS)


def send(sdk: Sdk, queue: str, session_id: str, *bodies: str) -> None:
    sdk.send(queue, *[{"body": body, "session_id": session_id} for body in bodies], how="batch")


def refusal(sdk: Sdk, queue: str, session_id: str | None = None, wait_ms: int = ACCEPT_WAIT_MS) -> str:
    """The kind of error that accepting a message session ends with."""
    with pytest.raises(SdkError) as refused:
        sdk.accept_session(queue, session_id, wait_ms=wait_ms)
    return refused.value.kind


def bodies(receiver: SessionReceiver, count: int) -> list[str | None]:
    return [message.body for message in receiver.receive_all(count)]


def test_a_dead_letter_of_a_session_is_locked_by_itself(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    send(sdk, queue, "s", "x")
    session = sdk.accept_session(queue, "s")
    session.dead_letter(session.receive_one())
    session.close()
    receiver = sdk.receiver(queue, sub_queue="dead-letter")
    message = receiver.receive_one()
    server.advance(LOCK_MS - 10_000)
    assert receiver.renew_lock(message) == server.clock.now_ms() + LOCK_MS
    server.advance(LOCK_MS + 1)
    with pytest.raises(SdkError) as lost:
        receiver.renew_lock(message)
    assert lost.value.kind == "lock-lost"
    receiver.complete(receiver.receive_one())
    assert receiver.peek_until(lambda messages: messages == []) == []


@everyone
def test_a_named_session_is_given_even_when_it_is_empty(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver = sdk.accept_session(queue, "grün")
    assert receiver.session_id == "grün"
    assert receiver.locked_until_ms in (None, server.clock.now_ms() + LOCK_MS)  # Java does not show it
    send(sdk, queue, "grün", "x")
    message = receiver.receive_one()
    assert (message.body, message.session_id) == ("x", "grün")
    assert message.locked_until_ms in (None, GREATEST_MS)  # Python does not show it


@everyone
def test_the_next_session_is_one_that_has_messages_and_is_free(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    for session_id in ("b", "a", "c"):
        send(sdk, queue, session_id, f"of {session_id}")
        server.advance(10)
    sdk.accept_session(queue, "empty")
    receivers = [sdk.accept_session(queue) for _ in range(3)]
    assert {receiver.session_id: bodies(receiver, 1) for receiver in receivers} == {
        "a": ["of a"],
        "b": ["of b"],
        "c": ["of c"],
    }


@unpartitioned_only
def test_the_next_session_is_the_one_that_has_waited_longest(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    for session_id in ("b", "a", "c"):
        send(sdk, queue, session_id, "x")
        server.advance(10)
    assert [sdk.accept_session(queue).session_id for _ in range(3)] == ["b", "a", "c"]


def test_p10_a_session_is_received_in_order_by_one_receiver(sdk: Sdk, queue: str) -> None:
    for number in range(3):
        send(sdk, queue, "a", f"a{number}")
        send(sdk, queue, "b", f"b{number}")
    receivers = {session_id: sdk.accept_session(queue, session_id) for session_id in ("a", "b")}
    send(sdk, queue, "a", "a3", "a4")
    assert bodies(receivers["a"], 5) == ["a0", "a1", "a2", "a3", "a4"]
    assert bodies(receivers["b"], 3) == ["b0", "b1", "b2"]


@everyone
def test_an_abandoned_message_is_the_next_of_its_session(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "0", "1")
    receiver = sdk.accept_session(queue)
    first = receiver.receive_one()
    receiver.abandon(first)
    received = receiver.receive_all(2)
    assert [(message.body, message.delivery_count) for message in received] == [("0", 1), ("1", 0)]


@clients_without(TAKES_NO_EMPTY_SESSION_ID)
@partitioned_only
def test_an_empty_text_is_the_id_of_a_session_like_any_other(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "of a")
    send(sdk, queue, "", "of nothing")
    receiver = sdk.accept_session(queue, "")
    assert (receiver.session_id, bodies(receiver, 1)) == ("", ["of nothing"])


@partitioned_only
def test_waiting_for_a_session_ends_after_the_time_that_was_asked_for(
    sdk: Sdk, queue: str, server: EmubusServer
) -> None:
    """The server's clock tells how long; after one retry, where the SDK has no way to have none."""
    server.call(server.clock.thaw)
    try:
        began_ms = server.now_ms()
        kind = refusal(sdk, queue, wait_ms=NOTHING_FREE_WAIT_MS)
        waited_ms = server.now_ms() - began_ms
    finally:
        server.call(server.clock.freeze)
    assert (kind, waited_ms >= NOTHING_FREE_WAIT_MS * 0.9) == ("timeout", True)


@everyone
@partitioned_only
def test_a_session_that_another_holds_is_refused_at_once(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "x")
    holder = sdk.accept_session(queue, "a")
    assert refusal(sdk, queue, "a") == "session-cannot-be-locked"
    assert bodies(holder, 1) == ["x"]


@everyone
@partitioned_only
def test_two_clients_compete_for_sessions(sdk: Sdk, queue: str, start: Callable[[str], DriverProcess]) -> None:
    for session_id in ("a", "b"):
        send(sdk, queue, session_id, f"of {session_id}")
    other = Sdk(start(sdk.name))
    holders = {"one": sdk.accept_session(queue), "other": other.accept_session(queue)}
    held = {holder.session_id: name for name, holder in holders.items()}
    assert set(held) == {"a", "b"}
    assert refusal(sdk, queue, holders["other"].session_id) == "session-cannot-be-locked"
    assert refusal(other, queue, holders["one"].session_id) == "session-cannot-be-locked"
    for holder in holders.values():
        assert bodies(holder, 1) == [f"of {holder.session_id}"]
    holders["one"].close()
    assert bodies(other.accept_session(queue, holders["one"].session_id), 1) == [f"of {holders['one'].session_id}"]


@everyone
def test_closing_a_receiver_frees_its_session_at_once(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "0", "1")
    first = sdk.accept_session(queue)
    taken = first.receive_one()
    first.close()
    second = sdk.accept_session(queue, "a")
    received = second.receive_all(2)
    assert [(message.body, message.delivery_count) for message in received] == [("0", 0), ("1", 0)]
    assert received[0].sequence_number == taken.sequence_number


@everyone
def test_p24_the_state_of_a_session_is_kept_until_it_is_cleared(sdk: Sdk, queue: str) -> None:
    first = sdk.accept_session(queue, "a")
    assert first.state() is None
    first.set_state(STATE)
    assert first.state() == STATE
    first.close()
    second = sdk.accept_session(queue, "a")
    assert second.state() == STATE
    second.set_state(None)
    assert not second.state()  # Go sends no bytes where the others send null


@everyone
@partitioned_only
def test_p24_renewing_a_session_extends_its_lock_from_now(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    send(sdk, queue, "a", "x")
    receiver = sdk.accept_session(queue)
    message = receiver.receive_one()
    server.advance(LOCK_MS - 10_000)
    assert receiver.renew_session() == server.clock.now_ms() + LOCK_MS
    server.advance(LOCK_MS - 10_000)
    receiver.complete(message)
    assert receiver.peek_until(lambda messages: messages == []) == []


@everyone
@partitioned_only
def test_a_session_whose_lock_expires_is_lost_and_given_again(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    send(sdk, queue, "a", "0", "1")
    first = sdk.accept_session(queue)
    message = first.receive_one()
    server.advance(LOCK_MS + 1)
    kinds = ["session-lock-lost", *(["timeout", "other"] if sdk.name in CLOSES_WITH_ITS_SESSION else [])]
    if sdk.name not in REACCEPTS_LOST_SESSIONS:
        with pytest.raises(SdkError) as lost:
            first.renew_session()
        assert lost.value.kind in kinds
    if sdk.confirms_settlement and sdk.name not in REACCEPTS_LOST_SESSIONS:
        with pytest.raises(SdkError) as lost:
            first.complete(message)
        assert lost.value.kind in kinds
    again = sdk.accept_session(queue, "a").receive_all(2)
    assert [(each.body, each.delivery_count) for each in again] == [("0", 1), ("1", 0)]


@partitioned_only
def test_a_deferred_message_of_a_session_is_received_by_number(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "0", "1")
    receiver = sdk.accept_session(queue)
    message = receiver.receive_one()
    receiver.defer(message)
    receiver.peek_until(lambda messages: [m.state for m in messages] == ["deferred", "active"])
    (deferred,) = receiver.receive_deferred(message.sequence_number)
    assert (deferred.body, deferred.session_id) == ("0", "a")
    receiver.complete(deferred)
    assert [each.body for each in receiver.peek_until(lambda messages: len(messages) == 1)] == ["1"]


@clients_without(PEEKS_BEYOND_ITS_SESSION)
@partitioned_only
def test_a_session_receiver_peeks_into_its_session_only(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "a0")
    send(sdk, queue, "b", "b0", "b1")
    receiver = sdk.accept_session(queue, "b")
    assert [message.body for message in receiver.peek_all()] == ["b0", "b1"]


@everyone
@partitioned_only
def test_receive_and_delete_empties_a_session(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "0", "1", "2")
    receiver = sdk.accept_session(queue, mode="receive-and-delete")
    assert bodies(receiver, 3) == ["0", "1", "2"]
    assert receiver.peek_all() == []


@partitioned_only
def test_dead_letters_of_a_session_are_received_without_session(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "x")
    receiver = sdk.accept_session(queue)
    receiver.dead_letter(receiver.receive_one(), "spoilt", "it smells")
    dead_letter = sdk.receiver(queue, sub_queue="dead-letter").receive_one()
    assert (dead_letter.body, dead_letter.session_id, dead_letter.dead_letter_reason) == ("x", "a", "spoilt")


@partitioned_only
def test_sessions_and_plain_receivers_do_not_mix(sdk: Sdk, queue: str, make_queue: MakeQueue) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.receiver(queue).receive()
    assert refused.value.kind == "not-allowed"
    assert refusal(sdk, make_queue()) == "not-allowed"


@only_clients("javascript", "dotnet")  # Python and Go attach a receiver before they peek
@partitioned_only
def test_a_receiver_without_session_sees_the_messages_of_all_sessions(sdk: Sdk, queue: str) -> None:
    send(sdk, queue, "a", "1", "2")
    send(sdk, queue, "b", "3")
    held = sdk.accept_session(queue, "a")
    seen = sdk.receiver(queue).peek_all()
    assert sorted((message.session_id, message.body) for message in seen) == [("a", "1"), ("a", "2"), ("b", "3")]
    held.close()


@partitioned_only
def test_a_message_without_session_is_refused(sdk: Sdk, queue: str) -> None:
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "x"})
    assert refused.value.kind == "not-allowed"


@everyone
@partitioned_only
def test_a_session_receiver_waits_for_messages_of_its_session(sdk: Sdk, queue: str) -> None:
    receiver = sdk.accept_session(queue, "a")
    assert receiver.receive(1, EMPTY_WAIT_MS) == []
    send(sdk, queue, "b", "not mine")
    send(sdk, queue, "a", "mine")
    assert bodies(receiver, 1) == ["mine"]


@partitioned_only
def test_a_subscription_has_sessions_of_its_own(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription
) -> None:
    topic = make_topic()
    for name in ("one", "two"):
        make_subscription(topic, name, requires_session=True)
    send(sdk, topic, "a", "0", "1")
    one, two = (sdk.accept_session(topic, subscription=name) for name in ("one", "two"))
    one.set_state(STATE)
    assert two.state() is None
    assert (bodies(one, 2), bodies(two, 2)) == (["0", "1"], ["0", "1"])


@clients_with("session_list")
def test_p24_sessions_with_messages_or_state_are_listed(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    assert sdk.list_sessions(queue) == []
    send(sdk, queue, "with messages", "x")
    sdk.accept_session(queue, "empty").close()
    early = sdk.accept_session(queue, "early state")
    early.set_state(STATE)
    server.advance(1_000)
    between = server.clock.now_ms()
    server.advance(1_000)
    late = sdk.accept_session(queue, "late state")
    late.set_state(STATE)
    assert sorted(sdk.list_sessions(queue)) == ["early state", "late state", "with messages"]
    assert sdk.list_sessions(queue, updated_after_ms=between) == ["late state"]


@clients_with("session_list")
@partitioned_only
def test_p24_the_sessions_of_a_subscription_are_listed(
    sdk: Sdk, make_topic: MakeTopic, make_subscription: MakeSubscription, server: EmubusServer
) -> None:
    topic = make_topic()
    first, second = (make_subscription(topic, name, requires_session=True) for name in ("first", "second"))
    send(sdk, topic, "of both", "x")
    sdk.accept_session(topic, "of one", subscription=second).set_state(STATE)
    assert sdk.list_sessions(topic, first) == ["of both"]
    assert sorted(sdk.list_sessions(topic, second)) == ["of both", "of one"]
    assert sdk.list_sessions(topic, second, updated_after_ms=server.clock.now_ms() - 60_000) == ["of one"]


@clients_with("session_list")
@partitioned_only
def test_p24_more_sessions_than_a_page_are_listed(sdk: Sdk, queue: str) -> None:
    names = [f"session {number:03}" for number in range(120)]
    for name in names:
        send(sdk, queue, name, "x")
    assert sorted(sdk.list_sessions(queue)) == names
