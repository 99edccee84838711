"""How tests are spread over processes: what takes long to start is started in as few of them as can be.

Knows which tests share something, and which process takes which next: see `scheduler`. Spark is started once, as is
the browser. The tests of an SDK go to processes that run its driver already: a driver takes a second of processor
time or two to start, and six processes that run tests of eight SDKs each would start 48.
(pytest-xdist's own marks for this reach its scheduler as part of test names, which newer versions of pytest don't let
it change.)
"""

from __future__ import annotations

import functools
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from .sdk.prepare import ALL_CLIENTS, CLIENTS

if TYPE_CHECKING:
    from xdist.remote import Producer
    from xdist.scheduler import LoadScopeScheduling
    from xdist.workermanage import WorkerController

ROOT = Path(__file__).resolve().parents[1]
TOGETHER: Final = {"spark": re.compile(r"\bspark: SparkSession\b"), "browser": re.compile(r"\btab: Tab\b")}
"""What is started once for all tests that need it, and the parameter by which their files are known."""
_DRIVERS: Final = re.compile(r"\bdrivers: Drivers\b")
ALL_DRIVERS: Final = "all drivers"
"""The scope of tests that need the drivers of all SDKs: they are started for them once."""
_CLIENT: Final = re.compile(
    rf"[\[-]({'|'.join(re.escape(name) for name in sorted(ALL_CLIENTS, key=len, reverse=True))})[-\]]"
)


@functools.cache
def _text_of(file: str) -> str:
    path = ROOT / file
    return path.read_text() if path.is_file() else ""


@functools.cache
def group_of(file: str) -> str | None:
    """What the tests of this file (relative to the repository) share with those of others, if anything."""
    return next((name for name, parameter in TOGETHER.items() if parameter.search(_text_of(file))), None)


def needs_spark(file: str) -> bool:
    """Whether tests of this file (relative to the repository) use the shared Spark session."""
    return group_of(file) == "spark"


@functools.cache
def scope_of(test: str) -> str:
    """Which tests run in one process, one after the other.

    Those of a group, those that need the drivers of all SDKs, those of a file that need the driver of one; else this
    test alone.
    """
    file = test.partition("::")[0]
    if group := group_of(file):
        return group
    if not file.startswith("tests/sdk/"):
        return test
    if _DRIVERS.search(_text_of(file)):
        return ALL_DRIVERS
    client = _CLIENT.search(test)
    return test if client is None else f"{client[1]} {file}"


def client_of(scope: str) -> str | None:
    """The SDK whose driver the tests of a scope need; None if they need none, or those of all."""
    client = scope.partition(" ")[0]
    return client if client in ALL_CLIENTS else None


def next_scope(waiting: Mapping[str, Collection[str]], mine: Collection[str], running: Iterable[str]) -> str:
    """Which of the scopes that wait a process takes, by the tests in each.

    `mine` are the SDKs whose drivers it runs, `running` those of all processes, one by one. One of its own SDKs
    comes first, with the most tests, as it takes longest; then one that needs no driver, in the order in which they
    wait; then one of the SDK of which each process that runs its driver has most to do.
    """
    own = [scope for scope in waiting if client_of(scope) in mine]
    if own:
        return max(own, key=lambda scope: len(waiting[scope]))
    without = next((scope for scope in waiting if client_of(scope) is None), None)
    if without is not None:
        return without
    left: Counter[str | None] = Counter()
    for scope, tests in waiting.items():
        left[client_of(scope)] += len(tests)
    drivers = Counter[str | None](running)
    most = max(left, key=lambda client: left[client] / (1 + drivers[client]))
    return max((scope for scope in waiting if client_of(scope) == most), key=lambda scope: len(waiting[scope]))


def scheduler(config: pytest.Config, log: Producer) -> LoadScopeScheduling:
    """The scheduler of pytest-xdist for `--dist loadgroup`."""
    from xdist.scheduler import LoadScopeScheduling

    class Together(LoadScopeScheduling):  # type: ignore[misc]  # xdist is untyped
        def __init__(self) -> None:
            super().__init__(config, log)
            self._clients: dict[WorkerController, list[str]] = {}

        def _split_scope(self, nodeid: str) -> str:
            return scope_of(nodeid)

        def _assign_work_unit(self, node: WorkerController) -> None:
            mine = self._clients.setdefault(node, [])
            running = [client for each in self.nodes for client in self._clients.get(each, ())]
            scope = next_scope(self.workqueue, mine, running)
            client = client_of(scope)
            needed = CLIENTS if scope == ALL_DRIVERS else [client] if client is not None else []
            mine.extend(each for each in needed if each not in mine)
            self.workqueue.move_to_end(scope, last=False)  # xdist takes the first
            super()._assign_work_unit(node)

    return Together()
