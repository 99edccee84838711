"""Transactions: all of it or nothing, with one key where there are partitions."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from emubus.testing import EmubusServer

from .client import FIRST_EMPTY_WAIT_MS, Message, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import clients_with, partitioned_only, unpartitioned_only

pytestmark = [pytest.mark.sdk, clients_with("transactions")]

TIMEOUT_MS = 120_000


@pytest.fixture
def across(sdk: Sdk) -> Iterator[Sdk]:
    """The SDK with transactions across entities."""
    sdk.reset(cross_entity=True)
    yield sdk
    sdk.reset()


def keyed(body: str, key: str = "the key") -> dict[str, str]:
    return {"body": body, "partition_key": key}


def bodies(messages: list[Message]) -> list[str]:
    return sorted(message.body or "" for message in messages)


def send_in_transaction(sdk: Sdk, *sends: tuple[str, dict[str, str]]) -> None:
    """Send each message to its queue in one transaction, and commit it."""
    transaction = sdk.begin_transaction(sends[0][0])
    for queue, message in sends:
        sdk.send(queue, message, transaction=transaction)
    sdk.end_transaction(transaction, commit=True)


def refused_in_transaction(sdk: Sdk, *sends: tuple[str, dict[str, str]]) -> None:
    """Sending these in one transaction fails, at the latest when it is committed."""
    with pytest.raises(SdkError) as refused:
        send_in_transaction(sdk, *sends)
    assert refused.value.kind in ("not-allowed", "transaction")


def test_sends_are_seen_after_the_commit(sdk: Sdk, queue: str) -> None:
    transaction = sdk.begin_transaction(queue)
    sdk.send(queue, keyed("0"), keyed("1"), transaction=transaction)
    receiver = sdk.receiver(queue)
    assert receiver.peek_all() == []
    sdk.end_transaction(transaction, commit=True)
    assert [message.body for message in receiver.receive_all(2)] == ["0", "1"]


def test_sends_that_are_rolled_back_never_were(sdk: Sdk, queue: str) -> None:
    transaction = sdk.begin_transaction(queue)
    sdk.send(queue, keyed("0"), keyed("1"), transaction=transaction)
    sdk.end_transaction(transaction, commit=False)
    assert sdk.receiver(queue).peek_all() == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "roll back"])
def test_completing_and_sending_are_one(sdk: Sdk, queue: str, commit: bool) -> None:
    sdk.send(queue, keyed("in"))
    receiver = sdk.receiver(queue)
    message = receiver.receive_one()
    transaction = sdk.begin_transaction(receiver)
    receiver.complete(message, transaction=transaction)
    sdk.send(queue, keyed("out"), transaction=transaction)
    assert bodies(receiver.peek_all()) == ["in"]
    sdk.end_transaction(transaction, commit=commit)
    assert bodies(receiver.peek_all()) == (["out"] if commit else ["in"])


@partitioned_only
def test_a_message_whose_completion_is_rolled_back_stays_locked(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue = make_queue(lock_duration_ms=30_000)
    sdk.send(queue, keyed("in"))
    receiver = sdk.receiver(queue)
    transaction = sdk.begin_transaction(receiver)
    receiver.complete(receiver.receive_one(), transaction=transaction)
    sdk.end_transaction(transaction, commit=False)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    server.advance(30_001)
    again = receiver.receive_one()
    assert (again.body, again.delivery_count) == ("in", 1)


@partitioned_only
def test_a_receiver_goes_on_after_a_rollback_and_a_commit(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer
) -> None:
    queue = make_queue(lock_duration_ms=30_000)
    receiver = sdk.receiver(queue)
    for commit in (False, True, None):
        sdk.send(queue, keyed(f"{commit}"))
        message = receiver.receive_one()
        if commit is None:
            receiver.complete(message)
            continue
        transaction = sdk.begin_transaction(receiver)
        receiver.complete(message, transaction=transaction)
        sdk.end_transaction(transaction, commit=commit)
    assert bodies(receiver.peek_all()) == ["False"]
    server.advance(30_001)
    again = receiver.receive_one()
    assert (again.body, again.delivery_count) == ("False", 1)
    receiver.complete(again)
    assert receiver.peek_all() == []


@partitioned_only
def test_messages_are_scheduled_in_a_transaction(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    at = server.clock.now_ms() + 60_000
    receiver = sdk.receiver(queue)
    for commit in (False, True):
        transaction = sdk.begin_transaction(queue)
        sdk.schedule(queue, at, keyed(f"{commit}"), transaction=transaction)
        sdk.end_transaction(transaction, commit=commit)
    assert [(message.body, message.state) for message in receiver.peek_all()] == [("True", "scheduled")]


@partitioned_only
def test_p26_a_transactional_message_without_a_key_is_refused(sdk: Sdk, queue: str) -> None:
    refused_in_transaction(sdk, (queue, {"body": "no key"}))
    assert sdk.receiver(queue).peek_all() == []


@partitioned_only
def test_p27_messages_of_one_transaction_with_two_keys_are_refused(sdk: Sdk, queue: str) -> None:
    refused_in_transaction(sdk, (queue, keyed("0", "key 0")), (queue, keyed("1", "key 1")))
    assert sdk.receiver(queue).peek_all() == []


@partitioned_only
def test_p28_two_sessions_in_one_transaction_are_refused(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    messages = [{"body": session_id, "session_id": session_id} for session_id in ("a", "b")]
    refused_in_transaction(sdk, *[(queue, message) for message in messages])
    assert sdk.accept_session(queue, "a").peek_all() == []


@unpartitioned_only
def test_p28_several_sessions_are_fine_without_partitions(sdk: Sdk, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True)
    transaction = sdk.begin_transaction(queue)
    for session_id in ("a", "b"):
        sdk.send(queue, {"body": session_id, "session_id": session_id}, transaction=transaction)
    sdk.end_transaction(transaction, commit=True)
    assert [sdk.accept_session(queue, name).receive_one().body for name in ("a", "b")] == ["a", "b"]


@partitioned_only
def test_two_entities_in_a_plain_transaction_are_refused(sdk: Sdk, make_queue: MakeQueue) -> None:
    one, two = make_queue(), make_queue()
    refused_in_transaction(sdk, (one, keyed("0")), (two, keyed("1")))
    sdk.reset()
    assert sdk.receiver(one).peek_all() == []
    assert sdk.receiver(two).peek_all() == []


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "roll back"])
def test_a_transaction_across_entities_is_one(across: Sdk, make_queue: MakeQueue, commit: bool) -> None:
    source, target = make_queue(), make_queue()
    across.send(source, keyed("in"))
    across.reset(cross_entity=True)  # the first link of the client decides about the entity to go through
    receiver = across.receiver(source)
    message = receiver.receive_one()
    transaction = across.begin_transaction(receiver)
    receiver.complete(message, transaction=transaction)
    across.send(target, keyed("out"), transaction=transaction)
    across.end_transaction(transaction, commit=commit)
    across.reset()
    seen = [bodies(across.receiver(queue).peek_all()) for queue in (source, target)]
    assert seen == ([[], ["out"]] if commit else [["in"], []])


@partitioned_only
def test_a_second_receiver_across_entities_is_refused(across: Sdk, make_queue: MakeQueue) -> None:
    one, two = make_queue(), make_queue()
    assert across.receiver(one).receive(1, FIRST_EMPTY_WAIT_MS) == []
    with pytest.raises(SdkError) as refused:
        across.receiver(two).receive()
    assert refused.value.kind == "not-allowed"


@partitioned_only
def test_a_transaction_that_takes_too_long_is_rolled_back(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    transaction = sdk.begin_transaction(queue)
    sdk.send(queue, keyed("0"), transaction=transaction)
    server.advance(TIMEOUT_MS + 1)
    with pytest.raises(SdkError):
        sdk.end_transaction(transaction, commit=True)
    assert sdk.receiver(queue).peek_all() == []


@partitioned_only
def test_a_transaction_of_a_closed_client_is_rolled_back(sdk: Sdk, queue: str) -> None:
    sdk.send(queue, keyed("in"))
    receiver = sdk.receiver(queue)
    transaction = sdk.begin_transaction(receiver)
    receiver.complete(receiver.receive_one(), transaction=transaction)
    sdk.send(queue, keyed("out"), transaction=transaction)
    sdk.reset()
    assert bodies(sdk.receiver(queue).peek_until(lambda messages: len(messages) == 1)) == ["in"]
