"""Small ranges share tasks."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from emubus.broker.model.descriptions import QueueDescription
from emubus.spark_connector.source.offsets import base_of
from emubus.spark_connector.source.plan import GROUP_NUMBERS_MAX, GROUP_PARTS_MAX, RangeGroup, RangeTask, grouped
from emubus.spark_connector.source.stream import StreamReader
from emubus.testing import EmubusServer

from .kit import BODIES, options_of, rows_of, send_texts


def task(partition: int, count: int) -> RangeTask:
    return RangeTask("q", base_of(partition) + 1, base_of(partition) + 1 + count, partition)


@given(st.lists(st.integers(1, 15_000), max_size=40), st.one_of(st.none(), st.integers(1, 30_000)))
def test_groups_hold_all_tasks_in_order_and_keep_to_their_limits(counts: list[int], size_max: int | None) -> None:
    tasks = [task(partition, count) for partition, count in enumerate(counts)]
    groups = grouped(tasks, size_max)
    assert [part for group in groups for part in group.parts] == tasks
    room = min(size_max or GROUP_NUMBERS_MAX, GROUP_NUMBERS_MAX)
    for group in groups:
        assert isinstance(group, RangeGroup) == (len(group.parts) > 1)
        assert len(group.parts) == 1 or sum(part.high - part.low for part in group.parts) <= room
        assert len(group.parts) <= GROUP_PARTS_MAX


def test_few_messages_of_many_partitions_are_read_by_few_tasks(server: EmubusServer) -> None:
    server.create(QueueDescription("grouping", enable_partitioning=True))
    send_texts(server, "grouping", 64)

    limits: list[dict[str, Any]] = [{}, {"minPartitions": 16}, {"maxMessagesPerTask": 10}]
    found = []
    for more in limits:
        reader = StreamReader(options_of(server, "grouping", **more), BODIES)
        start = reader.initialOffset()
        tasks = reader.partitions(start, reader.latestOffset(start))
        rows = [(number >> 48, int(body)) for number, body in rows_of(reader, tasks)]
        assert sorted(body for _, body in rows) == list(range(64))
        assert [partition for partition, _ in rows] == [partition for partition in range(16) for _ in range(4)]
        found.append(len(tasks))
        reader.stop()
    assert found == [1, 16, 8]
