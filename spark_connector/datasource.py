"""Spark's entry point: `format("servicebus")`.

Knows which reader or writer answers each of Spark's calls, and checks options and schema first. Does not know how
reading and writing work; their modules are imported at their first use, because Spark creates this class in several
processes that do neither. An object has no state but the options, and it is pickled.

Errors raised here appear at the end of Spark's own text while a query is planned.
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping
from typing import TYPE_CHECKING, cast

from pyspark.sql.datasource import DataSource, DataSourceReader
from pyspark.sql.types import StructType

from .errors import Code, ConnectorError
from .logs import show_logs
from .option_table import ENTITIES, ENTITY_PATTERN, Context
from .options import Values, sink_options, source_options
from .schema import sink_fields, source_columns, source_schema

if TYPE_CHECKING:
    from pyspark.sql.datasource import DataSourceArrowWriter, DataSourceStreamReader, DataSourceStreamWriter

FORMAT = "servicebus"


class ServiceBusDataSource(DataSource):
    """The format `servicebus`: queues, topics and subscriptions, read and written, in batches and streams."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        show_logs()  # Spark creates this class in each process that plans

    @classmethod
    def name(cls) -> str:
        """The name in `format(…)`."""
        return FORMAT

    def schema(self) -> StructType:
        """All columns, with `entity` if several are read; Spark asks only if the user gives no schema.

        Options are checked here, too, so a wrong one is reported at `load()` and not later. Spark does not say whether
        a batch or a stream follows.
        """
        given = Values(self._given_options, Context.READ)
        return source_schema(of_several=ENTITIES in given or ENTITY_PATTERN in given)

    def reader(self, schema: StructType) -> DataSourceReader:
        """A reader for `spark.read`; ConnectorError for a wrong option or schema."""
        options = source_options(self._given_options, streaming=False)
        source_columns(schema)
        from .source.batch import BatchReader

        return BatchReader(options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 (Spark's name)
        """A reader for `spark.readStream`; ConnectorError for a wrong option or schema."""
        options = source_options(self._given_options, streaming=True)
        source_columns(schema)
        from .source.stream import StreamReader

        return StreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceArrowWriter:
        """A writer for `df.write`; ConnectorError for a wrong option, schema or mode."""
        if overwrite:
            raise ConnectorError(
                Code.MODE_UNSUPPORTED, 'messages that are sent can\'t be overwritten: use mode("append") instead'
            )
        options = sink_options(self._given_options, streaming=False)
        sink_fields(schema, entity=options.entity, ignore_read_only=options.ignore_read_only_columns)
        from .sink.writer import BatchWriter

        return BatchWriter(options, schema)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:  # noqa: N802 (Spark's name)
        """A writer for `df.writeStream`; ConnectorError for a wrong option, schema or output mode."""
        if overwrite:
            raise ConnectorError(
                Code.MODE_UNSUPPORTED,
                'messages that are sent can\'t be overwritten, as outputMode("complete") would: use '
                'outputMode("append") or foreachBatch',
            )
        options = sink_options(self._given_options, streaming=True)
        sink_fields(schema, entity=options.entity, ignore_read_only=options.ignore_read_only_columns)
        from .sink.writer import StreamWriter

        return StreamWriter(options, schema)

    @property
    def _given_options(self) -> Mapping[str, str]:
        return cast(Mapping[str, str], self.options)
