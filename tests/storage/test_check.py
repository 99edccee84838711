"""`check_store`: what it reports of a sound store, and what it finds in a damaged one."""

from __future__ import annotations

from pathlib import Path

import lmdb
import pytest

from emubus.storage import Durability, StoreError, open_store
from emubus.storage.check import TableReport, check_store

ROW_COUNT = 2000


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A closed store with rows in two tables."""
    store = open_store(tmp_path / "store", ["rows", "index"], Durability.PROCESS)
    with store.begin(ROW_COUNT * 500) as batch:
        for number in range(ROW_COUNT):
            batch.put("rows", number.to_bytes(4, "big"), b"v" * 500)
        batch.put("index", b"large", b"v" * 10_000)
        batch.commit()
    store.close()
    return tmp_path / "store"


def test_a_sound_store_is_whole_and_counted(folder: Path) -> None:
    before = (folder / "data.mdb").read_bytes()
    report = check_store(folder)
    assert report.problems == []
    assert report.is_whole
    assert report.tables[0] == TableReport("index", 1, 5, 10_000)
    assert report.tables[2] == TableReport("rows", ROW_COUNT, ROW_COUNT * 4, ROW_COUNT * 500)
    assert [table.name for table in report.tables] == ["index", "meta", "rows"]
    assert report.file_bytes == len(before)
    assert (folder / "data.mdb").read_bytes() == before


def test_a_large_value_made_smaller_in_the_same_batch_is_no_damage(tmp_path: Path) -> None:
    store = open_store(tmp_path, ["rows"], Durability.PROCESS)
    with store.begin(100_000) as batch:
        for size_bytes in (9000, 4081, 4080, 1501, 1500, 0):
            batch.put("rows", b"a", b"v" * size_bytes)
            batch.put("rows", b"%d" % size_bytes, b"v" * 9000)
            batch.put("rows", b"%d" % size_bytes, b"v" * size_bytes)
        batch.commit()
    store.close()
    assert check_store(tmp_path).problems == []


def test_a_store_in_use_is_not_checked(folder: Path) -> None:
    store = open_store(folder, ["rows", "index"], Durability.PROCESS)
    with pytest.raises(StoreError, match="in use"):
        check_store(folder)
    store.close()
    assert check_store(folder).is_whole


def test_no_store_is_an_error_and_none_is_made(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"there is no store here: no file data\.mdb"):
        check_store(tmp_path)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("page", [5, 40, 200])
def test_an_overwritten_page_is_found(folder: Path, page: int) -> None:
    data = bytearray((folder / "data.mdb").read_bytes())
    at = page * 4096
    data[at : at + 64] = b"\xaa" * 64
    (folder / "data.mdb").write_bytes(data)
    report = check_store(folder)
    assert not report.is_whole
    assert report.tables == []


def test_a_file_cut_short_is_found_without_harm(folder: Path) -> None:
    data = (folder / "data.mdb").read_bytes()
    (folder / "data.mdb").write_bytes(data[: len(data) // 4])  # at its end are pages that are not used yet
    assert not check_store(folder).is_whole


@pytest.mark.parametrize("content", [b"", b"not a database" * 1000], ids=["empty", "text"])
def test_a_file_that_is_no_database_is_found(folder: Path, content: bytes) -> None:
    (folder / "data.mdb").write_bytes(content)
    assert len(check_store(folder).problems) == 1


def test_another_format_version_is_found(folder: Path) -> None:
    with lmdb.open(str(folder), max_dbs=4, lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"format", b"7", db=env.open_db(b"meta", txn))
    assert check_store(folder).problems == [
        "has format version 7; this emubus reads versions 1 to 6: use the release that wrote it, or a newer one"
    ]


def test_the_lmdb_file_of_somebody_else_is_found(tmp_path: Path) -> None:
    with lmdb.open(str(tmp_path), lock=False) as env, env.begin(write=True) as txn:
        txn.put(b"theirs", b"1")
    assert check_store(tmp_path).problems == ["data.mdb isn't an emubus store: it has no table 'meta'"]
