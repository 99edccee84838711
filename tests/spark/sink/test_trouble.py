"""Writes through outages, cut connections, throttling and repetition: what is in the queue afterwards."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from emubus.broker.api import OutageKind
from emubus.broker.errors import Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.errors import ConnectorError

from .kit import Rig, annotation, frame, in_task, sequence_number_of, text_of, texts, written
from .proxy import CuttingProxy

ROWS = 3000
OUT = [2, 7, 11]  # of the 16 stores


def by_session(rig: Rig, queue: str) -> dict[str | None, list[int]]:
    found: dict[str | None, list[int]] = {}
    for message in rig.stored(queue):
        found.setdefault(message.group_id, []).append(int(text_of(message)))
    return found


# ---- repetition


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize("keyed", [False, True])
def test_a_repeated_batch_leaves_each_row_once_where_duplicates_are_detected(
    rig: Rig, partitioned: bool, keyed: bool
) -> None:
    name = f"repeated-{partitioned}-{keyed}"
    rig.create(QueueDescription(name, enable_partitioning=partitioned, requires_duplicate_detection=True))
    ddl = "body string, partitionKey string" if keyed else "body string"
    columns = {"partitionKey": lambda number: f"k{number % 20}"} if keyed else {}
    for _ in range(2):
        with in_task(1, query="q", batch=3):
            done = written(rig.stream_writer(ddl, queue=name), texts(range(ROWS), **columns))
            assert done.rows == ROWS
    assert Counter(map(int, rig.bodies(name))) == Counter(range(ROWS))


@pytest.mark.parametrize("partitioned", [False, True])
def test_half_a_batch_and_then_all_of_it_leave_each_row_once(rig: Rig, partitioned: bool) -> None:
    name = f"half-{partitioned}"
    rig.create(QueueDescription(name, enable_partitioning=partitioned, requires_duplicate_detection=True))

    def broken() -> Iterator[pa.RecordBatch]:
        yield texts(range(ROWS - 500))
        raise RuntimeError("the task is killed")

    with in_task(0, query="q", batch=0):
        with pytest.raises(RuntimeError):
            rig.stream_writer("body string", queue=name, batchSizeBytes=2048).write(broken())
        assert 0 < len(rig.bodies(name)) < ROWS
        written(rig.stream_writer("body string", queue=name, batchSizeBytes=2048), texts(range(ROWS)))
    assert Counter(map(int, rig.bodies(name))) == Counter(range(ROWS))


# ---- outages


@pytest.mark.parametrize("sessions", [True, False])
def test_a_write_during_an_outage_of_three_stores_is_complete_after_it(
    rig: Rig, impatience: list[Callable[[], object]], sessions: bool
) -> None:
    name = f"outage-{sessions}"
    rig.create(QueueDescription(name, enable_partitioning=True, requires_session=sessions))
    rig.server.begin_outage(OUT, OutageKind.DOWN)
    impatience += [lambda: None] * 5 + [lambda: rig.server.end_outage(OUT)]
    column = "sessionId" if sessions else "partitionKey"
    writer = rig.writer(f"body string, {column} string", queue=name, batchSizeBytes=2048)
    done = written(writer, texts(range(ROWS), **{column: lambda number: f"k{number % 100}"}))
    assert done.rows == ROWS
    assert done.repeated > 0
    assert not impatience  # the outage ended in the middle
    found: dict[object, list[int]] = {}
    for message in rig.stored(name):
        key = message.group_id if sessions else annotation(message, "x-opt-partition-key")
        found.setdefault(key, []).append(int(text_of(message)))
    assert found == {f"k{key}": list(range(key, ROWS, 100)) for key in range(100)}


def test_rows_without_a_key_need_not_wait_for_the_end_of_an_outage(rig: Rig) -> None:
    rig.create(QueueDescription("elsewhere", enable_partitioning=True))
    rig.server.begin_outage(OUT, OutageKind.DOWN)
    try:
        written(rig.writer("body string", queue="elsewhere", batchSizeBytes=2048), texts(range(ROWS)))
    finally:
        rig.server.end_outage(OUT)
    found = rig.stored("elsewhere")
    assert sorted(int(text_of(message)) for message in found) == list(range(ROWS))
    assert {sequence_number_of(message) >> 48 for message in found}.isdisjoint(OUT)


def test_an_outage_that_does_not_end_fails_the_write_with_the_rows_that_wait(rig: Rig) -> None:
    rig.create(QueueDescription("endless", requires_session=True))
    rig.server.begin_outage(range(16), OutageKind.DOWN)
    try:
        writer = rig.writer("body string, sessionId string", queue="endless", retryTimeout="200ms")
        with pytest.raises(ConnectorError, match=r"3 of the rows 0 to 2 for 'endless': .*retryTimeout") as caught:
            written(writer, texts(range(3), sessionId=lambda number: "s"))
        assert caught.value.code == "THROTTLED"
    finally:
        rig.server.end_outage(range(16))


# ---- lost links and connections


def interrupted(interrupt: Callable[[], int]) -> Iterator[pa.RecordBatch]:
    """Batches with an interruption after each."""
    for first in range(0, ROWS, 500):
        yield texts(range(first, first + 500))
        interrupt()


@pytest.mark.parametrize("fault", ["connections", "links", "throttled", "too large"])
def test_a_write_goes_on_when_the_service_drops_it(
    rig: Rig, impatience: list[Callable[[], object]], fault: str
) -> None:
    name = f"dropped-{fault.replace(' ', '-')}"
    rig.create(QueueDescription(name, requires_duplicate_detection=True))
    server = rig.server
    interrupts: dict[str, Callable[[], int]] = {
        "connections": lambda: server.drop_connections(name),
        "links": lambda: server.drop_links(name),
        "throttled": lambda: server.drop_links(name, Condition.SERVER_BUSY),
        "too large": lambda: server.drop_links(name, Condition.MESSAGE_SIZE_EXCEEDED),
    }
    hits: list[int] = []

    def interrupt() -> int:
        hits.append(interrupts[fault]())
        return hits[-1]

    writer = rig.writer("body string", queue=name, batchSizeBytes=2048)
    done = writer.write(interrupted(interrupt))
    assert done.rows == ROWS  # type: ignore[attr-defined]
    assert sum(hits) >= 3
    assert sorted(map(int, rig.bodies(name))) == list(range(ROWS))


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("detected", [True, False])
def test_cut_connections_lose_no_row_and_double_none_where_duplicates_are_detected(
    rig: Rig, impatience: list[Callable[[], object]], detected: bool, seed: int
) -> None:
    name = f"cut-{detected}-{seed}"
    rig.create(QueueDescription(name, requires_duplicate_detection=detected))
    chance = random.Random(seed)
    with CuttingProxy(rig.server.amqp_port, [chance.randrange(200, 40_000) for _ in range(12)]) as proxy:
        writer = Rig(rig.server, proxy.port).writer(
            "body string, sessionId string", queue=name, batchSizeBytes=2048, maxInFlight=chance.randrange(1, 20)
        )
        sessions = ["a", "b", None]
        written(writer, texts(range(ROWS), sessionId=lambda number: sessions[number % 3]))
        assert proxy.cuts >= 3
    found = by_session(rig, name)
    assert {session: sorted(set(numbers)) for session, numbers in found.items()} == {
        session: list(range(start, ROWS, 3)) for start, session in enumerate(sessions)
    }
    if detected:
        assert sum(map(len, found.values())) == ROWS
    for session in ("a", "b"):
        assert list(dict.fromkeys(found[session])) == sorted(set(found[session]))


# ---- sizes


def test_a_row_that_is_too_large_is_an_error_that_names_row_size_and_limit(rig: Rig) -> None:
    rig.create(QueueDescription("large"))
    batch = frame([{"body": "x" * (300 * 1024 if number == 3 else 10)} for number in range(5)])
    with in_task(2), pytest.raises(ConnectorError) as caught:
        written(rig.writer("body string", queue="large", messageIdPolicy="none"), batch)
    assert str(caught.value) == (
        "[SERVICEBUS_MESSAGE_TOO_LARGE] Row 3 of Spark partition 2 takes 307208 bytes as a message, 'large' takes "
        "262144 at most. Make the row smaller, or leave such rows out with onOversize=skip."
    )


def test_rows_that_are_too_large_can_be_left_out(rig: Rig, caplog: pytest.LogCaptureFixture) -> None:
    rig.create(QueueDescription("skip"))
    batch = frame([{"body": str(number).ljust(300 * 1024 if number in (3, 4) else 1)} for number in range(6)])
    done = written(rig.writer("body string", queue="skip", onOversize="skip"), batch)
    assert (done.rows, done.skipped) == (4, 2)
    assert rig.bodies("skip") == ["0", "1", "2", "5"]
    assert [record.getMessage() for record in caplog.records] == ["Spark partition 0: 2 oversized rows skipped: 3, 4"]


def test_rows_just_below_the_limit_travel_alone(rig: Rig) -> None:
    rig.create(QueueDescription("just"))
    writer = rig.writer("body string", queue="just", messageIdPolicy="none")
    largest = 262_144 - 8  # the section of the body
    done = written(writer, frame([{"body": "x" * (largest - less)} for less in (0, 1, 7, 8, 9, 100)]))
    assert (done.rows, done.deliveries) == (6, 6)
    assert [len(body) for body in rig.bodies("just")] == [largest - less for less in (0, 1, 7, 8, 9, 100)]


@pytest.mark.parametrize(("size", "expected"), [(None, 2), (65_536, 6), (1024, 400)])
def test_the_size_of_envelopes_can_be_chosen(rig: Rig, size: int | None, expected: int) -> None:
    name = f"size-{size}"
    rig.create(QueueDescription(name))
    options = {} if size is None else {"batchSizeBytes": size}
    writer = rig.writer("body string", queue=name, messageIdPolicy="none", **options)
    done = written(writer, frame([{"body": "x" * 300}] * 1200))
    assert (done.rows, done.deliveries) == (1200, expected)
    assert len(rig.bodies(name)) == 1200


# ---- what the service refuses


def test_a_row_without_a_message_session_is_named_when_the_entity_requires_one(rig: Rig) -> None:
    rig.create(QueueDescription("sessions", requires_session=True))
    writer = rig.writer("body string, sessionId string", queue="sessions")
    batch = texts(range(10), sessionId=lambda number: None if number == 6 else "s")
    with pytest.raises(ConnectorError, match=r"row 6 for 'sessions': .*SessionId was not set") as caught:
        written(writer, batch)
    assert caught.value.code == "SESSION_REQUIRED"


def test_an_entity_that_is_not_there_is_an_error_at_once(rig: Rig) -> None:
    with pytest.raises(ConnectorError, match="/nowhere' could not be found") as caught:
        written(rig.writer("body string", queue="nowhere"), texts([0]))
    assert caught.value.code == "ENTITY_NOT_FOUND"


def test_a_partitioned_entity_with_duplicate_detection_takes_rows_without_a_key(rig: Rig) -> None:
    rig.create(QueueDescription("mixed", enable_partitioning=True, requires_duplicate_detection=True))
    done = written(rig.writer("body string", queue="mixed"), texts(range(ROWS)))
    assert (done.rows, done.deliveries) == (ROWS, ROWS)
    partitions = {sequence_number_of(message) >> 48 for message in rig.stored("mixed")}
    assert partitions == set(range(16))


def test_nothing_listens_where_the_service_should_be(rig: Rig) -> None:
    nowhere = Rig(rig.server, port=1)
    with pytest.raises(ConnectorError, match=r"localhost:1.*retryTimeout") as caught:
        written(nowhere.writer("body string", queue="q", retryTimeout="100ms"), texts([0]))
    assert caught.value.code == "UNAVAILABLE"
