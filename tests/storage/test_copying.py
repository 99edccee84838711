"""Copies: what is committed at the moment, in the durable form whatever the store is made of."""

from __future__ import annotations

from pathlib import Path

import pytest

from emubus.storage import Durability, Store, StoreError, copy_files, open_store, read_into_memory
from emubus.storage.check import check_store

from .conftest import TABLES

COUNT = 2_500


def fill(store: Store, value: bytes, count: int = COUNT) -> None:
    with store.begin(count * 100) as batch:
        for number in range(count):
            batch.put("rows", number.to_bytes(4, "big"), value * (number % 40))
        batch.put("index", b"only", value)
        batch.commit()


def rows(store: Store) -> dict[str, list[tuple[bytes, bytes]]]:
    with store.view() as view:
        return {table: view.scan(table, b"", b"\xff" * 9, 1 << 20) for table in TABLES}


def test_a_copy_has_what_was_committed_when_it_was_made(store: Store, tmp_path: Path) -> None:
    fill(store, b"old")
    expected = rows(store)
    store.copy_to(tmp_path / "copy")()
    fill(store, b"new", 10)
    assert check_store(tmp_path / "copy").is_whole
    copy = read_into_memory(tmp_path / "copy", TABLES, {})
    assert rows(copy) == expected
    copy_files(tmp_path / "copy", tmp_path / "again")
    again = open_store(tmp_path / "again", TABLES, Durability.PROCESS)
    assert rows(again) == expected
    assert rows(store) != expected
    again.close()


def test_a_store_that_is_being_copied_is_read_and_not_written(store: Store, tmp_path: Path) -> None:
    fill(store, b"x", 10)
    expected = rows(store)
    copy = store.copy_to(tmp_path / "copy")
    assert rows(store) == expected
    refused = [lambda: store.begin(1), lambda: store.copy_to(tmp_path / "other"), store.close]
    for call in refused:
        with pytest.raises(StoreError, match="cop"):
            call()
    copy()
    fill(store, b"y", 10)
    assert rows(store) != expected


def test_no_copy_is_made_while_a_batch_is_open(store: Store, tmp_path: Path) -> None:
    batch = store.begin(10)
    with pytest.raises(StoreError, match="can't be copied"):
        store.copy_to(tmp_path / "copy")
    batch.abort()
    store.copy_to(tmp_path / "copy")()


def test_a_copy_that_fails_leaves_the_store_as_it_is(store: Store, tmp_path: Path) -> None:
    fill(store, b"x", 10)
    (tmp_path / "file").write_text("in the way")
    with pytest.raises(StoreError):
        store.copy_to(tmp_path / "file" / "copy")()
    fill(store, b"y", 10)
    with pytest.raises(StoreError):
        copy_files(tmp_path / "nowhere", tmp_path / "target")
    with pytest.raises(StoreError):
        read_into_memory(tmp_path / "nowhere", TABLES, {})
