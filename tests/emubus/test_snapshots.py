"""Restoring into a data folder: cut short at any step, it leaves the old namespace or the new one, whole."""

from __future__ import annotations

import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from emubus import snapshots
from emubus.broker.admin.folder_view import COMPLETE_FILE, SNAPSHOT_FOLDER, STAGING_FOLDER
from emubus.broker.admin.verify import check_data_folder
from emubus.broker.errors import BrokerError
from emubus.broker.model.descriptions import QueueDescription
from emubus.broker.names import SnapshotName
from emubus.commands.check import check_data
from emubus.data_folder import DataFolder
from emubus.namespace import own_folder
from emubus.snapshots import DAMAGED, UnsoundSnapshot, _commit, _restorable, _stage, finish_restore
from emubus.storage import FolderLock, StoreError, copy_files, sync_file
from emubus.testing import EmubusServer

from ..broker.driving import encoded
from ..broker.test_names import NO_NAMES
from ..log_levels import every_level
from ..rounds import IS_LONG
from .folders.killing import Killed

STORES = 16
STEPS_MAX = 300
OLD, NEW = {"q": 3}, {"q": 1, "later": 0}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A data folder with the namespace OLD, and the snapshot `s` of the namespace NEW."""
    data = tmp_path_factory.mktemp("made") / "data"
    with EmubusServer([QueueDescription("q")], data_dir=data) as server:

        def put() -> None:
            server.server.broker.open_sender("q", detached=print).send([encoded()], print)

        server.call(put)
        server.create(QueueDescription("later"))
        assert server.snapshot("s").message_count == 1
        server.delete("later")
        server.call(put)
        server.call(put)
    assert messages(data) == OLD
    return data


@pytest.fixture
def data(made: Path, tmp_path: Path) -> Path:
    shutil.copytree(made, tmp_path / "data")
    return tmp_path / "data"


def messages(data: Path) -> dict[str, int]:
    """Messages by entity, of a folder that is sound."""
    report = check_data_folder(data)
    assert report.problems == []
    assert report.store_count == STORES
    return {name: sum(totals.messages) for name, totals in report.queues.items()}


def stage(data: Path) -> None:
    folder = DataFolder(data, "test")
    try:
        _stage(data / SNAPSHOT_FOLDER / "s", folder, STORES)
    finally:
        folder.release()


def restore(data: Path) -> None:
    stage(data)
    _commit(data)


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Die before the n-th change of a folder; a folder that is being removed is half gone then."""
    left = STEPS_MAX

    def step() -> None:
        nonlocal left
        left -= 1
        if left == 0:
            raise Killed

    def counted(function: Callable[..., Any]) -> Callable[..., Any]:
        def call(*arguments: Any, **options: Any) -> Any:
            step()
            return function(*arguments, **options)

        return call

    real_rmtree = shutil.rmtree

    def rmtree(path: Path, ignore_errors: bool = False) -> None:
        step()
        try:
            step()
        except Killed:
            for each in sorted(Path(path).rglob("*.mdb"))[:1]:
                each.unlink()
            raise
        real_rmtree(path, ignore_errors=ignore_errors)

    monkeypatch.setattr(shutil, "rmtree", rmtree)
    monkeypatch.setattr(snapshots, "copy_files", counted(copy_files))
    monkeypatch.setattr(snapshots, "sync_file", counted(sync_file))
    for name in ("rename", "unlink", "touch"):
        monkeypatch.setattr(Path, name, counted(getattr(Path, name)))

    def arm(count: int) -> None:
        nonlocal left
        left = count

    yield arm
    monkeypatch.undo()


def test_a_restore_that_is_cut_short_at_any_step_leaves_one_namespace_or_the_other(
    data: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    outcomes: list[dict[str, int]] = []
    for count in range(1, STEPS_MAX):
        work = tmp_path / "work"
        shutil.copytree(data, work)
        kill_at(count)
        with suppress(Killed):
            restore(work)
            break
        for again in (2, 5, 40):  # killed again and again while it is brought to its end
            kill_at(again)
            with suppress(Killed):
                finish_restore(work)
        kill_at(STEPS_MAX)
        finish_restore(work)
        assert not (work / STAGING_FOLDER).exists()
        outcomes.append(messages(work))
        kill_at(STEPS_MAX)
        shutil.rmtree(work)
    else:
        raise AssertionError("the restore has more steps than were tried")
    assert all(outcome in (OLD, NEW) for outcome in outcomes)
    turn = outcomes.index(NEW)
    assert outcomes == [OLD] * turn + [NEW] * (len(outcomes) - turn)
    assert turn > STORES
    assert len(outcomes) - turn > 3 * STORES


def test_a_server_that_starts_brings_a_restore_to_its_end(data: Path) -> None:
    stage(data)
    (data / STAGING_FOLDER / COMPLETE_FILE).touch()
    with EmubusServer(data_dir=data) as server:
        assert server.call(lambda: sorted(entity.path for entity in server.server.broker.namespace.entities())) == [
            "later",
            "q",
        ]
        assert [each.name for each in server.call(server.server.snapshots.list)] == ["s"]
    assert messages(data) == NEW


def test_a_check_shows_what_a_restore_that_was_cut_short_will_be_and_changes_nothing(
    data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    stage(data)
    assert check_data(data) == 0
    assert "3 active" in capsys.readouterr().out
    stage(data)
    (data / STAGING_FOLDER / COMPLETE_FILE).touch()
    shutil.rmtree(data / "namespace")
    (data / STAGING_FOLDER / "namespace").rename(data / "namespace")
    shutil.rmtree(data / "store-00")  # one part has taken its place, the place of the next is empty
    before = contents(data)
    assert check_data(data) == 0
    assert "1 active" in capsys.readouterr().out
    assert contents(data) == before


def contents(folder: Path) -> dict[str, bytes]:
    """Every file below a folder."""
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_a_folder_that_another_process_has_is_left_alone(data: Path) -> None:
    stage(data)
    (data / STAGING_FOLDER / COMPLETE_FILE).touch()
    lock = FolderLock(data)
    with pytest.raises(StoreError, match="in use"):
        own_folder(data)
    assert (data / STAGING_FOLDER / COMPLETE_FILE).exists()
    lock.release()
    own_folder(data).release()
    assert messages(data) == NEW


def test_drafts_of_snapshots_that_were_cut_short_are_no_snapshots(data: Path) -> None:
    shutil.copytree(data / SNAPSHOT_FOLDER / "s", data / SNAPSHOT_FOLDER / ".new-t")
    (data / SNAPSHOT_FOLDER / "u").mkdir()
    (data / SNAPSHOT_FOLDER / "v").mkdir()
    (data / SNAPSHOT_FOLDER / "v" / "snapshot.json").write_text("{}")
    with EmubusServer(data_dir=data) as server:
        assert [each.name for each in server.call(server.server.snapshots.list)] == ["s"]
        assert server.snapshot("t").message_count == 3
        assert sorted(path.name for path in (data / SNAPSHOT_FOLDER).iterdir()) == ["s", "t", "u", "v"]


PAGE_BYTES = 4096
Damage = Callable[[random.Random, bytearray], None]


def flip(chance: random.Random, data: bytearray) -> None:
    data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)


def page_of(chance: random.Random, data: bytearray) -> slice:
    at = chance.randrange(max(1, len(data) // PAGE_BYTES)) * PAGE_BYTES
    return slice(at, at + PAGE_BYTES)


def clear_page(chance: random.Random, data: bytearray) -> None:
    at = page_of(chance, data)
    data[at] = bytes(len(data[at]))


def copy_page(chance: random.Random, data: bytearray) -> None:
    source, target = page_of(chance, data), page_of(chance, data)
    if len(data[source]) == len(data[target]):
        data[target] = data[source]


def cut(chance: random.Random, data: bytearray) -> None:
    del data[chance.randrange(len(data)) :]


def swap_bytes(chance: random.Random, data: bytearray) -> None:
    at = page_of(chance, data).start + chance.randrange(64)  # of the head of a page, which LMDB trusts
    if at < len(data):
        data[at] = chance.randrange(256)


def test_an_archive_that_is_taken_can_be_restored_however_it_was_damaged(data: Path, tmp_path: Path) -> None:
    sound = data / SNAPSHOT_FOLDER / "s"
    files = sorted(path.relative_to(sound) for path in sound.rglob("*") if path.is_file())
    outcomes: Counter[bool] = Counter()
    for number in range(400 if IS_LONG else 24):
        chance = random.Random(number)
        damaged, work = tmp_path / "damaged", tmp_path / "work"
        shutil.copytree(sound, damaged)
        file = damaged / chance.choice(files)
        content = bytearray(file.read_bytes())
        damage: Damage = chance.choice([flip, clear_page, copy_page, cut, swap_bytes])
        damage(chance, content)
        file.write_bytes(content)
        try:
            snapshot = _restorable(damaged, SnapshotName("s"))
        except (UnsoundSnapshot, OSError, *DAMAGED):
            outcomes[False] += 1
        else:
            outcomes[True] += 1
            shutil.copytree(data, work)
            folder = DataFolder(work, "test")
            _stage(damaged, folder, snapshot.store_count)
            folder.release()
            _commit(work)
            messages(work)
            shutil.rmtree(work)
        shutil.rmtree(damaged)
    assert outcomes[True] > 0
    assert outcomes[False] > 0


def test_a_folder_whose_name_is_no_snapshots_is_not_offered_until_it_is_renamed(data: Path) -> None:
    folder = data / SNAPSHOT_FOLDER
    (folder / "s").rename(folder / "my own")
    with EmubusServer(data_dir=data) as server:
        with every_level(), capture_logs() as logs:
            for _ in range(3):  # as the page does
                assert server.call(server.server.snapshots.list) == []
        (said,) = logs
        assert (said["event"], said["remedy"]) == ("snapshot skipped: its name", "rename the folder")
        (folder / "my own").rename(folder / "own")
        assert server.restore("own").message_count == 1


@pytest.mark.parametrize("text", NO_NAMES)
def test_no_text_but_a_name_reaches_a_snapshot(text: str, tmp_path: Path) -> None:
    with EmubusServer(data_dir=tmp_path / "data") as server:
        for act in (server.snapshot, server.restore):
            with pytest.raises(BrokerError, match="can't be the name of a snapshot"):
                act(text)
    assert not (tmp_path / "data" / SNAPSHOT_FOLDER).exists()


def test_snapshots_of_a_server_in_memory_leave_nothing_behind(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with EmubusServer([QueueDescription("q")]) as server:
        server.snapshot("s")
        server.restore("s")
        assert len(list(tmp_path.iterdir())) == 1
    assert list(tmp_path.iterdir()) == []
