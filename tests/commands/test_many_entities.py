"""A namespace with more entities than a page of the control API has: commands and the test kit know all of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from emubus.broker.model.descriptions import QueueDescription
from emubus.commands.client import exercise as command
from emubus.kit import verbs
from emubus.kit.exercise import Step
from emubus.testing import EmubusServer, RemoteEmubus
from emubus.web.control.entities import PAGE_MAX

from .conftest import CommandLine

NAMES = [*(f"queue-{number:04}" for number in range(PAGE_MAX)), "zebra & co"]


@pytest.fixture(scope="module")
def module_server() -> Iterator[EmubusServer]:
    with EmubusServer([QueueDescription(name) for name in NAMES]) as running:
        yield running


@pytest.fixture
def server(module_server: EmubusServer) -> EmubusServer:
    """No test here changes it."""
    return module_server


def test_a_misspelt_name_is_compared_with_all_entities(emubus: CommandLine) -> None:
    assert emubus("show", "zebra").err == "emubus: error: no entity 'zebra'; did you mean 'zebra & co'?\n"


def test_ls_lists_all_entities(emubus: CommandLine) -> None:
    assert [each["path"] for each in emubus.json("ls")["entities"]] == NAMES


def test_an_exercise_counts_all_entities(
    emubus: CommandLine, server: EmubusServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    counts: list[int] = []

    def counting(_duration_ms: int, _seed: int, _names: object, entity_count: int) -> list[Step]:
        counts.append(entity_count)
        return []

    monkeypatch.setattr(command, "steps", counting)
    monkeypatch.setattr(verbs, "steps", counting)
    emubus.done("exercise", "--report", str(tmp_path / "soak"))
    server.exercise()
    RemoteEmubus(f"http://127.0.0.1:{server.http_port}").exercise()
    assert counts == [len(NAMES)] * 3
