"""What the sink's tests share: writers by option, Arrow batches, tasks that seem to be Spark's, and readers.

Readers are Microsoft's SDK for Python: what it shows is what users of other programs get.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from azure.servicebus import ServiceBusClient, ServiceBusReceivedMessage
from proton import Message, symbol
from pyspark import TaskContext
from pyspark.sql.types import (
    BinaryType,
    BooleanType,
    DataType,
    DecimalType,
    DoubleType,
    IntegerType,
    LongType,
    MapType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from emubus.broker.model.catalog import Description, path_of
from emubus.spark_connector.logs import BATCH_ID, QUERY_ID
from emubus.spark_connector.options import sink_options
from emubus.spark_connector.sink import task
from emubus.spark_connector.sink.writer import BatchWriter, StreamWriter, Written
from emubus.testing import EmubusServer

PEEK_COUNT = 500
PEEK_BYTES = 64 * 1024 * 1024


@dataclass
class FakeContext:
    """What a task sees of itself."""

    partition_id: int = 0
    attempt: int = 0
    properties: Mapping[str, str] = field(default_factory=dict[str, str])

    def partitionId(self) -> int:  # noqa: N802
        return self.partition_id

    def attemptNumber(self) -> int:  # noqa: N802
        return self.attempt

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self.properties.get(key)


TYPES: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "boolean": BooleanType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "timestamp": TimestampType(),
    "decimal(10,2)": DecimalType(10, 2),
}


def schema_of(columns: str) -> StructType:
    """The schema that a line of DDL tells; Spark's own reader of it would start a JVM."""
    fields = []
    for column in columns.split(", "):
        name, _, kind = column.partition(" ")
        values = re.fullmatch(r"map<string,(.+)>", kind)
        made = TYPES[kind] if values is None else MapType(StringType(), TYPES[values[1]])
        fields.append(StructField(name, made))
    return StructType(fields)


@contextlib.contextmanager
def in_task(partition: int = 0, *, query: str | None = None, batch: int | None = None) -> Iterator[None]:
    """Run a block as if in a Spark task."""
    names = {QUERY_ID: query, BATCH_ID: None if batch is None else str(batch)}
    context = FakeContext(partition, 0, {key: value for key, value in names.items() if value is not None})
    before = task.task_context
    task.task_context = lambda: cast("TaskContext", context)
    try:
        yield
    finally:
        task.task_context = before


@dataclass
class Rig:
    """A server and how to reach it; `port` differs from the server's where something stands between."""

    server: EmubusServer
    port: int | None = None
    created: list[str] = field(default_factory=list)

    def create(self, description: Description) -> None:
        """Create an entity for this test; `delete_created` removes it."""
        self.server.create(description)
        self.created.append(path_of(description))

    def delete_created(self) -> None:
        """Delete what the test created, so that two tests may use one name; subscriptions go before their topic."""
        while self.created:
            self.server.delete(self.created.pop())

    @property
    def connection_string(self) -> str:
        """How the sink finds the service."""
        text = self.server.connection_string
        return text if self.port is None else text.replace(f":{self.server.amqp_port};", f":{self.port};")

    def writer(self, columns: str, **options: Any) -> BatchWriter:
        """A batch writer for a frame with these columns (DDL)."""
        raw = {"connectionString": self.connection_string, **{name: str(each) for name, each in options.items()}}
        return BatchWriter(sink_options(raw, streaming=False), schema_of(columns))

    def stream_writer(self, columns: str, **options: Any) -> StreamWriter:
        """The same of a stream."""
        raw = {"connectionString": self.connection_string, **{name: str(each) for name, each in options.items()}}
        return StreamWriter(sink_options(raw, streaming=True), schema_of(columns))

    def peek(self, queue: str, subscription: str | None = None) -> list[ServiceBusReceivedMessage]:
        """Everything that is there, by sequence number."""
        with ServiceBusClient.from_connection_string(self.server.connection_string, retry_total=0) as client:
            receiver = (
                client.get_queue_receiver(queue, keep_alive=0)
                if subscription is None
                else client.get_subscription_receiver(queue, subscription, keep_alive=0)
            )
            with receiver:
                found: list[ServiceBusReceivedMessage] = []
                while True:
                    first = (found[-1].sequence_number or 0) + 1 if found else 0
                    more = receiver.peek_messages(PEEK_COUNT, sequence_number=first)
                    if not more:
                        return found
                    found += more

    def stored(self, queue: str) -> list[Message]:
        """Everything that is there, by sequence number; asked of the broker, for an SDK takes a second to connect."""
        found: list[Message] = []
        first = 0
        while True:
            more = self.server.run(self.server.server.broker.messages.peek(queue, first, PEEK_COUNT, PEEK_BYTES))
            if not more:
                return found
            for data in more:
                found.append(Message())
                found[-1].decode(data)
            first = sequence_number_of(found[-1]) + 1

    def bodies(self, queue: str) -> list[str]:
        """The bodies of everything that is there, by sequence number."""
        return [text_of(message) for message in self.stored(queue)]


def sequence_number_of(message: Message) -> int:
    """The number that the service gave."""
    return int(annotation(message, "x-opt-sequence-number"))


def annotation(message: Message, name: str) -> Any:
    """A message annotation; KeyError if it isn't there."""
    annotations: Any = message.annotations
    return annotations[symbol(name)]


def text_of(message: Message) -> str:
    """A body as text."""
    body = message.body
    assert isinstance(body, bytes | memoryview)
    return bytes(body).decode()


def properties_of(message: ServiceBusReceivedMessage) -> list[tuple[str, Any]]:
    """The application properties; texts among the values are bytes, as the SDK shows them."""
    found = message.application_properties or {}
    return [(key.decode() if isinstance(key, bytes) else key, value) for key, value in found.items()]


def body_of(message: ServiceBusReceivedMessage) -> str:
    """A body as text."""
    return b"".join(message.body).decode()


def frame(rows: Sequence[Mapping[str, Any]], schema: Mapping[str, pa.DataType] | None = None) -> pa.RecordBatch:
    """An Arrow batch of rows."""
    return pa.RecordBatch.from_pylist(list(rows), None if schema is None else pa.schema(list(schema.items())))


def texts(numbers: Iterable[int], **columns: Any) -> pa.RecordBatch:
    """Rows with their numbers as bodies, and further columns made by functions of the number."""
    return frame(
        [{"body": str(number), **{name: make(number) for name, make in columns.items()}} for number in numbers]
    )


def written(writer: BatchWriter | StreamWriter, *batches: pa.RecordBatch) -> Written:
    """Write as a task of Spark would."""
    message = writer.write(iter(batches))
    assert isinstance(message, Written)
    return message
