"""Tests that share something run in one process, and those of an SDK where its driver runs already."""

from __future__ import annotations

from collections import deque

import pytest

from .scheduling import ALL_DRIVERS, client_of, next_scope, scope_of
from .sdk.prepare import CLIENTS

FILE = "tests/sdk/test_send.py"


@pytest.mark.parametrize(
    ("test", "scope"),
    [
        (f"{FILE}::test_x[java-partitioned]", f"java {FILE}"),
        (f"{FILE}::test_x[partitioned-python-sync-7.14.3]", f"python-sync-7.14.3 {FILE}"),
        (f"{FILE}::test_x[single-python-sync-partitioned]", f"python-sync {FILE}"),
        (f"{FILE}::test_x[partitioned]", f"{FILE}::test_x[partitioned]"),
        ("tests/sdk/test_across.py::test_x[java-partitioned]", ALL_DRIVERS),
        ("tests/sdk/test_idle.py::test_x[partitioned]", ALL_DRIVERS),
        ("tests/examples/test_languages.py::test_x[java]", "tests/examples/test_languages.py::test_x[java]"),
        ("tests/spark/test_programs.py::test_x", "spark"),
        ("tests/web/test_page.py::test_x", "browser"),
        ("tests/web/test_requests.py::test_x", "tests/web/test_requests.py::test_x"),
    ],
)
def test_tests_that_share_something_are_a_scope(test: str, scope: str) -> None:
    assert scope_of(test) == scope


def test_what_needs_no_driver_comes_first_in_its_order() -> None:
    waiting = {"java a": "xx", "slow": "x", "quick": "x"}
    assert next_scope(waiting, [], []) == "slow"


def test_a_process_goes_on_with_its_sdk_and_its_longest_file() -> None:
    waiting = {"slow": "x", "java a": "x", "java b": "xx", "go a": "xxx"}
    assert next_scope(waiting, ["java"], ["java"]) == "java b"


def test_a_process_takes_the_sdk_of_which_each_driver_has_most_to_do() -> None:
    waiting = {"java a": "xxx", "java b": "xxxx", "go a": "xxxxx"}
    assert next_scope(waiting, [], []) == "java b"
    assert next_scope(waiting, [], ["java"]) == "go a"
    assert next_scope(waiting, ["python-aio"], ["java", "go", "python-aio"]) == "java b"


def test_few_drivers_are_started_for_all_tests() -> None:
    waiting = {f"{client} {file}": "x" * (3 + file) for client in CLIENTS for file in range(30)}
    processes = deque[list[str]]([] for _ in range(10))
    while waiting:
        mine = processes[0]
        scope = next_scope(waiting, mine, [client for each in processes for client in each])
        del waiting[scope]
        client = client_of(scope)
        assert client is not None
        if client not in mine:
            mine.append(client)
        processes.rotate()
    assert sum(map(len, processes)) < 2 * len(CLIENTS) + len(processes)
