"""Builds the programs over the management SDKs of JavaScript, Java and .NET. Uses the standard library only.

Go's and Terraform's provider are not among them: the Go module proxy does not serve them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Final

from ....building import Build, build
from ....rounds import IS_LONG
from ....sdk.prepare import DOTNET_BUILD
from ....toolchains import BRIEF_JAVA, unavailable

FOLDER: Final = Path(__file__).resolve().parent
_JAVASCRIPT, _JAVA, _DOTNET = FOLDER / "javascript", FOLDER / "java", FOLDER / "dotnet"


@dataclass(frozen=True)
class Program:
    """How a program is built and started; a URL, a token and the folder of the templates follow."""

    build: Build
    start: tuple[str, ...]


PROGRAMS: Final = {
    "javascript": Program(
        Build(
            folder=_JAVASCRIPT,
            sources=("package.json", "package-lock.json", ".npmrc"),
            output=_JAVASCRIPT / "node_modules",
            commands=(("npm", "ci", "--no-audit", "--no-fund"),),
        ),
        ("node", str(_JAVASCRIPT / "client.mjs")),
    ),
    "java": Program(
        Build(
            folder=_JAVA,
            sources=("pom.xml", "src/**/*"),
            output=_JAVA / "target",
            commands=(("env", f"MAVEN_OPTS={' '.join(BRIEF_JAVA)}", "mvn", "-q", "-B", "package"),),
        ),
        ("java", *BRIEF_JAVA, "-jar", str(_JAVA / "target" / "client.jar")),
    ),
    "dotnet": Program(
        Build(
            folder=_DOTNET,
            sources=("client.csproj", "packages.lock.json", "*.cs"),
            output=_DOTNET / "build",
            commands=((*DOTNET_BUILD, "-o", "build", "-p:BaseIntermediateOutputPath=build/obj/"),),
        ),
        ("dotnet", str(_DOTNET / "build" / "client.dll")),
    ),
}


BRIEF: Final = ("javascript",)
"""Those that the short form of the suite runs: the others take ten seconds each, and a minute to build."""


def name_of(program: str) -> str:
    """The name of its build."""
    return f"arm-{program}"


def prepare(program: str) -> bool:
    """Build a program unless it is built; tells whether it was built now. PrepareError."""
    return build(f"the ARM client of {program}", PROGRAMS[program].build)


def builders() -> dict[str, Callable[[], bool]]:
    """The things to build, by name."""
    return {name_of(each): partial(prepare, each) for each in _run()}


def available() -> list[str]:
    """The programs that can run here (see `toolchains`)."""
    missing = unavailable()
    return [each for each in _run() if name_of(each) not in missing]


def _run() -> list[str]:
    return [each for each in PROGRAMS if IS_LONG or each in BRIEF]
