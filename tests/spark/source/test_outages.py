"""A store that is out: said, waited for, and never counted as read, in every mode."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emubus.broker.api import OutageKind
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.lag import servicebus_lag, servicebus_unavailable
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import NUMBERS, FakeTime, KilledError, Spark, json_again, options_of, rows_of, send_texts, stored

MODES: dict[str, dict[str, Any]] = {
    "browse": {},
    "drain": {"mode": "drain"},
    "claim": {"mode": "claim", "claimId": "c"},
}
OUT = 3
ALL = [partition << 48 | number for partition in range(16) for number in (1, 2)]
REST = [number for number in ALL if number >> 48 != OUT]


@pytest.fixture
def fake_time(monkeypatch: pytest.MonkeyPatch) -> FakeTime:
    return FakeTime(monkeypatch)


@pytest.fixture
def parts(server: EmubusServer, make_queue: MakeQueue) -> Iterator[str]:
    """A queue with 16 partitions of two messages each; the store of partition 3 is down."""
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 32)
    server.begin_outage([OUT], OutageKind.DOWN)
    yield queue
    server.end_outage([OUT])


def end_outage_after(seconds: float, server: EmubusServer, fake_time: FakeTime) -> None:
    """The outage ends while the query waits."""
    end_s = fake_time.now_s + seconds

    def look(_: float) -> None:
        if fake_time.now_s >= end_s:
            fake_time.at_wait = lambda _: None
            server.end_outage([OUT])

    fake_time.at_wait = look


def left(server: EmubusServer, queue: str, mode: str) -> None:
    assert stored(server, queue) == (32 if mode == "browse" else 0)


@pytest.mark.parametrize("mode", MODES)
def test_available_now_waits_for_a_store_and_reads_it(
    fake_time: FakeTime, server: EmubusServer, parts: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    end_outage_after(60, server, fake_time)
    query = Spark(options_of(server, parts, outageTimeout="10m", **MODES[mode]))
    with caplog.at_level(logging.WARNING, "emubus.spark"):
        query.run()
    assert sorted(query.sink[0]) == REST
    assert sorted(query.rows) == ALL
    left(server, parts, mode)
    said = [each for each in caplog.messages if f"partitions {OUT} " in each]
    assert said == [
        f"{parts}: partitions {OUT} can't be reached; onOutage=wait",
        f"{parts}: partitions {OUT} can be reached again",
    ]


@pytest.mark.parametrize("mode", MODES)
def test_a_wait_ends_with_an_error_that_names_the_partitions(
    fake_time: FakeTime, server: EmubusServer, parts: str, mode: str
) -> None:
    query = Spark(options_of(server, parts, outageTimeout="90s", **MODES[mode]))
    begin_s = fake_time.now_s
    with pytest.raises(ConnectorError, match=rf"{parts}: partitions {OUT} can't be reached for 90s") as refused:
        query.run()
    assert refused.value.code is Code.UNAVAILABLE
    assert 90 <= fake_time.now_s - begin_s < 100
    assert sorted(query.rows) == REST
    server.end_outage([OUT])
    query.run()
    assert sorted(query.rows) == ALL
    left(server, parts, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_query_that_is_to_fail_fails_at_once_and_loses_nothing(server: EmubusServer, parts: str, mode: str) -> None:
    query = Spark(options_of(server, parts, onOutage="fail", **MODES[mode]))
    with pytest.raises(ConnectorError, match=rf"partitions {OUT} can't be reached: set onOutage=wait or skip"):
        query.run()
    assert query.rows == []
    server.end_outage([OUT])
    query.run()
    assert sorted(query.rows) == ALL
    left(server, parts, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_query_that_skips_says_what_it_has_left_and_reads_it_later(
    server: EmubusServer, parts: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    query = Spark(options_of(server, parts, onOutage="skip", outageTimeout="0ms", **MODES[mode]))
    with caplog.at_level(logging.WARNING, "emubus.spark"):
        query.run()
    assert f"{parts}: the query ends without reading partitions {OUT} (onOutage=skip)" in caplog.messages
    assert sorted(query.rows) == REST
    server.end_outage([OUT])
    query.run()
    assert sorted(query.rows) == ALL
    left(server, parts, mode)


@pytest.mark.parametrize("mode", MODES)
def test_a_logged_batch_waits_for_a_store_that_it_needs(
    fake_time: FakeTime, server: EmubusServer, parts: str, mode: str
) -> None:
    server.end_outage([OUT])
    query = Spark(options_of(server, parts, outageTimeout="90s", onOutage="skip", **MODES[mode]), steps_left=3)
    with pytest.raises(KilledError):
        query.run()
    assert (len(query.offsets), query.commits) == (1, 0)
    server.begin_outage([OUT], OutageKind.DOWN)
    query.steps_left = None
    with pytest.raises(ConnectorError, match=rf"partitions {OUT} can't be reached, and a batch .* needs them"):
        query.run()
    assert query.commits == 0
    end_outage_after(60, server, fake_time)
    query.run()
    assert sorted(query.sink[0]) == ALL
    left(server, parts, mode)


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_progress_and_lag_name_the_partitions_that_are_out(server: EmubusServer, parts: str, mode: str) -> None:
    reader = StreamReader(options_of(server, parts, **MODES[mode]), NUMBERS)
    start = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset(start, ReadAllAvailable()))
    assert str(OUT) not in end["p"]
    latest = reader.reportLatestOffset()
    assert latest is not None
    progress = {"sources": [{"endOffset": json.dumps(end), "latestOffset": json.dumps(latest)}]}
    assert servicebus_unavailable(progress) == {parts: {OUT}}
    assert {each: count for each, count in servicebus_lag(progress)[parts].items() if count} == {OUT: 1}
    assert sorted(rows_of(reader, reader.partitions(start, end))) == REST
    server.end_outage([OUT])
    later = json_again(reader.latestOffset(end, ReadAllAvailable()))
    report = reader.reportLatestOffset()
    assert report is not None
    assert "out" not in report
    assert servicebus_lag({"sources": [{"endOffset": json.dumps(end), "latestOffset": report}]})[parts][OUT] == 2
    assert rows_of(reader, reader.partitions(end, later)) == [OUT << 48 | 1, OUT << 48 | 2]
    reader.stop()


def test_progress_of_a_claim_names_the_partitions_that_are_out(server: EmubusServer, parts: str) -> None:
    reader = StreamReader(options_of(server, parts, **MODES["claim"]), NUMBERS)
    end = json_again(reader.latestOffset(json_again(reader.initialOffset()), reader.getDefaultReadLimit()))
    progress = {"sources": [{"endOffset": json.dumps(end), "latestOffset": reader.reportLatestOffset()}]}
    assert servicebus_unavailable(progress) == {parts: {OUT}}
    assert servicebus_lag(progress) == {parts: {OUT: 1}}
    server.end_outage([OUT])
    reader.latestOffset(end, reader.getDefaultReadLimit())
    assert reader.reportLatestOffset() is None


def test_claims_in_a_store_that_was_out_at_the_start_are_adopted_later(server: EmubusServer, parts: str) -> None:
    server.end_outage([OUT])
    lost = Spark(options_of(server, parts, **MODES["claim"]))
    reader = StreamReader(lost.options, NUMBERS)
    reader.latestOffset(json_again(reader.initialOffset()), ReadAllAvailable())  # its offset was never logged
    server.begin_outage([OUT], OutageKind.DOWN)
    query = Spark(options_of(server, parts, onOutage="skip", **MODES["claim"]))
    query.run()
    assert sorted(query.rows) == REST
    server.end_outage([OUT])
    query.run()
    assert sorted(query.rows) == ALL
    assert stored(server, parts) == 0


def test_a_stream_reads_the_others_while_it_waits(fake_time: FakeTime, server: EmubusServer, parts: str) -> None:
    query = Spark(options_of(server, parts, outageTimeout="1h"))
    query.run(available_now=False, batches_max=3)
    assert sorted(query.rows) == REST
    send_texts(server, parts, 15)
    query.run(available_now=False, batches_max=3)
    assert len(query.rows) == 45
    assert fake_time.now_s < 1010
