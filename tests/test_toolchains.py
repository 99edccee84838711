"""What this machine lacks is left out of the tests by name and with its reason, and everything else runs."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from . import can_build, prepare, toolchains
from .building import ROOT, PrepareError
from .http.arm.sdks.prepare import builders as arm_builders
from .sdk.jms.prepare import builders as jms_builders
from .sdk.prepare import ALL_CLIENTS, build_name, builders
from .toolchains import (
    DOTNET,
    GO,
    JAVA,
    MAVEN,
    NEEDED,
    NODE,
    Toolchain,
    checked,
    may_be_missing,
    note_unavailable,
    table,
    unavailable,
)
from .web.prepare import builders as web_builders


def tool(folder: Path, name: str, prints: str) -> None:
    """A command of that name that prints a text."""
    path = folder / name
    path.write_text(f"#!/bin/sh\necho '{prints}'\n")
    path.chmod(0o755)


@pytest.fixture(autouse=True)
def dotnet_is_there(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    """What nothing installs is on the path, unless a test has another path."""
    folder = tmp_path_factory.mktemp("dotnet")
    tool(folder, "dotnet", "10.0.401")
    monkeypatch.setenv("PATH", f"{os.environ['PATH']}:{folder}")


@pytest.mark.parametrize("toolchain", [JAVA, MAVEN, NODE, GO, DOTNET], ids=lambda each: each.name)
def test_a_toolchain_that_is_not_installed_is_named_with_its_packages(
    toolchain: Toolchain, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    problem = toolchain.problem()
    assert problem is not None
    assert problem.startswith(" and ".join(toolchain.commands))
    assert all(package in problem for package in toolchain.packages)


def test_a_toolchain_that_is_too_old_is_named_with_its_version(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    tool(tmp_path, "java", 'openjdk version "11.0.2" 2019-01-15')
    assert JAVA.problem() == 'Java 17 or newer is needed; found openjdk version "11.0.2" 2019-01-15'
    tool(tmp_path, "java", 'openjdk version "21.0.2" 2024-01-16')
    assert JAVA.problem() is None


def test_a_build_without_its_toolchain_is_not_tried(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    tried: list[str] = []

    def build(name: str) -> bool:
        tried.append(name)
        return True

    builds = checked({"go": lambda: build("go"), "browser": lambda: build("browser")})
    assert set(builds) == {"spark", "go", "browser"}
    with pytest.raises(PrepareError, match=r"^go not found; install Go"):
        builds["go"]()
    with pytest.raises(PrepareError, match=r"^java not found; install Java"):
        builds["spark"]()
    assert builds["browser"]()
    assert tried == ["browser"]


def test_every_client_but_the_python_of_the_tests_has_a_build_and_every_need_is_of_a_build() -> None:
    names = set(builders())
    assert {build_name(client) for client in ALL_CLIENTS} == names | {None}
    arm = set(arm_builders()) | {"arm-java", "arm-dotnet"}  # these two are built for the long form
    assert set(NEEDED) - {"spark", "spark-4.0"} <= names | set(jms_builders()) | set(web_builders()) | arm


@pytest.mark.parametrize("is_ci", [False, True])
def test_what_can_not_be_built_is_left_out_or_an_error_in_ci(
    is_ci: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def failing() -> bool:
        raise PrepareError("no registry\nand a page of its log")

    monkeypatch.setenv("CI", "true" if is_ci else "")
    monkeypatch.setattr(toolchains, "UNAVAILABLE_FILE", tmp_path / "unavailable.json")
    monkeypatch.setattr(prepare, "install_missing", lambda: None)
    for name in ("spark_builders", "jms_builders", "web_builders", "arm_builders"):
        monkeypatch.setattr(prepare, name, dict)
    monkeypatch.setattr(prepare, "sdk_builders", lambda: {"one": lambda: True, "two": failing})
    monkeypatch.setattr(prepare, "checked", lambda builders: builders)
    assert prepare.main([]) == int(is_ci)
    assert unavailable() == {"two": "no registry\nand a page of its log"}
    table_shown = "Not available on this machine, so their tests are not run:\n  two  no registry\n"
    assert capsys.readouterr().out == "one: built\n" + ("" if is_ci else table_shown)


def test_what_debian_has_no_package_of_is_left_out_in_ci_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CI", "true")
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin")
    monkeypatch.setattr(toolchains, "UNAVAILABLE_FILE", tmp_path / "unavailable.json")
    monkeypatch.setattr(prepare, "install_missing", lambda: None)
    for name in ("spark_builders", "jms_builders", "web_builders", "arm_builders"):
        monkeypatch.setattr(prepare, name, dict)
    monkeypatch.setattr(prepare, "checked", lambda builders: {"dotnet": checked(builders)["dotnet"]})
    monkeypatch.setattr(prepare, "sdk_builders", lambda: {"dotnet": lambda: True})
    assert prepare.main([]) == 0
    missing = "dotnet not found; install the .NET SDK 10 or newer"
    assert (unavailable(), missing in capsys.readouterr().out) == (
        {"dotnet": missing, "arm-dotnet": missing},
        True,
    )
    tool(tmp_path, "dotnet", "8.0.100")
    assert prepare.main([]) == 0
    assert unavailable() == {"dotnet": "the .NET SDK 10 or newer is needed; found 8.0.100"}
    tool(tmp_path, "dotnet", "10.0.401")
    assert (may_be_missing("dotnet"), may_be_missing("go")) == (False, False)
    assert prepare.main([]) == 0
    assert unavailable() == {}


def test_what_nothing_installs_is_left_out_before_builds_are_tried(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toolchains, "UNAVAILABLE_FILE", tmp_path / "unavailable.json")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert set(unavailable()) == {"dotnet", "arm-dotnet"}


def test_what_is_available_again_is_no_longer_left_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(toolchains, "UNAVAILABLE_FILE", tmp_path / "unavailable.json")
    note_unavailable({"go": "go not found"})
    assert unavailable() == {"go": "go not found"}
    note_unavailable({})
    assert unavailable() == {}


def test_the_table_has_a_line_for_each_reason() -> None:
    assert (
        table({"java": "mvn ended with 1\nlog", "go": "go not found"})
        == "  go    go not found\n  java  mvn ended with 1"
    )


def test_pytest_leaves_out_the_tests_of_what_is_missing_and_says_so(tmp_path: Path) -> None:
    """A run of pytest of its own, with a file of reasons of its own, collects a test that runs over all SDKs."""
    reasons = tmp_path / "unavailable.json"
    reasons.write_text(json.dumps({"java": "mvn not found", "go": "go not found"}))
    listed = subprocess.run(
        [
            Path(sys.executable).with_name("pytest"),
            "--collect-only",
            "-q",
            "-p",
            "no:cacheprovider",
            "tests/sdk/test_across.py",
        ],
        cwd=ROOT,
        env={**os.environ, toolchains.UNAVAILABLE_VARIABLE: str(reasons)},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    ).stdout
    clients = {
        client
        for client in ALL_CLIENTS
        if f"[{client}-" in listed or f"-{client}-" in listed or f"-{client}]" in listed
    }
    assert {"java", "go"} & clients == set()
    assert {"python-sync", "javascript"} <= clients
    assert "  go    go not found\n  java  mvn not found" in listed


def test_without_a_compiler_one_line_names_the_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert can_build.main() == 0
    monkeypatch.setenv("PATH", str(tmp_path))
    assert can_build.missing(tmp_path) == ["a C compiler", f"Python's headers ({tmp_path}/Python.h)"]
    assert can_build.main() == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("emubus can't be installed; missing: a C compiler")
    assert line.endswith("apt-get install gcc python3-dev python3-venv")
