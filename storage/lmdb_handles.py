"""Handles on one transaction of an LMDB store: the views of a moment, and the one batch.

Knows how long a handle may be used and who may abort what. Does not know LMDB: rows are read and written through
`RowAccess`, which the store implements, and which alone translates LMDB's errors.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final, Generic, NoReturn, Protocol, TypeVar

from .contract import BatchState, Closing, StoreError


class AbortableTransaction(Protocol):
    """A transaction of LMDB; handles can only abort it."""

    def abort(self) -> None:
        """End the transaction without storing anything."""
        ...


TransactionT = TypeVar("TransactionT", bound=AbortableTransaction)
TransactionT_contra = TypeVar("TransactionT_contra", bound=AbortableTransaction, contravariant=True)


class RowAccess(Protocol[TransactionT_contra]):
    """RowAccess of a store as a transaction sees them. ValueError: a key that LMDB does not accept; StoreError."""

    path: Path

    def read(self, txn: TransactionT_contra, table: str, key: bytes) -> bytes | None:
        """Return one value."""
        ...

    def read_range(
        self, txn: TransactionT_contra, table: str, start: bytes, stop: bytes, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows with start <= key < stop."""
        ...

    def write(self, txn: TransactionT_contra, table: str, key: bytes, value: bytes) -> None:
        """Put one row."""
        ...

    def write_rows(self, txn: TransactionT_contra, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Put rows, ascending by key."""
        ...

    def remove_rows(self, txn: TransactionT_contra, table: str, keys: Sequence[bytes]) -> int:
        """Delete rows; return how many were there."""
        ...

    def finish(self, txn: TransactionT_contra) -> None:
        """Commit the transaction; it is over, whatever this raises."""
        ...


# A value up to this size lies in its leaf, whatever the page size and its key (half a page of 4096 bytes holds both).
_SMALL_BYTES_MAX: Final = 1500

# With fewer rows the cursor costs more than it saves.
_ROWS_MIN: Final = 3


class SharedReader(Generic[TransactionT]):
    """One read transaction, shared by the views of one moment. `txn` is None once it has ended."""

    __slots__ = ("commit_count", "txn", "view_count")

    def __init__(self, txn: TransactionT, commit_count: int) -> None:
        self.txn: TransactionT | None = txn
        self.commit_count = commit_count
        self.view_count = 0  # open views

    def end(self) -> None:
        """End the transaction; views of it raise StoreError from now on."""
        txn, self.txn = self.txn, None
        if txn is not None:
            txn.abort()


class LmdbView(Closing, Generic[TransactionT]):
    """Committed state; see `contract.View`."""

    __slots__ = ("_closed", "_reader", "_store")

    def __init__(self, store: RowAccess[TransactionT], reader: SharedReader[TransactionT]) -> None:
        self._store = store
        self._reader = reader
        self._closed = False
        reader.view_count += 1

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`; see `contract.View.get`."""
        return self._store.read(self._txn(), table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows in key order; see `contract.View.scan`."""
        return self._store.read_range(self._txn(), table, start, stop, limit)

    def close(self) -> None:
        """Release the view."""
        if not self._closed:
            self._closed = True
            self._reader.view_count -= 1

    def _txn(self) -> TransactionT:
        txn = self._reader.txn
        if txn is None:
            raise StoreError(self._store.path, "this view ended when the next batch began; take a new one")
        if self._closed:
            raise StoreError(self._store.path, "this view is closed")
        return txn


class LmdbBatch(Closing, Generic[TransactionT]):
    """The one writer; see `contract.Batch`."""

    __slots__ = ("_large", "_store", "_txn", "state", "written_bytes")

    def __init__(self, store: RowAccess[TransactionT], txn: TransactionT) -> None:
        self._store = store
        self._large: set[tuple[str, bytes]] = set()  # rows with large values that this batch has put
        self._txn: TransactionT | None = txn
        self.state = BatchState.OPEN
        self.written_bytes = 0

    @property
    def shared(self) -> None:
        """It commits alone."""
        return

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, own writes included."""
        return self._store.read(self._txn or self._refuse(), table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows in key order, own writes included."""
        return self._store.read_range(self._txn or self._refuse(), table, start, stop, limit)

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write or overwrite; see `contract.Batch.put`."""
        txn = self._txn or self._refuse()
        self.written_bytes += len(value)
        try:
            if (table, key) in self._large:
                # LMDB would write a smaller value over it and keep all its pages. Readers accept that, but
                # py-lmdb's verifier, and so `check_store`, reports it as damage.
                self._store.remove_rows(txn, table, (key,))
            if len(value) > _SMALL_BYTES_MAX:
                self._large.add((table, key))
            self._store.write(txn, table, key, value)
        except StoreError:
            self._drop()
            raise

    def delete(self, table: str, key: bytes) -> bool:
        """Remove `key`; False if it wasn't there."""
        try:
            return self._store.remove_rows(self._txn or self._refuse(), table, (key,)) > 0
        except StoreError:
            self._drop()
            raise

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows that are in the order of their keys; see `contract.Batch.put_rows`."""
        txn = self._txn or self._refuse()
        if len(rows) < _ROWS_MIN or (self._large and self._large.intersection([(table, key) for key, _ in rows])):
            for key, value in rows:
                self.put(table, key, value)
            return
        sizes = [len(value) for _, value in rows]
        self.written_bytes += sum(sizes)
        if max(sizes) > _SMALL_BYTES_MAX:
            self._large.update([(table, key) for key, value in rows if len(value) > _SMALL_BYTES_MAX])
        try:
            self._store.write_rows(txn, table, rows)
        except StoreError:
            self._drop()
            raise

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove each of `keys` that is there."""
        try:
            self._store.remove_rows(self._txn or self._refuse(), table, keys)
        except StoreError:
            self._drop()
            raise

    def commit(self) -> None:
        """Make the batch durable; see `contract.Batch.commit`."""
        txn, self._txn = self._txn or self._refuse(), None  # no other method can use it from now on
        self.state = BatchState.COMMITTING
        try:
            self._store.finish(txn)
        finally:
            self.state = BatchState.OVER

    def abort(self) -> None:
        """Drop the batch; see `contract.Batch.abort`."""
        if self.state is BatchState.COMMITTING:
            raise StoreError(self._store.path, "the batch is being committed")
        self._drop()

    def close(self) -> None:
        """Abort unless the batch is over."""
        self.abort()

    def _drop(self) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            self.state = BatchState.OVER
            txn.abort()

    def _refuse(self) -> NoReturn:
        raise StoreError(self._store.path, f"this batch is {self.state}")
