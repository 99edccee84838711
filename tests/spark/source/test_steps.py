"""The next step of a follower: its tables, its states, and that a query meets each row of them."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadAllAvailable

from emubus.broker.api import OutageKind
from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.source.follow import (
    Backlog,
    Batch,
    Ending,
    New,
    Reach,
    Running,
    batch_of,
    begun,
    ends_of,
    next_ends,
    reach_of,
    reached,
)
from emubus.spark_connector.source.offsets import Offset, base_of
from emubus.spark_connector.source.polling import Pause, pause_of
from emubus.spark_connector.source.positions import Extents
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from ..conftest import MakeQueue
from .kit import NUMBERS, FakeTime, Spark, json_again, options_of, send_texts

PARTITIONS = st.dictionaries(st.integers(0, 3), st.integers(1, 50), max_size=4)


def extents_of(following: Mapping[int, int], *, out: frozenset[int] = frozenset()) -> Extents:
    whole = {each: base_of(each) + number for each, number in following.items()}
    return Extents({each: base_of(each) + 1 for each in following}, whole, out, exact=True)


def offset_at(following: Mapping[int, int]) -> Offset:
    return Offset("q", {each: base_of(each) + number for each, number in following.items()})


# ---- tables


@pytest.mark.parametrize(
    ("is_held", "waiting", "count_max", "reach"),
    [
        (True, 5, None, Reach.HELD),
        (True, 5, 3, Reach.HELD),
        (False, 0, 3, Reach.ALL),
        (False, 5, None, Reach.ALL),
        (False, 5, 5, Reach.ALL),
        (False, 5, 4, Reach.SHARE),
    ],
)
def test_a_batch_goes_as_far_as_its_limits(is_held: bool, waiting: int, count_max: int | None, reach: Reach) -> None:
    assert reach_of(is_held=is_held, waiting=waiting, count_max=count_max) is reach


@pytest.mark.parametrize(("lost", "stores", "moved"), list(product([True, False], repeat=3)))
def test_what_is_lost_or_to_be_stored_makes_a_batch_though_nothing_is_to_be_read(
    lost: bool, stores: bool, moved: bool
) -> None:
    wanted = Batch.LOST if lost else Batch.START if stores else Batch.MOVED if moved else Batch.NONE
    assert batch_of(is_lost=lost, stores_start=stores, has_moved=moved) is wanted


@pytest.mark.parametrize(
    ("is_ending", "waits", "left_s", "pause"),
    [
        *((True, True, left_s, Pause.OUTAGE) for left_s in (-1.0, 0.0, 1.0)),
        *((True, False, left_s, Pause.END) for left_s in (-1.0, 0.0, 1.0)),
        *((False, waits, left_s, Pause.OVER) for waits in (True, False) for left_s in (-1.0, 0.0)),
        *((False, waits, 1.0, Pause.AGAIN) for waits in (True, False)),
    ],
)
def test_a_query_that_ends_waits_for_outages_and_another_for_messages(
    is_ending: bool, waits: bool, left_s: float, pause: Pause
) -> None:
    assert pause_of(is_ending=is_ending, waits=waits, left_s=left_s) is pause


# ---- states


def test_a_run_begins_with_its_first_look_from_a_start() -> None:
    start, extents = offset_at({0: 3}), extents_of({0: 5})
    assert begun(New(), start, extents) == Running()
    assert begun(Running(), start, extents) == Running()


def test_partitions_that_only_the_checkpoint_knows_end_where_they_are_at_the_first_look() -> None:
    frozen = Ending({0: 5}, frozenset())
    start, extents = offset_at({0: 1, 1: 1, 2: 1}), extents_of({0: 9, 1: 7}, out=frozenset({2}))
    state = begun(frozen, start, extents)
    assert state == Ending({0: 5, 1: base_of(1) + 7}, frozenset({2}), is_new=False)
    assert begun(state, start, extents_of({0: 9, 1: 20, 2: 20})) == state


def test_a_partition_that_was_out_ends_where_it_is_when_it_comes_back() -> None:
    state = reached(Ending({0: 5}, frozenset({1, 2})), extents_of({0: 9, 1: 7}, out=frozenset({2})))
    assert state == Ending({0: 5, 1: base_of(1) + 7}, frozenset({2}))
    assert reached(state, extents_of({0: 9, 1: 20}, out=frozenset({2}))) is state
    assert reached(Running(), extents_of({1: 7})) == Running()


@given(PARTITIONS, PARTITIONS, PARTITIONS)
def test_an_ending_query_reads_neither_beyond_its_end_nor_back(
    following: dict[int, int], frozen: dict[int, int], read: dict[int, int]
) -> None:
    state = Ending({each: base_of(each) + number for each, number in frozen.items()}, frozenset())
    begin = offset_at({each: min(number, following.get(each, 0)) for each, number in read.items()}).following
    ends = ends_of(state, begin, extents_of(following))
    assert ends.keys() == following.keys()
    for each, end in ends.items():
        assert begin.get(each, base_of(each)) <= end <= base_of(each) + following[each]
        assert end <= max(state.ends.get(each, base_of(each)), begin.get(each, base_of(each)))


@given(PARTITIONS, PARTITIONS, st.integers(1, 100))
def test_a_batch_is_within_its_limit_and_goes_forward(
    following: dict[int, int], read: dict[int, int], count_max: int
) -> None:
    extents = extents_of(following)
    start = offset_at({each: min(number, following[each]) for each, number in read.items() if each in following})
    backlog = Backlog(start, extents, frozenset(), start.following, ends_of(Running(), start.following, extents))
    present = backlog.effective
    for reach in Reach:
        ends = next_ends(backlog, reach, count_max, present)
        assert ends.keys() == following.keys()
        assert all(start.following.get(each, base_of(each)) <= end <= backlog.ends[each] for each, end in ends.items())
        moved = sum(max(0, end - present[each]) for each, end in ends.items())
        match reach:
            case Reach.HELD:
                assert moved == 0
            case Reach.ALL:
                assert moved == backlog.waiting
            case Reach.SHARE:
                assert moved == min(count_max, backlog.waiting)


# ---- a query


def test_queries_meet_each_row_of_the_tables(
    server: EmubusServer, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "emubus.spark")
    clock = FakeTime(monkeypatch)
    queue = make_queue(enable_partitioning=True)
    send_texts(server, queue, 32)
    Spark(options_of(server, queue, maxMessagesPerTrigger=20)).run()
    Spark(options_of(server, queue, startingPosition="latest")).run(available_now=False, batches_max=1)
    Spark(options_of(server, queue, pollInterval="0ms")).run(available_now=False)

    held = StreamReader(options_of(server, queue, minMessagesPerTrigger=100), NUMBERS)
    first = json_again(held.latestOffset(json_again(held.initialOffset()), ReadAllAvailable()))
    send_texts(server, queue, 16)
    limit = held.getDefaultReadLimit()
    assert held.latestOffset(first, limit) == first

    server.begin_outage([3], OutageKind.DOWN)
    clock.at_wait = lambda _: server.end_outage([3])
    Spark(options_of(server, queue)).run()
    clock.at_wait = lambda _: None

    query = Spark(options_of(server, queue, failOnDataLoss="false"))
    query.run()
    server.delete(queue)
    server.create(QueueDescription(queue, enable_partitioning=True))
    query.run()

    met = {label for message in caplog.messages for label in re.findall(r" (@\w+)", message)}
    assert met == {*Reach, *Batch, *Pause}
