"""A broker over memory or a folder, with its verbs made awaitable."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from emubus.broker.broker import Broker
from emubus.broker.catalog import CATALOG_TABLES, Catalog
from emubus.broker.clock import Clock
from emubus.broker.commands import Delivery, ReceiveMode
from emubus.broker.description import QueueDescription, Topology
from emubus.broker.errors import BrokerError
from emubus.broker.limits import Profile, limits_for
from emubus.broker.links import Consumer
from emubus.broker.outcomes import Outcome
from emubus.broker.records import TABLES
from emubus.storage import Durability, Store, no_failpoint, open_store

WAIT_S = 5.0


def open_broker(
    *queues: QueueDescription,
    folder: Path | None = None,
    clock: Clock | None = None,
    failpoint: object = no_failpoint,
    wrap: Callable[[Store], Store] = lambda store: store,
) -> Broker:
    """A started broker of 16 stores, each as `wrap` returns it; in memory without a `folder`."""
    durability = Durability.NONE if folder is None else Durability.PROCESS

    def store(name: str, tables: Sequence[str]) -> Store:
        hook: Callable[[str], None] = failpoint if name.startswith("store") else no_failpoint  # type: ignore[assignment]
        return open_store(None if folder is None else folder / name, tables, durability, hook)

    catalog = Catalog(store("namespace", CATALOG_TABLES))
    stores = [wrap(store(f"store-{index:02}", TABLES)) for index in range(16)]
    broker = Broker(catalog, stores, clock or Clock(), limits_for(Profile.STANDARD))
    broker.start(Topology(queues=queues))
    return broker


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
    broker.open_sender(address, detached=print).send(data, batch=batch, done=answer.set_result)
    error = await asyncio.wait_for(answer, WAIT_S)
    if error is not None:
        raise error


class Receiver:
    """A consumer whose deliveries are kept in `got`."""

    def __init__(self, broker: Broker, address: str, mode: ReceiveMode = ReceiveMode.PEEK_LOCK) -> None:
        self.got: list[Delivery] = []
        self._more = asyncio.Event()
        self.consumer: Consumer = broker.open_consumer(address, mode=mode, deliver=self._deliver, detached=print)

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
        self.consumer.settle(delivery.token, outcome, answer.set_result)
        return await asyncio.wait_for(answer, WAIT_S)


def per_partition(deliveries: Sequence[Delivery]) -> Counter[int]:
    """How many of the deliveries came from each partition."""
    return Counter(delivery.sequence_number >> 48 for delivery in deliveries)
