"""Is a store folder whole? What `emubus check` reports: rows and bytes per table, and what is wrong.

Knows the order of doubt: first the pages, walked without trusting any of them; only a sound file is opened, and then
every row of every table is read. Repairs nothing, and does not look into a row (rows carry no checksums). A store that
is in use is refused, not disturbed; nothing is written, in the file or beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .contract import KEY_BYTES_MAX, StoreError
from .folder import FolderLock
from .lmdb_reading import DATA_FILE, file_problems, walk_tables


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table: how many rows, and the bytes of their keys and values."""

    name: str
    row_count: int
    key_bytes: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class StoreReport:
    """What was found in one folder; `problems` are sentences, and none means that the store is whole."""

    path: Path
    file_bytes: int
    tables: list[TableReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """True if nothing was found wrong."""
        return not self.problems


def check_store(path: Path) -> StoreReport:
    """Read all of the store in folder `path` and report. StoreError: there is no store, or it is in use."""
    data_file = path / DATA_FILE
    if not data_file.is_file():
        raise StoreError(path, f"there is no store here: no file {DATA_FILE}")
    lock = FolderLock(path, reading=True)
    try:
        report = StoreReport(path, data_file.stat().st_size)
        report.problems.extend(_page_problems(path))
        if report.is_whole:  # LMDB trusts what it reads: a broken page could end this process
            _read_tables(report)
        return report
    finally:
        lock.release()


def _page_problems(path: Path) -> list[str]:
    try:
        return file_problems(path)
    except OSError as error:
        return [f"can't read {DATA_FILE}: {error.strerror}"]


def _read_tables(report: StoreReport) -> None:
    try:
        for name, rows in walk_tables(report.path):
            row_count = key_bytes = value_bytes = 0
            previous = b""
            for key, value in rows:
                row_count += 1
                key_bytes += len(key)
                value_bytes += len(value)
                if not previous < key or len(key) > KEY_BYTES_MAX:
                    fault = "is out of order or its key is too long"
                    report.problems.append(f"table {name}: row {row_count} {fault}")
                previous = key
            report.tables.append(TableReport(name, row_count, key_bytes, value_bytes))
    except StoreError as error:
        report.problems.append(error.reason)
