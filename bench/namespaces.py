"""What one more namespace costs: resident memory and time of the start, while it is idle and once it is in use.

    python -m bench.namespaces [COUNT]

Starts a server in a process of its own with one namespace and with COUNT more, in memory and with a data folder, and
divides the difference; then opens all of them, one after the other, and looks how long the event loop was held at
most meanwhile. Exit code 1 if an idle one costs more than 2 MiB or 10 ms of the start, in processor time, which a busy
machine does not change much.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

COUNT: Final = 20
ROUNDS: Final = 5
IDLE_MIB_MAX: Final = 2.0
START_MS_MAX: Final = 10.0
PAGE_MIB: Final = 4096 / (1 << 20)


def main() -> int:
    if len(sys.argv) == 4 and sys.argv[1] == "--server":
        asyncio.run(_serve(int(sys.argv[2]), sys.argv[3]))
        return 0
    count = int(sys.argv[1]) if len(sys.argv) > 1 else COUNT
    is_within = True
    for kind in ("memory", "folder"):
        alone, several = (_best(number, kind) for number in (0, count))
        memory = (several["idle_mib"] - alone["idle_mib"]) / count
        start, waited = ((several[name] - alone[name]) / count for name in ("start_cpu_ms", "start_ms"))
        opened = (several["open_mib"] - several["idle_mib"]) / count
        opening = several["opening_ms"] / count
        print(
            f"{kind}: one more idle namespace {memory:.3f} MiB, {start:.2f} ms of the start "
            f"({waited:.2f} ms with waiting); in use {opened:.2f} MiB, opened in {opening:.1f} ms, which holds the "
            f"loop for {several['held_ms']:.1f} ms at most ({count} more, best of {ROUNDS})"
        )
        is_within = is_within and memory <= IDLE_MIB_MAX and start <= START_MS_MAX
    return 0 if is_within else 1


def _best(count: int, kind: str) -> dict[str, float]:
    """The least of each figure over several processes."""
    found: list[dict[str, float]] = []
    for _ in range(ROUNDS):
        with tempfile.TemporaryDirectory() as folder:
            place = str(Path(folder) / "data") if kind == "folder" else ""
            command = [sys.executable, "-m", "bench.namespaces", "--server", str(count), place]
            found.append(json.loads(subprocess.run(command, check=True, capture_output=True, text=True).stdout))
    return {name: min(each[name] for each in found) for name in found[0]}


async def _serve(count: int, place: str) -> None:
    from emubus.config import (
        LogFormat,
        LogLevel,
        load_config,  # in the process that is measured only
    )
    from emubus.logging import configure_logging
    from emubus.server import Server

    configure_logging(LogFormat.CONSOLE, LogLevel.ERROR)
    names = ",".join(["first", *(f"n{number}" for number in range(count))])
    texts = {"amqp_port": "0", "http_port": "0", "namespace": names}
    server = Server(load_config({**texts, **({"data": place} if place else {"durability": "none"})}, {}))
    began, began_cpu = time.perf_counter(), time.process_time()
    await server.start()
    start_ms, start_cpu_ms = (time.perf_counter() - began) * 1000, (time.process_time() - began_cpu) * 1000
    idle_mib = _resident_mib()
    gaps: list[float] = []
    watching = asyncio.create_task(_watch(gaps))
    began = time.perf_counter()
    for each in server.namespaces.list():
        await server.namespaces.open(each.name)
    opening_ms = (time.perf_counter() - began) * 1000
    watching.cancel()
    figures = {
        "start_ms": start_ms,
        "start_cpu_ms": start_cpu_ms,
        "idle_mib": idle_mib,
        "opening_ms": opening_ms,
        "open_mib": _resident_mib(),
        "held_ms": max(gaps, default=0.0),
    }
    await server.stop()
    print(json.dumps(figures))


async def _watch(gaps: list[float]) -> None:
    """Note how long each turn of the loop takes (ms)."""
    before = time.perf_counter()
    while True:
        await asyncio.sleep(0)
        now = time.perf_counter()
        gaps.append((now - before) * 1000)
        before = now


def _resident_mib() -> float:
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MIB


if __name__ == "__main__":
    sys.exit(main())
