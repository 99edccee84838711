"""Finds the messages of a page: from a sequence number on, or the newest first; those that a filter lets through.

Reads in bounded steps, so that the event loop goes on and no more than a page is kept. A search that takes too long
ends with what it has found and the number to go on from. Does not know HTML.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from ...broker.address import SubQueue
from ...broker.admin.overview import Overview, PartitionReport, Seen
from ...broker.api import Entity
from ...broker.clock import Clock
from ..long_work import Pace
from .annotations import enqueued_at
from .filter import MessageFilter

READ_COUNT: Final = 500
READ_BYTES_MAX: Final = 4 << 20
PAGE_BYTES_MAX: Final = 4 << 20
SEARCH_US_MAX: Final = 5_000_000
WINDOW_MIN: Final = 32
WINDOW_MAX: Final = 4_096


@dataclass(frozen=True, slots=True)
class Query:
    """What is asked: up to `count` messages of a sub-queue from sequence number `first` on, by partition.

    With `is_newest_first` in descending order of their enqueued times over all partitions, without the first `skip`;
    with `is_oldest_first` in ascending order, which for scheduled messages is that of the times at which they are due.
    """

    entity: Entity
    sub_queue: SubQueue
    count: int
    first: int = 0
    partition: int | None = None
    session: str | None = None
    is_newest_first: bool = False
    is_oldest_first: bool = False
    skip: int = 0
    filter: MessageFilter = field(default_factory=MessageFilter)

    @property
    def is_by_time(self) -> bool:
        return self.is_newest_first or self.is_oldest_first


@dataclass(frozen=True, slots=True)
class Found:
    """A page: `following` is where the next one begins (`first`, or `skip`), None for the last page.

    `searched_count` messages were looked at; `is_cut`: the search took too long, so there may be more from there on.
    """

    messages: list[Seen]
    following: int | None
    searched_count: int
    is_cut: bool = False


class MessageSearch:
    """Searches of one request; `clock` limits how long they take."""

    def __init__(self, overview: Overview, clock: Clock) -> None:
        self._overview = overview
        self._clock = clock
        self._ends_us = clock.stopwatch_us() + SEARCH_US_MAX
        self._searched_count = 0
        self._pace = Pace(clock.stopwatch_us)

    async def find(self, query: Query, most: int | None = None) -> Found:
        """The page of a query. Raises BrokerError (not-found) for an unknown partition.

        `most` says how many it finds on all pages from its number on, if that is known: it looks no further then.
        """
        if most == 0:
            return Found([], None, self._searched_count)
        assert not query.is_oldest_first, "all messages are looked at for the oldest: see `survey`"
        return await (self._newest(query) if query.is_newest_first else self._from_number(query, most))

    @property
    def _is_late(self) -> bool:
        return self._clock.stopwatch_us() > self._ends_us

    async def _from_number(self, query: Query, most: int | None) -> Found:
        found: list[Seen] = []
        start, bytes_left, at_once = query.first, PAGE_BYTES_MAX, query.count
        while True:
            count = at_once if query.filter.sieves else query.count - len(found)
            at_once = min(2 * at_once, READ_COUNT)
            messages, following = await self._read_page(query, start, count, min(bytes_left, READ_BYTES_MAX))
            for seen in await query.filter.chosen(messages, self._pace):
                found.append(seen)
                bytes_left -= len(seen.encoded)
                if len(found) == most:
                    return Found(found, None, self._searched_count)
                if len(found) == query.count or bytes_left <= 0:
                    self._searched_count += messages.index(seen) + 1
                    return Found(found, seen.sequence_number + 1, self._searched_count)
            self._searched_count += len(messages)
            if following is None:
                return Found(found, None, self._searched_count)
            if self._is_late:
                return Found(found, following, self._searched_count, is_cut=True)
            start = following

    async def _read_page(self, query: Query, start: int, count: int, bytes_max: int) -> tuple[list[Seen], int | None]:
        page = await self._overview.messages(
            query.entity,
            query.sub_queue,
            first=start,
            count=count,
            bytes_max=bytes_max,
            session_id=query.session,
            partition_id=query.partition,
        )
        return page.messages, page.next_sequence_number

    async def _newest(self, query: Query) -> Found:
        """Merge the partitions, each read backwards; only the messages of the page are read a second time."""
        reports = self._overview.partitions(query.entity)
        wanted = [each for each in reports if query.partition in (None, each.partition_id)]
        readers = {each.partition_id: self._backwards(query, each) for each in wanted}
        heads = {number: await anext(reader, None) for number, reader in readers.items()}
        chosen: list[tuple[int, int]] = []  # (partition, sequence number)
        left = query.skip + query.count
        while left and not self._is_late:
            rows = {number: head for number, head in heads.items() if head is not None}
            if not rows:
                break
            newest = max(rows, key=lambda number: rows[number])
            chosen.append((newest, rows[newest][1]))
            heads[newest] = await anext(readers[newest], None)
            left -= 1
        for reader in readers.values():
            await reader.aclose()
        found = await self.shown(query, chosen[query.skip :], 0)
        is_more = any(head is not None for head in heads.values())
        following = query.skip + len(found.messages) if is_more else found.following
        return Found(found.messages, following, self._searched_count, is_cut=self._is_late)

    async def shown(self, query: Query, chosen: Sequence[tuple[int, int]], count: int) -> Found:
        """The page of the messages of these partitions and numbers, of `count` that are known to match."""
        shown: list[Seen] = []
        bytes_left = PAGE_BYTES_MAX
        for partition, number in chosen:
            again = replace(query, partition=partition)
            messages, _ = await self._read_page(again, number, 1, bytes_left)
            shown += (seen for seen in messages if seen.sequence_number == number)
            bytes_left -= sum(len(seen.encoded) for seen in messages)
            if bytes_left <= 0:
                break
        is_more = len(shown) < len(chosen) or query.skip + len(shown) < count
        return Found(shown, query.skip + len(shown) if is_more else None, self._searched_count)

    async def _backwards(self, query: Query, report: PartitionReport) -> AsyncGenerator[tuple[int, int], None]:
        """(enqueued time, sequence number) of the messages of a partition that match, last number first."""
        if report.first_sequence_number is None or report.next_sequence_number is None:
            return
        query = replace(query, partition=report.partition_id)
        stop, window = report.next_sequence_number, WINDOW_MIN
        while stop > report.first_sequence_number and not self._is_late:
            start = max(report.first_sequence_number, stop - window)
            rows: list[tuple[int, int]] = []
            following: int | None = start
            while following is not None and following < stop:
                count = min(READ_COUNT, stop - following)
                messages, following = await self._read_page(query, following, count, READ_BYTES_MAX)
                messages = [seen for seen in messages if seen.sequence_number < stop]
                self._searched_count += len(messages)
                chosen = await query.filter.chosen(messages, self._pace)
                rows += ((enqueued_at(seen.encoded), seen.sequence_number) for seen in chosen)
            for row in reversed(rows):
                yield row
            stop, window = start, min(2 * window, WINDOW_MAX)
