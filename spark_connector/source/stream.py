"""Streaming: Spark's calls, delegated to a planner.

Knows Spark's interface from 4.0 to 4.3: `latestOffset` has no arguments in 4.0 and 4.1, and start and limit from 4.2
on, where limits and Trigger.AvailableNow exist. Decides nothing. Spark creates this reader in several processes; only
the driver's one opens connections, at its first call.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Protocol

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from ..options import SourceOptions
from .claim import COUNT_MAX_DEFAULT, Claimer
from .drain_sign import announce_drain
from .follow import Follower, check_start
from .plan import ClaimTask, NumbersTask, RangeGroup, RangeTask
from .positions import is_sub_queue
from .rows import read_claimed, read_numbers, read_range
from .several.joint import JointPlanner
from .sub_queue import SubQueueFollower

if TYPE_CHECKING:
    from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
else:
    try:
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadLimit, SupportsTriggerAvailableNow
    except ImportError:  # Spark 4.0 and 4.1

        class SupportsTriggerAvailableNow:
            """Stand-in for the class of Spark 4.2 and later."""

        ReadAllAvailable = ReadLimit = None

log = logging.getLogger("emubus.spark")


class Planner(Protocol):
    """Plans the batches of a query on the driver.

    `follow.Follower`, `sub_queue.SubQueueFollower`, `claim.Claimer`, or a `JointPlanner` of many.
    """

    def stop_at_present_ends(self) -> None:
        """Read no further than the present ends."""
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

    def plan(self, start_json: dict[str, Any], end_json: dict[str, Any]) -> list[InputPartition]: ...

    def committed(self, end_json: dict[str, Any]) -> None: ...

    def stop(self) -> None: ...


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """The stream reader of `format("servicebus")`."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        check_start(options)
        self._options = options
        self._schema = schema
        self._planned_by: Planner | None = None

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_planned_by": None}

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802  Spark's names, here and below
        """Where the query begins if it has no checkpoint."""
        return self._planner().initial()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query will read the present messages and end."""
        self._planner().stop_at_present_ends()

    def getDefaultReadLimit(self) -> Any:  # noqa: N802
        """The limit of a trigger that has none of its own (4.2 and later)."""
        from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows, ReadMinRows

        options = self._options
        if self._count_max is not None:
            return ReadMaxRows(self._count_max)
        if options.min_messages_per_trigger is not None:
            return ReadMinRows(options.min_messages_per_trigger)
        return ReadAllAvailable()

    def latestOffset(  # noqa: N802  one signature for all versions
        self, start: dict[str, Any] | None = None, limit: ReadLimit | None = None
    ) -> dict[str, Any]:
        if start is None:
            return self._planner().latest(None, None, all_available=True)
        # Trigger.Once and a query without limits make the same call; neither limits the batch.
        all_available = isinstance(limit, ReadAllAvailable)
        return self._planner().latest(start, getattr(limit, "max_rows", None), all_available=all_available)

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """Where the entity ended at the last look: for the query's progress."""
        return self._planner().report()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        return self._planner().plan(start, end)

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task as Arrow batches."""
        if isinstance(partition, RangeTask | RangeGroup):
            yield from read_range(self._options, self._schema, partition)
        elif isinstance(partition, ClaimTask):
            yield from read_claimed(self._options, self._schema, partition)
        elif isinstance(partition, NumbersTask):
            yield from read_numbers(self._options, self._schema, partition)

    def commit(self, end: dict[str, Any]) -> None:
        """A batch is committed; from 4.2 on `latestOffset` has said so before."""
        self._planner().committed(end)

    def stop(self) -> None:
        if self._planned_by is not None:
            self._planned_by.stop()

    @property
    def _count_max(self) -> int | None:
        """The limit of a trigger; claims always have one, because each claimed run is an entry of the offset."""
        asked = self._options.max_messages_per_trigger
        return COUNT_MAX_DEFAULT if asked is None and self._options.mode == "claim" else asked

    def _planner(self) -> Planner:
        if self._planned_by is None:
            if ignored := ignored_limits(self._options, has_limits=ReadLimit is not None):
                log.warning(
                    "%s: this version of Spark ignores %s: each trigger reads all messages that are there. Remove the "
                    "options, or use Spark 4.2 or later.",
                    self._options.entity,
                    " and ".join(ignored),
                )
            several = self._options.several is not None
            self._planned_by = JointPlanner(self._options, _planner_of) if several else _planner_of(self._options)
        return self._planned_by


def _planner_of(options: SourceOptions) -> Follower | SubQueueFollower | Claimer:
    if options.mode == "drain":
        announce_drain(options)
    if options.mode == "claim":
        return Claimer(options)
    return SubQueueFollower(options) if is_sub_queue(options.entity) else Follower(options)


def ignored_limits(options: SourceOptions, *, has_limits: bool) -> list[str]:
    """The given options that have no effect on a Spark without limits per trigger."""
    given = {
        "maxMessagesPerTrigger": options.max_messages_per_trigger,
        "minMessagesPerTrigger": options.min_messages_per_trigger,
    }
    return [] if has_limits else [name for name, value in given.items() if value is not None]
