"""Builds the project's wheel: `python -m tests.wheel FOLDER`.

Knows that it must be built from a clean copy, so that no stale build folder leaks into it. Does not know what
it holds.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

from .building import ROOT

WHEEL_SECONDS_MAX = 600


def build_wheel(folder: Path, environment: Mapping[str, str] | None = None) -> Path:
    """Build the wheel of the working tree into an existing folder; its path. CalledProcessError if that fails.

    `environment` is added to that of the build.
    """
    with tempfile.TemporaryDirectory(prefix="emubus-source-") as source:
        copy_tracked(Path(source))
        command = [sys.executable, "-P", "-m", "pip", "wheel", "--no-deps", "--no-build-isolation", "-q"]
        subprocess.run(
            [*command, "-w", str(folder), source],
            check=True,
            capture_output=True,
            timeout=WHEEL_SECONDS_MAX,
            env={**os.environ, **(environment or {})},
        )
    (wheel,) = folder.glob("emubus-*.whl")
    return wheel


def copy_tracked(target: Path) -> None:
    """Copy every file of the project (known to git, or new and not ignored) but links and tests."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"], cwd=ROOT, capture_output=True, check=True
    )
    for name in listed.stdout.decode().splitlines():
        path = ROOT / name
        if path.is_file() and not path.is_symlink() and not name.startswith("tests/"):
            copy = target / name
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_bytes(path.read_bytes())


if __name__ == "__main__":
    made = Path(sys.argv[1])
    made.mkdir(parents=True, exist_ok=True)
    build_wheel(made)
