"""Lines of the log where nothing sets up logging: with time, level, query, batch and partition."""

from __future__ import annotations

import logging
import re
import subprocess
import sys

import pytest

from emubus.spark_connector import logs

from ..programs import PROGRAM_S_MAX

PROGRAM = """
import logging, sys
from emubus.spark_connector.logs import show_logs
show_logs()
show_logs()
log = logging.getLogger("emubus.spark")
log.info("not shown")
log.warning("%s", "alone")
logging.basicConfig(format="own %(message)s")
log.warning("%s", "set up")
"""


def test_lines_have_time_and_level_until_a_program_sets_up_logging_and_come_once() -> None:
    done = subprocess.run(
        [sys.executable, "-P", "-W", "error", "-c", PROGRAM],
        capture_output=True,
        text=True,
        timeout=PROGRAM_S_MAX,
        check=True,
    )
    alone, own = done.stderr.splitlines()
    assert re.fullmatch(r"\d\d/\d\d/\d\d \d\d:\d\d:\d\d WARNING emubus\.spark: alone", alone)
    assert own == "own set up"


class Context:
    """A task, as Spark tells it."""

    def __init__(self, properties: dict[str, str]) -> None:
        self._properties = properties

    def partitionId(self) -> int:  # noqa: N802
        return 3

    def attemptNumber(self) -> int:  # noqa: N802
        return 1

    def getLocalProperty(self, key: str) -> str | None:  # noqa: N802
        return self._properties.get(key)


@pytest.mark.parametrize(
    ("properties", "where"),
    [
        ({logs.QUERY_ID: "q", logs.BATCH_ID: "7"}, " [query q batch 7 partition 3 attempt 1]"),
        ({}, " [partition 3 attempt 1]"),
    ],
)
def test_a_line_of_a_task_names_it(monkeypatch: pytest.MonkeyPatch, properties: dict[str, str], where: str) -> None:
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: Context(properties))
    record = logging.LogRecord("emubus.spark", logging.WARNING, "", 0, "text", (), None)
    assert logs.ResortHandler().format(record).endswith(f"WARNING emubus.spark:{where} text")


def test_outside_of_a_task_a_line_names_none() -> None:
    assert logs.where() == ""
