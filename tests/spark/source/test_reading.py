"""Batches: what is planned, and that tasks give every message of their range once, in order."""

from __future__ import annotations

import pickle
from datetime import UTC, datetime
from typing import Any

import pytest

from emubus.broker.api import OutageKind
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.batch import BatchReader
from emubus.spark_connector.source.plan import RangeTask
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import BODIES, NUMBERS, options_of, plain, read_batch, rows_of, send, send_texts


@pytest.fixture
def parts(make_queue: MakeQueue) -> str:
    return make_queue(enable_partitioning=True)


def test_an_empty_queue_gives_no_rows(server: EmubusServer, queue: str) -> None:
    reader = BatchReader(options_of(server, queue, streaming=False), NUMBERS)
    assert reader.partitions() == []
    assert list(reader.read(pickle.loads(pickle.dumps(RangeTask(queue, 0, 0))))) == []


@pytest.mark.parametrize("peek_batch_size", [1, 7, 500])
def test_a_queue_is_read_in_order(server: EmubusServer, queue: str, peek_batch_size: int) -> None:
    send_texts(server, queue, 60)
    options = options_of(server, queue, streaming=False, peekBatchSize=peek_batch_size)
    assert read_batch(options, BODIES) == [(number + 1, str(number).encode()) for number in range(60)]


def test_every_partition_is_a_task_and_gives_its_own(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 64)
    reader = BatchReader(options_of(server, parts, streaming=False), NUMBERS)
    tasks = reader.partitions()
    assert [rows_of(reader, [task]) for task in tasks] == [
        [partition << 48 | number for number in range(1, 5)] for partition in range(16)
    ]
    assert [pickle.loads(pickle.dumps(task)) for task in tasks] == tasks


def test_answers_smaller_than_asked_for_are_not_the_end(server: EmubusServer, queue: str) -> None:
    size = 200_000  # five to an answer
    send(server, queue, [plain(str(number) * (size if number % 2 else 1)) for number in range(1, 10)] * 4)
    assert read_batch(options_of(server, queue, streaming=False)) == list(range(1, 37))


def test_min_partitions_and_max_messages_per_task_cut_ranges(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 30)
    for raw, count in (({"minPartitions": 7}, 7), ({"maxMessagesPerTask": 4}, 8)):
        options = options_of(server, queue, streaming=False, **raw)
        reader = BatchReader(options, NUMBERS)
        assert len(reader.partitions()) >= count
        assert rows_of(reader, reader.partitions()) == list(range(1, 31))


def test_what_comes_after_planning_is_not_read(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 3)
    reader = BatchReader(options_of(server, queue, streaming=False), NUMBERS)
    tasks = reader.partitions()
    send_texts(server, queue, 3)
    assert rows_of(reader, tasks) == [1, 2, 3]


def test_positions_bound_what_is_read(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 9)

    def read(**raw: Any) -> list[Any]:
        return read_batch(options_of(server, queue, streaming=False, **raw))

    assert read(startingPosition=4) == [4, 5, 6, 7, 8, 9]
    assert read(startingPosition=4, endingPosition=6) == [4, 5]
    assert read(startingPosition='{"0": 8}') == [8, 9]
    assert read(startingPosition="latest") == []
    assert read(endingPosition=1000) == list(range(1, 10))
    with pytest.raises(
        ConnectorError, match="startingPosition is 11 in partition 0, but the next message there gets 10"
    ):
        read(startingPosition=11)
    with pytest.raises(ConnectorError, match="startingPosition names partition 3; there are 0"):
        read(startingPosition='{"3": 8}')


def test_one_number_is_no_position_in_a_partitioned_queue(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 32)
    with pytest.raises(ConnectorError, match=r"the entity has partitions 0, 1.*: give one for each"):
        read_batch(options_of(server, parts, streaming=False, startingPosition=4))
    numbers = read_batch(
        options_of(server, parts, streaming=False, startingPosition='{"1": 2}', endingPosition='{"0": 2}')
    )
    assert numbers[:3] == [1, 1 << 48 | 2, 2 << 48 | 1]
    assert len(numbers) == 30


def test_a_time_is_found_among_the_enqueued_times(server: EmubusServer, make_queue: MakeQueue) -> None:
    queue = make_queue()
    send_texts(server, queue, 20)
    server.advance(60_000)
    at_ms = server.clock.now_ms() - 30_000
    send_texts(server, queue, 5)
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    assert read_batch(options_of(server, queue, streaming=False, startingPosition=at)) == [21, 22, 23, 24, 25]
    assert read_batch(options_of(server, queue, streaming=False, endingPosition=at)) == list(range(1, 21))


def test_dead_letters_have_numbers_but_no_order_of_times(server: EmubusServer, queue: str) -> None:
    options = options_of(server, queue, streaming=False, subQueue="deadLetter", startingPosition="2030-01-01T00:00:00Z")
    with pytest.raises(ConnectorError, match="read from earliest and filter on enqueuedTime"):
        read_batch(options)


def test_an_entity_that_is_not_there_is_reported_by_name(server: EmubusServer) -> None:
    with pytest.raises(ConnectorError, match="nowhere") as refused:
        read_batch(options_of(server, "nowhere", streaming=False))
    assert refused.value.code is Code.ENTITY_NOT_FOUND


def test_a_batch_is_not_planned_while_a_partition_is_out(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 16)
    server.begin_outage([3], OutageKind.DOWN)
    try:
        with pytest.raises(ConnectorError, match=r"needs all partitions, and 3 can't be reached") as refused:
            read_batch(options_of(server, parts, streaming=False, retryTimeout="1s", outageTimeout="1s"))
        assert refused.value.retriable
        with pytest.raises(ConnectorError, match=r"partitions 3 can't be reached: set onOutage=wait or skip"):
            read_batch(options_of(server, parts, streaming=False, onOutage="fail"))
        assert len(read_batch(options_of(server, parts, streaming=False, onOutage="skip"))) == 15
    finally:
        server.end_outage([3])
    assert len(read_batch(options_of(server, parts, streaming=False))) == 16


def test_a_task_does_not_take_a_partition_that_is_out_for_an_empty_one(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 32)
    reader = BatchReader(options_of(server, parts, streaming=False, retryTimeout="1s", outageTimeout="1s"), NUMBERS)
    tasks = reader.partitions()
    server.begin_outage([3], OutageKind.DOWN)
    try:
        with pytest.raises(ConnectorError):
            rows_of(reader, [tasks[3]])
        assert rows_of(reader, tasks[4:]) == [partition << 48 | n for partition in range(4, 16) for n in (1, 2)]
    finally:
        server.end_outage([3])
    server.begin_outage([3], OutageKind.DOWN, duration_ms=300)
    assert rows_of(reader, [tasks[3]]) == [3 << 48 | 1, 3 << 48 | 2]


def test_a_task_goes_on_where_it_was_after_its_connection_broke(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 5000)
    reader = BatchReader(options_of(server, queue, streaming=False, peekBatchSize=100), NUMBERS)
    found: list[int] = []
    drops = 0
    for batch in reader.read(reader.partitions()[0]):
        found += batch.column(0).to_pylist()
        drops += server.drop_connections() > 0
    assert found == list(range(1, 5001))
    assert drops >= 2


def test_a_task_that_is_left_early_leaves_no_broken_connection(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 3000)
    reader = BatchReader(options_of(server, queue, streaming=False, peekBatchSize=100), NUMBERS)
    batches = reader.read(reader.partitions()[0])
    assert next(batches).column(0).to_pylist()[0] == 1
    batches.close()  # type: ignore[attr-defined]
    assert rows_of(reader, reader.partitions()) == list(range(1, 3001))


def test_message_sessions_are_read_in_the_order_of_their_numbers(server: EmubusServer, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True, enable_partitioning=True)
    send(server, queue, [plain(f"{number % 5}:{number}", session_id=str(number % 5)) for number in range(100)])
    bodies = [body.decode() for _, body in read_batch(options_of(server, queue, streaming=False), BODIES)]
    for session_id in "01234":
        own = [int(body[2:]) for body in bodies if body.startswith(f"{session_id}:")]
        assert own == list(range(int(session_id), 100, 5))
