"""The habits that keep the project readable."""

from __future__ import annotations

import importlib
import inspect
import re
import subprocess
import tomllib
import typing
from collections import Counter
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
UNFINISHED = re.compile(r"\b(TO" + r"DO|FIX" + r"ME|XX" + r"X|NotImplemented" + r"Error)\b")
SLEEP_OR_SKIP = re.compile(
    r"\b(time|asyncio)\.sleep\(|pytest\.skip|mark\.skip|mark\.xfail|importorskip"
    r"|\.call_later\(.*set_result|\bselect\(.*[A-Z]_S\b|Event\(\)\.wait\("
    r"|\bwait_for\(.*, 0?\.\d|\.wait\((timeout=)?0?\.\d"
)
STOPWATCH = re.compile(r"\b(time\.time|monotonic(_ns)?|perf_counter(_ns)?|process_time(_ns)?|monotonic_s)\(")
MEASURES = (
    "tests/attack/",  # delay is what is tested; see the head of test_strangers.py
    "tests/broker/namespace_simulation/__main__.py",  # reports its speed
    "tests/conftest.py",  # has the limits of processor time
    "tests/crash/namespace_load.py",  # schedules messages at instants
    "tests/spark/acceptance/",  # waits for other processes up to a time limit
)
PACED = ("tests/spark/acceptance/sender.py",)  # a load generator in a process of its own: no manual clock reaches it
PACKAGES = (
    "emubus",
    "amqp",
    "broker",
    "codec",
    "conditions",
    "declared",
    "storage",
    "story",
    "spark_connector",
    "telemetry",
    "templates",
    "web",
)


@cache
def tracked() -> list[Path]:
    """Every file of the project: known to git, or new and not ignored."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    paths = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in paths if path.is_file() and not path.is_symlink()]


def python_files() -> list[Path]:
    return [path for path in tracked() if path.suffix == ".py"]


@cache
def text_of(path: Path) -> str:
    """A file, read once for all tests."""
    return path.read_text()


def test_nothing_is_left_unfinished() -> None:
    marks = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in python_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if UNFINISHED.search(line)
    ]
    assert marks == []


def test_every_package_is_listed_for_the_wheel() -> None:
    setuptools = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]
    listed = set(setuptools["packages"])
    elsewhere = {folder: name for name, folder in setuptools["package-dir"].items() if "." not in name}
    found = set()
    for folder in PACKAGES:
        for init in (ROOT / folder).rglob("__init__.py"):
            if init.resolve() != init:
                continue
            parts = init.parent.relative_to(ROOT).parts
            name = ".".join(parts if parts[0] == "emubus" else ("emubus", *parts))
            found.add(elsewhere.get("/".join(parts), name))
    assert listed == found


def _naming_lines(source: str) -> list[str]:
    """The lines of a module that may name another one."""
    return [line for line in source.splitlines() if "import" in line or ":add_" in line]


def test_no_module_is_dead() -> None:
    """Every module is imported by another one, named in the table of commands, or an entry point."""
    entries = {"__init__", "__main__", "testing", "pytest_plugin", "container"}
    text = {
        path: re.sub(r"import \(([^)]*)\)", lambda names: f"import {' '.join(names[1].split())}", text_of(path))
        for path in python_files()
        if path.relative_to(ROOT).parts[0] in PACKAGES
    }
    named = {path: set(re.findall(r"\w+", "\n".join(_naming_lines(source)))) for path, source in text.items()}
    users = Counter(word for words in named.values() for word in words)
    dead = [
        str(path.relative_to(ROOT))
        for path in text
        if path.stem not in entries
        and 'if __name__ == "__main__":' not in text[path]
        and users[path.stem] == (path.stem in named[path])
    ]
    assert dead == []


@pytest.mark.parametrize("module", ["emubus.testing", "emubus.broker.api", "emubus.spark_connector"])
def test_what_others_import_is_documented(module: str) -> None:
    """Public classes, their methods and functions say what they do; elsewhere a docstring is a choice."""
    silent = []
    exports = importlib.import_module(module)
    for name in exports.__all__:
        exported = getattr(exports, name)
        if not callable(exported) or typing.get_origin(exported) is not None:
            continue
        parts = {name: exported}
        if inspect.isclass(exported):
            own = {each: getattr(exported, each) for each in vars(exported) if not each.startswith("_")}
            twin = vars(exports).get("EmubusServer") if name == "RemoteEmubus" else None  # the same verbs
            parts |= {
                f"{name}.{each}": part
                for each, part in own.items()
                if inspect.isfunction(part) and not hasattr(twin, each)
            }
        silent += [each for each, part in parts.items() if not inspect.getdoc(part)]
    assert silent == []


def lines_of_tests(pattern: re.Pattern[str], *but: str) -> list[str]:
    """Where a line of the tests matches, except in this file and in those whose paths begin with one of `but`."""
    names = {path.relative_to(ROOT).as_posix(): path for path in python_files()}
    return [
        f"{name}:{number}"
        for name, path in names.items()
        if name.startswith("tests/") and not name.startswith(("tests/test_tidy.py", *but))
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if pattern.search(line)
    ]


def test_tests_do_not_sleep_or_skip() -> None:
    assert lines_of_tests(SLEEP_OR_SKIP, *PACED) == []


@pytest.mark.parametrize(
    "line",
    [
        "await asyncio." + "sleep(1)",
        "loop.call_later(0.03, future.set_result, None)",
        "select.select([peer], [], [], PAUSE_S)",
        "threading.Event().wait(0.2)",
        "await asyncio.wait_for(answer, 0.5)",
        "arrived.wait(timeout=0.2)",
    ],
)
def test_a_sleep_is_known_in_disguise(line: str) -> None:
    assert SLEEP_OR_SKIP.search(line)


def test_tests_measure_no_time() -> None:
    """They count, or move the clock; where a bound is the point, `cpu_limit` of conftest.py has it."""
    assert lines_of_tests(STOPWATCH, *MEASURES) == []


@pytest.mark.parametrize("table", ["COMPATIBILITY.md", "DEVIATIONS.md"])
def test_every_test_named_in_a_table_of_the_docs_exists(table: str) -> None:
    text = (ROOT / "docs" / table).read_text()
    named = set(re.findall(r"`(tests/[\w/]+\.py)(?:::(\w+))?`", text))
    assert named
    missing = []
    for file, test in sorted(named):
        path = ROOT / file
        if not path.is_file() or (test and f"def {test}(" not in path.read_text()):
            missing.append(f"{file}::{test}")
    assert missing == []


def test_every_deviation_has_a_verb_a_reason_and_a_test() -> None:
    lines = (ROOT / "docs" / "DEVIATIONS.md").read_text().splitlines()
    rows = [line.strip("|").split(" | ") for line in lines if line.startswith("|") and not line.startswith("|---")]
    rows = [[cell.strip() for cell in row] for row in rows if row[0].strip() != "Difference"]
    assert rows
    assert [row for row in rows if len(row) != 4 or not all(row) or "`tests/" not in row[3]] == []


SOURCE = re.compile(
    r"[Gg]uess|\[SB: |RFC \d|[Ll]ive tests?\b|recorded|emubus's own|Microsoft's|Azure's pages?|Particular's"
    r"|azure-[a-z-]+|[A-Za-z-]+/[A-Za-z-]+[# ]\d{2,}|\b[A-Z][A-Za-z.]+ \d{2,5}\b"
)
"""A page, a report with its number, a test or a recording; or the word that says that there is none."""


def test_each_difference_has_a_source_or_is_a_guess() -> None:
    """What the service does is known from somewhere, or it is not known."""
    rows = [
        line
        for line in (ROOT / "docs" / "DEVIATIONS.md").read_text().splitlines()
        if line.startswith("| ") and not line.startswith("| Difference |")
    ]
    assert rows
    assert [row for row in rows if not SOURCE.search(row.rpartition(" | ")[0])] == []
