"""What the source's tests share: readers by option, messages, rows, and a Spark that is only its order of calls.

`Spark` keeps a checkpoint as Spark does (a log of offsets, written before a batch is read, and a log of commits,
written after it) and can be killed between any two steps.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest
from azure.servicebus import ServiceBusClient
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows
from pyspark.sql.types import BinaryType, LongType, StringType, StructField, StructType

from emubus.broker.entities.router import BACKLOG_MESSAGES
from emubus.codec.encode import encode
from emubus.codec.types import Symbol
from emubus.spark_connector.options import SourceOptions, source_options
from emubus.spark_connector.source import claim, follow, outage, peeks, polling, positions, retries, sub_queue
from emubus.spark_connector.source.batch import BatchReader
from emubus.spark_connector.source.stream import StreamReader
from emubus.spark_connector.wire.pool import pooled
from emubus.spark_connector.wire.values import described
from emubus.testing import EmubusServer

NUMBERS = StructType([StructField("sequenceNumber", LongType())])
BODIES = StructType([StructField("sequenceNumber", LongType()), StructField("body", BinaryType())])
STATES = StructType([StructField("body", BinaryType()), StructField("state", StringType())])
FAST = {"operationTimeout": "5s", "retryTimeout": "5s", "outageTimeout": "5s"}


def plain(body: str, *, session_id: str | None = None, key: str | None = None) -> bytes:
    """An encoded message as a client sends it."""
    annotations = b"" if key is None else encode(described(0x72, {Symbol("x-opt-partition-key"): key}))
    return annotations + encode(described(0x73, [None] * 10 + [session_id])) + encode(described(0x75, body.encode()))


def send(server: EmubusServer, entity: str, messages: Iterable[bytes]) -> None:
    """Send encoded messages, in order; so few at a time that those without a key go to the partitions in turn."""
    options = options_of(server, entity)
    with pooled(options.connection.endpoint, options.connection.credential) as connection:
        sender = connection.sender(entity, window=BACKLOG_MESSAGES)
        for index, message in enumerate(messages):
            sender.send(message, envelope=False, key=index)
        assert [error for _, error in sender.flush() if error is not None] == []
        sender.close()


def send_texts(server: EmubusServer, entity: str, count: int, first: int = 0) -> None:
    """Send messages whose bodies are the numbers from `first` on."""
    send(server, entity, [plain(str(number)) for number in range(first, first + count)])


def options_of(server: EmubusServer, entity: str, *, streaming: bool = True, **raw: object) -> SourceOptions:
    """A reader's options, with short waits unless they are given."""
    given = {"connectionString": server.connection_string, "entityPath": entity, **FAST}
    if streaming:
        given["pollInterval"] = "20ms"
    return source_options(given | {name: str(value) for name, value in raw.items()}, streaming=streaming)


def stored(server: EmubusServer, entity: str) -> int:
    """How many messages there are."""
    extents = server.run(server.server.broker.messages.extents(entity))
    return sum(each.message_count for each in extents if each is not None)


def numbers(count: int) -> list[int]:
    """The numbers of the first `count` messages of each partition."""
    return [partition << 48 | number for partition in range(16) for number in range(1, count + 1)]


def settle_by_sdk(server: EmubusServer, queue: str, count: int, method: str) -> None:
    with (
        ServiceBusClient.from_connection_string(server.connection_string) as client,
        client.get_queue_receiver(queue) as receiver,
    ):
        left = count
        while left:
            for message in receiver.receive_messages(left):
                getattr(receiver, method)(message)
                left -= 1


def rows_of(reader: BatchReader | StreamReader, tasks: Sequence[Any]) -> list[Any]:
    """All rows of tasks, as tuples (or bare values if there is one column), in the order of the tasks."""
    rows: list[Any] = []
    for task in tasks:
        for batch in reader.read(task):
            columns = [column.to_pylist() for column in batch.columns]
            rows += columns[0] if len(columns) == 1 else list(zip(*columns, strict=True))
    return rows


def read_batch(options: SourceOptions, schema: StructType = NUMBERS) -> list[Any]:
    """What `spark.read` would give."""
    reader = BatchReader(options, schema)
    return rows_of(reader, reader.partitions())


class KilledError(Exception):
    """The process of the query ended here."""


@dataclass
class Spark:
    """One query: its checkpoint and what its sink has, over any number of processes."""

    options: SourceOptions
    schema: StructType = field(default_factory=lambda: NUMBERS)
    offsets: list[str] = field(default_factory=list[str])
    commits: int = 0
    sink: dict[int, list[Any]] = field(default_factory=dict[int, list[Any]])
    steps_left: int | None = None
    """Steps until the process is killed."""

    @property
    def rows(self) -> list[Any]:
        """What a sink that takes each batch once holds."""
        return [row for number in sorted(self.sink) for row in self.sink[number]]

    def run(self, *, available_now: bool = True, batches_max: int = 50) -> None:
        """One run of the query, as a process of its own, until there is nothing new; KilledError if it is killed."""
        reader = StreamReader(self.options, self.schema)
        try:
            if available_now:
                reader.prepareForTriggerAvailableNow()
            limit = reader.getDefaultReadLimit()
            if len(self.offsets) > self.commits:
                self._run_batch(reader, len(self.offsets) - 1)
            for _ in range(batches_max):
                if not self._construct(reader, limit):
                    return
                self._run_batch(reader, len(self.offsets) - 1)
        finally:
            reader.stop()

    def step(self, name: str) -> None:
        """The process may be killed here."""
        if self.steps_left is not None:
            if not self.steps_left:
                raise KilledError(name)
            self.steps_left -= 1

    def _start(self, reader: StreamReader, batch: int) -> dict[str, Any]:
        if batch == 0:
            return json_again(reader.initialOffset())
        return dict(json.loads(self.offsets[batch - 1]))

    def _construct(self, reader: StreamReader, limit: ReadAllAvailable | ReadMaxRows) -> bool:
        batch = len(self.offsets)
        start = self._start(reader, batch)
        self.step("before latestOffset")
        end = json.dumps(reader.latestOffset(start, limit))
        reader.reportLatestOffset()
        self.step("after latestOffset")
        if end == json.dumps(start):
            return False
        self.offsets.append(end)
        self.step("offsets are logged")
        if batch:
            reader.commit(json.loads(self.offsets[batch - 1]))
        self.step("after commit")
        return True

    def _run_batch(self, reader: StreamReader, batch: int) -> None:
        tasks = reader.partitions(self._start(reader, batch), json.loads(self.offsets[batch]))
        self.step("planned")
        self.sink[batch] = rows_of(reader, tasks)
        self.step("the sink has it")
        self.commits = batch + 1
        self.step("committed")


def json_again(offset: dict[str, Any]) -> dict[str, Any]:
    """What is left of an offset after Spark has had it."""
    return dict(json.loads(json.dumps(offset)))


class FakeTime:
    """The clock of the driver's reader: a wait only moves it. `at_wait` is called before each wait, with its length."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.now_s = 1000.0
        self.at_wait: Callable[[float], None] = lambda _: None
        for module in (follow, polling, sub_queue, claim, retries, positions, outage, peeks):
            for name, stand_in in (("monotonic_s", lambda: self.now_s), ("sleep", self.sleep)):
                if hasattr(module, name):
                    patch.setattr(module, name, stand_in)

    def sleep(self, seconds: float) -> None:
        """Wait."""
        if seconds > 0:
            self.at_wait(seconds)
            self.now_s += seconds
