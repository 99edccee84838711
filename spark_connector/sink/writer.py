"""Spark's writers: for a batch, and for the batches of a stream.

Knows Spark's writer classes and their calls: writers are created where a write is planned, and pickled to tasks
(`write`) and to the process that ends the write (`commit`, `abort`), so they hold values only. Does not know how rows
become messages and parcels. Spark 4.0 has no Arrow writer for streams: there, rows are converted to Arrow batches
first.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pyspark.sql.datasource as spark_api
from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from ..codec.encode import EncodedRow, RowEncoder
from ..errors import Code, ConnectorError
from ..options import SinkOptions
from ..timing import new_id
from ..worker import begin_task
from .delivery import Courier, Delivery
from .ids import RowIds, equal_across
from .rows import match_columns
from .targets import Grouper
from .task import Task, batch_task, stream_task
from .transaction import TransactionalDelivery

_log = logging.getLogger("emubus.spark")
SKIPPED_SHOWN_MAX = 20
STAYS = "What had been sent stays sent, also by tasks that failed, whose errors say how much"


@dataclass
class Written(WriterCommitMessage):
    """What one task has delivered; Spark passes it to `commit` and `abort`."""

    partition_id: int
    rows: int
    size_bytes: int
    deliveries: int
    repeated: int
    skipped: int
    shared_keys: bytes = b""  # of the rows whose ids do not name their task (`ids.equal_across`)


def write_rows(options: SinkOptions, columns: Sequence[str], batches: Iterable[pa.RecordBatch], task: Task) -> Written:
    """Deliver all rows of a task; ConnectorError if one can't be delivered (others may have been).

    The batches have `columns`, under the sink's names; further ones are of the rows' origin. They are requested one by
    one, as the service accepts them.
    """
    begin_task()
    courier: Courier = TransactionalDelivery(options) if options.transactional else Delivery(options)
    try:
        sink = _RowSink(options, courier, task)
        sink.take(columns, batches)
        courier.finish()
    except BaseException as error:
        courier.abandon(error)
        if isinstance(error, ConnectorError) and courier.tally.rows:
            sent = f"{courier.tally.rows} rows of this task had been sent before, and stay sent."
            raise ConnectorError(error.code, f"{_as_sentence(error.text)} {sent}", condition=error.condition) from error
        raise
    tally = courier.tally
    if tally.skipped:
        shown = ", ".join(map(str, tally.skipped[:SKIPPED_SHOWN_MAX]))
        _log.warning("Spark partition %d: %d oversized rows skipped: %s", task.partition_id, len(tally.skipped), shown)
    return Written(
        task.partition_id,
        tally.rows,
        tally.size_bytes,
        tally.deliveries,
        tally.repeated,
        len(tally.skipped),
        sink.shared_keys,
    )


def _as_sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."


class _RowSink:
    """Passes the rows of one task to a courier, each with its number and its target."""

    def __init__(self, options: SinkOptions, courier: Courier, task: Task) -> None:
        self._options = options
        self._courier = courier
        self._task = task
        self._grouper = Grouper(courier.limits)
        self._row_ids: RowIds | None = None  # from the first batch on, whose columns it needs

    @property
    def shared_keys(self) -> bytes:
        return b"" if self._row_ids is None else self._row_ids.shared_keys

    def take(self, columns: Sequence[str], batches: Iterable[pa.RecordBatch]) -> None:
        """Take all rows; incomplete parcels are delivered at the end."""
        encoder = RowEncoder(columns, properties_format=self._options.properties_format)
        first = 0  # the number of a batch's first row
        for batch in batches:
            if self._row_ids is None:
                origins = [name for name in batch.schema.names if name not in columns]
                of_origin = self._options.message_id_policy == "origin"
                self._row_ids = RowIds(self._task, columns, origins, of_origin=of_origin)
            for row in self._encode(encoder, batch, first, self._row_ids):
                self._take(first + row.index, row)
            first += batch.num_rows
        for parcel in self._grouper.close():
            self._courier.put(parcel)

    def _encode(self, encoder: RowEncoder, batch: pa.RecordBatch, first: int, ids: RowIds) -> Iterator[EncodedRow]:
        try:
            yield from encoder.encode(batch, self._ids(batch, first, ids))
        except ConnectorError as error:
            where = f" (counted from row {first} of Spark partition {self._task.partition_id})"
            raise ConnectorError(error.code, error.text + where) from error

    def _ids(self, batch: pa.RecordBatch, first: int, ids: RowIds) -> Callable[[int], str | None] | None:
        match self._options.message_id_policy:
            case "deterministic" | "origin":
                return ids.of(batch)
            case "position":
                return lambda index: self._task.position_id(first + index)
            case _:
                return None

    def _take(self, number: int, row: EncodedRow) -> None:
        target = self._options.entity or row.target
        if not target:
            text = (
                f"Row {number} of Spark partition {self._task.partition_id} names no entity: its column entity is null "
                "or empty. Fill the column, or set the option queue or topic."
            )
            raise ConnectorError(Code.OPTION_INVALID, text)
        size_bytes = len(row.data)
        size_bytes_max = self._grouper.limits(target).message_bytes_max
        if size_bytes > size_bytes_max:
            self._oversized(number, f"takes {size_bytes} bytes as a message, '{target}' takes {size_bytes_max} at most")
            return
        for parcel in self._grouper.add(number, row, target):
            self._courier.put(parcel)

    def _oversized(self, number: int, what: str) -> None:
        text = f"Row {number} of Spark partition {self._task.partition_id} {what}."
        if self._options.on_oversize == "fail":
            raise ConnectorError(
                Code.MESSAGE_TOO_LARGE, f"{text} Make the row smaller, or leave such rows out with onOversize=skip."
            )
        self._courier.tally.skipped.append(number)


# ---- Spark's writers

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceStreamArrowWriter as StreamBase
else:  # Spark 4.0 knows rows only
    StreamBase = getattr(spark_api, "DataSourceStreamArrowWriter", DataSourceStreamWriter)
TAKES_ARROW = StreamBase is not DataSourceStreamWriter


class BatchWriter(DataSourceArrowWriter):
    """Writes a frame once: `df.write.format("servicebus").mode("append").save()`."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._plan = match_columns(schema, options)
        self._job_id = options.write_id or new_id()

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        """Deliver the rows of one Spark partition."""
        has_ids = self._options.write_id is not None or "messageId" in self._plan.columns
        task = batch_task(self._job_id, is_repeatable=has_ids or self._options.message_id_policy == "none")
        return write_rows(self._options, self._plan.columns, self._plan.of_batches(iterator), task)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """All tasks have finished. ConnectorError(EQUAL_ROWS) as `check_ids`."""
        check_ids(messages)
        _log.info("%s", summary(messages, "Written"))

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """A task has failed finally."""
        _log.warning("%s", summary(messages, f"The write failed. {STAYS}"))


class StreamWriter(StreamBase):
    """Writes each micro-batch of a streaming query; a repeated one has the same message ids."""

    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        self._options = options
        self._plan = match_columns(schema, options)
        self._plan_id = new_id()

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        """Deliver the rows of one Spark partition of a micro-batch."""
        batches = self._plan.of_batches(iterator) if TAKES_ARROW else self._plan.of_rows(iterator)
        return write_rows(self._options, self._plan.columns, batches, stream_task(self._plan_id))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803 (Spark's name)
        """All tasks of a micro-batch have finished. ConnectorError(EQUAL_ROWS) as `check_ids`."""
        check_ids(messages)
        _log.info("%s", summary(messages, f"Batch {batchId} written"))

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        """A task has failed finally; the query starts again with this batch."""
        _log.warning("%s", summary(messages, f"Batch {batchId} failed. {STAYS}"))


def check_ids(messages: Iterable[WriterCommitMessage | None]) -> None:
    """ConnectorError(EQUAL_ROWS) if rows of different tasks had one message id: duplicate detection keeps one of them.

    Comes after the write, because no task knows the rows of another one, but it does not come silently.
    """
    count = equal_across(each.shared_keys for each in messages if isinstance(each, Written))
    if count:
        raise ConnectorError(
            Code.EQUAL_ROWS,
            f"{count} rows are equal to rows that the same message gave in another Spark partition, so with "
            "messageIdPolicy=origin they have the same message ids, and an entity with duplicate detection has dropped "
            "them. What had been sent stays sent. Add what tells them apart (a column messageId, or an application "
            "property), or write with messageIdPolicy=deterministic",
        )


def summary(messages: Iterable[WriterCommitMessage | None], head: str) -> str:
    """One line: what the finished tasks have delivered."""
    done = [each for each in messages if isinstance(each, Written)]
    rows, deliveries, size_bytes, repeated, skipped = (
        sum(getattr(each, name) for each in done)
        for name in ("rows", "deliveries", "size_bytes", "repeated", "skipped")
    )
    return (
        f"{head}: {rows} rows in {deliveries} deliveries ({size_bytes} bytes) by {len(done)} finished tasks; "
        f"{repeated} deliveries repeated, {skipped} rows skipped."
    )
