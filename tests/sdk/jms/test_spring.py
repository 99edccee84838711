"""Spring Cloud Azure's starter for JMS, on Premium and on Standard: its templates, and listeners whose links break.

The starter takes a connection string and connects to port 5671, whatever port that names.
"""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import takewhile
from pathlib import Path
from typing import Final, Self

import pytest

from emubus.kit.remote import RemoteEmubus
from emubus.tls import FOLDER

from ...building import build
from ...crash.server import ServerProcess
from ...toolchains import BRIEF_JAVA
from .prepare import BUILDS, spring_jar

pytestmark = [pytest.mark.sdk, pytest.mark.slow]

PORT: Final = 5671
LOCK: Final = Path(tempfile.gettempdir()) / "emubus-tests-5671.lock"
CONFIG: Final = '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [{"Name": "template"}]}]}}'
SUBSCRIPTIONS: Final = ("news/Subscriptions/own$spring$D", "news/Subscriptions/shared$spring$D")
ATTACHED: Final = ("orders", "poison", "questions", *SUBSCRIPTIONS)
LOG: Final = "-Dorg.slf4j.simpleLogger.defaultLogLevel=off"


@pytest.fixture
def port() -> Iterator[int]:
    """The port; other runs of the tests on this machine wait for it."""
    with LOCK.open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield PORT


@contextmanager
def serving(port: int, profile: str, folder: Path, tls_folder: Path) -> Iterator[int]:
    """A server that also listens on the port, with the CA of `tls_folder`; its own port."""
    shutil.copytree(tls_folder / FOLDER, folder / FOLDER)
    options = ("--profile", profile, "--tls", "dev", "--tls-port", str(port))
    process = ServerProcess(folder, *options, config=CONFIG)
    try:
        yield process.port
    finally:
        process.kill()


class Program:
    """The Java program. It stops where it asks for something, until an answer comes."""

    def __init__(self, trust: list[str]) -> None:
        build("the program with Spring's starter", BUILDS["spring-jms"])
        command = ("java", *BRIEF_JAVA, *trust, LOG, "-jar", str(spring_jar()))
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def said(self, asked: str) -> list[str]:
        """What it says before it asks for this, or ends."""
        assert self._process.stdout is not None
        lines = (line.rstrip("\n") for line in self._process.stdout)
        return list(takewhile(lambda line: line != asked, lines))

    def answer(self, text: str) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(f"{text}\n")
        self._process.stdin.flush()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.communicate()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("jms_client", ["spring-jms"])
def test_templates_and_listeners_of_the_starter_go_on_when_their_connections_and_links_break(
    jms_client: str, port: int, tls_folder: Path, trust: list[str], tmp_path: Path
) -> None:
    with Program(trust) as program:
        with serving(port, "premium", tmp_path / "premium", tls_folder) as own_port:
            server = RemoteEmubus(f"http://localhost:{own_port}")
            assert program.said("drop") == []
            assert server.drop_connections() == 1  # a pool has one connection
            program.answer("dropped")
            assert program.said("detach") == []
            assert [path for path in ATTACHED if not server.drop_links(path)] == []
            program.answer("detached")
            assert program.said("port") == [
                "after: after after",
                "again: again again",
                "before: before before",
                "orders: 20",
                "poison: 10 p",
                "request-reply: question answer",
                "selector: urgent other",
                "template: hello",
            ]
            program.answer(str(own_port))
            assert program.said("standard") == ["own: plain"]
        with serving(port, "standard", tmp_path / "standard", tls_folder):
            program.answer("there it is")
            assert program.said("nothing more") == ["standard: plain"]
