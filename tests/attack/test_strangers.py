"""While a client without a key does its worst, another client's sends stay quick and the server's memory small.

The one place where elapsed time is asserted, because delay is what is tested. The machine may be slow: then the limit
is higher (`slowness`). It may be busy: the time for which the server or the watcher could run and the kernel let others
run is not the server's doing, and is taken off. What the server's event loop computed during a send counts in any case.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..rounds import rounds
from .attacker import KINDS

HERE = Path(__file__).parent
SLOWEST_MS_MAX = 300
MEMORY_MIB_MAX = 400
SECONDS = rounds(2.0, 20.0)
"""How long each attack takes."""
END_S = 600.0
READY_LINE = "Emulator Service is Successfully Up!"

Sends = list[dict[str, float]]


class Guarded:
    """`emubus serve --auth sas` in a process of its own."""

    def __init__(self, folder: Path, *options: str) -> None:
        config = folder / "Config.json"
        config.write_text(
            '{"UserConfig": {"Namespaces": [{"Name": "ns", "Queues": [{"Name": "watched"}], "Topics": []}]}}'
        )
        self.log = folder / "log"
        command = [
            sys.executable,
            "-P",
            "-m",
            "emubus",
            "serve",
            "--auth",
            "sas",
            "--amqp-port",
            "0",
            "--http-port",
            "0",
        ]
        command += ["--config", str(config), "--data", str(folder / "data"), "--durability", "none", *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == READY_LINE, self.log.read_text()
        self.port = int(self.log.read_text().split("amqp_port=")[1].split()[0])

    @property
    def memory_mib(self) -> int:
        """The most memory that the process has had."""
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return int(status.split("VmHWM:")[1].split()[0]) // 1024

    def stop(self) -> None:
        self.process.terminate()
        self.process.communicate(timeout=END_S)


def start(program: str, *arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-P", str(HERE / program), *map(str, arguments)]
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True)


def ready(program: subprocess.Popen[str]) -> None:
    assert program.stdout is not None
    assert program.stdout.readline().strip() == "ready"


def result(program: subprocess.Popen[str]) -> str:
    output, _ = program.communicate(timeout=END_S)
    assert program.returncode == 0
    return output


def slowest_ms(sends: Sends) -> float:
    """The slowest send, without what the server and the watcher had to wait for a processor."""
    return 1000 * max(max(each["loop_s"], each["elapsed_s"] - each["waited_s"]) for each in sends)


@pytest.fixture
def server(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path, *(("--tls", "dev") if request.node.callspec.params["kind"] == "tls-stall" else ()))
    yield guarded
    guarded.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_delays_nobody_and_fills_no_memory(server: Guarded, kind: str, slowness: float) -> None:
    watcher = start("watcher.py", server.port, server.process.pid, SECONDS + 1)
    ready(watcher)
    attacker = start("attacker.py", kind, server.port, SECONDS)
    sends: Sends = json.loads(result(watcher))
    done = json.loads(result(attacker))
    elapsed_ms = round(1000 * max(each["elapsed_s"] for each in sends))
    figures = {"slowest_ms": round(slowest_ms(sends)), "memory_mib": server.memory_mib, "elapsed_ms": elapsed_ms}
    sys.stdout.write(json.dumps({"kind": kind, **figures, "sends": len(sends), **done}) + "\n")
    assert done["connects"] > 0
    assert figures["slowest_ms"] < SLOWEST_MS_MAX * slowness, figures
    assert figures["memory_mib"] < MEMORY_MIB_MAX, figures
