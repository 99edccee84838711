"""A client with a key that sends one message after the other: `python watcher.py PORT PID SECONDS`.

Writes, as JSON, for each send: `elapsed_s`, how long it took; `loop_s`, how long the event loop of the server (process
PID) had a processor meanwhile; `server_waited_s` and `own_waited_s`, how long the server's threads and this process
could have run meanwhile but were not let. The kernel counts both for each thread (`schedstat`, nanoseconds).
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

from proton import ConnectionException, Message, Timeout
from proton.utils import BlockingConnection

PAUSE_S = 0.01
SEND_S_MAX = 60.0
CONNECTS_MAX = 3

pause = threading.Event().wait
"""Lets the machine do something else for some seconds."""


def times_ns(task: Path) -> tuple[int, int]:
    """How long a thread had a processor, and how long it waited for one; nothing of a thread that has ended."""
    try:
        ran, waited, _ = (task / "schedstat").read_text().split()
    except (FileNotFoundError, ProcessLookupError):  # a thread for work aside ends when it has none
        return 0, 0
    return int(ran), int(waited)


class Meter:
    """What the server's threads and this process have used and lacked so far."""

    def __init__(self, pid: int) -> None:
        self._loop = Path(f"/proc/{pid}/task/{pid}")
        self._threads = [each for each in Path(f"/proc/{pid}/task").iterdir() if each != self._loop]
        self._own = Path(f"/proc/self/task/{os.getpid()}")

    def read(self) -> tuple[int, int, int]:
        """For how long the server's loop ran, its threads waited, and this process waited, in nanoseconds."""
        ran, waited = times_ns(self._loop)
        return ran, waited + sum(times_ns(each)[1] for each in self._threads), times_ns(self._own)[1]


def connected(port: int) -> BlockingConnection:
    """A connection; opening it is not judged, and may be tried again: a machine may have stood still meanwhile."""
    for left in reversed(range(CONNECTS_MAX)):
        try:
            return BlockingConnection(
                f"amqp://RootManageSharedAccessKey:SAS_KEY_VALUE@127.0.0.1:{port}",
                timeout=SEND_S_MAX,
                allowed_mechs="PLAIN",
                allow_insecure_mechs=True,
            )
        except (ConnectionException, Timeout):
            if not left:
                raise
    raise AssertionError("it has returned or raised")


def sends(port: int, pid: int, seconds: float) -> list[dict[str, float]]:
    connection = connected(port)
    sender = connection.create_sender("watched")
    sender.send(Message(body=b"first"))
    meter = Meter(pid)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    found: list[dict[str, float]] = []
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        before = meter.read()
        started = time.monotonic()
        sender.send(Message(body=b"x" * 100))
        elapsed_s = time.monotonic() - started
        loop_s, server_waited_s, own_waited_s = (
            (now - then) / 1e9 for now, then in zip(meter.read(), before, strict=True)
        )
        found.append(
            {
                "elapsed_s": elapsed_s,
                "loop_s": loop_s,
                "server_waited_s": server_waited_s,
                "own_waited_s": own_waited_s,
            }
        )
        pause(PAUSE_S)
    connection.close()
    return found


def main() -> None:
    port, pid, seconds = int(sys.argv[1]), int(sys.argv[2]), float(sys.argv[3])
    sys.stdout.write(json.dumps(sends(port, pid, seconds)))


if __name__ == "__main__":
    main()
