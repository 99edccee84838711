"""A store in memory, for `Durability.NONE` and for tests.

Keeps the contract of the LMDB store, including when a view ends. Does not know files. Committed rows are in
`_base`; a batch writes into its own layer (key -> value, or None for "deleted") and reads through it. Commit keeps
the layer as the newest committed one; the next begin() merges it into the base. So commit costs nothing, abort
drops the layer, and a view that was taken before a commit still sees the base alone. The store owns base and
layers; batches and views refer to them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Any

from sortedcontainers import SortedDict

from .contract import (
    KEY_BYTES_MAX,
    RECOVERING,
    BatchState,
    Closing,
    Durability,
    StoreError,
    StoreFailed,
    StoreWithoutJournal,
    checked_names,
    no_failpoint,
)
from .journal.rows import merged
from .lmdb_store import LmdbStore

_Rows = Any  # SortedDict[bytes, bytes | None]; sortedcontainers comes without types
_Layer = dict[str, _Rows]

_COPY_ROWS = 10_000  # written in one batch of a copy
_FEW_CHANGES = 16  # are sorted at each scan: most batches are small, and making a SortedDict takes microseconds


class MemoryStore(StoreWithoutJournal):
    """Tables in this process's memory; see `contract.Store`."""

    blocking = False
    waits = False

    def __init__(self, tables: Sequence[str], failpoint: Callable[[str], None] = no_failpoint) -> None:
        self._base: _Layer = {table: SortedDict() for table in checked_names(tables)}
        self._committed: _Layer | None = None
        self._failpoint = failpoint
        self._batch: MemoryBatch | None = None
        self._epoch = 0  # counts begin(): a view of an earlier epoch is over
        self._closed = False
        self._failure: str | None = None  # of a failpoint that plays a disk
        self._copying = False

    @property
    def failure(self) -> str | None:
        return self._failure

    def recover(self) -> None:
        """See `contract.Store.recover`; what a commit that failed has left is what it was before."""
        try:
            self._failpoint(RECOVERING)
        except Exception as error:
            raise StoreFailed(None, f"can't open it again: {error}") from error
        self._failure = None

    def begin(self, expected_bytes: int, *, frees: bool = False) -> MemoryBatch:
        self._refuse_unusable()
        if self._batch is not None and self._batch.state is not BatchState.OVER:
            raise StoreError(None, f"a batch is {self._batch.state}; one at a time")
        if self._copying:
            raise StoreError(None, "is being copied")
        self._epoch += 1
        self._fold()
        self._batch = MemoryBatch(self, self._base)
        return self._batch

    def view(self) -> MemoryView:
        self._refuse_unusable()
        return MemoryView(self, self._epoch, self._base, self._committed)

    def copy_to(self, path: Path) -> Callable[[], None]:
        self._refuse_unusable()
        if self._copying or (self._batch is not None and self._batch.state is not BatchState.OVER):
            raise StoreError(None, "can't be copied while a batch is open or another copy is made")
        self._copying = True
        self._epoch += 1
        self._fold()  # taken here: views belong to this thread

        def copy() -> None:
            try:
                _write_rows(path, self._base)
            finally:
                self._copying = False

        return copy

    def close(self) -> None:
        if self._copying:
            raise StoreError(None, "is being copied")
        if self._batch is not None:
            self._batch.abort()
        self._closed = True
        self._base = {}
        self._committed = None

    def refuse_stale(self, epoch: int) -> None:
        """Raise StoreError for a view that a later begin() or close() has ended."""
        self._refuse_unusable()
        if epoch != self._epoch:
            raise StoreError(None, "this view ended when the next batch began; take a new one")

    def finish(self, layer: _Layer) -> None:
        """Commit a batch's layer (called by MemoryBatch)."""
        try:
            self._failpoint("batch-applied")
            self._failpoint("commit-started")
        except StoreError:
            raise
        except Exception as error:
            self._failure = f"commit failed: {error}"
            raise StoreFailed(None, self._failure) from error
        self._committed = layer

    def committed(self) -> None:
        """Pass the last failpoint (called by MemoryBatch)."""
        self._failpoint("committed")

    def _fold(self) -> None:
        layer, self._committed = self._committed, None
        for table, changes in (layer or {}).items():
            rows = self._base[table]
            for key, value in changes.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value

    def _refuse_unusable(self) -> None:
        if self._closed:
            raise StoreError(None, "is closed")
        if self._failure is not None:
            raise StoreFailed(None, self._failure)


class MemoryView(Closing):
    """Committed state; see `contract.View`."""

    __slots__ = ("_base", "_epoch", "_layer", "_store")

    def __init__(self, store: MemoryStore, epoch: int, base: _Layer, layer: _Layer | None) -> None:
        self._store: MemoryStore | None = store
        self._epoch = epoch
        self._base = base
        self._layer = layer

    def get(self, table: str, key: bytes) -> bytes | None:
        self._refuse_stale()
        return _get(self._base, self._layer, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        self._refuse_stale()
        return _scan(self._base, self._layer, table, start, stop, limit)

    def close(self) -> None:
        self._store = None

    def _refuse_stale(self) -> None:
        if self._store is None:
            raise StoreError(None, "this view is closed")
        self._store.refuse_stale(self._epoch)


class MemoryBatch(Closing):
    """The one writer; see `contract.Batch`."""

    __slots__ = ("_base", "_layer", "_store", "state")

    def __init__(self, store: MemoryStore, base: _Layer) -> None:
        self._store = store
        self._base = base
        self._layer: _Layer = {}  # only the tables written to; a dict is sorted when it is scanned (`_scan`)
        self.state = BatchState.OPEN

    @property
    def shared(self) -> None:
        return

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, own writes included."""
        self._refuse_over()
        return _get(self._base, self._layer, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows in key order, own writes included."""
        self._refuse_over()
        return _scan(self._base, self._layer, table, start, stop, limit)

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._refuse_over()
        _check_length(key)
        self._changes(table)[key] = bytes(value)  # bytes stay as they are; a buffer that may change is copied

    def delete(self, table: str, key: bytes) -> bool:
        self._refuse_over()
        found = _get(self._base, self._layer, table, key) is not None
        if found:
            self._changes(table)[key] = None
        return found

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        self._refuse_over()
        changes = self._changes(table)
        for key, value in rows:
            _check_length(key)
            changes[key] = bytes(value)

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        self._refuse_over()
        base, layer, changes = self._base, self._layer, self._changes(table)
        for key in keys:
            if _get(base, layer, table, key) is not None:
                changes[key] = None

    def commit(self) -> None:
        self._refuse_over()
        self.state = BatchState.COMMITTING
        try:
            self._store.finish(self._layer)
            self._store.committed()
        finally:
            self.state = BatchState.OVER

    def abort(self) -> None:
        if self.state is BatchState.COMMITTING:
            raise StoreError(None, "the batch is being committed")
        self.state = BatchState.OVER

    def close(self) -> None:
        self.abort()

    def _changes(self, table: str) -> _Rows:
        changes = self._layer.get(table)
        if changes is None:
            self._base[table]  # KeyError for an unknown table
            changes = self._layer[table] = {}
        return changes

    def _refuse_over(self) -> None:
        if self.state is not BatchState.OPEN:
            raise StoreError(None, f"this batch is {self.state}")


def _check_length(key: bytes) -> None:
    if not 0 < len(key) <= KEY_BYTES_MAX:
        raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, this one {len(key)}")


def _get(base: _Layer, layer: _Layer | None, table: str, key: bytes) -> bytes | None:
    rows = base[table]
    if not key:
        raise ValueError("a key has at least one byte")
    changes = layer.get(table) if layer else None
    if changes is not None and key in changes:
        value: bytes | None = changes[key]
        return value
    stored: bytes | None = rows.get(key)
    return stored


def _scan(
    base: _Layer, layer: _Layer | None, table: str, start: bytes, stop: bytes, limit: int
) -> list[tuple[bytes, bytes]]:
    rows = base[table]
    if limit <= 0 or start >= stop:
        return []
    keys: Iterator[bytes] = rows.irange(start, stop, inclusive=(True, False))
    changes = layer.get(table) if layer else None
    if layer is None or not changes:
        return [(key, rows[key]) for key in islice(keys, limit)]
    if not isinstance(changes, SortedDict) and len(changes) > _FEW_CHANGES:
        changes = layer[table] = SortedDict(changes)
    changed: Iterator[bytes] = (
        changes.irange(start, stop, inclusive=(True, False))
        if isinstance(changes, SortedDict)
        else iter(sorted(key for key in changes if start <= key < stop))
    )
    return list(islice(merged(((key, rows[key]) for key in keys), changes, changed), limit))


def _write_rows(path: Path, tables: _Layer) -> None:
    store = LmdbStore(path, list(tables), Durability.PROCESS)
    try:
        for table, rows in tables.items():
            items = iter(rows.items())
            while some := list(islice(items, _COPY_ROWS)):
                with store.begin(sum(len(key) + len(value) for key, value in some)) as batch:
                    for key, value in some:
                        batch.put(table, key, value)
                    batch.commit()
    finally:
        store.close()
