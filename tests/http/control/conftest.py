"""A running emubus for the tests of this folder, and clients of it."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from azure.servicebus import ServiceBusClient

from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

from .client import Http

PLAIN, PARTS, SESSIONS, TOPIC = "plain", "parts", "sessions", "topic"
QUEUES = (
    QueueDescription(PLAIN),
    QueueDescription(PARTS, enable_partitioning=True),
    QueueDescription(SESSIONS, enable_partitioning=True, requires_session=True),
)


@pytest.fixture
def server() -> Iterator[EmubusServer]:
    """In memory, with a queue of each kind."""
    with EmubusServer(QUEUES) as running:
        yield running


@pytest.fixture
def topic(server: EmubusServer) -> str:
    """A topic with the subscriptions `a` and `b`, which get everything."""
    server.create(TopicDescription(TOPIC, enable_partitioning=True))
    for name in "ab":
        server.create(SubscriptionDescription(TOPIC, name))
    return TOPIC


@pytest.fixture
def control(server: EmubusServer) -> Http:
    """The control API of the server."""
    return Http(server.http_port)


@pytest.fixture
def sdk(server: EmubusServer) -> Iterator[ServiceBusClient]:
    """The Python SDK; tries often, and waits little in between."""
    with sdk_of(server) as client:
        yield client


def sdk_of(server: EmubusServer, **options: object) -> ServiceBusClient:
    """A client of the Python SDK."""
    defaults = {"retry_total": 3, "retry_backoff_factor": 0.01, "retry_backoff_max": 0.05, "logging_enable": False}
    return ServiceBusClient.from_connection_string(server.connection_string, **{**defaults, **options})  # type: ignore[arg-type]
