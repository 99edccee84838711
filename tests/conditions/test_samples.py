"""The programs of examples/conditions: the one that survives a bad day, and the line that does not."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from emubus.testing import EmubusServer, QueueDescription

from ..building import ROOT
from ..examples.dotnet import program
from ..sdk.prepare import ALL_CLIENTS, DRIVERS, prepare
from ..toolchains import BRIEF_JAVA

SAMPLES = ROOT / "examples" / "conditions"
QUEUE = "queue.1"
RUN_S_MAX = 300

Command = Callable[[Path], list[str]]

pytestmark = [pytest.mark.sdk, pytest.mark.slow]


@pytest.fixture(scope="module")
def server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription(QUEUE)]) as running:
        yield running


def python(_: Path) -> list[str]:
    return [sys.executable, str(SAMPLES / "survive.py")]


def javascript(folder: Path) -> list[str]:
    shutil.copy(SAMPLES / "survive.mjs", folder)
    (folder / "node_modules").symlink_to(DRIVERS / "javascript" / "node_modules")
    return ["node", "survive.mjs"]


def java(_: Path) -> list[str]:
    libraries = str(DRIVERS / "java" / "target" / "lib" / "*")
    return ["java", *BRIEF_JAVA, "-cp", libraries, str(SAMPLES / "Survive.java")]


def go(folder: Path) -> list[str]:
    shutil.copy(SAMPLES / "go" / "survive.go", folder)
    for name in ("go.mod", "go.sum"):
        shutil.copy(ROOT / "examples" / "go" / name, folder)
    subprocess.run(["go", "build", "-mod=mod", "-buildvcs=false", "-o", "survive", "."], cwd=folder, check=True)
    return ["./survive"]


def dotnet(folder: Path) -> list[str]:
    return program("conditions/survive.csproj", folder)


@pytest.mark.parametrize(
    ("sdk", "command"),
    [("python-sync", python), ("javascript", javascript), ("java", java), ("go", go), ("dotnet", dotnet)],
)
def test_one_program_survives_and_the_other_loses_the_order(
    sdk: str, command: Command, server: EmubusServer, tmp_path: Path
) -> None:
    def run(*arguments: str) -> tuple[int, str]:
        variables = {**os.environ, "SERVICEBUS_CONNECTION_STRING": server.connection_string}
        done = subprocess.run(
            [*started, *arguments], cwd=tmp_path, env=variables, capture_output=True, text=True, timeout=RUN_S_MAX
        )
        return done.returncode, done.stdout

    prepare(ALL_CLIENTS[sdk])
    started = command(tmp_path)
    server.reset()
    with server.conditions("phantom-not-found", ms=3_600_000):
        assert run("fragile")[0] != 0
    assert server.peek(QUEUE) == []
    with ExitStack() as bad_day:
        conditions = [
            bad_day.enter_context(server.conditions("phantom-not-found", count=2, ms=3_600_000)),
            bad_day.enter_context(server.conditions("accept-lost", count=1, then="cut")),
            bad_day.enter_context(server.conditions("lock-lost", count=1)),
        ]
        assert run() == (0, "done: order 7\n")
        assert [each.report.struck_count for each in conditions] == [2, 1, 1]
    assert server.peek(QUEUE) == []
