"""Connections: idle for long, killed in the middle, and many at a time."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from emubus.testing import EmubusServer

from .client import FIRST_EMPTY_WAIT_MS, Sdk
from .conftest import MakeQueue
from .driver import DriverProcess
from .features import CLIENTS_WITH, Feature, only_clients, partitioned_only

pytestmark = pytest.mark.sdk

LOCK_MS = 30_000
MANY = 10


@partitioned_only
def test_a_killed_client_loses_its_messages_after_their_locks_only(
    sdk: Sdk, make_queue: MakeQueue, server: EmubusServer, start: Callable[[str], DriverProcess]
) -> None:
    queue = make_queue(lock_duration_ms=LOCK_MS)
    sdk.send(queue, {"body": "x"})
    driver = start(sdk.name)
    taken = Sdk(driver).receiver(queue).receive_one()
    driver.kill()
    receiver = sdk.receiver(queue)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    server.advance(LOCK_MS + 1)
    again = receiver.receive_one()
    assert (again.body, again.sequence_number, again.delivery_count) == ("x", taken.sequence_number, 1)


@partitioned_only
def test_an_idle_client_is_still_connected(sdk: Sdk, queue: str, server: EmubusServer) -> None:
    receiver = sdk.receiver(queue)
    assert receiver.receive(1, FIRST_EMPTY_WAIT_MS) == []
    for _ in range(12):
        server.advance(15_000)
    sdk.send(queue, {"body": "x"})
    message = receiver.receive_one()
    assert (message.body, message.delivery_count) == ("x", 0)


@pytest.mark.timeout(300)  # ten Java programs start on a machine that is busy with other tests
@only_clients("javascript", "java")
@partitioned_only
def test_ten_connections_work_side_by_side(sdk: Sdk, queue: str, start: Callable[[str], DriverProcess]) -> None:
    clients = [Sdk(start(sdk.name)) for _ in range(MANY)]
    for number, client in enumerate(clients):
        client.send(queue, {"body": f"{number}"})
    receivers = [client.receiver(queue) for client in clients]
    received = [receiver.receive_one() for receiver in receivers]
    assert sorted(message.body or "" for message in received) == [f"{number}" for number in range(MANY)]
    for receiver, message in zip(receivers, received, strict=True):
        receiver.complete(message)
    assert receivers[0].peek_until(lambda messages: messages == []) == []


def test_a_client_has_the_features_that_it_is_tested_for(sdk: Sdk) -> None:
    features: list[Feature] = [feature for feature, names in CLIENTS_WITH.items() if sdk.name in names]
    assert sorted(sdk.features) == sorted(features)
