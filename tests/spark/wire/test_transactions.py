"""Local transactions, against a real broker."""

from __future__ import annotations

import pytest

from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.wire import Connection
from emubus.testing import EmubusServer

from .kit import envelope, message, peeked


def bodies(connection: Connection, queue: str) -> list[bytes]:
    return peeked(connection.management(queue).peek(1, 1000))


def test_what_was_sent_in_a_transaction_is_there_when_it_is_committed(connection: Connection, queue: str) -> None:
    sender = connection.sender(queue, window=10)
    transaction = connection.transaction()
    transaction.declare()
    sender.send(envelope(message(b"a"), message(b"b")), envelope=True, key=1, transaction=transaction)
    sender.send(message(b"c"), envelope=False, key=2, transaction=transaction)
    assert dict(sender.flush()) == {1: None, 2: None}
    assert bodies(connection, queue) == []
    transaction.discharge(True)
    assert bodies(connection, queue) == [b"a", b"b", b"c"]


def test_what_was_sent_in_a_transaction_is_not_there_when_it_is_rolled_back(connection: Connection, queue: str) -> None:
    sender = connection.sender(queue, window=10)
    transaction = connection.transaction()
    transaction.declare()
    sender.send(message(b"a"), envelope=False, key=1, transaction=transaction)
    assert dict(sender.flush()) == {1: None}
    transaction.discharge(False)
    sender.send(message(b"b"), envelope=False, key=2)
    assert dict(sender.flush()) == {2: None}
    assert bodies(connection, queue) == [b"b"]


def test_a_batch_of_many_frames_can_be_in_a_transaction(connection: Connection, queue: str) -> None:
    sender = connection.sender(queue, window=10)
    transaction = connection.transaction()
    transaction.declare()
    parts = [bytes((number,)) * 20_000 for number in range(10)]
    sender.send(envelope(*map(message, parts)), envelope=True, key=1, transaction=transaction)
    assert dict(sender.flush()) == {1: None}
    transaction.discharge(True)
    assert bodies(connection, queue) == parts


def test_a_refusal_within_a_transaction_is_the_outcome(connection: Connection, queue: str) -> None:
    sender = connection.sender(queue, window=10)
    transaction = connection.transaction()
    transaction.declare()
    sender.send(message(bytes(300_000)), envelope=False, key="large", transaction=transaction)
    ((key, error),) = sender.flush()
    assert (key, error is not None) == ("large", True)
    assert error is not None
    assert error.condition == "amqp:link:message-size-exceeded"
    transaction.discharge(False)


def test_a_transaction_that_took_too_long_is_not_committed(
    server: EmubusServer, connection: Connection, queue: str
) -> None:
    sender = connection.sender(queue, window=10)
    transaction = connection.transaction()
    transaction.declare()
    sender.send(message(b"a"), envelope=False, key=1, transaction=transaction)
    sender.flush()
    server.advance(121_000)
    with pytest.raises(ConnectorError) as caught:
        transaction.discharge(True)
    assert caught.value.retriable
    assert (caught.value.condition or "").startswith("amqp:transaction:")
    assert bodies(connection, queue) == []


def test_a_transaction_is_used_between_declare_and_discharge_only(connection: Connection) -> None:
    transaction = connection.transaction()
    with pytest.raises(ValueError, match="not declared"):
        transaction.discharge(True)
    transaction.declare()
    with pytest.raises(ValueError, match="declared already"):
        transaction.declare()
    assert not connection.is_idle()
    transaction.discharge(True)
    assert connection.is_idle()
    with pytest.raises(ValueError, match="not declared, or over"):
        transaction.id  # noqa: B018


def test_transactions_follow_each_other_on_one_connection(connection: Connection, queue: str) -> None:
    sender = connection.sender(queue, window=1)
    for number in range(3):
        transaction = connection.transaction()
        transaction.declare()
        sender.send(message(b"%d" % number), envelope=False, key=number, transaction=transaction)
        sender.flush()
        transaction.discharge(number != 1)
    assert bodies(connection, queue) == [b"0", b"2"]
