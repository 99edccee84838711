"""The documentation of the connector names what there is."""

from __future__ import annotations

import importlib
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.spark_connector.codec import SOURCE_TYPES
from emubus.spark_connector.errors import Code
from emubus.spark_connector.option_table import OPTIONS

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "docs" / name for name in ("SPARK.md", "SPARK_BEHAVIOUR.md", "SPARK_OPTIONS.md")]
CHANGES = ROOT / "docs" / "SPARK_CHANGES.md"
MODES, DETECTED = {"browse", "drain", "claim"}, {True, False}
NAMED = re.compile(r"`(tests/[\w/]+)\.py::(\w+)`")


def test_every_option_has_its_row_with_its_aliases() -> None:
    table = PAGES[-1].read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [option.name for option in OPTIONS]
    for option in OPTIONS:
        (row,) = [row for row in rows if row.startswith(f"| `{option.name}`")]
        assert option.about in row
        assert all(f"`{alias}`" in row for alias in option.aliases)


def test_every_column_and_every_code_is_named() -> None:
    text = "".join(page.read_text() for page in PAGES)
    assert [name for name in SOURCE_TYPES if f"`{name}`" not in text] == []
    assert [code for code in Code if f"_{code.value}`" not in text and f"_{code.value}]`" not in text] == []


def values_of(module: str, name: str, parameter: str) -> Iterator[object]:
    """The values that a test's parameter has."""
    test = getattr(importlib.import_module(module.replace("/", ".")), name)
    for mark in getattr(test, "pytestmark", ()):
        if mark.name == "parametrize":
            names = mark.args[0].split(", ") if isinstance(mark.args[0], str) else list(mark.args[0])
            if parameter in names:
                yield from (each if len(names) == 1 else each[names.index(parameter)] for each in mark.args[1])


@pytest.mark.parametrize(
    ("section", "parameter", "wanted", "without"),
    [("## Reading", "mode", MODES, {"test_claiming": "claim"}), ("## Writing", "detected", DETECTED, {})],
)
def test_each_change_of_an_entity_is_tested_in_each_mode(
    section: str, parameter: str, wanted: set[object], without: dict[str, str]
) -> None:
    table = CHANGES.read_text().partition(section)[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ") and not line.startswith("| Change")]
    missing: dict[str, set[object]] = {}
    for row in rows:
        tested: set[object] = set()
        for module, name in NAMED.findall(row):
            tested |= set(values_of(module, name, parameter))
            tested |= {each for file, each in without.items() if module.endswith(file)}
        if not tested >= wanted:
            missing[row.split(" | ")[0]] = wanted - tested
    assert (len(rows) > 7, missing) == (True, {})
