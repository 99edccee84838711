"""Bytes of the wire to rows and back: pure, no I/O, no Proton.

The source takes `split_peek_reply`, `head` and `ArrowRows`; the sink takes `RowEncoder`, `envelope` and the sizes that
envelopes add. What is malformed comes out as `ConnectorError`, as no other exception.
"""

from .columns import SOURCE_TYPES, ArrowRows, Column, columns_of, source_columns
from .decode import Head, head
from .encode import SINK_COLUMNS, EncodedRow, RowEncoder
from .envelope import data_overhead, envelope, envelope_overhead
from .peek import split_peek_reply

__all__ = [
    "SINK_COLUMNS",
    "SOURCE_TYPES",
    "ArrowRows",
    "Column",
    "EncodedRow",
    "Head",
    "RowEncoder",
    "columns_of",
    "data_overhead",
    "envelope",
    "envelope_overhead",
    "head",
    "source_columns",
    "split_peek_reply",
]
