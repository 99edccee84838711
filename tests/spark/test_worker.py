"""What is done once to the process that runs tasks."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from pyspark import TaskContext

from emubus.spark_connector import worker


@pytest.fixture(autouse=True)
def _collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process that has not begun any task, and the collector as it was."""
    monkeypatch.setattr(worker, "_begun_count", 0)
    gc.unfreeze()
    yield
    gc.unfreeze()


def test_the_first_two_tasks_have_the_collector_spare_what_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(TaskContext, "get", lambda: "a task")
    spared = []
    for _ in range(4):
        worker.freeze_gc()
        spared.append(gc.get_freeze_count() > 1000)
        gc.unfreeze()
    assert spared == [True, True, False, False]


def test_outside_of_tasks_the_collector_is_left_alone() -> None:
    worker.freeze_gc()
    assert gc.get_freeze_count() == 0
