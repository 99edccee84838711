"""Counts what a search finds, in all and by the value of a property.

Reads what `search` reads, but keeps numbers only. It takes no longer than `SURVEY_US_MAX`; the last surveys are
remembered as long as the partitions have the same counts. Does not know HTML.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...broker.admin.overview import Overview, Seen
from ...broker.clock import Clock
from ...broker.errors import BrokerError
from ...broker.message.message import Message, parse_message
from ...codec.types import Timestamp
from ..long_work import Pace
from .annotations import enqueued_at
from .search import READ_BYTES_MAX, READ_COUNT, Query

SURVEY_US_MAX: Final = 2_000_000
VALUES_MAX: Final = 1_000
"""Most values of a property that are told apart; the messages with others are counted together."""
KEPT_MAX: Final = 16
REASON: Final = "DeadLetterReason"
_SUBJECT_FIELD, _CONTENT_TYPE_FIELD = 3, 6

Read = Callable[[Seen], object]


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

    def add(self, seen: Seen, read: Read | None) -> None:
        """Count a message."""
        self.count += 1
        at = enqueued_at(seen.encoded) or None
        if at is not None and (self.oldest_at is None or at < self.oldest_at):
            self.oldest_at = at
        if read is None:
            return
        value = value_of(read(seen))
        if value in self.values or len(self.values) < VALUES_MAX:
            self.values[value] += 1
        else:
            self.other_count += 1


def _field(position: int) -> Read:
    """A field of the properties section; None for a message that can't be read."""

    def read(seen: Seen) -> object:
        try:
            return Message.without_annotations(seen.encoded, reads_header=False).field(position)
        except BrokerError:
            return None

    return read


def _key(seen: Seen) -> object:
    """What chooses the partition: the session id or the partition key."""
    try:
        message = parse_message(seen.encoded)
        return message.session_id if message.session_id is not None else message.partition_key
    except BrokerError:
        return None


def property_of(name: str) -> Read:
    """Reads the application property `name`; None for a message that can't be read."""

    def read(seen: Seen) -> object:
        try:
            return Message.without_annotations(seen.encoded, reads_header=False).application_properties().get(name)
        except BrokerError:
            return None

    return read


GROUPINGS: Final[Mapping[str, Read]] = {
    "reason": property_of(REASON),
    "subject": _field(_SUBJECT_FIELD),
    "key": _key,
    "type": _field(_CONTENT_TYPE_FIELD),
}
"""By what messages can be grouped without naming a property."""


class Surveys:
    """Makes surveys, and remembers the last ones."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._kept: OrderedDict[object, Survey] = OrderedDict()

    async def of(self, overview: Overview, query: Query, asked: object, group: str = "", name: str = "") -> Survey:
        """What a search finds from its first number on, in all partitions that it asks; `asked` stands for its filter.

        `group` is one of `GROUPINGS`, or `name` an application property.
        """
        counts = tuple(
            (each.health, tuple((each.messages or {}).values()), each.next_sequence_number, each.locked_count)
            for each in overview.partitions(query.entity)
        )
        place = (query.entity.queue_id, query.sub_queue, query.first, query.partition, query.session)
        key = (place, asked, group, name, counts)
        known = self._kept.get(key)
        if known is None:
            read = GROUPINGS.get(group) if not name else property_of(name)
            known = self._kept[key] = await self._survey(overview, query, read)
            while len(self._kept) > KEPT_MAX:
                self._kept.popitem(last=False)
        return known

    async def _survey(self, overview: Overview, query: Query, read: Read | None) -> Survey:
        found, pace = Survey(), Pace(self._clock.stopwatch_us)
        ends_us = self._clock.stopwatch_us() + SURVEY_US_MAX
        first: int | None = 0 if query.is_newest_first else query.first
        while first is not None:
            if self._clock.stopwatch_us() > ends_us:
                found.is_cut = True
                break
            page = await overview.messages(
                query.entity,
                query.sub_queue,
                first=first,
                count=READ_COUNT,
                bytes_max=READ_BYTES_MAX,
                session_id=query.session,
                partition_id=query.partition,
            )
            found.searched_count += len(page.messages)
            for seen in await query.filter.chosen(page.messages, pace):
                found.add(seen, read)
                await pace.step()
            first = page.next_sequence_number
        return found
