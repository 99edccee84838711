"""One round of `kill -9` on a namespace that uses everything, and its judgement; many of them on the command line.

    python -m tests.crash.namespace_rounds --rounds 1000 --jobs 2

A round: all entities are made; the peers of `namespace_load` send, settle and commit; the broker dies at a step of a
commit or at a random moment; the folder is checked, opened again, every schedule falls due, forwarding comes to rest;
then each message must be where it belongs. Nobody waits for quiet: the rest is counted in messages that are under way.
"""

from __future__ import annotations

import argparse
import random
import shutil
import sys
import tempfile
import threading
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Final

from emubus.broker.admin.verify import check_data_folder
from emubus.config import FAILPOINT_NAMES
from emubus.testing import Durability, EmubusServer

from ..broker.namespace import loop_turns
from ..checking import check_partitions
from .namespace_load import (
    DEAD_LETTERS,
    ENTITIES,
    LEDGER_NEW,
    LEDGER_OLD,
    PLACES,
    Confirmed,
    LedgerLoad,
    NamespaceLoad,
    run,
)
from .server import ServerProcess

MESSAGES_MAX: Final = 900
CONFIRMATIONS: Final = (20, 880)  # after how many of them a kill at a random moment comes
UNDER_WAY: Final = ("forwarding", "chain", "news", "small-news")
TURNS_MAX: Final = 200_000
ROUNDS_PER_POOL: Final = 40  # a client's threads keep some memory after each round: then new processes begin
NO_ENTITIES = '{"UserConfig": {"Namespaces": [{"Name": "sbemulatorns", "Queues": [], "Topics": []}]}}'

Found = Counter[tuple[str, str, str]]  # (entity, sub-queue, message id) → copies


def run_and_kill(data: Path, seed: int) -> Confirmed:
    """Run the peers on a new data folder until the broker dies as the seed says; what it confirmed."""
    chance = random.Random(seed)
    names = (*FAILPOINT_NAMES, None)
    name = names[seed % len(names)]
    with EmubusServer(ENTITIES, data_dir=data, durability=Durability.PROCESS):
        pass
    options = ["--durability", ("second", "full", "process")[seed % 3]]
    if name is not None:
        options += ["--failpoint", f"{name}:{chance.randint(1, 700)}"]
    server = ServerProcess(data, *options, config=NO_ENTITIES)
    kill_at = MESSAGES_MAX if name is not None else chance.randint(*CONFIRMATIONS)
    load = NamespaceLoad(server.url, seed, MESSAGES_MAX, server.process.kill, kill_at)
    peers = [
        threading.Thread(target=run, args=(handler,)) for handler in (load, LedgerLoad(server.url, load.confirmed))
    ]
    try:
        for peer in peers:
            peer.start()
        for peer in peers:
            peer.join()
    finally:
        server.process.kill()
        server.wait()
    assert "Traceback" not in server.log, server.log
    return load.confirmed


def collect(data: Path) -> Found:
    """Open the folder, let everything fall due and be forwarded; all messages, by where they are."""
    with EmubusServer(data_dir=data, durability=Durability.PROCESS) as server:
        server.advance(timedelta(hours=2))
        for _ in range(TURNS_MAX // 100):
            if not any(sum(server.message_counts(path).values()) for path in UNDER_WAY):
                break
            server.run(loop_turns(100))
        server.run(check_partitions(server.server.broker))
        return Counter(
            (path, sub_queue, str(message.properties["message_id"]))
            for path in [getattr(each, "path", None) or each.name for each in ENTITIES]
            for sub_queue in ("active", "dead-letter")
            if not (path in ("news", "small-news") and sub_queue == "dead-letter")
            for message in server.peek(path, sub_queue)
        )


def judge(confirmed: Confirmed, found: Found) -> list[str]:
    """What is wrong, a sentence each."""
    wrong = [f"{name} was refused" for name in confirmed.refused]
    for name, address in confirmed.sent_to.items():
        wrong += _judge_message(name, address, confirmed, found)
    known = set(confirmed.sent_to) | {f"old-{number}" for number in range(LEDGER_OLD)}
    known |= {f"new-old-{number}-{each}" for number in range(LEDGER_OLD) for each in range(LEDGER_NEW)}
    wrong += [f"{name} in {path}/{sub_queue} was never sent" for path, sub_queue, name in found if name not in known]
    return wrong + _judge_ledger(confirmed, found)


def _judge_message(name: str, address: str, confirmed: Confirmed, found: Found) -> list[str]:
    wrong = []
    there = {}
    for path in PLACES[address]:
        grave = (*DEAD_LETTERS.get(path, (path, "dead-letter")), name)
        active, dead = found[path, "active", name], found[grave]
        is_completing = (path, name) in confirmed.completing
        is_burying = (path, name) in confirmed.burying
        there[path] = bool(active + dead) or is_completing
        if active + dead > 1:
            wrong.append(f"{name} is in {path} {active} times and dead-lettered {dead} times")
        if (path, name) in confirmed.completed and active + dead:
            wrong.append(f"{name} was completed in {path} and is there again")
        if (path, name) in confirmed.buried and not dead:
            wrong.append(f"{name} was dead-lettered in {path} and is not in {grave[:2]}")
        if dead and not is_burying:
            wrong.append(f"{name} is in {grave[:2]}, and nobody dead-lettered it")
    if name in confirmed.accepted:
        wrong += [
            f"{name} was accepted by {address} and is not in {path}" for path, is_there in there.items() if not is_there
        ]
    elif any(there.values()) and not all(there.values()):
        wrong.append(f"{name} was not confirmed by {address} and is torn: {there}")
    elsewhere = {path for path, _, each in found if each == name} - PLACES[address] - {"graves"}
    return wrong + [f"{name} was sent to {address} and is in {path}" for path in elsewhere]


def _judge_ledger(confirmed: Confirmed, found: Found) -> list[str]:
    wrong = []
    for number in range(LEDGER_OLD):
        name = f"old-{number}"
        old = found["ledger", "active", name]
        new = [found["ledger", "active", f"new-{name}-{each}"] for each in range(LEDGER_NEW)]
        is_stored = name in confirmed.accepted
        if (old, new) not in [(1, [0] * LEDGER_NEW), (0, [1] * LEDGER_NEW)] and (is_stored or old or any(new)):
            wrong.append(f"the transaction on {name} is torn: {old} old, {new} new")
        if name in confirmed.committed and new != [1] * LEDGER_NEW:
            wrong.append(f"the transaction on {name} was committed and is not there")
        if any(new) and name not in confirmed.committing:
            wrong.append(f"the transaction on {name} was never committed and is there")
    return wrong


def play(seed: int) -> tuple[int, int, list[str]]:
    """One round in a folder of its own: the seed, how many messages were acknowledged, and what is wrong."""
    with tempfile.TemporaryDirectory(prefix=f"emubus-kill-{seed}-") as folder:
        data = Path(folder) / "data"
        confirmed = run_and_kill(data, seed)
        report = check_data_folder(data)
        wrong = [] if report.sound else [line for line in report.lines() if "PROBLEM" in line]
        wrong += judge(confirmed, collect(data))
        if wrong:
            shutil.copytree(data, Path(tempfile.gettempdir()) / f"emubus-kill-failed-{seed}", dirs_exist_ok=True)
        return seed, len(confirmed.accepted), wrong


def main(arguments: list[str]) -> int:
    """The command line; 1 if anything is wrong."""
    parser = argparse.ArgumentParser(prog="python -m tests.crash.namespace_rounds")
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--jobs", type=int, default=2)
    options = parser.parse_args(arguments)
    failed = acknowledged = done = 0
    for first in range(options.first, options.first + options.rounds, ROUNDS_PER_POOL):
        seeds = range(first, min(first + ROUNDS_PER_POOL, options.first + options.rounds))
        with ProcessPoolExecutor(options.jobs) as pool:
            for seed, accepted, wrong in pool.map(play, seeds):
                done, acknowledged, failed = done + 1, acknowledged + accepted, failed + bool(wrong)
                for sentence in wrong[:20]:
                    sys.stdout.write(f"seed {seed}: {sentence}\n")
        sys.stdout.write(f"{done} rounds, {acknowledged} acknowledged, {failed} failed\n")
        sys.stdout.flush()
    sys.stdout.write(f"{options.rounds} rounds, {acknowledged} messages acknowledged, {failed} rounds failed\n")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
