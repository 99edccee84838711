"""What happens to an entity while a micro-batch is written to it: each row is there afterwards, or an error says why.

A batch that fails is written again, as a query does from its checkpoint, after the trouble is over. With duplicate
detection every batch is also written once more, as after the loss of its commit. The source is not as it was then: rows
come in another order.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import pyarrow as pa
import pytest

from emubus.broker.api import OutageKind
from emubus.broker.model.descriptions import QueueDescription
from emubus.conditions.faults import FaultKind, FaultOperation
from emubus.spark_connector.errors import Code, ConnectorError

from .kit import Rig, in_task, texts

ROWS = 600
BEFORE = 200  # rows that the task has taken when the world changes
KEYS = 5
STORES = range(16)
QUEUE, ELSEWHERE = "world", "elsewhere"
COLUMNS = "body string, partitionKey string, sequenceNumber bigint"

Todo = list[Callable[[], object]]


@dataclass(frozen=True)
class World:
    """A change: what happens, how it ends by itself while the sink pauses (or before a repetition), and the error."""

    change: Callable[[Rig, bool], object]
    heal: Callable[[Rig], object] = lambda rig: None
    ends_by_itself: bool = True
    error: Code | None = None
    words: str = QUEUE


def describe(detected: bool, *, forward_to: str | None = None) -> QueueDescription:
    return QueueDescription(
        QUEUE, enable_partitioning=True, requires_duplicate_detection=detected, forward_to=forward_to
    )


def make_anew(rig: Rig, detected: bool) -> None:
    rig.server.delete(QUEUE)
    rig.server.create(describe(detected))


def forward(rig: Rig, detected: bool) -> None:
    rig.create(QueueDescription(ELSEWHERE))
    rig.server.update(describe(detected, forward_to=ELSEWHERE))


def outage(kind: OutageKind) -> Callable[[Rig, bool], object]:
    return lambda rig, _: rig.server.begin_outage(STORES, kind)


def end_outage(rig: Rig) -> None:
    rig.server.end_outage(STORES)


def fault(kind: FaultKind) -> Callable[[Rig, bool], object]:
    return lambda rig, _: rig.server.add_fault(kind, entity=QUEUE, operations=[FaultOperation.SEND], count=3)


WORLDS = {
    "made anew": World(make_anew, error=Code.ENTITY_NOT_FOUND),
    "deleted": World(
        lambda rig, _: rig.server.delete(QUEUE),
        lambda rig: rig.server.create(describe(True)),
        ends_by_itself=False,
        error=Code.ENTITY_NOT_FOUND,
    ),
    "forwarded away": World(forward),
    "stores out": World(outage(OutageKind.DOWN), end_outage),
    "stores out for long": World(
        outage(OutageKind.DOWN), end_outage, False, Code.THROTTLED, f"rows .* for '{QUEUE}'.*retryTimeout"
    ),
    "stores full": World(outage(OutageKind.FULL), end_outage),
    "stores full for long": World(
        outage(OutageKind.FULL), end_outage, False, Code.THROTTLED, f"rows .* for '{QUEUE}'.*retryTimeout"
    ),
    "commits fail": World(outage(OutageKind.FAILING), end_outage),
    "throttled": World(fault(FaultKind.SERVER_BUSY)),
    "link dropped": World(fault(FaultKind.DROPPED_LINK)),
    "connection cut": World(fault(FaultKind.DROPPED_CONNECTION)),
    "all connections cut": World(lambda rig, _: rig.server.drop_connections(QUEUE)),
}


def rows_of(numbers: list[int]) -> pa.RecordBatch:
    return texts(numbers, partitionKey=lambda number: f"k{number % KEYS}", sequenceNumber=lambda number: number + 1)


def write_batch(rig: Rig, numbers: list[int], change: Callable[[], object] = lambda: None, **options: object) -> None:
    """Write one micro-batch; the world changes after some rows."""

    def batches() -> Iterator[pa.RecordBatch]:
        yield rows_of(numbers[:BEFORE])  # many have arrived when the next are asked for, and some are under way
        change()
        yield rows_of(numbers[BEFORE:])

    with in_task(0, query="q", batch=7):
        rig.stream_writer(COLUMNS, queue=QUEUE, batchSizeBytes=1024, maxInFlight=2, **options).write(batches())


def found(rig: Rig) -> Counter[int]:
    bodies = [body for path in {QUEUE, *rig.created} for body in rig.bodies(path)]
    return Counter(map(int, bodies))


@pytest.mark.parametrize("detected", [True, False], ids=["detected", "not detected"])
@pytest.mark.parametrize("name", WORLDS)
def test_no_row_is_lost_and_none_doubled_where_duplicates_are_detected(
    rig: Rig, impatience: Todo, name: str, detected: bool
) -> None:
    world = WORLDS[name]
    rig.create(describe(detected))
    numbers = list(range(ROWS))
    if world.ends_by_itself:
        impatience += [lambda: None, lambda: None, lambda: world.heal(rig)]
    failure: ConnectorError | None = None
    try:
        timeout = "2m" if world.ends_by_itself else "100ms"
        write_batch(rig, numbers, lambda: world.change(rig, detected), retryTimeout=timeout)
    except ConnectorError as error:
        failure = error
    finally:
        rig.server.clear_faults()
        if not world.ends_by_itself or impatience:
            world.heal(rig)
        impatience.clear()
    assert (failure and failure.code) == world.error
    if failure is not None:
        assert re.search(world.words, str(failure))
    if failure is not None or detected:
        write_batch(rig, random.Random(3).sample(numbers, ROWS))
    present = found(rig)
    assert set(present) == set(numbers)
    if detected:
        assert set(present.values()) == {1}


@pytest.mark.parametrize("detected", [True, False], ids=["detected", "not detected"])
def test_a_purge_takes_only_what_had_arrived(rig: Rig, impatience: Todo, detected: bool) -> None:
    rig.create(describe(detected))
    purged: list[int] = []
    write_batch(rig, list(range(ROWS)), lambda: purged.append(rig.server.purge(QUEUE)))
    present = found(rig)
    assert set(present) >= set(range(BEFORE, ROWS))
    assert 0 < purged[0] <= BEFORE
    assert sum(present.values()) + purged[0] >= ROWS
    if detected:  # a purge forgets ids, too: what arrived just before it and was not confirmed is there again
        assert set(present.values()) == {1}


@pytest.mark.parametrize("detected", [True, False], ids=["detected", "not detected"])
def test_a_batch_that_was_written_before_a_restore_is_written_again_as_a_whole(rig: Rig, detected: bool) -> None:
    rig.create(describe(detected))
    name = f"before-the-batch-{detected}".lower()
    rig.server.snapshot(name)
    write_batch(rig, list(range(ROWS)))
    rig.server.restore(name)
    write_batch(rig, list(range(ROWS)))
    assert found(rig) == Counter(range(ROWS))


@pytest.mark.parametrize("detected", [True, False], ids=["detected", "not detected"])
def test_rows_that_expire_while_others_are_written_are_dead_letters(rig: Rig, detected: bool) -> None:
    rig.create(replace(describe(detected), default_ttl_ms=60_000, dead_letter_on_expiration=True))
    numbers = list(range(ROWS))
    write_batch(rig, numbers, lambda: rig.server.advance(61_000))
    if detected:  # ids are known for longer than the messages were there
        write_batch(rig, numbers)
    present, expired = found(rig), Counter(map(int, rig.bodies(f"{QUEUE}/$DeadLetterQueue")))
    assert set(present) | set(expired) == set(numbers)
    assert 0 < expired.total() <= BEFORE
    if detected:
        assert present + expired == Counter(numbers)


class KilledError(Exception):
    """The executor ended here."""


@pytest.mark.parametrize("detected", [True, False], ids=["detected", "not detected"])
def test_a_task_whose_executor_is_killed_in_the_middle_is_repeated_as_a_whole(rig: Rig, detected: bool) -> None:
    def die() -> None:
        raise KilledError

    rig.create(describe(detected))
    numbers = list(range(ROWS))
    with pytest.raises(KilledError):
        write_batch(rig, numbers, die)
    assert 0 < found(rig).total() <= BEFORE
    write_batch(rig, random.Random(5).sample(numbers, ROWS))
    assert set(found(rig)) == set(numbers)
    if detected:
        assert found(rig) == Counter(numbers)


@pytest.mark.parametrize(("window_ms", "is_known"), [(600_000, False), (86_400_000, True)])
def test_a_batch_that_is_repeated_late_is_known_within_the_duplicate_detection_window(
    rig: Rig, window_ms: int, is_known: bool
) -> None:
    def die() -> None:
        raise KilledError

    rig.create(replace(describe(True), duplicate_window_ms=window_ms))
    numbers = list(range(ROWS))
    with pytest.raises(KilledError):
        write_batch(rig, numbers, die)
    arrived = found(rig)
    assert 0 < arrived.total() <= BEFORE
    rig.server.advance(20 * 60_000)
    write_batch(rig, numbers)
    assert found(rig) == Counter(numbers) + (Counter() if is_known else arrived)
