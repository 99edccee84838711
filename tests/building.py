"""What tests need to have built: done once, and again when its sources change.

Knows stamps (a build leaves a hash over its sources inside what it made), locks between processes, and how several
builds run side by side. What is built stands in `sdk.prepare`, `spark.prepare` and `web.prepare`. Uses the standard
library only, so it runs before anything is installed. A build that fails raises PrepareError.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
BUILD_SECONDS_MAX = 900


@dataclass(frozen=True)
class Build:
    """How something is built: the sources it is made of, what it makes, and the commands."""

    folder: Path
    sources: tuple[str, ...]  # glob patterns in the folder; their contents are hashed
    output: Path  # a folder, made anew by the commands; the stamp is kept in it
    commands: tuple[tuple[str, ...], ...]

    def fingerprint(self) -> str:
        """A hash over the sources' names and contents, the commands and the Python version that runs them."""
        # One interpreter has several names (python, python3): its version counts, not the name it was called by.
        commands = repr(self.commands).replace(repr(sys.executable), sys.version)
        digest = hashlib.sha256(commands.encode())
        paths = {path for pattern in self.sources for path in self.folder.glob(pattern) if path.is_file()}
        for path in sorted(paths):
            digest.update(f"\0{path.relative_to(self.folder)}\0".encode())
            digest.update(path.read_bytes())
        return digest.hexdigest()


def pip_install(python: Path) -> tuple[str, ...]:
    """The beginning of a command that installs packages into the environment of `python`, by the pip of this one.

    An environment without a pip of its own (`venv --without-pip`) is made in a tenth of the processor time.
    """
    return (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-compile")


class PrepareError(Exception):
    """Something could not be built; the text holds the end of the build's output."""


def build(name: str, wanted: Build) -> bool:
    """Build `wanted` unless it is there already; tells whether it was built now.

    Only one process (and thread) builds an output at a time; the others wait and find it built. Raises PrepareError
    when a command fails or is missing.
    """
    with _lock_file(wanted.output).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        stamp = wanted.output / ".prepared"
        fingerprint = wanted.fingerprint()
        if stamp.is_file() and stamp.read_text() == fingerprint:
            return False
        shutil.rmtree(wanted.output, ignore_errors=True)
        for command in wanted.commands:
            run(name, command, wanted.folder)
        wanted.output.mkdir(exist_ok=True)
        stamp.write_text(fingerprint)
        return True


def build_all(builders: Mapping[str, Callable[[], bool]]) -> dict[str, str]:
    """Run the builders side by side, one per processor; reports on stdout and stderr. Why builds failed, by name."""
    failed: dict[str, str] = {}
    with ThreadPoolExecutor(max_workers=os.cpu_count()) as pool:
        running = {name: pool.submit(builder) for name, builder in builders.items()}
        for name, result in running.items():
            try:
                sys.stdout.write(f"{name}: {'built' if result.result() else 'ready'}\n")
            except PrepareError as error:
                sys.stderr.write(f"{name}: {error}\n")
                failed[name] = str(error)
    return failed


def _lock_file(output: Path) -> Path:
    name = hashlib.sha256(str(output).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"emubus-prepare-{name}.lock"


def run(name: str, command: Sequence[str], folder: Path) -> None:
    """Run one command of a build; PrepareError with the end of its output if it fails, is missing or takes too long."""
    shown = " ".join(command)
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=BUILD_SECONDS_MAX,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PrepareError(f"{name} can't be built: {shown}: {error}") from error
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-4000:]
        raise PrepareError(f"{name} can't be built: {shown} ended with {done.returncode}\n{tail}")
