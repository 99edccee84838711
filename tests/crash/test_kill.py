"""`kill -9` while messages are sent and settled: what was acknowledged holds.

For every seed: a peer sends to a partitioned and an unpartitioned queue and completes some of what it gets; the broker
dies at a named step of a commit or at a random moment; after the restart every acknowledged message is there once, no
confirmed settlement comes back, and the data folder is sound.
"""

from __future__ import annotations

import itertools
import random
from collections import Counter
from pathlib import Path

import pytest

from emubus.config import FAILPOINT_NAMES
from emubus.testing import Durability, EmubusServer

from ..checking import check_partitions
from ..rounds import rounds
from .load import BrokerAnswers, Load, run_until_killed
from .server import ServerProcess, check

QUEUES = ["plain", "parts"]
MESSAGES_MAX = 800
SEEDS = range(rounds(3, 520))


def scenario(seed: int) -> tuple[list[str], int]:
    """How this seed dies: the server's options, and after how many confirmations a plain kill comes.

    A failpoint of the options comes before that, or never.
    """
    numbers = random.Random(seed)
    names = (*FAILPOINT_NAMES, None)
    name = names[seed % len(names)]
    options = ["--durability", ("second", "full", "process")[seed // len(names) % 3]]
    if name is None:
        return options, numbers.randint(1, MESSAGES_MAX)
    return [*options, "--failpoint", f"{name}:{numbers.randint(1, 120)}"], MESSAGES_MAX


def run_and_kill(data: Path, seed: int) -> BrokerAnswers:
    options, kill_at = scenario(seed)
    server = ServerProcess(data, *options)
    count = itertools.count(1)

    def confirmed(_: BrokerAnswers) -> None:
        if next(count) == kill_at:
            server.process.kill()

    try:
        answers = run_until_killed(Load(server.url, QUEUES, f"s{seed}", MESSAGES_MAX, confirmed))
    finally:
        server.process.kill()
        server.wait()
    assert "Traceback" not in server.log, server.log
    return answers


def collect(data: Path) -> Counter[str]:
    """How often each message is in the queues, once the folder is opened again; nothing is waited for."""
    with EmubusServer(data_dir=data, durability=Durability.PROCESS) as server:
        server.run(check_partitions(server.server.broker))
        return Counter(str(message.properties["message_id"]) for queue in QUEUES for message in server.peek(queue))


@pytest.mark.slow
@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_acknowledged_survives_a_kill(tmp_path: Path, seed: int) -> None:
    data = tmp_path / "data"
    answers = run_and_kill(data, seed)
    check(data)
    found = collect(data)
    assert [name for name, times in found.items() if times > 1] == []
    missing = answers.accepted - answers.settling - set(found)
    assert missing == set()
    assert answers.settled & set(found) == set()
    assert answers.refused == []
    check(data)


def test_a_load_really_gets_acknowledgements(tmp_path: Path) -> None:
    """The tests above would pass with a broker that never answers; this one would not end."""
    server = ServerProcess(tmp_path / "data", "--durability", "process")

    def confirmed(answers: BrokerAnswers) -> None:
        if len(answers.accepted) == 400 and len(answers.settled) > 50:
            server.process.kill()

    answers = run_until_killed(Load(server.url, QUEUES, "x", 400, confirmed))
    server.wait()
    assert len(answers.accepted) == 400
    assert len(answers.settled) > 50
