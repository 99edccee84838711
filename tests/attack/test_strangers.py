"""While a client without a key does its worst, another client's sends stay quick and the server's memory small.

The one place where elapsed time is asserted, because delay is what is tested. The machine may be slow: then the limits
are higher (`slowness`). It may be busy, and what the kernel does is not the server's doing: so the slowest send is
judged by what the event loop computed during it, and the usual one by its time without the waits for a processor. The
kernel does not count all of these (what travels between sockets waits, too), so the slowest time is only printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from statistics import median

import pytest

from ..rounds import rounds
from .attacker import KINDS

HERE = Path(__file__).parent
COMPUTED_MS_MAX = 300
USUAL_MS_MAX = 100
MEMORY_MIB_MAX = 400
SECONDS = rounds(1.0, 20.0)
"""How long each attack takes."""
END_S = 600.0
WATCHED: Mapping[str, object] = {"Queues": [{"Name": "watched"}], "Topics": []}
READY_LINE = "Emulator Service is Successfully Up!"

ATTEMPTS = 2

Sends = list[dict[str, float]]
Figures = Mapping[str, float]


class NotReadyError(Exception):
    """A program has ended before it was ready."""


class Guarded:
    """`emubus serve` in a process of its own, with `entities`."""

    def __init__(
        self,
        folder: Path,
        *options: str,
        auth: str = "sas",
        durability: str = "none",
        entities: Mapping[str, object] = WATCHED,
    ) -> None:
        config = folder / "Config.json"
        config.write_text(json.dumps({"UserConfig": {"Namespaces": [{"Name": "ns", **entities}]}}))
        self.log = folder / "log"
        command = [
            sys.executable,
            "-P",
            "-m",
            "emubus",
            "serve",
            "--auth",
            auth,
            "--amqp-port",
            "0",
            "--http-port",
            "0",
        ]
        command += ["--config", str(config), "--data", str(folder / "data"), "--durability", durability, *options]
        with self.log.open("w") as log:
            self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True, cwd=folder)
        assert self.process.stdout is not None
        assert self.process.stdout.readline().strip() == READY_LINE, self.log.read_text()
        self.port = int(self.log.read_text().split("amqp_port=")[1].split()[0])

    def forget_memory(self) -> None:
        """Count the most memory from now on."""
        Path(f"/proc/{self.process.pid}/clear_refs").write_text("5")

    @property
    def memory_mib(self) -> int:
        """The most memory that the process has had since."""
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
    if program.stdout.readline().strip() != "ready":
        program.communicate(timeout=END_S)
        raise NotReadyError(f"{program.args!r} has ended with {program.returncode}")


def result(program: subprocess.Popen[str]) -> str:
    output, _ = program.communicate(timeout=END_S)
    assert program.returncode == 0
    return output


def computed_ms(sends: Sends) -> float:
    """The most that the event loop computed during a send, in milliseconds.

    While the watcher waits for a processor, the server goes on with other clients: that is taken off.
    """
    return 1000 * max(each["loop_s"] - each["own_waited_s"] for each in sends)


def usual_ms(sends: Sends) -> float:
    """How long a send usually takes, without what the server and the watcher had to wait for a processor."""
    return 1000 * median(each["elapsed_s"] - each["server_waited_s"] - each["own_waited_s"] for each in sends)


def judge(server: Guarded, attempt: Callable[[], Figures], limits: Mapping[str, float]) -> None:
    """Judge the figures of an attempt by their limits, and of a second one if the first is over.

    A hypervisor may stop the machine for a second, or for half a minute, in which clients are cut off that have yet to
    open. The kernel does not always know it, and counts that time as ours: in one of some hundred attempts the slowest
    send of a kind that takes 20 ms took 0.4 to 3.1 s. What the server does itself it does again.
    """
    reports: list[str] = []
    while len(reports) < ATTEMPTS:
        try:
            figures = attempt()
        except NotReadyError as error:
            reports.append(f"{error}, server: {server.log.read_text()[-2_000:]}")
            continue
        over = [name for name, limit in limits.items() if figures[name] >= limit]
        if not over:
            return
        reports.append(f"{', '.join(over)} of {figures}")
    pytest.fail("; ".join(reports))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """One for all attacks: what an attack leaves behind would tell in the next."""
    guarded = Guarded(tmp_path_factory.mktemp("guarded"), "--tls", "dev")
    yield guarded
    guarded.stop()


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize("kind", KINDS)
def test_a_stranger_delays_nobody_and_fills_no_memory(server: Guarded, kind: str, slowness: float) -> None:
    def attempt() -> Figures:
        server.forget_memory()
        watcher = start("watcher.py", server.port, server.process.pid, SECONDS + 1)
        ready(watcher)
        attacker = start("attacker.py", kind, server.port, SECONDS)
        sends: Sends = json.loads(result(watcher))
        done = json.loads(result(attacker))
        figures = {
            "computed_ms": round(computed_ms(sends)),
            "usual_ms": round(usual_ms(sends)),
            "elapsed_ms_max": round(1000 * max(each["elapsed_s"] for each in sends)),
            "memory_mib": server.memory_mib,
        }
        sys.stdout.write(json.dumps({"kind": kind, **figures, "sends": len(sends), **done}) + "\n")
        assert done["connects"] > 0
        return figures

    limits = {"computed_ms": COMPUTED_MS_MAX * slowness, "usual_ms": USUAL_MS_MAX * slowness}
    judge(server, attempt, {**limits, "memory_mib": MEMORY_MIB_MAX})
