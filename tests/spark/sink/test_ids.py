"""Ids of rows that bring none: a batch is written in part, and then again from a source that has changed meanwhile.

What the second attempt gives has to be in the queue, and each row once.
"""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.sink.ids import KEY_BYTES, Occurrences, RowIds, equal_across
from emubus.spark_connector.sink.task import Task

from .kit import Rig, frame, in_task, text_of, texts, written

ROWS = 200
EXPIRED = 136  # rows that the source has lost at its beginning when it is read again
NUMBERED = "body string, sequenceNumber bigint"
ORIGINAL = f"{NUMBERED}, enqueuedTime timestamp"
WIDE = (
    "sequenceNumber bigint, enqueuedTime timestamp, body binary, subject string, applicationProperties map<string,int>"
)
FIRST_AT = datetime(2026, 1, 1, tzinfo=UTC)

Split = Callable[[Sequence[int]], list[Sequence[int]]]


def one_task(numbers: Sequence[int]) -> list[Sequence[int]]:
    return [numbers]


def two_tasks(numbers: Sequence[int]) -> list[Sequence[int]]:
    """Cut in the middle, so that a row moves to the other task when the source shrinks."""
    return [numbers[: len(numbers) // 2], numbers[len(numbers) // 2 :]]


def numbered(numbers: Sequence[int]) -> pa.RecordBatch:
    """Rows as the source gives them, without their message ids."""
    return texts(numbers, sequenceNumber=lambda number: number + 1)


def original(numbers: Sequence[int]) -> pa.RecordBatch:
    """The same with what tells the messages apart in whichever batch they are."""
    enqueued = {"enqueuedTime": lambda number: FIRST_AT + timedelta(seconds=number // 2)}
    return texts(numbers, sequenceNumber=lambda number: number + 1, **enqueued)


def unlike(numbers: Sequence[int]) -> pa.RecordBatch:
    """Rows of some other source."""
    return texts(numbers)


def attempt(
    rig: Rig, queue: str, columns: str, tasks: Sequence[pa.RecordBatch], *, batch: int = 0, **options: object
) -> None:
    """Write a micro-batch, as a query does that starts again from its checkpoint."""
    for partition, rows in enumerate(tasks):
        with in_task(partition, query="q", batch=batch):
            written(rig.stream_writer(columns, queue=queue, **options), rows)


def queue_with_detection(rig: Rig, name: str, *, partitioned: bool = False) -> str:
    rig.create(QueueDescription(name, enable_partitioning=partitioned, requires_duplicate_detection=True))
    return name


def in_queue(rig: Rig, queue: str) -> Counter[int]:
    return Counter(map(int, rig.bodies(queue)))


# ---- sources that change between attempts


@pytest.mark.parametrize("partitioned", [False, True])
@pytest.mark.parametrize(
    ("columns", "make", "split", "policy"),
    [
        (ORIGINAL, original, two_tasks, "origin"),
        (NUMBERED, numbered, one_task, "deterministic"),
        ("body string", unlike, one_task, "deterministic"),
    ],
)
@pytest.mark.parametrize("change", ["shrinks", "is reordered", "repeats", "grows"])
def test_a_source_that_changes_between_attempts_loses_no_row_and_doubles_none(
    rig: Rig,
    change: str,
    columns: str,
    make: Callable[[Sequence[int]], pa.RecordBatch],
    split: Split,
    policy: str,
    partitioned: bool,
) -> None:
    queue = queue_with_detection(rig, "changes", partitioned=partitioned)
    first = list(range(ROWS))
    second = {
        "shrinks": first[EXPIRED:],
        "is reordered": random.Random(1).sample(first, ROWS),
        "repeats": first,
        "grows": [*range(ROWS, ROWS + 20), *first],
    }[change]
    for numbers in (first[: ROWS - 40], second):  # the first one is killed before the end
        attempt(rig, queue, columns, [make(part) for part in split(numbers)], messageIdPolicy=policy)
    assert in_queue(rig, queue) == Counter(first[: ROWS - 40]) | Counter(second)


@pytest.mark.parametrize(("columns", "make"), [(NUMBERED, numbered), ("body string", unlike)])
def test_only_rows_that_move_to_another_task_are_doubled_and_none_is_lost(
    rig: Rig, columns: str, make: Callable[[Sequence[int]], pa.RecordBatch]
) -> None:
    queue = queue_with_detection(rig, "moves")
    attempt(rig, queue, columns, [make(range(100)), make(range(100, ROWS))])
    attempt(rig, queue, columns, [make(range(120)), make(range(120, ROWS))])
    assert in_queue(rig, queue) == Counter([*range(ROWS), *range(100, 120)])


def test_equal_rows_are_all_sent_and_again_no_more_of_them(rig: Rig) -> None:
    queue = queue_with_detection(rig, "equal")
    rows = [0, 1, 0, 0, 2, 1]
    for number in range(3):
        shuffled = random.Random(number).sample(rows, len(rows))
        attempt(rig, queue, "body string", [texts(shuffled[:4]), texts(shuffled[:4])])
    attempt(rig, queue, "body string", [texts(rows), texts(rows)])
    assert in_queue(rig, queue) == Counter(rows + rows)


def test_equal_rows_of_two_entities_or_tasks_are_different_ones(rig: Rig) -> None:
    queue = queue_with_detection(rig, "entities")
    batches = [frame([{"body": "7", "sequenceNumber": 1, "entity": entity}]) for entity in ("a", "b", "b")]
    for _ in range(2):
        attempt(rig, queue, f"{NUMBERED}, entity string", batches)
    assert in_queue(rig, queue) == Counter({7: 3})


def test_rows_made_of_one_message_are_different_ones(rig: Rig) -> None:
    queue = queue_with_detection(rig, "exploded")
    batch = frame([{"body": str(number % 3), "sequenceNumber": number // 5} for number in range(25)])
    for _ in range(2):
        attempt(rig, queue, NUMBERED, [batch])
    assert in_queue(rig, queue) == Counter(number % 3 for number in range(25))


@pytest.mark.parametrize("policy", ["deterministic", "origin"])
def test_equal_rows_of_one_message_in_two_tasks_are_all_there_or_the_write_fails(rig: Rig, policy: str) -> None:
    queue = queue_with_detection(rig, f"fan-out-{policy}")
    tasks = [original([*range(20), 0]), original([*range(10, 30), 0])]
    writer = rig.stream_writer(ORIGINAL, queue=queue, messageIdPolicy=policy)
    for _ in range(2):
        done: list[Any] = []
        for partition, rows in enumerate(tasks):
            with in_task(partition, query="q", batch=0):
                done.append(written(writer, rows))
        if policy == "origin":
            with pytest.raises(ConnectorError, match=r"^\[SERVICEBUS_EQUAL_ROWS\] 11 rows are equal to"):
                writer.commit(done, 0)
        else:
            writer.commit(done, 0)
    whole = Counter([*range(20), 0, *range(10, 30), 0])
    assert in_queue(rig, queue) == (whole if policy == "deterministic" else Counter([*range(30), 0]))


def test_equal_rows_of_two_batches_and_of_an_entity_made_anew_are_different_ones(rig: Rig) -> None:
    queue = queue_with_detection(rig, "anew")
    columns = "body string, sequenceNumber bigint, enqueuedTime timestamp"

    def rows(at: datetime) -> pa.RecordBatch:
        return frame([{"body": "7", "sequenceNumber": 1, "enqueuedTime": at}])

    attempt(rig, queue, columns, [rows(FIRST_AT)])
    attempt(rig, queue, columns, [rows(FIRST_AT)], batch=1)
    attempt(rig, queue, columns, [rows(FIRST_AT + timedelta(seconds=1))], batch=1)
    assert in_queue(rig, queue) == {7: 3}


@pytest.mark.parametrize(
    ("detected", "policy", "doubled"),
    [(True, "origin", range(0)), (True, "deterministic", range(200, 300)), (False, "origin", range(100, 300))],
)
def test_an_older_checkpoint_deals_rows_to_other_batches_and_ids_of_the_origin_do_not_mind(
    rig: Rig, detected: bool, policy: str, doubled: Sequence[int]
) -> None:
    queue = "older"
    rig.create(QueueDescription(queue, requires_duplicate_detection=detected))

    for number in range(3):
        rows = original(range(100 * number, 100 * (number + 1)))
        attempt(rig, queue, ORIGINAL, [rows], batch=number, messageIdPolicy=policy)
    attempt(rig, queue, ORIGINAL, [original(range(100, 400))], batch=1, messageIdPolicy=policy)  # has batch 0 only
    assert in_queue(rig, queue) == Counter([*range(400), *doubled])


def test_ids_of_the_origin_need_what_tells_messages_apart(rig: Rig) -> None:
    with pytest.raises(ConnectorError, match="needs the columns sequenceNumber and enqueuedTime") as refused:
        rig.stream_writer("body string, sequenceNumber bigint", queue="q", messageIdPolicy="origin")
    assert refused.value.code is Code.OPTION_INVALID


def test_rows_with_and_without_an_id_or_an_origin_may_be_mixed(rig: Rig) -> None:
    queue = queue_with_detection(rig, "mixed-ids")
    types = {"body": pa.string(), "messageId": pa.string(), "sequenceNumber": pa.int64()}
    rows = [
        {"body": str(n), "messageId": f"own-{n}" if n % 3 else None, "sequenceNumber": n if n % 2 else None}
        for n in range(60)
    ]
    for chosen in (rows[:40], rows[10:]):
        attempt(rig, queue, "body string, messageId string, sequenceNumber bigint", [frame(chosen, types)])
    assert in_queue(rig, queue) == Counter(range(60))
    ids = {int(text_of(message)): str(message.id) for message in rig.stored(queue)}
    assert [ids[n] for n in range(6) if n % 3] == ["own-1", "own-2", "own-4", "own-5"]
    assert (ids[3].count("/"), ids[6].count("/")) == (3, 3)  # query, batch, Spark partition, digest
    assert max(map(len, ids.values())) < 64


def test_every_part_of_a_row_tells_it_from_others(rig: Rig) -> None:
    queue = queue_with_detection(rig, "parts")
    base = {
        "sequenceNumber": 1,
        "enqueuedTime": FIRST_AT,
        "body": b"0",
        "subject": "s",
        "applicationProperties": [("a", 1)],
    }
    other: dict[str, object] = {
        "sequenceNumber": 2,
        "enqueuedTime": FIRST_AT + timedelta(microseconds=1),
        "body": b"1",
        "subject": "S",
        "applicationProperties": [("a", 2)],
    }
    types = {
        "sequenceNumber": pa.int64(),
        "enqueuedTime": pa.timestamp("us", tz="UTC"),
        "body": pa.binary(),
        "subject": pa.string(),
        "applicationProperties": pa.map_(pa.string(), pa.int32()),
    }
    rows = [base, *({**base, name: value} for name, value in other.items())]
    for _ in range(2):
        attempt(rig, queue, WIDE, [frame(rows, types)])
    assert len(rig.stored(queue)) == len(rows)


def test_rows_and_arrow_batches_of_one_frame_have_the_same_ids(rig: Rig) -> None:
    plan = rig.stream_writer(WIDE, queue="q")._plan
    spark_row: Any = Row  # its hints know texts only
    local = FIRST_AT.astimezone().replace(tzinfo=None)  # as Spark gives instants in rows
    rows = [spark_row(number + 1, local, str(number).encode(), None, {"a": number}) for number in range(5)]
    table = pa.table(
        {
            "sequenceNumber": pa.array(range(1, 6), pa.int64()),
            "enqueuedTime": pa.array([FIRST_AT] * 5, pa.timestamp("us", tz="UTC")),
            "body": pa.array([str(number).encode() for number in range(5)]),
            "subject": pa.array([None] * 5, pa.string()),
            "applicationProperties": pa.array([[("a", n)] for n in range(5)], pa.map_(pa.string(), pa.int32())),
        }
    )
    found = []
    for batches in (plan.of_rows(rows), plan.of_batches(table.to_batches())):
        (batch,) = batches
        make = RowIds(Task("q", "q/1"), plan.columns, [each.column for each in plan.origins]).of(batch)
        assert make is not None
        found.append([make(index) for index in range(5)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 5


# ---- what the user chooses


def test_positions_are_ids_where_the_user_promises_the_order(rig: Rig) -> None:
    rig.create(QueueDescription("positions"))
    attempt(rig, "positions", "body string", [texts(range(2)), texts(range(2))], batch=12, messageIdPolicy="position")
    assert [str(message.id) for message in rig.stored("positions")] == ["q/12/0/0", "q/12/0/1", "q/12/1/0", "q/12/1/1"]


def test_a_named_write_that_is_repeated_leaves_each_row_once(rig: Rig) -> None:
    queue = queue_with_detection(rig, "named")
    for name, numbers in (("q-1", range(20)), ("q-1", range(5, 30)), ("q-2", range(3))):
        written(rig.writer("body string", queue=queue, writeId=name), texts(numbers))
    assert in_queue(rig, queue) == Counter(range(30)) + Counter(range(3))


@pytest.mark.parametrize(
    ("columns", "options", "warns"),
    [
        ("body string", {}, True),
        ("body string", {"writeId": "q-7"}, False),
        ("body string", {"messageIdPolicy": "none"}, False),
        ("body string, messageId string", {}, False),
    ],
)
def test_a_write_in_foreachbatch_that_would_double_its_rows_is_warned_of(
    rig: Rig, caplog: pytest.LogCaptureFixture, columns: str, options: dict[str, str], warns: bool
) -> None:
    rig.create(QueueDescription("each"))
    rows = texts(range(2), messageId=str) if "messageId" in columns else texts(range(2))
    written(rig.writer(columns, queue="each", **options), rows)
    assert caplog.messages == []
    with in_task(0, query="q", batch=7):
        written(rig.writer(columns, queue="each", **options), rows)
    assert [message.partition(",")[0] for message in caplog.messages] == [
        "A batch write in foreachBatch: if batch 7 is repeated"
    ] * warns


def test_a_stream_is_named_by_spark_and_not_by_an_option(rig: Rig) -> None:
    with pytest.raises(ConnectorError, match=r"option writeId is for df\.write"):
        rig.stream_writer("body string", queue="q", writeId="x")


# ---- whatever Spark does with the rows of a batch

Message = tuple[int, int]  # sequence number and body of a row: what its id is made of
DEALT = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1)), max_size=12).flatmap(
    lambda rows: st.tuples(st.just(rows), st.lists(st.integers(0, 2), min_size=len(rows), max_size=len(rows)))
)


def ids_of(rows: Sequence[Message], task: int, policy: str) -> tuple[list[str], bytes]:
    """The ids of a task's rows; sequence number 0 is of a row without an origin."""
    columns = {
        "body": pa.array([b"%d" % body for _, body in rows], pa.binary()),
        "sequenceNumber": pa.array([number or None for number, _ in rows], pa.int64()),
    }
    ids = RowIds(Task("q", "q/7", task), ["body"], ["sequenceNumber"], of_origin=policy == "origin")
    made = ids.of(pa.RecordBatch.from_pydict(columns))
    return [] if made is None else [str(made(index)) for index in range(len(rows))], ids.shared_keys


@pytest.mark.parametrize("policy", ["deterministic", "origin"])
@given(
    dealt=DEALT,
    again=st.lists(st.integers(0, 2), min_size=12, max_size=12),
    moves=st.booleans(),
    kills=st.lists(st.tuples(st.integers(0, 2), st.integers(0, 12)), max_size=4),
    chance=st.randoms(use_true_random=False),
)
def test_rows_in_are_rows_out_however_rows_are_dealt_and_whichever_tasks_are_killed(
    policy: str,
    dealt: tuple[list[Message], list[int]],
    again: list[int],
    moves: bool,
    kills: list[tuple[int, int]],
    chance: random.Random,
) -> None:
    """An entity with duplicate detection keeps what comes first of each id."""
    rows, tasks = dealt
    entity: dict[str, Message] = {}

    def write(task: int, dealing: Sequence[int], count_max: int | None = None) -> bytes:
        mine = [row for row, each in zip(rows, dealing, strict=False) if each == task]
        chance.shuffle(mine)
        ids, keys = ids_of(mine, task, policy)
        for name, row in list(zip(ids, mine, strict=True))[:count_max]:
            entity.setdefault(name, row)
            assert entity[name] == row  # one id, one row, at every attempt
        return keys

    for task, count in kills:
        write(task, tasks, count)
    merged = equal_across([write(task, again if moves else tasks) for task in range(3)])
    found, wanted = Counter(entity.values()), Counter(rows)
    if policy == "deterministic":
        assert (merged, not wanted - found) == (0, True)
        assert moves or found == wanted
    else:
        own = {row: count for row, count in wanted.items() if row[0]}
        assert sum(max(0, count - found[row]) for row, count in own.items()) <= merged
        assert all(found[row] <= count for row, count in own.items())
        assert all(found[row] >= count for row, count in wanted.items() if not row[0])


# ---- counting


def test_keys_are_counted_as_a_plain_counter_counts_them() -> None:
    chance = random.Random(5)
    seen, plain = Occurrences(), Counter[bytes]()
    for _ in range(60):
        keys = [chance.randrange(400).to_bytes(KEY_BYTES, "big") for _ in range(chance.randrange(1, 40))]
        expected = []
        for key in keys:
            expected.append(plain[key])
            plain[key] += 1
        assert seen.add(keys) == expected
