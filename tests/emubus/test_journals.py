"""The journal of a data folder from its making to its end: after a kill at any step the next start has all messages."""

from __future__ import annotations

import asyncio
import errno
import shutil
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from emubus import data_folder
from emubus.broker.admin.verify import check_data_folder
from emubus.broker.api import TABLES
from emubus.broker.names import SnapshotName
from emubus.data_folder import DataFolder
from emubus.namespace import own_folder
from emubus.server import Server
from emubus.storage import (
    Durability,
    FolderState,
    Journal,
    StoreError,
    StoreReader,
    keep_journal,
    mark_store,
    open_store,
    read_manifest,
    replay,
    sync_file,
    sync_store,
    write_manifest,
)
from emubus.storage.journal.journaled_store import JournaledStore

from .folders import small
from .folders.killing import Kill, Killed
from .folders.opening import STORES, contents, rows_of

STEPS_MAX = 100


@pytest.fixture
def kill_at(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[int], None]]:
    """Die before the n-th change of a folder or its journals."""
    kill = Kill()
    counted = kill.counted
    for each in (mark_store, sync_store, write_manifest, replay, Journal, sync_file):
        monkeypatch.setattr(data_folder, each.__name__, counted(each))
    monkeypatch.setattr(DataFolder, "_drop_journals", counted(DataFolder._drop_journals))
    monkeypatch.setattr(Path, "unlink", counted(Path.unlink))
    yield kill.arm
    monkeypatch.undo()


def journal_named(folder: Path) -> list[str]:
    """The name of the journal's file that the manifest names."""
    manifest = read_manifest(folder)
    assert manifest is not None
    return [] if manifest.journal is None else [f"journal-{manifest.journal}"]


def message_count(folder: Path) -> int:
    """How many messages the check counts in a sound folder."""
    report = check_data_folder(folder)
    assert report.problems == []
    return sum(sum(totals.messages) for totals in report.queues.values())


def names(folder: Path) -> list[str]:
    return [file.name for file in small.journals(folder)]


def test_a_killed_folder_has_a_journal_and_a_stopped_one_has_none(small_folders: Path) -> None:
    manifest = read_manifest(small_folders / "open")
    assert manifest is not None
    assert (manifest.state, names(small_folders / "open")) == (FolderState.OPEN, journal_named(small_folders / "open"))
    assert len(names(small_folders / "open")) == 1
    manifest = read_manifest(small_folders / "closed")
    assert manifest is not None
    assert (manifest.state, manifest.journal, names(small_folders / "closed")) == (FolderState.CLOSED, None, [])


def test_the_check_counts_the_messages_that_are_in_the_journal_alone(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    in_files = 0
    for index in range(STORES):
        with StoreReader(data / f"store-0{index}") as reader:
            in_files += len(list(reader.rows("messages")))
    before = contents(data)
    report = check_data_folder(data)
    assert (report.problems, in_files) == ([], 0)
    assert sum(report.queues["q"].messages) == small.MESSAGES
    assert contents(data) == before
    rows_of(data)
    assert check_data_folder(data).queues == report.queues


def test_a_start_after_a_kill_that_is_killed_at_any_step_loses_nothing(
    small_folders: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    small.copy(small_folders / "open", tmp_path / "intact")
    expected = rows_of(tmp_path / "intact")
    assert sum(int(expected[f"store-0{index} messages"].split()[0]) for index in range(STORES)) == small.MESSAGES
    seen: set[tuple[int, int]] = set()
    count = 0
    for count in range(1, STEPS_MAX):
        work = tmp_path / str(count)
        small.copy(small_folders / "open", work)
        kill_at(count)
        with suppress(Killed):
            rows_of(work)
            break
        kill_at(0)
        seen.add((len(names(work)), len(journal_named(work))))
        assert journal_named(work) == [] or journal_named(work)[0] in names(work)
        assert message_count(work) == small.MESSAGES
        assert rows_of(work) == expected
        assert (names(work), journal_named(work)) == ([], [])
        shutil.rmtree(work)
    kill_at(0)
    assert count > 10  # replay, marks, manifests, the new journal, the old one's end, the stop
    assert seen == {(1, 1), (2, 1), (1, 0)}  # journals in the folder, and in its manifest


def test_a_start_after_a_kill_has_the_journal_on_the_disk_before_it_replays_any_of_it(
    small_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A power cut between the replays of two stores must not leave one with what the other has lost."""
    calls: list[str] = []

    def noted(function: Callable[..., None]) -> Callable[..., None]:
        def call(*arguments: object) -> None:
            calls.append(function.__name__)
            function(*arguments)

        return call

    for each in (keep_journal, replay):
        monkeypatch.setattr(data_folder, each.__name__, noted(each))
    small.copy(small_folders / "open", tmp_path / "data")
    rows_of(tmp_path / "data")
    assert calls == ["keep_journal", *["replay"] * STORES]


def test_starts_that_are_killed_one_after_the_other_lose_nothing(
    small_folders: Path, kill_at: Callable[[int], None], tmp_path: Path
) -> None:
    small.copy(small_folders / "open", tmp_path / "intact")
    expected = rows_of(tmp_path / "intact")
    work = tmp_path / "work"
    small.copy(small_folders / "open", work)
    for count in (4, 8, 1, 9, 7, 10, 3, 6, 2, 11, 5):
        kill_at(count)
        with suppress(Killed):
            rows_of(work)
        kill_at(0)
        assert message_count(work) == small.MESSAGES
    assert rows_of(work) == expected


def test_servers_that_are_killed_one_after_the_other_lose_nothing(tmp_path: Path) -> None:
    seen: list[str] = []
    for run in range(1, 4):
        killed = tmp_path / str(run)
        small.run(tmp_path / str(run - 1), killed=killed)
        assert message_count(killed) == run * small.MESSAGES
        seen += names(killed)
    assert len(set(seen)) == 3


def test_a_folder_in_use_without_waits_for_the_disk_has_no_journal(small_folders: Path, tmp_path: Path) -> None:
    small.copy(small_folders / "open", tmp_path / "data")
    small.run(tmp_path / "data", killed=tmp_path / "killed", durability="process")
    for place, state in ((tmp_path / "killed", FolderState.OPEN), (tmp_path / "data", FolderState.CLOSED)):
        manifest = read_manifest(place)
        assert manifest is not None
        assert (manifest.state, manifest.journal, names(place)) == (state, None, [])
        assert message_count(place) == 2 * small.MESSAGES
    small.run(tmp_path / "killed", killed=tmp_path / "again")
    assert (message_count(tmp_path / "again"), len(names(tmp_path / "again"))) == (3 * small.MESSAGES, 1)


def test_without_room_for_a_journal_each_commit_goes_into_its_file(
    small_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(file: Path, journal_id: str, make_writer: object, *, waits: bool) -> Journal:
        file.write_bytes(b"a part")
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(data_folder, "Journal", no_room)
    small.copy(small_folders / "open", tmp_path / "data")
    small.run(tmp_path / "data", killed=tmp_path / "killed")
    assert (names(tmp_path / "killed"), journal_named(tmp_path / "killed")) == ([], [])
    assert message_count(tmp_path / "killed") == 2 * small.MESSAGES


def test_a_store_that_could_not_take_its_rows_leaves_the_folder_open_with_its_journal(
    small_folders: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "closed", data)
    owned = own_folder(data)
    _, path, _ = owned.prepare(STORES)
    store = open_store(path, TABLES, Durability.FULL, create=False, journal=owned.journal)
    with store.begin(0) as batch:
        batch.put("state", b"\0\0\0\x63", bytes(100))
        batch.commit()
    with monkeypatch.context() as patch:
        patch.setattr(JournaledStore, "flush", lambda _: None)
        store.close()
    owned.release()
    manifest = read_manifest(data)
    assert manifest is not None
    assert (manifest.state, names(data)) == (FolderState.OPEN, journal_named(data))
    rows_of(data)
    with StoreReader(path) as reader:
        assert dict(reader.rows("state"))[b"\0\0\0\x63"] == bytes(100)


def test_fresh_deletes_the_journal_of_a_killed_folder(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    small.journals(data)[0].write_bytes(b"junk")  # and does not read it
    own_folder(data, fresh=True).release()
    rows = rows_of(data)
    assert [rows[f"store-0{index} messages"].split()[0] for index in range(STORES)] == ["0"] * STORES
    assert names(data) == []


def test_a_journal_that_disappears_under_the_server_is_missed(small_folders: Path, tmp_path: Path) -> None:
    data = tmp_path / "data"
    small.copy(small_folders / "open", data)
    owned = own_folder(data)
    owned.prepare(STORES)
    assert owned.is_in_place()
    small.journals(data)[0].rename(tmp_path / "away")
    assert not owned.is_in_place()
    (tmp_path / "away").rename(tmp_path / "data" / journal_named(data)[0])
    assert owned.is_in_place()
    owned.release()
    assert names(data) == []


def test_a_snapshot_has_what_was_in_the_journal_alone_and_a_restore_begins_another_one(tmp_path: Path) -> None:
    small.run(tmp_path / "data")

    async def act() -> None:
        server = Server(small.config(tmp_path / "data"))
        await server.start()
        try:
            await small.put(server, 10)
            await server.snapshots.take(SnapshotName("s"))
            await small.put(server, 20)
            before = names(tmp_path / "data")
            await server.snapshots.restore(SnapshotName("s"))
            small.copy(tmp_path / "data", tmp_path / "restored")
            await small.put(server, 3)
            small.copy(tmp_path / "data", tmp_path / "killed")
        finally:
            await server.stop()
        assert len({*before, *names(tmp_path / "restored")}) == 2

    asyncio.run(act())
    for name, count in (("restored", 10), ("killed", 13), ("data", 13)):
        assert message_count(tmp_path / name) == small.MESSAGES + count
        assert names(tmp_path / name) == journal_named(tmp_path / name)


def test_a_journal_whose_folder_entry_could_not_be_synced_is_not_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    small.run(tmp_path / "data")

    def fail(file: Path) -> None:
        if file == tmp_path / "data":
            raise OSError(errno.EIO, "Input/output error")
        sync_file(file)

    monkeypatch.setattr(data_folder, "sync_file", fail)
    owned = own_folder(tmp_path / "data")
    owned.prepare(2)
    assert owned.journal is None
    assert small.journals(tmp_path / "data") == []
    owned.release()


def test_a_server_stops_whole_when_one_store_cannot_take_its_rows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = tmp_path / "data"
    small.run(data)
    closed: list[str] = []
    flush, close = JournaledStore.flush, JournaledStore.close

    def failing(self: JournaledStore) -> None:
        if self.name == "store-00":
            raise StoreError(self.path, "no room")
        flush(self)

    def noting(self: JournaledStore) -> None:
        closed.append(self.name)
        close(self)

    async def act() -> None:
        server = Server(small.config(data))
        await server.start()
        await small.put(server, 20)
        monkeypatch.setattr(JournaledStore, "flush", failing)
        monkeypatch.setattr(JournaledStore, "close", noting)
        await server.stop()

    asyncio.run(act())
    monkeypatch.undo()
    assert sorted(set(closed)) == ["store-00", "store-01"]
    small.run(data)
    assert message_count(data) == 2 * small.MESSAGES + 20
