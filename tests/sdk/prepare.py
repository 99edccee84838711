"""Builds the drivers of ``tests/sdk/drivers``.

Knows how each client's driver is built and started (the ``CLIENTS`` table). Does not know the protocol and the tests,
and when something must be built anew (``tests.building``). Uses the standard library only.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from ..building import ROOT, Build, PrepareError, build, pip_install
from ..toolchains import BRIEF_JAVA, unavailable

__all__ = [
    "ALL_CLIENTS",
    "CLIENTS",
    "DOTNET_BUILD",
    "OLDER",
    "PREVIEWS",
    "Build",
    "Client",
    "PrepareError",
    "available",
    "build_name",
    "builders",
    "prepare",
]

DRIVERS = Path(__file__).resolve().parent / "drivers"
# Nothing is reported, and no process of the build stays behind it.
DOTNET_BUILD = (
    *("env", "DOTNET_CLI_TELEMETRY_OPTOUT=1", "DOTNET_NOLOGO=1"),
    *("dotnet", "build", "-c", "Release", "-v", "quiet", "-nologo", "-nodeReuse:false"),
)
VENV_7143 = ROOT / ".venv-sb7143"
PYTHON_7143 = VENV_7143 / "bin" / "python"


@dataclass(frozen=True)
class Client:
    """One SDK under test: its name, and how its driver is built and started."""

    name: str
    folder: Path
    start: tuple[str, ...]  # the options and, as the last argument, the connection string follow
    build: Build | None = None
    warm_up_s: float = 0.0
    """How much longer than others the first requests of a process may take, while it loads the SDK."""


_PYTHON = DRIVERS / "python"
_BUILD_7143 = Build(
    folder=_PYTHON,
    sources=("requirements-7.14.3.txt",),
    output=VENV_7143,
    commands=(
        (sys.executable, "-m", "venv", "--without-pip", str(VENV_7143)),
        (*pip_install(PYTHON_7143), "-r", "requirements-7.14.3.txt"),
    ),
)
_JAVASCRIPT = DRIVERS / "javascript"
_BUILD_JAVASCRIPT = Build(
    folder=_JAVASCRIPT,
    sources=("package.json", "package-lock.json", ".npmrc"),
    output=_JAVASCRIPT / "node_modules",
    commands=(("npm", "ci", "--no-audit", "--no-fund"),),
)
_JAVA = DRIVERS / "java"
_GO = DRIVERS / "go"
_DOTNET = DRIVERS / "dotnet"
CLIENTS: dict[str, Client] = {
    client.name: client
    for client in (
        Client("python-sync", DRIVERS, (sys.executable, "-m", "python.driver", "sync")),
        Client("python-aio", DRIVERS, (sys.executable, "-m", "python.driver", "aio")),
        Client("python-sync-7.14.3", DRIVERS, (str(PYTHON_7143), "-m", "python.driver", "sync"), _BUILD_7143),
        Client("python-aio-7.14.3", DRIVERS, (str(PYTHON_7143), "-m", "python.driver", "aio"), _BUILD_7143),
        Client("javascript", _JAVASCRIPT, ("node", "driver.mjs"), _BUILD_JAVASCRIPT),
        Client(
            "java",
            _JAVA,
            ("java", *BRIEF_JAVA, "-jar", "target/driver.jar"),
            Build(
                folder=_JAVA,
                sources=("pom.xml", "src/**/*"),
                output=_JAVA / "target",
                commands=(("env", f"MAVEN_OPTS={' '.join(BRIEF_JAVA)}", "mvn", "-q", "-B", "package"),),
            ),
            warm_up_s=45.0,  # a JVM, and the classes of TLS and of an HTTP or AMQP client
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
        Client(
            "dotnet",
            _DOTNET,
            ("dotnet", "build/driver.dll"),
            Build(
                folder=_DOTNET,
                sources=("driver.csproj", "packages.lock.json", "*.cs"),
                output=_DOTNET / "build",
                commands=((*DOTNET_BUILD, "-o", "build", "-p:BaseIntermediateOutputPath=build/obj/"),),
            ),
            warm_up_s=45.0,  # the machine code of the SDK, of TLS and of an HTTP or AMQP client is made as it is used
        ),
    )
}

# Versions of an SDK that are there for what the others don't have; the tests of everything else run without them.
PREVIEWS: dict[str, Client] = {
    client.name: client
    for client in (
        Client("javascript-beta", _JAVASCRIPT, ("node", "driver.mjs", "service-bus-beta"), _BUILD_JAVASCRIPT),
    )
}
# Older versions that take the frames of some answers in their own way; only the tests of those run with them.
OLDER: dict[str, Client] = {
    f"javascript-{version}": Client(
        f"javascript-{version}", _JAVASCRIPT, ("node", "driver.mjs", f"service-bus-{version}"), _BUILD_JAVASCRIPT
    )
    for version in ("7.0.5", "7.3.0", "7.9.0")
}
ALL_CLIENTS: dict[str, Client] = CLIENTS | PREVIEWS | OLDER


def prepare(client: Client) -> bool:
    """Build the client's driver unless it is built already; tells whether it was built now.

    Raises PrepareError when a command fails or is missing.
    """
    return client.build is not None and build(f"the driver of {client.name}", client.build)


def builders() -> dict[str, Callable[[], bool]]:
    """The things to build, by the name of a client that needs it; clients can share a driver."""
    first = {client.build: client for client in reversed(ALL_CLIENTS.values()) if client.build is not None}
    return {client.name: partial(prepare, client) for client in first.values()}


def build_name(client: str) -> str | None:
    """The name in `builders` of what a client needs to have built; None if it needs nothing."""
    build = ALL_CLIENTS[client].build
    return None if build is None else next(each.name for each in ALL_CLIENTS.values() if each.build == build)


def available() -> list[str]:
    """The names in `CLIENTS` that can run here (see `toolchains`)."""
    missing = unavailable()
    return [name for name in CLIENTS if build_name(name) not in missing]
