"""The views and batches of a store with a journal. Owned by their users; the store is theirs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from ..contract import KEY_BYTES_MAX, BatchState, Closing, StoreError, View
from .journal import Journal
from .row_layers import Row, RowLayer, Rows, rows_between, value_of


class JournalAccess(Protocol):
    """The part of a store with a journal that its views and batches use."""

    path: Path
    name: str
    journal: Journal
    shared: Journal | None
    """See `contract.Batch.shared`."""
    tables: frozenset[str]
    moment: object
    """Another one for each batch: a view of an earlier one is over."""

    def file_view(self) -> View:
        """A view of the store's file. StoreError."""
        ...

    def start_commit(self) -> None:
        """Before the rows go into the journal. Raises StoreError."""
        ...

    def end_commit(self, layer: RowLayer) -> None:
        """The rows of `layer` are durable in the journal."""
        ...

    def store_error(self, error: Exception) -> StoreError:
        """Return the StoreError for an error of a commit in the journal."""
        ...


class LayeredView(Closing):
    """Committed state; see `contract.View`."""

    __slots__ = ("_file", "_layers", "_moment", "_store")

    def __init__(self, store: JournalAccess, file: View, layers: Sequence[RowLayer]) -> None:
        self._store = store
        self._file = file
        self._layers = layers
        self._moment = store.moment

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`; see `contract.View.get`."""
        self._refuse_stale()
        return value_of(self._layers, self._file.get, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[Row]:
        """Return rows in key order; see `contract.View.scan`."""
        self._refuse_stale()
        return rows_between(self._layers, self._file.scan, table, start, stop, limit)

    def close(self) -> None:
        """Release the view."""
        self._file.close()

    def _refuse_stale(self) -> None:
        if self._moment is not self._store.moment:
            raise StoreError(self._store.path, "this view ended when the next batch began; take a new one")


class JournaledBatch(Closing):
    """A small batch: its rows are a layer in memory until they are in the journal; see `contract.Batch`."""

    __slots__ = ("_file", "_layer", "_layers", "_store", "shared", "state")

    def __init__(self, store: JournalAccess, pending: RowLayer) -> None:
        self._store = store
        self._file: View | None = None  # from the first read on: a message that is only stored needs none
        self.shared = store.shared
        self._layer = RowLayer()
        self._layers = (pending, self._layer)
        self.state = BatchState.OPEN

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, own writes included."""
        self._refuse_over()
        return value_of(self._layers, self._stored().get, table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[Row]:
        """Return rows in key order, own writes included."""
        self._refuse_over()
        return rows_between(self._layers, self._stored().scan, table, start, stop, limit)

    def _stored(self) -> View:
        if self._file is None:
            self._file = self._store.file_view()
        return self._file

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write or overwrite; see `contract.Batch.put`."""
        if not 0 < len(key) <= KEY_BYTES_MAX:
            raise _bad_key(key)
        self._rows(table)[key] = bytes(value)  # bytes stay as they are; a buffer that may change is copied

    def delete(self, table: str, key: bytes) -> bool:
        """Remove `key`; False if it wasn't there."""
        found = self.get(table, key) is not None
        if found:
            self._rows(table)[key] = None
        return found

    def put_rows(self, table: str, rows: Sequence[Row]) -> None:
        """Write rows that are in the order of their keys; see `contract.Batch.put_rows`."""
        changes = self._rows(table)
        for key, value in rows:
            if not 0 < len(key) <= KEY_BYTES_MAX:
                raise _bad_key(key)
            changes[key] = bytes(value)

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove each of `keys` that is there."""
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
        """Make the batch durable; see `contract.Batch.commit`."""
        self._refuse_over()
        for error in self._store.journal.commit([self]):
            if error is not None:
                raise error

    def abort(self) -> None:
        """Drop the batch; see `contract.Batch.abort`."""
        if self.state is BatchState.COMMITTING:
            raise StoreError(self._store.path, "the batch is being committed")
        self._end()

    def close(self) -> None:
        """Abort unless the batch is over."""
        self.abort()

    # --- for the journal (`journal.Committable`)

    def start_commit(self) -> tuple[str, Rows]:
        """Return the store's name and the rows. Raises StoreError, or what a failpoint raises."""
        if self.state is not BatchState.OPEN:
            self._refuse_over()
        self.state = BatchState.COMMITTING
        try:
            self._store.start_commit()
        except BaseException:
            self._end()
            raise
        return self._store.name, self._layer.tables

    def end_commit(self, byte_count: int, error: Exception | None) -> None:
        """The rows, of about so many bytes, are durable; or raise the StoreError for the `error` of the journal."""
        try:
            if error is not None:
                raise self._store.store_error(error) from error
            self._layer.complete(byte_count)
            self._store.end_commit(self._layer)
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


def _bad_key(key: bytes) -> ValueError:
    return ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, this one {len(key)}")
