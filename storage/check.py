"""Verification of a store folder, for `emubus check`: rows and bytes per table, and problems.

Walks the pages first, without trusting any of them; opens the file only if it is sound, and then reads every row of
every table. Repairs nothing, and does not look into rows (rows carry no checksums). Refuses a store in use; writes
nothing, in the file or beside it.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path

from .contract import KEY_BYTES_MAX, StoreError
from .folder import FolderLock
from .lmdb_reading import DATA_FILE, file_problems, walk_tables


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table: number of rows, and bytes of keys and values."""

    name: str
    row_count: int
    key_bytes: int
    value_bytes: int


@dataclass(frozen=True, slots=True)
class StoreReport:
    """The result for one folder; `problems` are sentences, none if the store is sound."""

    path: Path
    file_bytes: int
    tables: list[TableReport] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    @property
    def is_whole(self) -> bool:
        """True if there are no problems."""
        return not self.problems


def check_store(path: Path) -> StoreReport:
    """Read the whole store in folder `path`. StoreError: there is no store, or it is in use."""
    data_file = path / DATA_FILE
    if not data_file.is_file():
        raise StoreError(path, f"there is no store here: no file {DATA_FILE}")
    lock = FolderLock(path, reading=True)
    try:
        report = StoreReport(path, data_file.stat().st_size)
        report.problems.extend(_page_problems(path))
        if report.is_whole:  # LMDB trusts its pages: a damaged one could crash this process
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
