"""Fixtures of the connector's tests: one server and one Spark session for the whole run, and a queue for each test.

Knows how they are started and how long they live. Tests that use the fixture `spark` run in one process (see the
`conftest.py` above this one). Most tests don't need it: they use readers and writers as plain objects.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

import pytest
from azure.servicebus import ServiceBusClient, ServiceBusMessage

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from ..building import PrepareError
from ..scheduling import needs_spark
from ..toolchains import BRIEF_JAVA
from .home import make_spark_home
from .prepare import prepare_spark40

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SPARK_CONF = {
    "spark.driver.memory": "1g",
    "spark.driver.host": "localhost",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.extraJavaOptions": " ".join(BRIEF_JAVA),
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}

_prepare_errors: list[PrepareError] = []


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark tests that use Spark as slow; refuse those that the scheduler would not know for such."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            if not needs_spark(item.nodeid.partition("::")[0]):
                raise pytest.UsageError(f"{item.nodeid} uses the fixture spark: declare it as spark: SparkSession")
            item.add_marker(pytest.mark.slow)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the environment with Spark 4.0 here, where no test's time limit runs."""
    if session.config.option.collectonly:
        return  # no test is run
    if any("spark40" in getattr(item, "fixturenames", ()) for item in session.items):
        try:
            prepare_spark40()
        except PrepareError as error:
            _prepare_errors.append(error)


class MakeQueue(Protocol):
    """Creates a queue of its own for the test; returns its name."""

    def __call__(self, **options: Any) -> str: ...


class Send(Protocol):
    """Sends messages to a queue or topic by the official SDK, in order."""

    def __call__(self, entity: str, *messages: ServiceBusMessage | str | bytes) -> None: ...


@pytest.fixture(scope="session")
def server() -> Iterator[EmubusServer]:
    """The server under test."""
    with EmubusServer() as running:
        yield running


@pytest.fixture(scope="session")
def client(server: EmubusServer) -> Iterator[ServiceBusClient]:
    """The official SDK, connected to the server."""
    with ServiceBusClient.from_connection_string(server.connection_string) as connected:
        yield connected


@pytest.fixture
def make_queue(server: EmubusServer, request: pytest.FixtureRequest) -> MakeQueue:
    """Creates queues for this test only."""
    names: list[str] = []

    def make(**options: Any) -> str:
        names.append(re.sub(r"[^a-z0-9.]+", "-", f"{request.node.name}-{len(names)}".lower()))
        server.create(QueueDescription(names[-1], **options))
        return names[-1]

    return make


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """The name of an empty queue with Service Bus's defaults."""
    return make_queue()


@pytest.fixture
def send(client: ServiceBusClient) -> Send:
    """Sends messages."""

    def send_all(entity: str, *messages: ServiceBusMessage | str | bytes) -> None:
        with client.get_queue_sender(entity) as sender:
            made = [each if isinstance(each, ServiceBusMessage) else ServiceBusMessage(each) for each in messages]
            sender.send_messages(made)

    return send_all


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """The shared Spark session, with the format registered; its tasks are tried four times."""
    from pyspark.sql import SparkSession

    from emubus.spark_connector import register

    folder = tmp_path_factory.mktemp("spark")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # the workers would take the first python3 of the path
    os.environ["SPARK_HOME"] = make_spark_home(folder / "home")
    builder = SparkSession.builder.master("local[2,4]").appName("emubus tests")
    for key, value in {
        **SPARK_CONF,
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
    }.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    register(session)
    yield session
    session.stop()


@pytest.fixture
def options(server: EmubusServer) -> dict[str, str]:
    """The options that every read and write of the server's entities needs."""
    return {"connectionString": server.connection_string}


@pytest.fixture(scope="session")
def spark40() -> None:
    """The environment with Spark 4.0 (`prepare.PYTHON_SPARK40`) is built."""
    if _prepare_errors:
        raise _prepare_errors[0]
