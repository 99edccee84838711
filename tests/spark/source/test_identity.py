"""An entity that was created again, where the service does not report generations: times tell."""

from __future__ import annotations

import json
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emubus.spark_connector.codec import Head
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.drain import DeletionByReceiving, Settler
from emubus.spark_connector.source.identity import younger_than_read
from emubus.spark_connector.source.offsets import Offset
from emubus.spark_connector.source.stream import StreamReader

from .azure import START_MS, Azure, Connection, options_for, serving
from .kit import NUMBERS, FakeTime, KilledError, Spark, json_again, rows_of

MODES: dict[str, dict[str, Any]] = {"browse": {}, "drain": {"mode": "drain"}}
KINDS = {"plain": None, "parts": (0, 1, 38)}


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("count", [6, 30, 100])
@pytest.mark.parametrize("mode", MODES)
def test_an_entity_that_was_created_again_is_data_loss_and_nothing_of_it_is_deleted(
    mode: str, count: int, kind: str
) -> None:
    with serving(Azure(KINDS[kind])) as service:
        service.send(*range(40))
        query = Spark(options_for(**MODES[mode]))
        query.run()
        assert len(query.rows) == 40
        service.recreate()
        service.send(*range(count))
        sent = service.numbers
        with pytest.raises(ConnectorError, match=r"was deleted and created again; .*failOnDataLoss=false") as lost:
            query.run()
        assert lost.value.code is Code.DATA_LOSS
        assert service.numbers == sent
        before = len(query.sink)
        query.options = options_for(failOnDataLoss="false", maxMessagesPerTrigger=7, **MODES[mode])
        query.run()
        assert sorted(row for batch in range(before, len(query.sink)) for row in query.sink[batch]) == sent
        assert service.numbers == (sent if mode == "browse" else [])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("mode", MODES)
def test_a_running_query_sees_it_within_the_discovery_interval(
    mode: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_time = FakeTime(monkeypatch)
    with serving(Azure(KINDS[kind])) as service:
        service.send(*range(40))
        reader = StreamReader(options_for(failOnDataLoss="false", **MODES[mode]), NUMBERS)
        start = json_again(reader.initialOffset())
        end = json_again(reader.latestOffset(start, ReadAllAvailable()))
        assert len(rows_of(reader, reader.partitions(start, end))) == 40
        service.recreate()
        service.send(*range(6))
        sent = service.numbers
        assert reader.latestOffset(end, ReadAllAvailable()) == end
        assert service.numbers == sent  # deletion has spared them
        fake_time.now_s += 60
        later = json_again(reader.latestOffset(end, ReadAllAvailable()))
        assert rows_of(reader, reader.partitions(end, later)) == sent
        assert reader.latestOffset(later, ReadAllAvailable()) is later
        assert service.numbers == (sent if mode == "browse" else [])
        reader.stop()


def test_deletions_spare_what_was_enqueued_after_all_that_was_read() -> None:
    with serving(Azure()) as service:
        service.send(*range(10), gap_ms=10_000)
        moved: list[int] = []
        times = {0: START_MS + 50_000}
        DeletionByReceiving(Connection(service), "q", {0: 11}, moved.append, times).run()
        assert service.numbers == [6, 7, 8, 9, 10]
    with serving(Azure()) as service:
        service.send(*range(10), gap_ms=10_000)
        settler = Settler(options_for(mode="drain"))
        settler.settle({0: 9}, by_range=False, times=times)
        settler.wait(insist=True)
        settler.stop()
        assert service.calls["batch_delete"] >= 1
        assert service.numbers == [6, 7, 8, 9, 10]


@pytest.mark.parametrize(
    ("number", "state", "later_ms", "is_loss"),
    [(1, 0, 6_000, True), (1, 1, 6_000, True), (1, 2, 6_000, False), (1, 0, 4_000, False), (11, 0, 6_000, False)],
    ids=["younger", "deferred", "scheduled", "within the margin", "not read"],
)
def test_a_younger_message_with_a_number_that_was_read_is_the_sign(
    number: int, state: int, later_ms: int, is_loss: bool
) -> None:
    offset = Offset("q", {0: 11}, times={0: START_MS})
    text = younger_than_read(offset, {0: Head(number, state, START_MS + later_ms)})
    assert (text is not None) == is_loss
    assert younger_than_read(Offset("q", {0: 11}), {0: Head(1, 0, START_MS + 60_000)}) is None


@pytest.mark.parametrize("mode", MODES)
def test_times_stay_in_the_checkpoint_and_old_checkpoints_get_them(mode: str) -> None:
    with serving(Azure()) as service:
        service.send(*range(10))
        query = Spark(options_for(**MODES[mode]))
        query.run()
        assert json.loads(query.offsets[-1])["t"] == {"0": START_MS + 100}
        query.offsets[-1] = json.dumps({key: each for key, each in json.loads(query.offsets[-1]).items() if key != "t"})
        service.send(*range(10))
        query.run()
        assert query.rows == list(range(1, 21))
        assert json.loads(query.offsets[-1])["t"] == {"0": START_MS + 200}


def test_a_claimed_message_is_not_taken_from_an_entity_that_was_created_again() -> None:
    with serving(Azure()) as service:
        service.send(*range(10))
        query = Spark(options_for(mode="claim", claimId="c"), steps_left=3)
        with pytest.raises(KilledError):
            query.run()
        assert len(query.offsets) == 1
        service.recreate()
        service.send(*range(20))
        query.steps_left = None
        with pytest.raises(ConnectorError, match="10 claimed messages are gone") as lost:
            query.run()
        assert lost.value.code is Code.DATA_LOSS
        query.options = options_for(mode="claim", claimId="c", failOnDataLoss="false")
        query.run()
        assert query.rows == list(range(1, 21))
