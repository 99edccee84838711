"""Dead letters come in any order of their numbers: each is read once, and only what was read is deleted."""

from __future__ import annotations

import json
import logging
import random
from bisect import insort
from collections.abc import Iterable, Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.source import sub_queue
from emubus.spark_connector.source.offsets import (
    Offset,
    SeenOffset,
    base_of,
    first_of,
    numbers_in,
    parse_seen_offset,
    partition_of,
    runs_of,
    size_of,
    together,
    within,
    without,
)
from emubus.spark_connector.source.stream import StreamReader

from .azure import Azure, Message, options_for, serving
from .kit import KilledError, Spark, json_again

ENTITY = "q/$DeadLetterQueue"
SETS = st.sets(st.integers(0, 40) | st.integers(base_of(3), base_of(3) + 20))


@pytest.fixture(params=[None, (0, 1, 7)], ids=["one", "partitions"])
def service(request: pytest.FixtureRequest) -> Iterator[Azure]:
    """A sub-queue with and without partitions; `bury` puts messages in it."""
    with serving(Azure(request.param)) as found:
        yield found


def bury(service: Azure, numbers: Iterable[int]) -> None:
    """Messages with these numbers are dead-lettered; each keeps its number and its time."""
    for number in numbers:
        at_ms = service.now_ms + (number - base_of(partition_of(number))) * 1_000
        insort(service.messages, Message(number, at_ms, str(number)))


def query_of(mode: str, **raw: Any) -> Spark:
    return Spark(options_for(subQueue="deadLetter", mode=mode, **raw))


def some_numbers(rng: random.Random, service: Azure, taken: set[int]) -> list[int]:
    """Numbers that no dead letter has had."""
    bases = [base_of(each) for each in ((0, 1, 7) if service.partitioned else (0,))]
    free = sorted({base + each for base in bases for each in range(1, 90)} - taken)
    return rng.sample(free, min(len(free), rng.choice((0, 1, 3, 12))))


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_each_dead_letter_is_read_once_whatever_its_number_and_over_any_restart(
    service: Azure, mode: str, seed: int
) -> None:
    rng = random.Random(f"{mode} {seed}")
    limit: dict[str, Any] = {} if seed % 2 else {"maxMessagesPerTrigger": rng.choice((1, 2, 5))}
    query = query_of(mode, **limit)
    buried, taken = set[int](), set[int]()
    for _ in range(10):
        come = some_numbers(rng, service, buried)
        bury(service, come)
        buried |= set(come)
        if rng.random() < 0.3 and service.numbers:  # somebody else takes one
            gone = rng.choice(service.numbers)
            service.remove([gone])
            taken.add(gone)
        query.steps_left = rng.choice((None, None, 1, 2, 3, 4, 5, 6, 8))
        before = set(service.numbers)
        try:
            query.run(available_now=rng.random() < 0.7, batches_max=3)
        except KilledError:
            pass
        committed = {row for number in range(query.commits) for row in query.sink.get(number, ())}
        assert before - set(service.numbers) <= committed  # only what is in a committed batch is deleted
    query.steps_left = None
    query.run(batches_max=400)
    query.run()
    assert len(query.rows) == len(set(query.rows))
    assert buried - taken <= set(query.rows) <= buried
    assert set(service.numbers) == (buried - taken if mode == "browse" else set())


def test_what_another_consumer_takes_leaves_the_offset(service: Azure) -> None:
    query = query_of("browse")
    bury(service, range(1, 40, 2))
    query.run()
    service.remove(range(1, 38, 2))
    bury(service, [2])
    query.run()
    offset = parse_seen_offset(json.loads(query.offsets[-1]), ENTITY)
    assert isinstance(offset, SeenOffset)
    assert [*numbers_in(offset.seen)] == [2, 39]
    assert query.rows == [*range(1, 40, 2), 2]


def test_latest_reads_what_comes_later_also_below_what_is_there(service: Azure) -> None:
    bury(service, [5, 9])
    query = query_of("browse", startingPosition="latest")
    query.run()
    bury(service, [3, 7, 11])
    query.run()
    assert query.rows == [3, 7, 11]
    query.options = options_for(subQueue="deadLetter", mode="drain")
    with pytest.raises(ConnectorError, match="did not begin at the first message") as refused:
        query.run()
    assert refused.value.code is Code.CHECKPOINT_MISMATCH
    assert service.numbers == [3, 5, 7, 9, 11]


def test_from_a_number_on_nothing_below_it_is_read(service: Azure) -> None:
    bury(service, [5, 9])
    position = "7" if not service.partitioned else f'{{"0": 7, "1": {base_of(1)}, "7": {base_of(7)}}}'
    query = query_of("browse", startingPosition=position)
    query.run()
    bury(service, [3, 8])
    query.run()
    assert query.rows == [9, 8]


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_a_checkpoint_of_an_older_release_goes_on(service: Azure, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    bury(service, [5, 9])
    query = query_of(mode)
    query.offsets, query.commits = ['{"v": 1, "e": "q/$DeadLetterQueue", "p": {"0": 6}}'], 1
    with caplog.at_level(logging.WARNING):
        query.run()
        bury(service, [3, 12])
        query.run()
    assert query.rows == [9, 3, 12]
    assert service.numbers == ([3, 5, 9, 12] if mode == "browse" else [5])
    told = [each for each in caplog.messages if "1 messages below its position stay in the sub-queue" in each]
    assert len(told) == (mode == "drain")


def test_a_batch_that_an_older_release_has_begun_is_read_as_it_was_planned(service: Azure) -> None:
    bury(service, [5, 9, 12])
    query = query_of("browse")
    query.offsets = [f'{{"v": 1, "e": "{ENTITY}", "p": {{"0": {end}}}}}' for end in (6, 10)]
    query.commits = 1
    query.run()
    assert query.rows == [9, 12]


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_an_entity_that_was_created_again_is_seen_by_its_times(service: Azure, mode: str) -> None:
    query = query_of(mode, settleFailure="fail")
    bury(service, [3, 4])
    query.run()
    bury(service, [9])
    query.steps_left = 4  # its batch is logged, and not committed
    with pytest.raises(KilledError):
        query.run()
    query.steps_left = None
    service.recreate(later_ms=600_000)
    bury(service, [3, 9])
    with pytest.raises(ConnectorError, match="was deleted and created again") as lost:
        query.run()
    assert lost.value.code is Code.DATA_LOSS
    assert service.numbers == [3, 9]


def test_the_offset_is_bounded_and_says_from_which_number_on_nothing_is_read(
    service: Azure, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(sub_queue, "RUNS_MAX", 20)
    query = query_of("browse")
    bury(service, range(10, 100, 2))
    with caplog.at_level(logging.WARNING):
        query.run()
        query.run()
    assert sorted(query.rows) == [*range(10, 100, 2)]
    offset = parse_seen_offset(json.loads(query.offsets[-1]), ENTITY)
    assert isinstance(offset, SeenOffset)
    assert len(offset.seen) <= 20
    assert sum("are not read; delete what was read" in each for each in caplog.messages) == 1
    floor = offset.floors[0]
    bury(service, [1, floor + 1])
    query.run()
    assert query.rows[-1] == floor + 1
    assert 1 not in query.rows


@pytest.mark.parametrize("mode", ["browse", "drain"])
def test_a_spark_that_passes_no_start_reads_what_its_checkpoint_has_not_seen(service: Azure, mode: str) -> None:
    reader = StreamReader(options_for(subQueue="deadLetter", mode=mode), Spark(options_for()).schema)
    bury(service, [6])
    first = reader.latestOffset()
    bury(service, [3])
    reader.commit(first)
    second = reader.latestOffset()
    (task,) = reader.partitions(first, second)
    assert [*numbers_in(task.runs)] == [3]  # type: ignore[attr-defined]
    reader.stop()


@given(SETS, SETS, SETS)
def test_runs_are_sets_of_numbers(some: set[int], others: set[int], third: set[int]) -> None:
    left, right = runs_of(some), runs_of(others)
    assert without(left, right) == runs_of(some - others)
    assert within(left, right) == runs_of(some & others)
    assert together(left, right, runs_of(third)) == runs_of(some | others | third)
    assert size_of(left) == len(some)
    assert [*numbers_in(first_of(left, 5, 100))] == sorted(some)[:5]


@given(SETS, st.none() | SETS, SETS, st.booleans())
def test_an_offset_comes_back_from_its_text(seen: set[int], batch: set[int] | None, left: set[int], late: bool) -> None:
    offset = SeenOffset(
        ENTITY,
        runs_of(seen),
        None if batch is None else runs_of(batch),
        {0: 4, 3: base_of(3) + 9},
        runs_of(left),
        late,
        times={0: 5},
    )
    assert parse_seen_offset(json_again(offset.to_json()), "Q/$deadletterqueue") == offset


def test_an_offset_of_a_queue_is_no_offset_of_its_dead_letters() -> None:
    with pytest.raises(ConnectorError, match="the checkpoint belongs to 'q'"):
        parse_seen_offset(SeenOffset("q").to_json(), ENTITY)
    with pytest.raises(ConnectorError, match="can't be read"):
        parse_seen_offset(SeenOffset(ENTITY).to_json() | {"seen": [1, 2, 3]}, ENTITY)
    assert isinstance(parse_seen_offset(Offset(ENTITY, {0: 4}).to_json(), ENTITY), Offset)
