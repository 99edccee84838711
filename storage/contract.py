"""The contract of every store: methods, errors, limits and failpoints.

Knows tables of byte keys and byte values, one writer at a time, and what is durable when. Does not know LMDB
(`lmdb_store.py`), folders (`folder.py`) or queues: keys and values are never interpreted. `tests/storage` runs every
implementation through this contract.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Protocol, Self

FORMAT_VERSION = 6
"""Format version of a data folder and its stores. It changes when an older release would misread them.

1: no manifest, no mark in the stores (release 0.1.0). 2: with both. 3: a folder in use has a journal beside its stores.
4: the catalog says where the sequence numbers of a purged entity go on; its rules have rows of their own.
5: message sessions whose names differ in case are one; the catalog says which entities compare keys with case; rows of
messages that were scheduled say so.
6: counters have the bytes of large messages and of the states of message sessions.
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
"""Default limit of the doubling; a 64-bit process has 128 TiB of addresses."""

MAP_SLACK_BYTES = 16 * 1024 * 1024
"""Room on top of twice what a batch expects: 4096 pages, as a write first copies the pages on its path."""

BATCH_BYTES_KEPT_MAX = 2 * 1024 * 1024
"""After a larger batch the store is reopened: LMDB would keep the memory of its largest batch, twice these bytes,
in every store."""

RESERVE_PAGES = 128
"""Pages of a store's file that only batches with `frees` may use: deleting a message copies about 20 pages, and LMDB
reuses pages two commits later, so this is twice what single deletions need without end. On the disk with the file."""

GROWTH_BYTES = 1024 * 1024
"""A store's file grows by so much at a time: one call for some thousand messages."""

FLUSHING_BYTES = 1024 * 1024
"""A batch that expects so much goes into the store's own file, and pending rows with it, even if it writes nothing."""

PAGES_KEPT_BYTES_MAX = 4 * 1024 * 1024
"""Bytes of its map that a store may touch before it checks whether to release pages; 64 MiB over 16 stores."""

FILE_RESIDENT_BYTES_MAX = 96 * 1024 * 1024
"""Resident file pages of the process, libraries and maps, above which stores release theirs."""


class Durability(StrEnum):
    """What survives once a commit has returned."""

    FULL = "full"
    """It survives the machine: it is on the disk (fsync)."""
    SECOND = "second"
    """It survives the process, killed at any moment, and after a second the machine: the system has it in a journal, in
    order, which is synced once a second. What a crash of the machine leaves is the beginning of what was committed.
    Without a journal the same as `full`."""
    PROCESS = "process"
    """It survives the process, killed at any moment; a crash of the machine may damage the store."""
    NONE = "none"
    """Kept in memory only."""

    @property
    def syncs(self) -> bool:
        """Whether files of stores are synced, so that a crash of the machine never damages them."""
        return self in (Durability.FULL, Durability.SECOND)


FAILPOINTS: Mapping[str, str] = MappingProxyType(
    {
        "batch-applied": "commit() was called: all writes of the batch are made, none is visible",
        "commit-started": "on the committing thread, immediately before the store's own commit",
        "committed": "on the committing thread, immediately after: the batch is durable, the owner does not know yet",
    }
)
"""Where around a commit `failpoint(name)` is called, in this order, on the thread of `commit()`.

A test may block, kill the process or, at the first two, raise: an exception raised there fails the commit
like a failing disk. At "committed" it is too late, so an exception reaches the caller unchanged.
"""

RECOVERING = "recovering"
"""The failpoint in `recover()`, on its thread: an exception means that the disk fails still."""


def checked_names(tables: Sequence[str]) -> tuple[str, ...]:
    """Return the table names; ValueError for an empty, reserved or duplicate name, or one with white space."""
    for name in tables:
        if name.split() != [name] or name == META_TABLE or tables.count(name) > 1:
            raise ValueError(f"{name!r} can't be the name of a table here")
    return tuple(tables)


def no_failpoint(name: str) -> None:
    """Do nothing; the failpoint of production."""


class StoreError(Exception):
    """A store refuses or fails. `store` is its folder (None in memory), `reason` the sentence without the folder."""

    def __init__(self, store: Path | None, reason: str) -> None:
        super().__init__(f"store {store if store is not None else '(in memory)'}: {reason}")
        self.store = store
        self.reason = reason


class StoreFull(StoreError):  # noqa: N818 - the state of the store
    """No room: disk, quota, file size limit or the store's map limit. Nothing of the batch is stored.

    `grows` when the map was too small for the batch and may be larger: the next `begin()` enlarges it.
    """

    def __init__(self, store: Path | None, reason: str, *, grows: bool = False) -> None:
        super().__init__(store, reason)
        self.grows = grows


class StoreFailed(StoreError):  # noqa: N818
    """Disk or file failed. If the store's `failure` is set, every use of it fails until `recover` has returned.

    Out of `Batch.commit`, all of the batch may be stored, or nothing: the last page may have been written without
    confirmation. In other cases nothing is stored. It is never a part.
    """


class BatchState(StrEnum):
    """The state of a batch; the values complete the sentence "the batch is ..."."""

    OPEN = "open"
    COMMITTING = "being committed"
    OVER = "over"


class Closing(ABC):
    """With it as the context of a block, it is closed at the block's end."""

    __slots__ = ()

    @abstractmethod
    def close(self) -> None:
        """Close it; more than once is allowed."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class CommitTogether(Protocol):
    """Commits batches of several stores with one write, for an event loop that does not wait for the disk.

    One group of batches at a time: a `start` that returned True, then a `finish`.
    """

    @property
    def waits(self) -> bool:
        """Whether a group is on the disk when it has ended; if not, the system has it, and `sync` is due."""
        ...

    def start(self, batches: Sequence[object], *, here: bool = False) -> bool:
        """Begin to commit batches whose `shared` this is; False if that must be tried again soon: nothing was done.

        With `here` this thread may write, and wait for the disk if it `waits`: then the group has ended on return.
        """
        ...

    has_ended: bool
    """Whether the group that was started has ended already; if not, `fileno` says when it has."""

    def fileno(self) -> int:
        """Return the file descriptor that can be read once the group is durable or has failed."""
        ...

    @property
    def tail_bytes(self) -> int:
        """How many bytes of ended groups may not be on the disk."""
        ...

    def sync(self) -> None:
        """Put all ended groups on the disk. Blocks; any thread may call it. OSError: some may not be there."""
        ...

    @property
    def failed(self) -> bool:
        """Whether it commits nothing: batches do so alone."""
        ...

    @property
    def failure(self) -> str | None:
        """Why it has `failed`; None if it has not."""
        ...

    def recover(self) -> None:
        """Make it commit again after a failure. Blocks; any thread may call it. Raises an error if it fails still."""
        ...

    def finish(self) -> list[BaseException | None]:
        """End the batches as `Batch.commit` does; return each one's error. Waits for the group."""
        ...


class View(Protocol):
    """Committed state as of one moment, for the thread that owns the store.

    Valid until that store's next `begin()`; a later use raises StoreError. (A view that lived
    across commits could read pages that a later batch has overwritten, see docs/decisions/0001.) Not valid after a
    failed commit either: the store may have been reopened.
    """

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, or None. KeyError for an unknown table, ValueError for an empty key."""
        ...

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows with start <= key < stop, ascending by key; b"" is before all keys."""
        ...

    def close(self) -> None:
        """Release the view; closing twice is allowed."""
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

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows, as `put` does, at a lower cost for each: `rows` ascending by key, each key once.

        ValueError for a key that `put` refuses; the rows before it are written, none behind it.
        """
        ...

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove each of `keys` that is there, as `delete` does, at a lower cost for each.

        ValueError for an empty key; the rows of those before it are removed, none behind it.
        """
        ...

    @property
    def shared(self) -> CommitTogether | None:
        """What commits this batch together with others; None if it commits alone."""
        ...

    @property
    def state(self) -> BatchState:
        """Whether it is open, being committed or over."""
        ...

    def commit(self) -> None:
        """Store the batch, durable on return. Blocks; may be called from another thread than begin() was.

        No other method may be called until it has returned. Raises StoreError: with `StoreFailed` it is unknown
        whether the batch is stored, with any other it is not.
        """
        ...

    def abort(self) -> None:
        """Drop the batch. Does nothing if it is over; StoreError while it is being committed."""
        ...


Upgrades = Mapping[int, Callable[[Batch], None]]
"""By format version: what makes the rows of a store of the version before into its own. All that a store lacks run in
order, in one batch with its new version, so a kill leaves the old rows or the new ones."""


def upgrade_rows(batch: Batch, version: int, upgrades: Upgrades) -> None:
    """Bring the rows of a store of format `version` to this release's."""
    for each in sorted(upgrades):
        if each > version:
            upgrades[each](batch)


class Store(Protocol):
    """Tables of byte rows. One thread owns a store and makes all calls except `Batch.commit`, which any thread may."""

    blocking: bool
    """True: commit() waits for a disk, call it off the event loop. False: call it in place."""

    waits: bool
    """True: a small batch is stored once the disk has it; what needs nothing of it should not be in it."""

    @property
    def failure(self) -> str | None:
        """Why the store can't be used: its disk or its file has failed. None if it can."""
        ...

    def recover(self) -> None:
        """Make a store with a `failure` usable, as its last commit left it. Blocks; StoreError: it fails still.

        Any thread may call it, while no other method is called. It writes to the file and waits for the disk, so a
        disk that takes no writes is found out. Nothing may rest on what the file shows before it has returned: after
        a failed wait for the disk the kernel may show pages that the disk does not have.
        """
        ...

    @property
    def has_pending(self) -> bool:
        """True: rows are in a journal only; a batch of FLUSHING_BYTES puts them into the store's own file."""
        ...

    @property
    def wants_flush(self) -> bool:
        """True: pending rows should be put into the file soon, so that the journal gets room."""
        ...

    def on_flush_wanted(self, call: Callable[[], object]) -> None:
        """Call `call`, on any thread, when `wants_flush` becomes true."""
        ...

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Batch:
        """Begin the one batch; ends every view. `expected_bytes`: upper bound of the keys and values to be put.

        Makes room first, growing the map if needed: that is address space, so a high estimate costs nothing.
        With `frees`, for a batch that deletes more than it adds, it may use the room that is kept for those; any other
        gets StoreFull before it would. StoreError if a batch is open or the store closed.
        """
        ...

    def view(self) -> View:
        """A view of the committed state. Costs about a microsecond; take one per use and close it."""
        ...

    def copy_to(self, path: Path) -> Callable[[], None]:
        """Prepare a copy of the committed state in a new store folder `path`, as an LMDB file whatever this store is.

        Ends every view, as `begin` does.

        The returned function makes the copy; it blocks and may be called on another thread. No batch can begin until it
        has returned. It raises StoreError (a part of the copy may remain), and does not sync.
        """
        ...

    def close(self) -> None:
        """Abort an open batch, end views, release the folder. StoreError while a commit runs."""
        ...


class StoreWithoutJournal:
    """The part of a store that writes into nothing but its own rows."""

    @property
    def has_pending(self) -> bool:
        """Never."""
        return False

    @property
    def wants_flush(self) -> bool:
        """Never."""
        return False

    def on_flush_wanted(self, call: Callable[[], object]) -> None:
        """Never call it."""
