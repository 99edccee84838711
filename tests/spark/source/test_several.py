"""Several entities in one query: each message once, whichever entities come and go."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
from pyspark.sql.streaming.datasource import ReadMaxRows
from pyspark.sql.types import StringType, StructField, StructType

from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.lag import servicebus_lag
from emubus.spark_connector.options import SourceOptions, source_options
from emubus.spark_connector.progress import servicebus_progress
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from .kit import FAST, KilledError, Spark, json_again, options_of, read_batch, rows_of, send_texts, stored

ROWS = StructType([StructField("entity", StringType()), StructField("body", StringType())])
MODES = ["browse", "drain", "claim"]


def several(server: EmubusServer, *, streaming: bool = True, **raw: object) -> SourceOptions:
    given = {"connectionString": server.connection_string, **FAST}
    if streaming:
        given |= {"pollInterval": "20ms", "partitionDiscoveryInterval": "0ms"}
        given |= {"claimId": "one"} if raw.get("mode") == "claim" else {}
    return source_options(given | {name: str(value) for name, value in raw.items()}, streaming=streaming)


def make(server: EmubusServer, *names: str, count: int = 0, partitioned: bool = False) -> None:
    for name in names:
        server.create(QueueDescription(name, enable_partitioning=partitioned))
        if count:
            send_texts(server, name, count)


def bodies(query: Spark) -> list[tuple[str, int]]:
    return sorted((entity, int(body)) for entity, body in query.rows)


def expected(**counts: int) -> list[tuple[str, int]]:
    return [(name.replace("_", "-"), number) for name, count in counts.items() for number in range(count)]


def test_a_batch_reads_queues_subscriptions_and_dead_letters_and_says_where_each_row_is_from(
    server: EmubusServer,
) -> None:
    make(server, "bt-a", count=3)
    server.create(TopicDescription("bt-t"))
    server.create(SubscriptionDescription("bt-t", "s"))
    send_texts(server, "bt-t", 2)
    make(server, "bt-dead")
    found = read_batch(
        several(server, streaming=False, entities="bt-t/Subscriptions/s,bt-a,bt-dead/$DeadLetterQueue"), ROWS
    )
    assert sorted(found) == [("bt-a", "0"), ("bt-a", "1"), ("bt-a", "2")] + [
        ("bt-t/Subscriptions/s", str(number)) for number in range(2)
    ]
    by_pattern = several(server, streaming=False, entityPattern="^bt-(a|t/.*)$")
    assert sorted(read_batch(by_pattern, ROWS)) == sorted(found)


@pytest.mark.parametrize("mode", MODES)
def test_a_stream_reads_all_entities_and_those_that_appear_later(server: EmubusServer, mode: str) -> None:
    make(server, f"late-{mode}-a", f"late-{mode}-b", count=4, partitioned=True)
    query = Spark(several(server, entityPattern=f"late-{mode}-*", mode=mode), ROWS)
    query.run()
    make(server, f"late-{mode}-c", count=3)
    send_texts(server, f"late-{mode}-a", 2, first=4)
    query.run()
    query.run()
    counts = {"a": 6, "b": 4, "c": 3}
    assert bodies(query) == [
        (f"late-{mode}-{each}", number) for each, count in counts.items() for number in range(count)
    ]
    if mode != "browse":
        assert [stored(server, f"late-{mode}-{each}") for each in counts] == [0, 0, 0]


@pytest.mark.parametrize("mode", MODES)
def test_each_message_is_in_one_batch_wherever_the_query_is_killed(server: EmubusServer, mode: str) -> None:
    names = [f"kill-{mode}-{each}" for each in "ab"]
    make(server, *names, count=12)
    query = Spark(several(server, entities=",".join(names), mode=mode, maxMessagesPerTrigger=5), ROWS, steps_left=0)
    steps = 0
    while True:
        try:
            query.run()
            break
        except KilledError:
            steps += 1
            query.steps_left = steps
    assert bodies(query) == [(name, number) for name in names for number in range(12)]
    assert all(len(rows) <= 5 for rows in query.sink.values())


def test_a_small_entity_does_not_wait_behind_a_large_one(server: EmubusServer) -> None:
    make(server, "fair-large", count=60)
    make(server, "fair-small", count=3)
    query = Spark(several(server, entities="fair-large,fair-small", maxMessagesPerTrigger=10), ROWS)
    query.run()
    first = [entity for entity, _ in query.sink[0]]
    assert (first.count("fair-small"), first.count("fair-large")) == (3, 7)
    assert bodies(query) == expected(fair_large=60, fair_small=3)


def test_a_new_query_can_start_at_the_present_but_reads_later_entities_from_their_start(server: EmubusServer) -> None:
    make(server, "now-a", count=5)
    query = Spark(several(server, entityPattern="now-*", startingPosition="latest"), ROWS)
    query.run()
    assert query.rows == []
    send_texts(server, "now-a", 1, first=5)
    make(server, "now-b", count=2)
    query.run()
    assert bodies(query) == [("now-a", 5), ("now-b", 0), ("now-b", 1)]


def test_a_checkpoint_of_one_entity_goes_on_with_more(server: EmubusServer) -> None:
    make(server, "one-a", count=3)
    query = Spark(options_of(server, "one-a"), ROWS)
    query.run()
    make(server, "one-b", count=2)
    send_texts(server, "one-a", 1, first=3)
    query.options = several(server, entities="one-a,one-b")
    query.run()
    assert bodies(query) == expected(one_a=4, one_b=2)


def test_other_options_go_on_where_the_checkpoint_is(server: EmubusServer, caplog: pytest.LogCaptureFixture) -> None:
    make(server, "opt-a", "opt-b", count=3)
    query = Spark(several(server, entities="opt-a,opt-b"), ROWS)
    query.run()
    query.options = several(server, entities="OPT-A")
    send_texts(server, "opt-a", 1, first=3)
    send_texts(server, "opt-b", 1, first=3)
    query.run()
    assert bodies(query) == expected(opt_a=4, opt_b=3)
    assert "the checkpoint has ['opt-b'], which the options no longer name" in caplog.text
    query.options = several(server, entityPattern="^OPT-.$")
    query.run()
    assert bodies(query) == sorted([*expected(opt_a=4, opt_b=3), *expected(opt_b=4)])


@pytest.mark.parametrize("mode", MODES)
def test_an_entity_that_vanished_ends_the_query_or_is_left_out(
    server: EmubusServer, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    names = [f"gone-{mode}-{each}" for each in "ab"]
    make(server, *names, count=2)
    query = Spark(several(server, entityPattern=f"gone-{mode}-*", mode=mode), ROWS)
    query.run()
    server.delete(names[1])
    send_texts(server, names[0], 1, first=2)
    with pytest.raises(ConnectorError, match=f"{names[1]}: the entity is gone") as error:
        query.run()
    assert error.value.code is Code.DATA_LOSS
    query.options = several(server, entityPattern=f"gone-{mode}-*", mode=mode, failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "emubus.spark"):
        query.run()
    assert f"{names[1]}: the entity is not there" in caplog.text
    assert bodies(query) == [(names[0], 0), (names[0], 1), (names[0], 2), (names[1], 0), (names[1], 1)]
    make(server, names[1], count=1)
    query.run()
    assert bodies(query).count((names[1], 0)) == 2


def test_an_entity_that_was_created_again_is_data_loss_of_that_entity(server: EmubusServer) -> None:
    make(server, "again-a", "again-b", count=2)
    query = Spark(several(server, entities="again-a,again-b"), ROWS)
    query.run()
    server.delete("again-b")
    make(server, "again-b", count=3)
    with pytest.raises(ConnectorError, match="again-b: the checkpoint is of generation") as error:
        query.run()
    assert error.value.code is Code.DATA_LOSS


def test_a_named_entity_that_is_not_there_is_an_error(server: EmubusServer) -> None:
    make(server, "known", count=1)
    with pytest.raises(ConnectorError, match="not-there") as error:
        Spark(several(server, entities="known,not-there"), ROWS).run()
    assert error.value.code is Code.ENTITY_NOT_FOUND
    with pytest.raises(ConnectorError, match="not-there"):
        read_batch(several(server, streaming=False, entities="known,not-there"), ROWS)


def test_small_tasks_of_many_entities_are_read_together(server: EmubusServer) -> None:
    make(server, *(f"many-{number}" for number in range(9)), count=2)
    reader = StreamReader(several(server, entityPattern="many-*"), ROWS)
    start: dict[str, Any] = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))
    tasks = reader.partitions(start, end)
    assert len(tasks) == 1
    assert sorted(rows_of(reader, tasks)) == [(f"many-{number}", str(each)) for number in range(9) for each in range(2)]


def test_lag_and_progress_name_each_entity(server: EmubusServer) -> None:
    make(server, "lag-a", "lag-b", count=4)
    reader = StreamReader(several(server, entities="lag-a,lag-b"), ROWS)
    start = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset(start, ReadMaxRows(6)))
    source = {
        "startOffset": None,
        "endOffset": json.dumps(end),
        "latestOffset": json.dumps(reader.reportLatestOffset()),
    }
    report = {"id": "i", "batchId": 0, "sources": [source]}
    assert servicebus_lag(report) == {"lag-a": {0: 1}, "lag-b": {0: 1}}
    progress = servicebus_progress(report)
    assert progress is not None
    assert (progress.sources, progress.lag) == (("lag-a", "lag-b"), 2)


def test_a_spark_that_passes_no_start_is_told_so(server: EmubusServer) -> None:
    make(server, "old-spark")
    with pytest.raises(ConnectorError, match=r"needs Spark 4\.2"):
        StreamReader(several(server, entities="old-spark"), ROWS).latestOffset()
