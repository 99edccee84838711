"""The notebook of `examples/spark`: its cells, run one after the other, give what its text says."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.testing import EmubusServer

from ..building import ROOT
from ..rounds import IS_LONG

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTEBOOK = ROOT / "examples" / "spark" / "recipes.ipynb"


def cells() -> list[str]:
    """The code of each cell."""
    notebook = json.loads(NOTEBOOK.read_text())
    return ["".join(each["source"]) for each in notebook["cells"] if each["cell_type"] == "code"]


def test_the_notebook_is_kept_without_what_a_run_left_in_it() -> None:
    notebook = json.loads(NOTEBOOK.read_text())
    assert [each["outputs"] for each in notebook["cells"] if each["cell_type"] == "code" and each["outputs"]] == []
    for number, code in enumerate(cells()):
        compile(code, f"cell {number}", "exec")


if IS_LONG:  # six queries

    @pytest.mark.timeout(1800)
    def test_the_recipes_of_the_notebook_do_what_is_said(
        spark: SparkSession, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
    ) -> None:
        monkeypatch.setattr("tempfile.mkdtemp", lambda: str(tmp_path))
        queues = [QueueDescription("orders"), QueueDescription("payments")]
        with EmubusServer([*queues, QueueDescription("retries", requires_duplicate_detection=True)]) as server:
            monkeypatch.setenv("SERVICEBUS_CONNECTION_STRING", server.connection_string)
            names: dict[str, Any] = {}
            for number, code in enumerate(cells()):
                exec(compile(code, f"{NOTEBOOK.name}, cell {number}", "exec"), names)
            found = [(row.id, row.currency, row.rest, row.body) for row in names["table"].collect()]
            assert found[0] == (0, None, {}, None)
            assert found[7] == (7, "EUR", {"colour": "red"}, None)
            assert (found[8][0], found[8][3], len(found)) == (None, "no JSON", 9)
            assert sorted(row.ordered for row in names["pairs"].collect()) == [0, 2, 4, 6]
            assert [bytes(row.body) for row in names["broken"].collect()] == [b"no JSON"]
            assert len(server.peek("retries")) == 8
            assert server.peek("orders/$DeadLetterQueue") == []
