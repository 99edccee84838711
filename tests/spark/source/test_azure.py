"""The same reading where the service has none of emubus's operations and answers peeks message by message."""

from __future__ import annotations

import random
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, cast

import pytest

from emubus.spark_connector.codec import head
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source.browse import PeekClient, discover_partitions, end_of, pages
from emubus.spark_connector.source.drain import DeletionByReceiving, Settler

from .azure import Azure, Connection, Management, Receiver, options_for, serving
from .kit import FakeTime, KilledError, Spark, read_batch

PARTITIONS = (0, 1, 5, 15)


@pytest.fixture
def parts() -> Iterator[Azure]:
    with serving(Azure(PARTITIONS)) as service:
        yield service


@pytest.fixture
def plain() -> Iterator[Azure]:
    with serving(Azure()) as service:
        yield service


def client(service: Azure) -> PeekClient:
    """The stand-in's node of management."""
    return cast("PeekClient", Management(service))


def test_partitions_are_found_though_a_peek_stops_at_the_end_of_one(parts: Azure) -> None:
    parts.send(*range(3))
    found, out = discover_partitions(client(parts), range(16))
    assert {partition: each.sequence_number for partition, each in found.items()} == {
        0: 1,
        1: 1 << 48 | 1,
        5: 5 << 48 | 1,
    }
    assert out == {}


def test_partitions_beyond_those_that_the_service_documents_are_found() -> None:
    service = Azure((0, 15, 16, 17))
    service.send(*range(4))
    assert sorted(discover_partitions(client(service), range(16))[0]) == [0, 15, 16, 17]


@pytest.mark.parametrize("seed", range(5))
def test_an_end_is_found_in_few_peeks_wherever_messages_are_missing(plain: Azure, seed: int) -> None:
    chance = random.Random(seed)
    for _ in range(20):
        plain.send(*range(chance.randrange(50)))
        plain.skip(chance.choice((0, 1, 100, 100_000)))
        plain.remove(chance.sample(plain.numbers, len(plain.numbers) // 3))
        plain.calls.clear()
        last = plain.numbers[-1] if plain.numbers else 0
        known = chance.choice((0, 1, last // 2, last + 1, last + 500))
        end, at_ms = end_of(client(plain), 0, known)
        assert end == max(known, last + 1 if last >= known else known)
        assert at_ms == (plain.messages[-1].enqueued_at_ms if last >= known and last else None)
        assert plain.calls["peek"] <= 60
        if known > last:
            assert plain.calls["peek"] == 1


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("partitions", [None, (0, 1)])
def test_pages_give_every_message_of_a_range_once_in_order(seed: int, partitions: tuple[int, ...] | None) -> None:
    chance = random.Random(seed)
    service = Azure(partitions)
    for _ in range(30):
        service.send(*range(chance.randrange(20)))
        service.skip(chance.choice((0, 0, 1, 30, 1000)))
    low, high = 3, service.numbers[len(service.numbers) // 2]
    found: list[int] = []
    following = low
    for page in pages(client(service), low, high, chance.choice((1, 3, 50))):
        found += [head(message).sequence_number for message in page.messages]
        assert page.following > following
        following = page.following
    assert [number for number in found if number < high] == [n for n in service.numbers if low <= n < high]
    assert found == sorted(set(found))


def test_a_batch_reads_all_partitions_message_by_message(parts: Azure) -> None:
    parts.send(*range(40))
    assert read_batch(options_for(streaming=False)) == parts.numbers
    parts.skip(1_000_000)
    parts.send(*range(4))
    assert read_batch(options_for(streaming=False)) == parts.numbers


def test_a_time_is_found_by_halving(plain: Azure) -> None:
    plain.send(*range(1000), gap_ms=1000)
    at_ms = plain.messages[700].enqueued_at_ms
    at = datetime.fromtimestamp(at_ms / 1000, UTC).isoformat()
    plain.calls.clear()
    assert read_batch(options_for(streaming=False, startingPosition=at)) == plain.numbers[700:]
    assert read_batch(options_for(streaming=False, endingPosition=at)) == plain.numbers[:700]
    future = read_batch(options_for(streaming=False, startingPosition="2100-01-01T00:00:00Z"))
    assert future == []


def test_a_stream_goes_on_while_a_partition_is_out_and_reads_it_later(parts: Azure) -> None:
    parts.send(*range(8))
    query = Spark(options_for())
    query.run(available_now=False)
    parts.out = {5}
    parts.send(*range(8))
    query.run(available_now=False)
    assert sorted(query.rows) == [n for n in parts.numbers if n >> 48 != 5 or n & 0xFFFF <= 2]
    parts.out = set()
    query.run(available_now=False)
    assert sorted(query.rows) == parts.numbers


def test_transient_failures_are_waited_out_and_others_are_not(plain: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    FakeTime(monkeypatch)
    plain.send(*range(100))
    busy = ConnectorError(Code.THROTTLED, "q: busy", retriable=True)
    plain.failures = [busy] * 3
    assert read_batch(options_for(streaming=False, retryTimeout="10s")) == plain.numbers
    plain.failures = [ConnectorError(Code.UNAUTHORIZED, "q: no")]
    with pytest.raises(ConnectorError, match="q: no"):
        read_batch(options_for(streaming=False))
    plain.failures = [busy] * 1000
    with pytest.raises(ConnectorError, match="q: busy"):
        read_batch(options_for(streaming=False, retryTimeout="100ms"))


@pytest.mark.parametrize("retriable", [False, True])
def test_a_service_that_refuses_what_it_does_not_know_is_searched(
    parts: Azure, monkeypatch: pytest.MonkeyPatch, retriable: bool
) -> None:
    def refuse(_: Management) -> None:
        raise ConnectorError(Code.UNAVAILABLE if retriable else Code.REFUSED, "q: what?", retriable=retriable)

    monkeypatch.setattr(Management, "partitions", refuse)
    parts.send(*range(20))
    query = Spark(options_for(mode="drain"))
    sent = parts.numbers
    query.run()
    assert sorted(query.rows) == sent
    assert parts.numbers == []
    assert "delete_before" not in parts.calls


def test_drain_insists_on_the_last_delete_before_the_query_ends(plain: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    receive = Receiver.receive
    failures = [ConnectorError(Code.THROTTLED, "q: busy", retriable=True)]

    def fail_once(self: Receiver, count: int, wait_s: float) -> Any:
        if failures:
            raise failures.pop()
        return receive(self, count, wait_s)

    monkeypatch.setattr(Receiver, "receive", fail_once)
    plain.send(*range(10))
    query = Spark(options_for(mode="drain", maxMessagesPerTrigger=5))
    query.run()
    assert (len(query.rows), plain.numbers) == (10, [])


def test_a_service_that_answers_backwards_is_not_read_forever(plain: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    plain.send(1, 2, 3)
    reply = Management(plain).peek(1, 1)
    monkeypatch.setattr(Management, "peek", lambda *_, **__: reply)
    with pytest.raises(ConnectorError, match="answered a peek from sequence number 2 with 1"):
        list(pages(client(plain), 2, 4, 10))


# ---- drain without range deletes


def test_drain_deletes_by_time_in_bulk_and_the_youngest_under_lock(plain: Azure) -> None:
    plain.send(*range(2000))
    query = Spark(options_for(mode="drain", maxMessagesPerTrigger=1500))
    query.run()
    assert sorted(query.rows) == list(range(1, 2001))
    assert plain.numbers == []
    assert plain.calls["batch_delete"] >= 3


def test_drain_deletes_under_lock_where_there_are_partitions(parts: Azure) -> None:
    parts.send(*range(900))
    sent = parts.numbers
    query = Spark(options_for(mode="drain", maxMessagesPerTrigger=400))
    query.run()
    assert sorted(query.rows) == sent
    assert parts.numbers == []


def test_drain_accepts_message_sessions_one_by_one() -> None:
    with serving(Azure(PARTITIONS, requires_session=True)) as service:
        for number in range(60):
            service.send(number, session_id=f"s{number % 4}")
        query = Spark(options_for(mode="drain"))
        query.run()
        assert len(query.rows) == 60
        assert service.numbers == []
        assert service.calls["attach"] >= 5


@pytest.mark.parametrize("partitions", [None, PARTITIONS])
@pytest.mark.parametrize("steps", range(0, 40, 3))
def test_drain_deletes_nothing_that_is_not_committed_wherever_it_is_killed(
    partitions: tuple[int, ...] | None, steps: int
) -> None:
    with serving(Azure(partitions)) as service:
        service.send(*range(60), gap_ms=1000)
        sent = service.numbers
        query = Spark(options_for(mode="drain", maxMessagesPerTrigger=13), steps_left=steps)
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


def test_what_came_after_the_mark_is_given_back_by_drain(plain: Azure) -> None:
    plain.send(*range(10))
    query = Spark(options_for(mode="drain"))
    query.run(available_now=False, batches_max=1)
    plain.send(*range(10))
    moved: list[int] = []
    DeletionByReceiving(Connection(plain), "q", {0: 11}, moved.append, {}).run()
    assert plain.numbers == list(range(11, 21))
    assert not any(each.is_locked for each in plain.messages)
    assert moved == [10]


def test_drain_goes_on_reading_when_deleting_fails(plain: Azure, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise ConnectorError(Code.UNAUTHORIZED, "q: no right to receive")

    plain.send(*range(10))
    monkeypatch.setattr(Management, "batch_delete", refuse)
    monkeypatch.setattr(Receiver, "receive", refuse)
    query = Spark(options_for(mode="drain"))
    query.run()
    assert len(query.rows) == 10
    assert len(plain.numbers) == 10
    plain.send(1)
    with pytest.raises(ConnectorError, match="no right to receive"):
        Spark(options_for(mode="drain", settleFailure="fail"), offsets=query.offsets, commits=query.commits).run()


def test_a_delete_by_time_spares_what_is_young_enough_to_be_out_of_order(
    plain: Azure, monkeypatch: pytest.MonkeyPatch
) -> None:
    plain.send(*range(5), gap_ms=0)
    plain.send(*range(5), gap_ms=60_000)
    old = plain.messages[9]
    old.enqueued_at_ms = plain.messages[8].enqueued_at_ms - 1000  # the clocks of the service's machines differ
    settler = Settler(options_for(mode="drain"))
    monkeypatch.setattr(Receiver, "receive", lambda *_: [])
    settler.settle({0: 9}, by_range=False)
    settler.wait(insist=True)
    settler.stop()
    assert plain.numbers == [9, 10]
