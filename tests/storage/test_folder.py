"""A store's folder: one process at a time, one format, known tables."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import lmdb
import pytest

from emubus.storage import Durability, Store, StoreError, StoreFailed, check_store, open_store

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
        with pytest.raises(StoreFailed, match=r"can't open it: .* not an LMDB file"):
            open_store(tmp_path, ["rows"], PROCESS)


@pytest.mark.parametrize("left", [b"", bytes(3000), bytes(8192), "half"], ids=["empty", "part", "zeros", "half"])
def test_a_file_whose_making_was_cut_short_is_made_again(tmp_path: Path, left: bytes | str) -> None:
    """Before the first commit there is nothing to lose, and nothing that LMDB could open either."""
    if left == "half":
        lmdb.open(str(tmp_path), lock=False).close()
        left = (tmp_path / "data.mdb").read_bytes()[:4096]
    assert isinstance(left, bytes)
    (tmp_path / "data.mdb").write_bytes(left)
    open_store(tmp_path, ["rows"], Durability.FULL).close()
    assert check_store(tmp_path).problems == []


def test_missing_folders_are_made(tmp_path: Path) -> None:
    for durability in (Durability.FULL, PROCESS):
        folder = tmp_path / durability / "a" / "b"
        open_store(folder, ["rows"], durability).close()
        assert (folder / "data.mdb").is_file()


def test_a_folder_that_cannot_be_made_is_refused_by_name(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(StoreFailed, match=rf"store {tmp_path}/file/store: can't make the folder"):
        open_store(tmp_path / "file" / "store", ["rows"], PROCESS)


@pytest.mark.parametrize(("found", "shown"), [(b"2", "2"), (b"x\xff", r"x\\xff"), (None, "none")])
def test_another_format_version_is_refused_with_both_versions(tmp_path: Path, found: bytes | None, shown: str) -> None:
    open_store(tmp_path, ["rows"], PROCESS).close()
    rewrite_meta(tmp_path, b"format", found)
    with pytest.raises(StoreError, match=rf"store {tmp_path}: has format version {shown}; .* reads version 1"):
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
