"""Claims: a claimed message goes to this query alone, and into one committed batch, whichever process dies."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import MapType, StringType, StructField, StructType

from emubus.broker.api import OutageKind
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.stream import StreamReader
from emubus.spark_connector.wire import management as wire
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .azure import AtOnce, AtTheEnd, Azure, Management, Receiver, options_for, serving
from .kit import NUMBERS, STATES, KilledError, Spark, json_again, options_of, plain, rows_of, send, send_texts, stored

PROPERTIES = StructType([StructField("applicationProperties", MapType(StringType(), StringType()))])
PARTITIONS = (0, 1, 5, 15)


def claiming(server: EmubusServer, entity: str, **raw: Any) -> Spark:
    return Spark(options_of(server, entity, mode="claim", claimId="one", **raw))


def start_of(query: Spark) -> tuple[StreamReader, dict[str, Any]]:
    reader = StreamReader(query.options, query.schema)
    return reader, json_again(reader.initialOffset())


@pytest.mark.parametrize("ahead", [AtOnce, AtTheEnd], ids=["claims at once", "claims at the end"])
@pytest.mark.parametrize("partitions", [None, PARTITIONS], ids=["unpartitioned", "partitioned"])
@pytest.mark.parametrize("steps", range(0, 44, 4))
def test_every_message_is_in_one_batch_wherever_the_query_is_killed(
    partitions: tuple[int, ...] | None, steps: int, ahead: type[AtOnce | AtTheEnd]
) -> None:
    with serving(Azure(partitions), ahead) as service:
        service.send(*range(60))
        sent = service.numbers
        query = Spark(options_for(mode="claim", claimId="c", maxMessagesPerTrigger=13), steps_left=steps)
        while True:
            try:
                query.run()
                break
            except KilledError:
                committed = [row for batch in range(query.commits) for row in query.sink[batch]]
                assert set(sent) - set(committed) <= set(service.numbers)
                query.steps_left = steps + 2
        assert sorted(query.rows) == sent
        assert service.numbers == []
        assert all(len(rows) <= 13 for rows in query.sink.values())


@pytest.mark.parametrize("ahead", [AtOnce, AtTheEnd], ids=["claims at once", "claims at the end"])
@pytest.mark.parametrize("calls", range(1, 80, 8))
def test_every_message_is_in_one_batch_whichever_call_of_the_service_is_the_last(
    calls: int, ahead: type[AtOnce | AtTheEnd]
) -> None:
    with serving(Azure(PARTITIONS), ahead) as service:
        service.send(*range(60))
        sent = service.numbers
        query = Spark(options_for(mode="claim", claimId="c", maxMessagesPerTrigger=13))
        while True:
            service.calls_left = calls
            try:
                query.run()
                break
            except KilledError:
                committed = [row for batch in range(query.commits) for row in query.sink[batch]]
                assert set(sent) - set(committed) <= set(service.numbers)
                service.end_locks()
                calls += 7
        assert sorted(query.rows) == sent
        assert service.numbers == []
        assert all(len(rows) <= 13 for rows in query.sink.values())


def test_a_claim_is_deferred_before_it_is_reported_and_deleted_when_its_batch_is_done() -> None:
    with serving(Azure()) as service:
        service.send(*range(5))
        query = Spark(options_for(mode="claim", claimId="c"))
        reader, start = start_of(query)
        end = json_again(reader.latestOffset(start, ReadMaxRows(3)))
        assert end == {"v": 1, "e": "q", "claim": "c", "runs": [[1, 3]]}
        assert states_of(service) == {1: 1, 2: 1, 3: 1, 4: 0, 5: 0}
        assert rows_of(reader, reader.partitions(start, end)) == [1, 2, 3]
        later = json_again(reader.latestOffset(end, ReadMaxRows(3)))
        assert later["runs"] == [[4, 2]]
        assert service.numbers == [4, 5]
        assert reader.latestOffset(later, ReadMaxRows(3)) is later
        assert service.numbers == []


def test_the_batch_after_a_full_one_is_claimed_beside_it_and_what_it_deletes_is_in_its_offset() -> None:
    with serving(Azure(), AtOnce) as service:
        service.send(*range(8))
        reader, start = start_of(Spark(options_for(mode="claim", claimId="c")))
        first = json_again(reader.latestOffset(start, ReadMaxRows(3)))
        assert states_of(service) == {1: 1, 2: 1, 3: 1, 4: 1, 5: 1, 6: 1, 7: 0, 8: 0}
        calls = service.calls["receive"]
        second = json_again(reader.latestOffset(first, ReadMaxRows(3)))
        assert (second["runs"], second["delete"]) == ([[4, 3]], [[1, 3]])
        assert service.calls["receive"] == calls + 1  # of the batch after it
        assert states_of(service) == dict.fromkeys(range(4, 9), 1)
        third = json_again(reader.latestOffset(second, ReadMaxRows(3)))
        assert (third["runs"], third.get("delete")) == ([[7, 2]], None)
        assert service.numbers == [7, 8]


def test_a_batch_that_was_claimed_beside_another_is_adopted_by_the_next_process() -> None:
    with serving(Azure(), AtOnce) as service:
        service.send(*range(8))
        query = Spark(options_for(mode="claim", claimId="c"))
        reader, start = start_of(query)
        first = json_again(reader.latestOffset(start, ReadMaxRows(3)))
        restarted, _ = start_of(query)
        assert rows_of(restarted, restarted.partitions(start, first)) == [1, 2, 3]
        second = json_again(restarted.latestOffset(first, ReadMaxRows(3)))
        assert (second["runs"], second["delete"]) == ([[4, 3]], [[1, 3]])


def test_a_failure_beside_a_batch_ends_the_query_with_the_next_and_loses_nothing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    settle = Receiver.settle

    def break_off(self: Receiver, received: Any, outcome: Any) -> None:
        settle(self, received[:2], outcome)
        raise ConnectorError(Code.REFUSED, "q: a lock was lost")

    with serving(Azure()) as service:
        service.send(*range(8))
        query = Spark(options_for(mode="claim", claimId="c"))
        reader, start = start_of(query)
        first = json_again(reader.latestOffset(start, ReadMaxRows(3)))
        with monkeypatch.context() as patch:
            patch.setattr(Receiver, "settle", break_off)
            with pytest.raises(ConnectorError, match="a lock was lost"):
                reader.latestOffset(first, ReadMaxRows(3))
        service.end_locks()
        restarted, _ = start_of(query)
        second = json_again(restarted.latestOffset(first, ReadMaxRows(3)))
        assert (second["runs"], service.numbers) == ([[4, 3]], [4, 5, 6, 7, 8])


def states_of(service: Azure) -> dict[int, int]:
    return {each.number: each.state for each in service.messages}


def test_what_could_not_be_deleted_is_in_the_next_offset_and_never_read_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectorError(Code.THROTTLED, "q: busy", retriable=True)

    with serving(Azure()) as service:
        service.send(*range(4))
        query = Spark(options_for(mode="claim", claimId="c", maxMessagesPerTrigger=2))
        with monkeypatch.context() as patch:
            patch.setattr(Management, "receive_by_sequence_number", refuse)
            query.run()
        assert [json.loads(offset).get("delete") for offset in query.offsets] == [None, [[1, 2]]]
        assert service.numbers == [1, 2, 3, 4]
        service.send(5)
        query.run()
        assert query.rows == [1, 2, 3, 4, 5]
        assert service.numbers == []


def test_a_failure_to_delete_ends_the_query_if_it_is_to(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise ConnectorError(Code.UNAUTHORIZED, "q: no right")

    with serving(Azure()) as service:
        service.send(1)
        monkeypatch.setattr(Management, "receive_by_sequence_number", refuse)
        query = Spark(options_for(mode="claim", claimId="c", settleFailure="fail"))
        with pytest.raises(ConnectorError, match="no right"):
            query.run()
        assert (query.rows, query.commits, service.numbers) == ([1], 1, [1])


def test_a_claim_that_broke_off_is_adopted_by_the_next(monkeypatch: pytest.MonkeyPatch) -> None:
    settle = Receiver.settle

    def break_off(self: Receiver, received: Any, outcome: Any) -> None:
        settle(self, received[:2], outcome)
        raise ConnectorError(Code.REFUSED, "q: a lock was lost")

    with serving(Azure()) as service:
        service.send(*range(4))
        query = Spark(options_for(mode="claim", claimId="c"))
        reader, start = start_of(query)
        with monkeypatch.context() as patch:
            patch.setattr(Receiver, "settle", break_off)
            with pytest.raises(ConnectorError, match="a lock was lost"):
                reader.latestOffset(start, ReadAllAvailable())
        end = json_again(reader.latestOffset(start, ReadAllAvailable()))
        assert end["runs"] == [[1, 2]]
        service.end_locks()
        assert json_again(reader.latestOffset(end, ReadAllAvailable()))["runs"] == [[3, 2]]


def test_another_querys_claims_and_other_deferred_messages_are_left_alone() -> None:
    with serving(Azure()) as service:
        service.send(*range(6))
        service.messages[0].state = 1
        other = Spark(options_for(mode="claim", claimId="other", maxMessagesPerTrigger=2))
        reader, start = start_of(other)
        end = json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))
        query = Spark(options_for(mode="claim", claimId="c"))
        query.run()
        assert query.rows == [4, 5, 6]
        assert rows_of(reader, reader.partitions(start, end)) == [2, 3]
        assert service.numbers == [1, 2, 3]


def test_message_sessions_can_not_be_claimed() -> None:
    with serving(Azure(requires_session=True)) as service:
        service.send(1, session_id="s")
        with pytest.raises(
            ConnectorError, match="mode=claim can't be used on an entity with message sessions"
        ) as refused:
            Spark(options_for(mode="claim", claimId="c")).run()
        assert refused.value.code is Code.MODE_UNSUPPORTED


def test_a_claimed_message_that_is_gone_is_data_loss() -> None:
    with serving(Azure()) as service:
        service.send(*range(4))
        query = Spark(options_for(mode="claim", claimId="c"))
        reader, start = start_of(query)
        end = json_again(reader.latestOffset(start, ReadAllAvailable()))
        service.remove([2, 3])
        with pytest.raises(ConnectorError, match="2 claimed messages are gone, the first with sequence number 2"):
            rows_of(reader, reader.partitions(start, end))
        patient = StreamReader(options_for(mode="claim", claimId="c", failOnDataLoss="false"), NUMBERS)
        assert rows_of(patient, patient.partitions(start, end)) == [1, 4]
        assert json_again(patient.latestOffset(end, ReadAllAvailable())) == end
        assert service.numbers == []


def test_claims_end_at_what_was_there_with_available_now() -> None:
    with serving(Azure()) as service:
        service.send(*range(5))
        query = Spark(options_for(mode="claim", claimId="c", maxMessagesPerTrigger=2))
        reader, start = start_of(query)
        reader.prepareForTriggerAvailableNow()
        service.send(*range(5))
        runs = []
        while (end := json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))) != start:
            runs.append(end["runs"])
            start = end
        assert runs == [[[1, 2]], [[3, 2]], [[5, 1]]]
        assert [(each.number, each.state, each.is_locked) for each in service.messages] == [
            (number, 0, False) for number in range(6, 11)
        ]


# ---- against emubus


def test_a_competing_consumer_gets_the_others(server: EmubusServer, make_queue: MakeQueue) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 200)
    query = claiming(server, queue, maxMessagesPerTrigger=50)
    query.schema = STATES
    bodies: list[str] = []
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        reader, start = start_of(query)
        while stored(server, queue):
            for message in receiver.receive_messages(20, max_wait_time=0.2):
                bodies.append(str(message))
                receiver.complete_message(message)
            end = json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))
            if end != start:
                rows = rows_of(reader, reader.partitions(start, end))
                assert {state for _, state in rows} == {"deferred"}
                bodies += [body.decode() for body, _ in rows]
                start = end
    assert sorted(bodies, key=int) == [str(number) for number in range(200)]


def test_the_messages_of_a_partition_are_claimed_by_one_request_of_emubus(
    server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 170)
    begin, sizes = wire.Management.begin_claim, list[int]()

    def counted(self: wire.Management, partition_id: int, before: int, count: int, *rest: Any) -> Any:
        sizes.append(count)
        return begin(self, partition_id, before, count, *rest)

    monkeypatch.setattr(wire.Management, "begin_claim", counted)
    query = claiming(server, queue, maxMessagesPerTrigger=100)
    query.run()
    assert [sum(sizes[:16]), *map(len, query.sink.values())] == [100, 100, 70]
    assert len(query.rows) == len(set(query.rows)) == 170
    assert stored(server, queue) == 0


def test_a_batch_is_full_if_few_partitions_have_the_rest(server: EmubusServer, make_queue: MakeQueue) -> None:
    queue = make_queue(enable_partitioning=True)
    send(server, queue, [plain(str(number), key="one") for number in range(40)])
    send_texts(server, queue, 10)
    query = claiming(server, queue, maxMessagesPerTrigger=30)
    query.run()
    assert [len(rows) for rows in query.sink.values()] == [30, 20]


def test_one_request_deletes_a_batch_of_a_partition_and_claims_the_next(
    server: EmubusServer, queue: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    send_texts(server, queue, 40)
    query = claiming(server, queue, maxMessagesPerTrigger=15)
    asked = list[tuple[int, Sequence[Any]]]()
    begin = wire.Management.begin_claim

    def counted(
        self: wire.Management, partition_id: int, before: int, count: int, mark: Any, finished: Any = ()
    ) -> Any:
        asked.append((count, finished))
        return begin(self, partition_id, before, count, mark, finished)

    monkeypatch.setattr(wire.Management, "begin_claim", counted)
    query.run()
    assert [len(rows) for rows in query.sink.values()] == [15, 15, 10]
    assert asked == [(15, ()), (15, ()), (15, ((1, 15),)), (5, ((16, 15),)), (15, ((31, 10),))]
    query.run()
    assert asked[5:] == [(0, ((31, 10),))]  # they may not have been deleted before the restart
    assert (len(query.rows), stored(server, queue)) == (40, 0)


@pytest.mark.parametrize("answers", range(2, 40, 10))
def test_every_message_of_emubus_is_in_one_batch_whichever_answer_is_the_last(
    server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, answers: int
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 90)
    left = [answers]
    end = wire.Management.end_claim

    def killed(self: wire.Management, pending: Any) -> Any:
        if not left[0]:
            raise KilledError("an answer")
        left[0] -= 1
        return end(self, pending)

    monkeypatch.setattr(wire.Management, "end_claim", killed)
    query = claiming(server, queue, maxMessagesPerTrigger=25)
    while True:
        try:
            query.run()
            break
        except KilledError:
            answers += 16
            left[0] = answers
    assert len(query.rows) == len(set(query.rows)) == 90
    assert stored(server, queue) == 0
    assert all(len(rows) <= 25 for rows in query.sink.values())


def test_without_requests_of_emubus_the_messages_of_a_partition_are_deferred_by_one_request(
    server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wire, "CLAIM", "com.example:unknown")
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 160)
    begin, sizes = wire.Management.begin_disposition, list[int]()

    def counted(self: wire.Management, tokens: Sequence[UUID], status: str, **fields: object) -> Any:
        sizes.append(len(tokens))
        return begin(self, tokens, status, **fields)

    monkeypatch.setattr(wire.Management, "begin_disposition", counted)
    query = claiming(server, queue)
    query.run()
    assert sizes == [10] * 16
    assert len(query.rows) == 160
    assert stored(server, queue) == 0


def test_the_mark_of_a_claim_is_not_among_the_rows_properties(server: EmubusServer, queue: str) -> None:
    send_texts(server, queue, 2)
    query = claiming(server, queue)
    query.schema = PROPERTIES
    query.run()
    assert query.rows == [[], []]
    assert stored(server, queue) == 0


def test_claims_of_a_partition_that_is_out_are_waited_for_and_deleted_later(
    server: EmubusServer, make_queue: MakeQueue
) -> None:
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 32)
    query = claiming(server, queue, retryTimeout="1s", outageTimeout="1s")
    reader, start = start_of(query)
    end = json_again(reader.latestOffset(start, reader.getDefaultReadLimit()))
    tasks = reader.partitions(start, end)
    server.begin_outage([3], OutageKind.DOWN)
    try:
        with pytest.raises(ConnectorError, match="down"):
            rows_of(reader, tasks)
        send_texts(server, queue, 15)
        later = json_again(reader.latestOffset(end, reader.getDefaultReadLimit()))
        assert later["delete"] == [[3 << 48 | 1, 2]]
        assert len(rows_of(reader, reader.partitions(end, later))) == 15
    finally:
        server.end_outage([3])
    restarted = StreamReader(query.options, NUMBERS)
    assert restarted.latestOffset(later, restarted.getDefaultReadLimit()) is later
    assert stored(server, queue) == 0
