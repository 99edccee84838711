"""The folder of a namespace on disk: made, upgraded, verified before it is used, watched while it is used.

Knows which parts a data folder has (the catalog's store, the messaging stores), its manifest, and in which order a
folder is made or upgraded, so that a kill at any step leaves one that the next start finishes or refuses. Never takes
for new what was not empty. Leaves what is in the parts to the catalog and the partitions, and restores to
`emubus/snapshots.py`. Owned by the composition root.

Order of making: manifest "making" → parts, each with its mark → manifest "closed". Order of upgrading a
folder without manifest: manifest "upgrading", with the ids that the parts shall have → marks → manifest "open". The
commit that marks a part also brings its rows to this release's format, after the replay of what an older release has in
its journal. A start writes "open", then the marks
once more, so that each part has a transaction of this run, and these into the manifest; only then anything is stored. A
stop writes "closed", with what the parts are, after it has closed them. Parts that this start has made need no second
mark.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Final

import structlog

from .broker.admin.folder_view import (
    CATALOG_FOLDER,
    JOURNAL_PREFIX,
    RESERVE_FILE,
    STAGING_FOLDER,
    STORE_NAME,
    DataFolderError,
    FolderView,
    part_names,
    tables_of,
    upgrades_of,
)
from .broker.errors import BrokerError, Condition
from .broker.ids import new_message_id
from .broker.model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, Catalog
from .broker.model.descriptions import QueueDescription, SubscriptionDescription, TopicDescription, Topology
from .broker.names import KeptFile
from .codec.native import native_module
from .storage import (
    DATA_FILE,
    FORMAT_VERSION,
    FORMAT_VERSION_OLDEST,
    LOCK_FILE,
    MANIFEST_FILE,
    DiskWriter,
    Durability,
    FolderLock,
    FolderState,
    Journal,
    Manifest,
    Part,
    PythonWriter,
    StoreError,
    allocate,
    checksum,
    keep_journal,
    make_folder,
    make_private_file,
    mark_store,
    newest_root,
    open_to_others,
    read_into_memory,
    replace_file,
    replay,
    sync_file,
    sync_store,
    write_manifest,
)

PART_FILES: Final = frozenset({DATA_FILE, LOCK_FILE, "lock.mdb"})

RESERVE_BYTES: Final = 256 << 10
"""The manifest takes 4 KiB, twice; a new journal 68 KiB until the one before it is deleted."""

CHECKSUM_BYTES_MAX: Final = 64 << 20
"""Up to this size of all parts together a stop keeps their checksums, and a start verifies them: 0.1 s."""

SYNCING_THREADS: Final = 4
JUST_MADE: Final = frozenset({FolderState.MAKING, FolderState.EMPTYING})
"""States of the manifest of parts that this start has made."""

_native: Final = native_module(f"{__package__}.storage.journal._writing")
JOURNAL_WRITER: Final[Callable[[int], DiskWriter]] = PythonWriter if _native is None else _native.Writer
"""Writes the journal: in C where that was built."""

log = structlog.get_logger(__name__)


class DataFolder(FolderView):
    """A data folder that this process has for itself, from its making on until `release()`."""

    def __init__(self, path: Path, release: str, durability: Durability = Durability.PROCESS) -> None:
        """Take it, made if need be; `release` is the version of this emubus. StoreError: in use, foreign, no rights.

        `durability`: that of the stores; if they do not sync their files, the folder does.
        """
        super().__init__(path)
        self.refuse_foreign()
        self._release = release
        self._durability = durability
        self._watched: Mapping[Path, tuple[int, int]] = {}
        self._lost: str | None = None
        self.journal: Journal | None = None
        """Where stores write small batches first, from `prepare` on; None if they do not sync."""
        self.is_new = not path.exists()
        for each in make_folder(path):
            with suppress(PermissionError):  # to sync a folder takes the right to read it, to make one in it does not
                sync_file(each)  # else a power cut could take the folder with all that is durable in it
        if self.is_new:
            path.chmod(0o700)
        self._lock = FolderLock(path)

    # ---- before the stores are opened

    def prepare(self, store_count: int) -> list[Path]:
        """Make, finish or upgrade the folder if need be, verify it; the folders of its parts, the catalog's first.

        `store_count` is for a new one. From here on its manifest says "open". DataFolderError, StoreError.
        """
        self._use_reserve()
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
        if manifest.version < FORMAT_VERSION:
            versions = {"from_format": manifest.version, "to_format": FORMAT_VERSION}
            log.info("upgrading the data folder of an older release", data=str(self.path), **versions)
        self._replay(manifest)
        if manifest.state is FolderState.CLOSED:
            parts = {name: Part(part.id, part.transaction) for name, part in manifest.parts.items()}
            self._write(replace(manifest, state=FolderState.OPEN, parts=parts))
        if manifest.state not in JUST_MADE:
            _mark_all(manifest, self.path)  # once more: from here on a copy of an earlier run is an older one
        manifest = replace(manifest, state=FolderState.OPEN, parts=self._parts_now(manifest), journal=None)
        if self._durability.syncs:
            manifest = self._begin_journal(manifest)
        self._write(manifest)
        self._drop_journals(manifest)
        self._keep_reserve()
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
        _mark_all(manifest, self.path, create=True)
        sync_file(self.path)
        return manifest

    def _plan_upgrade(self, store_count: int) -> Manifest:
        parts = {name: Part(new_message_id()) for name in part_names(store_count)}
        manifest = Manifest(new_message_id(), FolderState.UPGRADING, parts, self._release)
        self._write(manifest)
        return replace(manifest, version=FORMAT_VERSION_OLDEST)

    def _replay(self, manifest: Manifest) -> None:
        """Write what the journal of a killed server has into the parts."""
        self._close_journal()
        if manifest.journal is not None:
            file = self.journal_file(manifest)
            try:
                keep_journal(file, manifest.journal)
            except OSError as error:
                raise DataFolderError(self.path, f"{file.name} can't be written: {error.strerror}") from error
        for name, entries in self.entries_by_store(manifest).items():
            replay(self.path / name, tables_of(name), manifest.journal or "", entries)

    def _begin_journal(self, manifest: Manifest) -> Manifest:
        manifest = replace(manifest, journal=new_message_id())
        file = self.journal_file(manifest)
        try:
            waits = self._durability is not Durability.SECOND
            self.journal = Journal(file, manifest.journal or "", JOURNAL_WRITER, waits=waits)
            sync_file(self.path)
        except OSError as error:
            self._close_journal()
            log.warning("no journal: each commit waits for the file of its store", cause=error.strerror, file=str(file))
            file.unlink(missing_ok=True)
            return replace(manifest, journal=None)
        return manifest

    def _use_reserve(self) -> None:
        """Give up the room that is kept for this."""
        (self.path / RESERVE_FILE).unlink(missing_ok=True)

    def _keep_reserve(self) -> None:
        """Keep room for the next start or stop; without it, one on a full disk may need the user's help."""
        file = self.path / RESERVE_FILE
        try:
            make_private_file(file).close()
            allocate(file, 0, RESERVE_BYTES)
        except OSError as error:
            file.unlink(missing_ok=True)
            log.warning("no room is kept for the next start", data=str(self.path), cause=error.strerror)

    def _close_journal(self) -> None:
        journal, self.journal = self.journal, None
        if journal is not None:
            journal.close()

    def _drop_journals(self, manifest: Manifest) -> None:
        """Delete the journals that the manifest on the disk does not name."""
        for file in self.path.glob(f"{JOURNAL_PREFIX}*"):
            if file != self.journal_file(manifest):
                file.unlink()

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

    def _write(self, manifest: Manifest) -> None:
        _write(replace(manifest, release=self._release), self.path)

    # ---- while it is used

    def _watch(self, manifest: Manifest) -> None:
        files = [self.path / LOCK_FILE, *(self.path / name / DATA_FILE for name in manifest.parts)]
        if self.journal is not None:
            files.append(self.journal.path)
        self._watched = {file: _place(file) for file in files}
        self._lost = None

    def look_away(self) -> None:
        """The parts are about to be exchanged: until `prepare` no file is missed."""
        self._watched = {}

    def is_in_place(self) -> bool:
        """Whether the files that were opened still are those of the folder; a change is logged once."""
        for file, place in self._watched.items():
            try:
                what = None if _place(file) == place else "was replaced"
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

    # ---- small files beside the parts (`web.services.KeptFiles`)

    def read(self, name: KeptFile) -> bytes:
        """What a file has; nothing if it is missing or can't be read."""
        try:
            return (self.path / name).read_bytes()
        except OSError:
            return b""

    def write(self, name: KeptFile, data: bytes) -> None:
        """Replace a file, durably. BrokerError (server-busy)."""
        try:
            replace_file(self.path / name, data)
        except OSError as error:
            raise BrokerError(Condition.SERVER_BUSY, f"{name} can't be written: {error.strerror}.") from error

    # ---- at the end

    def release(self) -> None:
        """Say in the manifest that the parts are closed, if they are, and let others have the folder."""
        try:
            if self._watched and self.is_in_place():
                self._seal()
        except (StoreError, OSError, ValueError) as error:
            log.warning("the data folder stays marked as open", data=str(self.path), cause=str(error))
        finally:
            self._close_journal()
            self._lock.release()

    def _seal(self) -> None:
        manifest = self.manifest()
        if manifest is None or manifest.state is not FolderState.OPEN:
            return
        if self.journal is not None and not self.journal.is_empty:
            raise StoreError(self.path, "its journal has rows that the stores could not take")
        for name in manifest.parts:
            FolderLock(self.path / name).release()  # StoreError: this process has not closed it, and may write on
            if not self._durability.syncs:
                sync_file(self.path / name / DATA_FILE)
        closed = replace(manifest, state=FolderState.CLOSED, parts=_parts_on_disk(manifest, self.path), journal=None)
        self._use_reserve()
        self._write(closed)
        self._drop_journals(closed)
        self._keep_reserve()


def mark_copies(place: Path, store_count: int, release: str) -> None:
    """Let the closed stores in folder `place`, copies of others, be the parts of a new namespace, with a manifest.

    StoreError.
    """
    parts = {name: Part(new_message_id()) for name in part_names(store_count)}
    manifest = Manifest(new_message_id(), FolderState.CLOSED, parts, release)
    _mark_all(manifest, place)
    _write(replace(manifest, parts=_parts_on_disk(manifest, place)), place)


def _mark_all(manifest: Manifest, place: Path, *, create: bool = False) -> None:
    """Mark the parts in folder `place`, durably, and bring them to this release's format. StoreError, OSError.

    Waits for the disk with several at a time.
    """

    def mark(name: str) -> None:
        content = manifest.mark(name, whole=name == CATALOG_FOLDER)
        mark_store(place / name, tables_of(name), content, upgrades_of(name), create=create)

    with ThreadPoolExecutor(SYNCING_THREADS) as pool:
        if create:  # threads would only wait for each other before there is something to sync
            for name in manifest.parts:
                mark(name)
            list(pool.map(sync_store, [place / name for name in manifest.parts]))
        else:
            list(pool.map(mark, manifest.parts))


def _write(manifest: Manifest, place: Path) -> None:
    try:
        write_manifest(place, manifest)
    except OSError as error:
        remedy = "free some room there, or name another folder with --data"
        raise DataFolderError(place, f"can't write {MANIFEST_FILE}: {error.strerror}", remedy) from error


def _parts_on_disk(manifest: Manifest, place: Path) -> dict[str, Part]:
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


def read_namespace(folder: Path) -> tuple[Topology, int]:
    """The entities in the data folder of a stopped emubus, and its number of messaging stores. Writes nothing.

    StoreError or CatalogError if the folder holds none, is in use or can't be read.
    """
    view = FolderView(folder)
    lock = FolderLock(folder, reading=True)
    try:
        path = view.part_path(CATALOG_FOLDER)
        if not path.is_dir():
            raise StoreError(folder, "not a data folder of emubus: it has no folder 'namespace'")
        return _read_catalog(path)
    finally:
        lock.release()


def _read_catalog(path: Path) -> tuple[Topology, int]:
    catalog = Catalog(read_into_memory(path, CATALOG_TABLES, CATALOG_UPGRADES))
    try:
        found = [entry.description for entry in catalog.entries()]
        topology = Topology(
            queues=tuple(each for each in found if isinstance(each, QueueDescription)),
            topics=tuple(each for each in found if isinstance(each, TopicDescription)),
            subscriptions=tuple(each for each in found if isinstance(each, SubscriptionDescription)),
        )
        return topology, catalog.store_count or 1
    finally:
        catalog.close()
