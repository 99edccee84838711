"""Durable partitions: bytes and integers, one atomic batch at a time. Knows no queue.

A **store** is a set of tables; a table maps byte keys to byte values in key order. A messaging store of the
broker is one store, with its own folder, its own writer and its own disk waits, so that one of them can
fail alone.

Three verbs carry everything:

* `store.begin(expected_bytes)` opens the one **batch**. It is written and read like a dictionary of tables,
  and its reads see its writes. Nobody else sees anything of it.
* `batch.commit()` makes it durable, whole or not at all, and only then returns. It blocks where a store has
  a disk (`store.blocking`), so it is the one call that belongs on another thread; the owner goes on reading
  meanwhile.
* `store.view()` is the committed state. A view is for now: it ends when the next batch begins, and says so
  if it is used after that. Keep no view, keep keys: a reader that comes back continues with `scan` behind
  its last key.

What can go wrong has three names. `StoreFull`: no room; free some and try again. `StoreFailed`: the disk or
the file is at fault; the store opens anew at its next use. `StoreError` covers both, and a folder that is
in use, of another format, or a wrong order of calls. After each of them nothing of the batch is stored, and
what was committed before is still there.

Where things are:

    contract.py      what every store promises; limits; failpoints; errors
    lmdb_store.py    the durable store. Reading order: begin, finish, _make_room, _open
    lmdb_reading.py  the same files read only: pages walked, tables walked, marks
    memory_store.py  the store that leaves nothing behind, same contract
    opening.py       which durability is which store
    folder.py        one process per folder; who may read what is in it
    data_file.py     is there room for the file, which state does it hold, is it all there
    manifest.py      which stores belong together, and what is known of each
    resident.py      how much of the files is in memory; stores give pages back
    check.py         is a folder whole?
    copying.py       what becomes of a copy that `store.copy_to` has made

Why LMDB runs without its lock file, and why a commit on another thread is safe then: docs/decisions/0001.
What holds it up in code: views end at begin(), one batch at a time, the map moves only when no transaction
is open.
"""

from .check import StoreReport, TableReport, check_store
from .contract import (
    FAILPOINTS,
    FORMAT_VERSION,
    KEY_BYTES_MAX,
    Batch,
    Durability,
    Store,
    StoreError,
    StoreFailed,
    StoreFull,
    View,
    no_failpoint,
)
from .copying import copy_files, read_into_memory, sync_file
from .data_file import checksum, newest_root
from .folder import LOCK_FILE, FolderLock, make_folder, make_private_file, open_to_others, reason_of
from .lmdb_reading import DATA_FILE, StoreReader, check_file, file_problems
from .manifest import MANIFEST_FILE, NEW_MANIFEST_FILE, FolderState, Manifest, Part, read_manifest, write_manifest
from .memory_store import MemoryStore
from .opening import mark_store, open_store

__all__ = [
    "DATA_FILE",
    "FAILPOINTS",
    "FORMAT_VERSION",
    "KEY_BYTES_MAX",
    "LOCK_FILE",
    "MANIFEST_FILE",
    "NEW_MANIFEST_FILE",
    "Batch",
    "Durability",
    "FolderLock",
    "FolderState",
    "Manifest",
    "MemoryStore",
    "Part",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreReader",
    "StoreReport",
    "TableReport",
    "View",
    "check_file",
    "check_store",
    "checksum",
    "copy_files",
    "file_problems",
    "make_folder",
    "make_private_file",
    "mark_store",
    "newest_root",
    "no_failpoint",
    "open_store",
    "open_to_others",
    "read_into_memory",
    "read_manifest",
    "reason_of",
    "sync_file",
    "write_manifest",
]
