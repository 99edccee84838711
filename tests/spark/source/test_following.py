"""Streams, driven by Spark's order of calls: exactly once over restarts, limits, outages, replaced entities."""

from __future__ import annotations

import json
import pickle
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

from emubus.broker.api import OutageKind
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source import follow, polling, stream
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import (
    NUMBERS,
    KilledError,
    Spark,
    json_again,
    numbers,
    options_of,
    plain,
    rows_of,
    send,
    send_texts,
    settle_by_sdk,
    stored,
)

IDS = range(16)


@pytest.fixture
def parts(make_queue: MakeQueue) -> str:
    return make_queue(enable_partitioning=True)


def test_a_reader_is_pickled_without_what_it_has_opened(server: EmubusServer, queue: str) -> None:
    reader = StreamReader(options_of(server, queue, mode="drain"), NUMBERS)
    reader.initialOffset()
    copy = pickle.loads(pickle.dumps(reader))
    assert copy.initialOffset() == reader.initialOffset()
    reader.stop()
    copy.stop()


def test_an_empty_queue_has_no_batch(server: EmubusServer, queue: str) -> None:
    query = Spark(options_of(server, queue))
    query.run()
    assert query.offsets == []


@pytest.mark.parametrize("operations", ["all", "standard"])
@pytest.mark.parametrize("mode", ["browse", "drain"])
@pytest.mark.parametrize("steps", range(0, 44, 4))
def test_every_message_is_in_one_batch_wherever_the_query_is_killed(
    server: EmubusServer, parts: str, mode: str, steps: int, operations: str
) -> None:
    send_texts(server, parts, 160)
    options = options_of(server, parts, mode=mode, maxMessagesPerTrigger=37, serviceOperations=operations)
    query = Spark(options, steps_left=steps)
    while True:
        try:
            query.run()
            break
        except KilledError:
            committed = [row for batch in range(query.commits) for row in query.sink[batch]]
            assert stored(server, parts) >= 160 - len(committed)
            query.steps_left = steps + 2
    assert sorted(query.rows) == numbers(10)
    assert all(len(rows) <= 37 for rows in query.sink.values())
    assert stored(server, parts) == (0 if mode == "drain" else 160)


def test_later_messages_are_in_later_batches(server: EmubusServer, parts: str) -> None:
    query = Spark(options_of(server, parts))
    for round_ in range(1, 4):
        send_texts(server, parts, 16)
        query.run(available_now=False, batches_max=5)
        assert sorted(query.rows) == numbers(round_)
    assert len(query.sink) == 3


def test_available_now_ends_at_what_was_there(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 32)
    reader = StreamReader(options_of(server, parts, maxMessagesPerTrigger=10), NUMBERS)
    reader.prepareForTriggerAvailableNow()
    start = json_again(reader.initialOffset())
    rows: list[int] = []
    while (end := json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))) != start:
        send_texts(server, parts, 16)
        rows += rows_of(reader, reader.partitions(start, end))
        start = end
    assert sorted(rows) == numbers(2)


def test_latest_begins_behind_what_is_there_and_is_remembered(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 5)
    options = options_of(server, queue, startingPosition="latest")
    query = Spark(options)
    query.run(available_now=False)
    assert query.rows == []
    assert len(query.offsets) == 1  # an empty batch, so that the checkpoint knows where the query began
    send_texts(server, queue, 3)
    query.run()
    assert query.rows == [6, 7, 8]


def test_latest_means_the_same_after_the_first_batch_was_lost(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 5)
    query = Spark(options_of(server, queue, startingPosition="latest"), steps_left=3)
    reader = StreamReader(query.options, NUMBERS)
    start = json_again(reader.initialOffset())
    send_texts(server, queue, 4)
    query.offsets.append(json.dumps(reader.latestOffset(start, ReadAllAvailable())))
    send_texts(server, queue, 2)
    query.steps_left = None
    query.run()  # a new process, whose "latest" is 12
    assert query.rows == [6, 7, 8, 9, 10, 11]


def test_idle_queries_are_made_to_wait_and_asked_offsets_are_returned_as_they_are(
    server: EmubusServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    now_s = 0.0

    def sleep(seconds: float) -> None:
        nonlocal now_s
        now_s += seconds

    for module in (follow, polling):
        monkeypatch.setattr(module, "monotonic_s", lambda: now_s)
    monkeypatch.setattr(polling, "sleep", sleep)
    send_texts(server, queue, 1)
    reader = StreamReader(options_of(server, queue, pollInterval="1500ms"), NUMBERS)
    start = json_again(reader.latestOffset(json_again(reader.initialOffset()), ReadAllAvailable()))
    assert reader.latestOffset(start, ReadAllAvailable()) is start
    assert now_s == 1.5
    assert reader.reportLatestOffset() == start
    assert now_s == 1.5


def test_limits_are_those_of_the_options(server: EmubusServer, queue: str) -> None:
    def limit(**raw: Any) -> Any:
        return StreamReader(options_of(server, queue, **raw), NUMBERS).getDefaultReadLimit()

    assert limit() == ReadAllAvailable()
    assert limit(maxMessagesPerTrigger=5, minMessagesPerTrigger=2) == ReadMaxRows(5)
    assert limit(minMessagesPerTrigger=2) == ReadMinRows(2)
    assert limit(mode="claim", claimId="c") == ReadMaxRows(10_000)


def test_limits_that_a_version_of_spark_ignores_are_named(
    server: EmubusServer, queue: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    given: dict[str, Any] = {"maxMessagesPerTrigger": 5, "minMessagesPerTrigger": 2}
    StreamReader(options_of(server, queue, **given), NUMBERS).initialOffset()
    monkeypatch.setattr(stream, "ReadLimit", None)  # as on Spark 4.0 and 4.1
    StreamReader(options_of(server, queue), NUMBERS).initialOffset()
    assert caplog.messages == []
    StreamReader(options_of(server, queue, **given), NUMBERS).initialOffset()
    assert [message.partition(": each")[0] for message in caplog.messages] == [
        f"{queue}: this version of Spark ignores maxMessagesPerTrigger and minMessagesPerTrigger"
    ]


def test_trigger_once_takes_all_whatever_the_limits(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 9)
    reader = StreamReader(options_of(server, queue, maxMessagesPerTrigger=2, minMessagesPerTrigger=2), NUMBERS)
    start = json_again(reader.initialOffset())
    end = reader.latestOffset(start, ReadAllAvailable())
    assert rows_of(reader, reader.partitions(start, end)) == list(range(1, 10))


def test_small_batches_wait_for_more_or_for_their_time(server: EmubusServer, queue: str) -> None:
    options = options_of(server, queue, minMessagesPerTrigger=3, maxTriggerDelay="1h")
    reader = StreamReader(options, NUMBERS)
    send_texts(server, queue, 1)
    limit = reader.getDefaultReadLimit()
    start = json_again(reader.latestOffset(json_again(reader.initialOffset()), limit))
    send_texts(server, queue, 2)
    assert reader.latestOffset(start, limit) is start
    send_texts(server, queue, 1)
    assert reader.latestOffset(start, limit)["p"] == {"0": 5}
    impatient = StreamReader(options_of(server, queue, minMessagesPerTrigger=100, maxTriggerDelay="0s"), NUMBERS)
    assert impatient.latestOffset(start, limit)["p"] == {"0": 5}


def test_gaps_use_up_no_share_of_a_limit(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 1600)
    for partition in IDS:
        server.run(server.server.broker.messages.delete_before(parts, partition, (partition << 48) + 98, 1000))
    query = Spark(options_of(server, parts, maxMessagesPerTrigger=20))
    query.run()
    assert len(query.rows) == 16 * 3
    assert len(query.sink) == 3


# ---- Spark 4.0 and 4.1


def test_spark_40_asks_without_arguments_and_commits(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 32)
    options = options_of(server, parts, mode="drain", maxMessagesPerTrigger=3)
    reader = StreamReader(options, NUMBERS)
    start = json_again(reader.initialOffset())
    end = json_again(reader.latestOffset())
    assert sorted(rows_of(reader, reader.partitions(start, end))) == numbers(2)
    assert reader.latestOffset() == end
    assert stored(server, parts) == 32
    reader.commit(end)
    assert reader.latestOffset() == end
    assert stored(server, parts) == 0
    reader.stop()
    again = StreamReader(options, NUMBERS)
    assert json_again(again.latestOffset()) == end
    send_texts(server, parts, 16)
    later = json_again(again.latestOffset())
    assert len(rows_of(again, again.partitions(end, later))) == 16
    again.stop()


def test_spark_40_has_no_claims(server: EmubusServer, queue: str) -> None:
    reader = StreamReader(options_of(server, queue, mode="claim", claimId="c"), NUMBERS)
    with pytest.raises(ConnectorError, match=r"mode=claim needs Spark 4\.2") as refused:
        reader.latestOffset()
    assert refused.value.code is Code.MODE_UNSUPPORTED


# ---- outages and replaced entities


def test_a_query_goes_on_while_a_partition_is_out_and_reads_it_later(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 16)
    query = Spark(options_of(server, parts, mode="drain", onOutage="skip"))
    query.run()
    server.begin_outage([3], OutageKind.DOWN)
    try:
        send_texts(server, parts, 30)  # those that partition 3 would get go elsewhere
        query.run()
        assert len(query.rows) == 46
        assert not any(number >> 48 == 3 for number in query.sink[1])
    finally:
        server.end_outage([3])
    send_texts(server, parts, 16)
    query.run()
    assert len(query.rows) == len(set(query.rows)) == 62
    assert stored(server, parts) == 0


def test_a_query_that_begins_while_a_partition_is_out_reads_it_later(server: EmubusServer, parts: str) -> None:
    send_texts(server, parts, 16)
    query = Spark(options_of(server, parts, onOutage="skip"))
    server.begin_outage([3], OutageKind.DOWN)
    try:
        query.run()
        assert len(query.rows) == 15
    finally:
        server.end_outage([3])
    query.run()
    assert sorted(query.rows) == numbers(1)


def without_generations(query: Spark) -> None:
    """Make the checkpoint that of a release without generations, which has to tell by the numbers."""
    known = [json.loads(text) for text in query.offsets]
    query.offsets = [json.dumps({key: each for key, each in raw.items() if key != "g"}) for raw in known]


def test_a_replaced_entity_is_data_loss_and_nothing_of_it_is_deleted(server: EmubusServer) -> None:
    server.create(QueueDescription("replaced"))
    send_texts(server, "replaced", 9)
    query = Spark(options_of(server, "replaced", mode="drain"))
    query.run()
    server.delete("replaced")
    server.create(QueueDescription("replaced"))
    send_texts(server, "replaced", 4)
    without_generations(query)
    with pytest.raises(
        ConnectorError, match="sequence number 10 in partition 0, where the next message gets 5"
    ) as lost:
        query.run()
    assert lost.value.code is Code.DATA_LOSS
    assert stored(server, "replaced") == 4
    query.options = options_of(server, "replaced", mode="drain", failOnDataLoss="false", maxMessagesPerTrigger=3)
    query.run()
    assert query.rows == [*range(1, 10), 1, 2, 3, 4]
    assert stored(server, "replaced") == 0
    server.delete("replaced")


def test_a_partition_that_vanished_is_data_loss(server: EmubusServer) -> None:
    server.create(QueueDescription("vanished", enable_partitioning=True))
    send_texts(server, "vanished", 16)
    query = Spark(options_of(server, "vanished"))
    query.run()
    server.delete("vanished")
    server.create(QueueDescription("vanished"))
    send_texts(server, "vanished", 5)
    without_generations(query)
    with pytest.raises(ConnectorError, match="in partition 1, which no longer exists"):
        query.run()
    query.options = options_of(server, "vanished", failOnDataLoss="false")
    query.run()
    assert query.rows[16:] == [2, 3, 4, 5]
    server.delete("vanished")


def test_a_logged_batch_that_can_not_be_read_again_is_data_loss(server: EmubusServer) -> None:
    server.create(QueueDescription("logged"))
    send_texts(server, "logged", 9)
    query = Spark(options_of(server, "logged"), steps_left=4)
    with pytest.raises(KilledError):
        query.run()
    assert (len(query.offsets), query.commits) == (1, 0)
    server.delete("logged")
    server.create(QueueDescription("logged"))
    query.steps_left = None
    without_generations(query)
    with pytest.raises(ConnectorError, match="sequence number 10 in partition 0, where the next message gets 1"):
        query.run()
    server.delete("logged")


def test_a_checkpoint_of_another_entity_is_refused(server: EmubusServer, make_queue: MakeQueue) -> None:
    one, other = make_queue(), make_queue()
    send_texts(server, one, 1)
    query = Spark(options_of(server, one))
    query.run()
    query.options = options_of(server, other)
    with pytest.raises(ConnectorError, match=f"{other}: the checkpoint belongs to '{one}'"):
        query.run()


# ---- drain


def test_drain_takes_the_last_batch_away_before_the_query_ends(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 5000)
    query = Spark(options_of(server, queue, mode="drain"))
    query.run()
    assert (len(query.rows), stored(server, queue)) == (5000, 0)


def test_drain_reads_from_the_first_message_only(server: EmubusServer, queue: str) -> None:
    with pytest.raises(ConnectorError, match="mode=drain deletes everything before its position") as refused:
        StreamReader(options_of(server, queue, mode="drain", startingPosition="latest"), NUMBERS)
    assert refused.value.code is Code.MODE_UNSUPPORTED
    send_texts(server, queue, 5)
    query = Spark(options_of(server, queue, startingPosition=3))
    query.run()
    query.options = options_of(server, queue, mode="drain")
    with pytest.raises(ConnectorError, match="would delete messages that it never read"):
        query.run()
    assert stored(server, queue) == 5


def test_drain_leaves_deferred_messages_that_it_did_not_read(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 4)
    settle_by_sdk(server, queue, 2, "defer_message")
    query = Spark(options_of(server, queue, mode="drain"))
    query.run()
    assert query.rows == [3, 4]
    assert stored(server, queue) == 2
    read = Spark(options_of(server, queue, includeDeferred="true"))
    read.run()
    assert read.rows == [1, 2]


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_dead_letters_that_come_below_others_are_read_once_without_operations_of_emubus(mode: str) -> None:
    with EmubusServer([QueueDescription("q")], service_only=True) as server:
        late_dead_letters_are_read_once(server, "q", mode)


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_dead_letters_that_come_below_others_are_read_once(server: EmubusServer, queue: str, mode: str) -> None:
    late_dead_letters_are_read_once(server, queue, mode)


def late_dead_letters_are_read_once(server: EmubusServer, queue: str, mode: str) -> None:
    send_texts(server, queue, 6)
    query = Spark(options_of(server, queue, subQueue="deadLetter", mode=mode))
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        held = {each.sequence_number: each for each in receiver.receive_messages(6, max_wait_time=60)}
        while len(held) < 6:
            held |= {each.sequence_number: each for each in receiver.receive_messages(6, max_wait_time=60)}
        for some in ((4, 6), (2,), (5, 1)):
            for number in some:
                receiver.dead_letter_message(held[number], reason="bad")
            query.run()
        receiver.complete_message(held[3])
    assert query.rows == [4, 6, 2, 1, 5]
    assert stored(server, f"{queue}/$DeadLetterQueue") == (5 if mode == "browse" else 0)


def test_a_subscription_is_drained(server: EmubusServer) -> None:
    server.create(TopicDescription("t-drained", enable_partitioning=True))
    server.create(SubscriptionDescription("t-drained", "s"))
    send_texts(server, "t-drained", 32)
    path = "t-drained/Subscriptions/s"
    query = Spark(options_of(server, path, mode="drain"))
    query.run()
    assert sorted(query.rows) == numbers(2)
    assert stored(server, path) == 0
    assert json.loads(query.offsets[0])["e"] == path
    server.delete("t-drained")


def test_message_sessions_are_drained(server: EmubusServer, make_queue: MakeQueue) -> None:
    queue = make_queue(requires_session=True, enable_partitioning=True)
    send(server, queue, [plain(str(number), session_id=str(number % 7)) for number in range(70)])
    query = Spark(options_of(server, queue, mode="drain"))
    query.run()
    assert (len(query.rows), stored(server, queue)) == (70, 0)
