"""A broker over memory or a folder, with its verbs made awaitable."""

from __future__ import annotations

import asyncio
import inspect
import os
from collections import Counter
from collections.abc import AsyncIterator, Callable, Sequence
from pathlib import Path
from typing import ClassVar

import pytest

from emubus.broker.api import TABLES, Delivery, Matches, Observer, Outcome, ReceiveMode, alone
from emubus.broker.api import Receiver as BrokerReceiver
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.descriptions import QueueDescription, Topology
from emubus.broker.model.profiles import Profile, limits_for
from emubus.storage import Durability, Journal, Store, no_failpoint, open_store

from ..checking import check_partitions

WAIT_S = 60.0


def open_broker(
    *queues: QueueDescription,
    folder: Path | None = None,
    clock: Clock | None = None,
    failpoint: object = no_failpoint,
    wrap: Callable[[Store], Store] = lambda store: store,
    loses_writes: bool = False,
    profile: Profile = Profile.STANDARD,
    observer: Observer | None = None,
    journal: Journal | None = None,
) -> Broker:
    """A started broker of 16 stores, each as `wrap` returns it; in memory without a `folder`.

    With a `journal`, the caller's, each commit waits for the disk. With `loses_writes` the test damages the stores on
    purpose, so the partitions are not checked at the end.
    """
    durability = Durability.NONE if folder is None else Durability.PROCESS if journal is None else Durability.FULL

    def store(name: str, tables: Sequence[str]) -> Store:
        is_messaging = name.startswith("store")
        hook: Callable[[str], None] = failpoint if is_messaging else no_failpoint  # type: ignore[assignment]
        shared = journal if is_messaging else None
        return open_store(None if folder is None else folder / name, tables, durability, hook, journal=shared)

    catalog = Catalog(store("namespace", CATALOG_TABLES))
    stores = [wrap(store(f"store-{index:02}", TABLES)) for index in range(16)]
    broker = CheckedBroker(catalog, stores, clock or Clock(), limits_for(profile), observer=observer)
    broker.loses_writes = loses_writes
    broker.start(Topology(queues=queues))
    return broker


class CheckedBroker(Broker):
    """A broker that checks the invariants of all its partitions before it stops, unless it `loses_writes`.

    `running` holds those that have not stopped; the fixture `brokers_stop` stops them at the end of each test.
    """

    running: ClassVar[list[CheckedBroker]] = []
    loses_writes = False
    started_by: str | None = None

    def start(self, topology: Topology, *, only_if_new: bool = False) -> tuple[list[str], list[str]]:
        """Start, and join `running`."""
        ignored = super().start(topology, only_if_new=only_if_new)
        self.started_by = os.environ.get("PYTEST_CURRENT_TEST")
        self.running.append(self)
        return ignored

    async def stop(self) -> None:
        """Stop; AssertionError, once everything is closed, if an invariant does not hold."""
        self.running.remove(self)
        try:
            if not self.loses_writes:
                await check_partitions(self)
        finally:
            await super().stop()


@pytest.fixture(autouse=True)
def brokers_stop(request: pytest.FixtureRequest) -> None:
    """Stops, and thereby checks, every broker that a test leaves running, whether or not the test passed."""
    if inspect.iscoroutinefunction(getattr(request.node, "function", None)):
        request.getfixturevalue("_brokers_stop")


@pytest.fixture
async def _brokers_stop() -> AsyncIterator[None]:
    left = [each.started_by for each in CheckedBroker.running]
    CheckedBroker.running.clear()  # their loop is closed
    assert left == [], "these tests don't have the fixture `brokers_stop`"
    yield
    failures: list[Exception] = []
    while CheckedBroker.running:
        try:
            await CheckedBroker.running[-1].stop()
        except Exception as failure:  # the others stop all the same
            failures.append(failure)
    if failures:
        raise ExceptionGroup("brokers that could not be checked or stopped", failures)


def forwarding_count(broker: Broker) -> int:
    """How many partitions have a task that forwards something."""
    forwarder = broker.namespace.forwarder
    return len(forwarder._running) - len(forwarder._parked)


async def loop_turns(count: int = 1) -> None:
    """Let everything that is ready on the event loop run, `count` times over. No time passes."""
    loop = asyncio.get_running_loop()
    for _ in range(count):
        turn: asyncio.Future[None] = loop.create_future()
        loop.call_soon(turn.set_result, None)
        await turn


async def send(broker: Broker, address: str, data: bytes, *, batch: bool = False) -> None:
    """Send one delivery; raises the BrokerError that it was refused with."""
    answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
    broker.open_sender(address, detached=print).send([data], alone(answer.set_result), whole=batch)
    error = await asyncio.wait_for(answer, WAIT_S)
    if error is not None:
        raise error


class Receiver:
    """A consumer whose deliveries are kept in `got`."""

    def __init__(
        self,
        broker: Broker,
        address: str,
        mode: ReceiveMode = ReceiveMode.PEEK_LOCK,
        matches: Matches | None = None,
    ) -> None:
        self.got: list[Delivery] = []
        self._more = asyncio.Event()
        self.consumer: BrokerReceiver = broker.open_receiver(
            address, mode=mode, deliver=self._deliver, detached=print, matches=matches
        )

    def _deliver(self, deliveries: Sequence[Delivery]) -> None:
        self.got.extend(deliveries)
        self._more.set()

    async def receive(self, count: int) -> list[Delivery]:
        """Exactly `count` deliveries; TimeoutError if they don't come."""
        self.consumer.set_credit(count)
        async with asyncio.timeout(WAIT_S):
            while len(self.got) < count:
                self._more.clear()
                await self._more.wait()
        taken, self.got = self.got[:count], self.got[count:]
        return taken

    async def drain(self, credit: int = 1000) -> list[Delivery]:
        """All that is available now, up to `credit`."""
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.consumer.set_credit(credit)
        self.consumer.drain(lambda: done.set_result(None))
        await asyncio.wait_for(done, WAIT_S)
        taken, self.got = self.got, []
        return taken

    async def settle(self, delivery: Delivery, outcome: Outcome) -> BrokerError | None:
        """Settle and wait for the confirmation."""
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        self.consumer.settle([delivery.token], outcome, alone(answer.set_result))
        return await asyncio.wait_for(answer, WAIT_S)


def per_partition(deliveries: Sequence[Delivery]) -> Counter[int]:
    """How many of the deliveries came from each partition."""
    return Counter(delivery.sequence_number >> 48 for delivery in deliveries)
