"""This commit beside another one: processor time per message, rates and their ratios, cell by cell.

    python bench/compare.py REF [--quick] [--cells send-plain,'receive-*'] [--rounds 5] [--starts 1]

The servers run side by side, each with a data folder of its own and this interpreter's packages; the other commit is
unpacked into the temporary folder. One server at a time has work; they take turns, and which is first changes from
round to round. Figures are medians over the rounds, ratios are medians of the ratios within a round, this / other: with
processor time, below 1 is better. It is the server's, main thread and whole process, read by the client when the first
message goes and when the last outcome has come. The floor (`floor.py`) is a third server with no features.
"""

from __future__ import annotations

import argparse
import json
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Final

import idle
from cells import BARE, CELLS, FLOOR_FORMS, FORMS, KINDS, MODES, STALLS, Cell, Results, chosen, comparison
from starting import BENCH, Broker, BrokerError, Emubus, Floor, end, exit_code, load, running, workplace
from trees import build, unpack

ROUNDS: Final = 5
ROUNDS_QUICK: Final = 2
QUICK_PART: Final = 10
WARM_UP_MESSAGES: Final = 1_000
THIS: Final = "this"
FLOOR: Final = "floor"

Figures = dict[tuple[str, str], list[Mapping[str, float]]]


def measure(sides: Mapping[str, Broker], names: Sequence[str], rounds: int, part: int) -> Figures:
    """Run the cells of messages and stalls. Raises BrokerError.

    Queues are filled and emptied by turns, so a cell's other mode runs with it.
    """
    results: Figures = defaultdict(list)
    floor_forms = FLOOR_FORMS if part == 1 else frozenset({BARE, "properties"})
    pairs = list(dict.fromkeys((CELLS[name].kind, CELLS[name].form) for name in names if name in CELLS))
    stalls = list(dict.fromkeys(STALLS[name].kind for name in names if name in STALLS))
    for broker in sides.values():
        for kind in dict.fromkeys([kind for kind, _ in pairs] + stalls):
            for mode in MODES:
                load(broker, mode, KINDS[kind], WARM_UP_MESSAGES, 1024)
    for number in range(rounds):
        print(f"compare: round {number + 1} of {rounds}", file=sys.stderr, flush=True)
        order = list(sides)[:: -1 if number % 2 else 1]
        for kind, form in pairs:
            for side in (side for side in order if side != FLOOR or form in floor_forms):
                for mode in MODES:
                    cell = Cell(mode, kind, form)
                    results[cell.name, side].append(run(sides[side], cell, part))
        for kind in stalls:
            for side in (side for side in order if side != FLOOR):
                for mode in MODES:
                    name = f"stall-{mode}-{kind}"
                    results[name, side].append(stall(sides[side], STALLS[name], part))
    return results


def run(broker: Broker, cell: Cell, part: int) -> dict[str, float]:
    """One run of the client. Raises BrokerError."""
    form, entity = FORMS[cell.form], KINDS[cell.kind] + FORMS[cell.form].entity
    return load(broker, cell.mode, entity, form.count(part), form.size_bytes, *form.words(cell.mode, entity))


def stall(broker: Broker, cell: Cell, part: int) -> dict[str, float]:
    """Pings during a run of the client. Raises BrokerError."""
    command = [sys.executable, str(BENCH / "stalls.py"), "--port", str(broker.port), "--pid", str(broker.pid)]
    pinging = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        if pinging.stdout is not None:
            pinging.stdout.readline()
        run(broker, cell, part)
        printed, errors = pinging.communicate()
    finally:
        end(pinging)
    if pinging.returncode != 0:
        raise BrokerError(f"{broker.name}: {errors.strip()}")
    figures: dict[str, float] = json.loads(printed)
    return figures


def measure_idle(
    sides: Mapping[str, Callable[[str], Broker]], names: Sequence[str], rounds: int, *, quick: bool
) -> Figures:
    """Run the cells of idle servers; each gets a server of its own, made from the name of its data.

    Raises BrokerError.
    """
    results: Figures = defaultdict(list)
    for name in (name for name in names if name in idle.CELLS):
        for number in range(1 if quick or name != "idle-connections" else min(rounds, 3)):
            for side, made in sides.items():
                print(f"compare: {name}, {side}", file=sys.stderr, flush=True)
                server = made(f"{side}-{name}-{number}")
                results[name, side].append(idle.CELLS[name](server, quick=quick))
                shutil.rmtree(server.folder)  # gigabytes
    return results


def tables(results: Results, names: Sequence[str], ref: str) -> list[str]:
    """All that was measured."""
    both, all_three = (THIS, ref), (THIS, ref, FLOOR)
    found = [
        ("processor, us per message", all_three, {"main_us": ".1f", "process_us": ".1f"}, CELLS),
        ("messages per second", all_three, {"rate": ",.0f"}, CELLS),
        ("latency of a lone message", all_three, {"p50_ms": ".2f", "p99_ms": ".2f"}, [n for n in CELLS if "-w1" in n]),
        ("stalls of the event loop", both, {"p99_ms": ".1f", "longest_ms": ".1f"}, STALLS),
        ("idle connections", both, {"main_ms_per_s": ".2f", "process_ms_per_s": ".2f"}, idle.CELLS),
        (
            "memory, above the empty server (more) and in all",
            both,
            {"own_more_mib": ".0f", "resident_more_mib": ".0f", "own_mib": ".0f", "resident_mib": ".0f"},
            idle.CELLS,
        ),
    ]
    written: list[str] = []
    for title, sides, keys, kind in found:
        wanted = [name for name in names if name in kind and next(iter(keys)) in results.get((name, THIS), [{}])[0]]
        present = [side for side in sides if any(results.get((name, side)) for name in wanted)]
        if wanted:
            written.append(f"{title}\n{comparison(results, wanted, present, keys)}")
    return written


def main(argv: list[str]) -> int:
    """Compare and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("ref", metavar="REF", help="the other commit")
    parser.add_argument("--quick", action="store_true", help=f"a tenth of the messages, {ROUNDS_QUICK} rounds")
    parser.add_argument("--cells", default="*", help="cells, comma-separated; * stands for any letters")
    parser.add_argument("--rounds", type=int)
    parser.add_argument("--starts", type=int, default=1, help="start the servers anew so many times")
    parser.add_argument("--no-floor", dest="floor", action="store_false", help="without the floor server")
    parser.add_argument("--durability", default="full", help="full or process")
    parser.add_argument("--data", help="folder for the servers' data; default: the system's temporary folder")
    arguments = parser.parse_args(argv)
    try:
        names = chosen(arguments.cells.split(","), [*CELLS, *STALLS, *idle.CELLS])
    except ValueError as error:
        parser.error(str(error))
    rounds = arguments.rounds or (ROUNDS_QUICK if arguments.quick else ROUNDS)
    part = QUICK_PART if arguments.quick else 1
    with workplace(arguments.data) as folder:
        ref: str = arguments.ref
        tree = unpack(ref, folder / "ref")
        built = [f"{THIS} {build(BENCH.parent)}", f"{ref} {build(tree)}"]
        made: dict[str, Callable[[str], Broker]] = {
            THIS: lambda name: Emubus(folder / name, arguments.durability),
            ref: lambda name: Emubus(folder / name, arguments.durability, tree),
        }
        results: Figures = defaultdict(list)
        for start in range(arguments.starts if any(name not in idle.CELLS for name in names) else 0):
            print(f"compare: start {start + 1} of {arguments.starts}", file=sys.stderr, flush=True)
            sides = {side: make(f"data-{start}-{number}") for number, (side, make) in enumerate(made.items())}
            if arguments.floor:
                sides[FLOOR] = Floor(folder / f"floor-{start}", arguments.durability)
            with running(*sides.values()):
                for key, found in measure(sides, names, rounds, part).items():
                    results[key] += found
            for side in sides.values():
                shutil.rmtree(side.folder, ignore_errors=True)  # gigabytes
        results.update(measure_idle(made, names, rounds, quick=arguments.quick))
    print("\n\n".join([*tables(results, names, ref), "; ".join(built)]))
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main))
