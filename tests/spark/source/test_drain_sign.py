"""The second drain of an entity on a machine."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.spark_connector.options import SourceOptions, source_options
from emubus.spark_connector.source import drain_sign

from ...programs import PROGRAM_S_MAX

# the process keeps tests that run beside each other apart
QUEUE = f"orders-{os.getpid()}"
CONNECTION = "Endpoint=sb://localhost:1;SharedAccessKeyName=k;SharedAccessKey=v;UseDevelopmentEmulator=true"
DRAIN = """
import sys
from emubus.spark_connector.source.drain_sign import announce_drain
from emubus.spark_connector.options import source_options
announce_drain(source_options({"connectionString": sys.argv[1], "queue": sys.argv[2], "mode": "drain"}, streaming=True))
print("drains", flush=True)
sys.stdin.read()
"""


@pytest.fixture(autouse=True)
def _signs(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    held: dict[str, int] = {}
    monkeypatch.setattr(drain_sign, "_held", held)
    yield
    for sign in held.values():
        os.close(sign)


def options(queue: str) -> SourceOptions:
    return source_options({"connectionString": CONNECTION, "queue": queue, "mode": "drain"}, streaming=True)


def test_a_drain_of_an_entity_that_another_process_drains_names_it_until_it_is_gone_and_leaves_no_file(
    caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", DRAIN, CONNECTION, QUEUE]
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"drains\n"
        drain_sign.announce_drain(options(QUEUE.upper()))
        drain_sign.announce_drain(options(f"{QUEUE}-other"))
        assert [message.partition(".")[0] for message in caplog.messages] == [
            f"{QUEUE.upper()}: process {other.pid} drains it, too"
        ]
        other.kill()  # without a chance to clean up
        other.wait(PROGRAM_S_MAX)
    drain_sign.announce_drain(options(QUEUE))
    assert len(caplog.messages) == 1
    assert list(tmp_path.iterdir()) == []


def test_one_process_gives_no_sign(caplog: pytest.LogCaptureFixture) -> None:
    for _ in range(2):  # a query that starts again in this process
        drain_sign.announce_drain(options(QUEUE))
    assert caplog.messages == []


def test_a_drain_goes_on_where_signs_are_forbidden(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbidden(*_: object) -> socket.socket:
        raise OSError(errno.EPERM, "not permitted")

    monkeypatch.setattr(socket, "socket", forbidden)
    with caplog.at_level("INFO", "emubus.spark"):
        drain_sign.announce_drain(options(QUEUE))
    assert [message.partition(":")[2][:28] for message in caplog.messages] == [" it is not known whether ano"]
