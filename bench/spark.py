"""Rows per second that the Spark connector reads and writes, next to Spark alone, to AMQP links, and to another commit.

Knows the grid (sizes by schemas), its order and the sides (`spark_side.py`). Each repeat runs everything on each side,
so that a slow minute of the machine affects all of them; prints medians. The broker is a process of its own on the same
cores as Spark, with fsync, and the queue has 16 partitions. With `--against`, the connector and the broker of another
commit take turns with this one's; ratios are this / other, and for processor time below 1 is better.

    python bench/spark.py [--quick] [--sizes 100,1024] [--repeats 3] [--against REF] [--part 10] [--data FOLDER]
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Final

from spark_figures import Measured, by_key, lines
from starting import BENCH, BrokerError, end, exit_code, workplace
from trees import THIS, build, unpack

ROWS_BY_SIZE: Final[Mapping[int, int]] = {100: 200_000, 1024: 100_000}
"""Body bytes -> rows in a run."""

QUICK_PART: Final = 20
WARM_UP_PART: Final = 10
SMALL_ROWS, SMALL_BATCHES = 16, 20
ONE_BATCH_ROWS, ONE_BATCH_BYTES = 1_000_000, 100
REPEATS: Final = 3
THIS_SIDE, OTHER_SIDE = "this", "other"


class Side:
    """A process of `spark_side.py` with the connector and the broker of a tree."""

    def __init__(self, name: str, process: subprocess.Popen[str]) -> None:
        self.name = name
        self.runs: list[Measured] = []
        self._process = process

    def turn(self, name: str, *arguments: int) -> None:
        """Run a turn, and show what it measured. Raises BrokerError if the side has ended: it has said why."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(json.dumps([name, *arguments]) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            pass  # no line comes either
        for line in self._process.stdout:
            if line.startswith("["):  # Java may have something to say, too
                runs = [Measured(**each) for each in json.loads(line)]
                print("\n".join(f"{self.name}: {each}" for each in lines(by_key(runs))), file=sys.stderr, flush=True)
                self.runs += runs
                return
        raise BrokerError(f"spark: the side of {self.name} ended with {self._process.wait()}")


@contextmanager
def started(name: str, tree: Path, folder: Path, durability: str) -> Iterator[Side]:
    """A side, while it runs."""
    folder.mkdir()
    command = [sys.executable, str(BENCH / "spark_side.py"), str(tree), str(folder), durability]
    environment = {**os.environ, "PYTHONPATH": str(tree)}
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment
    ) as process:
        try:
            yield Side(name, process)
        finally:
            end(process)


def measure(sides: list[Side], sizes: Mapping[int, int], repeats: int, part: int) -> None:
    """Run the grid; sides take turns, and which is first changes."""
    for side in sides:
        side.turn("repeat", ONE_BATCH_BYTES, min(sizes.values()) // WARM_UP_PART)
        side.runs.clear()
    for number in range(repeats):
        print(f"spark: round {number + 1} of {repeats}", file=sys.stderr, flush=True)
        order = sides[:: -1 if number % 2 else 1]
        for size_bytes, rows in sizes.items():
            for side in order:
                side.turn("repeat", size_bytes, rows)
        for side in order:
            side.turn("small_batches", SMALL_ROWS, SMALL_BATCHES)
    for rows in (ONE_BATCH_ROWS // part // 4, ONE_BATCH_ROWS // part):  # what memory does with four times the rows
        for side in sides:
            side.turn("one_batch", ONE_BATCH_BYTES, rows)


def main(argv: list[str]) -> int:
    """Run the grid and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a twentieth of the rows, one repeat")
    parser.add_argument("--part", type=int, help="divide the rows by so much")
    parser.add_argument("--repeats", type=int)
    parser.add_argument("--sizes", help="body sizes in bytes, comma-separated")
    parser.add_argument("--against", metavar="REF", help="a commit to compare with")
    parser.add_argument("--durability", default="full", help="full, process or none")
    parser.add_argument("--data", help="folder for the broker's data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    part = arguments.part or (QUICK_PART if arguments.quick else 1)
    sizes = {size: count // part for size, count in ROWS_BY_SIZE.items()}
    if arguments.sizes:
        sizes = {int(size): sizes[int(size)] for size in arguments.sizes.split(",")}
    with workplace(arguments.data) as folder, ExitStack() as stack:
        trees = {THIS_SIDE: THIS}
        if arguments.against:
            trees[OTHER_SIDE] = unpack(arguments.against, folder / "tree")
        for name, tree in trees.items():
            print(f"spark  {name}: {tree if name == THIS_SIDE else arguments.against} {build(tree)}", flush=True)
        sides = [
            stack.enter_context(started(name, tree, folder / name, arguments.durability))
            for name, tree in trees.items()
        ]
        measure(sides, sizes, arguments.repeats or (1 if arguments.quick else REPEATS), part)
    cells = [by_key(side.runs) for side in sides]
    print("\n".join(lines(*cells)))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
