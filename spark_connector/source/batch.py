"""Batch reading: `spark.read` plans once and reads the messages of that moment.

Knows how Spark calls a batch reader, and which filters narrow a range of sequence numbers. Never removes messages: a
batch read only browses. The readers are pickled to workers, so they hold options and numbers and no connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..options import SourceOptions
from ..position import SEQUENCE_NUMBER_MAX
from .browse import number_at
from .offsets import base_of
from .plan import RangeTask, Span, split
from .positions import Extents, ExtentTracker, ends_at, is_sub_queue, starts_at
from .retries import with_retries
from .rows import read_range

if TYPE_CHECKING:
    from pyspark.sql.datasource import Filter  # Spark 4.0 has none

ENQUEUED_MARGIN_MS: Final = 60_000
"""How far enqueued times may be out of the order of the numbers before a pushed-down filter would miss a message."""


@dataclass
class Bounds:
    """The range that pushed-down filters leave: numbers from `low` to below `high`, and times and partitions."""

    low: int = 0
    high: int = SEQUENCE_NUMBER_MAX + 1
    after_ms: int | None = None
    before_ms: int | None = None
    partitions: frozenset[int] | None = field(default=None)

    def narrow(self, column: str, kind: str, value: Any) -> None:
        """Apply one comparison; comparisons that do not narrow the range are ignored."""
        match column, value:
            case "sequencenumber", int():
                if kind in _AT_LEAST:
                    self.low = max(self.low, value + (kind == "GreaterThan"))
                if kind in _AT_MOST:
                    self.high = min(self.high, value + (kind != "LessThan"))
            case "partitionid", int() if kind in _EQUAL:
                self.partitions = frozenset({value}) & (self.partitions or frozenset({value}))
            case "enqueuedtime", datetime() if value.tzinfo is not None:  # else only Spark knows which instant it is
                at_ms = int(value.timestamp() * 1000)
                if kind in _AT_LEAST:
                    self.after_ms = max(self.after_ms or 0, at_ms - ENQUEUED_MARGIN_MS)
                if kind in _AT_MOST:
                    latest_ms = at_ms + ENQUEUED_MARGIN_MS
                    self.before_ms = latest_ms if self.before_ms is None else min(self.before_ms, latest_ms)


_EQUAL: Final = frozenset({"EqualTo", "EqualNullSafe"})
_AT_LEAST: Final = _EQUAL | {"GreaterThan", "GreaterThanOrEqual"}
_AT_MOST: Final = _EQUAL | {"LessThan", "LessThanOrEqual"}


class BatchReader(DataSourceReader):
    """Reads the messages that an entity has when the query is planned; removes and locks none."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._bounds = Bounds()

    def partitions(self) -> list[InputPartition]:
        """The tasks; the ends are fixed here, once per query. ConnectorError if a partition can't be reached."""
        options = self._options
        return with_retries(options.connection, f"planning to read {options.entity}", self._plan)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task as Arrow batches; without tasks Spark calls this with an empty partition."""
        if isinstance(partition, RangeTask):
            yield from read_range(self._options, self._schema, partition)

    def _plan(self, connection: Any) -> list[InputPartition]:
        options = self._options
        extents = ExtentTracker(options.entity, options.partition_discovery_interval_s).look(connection, {})
        extents.demand_all(options.entity, "spark.read")
        management = connection.management(options.entity)
        starts = starts_at(options.starting, extents, management, options.entity)
        ends = ends_at(options.ending, extents, management, options.entity)
        spans = [
            self._narrowed(management, extents, partition, starts.get(partition, base_of(partition)), end)
            for partition, end in sorted(ends.items())
            if self._bounds.partitions is None or partition in self._bounds.partitions
        ]
        return [*range_tasks(spans, options, exact=extents.exact)]

    def _narrowed(self, management: Any, extents: Extents, partition: int, start: int, end: int) -> Span:
        bounds = self._bounds
        low = max(start, bounds.low, extents.first.get(partition, 0))
        high = min(end, bounds.high)
        if not is_sub_queue(self._options.entity):  # dead letters are not in the order of their times
            if bounds.after_ms is not None and low < high:
                low = number_at(management, partition, low, high, bounds.after_ms, alone=extents.exact)
            if bounds.before_ms is not None and low < high:
                high = number_at(management, partition, low, high, bounds.before_ms, alone=extents.exact)
        return Span(low, max(low, high))


class PushdownReader(BatchReader):
    """A `BatchReader` whose range is also narrowed by comparisons of sequenceNumber, partitionId and enqueuedTime.

    It is a separate class because Spark refuses readers with `pushFilters` unless
    spark.sql.python.filterPushdown.enabled is set.
    """

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802  Spark's name
        """Narrow the range; Spark applies all filters again, so the range need not be exact."""
        for each in filters:
            attribute: Sequence[str] = getattr(each, "attribute", ())
            value = getattr(each, "value", None)
            if len(attribute) == 1 and not isinstance(value, bool) and isinstance(value, int | datetime):
                self._bounds.narrow(attribute[0].lower(), type(each).__name__, value)
        return filters


def range_tasks(spans: Iterable[Span], options: SourceOptions, *, exact: bool) -> list[RangeTask]:
    """Tasks for spans; a broker that reports exact ends can also peek at a single partition."""
    return [
        RangeTask(span.low, span.high, (span.low >> 48) if exact else None)
        for span in split(spans, options.min_partitions, options.max_messages_per_task)
    ]
