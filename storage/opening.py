"""Which store a durability means: one table, one function. Owns nothing; the caller owns what it is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from .contract import MAP_BYTES_MAX, Durability, Store, no_failpoint
from .copying import sync_file
from .lmdb_store import LmdbStore
from .memory_store import MemoryStore


def open_store(
    path: Path | None,
    tables: Sequence[str],
    durability: Durability,
    failpoint: Callable[[str], None] = no_failpoint,
    *,
    map_bytes_max: int = MAP_BYTES_MAX,
    create: bool = True,
) -> Store:
    """Open the store in folder `path`; `path` may be None for Durability.NONE only.

    `create`: make the folder and the file in it if they are missing; otherwise a missing file is an error.
    `tables`: names without spaces; a store may gain tables, it is not opened without one that it has.
    `map_bytes_max`: how far its map, and so its file, may grow. Raises StoreError (in use, unknown format,
    failed disk) and StoreFull.
    """
    if durability is Durability.NONE:
        return MemoryStore(tables, failpoint)
    if path is None:
        raise ValueError(f"durability {durability.value!r} needs a folder")
    return LmdbStore(path, tables, durability, failpoint, map_bytes_max=map_bytes_max, create=create)


def mark_store(path: Path, tables: Sequence[str], mark: bytes, *, create: bool = False) -> None:
    """Give the store in folder `path` a mark, durably, by which it is known again; `create` as in `open_store`.

    The store is of this release's format then. StoreError, OSError.
    """
    store = LmdbStore(path, tables, Durability.PROCESS, create=create)
    try:
        store.write_mark(mark)  # which syncs all of the file, at once
        if create:
            sync_file(path)
    finally:
        store.close()
