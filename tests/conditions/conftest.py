"""A running emubus for the tests of this folder, and clients of it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from azure.servicebus import ServiceBusClient
from azure.servicebus.management import ServiceBusAdministrationClient

from emubus.testing import Description, EmubusServer, QueueDescription, SubscriptionDescription, TopicDescription

QUEUE, PARTS, SESSIONS, TOPIC = "orders", "parts", "sessions", "prices"
UNIQUE = "unique"

Connect = Callable[..., ServiceBusClient]
Administrations = Callable[..., ServiceBusAdministrationClient]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    entities: tuple[Description, ...] = (
        QueueDescription(QUEUE),
        QueueDescription(UNIQUE, requires_duplicate_detection=True),
        QueueDescription(PARTS, enable_partitioning=True),
        QueueDescription(SESSIONS, requires_session=True),
        TopicDescription(TOPIC),
        *(SubscriptionDescription(TOPIC, name) for name in "abc"),
    )
    with EmubusServer(entities, tls_dir=tmp_path_factory.mktemp("tls")) as server:
        yield server


@pytest.fixture
def server(running: EmubusServer) -> Iterator[EmubusServer]:
    """Empty, with nothing on, and a clock that goes on."""
    running.reset()
    yield running
    running.reset()


@pytest.fixture
def administrations(server: EmubusServer) -> Iterator[Administrations]:
    """Makes administration clients of the Python SDK, which are closed at the end."""
    clients: list[ServiceBusAdministrationClient] = []

    def connected(**options: float) -> ServiceBusAdministrationClient:
        text = server.tls_connection_string.replace(f":{server.amqp_port};", f":{server.http_port};")
        trust = str(server.ca_file)
        clients.append(
            ServiceBusAdministrationClient.from_connection_string(text, connection_verify=trust, **options)  # type: ignore[arg-type]
        )
        return clients[-1]

    yield connected
    for client in clients:
        client.close()


@pytest.fixture
def administration(administrations: Administrations) -> ServiceBusAdministrationClient:
    """One that tries once."""
    return administrations(retry_total=0)


@pytest.fixture
def connect(server: EmubusServer) -> Iterator[Connect]:
    """Makes clients of the Python SDK, which are closed at the end. Without arguments they try once."""
    clients: list[ServiceBusClient] = []

    def connected(**options: object) -> ServiceBusClient:
        given = {"retry_total": 0, **options}
        client = ServiceBusClient.from_connection_string(server.connection_string, **given)  # type: ignore[arg-type]
        clients.append(client)
        return client

    yield connected
    server.end_conditions()
    for client in clients:
        client.close()
