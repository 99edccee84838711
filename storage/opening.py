"""Opens the store for a durability. The caller owns the store."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .contract import MAP_BYTES_MAX, Durability, Store, Upgrades, no_failpoint
from .copying import sync_file
from .journal.journal import Journal
from .journal.journaled_store import JournaledStore
from .lmdb_reading import DATA_FILE
from .lmdb_store import LmdbStore


def open_store(
    path: Path | None,
    tables: Sequence[str],
    durability: Durability,
    failpoint: Callable[[str], None] = no_failpoint,
    *,
    map_bytes_max: int = MAP_BYTES_MAX,
    create: bool = True,
    synced: bool = False,
    journal: Journal | None = None,
    behind: Journal | None = None,
) -> Store:
    """Open the store in folder `path`; `path` may be None for Durability.NONE only.

    `create`: make the folder and the file in it if they are missing; otherwise a missing file is an error.
    `synced`: the file is on the disk as it is, because `mark_store` or `sync_store` has just synced it.
    `journal`: if the durability syncs, where its small batches go first; its name there is that of its folder.
    `behind`: for a store without a journal, one whose groups are on the disk before what is committed here later.
    `tables`: names without spaces; must include all tables that the store has, and may add new ones.
    `map_bytes_max`: limit of its map, and so of its file. Raises StoreError (in use, unknown format,
    failed disk) and StoreFull.
    """
    if durability is Durability.NONE:
        from .memory_store import MemoryStore  # not needed for a start with a folder

        return MemoryStore(tables, failpoint)
    if path is None:
        raise ValueError(f"durability {durability.value!r} needs a folder")
    if journal is not None and durability.syncs:
        return JournaledStore(
            path, tables, journal, failpoint, map_bytes_max=map_bytes_max, create=create, synced=synced
        )
    return LmdbStore(
        path,
        tables,
        durability,
        failpoint,
        earlier=None if behind is None else behind.sync,
        map_bytes_max=map_bytes_max,
        create=create,
        synced=synced,
        reserves=True,
    )


def mark_store(path: Path, tables: Sequence[str], mark: bytes, upgrades: Upgrades, *, create: bool = False) -> None:
    """Give the store in folder `path` a mark that identifies it, and bring its rows to this release's format.

    It is durable when this returns. With `create` the store is made, and is durable after `sync_store`: a part of a
    new store may be lost, but rows of an old one must never be behind a root that came to the disk first. StoreError.
    """
    store = LmdbStore(path, tables, Durability.PROCESS if create else Durability.FULL, create=create)
    try:
        store.upgrade(upgrades, mark)
    finally:
        store.close()


def upgrade_store(path: Path, tables: Sequence[str], upgrades: Upgrades) -> None:
    """Bring the rows of the closed store in folder `path` to this release's format, durably. StoreError."""
    store = LmdbStore(path, tables, Durability.FULL, create=False)
    try:
        store.upgrade(upgrades)
    finally:
        store.close()


def sync_store(path: Path) -> None:
    """Make the closed store in folder `path` durable. OSError."""
    sync_file(path / DATA_FILE)
    sync_file(path)
