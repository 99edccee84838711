"""The management node of an entity, against a real broker."""

from __future__ import annotations

from uuid import UUID

import pytest

from emubus.broker.api import OutageKind
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import Connection, Management, Modified, PartitionRange, management
from emubus.spark_connector.wire.requests import read_body, read_head
from emubus.testing import EmubusServer

from ...tracking import untracked
from .conftest import MakeQueue
from .kit import body_of, message, peeked


def put(connection: Connection, entity: str, *bodies: bytes, session_id: str | None = None) -> None:
    sender = connection.sender(entity, window=50)
    for body in bodies:
        sender.send(message(body, session_id=session_id), envelope=False, key=body)
    assert sorted(map(str, sender.flush())) == sorted(str((body, None)) for body in bodies)
    sender.close()


def test_an_empty_queue_has_nothing_to_peek(connection: Connection, queue: str) -> None:
    assert connection.management(queue).peek(1, 10) is None


def test_a_peek_gives_the_encoded_response_from_a_number_on(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b", b"c", b"d")
    node = connection.management(queue)
    data = node.peek(2, 2)
    assert isinstance(data, bytes)
    rows = read_body(data, read_head(data))["messages"]
    assert [body_of(row["message"]) for row in rows] == [b"b", b"c"]
    assert node.peek(5, 10) is None


def test_peeks_in_flight_are_answered_each_for_its_own(connection: Connection, queue: str) -> None:
    put(connection, queue, *[b"%d" % number for number in range(20)])
    node = connection.management(queue)
    pending = [node.begin_peek(number, 1) for number in range(1, 21)]
    assert [peeked(node.end(each)) for each in reversed(pending)] == [[b"%d" % number] for number in range(19, -1, -1)]


def test_a_response_can_be_taken_once(connection: Connection, queue: str) -> None:
    node = connection.management(queue)
    pending = node.begin_peek(1, 1)
    assert node.end(pending) is None
    with pytest.raises(ValueError, match="its response was taken before"):
        node.end(pending)


def test_a_peek_can_be_of_one_message_session(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    put(connection, queue, b"1", b"2", session_id="one")
    put(connection, queue, b"3", session_id="two")
    assert peeked(connection.management(queue).peek(1, 10, session_id="two")) == [b"3"]


def test_dead_letters_and_subscriptions_have_nodes_of_their_own(server: EmubusServer, connection: Connection) -> None:
    server.create(TopicDescription("topic"))
    server.create(SubscriptionDescription("topic", "sub"))
    put(connection, "topic", b"x")
    assert peeked(connection.management("topic/Subscriptions/sub").peek(1, 10)) == [b"x"]
    assert connection.management("topic/Subscriptions/sub/$DeadLetterQueue").peek(1, 10) is None


def test_a_node_is_kept_for_the_next_time(connection: Connection, queue: str) -> None:
    assert connection.management(queue) is connection.management(queue)


def test_a_node_whose_links_were_detached_is_made_anew(
    server: EmubusServer, connection: Connection, queue: str
) -> None:
    node = connection.management(queue)
    assert server.drop_links(queue) == 2
    with pytest.raises(ConnectorError) as caught:
        node.peek(1, 1)
    assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
    assert caught.value.condition == "amqp:link:detach-forced"
    assert connection.usable
    assert connection.management(queue).peek(1, 1) is None


def test_partitions_tell_where_they_begin_and_end(connection: Connection, queue: str) -> None:
    node = connection.management(queue)
    assert node.partitions() == [PartitionRange(0, 1, 1, 0)]
    put(connection, queue, b"a", b"b", b"c")
    assert node.delete_before(0, 3, 1) == 1
    assert node.partitions() == [PartitionRange(0, 2, 4, 2)]


def test_partitions_that_are_out_are_left_out_and_named(connection: Connection, server: EmubusServer) -> None:
    server.create(QueueDescription("parted", enable_partitioning=True))
    node = connection.management("parted")
    found = node.partitions()
    assert found is not None
    assert [each.partition_id for each in found] == list(range(len(found)))
    assert [each.next_sequence_number >> 48 for each in found] == [each.partition_id for each in found]
    server.begin_outage([1], OutageKind.DOWN)
    try:
        assert node.partitions() == [each for each in found if each.partition_id != 1]
        assert node.unavailable_partitions == (1,)
    finally:
        server.end_outage([1])


def test_what_a_service_does_not_know_is_none(
    connection: Connection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = connection.management(queue)
    for name in ("GET_PARTITIONS", "DELETE_BEFORE", "BATCH_DELETE"):
        monkeypatch.setattr(management, name, "com.example:unknown")
    assert (node.partitions(), node.delete_before(0, 1, 1), node.batch_delete(1, 0)) == (None, None, None)


def test_numbers_are_listed(connection: Connection, queue: str, monkeypatch: pytest.MonkeyPatch) -> None:
    put(connection, queue, b"a", b"b", b"c")
    node = connection.management(queue)
    assert (node.numbers(0, 0, 2), node.numbers(0, 3, 9), node.numbers(0, 4, 9)) == ([1, 2], [3], [])
    monkeypatch.setattr(management, "LIST_NUMBERS", "com.example:unknown")
    assert node.numbers(0, 0, 9) is None


def test_messages_are_deleted_by_their_numbers(
    connection: Connection, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(connection, queue, b"a", b"b", b"c")
    node = connection.management(queue)
    assert (node.delete_by_number([1, 3, 77]), node.delete_by_number([1, 3])) == (2, 0)
    assert peeked(node.peek(1, 10)) == [b"b"]
    monkeypatch.setattr(management, "DELETE_BY_NUMBER", "com.example:unknown")
    assert node.delete_by_number([2]) is None


def test_messages_below_a_number_are_deleted(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b", b"c")
    node = connection.management(queue)
    assert (node.delete_before(0, 3, 100), node.delete_before(0, 3, 100)) == (2, 0)
    assert peeked(node.peek(1, 10)) == [b"c"]


def test_messages_before_an_instant_are_deleted(server: EmubusServer, connection: Connection, queue: str) -> None:
    node = connection.management(queue)
    assert node.batch_delete(100, 253402300799999) == 0
    put(connection, queue, b"a", b"b")
    server.advance(1_000)
    cutoff = server.call(server.clock.now_ms)
    put(connection, queue, b"c")
    assert (node.batch_delete(1, cutoff), node.batch_delete(100, cutoff)) == (1, 1)
    assert peeked(node.peek(1, 10)) == [b"c"]


def defer(connection: Connection, queue: str) -> None:
    receiver = connection.receiver(queue)
    received = receiver.receive(2, 5)
    receiver.settle(received, Modified(undeliverable_here=True))
    receiver.close()


def test_deferred_messages_are_received_by_their_numbers_and_completed(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b")
    defer(connection, queue)
    node = connection.management(queue)
    rows = node.receive_by_sequence_number([1, 2], delete=False)
    assert [body_of(data) for _, data in rows] == [b"a", b"b"]
    tokens = [token for token, _ in rows if token is not None]
    assert len(set(tokens)) == 2
    assert all(isinstance(token, UUID) for token in tokens)
    node.update_disposition(tokens[:1], "completed")
    node.update_disposition(tokens[1:], "suspended", deadletter_reason="no use", deadletter_description=None)
    assert node.peek(1, 10) is None
    assert peeked(connection.management(f"{queue}/$DeadLetterQueue").peek(1, 10)) == [b"b"]


def test_deferred_messages_are_taken_away_by_their_numbers(connection: Connection, queue: str) -> None:
    put(connection, queue, b"a", b"b")
    defer(connection, queue)
    node = connection.management(queue)
    rows = node.receive_by_sequence_number([2], delete=True)
    assert [body_of(data) for _, data in rows] == [b"b"]
    assert peeked(node.peek(1, 10)) == [b"a"]


def test_a_deferred_message_that_is_not_there_is_reported_by_its_condition(connection: Connection, queue: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        connection.management(queue).receive_by_sequence_number([7], delete=False)
    assert (caught.value.code, caught.value.condition) == (Code.REFUSED, "com.microsoft:message-not-found")


def test_a_lock_token_that_nobody_gave_is_refused(connection: Connection, queue: str) -> None:
    with pytest.raises(ConnectorError) as caught:
        connection.management(queue).update_disposition([UUID(int=5)], "completed")
    assert (caught.value.code, caught.value.condition) == (Code.REFUSED, "com.microsoft:message-lock-lost")


def test_message_sessions_are_listed_page_by_page(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    assert connection.management(queue).message_sessions() == []
    names = [f"session {number:03}" for number in range(230)]
    sender = connection.sender(queue, window=100)
    for name in names:
        sender.send(message(b"x", session_id=name), envelope=False, key=name)
    sender.flush()
    assert sorted(connection.management(queue).message_sessions()) == names


def test_any_operation_can_be_asked_and_its_status_read(connection: Connection, queue: str) -> None:
    response = connection.management(queue).request("com.example:nothing", {"a": [1, "two", None]})
    assert (response.status, response.condition) == (501, "amqp:not-implemented")
    assert untracked(response.description) == "Invalid command 'com.example:nothing'."


def test_an_outage_is_retriable(server: EmubusServer, connection: Connection, queue: str) -> None:
    node: Management = connection.management(queue)
    stores = range(len(server.server.broker.namespace.workers))
    server.begin_outage(stores, OutageKind.DOWN)
    try:
        with pytest.raises(ConnectorError) as caught:
            node.delete_before(0, 1, 1)
    finally:
        server.end_outage(stores)
    assert (caught.value.code, caught.value.retriable) == (Code.THROTTLED, True)


def test_a_batch_cannot_be_deleted_from_a_partitioned_queue(connection: Connection, make_queue: MakeQueue) -> None:
    assert connection.management(make_queue(enable_partitioning=True)).batch_delete(1, 0) is None
