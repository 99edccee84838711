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
from pyspark.sql import Row

from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.errors import Code, ConnectorError
from emubus.spark_connector.sink.ids import KEY_BYTES, Occurrences, RowIds
from emubus.spark_connector.sink.task import Task

from .kit import Rig, frame, in_task, text_of, texts, written

ROWS = 200
EXPIRED = 136  # rows that the source has lost at its beginning when it is read again
NUMBERED = "body string, sequenceNumber bigint"
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
    ("columns", "make", "split"),
    [(NUMBERED, numbered, two_tasks), (NUMBERED, numbered, one_task), ("body string", unlike, one_task)],
)
@pytest.mark.parametrize("change", ["shrinks", "is reordered", "repeats", "grows"])
def test_a_source_that_changes_between_attempts_loses_no_row_and_doubles_none(
    rig: Rig,
    change: str,
    columns: str,
    make: Callable[[Sequence[int]], pa.RecordBatch],
    split: Split,
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
    attempt(rig, queue, columns, [make(part) for part in split(first[: ROWS - 40])])  # killed before the end
    attempt(rig, queue, columns, [make(part) for part in split(second)])
    assert in_queue(rig, queue) == Counter(first[: ROWS - 40]) | Counter(second)


def test_equal_rows_are_all_sent_and_again_no_more_of_them(rig: Rig) -> None:
    queue = queue_with_detection(rig, "equal")
    rows = [0, 1, 0, 0, 2, 1]
    for number in range(3):
        shuffled = random.Random(number).sample(rows, len(rows))
        attempt(rig, queue, "body string", [texts(shuffled[:4]), texts(shuffled[:4])])
    attempt(rig, queue, "body string", [texts(rows), texts(rows)])
    assert in_queue(rig, queue) == Counter(rows + rows)


def test_equal_rows_of_two_entities_are_different_ones(rig: Rig) -> None:
    queue = queue_with_detection(rig, "entities")
    batches = [frame([{"body": "7", "sequenceNumber": 1, "entity": entity}]) for entity in ("a", "b", "b")]
    for _ in range(2):
        attempt(rig, queue, f"{NUMBERED}, entity string", batches)
    assert in_queue(rig, queue) == Counter({7: 2})


def test_rows_made_of_one_message_are_different_ones(rig: Rig) -> None:
    queue = queue_with_detection(rig, "exploded")
    batch = frame([{"body": str(number % 3), "sequenceNumber": number // 5} for number in range(25)])
    for _ in range(2):
        attempt(rig, queue, NUMBERED, [batch])
    assert in_queue(rig, queue) == Counter(number % 3 for number in range(25))


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
    columns = "body string, sequenceNumber bigint, enqueuedTime timestamp"

    def rows(first: int, last: int) -> list[pa.RecordBatch]:
        enqueued = {"enqueuedTime": lambda number: FIRST_AT + timedelta(seconds=number // 2)}
        return [texts(range(first, last), sequenceNumber=lambda number: number + 1, **enqueued)]

    for number in range(3):
        attempt(rig, queue, columns, rows(100 * number, 100 * (number + 1)), batch=number, messageIdPolicy=policy)
    attempt(rig, queue, columns, rows(100, 400), batch=1, messageIdPolicy=policy)  # the checkpoint has batch 0 only
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
    assert (ids[3].count("/"), ids[6].count("/")) == (2, 3)  # the Spark partition is in the id of what has no origin
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
