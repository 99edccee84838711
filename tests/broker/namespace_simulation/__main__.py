"""The long run: `python -m tests.broker.namespace_simulation --commands 10000000 --jobs 2`.

Each run has a seed of its own, counted from `--seed`; the first that breaks a rule is shrunk and printed as a case.
`--mute RULE` goes on past what is known; `--find RULE` mutes everything else.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Collection
from concurrent.futures import ProcessPoolExecutor
from itertools import count

from .rules import RULES
from .running import Failure, run_seed, written
from .shrinking import Shrinking

SEEDS_AT_ONCE = 8


def several(seeds: range, command_count: int, muted: Collection[str]) -> tuple[Failure | None, int, float]:
    """Runs of these seeds up to the first failure; how many commands they did, in how many seconds of CPU."""
    began = time.process_time()
    done = 0
    for seed in seeds:
        failure = run_seed(seed, command_count, muted)
        done += command_count if failure is None else failure.command_count
        if failure is not None:
            return failure, done, time.process_time() - began
    return None, done, time.process_time() - began


def main(arguments: list[str]) -> int:
    """0 if no rule was broken."""
    parser = argparse.ArgumentParser(prog="python -m tests.broker.namespace_simulation", description=__doc__)
    parser.add_argument("--commands", type=int, default=200_000, help="how many in all")
    parser.add_argument("--each", type=int, default=1_000, help="how many in one run")
    parser.add_argument("--seed", type=int, default=1, help="of the first run")
    parser.add_argument("--jobs", type=int, default=1, help="processes")
    parser.add_argument("--mute", action="append", default=[], choices=RULES, metavar="RULE")
    parser.add_argument("--find", choices=RULES, metavar="RULE")
    options = parser.parse_args(arguments)
    muted = set(RULES) - {options.find} if options.find else set(options.mute)
    done, cpu_s = 0, 0.0
    starts = count(options.seed, SEEDS_AT_ONCE)
    with ProcessPoolExecutor(options.jobs) as pool:
        while done < options.commands:
            batches = [
                range(start, start + SEEDS_AT_ONCE) for _, start in zip(range(options.jobs), starts, strict=False)
            ]
            answers = [pool.submit(several, batch, options.each, muted) for batch in batches]
            for answer in answers:
                failure, its_done, its_s = answer.result()
                done, cpu_s = done + its_done, cpu_s + its_s
                if failure is not None:
                    _say(failure, muted, done)
                    return 1
            _print(f"{done} commands, {done / cpu_s:.0f} in a second of CPU")
    return 0


def _say(failure: Failure, muted: Collection[str], done: int) -> None:
    where = f"seed {failure.seed}, command {failure.command_count} of that run, {done} in all"
    _print(f"{where}: {failure.rule}: {failure.seen}\nShrinking …")
    _print(written(Shrinking(failure, muted).smallest()))


def _print(text: str) -> None:
    sys.stdout.write(f"{text}\n")
    sys.stdout.flush()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
