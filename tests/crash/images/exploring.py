"""Records a server, makes images of what a crash may leave of its folder, and judges them.

python -m tests.crash.images.exploring FOLDER --images 10000 [--durability second] [--fault NAME]
    [--fails "TEXT SKIP COUNT DONE"]
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Final

from . import faults
from .ledger import Ledger, judge, kinds
from .trace import Disk, Kind, Loss, Record, read_trace

RECORDER: Final = Path(__file__).with_name("recorder.c")
STEPS: Final = 300
SLOW_WRITES: Final = 80
"""For so many writes of the journal a sync of the first store waits, so that laps begin meanwhile."""
PROGRAM_S_MAX: Final = 600


class NotKilled(Exception):  # noqa: N818 - what became of it
    """The recorded process ended by itself; the text is its output."""


def build(folder: Path) -> Path:
    """Compile the recorder."""
    made = folder / "recorder.so"
    command = ["cc", "-O2", "-Wall", "-Werror", "-shared", "-fPIC", "-o", str(made), str(RECORDER), "-ldl", "-lpthread"]
    subprocess.run(command, check=True, timeout=PROGRAM_S_MAX)
    return made


def record(
    folder: Path,
    recorder: Path,
    fault: str = faults.NONE,
    *,
    runs: int = 2,
    steps: int = STEPS,
    fails: str = "",
    durability: str = "full",
) -> list[Record]:
    """Record a server that is killed and started again, `runs` times in all, on the new folder `folder`/data."""
    log, data = folder / "log", folder / "data"
    own = fault if fault not in faults.READING else faults.NONE
    env = {"LD_PRELOAD": str(recorder), "RECORD_DIR": str(data), "RECORD_LOG": str(log)}
    env |= {"RECORD_SLOW": str(SLOW_WRITES)} | ({"RECORD_FAIL": fails} if fails else {})
    for run in range(1, runs + 1):
        command = [sys.executable, "-m", "tests.crash.images.subject", str(data), str(run), str(steps), own]
        command.append(durability)
        done = subprocess.run(command, env=os.environ | env, capture_output=True, text=True, timeout=PROGRAM_S_MAX)
        if done.returncode != -signal.SIGKILL:
            raise NotKilled(done.stdout + done.stderr)
    return read_trace(log)


def positions(records: Sequence[Record], ledger: Ledger, count: int, chance: random.Random) -> list[int]:
    """So many positions, ascending: behind answers, around writes and syncs, where a lap begins, in later starts."""
    data = [at for at, each in enumerate(records) if each.kind in (Kind.WRITE, Kind.SYNC, Kind.TRUNCATE)]
    names = [at for at, each in enumerate(records) if each.kind in (Kind.OPEN, Kind.RENAME, Kind.UNLINK, Kind.MKDIR)]
    laps = [at + more for at, each in enumerate(records) if is_lap(each) for more in range(24)]
    records_of_laps = [at + more for at, each in enumerate(records) if is_lap(each) for more in (1, 2)]
    pools = (ledger.answers, data, names, laps, records_of_laps, list(beside_syncs(records)), list(starts(records)))
    chosen = [chance.choice(chance.choices(pools, (8, 6, 2, 4, 1, 6, 2))[0] or data) for _ in range(count)]
    return sorted(min(at + chance.randint(0, 1), len(records)) for at in chosen)


def beside_syncs(records: Sequence[Record]) -> Iterator[int]:
    """The positions at which a lap has begun during a sync that has not ended."""
    begun: dict[int, int] = {}
    for at, record in enumerate(records):
        if record.kind is Kind.SYNC and not record.is_end:
            begun[record.op] = at
        elif record.kind is Kind.SYNC and record.op in begun:
            first = begun.pop(record.op)
            laps = [each for each in range(first, at) if is_lap(records[each])]
            yield from range(laps[0] + 3, at) if laps else ()


def starts(records: Sequence[Record]) -> Iterator[int]:
    """The positions at which a server starts on what another one has left."""
    last_note = 0
    for at, record in enumerate(records):
        if record.kind is Kind.NOTE:
            if last_note and b'"ready"' in record.data:
                yield from range(last_note, at)
            last_note = at


def is_lap(record: Record) -> bool:
    """Whether this writes the record of a journal's lap."""
    return record.kind is Kind.WRITE and not record.is_end and record.data.startswith(b"eLAP")


def explore(
    records: Sequence[Record],
    root: Path,
    count: int,
    seed: int,
    work: Path,
    *,
    durability: str = "full",
) -> Iterator[tuple[int, Loss, list[str]]]:
    """Yield the position, the loss and the problems of each of so many images."""
    chance = random.Random(seed)
    ledger, disk = Ledger(records, is_prefix=durability == "second"), Disk(records, root)
    for at in positions(records, ledger, count, chance):
        disk.go_to(at)
        loss = chance.choice(list(Loss))
        target = work / "image"
        for path, content in disk.image(loss, chance).items():
            if content is None:
                (target / path).mkdir(mode=0o700, parents=True)
            else:
                (target / path).write_bytes(content)
        if target.exists():
            yield at, loss, judge(ledger, target, at)
            shutil.rmtree(target)


def say(line: str) -> None:
    """Print a line."""
    sys.stdout.write(f"{line}\n")
    sys.stdout.flush()


def main() -> None:
    """Explore one recording; print the tally and the first problems."""
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("--images", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--steps", type=int, default=STEPS)
    parser.add_argument("--runs", type=int, default=2)
    parser.add_argument("--fault", default=faults.NONE, choices=[faults.NONE, *faults.FAULTS])
    parser.add_argument("--fails", default="")
    parser.add_argument("--durability", default="full", choices=["full", "second"])
    options = parser.parse_args()
    folder: Path = options.folder
    folder.mkdir(parents=True)
    records = record(
        folder,
        build(folder),
        options.fault,
        runs=options.runs,
        steps=options.steps,
        fails=options.fails,
        durability=options.durability,
    )
    say(f"{len(records)} records, {sum(map(is_lap, records))} laps")
    faults.put(options.fault if options.fault in faults.READING else faults.NONE)
    tally, wrong_count, count = Counter[str](), 0, 0
    with tempfile.TemporaryDirectory(dir="/dev/shm") as work:
        images = explore(
            records, folder / "data", options.images, options.seed, Path(work), durability=options.durability
        )
        for at, loss, problems in images:
            count += 1
            tally += kinds(problems)
            wrong_count += bool(problems)
            if problems and wrong_count <= 10:
                say(f"at {at}, {loss}: {'; '.join(problems[:4])[:400]}")
    say(f"{count} images, {wrong_count} wrong: {dict(tally)}")


if __name__ == "__main__":
    main()
