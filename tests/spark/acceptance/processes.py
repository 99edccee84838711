"""Processes that tests start and kill: the broker, Spark drivers, senders, and whatever these start themselves.

Knows how to find them all: each gets a mark in its environment, which its children inherit. Does not know what they
do. A `Children` belongs to one test; at its end nothing that bears its mark is left.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import random
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from emubus.spark_connector.timing import monotonic_s

from ..home import make_spark_home

HERE = Path(__file__).parent
MARK = "EMUBUS_TEST_CHILD"
READY_S_MAX = 600.0
LOOK_S = 0.1
END_S_MAX = 120.0
PORTS = range(20_000, 30_000)
"""Below those that systems give to outgoing connections, so that a port stays free while a broker is dead."""

EXECUTOR = "org.apache.spark.executor.CoarseGrainedExecutorBackend"

Event = dict[str, Any]


class Children:
    """Starts processes in a folder, and ends them with all that they have started."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._mark = uuid.uuid4().hex
        self._count = 0
        self._started: list[Child] = []

    def start(self, command: Sequence[str], environment: Mapping[str, str] | None = None) -> Child:
        """Start a program; its stderr goes to a file."""
        self._count += 1
        mark = f"{self._mark}-{self._count:04}"
        log = self.folder / f"child-{self._count}.log"
        child = Child(command, mark, log, {**(environment or {}), MARK: mark})
        self._started.append(child)
        return child

    def __enter__(self) -> Children:
        return self

    def __exit__(self, *_: object) -> None:
        """End everything, also what was started while others were killed."""
        while found := list(marked(self._mark)):
            for pid in found:
                kill(pid)
        for child in self._started:
            child.close()


class Child:
    """One program; `lines` gets what it writes to stdout, and None at its end."""

    def __init__(self, command: Sequence[str], mark: str, log: Path, environment: Mapping[str, str]) -> None:
        self.mark = mark
        self._log = log
        with log.open("w") as errors:
            self.process = subprocess.Popen(
                command,
                cwd=log.parent,  # not the repository, which Python would import from
                env={**os.environ, **environment},
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                text=True,
            )
        self.lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def tell(self, line: str) -> None:
        """Write a line to its stdin."""
        assert self.process.stdin is not None
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()

    def next_line(self, seconds: float) -> str | None:
        """The next line on stdout within so many seconds, else None; AssertionError with its errors if it has ended."""
        try:
            line = self.lines.get(timeout=max(0.0, seconds))
        except queue.Empty:
            return None
        assert line is not None, f"{self.process.args!r} ended with {self.process.wait(END_S_MAX)}:\n{self.errors()}"
        return line

    def log_with(self, pattern: str, seconds: float = READY_S_MAX) -> str:
        """What the pattern's group matches on stderr; AssertionError if it doesn't in time."""
        deadline_s = monotonic_s() + seconds
        while not (found := re.search(pattern, self._log.read_text(errors="replace"))):
            assert monotonic_s() < deadline_s, self.errors()
            self.next_line(LOOK_S)
        return found[1]

    def line_with(self, pattern: str, seconds: float = READY_S_MAX) -> str:
        """What the pattern's group matches in the next line that has it; AssertionError if none comes in time."""
        deadline_s = monotonic_s() + seconds
        while (line := self.next_line(deadline_s - monotonic_s())) is not None:
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"{self.process.args!r} said no {pattern!r} in {seconds} s:\n{self.errors()}")

    def errors(self) -> str:
        """The end of what it wrote to stderr."""
        return self._log.read_text(errors="replace")[-8000:]

    def pids(self) -> list[int]:
        """Itself and what it has started, as far as they live."""
        return list(marked(self.mark))

    def close(self) -> None:
        """Let go of its pipes; it has ended."""
        self.process.wait(END_S_MAX)
        self._reader.join(END_S_MAX)
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()
        assert self.process.stdout is not None
        self.process.stdout.close()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.put(line.rstrip("\n"))
        self.lines.put(None)


class Broker:
    """`emubus serve` on a data folder, always on the same port.

    Queues by name with their properties; topics as the configuration file has them.
    """

    def __init__(
        self,
        children: Children,
        queues: Mapping[str, Mapping[str, object]],
        topics: Sequence[Mapping[str, object]] = (),
    ) -> None:
        self._children = children
        self.port = free_port()
        entities = [{"Name": name, "Properties": properties} for name, properties in queues.items()]
        namespaces = [{"Name": "sbemulatorns", "Queues": entities, "Topics": list(topics)}]
        config = {"UserConfig": {"Namespaces": namespaces, "Logging": {"Type": "Console"}}}
        (children.folder / "Config.json").write_text(json.dumps(config))
        self._child = self._start()

    @property
    def connection_string(self) -> str:
        """What clients want to know."""
        return (
            f"Endpoint=sb://localhost:{self.port};SharedAccessKeyName=RootManageSharedAccessKey;"
            "SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;"
        )

    def crash(self) -> None:
        """`kill -9`, and start again."""
        kill(self._child.process.pid)
        self._child = self._start()

    def _start(self) -> Child:
        folder = self._children.folder
        command = [sys.executable, "-P", "-m", "emubus", "serve", "--durability", "process", "--log-level", "info"]
        command += ["--data", str(folder / "data"), "--config", str(folder / "Config.json")]
        child = self._children.start([*command, "--amqp-port", str(self.port), "--http-port", "0"])
        child.line_with("(Emulator Service is Successfully Up!)")
        return child


class Driver:
    """`program.py` with a plan, started anew as often as it is killed."""

    def __init__(self, children: Children, plan: Mapping[str, Any]) -> None:
        self._children = children
        self._plan = json.dumps(plan)
        home = make_spark_home(children.folder / "spark")
        self._environment = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": home}
        self._child = self._start()

    def _start(self) -> Child:
        command = [sys.executable, "-P", str(HERE / "program.py"), self._plan]
        return self._children.start(command, self._environment)

    def crash(self) -> None:
        """`kill -9` of the driver, and start another one; its Python workers find out by themselves."""
        for pid in self._child.pids():
            if "-m" not in command_of(pid)[1:2]:  # Spark starts its Python workers as modules
                kill(pid)
        self.restart()

    def restart(self) -> None:
        """Start another one; the last one has ended."""
        self._child = self._start()

    def workers(self) -> list[int]:
        """The Python processes in which tasks run."""
        return [pid for pid in self._child.pids() if is_task_worker(pid)]

    def executors(self) -> list[int]:
        """The Java processes of executors, which only a master like `local-cluster[…]` has."""
        return [pid for pid in self._child.pids() if EXECUTOR in command_of(pid)]

    def finish(self) -> None:
        """Have it come to an end."""
        self._child.tell("finish")

    def next_event(self, seconds: float) -> Event | None:
        """What it tells next, within so many seconds."""
        deadline_s = monotonic_s() + seconds
        while (line := self._child.next_line(deadline_s - monotonic_s())) is not None:
            if line.startswith("{"):  # Java may have something to say, too
                return dict(json.loads(line))
        return None

    def wait_for(self, name: str, query: str, note: Callable[[Event], None], seconds: float = READY_S_MAX) -> bool:
        """Whether that event of the query comes in time; all that come until then are noted."""
        deadline_s = monotonic_s() + seconds
        while (event := self.next_event(deadline_s - monotonic_s())) is not None:
            note(event)
            if (event["event"], event["query"]) == (name, query):
                return True
        return False

    def errors(self) -> str:
        """The end of what the driver wrote to stderr."""
        return self._child.errors()


def is_task_worker(pid: int) -> bool:
    """Whether a process is a Python worker that runs tasks: forked by a daemon, so that both look alike."""
    command = command_of(pid)
    return command[1:] == ["-m", "pyspark.daemon", "pyspark.worker", ""] and command_of(parent_of(pid)) == command


def free_port() -> int:
    """A port on which nobody listens."""
    for port in random.sample(PORTS, 100):
        with socket.socket() as probe, contextlib.suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError("no port is free")


def kill(pid: int) -> None:
    """`kill -9`, and wait for the end."""
    with contextlib.suppress(ProcessLookupError):
        handle = os.pidfd_open(pid)
        try:
            signal.pidfd_send_signal(handle, signal.SIGKILL)
            ended = select.poll()
            ended.register(handle, select.POLLIN)
            assert ended.poll(END_S_MAX * 1000), f"process {pid} does not end"
        finally:
            os.close(handle)


def marked(mark: str) -> Iterator[int]:
    """Every living process whose mark begins so."""
    wanted = f"{MARK}={mark}".encode()
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit() and wanted in _of(folder / "environ"):
            yield int(folder.name)


def command_of(pid: int) -> list[str]:
    """A process's command line; nothing if it is gone."""
    return _of(Path("/proc") / str(pid) / "cmdline").decode(errors="replace").split("\0")


def parent_of(pid: int) -> int:
    """A process's parent; 0 if it is gone."""
    fields = _of(Path("/proc") / str(pid) / "stat").rpartition(b")")[2].split()
    return int(fields[1]) if fields else 0


def _of(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""
