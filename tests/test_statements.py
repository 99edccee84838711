"""docs/reference/statements.md: every statement names tests that exist, or says why emubus does otherwise."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from .citations import ROW
from .test_docs import exists
from .test_tidy import ROOT

PAGE = ROOT / "docs" / "reference" / "statements.md"
SOURCES = ROOT / "docs" / "reference" / "sources.md"
HEADING = re.compile(r"^## `([\w-]+)`$", re.MULTILINE)
TEST = re.compile(r"`(tests/[\w/]+\.py)::(\w+)`")
CELL = re.compile(r"(differs: [^`]+: )?`tests/[\w/]+\.py::test_\w+`(, `tests/[\w/]+\.py::test_\w+`)*|not emulated: .+")


def rows(text: str) -> list[tuple[str, str]]:
    """Statements and what stands beside them."""
    found = [
        line.removeprefix("| ").removesuffix(" |").rsplit(" | ", 1) for line in text.splitlines() if line[:2] == "| "
    ]
    return [(cells[0], cells[-1]) for cells in found if cells != ["Statement", "Test"]]


def wrong_rows(text: str, root: Path = ROOT) -> list[str]:
    """Rows whose last cell is neither tests that exist nor a reason."""
    names = {path: (root / path).is_file() for _, cell in rows(text) for path, _ in TEST.findall(cell)}
    return [
        statement
        for statement, cell in rows(text)
        if CELL.fullmatch(cell) is None
        or not all(names[path] and exists(path, f"::{test}") for path, test in TEST.findall(cell))
    ]


def test_every_statement_names_tests_that_exist_or_a_reason() -> None:
    assert wrong_rows(PAGE.read_text()) == []


@pytest.mark.parametrize(
    "cell",
    [
        "",
        "later",
        "not emulated: ",
        "`tests/test_statements.py`",
        "`tests/no_such_file.py::test_x`",
        "`tests/test_statements.py::test_no_such_test`",
        "differs: `tests/test_statements.py::test_no_page_says_a_thing_twice`",
    ],
)
def test_a_row_without_a_test_or_a_reason_is_found(cell: str) -> None:
    assert wrong_rows(f"| Something | {cell} |") == ["Something"]


def test_no_page_says_a_thing_twice() -> None:
    parts = re.split(HEADING, PAGE.read_text())[1:]
    for page, text in zip(parts[::2], parts[1::2], strict=True):
        statements = [statement for statement, _ in rows(text)]
        assert len(statements) == len(set(statements)), page
        assert statements, page


def test_every_page_is_among_the_sources() -> None:
    assert set(HEADING.findall(PAGE.read_text())) <= set(ROW.findall(SOURCES.read_text()))
