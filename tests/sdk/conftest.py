"""Fixtures of the behaviour tests: one server, one driver process per SDK, and a queue of its own for every test.

Knows how the pieces are put together and how long each lives. The server and the drivers live as long as the test
run; what a test opens through a driver is closed after it. The clock of the server stands still and is moved by tests
only. A driver that dies fails its test and is started again for the next.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import pytest

from emubus.broker.api import OutageKind
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

from ..rounds import IS_LONG
from .client import Sdk
from .driver import PLAIN, DriverProcess, Way
from .prepare import ALL_CLIENTS, CLIENTS, OLDER, PrepareError, prepare

# 2035-01-01T00:00:00Z: later than the machine's time, because SDKs compare lock expiry with their own clock and must
# leave the decision to the server.
CLOCK_START_AT = 2_051_222_400_000

# Of the partitioned entities that a namespace holds (100) as many as no test and no client that closes behind its
# test still uses.
ENTITIES_KEPT = 60


OLDER_CLIENTS = ("python-sync-7.14.3", "python-aio-7.14.3", *OLDER)


# The messaging stores of the server under test, and those that an outage takes unless it says otherwise.
STORES = tuple(range(16))
STORES_OUT = (2, 7, 11)


class Outages:
    """Takes stores down and brings them back."""

    def __init__(self, server: EmubusServer) -> None:
        self._server = server

    def begin(
        self,
        kind: OutageKind = OutageKind.DOWN,
        stores: Sequence[int] = STORES_OUT,
        *,
        delay_ms: int = 0,
        duration_ms: int | None = None,
    ) -> None:
        """Let stores be out, for a time or until ``end``."""
        self._server.begin_outage(stores, kind, delay_ms=delay_ms, duration_ms=duration_ms)

    def end(self) -> None:
        """All stores work again."""
        self._server.end_outage(STORES)


class MakeName(Protocol):
    """Thinks of a name that no entity has; what is made under it is gone after the test."""

    def __call__(self) -> str: ...


class MakeQueue(Protocol):
    """Creates a queue of its own for the test; returns its name."""

    def __call__(self, **options: Any) -> str: ...


class MakeTopic(Protocol):
    """Creates a topic of its own for the test; returns its name."""

    def __call__(self, **options: Any) -> str: ...


class MakeSubscription(Protocol):
    """Creates a subscription of a topic; returns its name."""

    def __call__(self, topic: str, name: str = "all", **options: Any) -> str: ...


class Entities:
    """The queues and topics that tests have made, each for itself; the oldest go, since a namespace has a limit."""

    def __init__(self, server: EmubusServer) -> None:
        self._server = server
        self._paths: deque[str] = deque()

    def create(self, description: QueueDescription | TopicDescription) -> str:
        """Create a queue or topic; returns its name."""
        while len(self._paths) >= ENTITIES_KEPT:
            self.delete(self._paths.popleft())
        self._server.create(description)
        self._paths.append(description.name)
        return description.name

    def delete(self, path: str) -> None:
        """Delete a queue or topic, if it is still there."""
        try:
            self._server.delete(path)
        except BrokerError as error:  # some tests are about deletion
            if error.condition is not Condition.NOT_FOUND:
                raise


class Drivers:
    """The driver processes of the test run, one per client and way to connect, started when first asked for."""

    def __init__(self, server: EmubusServer) -> None:
        self._server = server
        self._running: dict[tuple[str, Way], DriverProcess] = {}

    def driver(self, name: str, way: Way = PLAIN) -> DriverProcess:
        """The running driver of a client, one per way to connect."""
        running = self._running.get((name, way))
        if running is None or not running.alive:
            running = self._running[name, way] = self.start(name, way)
        return running

    def start(self, name: str, way: Way = PLAIN) -> DriverProcess:
        """Another driver of a client, which belongs to the caller."""
        server = self._server
        text = server.tls_connection_string if way.tls else server.connection_string
        return DriverProcess(ALL_CLIENTS[name], text, ca_file=server.ca_file, transport=way.transport)

    def close(self) -> None:
        """End them all; the first failure is raised after the last driver was asked to end."""
        failures: list[Exception] = []
        for driver in self._running.values():
            try:
                driver.close()
            except Exception as failure:
                failures.append(failure)
        if failures:
            raise failures[0]


def _slug(text: str) -> str:
    return re.sub(r"[^a-z0-9.]+", "-", text.lower())


_prepare_errors: dict[str, PrepareError] = {}


def client_of(item: pytest.Item) -> str | None:
    """The name of the client that a test runs, if it runs one."""
    callspec = getattr(item, "callspec", None)
    return None if callspec is None else callspec.params.get("sdk")


def repeated_by(item: pytest.Item) -> list[str]:
    """The ids of tests that try what this one tries, so that it may be left out where one of them runs.

    Older versions of an SDK differ in the frames that they write and expect. These are the same for partitioned and
    unpartitioned entities, and for the two faces of the SDK for Python, whose newest version runs with both.
    """
    client, name = client_of(item), item.nodeid
    if client not in OLDER_CLIENTS:
        return []
    others = [name.replace("unpartitioned", "partitioned"), name.replace("python-aio-7", "python-sync-7")]
    return [other for other in others if other != name]


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out repetitions (in the long form none), and begin with the tests that mostly wait."""
    names = {item.nodeid for item in items}
    repeated = {item for item in items if not IS_LONG and not names.isdisjoint(repeated_by(item))}
    if repeated:
        config.hook.pytest_deselected(items=list(repeated))
        items[:] = [item for item in items if item not in repeated]
    items.sort(key=lambda item: not {"sdk", "slow"} <= {mark.name for mark in item.iter_markers()})


def pytest_collection_finish(session: pytest.Session) -> None:
    """Build the drivers of the selected tests here, where no test's time limit runs."""
    if session.config.option.collectonly:
        return  # no test is run
    for name in sorted({client_of(item) for item in session.items} & ALL_CLIENTS.keys(), key=str):
        try:
            prepare(ALL_CLIENTS[str(name)])
        except PrepareError as error:
            _prepare_errors[str(name)] = error


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    """The server under test, with a clock that stands still and a CA of its own."""
    with EmubusServer(tls_dir=tmp_path_factory.mktemp("tls")) as running:
        running.call(running.clock.freeze)
        running.advance(CLOCK_START_AT - running.clock.now_ms())
        yield running


@pytest.fixture(scope="session")
def entities(server: EmubusServer) -> Entities:
    """What the tests have made on the server under test."""
    return Entities(server)


@pytest.fixture(scope="session")
def drivers(server: EmubusServer) -> Iterator[Drivers]:
    """The driver processes, connected to the server under test."""
    running = Drivers(server)
    yield running
    running.close()


@pytest.fixture(params=list(CLIENTS))
def sdk(request: pytest.FixtureRequest, drivers: Drivers, way: Way) -> Iterator[Sdk]:
    """Each SDK in turn."""
    if request.param in _prepare_errors:
        raise _prepare_errors[request.param]
    used = Sdk(drivers.driver(request.param, way))
    yield used
    used.reset()


@pytest.fixture
def way() -> Way:
    """How the data client connects."""
    return PLAIN


@pytest.fixture
def outages(server: EmubusServer) -> Iterator[Outages]:
    """Outages of the stores; after the test there are none."""
    outages = Outages(server)
    yield outages
    outages.end()


@pytest.fixture
def new_name(entities: Entities, request: pytest.FixtureRequest) -> Iterator[MakeName]:
    """Names for what a test makes by itself."""
    names: list[str] = []

    def make() -> str:
        names.append(f"{_slug(request.node.name)}/n{len(names)}")
        return names[-1]

    yield make
    for name in names:
        entities.delete(name)


@pytest.fixture
def start(drivers: Drivers) -> Iterator[Callable[[str], DriverProcess]]:
    """Starts further processes of a client; those that a test leaves are ended."""
    started: list[DriverProcess] = []

    def start(name: str) -> DriverProcess:
        started.append(drivers.start(name))
        return started[-1]

    yield start
    for driver in started:
        driver.close()


@pytest.fixture(params=[False, True], ids=["unpartitioned", "partitioned"])
def partitioned(request: pytest.FixtureRequest) -> bool:
    """Whether the test's queue is partitioned: each in turn."""
    return bool(request.param)


@pytest.fixture
def make_queue(partitioned: bool, entities: Entities, request: pytest.FixtureRequest) -> MakeQueue:
    """Creates queues for this test only."""
    names: list[str] = []

    def make(**options: Any) -> str:
        names.append(_slug(f"{request.node.name}-{len(names)}"))
        return entities.create(QueueDescription(names[-1], enable_partitioning=partitioned, **options))

    return make


@pytest.fixture
def make_topic(partitioned: bool, entities: Entities, request: pytest.FixtureRequest) -> MakeTopic:
    """Creates topics for this test only."""
    names: list[str] = []

    def make(**options: Any) -> str:
        names.append(_slug(f"{request.node.name}-t{len(names)}"))
        return entities.create(TopicDescription(names[-1], enable_partitioning=partitioned, **options))

    return make


@pytest.fixture
def make_subscription(server: EmubusServer) -> MakeSubscription:
    """Creates subscriptions."""

    def make(topic: str, name: str = "all", **options: Any) -> str:
        server.create(SubscriptionDescription(topic, name, **options))
        return name

    return make


@pytest.fixture
def queue(make_queue: MakeQueue) -> str:
    """The name of an empty queue with Service Bus's defaults."""
    return make_queue()
