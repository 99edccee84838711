"""The table of brokers: a column for each durability of emubus, and what each broker promises."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from brokers import Cell, Column, arguments_of, is_ours, lines
from rivals import BROKERS, made
from starting import ANSWERED

from emubus.storage import Durability


def test_emubus_has_a_column_and_a_ratio_for_each_durability() -> None:
    cell: Cell = ("send", 1024, 1)
    columns: Sequence[Column] = [("emubus second", "plain"), ("emubus full", "plain"), ("rabbitmq", "classic")]
    rates = {"emubus second": 300.0, "emubus full": 100.0, "rabbitmq": 150.0}
    results: Mapping[tuple[Cell, Column], Sequence[Mapping[str, float]]] = {
        (cell, column): [{"rate": rates[column[0]], "process_us": 10.0}] for column in columns
    }
    *_, row = lines(results, columns).splitlines()
    expected = "send 1024 B, window 1 300 10.0 100 10.0 150 10.0 2.00 0.67"
    assert " ".join(row.split()) == expected
    assert [is_ours(name) for name, _ in columns] == [True, True, False]


def test_each_durability_and_each_rival_says_what_is_on_the_disk_when_it_answers(tmp_path: Path) -> None:
    assert set(ANSWERED) == set(Durability)
    for name in ("emubus", "rabbitmq", "artemis"):
        assert "send" in made(name, tmp_path / name, "second").answered
    assert set(BROKERS) >= {"emubus", "rabbitmq", "artemis"}


def test_both_durabilities_are_measured_unless_another_is_asked_for() -> None:
    assert arguments_of([]).durability == "second,full"
    assert arguments_of(["--durability", "process"]).durability == "process"
