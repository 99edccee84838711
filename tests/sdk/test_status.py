"""The status of an entity: what is refused, to whom, and that it holds for links that are open."""

from __future__ import annotations

from dataclasses import replace

import pytest

from emubus.broker.model.descriptions import EntityStatus, QueueDescription
from emubus.testing import EmubusServer

from .client import FIRST_EMPTY_WAIT_MS, Receiver, Sdk
from .conftest import MakeQueue
from .driver import SdkError
from .features import partitioned_only

pytestmark = [pytest.mark.sdk, partitioned_only]

IDLE_MS = 300_000


def set_status(server: EmubusServer, queue: str, status: EntityStatus) -> None:
    entity = server.call(lambda: server.server.broker.namespace.entity(queue))
    assert entity is not None
    assert isinstance(entity.description, QueueDescription)
    server.update(replace(entity.description, status=status))


def refused_to_send(sdk: Sdk, queue: str) -> str:
    """The kind of error that sending ends with.

    A send that meets its link while that is being detached fails with an error of the SDK's own in Java; the next one
    opens a link and hears why it can't.
    """
    with pytest.raises(SdkError) as refused:
        sdk.send(queue, {"body": "refused"})
    if refused.value.kind == "other":
        with pytest.raises(SdkError) as refused:
            sdk.send(queue, {"body": "refused"})
    return refused.value.kind


def receive_twice(receiver: Receiver) -> None:
    """For .NET, in which a receive ends empty in whose midst the link is detached."""
    assert receiver.receive() == []
    receiver.receive()


def refused_to_receive(receiver: Receiver) -> str:
    with pytest.raises(SdkError) as refused:
        receive_twice(receiver)
    return refused.value.kind


def test_a_disabled_queue_takes_and_gives_nothing(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    set_status(server, queue, EntityStatus.DISABLED)
    assert refused_to_send(sdk, queue) == "disabled"
    assert refused_to_receive(sdk.receiver(queue)) == "disabled"
    set_status(server, queue, EntityStatus.ACTIVE)
    sdk.send(queue, {"body": "y"})
    received = sdk.receiver(queue, "receive-and-delete").receive_all(2)
    assert sorted(message.body or "" for message in received) == ["x", "y"]


def test_a_queue_disabled_for_senders_still_gives(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    set_status(server, queue, EntityStatus.SEND_DISABLED)
    assert refused_to_send(sdk, queue) == "disabled"
    receiver = sdk.receiver(queue)
    receiver.complete(receiver.receive_one())
    assert receiver.peek_until(lambda messages: messages == []) == []


def test_a_queue_disabled_for_receivers_still_takes(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    set_status(server, queue, EntityStatus.RECEIVE_DISABLED)
    sdk.send(queue, {"body": "x"})
    assert refused_to_receive(sdk.receiver(queue)) == "disabled"
    set_status(server, queue, EntityStatus.ACTIVE)
    assert sdk.receiver(queue).receive_one().body == "x"


def test_an_open_receiver_hears_that_its_queue_was_disabled(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver = sdk.receiver(queue)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    set_status(server, queue, EntityStatus.DISABLED)
    assert refused_to_receive(receiver) == "disabled"


def test_a_queue_deleted_under_its_links_is_not_found(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    receiver = sdk.receiver(queue)
    receiver.receive_one()
    server.delete(queue)
    assert refused_to_send(sdk, queue) == "not-found"
    assert refused_to_receive(receiver) == "not-found"


def test_a_queue_made_again_under_the_same_name_is_empty(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    sdk.send(queue, {"body": "x"})
    server.delete(queue)
    server.create_queue(QueueDescription(queue, enable_partitioning=True))
    sdk.reset()
    sdk.send(queue, {"body": "y"})
    assert [message.body for message in sdk.receiver(queue).peek_all()] == ["y"]


def test_a_queue_that_is_idle_for_too_long_is_deleted(sdk: Sdk, make_queue: MakeQueue, server: EmubusServer) -> None:
    queue = make_queue(auto_delete_on_idle_ms=IDLE_MS)
    sdk.send(queue, {"body": "x"})
    server.advance(IDLE_MS - 1_000)
    sdk.send(queue, {"body": "y"})
    server.advance(IDLE_MS - 1_000)
    assert len(sdk.receiver(queue).peek_all()) == 2
    sdk.reset()
    server.advance(IDLE_MS + 1_000)
    assert refused_to_send(sdk, queue) == "not-found"
