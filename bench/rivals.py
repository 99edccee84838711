"""Brokers of other projects that emubus is compared with: RabbitMQ and Apache Artemis.

Knows how to install what can be installed without a person, how to start them apart from those of the system, and the
addresses of their queues. RabbitMQ gets its own name, ports, port mapper, home and plugin list, so that it does not
touch a node of the system.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from starting import BENCH, Broker, BrokerError, Emubus, Floor, Sink, end, free_ports

RABBITMQ_READY: Final = "Starting broker... completed with"
RABBITMQ_BIN: Final = Path("/usr/lib/rabbitmq/bin")
"""RabbitMQ's scripts; Debian's wrappers around them would use the user and folders of the system's node."""

ARTEMIS: Final = BENCH / "artemis"
BUILD_TIMEOUT_S: Final = 600


class RabbitMQ(Broker):
    """Debian's RabbitMQ with its AMQP 1.0 plugin, as installed; a single node."""

    name = "rabbitmq"
    # https://www.rabbitmq.com/confirms.html: persistent messages are confirmed when they are on the disk; for outcomes
    # nothing is confirmed.
    answered = "send: it is on the disk (its store, synced in groups); a settlement has no answer and no sync"
    user = "guest"
    password = "guest"

    _DECLARE: Final = (
        "Declare = fun(Name, Arguments) -> rabbit_amqqueue:declare("
        'rabbit_misc:r(<<"/">>, queue, Name), true, false, Arguments, none, Name) end, '
        'Declare(<<"classic">>, []), '
        'Declare(<<"quorum">>, [{<<"x-queue-type">>, longstr, <<"quorum">>}]), '
        "os:getpid()."
    )

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self._environment: dict[str, str] = {}
        self._port_mapper: subprocess.Popen[bytes] | None = None
        self._pid = 0

    @staticmethod
    def missing() -> str:
        """What is missing to run it, in a sentence; empty if nothing is."""
        if (RABBITMQ_BIN / "rabbitmq-server").exists() and shutil.which("epmd") is not None:
            return ""
        return "RabbitMQ is not installed: apt-get install rabbitmq-server"

    @property
    def note(self) -> str:
        """Its version."""
        return f"RabbitMQ {self._control('version').strip()} with its plugin for AMQP 1.0"

    @property
    def pid(self) -> int:
        """The Erlang machine, not the shell script around it."""
        return self._pid

    def start(self) -> float:
        """See `Broker`. The time includes the port mapper but not the declaration of the queues."""
        self.port, node_port, mapper_port = free_ports(3)
        self._write_settings(node_port, mapper_port)
        mapper = ["epmd", "-port", str(mapper_port), "-address", "127.0.0.1"]
        self._port_mapper = subprocess.Popen(mapper, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        seconds = self.launch([str(RABBITMQ_BIN / "rabbitmq-server")], RABBITMQ_READY, self._environment)
        self._pid = int(self._control("eval", self._DECLARE).strip().strip('"'))
        return seconds

    def stop(self) -> None:
        """Ask the node to stop, then make sure."""
        if self.process is not None and self.process.poll() is None and self._pid:
            self._control("stop")
        self._pid = 0
        super().stop()
        end(self._port_mapper)
        self._port_mapper = None

    def address(self, kind: str, size_bytes: int) -> str:
        """`classic` (durable) or `quorum` (one replica), both declared at start."""
        return f"/amq/queue/{kind}"

    def _write_settings(self, node_port: int, mapper_port: int) -> None:
        folder = self.folder
        (folder / "plugins").write_text("[rabbitmq_amqp1_0].")
        (folder / "rabbitmq.conf").write_text(f"listeners.tcp.1 = 127.0.0.1:{self.port}\n")
        (folder / "environment.conf").write_text("")
        (folder / "home").mkdir(exist_ok=True)
        self._environment = {
            "PATH": os.environ["PATH"],
            "HOME": str(folder / "home"),
            "LANG": "C.UTF-8",
            "RABBITMQ_NODENAME": "bench@localhost",
            "RABBITMQ_MNESIA_BASE": str(folder / "data"),
            "RABBITMQ_LOG_BASE": str(folder / "logs"),
            "RABBITMQ_ENABLED_PLUGINS_FILE": str(folder / "plugins"),
            "RABBITMQ_CONFIG_FILE": str(folder / "rabbitmq.conf"),
            "RABBITMQ_CONF_ENV_FILE": str(folder / "environment.conf"),
            "RABBITMQ_DIST_PORT": str(node_port),
            "ERL_EPMD_PORT": str(mapper_port),
            "ERL_EPMD_ADDRESS": "127.0.0.1",
        }

    def _control(self, *words: str) -> str:
        command = [str(RABBITMQ_BIN / "rabbitmqctl"), "-n", "bench@localhost", *words]
        done = subprocess.run(
            command, env=self._environment, cwd=self.folder, capture_output=True, text=True, timeout=60
        )
        if done.returncode != 0:
            raise BrokerError(f"rabbitmqctl {words[0]}: {done.stdout}{done.stderr}")
        return done.stdout


class Artemis(Broker):
    """Apache Artemis with its defaults, in a Java process of ours that Maven builds from `artemis/`."""

    name = "artemis"
    # https://activemq.apache.org/components/artemis/documentation/latest/send-guarantees.html: journal-sync-* are true.
    answered = "send and settlement: both are on the disk (its journal, synced in groups)"

    @staticmethod
    def missing() -> str:
        """What is missing to run it, in a sentence; empty if nothing is. Builds it if that was not done yet."""
        tools = [tool for tool in ("javac", "mvn") if shutil.which(tool) is None]
        if tools:
            return f"Artemis needs {' and '.join(tools)}: apt-get install openjdk-17-jdk-headless maven"
        built = ARTEMIS / "target" / "native"
        sources = [ARTEMIS / "pom.xml", *(ARTEMIS / "src").rglob("*.java")]
        if built.is_dir() and all(source.stat().st_mtime <= built.stat().st_mtime for source in sources):
            return ""
        done = subprocess.run(
            ["mvn", "-q", "-B", "package"], cwd=ARTEMIS, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S
        )
        if done.returncode != 0:
            return f"Maven could not build Artemis: {(done.stdout + done.stderr).strip()[-500:]}"
        built.touch()
        return ""

    @property
    def note(self) -> str:
        """Its version, and how it writes to the disk."""
        version = next((ARTEMIS / "target" / "lib").glob("artemis-server-*.jar")).stem.rpartition("-")[2]
        journal = "AIO" if "ready AIO" in self.log.read_text() else "NIO, because libaio can't be loaded here"
        return f"Artemis {version}, journal {journal}"

    def start(self) -> float:
        """See `Broker`."""
        (self.port,) = free_ports(1)
        target = ARTEMIS / "target"
        libraries = f"-Djava.library.path={target / 'native' / 'lib' / 'linux-x86_64'}"
        classes = f"{target / 'artemis.jar'}:{target / 'lib'}/*"
        words = [
            libraries,
            "-Xms512M",
            "-Xmx2G",
            "-cp",
            classes,
            "bench.Main",
            str(self.port),
            str(self.folder / "data"),
        ]
        return self.launch(["java", *words], "ready ")

    def address(self, kind: str, size_bytes: int) -> str:
        """It has one queue."""
        return "queue"


BROKERS: Final[Mapping[str, type[Broker]]] = {each.name: each for each in (Emubus, RabbitMQ, Artemis, Sink, Floor)}

KINDS: Final[Mapping[str, tuple[str, ...]]] = {
    "emubus": ("plain", "partitioned"),
    "rabbitmq": ("classic",),
    "artemis": ("durable",),
    "sink": ("ceiling",),
    "floor": ("floor",),
}
"""The measured queues of each broker, the ordinary one first."""


def made(name: str, folder: Path, durability: str) -> Broker:
    """A broker by its name; the durability is for those that have a choice."""
    if name == Emubus.name:
        return Emubus(folder, durability)
    if name == Floor.name:
        return Floor(folder, "full" if durability == "full" else "process")
    return BROKERS[name](folder)
