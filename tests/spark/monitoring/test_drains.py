"""The second drain of an entity on a machine."""

from __future__ import annotations

import fcntl
import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.spark_connector.monitoring import drains
from emubus.spark_connector.options import SourceOptions, source_options

CONNECTION = "Endpoint=sb://localhost:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"


@pytest.fixture(autouse=True)
def _folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    held: dict[Path, int] = {}
    monkeypatch.setattr(tempfile, "gettempdir", lambda: str(tmp_path))
    monkeypatch.setattr(drains, "_held", held)
    yield
    for file in held.values():
        os.close(file)


def options(queue: str) -> SourceOptions:
    return source_options({"connectionString": CONNECTION, "queue": queue, "mode": "drain"}, streaming=True)


def test_a_drain_of_an_entity_that_another_process_drains_names_that_process(caplog: pytest.LogCaptureFixture) -> None:
    path = drains.note_path(options("orders"))
    with path.open("w") as other:
        fcntl.flock(other, fcntl.LOCK_EX)
        other.write("process 77, started by process 5,\n")
        other.flush()
        drains.announce_drain(options("ORDERS"))
        drains.announce_drain(options("others"))
    assert [message.partition(".")[0] for message in caplog.messages] == [
        "ORDERS: process 77, started by process 5, drains it, too"
    ]


def test_one_process_and_a_process_that_ended_give_no_sign(caplog: pytest.LogCaptureFixture) -> None:
    path = drains.note_path(options("orders"))
    path.write_text("process 77, started by process 5, which has ended long ago\n")
    for _ in range(2):  # a query that starts again in this process
        drains.announce_drain(options("orders"))
    assert caplog.messages == []
    assert path.read_text() == f"process {os.getpid()}, started by process {os.getppid()},\n"


def test_another_users_file_is_left_alone(caplog: pytest.LogCaptureFixture) -> None:
    drains.note_path(options("orders")).symlink_to("/dev/null")
    with caplog.at_level("INFO", "emubus.spark"):
        drains.announce_drain(options("orders"))
    assert [message.partition(":")[2][:28] for message in caplog.messages] == [" it is not known whether ano"]
