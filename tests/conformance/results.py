"""What came out of a suite, read from the report of its test runner."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Final

from defusedxml import ElementTree

TEXT_LENGTH_MAX: Final = 300
GO_LINE: Final = re.compile(r"^ *--- (PASS|FAIL|SKIP): (\S+)", re.MULTILINE)


class Kind(StrEnum):
    """How a test ended."""

    PASSED = "passed"
    FAILED = "failed"
    SKIPPED = "skipped"


@dataclass(frozen=True)
class Outcome:
    """How a test ended, and what its runner said about it (cut)."""

    kind: Kind
    text: str = ""


Outcomes = Mapping[str, Outcome]
"""By the name of the test, as `known.toml` matches it."""


def of_pytest(report: Path) -> dict[str, Outcome]:
    """Of a report in JUnit's format: `module::name[parameter]`, the module by its file's name."""
    found: dict[str, Outcome] = {}
    for case in ElementTree.parse(report).iter("testcase"):
        name = f"{case.get('classname', '')}::{case.get('name')}".removeprefix("tests.")
        kind, text = Kind.PASSED, ""
        for child in case:
            if child.tag in {"failure", "error"}:
                kind, text = Kind.FAILED, child.get("message") or ""
            elif child.tag == "skipped":
                kind, text = Kind.SKIPPED, child.get("message") or ""
        if name not in found or kind is Kind.FAILED:  # a test and its teardown are two cases of one name
            found[name] = Outcome(kind, text[:TEXT_LENGTH_MAX])
    return found


def of_go(report: Path) -> dict[str, Outcome]:
    """Of the output of a test binary with -test.v: tests and their subtests; a parent counts only by itself."""
    kinds = {"PASS": Kind.PASSED, "FAIL": Kind.FAILED, "SKIP": Kind.SKIPPED}
    text = report.read_text(errors="replace")
    found = {name: Outcome(kinds[word]) for word, name in GO_LINE.findall(text)}
    parents = {name.rpartition("/")[0] for name in found}
    ended = {name: outcome for name, outcome in found.items() if name not in parents}
    for unfinished in re.findall(r"^panic: .*|^FAIL$", text, re.MULTILINE):
        if unfinished.startswith("panic: "):
            ended["(the test binary)"] = Outcome(Kind.FAILED, unfinished[:TEXT_LENGTH_MAX])
    return ended


def of_mocha(report: Path) -> dict[str, Outcome]:
    """Of mocha's JSON reporter, which writes to the standard output among what tests print."""
    text = report.read_text(errors="replace")
    start = text.find('{\n  "stats"')
    if start < 0:
        return {}
    read, _ = json.JSONDecoder().raw_decode(text[start:])
    found = {each["fullTitle"]: Outcome(Kind.PASSED) for each in read["passes"]}
    found |= {each["fullTitle"]: Outcome(Kind.SKIPPED) for each in read["pending"]}
    for each in read["failures"]:
        message = str(each["err"].get("message", each["err"]))
        found[each["fullTitle"]] = Outcome(Kind.FAILED, message[:TEXT_LENGTH_MAX])
    return found


READERS: Final[Mapping[str, Callable[[Path], dict[str, Outcome]]]] = {
    "pytest": of_pytest,
    "go": of_go,
    "mocha": of_mocha,
}
"""By the name of the runner."""
