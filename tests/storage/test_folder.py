"""A store's folder: one process at a time, one format, known tables."""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import lmdb
import pytest

from emubus.storage import (
    FORMAT_VERSION,
    LOCK_FILE,
    Batch,
    Durability,
    FolderLock,
    Store,
    StoreError,
    StoreFailed,
    StoreReader,
    copy_files,
    mark_store,
    open_store,
    read_into_memory,
    sync_store,
    upgrade_store,
)

OpenStore = Callable[..., Store]

PROCESS = Durability.PROCESS


def rewrite_meta(folder: Path, key: bytes, value: bytes | None) -> None:
    """Change a row of the meta table behind the store's back."""
    with lmdb.open(str(folder), max_dbs=4, lock=False) as env, env.begin(write=True) as txn:
        meta = env.open_db(b"meta", txn)
        if value is None:
            txn.delete(key, db=meta)
        else:
            txn.put(key, value, db=meta)


def test_a_folder_in_use_is_refused_by_name_with_the_process_that_has_it(tmp_path: Path) -> None:
    first = open_store(tmp_path, ["rows"], PROCESS)
    with pytest.raises(StoreError) as raised:
        open_store(tmp_path, ["rows"], PROCESS)
    assert str(raised.value) == (
        f"store {tmp_path}: is in use by another emubus (process {os.getpid()}); two can't share one data folder"
    )
    first.close()
    open_store(tmp_path, ["rows"], PROCESS).close()


def test_a_folder_in_use_is_refused_when_its_lock_file_was_deleted_or_made_anew(tmp_path: Path) -> None:
    first = open_store(tmp_path, ["rows"], PROCESS)
    for prepare in ((tmp_path / LOCK_FILE).unlink, (tmp_path / LOCK_FILE).touch):
        prepare()
        for reading in (True, False):
            with pytest.raises(StoreError, match="is in use by another emubus; two can't share one data folder"):
                FolderLock(tmp_path, reading=reading)
    first.close()
    open_store(tmp_path, ["rows"], PROCESS).close()


@pytest.mark.parametrize("code", [errno.EBADF, errno.ENOLCK])
def test_where_folders_cannot_be_locked_the_file_keeps_others_out(
    tmp_path: Path, code: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock = fcntl.flock

    def only_files(fd: int, how: int) -> None:
        if stat.S_ISDIR(os.fstat(fd).st_mode):
            raise OSError(code, os.strerror(code))
        lock(fd, how)

    monkeypatch.setattr(fcntl, "flock", only_files)
    first = FolderLock(tmp_path)
    with pytest.raises(StoreError, match=f"is in use by another emubus \\(process {os.getpid()}\\)"):
        FolderLock(tmp_path)
    first.release()


def test_a_folder_in_use_by_another_process_is_refused_until_that_ends(tmp_path: Path) -> None:
    program = (
        "import sys; from pathlib import Path; from emubus.storage import *;"
        "store = open_store(Path(sys.argv[1]), ['rows'], Durability.FULL); print('open', flush=True); input()"
    )
    with subprocess.Popen(
        [sys.executable, "-P", "-c", program, str(tmp_path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as other:
        assert other.stdout is not None
        assert other.stdout.readline() == b"open\n"
        with pytest.raises(StoreError, match=rf"in use by another emubus \(process {other.pid}\)"):
            open_store(tmp_path, ["rows"], PROCESS)
        other.kill()
        other.wait()
        open_store(tmp_path, ["rows"], PROCESS).close()


def test_a_store_that_could_not_be_opened_leaves_its_folder_unlocked(tmp_path: Path) -> None:
    (tmp_path / "data.mdb").write_bytes(b"no database " * 1000)
    for _ in range(2):
        with pytest.raises(StoreFailed, match=r"data\.mdb can't be opened: root page 0 is damaged, or .* isn't LMDB's"):
            open_store(tmp_path, ["rows"], PROCESS)


@pytest.mark.parametrize("length", [0, 1, 4095, 4096, 8191, 8192, 12_288])
@pytest.mark.parametrize("create", [True, False])
def test_a_file_that_was_cut_short_is_refused_and_left_as_it_is(tmp_path: Path, length: int, create: bool) -> None:
    store = open_store(tmp_path, ["rows"], Durability.FULL)
    with store.begin(100_000) as batch:
        for number in range(100):
            batch.put("rows", b"%d" % number, b"v" * 1000)
        batch.commit()
    store.close()
    left = (tmp_path / "data.mdb").read_bytes()[:length]
    (tmp_path / "data.mdb").write_bytes(left)
    with pytest.raises(StoreFailed, match=r"data\.mdb (can't be opened: it is|is) cut short"):
        open_store(tmp_path, ["rows"], Durability.FULL, create=create)
    assert (tmp_path / "data.mdb").read_bytes() == left


def test_a_file_without_any_row_is_not_taken_for_new(tmp_path: Path) -> None:
    lmdb.open(str(tmp_path), lock=False).close()
    with pytest.raises(StoreError, match="isn't an emubus store"):
        open_store(tmp_path, ["rows"], Durability.FULL)


def test_a_missing_file_is_made_only_where_that_is_asked_for(tmp_path: Path) -> None:
    with pytest.raises(StoreFailed, match="the folder doesn't exist"):
        open_store(tmp_path / "store", ["rows"], PROCESS, create=False)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "store").mkdir()
    with pytest.raises(StoreFailed, match=r"data\.mdb is missing"):
        open_store(tmp_path / "store", ["rows"], PROCESS, create=False)


@pytest.mark.parametrize("durability", [Durability.FULL, PROCESS])
def test_a_store_whose_file_is_deleted_or_exchanged_takes_no_batch_until_the_file_is_back(
    tmp_path: Path, durability: Durability
) -> None:
    for name in ("other", "store"):
        store = open_store(tmp_path / name, ["rows"], durability)
        with store.begin(1) as batch:
            batch.put("rows", b"name", name.encode())
            batch.commit()
        if name == "other":
            store.close()
    with store.begin(1) as batch:
        batch.put("rows", b"lost", b"1")
        (tmp_path / "store").rename(tmp_path / "away")
        with pytest.raises(
            StoreFailed, match=r"data\.mdb was deleted while the store was open; bring it back or restart"
        ):
            batch.commit()
    for use in (store.recover, store.view, lambda: store.begin(1)):
        with pytest.raises(StoreFailed, match="was deleted while the store was open"):
            use()
    (tmp_path / "other").rename(tmp_path / "store")
    with pytest.raises(StoreFailed, match="was replaced while the store was open"):
        store.recover()
    (tmp_path / "store").rename(tmp_path / "other")
    (tmp_path / "away").rename(tmp_path / "store")
    store.recover()
    with store.begin(1) as batch:
        batch.put("rows", b"kept", b"1")
        batch.commit()
    with store.view() as view:
        assert [view.get("rows", key) for key in (b"name", b"lost", b"kept")] == [b"store", None, b"1"]
    store.close()


def mode(path: Path) -> str:
    return f"{stat.S_IMODE(path.stat().st_mode):04o}"


def test_only_the_owner_may_read_a_store_its_lock_and_its_copies(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    store = open_store(tmp_path / "store", ["rows"], Durability.FULL)
    store.copy_to(tmp_path / "copy")()
    store.close()
    copy_files(tmp_path / "store", tmp_path / "second")
    modes = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    assert modes == {
        "store": "0700",
        "store/data.mdb": "0600",
        "store/emubus.lock": "0600",
        "copy": "0700",
        "copy/data.mdb": "0600",
        "second": "0700",
        "second/data.mdb": "0600",
    }


def test_in_a_folder_that_its_group_shares_the_group_may_use_a_store(tmp_path: Path) -> None:
    tmp_path.chmod(0o2770)
    open_store(tmp_path / "store", ["rows"], Durability.FULL).close()
    modes = {str(path.relative_to(tmp_path)): mode(path) for path in tmp_path.rglob("*")}
    assert modes == {"store": "2770", "store/data.mdb": "0660", "store/emubus.lock": "0660"}


def test_a_lock_that_anybody_could_take_is_closed_to_others_when_it_is_taken(tmp_path: Path) -> None:
    (tmp_path / "emubus.lock").touch()
    (tmp_path / "emubus.lock").chmod(0o644)
    FolderLock(tmp_path).release()
    assert mode(tmp_path / "emubus.lock") == "0600"


def test_a_reader_makes_no_lock_and_excludes_no_reader_but_a_writer(tmp_path: Path) -> None:
    FolderLock(tmp_path, reading=True).release()
    assert list(tmp_path.iterdir()) == []
    FolderLock(tmp_path).release()
    readers = [FolderLock(tmp_path, reading=True) for _ in range(2)]
    with pytest.raises(StoreError, match="is in use"):
        FolderLock(tmp_path)
    for each in readers:
        each.release()
    writer = FolderLock(tmp_path)
    with pytest.raises(StoreError, match="is in use"):
        FolderLock(tmp_path, reading=True)
    writer.release()


def test_missing_folders_are_made(tmp_path: Path) -> None:
    for durability in (Durability.FULL, PROCESS):
        folder = tmp_path / durability / "a" / "b"
        open_store(folder, ["rows"], durability).close()
        assert (folder / "data.mdb").is_file()


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match=rf"store {tmp_path}/file/store: can't make the folder"):
        open_store(tmp_path / "file" / "store", ["rows"], PROCESS)


@pytest.mark.parametrize(("found", "shown"), [(b"7", "7"), (b"x\xff", r"x\\xff"), (None, "none")])
def test_another_format_version_is_refused_with_both_versions(tmp_path: Path, found: bytes | None, shown: str) -> None:
    open_store(tmp_path, ["rows"], PROCESS).close()
    rewrite_meta(tmp_path, b"format", found)
    with pytest.raises(StoreError, match=rf"store {tmp_path}: has format version {shown}; .* reads versions 1 to 6"):
        open_store(tmp_path, ["rows"], PROCESS)


def test_the_lmdb_file_of_somebody_else_is_refused_and_left_as_it_is(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    before = (tmp_path / "data.mdb").read_bytes()
    with pytest.raises(StoreError, match="isn't an emubus store"):
        open_store(tmp_path, ["rows"], PROCESS)
    assert (tmp_path / "data.mdb").read_bytes() == before


def test_a_store_gains_tables_but_is_not_opened_without_one_it_has(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["rows"], PROCESS)
    with store.begin(1) as batch:
        batch.put("rows", b"a", b"1")
        batch.commit()
    store.close()
    store = open_store(tmp_path, ["more", "rows"], PROCESS)
    with store.view() as view:
        assert (view.get("rows", b"a"), view.get("more", b"a")) == (b"1", None)
    store.close()
    with pytest.raises(StoreError, match="has tables this emubus doesn't know: more"):
        open_store(tmp_path, ["rows"], PROCESS)


@pytest.mark.parametrize("tables", [["meta"], ["a", "a"], [""], ["two words"]])
@pytest.mark.parametrize("durability", list(Durability), ids=str)
def test_table_names_are_single_words_each_once_and_not_the_reserved_one(
    tmp_path: Path, tables: list[str], durability: Durability
) -> None:
    with pytest.raises(ValueError, match="can't be the name of a table"):
        open_store(tmp_path, tables, durability)


def test_a_durable_store_needs_a_folder() -> None:
    with pytest.raises(ValueError, match="durability 'full' needs a folder"):
        open_store(None, ["rows"], Durability.FULL)


def test_opening_and_closing_a_store_writes_nothing(open_lmdb: OpenStore, tmp_path: Path) -> None:
    open_lmdb().close()
    before = (tmp_path / "store" / "data.mdb").read_bytes()
    open_lmdb().close()
    assert (tmp_path / "store" / "data.mdb").read_bytes() == before


def test_the_mark_of_a_store_with_rows_waits_for_pages_before_their_root(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    open_store(tmp_path, ["rows"], Durability.FULL).close()
    opened: list[tuple[object, object]] = []
    open_environment = lmdb.open

    def noted(*arguments: Any, **options: Any) -> object:
        opened.append((options["sync"], options["metasync"]))
        return open_environment(*arguments, **options)

    monkeypatch.setattr(lmdb, "open", noted)
    mark_store(tmp_path, ["rows"], b"mark", {})
    assert opened == [(True, True)]


def test_a_store_that_is_made_is_synced_with_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "store"
    synced: list[Path] = []
    fsync = os.fsync

    def noted(fd: int) -> None:
        synced.append(Path(f"/proc/self/fd/{fd}").readlink())
        fsync(fd)

    mark_store(folder, ["rows"], b"mark", {}, create=True)
    monkeypatch.setattr(os, "fsync", noted)
    sync_store(folder)
    assert synced == [folder / "data.mdb", folder]


def test_rows_of_an_older_format_become_those_of_this_one_in_the_commit_of_the_mark(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["rows"], PROCESS)
    with store.begin(0) as batch:
        batch.put("rows", b"old", b"value")
        batch.commit()
    store.close()
    rewrite_meta(tmp_path, b"format", b"2")
    steps: list[int] = []

    def step(version: int) -> Callable[[Batch], None]:
        def change(batch: Batch) -> None:
            steps.append(version)
            batch.put("rows", f"new {version}".encode(), batch.get("rows", b"old") or b"")

        return change

    def fail(batch: Batch) -> None:
        batch.delete("rows", b"old")
        raise OSError("killed")

    newest = FORMAT_VERSION
    with pytest.raises(OSError, match="killed"):
        mark_store(tmp_path, ["rows"], b"mark", {3: step(3), newest: fail})
    assert rows(tmp_path) == {b"old": b"value"}
    steps.clear()
    upgrades = {newest: step(newest), 2: step(2), 3: step(3)}
    in_memory = read_into_memory(tmp_path, ["rows"], upgrades)
    with in_memory.view() as view:
        assert len(view.scan("rows", b"", b"x", 9)) == 3
    assert steps == [3, newest]
    upgrade_store(tmp_path, ["rows"], upgrades)
    assert steps == [3, newest] * 2
    mark_store(tmp_path, ["rows"], b"mark", upgrades)  # it has this format now
    assert steps == [3, newest] * 2
    assert rows(tmp_path) == {b"old": b"value", b"new 3": b"value", f"new {newest}".encode(): b"value"}


def rows(folder: Path) -> dict[bytes, bytes]:
    with StoreReader(folder) as reader:
        return dict(reader.rows("rows"))
