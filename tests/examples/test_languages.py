"""The programs of examples/ that send the first message, each run with the SDK that the tests of its language have."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Final

import pytest

from emubus.testing import EmubusServer, QueueDescription

from ..building import ROOT
from ..rounds import IS_LONG
from ..sdk.prepare import ALL_CLIENTS, DRIVERS, prepare
from ..toolchains import BRIEF_JAVA
from .dotnet import program

EXAMPLES = ROOT / "examples"
RUN_SECONDS_MAX = 300

Command = Callable[[Path], tuple[list[str], Path]]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription("queue.1")], tls_dir=tmp_path_factory.mktemp("tls")) as running:
        yield running


def run(command: list[str], folder: Path, variables: dict[str, str]) -> str:
    """What a program prints on stdout; it has to end with 0."""
    done = subprocess.run(
        command,
        cwd=folder,
        env={**os.environ, **variables},
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=RUN_SECONDS_MAX,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def python(_: Path) -> tuple[list[str], Path]:
    return [sys.executable, "hello.py"], EXAMPLES / "python"


def javascript(folder: Path) -> tuple[list[str], Path]:
    shutil.copy(EXAMPLES / "javascript" / "hello.mjs", folder)
    (folder / "node_modules").symlink_to(DRIVERS / "javascript" / "node_modules")
    return ["node", "hello.mjs"], folder


def java(folder: Path) -> tuple[list[str], Path]:
    source = EXAMPLES / "java" / "src" / "main" / "java" / "Hello.java"
    return ["java", *BRIEF_JAVA, "-cp", str(DRIVERS / "java" / "target" / "lib" / "*"), str(source)], folder


def go(folder: Path) -> tuple[list[str], Path]:
    for name in ("main.go", "go.mod", "go.sum"):
        shutil.copy(EXAMPLES / "go" / name, folder)
    return ["go", "run", "-mod=mod", "."], folder


def dotnet(folder: Path) -> tuple[list[str], Path]:
    return program("dotnet/hello/hello.csproj", folder), folder


def rust(folder: Path) -> tuple[list[str], Path]:
    shutil.copytree(EXAMPLES / "rust", folder, dirs_exist_ok=True)
    return ["cargo", "run", "--quiet"], folder


PROGRAMS: Final[Sequence[tuple[str | None, Command]]] = (
    ("python-sync", python),
    ("javascript", javascript),
    ("java", java),
    ("go", go),
    ("dotnet", dotnet),
    *([(None, rust)] if IS_LONG else []),  # it compiles for a minute
)


@pytest.mark.sdk
@pytest.mark.parametrize(("sdk", "command"), PROGRAMS)
def test_the_first_message_is_sent_and_received(
    sdk: str | None, command: Command, server: EmubusServer, tmp_path: Path
) -> None:
    if sdk is not None:
        prepare(ALL_CLIENTS[sdk])
    started, folder = command(tmp_path)
    variables = {
        "SERVICEBUS_CONNECTION_STRING": server.connection_string,
        "GOFLAGS": "-buildvcs=false",
        "AMQP_ADDRESS": f"amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@localhost:{server.amqp_port}",
    }
    assert run(started, folder, variables) == "received: hello\n"
    assert server.peek("queue.1") == []


@pytest.mark.sdk
def test_the_administration_client_of_python_creates_a_queue(server: EmubusServer) -> None:
    string = (
        f"Endpoint=sb://localhost:{server.http_port};SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=k"
    )
    variables = {"SERVICEBUS_ADMIN_CONNECTION_STRING": string}
    command = [sys.executable, "admin.py", str(server.ca_file)]
    assert run(command, EXAMPLES / "python", variables) == "created: orders\n"


@pytest.mark.sdk
def test_a_token_of_a_directory_is_accepted_over_tls(server: EmubusServer) -> None:
    variables = {"SERVICEBUS_ADDRESS": f"sb://localhost:{server.amqp_port}"}
    assert run([sys.executable, "credential.py", str(server.ca_file)], EXAMPLES / "python", variables) == "sent\n"
    assert [each.text for each in server.peek("queue.1")] == ["hello"]
    server.purge("queue.1")


@pytest.mark.parametrize(
    ("ours", "theirs", "line"),
    [
        ("javascript/package.json", "javascript/package.json", '"@azure/service-bus": "'),
        ("java/pom.xml", "java/pom.xml", "<version>7.17"),
        ("go/go.mod", "go/go.mod", "sdk/messaging/azservicebus v"),
    ],
)
def test_an_example_names_the_version_that_was_tried(ours: str, theirs: str, line: str) -> None:
    def named(path: Path) -> str:
        (found,) = (each.strip(" \t,") for each in path.read_text().splitlines() if line in each)
        return found.removeprefix("require ")

    assert named(EXAMPLES / ours) == named(DRIVERS / theirs)
