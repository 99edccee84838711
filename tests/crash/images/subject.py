"""The process that is recorded: a server with a varied load, which ends by SIGKILL.

    python -m tests.crash.images.subject DATA SEED STEPS FAULT DURABILITY

Everything that is asked for and every answer is a note in the trace (`ledger.Ledger` reads them), so what a client was
promised is known at each moment. The load is at the broker, where answers are given.
"""

from __future__ import annotations

import asyncio
import ctypes
import json
import os
import random
import signal
import sys
from collections import Counter
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final

from proton import symbol

from emubus.broker.api import Sender, alone
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.outcomes import Complete
from emubus.server import Server
from emubus.storage.journal.journaled_store import JOURNALED_BYTES_MAX

from ...broker.driving import encoded
from ...broker.namespace import Receiver
from ...emubus.folders import small
from . import faults

QUEUES: Final = ("q", "p")
KEYS: Final = tuple(f"key {number}" for number in range(8))
IN_FLIGHT_MAX: Final = 2
"""Sends of one key that wait for their answers: the keys of one store go on while another store is slow."""
LARGE: Final = JOURNALED_BYTES_MAX + 1
"""Bytes of a delivery that goes into the file of its store at once, with `full`."""

_record_note = getattr(ctypes.CDLL(None), "record_note", None)


def note(values: dict[str, object]) -> None:
    """Put a note into the trace."""
    text = json.dumps(values).encode()
    if _record_note is not None:
        _record_note(text, len(text))


def body_of(message_id: str) -> str:
    """The body of a message: its id, and a filling that follows from it."""
    chance = random.Random(message_id)
    return f"<{message_id}>{'x' * chance.randint(50, 700)}</{message_id}>"


class Load:
    """Sends, completes, purges and creates, as chance wants it."""

    def __init__(self, server: Server, seed: int) -> None:
        self._broker = server.broker
        self._chance = random.Random(seed)
        self._seed = seed
        self._count = 0
        self._in_flight = 0
        self._sending = Counter[str]()
        self._fewer = asyncio.Event()
        self._senders = {queue: self._sender(queue) for queue in QUEUES}
        self._receivers: dict[str, Receiver] = {}
        self._receiving: dict[str, asyncio.Task[None]] = {}

    async def run(self, steps: int) -> None:
        """Make so many steps."""
        for _ in range(steps):
            queue = self._chance.choice(QUEUES)
            (step,) = self._chance.choices(
                (self._send, self._send_large, self._send_batch, self._complete, self._purge, self._create),
                (60, 4, 6, 16, 1.5, 1),
            )
            await step(queue)
            while self._in_flight and (not self._free_keys() or self._chance.random() < 0.03):
                self._fewer.clear()
                await self._fewer.wait()

    def _free_keys(self) -> list[str]:
        return [key for key in KEYS if self._sending[key] < IN_FLIGHT_MAX]

    def _sender(self, queue: str) -> Sender:
        return self._broker.open_sender(queue, detached=lambda _: None)

    def _ask(self, what: str, **values: object) -> int:
        self._count += 1
        op = self._seed << 32 | self._count
        note({"ask": what, "op": op, **values})
        return op

    def _try(self, what: str, call: Callable[[], object], **values: object) -> None:
        op, error = self._ask(what, **values), None
        try:
            call()
        except BrokerError as refusal:
            error = str(refusal)
        note({"end": op, "error": error})

    def _asked(self, what: str, key: str = "", **values: object) -> Callable[[BrokerError | None], None]:
        """Note a request; return what notes its answer."""
        self._in_flight += 1
        self._sending[key] += 1
        return partial(self._answered, self._ask(what, **values), key)

    def _answered(self, op: int, key: str, error: BrokerError | None) -> None:
        note({"end": op, "error": None if error is None else str(error)})
        self._in_flight -= 1
        self._sending[key] -= 1
        self._fewer.set()

    def _ids(self, count: int) -> list[str]:
        return [f"{self._seed}-{self._count + 1}-{index}" for index in range(count)]

    async def _send(self, queue: str) -> None:
        self._send_one(queue)

    async def _send_large(self, queue: str) -> None:
        self._send_one(queue, "y" * LARGE)

    def _send_one(self, queue: str, more: str = "") -> None:
        (message_id,) = ids = self._ids(1)
        key = self._chance.choice(self._free_keys())
        done = self._asked("send", key, ids=ids, queue=queue)
        self._senders[queue].send([_encoded(message_id, key, more)], alone(done))

    async def _send_batch(self, queue: str) -> None:
        ids, key = self._ids(self._chance.randint(2, 4)), self._chance.choice(self._free_keys())
        parts = [_encoded(each, key) for each in ids]
        data = b"".join(b"\x00\x53\x75\xb0" + len(part).to_bytes(4, "big") + part for part in parts)
        done = self._asked("send", key, ids=ids, queue=queue)
        self._senders[queue].send([data], alone(done), whole=True)

    async def _complete(self, queue: str) -> None:
        """Receive some and complete most, beside the other steps: one store may be slow."""
        if queue not in self._receiving or self._receiving[queue].done():
            receiver = self._receivers.setdefault(queue, Receiver(self._broker, queue))
            self._receiving[queue] = asyncio.create_task(self._receive(queue, receiver))

    async def _receive(self, queue: str, receiver: Receiver) -> None:
        for delivery in await receiver.drain(self._chance.randint(1, 12)):
            message_id = delivery.payload.rpartition(b"</")[2].partition(b">")[0].decode()
            note({"got": message_id, "number": delivery.sequence_number, "queue": queue})
            if self._chance.random() < 0.9:
                receiver.consumer.settle([delivery.token], Complete(), alone(self._asked("complete", ids=[message_id])))

    async def _purge(self, queue: str) -> None:
        self._try("purge", lambda: self._broker.maintenance.purge(queue), queue=queue)
        self._senders[queue] = self._sender(queue)
        self._receivers.pop(queue, None)  # a purge detaches all links
        self._receiving.pop(queue, None)

    async def _create(self, queue: str) -> None:
        name = f"made-{self._seed}-{self._count}"
        description = QueueDescription(name, enable_partitioning=True)
        self._try("create", lambda: self._broker.administration.create(description), name=name)


def _encoded(message_id: str, key: str, more: str = "") -> bytes:
    return encoded(body_of(message_id) + more, id=message_id, annotations={symbol("x-opt-partition-key"): key})


async def main(data: Path, seed: int, steps: int, fault: str, durability: str) -> None:
    """Run a server and the load; does not return."""
    faults.put(fault)
    server = Server(small.config(data, durability))
    await server.start()
    for queue in QUEUES:
        if server.broker.namespace.entity(queue) is None:
            description = QueueDescription(queue, enable_partitioning=True, lock_duration_ms=300_000)
            server.broker.administration.create(description)
    note({"ready": seed})
    await Load(server, seed).run(steps)
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2]), int(sys.argv[3]), sys.argv[4], sys.argv[5]))
