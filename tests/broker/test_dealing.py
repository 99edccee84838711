"""Messages without a key and the partitions they go to: in turn, and even over any stretch (P11)."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from itertools import groupby
from random import Random

import pytest

from emubus.broker.api import Sender
from emubus.broker.entities.router import BACKLOG_MESSAGES, BACKLOG_PARTS, PART_MESSAGES_MAX
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.contract import PartitionRef
from emubus.broker.partition.requests import Request, Send
from emubus.broker.stores.worker import Worker

from .driving import encoded
from .namespace import WAIT_S, open_broker

STRETCH = 2_000
FULLEST = 1.5
UNKNOWN = -1
MESSAGE = encoded("m")


class Dealt:
    """A sender to a partitioned queue: the partition of each message, in their order, and the sizes of requests."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.indexes: list[int] = []
        self.requests: list[int] = []
        self._run_begins = 0
        self._open = 0
        self._all_done = asyncio.Event()
        submit = Worker.submit

        def noted(worker: Worker, handle: PartitionRef, request: Request) -> None:
            if isinstance(request, Send):
                self.requests.append(len(request.positions))
                for position in request.positions:
                    assert self.indexes[self._run_begins + position] == UNKNOWN
                    self.indexes[self._run_begins + position] = handle.index
            submit(worker, handle, request)

        monkeypatch.setattr(Worker, "submit", noted)
        self.broker = open_broker(QueueDescription("part", enable_partitioning=True))
        self.sender: Sender = self.broker.open_sender("part", detached=print)

    def send(self, count: int) -> None:
        """Send messages in one run."""
        self._open += count
        self._all_done.clear()
        self._run_begins = len(self.indexes)
        self.indexes += [UNKNOWN] * count
        self.sender.send([MESSAGE] * count, self._done)
        assert UNKNOWN not in self.indexes[self._run_begins :]

    async def stored(self) -> None:
        """Wait until all that was sent is stored."""
        if self._open:
            await asyncio.wait_for(self._all_done.wait(), WAIT_S)

    def _done(self, positions: Sequence[int], error: BrokerError | None) -> None:
        assert error is None
        self._open -= len(positions)
        if not self._open:
            self._all_done.set()


@pytest.mark.parametrize("seed", range(8))
async def test_any_stretch_of_messages_is_even_over_the_partitions(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    dealt, random = Dealt(monkeypatch), Random(seed)
    run_max = random.choice([1, 5, 40, 256])
    while len(dealt.indexes) < 3 * STRETCH:
        for _ in range(random.choice([1, 2, 10])):
            dealt.send(random.randint(1, run_max))
        if random.random() < 0.7:
            await dealt.stored()
    await dealt.stored()
    for start in range(0, len(dealt.indexes) - STRETCH, 37):
        counts = Counter(dealt.indexes[start : start + STRETCH])
        assert max(counts.values()) <= FULLEST * STRETCH / 16


async def test_few_messages_go_to_one_partition_each(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt = Dealt(monkeypatch)
    dealt.send(32)
    await dealt.stored()
    for _ in range(16):
        dealt.send(1)
        await dealt.stored()
    assert dealt.indexes == list(range(16)) * 3


async def test_a_backlog_is_dealt_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt = Dealt(monkeypatch)
    for _ in range(4):
        dealt.send(256)
    in_turn = BACKLOG_MESSAGES + 1
    assert dealt.indexes[:in_turn] == [number % 16 for number in range(in_turn)]
    parts = [len(list(part)) for _, part in groupby(dealt.indexes[in_turn:])]
    assert BACKLOG_MESSAGES // BACKLOG_PARTS == parts[0] < max(parts) == PART_MESSAGES_MAX
    await dealt.stored()


async def test_a_partition_gets_its_messages_of_a_run_together(monkeypatch: pytest.MonkeyPatch) -> None:
    dealt = Dealt(monkeypatch)
    dealt.send(40)
    assert dealt.requests == [3] * 8 + [2] * 8
    await dealt.stored()
