"""Streaming: Spark's calls, passed on to who follows the entity.

Knows the class that Spark wants, in its forms from 4.0 to 4.3: `latestOffset` is called without arguments by 4.0 and
4.1 and with start and limit from 4.2 on, where limits and Trigger.AvailableNow exist, too. Refuses to decide anything.
Spark makes several of these in several processes; only the driver's one opens anything, at its first call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..options import SourceOptions
from .claim import COUNT_MAX_DEFAULT, Claimer
from .follow import Follower, check_start
from .plan import ClaimTask, RangeGroup, RangeTask
from .rows import read_claimed, read_range

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1

        class SupportsTriggerAvailableNow:
            """Stands in for what there is from 4.2 on."""

        ReadAllAvailable = ReadLimit = None

log = logging.getLogger("emubus.spark")


class Driver(Protocol):
    """Who thinks for the driver's reader: `follow.Follower` or `claim.Claimer`."""

    def freeze(self) -> None:
        """Go no further than what is there now."""
        ...

    def initial(self) -> dict[str, Any]:
        """Where the query begins."""
        ...

    def latest(
        self, start_json: dict[str, Any] | None, count_max: int | None, *, all_available: bool
    ) -> dict[str, Any]:
        """Where the next batch ends."""
        ...

    def report(self) -> dict[str, Any] | None:
        """Where the entity ends."""
        ...

    def plan(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        ...

    def committed(self, end_json: dict[str, Any]) -> None:
        """A batch is done."""
        ...

    def stop(self) -> None:
        """The query is over."""
        ...


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of `format("servicebus")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_start(options)
        self._options = options
        self._schema = schema
        self._driver: Driver | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_driver": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's names, here and below
        """Where the query begins if it has no checkpoint."""
        return self._thinking().initial()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query is to read what is there now, and end."""
        self._thinking().freeze()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """What a trigger takes unless it says otherwise (4.2 and later)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        options = self._options
        if self._count_max is not None:
            return ReadMaxRows(self._count_max)
        if options.min_messages_per_trigger is not None:
            return ReadMinRows(options.min_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802  one form for all versions
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        """Where the next batch ends."""
        if start is None:
            return self._thinking().latest(None, None, all_available=True)
        # Trigger.Once and a query without limits ask alike; there is nothing to hold back in either.
        all_available = isinstance(limit, ReadAllAvailable)
        return self._thinking().latest(start, getattr(limit, "max_rows", None), all_available=all_available)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the entity ends, as last seen: for the query's progress."""
        return self._thinking().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        """The tasks of a batch."""
        return self._thinking().plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task as Arrow batches."""
        if isinstance(partition, RangeTask | RangeGroup):
            yield from read_range(self._options, self._schema, partition)
        elif isinstance(partition, ClaimTask):
            yield from read_claimed(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done; from 4.2 on it was said by `latestOffset` already."""
        self._thinking().committed(end)

    def stop(self) -> None:
        """The query is over."""
        if self._driver is not None:
            self._driver.stop()

    @property
    def _count_max(self) -> int | None:
        """What a trigger takes at most; claims are bounded in any case, since each is a line in an offset."""
        asked = self._options.max_messages_per_trigger
        return COUNT_MAX_DEFAULT if asked is None and self._options.mode == "claim" else asked

    def _thinking(self) -> Driver:
        if self._driver is None:
            self._driver = Claimer(self._options) if self._options.mode == "claim" else Follower(self._options)
        return self._driver
