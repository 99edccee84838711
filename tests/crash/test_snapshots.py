"""Snapshots under load, `kill -9`, restore: the namespace is as it was at the snapshot."""

from __future__ import annotations

import http.client
import json
import random
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from ..rounds import rounds
from .load import BrokerAnswers, Load, run_until_killed
from .server import ServerProcess, check
from .test_kill import QUEUES

MESSAGES_MAX = 40_000  # more than are sent before the kill
WAIT_S = 600

Serve = Callable[..., ServerProcess]


class Confirmations:
    """Waits, in the thread of the test, for what the broker confirms to the thread that sends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._answers = BrokerAnswers()

    def more(self, answers: BrokerAnswers) -> None:
        """One more confirmation has come."""
        with self._changed:
            self._answers = answers
            self._changed.notify()

    def wait_for(self, is_enough: Callable[[BrokerAnswers], bool]) -> None:
        """Until what is confirmed is enough."""
        with self._changed:
            assert self._changed.wait_for(lambda: is_enough(self._answers), WAIT_S)


@pytest.fixture
def serve() -> Iterator[Serve]:
    """Starts servers; none outlives the test."""
    started: list[ServerProcess] = []

    def start(data: Path, *options: str) -> ServerProcess:
        started.append(ServerProcess(data, *options))
        return started[-1]

    yield start
    for server in started:
        if server.process.poll() is None:
            server.kill()


def ask(server: ServerProcess, method: str, path: str) -> Any:
    """A request to the control API, which every port answers."""
    connection = http.client.HTTPConnection("127.0.0.1", server.port, timeout=WAIT_S)
    try:
        connection.request(method, f"/emubus/v1{path}")
        answer = connection.getresponse()
        content = json.loads(answer.read())
        assert answer.status in (200, 201), content
        return content
    finally:
        connection.close()


def stored(server: ServerProcess) -> dict[str, int]:
    """Every message by its id, with its sequence number."""
    found: dict[str, int] = {}
    for queue in QUEUES:
        first: int | None = 0
        while first is not None:
            page = ask(server, "GET", f"/entities/{queue}/messages?count=250&from_sequence_number={first}")
            for message in page["messages"]:
                name = message["properties"]["message_id"]
                assert name not in found
                found[name] = message["sequence_number"]
            first = page["next_sequence_number"]
    return found


def number_of(name: str) -> int:
    """The number in a message's id."""
    return int(name.partition("-")[2])


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(1, 40)))
def test_a_snapshot_under_load_is_what_a_restore_after_a_kill_brings_back(
    serve: Serve, tmp_path: Path, seed: int
) -> None:
    data = tmp_path / "data"
    durability = ("second", "full", "process")[seed % 3]
    server = serve(data, "--durability", durability)
    confirmations = Confirmations()
    load = Load(server.url, QUEUES, f"s{seed}", MESSAGES_MAX, confirmations.more)
    sending = threading.Thread(target=run_until_killed, args=(load,))
    sending.start()
    confirmations.wait_for(lambda answers: len(answers.accepted) >= 200 + 300 * seed)
    accepted_before = set(load.answers.accepted)
    taken = ask(server, "PUT", "/snapshots/s")
    sent_until = load._sent
    settling_until = set(load.answers.settling)
    later = {f"s{seed}-{number}" for number in range(sent_until + 100, MESSAGES_MAX)}
    confirmations.wait_for(lambda answers: not later.isdisjoint(answers.accepted))
    server.kill()
    sending.join()

    server = serve(data, "--durability", durability)
    after_kill = stored(server)
    assert ask(server, "POST", "/snapshots/s/restore") == taken
    restored = stored(server)
    assert len(restored) == taken["message_count"]
    assert accepted_before - settling_until <= set(restored)
    assert max(map(number_of, restored)) < sent_until
    assert set(restored) != set(after_kill)
    server.kill()
    check(data)

    server = serve(data, "--durability", durability)
    assert stored(server) == restored
    assert server.stop() == 0
    check(data)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(rounds(1, 60)))
def test_a_kill_in_the_middle_of_a_restore_leaves_one_namespace_or_the_other(
    serve: Serve, tmp_path: Path, seed: int
) -> None:
    data = tmp_path / "data"
    server = serve(data, "--durability", "process")
    ask(server, "PUT", "/snapshots/empty")
    confirmations = Confirmations()
    load = Load(server.url, QUEUES, "x", 2_000, confirmations.more)
    sending = threading.Thread(target=run_until_killed, args=(load,))
    sending.start()
    confirmations.wait_for(lambda answers: len(answers.accepted) == 2_000)
    ask(server, "PUT", "/snapshots/full")
    ask(server, "POST", "/snapshots/full/restore")  # the peer has lost its links, and settles no more
    full = set(stored(server))
    before, after = ("full", "empty") if seed % 2 else ("empty", "full")
    ask(server, "POST", f"/snapshots/{before}/restore")
    numbers = random.Random(seed)
    timer = threading.Timer(numbers.uniform(0.0, 0.06), server.process.kill)
    timer.start()
    try:
        ask(server, "POST", f"/snapshots/{after}/restore")
    except (OSError, http.client.HTTPException, ValueError):
        pass
    timer.join()
    server.wait()
    sending.join()
    check(data)
    server = serve(data, "--durability", "process")
    assert set(stored(server)) in (full, set())
    assert server.stop() == 0
    check(data)
