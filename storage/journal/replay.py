"""Which entries of a journal a store's file lacks, how they get into it after a crash, and how both are read together.

A file says in its row JOURNAL_KEY up to which number it has the entries of which journal.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Final

from ..contract import META_TABLE, Batch, Durability
from ..lmdb_reading import JOURNAL_KEY, StoreReader
from ..lmdb_store import LmdbStore
from .reading import Entry
from .rows import Row, Rows, merged

_NUMBER: Final = struct.Struct(">Q")


def row_of(journal_id: str, number: int) -> bytes:
    """Return the row for a file that has the entries below and at this number."""
    return journal_id.encode() + _NUMBER.pack(number)


def lacking(row: bytes, journal_id: str, entries: Iterable[Entry]) -> list[Entry]:
    """Return those of a journal's entries for a store that its file, with this row, lacks."""
    of_this = len(row) > _NUMBER.size and row[: -_NUMBER.size] == journal_id.encode()
    known = _NUMBER.unpack(row[-_NUMBER.size :])[0] if of_this else 0
    return [entry for entry in entries if entry.number > known]


class RowsWithJournal:
    """The rows of a closed store: those of its file, and the entries of its journal that the file lacks."""

    def __init__(self, file: StoreReader, journal_id: str, entries: Iterable[Entry]) -> None:
        self._file = file
        self._changes = _changes_of(lacking(file.journal(), journal_id, entries))

    def rows(self, table: str) -> Iterator[Row]:
        """Yield the rows of a table in key order. StoreError."""
        changes = self._changes.get(table, {})
        return merged(self._file.rows(table), changes, iter(sorted(changes)))


def replay(path: Path, tables: Sequence[str], journal_id: str, entries: Iterable[Entry]) -> None:
    """Write the rows of a store's `entries`, in order, into the file of the closed store in folder `path`. StoreError.

    Entries that the file has are skipped, so it may be done again.
    """
    store = LmdbStore(path, tables, Durability.FULL, create=False)
    try:
        with store.view() as view:
            row = view.get(META_TABLE, JOURNAL_KEY) or b""
        newer = lacking(row, journal_id, entries)
        if newer:
            with store.begin(sum(entry.byte_count for entry in newer), frees=True) as batch:
                write_changes(batch, _changes_of(newer))
                batch.put(META_TABLE, JOURNAL_KEY, row_of(journal_id, newer[-1].number))
                batch.commit()
    finally:
        store.close()


def _changes_of(entries: Iterable[Entry]) -> dict[str, dict[bytes, bytes | None]]:
    rows: dict[str, dict[bytes, bytes | None]] = {}
    for entry in entries:
        for table, changes in entry.rows.items():
            rows.setdefault(table, {}).update(changes)
    return rows


def write_changes(batch: Batch, rows: Rows) -> None:
    """Write changes into a batch of a file. StoreError."""
    for table, changes in rows.items():
        batch.put_rows(table, sorted((key, value) for key, value in changes.items() if value is not None))
        batch.delete_rows(table, [key for key, value in changes.items() if value is None])
