"""Copies of stores: a store's file into another folder, or its rows into memory.

A copy is one LMDB file, whatever store it was made from. The caller makes sure that no store has it open. Owns nothing.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from .contract import FORMAT_VERSION, META_TABLE, StoreFailed, Upgrades, no_failpoint, upgrade_rows
from .folder import FolderLock, keep_private, make_folder, make_private_file
from .lmdb_reading import DATA_FILE, StoreReader, walk_tables

if TYPE_CHECKING:
    from .memory_store import MemoryStore

_ROWS_AT_ONCE = 10_000


def copy_files(source: Path, target: Path) -> None:
    """Copy the closed store in folder `source` into the new folder `target`, durably. StoreFailed."""
    try:
        make_folder(target)
        shutil.copyfile(source / DATA_FILE, target / DATA_FILE)
        keep_private(target / DATA_FILE)
        sync_file(target / DATA_FILE)
        sync_file(target)
    except OSError as error:
        raise StoreFailed(target, f"can't copy {source} to here: {error.strerror}") from error


def read_into_memory(
    source: Path, tables: Sequence[str], upgrades: Upgrades, failpoint: Callable[[str], None] = no_failpoint
) -> MemoryStore:
    """A store in memory with the rows of the closed store in folder `source`, in this release's format. StoreError."""
    from .memory_store import MemoryStore  # not needed for a start

    store = MemoryStore(tables, failpoint)
    lock = FolderLock(source, reading=True)
    try:
        for table, rows in walk_tables(source):
            if table == META_TABLE:
                continue
            while some := list(islice(rows, _ROWS_AT_ONCE)):
                with store.begin(0) as batch:
                    for key, value in some:
                        batch.put(table, key, value)
                    batch.commit()
        with StoreReader(source) as reader:
            version = reader.version
    finally:
        lock.release()
    if version < FORMAT_VERSION:
        with store.begin(0) as batch:
            upgrade_rows(batch, version, upgrades)
            batch.commit()
    return store


def sync_file(path: Path) -> None:
    """Make a file, or the entries of a folder, durable. OSError."""
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def replace_file(path: Path, data: bytes) -> None:
    """Replace a small file, durably, or leave the old one. OSError."""
    new = path.with_name(f"{path.name}.new")
    with make_private_file(new) as file:
        file.write(data)
        file.flush()
        os.fsync(file.fileno())
    new.replace(path)
    sync_file(path.parent)
