"""The check of a data folder finds what does not agree, and nothing where all is well."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from proton import timestamp

from emubus.broker.admin.verify import check_data_folder
from emubus.broker.api import TABLES, Abandon, Complete, DeadLetter, Defer, Outcome
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.partition.records import DUE, MESSAGES, SESSION_MESSAGES, STATE
from emubus.storage import Durability, open_store

from .driving import encoded
from .namespace import Receiver, open_broker, send
from .tearing import Lossy

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


def test_an_empty_folder_is_sound_and_said_to_be_empty(tmp_path: Path) -> None:
    report = check_data_folder(tmp_path)
    assert (report.problems, report.notes) == ([], ["it is empty: a start with --data makes a namespace in it"])


def test_a_folder_of_something_else_is_refused(tmp_path: Path) -> None:
    (tmp_path / "else").touch()
    (problem,) = check_data_folder(tmp_path).problems
    assert "not a data folder of emubus" in problem


# ---- stores that keep a part of a batch


Arm = Callable[[], None]  # from here on writes are lost
Work = Callable[[Broker, Arm], Awaitable[object]]
LATER = {"x-opt-scheduled-enqueue-time": timestamp(1_800_000_009_000)}


def sending(address: str, *, times: int = 1, **fields: Any) -> Work:
    """The last of so many messages that are sent."""

    async def work(broker: Broker, arm: Arm) -> None:
        for left in reversed(range(times)):
            if not left:
                arm()
            await send(broker, address, encoded("x", **fields))

    return work


def settling(outcome: Outcome) -> Work:
    """A settlement of the one message."""

    async def work(broker: Broker, arm: Arm) -> None:
        await send(broker, "plain", encoded("x"))
        receiver = Receiver(broker, "plain")
        (delivery,) = await receiver.receive(1)
        arm()
        assert await receiver.settle(delivery, outcome) is None

    return work


WORK: dict[str, tuple[Work, int]] = {  # with the number of writes in the batch
    "a message that expires": (sending("plain"), 3),
    "a message of a session": (sending("s", group_id="a"), 5),
    "another message of a session": (sending("s", times=2, group_id="a"), 3),
    "a message for later": (sending("plain", annotations=LATER), 3),
    "a message to be forwarded": (sending("f"), 2),
    "complete": (settling(Complete()), 3),
    "abandon with more properties": (settling(Abandon({"more": "x"})), 2),
    "defer": (settling(Defer()), 4),
    "dead-letter": (settling(DeadLetter("why")), 4),
}
LOSSES = [
    (name, lost)
    for name, (_, count) in WORK.items()
    for lost in (*((each,) for each in range(count)), tuple(range(count // 2)), tuple(range(count // 2, count)))
]


async def run(folder: Path, work: Work, lossy: Lossy, lost: tuple[int, ...]) -> None:
    """Do the work with a store of which these writes are lost."""
    queues = (*QUEUES, QueueDescription("f", forward_to="plain"))
    clock = Clock(start_at=1_800_000_000_000, frozen=True)
    broker = open_broker(*queues, folder=folder, clock=clock, wrap=lossy.around, loses_writes=True)
    await broker.namespace.forwarder.stop()  # what is to be forwarded stays where it is
    await work(broker, lambda: lossy.lose(lost))
    await broker.stop()


@pytest.mark.parametrize(("name", "lost"), LOSSES)
async def test_a_batch_that_was_not_stored_whole_is_noticed(tmp_path: Path, name: str, lost: tuple[int, ...]) -> None:
    """Each write in turn is lost, and each half of all."""
    work, count = WORK[name]
    lossy = Lossy()
    await run(tmp_path, work, lossy, lost)
    assert lossy.writes == count
    assert not check_data_folder(tmp_path).sound


@pytest.mark.parametrize("name", WORK)
async def test_a_batch_that_was_stored_whole_is_sound(tmp_path: Path, name: str) -> None:
    await run(tmp_path, WORK[name][0], Lossy(), ())
    assert check_data_folder(tmp_path).problems == []


async def test_a_message_id_that_would_be_remembered_for_ever_is_noticed(tmp_path: Path) -> None:
    broker = open_broker(QueueDescription("d", requires_duplicate_detection=True), folder=tmp_path)
    await send(broker, "d", encoded(id="1"))
    await broker.stop()
    damage(tmp_path, DUE)
    assert [problem.partition(": ")[2] for problem in check_data_folder(tmp_path).problems] == [
        "1 remembered message ids would never be forgotten"
    ]


async def test_messages_that_wait_to_be_forwarded_are_read_whatever_partition_they_are_for(tmp_path: Path) -> None:
    target = QueueDescription("target", enable_partitioning=True)
    source = QueueDescription("source", enable_partitioning=True, forward_to="target")
    broker = open_broker(target, source, folder=tmp_path)
    await broker.namespace.forwarder.stop()
    for number in range(40):
        await send(broker, "source", encoded(f"{number}"))
    await broker.stop()
    assert check_data_folder(tmp_path).problems == []


def damage_a_message(folder: Path) -> None:
    """Write other bytes into the sections of the first message."""
    for path in sorted(folder.glob("store-*")):
        store = open_store(path, TABLES, Durability.PROCESS)
        with store.view() as view:
            rows = view.scan(MESSAGES, b"", b"\xff" * 24, 1)
        if rows:
            (key, row) = rows[0]
            batch = store.begin(1000)
            batch.put(MESSAGES, key, row[:-12] + b"\x00\x53\x99" + b"\xff" * 9)
            batch.commit()
        store.close()
        if rows:
            return
    raise AssertionError("no store has a message")


async def test_a_message_whose_sections_are_damaged_is_reported_and_the_check_goes_on(tmp_path: Path) -> None:
    await fill(tmp_path)
    damage_a_message(tmp_path)
    report = check_data_folder(tmp_path)
    (problem,) = (each for each in report.problems if "can't be read" in each)
    assert "malformed AMQP data at offset" in problem
    assert sum(sum(totals.messages) for totals in report.queues.values()) == 20 + 15 - 1  # the others are counted
