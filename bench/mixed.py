"""A load as applications make it, over the vendor's SDK for Python: nearly all messages are alone.

    python bench/mixed.py [--seconds 60] [--durability second] [--against REF]

Senders that wait for each message (one in four sends a batch of ten), processors of eight at a time, message sessions,
a topic, schedules, dead letters and messages that are given back, and connections that are opened and closed again and
again; each link has a connection of its own. Every message of a queue is counted: the run fails if one is missing, or
completed twice. `--against` runs the same with the server of another commit afterwards. Processor time is the server's,
for each message that was sent or received; latency is from before the send until the message is with its receiver.
"""

from __future__ import annotations

import argparse
import asyncio
import random
import sys
import time
from collections import Counter
from collections.abc import Coroutine, Sequence
from datetime import UTC, datetime, timedelta
from statistics import quantiles
from typing import Final

from azure.servicebus import NEXT_AVAILABLE_SESSION, ServiceBusMessage, ServiceBusReceivedMessage, ServiceBusSubQueue
from azure.servicebus.aio import ServiceBusClient, ServiceBusReceiver
from azure.servicebus.exceptions import OperationTimeoutError, ServiceBusError
from cells import table
from starting import BrokerError, Emubus, exit_code, running, workplace
from trees import THIS, build, unpack

QUEUES: Final = ("plain", "partitioned")
SESSIONS: Final = "partitioned-sessions"
TOPIC: Final = "partitioned-topic"
SUBSCRIPTIONS: Final = ("s0", "s1")
SESSION_IDS: Final = tuple(f"session {number}" for number in range(20))
CONCURRENT: Final = 8
PREFETCH: Final = 10
WAITING_MAX: Final = 400
"""Messages sent and not yet received, from which senders wait: the client's receivers take more of its processor."""
SENDERS: Final = 2
"""Of each queue."""

BODY_BYTES: Final = (10, 2_000)
BATCH: Final = 10
REST_S_MAX: Final = 60.0
"""So long after the last send all messages have to be received."""


class Run:
    """One load on one server: what was sent and received, and how long that took."""

    def __init__(self, connection_string: str, seconds: float, seed: int) -> None:
        self._connection_string = connection_string
        self._until = time.monotonic() + seconds
        self._chance = random.Random(seed)
        self._serial = 0
        self.sent: set[str] = set()
        self.got = Counter[str]()
        self.topic_messages = 0
        """Sent, and received of each subscription."""
        self.opened = 0
        """Connections besides the first."""
        self.latencies_ms: list[float] = []

    @property
    def _is_sending(self) -> bool:
        return time.monotonic() < self._until

    @property
    def _has_more(self) -> bool:
        """Whether receivers have work left: until all is received, or for too long."""
        return self._is_sending or (len(self.got) < len(self.sent) and time.monotonic() < self._until + REST_S_MAX)

    async def run(self) -> None:
        """Do all of it at the same time."""
        work: list[Coroutine[None, None, None]] = []
        for queue in QUEUES:
            work += [self._send(queue) for _ in range(SENDERS)]
            work += [self._process(queue) for _ in range(CONCURRENT)]
        work += [self._send(SESSIONS) for _ in range(SENDERS)]
        work += [self._process_sessions() for _ in range(CONCURRENT)]
        work += [self._send_to_topic(), self._open_and_close()]
        work += [self._subscribe(name) for name in SUBSCRIPTIONS]
        async with asyncio.TaskGroup() as group:
            for each in work:
                group.create_task(each)

    def _connect(self) -> ServiceBusClient:
        """A connection for one link: the links of one wait for each other's reads, up to 0.2 s for each."""
        return ServiceBusClient.from_connection_string(self._connection_string)

    def _message(self, queue: str, session: str | None = None) -> ServiceBusMessage:
        self._serial += 1
        message_id = f"{queue} {self._serial}"
        self.sent.add(message_id)
        return ServiceBusMessage(
            "x" * self._chance.randint(*BODY_BYTES),
            message_id=message_id,
            session_id=session,
            application_properties={"at": time.monotonic(), "color": "c1"},
        )

    async def _send(self, queue: str) -> None:
        async with self._connect() as client, client.get_queue_sender(queue) as sender:
            while self._is_sending:
                if len(self.sent) - len(self.got) > WAITING_MAX:
                    await asyncio.sleep(0.02)
                    continue
                dice = self._chance.random()
                session = self._chance.choice(SESSION_IDS) if queue == SESSIONS else None
                if dice < 0.25:
                    await sender.send_messages([self._message(queue, session) for _ in range(BATCH)])
                elif dice < 0.3:
                    at = datetime.now(UTC) + timedelta(milliseconds=self._chance.randint(50, 2_000))
                    message = self._message(queue, session)
                    message.application_properties = {"color": "c1"}  # its latency is the schedule's
                    await sender.schedule_messages(message, at)
                else:
                    await sender.send_messages(self._message(queue, session))

    async def _process(self, queue: str) -> None:
        """One of a processor's handlers.

        Not eight handlers on one link: of settlements that wait there at the same time azure-servicebus 7.15 polls the
        outcomes, so each takes 221 ms instead of 3.
        """
        async with self._connect() as client, client.get_queue_receiver(queue, prefetch_count=PREFETCH) as receiver:
            while self._has_more:
                for message in await receiver.receive_messages(CONCURRENT, max_wait_time=1):
                    await self._handle(receiver, message)

    async def _handle(self, receiver: ServiceBusReceiver, message: ServiceBusReceivedMessage) -> None:
        at = (message.application_properties or {}).get(b"at")
        dice = self._chance.random()
        if dice < 0.03:
            await receiver.abandon_message(message)
            return
        if isinstance(at, float) and not message.delivery_count:
            self.latencies_ms.append((time.monotonic() - at) * 1000)
        if dice < 0.06:
            await receiver.dead_letter_message(message, reason="mixed")
        else:
            await receiver.complete_message(message)
        self.got[str(message.message_id)] += 1

    async def _process_sessions(self) -> None:
        async with self._connect() as client:
            while self._has_more:
                try:
                    async with client.get_queue_receiver(
                        SESSIONS, session_id=NEXT_AVAILABLE_SESSION, max_wait_time=2
                    ) as receiver:
                        while messages := await receiver.receive_messages(BATCH, max_wait_time=1):
                            for message in messages:
                                await self._handle(receiver, message)
                            if not self._chance.randrange(4):
                                await receiver.session.set_state(b"seen")
                except OperationTimeoutError:
                    continue  # no session is free

    async def _send_to_topic(self) -> None:
        async with self._connect() as client, client.get_topic_sender(TOPIC) as sender:
            while self._is_sending:
                messages = [
                    ServiceBusMessage("x" * 100, application_properties={"color": "c1"}) for _ in range(2 * BATCH)
                ]
                await sender.send_messages(messages)
                self.topic_messages += len(messages)
                await asyncio.sleep(0.05)

    async def _subscribe(self, name: str) -> None:
        async with (
            self._connect() as client,
            client.get_subscription_receiver(TOPIC, name, prefetch_count=100) as receiver,
        ):
            while self._is_sending:
                messages = await receiver.receive_messages(100, max_wait_time=1)
                await asyncio.gather(*[receiver.complete_message(message) for message in messages])
                self.topic_messages += len(messages)

    async def _open_and_close(self) -> None:
        """A connection with a receiver of dead letters and a sender, again and again."""
        while self._is_sending:
            async with self._connect() as client:
                queue = self._chance.choice(QUEUES)
                async with client.get_queue_receiver(queue, sub_queue=ServiceBusSubQueue.DEAD_LETTER) as receiver:
                    for message in await receiver.receive_messages(50, max_wait_time=0.2):
                        await receiver.complete_message(message)
                async with client.get_queue_sender(queue) as sender:
                    await sender.send_messages(self._message(queue))
            self.opened += 1

    def problems(self) -> list[str]:
        """What is wrong with a run that has ended, a sentence each."""
        missing, twice = self.sent - self.got.keys(), [each for each, count in self.got.items() if count > 1]
        found = [f"{len(missing)} messages are missing, {min(missing)!r} for one"] if missing else []
        return found + ([f"{len(twice)} messages were completed twice, {min(twice)!r} for one"] if twice else [])


def measure(name: str, broker: Emubus, seconds: float, seed: int) -> list[str]:
    """Run the load on a broker of its own; a row of the table. BrokerError."""
    with running(broker):
        key = "SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=SAS_KEY_VALUE"
        text = f"Endpoint=sb://localhost:{broker.port};{key};UseDevelopmentEmulator=true;"
        before, began = broker.used(), time.monotonic()
        run = Run(text, seconds, seed)
        try:
            asyncio.run(run.run())
        except ServiceBusError as error:
            raise BrokerError(f"{name}: {error}") from error
        spent, took = broker.used().since(before), time.monotonic() - began
        memory = broker.memory().anonymous
    if problems := run.problems():
        raise BrokerError(f"{name}: {'; '.join(problems)}")
    count = len(run.sent) + run.got.total() + run.topic_messages
    cuts = quantiles(run.latencies_ms, n=100)
    return [
        name,
        f"{len(run.sent)}",
        f"{len(run.sent) / took:.0f}",
        f"{spent.process_ns / 1000 / count:.0f}",
        f"{spent.main_ns / 1000 / count:.0f}",
        f"{cuts[49]:.1f}",
        f"{cuts[98]:.1f}",
        f"{run.opened}",
        f"{memory:.0f}",
    ]


def main(argv: Sequence[str]) -> int:
    """Run and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument(
        "--durability", default="second", help="second, full, process or none; several: comma-separated"
    )
    parser.add_argument("--against", help="a commit whose server gets the same load")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--data", help="folder for the servers' data; default: the system's temporary folder")
    options = parser.parse_args(argv)
    build(THIS)
    rows = [["server", "sent", "a second", "us", "main us", "p50 ms", "p99 ms", "opened", "own MiB"]]
    with workplace(options.data) as folder:
        trees = {"this": THIS}
        if options.against is not None:
            trees[options.against] = unpack(options.against, folder / "tree")
            build(trees[options.against])
        for durability in options.durability.split(","):
            for number, (name, tree) in enumerate(trees.items()):
                broker = Emubus(folder / f"{number}-{durability}", durability, tree)
                rows.append(measure(f"{name} {durability}", broker, options.seconds, options.seed))
    print(table(rows))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
