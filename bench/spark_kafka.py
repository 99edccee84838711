"""What a row costs with emubus beside Kafka with Spark's own source and sink, in one run on one machine.

Each round does the same with both in turn: write rows, read them in a batch, browse them in a stream, and, which Kafka
has not, drain and claim them. Spark has two cores, which the brokers share; both have 16 partitions, emubus with the
disk behind each answer, Kafka (KRaft, one node) with its defaults, which leave the disk to the system. Maven gets
Kafka's jars into `kafka/target`. Processor time of clients is that of the JVM and of all Python processes.

    python bench/spark_kafka.py [--rows 200000] [--rounds 3] [--batch 50000] [--size 100] [--durability full]
"""

from __future__ import annotations

import argparse
import shutil
import socket
import subprocess
import sys
import time
import uuid
from collections.abc import Callable
from functools import partial
from pathlib import Path
from statistics import median
from typing import Final

from pyspark.errors import StreamingQueryException
from pyspark.sql import DataFrame, SparkSession
from spark_side import CORES, LATE, processor_s, session
from starting import BENCH, Broker, BrokerError, Emubus, exit_code, free_ports, load, running, workplace

KAFKA: Final = BENCH / "kafka"
FETCH_TIMEOUT_S: Final = 600
PARTITIONS: Final = 16
QUEUE: Final = "partitioned"
MODES: Final = ("browse", "drain", "claim")
WARM_UP_ROWS: Final = 20_000
METADATA_MS: Final = 1_000
PATIENCE_MS: Final = 600_000  # for a row on a busy machine: the default, two minutes, was too short with a load of 14


class Kafka(Broker):
    """Apache Kafka, a single node that is its own controller, as Maven has it."""

    name = "kafka"
    answered = "send: the system has it"

    @staticmethod
    def missing() -> str:
        """What is missing to run it, in a sentence; empty if nothing is. Has Maven fetch it if that was not done."""
        if shutil.which("mvn") is None or shutil.which("java") is None:
            return "Kafka needs java and mvn: apt-get install openjdk-17-jdk-headless maven"
        for part in ("broker", "source"):
            folder = KAFKA / "target" / part
            if any(folder.glob("*.jar")):
                continue
            command = ["mvn", "-q", "-B", f"-P{part}", "dependency:copy-dependencies", f"-DoutputDirectory={folder}"]
            done = subprocess.run(command, cwd=KAFKA, capture_output=True, text=True, timeout=FETCH_TIMEOUT_S)
            if done.returncode != 0:
                return f"Maven could not get Kafka's {part}: {(done.stdout + done.stderr).strip()[-500:]}"
        return ""

    def start(self) -> float:
        """See `Broker`."""
        self.port, controller = free_ports(2)
        settings = {
            "process.roles": "broker,controller",
            "node.id": 1,
            "controller.quorum.voters": f"1@127.0.0.1:{controller}",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self.port},CONTROLLER://127.0.0.1:{controller}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self.port}",
            "listener.security.protocol.map": "CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT",
            "log.dirs": self.folder / "data",
            "num.partitions": PARTITIONS,
            "broker.session.timeout.ms": PATIENCE_MS,  # else a busy machine fences the only broker
            "offsets.topic.replication.factor": 1,
            "transaction.state.log.replication.factor": 1,
            "transaction.state.log.min.isr": 1,
        }
        file = self.folder / "server.properties"
        file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
        java = ["java", "-Xms512M", "-Xmx1G", "-cp", f"{KAFKA / 'target' / 'broker'}/*"]
        made = ["kafka.tools.StorageTool", "format", "-t", str(uuid.uuid4().hex[:22]), "-c", str(file)]
        done = subprocess.run([*java, *made], capture_output=True, text=True)
        if done.returncode != 0:
            raise BrokerError(f"kafka: {done.stdout}{done.stderr}")
        seconds = self.launch([*java, "kafka.Kafka", str(file)], "")
        wait_for_port(self)
        return seconds

    def address(self, kind: str, size_bytes: int) -> str:
        """A topic, which the first row makes."""
        return kind


def wait_for_port(broker: Broker) -> None:
    """Wait until a broker takes connections. Raises BrokerError."""
    for _ in range(900):
        broker.check_alive()
        try:
            socket.create_connection(("127.0.0.1", broker.port), 1).close()
        except OSError:
            time.sleep(0.1)
        else:
            return
    raise BrokerError(f"{broker.name} takes no connections")


class Costs:
    """Rows a second and microseconds of processor time a row, by what was done and with which broker."""

    def __init__(self, rows: int, brokers: list[Broker]) -> None:
        self._rows = rows
        self._pids = [each.pid for each in brokers]
        self.runs: dict[tuple[str, str], list[tuple[float, float, float]]] = {}

    def time(self, what: str, broker: Broker, action: Callable[[], None]) -> None:
        """Run an action that moves all rows; a stream again if Spark did not wait for its own processes."""
        client_s, broker_ns = processor_s(self._pids), broker.used().process_ns
        started_s = time.perf_counter()
        try:
            action()
        except StreamingQueryException as error:  # Spark gives its processes ten seconds to start
            if LATE not in str(error):
                raise
            self.time(what, broker, action)
            return
        seconds = time.perf_counter() - started_s
        client_us = (processor_s(self._pids) - client_s) * 1e6 / self._rows
        broker_us = (broker.used().process_ns - broker_ns) / 1e3 / self._rows
        self.runs.setdefault((what, broker.name), []).append((self._rows / seconds, client_us, broker_us))
        print(f"{what:7} {broker.name:7} {self._line(what, broker.name, -1)}", file=sys.stderr, flush=True)

    def _line(self, what: str, name: str, at: int | None = None) -> str:
        rate, client_us, broker_us = self.figures(what, name, at)
        return f"{rate:9,.0f} rows/s  client {client_us:5.1f}  broker {broker_us:5.1f} us a row"

    def figures(self, what: str, name: str, at: int | None = None) -> tuple[float, float, float]:
        """Medians of all rounds, or one round's."""
        runs = self.runs[what, name] if at is None else [self.runs[what, name][at]]
        rate, client_us, broker_us = (median(each) for each in zip(*runs, strict=True))
        return rate, client_us, broker_us

    def table(self) -> str:
        """Rows of Markdown; the ratio is of the client's processor time to that of Kafka."""
        lines = [
            "| | rows/s | client, us a row | broker, us a row | Kafka: rows/s | client | broker | client's ratio |",
            "|---|---|---|---|---|---|---|---|",
        ]
        for what, name in self.runs:
            if name != Emubus.name:
                continue
            rate, client_us, broker_us = self.figures(what, name)
            beside = "browse" if what in MODES else what
            other = self.figures(beside, Kafka.name)
            line = f"| {what} | {rate:,.0f} | {client_us:.1f} | {broker_us:.1f} | {other[0]:,.0f} | {other[1]:.1f} | "
            lines.append(line + f"{other[2]:.1f} | {client_us / other[1]:.2f} |")
        return "\n".join(lines)


class Turns:
    """What both brokers do in a round."""

    def __init__(self, spark: SparkSession, emubus: Broker, kafka: Broker, folder: Path, size_bytes: int) -> None:
        self._spark = spark
        self._emubus, self._kafka = emubus, kafka
        self._folder = folder
        self._size_bytes = size_bytes
        self._number = 0
        self._options = {
            "connectionString": f"Endpoint=sb://127.0.0.1:{emubus.port};SharedAccessKeyName=n;SharedAccessKey=a2V5;"
            "UseDevelopmentEmulator=true",
            "queue": QUEUE,
        }
        self._servers = {"kafka.bootstrap.servers": f"127.0.0.1:{kafka.port}"}
        # Without a new look at the partitions of a topic that was just made, sends hung for minutes.
        self._patience = {"kafka.delivery.timeout.ms": PATIENCE_MS, "kafka.metadata.max.age.ms": METADATA_MS}

    def round(self, costs: Costs, rows: int, batch: int) -> None:
        """Everything once, each on a topic or queue of its own rows. Raises BrokerError if rows are missing."""
        self._number += 1
        topic = f"round-{self._number}"
        with_numbers = self._spark.range(0, rows, 1, CORES * 2)
        frame = with_numbers.selectExpr(f"CAST(repeat('x', {self._size_bytes}) AS BINARY) AS body").persist()
        frame.count()
        self._send_to_kafka(frame.limit(1), topic)  # makes the topic
        costs.time("write", self._kafka, lambda: self._send_to_kafka(frame, topic))
        costs.time("write", self._emubus, lambda: self._send(frame))
        frame.unpersist()
        costs.time("read", self._kafka, lambda: drop(self._of_kafka(topic)))
        costs.time("read", self._emubus, lambda: drop(self._read()))
        costs.time("browse", self._kafka, lambda: self._run_out(self._stream_of_kafka(topic, batch), rows + 1))
        for mode in MODES:
            costs.time(mode, self._emubus, partial(self._stream_all, mode, batch, rows))
            if mode == "browse":
                continue
            if (left := self._read().count()) > 0:
                raise BrokerError(f"spark: {left} of {rows} rows were not deleted by {mode}")
            if mode != MODES[-1]:
                load(self._emubus, "send", QUEUE, rows, self._size_bytes)

    def _send(self, frame: DataFrame) -> None:
        frame.write.format("servicebus").options(**self._options).mode("append").save()

    def _send_to_kafka(self, frame: DataFrame, topic: str) -> None:
        writer = frame.selectExpr("body AS value").write.format("kafka").options(**self._servers, **self._patience)
        writer.option("topic", topic).save()

    def _read(self) -> DataFrame:
        return self._spark.read.format("servicebus").options(**self._options).schema("body BINARY").load()

    def _of_kafka(self, topic: str) -> DataFrame:
        reader = self._spark.read.format("kafka").options(**self._servers, subscribe=topic)
        return reader.option("startingOffsets", "earliest").load().select("value")

    def _stream(self, mode: str, batch: int) -> DataFrame:
        more = {"claimId": "bench"} if mode == "claim" else {}
        reader = self._spark.readStream.format("servicebus").options(**self._options, mode=mode, **more)
        return reader.option("maxMessagesPerTrigger", str(batch)).schema("body BINARY").load()

    def _stream_of_kafka(self, topic: str, batch: int) -> DataFrame:
        reader = self._spark.readStream.format("kafka").options(**self._servers, subscribe=topic)
        return reader.options(startingOffsets="earliest", maxOffsetsPerTrigger=str(batch)).load().select("value")

    def _stream_all(self, mode: str, batch: int, rows: int) -> None:
        self._run_out(self._stream(mode, batch), rows)

    def _run_out(self, frame: DataFrame, rows: int) -> None:
        """Run a stream into nothing until nothing is left. Raises BrokerError if rows are missing."""
        self._number += 1
        writer = frame.writeStream.format("noop").trigger(availableNow=True)
        query = writer.option("checkpointLocation", str(self._folder / f"checkpoint-{self._number}")).start()
        query.awaitTermination()
        found = sum(each.numInputRows for each in query.recentProgress)
        if found != rows:
            raise BrokerError(f"spark: a stream has read {found} of {rows} rows")


def drop(frame: DataFrame) -> None:
    """Read all and keep nothing."""
    frame.write.format("noop").mode("overwrite").save()


def main(argv: list[str]) -> int:
    """Run all rounds and print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch", type=int, default=50_000, help="rows of a micro-batch")
    parser.add_argument("--size", type=int, default=100, help="bytes of a body")
    parser.add_argument("--durability", default="full")
    arguments = parser.parse_args(argv)
    if missing := Kafka.missing():
        print(f"spark_kafka: {missing}", file=sys.stderr)
        return 1
    jars = ",".join(map(str, sorted((KAFKA / "target" / "source").glob("*.jar"))))
    with workplace() as folder:
        emubus, kafka = Emubus(folder / "emubus", arguments.durability), Kafka(folder / "kafka")
        with running(emubus, kafka), session(folder, {"spark.jars": jars}) as spark:
            turns = Turns(spark, emubus, kafka, folder, arguments.size)
            turns.round(Costs(WARM_UP_ROWS, [emubus, kafka]), WARM_UP_ROWS, WARM_UP_ROWS // 2)
            costs = Costs(arguments.rows, [emubus, kafka])
            for number in range(arguments.rounds):
                print(f"round {number + 1} of {arguments.rounds}", file=sys.stderr, flush=True)
                turns.round(costs, arguments.rows, arguments.batch)
            print(f"Spark {spark.version}, local[{CORES}], {arguments.rows:,} rows of {arguments.size} B, medians")
    print(costs.table())
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
