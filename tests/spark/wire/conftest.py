"""A server for the wire's tests, a connection for each of them, and queues of their own."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Protocol

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.wire import Connection, Endpoint, SasKey
from emubus.testing import EmubusServer

from ..idle import close_idle
from .kit import endpoint_of

KEY = SasKey("RootManageSharedAccessKey", "SAS_KEY_VALUE")


class MakeQueue(Protocol):
    """Creates a queue of the test's own; returns its name."""

    def __call__(self, **options: Any) -> str: ...


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer() as running:
        yield running


@pytest.fixture
def endpoint(server: EmubusServer) -> Endpoint:
    return endpoint_of(server.amqp_port)


@pytest.fixture
def connection(endpoint: Endpoint) -> Iterator[Connection]:
    with Connection(endpoint, KEY) as opened:
        yield opened


@pytest.fixture
def make_queue(server: EmubusServer, request: pytest.FixtureRequest) -> MakeQueue:
    made: list[str] = []

    def make(**options: Any) -> str:
        name = f"q{len(made)}-{abs(hash(request.node.nodeid)) % 10**9}"
        made.append(name)
        server.create(QueueDescription(name, **options))
        return name

    return make


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    return make_queue()


@pytest.fixture(autouse=True)
def _no_idle_connections() -> Iterator[None]:
    yield
    close_idle()
