"""Reading a task: sequence numbers in, Arrow batches out.

Runs in workers, which have the pickled options, schema and task. Knows which messages become rows and how large a batch
is. Does not know how the task was planned. After a transient failure reading continues where it stopped; no message is
given twice. A connection returns to its pool only if it is usable.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby, islice
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from ..codec import ArrowRows, columns_of
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..schema import ENTITY_COLUMN
from ..worker import begin_task
from .browse import Page, pages
from .offsets import numbers_in, partition_of
from .plan import ClaimTask, NumbersTask, RangeGroup, RangeTask, stretches
from .retries import RetryPolicy, connected, management_node

log = logging.getLogger("emubus.spark")
BATCH_BYTES_MIN: Final = 1 << 20
BATCH_ROWS_MIN: Final = 1_000
"""An Arrow batch is given when it has this many rows or bytes, so it is larger by at most one answer.

Smaller ones cost Spark's hand-over more often, larger ones hold back the first rows, and more memory, in each task.
"""

DEFERRED, SCHEDULED = 1, 2
CLAIM_PROPERTY: Final = "emubus-claim"
"""The application property that marks messages deferred by `mode=claim`; rows don't show it."""


def read_range(options: SourceOptions, schema: StructType, task: RangeTask | RangeGroup) -> Iterator[Any]:
    """The wanted messages of a task's ranges as `pyarrow.RecordBatch`es, in the order of their numbers in each.

    Raises ConnectorError when a failure is not transient, or lasts longer than `retryTimeout`; DATA_LOSS if the entity
    is another one than when the task was planned. With failOnDataLoss=false the rest of the range is left out then.
    """
    begin_task()
    states = [0, *[DEFERRED] * options.include_deferred, *[SCHEDULED] * options.include_scheduled]
    for (entity, _), parts in groupby(task.parts, lambda part: (part.entity, part.generation)):
        rows = TaskRows(entity, options, schema)
        for part, page in _until_allowed_loss(options, _pages(options, [*parts])):
            rows.messages.extend(page.messages, before=part.high, states=states)
            if rows.are_enough:
                yield rows.take()
        if rows.messages.rows:
            yield rows.take()


def read_claimed(options: SourceOptions, schema: StructType, task: ClaimTask) -> Iterator[Any]:
    """The claimed messages of a task as `pyarrow.RecordBatch`es.

    Raises ConnectorError as `read_range`, and DATA_LOSS if one of them is gone and `failOnDataLoss` is set.
    """
    begin_task()
    missing = set(numbers_in(task.runs))
    rows = TaskRows(task.entity, options, schema)
    for _, page in _until_allowed_loss(options, _pages(options, _parts(task), deferred_only=True)):
        rows.messages.pick(page.messages, missing, (DEFERRED,))
        if rows.are_enough:
            yield _without_claim_mark(rows.take())
    if rows.messages.rows:
        yield _without_claim_mark(rows.take())
    if missing and options.fail_on_data_loss:
        raise ConnectorError(
            Code.DATA_LOSS,
            f"{task.entity}: {len(missing)} claimed messages are gone, the first with sequence number "
            f"{min(missing)}: another consumer has settled them, or another query with the claimId "
            f"{options.claim_id!r} has read and deleted them; give each query a claimId of its own, or set "
            "failOnDataLoss=false to go on without these messages",
        )


def read_numbers(options: SourceOptions, schema: StructType, task: NumbersTask) -> Iterator[Any]:
    """The wanted messages of a task that are still there, as `pyarrow.RecordBatch`es; raises as `read_range`."""
    begin_task()
    wanted, states = set(numbers_in(task.runs)), {0, *[DEFERRED] * options.include_deferred}
    rows = TaskRows(task.entity, options, schema)
    for _, page in _until_allowed_loss(options, _pages(options, _parts(task))):
        rows.messages.pick(page.messages, wanted, states)
        if rows.are_enough:
            yield rows.take()
    if rows.messages.rows:
        yield rows.take()


def _parts(task: ClaimTask | NumbersTask) -> list[RangeTask]:
    """The ranges that cover the numbers of a task, each of one partition."""
    return [
        RangeTask(task.entity, span.low, span.high, partition_of(span.low) if task.alone else None, task.generation)
        for span in stretches(task.runs)
    ]


class TaskRows:
    """Rows of one entity: the columns of its messages, and its path as the column `entity`."""

    def __init__(self, entity: str, options: SourceOptions, schema: StructType) -> None:
        self._entity = entity
        self._at = {index: each for index, each in enumerate(schema.fields) if each.name.lower() == ENTITY_COLUMN}
        columns = [each for index, each in enumerate(columns_of(schema)) if index not in self._at]
        self.messages = ArrowRows(columns, properties_format=options.properties_format)

    @property
    def are_enough(self) -> bool:
        return self.messages.rows >= BATCH_ROWS_MIN or self.messages.size_bytes >= BATCH_BYTES_MIN

    def take(self) -> Any:
        """The rows as a `pyarrow.RecordBatch`, whose schema is Spark's; the next row begins another one."""
        count = self.messages.rows
        batch = self.messages.take()
        if not self._at:
            return batch
        arrays, fields = batch.columns, [*batch.schema]
        for index, field in self._at.items():
            arrays.insert(index, pa.repeat(pa.scalar(self._entity, pa.string()), count))
            fields.insert(index, pa.field(field.name, pa.string(), field.nullable))
        return pa.RecordBatch.from_arrays(arrays, schema=pa.schema(fields))


Found = Iterator[tuple[RangeTask, Page]]
"""The pages of ranges, one range after the other."""


def _until_allowed_loss(options: SourceOptions, found: Found) -> Found:
    """The pages, up to a loss of data that the options allow; the end of one of several entities is such a loss."""
    losses = {Code.DATA_LOSS} if options.several is None else {Code.DATA_LOSS, Code.ENTITY_NOT_FOUND}
    try:
        yield from found
    except ConnectorError as error:
        if error.code not in losses or options.fail_on_data_loss:
            raise
        log.warning("%s; it is left out because of failOnDataLoss=false", error.text)


def _pages(options: SourceOptions, parts: Sequence[RangeTask], *, deferred_only: bool = False) -> Found:
    """The pages of some ranges of one entity; after a transient failure on another connection."""
    patience_s = 0.0 if options.on_outage == "fail" else options.outage_timeout_s
    retries = RetryPolicy(options.connection.endpoint.retry_timeout_s, patience_s)
    left = deque(parts)
    while left:
        try:
            with connected(options.connection) as connection:
                management = management_node(connection, left[0].entity, left[0].generation)
                for part, page in _pages_ahead(management, left, options.peek_batch_size, deferred_only):
                    left[0] = replace(part, low=page.following)
                    yield part, page
                    retries.progressed()  # after the yield: Spark's own time for the page does not count
        except ConnectorError as error:
            retries.wait(error, f"reading {left[0].entity} from sequence number {left[0].low}")


def _pages_ahead(management: Any, left: deque[RangeTask], count_max: int, deferred_only: bool) -> Found:
    """The pages of the ranges in `left`, which loses those that are read.

    The ranges behind the first are requested at the same time, as long as all have no more messages than one page.
    """
    begun: deque[tuple[RangeTask, Iterator[Page]]] = deque()
    room = count_max
    while left:
        for part in islice(left, len(begun), None):
            size = part.high - part.low
            if begun and size > room:
                break
            room -= size
            found = pages(management, part.low, part.high, count_max, part.partition_id, deferred_only=deferred_only)
            begun.append((part, found))
        part, found = begun.popleft()
        for page in found:
            yield part, page
        room += part.high - part.low
        left.popleft()


def _without_claim_mark(batch: Any) -> Any:
    """The batch without the claim property among the application properties."""
    for index, kind in enumerate(batch.schema.types):
        if pa.types.is_map(kind):
            entries = [
                None if each is None else [entry for entry in each if entry[0] != CLAIM_PROPERTY]
                for each in batch.column(index).to_pylist()
            ]
            batch = batch.set_column(index, batch.schema.field(index), pa.array(entries, kind))
    return batch
