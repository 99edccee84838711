"""Cost per message of topics, rules, message sessions and schedules inside the broker.

Knows the grids (subscriptions, filters, live sessions, waiting messages) and prints one comparable line each: if the
figure per copy, per message or per session stays flat as the grid grows, the cost is linear. In this process, without
the wire, on stores in a temporary folder with `--durability process` (or `full`): the broker itself is measured.

    python bench/dataplane.py [--quick] [--durability process] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import uvloop
from proton import Message, timestamp

from emubus.broker.api import TABLES, Complete, ReceiveMode, SessionReceiver, alone
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    Topology,
)
from emubus.broker.model.profiles import Profile, limits_for
from emubus.storage import Durability, open_store

WINDOW = 1000
FILTERS: dict[str, Callable[[int], RuleDescription]] = {
    "none": lambda _: RuleDescription("$Default"),
    "correlation": lambda number: RuleDescription("r", CorrelationFilter(properties={"target": f"s{number}"})),
    "sql equality": lambda number: RuleDescription("r", SqlFilter(f"target = 's{number}'")),
    "sql range": lambda number: RuleDescription("r", SqlFilter(f"number > {10_000_000 + number}")),
}


@contextmanager
def broker_in(folder: Path, durability: Durability, clock: Clock | None = None) -> Iterator[Broker]:
    """A broker over new stores in `folder`; started by the caller."""
    stores = [open_store(folder / f"store-{index:02}", TABLES, durability) for index in range(16)]
    catalog = Catalog(open_store(folder / "namespace", CATALOG_TABLES, durability))
    yield Broker(catalog, stores, clock or Clock(), limits_for(Profile.RELAXED))


def encoded(body_bytes: int = 1024, **fields: object) -> bytes:
    """An SDK-like message."""
    return bytes(Message(body=b"x" * body_bytes, inferred=True, **fields).encode())  # type: ignore[arg-type]


async def pump(broker: Broker, address: str, payloads: Sequence[bytes]) -> float:
    """Send everything with a window of outstanding messages; returns the seconds."""
    sender = broker.open_sender(address, detached=lambda _: None)
    room = asyncio.Event()
    outstanding = 0

    def done(error: BrokerError | None) -> None:
        nonlocal outstanding
        if error is not None:
            raise error
        outstanding -= 1
        if outstanding <= WINDOW // 2:
            room.set()

    started = time.perf_counter()
    for payload in payloads:
        while outstanding >= WINDOW:
            room.clear()
            await room.wait()
        outstanding += 1
        sender.send([payload], alone(done))
    while outstanding:
        room.clear()
        await room.wait()
    return time.perf_counter() - started


async def fan_out(subscriptions: int, kind: str, messages: int, durability: Durability) -> None:
    """One topic, so many subscriptions with one rule each; one message matches one filter, or all without filters."""
    with tempfile.TemporaryDirectory() as folder, broker_in(Path(folder), durability) as broker:
        topic = TopicDescription("t", enable_partitioning=True, max_size_mb=1024)
        rules = [FILTERS[kind](number) for number in range(subscriptions)]
        entries = tuple(SubscriptionDescription("t", f"s{n}", rules=(rule,)) for n, rule in enumerate(rules))
        broker.start(Topology(topics=(topic,), subscriptions=entries))
        payloads = [
            encoded(100, properties={"target": f"s{number % subscriptions}", "number": number})
            for number in range(min(messages, 1000))
        ]
        seconds = await pump(broker, "t", (payloads * (messages // len(payloads) + 1))[:messages])
        copies = subscriptions if kind == "none" else (0 if kind == "sql range" else 1)
        per_copy = f"{seconds / messages / copies * 1e6:8.2f} us/copy" if copies else ""
        line = f"{seconds / messages * 1e6:9.1f} us/message {per_copy}"
        print(f"dataplane  fan-out  {kind:12}  {subscriptions:5} subscriptions  {copies:5} copies  {line}", flush=True)
        await broker.stop()


async def live_sessions(sessions: int, durability: Durability) -> None:
    """So many sessions accepted and held at once, one message through each."""
    with tempfile.TemporaryDirectory() as folder, broker_in(Path(folder), durability) as broker:
        queue = QueueDescription("q", enable_partitioning=True, requires_session=True, lock_duration_ms=300_000)
        broker.start(Topology(queues=(queue,)))
        sending_s = await pump(broker, "q", [encoded(group_id=f"session-{n}") for n in range(sessions)])
        received = 0
        all_done = asyncio.Event()

        def settled(positions: Sequence[int], error: BrokerError | None) -> None:
            nonlocal received
            if error is not None:
                raise error
            received += len(positions)
            if received == sessions:
                all_done.set()

        def granted(consumer: SessionReceiver) -> None:
            consumer.deliver = lambda found: consumer.settle([each.token for each in found], Complete(), settled)
            consumer.set_credit(1)

        def refused(error: BrokerError) -> None:
            raise error

        started = time.perf_counter()
        for _ in range(sessions):
            broker.accept_session(
                "q",
                None,
                mode=ReceiveMode.PEEK_LOCK,
                timeout_ms=60_000,
                granted=granted,
                refused=refused,
                detached=refused,
            )
        await all_done.wait()
        seconds = time.perf_counter() - started
        send_us, accept_us = sending_s / sessions * 1e6, seconds / sessions * 1e6
        print(
            f"dataplane  sessions  {sessions:7} live  send {send_us:6.1f} us/message  "
            f"accept+receive+complete {accept_us:6.1f} us/session",
            flush=True,
        )
        await broker.stop()


async def scheduled(messages: int, durability: Durability) -> None:
    """Many messages scheduled for one instant, then that instant."""
    with tempfile.TemporaryDirectory() as folder:
        clock = Clock(frozen=True)
        with broker_in(Path(folder), durability, clock) as broker:
            broker.start(Topology(queues=(QueueDescription("q", enable_partitioning=True, max_size_mb=5120),)))
            at = clock.now_ms() + 3_600_000
            payload = encoded(annotations={"x-opt-scheduled-enqueue-time": timestamp(at)})
            sending_s = await pump(broker, "q", [payload] * messages)
            received = 0
            all_there = asyncio.Event()

            def deliver(found: Sequence[object]) -> None:
                nonlocal received
                received += len(found)
                consumer.set_credit(WINDOW)
                if received == messages:
                    all_there.set()

            consumer = broker.open_receiver(
                "q", mode=ReceiveMode.RECEIVE_AND_DELETE, deliver=deliver, detached=lambda _: None
            )
            consumer.set_credit(WINDOW)
            started = time.perf_counter()
            clock.advance(3_600_000)
            while not all_there.is_set():
                clock.advance(1)  # the clock is frozen otherwise, and the next batch of due messages waits for it
                await asyncio.sleep(0)
            seconds = time.perf_counter() - started
            schedule_us, activate_us = sending_s / messages * 1e6, seconds / messages * 1e6
            print(
                f"dataplane  scheduled  {messages:8} waiting  schedule {schedule_us:6.1f} us/message  "
                f"activate+receive {activate_us:6.1f} us/message",
                flush=True,
            )
            await broker.stop()


async def main(quick: bool, durability: Durability) -> None:
    """The grids, small first."""
    for kind in FILTERS:
        for subscriptions in (1, 10, 100, 1000):
            copies = subscriptions if kind == "none" else 1
            await fan_out(subscriptions, kind, max(200, (2_000 if quick else 20_000) // copies), durability)
            gc.collect()
    for sessions in (100, 1_000, 2_000 if quick else 10_000):
        await live_sessions(sessions, durability)
    for messages in (1_000, 10_000, 20_000 if quick else 1_000_000):
        await scheduled(messages, durability)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--data", help="folder for the stores; default: the system's temporary folder")
    parser.add_argument("--durability", type=Durability, default=Durability.PROCESS)
    options = parser.parse_args()
    tempfile.tempdir = options.data
    uvloop.run(main(options.quick, options.durability))
