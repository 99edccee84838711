"""Millions of messages through a cluster that loses an executor and a worker on the way.

    python -m tests.spark.acceptance.cluster_kills [--messages 5000000] [--mode drain] [--standard]

A master and three workers, each a process with one executor of one core, read a queue of 16 partitions into Parquet
files. Behind a batch an executor is killed, which its worker replaces, and behind another one a worker with its
executor, so that two go on. Each sequence number must be in the files once. The queue is filled before, so that the
reader alone sets the speed that is printed.
"""

from __future__ import annotations

import argparse
import json
import random
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any, Final

from pyarrow import parquet

from emubus.spark_connector.timing import monotonic_s

from ...building import ROOT
from ...toolchains import BRIEF_JAVA
from ..home import make_spark_home
from .kill_rounds import END_S_MAX, PATIENCE
from .kit import Killing, driver_conf, parquet_files
from .processes import EXECUTOR, Broker, Child, Children, Driver, command_of, kill

QUEUE: Final = "numbers"
PARTITIONS: Final = 16
WORKERS: Final = 3
BODY_BYTES: Final = 100
WINDOW: Final = 2_000
BATCHES: Final = 20
"""How many it takes to read all: enough to kill in the middle of one and to go on behind."""
LOAD_S_MAX: Final = 1_800.0


def start_workers(children: Children) -> tuple[str, list[Child]]:
    """A master's address, and its workers."""
    home = make_spark_home(children.folder / "cluster")
    environment = {
        "SPARK_HOME": home,
        "PYSPARK_PYTHON": sys.executable,
        "SPARK_LAUNCHER_OPTS": " ".join(BRIEF_JAVA),
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": " ".join(BRIEF_JAVA),
        "SPARK_LOCAL_IP": "127.0.0.1",
        "SPARK_WORKER_DIR": str(children.folder / "work"),
    }
    daemon = [f"{home}/bin/spark-class"]
    at = ["--host", "127.0.0.1", "--port", "0", "--webui-port", "0"]
    master = children.start([*daemon, "org.apache.spark.deploy.master.Master", *at], environment)
    url = master.log_with(r"(spark://127\.0\.0\.1:\d+)")
    worker = [*daemon, "org.apache.spark.deploy.worker.Worker", *at, "--cores", "1", "--memory", "1g", url]
    return url, [children.start(worker, environment) for _ in range(WORKERS)]


def plan_of(
    connection_string: str, folder: Path, master: str, count: int, mode: str, operations: str
) -> dict[str, Any]:
    read = {
        "connectionString": connection_string,
        "queue": QUEUE,
        "mode": mode,
        "maxMessagesPerTrigger": str(count // BATCHES),
        "serviceOperations": operations,
    }
    if mode == "claim":
        read["claimId"] = "cluster"
    query = {
        "read": {"format": "servicebus", "options": read, "schema": "sequenceNumber BIGINT"},
        "select": ["sequenceNumber"],
        "write": {
            "format": "parquet",
            "options": {"path": str(folder / "read"), "checkpointLocation": str(folder / "checkpoint")},
        },
    }
    more = {"spark.executor.memory": "768m", "spark.cores.max": str(WORKERS)}
    return {"conf": {**driver_conf(folder), **PATIENCE, **more}, "master": master, "queries": {mode: query}}


def fill(port: int, count: int) -> float:
    """Send so many messages; how many in a second."""
    command = [sys.executable, str(ROOT / "bench" / "load.py"), "send", "--port", str(port), "--address", QUEUE]
    command += ["--messages", str(count), "--size", str(BODY_BYTES), "--window", str(WINDOW)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=LOAD_S_MAX).stdout
    return float(json.loads(said)["rate"])


def numbers_in(folder: Path) -> list[int]:
    """The sequence numbers in all files of a query, in order."""
    found: list[int] = []
    for file in parquet_files(folder):
        found += parquet.read_table(file, columns=["sequenceNumber"]).column(0).to_pylist()
    return sorted(found)


def kill_one(children: list[Child], chance: random.Random, *, worker: bool) -> None:
    """An executor, or a worker with its executor."""
    child = chance.choice([each for each in children if each.pids()])
    for pid in child.pids():
        if worker or EXECUTOR in command_of(pid):
            kill(pid)


def play(children: Children, count: int, mode: str, operations: str, chance: random.Random) -> bool:
    """One run; whether every message was read once."""
    broker = Broker(children, {QUEUE: {"EnablePartitioning": True, "MaxSizeInMegabytes": 5120}})
    rate = fill(broker.port, count)
    sys.stdout.write(f"{count} messages of {BODY_BYTES} bytes sent, {rate:,.0f} a second\n")
    master, workers = start_workers(children)
    began_s = monotonic_s()
    plan = plan_of(broker.connection_string, children.folder, master, count, mode, operations)
    driver = Driver(children, plan)
    killing = Killing(driver, chance)
    for is_worker in (False, True):
        for _ in range(2):
            assert driver.wait_for("batch", mode, killing.note), driver.errors()
        killing.listen(chance.uniform(0, 2))
        kill_one(workers, chance, worker=is_worker)
        sys.stdout.write(
            f"after {monotonic_s() - began_s:.0f} s: killed {'a worker' if is_worker else 'an executor'}\n"
        )
        sys.stdout.flush()
    killing.finish(END_S_MAX)
    took_s = monotonic_s() - began_s
    found = numbers_in(children.folder / "read")
    distinct = set(found)
    lost, doubled = count - len(distinct), len(found) - len(distinct)
    places = len({number >> 48 for number in distinct})
    sys.stdout.write(
        f"{mode}: {len(found)} rows from {places} partitions in {took_s:.0f} s, {len(found) / took_s:,.0f} a second: "
        f"lost {lost}, doubled {doubled}; the query failed {killing.restarts.total()} times\n"
    )
    return (lost, doubled, places) == (0, 0, PARTITIONS)


def main(arguments: list[str]) -> int:
    """The command line; 1 if anything is lost or doubled."""
    parser = argparse.ArgumentParser(prog="python -m tests.spark.acceptance.cluster_kills")
    parser.add_argument("--messages", type=int, default=5_000_000)
    parser.add_argument("--mode", choices=("browse", "claim", "drain"), default="drain")
    parser.add_argument("--seed", type=int, default=random.randrange(1_000_000))
    parser.add_argument("--standard", action="store_true", help="read with serviceOperations=standard")
    options = parser.parse_args(arguments)
    operations = "standard" if options.standard else "all"
    with tempfile.TemporaryDirectory(prefix="emubus-cluster-") as folder, Children(Path(folder)) as children:
        right = play(children, options.messages, options.mode, operations, random.Random(options.seed))
    return 0 if right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
