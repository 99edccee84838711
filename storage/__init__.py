"""Durable key-value stores for partitions: byte rows, one atomic batch at a time. Knows no queue.

A **store** is a set of tables; a table maps byte keys to byte values in key order. A messaging store of the
broker is one store, with its own folder, its own writer and its own disk waits, so that one of them can
fail alone.

Three verbs carry everything:

* `store.begin(expected_bytes)` opens the one **batch**. It is written and read like a dictionary of tables,
  and its reads see its writes. Views do not see them.
* `batch.commit()` makes it durable, all or nothing, and then returns. It blocks if the store has a disk
  (`store.blocking`), so it is the one call for another thread; the owner may read meanwhile.
* `store.view()` is the committed state. A view ends when the next batch begins, and raises StoreError
  after that. Keep keys, not views: a reader continues with `scan` after its last key.

Three errors. `StoreFull`: no room; free some and try again. `StoreFailed`: the disk or the file has failed; the
store is reopened at its next use. `StoreError` covers both, and a folder in use, an unknown format, or a wrong
order of calls. After an error nothing of the batch is stored, except that after a `StoreFailed` out of `commit`
the whole batch may be. Earlier commits are kept.

Modules:

    contract.py      what every store promises; limits; failpoints; errors
    lmdb_store.py    the durable store. Reading order: begin, finish, _make_room, _open
    lmdb_reading.py  read-only access to the same files: pages, tables, marks
    memory_store.py  the store in memory, same contract; not imported here: a start on a folder does not need it
    opening.py       the store for each durability
    folder.py        one process per folder; permissions
    data_file.py     the file from outside: room on the disk, newest root, completeness
    manifest.py      which stores belong to a data folder
    journal/         a journal for the small batches of several stores
    resident.py      resident memory of the files
    check.py         verify a store folder; not imported here either
    copying.py       copies of stores

Why LMDB runs without its lock file, and why a commit on another thread is safe: docs/decisions/0001. The code
keeps three rules for that: views end at begin(), one batch at a time, the map moves only while no transaction is
open.
"""

from .contract import (
    FAILPOINTS,
    FLUSHING_BYTES,
    FORMAT_VERSION,
    FORMAT_VERSION_OLDEST,
    KEY_BYTES_MAX,
    Batch,
    CommitTogether,
    Durability,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
    Upgrades,
    View,
    no_failpoint,
)
from .copying import copy_files, read_into_memory, replace_file, sync_file
from .data_file import allocate, checksum, newest_root
from .folder import LOCK_FILE, FolderLock, make_folder, make_private_file, open_to_others, reason_of
from .journal.journal import Journal
from .journal.reading import Entry, keep_journal, read_journal
from .journal.replay import RowsWithJournal, replay
from .journal.writing import DiskWriter, PythonWriter
from .lmdb_reading import DATA_FILE, StoreReader, check_file, file_problems
from .manifest import MANIFEST_FILE, NEW_MANIFEST_FILE, FolderState, Manifest, Part, read_manifest, write_manifest
from .opening import mark_store, open_store, sync_store, upgrade_store

__all__ = [
    "DATA_FILE",
    "FAILPOINTS",
    "FLUSHING_BYTES",
    "FORMAT_VERSION",
    "FORMAT_VERSION_OLDEST",
    "KEY_BYTES_MAX",
    "LOCK_FILE",
    "MANIFEST_FILE",
    "NEW_MANIFEST_FILE",
    "Batch",
    "CommitTogether",
    "DiskWriter",
    "Durability",
    "Entry",
    "FolderLock",
    "FolderState",
    "Journal",
    "Manifest",
    "Part",
    "PythonWriter",
    "RowsWithJournal",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreReader",
    "Upgrades",
    "View",
    "allocate",
    "check_file",
    "checksum",
    "copy_files",
    "file_problems",
    "keep_journal",
    "make_folder",
    "make_private_file",
    "mark_store",
    "newest_root",
    "no_failpoint",
    "open_store",
    "open_to_others",
    "read_into_memory",
    "read_journal",
    "read_manifest",
    "reason_of",
    "replace_file",
    "replay",
    "sync_file",
    "sync_store",
    "upgrade_store",
    "write_manifest",
]
