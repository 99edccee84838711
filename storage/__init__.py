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
    memory_store.py  the store that leaves nothing behind, same contract
    opening.py       which durability is which store
    folder.py        one process per folder
    data_file.py     is there room for the file, was its making finished
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
from .folder import FolderLock
from .lmdb_store import DATA_FILE
from .memory_store import MemoryStore
from .opening import open_store

__all__ = [
    "DATA_FILE",
    "FAILPOINTS",
    "FORMAT_VERSION",
    "KEY_BYTES_MAX",
    "Batch",
    "Durability",
    "FolderLock",
    "MemoryStore",
    "Store",
    "StoreError",
    "StoreFailed",
    "StoreFull",
    "StoreReport",
    "TableReport",
    "View",
    "check_store",
    "copy_files",
    "no_failpoint",
    "open_store",
    "read_into_memory",
    "sync_file",
]
