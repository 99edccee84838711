"""Large batches of all stores share a turn of the event loop: some of them wait for the next one. No store."""

from __future__ import annotations

import asyncio
from itertools import pairwise

import pytest

from emubus.broker.address import SubQueue
from emubus.broker.api import Complete, ReceiveMode
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.requests import Receive, Settle
from emubus.broker.stores.batches import LARGE_BYTES, LARGE_COUNT, REQUEST_BYTES, Submitted, next_batch
from emubus.broker.turns import LARGE_TURN_US, Pace

from .acts import nothing
from .driving import Place
from .namespace import loop_turns

BATCH_US = LARGE_TURN_US // 2 + 1


class Stores:
    """As many stores as are wanted, each with one batch; `order` has those that were executed."""

    def __init__(self) -> None:
        self.pace = Pace()
        self.order: list[int] = []

    async def execute(self, index: int, requests: list[Submitted]) -> None:
        await self.pace.wait(large=next_batch(requests).large)
        self.pace.add(BATCH_US)
        self.order.append(index)


PLACE = Place(QueueDescription("q"), index=0, partitioned=False)


def receive(count: int) -> list[Submitted]:
    return [(PLACE, Receive(SubQueue.ACTIVE, count, ReceiveMode.PEEK_LOCK, nothing))]


def settle(count: int) -> list[Submitted]:
    return [(PLACE, Settle([bytes(16)] * count, (), Complete(), None))]


async def executed_by_turn(requests: list[Submitted]) -> list[int]:
    """How many of six batches are executed in each turn."""
    stores, counts = Stores(), list[int]()
    tasks = [asyncio.create_task(stores.execute(index, requests)) for index in range(6)]
    while not all(task.done() for task in tasks):
        before = len(stores.order)
        await loop_turns(1)
        counts.append(len(stores.order) - before)
    assert stores.order == list(range(6))
    return [count for count in counts if count]


async def test_large_batches_are_spread_over_turns_in_their_order() -> None:
    assert await executed_by_turn(settle(LARGE_BYTES // REQUEST_BYTES + 1)) == [2, 2, 2]


async def test_receives_of_many_messages_are_large() -> None:
    assert await executed_by_turn(receive(LARGE_COUNT + 1)) == [2, 2, 2]


async def test_small_batches_wait_for_no_turn() -> None:
    assert await executed_by_turn(receive(LARGE_COUNT)) == [6]
    assert await executed_by_turn(settle(LARGE_BYTES // REQUEST_BYTES)) == [6]


@pytest.mark.parametrize("pauses", [False, True], ids=["waits", "pauses"])
async def test_each_turn_takes_a_large_batch_although_small_ones_use_it_up(pauses: bool) -> None:
    stores, loop = Stores(), asyncio.get_running_loop()

    def use_up() -> None:
        stores.pace.add(LARGE_TURN_US + 1)
        loop.call_soon(use_up)

    async def execute(index: int) -> None:
        await (stores.pace.pause() if pauses else stores.pace.wait(large=True))
        stores.order.append(index)

    use_up()
    tasks = [asyncio.create_task(execute(index)) for index in range(4)]
    taken: list[int] = []
    for _ in range(8):
        await loop_turns(1)
        taken.append(len(stores.order))
    assert all(task.done() for task in tasks)
    assert stores.order == [0, 1, 2, 3]
    assert max(after - before for before, after in pairwise(taken)) < 3, "they do not go in one turn"
