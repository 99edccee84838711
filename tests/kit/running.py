"""Processes that the tests of this folder look at from outside: pytest with the plugin, and `emubus serve`."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from xml.etree.ElementTree import Element, parse

from emubus.logging import READY_LINE

PYTEST_S_MAX = 600
STOP_S_MAX = 120
# The plugins that the tests ask for and no others, as each costs time at every start.
ALONE = {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
PLUGINS = ("emubus", "asyncio")
SETTINGS = ("-W", "error", "-p", "no:cacheprovider")
OF_PLUGINS = {"asyncio": ("-o", "asyncio_default_fixture_loop_scope=function")}


@dataclass(frozen=True)
class Finished:
    """What pytest said: the outcome of each test (with the text of what went wrong), its output and exit code."""

    tests: Mapping[str, str]
    output: str
    code: int


def run_pytest(folder: Path, *arguments: str, plugins: tuple[str, ...] = PLUGINS) -> Finished:
    """Run pytest on the tests in a folder, in a process of its own."""
    report = folder / "report.xml"
    command = [sys.executable, "-P", "-m", "pytest", *SETTINGS, f"--junitxml={report}"]
    options = [option for plugin in plugins for option in ("-p", plugin, *OF_PLUGINS.get(plugin, ()))]
    done = subprocess.run(
        [*command, *options, *arguments],
        cwd=folder,
        env={**os.environ, **ALONE},
        capture_output=True,
        text=True,
        timeout=PYTEST_S_MAX,
        check=False,
    )
    tests = {}
    if report.exists():
        tests = {str(case.get("name")): _outcome(case) for case in parse(report).getroot().iter("testcase")}
    return Finished(tests, done.stdout + done.stderr, done.returncode)


def _outcome(case: Element) -> str:
    for kind in ("failure", "error"):
        found = case.find(kind)
        if found is not None:
            return f"{kind}: {found.text}"
    return "passed"


@dataclass(frozen=True)
class Served:
    """A running `emubus serve`."""

    process: subprocess.Popen[str]
    log_path: Path
    amqp_port: int
    http_port: int

    @property
    def url(self) -> str:
        """Of its control API."""
        return f"http://127.0.0.1:{self.http_port}"

    @property
    def log(self) -> str:
        """What it has logged so far."""
        return self.log_path.read_text()


@contextmanager
def serving(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Iterator[Served]:
    """Run `emubus serve`, in memory and on free ports, until the end of the block."""
    served = start_serving(folder, *options, environment=environment)
    try:
        yield served
    finally:
        stop_serving(served)


def start_serving(folder: Path, *options: str, environment: Mapping[str, str] | None = None) -> Served:
    """Start `emubus serve`, and wait until it says that it is ready."""
    log_path = folder / "emubus.log"
    command = [sys.executable, "-P", "-m", "emubus", "serve", "--amqp-port", "0", "--http-port", "0"]
    asked = {"EMUBUS_DURABILITY": "none", **(environment or {})}
    with log_path.open("w") as log:
        process = subprocess.Popen(
            [*command, *options], cwd=folder, stdout=subprocess.PIPE, stderr=log, text=True, env={**os.environ, **asked}
        )
    assert process.stdout is not None
    line = process.stdout.readline().strip()
    ports = {name: int(port) for name, port in re.findall(r"\b(amqp_port|http_port)=(\d+)", log_path.read_text())}
    if line != READY_LINE:
        process.kill()
        raise AssertionError(f"emubus did not start: {line} {log_path.read_text()}")
    return Served(process, log_path, **ports)


def stop_serving(served: Served) -> int:
    """Let it stop; its exit code."""
    served.process.terminate()
    code = served.process.wait(STOP_S_MAX)
    assert served.process.stdout is not None
    served.process.stdout.close()
    return code
