"""What every store promises: the verbs, the errors, the limits and the names of the failpoints.

Knows tables of byte keys and byte values, one writer at a time, and when what becomes durable. Refuses to
know LMDB (that is `lmdb_store.py`), folders (`folder.py`) and anything about queues: no key and no value is
ever interpreted here. Owns no objects; `tests/storage` runs every implementation through this one contract.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

FORMAT_VERSION = 2
"""Version of what is kept in a data folder and its stores. It changes when an older release would misread it.

1: no manifest, no mark in the stores (release 0.1.0). 2: with both.
"""

FORMAT_VERSION_OLDEST = 1
"""The oldest version that this emubus reads."""

META_TABLE = "meta"
"""Reserved table: the format version, the list of tables and the mark. No caller's table has this name."""

# --- Limits (each named once, here) -------------------------------------------------------------------------

KEY_BYTES_MAX = 511
"""Longest key: LMDB's own limit (MDB_MAXKEYSIZE), kept by every store so that all accept the same."""

MAP_BYTES_START = 64 * 1024 * 1024
"""Address space that a new store maps, neither memory nor disk; doubled when a batch might not fit."""

MAP_BYTES_MAX = 1024**4
"""Where doubling ends unless `open_store` is told otherwise; a 64-bit process has 128 TiB of addresses."""

MAP_SLACK_BYTES = 16 * 1024 * 1024
"""Room on top of twice what a batch expects: 4096 pages, as a write first copies the pages on its path."""

BATCH_BYTES_KEPT_MAX = 2 * 1024 * 1024
"""After a batch that wrote more, a store is opened anew: LMDB would keep the memory of its largest batch, twice
these bytes, in every store for ever."""

PAGES_KEPT_BYTES_MAX = 4 * 1024 * 1024
"""How much of its map a store may touch before it asks whether to give pages back; 64 MiB over 16 stores."""

FILE_RESIDENT_BYTES_MAX = 96 * 1024 * 1024
"""Resident file pages of the process, libraries and maps, from which on stores give theirs back."""


class Durability(StrEnum):
    """What a commit promises once it has returned."""

    FULL = "full"
    """It survives the machine: data and root are on the disk (fsync)."""
    PROCESS = "process"
    """It survives the process, killed at any moment; a crash of the machine may damage the store."""
    NONE = "none"
    """It is in memory and leaves nothing behind."""


FAILPOINTS: Mapping[str, str] = MappingProxyType(
    {
        "batch-applied": "commit() was called, all writes of the batch are made, none can be found yet",
        "commit-started": "on the committing thread, immediately before the store's own commit",
        "committed": "on the committing thread, immediately after: the batch is durable, nobody knows yet",
    }
)
"""Where around a commit `failpoint(name)` is called, in this order, on the thread of `commit()`.

A test may block, kill the process or, at the first two, raise: an exception raised there fails the commit
like a disk that refuses. At "committed" it is too late to refuse, so what is raised there reaches the
caller unchanged.
"""


def checked_names(tables: Sequence[str]) -> tuple[str, ...]:
    """Return the table names; ValueError for one that is empty, reserved, double or has white space."""
    for name in tables:
        if name.split() != [name] or name == META_TABLE or tables.count(name) > 1:
            raise ValueError(f"{name!r} can't be the name of a table here")
    return tuple(tables)


def no_failpoint(name: str) -> None:
    """Let every commit pass; the failpoint of production."""


class StoreError(Exception):
    """A store said no. `store` is its folder (None in memory), `reason` the sentence without the folder."""

    def __init__(self, store: Path | None, reason: str) -> None:
        super().__init__(f"store {store if store is not None else '(in memory)'}: {reason}")
        self.store = store
        self.reason = reason


class StoreFull(StoreError):  # noqa: N818 - the interface's name; it says what is, not what went wrong
    """No room: disk, quota, file size limit or the store's map limit. Nothing of the batch is stored.

    `grows` when the map was too small for the batch and may be larger: the next `begin()` enlarges it.
    """

    def __init__(self, store: Path | None, reason: str, *, grows: bool = False) -> None:
        super().__init__(store, reason)
        self.grows = grows


class StoreFailed(StoreError):  # noqa: N818
    """Disk or file failed; the store opens anew before its next use.

    Out of `Batch.commit`, all of the batch may be stored or nothing: the last page may have been written without being
    confirmed. Otherwise nothing is. It is never a part.
    """


class BatchState(StrEnum):
    """Where a batch is in its life; the values complete the sentence "the batch is ..."."""

    OPEN = "open"
    COMMITTING = "being committed"
    OVER = "over"


class View(Protocol):
    """Committed state as of one moment, for the thread that owns the store.

    Good until that store's next `begin()`, and no longer: a later use raises StoreError. (A view that lived
    across commits could read pages that a later batch has overwritten, see docs/decisions/0001.) Nor after a
    failed commit: the store may have been opened anew.
    """

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None. KeyError for an unknown table, ValueError for an empty key."""
        ...

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows with start <= key < stop, ascending by key; b"" is before all keys."""
        ...

    def close(self) -> None:
        """Give the view back; closing twice is fine."""
        ...

    def __enter__(self) -> Self: ...

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None: ...


class Batch(View, Protocol):
    """One writer transaction: reads see its own writes, and all of it is stored or nothing.

    A StoreError out of `put`, `delete` or `commit` means that the batch is aborted. `close()` aborts a
    batch that is still open.
    """

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write or overwrite. ValueError (and no change) for a key not of 1 to KEY_BYTES_MAX bytes."""
        ...

    def delete(self, table: str, key: bytes) -> bool:
        """Remove `key`; False if it wasn't there."""
        ...

    def commit(self) -> None:
        """Store the batch, durable on return. Blocks; may be called from another thread than begin() was.

        No other method may be called until it has returned. Raises StoreError: with `StoreFailed` it is open whether
        the batch is stored, with any other nothing is.
        """
        ...

    def abort(self) -> None:
        """Forget the batch. Does nothing if it is over; StoreError while it is being committed."""
        ...


class Store(Protocol):
    """Tables of byte rows. One thread owns a store and makes all calls but `Batch.commit`, which any may."""

    blocking: bool
    """True: commit() waits for a disk, call it off the event loop. False: call it in place."""

    def begin(self, expected_bytes: int) -> Batch:
        """Begin the one batch; ends every view. `expected_bytes`: sum of keys and values to be put at most.

        Makes room first, growing the map if need be: that is address space, so a high estimate costs nothing.
        StoreError if a batch is open or the store closed.
        """
        ...

    def view(self) -> View:
        """Look at the committed state. Costs about a microsecond; take one per use and close it."""
        ...

    def copy_to(self, path: Path) -> Callable[[], None]:
        """Get ready to copy the committed state into a new store folder `path`, in the durable form whatever this is.

        What is returned makes the copy; it blocks and may be called on another thread. Until it has returned no batch
        can begin. It raises StoreError (the copy may be there in part), and does not sync what it has written.
        """
        ...

    def close(self) -> None:
        """Abort an open batch, end views, release the folder. StoreError while a commit runs."""
        ...
