"""Receives beside completed messages go first: the next messages go out before the completed ones are deleted."""

from __future__ import annotations

import asyncio
import random

import pytest

from emubus.broker.api import Abandon, Complete, alone
from emubus.broker.message.message import parse_message
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.requests import ExpireLocks, Receive, ReceiveFromSession, Request, Settle
from emubus.broker.stores.batches import split_receives
from emubus.storage import Store

from .acts import nothing
from .driving import encoded, send_whole
from .namespace import Receiver, open_broker, send
from .tearing import Fate
from .test_settlement_runs import ACTIVE, LOCK_MS, PEEK, Twin

STEPS = 60


@pytest.mark.parametrize("waits", [True, False], ids=["waits for the disk", "writes at once"])
async def test_a_message_goes_out_before_the_completed_one_is_deleted_if_that_waits(waits: bool) -> None:
    out_at_commit: list[list[int]] = []
    receivers: list[Receiver] = []

    def look(step: str) -> None:
        if step == "batch-applied" and receivers:
            out_at_commit.append([each.sequence_number for each in receivers[0].got])

    def wrapped(store: Store) -> Store:
        store.waits = waits
        return store

    broker = open_broker(QueueDescription("q"), failpoint=look, wrap=wrapped)
    for body in ("first", "second"):
        await send(broker, "q", encoded(body))
    receiver = Receiver(broker, "q")
    (first,) = await receiver.receive(1)
    receivers.append(receiver)
    settled: asyncio.Future[object] = asyncio.get_running_loop().create_future()
    receiver.consumer.settle([first.token], Complete(), alone(settled.set_result))
    receiver.consumer.set_credit(1)
    assert await asyncio.wait_for(settled, 10) is None
    (second,) = receiver.got
    assert second.sequence_number == first.sequence_number + 1
    assert out_at_commit == [[second.sequence_number] if waits else []]


async def test_an_abandoned_message_is_received_again_before_the_next_one() -> None:
    broker = open_broker(QueueDescription("q"))
    for body in ("first", "second"):
        await send(broker, "q", encoded(body))
    receiver = Receiver(broker, "q")
    (first,) = await receiver.receive(1)
    receiver.consumer.settle([first.token], Abandon(), alone(nothing))
    (again,) = await receiver.receive(1)
    assert again.sequence_number == first.sequence_number


@pytest.mark.parametrize("sessions", [False, True], ids=["plain", "sessions"])
@pytest.mark.parametrize("seed", range(6))
def test_the_order_of_receives_and_completed_messages_does_not_show(seed: int, sessions: bool) -> None:
    chance = random.Random(seed)
    in_order, split = Twin(sessions), Twin(sessions)
    now = 1_700_000_000_000
    for step in range(STEPS):
        now += chance.choice((0, 1, 900, LOCK_MS // 2, LOCK_MS))
        names = [f"name:{step:04}{number:02}" for number in range(chance.randint(1, 6))]
        fields: dict[str, object] = {"ttl": chance.choice((0, 0, 3, 9))}
        if sessions:
            fields["group_id"] = chance.choice("ab")
        known = range(len(split.received))
        chosen = chance.choices(known[-12:], k=4 if known else 0)
        counts = [chance.randint(1, 5) for _ in range(2)]
        for twin in (in_order, split):
            twin.run(now, send_whole([parse_message(encoded(name, **fields)) for name in names], nothing))
            if sessions:
                twin.take(now, ACTIVE, 1, PEEK)
            requests = _mixed(twin, twin.tokens(chosen), counts, sessions)
            parts = [requests] if twin is in_order else _split(twin, requests)
            for part in parts:
                twin.run(now, *part)
            twin.run(now, ExpireLocks(), fate=Fate.STORED)
            twin.cell.check()
        assert in_order.state() == split.state()
    assert len(split.received) > STEPS


def _mixed(twin: Twin, tokens: list[bytes], counts: list[int], sessions: bool) -> list[Request]:
    """Completed messages before, between and behind receives."""
    settled = [Settle([token], [0], Complete(), None) for token in tokens]
    receives: list[Request] = [
        ReceiveFromSession(twin.grants[-1].grant, count, PEEK, lambda got: twin.received.extend(got.deliveries))
        if sessions and twin.grants
        else Receive(ACTIVE, count, PEEK, lambda got: twin.received.extend(got.deliveries))
        for count in counts
    ]
    return [*settled[:2], receives[0], *settled[2:], receives[1]]


def _split(twin: Twin, requests: list[Request]) -> list[list[Request]]:
    return [[request for _, request in part] for part in split_receives([(twin.place, each) for each in requests])]
