"""Builds the .NET programs of examples/."""

from __future__ import annotations

import subprocess
from pathlib import Path

from ..building import ROOT
from ..sdk.prepare import DOTNET_BUILD

BUILD_SECONDS_MAX = 300


def program(project: str, folder: Path) -> list[str]:
    """The command that runs a program of examples/ (`dotnet/hello/hello.csproj`), built in `folder`."""
    source = ROOT / "examples" / project
    places = ("-o", str(folder / "out"), f"-p:BaseIntermediateOutputPath={folder / 'obj'}/", "-p:NuGetAudit=false")
    # No server of the compiler stays behind it.
    command = [*DOTNET_BUILD, *places, "-p:UseSharedCompilation=false", str(source)]
    done = subprocess.run(
        command, stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=BUILD_SECONDS_MAX, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return ["dotnet", str(folder / "out" / f"{source.stem}.dll")]
