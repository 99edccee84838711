"""Time to start, of this tree and of an older commit: the server, its health check, its version.

Knows the steps: unpack the commit, let both trees compile their modules, then take turns. Each line has a median of
processor time and of wall clock for both trees, and the ratio. The bare interpreter is shown for scale. Processor time
is the figure to trust: other programs hardly move it.

    python bench/start.py 906ba26 [--rounds 11]
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import tarfile
import tempfile
import time
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import Final, NamedTuple

ROOT: Final = Path(__file__).resolve().parent.parent
READY: Final = b"Successfully Up"
SETTLE_S: Final = 0.5
"""Wait before reading memory: a ready server may still clean up."""


class Figures(NamedTuple):
    """One run. `memory_mib` is what the process holds itself (RssAnon); 0 for one that has ended."""

    cpu_ms: float
    wall_ms: float
    memory_mib: float = 0.0


class Tree:
    """An unpacked source tree, run with this interpreter and its libraries."""

    def __init__(self, path: Path, work: Path) -> None:
        kept = {name: text for name, text in os.environ.items() if not name.startswith(("EMUBUS_", "PYTHON"))}
        # Compiled modules are kept, as after an installation; the folder is this benchmark's own.
        self._environment = {**kept, "PYTHONPATH": str(path), "PYTHONPYCACHEPREFIX": str(work / "bytecode")}
        self._work = work

    def ended(self, *arguments: str) -> Figures:
        """Run Python with these arguments to its end."""
        began_s = time.perf_counter()
        process = self._process(*arguments)
        _, _, usage = os.wait4(process.pid, 0)
        process.returncode = 0  # waited for here, because only that tells the processor time
        wall_s = time.perf_counter() - began_s
        return Figures((usage.ru_utime + usage.ru_stime) * 1000, wall_s * 1000)

    def serving(self, *arguments: str) -> Figures:
        """Run a server in a new data folder until it says that it is ready. RuntimeError if it does not."""
        with tempfile.TemporaryDirectory(dir=self._work) as folder:
            began_s = time.perf_counter()
            ports = ("--amqp-port", "0", "--http-port", "0")
            process = self._process("-m", "emubus", "serve", *ports, "--data", f"{folder}/data", *arguments)
            try:
                assert process.stdout is not None
                if READY not in process.stdout.readline():
                    raise RuntimeError(f"no server: emubus serve {' '.join(arguments)}")
                wall_s = time.perf_counter() - began_s
                cpu_s = time.clock_gettime(~process.pid << 3 | 2)  # Linux: the clock of another process
                time.sleep(SETTLE_S)
                return Figures(cpu_s * 1000, wall_s * 1000, _own_memory_mib(process.pid))
            finally:
                process.send_signal(signal.SIGTERM)
                process.communicate()

    def _process(self, *arguments: str) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, *arguments],
            env=self._environment,
            cwd=self._work,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
        )


def _own_memory_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next(int(line.split()[1]) for line in lines if line.startswith("RssAnon:")) / 1024


STEPS: Final[dict[str, Callable[[Tree], Figures]]] = {
    "python -c pass": lambda tree: tree.ended("-c", "pass"),
    "emubus --version": lambda tree: tree.ended("-m", "emubus", "--version"),
    "emubus health (nobody answers)": lambda tree: tree.ended("-m", "emubus", "health", "--http-port", "1"),
    "emubus serve": lambda tree: tree.serving(),
    "emubus serve --durability none": lambda tree: tree.serving("--durability", "none"),
}


def unpacked(commit: str, folder: Path) -> Path:
    """The files of a commit in a new folder. CalledProcessError: there is no such commit."""
    archive = subprocess.run(["git", "archive", commit], cwd=ROOT, capture_output=True, check=True).stdout
    with tarfile.open(fileobj=BytesIO(archive)) as files:
        files.extractall(folder, filter="tar")
    return folder


def line_of(name: str, old: list[Figures], new: list[Figures]) -> str:
    """The medians of both trees, and their ratios."""
    parts = [f"start   {name:31}"]
    for index, unit in enumerate(("ms CPU", "ms wall", "MiB own memory")):
        before, after = (median(figures[index] for figures in each) for each in (old, new))
        if before:
            parts.append(f"{before:6.0f} -> {after:4.0f} {unit} ({after / before:.2f} x)")
    return "  ".join(parts)


def main(argv: list[str]) -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commit", help="the commit to compare with")
    parser.add_argument("--rounds", type=int, default=11, help="runs of each tree for each line; default 11")
    arguments = parser.parse_args(argv)
    with tempfile.TemporaryDirectory() as name:
        work = Path(name)
        old, new = Tree(unpacked(arguments.commit, work / "old"), work), Tree(ROOT, work)
        for step, run in STEPS.items():
            found: dict[Tree, list[Figures]] = {old: [], new: []}
            for tree in (old, new):
                run(tree)  # compiles its modules
            for number in range(arguments.rounds):
                for tree in (old, new) if number % 2 else (new, old):
                    found[tree].append(run(tree))
            print(line_of(step, found[old], found[new]), flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
