"""`emubus exercise`: all presets in the order of the seed, the report, and how it ends early."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from emubus.commands.client import exercise as command
from emubus.conditions.presets import PRESETS
from emubus.conditions.table import BEHAVIOURS, read_values
from emubus.kit.exercise import steps
from emubus.testing import EmubusServer

from .conftest import CommandLine


@pytest.mark.parametrize("minutes", [0.01, 1, 10, 600])
@pytest.mark.parametrize("entity_count", [0, 3, 500])
def test_every_preset_has_its_share_of_the_time_and_values_that_are_allowed(minutes: float, entity_count: int) -> None:
    planned = steps(int(minutes * 60_000), 7, tuple(PRESETS), entity_count)
    assert sorted(each.name for each in planned) == sorted(PRESETS)
    assert sum(each.on_ms + each.rest_ms for each in planned) <= minutes * 60_000 + len(planned)
    for step in planned:
        for name, value in step.values.items():
            behaviour, _, parameter = name.partition(".")
            assert read_values(BEHAVIOURS[behaviour], {parameter: value})[parameter] == value
            assert int(value) <= step.on_ms


def test_the_order_is_that_of_the_seed() -> None:
    orders = [[each.name for each in steps(60_000, seed, tuple(PRESETS), 1)] for seed in (7, 7, 8)]
    assert orders[0] == orders[1] != orders[2]


def test_all_presets_run_and_the_report_says_what_struck(
    emubus: CommandLine, server: EmubusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def pause(ms: int) -> None:
        server.advance(ms)

    monkeypatch.setattr(command, "POLL_MS", 3_600_000)
    monkeypatch.setattr(command, "wait", pause)
    file = tmp_path / "soak"
    report = emubus.json("exercise", "--minutes", "30", "--seed", "7", "--report", str(file))
    assert report == json.loads(file.with_name("soak.json").read_text())
    assert [each["name"] for each in report["steps"]] == report["order"]
    assert sorted(report["order"]) == sorted(PRESETS)
    assert (report["is_complete"], report["seed"]) == (True, 7)
    upgrade = next(each for each in report["steps"] if each["name"] == "rolling-upgrade")
    assert [each["what"].split(",")[0] for each in upgrade["struck"]] == ["moved"] * 5
    assert upgrade["ends_at"] - upgrade["started_at"] == 180_000
    page = file.with_name("soak.md").read_text()
    assert page.startswith("# Exercise\n\nComplete: seed 7, all entities, from ")
    assert "| rolling-upgrade | " in page
    assert "broker-move 5" in page
    assert emubus.json("clock")["is_frozen"] is False


def test_a_frozen_clock_ends_it_with_a_report(emubus: CommandLine, tmp_path: Path) -> None:
    emubus.done("clock", "freeze")
    file = tmp_path / "frozen"
    ended = emubus("exercise", "--minutes", "1", "--presets", "unsure", "--report", str(file))
    assert ended.code == 1
    assert "clock is frozen" in ended.err
    report = json.loads(file.with_name("frozen.json").read_text())
    assert (report["is_complete"], [each["is_on"] for each in report["steps"]]) == (False, [False])
    assert file.with_name("frozen.md").read_text().startswith("# Exercise\n\nNot complete: ")


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--presets", "storm"), "--presets has 'storm'; allowed is throttled, "),
        (("--minutes", "0"), "allowed is 0.001 to 10000"),
        (("--seed", "-1"), "--seed"),
    ],
)
def test_what_is_not_allowed_is_refused(emubus: CommandLine, options: tuple[str, ...], words: str) -> None:
    ended = emubus("exercise", *options)
    assert ended.code == 2
    assert words in ended.err


def test_a_report_that_can_not_be_written_fails(emubus: CommandLine, tmp_path: Path) -> None:
    ended = emubus("exercise", "--minutes", "0.001", "--presets", "unsure", "--report", str(tmp_path / "no" / "r"))
    assert ended.code == 1
    assert "can't write" in ended.err
