"""Gets a suite and what it needs: `python -m tests.conformance.preparing NAME FOLDER`, run by `tests.building`.

Makes in the folder: `source`, the package as it was published, with the replaced lines; beside it the environment in
which it runs (`python`, `node_modules` in the source, or `bin` with the test binaries of Go).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tarfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Final

from tests.building import ROOT, Build

from .suites import HERE, SUITES, Suite

PLACE: Final = ROOT / ".venv-conformance"
"""Where everything goes; git ignores it, and `make clean` removes it."""


def place(suite: Suite) -> Path:
    """The folder of a suite."""
    return PLACE / f"{suite.package.rpartition('/')[2]}-{suite.version}"


def build_of(suite: Suite) -> Build:
    """How it is made; anew when its version, what it needs or this module changes."""
    what = repr((suite.version, suite.needs, suite.replacements, sorted({each.tests[0] for each in suite.rounds})))
    command = (sys.executable, "-m", "tests.conformance.preparing", suite.name, str(place(suite)), what)
    return Build(
        folder=ROOT, sources=(str((HERE / "preparing.py").relative_to(ROOT)),), output=place(suite), commands=(command,)
    )


def call(folder: Path, *command: str, environment: Mapping[str, str] | None = None) -> str:
    """Run a command to its end; its standard output. CalledProcessError if it fails."""
    done = subprocess.run(
        command, cwd=folder, env={**os.environ, **(environment or {})}, stdout=subprocess.PIPE, text=True, check=True
    )
    return done.stdout


def unpacked(archive: Path, source: Path) -> None:
    """Unpack an archive whose files all lie in one folder, which becomes `source`."""
    with tarfile.open(archive) as opened:
        opened.extractall(source.parent / "unpacked", filter="data")
    [only] = (source.parent / "unpacked").iterdir()
    only.rename(source)


def python_suite(suite: Suite, folder: Path) -> None:
    """The package of this version in an environment of its own, and the tests of its sdist."""
    wanted = f"{suite.package}=={suite.version}"
    call(folder, sys.executable, "-m", "venv", "python")
    pip = str(folder / "python" / "bin" / "pip")
    call(folder, pip, "install", "--quiet", "--no-compile", wanted, "pytest", *suite.needs)
    call(folder, pip, "download", "--quiet", "--no-deps", "--no-binary", suite.package, "--dest", "sdist", wanted)
    [archive] = (folder / "sdist").iterdir()
    unpacked(archive, folder / "source")


def go_suite(suite: Suite, folder: Path) -> None:
    """The module's source, and a test binary of each of its packages."""
    answer = call(folder, "go", "mod", "download", "-json", f"{suite.package}@v{suite.version}")
    source = folder / "source"
    shutil.copytree(json.loads(answer)["Dir"], source)
    for path in (source, *source.rglob("*")):  # the module cache is read-only
        path.chmod(path.stat().st_mode | 0o200)
    replace(suite, source)
    for package in sorted({each.tests[0] for each in suite.rounds}):
        call(
            source, "go", "test", "-c", "-o", str(binary(folder, package)), package, environment={"GOFLAGS": "-mod=mod"}
        )


def binary(folder: Path, package: str) -> Path:
    """The test binary of a package such as `./admin`."""
    return folder / "bin" / (package.strip("./").replace("/", "-") or "main")


def node_suite(suite: Suite, folder: Path) -> None:
    """The package as it is packed, with its dependencies, also those for its tests."""
    packed = call(folder, "npm", "pack", "--silent", f"{suite.package}@{suite.version}").strip()
    unpacked(folder / packed, folder / "source")
    quietly = ("--silent", "--no-audit", "--no-fund", "--ignore-scripts", "--no-save")
    call(folder / "source", "npm", "install", *quietly, *suite.needs)


def replace(suite: Suite, source: Path) -> None:
    """Write the replaced lines; ValueError if one is not there."""
    for each in suite.replacements:
        path = source / each.file
        text = path.read_text()
        if text.count(each.line) != 1:
            raise ValueError(f"{each.file} has {text.count(each.line)} lines {each.line!r}, not 1: look at it again")
        path.write_text(text.replace(each.line, each.by))


MAKERS: Final = {"pytest": python_suite, "go": go_suite, "mocha": node_suite}


def main(name: str, folder: Path) -> None:
    """Make everything in `folder`, which must not exist."""
    [suite] = [each for each in SUITES if each.name == name]
    folder.mkdir(parents=True)
    MAKERS[suite.runner](suite, folder)


def run_command(suite: Suite, tests: Sequence[str], report: Path, left_out: Sequence[str]) -> list[str]:
    """The command that runs tests of a suite, in the folder of the tests.

    pytest writes `report`; the report of Go's and mocha's is their standard output. `left_out` are regular expressions
    of tests that don't run.
    """
    folder = place(suite)
    if suite.runner == "pytest":
        python = str(folder / "python" / "bin" / "python")
        deselected = [f"--deselect={each}" for each in left_out]
        return [
            python,
            "-m",
            "pytest",
            "-q",
            "-p",
            "no:cacheprovider",
            *suite.options,
            *deselected,
            f"--junitxml={report}",
            *tests,
        ]
    if suite.runner == "go":
        package, *options = tests
        skipped = ["-test.skip", "|".join(left_out)] if left_out else []
        return [str(binary(folder, package)), "-test.v", "-test.timeout", "40m", *options, *suite.options, *skipped]
    mocha = str(folder / "source" / "node_modules" / ".bin" / "mocha")
    return [mocha, "--reporter", "json", "--timeout", "60000", "--exit", *tests]


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
