"""What a task does: read sequence numbers and give Arrow batches.

Runs in workers that know nothing but the pickled options, schema and task. Knows which messages become rows and how
many of them a batch holds. Does not know how the task was planned. A transient failure is waited out here, at the
place reached; what comes out is never given twice. The connection goes back to its pool whole, or not at all.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import StructType

from ..codec import ArrowRows, columns_of, head
from ..errors import Code, ConnectorError
from ..options import SourceOptions
from ..worker import settle_in
from .asking import Patience, connected
from .browse import Page, pages
from .offsets import numbers_in, partition_of
from .plan import ClaimTask, RangeGroup, RangeTask, Span, stretches

BATCH_BYTES_MIN: Final = 1 << 20
BATCH_ROWS_MIN: Final = 1_000
"""An Arrow batch is given when it has this many rows or bytes, so that it is larger than that by one answer at most."""

DEFERRED, SCHEDULED = 1, 2
CLAIM_PROPERTY: Final = "emubus-claim"
"""The application property that marks what `mode=claim` has deferred; rows don't show it."""


def read_range(options: SourceOptions, schema: StructType, task: RangeTask | RangeGroup) -> Iterator[Any]:
    """The wanted messages of a task's ranges as `pyarrow.RecordBatch`es, in the order of their numbers in each.

    Raises ConnectorError when a failure is not transient, or lasts longer than `retryTimeout`.
    """
    settle_in()
    states = [0, *[DEFERRED] * options.include_deferred, *[SCHEDULED] * options.include_scheduled]
    rows = ArrowRows(columns_of(schema), properties_format=options.properties_format)
    for part in task.parts:
        for page in _pages(options, Span(part.low, part.high), part.partition_id):
            rows.extend(page.messages, before=part.high, states=states)
            if rows.rows >= BATCH_ROWS_MIN or rows.size_bytes >= BATCH_BYTES_MIN:
                yield rows.take()
    if rows.rows:
        yield rows.take()


def read_claimed(options: SourceOptions, schema: StructType, task: ClaimTask) -> Iterator[Any]:
    """The claimed messages of a task as `pyarrow.RecordBatch`es.

    Raises ConnectorError as `read_range`, and DATA_LOSS if one of them is gone and `failOnDataLoss` is set.
    """
    settle_in()
    missing = set(numbers_in(task.runs))
    rows = ArrowRows(columns_of(schema), properties_format=options.properties_format)
    for span in stretches(task.runs):
        for page in _pages(options, span, partition_of(span.low) if task.alone else None):
            for message in page.messages:
                number = head(message).sequence_number
                if number in missing:
                    missing.remove(number)
                    rows.append(message)
            if rows.rows >= BATCH_ROWS_MIN or rows.size_bytes >= BATCH_BYTES_MIN:
                yield _unmarked(rows.take())
    if rows.rows:
        yield _unmarked(rows.take())
    if missing and options.fail_on_data_loss:
        raise ConnectorError(
            Code.DATA_LOSS,
            f"{options.entity}: {len(missing)} claimed messages are gone, the first with sequence number "
            f"{min(missing)}: somebody else has settled them; set failOnDataLoss=false to go on without them",
        )


def _pages(options: SourceOptions, span: Span, partition_id: int | None) -> Iterator[Page]:
    """The pages of a span, over as many connections as it takes."""
    at = span.low
    patience = Patience(options.connection.endpoint.retry_timeout_s)
    while True:
        try:
            with connected(options.connection) as connection:
                management = connection.management(options.entity)
                for page in pages(management, at, span.high, options.peek_batch_size, partition_id):
                    at = page.following
                    yield page
                    patience.progressed()  # and the time that Spark took for the page doesn't count
            return
        except ConnectorError as error:
            patience.wait(error, f"reading {options.entity} from sequence number {at} on")


def _unmarked(batch: Any) -> Any:
    """The batch without the mark of claims among the application properties."""
    for index, kind in enumerate(batch.schema.types):
        if pa.types.is_map(kind):
            entries = [
                None if each is None else [entry for entry in each if entry[0] != CLAIM_PROPERTY]
                for each in batch.column(index).to_pylist()
            ]
            batch = batch.set_column(index, batch.schema.field(index), pa.array(entries, kind))
    return batch
