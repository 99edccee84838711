"""Rows of a frame: which of its columns the sink sends, and the rows as Arrow batches where Spark gives none.

Knows how Spark's values become Arrow's. Does not know which columns there are (`schema`) and a message's encoding
(`codec`). A `RowPlan` is made where a write is planned, and is pickled to tasks.
"""

from __future__ import annotations

import itertools
import logging
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import pyarrow as pa
from pyspark.sql.types import DataType, DecimalType, MapType, StructType, TimestampType

from ..errors import Code, ConnectorError
from ..options import SinkOptions
from ..schema import SinkField, origin_fields, sink_fields

ROWS_PER_BATCH: Final = 1000  # where rows have to be made Arrow batches
ARROW_TYPES: Final = {
    "string": pa.string(),
    "binary": pa.binary(),
    "boolean": pa.bool_(),
    "tinyint": pa.int8(),
    "smallint": pa.int16(),
    "int": pa.int32(),
    "bigint": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
}

ORIGIN_NEEDED: Final = ("sequenceNumber", "enqueuedTime")  # numbers begin again when an entity is created again

ORIGIN_WARNING: Final = (
    "messageIdPolicy=origin: equal rows of one message have one message id. Duplicate detection keeps one of those "
    "that a query gives in several batches, as joins and aggregations do; within a batch the write fails."
)

_log = logging.getLogger("emubus.spark")
_logged: set[str] = set()  # what this process has logged once


@dataclass(frozen=True)
class RowPlan:
    """The columns that are sent, and those of the rows' origin: which they are and where in the frame, and their types.

    Columns of the origin are not sent; message ids are made of them.
    """

    fields: tuple[SinkField, ...]
    types: tuple[DataType, ...]
    origins: tuple[SinkField, ...] = ()
    origin_types: tuple[DataType, ...] = ()

    @property
    def columns(self) -> list[str]:
        """The sink's names of the columns that are sent."""
        return [field.column for field in self.fields]

    @property
    def names(self) -> list[str]:
        """The sink's names of all columns."""
        return [*self.columns, *(field.column for field in self.origins)]

    def of_batches(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """These columns of Spark's Arrow batches, under the sink's names."""
        for batch in batches:
            arrays = [batch.column(field.index) for field in (*self.fields, *self.origins)]
            yield pa.RecordBatch.from_arrays(arrays, self.names)

    def of_rows(self, rows: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        """These columns of Spark's rows, as Arrow batches under the sink's names."""
        fields, types = (*self.fields, *self.origins), (*self.types, *self.origin_types)
        kinds = [arrow_type(kind) for kind in types]
        rest = iter(rows)
        while chunk := list(itertools.islice(rest, ROWS_PER_BATCH)):
            arrays = [
                pa.array([_arrow_value(row[field.index], kind) for row in chunk], arrow)
                for field, kind, arrow in zip(fields, types, kinds, strict=True)
            ]
            yield pa.RecordBatch.from_arrays(arrays, self.names)


def match_columns(schema: StructType, options: SinkOptions) -> RowPlan:
    """Find the sink's columns in a frame, by name in any order and case; ConnectorError for what the sink doesn't know.

    What is left out is logged, once per process.
    """
    found = sink_fields(schema, entity=options.entity, ignore_read_only=options.ignore_read_only_columns)
    if options.message_id_policy == "none":
        found = tuple(field for field in found if field.column != "messageId")
    kept = {field.index for field in found}
    left_out = ", ".join(field.name for index, field in enumerate(schema.fields) if index not in kept)
    if left_out and left_out not in _logged:
        _logged.add(left_out)
        _log.info("Columns that are not written to Service Bus: %s", left_out)
    has_digests = options.message_id_policy in ("deterministic", "origin")
    origins = origin_fields(schema, entity=options.entity) if has_digests else ()
    if options.message_id_policy == "origin" and not {each.column for each in origins} >= {*ORIGIN_NEEDED}:
        text = f"messageIdPolicy=origin needs the columns {' and '.join(ORIGIN_NEEDED)} of the source"
        raise ConnectorError(Code.OPTION_INVALID, f"{text}: keep them in the frame, they are not sent")
    if options.message_id_policy == "origin" and ORIGIN_WARNING not in _logged:
        _logged.add(ORIGIN_WARNING)
        _log.warning("%s", ORIGIN_WARNING)

    def types_of(fields: tuple[SinkField, ...]) -> tuple[DataType, ...]:
        return tuple(schema.fields[field.index].dataType for field in fields)

    return RowPlan(found, types_of(found), origins, types_of(origins))


def arrow_type(kind: DataType) -> pa.DataType:
    """The Arrow type of a Spark type that `schema` lets through."""
    if isinstance(kind, MapType):
        return pa.map_(arrow_type(kind.keyType), arrow_type(kind.valueType))
    if isinstance(kind, DecimalType):
        return pa.decimal128(kind.precision, kind.scale)
    return ARROW_TYPES[kind.simpleString()]


def _arrow_value(value: Any, kind: DataType) -> Any:
    """A value of a Spark row as Arrow takes it: maps as pairs, instants in UTC (Spark gives them in local time)."""
    if value is None:
        return None
    if isinstance(kind, MapType):
        return [(key, _arrow_value(each, kind.valueType)) for key, each in value.items()]
    if isinstance(kind, TimestampType) and isinstance(value, datetime):
        return value.astimezone(UTC)
    return value
