"""What holds for all tests: servers are checked when they close, which tests can run here, how they are spread.

Tests whose toolchain or browser can't be had here are deselected, and a table at the end says so (see `toolchains`).
"""

from __future__ import annotations

import gc
import time
from collections.abc import Callable, Generator, Iterator
from contextlib import AbstractContextManager, contextmanager
from functools import wraps
from typing import TYPE_CHECKING, Final

import pytest
from hypothesis import settings

from emubus.testing import EmubusServer

from .checking import check_partitions
from .scheduling import scheduler
from .sdk.prepare import ALL_CLIENTS, build_name
from .toolchains import table, unavailable

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling

settings.register_profile("emubus", deadline=None)  # no verdict depends on the machine's speed
settings.load_profile("emubus")
LOOP_CPU_S: Final = 0.08
"""What `loop_cpu_s` is on the machine on which the tests' limits of processor time were set."""


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling | None:
    """The scheduler for `--dist loadgroup`; None leaves the others to xdist."""
    if config.getvalue("dist") != "loadgroup":
        return None
    return scheduler(config, log)


@pytest.fixture(scope="session", autouse=True)
def state_stays_here(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """The certificate authorities that tests make are not noted among those of this machine's user."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(scope="session", autouse=True)
def servers_are_checked() -> Iterator[None]:
    """Checks the invariants of all partitions of every `EmubusServer` of this process before it closes."""
    close = EmubusServer.close

    @wraps(close)
    def checked_close(self: EmubusServer) -> None:
        try:
            if self._thread.is_alive():  # `close` may be called again
                self.run(check_partitions(self.server.broker))
        finally:
            close(self)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(EmubusServer, "close", checked_close)
        yield


def loop_cpu_s() -> float:
    """The processor time of a loop of a million turns."""
    began_s, total = time.process_time(), 0
    for number in range(1_000_000):
        total = (total * 31 + number) & 0xFFFF
    return time.process_time() - began_s


@pytest.fixture(scope="session")
def slowness() -> float:
    """How many times more processor time this machine takes than the one on which limits were set; at least 1."""
    return max(1.0, min(loop_cpu_s() for _ in range(3)) / LOOP_CPU_S)


@pytest.fixture
def cpu_limit(slowness: float) -> Callable[[float], AbstractContextManager[None]]:
    """`with cpu_limit(seconds)`: what is inside takes less processor time than that, times `slowness`."""

    @contextmanager
    def limit(seconds: float) -> Iterator[None]:
        began_s = time.process_time()
        yield
        assert time.process_time() - began_s < seconds * slowness

    return limit


def builds_of(item: pytest.Item) -> set[str | None]:
    """The names of the builds that a test can't do without, as `unavailable` has them; None stands for nothing."""
    fixtures = {"browser": "browser", "axe": "node-tools", "node_tools": "node-tools"}
    named = {build for name, build in fixtures.items() if name in getattr(item, "fixturenames", ())}
    return {build_of(item), *named}


def build_of(item: pytest.Item) -> str | None:
    """The build of a test's SDK or of Spark; None if it needs none."""
    callspec = getattr(item, "callspec", None)
    client = None if callspec is None else callspec.params.get("sdk")
    if client in ALL_CLIENTS:
        return build_name(client)
    if callspec is not None and "jms_client" in callspec.params:
        return str(callspec.params["jms_client"])
    fixtures = getattr(item, "fixturenames", ())
    if "spark40" in fixtures:
        return "spark-4.0"
    if "spark" in fixtures or "/spark/acceptance/" in item.nodeid:
        return "spark"
    return None


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the tests of what can't be had on this machine."""
    missing = unavailable()
    left_out = {item for item in items if not builds_of(item).isdisjoint(missing)}
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Let the garbage collector pass by what is collected here: thousands of tests that stay."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.collect()
        gc.freeze()
        gc.enable()


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """The closing table of what was not run."""
    missing = unavailable()
    if missing:
        terminalreporter.section("not run on this machine")
        terminalreporter.line(table(missing))
