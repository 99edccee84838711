"""`kill -9` while messages are sent and settled: what was acknowledged holds.

For every seed: a peer sends to a partitioned and an unpartitioned queue and completes some of what it gets; the broker
dies at a named step of a commit or at a random moment; after the restart every acknowledged message is there once, no
confirmed settlement comes back, and the data folder is sound.
"""

from __future__ import annotations

import random
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from proton.handlers import MessagingHandler
from proton.reactor import AtMostOnce, Container

from emubus.config import FAILPOINT_NAMES

from .load import Load, Told, run_until_killed
from .server import ServerProcess, check

QUEUES = ["plain", "parts"]
MESSAGES_MAX = 3000
SEEDS = range(52)
QUIET_S = 0.3


def scenario(seed: int) -> tuple[random.Random, list[str], float | None]:
    """How this seed dies: the server's options, and after how many seconds a plain kill comes (None: a failpoint)."""
    numbers = random.Random(seed)
    names = (*FAILPOINT_NAMES, None)
    name = names[seed % len(names)]
    durability = ("full", "process")[seed % 2]
    options = ["--durability", durability]
    if name is None:
        return numbers, options, numbers.uniform(0.05, 0.5)
    return numbers, [*options, "--failpoint", f"{name}:{numbers.randint(1, 120)}"], None


def run_and_kill(data: Path, seed: int) -> Told:
    _, options, delay_s = scenario(seed)
    server = ServerProcess(data, *options)
    load = Load(server.url, QUEUES, f"s{seed}", MESSAGES_MAX)
    timer = threading.Timer(3.0 if delay_s is None else delay_s, server.process.kill)
    timer.start()
    try:
        told = run_until_killed(load)
    finally:
        timer.cancel()
        server.process.kill()
        server.wait()
    assert "Traceback" not in server.log, server.log
    return told


class Collect(MessagingHandler):
    """Receives and deletes everything from both queues; ends when nothing came for a while."""

    def __init__(self, url: str) -> None:
        super().__init__(prefetch=500)
        self.url = url
        self.found: Counter[str] = Counter()
        self._seen_before = -1

    def on_start(self, event: Any) -> None:
        connection = event.container.connect(self.url, reconnect=False, allowed_mechs="ANONYMOUS")
        for queue in QUEUES:
            event.container.create_receiver(connection, queue, options=AtMostOnce())
        event.container.schedule(QUIET_S, self)

    def on_message(self, event: Any) -> None:
        self.found[str(event.message.id)] += 1

    def on_timer_task(self, event: Any) -> None:
        seen = sum(self.found.values())
        if seen == self._seen_before:
            event.container.stop()
            return
        self._seen_before = seen
        event.container.schedule(QUIET_S, self)


def collect(data: Path) -> Counter[str]:
    server = ServerProcess(data, "--durability", "process")
    try:
        collector = Collect(server.url)
        Container(collector).run()
        return collector.found
    finally:
        assert server.stop() == 0


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, seed: int) -> None:
    data = tmp_path / "data"
    told = run_and_kill(data, seed)
    check(data)
    found = collect(data)
    assert [name for name, times in found.items() if times > 1] == []
    missing = told.accepted - told.settling - set(found)
    assert missing == set()
    assert told.settled & set(found) == set()
    assert told.refused == []
    check(data)


def test_a_load_really_gets_acknowledgements(tmp_path: Path) -> None:
    """The tests above would pass with a broker that never answers; this one would not."""
    server = ServerProcess(tmp_path / "data", "--durability", "process")
    load = Load(server.url, QUEUES, "x", 400)
    threading.Timer(2.0, server.process.kill).start()
    told = run_until_killed(load)
    server.wait()
    assert len(told.accepted) == 400
    assert len(told.settled) > 50
