"""What the driver asks a service without emubus's operations: which partitions, how often, and when it is busy."""

from __future__ import annotations

import json
from itertools import pairwise
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.pace import Pace
from emubus.spark_connector.source.stream import StreamReader
from emubus.spark_connector.wire.pool import pooled
from emubus.spark_connector.wire.requests import Pending, Requests
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .azure import Azure, options_for, serving
from .kit import NUMBERS, FakeTime, Spark, json_again, options_of, read_batch, rows_of, send_texts

MODES: dict[str, dict[str, Any]] = {
    "browse": {},
    "drain": {"mode": "drain"},
    "claim": {"mode": "claim", "claimId": "c"},
}
IDS = (0, 38, 40)
WAIT = "wait"


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


# ---- which partitions


@pytest.mark.parametrize("mode", MODES)
def test_partitions_of_any_id_are_read(mode: str) -> None:
    with serving(Azure(IDS)) as service:
        service.send(*range(30))
        sent = service.numbers
        query = Spark(options_for(**MODES[mode]))
        query.run()
        assert sorted(query.rows) == sent
        assert service.numbers == (sent if mode == "browse" else [])
        assert read_batch(options_for(streaming=False)) == service.numbers


@pytest.mark.parametrize("mode", MODES)
def test_partitions_that_are_named_are_read_whatever_their_ids(mode: str) -> None:
    with serving(Azure((0, 300, 40_000, 65_535))) as service:
        service.send(*range(40))
        sent = service.numbers
        assert sent[0] < 0  # the numbers of partitions from 32768 on are negative
        query = Spark(options_for(partitionIds="300,40000,65535", maxMessagesPerTrigger=7, **MODES[mode]))
        query.run()
        assert sorted(query.rows) == sent
        assert service.numbers == (sent if mode == "browse" else [])


def test_a_checkpoint_names_partitions_that_are_looked_for() -> None:
    with serving(Azure((0, 300))) as service:
        service.send(*range(10))
        query = Spark(options_for(partitionIds="300"))
        query.run()
        service.send(*range(10))
        query.options = options_for()
        query.run()
        assert sorted(query.rows) == service.numbers


def test_ids_that_are_not_named_are_searched_little_by_little(fake_time: FakeTime) -> None:
    with serving(Azure((0, 700))) as service:
        service.send(*range(4))
        reader = StreamReader(options_for(), NUMBERS)
        start = json_again(reader.latestOffset(json_again(reader.initialOffset()), ReadAllAvailable()))
        assert start["p"] == {"0": 3}
        for _ in range(7):  # windows of 64, from 256 on
            fake_time.now_s += 60
            service.calls.clear()
            start = json_again(reader.latestOffset(start, ReadAllAvailable()))
            assert service.calls["peek"] <= 100
        assert start["p"] == {"0": 3, "700": 3}


def test_a_start_by_numbers_may_name_any_partition() -> None:
    with serving(Azure((0, 40_000))) as service:
        service.send(*range(10))
        options = options_for(streaming=False, partitionIds="40000", startingPosition='{"0": 4, "40000": 3}')
        assert read_batch(options) == [4, 5, *service.numbers[2:5]]


# ---- how often


def test_pauses_grow_up_to_what_the_budget_asks_for() -> None:
    pace = Pace(0.2, 5)
    pauses: list[float] = []
    now_s = 0.0
    for _ in range(12):
        pace.nothing(16, now_s)
        pauses.append(pace.wait_s(now_s))
        now_s += pauses[-1]
    assert pauses[:4] == pytest.approx([0.05, 0.1, 0.2, 0.4])
    assert pauses[-1] == pytest.approx(16 / 5)
    pace.found()
    assert pace.wait_s(now_s) == 0
    pace.nothing(1, now_s)
    assert pace.wait_s(now_s) == pytest.approx(0.05)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("rate", [5, 50])
def test_an_idle_query_asks_as_often_as_its_budget_allows(fake_time: FakeTime, mode: str, rate: int) -> None:
    with serving(Azure(range(16))) as service:
        service.send(*range(16))
        options = options_for(
            pollInterval="200ms", partitionDiscoveryInterval="1d", maxRequestsPerSecond=rate, **MODES[mode]
        )
        reader = StreamReader(options, NUMBERS)
        start = json_again(reader.latestOffset(json_again(reader.initialOffset()), ReadAllAvailable()))
        while fake_time.now_s < 1020:  # Spark asks again at once
            assert reader.latestOffset(start, ReadAllAvailable()) is start
            fake_time.now_s += 0.01
        service.calls.clear()
        begin_s = fake_time.now_s
        while fake_time.now_s < begin_s + 60:
            assert reader.latestOffset(start, ReadAllAvailable()) is start
            fake_time.now_s += 0.01
        assert 60 <= sum(service.calls.values()) <= 61 * rate + 16
        service.send("new")
        assert reader.latestOffset(start, ReadAllAvailable()) != start
        reader.stop()


def test_an_idle_query_of_emubus_looks_twice_a_second(
    fake_time: FakeTime, server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 16)
    broker = server.server.broker
    looks: list[str] = []
    generation = broker.messages.generation

    def counted(address: str) -> str:
        looks.append(address)
        return generation(address)

    monkeypatch.setattr(broker.messages, "generation", counted)
    reader = StreamReader(options_of(server, queue, pollInterval="200ms"), NUMBERS)
    start = json_again(reader.latestOffset(json_again(reader.initialOffset()), ReadAllAvailable()))
    looks.clear()
    begin_s = fake_time.now_s
    while fake_time.now_s < begin_s + 30:
        assert reader.latestOffset(start, ReadAllAvailable()) is start
        fake_time.now_s += 0.01
    assert 30 <= len(looks) <= 70


# ---- how much for a batch


@pytest.mark.parametrize("gaps", [0, 1])
def test_a_limited_batch_of_emubus_is_one_look_and_one_turn_of_peeks(
    server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, gaps: int
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 16 * 4)
    for partition in range(gaps):
        delete_second(server, queue, partition)
    calls = watch_requests(monkeypatch)
    reader = StreamReader(options_of(server, queue, maxMessagesPerTrigger=16), NUMBERS)
    start = json_again(reader.initialOffset())
    turn_counts: list[int] = []
    while True:
        calls.clear()
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        if end is start:
            break
        tasks = reader.partitions(start, json_again(end))
        rows = rows_of(reader, tasks)
        assert len(tasks) == 1
        assert len(rows) == 16 or gaps
        # A partition with gaps is asked where its next message is.
        assert calls.count("emubus:get-partitions") == 1
        assert len(rows) <= calls.count("com.microsoft:peek-message") <= 16 + gaps
        turn_counts.append(turns(calls))
        start = json_again(end)
    assert turn_counts[0] == 2 + gaps
    assert turn_counts[-1] == 2  # it takes all that is left
    assert start["p"] == {str(partition): 5 for partition in range(16)}


def delete_second(server: EmubusServer, queue: str, partition: int) -> None:
    """Delete the second message of a partition, and defer the first."""
    connection_options = options_of(server, queue).connection
    with pooled(connection_options.endpoint, connection_options.credential) as connection:
        management = connection.management(queue)
        first = partition << 48 | 1
        claimed = management.end_claim(management.begin_claim(partition, first + 2, 2, {}))
        assert claimed is not None
        assert claimed.claimed == ((first, 2),)
        assert management.end_claim(management.begin_claim(partition, first, 0, {}, [(first + 1, 1)])) is not None


def watch_requests(patch: pytest.MonkeyPatch) -> list[str]:
    """The requests from now on, by operation, and each wait for a response."""
    calls: list[str] = []
    begin, end = Requests.begin, Requests.end

    def watched_begin(self: Requests, operation: str, *rest: Any, **more: Any) -> Pending:
        calls.append(operation)
        return begin(self, operation, *rest, **more)

    def watched_end(self: Requests, pending: Pending) -> bytes:
        calls.append(WAIT)
        return end(self, pending)

    patch.setattr(Requests, "begin", watched_begin)
    patch.setattr(Requests, "end", watched_end)
    return calls


def turns(calls: list[str]) -> int:
    """How often requests were sent after the responses to earlier ones."""
    return sum(before != WAIT and after == WAIT for before, after in pairwise(calls))


# ---- when it is busy


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("partitions", [None, IDS])
def test_a_busy_service_is_asked_again_after_pauses(
    fake_time: FakeTime, mode: str, partitions: tuple[int, ...] | None
) -> None:
    with serving(Azure(partitions)) as service:
        service.send(*range(30))
        sent = service.numbers
        service.busy_peeks = 40
        query = Spark(options_for(retryTimeout="5m", **MODES[mode]))
        query.run()
        assert sorted(query.rows) == sent
        assert fake_time.now_s >= 1001
        assert service.busy_peeks == 0


def test_a_service_that_stays_busy_ends_the_query_with_an_error_that_says_so(fake_time: FakeTime) -> None:
    with serving(Azure(IDS)) as service:
        service.send(*range(3))
        service.busy_peeks = 1_000_000
        with pytest.raises(ConnectorError, match="throttled") as refused:
            Spark(options_for(retryTimeout="2m")).run()
        assert refused.value.code is Code.THROTTLED
        assert service.calls["peek"] < 20_000
        assert 1030 <= fake_time.now_s <= 1200


def test_a_partition_that_is_out_is_waited_for_where_it_is_not_reported(fake_time: FakeTime) -> None:
    with serving(Azure(IDS)) as service:
        service.send(*range(30))
        service.out = {38}
        fake_time.at_wait = lambda _: service.out.clear() if fake_time.now_s > 1100 else None
        query = Spark(options_for(outageTimeout="1h"))
        query.run()
        assert sorted(query.rows) == service.numbers
        assert json.loads(query.offsets[0])["p"].keys() == {"0", "40"}
