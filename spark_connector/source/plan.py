"""Ranges of sequence numbers, cut into tasks.

Pure. A task holds numbers and flags only, because it is pickled and sent to a worker. Knows the options `minPartitions`
and `maxMessagesPerTask`. Does not know how a task is read (`rows`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from ..options import SourceOptions
from .offsets import Run, partition_of

GROUP_NUMBERS_MAX: Final = 10_000
GROUP_PARTS_MAX: Final = 64
"""A task of small spans has at most so many numbers and spans.

A task costs Spark and its Python 19 ms of processor time, as much as reading 2 000 messages: a stream of 50 000 in a
batch took 5.6 us a row more from 16 partitions than from one. Fewer tasks leave cores of a large cluster idle for some
hundredths of a second; `minPartitions` asks for more of them.
"""

RUN_GAP_MAX: Final = 64  # a gap up to this size is read too: its messages cost less than another request


@dataclass(frozen=True)
class Span:
    """The sequence numbers from `low` to below `high`, all of one partition."""

    low: int
    high: int


@dataclass(frozen=True)
class RangeTask(InputPartition):
    """One task: read a span of an entity. `partition_id` is set if the broker can peek at a single partition.

    `generation` is that of the entity that the numbers belong to, None if it is not known.
    """

    entity: str
    low: int
    high: int
    partition_id: int | None = None
    generation: str | None = None

    @property
    def parts(self) -> tuple[RangeTask, ...]:
        """The spans to read, one after the other: this one."""
        return (self,)


@dataclass(frozen=True)
class RangeGroup(InputPartition):
    """One task: read several spans, one after the other, possibly of several entities."""

    parts: tuple[RangeTask, ...]


@dataclass(frozen=True)
class ClaimTask(InputPartition):
    """One task: read the claimed messages of some runs.

    `alone` if the broker can peek at a single partition; `generation` as in `RangeTask`.
    """

    entity: str
    runs: tuple[Run, ...]
    alone: bool = False
    generation: str | None = None


@dataclass(frozen=True)
class NumbersTask(InputPartition):
    """One task: read the messages of some runs that are still there; `alone` and `generation` as in `ClaimTask`."""

    entity: str
    runs: tuple[Run, ...]
    alone: bool = False
    generation: str | None = None


def split(spans: Iterable[Span], count_min: int | None, size_max: int | None) -> list[Span]:
    """The spans that are not empty, cut into at least `count_min` pieces of at most `size_max` numbers each.

    Fewer than `count_min` only if there are fewer numbers. Pieces of one span differ by at most 1.
    """
    filled = [span for span in spans if span.high > span.low]
    total = sum(span.high - span.low for span in filled)
    size = min(total if size_max is None else size_max, total if count_min is None else max(1, total // count_min))
    pieces: list[Span] = []
    for span in filled:
        length = span.high - span.low
        count = -(-length // size)
        edges = [span.low + length * index // count for index in range(count + 1)]
        pieces += [Span(low, high) for low, high in pairwise(edges)]
    assert sum(each.high - each.low for each in pieces) == total
    return pieces


def range_tasks(
    spans: Iterable[Span], options: SourceOptions, *, exact: bool, generation: str | None
) -> list[RangeTask]:
    """Tasks for spans; a broker that reports exact ends can also peek at a single partition."""
    return [
        RangeTask(options.entity, span.low, span.high, partition_of(span.low) if exact else None, generation)
        for span in split(spans, options.min_partitions, options.max_messages_per_task)
    ]


def grouped(tasks: Sequence[RangeTask], size_max: int | None) -> list[RangeTask | RangeGroup]:
    """Tasks in order, small neighbours combined: up to `size_max` numbers, or GROUP_NUMBERS_MAX if less."""
    room = GROUP_NUMBERS_MAX if size_max is None else min(size_max, GROUP_NUMBERS_MAX)
    groups: list[list[RangeTask]] = []
    size = 0
    for task in tasks:
        size += task.high - task.low
        if not groups or size > room or len(groups[-1]) == GROUP_PARTS_MAX:
            groups.append([])
            size = task.high - task.low
        groups[-1].append(task)
    return [group[0] if len(group) == 1 else RangeGroup(tuple(group)) for group in groups]


def split_runs(runs: Sequence[Run], count_min: int | None, size_max: int | None) -> list[tuple[Run, ...]]:
    """Runs distributed over tasks as in `split`: in order, none empty.

    Where a partition ends, so does a task that has GROUP_NUMBERS_MAX numbers: partitions are read beside each other.
    """
    total = sum(count for _, count in runs)
    size = max(
        1, min(total if size_max is None else size_max, total if count_min is None else max(1, total // count_min))
    )
    groups: list[tuple[Run, ...]] = []
    group: list[Run] = []
    room = size
    for first, count in runs:
        is_next = bool(group) and partition_of(first) != partition_of(group[-1][0])
        if is_next and size - room >= GROUP_NUMBERS_MAX:
            groups.append(tuple(group))
            group, room = [], size
        while count:
            taken = min(count, room)
            group.append((first, taken))
            first, count, room = first + taken, count - taken, room - taken
            if not room:
                groups.append(tuple(group))
                group, room = [], size
    groups = [*groups, tuple(group)] if group else groups
    assert sum(count for group in groups for _, count in group) == total
    return groups


def stretches(runs: Iterable[Run]) -> list[Span]:
    """The spans that cover the runs; neighbours of one partition with small gaps share one."""
    found: list[Span] = []
    for first, count in runs:
        near = bool(found) and first - found[-1].high <= RUN_GAP_MAX
        if near and partition_of(first) == partition_of(found[-1].low):
            found[-1] = Span(found[-1].low, first + count)
        else:
            found.append(Span(first, first + count))
    return found
