"""Builds the drivers of ``tests/sdk/drivers``: ``python tests/sdk/prepare.py [client …]``.

Knows how each client's driver is built and started (the ``CLIENTS`` table), and when it must be built anew: a build
leaves a stamp inside what it built, with a hash over its sources, and is repeated when the hash differs. Refuses to
know the protocol and the tests. Uses the standard library only, so it runs before anything is installed. A driver
that can't be built is an error, never left out.
"""

from __future__ import annotations

import fcntl
import hashlib
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DRIVERS = Path(__file__).resolve().parent / "drivers"
VENV_7143 = ROOT / ".venv-sb7143"
PYTHON_7143 = VENV_7143 / "bin" / "python"
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


@dataclass(frozen=True)
class Client:
    """One SDK under test: its name, and how its driver is built and started."""

    name: str
    folder: Path
    start: tuple[str, ...]  # the connection string is added as the last argument
    build: Build | None = None


class PrepareError(Exception):
    """A driver could not be built; the text holds the end of the build's output."""


_PYTHON = DRIVERS / "python"
_BUILD_7143 = Build(
    folder=_PYTHON,
    sources=("requirements-7.14.3.txt",),
    output=VENV_7143,
    commands=(
        (sys.executable, "-m", "venv", str(VENV_7143)),
        (str(PYTHON_7143), "-m", "pip", "install", "--quiet", "-r", "requirements-7.14.3.txt"),
    ),
)
_JAVASCRIPT = DRIVERS / "javascript"
_JAVA = DRIVERS / "java"
_GO = DRIVERS / "go"

CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client("python-sync", DRIVERS, (sys.executable, "-m", "python.driver", "sync")),
        Client("python-aio", DRIVERS, (sys.executable, "-m", "python.driver", "aio")),
        Client("python-sync-7.14.3", DRIVERS, (str(PYTHON_7143), "-m", "python.driver", "sync"), _BUILD_7143),
        Client("python-aio-7.14.3", DRIVERS, (str(PYTHON_7143), "-m", "python.driver", "aio"), _BUILD_7143),
        Client(
            "javascript",
            _JAVASCRIPT,
            ("node", "driver.mjs"),
            Build(
                folder=_JAVASCRIPT,
                sources=("package.json", "package-lock.json", ".npmrc"),
                output=_JAVASCRIPT / "node_modules",
                commands=(("npm", "ci", "--no-audit", "--no-fund"),),
            ),
        ),
        Client(
            "java",
            _JAVA,
            ("java", "-jar", "target/driver.jar"),
            Build(
                folder=_JAVA,
                sources=("pom.xml", "src/**/*"),
                output=_JAVA / "target",
                commands=(("mvn", "-q", "-B", "package"),),
            ),
        ),
        Client(
            "go",
            _GO,
            ("build/driver",),
            Build(
                folder=_GO,
                sources=("go.mod", "go.sum", "*.go"),
                output=_GO / "build",
                commands=(("go", "build", "-o", "build/driver", "."),),
            ),
        ),
    )
}


def prepare(client: Client) -> bool:
    """Build the client's driver unless it is built already; tells whether it was built now.

    Only one process builds at a time; the others wait and find it built. Raises PrepareError when a command fails or
    is missing.
    """
    if client.build is None:
        return False
    with _lock_file().open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        return _build(client, client.build)


def _lock_file() -> Path:
    name = hashlib.sha256(str(ROOT).encode()).hexdigest()[:16]
    return Path(tempfile.gettempdir()) / f"emubus-prepare-{name}.lock"


def _build(client: Client, build: Build) -> bool:
    stamp = build.output / ".prepared"
    fingerprint = build.fingerprint()
    if stamp.is_file() and stamp.read_text() == fingerprint:
        return False
    shutil.rmtree(build.output, ignore_errors=True)
    for command in build.commands:
        _run(client, command, build.folder)
    build.output.mkdir(exist_ok=True)
    stamp.write_text(fingerprint)
    return True


def _run(client: Client, command: Sequence[str], folder: Path) -> None:
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
        raise PrepareError(f"the driver of {client.name} can't be built: {shown}: {error}") from error
    if done.returncode != 0:
        tail = done.stdout.decode(errors="replace")[-4000:]
        raise PrepareError(f"the driver of {client.name} can't be built: {shown} ended with {done.returncode}\n{tail}")


def main(names: Sequence[str]) -> int:
    """Prepare the named clients, or all; returns the exit status."""
    unknown = set(names) - set(CLIENTS)
    if unknown:
        sys.stderr.write(f"no such client: {', '.join(sorted(unknown))}; there are: {', '.join(CLIENTS)}\n")
        return 2
    status = 0
    for name in names or CLIENTS:
        try:
            built = prepare(CLIENTS[name])
            sys.stdout.write(f"{name}: {'built' if built else 'ready'}\n")
        except PrepareError as error:
            sys.stderr.write(f"{error}\n")
            status = 1
    return status


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
