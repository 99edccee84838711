"""Counts what a search finds, in all and by the value of a property.

Reads what `search` reads, but keeps numbers only, and the messages of one page. It takes no longer than
`SURVEY_US_MAX`; the last surveys are remembered as long as the partitions have the same counts. Does not know HTML.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import heappush, heappushpop
from typing import Final, NamedTuple

from ...broker.admin.overview import Overview, Seen
from ...broker.clock import Clock
from ...broker.errors import BrokerError
from ...broker.message import peeked
from ...codec.types import Timestamp
from ..long_work import Pace
from .annotations import due_at, enqueued_at
from .filter import runs
from .search import PAGE_BYTES_MAX, READ_BYTES_MAX, READ_COUNT, Found, MessageSearch, Query

SURVEY_US_MAX: Final = 2_000_000
VALUES_MAX: Final = 1_000
"""Most values of a property that are told apart; the messages with others are counted together."""
KEPT_MAX: Final = 16
REASON: Final = "DeadLetterReason"
_SUBJECT_FIELD, _CONTENT_TYPE_FIELD = 3, 6

Read = Callable[[Seen], object]
"""Reads a property, None without it. BrokerError if the message can't be read."""


class Value(NamedTuple):
    """A value of a property as text, and as SQL; both None for a message without it, `sql` for a type without one."""

    text: str | None
    sql: str | None


def value_of(value: object) -> Value:
    """A decoded value of a property."""
    if value is None:
        return Value(None, None)
    if isinstance(value, bool):
        return Value(str(value).lower(), str(value).upper())
    if isinstance(value, int | float) and not isinstance(value, Timestamp):
        return Value(str(value), str(value) if value == value and abs(value) < 1e300 else None)
    text = value.hex() if isinstance(value, bytes) else str(value)
    return Value(text, "'" + text.replace("'", "''") + "'" if isinstance(value, str) else None)


@dataclass(slots=True)
class Survey:
    """How many messages a search finds, and when the first of them was enqueued (Unix ms, None without one).

    `values` counts them by the property that was asked for, `other_count` have a value beyond the first `VALUES_MAX`.
    `is_cut`: it took too long, so there may be more.
    """

    count: int = 0
    searched_count: int = 0
    oldest_at: int | None = None
    values: Counter[Value] = field(default_factory=Counter[Value])
    other_count: int = 0
    is_cut: bool = False

    def add(self, run: Sequence[Seen], read: Read | None) -> None:
        """Count messages."""
        self.count += len(run)
        first = min((at for seen in run if (at := enqueued_at(seen.encoded))), default=None)
        if first is not None and (self.oldest_at is None or first < self.oldest_at):
            self.oldest_at = first
        if read is None:
            return
        for seen in run:
            try:
                value = value_of(read(seen))
            except BrokerError:
                value = Value(None, None)  # it can't be read
            if value in self.values or len(self.values) < VALUES_MAX:
                self.values[value] += 1
            else:
                self.other_count += 1


def _reader_of_field(position: int) -> Read:
    """A field of the properties section."""
    return lambda seen: peeked.field(seen.encoded, position)


def reader_of_property(name: str) -> Read:
    """Reads the application property `name`."""
    return lambda seen: peeked.application_property(seen.encoded, name)[1]


GROUPINGS: Final[Mapping[str, Read]] = {
    "reason": reader_of_property(REASON),
    "subject": _reader_of_field(_SUBJECT_FIELD),
    "key": lambda seen: peeked.key(seen.encoded),
    "type": _reader_of_field(_CONTENT_TYPE_FIELD),
}
"""By what messages can be grouped without naming a property."""


@dataclass(slots=True)
class _ByTime:
    """The newest, or the oldest or next due, of the messages that were looked at: instants and numbers of `count`."""

    count: int
    sign: int
    """1: the newest, -1: the oldest."""
    rows: list[tuple[int, int, int]] = field(default_factory=list[tuple[int, int, int]])

    def add(self, run: Sequence[Seen]) -> None:
        """Enqueued time, sequence number and partition of each."""
        for seen in run:
            at = enqueued_at(seen.encoded) if self.sign > 0 else due_at(seen.encoded)
            row = self.sign * at, self.sign * seen.sequence_number, seen.partition_id
            if len(self.rows) < self.count:
                heappush(self.rows, row)
            else:
                heappushpop(self.rows, row)


class Surveys:
    """Makes surveys, and remembers the last ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[object, Survey] = OrderedDict()

    async def of(self, overview: Overview, query: Query, asked: object, group: str = "", name: str = "") -> Survey:
        """What a search finds from its first number on, in all partitions that it asks; `asked` stands for its filter.

        `group` is one of `GROUPINGS`, or `name` an application property.
        """
        return (await self.with_page(overview, replace(query, count=0), asked, group, name))[0]

    async def with_page(
        self, overview: Overview, query: Query, asked: object, group: str = "", name: str = ""
    ) -> tuple[Survey, Found]:
        """As `of`, and the page of the query: a search looks at each message once for both."""
        counts = tuple(
            (each.health, tuple((each.messages or {}).values()), each.next_sequence_number, each.locked_count)
            for each in overview.partitions(query.entity)
        )
        first = 0 if query.is_by_time else query.first
        key = (
            (query.entity.queue_id, query.sub_queue, first, query.partition, query.session),
            asked,
            group,
            name,
            counts,
        )
        known = self._kept.get(key)
        search = MessageSearch(overview, self._clock)
        if known is not None and not (query.is_oldest_first and known.count):
            if not query.count:
                return known, Found([], None, 0)
            return known, await search.find(query, None if known.is_cut else known.count)
        read = GROUPINGS.get(group) if not name else reader_of_property(name)
        known, page = await self._survey(overview, query, read)
        self._kept[key] = known
        while len(self._kept) > KEPT_MAX:
            self._kept.popitem(last=False)
        if page is None:
            return known, await search.find(query)
        return known, page if isinstance(page, Found) else await search.shown(query, page, known.count)

    async def _survey(
        self, overview: Overview, query: Query, read: Read | None
    ) -> tuple[Survey, Found | list[tuple[int, int]] | None]:
        """The survey, and its page: the messages, or partition and number of those to be read; None if it is cut."""
        found, pace = Survey(), Pace(self._clock.stopwatch_us)
        ends_us = self._clock.stopwatch_us() + SURVEY_US_MAX
        by_time = None
        if query.is_by_time and query.count:
            by_time = _ByTime(query.skip + query.count, 1 if query.is_newest_first else -1)
        page: list[Seen] = []
        bytes_left = PAGE_BYTES_MAX
        first: int | None = 0 if query.is_by_time else query.first
        while first is not None:
            if self._clock.stopwatch_us() > ends_us:
                found.is_cut = True
                break
            read_page = await overview.messages(
                query.entity,
                query.sub_queue,
                first=first,
                count=READ_COUNT,
                bytes_max=READ_BYTES_MAX,
                session_id=query.session,
                partition_id=query.partition,
            )
            found.searched_count += len(read_page.messages)
            for run in runs(await query.filter.chosen(read_page.messages, pace)):
                found.add(run, read)
                if by_time is not None:
                    by_time.add(run)
                else:
                    for seen in run[: query.count - len(page)]:
                        if bytes_left > 0:
                            page.append(seen)
                            bytes_left -= len(seen.encoded)
                await pace.step()
            first = read_page.next_sequence_number
        if by_time is not None:
            rows = sorted(by_time.rows, reverse=True)[query.skip :]
            is_lost = found.is_cut and query.is_newest_first  # the newest are read backwards then
            return found, None if is_lost else [(partition, abs(number)) for _, number, partition in rows]
        if len(page) < found.count:
            return found, Found(page, page[-1].sequence_number + 1 if page else first, found.searched_count)
        return found, Found(page, first, found.searched_count, is_cut=found.is_cut)
