"""What happens to an entity, in each mode: no row is lost and none is doubled, or an error names the change.

Each test is a row of the table, over the modes `browse`, `drain` and `claim`; its query is driven by Spark's order of
calls, without Spark.
"""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emubus.broker.api import OutageKind
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.names import SnapshotName
from emubus.conditions.faults import FaultKind, FaultOperation
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from .kit import BODIES, FakeTime, KilledError, Spark, json_again, options_of, rows_of, send_texts, stored

MODES: dict[str, dict[str, Any]] = {
    "browse": {},
    "drain": {"mode": "drain"},
    "claim": {"mode": "claim", "claimId": "c"},
}
KINDS = {"queue": QueueDescription("q"), "partitions": QueueDescription("q", enable_partitioning=True)}
ALLOWED: dict[str, Any] = {"failOnDataLoss": "false"}

ReplaceEntity = Callable[[EmubusServer, QueueDescription], set[int]]


@pytest.fixture(scope="module")
def world() -> Iterator[EmubusServer]:
    """A server whose namespace may be replaced."""
    with EmubusServer() as running:
        yield running


@pytest.fixture(params=KINDS)
def entity(request: pytest.FixtureRequest, world: EmubusServer) -> Iterator[QueueDescription]:
    """A queue `q`, with and without partitions."""
    world.create(KINDS[request.param])
    yield KINDS[request.param]
    world.delete("q")


def query_of(server: EmubusServer, mode: str, **raw: Any) -> Spark:
    return Spark(options_of(server, "q", **MODES[mode], **raw), BODIES)


def bodies(query: Spark) -> list[int]:
    """What is in the sink."""
    return sorted(int(body) for _, body in query.rows)


def recreated(server: EmubusServer, entity: QueueDescription) -> set[int]:
    server.delete("q")
    server.create(entity)
    return set()


def restored(server: EmubusServer, entity: QueueDescription) -> set[int]:
    """The snapshot was taken when there were 32 messages."""
    del entity
    server.restore("s")
    return set(range(32))


def with_snapshot(server: EmubusServer) -> None:
    """48 messages; the snapshot `s` has the first 32."""
    send_texts(server, "q", 32)
    if "s" in {each.name for each in server.server.snapshots.list()}:
        server.run(server.server.snapshots.delete(SnapshotName("s")))
    server.snapshot("s")
    send_texts(server, "q", 16, first=32)


@pytest.mark.parametrize("sent_later", [0, 100], ids=["fewer", "overtaken"])
@pytest.mark.parametrize("replace_it", [recreated, restored])
@pytest.mark.parametrize("mode", MODES)
def test_a_replaced_entity_is_data_loss_or_read_from_its_first_message(
    world: EmubusServer, entity: QueueDescription, mode: str, replace_it: ReplaceEntity, sent_later: int
) -> None:
    with_snapshot(world)
    query = query_of(world, mode)
    query.run()
    assert bodies(query) == list(range(48))
    there = replace_it(world, entity)
    send_texts(world, "q", sent_later, first=100)
    there |= set(range(100, 100 + sent_later))
    with pytest.raises(ConnectorError, match=r"q: the checkpoint is of generation .*failOnDataLoss=false") as lost:
        query.run()
    assert lost.value.code is Code.DATA_LOSS
    assert world.message_counts("q")["active"] == stored(world, "q") == len(there)
    before = len(query.sink)
    query.options = options_of(world, "q", **MODES[mode], **ALLOWED, maxMessagesPerTrigger=7)
    query.run()
    assert sorted(int(body) for batch in range(before, len(query.sink)) for _, body in query.sink[batch]) == sorted(
        there
    )
    assert stored(world, "q") == (len(there) if mode == "browse" else 0)


@pytest.mark.parametrize("replace_it", [recreated, restored])
@pytest.mark.parametrize("mode", MODES)
def test_a_logged_batch_of_a_replaced_entity_reads_no_message_of_the_new_one(
    world: EmubusServer, entity: QueueDescription, mode: str, replace_it: ReplaceEntity
) -> None:
    with_snapshot(world)
    query = query_of(world, mode)
    query.steps_left = 3
    with pytest.raises(KilledError):
        query.run()
    assert (len(query.offsets), query.commits) == (1, 0)
    there = replace_it(world, entity)
    send_texts(world, "q", 100, first=100)
    there |= set(range(100, 200))
    query.steps_left = None
    with pytest.raises(ConnectorError, match="generation") as lost:
        query.run()
    assert lost.value.code is Code.DATA_LOSS
    query.options = options_of(world, "q", **MODES[mode], **ALLOWED)
    query.run()
    assert query.sink[0] == []
    assert bodies(query) == sorted(there)


@pytest.mark.parametrize("mode", MODES)
def test_a_task_reads_no_message_of_an_entity_that_replaced_its_own(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    reader = StreamReader(query.options, BODIES)
    start = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))
    tasks = reader.partitions(start, end)
    recreated(world, entity)
    send_texts(world, "q", 32)
    with pytest.raises(ConnectorError, match="it was created again or restored") as lost:
        rows_of(reader, tasks)
    assert lost.value.code is Code.DATA_LOSS
    tolerant = StreamReader(options_of(world, "q", **MODES[mode], **ALLOWED), BODIES)
    assert rows_of(tolerant, tasks) == []
    reader.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_task_whose_executor_is_killed_in_the_middle_is_read_again_alike(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    send_texts(world, "q", 64)
    query = query_of(world, mode, peekBatchSize=2)
    reader = StreamReader(query.options, BODIES)
    start = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset(start, ReadAllAvailable()))
    tasks = reader.partitions(start, end)
    broken = [next(iter(reader.read(task))).num_rows for task in tasks]
    executor = pickle.loads(pickle.dumps(StreamReader(query.options, BODIES)))
    rows = rows_of(executor, tasks)
    assert 0 < sum(broken) <= 64
    assert sorted(int(body) for _, body in rows) == list(range(64))
    assert rows_of(reader, tasks) == rows  # also the first one, if it was only thought to be dead
    reader.stop()


@pytest.mark.parametrize("mode", MODES)
def test_a_purged_entity_goes_on_with_its_numbers(world: EmubusServer, entity: QueueDescription, mode: str) -> None:
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    query.run()
    send_texts(world, "q", 20, first=100)
    world.purge("q")
    send_texts(world, "q", 20, first=200)
    query.run()
    assert bodies(query) == [*range(32), *range(200, 220)]


@pytest.mark.parametrize("mode", MODES)
def test_a_checkpoint_of_a_release_without_generations_goes_on(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    query.run()
    query.offsets = [
        json.dumps({key: each for key, each in json.loads(text).items() if key != "g"}) for text in query.offsets
    ]
    send_texts(world, "q", 32, first=32)
    query.run()
    assert bodies(query) == list(range(64))
    assert json.loads(query.offsets[-1])["g"] == world.call(lambda: world.server.broker.messages.generation("q"))
    recreated(world, entity)
    with pytest.raises(ConnectorError, match="generation"):
        query.run()


# ---- changes that the entity survives


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.mark.parametrize("mode", MODES)
def test_messages_that_expire_are_not_read_and_none_of_the_others_is_missed(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    world.update(replace(entity, default_ttl_ms=60_000))
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    query.run()
    send_texts(world, "q", 20, first=100)
    world.advance(61_000)
    send_texts(world, "q", 20, first=200)
    query.run()
    assert bodies(query) == [*range(32), *range(200, 220)]


@pytest.mark.parametrize("mode", MODES)
def test_a_logged_batch_whose_messages_expire_has_only_those_that_are_there(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    world.update(replace(entity, default_ttl_ms=60_000))
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    query.steps_left = 3
    with pytest.raises(KilledError):
        query.run()
    assert (len(query.offsets), query.commits) == (1, 0)
    query.steps_left = None
    world.advance(61_000)
    send_texts(world, "q", 20, first=200)
    query.run()
    read = list(range(32)) if mode == "claim" else []  # a deferred message is there until it is settled
    assert bodies(query) == [*read, *range(200, 220)]


@pytest.mark.parametrize("mode", MODES)
def test_an_entity_that_begins_to_forward_ends_the_query_and_goes_on_afterwards(
    world: EmubusServer, entity: QueueDescription, mode: str
) -> None:
    world.create(QueueDescription("target"))
    try:
        send_texts(world, "q", 32)
        query = query_of(world, mode)
        query.run()
        world.update(replace(entity, forward_to="target"))
        send_texts(world, "q", 5, first=100)
        with pytest.raises(ConnectorError, match=r"q: .*forward"):
            query.run()
        assert bodies(query) == list(range(32))
        world.update(entity)
        send_texts(world, "q", 20, first=200)
        query.run()
        assert set(range(200, 220)) <= set(bodies(query))
        assert len(bodies(query)) == len(set(bodies(query)))
        found = {int(each.text or "") for each in world.peek("target")}
        assert found | set(bodies(query)) == {*range(32), *range(100, 105), *range(200, 220)}
        assert found & set(bodies(query)) <= set(range(32))
    finally:
        world.delete("target")


@pytest.mark.parametrize("kind", [OutageKind.FULL, OutageKind.FAILING])
@pytest.mark.parametrize("mode", MODES)
def test_a_store_that_takes_no_changes_delays_only(
    world: EmubusServer, entity: QueueDescription, fake_time: FakeTime, mode: str, kind: OutageKind
) -> None:
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    world.begin_outage(range(16), kind)

    def end(_: float) -> None:
        if fake_time.now_s > 1001:
            world.end_outage(range(16))

    fake_time.at_wait = end
    query.run()
    world.end_outage(range(16))
    world.advance(61_000)  # locks of claims that were refused end
    send_texts(world, "q", 20, first=100)
    query.run()
    assert bodies(query) == [*range(32), *range(100, 120)]
    assert stored(world, "q") == (52 if mode == "browse" else 0)


FAULTS = {
    "throttled": (FaultKind.SERVER_BUSY, ()),
    "connection cut": (FaultKind.DROPPED_CONNECTION, ()),
    "connection cut while settling": (FaultKind.DROPPED_CONNECTION, (FaultOperation.SETTLE,)),
    "link cut": (FaultKind.DROPPED_LINK, ()),
    "lock lost": (FaultKind.LOST_LOCK, (FaultOperation.SETTLE,)),
    "answer lost": (FaultKind.MISSING_CONFIRMATION, ()),
}


@pytest.mark.parametrize("fault", FAULTS)
@pytest.mark.parametrize("mode", MODES)
def test_a_fault_delays_only(
    world: EmubusServer, entity: QueueDescription, fake_time: FakeTime, mode: str, fault: str
) -> None:
    send_texts(world, "q", 64)
    kind, operations = FAULTS[fault]
    raw = {"retryTimeout": "5m", "operationTimeout": "300ms", "maxMessagesPerTrigger": 20}
    query = query_of(world, mode, **raw)
    for round_ in range(2):
        world.add_fault(kind, entity="q", operations=operations, count=1 if fault == "answer lost" else 2)
        query.run()
        send_texts(world, "q", 16, first=64 + 16 * round_)
    unused = world.clear_faults()
    world.advance(61_000)  # locks of claims that were cut off end
    query.run()
    assert bodies(query) == list(range(96))
    assert stored(world, "q") == (96 if mode == "browse" else 0)
    assert unused == 0 or operations
    assert fake_time.now_s >= 1000


@pytest.mark.parametrize("mode", MODES)
def test_yesterdays_checkpoint_with_yesterdays_sink_doubles_nothing_and_misses_only_what_was_deleted(
    world: EmubusServer, entity: QueueDescription, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    send_texts(world, "q", 32)
    query = query_of(world, mode)
    query.run()
    offsets, commits, sink = list(query.offsets), query.commits, dict(query.sink)
    send_texts(world, "q", 32, first=100)
    query.run()
    assert len(bodies(query)) == 64
    assert "are gone" not in caplog.text
    query.offsets, query.commits, query.sink = offsets, commits, sink
    send_texts(world, "q", 32, first=200)
    query.run()
    assert ("q: 32 sequence numbers after the checkpoint's position are gone" in caplog.text) is (mode == "drain")
    deleted = [] if mode == "browse" else list(range(100, 132))
    assert bodies(query) == sorted({*range(32), *range(100, 132), *range(200, 232)} - {*deleted})
