"""What the runner of others' suites reads, judges and writes; the suites themselves are `make conformance`."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from tests.building import PrepareError

from . import known, own_network, page, preparing
from .__main__ import main, merged
from .known import Known, judge
from .results import Kind, Outcome, of_go, of_mocha, of_pytest
from .suites import SUITES, Replacement, Round, Suite

PASSED, FAILED, SKIPPED = Outcome(Kind.PASSED), Outcome(Kind.FAILED, "no"), Outcome(Kind.SKIPPED)


def a_reason(tests: str, *, runs: bool = True, always: bool = True) -> Known:
    return Known("s", tests, "client", "why", "where", runs=runs, always=always)


def test_a_report_of_pytest_is_read(tmp_path: Path) -> None:
    report = tmp_path / "r"
    report.write_text(
        '<testsuites><testsuite><testcase classname="m.T" name="a"/>'
        '<testcase classname="m.T" name="b"><failure message="no"/></testcase>'
        '<testcase classname="m" name="c[x]"><skipped message="later"/></testcase>'
        '<testcase classname="m" name="d"/><testcase classname="m" name="d"><error message="teardown"/></testcase>'
        "</testsuite></testsuites>"
    )
    assert of_pytest(report) == {
        "m.T::a": PASSED,
        "m.T::b": FAILED,
        "m::c[x]": Outcome(Kind.SKIPPED, "later"),
        "m::d": Outcome(Kind.FAILED, "teardown"),
    }


def test_the_output_of_a_test_binary_of_go_is_read(tmp_path: Path) -> None:
    report = tmp_path / "r"
    report.write_text(
        "=== RUN   TestA\n--- PASS: TestA (0.01s)\n--- FAIL: TestB (0.0s)\n    --- PASS: TestB/x (0.0s)\n"
        "    --- FAIL: TestB/y (0.0s)\n--- SKIP: TestC (0.0s)\nFAIL\n"
    )
    assert of_go(report) == {
        "TestA": PASSED,
        "TestB/x": PASSED,
        "TestB/y": Outcome(Kind.FAILED),
        "TestC": SKIPPED,
    }
    report.write_text("--- PASS: TestA (0.01s)\npanic: test timed out after 40m0s\n")
    assert of_go(report)["(the test binary)"].kind is Kind.FAILED


def test_a_report_of_mocha_is_read_among_other_output(tmp_path: Path) -> None:
    report = tmp_path / "r"
    stats = {
        "stats": {},
        "passes": [{"fullTitle": "a"}],
        "pending": [{"fullTitle": "b"}],
        "failures": [{"fullTitle": "c", "err": {"message": "no"}}],
    }
    report.write_text(f"something else {{}}\n{json.dumps(stats, indent=2)}\nmore\n")
    assert of_mocha(report) == {"a": PASSED, "b": SKIPPED, "c": FAILED}
    report.write_text("mocha did not start")
    assert of_mocha(report) == {}


def test_failures_are_judged_by_what_is_known() -> None:
    outcomes = {"a": PASSED, "b": FAILED, "c": FAILED, "d": PASSED, "e": PASSED, "f": SKIPPED}
    table = [
        a_reason("b"),
        a_reason("d"),
        a_reason("e", always=False),
        a_reason("gone"),
        a_reason("never", runs=False),
        Known("another suite", "c", "client", "why", "where"),
    ]
    found = judge("s", outcomes, table)
    assert found.passed == ("a", "d", "e")
    assert found.failed == {"b": "why"}
    assert found.surprises == {"c": "no"}
    assert found.skipped == ("f",)
    assert found.mended == ("d",)
    assert found.unmatched == ("gone",)


def test_a_reason_holds_for_whole_names() -> None:
    assert judge("s", {"ab": FAILED}, [a_reason("a")]).surprises == {"ab": "no"}


def test_of_a_test_that_ran_in_several_rounds_the_worst_counts() -> None:
    assert merged([{"a": SKIPPED, "b": PASSED}, {"a": PASSED, "b": FAILED}, {"b": PASSED}]) == {
        "a": PASSED,
        "b": FAILED,
    }


def test_every_reason_is_one_of_a_suite_and_says_whose_it_is() -> None:
    names = {suite.name for suite in SUITES}
    for each in known.read():
        assert each.suite in names
        assert each.whose in known.WHOSE
        assert each.reason
        assert each.source
        re.compile(each.tests)


def test_the_page_has_the_figures_of_every_suite_and_all_reasons() -> None:
    figures = page.read_figures()
    assert set(figures) == {suite.name for suite in SUITES}
    assert page.PAGE.read_text() == page.page(figures)


def test_the_page_shows_no_failure_without_a_reason() -> None:
    assert [name for name, row in page.read_figures().items() if row.failed] == []


def test_a_machine_without_networks_of_its_own_is_told_how(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda _: None)
    with pytest.raises(PermissionError, match="run as root"):
        own_network.way_in()


def test_a_line_that_is_not_there_is_not_replaced(tmp_path: Path) -> None:
    replacement = Replacement("f", "old", "new")
    suite = Suite("s", "1", "go", "p", "c", (), replacements=(replacement,))
    (tmp_path / "f").write_text("an old line\n")
    preparing.replace(suite, tmp_path)
    assert (tmp_path / "f").read_text() == "an new line\n"
    with pytest.raises(ValueError, match="0 lines 'old'"):
        preparing.replace(suite, tmp_path)


def test_what_is_left_out_is_told_to_the_runner() -> None:
    part = Round("r", (), ("./admin", "-test.run", "X"))
    go = Suite("s", "1", "go", "p", "c", (part,))
    assert preparing.run_command(go, part.tests, Path("r"), ["A", "B"])[-2:] == ["-test.skip", "A|B"]
    assert preparing.run_command(go, part.tests, Path("r"), [])[-2:] == ["-test.run", "X"]


def test_a_suite_that_cannot_be_had_fails_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    def none(*_: object) -> bool:
        raise PrepareError("there is no network")

    monkeypatch.setattr("tests.conformance.__main__.build", none)
    assert main(["azure-servicebus"]) == 1
