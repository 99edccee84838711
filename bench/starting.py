"""The measured brokers: each is a process with a folder of its own, started and stopped here.

Knows how to start emubus, the floor and the sink, when they are ready, the addresses of their queues, and the kernel's
figures of their processes; other projects' brokers are in `rivals.py`. Does not know what is measured.

A `Broker` owns its process and its folder; it ends only processes that it started.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from processor import Used, used

BENCH: Final = Path(__file__).resolve().parent
READY_TIMEOUT_S: Final = 90.0
STOP_TIMEOUT_S: Final = 30.0
LOG_POLL_S: Final = 0.002
EMUBUS_READY: Final = "Emulator Service is Successfully Up!"


class BrokerError(Exception):
    """A broker did not start, or died."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Resident memory of a process in MiB: all, its own, and mapped files (which the kernel may drop)."""

    resident: float
    anonymous: float
    file: float

    def __str__(self) -> str:
        return f"{self.resident:.0f} MiB resident ({self.anonymous:.0f} own + {self.file:.0f} mapped files)"


class Broker(ABC):
    """A broker: start, measure, stop; it may be started again on the same data."""

    name: str
    answered: str = ""
    """What it has on the disk when it answers a send, and a settlement."""
    user: str | None = None
    password: str | None = None

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.log = folder / "log.txt"
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def start(self) -> float:
        """Start and wait until ready; returns the seconds this took. Raises BrokerError."""

    @abstractmethod
    def address(self, kind: str, size_bytes: int) -> str:
        """The AMQP address of the queue of a kind."""

    @staticmethod
    def missing() -> str:
        """What is missing to run it, in a sentence; empty if nothing is. May install it."""
        return ""

    @property
    def note(self) -> str:
        """What a reader of its figures should know; only while it runs."""
        return ""

    @property
    def pid(self) -> int:
        """The id of the process that does the work."""
        if self.process is None:
            raise BrokerError(f"{self.name} is not running")
        return self.process.pid

    def stop(self) -> None:
        """End the process and wait for its end."""
        end(self.process)
        self.process = None

    def check_alive(self) -> None:
        """Raise BrokerError, with the end of its log, if the process has died."""
        if self.process is not None and self.process.poll() is not None:
            raise BrokerError(f"{self.name} died, status {self.process.returncode}:\n{self._log_end()}")

    def memory(self) -> Memory:
        """The memory of the process now. Raises BrokerError."""
        self.check_alive()
        status = Path(f"/proc/{self.pid}/status").read_text()
        kib = {name: int(value) for name, value in re.findall(r"^(VmRSS|RssAnon|RssFile):\s+(\d+) kB", status, re.M)}
        return Memory(kib["VmRSS"] / 1024, kib["RssAnon"] / 1024, kib["RssFile"] / 1024)

    def used(self) -> Used:
        """Processor time used so far."""
        return used(self.pid)

    def launch(self, command: list[str], ready: str, environment: Mapping[str, str] | None = None) -> float:
        """Start the process and wait until its log has `ready`; returns the seconds. Raises BrokerError."""
        with self.log.open("wb") as log:
            started_s = time.perf_counter()
            self.process = subprocess.Popen(
                command, stdout=log, stderr=subprocess.STDOUT, cwd=self.folder, env=environment
            )
        while time.perf_counter() - started_s < READY_TIMEOUT_S:
            if ready in self.log.read_text(errors="replace"):
                return time.perf_counter() - started_s
            if self.process.poll() is not None:
                break
            time.sleep(LOG_POLL_S)
        self.stop()
        raise BrokerError(f"{self.name} did not get ready:\n{self._log_end()}")

    def _log_end(self) -> str:
        return self.log.read_text(errors="replace")[-2000:]


ANSWERED: Final[Mapping[str, str]] = {
    "full": "send and settlement: both are on the disk (fdatasync of the journal)",
    "second": "send and settlement: both are in the system's hands, on the disk within a second",
    "process": "send and settlement: both are in the system's hands; the disk may have a part",
    "none": "send and settlement: in memory",
}


class Emubus(Broker):
    """This repository's server; `ANSWERED` has what a durability means."""

    name = "emubus"

    def __init__(self, folder: Path, durability: str = "full", tree: Path = BENCH.parent) -> None:
        """`tree` is the checkout whose server is started, with this interpreter's packages."""
        super().__init__(folder)
        self.answered = ANSWERED[durability]
        self._durability = durability
        self._tree = tree
        self._config = folder / "Config.json"
        self._config.write_text(json.dumps(_emubus_config()))

    def start(self) -> float:
        """See `Broker`. The data folder stays when the broker stops, so the next start uses its data."""
        self.port, http_port = free_ports(2)
        options = {
            "--amqp-port": self.port,
            "--http-port": http_port,
            "--data": self.folder / "data",
            "--durability": self._durability,
            "--config": self._config,
        }
        words = [str(word) for option in options.items() for word in option]
        environment = {**os.environ, "PYTHONPATH": str(self._tree)}
        return self.launch([sys.executable, "-P", "-m", "emubus", "serve", *words], EMUBUS_READY, environment)

    def address(self, kind: str, size_bytes: int) -> str:
        """`plain` or `partitioned`."""
        return kind


class Sink(Broker):
    """No broker: shows the limit of the load client."""

    name = "sink"

    def start(self) -> float:
        """See `Broker`."""
        seconds = self.launch([sys.executable, str(BENCH / "sink.py")], "\n")
        self.port = int(self.log.read_text().split()[0])
        return seconds

    def address(self, kind: str, size_bytes: int) -> str:
        """The address includes the size of the messages to deliver."""
        return f"{kind}/{size_bytes}"


class Floor(Broker):
    """No broker either: shows the limit of a server that is built like emubus and has none of its features."""

    name = "floor"

    def __init__(self, folder: Path, durability: str = "full") -> None:
        super().__init__(folder)
        self._durability = durability

    def start(self) -> float:
        """See `Broker`."""
        (self.folder / "data").mkdir(exist_ok=True)
        words = [str(self.folder / "data"), "--durability", self._durability]
        seconds = self.launch([sys.executable, str(BENCH / "floor.py"), *words], "\n")
        self.port = int(self.log.read_text().split()[0])
        return seconds

    def address(self, kind: str, size_bytes: int) -> str:
        """It has one queue."""
        return kind


def end(process: subprocess.Popen[bytes] | subprocess.Popen[str] | None) -> None:
    """Terminate a process that was started here, then kill it."""
    if process is None or process.poll() is not None:
        return
    process.terminate()
    try:
        process.wait(STOP_TIMEOUT_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


@contextmanager
def workplace(where: str | None = None) -> Iterator[Path]:
    """A fresh folder for data and logs, removed at the end. Its disk is measured, too."""
    folder = Path(tempfile.mkdtemp(prefix="emubus-bench-", dir=where))
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@contextmanager
def running(*brokers: Broker) -> Iterator[None]:
    """Start the brokers; stop those that were started in any case."""
    try:
        for broker in brokers:
            broker.start()
        yield
    finally:
        for broker in brokers:
            broker.stop()


def exit_code(main: Callable[[list[str]], int]) -> int:
    """Run a benchmark's `main` on the command line: failures are one line, and a signal stops the brokers."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    try:
        return main(sys.argv[1:])
    except BrokerError as error:
        print(f"{Path(sys.argv[0]).stem}: {error}", file=sys.stderr)
        return 1


def free_ports(count: int) -> list[int]:
    """Free loopback ports."""
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports


def load(broker: Broker, mode: str, kind: str, messages: int, size_bytes: int, *words: str) -> dict[str, float]:
    """Run the load client once; returns its figures.

    Raises BrokerError when a message was lost, doubled or refused.
    """
    options: dict[str, object] = {"--pid": broker.pid}
    if broker.user is not None:
        options |= {"--user": broker.user, "--password": broker.password}
    flat = [str(word) for option in options.items() for word in option]
    address = broker.address(kind, size_bytes)
    try:
        return client_figures(broker.port, mode, address, messages, size_bytes, *flat, *words)
    except BrokerError as error:
        broker.check_alive()
        raise BrokerError(f"{broker.name}, {kind}: {error}") from None


def client_figures(port: int, mode: str, address: str, messages: int, size_bytes: int, *words: str) -> dict[str, float]:
    """Run the load client once against a broker on this port; returns its figures.

    Raises BrokerError when a message was lost, doubled or refused.
    """
    options = {"--port": port, "--address": address, "--messages": messages, "--size": size_bytes}
    flat = [str(word) for option in options.items() for word in option]
    command = [sys.executable, str(BENCH / "load.py"), mode, *flat, *words]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode != 0:
        raise BrokerError(done.stderr.strip())
    figures: dict[str, float] = json.loads(done.stdout)
    return figures


SUBSCRIPTIONS: Final = 10
"""Of each topic. Every message, by its `color`, matches one: half of the filters are equalities, half are patterns."""


def _emubus_config() -> dict[str, object]:
    """A Config.json in the format of Microsoft's emulator, with additional properties: each kind of entity, twice."""
    queues: list[dict[str, object]] = []
    topics: list[dict[str, object]] = []
    for name, is_partitioned in (("plain", False), ("partitioned", True)):
        common = {"MaxSizeInMegabytes": 5120, "EnablePartitioning": is_partitioned}
        properties = {**common, "LockDuration": "PT5M", "MaxDeliveryCount": 10}
        queues.append({"Name": name, "Properties": properties})
        queues.append({"Name": f"{name}-sessions", "Properties": {**properties, "RequiresSession": True}})
        subscriptions = [_subscription(number) for number in range(SUBSCRIPTIONS)]
        topics.append({"Name": f"{name}-topic", "Properties": common, "Subscriptions": subscriptions})
    namespace = {"Name": "sbemulatorns", "Queues": queues, "Topics": topics}
    return {"UserConfig": {"Namespaces": [namespace], "Logging": {"Type": "Console"}}}


def _subscription(number: int) -> dict[str, object]:
    sql = f"color = 'c{number}'" if number % 2 else f"color LIKE '%{number}'"
    rule = {"Name": "color", "Properties": {"FilterType": "Sql", "SqlFilter": {"SqlExpression": sql}}}
    return {"Name": f"s{number}", "Properties": {"LockDuration": "PT5M", "MaxDeliveryCount": 10}, "Rules": [rule]}
