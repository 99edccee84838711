"""One server per module, and the command line against it."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest
import structlog

from emubus.__main__ import main
from emubus.broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription
from emubus.testing import EmubusServer

ENTITIES = (
    QueueDescription("orders"),
    QueueDescription("parts", enable_partitioning=True),
    QueueDescription("carts", requires_session=True),
    TopicDescription("news"),
    SubscriptionDescription("news", "all"),
)


@dataclass(frozen=True)
class Ended:
    """How a command ended."""

    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """What it printed, decoded."""
        return json.loads(self.out)


@dataclass(frozen=True)
class CommandLine:
    """Runs commands in this process."""

    capsys: pytest.CaptureFixture[str]

    def __call__(self, *arguments: str) -> Ended:
        """Run a command, whatever its exit code."""
        try:
            code = main(arguments)
        except SystemExit as ended:
            code = ended.code if isinstance(ended.code, int) else 1
        found = self.capsys.readouterr()
        return Ended(code, found.out, found.err)

    def done(self, *arguments: str) -> str:
        """What a command prints that must succeed."""
        ended = self(*arguments)
        assert (ended.code, ended.err) == (0, "")
        return ended.out

    def json(self, *arguments: str) -> Any:
        """The JSON that a command prints that must succeed."""
        return json.loads(self.done(*arguments, "--json"))


@pytest.fixture(scope="module", autouse=True)
def _quiet() -> None:
    """Keep the log of the server out of what the commands print, whatever other tests have set."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))


@pytest.fixture(autouse=True)
def _log_as_before() -> Iterator[None]:
    """A start sets the log's handlers, whose stream ends with the test: later ones would fail on what SDKs log."""
    handlers, level = logging.root.handlers[:], logging.root.level
    yield
    logging.root.handlers[:] = handlers
    logging.root.setLevel(level)


@pytest.fixture(scope="module")
def module_server() -> Iterator[EmubusServer]:
    """In memory, with an entity of each kind."""
    with EmubusServer(ENTITIES) as running:
        yield running


@pytest.fixture
def server(module_server: EmubusServer) -> EmubusServer:
    """The server of the module, as at its start."""
    module_server.reset()
    return module_server


@pytest.fixture
def offline(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path_factory: pytest.TempPathFactory
) -> CommandLine:
    """The command line without a server in the environment, and without those that run on this machine."""
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path_factory.mktemp("runtime")))
    for name in (
        "EMUBUS_URL",
        "EMUBUS_CONNECTION_STRING",
        "EMUBUS_SAS_KEY",
        "EMUBUS_HTTP_PORT",
        "EMULATOR_HTTP_PORT",
        "EMUBUS_DATA",
        "EMUBUS_CA",
        "NO_COLOR",
    ):
        monkeypatch.delenv(name, raising=False)
    return CommandLine(capsys)


@pytest.fixture
def emubus(offline: CommandLine, server: EmubusServer, monkeypatch: pytest.MonkeyPatch) -> CommandLine:
    """The command line with the server in the environment."""
    monkeypatch.setenv("EMUBUS_URL", f"http://127.0.0.1:{server.http_port}")
    return offline
