"""No crash of machine or process makes emubus break a promise, and the explorer that says so notices faults.

`python -m tests.crash.images.exploring` does the same by hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

import pytest

from ...rounds import IS_LONG
from . import faults
from .exploring import NotKilled, build, explore, record
from .trace import Record

IMAGES: Final = 1000 if IS_LONG else 80
SEEDS: Final = range(10 if IS_LONG else 1)
NOTICED_AFTER: Final = 6
"""Recordings in which a fault must show: some need one store to lag behind the laps of the journal."""
FAILING: Final = {
    "journal-once": "/journal- 30 1 0",
    "journal-done-once": "/journal- 30 1 1",
    "store-once": "/store- 8 1 0",
    "store-done-once": "/store- 8 1 1",
    "store-many": "/store- 4 12 0",
}
"""Syncs that fail: see RECORD_FAIL in recorder.c."""


@pytest.fixture(scope="module")
def recorder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("recorder"))


@pytest.fixture(scope="module")
def recorded(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sequence[Record], Path]:
    folder = tmp_path_factory.mktemp("recorded")
    return record(folder, recorder), folder / "data"


@pytest.fixture(scope="module")
def recorded_second(recorder: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Sequence[Record], Path]:
    folder = tmp_path_factory.mktemp("recorded-second")
    return record(folder, recorder, durability="second"), folder / "data"


@pytest.fixture(autouse=True)
def small_halves(monkeypatch: pytest.MonkeyPatch) -> None:
    faults.put(faults.NONE, monkeypatch.setattr)


def problems(
    records: Sequence[Record], root: Path, count: int, seed: int, work: Path, durability: str = "full"
) -> list[str]:
    """What is wrong in so many images, a line each with the position and the loss before it."""
    found = explore(records, root, count, seed, work, durability=durability)
    return [f"{each} (at {at}, {loss})" for at, loss, wrong in found for each in wrong]


def is_noticed(records: Sequence[Record], root: Path, count: int, seed: int, work: Path) -> bool:
    """Whether anything is wrong in so many images; ends at the first."""
    return any(wrong for _, _, wrong in explore(records, root, count, seed, work))


@pytest.mark.parametrize("seed", SEEDS)
def test_with_a_sync_each_second_a_crash_leaves_the_beginning_of_what_was_confirmed(
    recorded_second: tuple[Sequence[Record], Path], seed: int, tmp_path: Path
) -> None:
    assert problems(*recorded_second, IMAGES, seed, tmp_path, "second") == []


@pytest.mark.parametrize("fault", sorted(faults.UNSYNCED) if IS_LONG else ["files-before-the-tail"])
def test_a_fault_of_the_order_of_journal_and_files_is_noticed(recorder: Path, fault: str, tmp_path: Path) -> None:
    for number in range(NOTICED_AFTER):
        folder, work = tmp_path / f"recorded-{number}", tmp_path / f"work-{number}"
        folder.mkdir()
        work.mkdir()
        try:
            records = record(folder, recorder, fault, durability="second")
        except NotKilled:
            return  # the second start refuses what the first run left
        if any(wrong for *_, wrong in explore(records, folder / "data", 200, number, work, durability="second")):
            return
    raise AssertionError(f"{fault} was not noticed in {NOTICED_AFTER} recordings")


@pytest.mark.parametrize("seed", SEEDS)
def test_what_was_promised_survives_a_crash_at_any_moment(
    recorded: tuple[Sequence[Record], Path], seed: int, tmp_path: Path
) -> None:
    assert problems(*recorded, IMAGES, seed, tmp_path) == []


@pytest.mark.parametrize("fault", sorted(faults.FAULTS))
def test_a_fault_replaces_what_exists(fault: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that sets a name which nobody reads any more would change nothing, and be noticed by nobody."""
    faults.put(fault, monkeypatch.setattr)


@pytest.mark.parametrize("fault", sorted(faults.READING) if IS_LONG else ["replays-all"])
def test_a_fault_of_what_reads_the_folder_is_noticed(
    recorded: tuple[Sequence[Record], Path], fault: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    faults.put(fault, monkeypatch.setattr)
    assert is_noticed(*recorded, 400, 1, tmp_path)


if IS_LONG:

    @pytest.mark.parametrize("fault", sorted(faults.FAULTS.keys() - faults.READING - faults.UNSYNCED))
    def test_each_fault_of_what_writes_the_folder_is_noticed(recorder: Path, fault: str, tmp_path: Path) -> None:
        for number in range(NOTICED_AFTER):
            folder, work = tmp_path / f"recorded-{number}", tmp_path / f"work-{number}"
            folder.mkdir()
            work.mkdir()
            try:
                records = record(folder, recorder, fault)
            except NotKilled:
                return  # the second start refuses what the first run left
            if is_noticed(records, folder / "data", 200, number, work):
                return
        raise AssertionError(f"{fault} was not noticed in {NOTICED_AFTER} recordings")

    @pytest.mark.parametrize("name", sorted(FAILING))
    @pytest.mark.parametrize("durability", ["full", "second"])
    def test_what_was_promised_survives_a_crash_after_syncs_that_failed(
        recorder: Path, name: str, durability: str, tmp_path: Path
    ) -> None:
        records = record(tmp_path, recorder, runs=1, fails=FAILING[name], durability=durability)
        assert problems(records, tmp_path / "data", 100, 1, tmp_path / "work", durability) == []
