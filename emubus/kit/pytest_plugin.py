"""The pytest plugin: fixtures that give each test a clean emubus; pytest finds it once emubus is installed.

Knows pytest's options and the life of the server: one per test process, started for the first test that uses it, and
reset before and after each such test. The report of a test that failed says what the broker knows of it. Does not know
how any of that is done (`in_process.py`, `remote.py`, `failure_report.py`), and imports it only then, so that other
test suites pay nothing for the plugin. It stands in the kit, not beside `testing.py`, which tests import: what pytest
loads is no name for them.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from .in_process import EmubusNamespace, EmubusServer
    from .manual_clock import ManualClock
    from .python_sdk import KeptClient
    from .remote import RemoteEmubus

    Emubus = EmubusServer | EmubusNamespace | RemoteEmubus

_SETTINGS: Final = {
    "config": "Config.json with the entities that every test starts with; default: one queue named queue.1",
    "profile": "limits and defaults to use: standard, premium, ms-emulator, relaxed; default: standard",
    "namespace": "the namespace of several that the tests use, of emubus_config or emubus_url; default: the first",
    "url": "a running emubus for the tests alone (they delete everything in it), such as http://localhost:5300",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add each setting as a command line option, which comes first, and to the configuration file."""
    group = parser.getgroup("emubus", "emubus, an Azure Service Bus emulator")
    for name, meaning in _SETTINGS.items():
        group.addoption(f"--emubus-{name}", metavar=name.upper(), default=None, help=meaning)
        parser.addini(f"emubus_{name}", meaning, type="string", default="")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Add the section *emubus* to the report of a test that failed: refusals, strikes, clock, what nobody took."""
    report = yield
    used: object = getattr(item, "funcargs", {}).get("emubus")
    if report.failed and report.when != "teardown" and used is not None:
        from .failure_report import failure_report
        from .verbs import Verbs

        if isinstance(used, Verbs) and (text := failure_report(used)):
            report.sections.append(("emubus", text))
    return report


@pytest.fixture(scope="session")
def emubus_server(request: pytest.FixtureRequest) -> Iterator[Emubus]:
    """The emubus of this test process, without resets; most tests use `emubus`."""
    with _running(request.config) as running:
        yield running


@pytest.fixture
def emubus(emubus_server: Emubus) -> Iterator[Emubus]:
    """An emubus with the entities of the configuration and no messages, no outages, no faults, and real time.

    What the test does to it is undone after the test.
    """
    emubus_server.reset()
    yield emubus_server
    emubus_server.reset()


@pytest.fixture
def servicebus_connection_string(emubus: Emubus) -> str:
    """The connection string of `emubus`."""
    return emubus.connection_string


@pytest.fixture(scope="session")
def _servicebus_client(emubus_server: Emubus) -> Iterator[KeptClient]:
    try:
        from .python_sdk import KeptClient
    except ImportError as error:
        pytest.fail(f"servicebus_client needs Python's SDK: pip install azure-servicebus ({error})", pytrace=False)
    client = KeptClient.from_connection_string(emubus_server.connection_string)
    with client:
        yield client


@pytest.fixture
def servicebus_client(emubus: Emubus, _servicebus_client: KeptClient) -> KeptClient:
    """A `ServiceBusClient` of `emubus`, one for the whole run; its senders and receivers close at once."""
    return _servicebus_client


@pytest.fixture
def emubus_clock(emubus: Emubus) -> ManualClock:
    """The clock of `emubus`, frozen until the test moves it with `advance`."""
    from .manual_clock import ManualClock

    return ManualClock(emubus)


@contextmanager
def _running(config: pytest.Config) -> Iterator[Emubus]:
    url, profile, namespace = (_setting(config, name) for name in ("url", "profile", "namespace"))
    config_file = _config_file(config)
    if url:
        _refuse_beside_url(config, config_file, profile)
        from .remote import RemoteEmubus

        remote = RemoteEmubus(url, namespace=namespace or None)
        remote.keep_story()
        yield remote
        return
    from ..config import ConfigError
    from .in_process import server_like

    try:
        server = server_like(config_file, profile or None)
    except ConfigError as error:
        pytest.fail(f"emubus can't start: {error}", pytrace=False)
    with server:
        yield server.namespace(namespace) if namespace else server


def _setting(config: pytest.Config, name: str) -> str:
    text: str | None = config.getoption(f"emubus_{name}")
    return str(config.getini(f"emubus_{name}")) if text is None else text


def _config_file(config: pytest.Config) -> Path | None:
    """A path on the command line is relative to the working directory, one in the configuration file to that file."""
    asked: str | None = config.getoption("emubus_config")
    if asked is not None:
        return config.invocation_params.dir / asked if asked else None
    base = config.rootpath if config.inipath is None else config.inipath.parent
    written = str(config.getini("emubus_config"))
    return base / written if written else None


def _refuse_beside_url(config: pytest.Config, config_file: Path | None, profile: str) -> None:
    for name, value in (("config", config_file), ("profile", profile)):
        if value:
            pytest.fail(f"emubus_{name} is {value}, but the emubus at emubus_url has its own", pytrace=False)
    worker_count = getattr(config, "workerinput", {}).get("workercount", 1)
    if worker_count > 1:
        pytest.fail(
            f"emubus_url names one emubus, and {worker_count} test processes would reset it under each other: "
            "leave it out, so that each starts its own, or run with -n 1",
            pytrace=False,
        )
