"""The folder of a namespace on disk: made, upgraded, verified before it is used, watched while it is used.

Knows which parts a data folder has (the catalog's store, the messaging stores), its manifest, and in which order a
folder is made or upgraded, so that a kill at any step leaves one that the next start finishes or refuses. Never takes
for new what was not empty. Leaves what is in the parts to the catalog and the partitions, and restores to
`emubus/snapshots.py`. Owned by the composition root.

Order of making: manifest "making" → parts, each with its mark → manifest "closed". Order of upgrading: manifest
"upgrading", with the ids that the parts shall have → marks → manifest "open". A start writes "open", then the marks
once more, so that each part has a transaction of this run, and these into the manifest; only then anything is stored. A
stop writes "closed", with what the parts are, after it has closed them.
"""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Final

import structlog

from ...storage import (
    DATA_FILE,
    LOCK_FILE,
    MANIFEST_FILE,
    NEW_MANIFEST_FILE,
    FolderLock,
    FolderState,
    Manifest,
    Part,
    StoreError,
    StoreReader,
    check_file,
    checksum,
    file_problems,
    make_folder,
    mark_store,
    newest_root,
    open_to_others,
    read_manifest,
    reason_of,
    sync_file,
    write_manifest,
)
from ..ids import new_message_id
from ..model.catalog import CATALOG_TABLES, stored_store_count
from ..partition.records import TABLES

CATALOG_FOLDER: Final = "namespace"
STORE_FOLDER: Final = "store-{:02}"
SNAPSHOT_FOLDER: Final = "snapshots"
TLS_FOLDER: Final = "tls"
STAGING_FOLDER: Final = ".restore"
COMPLETE_FILE: Final = "complete"

STORE_NAME: Final = re.compile(r"store-\d{2}", re.ASCII)
NO_CONTENT: Final = frozenset(
    {LOCK_FILE, NEW_MANIFEST_FILE, TLS_FOLDER, "lost+found", ".gitkeep", ".gitignore", ".DS_Store"}
)
"""What an empty data folder may have: a lock, a development CA, and what disks and tools put into empty folders."""
PART_FILES: Final = frozenset({DATA_FILE, LOCK_FILE, "lock.mdb"})

CHECKSUM_BYTES_MAX: Final = 64 << 20
"""Up to this size of all parts together a stop keeps their checksums, and a start verifies them: 0.1 s."""
WALK_BYTES_MAX: Final = 16 << 20
"""Up to this size of all parts together a start after a kill walks their pages: 0.2 s. `emubus check` walks all."""

MARKING_THREADS: Final = 8

REMEDIES: Final = (
    "put the missing or right part back from a copy of the whole folder, name another folder with --data, or start "
    "with --fresh, which deletes this folder's entities and messages (its snapshots stay and can be restored)"
)

log = structlog.get_logger(__name__)


class DataFolderError(StoreError):
    """A data folder can't be used as it is; the text is one line that names the file and the remedies."""

    def __init__(self, folder: Path, reason: str, remedies: str | None = REMEDIES) -> None:
        super().__init__(folder, reason)
        self.args = (f"data folder {folder}: {reason}" + (f"; {remedies}" if remedies else ""),)


def part_names(store_count: int) -> list[str]:
    """The folders of a namespace with so many messaging stores: the catalog's first."""
    return [CATALOG_FOLDER, *(STORE_FOLDER.format(index) for index in range(store_count))]


def tables_of(name: str) -> tuple[str, ...]:
    """The tables of a part."""
    return CATALOG_TABLES if name == CATALOG_FOLDER else TABLES


@dataclass(slots=True)
class _Budget:
    """How many bytes may still be read to verify parts."""

    walk_bytes: int = WALK_BYTES_MAX
    walked: set[str] = field(default_factory=set[str])


class FolderView:
    """A data folder that is only looked at: which parts it has, and what is wrong with them. Writes nothing."""

    def __init__(self, path: Path) -> None:
        self.path = path

    # ---- where things are

    @property
    def is_restoring(self) -> bool:
        """Whether a kill has cut short a restore whose new parts are all there: they are the namespace then."""
        return (self.path / STAGING_FOLDER / COMPLETE_FILE).is_file()

    def part_path(self, name: str) -> Path:
        """The folder of a part; during a restore that has not come to its end, where the new part is."""
        staged = self.path / STAGING_FOLDER / name
        return staged if self.is_restoring and staged.exists() else self.path / name

    def manifest(self) -> Manifest | None:
        """The manifest, None if there is none. DataFolderError: it is damaged, or of a newer format."""
        staged = self.path / STAGING_FOLDER
        place = staged if self.is_restoring and (staged / MANIFEST_FILE).exists() else self.path
        try:
            return read_manifest(place)
        except ValueError as error:
            raise DataFolderError(self.path, f"{MANIFEST_FILE} can't be used: {error}") from None
        except OSError as error:
            reason = reason_of(error, self.path / MANIFEST_FILE)
            raise DataFolderError(self.path, f"{MANIFEST_FILE} can't be read: {reason}", None) from error

    def entries(self) -> set[str]:
        """The names in the folder that count: none in an empty one, or where there is no folder."""
        try:
            return {each.name for each in self.path.iterdir()} - NO_CONTENT
        except FileNotFoundError:
            return set()
        except OSError as error:
            raise DataFolderError(self.path, f"can't be read: {reason_of(error, self.path)}", None) from error

    def stores(self) -> list[str]:
        """The messaging stores that are there, by name."""
        places = [self.path, self.path / STAGING_FOLDER] if self.is_restoring else [self.path]
        return sorted({each.name for place in places for each in place.iterdir() if STORE_NAME.fullmatch(each.name)})

    def refuse_foreign(self) -> None:
        """DataFolderError if the folder has content, and none that emubus makes."""
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

    # ---- verifying

    def verify(self, manifest: Manifest | None) -> Iterator[str]:
        """What is wrong with the parts, a sentence each; none if a server can work with them."""
        if manifest is None:
            yield from self._verify_unmarked()
            return
        if manifest.state is FolderState.EMPTYING:
            return
        if manifest.state is FolderState.MAKING:
            for name in (CATALOG_FOLDER, *self.stores()):
                if self._has_rows(name):
                    yield f"{MANIFEST_FILE} is an older copy: it knows of no rows, and {name} has some"
            return
        budget = _Budget()
        for name in manifest.parts:
            try:
                self._verify_part(name, manifest, budget)
            except (StoreError, OSError, ValueError) as error:
                yield _problem(name, error)
        for name in self.stores():
            if name not in manifest.parts:
                yield f"{name} doesn't belong to this data folder, which has {len(manifest.parts) - 1} messaging stores"

    def _verify_part(self, name: str, manifest: Manifest, budget: _Budget) -> None:
        """ValueError, StoreError: what is wrong with one part."""
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

    def _walk(self, path: Path, size_bytes: int, budget: _Budget) -> None:
        check_file(path)
        if size_bytes <= budget.walk_bytes:
            budget.walk_bytes -= size_bytes
            for problem in file_problems(path):
                raise ValueError(f"it is damaged: {problem}")

    def _verify_unmarked(self) -> Iterator[str]:
        """A folder without a manifest that is not empty: of release 0.1.0, or its manifest is missing."""
        found = [name for name in (CATALOG_FOLDER, *self.stores()) if self.part_path(name).exists()]
        if not found:
            yield f"it is not empty, and {MANIFEST_FILE} and all stores are missing"
            return
        budget = _Budget()
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
                yield _problem(name, error)
                return
        if CATALOG_FOLDER not in found:
            yield _problem(CATALOG_FOLDER, FileNotFoundError())
            return
        yield from self._count_problems(found)

    def _count_problems(self, found: list[str]) -> Iterator[str]:
        try:
            count = self.unmarked_store_count()
        except (StoreError, ValueError) as error:
            yield _problem(CATALOG_FOLDER, error)
            return
        if count is None:
            yield from (
                f"{name} has rows, and {CATALOG_FOLDER} knows nothing of them" for name in found if self._has_rows(name)
            )
            return
        for name in sorted(set(part_names(count)) - set(found)):
            yield _problem(name, FileNotFoundError())
        for name in sorted(set(found) - set(part_names(count))):
            yield f"{name} doesn't belong to this data folder, which has {count} messaging stores"

    def unmarked_store_count(self) -> int | None:
        """How many messaging stores the catalog counts; None if the first start was cut short. ValueError."""
        with StoreReader(self.part_path(CATALOG_FOLDER)) as reader:
            return stored_store_count(reader.rows)

    def _has_rows(self, name: str) -> bool:
        """Whether a part has any; not if it is missing, or if its making was cut short."""
        path = self.part_path(name)
        try:
            if file_problems(path):
                return False
            with StoreReader(path) as reader:
                return any(True for table in tables_of(name) for _ in reader.rows(table))
        except (StoreError, OSError):
            return False


class DataFolder(FolderView):
    """A data folder that this process has for itself, from its making on until `release()`."""

    def __init__(self, path: Path, release: str, *, stores_sync: bool = False) -> None:
        """Take it, made if need be; `release` is the version of this emubus. StoreError: in use, foreign, no rights.

        `stores_sync`: the stores are opened so that each commit is on the disk; otherwise the folder cares for that.
        """
        super().__init__(path)
        self.refuse_foreign()
        self._release = release
        self._stores_sync = stores_sync
        self._watched: Mapping[Path, tuple[int, int]] = {}
        self._lost: str | None = None
        self.is_new = not path.exists()
        make_folder(path)
        if self.is_new:
            path.chmod(0o700)
        self._lock = FolderLock(path)

    # ---- before the stores are opened

    def prepare(self, store_count: int) -> list[Path]:
        """Make, finish or upgrade the folder if need be, verify it; the folders of its parts, the catalog's first.

        `store_count` is for a new one. From here on its manifest says "open". DataFolderError, StoreError.
        """
        manifest = self.manifest()
        if manifest is None and not self.entries():
            manifest = self._make(store_count, FolderState.MAKING)
        else:
            for problem in self.verify(manifest):
                raise DataFolderError(self.path, problem)
            if manifest is None:
                count = self.unmarked_store_count()
                manifest = self._make(store_count, FolderState.MAKING) if count is None else self._plan_upgrade(count)
            elif manifest.state in (FolderState.MAKING, FolderState.EMPTYING):
                manifest = self._make(store_count, manifest.state)
        if manifest.state is FolderState.CLOSED:
            parts = {name: Part(part.id, part.transaction) for name, part in manifest.parts.items()}
            self._write(replace(manifest, state=FolderState.OPEN, parts=parts))
        self._mark_all(manifest, self.path)  # once more: from here on a copy of an earlier run is an older one
        self._write(replace(manifest, state=FolderState.OPEN, parts=self._parts_now(manifest)))
        self._watch(manifest)
        return [self.path / name for name in manifest.parts]

    def empty(self) -> list[str]:
        """Begin to delete all parts, which `prepare` finishes; their names. DataFolderError if they hold more."""
        doomed = [
            each.name
            for each in sorted(self.path.iterdir())
            if each.name in (CATALOG_FOLDER, STAGING_FOLDER) or STORE_NAME.fullmatch(each.name)
        ]
        for name in doomed:
            path = self.path / name
            strange = [] if name == STAGING_FOLDER else sorted({each.name for each in path.iterdir()} - PART_FILES)
            if strange:
                remedy = "move it away, or name another folder with --data"
                raise DataFolderError(self.path, f"{name}/{strange[0]} is not emubus's, and is not deleted", remedy)
        if self.entries():
            self._write(Manifest(new_message_id(), FolderState.EMPTYING, {}, self._release))
        return doomed

    def _make(self, store_count: int, state: FolderState) -> Manifest:
        names = part_names(store_count)
        parts = {name: Part(new_message_id()) for name in names}
        manifest = Manifest(new_message_id(), state, parts, self._release)
        self._write(manifest)
        for name in {CATALOG_FOLDER, STAGING_FOLDER, *self.stores()}:
            if (self.path / name).exists():
                shutil.rmtree(self.path / name)
        sync_file(self.path)
        self._mark_all(manifest, self.path, create=True)
        sync_file(self.path)
        return manifest

    def _plan_upgrade(self, store_count: int) -> Manifest:
        parts = {name: Part(new_message_id()) for name in part_names(store_count)}
        manifest = Manifest(new_message_id(), FolderState.UPGRADING, parts, self._release)
        self._write(manifest)
        log.info("upgrading the data folder of an older release", data=str(self.path))
        return manifest

    def mark_copies(self, place: Path, store_count: int) -> None:
        """Let the closed stores in folder `place`, copies of others, be the parts of a new namespace, with a manifest.

        StoreError.
        """
        parts = {name: Part(new_message_id()) for name in part_names(store_count)}
        manifest = Manifest(new_message_id(), FolderState.CLOSED, parts, self._release)
        self._mark_all(manifest, place)
        self._write(replace(manifest, parts=_sealed(manifest, place)), place)

    @staticmethod
    def _mark_all(manifest: Manifest, place: Path, *, create: bool = False) -> None:
        """Mark the parts in folder `place`, all at a time: each waits for the disk. StoreError, OSError."""

        def mark(name: str) -> None:
            content = manifest.mark(name, whole=name == CATALOG_FOLDER)
            mark_store(place / name, tables_of(name), content, create=create)

        with ThreadPoolExecutor(MARKING_THREADS) as pool:
            list(pool.map(mark, manifest.parts))

    def _parts_now(self, manifest: Manifest) -> dict[str, Part]:
        """The parts, just marked, with their last transactions."""
        parts: dict[str, Part] = {}
        try:
            for name, part in manifest.parts.items():
                data_file = self.path / name / DATA_FILE
                parts[name] = Part(part.id, newest_root(data_file).transaction)
        except (OSError, ValueError) as error:
            raise DataFolderError(self.path, f"can't be read: {error}") from error
        return parts

    def _write(self, manifest: Manifest, place: Path | None = None) -> None:
        try:
            write_manifest(place or self.path, replace(manifest, release=self._release))
        except OSError as error:
            remedy = "free some room there, or name another folder with --data"
            raise DataFolderError(self.path, f"can't write {MANIFEST_FILE}: {error.strerror}", remedy) from error

    # ---- while it is used

    def _watch(self, manifest: Manifest) -> None:
        files = [self.path / LOCK_FILE, *(self.path / name / DATA_FILE for name in manifest.parts)]
        self._watched = {file: _place(file) for file in files}
        self._lost = None

    def look_away(self) -> None:
        """The parts are about to be exchanged: until `prepare` no file is missed."""
        self._watched = {}

    def is_in_place(self) -> bool:
        """Whether the files that were opened still are those of the folder; a change is logged once."""
        for file, place in self._watched.items():
            try:
                what = None if _place(file) == place else "was exchanged"
            except OSError:
                what = "is missing"
            if what is not None:
                if self._lost != what:
                    remedy = "bring the folder back, or restart"
                    log.error(
                        "the data folder was changed under the running server",
                        file=str(file),
                        what=what,
                        effect="sends and settlements are refused",
                        remedy=remedy,
                    )
                self._lost = what
                return False
        if self._lost is not None:
            log.info("the data folder is in its place again", data=str(self.path))
            self._lost = None
        return True

    def warn_of_readers(self) -> None:
        """Log when others than the owner may read the folder: messages and keys are in clear in it."""
        manifest = self.manifest()
        names = [] if manifest is None else list(manifest.parts)
        paths = [self.path, *(self.path / name / DATA_FILE for name in names)]
        readable = [path for path in paths if open_to_others(path)]
        if readable:
            log.warning(
                "other users may read the data folder: messages and keys are in clear in it",
                data=str(self.path),
                first=str(readable[0]),
                remedy=f"chmod -R go= {self.path}",
            )

    # ---- at the end

    def release(self) -> None:
        """Say in the manifest that the parts are closed, if they are, and let others have the folder."""
        try:
            if self._watched and self.is_in_place():
                self._seal()
        except (StoreError, OSError, ValueError) as error:
            log.warning("the data folder stays marked as open", data=str(self.path), cause=str(error))
        finally:
            self._lock.release()

    def _seal(self) -> None:
        manifest = self.manifest()
        if manifest is None or manifest.state is not FolderState.OPEN:
            return
        for name in manifest.parts:
            FolderLock(self.path / name).release()  # StoreError: this process has not closed it, and may write on
            if not self._stores_sync:
                sync_file(self.path / name / DATA_FILE)
        self._write(replace(manifest, state=FolderState.CLOSED, parts=_sealed(manifest, self.path)))


def _sealed(manifest: Manifest, place: Path) -> dict[str, Part]:
    """The parts exactly as they are in folder `place`. OSError, ValueError."""
    files = {name: place / name / DATA_FILE for name in manifest.parts}
    sizes = {name: file.stat().st_size for name, file in files.items()}
    small = sum(sizes.values()) <= CHECKSUM_BYTES_MAX
    parts: dict[str, Part] = {}
    for name, file in files.items():
        transaction = newest_root(file).transaction
        parts[name] = Part(manifest.parts[name].id, transaction, sizes[name], checksum(file) if small else None)
    return parts


def _place(file: Path) -> tuple[int, int]:
    status = file.stat()
    return status.st_dev, status.st_ino


def _problem(name: str, error: Exception) -> str:
    if isinstance(error, FileNotFoundError):
        return f"{name}/{DATA_FILE} is missing"
    if isinstance(error, StoreError):
        return f"{name}: {error.reason}"
    if isinstance(error, OSError):
        return f"{name}/{DATA_FILE} can't be read: {error.strerror}"
    return f"{name}/{DATA_FILE} can't be used: {error}"
