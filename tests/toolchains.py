"""The toolchains that tests need beside Python: which there are, which Debian's packages add, and what is left out.

`install_missing` installs what is missing where that is possible (root on a Debian machine). Whatever can't be had is
written down with its reason (`note_unavailable`), its tests are not run, and each run of pytest closes with the table.
With CI=true nothing that Debian has may be missing: `python -m tests.prepare` fails then. Uses the standard library
only.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .building import ROOT, PrepareError, run

UNAVAILABLE_VARIABLE: Final = "EMUBUS_TESTS_UNAVAILABLE"
UNAVAILABLE_FILE: Final = Path(os.environ.get(UNAVAILABLE_VARIABLE, ROOT / ".venv-unavailable.json"))
VERSION_SECONDS_MAX: Final = 60

BRIEF_JAVA: Final = (
    *("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"),
    *("-XX:+UnlockDiagnosticVMOptions", "-XX:-BytecodeVerificationRemote"),
)
"""Options for Java programs that don't live long.

Half of their processor time would go into better machine code, and a sixth of the rest into verifying what compilers
of Java have made.
"""

Reasons = Mapping[str, str]
"""Why a part of the tests can't run, by the name of its build."""


@dataclass(frozen=True)
class Toolchain:
    """Commands that must be there, the oldest version that does, as the first command prints it, and their packages.

    What Debian has no package for is used where it is, and may be missing in CI, too.
    """

    name: str
    commands: tuple[str, ...]
    version_option: str
    version_min: int  # the first number, e.g. 17 of "17.0.15"
    packages: tuple[str, ...]

    def missing(self) -> list[str]:
        """The commands that are not there."""
        return [command for command in self.commands if shutil.which(command) is None]

    def problem(self) -> str | None:
        """What is wrong with the toolchain as it is installed, in one line; None if nothing is."""
        missing = self.missing()
        if missing:
            version = "" if self.packages else f" {self.version_min} or newer"
            packages = f" (Debian: {' '.join(self.packages)})" if self.packages else ""
            return f"{' and '.join(missing)} not found; install {self.name}{version}{packages}"
        shown = subprocess.run(
            [self.commands[0], self.version_option],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=VERSION_SECONDS_MAX,
            check=False,
        ).stdout
        found = re.search(r"(\d+)[.\d]*", shown)
        if found is None or int(found[1]) < self.version_min:
            version = shown.splitlines()[0] if shown else "no version"
            return f"{self.name} {self.version_min} or newer is needed; found {version}"
        return None


JAVA: Final = Toolchain("Java", ("java",), "-version", 17, ("openjdk-17-jdk-headless",))
MAVEN: Final = Toolchain("Java with Maven", ("javac", "mvn"), "-version", 17, ("openjdk-17-jdk-headless", "maven"))
NODE: Final = Toolchain("Node.js", ("node", "npm"), "--version", 18, ("nodejs", "npm"))
GO: Final = Toolchain("Go", ("go",), "version", 1, ("golang-go",))
DOTNET: Final = Toolchain("the .NET SDK", ("dotnet",), "--version", 10, ())

NEEDED: Final[Mapping[str, Toolchain]] = {
    "spark": JAVA,
    "spark-4.0": JAVA,
    "java": MAVEN,
    "qpid-jms-1": MAVEN,
    "qpid-jms-2": MAVEN,
    "spring-jms": MAVEN,
    "javascript": NODE,
    "node-tools": NODE,
    "arm-javascript": NODE,
    "arm-java": MAVEN,
    "arm-dotnet": DOTNET,
    "go": GO,
    "dotnet": DOTNET,
}
"""The toolchain of each build, by the name of the build; `spark` stands for all tests that start Spark."""


def may_be_missing(build: str) -> bool:
    """Whether a build is left out in CI, too: its toolchain is missing, and there is no package of it."""
    toolchain = NEEDED.get(build)
    return toolchain is not None and not toolchain.packages and toolchain.problem() is not None


def install_missing() -> None:
    """Install the packages of all toolchains that are missing; without root or apt-get nothing happens."""
    packages = {package for each in NEEDED.values() if each.problem() is not None for package in each.packages}
    if not packages or os.geteuid() != 0 or shutil.which("apt-get") is None:
        return
    try:
        run("the toolchains", ("apt-get", "update", "-qq"), ROOT)
        for package in sorted(packages):  # one by one: one that can't be had leaves the others
            run("the toolchains", ("apt-get", "install", "-y", "-qq", "--no-install-recommends", package), ROOT)
    except PrepareError:
        pass  # the toolchain is still missing, and said to be


def checked(builders: Mapping[str, Callable[[], bool]]) -> dict[str, Callable[[], bool]]:
    """The builders, each of which raises PrepareError first if its toolchain is missing; `spark` only checks."""

    def check(name: str, build: Callable[[], bool]) -> Callable[[], bool]:
        def checked_build() -> bool:
            problem = NEEDED[name].problem() if name in NEEDED else None
            if problem is not None:
                raise PrepareError(problem)
            return build()

        return checked_build

    return {name: check(name, build) for name, build in {"spark": lambda: False, **builders}.items()}


def note_unavailable(reasons: Reasons) -> None:
    """Write down which parts of the tests can't run here, for the runs of pytest that follow."""
    if reasons:
        UNAVAILABLE_FILE.write_text(json.dumps(reasons, indent=2))
    else:
        UNAVAILABLE_FILE.unlink(missing_ok=True)


def unavailable() -> dict[str, str]:
    """Why parts of the tests can't run here, by the name of their build; empty where all can.

    What nothing installs is known without the file, which tests that run beside the builds may not find yet.
    """
    nothing_installs = {name: each for name, each in NEEDED.items() if not each.packages and each.missing()}
    reasons = {name: str(each.problem()) for name, each in nothing_installs.items()}
    if UNAVAILABLE_FILE.is_file():
        reasons |= json.loads(UNAVAILABLE_FILE.read_text())
    return reasons


def table(reasons: Reasons) -> str:
    """The closing table: what was not run, and why."""
    width = max(map(len, reasons), default=0)
    return "\n".join(f"  {name:<{width}}  {reason.splitlines()[0]}" for name, reason in sorted(reasons.items()))
