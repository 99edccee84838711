"""What keeping the story of messages costs: processor time of the server for a message, kept and not kept in turn.

One server, the same load again and again, its story switched on and off between two runs. Each line has the median for
a message that is sent, received and completed, and for one that is only sent, in which a round trip hides the story's
cost; for messages that travel together (a window of 1 000) and alone (1).

    python bench/story.py [--rounds 9] [--messages 20000]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from statistics import median
from typing import Final

ROOT: Final = Path(__file__).resolve().parent.parent
RUNS: Final = {
    "together": ("roundtrip", 1000),
    "alone": ("roundtrip", 1),
    "sent together": ("send", 1000),
    "sent alone": ("send", 1),
}
"""What is measured: what `load.py` does, and its window."""
ALONE_SHARE: Final = 10
"""A run of lone messages has a tenth of the messages: each takes several times as long."""


def switched(url: str, *, is_on: bool) -> None:
    """Keep the story, or don't; what was kept and sent is forgotten, so that each run begins alike."""
    asked = (("story", {"is_on": is_on}, "PUT"), ("story", None, "DELETE"), ("reset", {"to": "empty"}, "POST"))
    for path, body, method in asked:
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"}
        request = urllib.request.Request(f"{url}/emubus/v1/{path}", data, headers, method=method)
        with urllib.request.urlopen(request, timeout=60):
            pass


def measured_us(port: int, pid: int, messages: int, mode: str, window: int) -> float:
    """Processor time of the server for a message, in microseconds."""
    command = [sys.executable, str(ROOT / "bench" / "load.py"), mode, "--port", str(port)]
    command += ["--address", "queue.1", "--messages", str(messages), "--window", str(window), "--pid", str(pid)]
    said = subprocess.run(command, check=True, capture_output=True, text=True, timeout=600).stdout
    found = json.loads(said)
    return float(found["process_us"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--messages", type=int, default=20_000)
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        ready = Path(folder) / "ready.json"
        command = [sys.executable, "-m", "emubus", "serve", "--amqp-port", "0", "--http-port", "0"]
        command += ["--data", f"{folder}/data", "--ready-file", str(ready), "--log-level", "warning"]
        server = subprocess.Popen(command, cwd=ROOT, env={**os.environ, "EMUBUS_QUEUES": "queue.1"})
        try:
            while not ready.exists():
                if server.poll() is not None:
                    raise SystemExit(f"the server ended with {server.returncode}")
            found = json.loads(ready.read_text())
            for name, (mode, window) in RUNS.items():
                count = arguments.messages // (ALONE_SHARE if window == 1 else 1)
                figures: dict[bool, list[float]] = {False: [], True: []}
                for number in range(2 * arguments.rounds):
                    is_on = number % 2 == 1
                    switched(found["url"], is_on=is_on)
                    figures[is_on].append(measured_us(found["amqp_port"], server.pid, count, mode, window))
                off, on = median(figures[False]), median(figures[True])
                more = 100 * (on / off - 1)
                print(f"{name:<13} not kept {off:7.2f} us  kept {on:7.2f} us  {more:+5.1f} %", flush=True)
        finally:
            server.terminate()
            server.wait(60)


if __name__ == "__main__":
    main()
