"""A store whose small batches are durable in a shared journal first, and in its own LMDB file later.

Knows which batches go where, and how reads see both. Does not know the journal's file (`journal.py`) nor LMDB's
(`lmdb_store.py`). Rows that are in the journal and not yet in the file are the **pending** ones, a layer in memory over
the file. A large batch, or any after PENDING_BYTES_MAX of pending rows, is a batch of LMDB that writes the pending rows
with its own; from then on the journal's entries for this store are out of date, which its row JOURNAL_KEY says.

Threads as in `lmdb_store.py`: the thread that commits only hands over a layer, or empties the pending ones, each by one
assignment; the owner merges layers when a batch begins, which ends all views.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from ..contract import (
    META_TABLE,
    Batch,
    BatchState,
    Durability,
    StoreError,
    StoreFailed,
    StoreFull,
    View,
    no_failpoint,
)
from ..lmdb_reading import JOURNAL_KEY
from ..lmdb_store import LmdbStore
from .journal import HALF_BYTES, Journal, JournalFull
from .journaled_batch import JournaledBatch, LayeredView
from .replay import row_of, write_layer
from .row_layers import RowLayer

JOURNALED_BYTES_MAX: Final = 36 << 10
"""A batch that expects more goes straight into the store's file: writing it twice would cost more than the wait. Twenty
messages of 1 KB fit. `bench/compare.py REF --cells '*-w20,send-plain-64k'` shows both sides."""

UNSYNCED_BYTES_MAX: Final = 256 << 10
"""The same for a journal that does not wait: there a write saves two waits, and a message of 64 KB that is alone must
not wait. Larger batches come from many messages at a time, which share their waits; twice the writing would show there
(`bench/brokers.py --durability second --sizes 65536`)."""

PENDING_BYTES_MAX: Final = 1 << 20
"""Memory of the pending rows of one store, about; then they go into its file. So sixteen stores hold 16 MiB at most, as
much as both halves of the journal; a smaller bound writes smaller batches into the files, whose pages are then written
more often. `bench/footprint.py` shows the memory, `bench/compare.py REF --cells '*-w1,*-w20'` the time."""

assert JOURNALED_BYTES_MAX <= UNSYNCED_BYTES_MAX <= HALF_BYTES // 16, "a half has room for a batch of each store"


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
        self._failpoint = None if failpoint is no_failpoint else failpoint
        # A batch with failpoints may be blocked by them, so it commits alone.
        self.shared = journal if self._failpoint is None else None
        self.tables = frozenset(tables)
        self._journaled_bytes_max = JOURNALED_BYTES_MAX if journal.waits else UNSYNCED_BYTES_MAX
        self._file = LmdbStore(
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
        self._committed: RowLayer | None = None  # by the last batch; set by the thread that commits
        self._batch: Batch | None = None
        self._copying = False  # no batch until the copy is made
        self._file_is_next = False  # the journal has refused a batch
        self._file_number: int | None = None  # of a batch of the file whose commit has not succeeded
        self.moment = object()  # another one for each batch

    # --- the contract --------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        """See `contract.Store.failure`."""
        return self._file.failure

    def recover(self) -> None:
        """See `contract.Store.recover`; the pending rows stay, the next batch looks which of them the file has."""
        self._file.recover()

    @property
    def has_pending(self) -> bool:
        """See `contract.Store.has_pending`."""
        return bool(self._pending.tables) or self._committed is not None

    @property
    def wants_flush(self) -> bool:
        """See `contract.Store.wants_flush`."""
        return self.journal.wants_flush(self.name)

    def on_flush_wanted(self, call: Callable[[], object]) -> None:
        """See `contract.Store.on_flush_wanted`."""
        self.journal.on_flush_wanted(self.name, call)

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Batch:
        """Begin the one batch; see `contract.Store.begin`."""
        batch = self._batch
        if batch is not None and batch.state is not BatchState.OVER:
            raise StoreError(self.path, f"a batch is {batch.state}; one at a time")
        self.moment = object()
        self._know_pending()
        if not frees:  # the file must have room for what the journal takes
            self._file.keep_reserve(self._pending.byte_count + expected_bytes)
        if (
            expected_bytes <= self._journaled_bytes_max
            and self._pending.byte_count <= PENDING_BYTES_MAX
            and not self._file_is_next
            and not self._copying
            and not self.journal.failed
            and not self.journal.wants_flush(self.name)
        ):
            self._file.refuse_unusable()
            self._batch = JournaledBatch(self, self._pending)
        else:
            self._batch = self._begin_in_file(expected_bytes)
        return self._batch

    def view(self) -> View:
        """A view of the committed state; see `contract.Store.view`."""
        number, committed, pending = self._file_number, self._committed, self._pending
        file = self._file.view()
        layers: tuple[RowLayer, ...] = (pending,) if committed is None else (pending, committed)
        if number is not None and file.get(META_TABLE, JOURNAL_KEY) == row_of(self.journal.id, number):
            layers = ()  # a batch of the file is stored, with the pending rows, and its commit may not have returned
        return LayeredView(self, file, layers)

    def copy_to(self, path: Path) -> Callable[[], None]:
        """Prepare a copy; see `contract.Store.copy_to`. Waits for the disk if there are pending rows."""
        if self._has_batch() or self._copying:
            raise StoreError(self.path, "can't be copied while a batch is open or another copy is made")
        self.flush()
        copy_file = self._file.copy_to(path)
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
        self._file.close()

    # --- for its batches -----------------------------------------------------------------------------------

    def file_view(self) -> View:
        """A view of the file, without what is pending. StoreError."""
        return self._file.view()

    def start_commit(self) -> None:
        """Before the rows go into the journal. Raises StoreError."""
        try:
            if self._failpoint is not None:
                self._failpoint("batch-applied")
                self._failpoint("commit-started")
            self._file.refuse_other_file()
        except Exception as error:
            failure = self._file.store_error("commit failed", error)
            if isinstance(failure, StoreFailed):
                self._file.fail(failure)
            raise failure from error

    def end_commit(self, layer: RowLayer) -> None:
        """The rows of `layer` are durable in the journal."""
        self._committed = layer
        if self._failpoint is not None:
            self._failpoint("committed")

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

    def _know_pending(self) -> None:
        """Merge what the last batch has committed; after a failed commit of the file, look at what it has."""
        committed, self._committed = self._committed, None
        if committed is not None:
            self._pending.merge(committed)
            if not self._pending.tables:  # the batch changed nothing: the journal need not wait for the file
                self.journal.flushed(self.name)
        if self._file_number is not None:
            with self._file.view() as view:
                row = view.get(META_TABLE, JOURNAL_KEY)
            if row == row_of(self.journal.id, self._file_number):
                self._forget_pending()
            self._file_number = None

    def _begin_in_file(self, expected_bytes: int) -> Batch:
        pending = self._pending
        batch = self._file.begin(expected_bytes + pending.byte_count, frees=True)
        try:
            write_layer(batch, pending)
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
        if self._failpoint is not None:
            self._failpoint(step)

    def _forget_pending(self) -> None:
        self._pending = RowLayer()
        self._file_is_next = False
        self.journal.flushed(self.name)

    def flush(self) -> None:
        """Write the pending rows into the file; waits for the disk. StoreError."""
        self._know_pending()
        if self._pending.tables:
            self._batch = self._begin_in_file(0)
            with self._batch as batch:
                batch.commit()
