"""emubus beside RabbitMQ and Apache Artemis: durable messages per second and processor time, from the same client.

    python bench/brokers.py [--quick] [--only emubus,rabbitmq,artemis,sink] [--durability second,full]
        [--sizes 100,1024] [--windows 1000,20,1]

Bodies of three sizes, three windows of outstanding messages, one connection; one run fills a queue, the next empties
it. All brokers run at the same time, but one at a time has work: in each round they take turns, so that a slow minute
of the machine hits all of them. All are warmed up before anything counts, the Java machine's compilers included.
Figures are medians over the rounds; processor time is the broker's, all threads. emubus runs once for each durability;
below the table stands what each broker has on the disk when it answers: rates of different promises are not alike.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Final

from cells import MODES, ratio, table
from rivals import BROKERS, KINDS, made
from starting import Broker, BrokerError, exit_code, load, running, workplace
from trees import THIS, build

MESSAGES: Final[Mapping[int, Mapping[int, int]]] = {
    1000: {100: 40_000, 1024: 40_000, 65_536: 4_000},
    20: {100: 10_000, 1024: 10_000, 65_536: 2_000},
    1: {100: 1_000, 1024: 1_000, 65_536: 500},
}
"""Window -> bytes in a body -> messages in a run."""

ROUNDS: Final = 3
QUICK_PART: Final = 10
WARM_UPS: Final = 4
WARM_UP_MESSAGES: Final = 20_000

Column = tuple[str, str]
"""Broker, emubus with its durability behind a space, and kind of queue."""

Cell = tuple[str, int, int]
"""Mode, bytes in a body, window."""

Results = Mapping[tuple[Cell, Column], Sequence[Mapping[str, float]]]


def measure(
    brokers: Mapping[str, Broker],
    columns: Sequence[Column],
    pairs: Sequence[tuple[int, int]],
    rounds: int,
    part: int,
    confirm: bool,
) -> Results:
    """Run all pairs of size and window over running brokers. Raises BrokerError."""
    results: dict[tuple[Cell, Column], list[Mapping[str, float]]] = defaultdict(list)
    for name, kind in columns:
        for _ in range(WARM_UPS):
            for mode in MODES:
                load(brokers[name], mode, kind, WARM_UP_MESSAGES // part, 1024)
    for number in range(rounds):
        print(f"brokers: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for size_bytes, window in pairs:
            messages = max(100, MESSAGES[window][size_bytes] // part)
            for name, kind in columns[:: -1 if number % 2 else 1]:
                for mode in MODES:
                    words = ["--window", str(window)]
                    if confirm and mode == "receive" and is_ours(name):
                        words.append("--confirm")
                    figures = load(brokers[name], mode, kind, messages, size_bytes, *words)
                    results[(mode, size_bytes, window), (name, kind)].append(figures)
    return results


def lines(results: Results, columns: Sequence[Column]) -> str:
    """A row for each cell: rates, processor time, and the ratios of emubus's rates to those of the others."""
    ours = [column for column in columns if is_ours(column[0])]
    others = [column for column in columns if column[0] in ("rabbitmq", "artemis")]
    head = [
        "cell",
        *(f"{shown(name, kind)} {unit}" for name, kind in columns for unit in ("msg/s", "us")),
    ]
    head += [f"{shown(our, kind)} /{name}" for our, kind in ours for name, _ in others]
    rows = [head]
    for cell in dict.fromkeys(cell for cell, _ in results):
        mode, size_bytes, window = cell
        of = {column: results[cell, column] for column in columns}
        rates = {column: [run["rate"] for run in of[column]] for column in columns}
        row = [f"{mode} {size_bytes} B, window {window}"]
        for column in columns:
            row += [f"{median(rates[column]):,.0f}", f"{median(run['process_us'] for run in of[column]):.1f}"]
        row += [f"{ratio(rates[our], rates[other]):.2f}" for our in ours for other in others]
        rows.append(row)
    return table(rows)


def is_ours(name: str) -> bool:
    """Whether a column's broker is emubus, of any durability."""
    return name.partition(" ")[0] == "emubus"


def shown(name: str, kind: str) -> str:
    """A column's name in the table."""
    return f"{kind} {name.partition(' ')[2]}" if is_ours(name) else name


def available(names: Sequence[str]) -> list[str]:
    """The brokers that can be started here; what is missing of the others is printed. Raises BrokerError for a name."""
    found: list[str] = []
    for name in names:
        if name not in BROKERS:
            raise BrokerError(f"no broker is named {name!r}; there are {', '.join(BROKERS)}")
        if missing := BROKERS[name].missing():
            print(f"brokers: {missing}", file=sys.stderr)
        else:
            found.append(name)
    return found


def arguments_of(argv: list[str]) -> argparse.Namespace:
    """Read the command line."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a tenth of the messages, one round")
    parser.add_argument("--only", default="emubus,rabbitmq,artemis,sink", help="brokers, comma-separated")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--quorum", action="store_true", help="also RabbitMQ's quorum queue (one replica)")
    parser.add_argument("--confirm", action="store_true", help="emubus: wait for the answer to each outcome")
    parser.add_argument("--sizes", default="100,1024,65536", help="body sizes in bytes, comma-separated")
    parser.add_argument("--windows", default="1000,20,1", help="outstanding messages, comma-separated")
    parser.add_argument("--durability", default="second,full", help="of emubus, comma-separated")
    parser.add_argument("--data", help="folder for the brokers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    try:
        arguments.pairs = [
            (size, window)
            for window in map(int, arguments.windows.split(","))
            for size in map(int, arguments.sizes.split(","))
            if MESSAGES[window][size]
        ]
    except (KeyError, ValueError):
        parser.error(f"windows are {', '.join(map(str, MESSAGES))}; sizes are {', '.join(map(str, MESSAGES[1]))}")
    return arguments


def main(argv: list[str]) -> int:
    """Run and print."""
    arguments = arguments_of(argv)
    names = available(arguments.only.split(","))
    notes = [f"emubus {build(THIS)}"] if "emubus" in names else []
    with workplace(arguments.data) as folder:
        durabilities = arguments.durability.split(",")
        brokers: dict[str, Broker] = {}
        columns: list[Column] = []
        for name in names:
            for durability in durabilities if name == "emubus" else durabilities[-1:]:
                key = f"{name} {durability}" if name == "emubus" else name
                brokers[key] = made(name, folder / key.replace(" ", "-"), durability)
                columns += [(key, kind) for kind in KINDS[name]]
        if arguments.quorum and "rabbitmq" in names:
            columns.append(("rabbitmq", "quorum"))
        with running(*brokers.values()):
            rounds = arguments.rounds or (1 if arguments.quick else ROUNDS)
            part = QUICK_PART if arguments.quick else 1
            results = measure(brokers, columns, arguments.pairs, rounds, part, arguments.confirm)
            notes += [broker.note for broker in brokers.values() if broker.note]
            notes += [
                f"{key} when it answers a {broker.answered}" for key, broker in brokers.items() if broker.answered
            ]
    print("\n".join([lines(results, columns), *notes]))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
