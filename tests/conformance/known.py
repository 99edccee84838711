"""Failures with a known reason, from `known.toml`, and what a run is judged by."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from .results import Kind, Outcome

FILE: Final = Path(__file__).parent / "known.toml"
WHOSE: Final = ("client", "suite", "surroundings", "not emulated", "emubus")
"""Where a failure is born: the client, the suite, what it runs in, a feature left out on purpose, this server."""


@dataclass(frozen=True)
class Known:
    """Tests that fail for a reason.

    `tests` is a regular expression for whole names. `runs` is false for tests that would take the suite with them, or
    wait for what never comes: they are left out. `always` is false where a test fails now and then.
    """

    suite: str
    tests: str
    whose: str
    reason: str
    source: str
    runs: bool = True
    always: bool = True

    def matches(self, suite: str, test: str) -> bool:
        """Whether this is the reason of a failure."""
        return suite == self.suite and re.fullmatch(self.tests, test) is not None


@dataclass(frozen=True)
class Judgement:
    """What came out of a suite: names of tests, sorted."""

    passed: tuple[str, ...]
    failed: Mapping[str, str]  # for a known reason: the reason's text
    skipped: tuple[str, ...]  # by the suite itself
    surprises: Mapping[str, str]  # failed for no known reason: what the runner said
    mended: tuple[str, ...]  # pass, though a reason says that they fail
    unmatched: tuple[str, ...]  # reasons whose tests did not run


def read() -> tuple[Known, ...]:
    """The table of the file."""
    return tuple(Known(**each) for each in tomllib.loads(FILE.read_text())["known"])


def judge(suite: str, outcomes: Mapping[str, Outcome], table: Sequence[Known]) -> Judgement:
    """Compare a suite's outcomes with what is known."""
    of_suite = [each for each in table if each.suite == suite and each.runs]
    passed, skipped, mended = list[str](), list[str](), list[str]()
    failed, surprises = dict[str, str](), dict[str, str]()
    met = set[str]()
    for test, outcome in sorted(outcomes.items()):
        reasons = [each for each in of_suite if each.matches(suite, test)]
        met.update(each.tests for each in reasons)
        if outcome.kind is Kind.PASSED:
            passed.append(test)
            if any(each.always for each in reasons):
                mended.append(test)
        elif outcome.kind is Kind.SKIPPED:
            skipped.append(test)
        elif reasons:
            failed[test] = reasons[0].reason
        else:
            surprises[test] = outcome.text
    unmatched = tuple(each.tests for each in of_suite if each.tests not in met)
    return Judgement(tuple(passed), failed, tuple(skipped), surprises, tuple(mended), unmatched)
