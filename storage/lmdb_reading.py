"""Read-only access to LMDB files: pages without LMDB, tables and marks with it.

Knows the table names of our files, and the order of checks: first size and roots, then pages, and only then LMDB reads
the file. Writes nothing, so the caller needs a reader's lock only. This file and `lmdb_store.py` are the only ones that
import lmdb.
"""

from __future__ import annotations

import importlib
from collections.abc import Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import Final

import lmdb

from .contract import FORMAT_VERSION, FORMAT_VERSION_OLDEST, META_TABLE, StoreError, StoreFailed
from .data_file import has_all_pages, newest_root

DATA_FILE: Final = "data.mdb"

# Rows of the meta table: the format version; the tables; a mark that its maker recognises; which entries of which
# journal are in the file.
META: Final = META_TABLE.encode()
FORMAT_KEY, TABLES_KEY, MARK_KEY, JOURNAL_KEY = b"format", b"tables", b"mark", b"journal"

# Names looked at in the main database: ours are fewer, and those of another program may be millions.
_NAMES_READ_MAX: Final = 64

# LMDB maps this much beside what the file has; a reader needs none of it.
_MAP_BYTES: Final = 1 << 20


def check_file(path: Path) -> None:
    """StoreFailed unless the file in folder `path` is an LMDB file with all its pages, as far as its roots show.

    Reading a page beyond its end would crash the process.
    """
    data_file = path / DATA_FILE
    try:
        root = newest_root(data_file)
        problems = [] if has_all_pages(data_file, root) else file_problems(path)
    except FileNotFoundError:
        raise StoreFailed(path, f"{DATA_FILE} is missing") from None
    except OSError as error:
        raise StoreFailed(path, f"can't read {DATA_FILE}: {error.strerror}") from error
    except ValueError as error:
        raise StoreFailed(path, f"{DATA_FILE} can't be opened: {error}") from None
    if problems:
        raise StoreFailed(path, f"{DATA_FILE} is cut short: {problems[0]}")


def file_problems(path: Path) -> list[str]:
    """Walk every page of the file in folder `path` without LMDB; return what is wrong as sentences.

    For a file that may be damaged: LMDB trusts its pages, and a bad one can end the process. The walk is py-lmdb's;
    about 25 000 pages a second. OSError.
    """
    verifier = importlib.import_module("lmdb.verify")
    try:
        return list(verifier.verify(str(path), subdir=True))
    except verifier.VerifyError as error:
        return [f"{DATA_FILE}: {error}"]


def table_names(env: lmdb.Environment) -> set[bytes]:
    """Return the names in the main database: none in a new file; a few of them if another program made it."""
    with env.begin() as txn, txn.cursor() as cursor:
        return set(islice(cursor.iternext(values=False), _NAMES_READ_MAX))


def check_ours(path: Path, names: set[bytes]) -> None:
    """StoreError unless these are the names of a file that emubus made."""
    if META not in names:
        raise StoreError(path, f"{DATA_FILE} isn't an emubus store: it has no table {META_TABLE!r}")


def check_format(path: Path, found: bytes | None) -> int:
    """Return the format version of this row. StoreError unless this release reads files of it."""
    known = range(FORMAT_VERSION_OLDEST, FORMAT_VERSION + 1)
    if found is None or found not in {str(version).encode() for version in known}:
        version = "none" if found is None else found.decode("ascii", "backslashreplace")
        raise StoreError(
            path,
            f"has format version {version}; this emubus reads versions {known[0]} to {known[-1]}: "
            "use the release that wrote it, or a newer one",
        )
    return int(found)


def listed_tables(path: Path, names: bytes, expected: Sequence[str]) -> list[str]:
    """Return the tables that the row of this name lists. StoreError unless all are `expected`."""
    listed = names.decode().split()
    strange = sorted(set(listed) - set(expected))
    if strange:
        raise StoreError(path, f"has tables this emubus doesn't know: {', '.join(strange)}")
    return listed


class StoreReader:
    """The rows of the store in folder `path`, read-only; use it with `with`. The caller has the lock of a reader.

    StoreError: not our file, not our format, unreadable.
    """

    def __init__(self, path: Path) -> None:
        check_file(path)
        self.path = path
        self._env: lmdb.Environment | None = None
        try:
            self._env = lmdb.open(
                str(path), readonly=True, create=False, max_dbs=_NAMES_READ_MAX, lock=False, map_size=_MAP_BYTES
            )
            self._txn = self._env.begin()
            self.names = table_names(self._env)
            check_ours(path, self.names)
            self._meta = self._env.open_db(META, self._txn, create=False)
            self.version = check_format(path, self._txn.get(FORMAT_KEY, None, self._meta))
        except lmdb.Error as error:
            self.close()
            raise StoreFailed(path, f"can't read it: {error}") from error
        except BaseException:
            self.close()
            raise

    def mark(self) -> bytes | None:
        """Return the mark that was given to the file; None if it never got one."""
        try:
            return self._txn.get(MARK_KEY, None, self._meta)
        except lmdb.Error as error:
            raise StoreFailed(self.path, f"can't read it: {error}") from error

    def journal(self) -> bytes:
        """Return the row that says which entries of which journal are in the file; b"" without one."""
        try:
            return self._txn.get(JOURNAL_KEY, b"", self._meta) or b""
        except lmdb.Error as error:
            raise StoreFailed(self.path, f"can't read it: {error}") from error

    def rows(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a table in key order; none if the file lacks the table. StoreError."""
        assert self._env is not None
        name = table.encode()
        if name not in self.names:
            return
        try:
            with self._txn.cursor(self._env.open_db(name, self._txn, create=False)) as cursor:
                yield from cursor
        except lmdb.Error as error:
            raise StoreFailed(self.path, f"can't read table {table}: {error}") from error

    def close(self) -> None:
        env, self._env = self._env, None
        if env is not None:
            env.close()

    def __enter__(self) -> StoreReader:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def walk_tables(path: Path) -> Iterator[tuple[str, Iterator[tuple[bytes, bytes]]]]:
    """Yield each table of the store in folder `path`, with its rows to be read before the next table.

    Read-only; the caller holds the lock of a reader. StoreError: not our file, not our format, unreadable.
    """
    with StoreReader(path) as reader:
        for name in sorted(reader.names):
            yield name.decode(), reader.rows(name.decode())
