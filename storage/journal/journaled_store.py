"""A store whose small batches are durable in a shared journal first, and in its own LMDB file later.

Knows which batches go where, and how reads see both. Does not know the journal's file (`journal.py`) nor LMDB's
(`lmdb_store.py`). Rows that are in the journal and not yet in the file are the **pending** ones, a layer in memory over
the file. A large batch, or any after PENDING_BYTES_MAX of pending rows, is a batch of LMDB that writes the pending rows
with its own; from then on the journal's entries for this store are out of date, which its row JOURNAL_KEY says. A small
one is a `JournaledBatch`, which has its rows to itself until the journal asks for them.

Threads as in `lmdb_store.py`: the thread that commits only hands over a layer, or empties the pending ones, each by one
assignment; the owner merges layers when a batch begins, which ends all views.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import Final

from ..contract import (
    KEY_BYTES_MAX,
    META_TABLE,
    Batch,
    BatchState,
    Closing,
    Durability,
    StoreError,
    StoreFailed,
    StoreFull,
    View,
    no_failpoint,
)
from ..lmdb_reading import JOURNAL_KEY
from ..lmdb_store import LmdbStore
from .journal import HALF_BYTES, Journal, JournalFull, is_in_place
from .replay import row_of, write_changes
from .rows import Row, Rows, merged

JOURNALED_BYTES_MAX: Final = 128 << 10
"""A batch that expects more goes straight into the store's file: writing it twice would cost more than the second wait.
A message of 64 KB fits, as does a store's part of a thousand messages of 1 KB. With 36 KiB neither did: sent alone, the
large one took 1076 us of the processor for 764 now, in 16 stores with twenty in flight 922 for 587; the thousand, in 16
stores, 30 for 20. With 256 KiB a thousand messages of 64 KB take half as much again. `bench/brokers.py --durability
full` shows all of these."""

UNSYNCED_BYTES_MAX: Final = 256 << 10
"""The same for a journal that does not wait: there a write saves two waits, and a message of 64 KB that is alone must
not wait. Larger batches come from many messages at a time, which share their waits; twice the writing would show there
(`bench/brokers.py --durability second --sizes 65536`)."""

PENDING_BYTES_MAX: Final = 4 << 20
"""Memory of the pending rows of one store, about; then they go into its file, and the batch that comes waits for that:
with messages of 64 KB that are alone one of 64, where 1 MiB makes one of 16 wait. All stores together have at most what
both halves of the journal have, so one may have a large part of it. `bench/footprint.py` shows the memory,
`bench/compare.py REF --cells '*-w1,*-w20'` and `bench/brokers.py --sizes 65536` the time."""

assert PENDING_BYTES_MAX <= HALF_BYTES // 2, "the rows of one store would fill a lap, and have all others flushed"
assert JOURNALED_BYTES_MAX <= UNSYNCED_BYTES_MAX <= HALF_BYTES // 16, "a half has room for a batch of each store"


key_of: Final[Callable[[Row], bytes]] = itemgetter(0)


class RowLayer:
    """Changed rows by table, over those of the file: what a batch has written, or what is pending. `byte_count` is
    about the memory that they take, once it is known. Belongs to the owner; once its batch is being committed, a layer
    does not change any more."""

    __slots__ = ("_sorted", "byte_count", "tables")

    def __init__(self) -> None:
        self.tables: dict[str, dict[bytes, bytes | None]] = {}
        self.byte_count = 0
        self._sorted: dict[str, list[bytes]] = {}  # the keys that tables had when they were scanned last

    def complete(self, byte_count: int) -> None:
        """Nothing is added any more."""
        self.byte_count = byte_count
        self._sorted.clear()

    def merge(self, newer: RowLayer) -> None:
        """Take over the changes of a newer layer."""
        for name, changes in newer.tables.items():
            if name in self.tables:
                self.tables[name].update(changes)
            else:
                self.tables[name] = dict(changes)
        self.byte_count += newer.byte_count

    def keys(self, table: str, start: bytes, stop: bytes) -> Sequence[bytes]:
        """Return the changed keys with start <= key < stop, ascending."""
        rows = self.tables.get(table)
        if not rows:
            return ()
        keys = self._sorted.get(table)
        if keys is None:
            keys = self._sorted[table] = sorted(rows)
        elif len(keys) < len(rows):
            keys += islice(reversed(rows), len(rows) - len(keys))  # those that came later
            keys.sort()
        return keys[bisect_left(keys, start) : bisect_left(keys, stop)]


class JournaledStore:
    """The store in folder `path`, whose name there is its name in `journal`; see `contract.Store`."""

    blocking = True

    def __init__(
        self,
        path: Path,
        tables: Sequence[str],
        journal: Journal,
        failpoint: Callable[[str], None] = no_failpoint,
        *,
        map_bytes_max: int,
        create: bool,
        synced: bool,
    ) -> None:
        """Open it as `open_store` does."""
        self.path = path
        self.name = path.name
        self.journal = journal
        self.waits = journal.waits
        self.failpoint = None if failpoint is no_failpoint else failpoint
        # A batch with failpoints may be blocked by them, so it commits alone.
        self.shared = journal if self.failpoint is None else None
        self.tables = frozenset(tables)
        self._journaled_bytes_max = JOURNALED_BYTES_MAX if journal.waits else UNSYNCED_BYTES_MAX
        self.file = LmdbStore(
            path,
            tables,
            Durability.FULL,
            self._in_file_commit,
            earlier=journal.sync,
            map_bytes_max=map_bytes_max,
            create=create,
            synced=synced,
            reserves=True,
        )
        self._pending = RowLayer()
        self.committed: RowLayer | None = None  # by the last batch, which sets it on the thread that commits
        self._batch: Batch | None = None
        self._copying = False  # no batch until the copy is made
        self._file_is_next = False  # the journal has refused a batch
        self._file_number: int | None = None  # of a batch of the file whose commit has not succeeded
        self.moment = object()  # another one for each batch

    # --- the contract --------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return self.file.failure

    def recover(self) -> None:
        """See `contract.Store.recover`; the pending rows stay, the next batch looks which of them the file has."""
        self.file.recover()

    @property
    def has_pending(self) -> bool:
        return bool(self._pending.tables) or self.committed is not None

    @property
    def wants_flush(self) -> bool:
        return self.journal.wants_flush(self.name)

    def on_flush_wanted(self, call: Callable[[], object]) -> None:
        self.journal.on_flush_wanted(self.name, call)

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Batch:
        batch = self._batch
        if batch is not None and batch.state is not BatchState.OVER:
            raise StoreError(self.path, f"a batch is {batch.state}; one at a time")
        self.moment = object()
        if self.committed is not None or self._file_number is not None:
            self._update_pending()
        journal = self.journal
        file_bytes = self._pending.byte_count + expected_bytes
        if not frees and file_bytes > self.file.batch_bytes_max:  # the file must have room for what the journal takes
            self.file.keep_reserve(file_bytes)
        if (
            expected_bytes <= self._journaled_bytes_max
            and self._pending.byte_count <= PENDING_BYTES_MAX
            and not self._file_is_next
            and not self._copying
            and not journal.failed
            and journal.oldest.get(self.name, journal.lap) == journal.lap  # else it wants a flush
        ):
            if not self.file.is_usable:
                self.file.refuse_unusable()
            self._batch = JournaledBatch(self, self._pending)
        else:
            self._batch = self._begin_in_file(expected_bytes)
        return self._batch

    def view(self) -> View:
        number, committed, pending = self._file_number, self.committed, self._pending
        file = self.file.view()
        layers: tuple[RowLayer, ...] = (pending,) if committed is None else (pending, committed)
        if number is not None and file.get(META_TABLE, JOURNAL_KEY) == row_of(self.journal.id, number):
            layers = ()  # a batch of the file is stored, with the pending rows, and its commit may not have returned
        return LayeredView(self, file, layers)

    def copy_to(self, path: Path) -> Callable[[], None]:
        """Prepare a copy; see `contract.Store.copy_to`. Waits for the disk if there are pending rows."""
        if self._has_batch() or self._copying:
            raise StoreError(self.path, "can't be copied while a batch is open or another copy is made")
        self.flush()
        copy_file = self.file.copy_to(path)
        self._copying = True

        def copy() -> None:
            try:
                copy_file()
            finally:
                self._copying = False

        return copy

    def close(self) -> None:
        """Write the pending rows to the file and close it; see `contract.Store.close`."""
        if self._batch is not None:
            self._batch.abort()
        with suppress(StoreError):  # then the rows stay in the journal, and the next start replays them
            self.flush()
        self.file.close()

    # --- for its batches -----------------------------------------------------------------------------------

    def commit_failure(self, error: Exception) -> StoreError:
        """Return the StoreError for an `error` before the rows go into the journal."""
        failure = self.file.store_error("commit failed", error)
        if isinstance(failure, StoreFailed):
            self.file.fail(failure)
        return failure

    def store_error(self, error: Exception) -> StoreError:
        """Return the StoreError for an error of a commit in the journal; if that is full, the next batch avoids it."""
        if isinstance(error, JournalFull):
            self._file_is_next = True
            return StoreFull(self.path, "commit failed: the journal has no room for the batch", grows=True)
        # Whatever the error says, no room included: the group may have come to the disk.
        return StoreFailed(self.path, f"commit failed: the journal's disk failed ({error})")

    # --- inside ----------------------------------------------------------------------------------------

    def _has_batch(self) -> bool:
        return self._batch is not None and self._batch.state is not BatchState.OVER

    def _update_pending(self) -> None:
        """Merge what the last batch has committed; after a failed commit of the file, look at what it has."""
        committed, self.committed = self.committed, None
        if committed is not None:
            self._pending.merge(committed)
            if not self._pending.tables:  # the batch changed nothing: the journal need not wait for the file
                self.journal.flushed(self.name)
        if self._file_number is not None:
            with self.file.view() as view:
                row = view.get(META_TABLE, JOURNAL_KEY)
            if row == row_of(self.journal.id, self._file_number):
                self._forget_pending()
            self._file_number = None

    def _begin_in_file(self, expected_bytes: int) -> Batch:
        pending = self._pending
        batch = self.file.begin(expected_bytes + pending.byte_count, frees=True)
        try:
            write_changes(batch, pending.tables)
        except BaseException:
            batch.abort()
            raise
        self._file_number = self.journal.next_number()
        batch.put(META_TABLE, JOURNAL_KEY, row_of(self.journal.id, self._file_number))
        return batch

    def _in_file_commit(self, step: str) -> None:
        """A failpoint of the file's store: on the committing thread."""
        if step == "committed":
            self._forget_pending()
            self._file_number = None
        if self.failpoint is not None:
            self.failpoint(step)

    def _forget_pending(self) -> None:
        self._pending = RowLayer()
        self._file_is_next = False
        self.journal.flushed(self.name)

    def flush(self) -> None:
        """Write the pending rows into the file; waits for the disk. StoreError."""
        self._update_pending()
        if self._pending.tables:
            self._batch = self._begin_in_file(0)
            with self._batch as batch:
                batch.commit()


class LayeredView(Closing):
    """Committed state; see `contract.View`."""

    __slots__ = ("_file", "_layers", "_moment", "_store")

    def __init__(self, store: JournaledStore, file: View, layers: Sequence[RowLayer]) -> None:
        self._store = store
        self._file = file
        self._layers = layers
        self._moment = store.moment

    def get(self, table: str, key: bytes) -> bytes | None:
        self._refuse_stale()
        return _value_of(self._layers, self._file.get, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[Row]:
        self._refuse_stale()
        return _rows_between(self._layers, self._file.scan, table, start, stop, limit)

    def close(self) -> None:
        self._file.close()

    def _refuse_stale(self) -> None:
        if self._moment is not self._store.moment:
            raise StoreError(self._store.path, "this view ended when the next batch began; take a new one")


class JournaledBatch(Closing):
    """A small batch: its rows are a layer in memory until they are in the journal; see `contract.Batch`."""

    __slots__ = ("_file", "_layer", "_layers", "_store", "shared", "state")

    def __init__(self, store: JournaledStore, pending: RowLayer) -> None:
        self._store = store
        self._file: View | None = None  # from the first read on: a message that is only stored needs none
        self.shared = store.shared
        self._layer = RowLayer()
        self._layers = (pending, self._layer)
        self.state = BatchState.OPEN

    def get(self, table: str, key: bytes) -> bytes | None:
        self._refuse_over()
        return _value_of(self._layers, self._stored().get, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[Row]:
        self._refuse_over()
        return _rows_between(self._layers, self._stored().scan, table, start, stop, limit)

    def _stored(self) -> View:
        if self._file is None:
            self._file = self._store.file.view()
        return self._file

    def put(self, table: str, key: bytes, value: bytes) -> None:
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise _bad_key(key)
        self._rows(table)[key] = bytes(value)  # bytes stay as they are; a buffer that may change is copied

    def delete(self, table: str, key: bytes) -> bool:
        found = self.get(table, key) is not None
        if found:
            self._rows(table)[key] = None
        return found

    def put_rows(self, table: str, rows: Sequence[Row]) -> None:
        changes = self._rows(table)
        lengths = set(map(len, map(key_of, rows)))  # in C: a loop would be the dearest step of a run's messages
        if lengths and not 0 < min(lengths) <= max(lengths) <= KEY_BYTES_MAX:
            refused = next(at for at, (key, _) in enumerate(rows) if not 0 < len(key) <= KEY_BYTES_MAX)
            changes.update(rows[:refused])  # as every store does
            raise _bad_key(rows[refused][0])
        changes.update(rows)

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        changes = self._rows(table)
        for key in keys:
            if not key:
                raise ValueError("a key has at least one byte")
            if len(key) <= KEY_BYTES_MAX:
                changes[key] = None

    def _rows(self, table: str) -> dict[bytes, bytes | None]:
        """Return the changes of a table. KeyError, StoreError."""
        if self.state is not BatchState.OPEN:
            self._refuse_over()
        rows = self._layer.tables.get(table)
        if rows is None:
            if table not in self._store.tables:
                raise KeyError(table)
            rows = self._layer.tables[table] = {}
        return rows

    def commit(self) -> None:
        self._refuse_over()
        for error in self._store.journal.commit([self]):
            if error is not None:
                raise error

    def abort(self) -> None:
        if self.state is BatchState.COMMITTING:
            raise StoreError(self._store.path, "the batch is being committed")
        self._end()

    def close(self) -> None:
        self.abort()

    # --- for the journal (`journal.Committable`)

    def start_commit(self) -> tuple[str, Rows]:
        """Return the store's name and the rows. Raises StoreError, or what a failpoint raises."""
        if self.state is not BatchState.OPEN:
            self._refuse_over()
        self.state, store = BatchState.COMMITTING, self._store
        try:
            if store.failpoint is not None:
                store.failpoint("batch-applied")
                store.failpoint("commit-started")
            if not is_in_place(store.file.file_name, store.file.place):
                store.file.refuse_other_file()
        except BaseException as error:
            self._end()
            if isinstance(error, Exception):
                raise store.commit_failure(error) from error
            raise
        return store.name, self._layer.tables

    def end_commit(self, byte_count: int, error: Exception | None) -> None:
        """The rows, of about so many bytes, are durable; or raise the StoreError for the `error` of the journal."""
        store = self._store
        try:
            if error is not None:
                raise store.store_error(error) from error
            self._layer.complete(byte_count)
            store.committed = self._layer
            if store.failpoint is not None:
                store.failpoint("committed")
        finally:
            self._end()

    def _end(self) -> None:
        if self.state is not BatchState.OVER:
            self.state = BatchState.OVER
            if self._file is not None:
                self._file.close()

    def _refuse_over(self) -> None:
        if self.state is not BatchState.OPEN:
            raise StoreError(self._store.path, f"this batch is {self.state}")


def _value_of(
    layers: Sequence[RowLayer], stored: Callable[[str, bytes], bytes | None], table: str, key: bytes
) -> bytes | None:
    """Return the value at `key` in the newest of `layers` that has it, or in what is `stored`; newest layer last."""
    for layer in reversed(layers):
        rows = layer.tables.get(table)
        if rows is not None and key in rows:
            return rows[key]
    return stored(table, key)


def _rows_between(
    layers: Sequence[RowLayer],
    stored: Callable[[str, bytes, bytes, int], list[Row]],
    table: str,
    start: bytes,
    stop: bytes,
    limit: int,
) -> list[Row]:
    """Return up to `limit` rows with start <= key < stop of `layers` over what is `stored`; newest layer last."""
    changed: dict[bytes, bytes | None] = {}
    for layer in layers:
        keys = layer.keys(table, start, stop)
        if keys:
            rows = layer.tables[table]
            changed.update([(key, rows[key]) for key in keys])
    if not changed or limit <= 0:
        return stored(table, start, stop, limit)
    deleted_count = list(changed.values()).count(None)
    below = iter(stored(table, start, stop, limit + deleted_count))
    return list(islice(merged(below, changed, iter(sorted(changed))), limit))


def _bad_key(key: bytes) -> ValueError:
    return ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, this one {len(key)}")
