"""Receiving under lock, message sessions, and settling, against a real broker."""

from __future__ import annotations

import pytest

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import Connection, Modified, Received
from emubus.testing import EmubusServer

from .conftest import MakeQueue
from .kit import body_of, message, peeked


def put(connection: Connection, queue: str, *bodies: bytes, session_id: str | None = None) -> None:
    sender = connection.sender(queue, window=100)
    for body in bodies:
        sender.send(message(body, session_id=session_id), envelope=False, key=body)
    assert dict(sender.flush()) == dict.fromkeys(bodies)
    sender.close()


def bodies_of(received: list[Received]) -> list[bytes]:
    return [body_of(each.data) for each in received]


def test_messages_are_received_in_order_up_to_the_count(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b", b"c")
    receiver = connection.receiver(queue)
    assert bodies_of(receiver.receive(2, 5)) == [b"a", b"b"]
    assert bodies_of(receiver.receive(2, 0.1)) == [b"c"]
    assert receiver.receive(1, 0) == []


def test_messages_of_many_frames_come_whole(connection: Connection, queue: str) -> None:
    large = [bytes((number,)) * 200_000 for number in range(5)]
    put(connection, queue, *large)
    assert bodies_of(connection.receiver(queue).receive(5, 5)) == large


def test_an_accepted_message_is_gone_and_a_released_one_comes_again(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b")
    receiver = connection.receiver(queue)
    first, second = receiver.receive(2, 5)
    receiver.settle(first, "accepted")
    receiver.settle([second], "released")
    assert bodies_of(receiver.receive(1, 5)) == [b"b"]
    assert peeked(connection.management(queue).peek(1, 10)) == [b"b"]


def test_an_abandoned_message_counts_a_delivery_until_it_is_dead(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue(max_delivery_count=2)
    put(connection, queue, b"a")
    receiver = connection.receiver(queue)
    for _ in range(2):
        receiver.settle(receiver.receive(1, 5), Modified(properties={"why": "no reason"}))
    assert receiver.receive(1, 0) == []
    dead = connection.receiver(f"{queue}/$DeadLetterQueue").receive(1, 5)
    assert bodies_of(dead) == [b"a"]
    assert b"no reason" in dead[0].data


def test_a_deferred_message_waits_for_its_number(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a")
    receiver = connection.receiver(queue)
    receiver.settle(receiver.receive(1, 5), Modified(undeliverable_here=True))
    assert receiver.receive(1, 0) == []
    rows = connection.management(queue).receive_by_sequence_number([1], delete=True)
    assert [body_of(data) for _, data in rows] == [b"a"]


def test_a_lock_token_settles_by_the_management_node_too(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a")
    (received,) = connection.receiver(queue).receive(1, 5)
    connection.management(queue).update_disposition([received.lock_token], "completed")
    assert connection.management(queue).peek(1, 1) is None


def test_a_lost_lock_is_raised_when_all_are_answered(
    server: EmubusServer, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(lock_duration_ms=5_000)
    put(connection, queue, b"a")
    receiver = connection.receiver(queue)
    late = receiver.receive(1, 5)
    server.advance(6_000)
    again = receiver.receive(1, 5)
    assert bodies_of(again) == [b"a"]
    with pytest.raises(ConnectorError) as caught:
        receiver.settle([*late, *again], "accepted")
    assert (caught.value.code, caught.value.condition) == (Code.REFUSED, "com.microsoft:message-lock-lost")
    assert connection.management(queue).peek(1, 1) is None


def test_a_message_is_settled_once(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a")
    receiver = connection.receiver(queue)
    received = receiver.receive(1, 5)
    receiver.settle(received, "accepted")
    with pytest.raises(ValueError, match="1 of 1 messages aren't held by this receiver"):
        receiver.settle(received, "accepted")


def test_draining_takes_the_credit_back(connection: Connection, queue: str) -> None:
    receiver = connection.receiver(queue)
    assert receiver.receive(10, 0) == []
    assert receiver.drain() == []
    put(connection, queue, b"a")
    other = connection.receiver(queue)
    assert bodies_of(other.receive(1, 5)) == [b"a"]
    assert receiver.drain() == []


def test_draining_gives_what_had_come(connection: Connection, queue: str) -> None:
    receiver = connection.receiver(queue)
    assert receiver.receive(10, 0) == []
    put(connection, queue, b"a", b"b")
    left = receiver.drain()
    assert bodies_of(left) == [b"a", b"b"]
    receiver.settle(left, "accepted")
    put(connection, queue, b"c")
    assert bodies_of(receiver.receive(1, 5)) == [b"c"]


def test_a_message_session_is_received_by_its_name(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    put(connection, queue, b"1", session_id="one")
    put(connection, queue, b"2", session_id="two")
    receiver = connection.receiver(queue, session_id="two")
    assert receiver.session_id == "two"
    received = receiver.receive(5, 0.1)
    assert bodies_of(received) == [b"2"]
    receiver.settle(received, "accepted")


def test_the_next_message_session_is_received_and_its_lock_ends_with_the_link(
    connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(requires_session=True)
    put(connection, queue, b"1", session_id="one")
    receiver = connection.receiver(queue, session_id=None)
    assert receiver.session_id == "one"
    with pytest.raises(ConnectorError) as caught:
        connection.receiver(queue, session_id="one")
    assert (caught.value.code, caught.value.retriable) == (Code.REFUSED, True)
    assert caught.value.condition == "com.microsoft:session-cannot-be-locked"
    receiver.close()
    assert connection.receiver(queue, session_id="one").session_id == "one"


def test_no_free_message_session_is_reported_in_time(
    server: EmubusServer, connection: Connection, make_queue: MakeQueue
) -> None:
    queue = make_queue(requires_session=True)
    with pytest.raises(ConnectorError) as caught:
        connection.receiver(queue, session_id=None, accept_wait_s=0.1)
    assert (caught.value.code, caught.value.condition) == (Code.UNAVAILABLE, "com.microsoft:timeout")
    assert connection.usable


def test_a_queue_with_message_sessions_wants_one(connection: Connection, make_queue: MakeQueue, queue: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        connection.receiver(make_queue(requires_session=True))
    assert caught.value.code is Code.SESSION_REQUIRED
    with pytest.raises(ConnectorError) as caught:
        connection.receiver(queue, session_id="one")
    assert caught.value.condition == "amqp:not-allowed"


def test_a_detached_receiver_says_why(server: EmubusServer, connection: Connection, queue: str) -> None:
    receiver = connection.receiver(queue)
    assert server.drop_links(queue) == 1
    with pytest.raises(ConnectorError) as caught:
        receiver.receive(1, 5)
    assert caught.value.condition == "amqp:link:detach-forced"
    assert connection.usable


def test_messages_that_are_settled_by_their_lock_tokens_are_forgotten(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b", b"c")
    receiver, management = connection.receiver(queue), connection.management(queue)
    received = receiver.receive(2, 5)
    tokens = [each.lock_token for each in received]
    pending = management.begin_disposition(tokens, "defered", properties_to_modify={"mark": "mine"})
    receiver.ask(1)
    management.end_disposition(pending)
    receiver.forget(received)
    with pytest.raises(ValueError, match="2 of 2 messages aren't held"):
        receiver.settle(received, "accepted")
    assert bodies_of(receiver.receive(1, 5)) == [b"c"]
    assert receiver.drain() == []
    receiver.close()
    deferred = management.receive_by_sequence_number([1, 2], delete=True)
    assert [(body_of(data), b"mine" in data) for _, data in deferred] == [(b"a", True), (b"b", True)]


def test_a_request_with_a_lock_that_is_over_settles_nothing(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b")
    receiver, management = connection.receiver(queue), connection.management(queue)
    received = receiver.receive(2, 5)
    receiver.settle(received[0], "accepted")
    with pytest.raises(ConnectorError) as refused:
        management.update_disposition([each.lock_token for each in received], "defered")
    assert refused.value.condition == "com.microsoft:message-lock-lost"
    receiver.settle(received[1], "released")
    assert bodies_of(receiver.receive(1, 5)) == [b"b"]
