"""The check of a data folder finds what does not agree, and nothing where all is well."""

from __future__ import annotations

from pathlib import Path

from emubus.broker.check import check_data_folder
from emubus.broker.description import QueueDescription
from emubus.broker.outcomes import Complete
from emubus.broker.records import MESSAGES, SESSION_MESSAGES, STATE, TABLES
from emubus.storage import Durability, open_store

from .driving import encoded
from .namespace import Receiver, open_broker, send

QUEUES = (
    QueueDescription("plain", default_ttl_ms=60_000),
    QueueDescription("s", requires_session=True, enable_partitioning=True),
)


async def fill(folder: Path) -> None:
    broker = open_broker(*QUEUES, folder=folder)
    for number in range(20):
        await send(broker, "plain", encoded())
        await send(broker, "s", encoded(group_id=f"session-{number % 3}"))
    receiver = Receiver(broker, "plain")
    for delivery in await receiver.receive(5):
        await receiver.settle(delivery, Complete())
    await broker.stop()


def damage(folder: Path, table: str) -> None:
    """Remove one row of a table, in the first store that has one."""
    for path in sorted(folder.glob("store-*")):
        store = open_store(path, TABLES, Durability.PROCESS)
        with store.view() as view:
            rows = view.scan(table, b"", b"\xff" * 24, 1)
        if rows:
            batch = store.begin(1000)
            batch.delete(table, rows[0][0])
            batch.commit()
        store.close()
        if rows:
            return
    raise AssertionError(f"no store has a row in {table}")


async def test_a_folder_that_was_used_normally_is_sound(tmp_path: Path) -> None:
    await fill(tmp_path)
    report = check_data_folder(tmp_path)
    assert report.problems == []
    lines = list(report.lines())
    assert lines[0].endswith("16 messaging stores, 2 entities")
    assert lines[1].startswith("  plain: 15 active (")
    assert lines[2].startswith("  s: 20 active (")
    assert lines[-1] == "sound"


async def test_counters_that_do_not_agree_are_named(tmp_path: Path) -> None:
    await fill(tmp_path)
    damage(tmp_path, MESSAGES)
    assert any("counts" in problem for problem in check_data_folder(tmp_path).problems)


async def test_messages_without_counters_are_named(tmp_path: Path) -> None:
    await fill(tmp_path)
    damage(tmp_path, STATE)
    assert any("has messages but no counters" in problem for problem in check_data_folder(tmp_path).problems)


async def test_rows_of_sessions_that_point_nowhere_are_named(tmp_path: Path) -> None:
    broker = open_broker(QUEUES[1], folder=tmp_path)
    await send(broker, "s", encoded(group_id="a"))
    await broker.stop()
    damage(tmp_path, MESSAGES)
    problems = check_data_folder(tmp_path).problems
    assert any("rows of sessions point to no active message" in problem for problem in problems)
    assert SESSION_MESSAGES in TABLES


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (problem,) = check_data_folder(tmp_path).problems
    assert "is not a data folder of emubus" in problem
