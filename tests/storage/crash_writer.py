"""The program that test_recovery kills: writes batches for ever, reports the committed ones, dies at its failpoint.

    crash_writer.py FOLDER DURABILITY FAILPOINT BATCH

Batch n puts ROW_COUNT rows that hold n, moves one row of each earlier batch, and counts itself, in two tables. After
its commit the line "n" goes to standard output: the acknowledgement. At FAILPOINT of batch BATCH the process kills
itself; with "none" it writes until it is killed. With DURABILITY "journal" the store has a journal beside its folder,
of which JOURNAL_ID is the id; every FILE_EVERY-th batch goes into the store's file.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

from emubus.storage import FLUSHING_BYTES, Durability, Journal, Store, open_store

TABLES = ("rows", "index")
ROW_COUNT = 20
JOURNAL = "journal"
JOURNAL_ID = "1"
FILE_EVERY = 5


def opened(folder: Path, kind: str, failpoint: Callable[[str], None]) -> Store:
    """A store with this durability, or with a journal."""
    if kind != JOURNAL:
        return open_store(folder, TABLES, Durability(kind), failpoint)
    folder.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(folder.parent / JOURNAL, JOURNAL_ID)
    return open_store(folder, TABLES, Durability.FULL, failpoint, journal=journal)


def main(folder: Path, kind: str, failpoint: str, last: int) -> None:
    number = 0

    def die(name: str) -> None:
        if (name, number) == (failpoint, last):
            os.kill(os.getpid(), signal.SIGKILL)

    store = opened(folder, kind, die)
    with ThreadPoolExecutor(1) as pool:
        for number in count(1):  # `die` reads it
            batch = store.begin(FLUSHING_BYTES if number % FILE_EVERY == 0 else ROW_COUNT * 1000)
            for row in range(ROW_COUNT):
                key = number.to_bytes(4, "big") + row.to_bytes(2, "big")
                batch.put("rows", key, number.to_bytes(4, "big") * 200)
                batch.put("index", key[::-1], key)
            if number > 1:
                batch.delete("rows", (number - 1).to_bytes(4, "big") + b"\0\0")
                batch.put("index", b"moved", (number - 1).to_bytes(4, "big"))
            batch.put("index", b"count", number.to_bytes(4, "big"))
            pool.submit(batch.commit).result()
            os.write(1, b"%d\n" % number)


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], sys.argv[3], int(sys.argv[4]))
