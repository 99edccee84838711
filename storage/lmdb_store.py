"""The durable store: one LMDB environment in its own folder.

Knows transactions, pages and the map. Does not know what rows mean. Two threads at most touch a store:
its owner (the event loop) begins, fills and reads; one other thread may run `commit()`, which waits for the
disk. LMDB runs without its lock file, so this file keeps readers and the writer apart (docs/decisions/0001):

* one batch at a time; while it is committed no other call can use its transaction (`LmdbBatch.commit`);
* read transactions are begun by the owner, never while a commit runs (begin() opens the one that views
  share);
* begin() ends every read transaction, so that none lives while the batch after the next reuses its pages;
* `recover` runs on one other thread, while the owner is refused;
* the map is moved (grown, or remapped to release pages) only while no transaction is open.

The store owns the environment, the folder lock, its read transactions and its batch.
"""

from __future__ import annotations

import contextlib
import errno
import os
from collections.abc import Callable, Sequence
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

import lmdb

from .contract import (
    BATCH_BYTES_KEPT_MAX,
    FILE_RESIDENT_BYTES_MAX,
    FORMAT_VERSION,
    GROWTH_BYTES,
    KEY_BYTES_MAX,
    MAP_BYTES_MAX,
    MAP_BYTES_START,
    MAP_SLACK_BYTES,
    META_TABLE,
    PAGES_KEPT_BYTES_MAX,
    RECOVERING,
    RESERVE_PAGES,
    BatchState,
    Closing,
    Durability,
    StoreError,
    StoreFailed,
    StoreFull,
    StoreWithoutJournal,
    Upgrades,
    checked_names,
    no_failpoint,
    upgrade_rows,
)
from .data_file import allocate, is_full, rewrite_roots
from .folder import FolderLock, file_mode, keep_private, make_folder, sync_folders
from .lmdb_reading import (
    DATA_FILE,
    FORMAT_KEY,
    MARK_KEY,
    META,
    TABLES_KEY,
    check_file,
    check_format,
    check_ours,
    listed_tables,
    table_names,
)
from .resident import ResidentGauge

if TYPE_CHECKING:
    _Transaction = lmdb.Transaction[bytes]

_FAULT_BYTES = 64 * 1024  # a page fault of a file map also loads the pages around it (Linux: fault_around_bytes)

# Errors of the disk that mean "no room". A write past a file size limit (ulimit -f) is EFBIG.
_NO_ROOM = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EFBIG})

_COPIED_BYTES = 64 * 4096  # allowance for pages that batches copy, from one reading of the file's size to the next

_FREE_LIST_PAGES = 64  # allowance: LMDB does not say how many pages its list of free pages has

_TURN_KEY = b"turn"


# A value up to this size lies in its leaf, whatever the page size and its key (half a page of 4096 bytes holds both).
_SMALL_BYTES_MAX: Final = 1500

# With fewer rows the cursor costs more than it saves.
_ROWS_MIN: Final = 3


class LmdbStore(StoreWithoutJournal):
    """Tables in one LMDB environment; see `contract.Store`."""

    def __init__(
        self,
        path: Path,
        tables: Sequence[str],
        durability: Durability,
        failpoint: Callable[[str], None] = no_failpoint,
        *,
        earlier: Callable[[], None] | None = None,
        map_bytes_max: int = MAP_BYTES_MAX,
        create: bool = True,
        synced: bool = False,
        reserves: bool = False,
    ) -> None:
        """Open the store in folder `path`; with `create` its file is made if missing; `synced` as in `open_store`.

        `earlier`: called on the committing thread before each commit; makes durable what was confirmed before. OSError.
        `reserves`: keep room for batches that delete, see `contract.Store.begin`.

        StoreError: in use, unknown format, no room, not readable. Reads the meta table and the roots of the others,
        independent of the backlog.
        """
        self.path = path
        self._synced = synced  # all that the file shows is on the disk
        self._create = create  # until the file exists: a file that is lost later is not made again
        self.file_name = f"{path}/{DATA_FILE}"
        self.place: tuple[int, int] | None = None
        """Device and inode of the file, once it was opened."""
        # Without fsync a commit is a copy into the page cache, cheaper than a switch to another thread and back.
        self.blocking = self.waits = durability.syncs
        self._tables = checked_names(tables)
        self._durability = durability
        self._failpoint = failpoint
        self._earlier = earlier
        self._map_bytes_max = map_bytes_max
        self._env: lmdb.Environment | None = None
        self._dbs: dict[str, Any] = {}
        self._readers: list[SharedReader] = []
        self._batch: LmdbBatch | None = None
        self._page_bytes = os.sysconf("SC_PAGE_SIZE")
        self._commit_count = 0  # written by the committing thread; a reader has the count of its state
        self._broken = False  # a commit failed: the environment is reopened before its next use
        self._failure: str | None = None  # why it can't be used before `recover`; set by the thread that commits
        self._mapped_bytes = 0  # size of the map
        self._used_bytes_max = 0  # upper bound of the bytes in use within the map
        self._map_bytes_wanted = 0  # a batch didn't fit the map: the size from the next begin() on
        self._out_of_room = False  # a batch found no room, in the map or on the disk
        self._copying = False  # a copy is being made: no batch, and the map stays where it is
        self._closed = False
        self.is_usable = True
        """Neither failed nor closed: `refuse_unusable` would pass."""
        self._reserve_bytes = RESERVE_PAGES * self._page_bytes if reserves else 0
        self._allocated_bytes = 0  # of the file that surely have room on the disk; 0 if that is not known
        self._grown_bytes_max = 0  # upper bound of the file's pages in use and before them
        self.batch_bytes_max = -1
        """A batch that expects so much leaves the reserve; for a larger one, `keep_reserve` looks."""
        self._touched_bytes = 0  # upper bound of what was touched of the map since it was mapped, or found small
        self._unsynced = make_folder(path) if create else []
        self._lock = FolderLock(path)
        self._gauge = ResidentGauge()
        try:
            self._open()
            with contextlib.suppress(StoreFull):  # then what adds is refused
                self.keep_reserve(0)
        except BaseException:
            self._close_env()
            self._lock.release()
            self._gauge.close()
            raise

    # --- the contract --------------------------------------------------------------------------------------

    @property
    def failure(self) -> str | None:
        return self._failure

    def recover(self) -> None:
        if self._failure is None or self._closed:
            return
        self._broken = True
        self._end_readers()
        self._close_env()
        try:
            self._failpoint(RECOVERING)
            self.refuse_other_file()
            if self._durability.syncs:
                self._rewrite_roots()
            self._open()
        except Exception as error:
            raise self.store_error("can't open it again", error) from error
        self._broken = False
        self._failure = None
        self.is_usable = not self._closed

    def begin(self, expected_bytes: int, *, frees: bool = False) -> LmdbBatch:
        if self._batch is not None and self._batch.state is not BatchState.OVER:
            raise StoreError(self.path, f"a batch is {self._batch.state}; one at a time")
        if self._copying:
            raise StoreError(self.path, "is being copied")
        self._end_readers()
        # LMDB keeps the memory of a large batch until its environment is closed.
        env = self._usable(self._batch is not None and self._batch.written_bytes > BATCH_BYTES_KEPT_MAX)
        if self._out_of_room:
            env = self._recycle_pages(env)
        if not frees:
            self.keep_reserve(expected_bytes)
        self._make_room(env, expected_bytes)
        try:
            # Opened now, not when a view is taken: a commit may then be writing the page that a new read
            # transaction starts from.
            self._readers.append(SharedReader(env.begin(), self._commit_count))
            txn = env.begin(write=True)
        except lmdb.Error as error:
            raise self.store_error("can't begin a batch", error) from error
        self._batch = LmdbBatch(self, txn)
        return self._batch

    def view(self) -> LmdbView:
        if self._touched_bytes >= PAGES_KEPT_BYTES_MAX and self._is_idle() and self._must_release():
            self._end_readers()
            self._remap(self._usable(), self._mapped_bytes)
        has_reader = self._readers and self._readers[-1].commit_count == self._commit_count
        if has_reader and not self._broken and self._failure is None:
            return LmdbView(self, self._readers[-1])
        env = self._usable()  # no commit runs: while one does, the reader of begin() is used
        try:
            reader = SharedReader(env.begin(), self._commit_count)
        except lmdb.Error as error:
            raise self.store_error("can't begin to read", error) from error
        self._readers.append(reader)
        return LmdbView(self, reader)

    def copy_to(self, path: Path) -> Callable[[], None]:
        if self._copying or (self._batch is not None and self._batch.state is not BatchState.OVER):
            raise StoreError(self.path, "can't be copied while a batch is open or another copy is made")
        env = self._usable()
        self._copying = True

        def copy() -> None:
            try:
                make_folder(path)
                env.copy(str(path))
                keep_private(path / DATA_FILE)
            except (lmdb.Error, OSError) as error:
                raise StoreFailed(path, f"can't copy a store to here: {error}") from error
            finally:
                self._copying = False

        return copy

    def upgrade(self, upgrades: Upgrades, mark: bytes | None = None) -> None:
        """Bring the rows to this release's format, and give the file a mark, in one commit. StoreError."""
        with self.view() as view:
            version = int(view.get(META_TABLE, FORMAT_KEY) or FORMAT_VERSION)
        is_old = version < FORMAT_VERSION
        with self.begin((self.path / DATA_FILE).stat().st_size if is_old else 0) as batch:
            upgrade_rows(batch, version, upgrades)
            batch.put(META_TABLE, FORMAT_KEY, str(FORMAT_VERSION).encode())
            if mark is not None:
                batch.put(META_TABLE, MARK_KEY, mark)
            batch.commit()

    def close(self) -> None:
        if self._copying:
            raise StoreError(self.path, "is being copied")
        if self._batch is not None:
            self._batch.abort()
        self._end_readers()
        self._close_env()
        self._lock.release()
        self._gauge.close()
        self._closed, self.is_usable = True, False

    # --- for its batches and views -------------------------------------------------------------------------

    def read(self, txn: _Transaction, table: str, key: bytes) -> bytes | None:
        """Return one value as `txn` sees it."""
        self._touched_bytes += _FAULT_BYTES
        try:
            return txn.get(key, None, self._dbs[table])
        except lmdb.BadValsizeError:
            raise ValueError("a key has at least one byte") from None
        except lmdb.Error as error:
            raise self.store_error(f"can't read table {table}", error) from error

    def read_range(
        self, txn: _Transaction, table: str, start: bytes, stop: bytes, limit: int
    ) -> list[tuple[bytes, bytes]]:
        """Return up to `limit` rows as `txn` sees them."""
        rows: list[tuple[bytes, bytes]] = []
        touched_bytes = _FAULT_BYTES
        try:
            with txn.cursor(self._dbs[table]) as cursor:
                if limit > 0 and (cursor.set_range(start) if start else cursor.first()):
                    for row in islice(cursor.iternext(), limit):
                        if row[0] >= stop:
                            break
                        rows.append(row)
                        touched_bytes += len(row[1])
        except lmdb.Error as error:
            raise self.store_error(f"can't read table {table}", error) from error
        self._touched_bytes += 2 * touched_bytes  # leaves are half full when keys only grow
        return rows

    def write(self, txn: _Transaction, table: str, key: bytes, value: bytes) -> None:
        """Put one row. ValueError leaves the batch as it was, StoreError means that it can't be committed."""
        self._touched_bytes += _FAULT_BYTES
        try:
            txn.put(key, value, db=self._dbs[table])
        except lmdb.BadValsizeError:
            raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, this one {len(key)}") from None
        except lmdb.Error as error:
            raise self.store_error(f"can't write to table {table}", error) from error

    def write_rows(self, txn: _Transaction, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Put rows, ascending by key. ValueError keeps those before the refused key; StoreError as in `write`."""
        try:
            with txn.cursor(self._dbs[table]) as cursor:
                # LMDB fills the last leaf to its end if it knows that rows follow, and searches for no position.
                appends = not cursor.last() or cursor.key() < rows[0][0]
                self._touched_bytes += _FAULT_BYTES * (1 if appends else len(rows))
                _, put_count = cursor.putmulti(rows, append=appends)
                if put_count < len(rows):  # some were out of order
                    cursor.putmulti(rows)
        except lmdb.BadValsizeError:
            size = next(len(key) for key, _ in rows if not 0 < len(key) <= KEY_BYTES_MAX)
            raise ValueError(f"a key has 1 to {KEY_BYTES_MAX} bytes, this one {size}") from None
        except lmdb.Error as error:
            raise self.store_error(f"can't write to table {table}", error) from error

    def remove_rows(self, txn: _Transaction, table: str, keys: Sequence[bytes]) -> int:
        """Delete rows; return how many were there. ValueError keeps the deletions before the refused key."""
        self._touched_bytes += _FAULT_BYTES * len(keys)
        delete, db = txn.delete, self._dbs[table]
        try:
            return sum([delete(key, b"", db) for key in keys])
        except lmdb.BadValsizeError:
            raise ValueError("a key has at least one byte") from None
        except lmdb.Error as error:
            raise self.store_error(f"can't delete from table {table}", error) from error

    def finish(self, txn: _Transaction) -> None:
        """Commit `txn`, on any thread; it is over even if this raises (see `contract.Batch.commit`)."""
        try:
            self._failpoint("batch-applied")
            self._failpoint("commit-started")
            self.refuse_other_file()
            if self._earlier is not None:
                self._earlier()
            txn.commit()
        except BaseException as error:
            with contextlib.suppress(lmdb.Error):
                txn.abort()
            failure = self._commit_error(error) if isinstance(error, Exception) else error
            self._broken = True  # last: from now on the owner may close the environment
            raise failure from error
        self._commit_count += 1
        self._failpoint("committed")

    def _commit_error(self, error: Exception) -> StoreError:
        """Return the StoreError for a commit that failed. Its moment decides: a root may have come to the disk."""
        failure = self.store_error("commit failed", error)
        if isinstance(failure, StoreFull) and self._root_was_written():
            failure = StoreFailed(self.path, f"commit failed: {error}")
        if isinstance(failure, StoreFailed):
            self.fail(failure)
        return failure

    def _root_was_written(self) -> bool:
        """Whether the failed commit came to the write of its root: LMDB then refuses the environment (MDB_PANIC)."""
        try:
            if self._env is not None:
                self._env.begin().abort()
        except lmdb.PanicError:
            return True
        return False

    def fail(self, error: StoreFailed) -> None:
        """From now on every use fails until `recover`."""
        self._failure, self.is_usable = error.reason, False

    def refuse_unusable(self) -> None:
        """StoreFailed if a use of the store has failed and it has not recovered since; StoreError if it is closed."""
        if self._closed:
            raise StoreError(self.path, "is closed")
        if self._failure is not None:
            raise StoreFailed(self.path, self._failure)

    def refuse_other_file(self) -> None:
        """StoreFailed if the file was deleted or replaced since it was opened; LMDB doesn't notice."""
        try:
            status = os.stat(self.file_name)  # noqa: PTH116 - once per commit: half the cost of Path.stat
        except OSError:
            status = None
        if status is None or (status.st_dev, status.st_ino) != self.place:
            what = "deleted" if status is None else "replaced"
            raise StoreFailed(self.path, f"{DATA_FILE} was {what} while the store was open; bring it back or restart")

    def store_error(self, doing: str, error: Exception) -> StoreError:
        """Return the StoreError for `error`: no room, which the next batch acts on, or a failure."""
        if isinstance(error, StoreError):
            return error
        if isinstance(error, lmdb.MapFullError):
            self._out_of_room = True
            self._map_bytes_wanted = min(2 * self._mapped_bytes, self._map_bytes_max)
            reason = f"{doing}: the store is full, its map has {self._mapped_bytes} bytes"
            grows = self._mapped_bytes < self._map_bytes_wanted
            return StoreFull(self.path, f"{reason} (at most {self._map_bytes_max})", grows=grows)
        if isinstance(error, lmdb.TxnFullError):
            return StoreFull(self.path, f"{doing}: the batch is too large for one transaction")
        code = error.code if isinstance(error, lmdb.Error) else getattr(error, "errno", None)
        if code in _NO_ROOM or (code == errno.EIO and is_full(self.path / DATA_FILE)):
            self._out_of_room = True
            return StoreFull(self.path, f"{doing}: no room for its file ({error})")
        return StoreFailed(self.path, f"{doing}: {error}")

    # --- inside ----------------------------------------------------------------------------------------

    def _usable(self, reopen: bool = False) -> lmdb.Environment:
        """Return the environment; reopen it if `reopen`, or if a commit has failed: LMDB may then be unusable."""
        self.refuse_unusable()
        if reopen or self._broken or self._env is None:
            self._broken = True  # until it is open
            self._end_readers()
            self._close_env()
            try:
                self._open()
            except StoreFailed as error:
                self.fail(error)
                raise
            self._broken = False
        assert self._env is not None
        return self._env

    def _open(self) -> None:
        full = self._durability.syncs
        data_file = self.path / DATA_FILE
        is_new = self._create and not data_file.exists()
        if not is_new:
            if self.place is not None:
                self.refuse_other_file()
            check_file(self.path)
        try:
            if full and not is_new and not self._synced:
                # An earlier run with `process` may have left data to the kernel, a killed one a root that failed.
                self._rewrite_roots()
            self._env = lmdb.open(
                str(self.path),
                map_size=min(MAP_BYTES_START, self._map_bytes_max),  # LMDB maps a larger file whole
                max_dbs=len(self._tables) + 1,
                max_spare_txns=1,
                mode=file_mode(self.path),
                create=is_new,
                lock=False,
                sync=full,
                metasync=full,
            )
            self._page_bytes = self._env.stat()["psize"]
            self._mapped_bytes = self._used_bytes_max = self._env.info()["map_size"]  # so that the next begin() looks
            self._dbs = _open_tables(self._env, self.path, self._tables, is_new)
            if is_new:
                if full:
                    self._env.sync(True)
                keep_private(data_file)
            status = data_file.stat()
            self._create, self.place, self._synced = False, (status.st_dev, status.st_ino), True
        except (lmdb.Error, OSError) as error:
            if is_new:  # a partial file would be refused at every start
                data_file.unlink(missing_ok=True)
            raise self.store_error("can't open it", error) from error
        if full and is_new:
            sync_folders(self.path, self._unsynced)
        self._touched_bytes = 0

    def keep_reserve(self, expected_bytes: int) -> None:
        """Make sure that a batch that expects so much leaves the reserve: the file has room for both. StoreFull.

        What has no room behind the file's last page may have it before: pages of rows that were deleted.
        """
        if not self._reserve_bytes or expected_bytes > self._map_bytes_max or expected_bytes <= self.batch_bytes_max:
            return
        needed = 2 * expected_bytes + self._reserve_bytes
        env = self._usable()
        used_bytes = self._grown_bytes_max = (env.info()["last_pgno"] + 1) * self._page_bytes
        self._note_room()
        if expected_bytes <= self.batch_bytes_max:
            return
        more = GROWTH_BYTES if self._allocated_bytes else 0
        if not (self._allocate(used_bytes + needed + more) or (more and self._allocate(used_bytes + needed))):
            free_bytes = used_bytes - self._bytes_in_use(env)
            if free_bytes < needed:
                raise StoreFull(self.path, "no room for its file; what is left is kept for deleting messages")

    def _allocate(self, size: int) -> bool:
        """Give the file so many bytes on the disk; False if they are not there."""
        try:
            allocate(self.path / DATA_FILE, self._allocated_bytes, size)
        except OSError as error:
            if error.errno in _NO_ROOM:
                return False
            size = self._map_bytes_max  # a file system that reserves nothing; or the disk fails, as a commit will say
        self._allocated_bytes = size
        self._note_room()
        return True

    def _note_room(self) -> None:
        """`_allocated_bytes` or `_grown_bytes_max` has changed."""
        self.batch_bytes_max = (self._allocated_bytes - self._grown_bytes_max - self._reserve_bytes) // 2

    def _bytes_in_use(self, env: lmdb.Environment) -> int:
        with env.begin() as txn:
            stats = [env.stat(), *(txn.stat(db) for db in self._dbs.values())]
        pages = sum(stat["branch_pages"] + stat["leaf_pages"] + stat["overflow_pages"] for stat in stats)
        return (pages + _FREE_LIST_PAGES) * self._page_bytes

    def _rewrite_roots(self) -> None:
        try:
            rewrite_roots(self.path / DATA_FILE)
        except ValueError as error:
            raise StoreFailed(self.path, f"{DATA_FILE} can't be opened: {error}") from None

    def _make_room(self, env: lmdb.Environment, expected_bytes: int) -> None:
        """Grow the map if the batch might not fit, or remap it if too much of it is resident.

        Counts free pages as used, which costs address space only. Asks LMDB only if the expected bytes may not fit.
        """
        must_release = self._must_release()
        wanted = max(self._used_bytes_max + 2 * expected_bytes + MAP_SLACK_BYTES, self._map_bytes_wanted)
        if must_release or self._mapped_bytes < wanted:
            size = self._mapped_bytes
            self._used_bytes_max = (env.info()["last_pgno"] + 1) * self._page_bytes
            needed = max(self._used_bytes_max + 2 * expected_bytes + MAP_SLACK_BYTES, self._map_bytes_wanted)
            while size < needed and size < self._map_bytes_max:
                size = min(size * 2, self._map_bytes_max)
            if size != self._mapped_bytes or must_release:
                self._remap(env, size)
            if size >= self._map_bytes_wanted:
                self._map_bytes_wanted = 0
        self._used_bytes_max += 2 * expected_bytes + _COPIED_BYTES
        self._grown_bytes_max += 2 * expected_bytes + _COPIED_BYTES
        self._note_room()

    def _recycle_pages(self, env: lmdb.Environment) -> lmdb.Environment:
        """Make a minimal commit, to get the pages that the last commit has freed; return the environment.

        A batch can use pages that were freed two commits before it, and a refused batch doesn't count.
        """
        self._out_of_room = False
        try:
            with env.begin(write=True) as txn:
                txn.put(_TURN_KEY, b"", db=env.open_db(META, txn))
        except lmdb.Error:
            self._broken = True
        return self._usable()

    def _remap(self, env: lmdb.Environment, size: int) -> None:
        """Remap the file, which releases its pages from this process; no transaction may be open.

        10 microseconds plus 15 per touched MiB; the pages stay in the kernel's cache, so no disk is read.
        """
        try:
            env.set_mapsize(size)
        except lmdb.Error as error:
            self._broken = True
            raise self.store_error(f"can't map {size} bytes", error) from error
        self._touched_bytes, self._mapped_bytes = 0, size

    def _must_release(self) -> bool:
        """Whether to release the pages of the map; looks at the process once per PAGES_KEPT_BYTES_MAX touched."""
        if self._touched_bytes < PAGES_KEPT_BYTES_MAX:
            return False
        if self._gauge.file_bytes() > FILE_RESIDENT_BYTES_MAX:
            return True
        self._touched_bytes = 0
        return False

    def _is_idle(self) -> bool:
        writing = self._batch is not None and self._batch.state is not BatchState.OVER
        return not (writing or self._copying) and not any(reader.view_count for reader in self._readers)

    def _end_readers(self) -> None:
        while self._readers:
            self._readers.pop().end()

    def _close_env(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()


class SharedReader:
    """One read transaction, shared by the views of one moment. `txn` is None once it has ended."""

    __slots__ = ("commit_count", "txn", "view_count")

    def __init__(self, txn: _Transaction, commit_count: int) -> None:
        self.txn: _Transaction | None = txn
        self.commit_count = commit_count
        self.view_count = 0  # open views

    def end(self) -> None:
        """End the transaction; views of it raise StoreError from now on."""
        txn, self.txn = self.txn, None
        if txn is not None:
            txn.abort()


class LmdbView(Closing):
    """Committed state; see `contract.View`."""

    __slots__ = ("_closed", "_reader", "_store")

    def __init__(self, store: LmdbStore, reader: SharedReader) -> None:
        self._store = store
        self._reader = reader
        self._closed = False
        reader.view_count += 1

    def get(self, table: str, key: bytes) -> bytes | None:
        return self._store.read(self._txn(), table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        return self._store.read_range(self._txn(), table, start, stop, limit)

    def close(self) -> None:
        if not self._closed:
            self._closed = True
            self._reader.view_count -= 1

    def _txn(self) -> _Transaction:
        txn = self._reader.txn
        if txn is None:
            raise StoreError(self._store.path, "this view ended when the next batch began; take a new one")
        if self._closed:
            raise StoreError(self._store.path, "this view is closed")
        return txn


class LmdbBatch(Closing):
    """The one writer; see `contract.Batch`."""

    __slots__ = ("_large", "_store", "_txn", "state", "written_bytes")

    def __init__(self, store: LmdbStore, txn: _Transaction) -> None:
        self._store = store
        self._large: set[tuple[str, bytes]] = set()  # rows with large values that this batch has put
        self._txn: _Transaction | None = txn
        self.state = BatchState.OPEN
        self.written_bytes = 0

    @property
    def shared(self) -> None:
        return

    def get(self, table: str, key: bytes) -> bytes | None:
        """Return the value at `key`, own writes included."""
        return self._store.read(self._txn or self._refuse(), table, key)

    def scan(self, table: str, start: bytes, stop: bytes, limit: int) -> list[tuple[bytes, bytes]]:
        """Return rows in key order, own writes included."""
        return self._store.read_range(self._txn or self._refuse(), table, start, stop, limit)

    def put(self, table: str, key: bytes, value: bytes) -> None:
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
        try:
            return self._store.remove_rows(self._txn or self._refuse(), table, (key,)) > 0
        except StoreError:
            self._drop()
            raise

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
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
        try:
            self._store.remove_rows(self._txn or self._refuse(), table, keys)
        except StoreError:
            self._drop()
            raise

    def commit(self) -> None:
        txn, self._txn = self._txn or self._refuse(), None  # no other method can use it from now on
        self.state = BatchState.COMMITTING
        try:
            self._store.finish(txn)
        finally:
            self.state = BatchState.OVER

    def abort(self) -> None:
        if self.state is BatchState.COMMITTING:
            raise StoreError(self._store.path, "the batch is being committed")
        self._drop()

    def close(self) -> None:
        self.abort()

    def _drop(self) -> None:
        txn, self._txn = self._txn, None
        if txn is not None:
            self.state = BatchState.OVER
            txn.abort()

    def _refuse(self) -> NoReturn:
        raise StoreError(self._store.path, f"this batch is {self.state}")


def _open_tables(env: lmdb.Environment, path: Path, tables: Sequence[str], is_new: bool) -> dict[str, Any]:
    """Return a handle for each table, made if new. StoreError: not our file, or not our format."""
    if not is_new:
        check_ours(path, table_names(env))
    with env.begin(write=True) as txn:  # without a write in it, its commit does nothing
        meta = env.open_db(META, txn, create=is_new)
        if is_new:
            txn.put(FORMAT_KEY, str(FORMAT_VERSION).encode(), db=meta)
        else:
            check_format(path, txn.get(FORMAT_KEY, None, meta))
        known = listed_tables(path, txn.get(TABLES_KEY, b"", meta) or b"", tables)
        added = [table for table in tables if table not in known]
        if added:
            txn.put(TABLES_KEY, " ".join([*known, *added]).encode(), db=meta)
        return {META.decode(): meta, **{table: env.open_db(table.encode(), txn) for table in tables}}
