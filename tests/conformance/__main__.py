"""Runs suites that others wrote: `python -m tests.conformance [--write] [--jobs N] [NAME …]`, or `make conformance`.

A NAME is the beginning of a suite's name. Each round of a suite has a server of its own, and `--jobs` of them (8) run
beside each other; they mostly wait. Ends with 1 if a test failed for no known reason, or a suite could not run.
`--write` writes the figures of what ran into docs/CONFORMANCE.md.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from tests.building import ROOT, PrepareError, build

from . import known, page
from .known import Judgement
from .own_network import BUNDLES, SERVER_FAILED, entered
from .preparing import build_of, place, run_command
from .results import READERS, Kind, Outcome
from .suites import SUITES, Round, Suite


def environment_of(suite: Suite) -> dict[str, str]:
    """The environment of a suite's tests."""
    found = {**os.environ, **suite.environment, "PYTHONDONTWRITEBYTECODE": "1"}
    if suite.runner == "pytest":
        tests = place(suite) / "source" / suite.folder
        found["PYTHONPATH"] = os.pathsep.join(map(str, (*suite.supplied, tests)))
        python = place(suite) / "python" / "bin" / "python"
        found[BUNDLES] = subprocess.check_output((python, "-m", "certifi"), text=True).strip()
    return found


def run(suite: Suite, part: Round) -> dict[str, Outcome]:
    """One round; the outcome of each test. A server that failed is an outcome, too."""
    source = place(suite) / "source"
    folder = place(suite) / "rounds" / part.name.replace(", ", "-").replace(" ", "-")
    folder.mkdir(parents=True, exist_ok=True)
    report = folder / "report"
    report.unlink(missing_ok=True)
    (folder / "Config.json").unlink(missing_ok=True)
    if suite.config:
        (folder / "Config.json").write_text((source / suite.config).read_text())
    left_out = [each.tests for each in known.read() if each.suite == suite.name and not each.runs]
    left_out += [part.without] if part.without else []
    tests = source / suite.folder if suite.runner != "go" else source / part.tests[0]
    command = run_command(suite, part.tests, report, left_out)
    shown = folder / "output.log" if suite.runner == "pytest" else report
    # The server's module is found from the project's folder; the tests run in theirs.
    inside = ["sh", "-c", 'cd "$1" && shift && exec "$@"', "sh", str(tests), *command]
    with shown.open("w") as out, (folder / "errors.log").open("w") as errors:
        code = subprocess.run(
            entered(folder, part.options, inside),
            cwd=ROOT,
            env=environment_of(suite),
            stdout=out,
            stderr=errors,
            check=False,
        ).returncode
    found = READERS[suite.runner](report) if report.exists() else {}
    if code == SERVER_FAILED or not found:
        said = (folder / "errors.log").read_text()[-1000:] or f"no report; see {folder}"
        found[f"(round {part.name})"] = Outcome(Kind.FAILED, said)
    return found


def run_suites(suites: Sequence[Suite], jobs: int) -> dict[str, Judgement]:
    """All rounds of the suites; what came out, by the suite's name."""
    prepared = [suite for suite in suites if _is_prepared(suite)]
    with ThreadPoolExecutor(jobs) as pool:
        running = {suite.name: [pool.submit(run, suite, part) for part in suite.rounds] for suite in prepared}
    outcomes = {name: merged([each.result() for each in parts]) for name, parts in running.items()}
    return {name: known.judge(name, found, known.read()) for name, found in outcomes.items()}


def merged(rounds: Sequence[dict[str, Outcome]]) -> dict[str, Outcome]:
    """The outcomes of all rounds; of a test that ran in several, the worst, and a skip counts least."""
    rank = {Kind.SKIPPED: 0, Kind.PASSED: 1, Kind.FAILED: 2}
    found: dict[str, Outcome] = {}
    for outcomes in rounds:
        for test, outcome in outcomes.items():
            if test not in found or rank[outcome.kind] > rank[found[test].kind]:
                found[test] = outcome
    return found


def _is_prepared(suite: Suite) -> bool:
    problem = suite.toolchain.problem() if suite.toolchain else None
    try:
        if problem is not None:
            raise PrepareError(problem)
        build(suite.name, build_of(suite))
    except PrepareError as error:
        sys.stderr.write(f"{suite.name}: {error}\n")
        return False
    return True


def tell(name: str, found: Judgement) -> None:
    """Print what a person has to look at."""
    for test, text in found.surprises.items():
        sys.stdout.write(f"{name}: FAILED, not known: {test}: {' '.join(text.split())}\n")
    for test in found.mended:
        sys.stdout.write(f"{name}: passes, though known.toml says that it fails: {test}\n")
    for tests in found.unmatched:
        sys.stdout.write(f"{name}: known.toml names tests that did not run: {tests}\n")


def main(arguments: Sequence[str]) -> int:
    """Run and report; the exit code."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance")
    parser.add_argument("--write", action="store_true")
    parser.add_argument("--jobs", type=int, default=8)
    parser.add_argument("names", nargs="*")
    options = parser.parse_args(arguments)
    chosen = [suite for suite in SUITES if not options.names or suite.name.startswith(tuple(options.names))]
    found = run_suites(chosen, options.jobs)
    for name, judgement in found.items():
        tell(name, judgement)
    figures = {name: page.Figures.of(judgement) for name, judgement in found.items()}
    sys.stdout.write(page.table(figures))
    if options.write:
        page.write({**page.read_figures(), **figures})
    is_good = len(found) == len(chosen) and not any(judgement.surprises for judgement in found.values())
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
