"""Sending messages and batches, against a real broker."""

from __future__ import annotations

import pytest

from emubus.broker.errors import Condition
from emubus.broker.model.descriptions import EntityStatus, QueueDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.wire import Connection, Sender, sender
from emubus.testing import EmubusServer

from .conftest import KEY, MakeQueue
from .kit import Proxy, endpoint_of, envelope, message, peeked


def bodies(connection: Connection, queue: str) -> list[bytes]:
    """All messages of a new queue; a peek returns 250 at most."""
    management, found = connection.management(queue), list[bytes]()
    while page := management.peek(1 + len(found), 1000):
        found += peeked(page)
    return found


def codes(outcomes: list[tuple[object, ConnectorError | None]]) -> dict[object, Code | None]:
    return {key: None if error is None else error.code for key, error in outcomes}


def test_messages_are_confirmed_each_by_its_key_and_stay_in_order(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=1000)
    for number in range(500):
        opened.send(message(b"%d" % number), envelope=False, key=("row", number))
    assert codes(opened.flush()) == {("row", number): None for number in range(500)}
    assert bodies(connection, queue) == [b"%d" % number for number in range(500)]


def test_a_batch_is_one_delivery_of_many_messages(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=5)
    opened.send(envelope(*[message(b"%d" % number) for number in range(100)]), envelope=True, key="batch")
    opened.send(message(b"single"), envelope=False, key="single")
    assert codes(opened.flush()) == {"batch": None, "single": None}
    assert bodies(connection, queue) == [*[b"%d" % number for number in range(100)], b"single"]


def test_a_batch_of_many_frames_stays_a_batch(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue()
    opened = connection.sender(queue, window=4)
    parts = [bytes((number,)) * 20_000 for number in range(12)]
    for key in range(8):
        opened.send(memoryview(envelope(*map(message, parts))), envelope=True, key=key)
    assert codes(opened.flush()) == dict.fromkeys(range(8))
    ranges = connection.management(queue).partitions()
    assert ranges is not None
    assert ranges[0].message_count == 96
    assert peeked(connection.management(queue).peek(85, 12)) == parts


def test_no_more_than_the_window_is_unconfirmed(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=3)
    most = 0
    for number in range(50):
        opened.send(message(b"x"), envelope=False, key=number)
        most = max(most, len(opened._keys))
    assert most == 3
    assert codes(opened.flush()) == dict.fromkeys(range(50))
    assert len(opened._keys) == 0


def test_a_window_of_one_sends_one_after_the_other(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=1)
    for number in range(5):
        opened.send(message(b"%d" % number), envelope=False, key=number)
    assert [key for key, _ in opened.flush()] == [0, 1, 2, 3, 4]


def test_waiting_for_an_outcome_ends_with_the_first(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=10)
    assert opened.outcomes(wait=True) == []
    opened.send(message(b"x"), envelope=False, key=1)
    assert opened.outcomes(wait=True) == [(1, None)]
    assert opened.outcomes(wait=True) == opened.outcomes() == opened.flush() == []


def test_the_window_must_be_a_number_from_one_on(connection: Connection, queue: str) -> None:
    with pytest.raises(ValueError, match="window is 0"):
        connection.sender(queue, window=0)


def test_limits_are_those_of_the_attach(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=1)
    assert (opened.message_bytes_max, opened.batch_bytes_max) == (262_144, 262_144)


@pytest.mark.parametrize(
    ("said", "properties", "limits"),
    [
        (0, {}, (sender.MESSAGE_BYTES_MAX_DEFAULT, sender.BATCH_BYTES_MAX_DEFAULT)),
        (100 << 20, {}, (100 << 20, sender.BATCH_BYTES_MAX)),
        (100 << 20, {"com.microsoft:max-message-batch-size": 2 << 20}, (100 << 20, 2 << 20)),
        (5000, {}, (5000, 5000)),
    ],
)
def test_limits_follow_what_the_service_says(said: int, properties: dict[str, int], limits: tuple[int, int]) -> None:
    assert sender.limits_of(said, properties) == limits


def test_a_message_that_is_too_large_is_refused_and_the_others_are_not(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=10)
    opened.send(message(b"a"), envelope=False, key="a")
    opened.send(message(bytes(300_000)), envelope=False, key="large")
    opened.send(message(b"b"), envelope=False, key="b")
    assert codes(opened.flush()) == {"a": None, "large": Code.MESSAGE_TOO_LARGE, "b": None}


def test_a_batch_that_is_too_large_is_refused_and_the_others_are_not(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=10)
    small, large = (envelope(message(bytes(size)), message(b"end")) for size in (10, 262_144))
    for key, data in {"a": small, "large": large, "b": small}.items():
        opened.send(data, envelope=True, key=key)
    outcomes = opened.flush()
    assert codes(outcomes) == {"a": None, "large": Code.MESSAGE_TOO_LARGE, "b": None}
    assert str(dict(outcomes)["large"]) == (
        f"[SERVICEBUS_MESSAGE_TOO_LARGE] {queue}: a batch of {len(large)} bytes exceeds the limit of 262144 bytes "
        "(amqp:link:message-size-exceeded): make the message smaller, or the entity's limit larger"
    )
    assert bodies(connection, queue) == [bytes(10), b"end"] * 2


def test_the_largest_message_is_sent_and_one_byte_more_is_refused(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=10)
    largest = message(bytes(262_144 - len(message(bytes(262_000))) + 262_000))
    assert len(largest) == opened.message_bytes_max
    opened.send(largest, envelope=False, key="largest")
    opened.send(largest + b"x", envelope=False, key="larger")
    assert codes(opened.flush()) == {"largest": None, "larger": Code.MESSAGE_TOO_LARGE}


@pytest.mark.parametrize(
    ("keys", "known"), [(["only"], {"only": Code.MESSAGE_TOO_LARGE}), (["one", "of", "several"], {})]
)
def test_a_link_closed_for_the_size_of_a_message_names_it_when_it_is_the_only_one(
    server: EmubusServer, connection: Connection, queue: str, keys: list[str], known: dict[object, Code]
) -> None:
    opened = connection.sender(queue, window=10)
    assert server.drop_links(queue, Condition.MESSAGE_SIZE_EXCEEDED) == 1
    for key in keys:
        opened.send(message(b"x"), envelope=False, key=key)
    while opened.lost is None:
        connection.refresh()
    assert codes(opened.outcomes()) == known
    with pytest.raises(ConnectorError) as caught:
        opened.send(message(b"y"), envelope=False, key="behind")
    assert (caught.value.code, caught.value.condition, caught.value.retriable) == (
        Code.MESSAGE_TOO_LARGE,
        "amqp:link:message-size-exceeded",
        True,
    )
    assert connection.usable


def test_the_refusal_of_a_message_without_session_id_names_it(connection: Connection, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    opened = connection.sender(queue, window=1)
    opened.send(message(b"a"), envelope=False, key="a")
    ((_, error),) = opened.flush()
    assert error is not None
    assert (error.code, error.condition) == (Code.SESSION_REQUIRED, "amqp:not-allowed")
    assert error.text.startswith(f"{queue}: ")


def test_a_disabled_entity_is_refused_at_the_attach(server: EmubusServer, connection: Connection, queue: str) -> None:
    server.update(QueueDescription(queue, status=EntityStatus.SEND_DISABLED))
    with pytest.raises(ConnectorError) as caught:
        connection.sender(queue, window=1)
    assert caught.value.code is Code.ENTITY_DISABLED


def sent_before_the_loss(opened: Sender) -> dict[object, Code | None]:
    opened.send(message(b"a"), envelope=False, key="known")
    return codes(opened.outcomes(wait=True))


def send_for_ever(opened: Sender) -> None:
    while True:
        opened.send(message(b"b"), envelope=False, key="unknown")
        opened.flush()


def test_a_detached_link_is_raised_and_the_connection_stays(
    server: EmubusServer, connection: Connection, queue: str
) -> None:
    opened = connection.sender(queue, window=10)
    assert sent_before_the_loss(opened) == {"known": None}
    assert server.drop_links(queue) == 1
    with pytest.raises(ConnectorError) as caught:
        send_for_ever(opened)
    assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
    assert opened.outcomes() == []
    assert connection.usable
    opened.close()
    assert connection.is_idle()
    again = connection.sender(queue, window=10)
    again.send(message(b"c"), envelope=False, key="c")
    assert codes(again.flush()) == {"c": None}


def test_what_is_known_before_a_loss_is_reported_after_it(server: EmubusServer, queue: str) -> None:
    with Proxy(server.amqp_port) as proxy:
        connection = Connection(endpoint_of(proxy.port), KEY)
        opened = connection.sender(queue, window=10)
        assert sent_before_the_loss(opened) == {"known": None}
        proxy.is_mute = True
        opened.send(message(b"b"), envelope=False, key="unknown")
        proxy.drop()
        with pytest.raises(ConnectorError) as caught:
            opened.flush()
        assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
        assert f"localhost:{proxy.port}" in caught.value.text
        assert opened.outcomes() == []
        with pytest.raises(ConnectorError):
            opened.send(message(b"c"), envelope=False, key="never")
        opened.close()
        connection.close()


def test_an_outcome_that_does_not_come_in_time_is_unavailable(server: EmubusServer, queue: str) -> None:
    with Proxy(server.amqp_port) as proxy:
        connection = Connection(endpoint_of(proxy.port), KEY)
        opened = connection.sender(queue, window=1)
        opened._timeout_s = 0.3  # not before: a busy machine takes longer to open the link
        proxy.is_mute = True
        opened.send(message(b"a"), envelope=False, key="a")
        with pytest.raises(ConnectorError, match="has not answered in time") as caught:
            opened.send(message(b"b"), envelope=False, key="b")
        assert (caught.value.code, caught.value.retriable) == (Code.UNAVAILABLE, True)
        connection.close()


def test_a_closed_sender_is_not_used_again(connection: Connection, queue: str) -> None:
    opened = connection.sender(queue, window=1)
    opened.close()
    opened.close()
    with pytest.raises(ConnectorError, match=f"the link to {queue} at localhost:.* is closed"):
        opened.send(message(b"a"), envelope=False, key=1)
