"""One side of the Spark benchmark: Spark with the connector of a tree, and the broker of that tree.

Knows the frames and the streams that are measured, and how; does not know the grid (`spark.py`). A line on stdin is a
JSON array, the name of a turn (`TURNS`) and its arguments; the answer is a line with a JSON array of `Measured`. Every
message that Spark has written is received by the load client, which finds lost and doubled ones; then, and if a row was
read wrongly, the program ends with a sentence.

    PYTHONPATH=TREE python bench/spark_side.py TREE FOLDER DURABILITY
"""

from __future__ import annotations

import json
import os
import re
import sys
import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from statistics import median
from types import MappingProxyType
from typing import Any, Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from spark_figures import MIB, MICRO_BATCH, MS, OWN_BATCH, Measured
from starting import BrokerError, Emubus, exit_code, load, running

from emubus.spark_connector import register

QUEUE, COPY = "partitioned", "plain"
CORES: Final = 2
KEYS: Final = 64
SINK_TASKS: Final = 4
NUMBER_BYTES: Final = 8
CLAIM_ROWS: Final = 50_000  # in a batch
CLAIM: Final[Mapping[str, str]] = {"mode": "claim", "claimId": "bench"}
SMALL_BYTES: Final = 100
LATE: Final = "worker failed to connect back"
PROC: Final = Path("/proc")
PEAK: Final = re.compile(r"^VmHWM:\s+(\d+) kB", re.M)
TWO_COLUMNS: Final = "sequenceNumber BIGINT, body BINARY"
ALL_COLUMNS: Final = ""

# As many columns as the source has, filled as a sender would fill them; the load client finds the number in the body's
# end, least byte first.
SINK_COLUMNS: Final[Mapping[str, str]] = {
    "messageId": "concat('m', id)",
    "partitionKey": f"concat('k', id % {KEYS})",
    "subject": "'created'",
    "contentType": "'application/json'",
    "correlationId": "concat('c', id)",
    "to": "'orders'",
    "replyTo": "'answers'",
    "timeToLiveMs": "86400000L",
    "applicationProperties": "map('kind', 'order', 'version', '3')",
}


class Side:
    """A session and a broker, and their measurements; `runs` are those of this turn."""

    def __init__(self, spark: SparkSession, broker: Emubus, folder: Path) -> None:
        self.spark = spark
        self.runs: list[Measured] = []
        self._broker = broker
        self._folder = folder
        self._streams = 0
        self._options = {
            "connectionString": f"Endpoint=sb://127.0.0.1:{broker.port};SharedAccessKeyName=n;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true"
        }

    # ---- measurements

    def repeat(self, size_bytes: int, rows: int) -> None:
        """One turn of everything for one size. Raises BrokerError when a message was lost or doubled."""
        self._link("send", size_bytes, rows)
        self._link("receive", size_bytes, rows)
        with self._frame(size_bytes, rows) as frame:
            two = frame.select("messageId", "body")
            self._time((size_bytes, "sink ceiling", "2 columns"), rows, _drop, two)
            self._time((size_bytes, "sink", "2 columns"), rows, self._send, two)
            self._empty(size_bytes, rows)
            keyed = frame.select("messageId", "partitionKey", "body")
            self._time((size_bytes, "sink", "keyed"), rows, self._send, keyed)
            self._empty(size_bytes, rows)
            self._time((size_bytes, "sink ceiling", "all columns"), rows, _drop, frame)
            self._time((size_bytes, "sink", "all columns"), rows, self._send, frame)
        for columns, schema in (("all columns", ALL_COLUMNS), ("2 columns", TWO_COLUMNS)):
            self._time((size_bytes, "source ceiling", columns), rows, _drop, self._range(size_bytes, rows, schema))
            self._time((size_bytes, "source", columns), rows, _drop, self._read(schema))
            self._count(schema, rows)
        self._time((size_bytes, "claim", "body"), rows, self._run_out, self._stream_of(CLAIM_ROWS, **CLAIM))
        if (left := self._read(TWO_COLUMNS).count()) > 0:
            raise BrokerError(f"spark: {left} of {rows} claimed rows were not deleted")

    def one_batch(self, size_bytes: int, rows: int) -> None:
        """A stream that takes everything in its first batch. Raises BrokerError as `repeat`."""
        load(self._broker, "send", QUEUE, rows, size_bytes)
        what = f"{rows:,} at once"
        self._time((size_bytes, what, "body"), rows, self._run_out, self._stream_of(rows))
        peaks = sorted(self._peaks_mib())
        self.runs += [
            Measured(size_bytes, what, "greatest Python process", peaks[-1], MIB),
            Measured(size_bytes, what, "all Python processes", sum(peaks), MIB),
        ]
        self._empty(size_bytes, rows)

    def small_batches(self, rows: int, batches: int) -> None:
        """The cost of a micro-batch, independent of its rows. Raises BrokerError as `repeat`."""
        load(self._broker, "send", QUEUE, rows * batches, SMALL_BYTES)
        looks, spent = self._stream(self._stream_of(rows), "noop", {})
        self._note_batch("source to nothing", spent)
        self.runs.append(Measured(SMALL_BYTES, "look for messages", "", median(looks), MS))
        _, spent = self._stream(self._stream_of(rows), "servicebus", self._options | {"queue": COPY})
        self._note_batch("source to sink", spent)
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        _, spent = self._stream(rate.load(), "noop", {}, batches=batches)
        self._note_batch(OWN_BATCH, spent)
        for kind in (QUEUE, COPY):
            load(self._broker, "receive", kind, rows * batches, SMALL_BYTES)

    def _note_batch(self, kind: str, spent_ms: list[float]) -> None:
        self.runs.append(Measured(SMALL_BYTES, MICRO_BATCH, kind, median(spent_ms), MS))

    def _link(self, mode: str, size_bytes: int, rows: int) -> None:
        figures = load(self._broker, mode, QUEUE, rows, size_bytes)
        made = Measured(size_bytes, f"link {mode}", "", figures["rate"], broker_us=figures["process_us"])
        self.runs.append(made)

    def _empty(self, size_bytes: int, rows: int) -> None:
        """Receive everything, and check that each message comes once."""
        load(self._broker, "receive", QUEUE, rows, size_bytes)

    def _time(
        self, key: tuple[int, str, str], rows: int, action: Callable[[DataFrame], None], frame: DataFrame
    ) -> None:
        brokers = [self._broker.pid]
        broker_s, spark_s = self._broker.used().process_ns / 1e9, processor_s(brokers)
        started_s = time.perf_counter()
        try:
            action(frame)
        except StreamingQueryException as error:  # Spark gives its processes ten seconds to start
            if LATE not in str(error):
                raise
            self._time(key, rows, action, frame)
            return
        seconds = time.perf_counter() - started_s
        broker_us = (self._broker.used().process_ns / 1e9 - broker_s) * 1e6 / rows
        spark_us = (processor_s(brokers) - spark_s) * 1e6 / rows
        self.runs.append(Measured(*key, rows / seconds, broker_us=broker_us, spark_us=spark_us))

    # ---- frames

    @contextmanager
    def _frame(self, size_bytes: int, rows: int) -> Iterator[DataFrame]:
        """A frame to send, made before the clock runs and kept in memory."""
        numbers = self.spark.range(0, rows, 1, SINK_TASKS)
        little = ", ".join(f"substr(lpad(hex(id), 16, '0'), {at}, 2)" for at in range(15, 0, -2))
        body = (
            f"CAST(concat(CAST(repeat('x', {size_bytes - NUMBER_BYTES}) AS BINARY), unhex(concat({little}))) AS BINARY)"
        )
        columns = [f"{text} AS `{name}`" for name, text in SINK_COLUMNS.items()]
        frame = numbers.selectExpr(*columns, f"{body} AS body").persist()
        frame.count()
        try:
            yield frame
        finally:
            frame.unpersist()

    def _range(self, size_bytes: int, rows: int, schema: str) -> DataFrame:
        """A frame with the source's columns that Spark makes by itself."""
        columns = [f"CAST(repeat('x', {size_bytes}) AS BINARY) AS body", "id AS sequenceNumber"]
        if not schema:
            columns += [f"{text} AS `{name}`" for name, text in SINK_COLUMNS.items()]
            columns += [f"CAST(null AS STRING) AS s{number}" for number in range(12)]
        return self.spark.range(0, rows, 1, 16).selectExpr(*columns)

    def _read(self, schema: str) -> DataFrame:
        reader = self.spark.read.format("servicebus").options(**self._options, queue=QUEUE)
        return (reader.schema(schema) if schema else reader).load()

    def _send(self, frame: DataFrame) -> None:
        frame.write.format("servicebus").options(**self._options, queue=QUEUE).mode("append").save()

    def _count(self, schema: str, rows: int) -> None:
        found = self._read(schema).agg(f.count("body"), f.count_distinct("sequenceNumber")).head()
        if found is None or tuple(found) != (rows, rows):
            raise BrokerError(f"spark: {rows} rows were to be read, and {found} were")

    # ---- streams

    def _stream_of(self, rows: int, **more: str) -> DataFrame:
        reader = self.spark.readStream.format("servicebus").schema("body BINARY")
        return reader.options(**self._options, queue=QUEUE, maxMessagesPerTrigger=str(rows), **more).load()

    def _run_out(self, frame: DataFrame) -> None:
        self._run(frame, "noop", {})

    def _stream(
        self, frame: DataFrame, sink: str, options: dict[str, str], batches: int | None = None
    ) -> tuple[list[float], list[float]]:
        """Run to the end, or for some batches; milliseconds of looking for an end and of all, by batch."""
        while True:
            try:
                return self._run(frame, sink, options, batches)
            except StreamingQueryException as error:  # Spark gives its processes ten seconds to start
                if LATE not in str(error):
                    raise

    def _run(
        self, frame: DataFrame, sink: str, options: dict[str, str], batches: int | None = None
    ) -> tuple[list[float], list[float]]:
        """The same once. Raises StreamingQueryException."""
        self._streams += 1
        writer = frame.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{self._streams}"))
        if batches is None:
            query = writer.trigger(availableNow=True).start()
            query.awaitTermination()
        else:
            query = writer.start()
            while len(query.recentProgress) < batches:
                query.awaitTermination(1)
            query.stop()
        spent = [each.durationMs for each in query.recentProgress if each.numInputRows]
        settled = spent[len(spent) // 4 :]  # the first ones start processes
        return [each["latestOffset"] for each in settled], [each["triggerExecution"] for each in settled]

    def _peaks_mib(self) -> list[float]:
        """The most memory that each of Spark's Python processes has had."""
        peaks: list[float] = []
        for pid, _ in spark_processes([self._broker.pid]):
            folder = Path("/proc") / str(pid)
            if (found := PEAK.search(_text(folder / "status"))) and "python" in _text(folder / "comm"):
                peaks.append(int(found[1]) / 1024)
        return peaks


def processor_s(brokers: Collection[int]) -> float:
    """Processor time so far of all that Spark runs, what has ended included."""
    return sum(used_s for _, used_s in spark_processes(brokers))


def spark_processes(brokers: Collection[int]) -> Iterator[tuple[int, float]]:
    """Descendants of this process without brokers (the JVM and Python's workers), and their processor time."""
    fields = {int(stat.parent.name): _text(stat).rpartition(")")[2].split() for stat in PROC.glob("[0-9]*/stat")}
    parents = {pid: int(each[1]) for pid, each in fields.items() if each}  # others have ended
    own = os.getpid()
    for pid in parents:
        at = pid
        while at in parents and at != own and at not in brokers:
            at = parents[at]
        if at == own and pid != own:
            yield pid, sum(map(int, fields[pid][11:15])) / os.sysconf("SC_CLK_TCK")


TURNS: Final[Mapping[str, Callable[..., None]]] = {
    "repeat": Side.repeat,
    "one_batch": Side.one_batch,
    "small_batches": Side.small_batches,
}


def _text(path: Path) -> str:
    """A file of a process; nothing if it has ended."""
    try:
        return path.read_text()
    except OSError:
        return ""


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


@contextmanager
def session(folder: Path, more: Mapping[str, str] = MappingProxyType({})) -> Iterator[SparkSession]:
    """Spark on the same cores as everything else, with `more` settings."""
    os.environ["PYSPARK_PYTHON"] = sys.executable
    builder = SparkSession.builder.master(f"local[{CORES}]").appName("bench")
    settings: dict[str, Any] = {
        "spark.driver.memory": "2g",
        "spark.driver.host": "localhost",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.local.dir": folder / "local",
        "spark.sql.warehouse.dir": folder / "warehouse",
        "spark.sql.shuffle.partitions": CORES,
        "spark.python.unix.domain.socket.enabled": "true",  # over TCP a micro-batch waits 40 ms
    }
    for key, value in {**settings, **more}.items():
        builder = builder.config(key, str(value))
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def main(argv: list[str]) -> int:
    """Run turns until stdin ends."""
    tree, folder, durability = Path(argv[0]), Path(argv[1]), argv[2]
    broker = Emubus(folder / "emubus", durability, tree)
    with running(broker), session(folder) as spark:
        side = Side(spark, broker, folder)
        for line in sys.stdin:
            name, *arguments = json.loads(line)
            TURNS[name](side, *arguments)
            print(json.dumps([asdict(run) for run in side.runs]), flush=True)
            side.runs.clear()
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
