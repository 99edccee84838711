"""A read-only view of a data folder: its parts and their problems."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Final

from ...storage import (
    DATA_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    NEW_MANIFEST_FILE,
    Entry,
    FolderState,
    Manifest,
    StoreError,
    StoreReader,
    Upgrades,
    check_file,
    checksum,
    file_problems,
    newest_root,
    read_journal,
    read_manifest,
    reason_of,
)
from ..lazy_dataclass import dataclass
from ..model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, stored_store_count
from ..partition.records import TABLES
from ..partition.upgrades import STORE_UPGRADES

CATALOG_FOLDER: Final = "namespace"
STORE_FOLDER: Final = "store-{:02}"
SNAPSHOT_FOLDER: Final = "snapshots"
NAMESPACES_FOLDER: Final = "namespaces"
"""Has the data folders of the other namespaces of a process, each by its name."""
TLS_FOLDER: Final = "tls"
STAGING_FOLDER: Final = ".restore"
JOURNAL_PREFIX: Final = "journal-"
RESERVE_FILE: Final = "emubus.reserve"
"""Zeros, deleted by a start and a stop, so that these can write their small files on a full disk."""
COMPLETE_FILE: Final = "complete"
STORE_NAME: Final = re.compile(r"store-\d{2}", re.ASCII)
NO_CONTENT: Final = frozenset(
    {LOCK_FILE, NEW_MANIFEST_FILE, RESERVE_FILE, TLS_FOLDER, "lost+found", ".gitkeep", ".gitignore", ".DS_Store"}
)
"""Names that count as empty: a lock, a development CA, and the files that disks and tools create."""
WALK_BYTES_MAX: Final = 16 << 20
"""A start after a kill walks the pages of parts up to this total size (0.2 s); `emubus check` walks all."""
REMEDIES: Final = (
    "put the missing or right part back from a copy of the whole folder, name another folder with --data, or start "
    "with --fresh (EMUBUS_FRESH=yes), which deletes this folder's entities and messages (its snapshots stay and can be "
    "restored)"
)


class DataFolderError(StoreError):
    """A data folder is unusable; the text is one line with the file and the remedies."""

    def __init__(self, folder: Path, reason: str, remedies: str | None = REMEDIES) -> None:
        super().__init__(folder, reason)
        self.args = (f"data folder {folder}: {reason}" + (f"; {remedies}" if remedies else ""),)


def part_names(store_count: int) -> list[str]:
    """Return the part folders of a namespace with `store_count` messaging stores, the catalog's first."""
    return [CATALOG_FOLDER, *(STORE_FOLDER.format(index) for index in range(store_count))]


def tables_of(name: str) -> tuple[str, ...]:
    return CATALOG_TABLES if name == CATALOG_FOLDER else TABLES


def upgrades_of(name: str) -> Upgrades:
    """Return what brings the rows of a part to this release's format."""
    return CATALOG_UPGRADES if name == CATALOG_FOLDER else STORE_UPGRADES


@dataclass(slots=True, eq=False, repr=False)
class VerifyBudget:
    """The number of bytes that verification may still read."""

    walk_bytes: int = WALK_BYTES_MAX
    walked: set[str] = field(default_factory=set[str])


class FolderView:
    """The parts of a data folder and their problems. Writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- parts

    @property
    def is_restoring(self) -> bool:
        """Whether a kill interrupted a restore after all its new parts were complete: they are the namespace."""
        return (self.path / STAGING_FOLDER / COMPLETE_FILE).is_file()

    def part_path(self, name: str) -> Path:
        """Return the folder of a part; in an interrupted restore, the folder of the new part."""
        staged = self.path / STAGING_FOLDER / name
        return staged if self.is_restoring and staged.exists() else self.path / name

    def manifest(self) -> Manifest | None:
        """Return the manifest, or None. Raises DataFolderError if it is damaged or of a newer format."""
        staged = self.path / STAGING_FOLDER
        folder = staged if self.is_restoring and (staged / MANIFEST_FILE).exists() else self.path
        try:
            return read_manifest(folder)
        except ValueError as error:
            raise DataFolderError(self.path, f"{MANIFEST_FILE} can't be used: {error}") from None
        except OSError as error:
            reason = reason_of(error, self.path / MANIFEST_FILE)
            raise DataFolderError(self.path, f"{MANIFEST_FILE} can't be read: {reason}", None) from error

    def entries(self) -> set[str]:
        """Return the relevant names in the folder; none if the folder is empty or missing."""
        try:
            return {each.name for each in self.path.iterdir()} - NO_CONTENT
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise DataFolderError(self.path, f"can't be read: {reason_of(error, self.path)}", None) from error

    def stores(self) -> list[str]:
        """Return the sorted names of the messaging stores in the folder."""
        folders = [self.path, self.path / STAGING_FOLDER] if self.is_restoring else [self.path]
        return sorted({each.name for folder in folders for each in folder.iterdir() if STORE_NAME.fullmatch(each.name)})

    def refuse_foreign(self) -> None:
        """Raise DataFolderError if the folder has only foreign content."""
        names = self.entries()
        if not names or MANIFEST_FILE in names or CATALOG_FOLDER in names or STAGING_FOLDER in names:
            return
        if any(STORE_NAME.fullmatch(name) for name in names) or SNAPSHOT_FOLDER in names:
            return
        shown = ", ".join(sorted(names)[:3]) + (", …" if len(names) > 3 else "")
        raise DataFolderError(
            self.path,
            f"is not empty, and not a data folder of emubus (it has {shown})",
            "name an empty or a new folder with --data",
        )

    def journal_file(self, manifest: Manifest) -> Path:
        """Return the file of the journal that a manifest names."""
        return self.path / f"{JOURNAL_PREFIX}{manifest.journal}"

    def entries_by_store(self, manifest: Manifest) -> dict[str, list[Entry]]:
        """Return the entries of the journal by part, none without a journal. ValueError: it is damaged. OSError."""
        found: dict[str, list[Entry]] = {}
        if manifest.journal is not None:
            for entry in read_journal(self.journal_file(manifest), manifest.journal):
                found.setdefault(entry.store, []).append(entry)
        return found

    # ---- verifying

    def verify(self, manifest: Manifest | None) -> Iterator[str]:
        """Return the problems of the parts, a sentence each; none if a server can use them."""
        if manifest is None:
            yield from self._verify_without_manifest()
            return
        if manifest.state is FolderState.EMPTYING:
            return
        if manifest.state is FolderState.MAKING:
            for name in (CATALOG_FOLDER, *self.stores()):
                if self._has_rows(name):
                    yield f"{MANIFEST_FILE} is an older copy: it knows of no rows, and {name} has some"
            return
        budget = VerifyBudget()
        for name in manifest.parts:
            try:
                self._verify_part(name, manifest, budget)
            except (StoreError, OSError, ValueError) as error:
                yield problem_with(name, error)
        try:
            self.entries_by_store(manifest)
        except FileNotFoundError:
            yield f"{self.journal_file(manifest).name} is missing"
        except OSError as error:
            yield f"{self.journal_file(manifest).name} can't be read: {error.strerror}"
        except ValueError as error:
            yield f"{self.journal_file(manifest).name} can't be used: {error}"
        for name in self.stores():
            if name not in manifest.parts:
                yield f"{name} doesn't belong to this data folder, which has {len(manifest.parts) - 1} messaging stores"

    def _verify_part(self, name: str, manifest: Manifest, budget: VerifyBudget) -> None:
        """Raise ValueError or StoreError for a problem of a part."""
        path, part = self.part_path(name), manifest.parts[name]
        data_file = path / DATA_FILE
        if not data_file.is_file():
            raise FileNotFoundError
        root = newest_root(data_file)
        closed = manifest.state is FolderState.CLOSED
        size_bytes = data_file.stat().st_size
        if root.transaction < part.transaction:
            raise ValueError(f"it is an older copy: transaction {root.transaction}, expected {part.transaction}")
        if closed and part.size_bytes is not None and size_bytes < part.size_bytes:
            raise ValueError(f"it is cut short: {size_bytes} bytes, at the last stop it had {part.size_bytes}")
        if closed and (root.transaction, size_bytes) != (part.transaction, part.size_bytes):
            raise ValueError("it was changed since the last stop, or the manifest is an older copy")
        if closed and part.crc32 is not None:
            if checksum(data_file) != part.crc32:
                raise ValueError("it was damaged since the last stop: its checksum is another one")
        else:
            self._walk(path, size_bytes, budget)
        with StoreReader(path) as reader:
            found = reader.mark()
        if manifest.state is FolderState.UPGRADING and found is None:
            return
        if found != manifest.mark(name, whole=name == CATALOG_FOLDER):
            raise ValueError("it belongs to another data folder, or is another part of this one")

    def _walk(self, path: Path, size_bytes: int, budget: VerifyBudget) -> None:
        check_file(path)
        if size_bytes <= budget.walk_bytes:
            budget.walk_bytes -= size_bytes
            for problem in file_problems(path):
                raise ValueError(f"it is damaged: {problem}")

    def _verify_without_manifest(self) -> Iterator[str]:
        """Verify a folder without a manifest: it is of release 0.1.0, or its manifest is missing."""
        found = [name for name in (CATALOG_FOLDER, *self.stores()) if self.part_path(name).exists()]
        if not found:
            yield f"it is not empty, and {MANIFEST_FILE} and all stores are missing"
            return
        budget = VerifyBudget()
        for name in found:
            path = self.part_path(name)
            try:
                if not (path / DATA_FILE).is_file():
                    raise FileNotFoundError
                self._walk(path, (path / DATA_FILE).stat().st_size, budget)
                with StoreReader(path) as reader:
                    if reader.mark() is not None:
                        yield f"{MANIFEST_FILE} is missing"
                        return
            except (StoreError, OSError, ValueError) as error:
                yield problem_with(name, error)
                return
        if CATALOG_FOLDER not in found:
            yield problem_with(CATALOG_FOLDER, FileNotFoundError())
            return
        yield from self._count_problems(found)

    def _count_problems(self, found: list[str]) -> Iterator[str]:
        try:
            count = self.unmarked_store_count()
        except (StoreError, ValueError) as error:
            yield problem_with(CATALOG_FOLDER, error)
            return
        if count is None:
            yield from (
                f"{name} has rows, and {CATALOG_FOLDER} knows nothing of them" for name in found if self._has_rows(name)
            )
            return
        for name in sorted(set(part_names(count)) - set(found)):
            yield problem_with(name, FileNotFoundError())
        for name in sorted(set(found) - set(part_names(count))):
            yield f"{name} doesn't belong to this data folder, which has {count} messaging stores"

    def unmarked_store_count(self) -> int | None:
        """Return the catalog's number of messaging stores; None after an interrupted first start. Raises ValueError."""
        with StoreReader(self.part_path(CATALOG_FOLDER)) as reader:
            return stored_store_count(reader.rows)

    def _has_rows(self, name: str) -> bool:
        """Whether a part has rows; False if it is missing or incomplete."""
        path = self.part_path(name)
        try:
            if file_problems(path):
                return False
            with StoreReader(path) as reader:
                return any(True for table in tables_of(name) for _ in reader.rows(table))
        except (StoreError, OSError):
            return False


def problem_with(name: str, error: Exception) -> str:
    """Return a sentence for an error from reading the part `name`."""
    if isinstance(error, FileNotFoundError):
        return f"{name}/{DATA_FILE} is missing"
    if isinstance(error, StoreError):
        return f"{name}: {error.reason}"
    if isinstance(error, OSError):
        return f"{name}/{DATA_FILE} can't be read: {error.strerror}"
    return f"{name}/{DATA_FILE} can't be used: {error}"
