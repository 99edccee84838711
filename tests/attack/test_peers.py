"""While clients with a key do the work of one kind all the time, another client's sends stay quick.

Judged as in `test_strangers.py`: by what the event loop computed during the slowest send.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.amqp.nodes.cbs import PUT_TOKEN
from emubus.amqp.nodes.management import OPERATIONS
from emubus.codec import frames

from ..rounds import rounds
from .peers import QUEUE, RULES, TOPIC, WORK
from .test_strangers import COMPUTED_MS_MAX, END_S, Figures, Guarded, Sends, computed_ms, judge, ready, result, start

ROOT = Path(__file__).parents[2]
SECONDS = rounds(0.5, 20.0)
ENTITIES = {
    "Queues": [{"Name": "watched"}, {"Name": QUEUE}],
    "Topics": [
        {
            "Name": TOPIC,
            "Subscriptions": [
                {
                    "Name": "s",
                    "Rules": [
                        {
                            "Name": f"r{number}",
                            "Properties": {
                                "FilterType": "Sql",
                                "SqlFilter": {"SqlExpression": f"a LIKE '%{'_y' * 10}{number}%'"},
                            },
                        }
                        for number in range(RULES)
                    ],
                }
            ],
        }
    ],
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    guarded = Guarded(tmp_path_factory.mktemp("peers"), auth="none", entities=ENTITIES)
    yield guarded
    guarded.stop()


def test_every_kind_of_frame_and_of_operation_is_somebodys_work() -> None:
    about = {each for row in WORK.values() for each in row.about}
    codes = {frames.OPEN, frames.BEGIN, frames.ATTACH, frames.FLOW, frames.TRANSFER, frames.DISPOSITION}
    assert about == codes | {frames.DETACH, frames.END, frames.CLOSE, PUT_TOKEN, "declare", *OPERATIONS}
    assert codes | {frames.DETACH, frames.END, frames.CLOSE} == set(range(frames.OPEN, frames.CLOSE + 1))


@pytest.mark.slow
@pytest.mark.xdist_group("attack")
@pytest.mark.parametrize("kind", WORK)
def test_whatever_peers_do_all_the_time_they_hold_nobody_up(server: Guarded, kind: str, slowness: float) -> None:
    command = [sys.executable, "-m", "tests.attack.peers", kind, str(server.port), str(SECONDS)]

    def attempt() -> Figures:
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, cwd=ROOT) as peers:
            try:
                ready(peers)
                watcher = start("watcher.py", server.port, server.process.pid, SECONDS + 0.5)
                ready(watcher)
                done = json.loads(peers.communicate("go\n", timeout=END_S)[0])
            finally:
                peers.kill()
        sends: Sends = json.loads(result(watcher))
        figures = {"computed_ms": round(computed_ms(sends)), "sends": len(sends), **done}
        sys.stdout.write(json.dumps({"kind": kind, **figures}) + "\n")
        assert done["sent_bytes"] > 0
        assert server.process.poll() is None
        return figures

    judge(server, attempt, {"computed_ms": COMPUTED_MS_MAX * slowness})
