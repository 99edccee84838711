"""A server with entities of each kind, and clients of its REST messaging."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient

from emubus.testing import EmubusServer, QueueDescription, SubscriptionDescription, TopicDescription

from ..broker.namespace import _brokers_stop, brokers_stop
from .rest import Rest

__all__ = ["_brokers_stop", "brokers_stop", "bus", "rest", "sdk"]

ENTITIES = (
    QueueDescription("plain"),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("sessions", enable_partitioning=True, requires_session=True),
    QueueDescription("unique", enable_partitioning=True, requires_duplicate_detection=True),
    QueueDescription("forwarding", forward_to="plain"),
    TopicDescription("topic", enable_partitioning=True),
    SubscriptionDescription("topic", "one", max_delivery_count=2),
)


@pytest.fixture
def bus() -> Iterator[EmubusServer]:
    """In memory."""
    with EmubusServer(ENTITIES) as running:
        yield running


@pytest.fixture
def rest(bus: EmubusServer) -> Iterator[Rest]:
    """A client over HTTP."""
    with Rest(bus.http_port) as client:
        yield client


@pytest.fixture
def sdk(bus: EmubusServer) -> Iterator[ServiceBusClient]:
    """The Python SDK, over AMQP."""
    with ServiceBusClient.from_connection_string(bus.connection_string, retry_total=0) as client:
        yield client
