"""A task's rows all or none."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pyarrow as pa
import pytest

from emubus.broker.api import OutageKind
from emubus.broker.errors import Condition
from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.errors import ConnectorError
from emubus.spark_connector.sink import delivery
from emubus.spark_connector.wire.transactions import Transaction

from .kit import Rig, in_task, texts, written
from .proxy import CuttingProxy


def test_a_task_appears_as_a_whole(rig: Rig) -> None:
    rig.create(QueueDescription("whole"))

    def batches() -> Iterator[pa.RecordBatch]:
        for first in range(0, 100, 25):
            assert rig.bodies("whole") == []
            yield texts(range(first, first + 25))

    done = rig.writer("body string", queue="whole", transactional=True, batchSizeBytes=1024).write(batches())
    assert done.rows == 100  # type: ignore[attr-defined]
    assert done.deliveries > 3  # type: ignore[attr-defined]
    assert rig.bodies("whole") == [str(number) for number in range(100)]


def test_a_task_that_fails_leaves_nothing(rig: Rig) -> None:
    rig.create(QueueDescription("nothing"))

    def batches() -> Iterator[pa.RecordBatch]:
        yield texts(range(50))
        raise RuntimeError("the task is killed")

    with pytest.raises(RuntimeError):
        rig.writer("body string", queue="nothing", transactional=True, batchSizeBytes=1024).write(batches())
    assert rig.bodies("nothing") == []


def test_more_rows_than_a_transaction_holds_are_an_error_with_a_remedy(rig: Rig) -> None:
    rig.create(QueueDescription("many"))
    writer = rig.writer("body string", queue="many", transactional=True)
    with pytest.raises(
        ConnectorError,
        match=r"transactional=true has 101 rows for .many.: .*more than 100 messages.*repartition",
    ):
        written(writer, texts(range(101)))
    assert rig.bodies("many") == []


@pytest.mark.parametrize(("column", "keys", "fails"), [
    ("partitionKey", ["k"], False),
    ("partitionKey", ["k", "l"], True),
    ("sessionId", ["s"], False),
    ("subject", ["no key"], True),
])  # fmt: skip
def test_a_partitioned_entity_takes_a_transaction_of_one_key(
    rig: Rig, column: str, keys: list[str], fails: bool
) -> None:
    name = f"key-{column}-{len(keys)}"
    rig.create(QueueDescription(name, enable_partitioning=True, requires_duplicate_detection=True))
    writer = rig.writer(f"body string, {column} string", queue=name, transactional=True)
    batch = texts(range(10), **{column: lambda number: keys[number % len(keys)]})
    if fails:
        with pytest.raises(ConnectorError, match="need one sessionId or partitionKey: repartition"):
            written(writer, batch)
    else:
        assert written(writer, batch).rows == 10
    assert rig.bodies(name) == ([] if fails else [str(number) for number in range(10)])


def test_a_transaction_cannot_span_entities(rig: Rig) -> None:
    for name in ("here", "there"):
        rig.create(QueueDescription(name))
    writer = rig.writer("body string, entity string", transactional=True)
    with pytest.raises(ConnectorError, match="can't span the entities 'here' and 'there'"):
        written(writer, texts(range(2), entity=lambda number: "there" if number else "here"))
    assert rig.bodies("here") == []


def test_a_transaction_is_repeated_while_the_store_is_out(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.create(QueueDescription("again"))
    todo: list[Callable[[], None]] = [lambda: None, lambda: rig.server.end_outage(range(16))]
    monkeypatch.setattr(delivery, "sleep", lambda seconds: todo.pop(0)())
    rig.server.begin_outage(range(16), OutageKind.FAILING)
    done = written(rig.writer("body string", queue="again", transactional=True), texts(range(20)))
    assert (done.rows, done.repeated, todo) == (20, 2, [])
    assert rig.bodies("again") == [str(number) for number in range(20)]


def test_a_transaction_that_times_out_is_repeated(rig: Rig, monkeypatch: pytest.MonkeyPatch) -> None:
    rig.create(QueueDescription("slow-tx"))
    declare, late = Transaction.declare, [120_000]

    def declare_and_wait(transaction: Transaction) -> None:
        declare(transaction)
        if late:
            rig.server.advance(late.pop())

    monkeypatch.setattr(Transaction, "declare", declare_and_wait)
    monkeypatch.setattr(delivery, "sleep", lambda seconds: None)
    done = written(rig.writer("body string", queue="slow-tx", transactional=True), texts(range(3)))
    assert (done.rows, done.repeated) == (3, 1)
    assert rig.bodies("slow-tx") == ["0", "1", "2"]


def test_a_transaction_whose_link_is_closed_for_a_message_that_is_too_large_is_not_repeated(rig: Rig) -> None:
    rig.create(QueueDescription("large-tx"))

    def batches() -> Iterator[pa.RecordBatch]:
        yield texts(range(10))
        assert rig.server.drop_links("large-tx", Condition.MESSAGE_SIZE_EXCEEDED) == 1

    writer = rig.writer("body string", queue="large-tx", transactional=True, batchSizeBytes=1024)
    with pytest.raises(ConnectorError, match=r"^\[SERVICEBUS_MESSAGE_TOO_LARGE\] large-tx: "):
        writer.write(batches())
    assert rig.bodies("large-tx") == []


@pytest.mark.parametrize("seed", range(4))
def test_cut_connections_leave_transactions_whole(rig: Rig, monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    name = f"tx-cut-{seed}"
    rig.create(QueueDescription(name, requires_duplicate_detection=True))
    monkeypatch.setattr(delivery, "sleep", lambda seconds: None)
    chance = random.Random(seed)
    with CuttingProxy(rig.server.amqp_port, [chance.randrange(200, 12_000) for _ in range(8)]) as proxy, in_task(seed):
        cutting = Rig(rig.server, proxy.port)
        written(cutting.writer("body string", queue=name, transactional=True, batchSizeBytes=1024), texts(range(90)))
        assert proxy.cuts > 0
    assert rig.bodies(name) == [str(number) for number in range(90)]
