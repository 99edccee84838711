"""What the sink's tests start from."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest

from emubus.spark_connector.sink import delivery
from emubus.testing import EmubusServer

from .kit import Rig


@pytest.fixture
def rig(server: EmubusServer) -> Iterator[Rig]:
    """The shared server; tests name their queues themselves, and these go with the test."""
    rig = Rig(server)
    yield rig
    rig.delete_created()


@pytest.fixture
def impatience(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], object]]:
    """Pauses take no time; what is in the list is done at the next ones, one at each."""
    todo: list[Callable[[], object]] = []

    def pause(seconds: float) -> None:
        if todo:
            todo.pop(0)()

    monkeypatch.setattr(delivery, "sleep", pause)
    monkeypatch.setattr(delivery, "backoff_s", lambda attempt: 0.0 if not todo else 0.01)
    return todo
