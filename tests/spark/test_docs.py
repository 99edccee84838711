"""The documentation of the connector names what there is."""

from __future__ import annotations

from pathlib import Path

from emubus.spark_connector.codec import SOURCE_TYPES
from emubus.spark_connector.errors import Code
from emubus.spark_connector.option_table import OPTIONS

DOCS = Path(__file__).resolve().parents[2] / "docs" / "SPARK.md"


def test_every_option_has_its_row_with_its_aliases() -> None:
    table = DOCS.read_text().partition("## Options")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| `")]
    assert [row.split("`")[1] for row in rows] == [option.name for option in OPTIONS]
    for option in OPTIONS:
        (row,) = [row for row in rows if row.startswith(f"| `{option.name}`")]
        assert option.about in row
        assert all(f"`{alias}`" in row for alias in option.aliases)


def test_every_column_and_every_code_is_named() -> None:
    text = DOCS.read_text()
    assert [name for name in SOURCE_TYPES if f"`{name}`" not in text] == []
    assert [code for code in Code if f"_{code.value}`" not in text and f"_{code.value}]`" not in text] == []
