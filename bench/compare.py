"""This commit beside another one: processor time per message, rates and their ratios, cell by cell.

    python bench/compare.py REF [--quick] [--cells send-plain,'receive-*'] [--rounds 5]

Both servers run side by side, each with a data folder of its own and this interpreter's packages; the other commit is
unpacked into the temporary folder. One server at a time has work; they take turns, and which is first changes from round
to round. Figures are medians over the rounds, ratios are medians of the ratios within a round: this / REF, below 1 is
better. Processor time is the server's, main thread and whole process, read by the client when the first message goes and
when the last outcome has come.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Final

from cells import CELLS, FORMS, KINDS, MODES, Cell, chosen, ratio, table
from starting import BENCH, Broker, BrokerError, Emubus, exit_code, load, running, workplace

ROUNDS: Final = 5
ROUNDS_QUICK: Final = 3
QUICK_PART: Final = 8
WARM_UP_MESSAGES: Final = 3_000
THIS: Final = "this"

Results = Mapping[tuple[str, str], Sequence[Mapping[str, float]]]
"""Cell and side -> the figures of each round."""


def unpack(ref: str, folder: Path) -> Path:
    """The tree of a commit in a new folder. Raises BrokerError if there is no such commit, or it can't be imported."""
    folder.mkdir()
    archive = folder.with_suffix(".tar")
    made = subprocess.run(
        ["git", "archive", "--output", str(archive), ref], cwd=BENCH.parent, capture_output=True, text=True
    )
    if made.returncode != 0:
        raise BrokerError(f"git has no commit {ref!r} here: {made.stderr.strip()}")
    subprocess.run(["tar", "-xf", str(archive), "-C", str(folder)], check=True)
    archive.unlink()
    where = subprocess.run(
        [sys.executable, "-P", "-c", "import emubus, emubus.amqp; print(emubus.__file__, emubus.amqp.__file__)"],
        env={"PYTHONPATH": str(folder)},
        capture_output=True,
        text=True,
    )
    if where.returncode != 0 or any(not path.startswith(str(folder)) for path in where.stdout.split()):
        raise BrokerError(f"{ref} can't be started from its tree: {where.stdout}{where.stderr}")
    return folder


def measure(sides: Mapping[str, Broker], cells: Sequence[Cell], rounds: int, part: int) -> Results:
    """Run the cells; queues are filled and emptied by turns, so a cell's partner runs with it. Raises BrokerError."""
    results: dict[tuple[str, str], list[Mapping[str, float]]] = defaultdict(list)
    pairs = list(dict.fromkeys((cell.kind, cell.form) for cell in cells))
    for broker in sides.values():
        for kind in dict.fromkeys(kind for kind, _ in pairs):
            for mode in MODES:
                load(broker, mode, KINDS[kind], WARM_UP_MESSAGES, 1024)
    for number in range(rounds):
        print(f"compare: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        for kind, form in pairs:
            for name in list(sides)[:: -1 if number % 2 else 1]:
                for mode in MODES:
                    results[Cell(mode, kind, form).name, name].append(run(sides[name], mode, kind, form, part))
    return results


def run(broker: Broker, mode: str, kind: str, form: str, part: int) -> dict[str, float]:
    """One run of the client. Raises BrokerError."""
    what = FORMS[form]
    words = ("--window", str(what.window), "--shape", what.shape)
    return load(broker, mode, KINDS[kind], what.messages // part, what.size_bytes, *words)


def lines(results: Results, cells: Sequence[Cell], ref: str) -> str:
    """The table: microseconds of the processor per message, messages per second, ratios."""
    sides = (THIS, ref)
    units = ("main us", "process us", "msg/s")
    rows = [["cell", *(f"{side} {unit}" for side in sides for unit in units), "main", "process", f"this/{ref} rate"]]
    keys = ("main_us", "process_us", "rate")
    for cell in cells:
        figures = {side: {key: [run[key] for run in results[cell.name, side]] for key in keys} for side in sides}
        row = [cell.name]
        for side in sides:
            main_us, process_us, rate = (median(figures[side][key]) for key in keys)
            row += [f"{main_us:.1f}", f"{process_us:.1f}", f"{rate:,.0f}"]
        row += [f"{ratio(figures[THIS][key], figures[ref][key]):.2f}" for key in keys]
        rows.append(row)
    return table(rows)


def main(argv: list[str]) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", metavar="REF", help="the other commit")
    parser.add_argument("--quick", action="store_true", help=f"an eighth of the messages, {ROUNDS_QUICK} rounds")
    parser.add_argument("--cells", default="*", help="cells, comma-separated; * stands for any letters")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--durability", default="full", help="full or process")
    parser.add_argument("--data", help="folder for the servers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    try:
        cells = [CELLS[name] for name in chosen(arguments.cells.split(","), CELLS)]
    except ValueError as error:
        parser.error(str(error))
    rounds = arguments.rounds or (ROUNDS_QUICK if arguments.quick else ROUNDS)
    with workplace(arguments.data) as folder:
        ref: str = arguments.ref
        tree = unpack(ref, folder / "ref")
        sides: dict[str, Broker] = {
            THIS: Emubus(folder / "this-data", arguments.durability),
            ref: Emubus(folder / "ref-data", arguments.durability, tree),
        }
        with running(*sides.values()):
            results = measure(sides, cells, rounds, QUICK_PART if arguments.quick else 1)
    print(lines(results, cells, ref))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
