"""What a messaging store's worker puts into one commit, and what becomes of a batch that the store does not take."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from proton import timestamp

from emubus.broker.api import TABLES
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.message.message import parse_sent
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology
from emubus.broker.model.profiles import Profile, limits_for
from emubus.broker.partition.requests import Done, FireAndForget, Send
from emubus.storage import Durability
from emubus.storage.lmdb_store import LmdbStore
from emubus.storage.memory_store import MemoryStore

from .driving import decoded, encoded, send_whole
from .namespace import CheckedBroker, Receiver, loop_turns, open_broker, send


@pytest.fixture
def clock() -> Clock:
    return Clock(start_at=1_800_000_000_000, frozen=True)


def small_broker(folder: Path, clock: Clock, map_bytes_max: int) -> Broker:
    """One messaging store of `map_bytes_max` with a queue "q"."""
    store = LmdbStore(folder, TABLES, Durability.PROCESS, map_bytes_max=map_bytes_max)
    broker = CheckedBroker(Catalog(MemoryStore(CATALOG_TABLES)), [store], clock, limits_for(Profile.STANDARD))
    broker.start(Topology(queues=(QueueDescription("q"),)))
    return broker


async def together(broker: Broker, commands: Sequence[object]) -> None:
    """Put commands for the queue "q" into one batch, and wait until it is over."""
    entity = broker.namespace.entity("q")
    assert entity is not None
    (place,) = entity.partitions
    for command in commands:
        place.submit(command)  # type: ignore[arg-type]
    last: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    place.submit(send_whole([parse_sent(encoded("last"))], lambda _: last.set_result(None)))
    await asyncio.wait_for(last, 10)


def to_send(body: str, answers: dict[str, Condition | None]) -> Send:
    def done(error: BrokerError | None) -> None:
        answers[body[:2]] = None if error is None else error.condition

    keep: Done = done
    return send_whole([parse_sent(encoded(body))], keep)


def bodies(broker_deliveries: Sequence[object]) -> list[str]:
    return [bytes(message.body).decode()[:4] for message in decoded(broker_deliveries)]  # type: ignore[arg-type]


async def test_a_topic_with_50_subscriptions_takes_what_is_in_flight_at_once_on_an_empty_disk(
    tmp_path: Path, clock: Clock
) -> None:
    broker = open_broker(folder=tmp_path, clock=clock)
    broker.administration.create(TopicDescription("t"))
    for number in range(50):
        broker.administration.create(SubscriptionDescription("t", f"s{number:02}"))
    body = "x" * 1000
    answers = await asyncio.gather(*(send(broker, "t", encoded(body)) for _ in range(900)), return_exceptions=True)
    assert Counter(map(repr, answers)) == {"None": 900}
    stored = [broker.namespace.entity(f"t/Subscriptions/s{number:02}") for number in range(50)]
    assert [entity.message_counts()[0] for entity in stored if entity is not None] == [900] * 50


async def test_of_a_batch_that_does_not_fit_only_the_message_without_room_is_refused(
    tmp_path: Path, clock: Clock
) -> None:
    broker = small_broker(tmp_path, clock, 1 << 20)
    answers: dict[str, Condition | None] = {}
    await together(broker, [to_send(body, answers) for body in ("a1", "b1", "c" * 2_000_000, "d1", "e1")])
    assert answers == {"a1": None, "b1": None, "cc": Condition.SERVER_BUSY, "d1": None, "e1": None}
    assert bodies(await Receiver(broker, "q").drain()) == ["a1", "b1", "d1", "e1", "last"]


async def test_a_message_larger_than_the_map_is_taken_as_long_as_the_map_may_grow(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("emubus.broker.stores.batches.written_bytes_max", lambda ref, command: (512, 512))
    monkeypatch.setattr("emubus.storage.lmdb_store.MAP_SLACK_BYTES", 0)
    monkeypatch.setattr("emubus.storage.lmdb_store.MAP_BYTES_START", 1 << 20)
    broker = small_broker(tmp_path, clock, 1 << 30)
    answers: dict[str, Condition | None] = {}
    await together(broker, [to_send(body, answers) for body in ("a1", "c" * 9_000_000, "d1")])
    assert answers == {"a1": None, "cc": None, "d1": None}


@dataclass(slots=True)
class Unheard(FireAndForget):
    """A command that no partition knows."""

    failures: list[Condition]

    def fail(self, error: BrokerError) -> None:
        """Keep the reason."""
        self.failures.append(error.condition)


async def test_a_command_that_the_broker_fails_on_takes_no_other_with_it(tmp_path: Path, clock: Clock) -> None:
    broker = small_broker(tmp_path, clock, 1 << 24)
    answers: dict[str, Condition | None] = {}
    bad = Unheard([])
    await together(broker, [to_send("a1", answers), bad, to_send("b1", answers), to_send("c1", answers)])
    assert answers == {"a1": None, "b1": None, "c1": None}
    assert bad.failures == [Condition.INTERNAL_ERROR]
    assert bodies(await Receiver(broker, "q").drain()) == ["a1", "b1", "c1", "last"]


async def test_a_scheduled_message_comes_in_time_after_an_earlier_one_was_cancelled(clock: Clock) -> None:
    broker = open_broker(QueueDescription("q"), clock=clock)
    first, second = (
        encoded("later", annotations={"x-opt-scheduled-enqueue-time": timestamp(clock.now_ms() + ms)})
        for ms in (1_000, 5_000)
    )
    numbers = await broker.messages.schedule("q", [first])
    await broker.messages.schedule("q", [second])
    await broker.messages.cancel_scheduled("q", numbers)
    clock.advance(1_000)
    await loop_turns(5)
    clock.advance(4_000)
    await loop_turns(5)
    assert bodies(await Receiver(broker, "q").drain()) == ["late"]
