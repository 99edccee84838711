"""Cost of an idle broker: time to start and resident memory, without and with a backlog.

Knows the steps and prints a line for each: start on an empty folder (median of several), memory at rest,
memory after sending the backlog, the folder on disk, start with that backlog, and the time to a receiver's first
message then.

    python bench/footprint.py [--quick] [--only emubus,rabbitmq] [--messages 1000000] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from statistics import median
from typing import Final

from rivals import BROKERS, KINDS
from starting import Broker, exit_code, load, workplace

STARTS: Final = 5
BACKLOG_MESSAGES: Final = 1_000_000
BACKLOG_MESSAGES_QUICK: Final = 50_000
MESSAGE_BYTES: Final = 1024
SETTLE_S: Final = 2.0
"""Wait before reading memory: a ready broker may still clean up."""

AFTER_START_MESSAGES: Final = 1_000


def say(name: str, what: str, text: str) -> None:
    """Print one comparable line."""
    print(f"footprint   {name:9} {what:34} {text}", flush=True)


def disk_mib(folder: Path) -> float:
    """Disk usage of a folder, without holes in files."""
    return sum(path.stat().st_blocks * 512 for path in folder.rglob("*") if path.is_file()) / 2**20


def empty_starts(broker_class: type[Broker], folder: Path) -> list[float]:
    """Seconds to ready, each time in a new folder."""
    seconds: list[float] = []
    for number in range(STARTS):
        broker = broker_class(folder / f"start{number}")
        try:
            seconds.append(broker.start())
        finally:
            broker.stop()
    return seconds


def with_backlog(broker: Broker, kind: str, messages: int) -> None:
    """Fill, measure, restart, measure again, receive. Raises BrokerError."""
    figures = load(broker, "send", kind, messages, MESSAGE_BYTES)
    time.sleep(SETTLE_S)
    what = f"{messages:,} x {MESSAGE_BYTES} B waiting"
    say(broker.name, what, f"{broker.memory()}; sent at {figures['rate']:,.0f} msg/s")
    say(broker.name, "data on disk", f"{disk_mib(broker.folder / 'data'):.0f} MiB")
    stopped_at_s = time.perf_counter()
    broker.stop()
    say(broker.name, "stop with the backlog", f"{time.perf_counter() - stopped_at_s:.3f} s")
    say(broker.name, "start on the backlog", f"{broker.start():.3f} s")
    numbers = ("--numbers", str(messages))
    first = load(broker, "receive", kind, 1, MESSAGE_BYTES, *numbers)
    say(broker.name, "first message after that start", f"{first['seconds'] * 1000:.1f} ms")
    load(broker, "receive", kind, AFTER_START_MESSAGES, MESSAGE_BYTES, *numbers)
    say(broker.name, f"after {AFTER_START_MESSAGES:,} more were received", str(broker.memory()))


def measure(name: str, folder: Path, messages: int) -> None:
    """All steps for one broker. Raises BrokerError."""
    seconds = empty_starts(BROKERS[name], folder)
    spread = f"[{min(seconds):.3f} to {max(seconds):.3f}, {len(seconds)} starts]"
    say(name, "start, nothing stored", f"{median(seconds):.3f} s  {spread}")
    broker = BROKERS[name](folder / "backlog")
    try:
        broker.start()
        time.sleep(SETTLE_S)
        say(name, "at rest", str(broker.memory()))
        with_backlog(broker, KINDS[name][0], messages)
    finally:
        broker.stop()


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"a backlog of {BACKLOG_MESSAGES_QUICK:,} messages")
    parser.add_argument("--only", default="emubus", help="emubus, rabbitmq, artemis, floor; comma-separated")
    parser.add_argument("--messages", type=int, help=f"the backlog; default {BACKLOG_MESSAGES:,}")
    parser.add_argument("--data", help="folder for the brokers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    messages = arguments.messages or (BACKLOG_MESSAGES_QUICK if arguments.quick else BACKLOG_MESSAGES)
    with workplace(arguments.data) as folder:
        for name in arguments.only.split(","):
            measure(name, folder / name, messages)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
