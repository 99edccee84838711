"""Locks and held sessions outlive a batch of which nothing is stored: their receivers go on as if it had not been."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path

import pytest

from emubus.broker.api import (
    TABLES,
    Abandon,
    Complete,
    Delivery,
    Outage,
    OutageKind,
    ReceiveMode,
    SessionReceiver,
    alone,
)
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.message import parse_sent
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.descriptions import QueueDescription, Topology
from emubus.broker.model.profiles import Profile, limits_for
from emubus.broker.partition.requests import Done
from emubus.storage import Durability
from emubus.storage.lmdb_store import LmdbStore
from emubus.storage.memory_store import MemoryStore

from .driving import decoded, encoded, send_whole, settle_alone
from .namespace import WAIT_S, CheckedBroker, Receiver, loop_turns, open_broker, send

LOCK_MS = 60_000
REFUSING = [OutageKind.FAILING, OutageKind.FULL]


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def bodies(deliveries: Sequence[Delivery]) -> list[str]:
    return [bytes(message.body).decode() for message in decoded(deliveries)]


class Holder:
    """A receiver that holds the session "s" of the queue "in sessions"."""

    def __init__(self, broker: Broker) -> None:
        self.consumer: SessionReceiver | None = None
        self.errors: list[Condition] = []
        self.got: list[Delivery] = []
        broker.accept_session(
            "in-sessions",
            "s",
            mode=ReceiveMode.PEEK_LOCK,
            timeout_ms=1_000,
            granted=self._granted,
            refused=self._ended,
            detached=self._ended,
        )

    def _granted(self, consumer: SessionReceiver) -> None:
        consumer.deliver = self.got.extend
        self.consumer = consumer
        consumer.set_credit(10)

    def _ended(self, error: BrokerError) -> None:
        self.errors.append(error.condition)

    async def settle(self, delivery: Delivery) -> BrokerError | None:
        answer: asyncio.Future[BrokerError | None] = asyncio.get_running_loop().create_future()
        assert self.consumer is not None
        self.consumer.settle([delivery.token], Complete(), alone(answer.set_result))
        return await asyncio.wait_for(answer, WAIT_S)


def one_store_broker(folder: Path, clock: Clock) -> Broker:
    """One messaging store that has room for 1 MiB, with a plain queue and one in sessions."""
    store = LmdbStore(folder, TABLES, Durability.PROCESS, map_bytes_max=1 << 20)
    broker = CheckedBroker(Catalog(MemoryStore(CATALOG_TABLES)), [store], clock, limits_for(Profile.STANDARD))
    broker.start(Topology(queues=(QueueDescription("plain"), QueueDescription("in-sessions", requires_session=True))))
    return broker


async def test_a_message_without_room_costs_no_other_client_its_lock_or_session(tmp_path: Path, clock: Clock) -> None:
    broker = one_store_broker(tmp_path, clock)
    for body in ("a", "b", "c"):
        await send(broker, "plain", encoded(body))
    await send(broker, "in-sessions", encoded("1", group_id="s"))
    receiver, holder = Receiver(broker, "plain"), Holder(broker)
    first, second = await receiver.receive(2)
    await loop_turns(5)
    answers: dict[str, Condition | None] = {}

    def keep(name: str) -> Done:
        def done(error: BrokerError | None) -> None:
            answers[name] = None if error is None else error.condition

        return done

    plain, in_sessions = (broker.namespace.entity(path) for path in ("plain", "in-sessions"))
    assert plain is not None
    assert in_sessions is not None
    too_large = encoded("x" * 2_000_000)
    grouped = encoded("x" * 2_000_000, group_id="s")
    plain.partitions[0].submit(settle_alone(first.token, Complete(), keep("complete")))
    plain.partitions[0].submit(send_whole([parse_sent(too_large)], keep("too large")))
    in_sessions.partitions[0].submit(send_whole([parse_sent(grouped)], keep("too large in s")))
    plain.partitions[0].submit(send_whole([parse_sent(encoded("d"))], keep("d")))
    while len(answers) < 4:
        await loop_turns(1)
    assert answers == {
        "complete": None,
        "too large": Condition.SERVER_BUSY,
        "too large in s": Condition.SERVER_BUSY,
        "d": None,
    }
    clock.advance(1_000)
    await loop_turns(5)
    assert await receiver.settle(second, Complete()) is None
    assert bodies(await receiver.drain()) == ["c", "d"]
    assert bodies(holder.got) == ["1"]
    assert await holder.settle(holder.got[0]) is None
    assert holder.errors == []
    await send(broker, "in-sessions", encoded("2", group_id="s"))
    await loop_turns(5)
    assert bodies(holder.got) == ["1", "2"]


@pytest.mark.parametrize("kind", REFUSING)
async def test_a_settlement_that_a_store_refuses_can_be_made_when_it_works_again(
    clock: Clock, kind: OutageKind
) -> None:
    broker = open_broker(QueueDescription("plain"), clock=clock)
    for body in ("a", "b"):
        await send(broker, "plain", encoded(body))
    receiver = Receiver(broker, "plain")
    first, second = await receiver.receive(2)
    entity = broker.namespace.entity("plain")
    assert entity is not None
    (place,) = entity.partitions
    broker.outages.begin(place.worker.index, Outage(kind))
    refused = await receiver.settle(first, Complete())
    assert refused is not None
    assert refused.condition is Condition.SERVER_BUSY
    refused = await receiver.settle(second, Abandon())
    assert refused is not None
    clock.advance(1_000)
    assert await receiver.drain() == []
    broker.outages.end(place.worker.index)
    assert await receiver.settle(first, Complete()) is None
    clock.advance(LOCK_MS)
    await loop_turns(5)
    (again,) = await receiver.receive(1)
    assert (bodies([again]), decoded([again])[0].delivery_count) == (["b"], 1)


@pytest.mark.parametrize("kind", REFUSING)
async def test_a_session_is_held_through_commits_that_its_store_refuses(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QueueDescription("in-sessions", requires_session=True), clock=clock)
    await send(broker, "in-sessions", encoded("1", group_id="s"))
    await send(broker, "in-sessions", encoded("2", group_id="s"))
    holder = Holder(broker)
    await loop_turns(5)
    entity = broker.namespace.entity("in-sessions")
    assert entity is not None
    index = entity.partitions[0].worker.index
    broker.outages.begin(index, Outage(kind))
    refused = await holder.settle(holder.got[0])
    assert refused is not None
    assert refused.condition is Condition.SERVER_BUSY
    with pytest.raises(BrokerError):
        await send(broker, "in-sessions", encoded("3", group_id="s"))
    broker.outages.end(index)
    clock.advance(1_000)
    await loop_turns(5)
    assert [await holder.settle(each) for each in holder.got] == [None, None]
    await send(broker, "in-sessions", encoded("4", group_id="s"))
    await loop_turns(5)
    assert (bodies(holder.got), holder.errors) == (["1", "2", "4"], [])


@pytest.mark.parametrize("kind", [*REFUSING, OutageKind.DOWN])
async def test_a_session_given_back_during_an_outage_is_free_after_it(clock: Clock, kind: OutageKind) -> None:
    broker = open_broker(QueueDescription("in-sessions", requires_session=True), clock=clock)
    await send(broker, "in-sessions", encoded("1", group_id="s"))
    holder = Holder(broker)
    await loop_turns(5)
    entity = broker.namespace.entity("in-sessions")
    assert entity is not None
    index = entity.partitions[0].worker.index
    broker.outages.begin(index, Outage(kind))
    assert holder.consumer is not None
    holder.consumer.close()
    await loop_turns(5)
    clock.advance(1_000)
    await loop_turns(5)
    broker.outages.end(index)
    clock.advance(1_000)
    await loop_turns(5)
    following = Holder(broker)
    await loop_turns(5)
    assert (bodies(following.got), following.errors) == (["1"], [])


@pytest.mark.parametrize("kind", [*REFUSING, OutageKind.DOWN])
async def test_sequence_numbers_go_on_in_an_emptied_entity_whose_store_went_out_then(
    clock: Clock, kind: OutageKind
) -> None:
    broker = open_broker(QueueDescription("plain"), clock=clock)
    for body in ("a", "b"):
        await send(broker, "plain", encoded(body))
    entity = broker.namespace.entity("plain")
    assert entity is not None
    index = entity.partitions[0].worker.index
    broker.maintenance.purge("plain")
    broker.outages.begin(index, Outage(kind))
    await loop_turns(5)
    broker.outages.end(index)
    await loop_turns(5)
    await send(broker, "plain", encoded("c"))
    (delivery,) = await Receiver(broker, "plain").receive(1)
    assert (bodies([delivery]), delivery.sequence_number) == (["c"], 3)
