"""Rows per second that the Spark connector reads and writes, next to Spark alone and to plain AMQP links.

Knows the grid (sizes by schemas) and its order. Each repeat runs everything, so that a slow minute of the machine
affects all of them; prints medians. The broker is a process of its own on the same cores as Spark, with
fsync, and the queue has 16 partitions. Every message that Spark has written is received by the load client, which finds
lost and doubled ones.

    python bench/spark.py [--quick] [--sizes 100,1024] [--repeats 3] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from statistics import median
from typing import Any, Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from starting import BrokerError, Emubus, exit_code, load, running, workplace

from emubus.spark_connector import register

ROWS_BY_SIZE: Final[Mapping[int, int]] = {100: 200_000, 1024: 100_000}
"""Body bytes -> rows in a run."""

QUICK_PART: Final = 20
QUEUE, COPY = "partitioned", "plain"
CORES: Final = 2
KEYS: Final = 64
SINK_TASKS: Final = 4
NUMBER_BYTES: Final = 8
SMALL_ROWS, SMALL_BATCHES = 16, 20
ONE_BATCH_ROWS, ONE_BATCH_BYTES = 1_000_000, 100
CLAIM_ROWS: Final = 50_000  # in a batch
CLAIM: Final[Mapping[str, str]] = {"mode": "claim", "claimId": "bench"}
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


@dataclass(slots=True)
class Cell:
    """All runs of one line: rows a second, and processor time per row of broker and Spark."""

    rates: list[float] = field(default_factory=list[float])
    broker_us: list[float] = field(default_factory=list[float])
    spark_us: list[float] = field(default_factory=list[float])


Key = tuple[int, str, str]
"""Body bytes, what, which columns."""


class Bench:
    """A session and a broker, and their measurements."""

    def __init__(self, spark: SparkSession, broker: Emubus, folder: Path) -> None:
        self.spark = spark
        self.cells: dict[Key, Cell] = defaultdict(Cell)
        self._broker = broker
        self._folder = folder
        self._runs = 0
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
            self._time((size_bytes, "sink ceiling", "all columns"), rows, _drop, frame)
            self._time((size_bytes, "sink", "all columns"), rows, self._send, frame)
        for columns, schema in (("all columns", ALL_COLUMNS), ("2 columns", TWO_COLUMNS)):
            self._time((size_bytes, "source ceiling", columns), rows, _drop, self._range(size_bytes, rows, schema))
            self._time((size_bytes, "source", columns), rows, _drop, self._read(schema))
            self._count(schema, rows)
        self._time((size_bytes, "claim", "body"), rows, self._run_out, self._stream_of(CLAIM_ROWS, **CLAIM))
        if (left := self._read(TWO_COLUMNS).count()) > 0:
            raise BrokerError(f"spark: {left} of {rows} claimed rows were not deleted")

    def one_batch(self, rows: int, size_bytes: int) -> None:
        """A stream that takes everything in its first batch."""
        load(self._broker, "send", QUEUE, rows, size_bytes)
        self._time((size_bytes, f"{rows:,} at once", "body"), rows, self._run_out, self._stream_of(rows))
        self._empty(size_bytes, rows)

    def small_batches(self, rows: int, batches: int) -> list[str]:
        """Lines on the cost of a micro-batch, independent of its rows."""
        load(self._broker, "send", QUEUE, rows * batches, 100)
        written = []
        rate = self.spark.readStream.format("rate-micro-batch").option("rowsPerBatch", rows)
        looks, spent = self._stream(self._stream_of(rows), "noop", {})
        written.append(_batch_line("source to nothing", spent))
        written.append(f"spark  micro-batch  {'looking for messages':32} {median(looks):7,.0f} ms")
        _, spent = self._stream(self._stream_of(rows), "servicebus", self._options | {"queue": COPY})
        written.append(_batch_line("source to sink", spent))
        _, spent = self._stream(rate.load(), "noop", {}, batches=batches)
        written.append(_batch_line("Spark's own source to nothing", spent))
        for kind in (QUEUE, COPY):
            load(self._broker, "receive", kind, rows * batches, 100)
        return written

    def _link(self, mode: str, size_bytes: int, rows: int) -> None:
        figures = load(self._broker, mode, QUEUE, rows, size_bytes)
        cell = self.cells[size_bytes, f"link {mode}", ""]
        cell.rates.append(figures["rate"])
        cell.broker_us.append(figures["process_us"])

    def _empty(self, size_bytes: int, rows: int) -> None:
        """Receive everything, and check that each message comes once."""
        load(self._broker, "receive", QUEUE, rows, size_bytes)

    def _time(self, key: Key, rows: int, action: Callable[[DataFrame], None], frame: DataFrame) -> None:
        broker_s, spark_s, started_s = self._broker.used().process_ns / 1e9, self._spark_cpu_s(), time.perf_counter()
        action(frame)
        seconds = time.perf_counter() - started_s
        cell = self.cells[key]
        cell.rates.append(rows / seconds)
        cell.broker_us.append((self._broker.used().process_ns / 1e9 - broker_s) * 1e6 / rows)
        cell.spark_us.append((self._spark_cpu_s() - spark_s) * 1e6 / rows)

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
        self._stream(frame, "noop", {})

    def _stream(
        self, frame: DataFrame, sink: str, options: dict[str, str], batches: int | None = None
    ) -> tuple[list[float], list[float]]:
        """Run to the end, or for some batches; milliseconds of looking for an end and of all, by batch."""
        self._runs += 1
        writer = frame.writeStream.format(sink).options(**options)
        writer = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{self._runs}"))
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

    def _spark_cpu_s(self) -> float:
        """Processor time of this process's descendants without the broker: the JVM and Python's workers."""
        ticks: dict[int, tuple[int, float]] = {}
        for stat in Path("/proc").glob("[0-9]*/stat"):
            try:
                fields = stat.read_text().rpartition(")")[2].split()
            except OSError:
                continue  # it has ended
            ticks[int(stat.parent.name)] = int(fields[1]), sum(map(int, fields[11:15]))
        total, own = 0.0, os.getpid()
        for pid, (_, used) in ticks.items():
            at = pid
            while at in ticks and at not in (own, self._broker.pid):
                at = ticks[at][0]
            if at == own and pid != own:
                total += used
        return total / os.sysconf("SC_CLK_TCK")


def _drop(frame: DataFrame) -> None:
    frame.write.format("noop").mode("overwrite").save()


def _batch_line(what: str, spent: list[float]) -> str:
    return (
        f"spark  micro-batch  {what:32} {median(spent):7,.0f} ms  [{max(spent):,.0f} to {min(spent):,.0f}]  "
        f"{len(spent)} batches of {SMALL_ROWS} rows"
    )


def lines(cells: Mapping[Key, Cell]) -> list[str]:
    """One line for each cell."""
    links = {"source": "link receive", "sink": "link send"}
    written: list[str] = []
    for (size_bytes, what, columns), cell in sorted(cells.items()):
        rates, ratios = cell.rates, ""
        if what in links:
            ceiling, link = cells[size_bytes, f"{what} ceiling", columns], cells[size_bytes, links[what], ""]
            ratios = f"  {median(rates) / median(ceiling.rates):5.3f} x ceiling"
            ratios += f"  {median(rates) / median(link.rates):5.2f} x {links[what]}"
        cpu = f"broker {median(cell.broker_us):5.1f}"
        cpu += f", Spark {median(cell.spark_us):5.1f}" if cell.spark_us else ""
        written.append(
            f"spark  {size_bytes:6} B  {what:14} {columns:11} {median(rates):11,.0f} rows/s{ratios}"
            f"  [{min(rates):,.0f} to {max(rates):,.0f}]  {cpu} us CPU/row"
        )
    return written


@contextmanager
def session(folder: Path) -> Iterator[SparkSession]:
    """Spark on the same cores as everything else."""
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
    }
    for key, value in settings.items():
        builder = builder.config(key, str(value))
    spark: SparkSession = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    register(spark)
    try:
        yield spark
    finally:
        spark.stop()


def main(argv: list[str]) -> int:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, one repeat")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--sizes", help="body sizes in bytes, comma-separated")
    parser.add_argument("--durability", default="full", help="full, process or none")
    parser.add_argument("--data", help="folder for the broker's data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    part = QUICK_PART if arguments.quick else 1
    sizes = {size: count // part for size, count in ROWS_BY_SIZE.items()}
    if arguments.sizes:
        sizes = {int(size): sizes[int(size)] for size in arguments.sizes.split(",")}
    with workplace(arguments.data) as folder:
        broker = Emubus(folder / "emubus", arguments.durability)
        with running(broker), session(folder) as spark:
            Bench(spark, broker, folder).repeat(100, min(sizes.values()) // 10)  # warm-up of Spark
            bench = Bench(spark, broker, folder)
            for _ in range(arguments.repeats or (1 if arguments.quick else 3)):
                for size_bytes, rows in sizes.items():
                    bench.repeat(size_bytes, rows)
            bench.one_batch(ONE_BATCH_ROWS // part, ONE_BATCH_BYTES)
            batches = bench.small_batches(SMALL_ROWS, SMALL_BATCHES)
    print("\n".join([*lines(bench.cells), *batches]))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
