"""Durable messages per second, sent and received, next to RabbitMQ in the same minutes.

Knows the grid (sizes by queue kinds), the order of the runs and how to print them. For each size and repeat
every broker gets its turn before the next repeat begins, so that a slow minute of the machine hits all of
them; medians are printed. One connection, 1000 outstanding messages; one run fills a queue, the next empties
it.

    python bench/throughput.py [--quick] [--only emubus,rabbitmq,sink] [--quorum] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from statistics import median
from typing import Final

from starting import BROKERS, KINDS, Broker, Emubus, RabbitMQ, exit_code, load, running, workplace

MESSAGES_BY_SIZE: Final[Mapping[int, int]] = {100: 50_000, 1024: 50_000, 65_536: 4_000}
"""Body bytes -> messages in a run."""

QUICK_PART: Final = 10
WARM_UP_MESSAGES: Final = 2_000
BASELINE: Final = ("rabbitmq", "classic")


@dataclass(slots=True)
class Cell:
    """All runs of one mode, size and queue kind."""

    rates: list[float] = field(default_factory=list[float])
    cpu_us: list[float] = field(default_factory=list[float])
    latencies_ms: list[float] = field(default_factory=list[float])
    client_busy: list[float] = field(default_factory=list[float])

    def add(self, figures: dict[str, float]) -> None:
        """Add the figures of a run."""
        self.rates.append(figures["rate"])
        self.cpu_us.append(figures["process_us"])
        self.client_busy.append(figures["client_busy"])
        if "p99_ms" in figures:
            self.latencies_ms.append(figures["p99_ms"])


Key = tuple[int, str, str, str]
"""Size in bytes, mode, broker, kind."""


def measure(
    columns: list[tuple[Broker, str]], sizes: Mapping[int, int], repeats: int, confirm: bool
) -> dict[Key, Cell]:
    """Run the grid over running brokers. Raises BrokerError."""
    cells: dict[Key, Cell] = defaultdict(Cell)
    for broker, kind in columns:
        for mode in ("send", "receive"):
            load(broker, mode, kind, WARM_UP_MESSAGES, 1024)
    for size_bytes, messages in sizes.items():
        for _ in range(repeats):
            for broker, kind in columns:
                for mode in ("send", "receive"):
                    confirmed = confirm and mode == "receive" and broker.name == "emubus"
                    words = ["--confirm"] if confirmed else []
                    figures = load(broker, mode, kind, messages, size_bytes, *words)
                    cells[size_bytes, mode, broker.name, kind].add(figures)
    return cells


def lines(cells: Mapping[Key, Cell]) -> list[str]:
    """One line for each cell."""
    written: list[str] = []
    for (size_bytes, mode, name, kind), cell in sorted(
        cells.items(), key=lambda item: (item[0][0], item[0][1] != "send")
    ):
        baseline = cells.get((size_bytes, mode, *BASELINE))
        ratio = f"{median(cell.rates) / median(baseline.rates):6.2f} x rabbitmq" if baseline else " " * 17
        latency = f"  p99 {median(cell.latencies_ms):7.1f} ms" if cell.latencies_ms else ""
        rates, column = cell.rates, f"{name} {kind}"
        written.append(
            f"throughput  {mode:7} {size_bytes:6} B  {column:19} {median(rates):9,.0f} msg/s  {ratio}"
            f"  [{min(rates):,.0f} to {max(rates):,.0f}]  broker {median(cell.cpu_us):6.1f} us CPU/msg"
            f"  client {median(cell.client_busy):4.0%} busy{latency}"
        )
    return written


def main(argv: list[str]) -> int:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one repeat")
    parser.add_argument("--only", default="emubus,rabbitmq,sink", help="brokers, comma-separated")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--quorum", action="store_true", help="also RabbitMQ's quorum queue (one replica)")
    parser.add_argument("--confirm", action="store_true", help="emubus: wait for the answer to each outcome")
    parser.add_argument("--sizes", help="body sizes in bytes, comma-separated")
    parser.add_argument("--durability", default="full", help="emubus: full, process or none")
    parser.add_argument("--data", help="folder for the brokers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    names = arguments.only.split(",")
    if "rabbitmq" in names and not RabbitMQ.installed():
        print("throughput  RabbitMQ is not installed here: no ratios", file=sys.stderr)
        names.remove("rabbitmq")
    sizes = {size: count // (QUICK_PART if arguments.quick else 1) for size, count in MESSAGES_BY_SIZE.items()}
    if arguments.sizes:
        sizes = {int(size): sizes[int(size)] for size in arguments.sizes.split(",")}
    with workplace(arguments.data) as folder:
        made = {name: BROKERS[name](folder / name) for name in names if name != "emubus"}
        if "emubus" in names:
            made["emubus"] = Emubus(folder / "emubus", arguments.durability)
        columns = [(made[name], kind) for name in names for kind in KINDS[name]]
        if arguments.quorum and "rabbitmq" in names:
            columns.append((made["rabbitmq"], "quorum"))
        with running(*(made[name] for name in names)):
            repeats = arguments.repeats or (1 if arguments.quick else 3)
            cells = measure(columns, sizes, repeats, arguments.confirm)
    print("\n".join(lines(cells)))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
