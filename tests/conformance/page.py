"""Writes docs/CONFORMANCE.md from the figures of each suite's last run and the known reasons; a test checks it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from tests.building import ROOT

from . import known
from .known import Judgement
from .suites import SUITES

PAGE: Final = ROOT / "docs" / "CONFORMANCE.md"
FIGURES: Final = Path(__file__).parent / "figures.json"

HEAD: Final = """# Suites that others wrote

`make conformance` runs tests that others wrote for the service, as package registries carry them, against a server of
their own with TLS and the service's names and ports. The clients are unpatched; where a line of a suite's tests is
replaced, `tests/conformance/suites.py` has it. It needs Linux and a network of its own (`unshare --net --mount`): run
it as root, in a container with `--privileged`, or where users may make user namespaces. `make test-long` runs it, too.

A failure without a known reason fails the run; a test that passes though a reason says that it fails is reported.

"""
BETWEEN: Final = """
*skipped*: by the suite itself. *left out*: would end the suite or wait for what never comes; its reason stands below.

## Known reasons

*whose*: where the failure is born.

"""
AFTER: Final = """
## What was looked at and is not here

The test suites of .NET, Java and JavaScript (`@azure/service-bus`) are in repositories only; so are those of
MassTransit, NServiceBus, Rebus and Wolverine. kombu's tests of its `azureservicebus` transport replace the client by a
mock, so no server is asked. `azure-sb`, `asbflow`, `taskiq-service-bus` and `nestjs-azure-service-bus-transporter` are
published without tests, and those of `boilermaker-servicebus` and `eventiq-asb` dial nothing.

This page is written by `python -m tests.conformance --write`.
"""


@dataclass(frozen=True)
class Figures:
    """Numbers of tests of a suite."""

    passed: int
    failed: int  # for no known reason
    known: int
    skipped: int

    @staticmethod
    def of(found: Judgement) -> Figures:
        """The numbers of a judgement."""
        return Figures(len(found.passed), len(found.surprises), len(found.failed), len(found.skipped))


def table(figures: Mapping[str, Figures]) -> str:
    """The table of suites, in their order; only those with figures."""
    reasons = known.read()
    heads = ("suite", "version", "client", "passed", "failed", "known reasons", "skipped", "left out")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for suite in SUITES:
        if (row := figures.get(suite.name)) is not None:
            left_out = sum(1 for each in reasons if each.suite == suite.name and not each.runs)
            cells = (suite.name, suite.version, suite.client, row.passed, row.failed, row.known, row.skipped, left_out)
            lines.append(f"| {' | '.join(map(str, cells))} |")
    return "\n".join(lines) + "\n"


def reasons_table() -> str:
    """The table of known reasons."""
    lines = ["| suite | tests | whose | reason | source |", "|---|---|---|---|---|"]
    for each in known.read():
        name = each.tests.replace("\\", "").replace("|", "\\|")
        how = "" if each.runs else " (left out)"
        how += "" if each.always else " (now and then)"
        lines.append(f"| {each.suite} | `{name}`{how} | {each.whose} | {each.reason} | {each.source} |")
    return "\n".join(lines) + "\n"


def read_figures() -> dict[str, Figures]:
    """The figures of each suite's last run; none before the first."""
    if not FIGURES.exists():
        return {}
    return {name: Figures(**numbers) for name, numbers in json.loads(FIGURES.read_text()).items()}


def page(figures: Mapping[str, Figures]) -> str:
    """The whole page."""
    return HEAD + table(figures) + BETWEEN + reasons_table() + AFTER


def write(figures: Mapping[str, Figures]) -> None:
    """Keep the figures, and write the page."""
    FIGURES.write_text(json.dumps({name: asdict(row) for name, row in figures.items()}, indent=1) + "\n")
    PAGE.write_text(page(figures))
