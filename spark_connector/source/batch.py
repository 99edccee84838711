"""Batch reading: `spark.read` plans once and reads the messages of that moment.

Knows how Spark calls a batch reader. Never removes messages: a batch read only browses. The reader is pickled to
workers, so it holds options and no connections.

It takes no filters from Spark (`pushFilters`): Spark keeps one plan per frame, so a filter of one use of the frame
would narrow its other uses, too, as the other side of a join with itself.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from functools import partial
from typing import Any

from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..errors import Code, ConnectorError
from ..options import SourceOptions
from .offsets import base_of
from .outage import OutageWatch
from .plan import RangeTask, Span, range_tasks
from .positions import ExtentTracker, ends_at, starts_at
from .retries import with_retries
from .rows import read_range
from .several.members import is_named, options_of, paths_of

log = logging.getLogger("emubus.spark")


class BatchReader(DataSourceReader):
    """Reads the messages that the entities have when the query is planned; removes and locks none."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema

    def partitions(self) -> list[InputPartition]:
        """The tasks; the ends are fixed here, once per query. ConnectorError if a partition can't be reached."""
        options = self._options
        patience_s = options.outage_timeout_s if options.on_outage == "wait" else 0.0
        tasks: list[InputPartition] = []
        for path in paths_of(options):
            plan = partial(_plan, options_of(options, path))
            try:
                tasks += with_retries(options.connection, f"planning to read {path}", plan, patience_s)
            except ConnectorError as error:
                if error.code is not Code.ENTITY_NOT_FOUND or is_named(options, path):
                    raise
                log.info("%s: the entity was deleted before it was read", path)
        return tasks

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The rows of one task as Arrow batches; without tasks Spark calls this with an empty partition."""
        if isinstance(partition, RangeTask):
            yield from read_range(self._options, self._schema, partition)


def _plan(options: SourceOptions, connection: Any) -> list[InputPartition]:
    extents = ExtentTracker(options).look(connection, {})
    if options.on_outage == "wait":
        extents.demand_all(options.entity, "spark.read with onOutage=wait")
    OutageWatch(options.entity, options.on_outage, options.outage_timeout_s).note(extents.unavailable)
    management = connection.management(options.entity)
    starts = starts_at(options.starting, extents, management, options.entity)
    ends = ends_at(options.ending, extents, management, options.entity)
    spans = []
    for partition, end in sorted(ends.items()):
        low = starts.get(partition, base_of(partition))
        low = max(low, extents.first.get(partition, low))
        spans.append(Span(low, max(low, end)))
    return [*range_tasks(spans, options, exact=extents.exact, generation=extents.generation)]
