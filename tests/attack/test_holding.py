"""Peers make the server hold memory: the ledger says so, its caps hold, the process stays small, and all of it goes.

Peers x kinds of memory. What is judged is the most memory that the process has had, and what others had to wait for: by
the server's own account (`test_strangers.py` says how).
"""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest

from ..rounds import rounds
from .holder import KEY, KINDS, PEERS, ROOT
from .test_strangers import (
    COMPUTED_MS_MAX,
    MEMORY_MIB_MAX,
    Figures,
    Guarded,
    Sends,
    computed_ms,
    judge,
    ready,
    result,
    start,
)

ROOT_FOLDER = Path(__file__).parents[2]
SECONDS = rounds(0.4, 20.0)
EVERYTHING_MAX = 192 << 20
OVERSHOOT = 1.5
"""How far above its cap a sum may be: accounts grow by a step, and by what was under way, before they are held."""
LOOKS_MAX = 100_000
CASES = [
    (peer, kind)
    for peer in PEERS
    for kind in KINDS
    if SECONDS > 1 or peer == "known" or kind in {"fragments", "inflated", "bodies"}
]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    # On a disk, and with room for it: what is stored, gigabytes of `pipelined`, is not memory that is held for a peer.
    entities = {"Queues": [{"Name": "watched", "Properties": {"MaxSizeInMegabytes": 5120}}], "Topics": []}
    folder = tmp_path_factory.mktemp("holding")
    guarded = Guarded(folder, "--tls", "dev", durability="second", entities=entities)
    yield guarded
    guarded.stop()


def held(server: Guarded) -> dict[str, int]:
    """What the server says that it holds."""
    request = urllib.request.Request(f"http://127.0.0.1:{server.port}/emubus/v1/memory")
    request.add_header("Authorization", "Basic " + base64.b64encode(f"{ROOT}:{KEY}".encode()).decode())
    with urllib.request.urlopen(request, timeout=60) as answer:
        found = json.load(answer)
    assert isinstance(found, dict)
    return {"bytes": found["bytes"], "sockets": found["sockets"], "strangers": found["strangers"]}


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize(("peer", "kind"), CASES)
def test_what_is_held_for_a_peer_is_bounded_and_goes_with_it(
    server: Guarded, peer: str, kind: str, slowness: float
) -> None:
    command = [sys.executable, "-m", "tests.attack.holder", peer, kind, str(server.port), str(SECONDS)]

    def attempt() -> Figures:
        server.forget_memory()
        watcher = start("watcher.py", server.port, server.process.pid, SECONDS + 0.5)
        ready(watcher)
        holder = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT_FOLDER)
        sends: Sends = json.loads(result(watcher))
        most = held(server)
        done = json.loads(result(holder))
        figures = {"computed_ms": round(computed_ms(sends)), "memory_mib": server.memory_mib, **most}
        sys.stdout.write(json.dumps({"peer": peer, "kind": kind, **figures, **done}) + "\n")
        assert done["connects"] > 0
        return figures

    limits = {"computed_ms": COMPUTED_MS_MAX * slowness, "memory_mib": MEMORY_MIB_MAX}
    judge(server, attempt, {**limits, "bytes": EVERYTHING_MAX * OVERSHOOT})
    left = held(server)
    for _ in range(LOOKS_MAX):  # one that is held learns of its closed socket once it is not held any more
        if left["sockets"] <= 1:  # the one that asks
            break
        left = held(server)
    assert left["sockets"] <= 1, left
    assert left["bytes"] < 1 << 20, left
