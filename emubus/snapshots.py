"""Snapshots of the namespace in the data folder: take, restore under the running broker, download, upload.

Knows the files of a snapshot (those of a stopped server's data folder, and `snapshot.json`), and how to exchange the
stores of a data folder so that a kill at any moment leaves either the old or the new namespace. Does not know what is
in a store. A server in memory keeps its snapshots in a temporary folder until it stops.

A restore first makes a durable copy of the snapshot in `.restore`, as the stores of a new namespace with a manifest,
and checks it as `emubus check` does: a damaged one is refused, and clients go on. Once the file `complete` exists
there, the new namespace is valid. Then the folders replace the old ones one by one, the manifest last. `finish_restore`
does that, also at the next start after a kill.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final, TypeVar

import structlog

from . import __version__
from .broker.admin.folder_view import (
    CATALOG_FOLDER,
    COMPLETE_FILE,
    SNAPSHOT_FOLDER,
    STAGING_FOLDER,
    STORE_FOLDER,
    part_names,
    upgrades_of,
)
from .broker.api import TABLES
from .broker.broker import Broker
from .broker.errors import BrokerError, Condition
from .broker.model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, Catalog, CatalogError
from .broker.names import SnapshotName
from .data_folder import DataFolder, mark_copies
from .storage import (
    DATA_FILE,
    MANIFEST_FILE,
    Durability,
    Store,
    StoreError,
    copy_files,
    make_folder,
    make_private_file,
    open_store,
    read_into_memory,
    sync_file,
    upgrade_store,
)
from .web.services import Snapshot

MANIFEST: Final = "snapshot.json"
MANIFEST_BYTES_MAX: Final = 64 << 10
FORMAT: Final = 1
TRIAL_FOLDER: Final = ".trial"
"""Where an uploaded snapshot is tried."""
DAMAGED: Final = (StoreError, CatalogError, ValueError, LookupError, TypeError, AttributeError)
"""What a snapshot raises whose rows are not what they should be."""

OpenStores = Callable[[], tuple[Catalog, list[Store]]]
T = TypeVar("T")
log = structlog.get_logger("emubus")


class Snapshots:
    """The snapshots of a server with the folder `data` (None: in memory); `open_stores` opens its stores."""

    def __init__(self, broker: Broker, data: DataFolder | None, open_stores: OpenStores) -> None:
        self._broker = broker
        self._data = data
        self._open_stores = open_stores
        self._temporary: tempfile.TemporaryDirectory[str] | None = None
        self._skipped: set[str] = set()
        self._turn = asyncio.Lock()
        self._running: set[asyncio.Task[object]] = set()

    async def stop(self) -> None:
        """Wait for running operations; delete a temporary folder."""
        await asyncio.gather(*self._running, return_exceptions=True)
        if self._temporary is not None:
            self._temporary.cleanup()

    # ---- the verbs (`web.services.SnapshotsPort`)

    def list(self) -> list[Snapshot]:
        """All snapshots, the oldest first; other folders are skipped."""
        found: list[Snapshot] = []
        for path in self._folder.glob(f"*/{MANIFEST}"):
            folder = path.parent
            if not folder.name.startswith("."):
                try:
                    found.append(_read(folder, SnapshotName(folder.name)))
                except (OSError, ValueError, KeyError, TypeError) as error:
                    self._log_skipped(folder, "snapshot skipped: unreadable", str(error))
                except BrokerError as error:  # a name that an older release took; a folder's name is its snapshot's
                    self._log_skipped(
                        folder, "snapshot skipped: its name", error.description, remedy="rename the folder"
                    )
        return sorted(found, key=lambda each: (each.taken_at, each.name))

    def _log_skipped(self, folder: Path, event: str, cause: str, **more: str) -> None:
        """Log once why a folder is no snapshot: the page lists them every second."""
        if folder.name not in self._skipped:
            self._skipped.add(folder.name)
            log.warning(event, folder=str(folder), cause=cause, **more)

    def get(self, name: SnapshotName) -> Snapshot:
        """One snapshot; BrokerError (not-found)."""
        try:
            return _read(self._folder / name, name)
        except (OSError, ValueError, KeyError, TypeError):
            names = ", ".join(each.name for each in self.list()) or "none"
            raise BrokerError(Condition.NOT_FOUND, f"There is no snapshot '{name}'; there are: {names}.") from None

    async def take(self, name: SnapshotName) -> Snapshot:
        """Take a snapshot; BrokerError: entity-already-exists, server-busy."""
        return await self._one_at_a_time(self._take(name))

    async def restore(self, name: SnapshotName) -> Snapshot:
        """Replace the namespace by a snapshot; BrokerError: not-found, not-allowed, server-busy."""
        return await self._one_at_a_time(self._restore(name))

    async def delete(self, name: SnapshotName) -> None:
        """Delete a snapshot; BrokerError (not-found)."""
        await self._one_at_a_time(self._delete(name))

    def archive(self, name: SnapshotName) -> AsyncIterator[bytes]:
        """The files of a snapshot as a tar archive; BrokerError (not-found)."""
        from .archive import pack  # not needed for a start

        self.get(name)
        folder = self._folder / name
        paths = sorted(path for path in folder.rglob("*") if path.name in (MANIFEST, DATA_FILE))
        return pack([(path.relative_to(folder).as_posix(), path) for path in paths])

    async def keep(self, name: SnapshotName, archive: AsyncIterator[bytes], bytes_max: int) -> Snapshot:
        """Store an archive as a snapshot; BrokerError: argument-error, entity-already-exists, server-busy."""
        return await self._one_at_a_time(self._keep(name, archive, bytes_max))

    # ---- operations

    async def _one_at_a_time(self, work: Coroutine[object, None, T]) -> T:
        """Run operations one at a time, each to its end even if its caller is cancelled."""

        async def in_turn() -> T:
            async with self._turn:
                return await work

        task = asyncio.create_task(in_turn())
        self._running.add(task)
        task.add_done_callback(self._running.discard)
        try:
            return await asyncio.shield(task)
        finally:
            del task  # its error has this frame: a circle, with a part of the archive

    @property
    def _folder(self) -> Path:
        if self._data is not None:
            return self._data.path / SNAPSHOT_FOLDER
        if self._temporary is None:
            self._temporary = tempfile.TemporaryDirectory(prefix="emubus-")
        return Path(self._temporary.name)

    async def _take(self, name: SnapshotName) -> Snapshot:
        draft = self._draft(name)
        try:
            await asyncio.to_thread(_make_empty, draft)
            copied = await self._broker.maintenance.copy_to(draft)
            snapshot = Snapshot(
                name, store_count=len(self._broker.namespace.workers), size_bytes=_size(draft), **asdict(copied)
            )
            return await asyncio.to_thread(self._publish, draft, snapshot)
        except (StoreError, OSError) as error:
            raise BrokerError(Condition.SERVER_BUSY, f"The snapshot could not be taken: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)

    async def _keep(self, name: SnapshotName, archive: AsyncIterator[bytes], bytes_max: int) -> Snapshot:
        from .archive import UnusableArchive, unpack

        draft = self._draft(name)
        try:
            await asyncio.to_thread(_make_empty, draft)
            await unpack(archive, draft, bytes_max)
            snapshot = await asyncio.to_thread(_restorable, draft, name)
            return await asyncio.to_thread(self._publish, draft, snapshot)
        except (UnusableArchive, UnsoundSnapshot, *DAMAGED) as error:
            raise BrokerError(Condition.ARGUMENT_ERROR, f"The archive is not a snapshot: {error}") from error
        except OSError as error:
            raise BrokerError(Condition.SERVER_BUSY, f"The snapshot could not be stored: {error}") from error
        finally:
            await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)

    async def _delete(self, name: SnapshotName) -> None:
        self.get(name)
        doomed = self._folder / f".old-{name}"
        await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)
        (self._folder / name).rename(doomed)  # one rename, so that a kill leaves no half of it
        await asyncio.to_thread(shutil.rmtree, doomed, ignore_errors=True)

    def _draft(self, name: SnapshotName) -> Path:
        """The temporary folder for making a snapshot; BrokerError if the name is taken."""
        folder = self._folder
        if (folder / name).exists():
            raise BrokerError(Condition.ENTITY_ALREADY_EXISTS, f"There is a snapshot '{name}' already.")
        return folder / f".new-{name}"

    def _publish(self, draft: Path, snapshot: Snapshot) -> Snapshot:
        """Make a complete snapshot durable, then rename it to its name."""
        with make_private_file(draft / MANIFEST) as file:
            file.write(json.dumps({"format": FORMAT, **asdict(snapshot)}).encode())
        for path in (*draft.rglob("*"), draft):
            sync_file(path)
        draft.rename(self._folder / snapshot.name)
        sync_file(self._folder)
        return snapshot

    # ---- restoring

    async def _restore(self, name: SnapshotName) -> Snapshot:
        """Exchange the namespace for a snapshot.

        In memory the snapshot is read before anything is given up. In a folder its files are copied beside those in use
        and exchanged by renaming, so that a kill at any moment leaves the one or the other (`finish_restore`). Clients
        are detached only once the snapshot is known to be sound.
        """
        snapshot = self.get(name)
        count = len(self._broker.namespace.workers)
        if snapshot.store_count != count:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"The snapshot '{name}' has {snapshot.store_count} messaging stores and this namespace {count}; "
                "the number is fixed when a namespace is created.",
            )
        source = self._folder / name
        try:
            if self._data is None:
                await asyncio.to_thread(_refuse_unsound, source, count)
                catalog, stores = await asyncio.to_thread(_read_all, source, count)
                catalog.begin_generation()
                await self._give_up(name)
                self._broker.go_on_with(catalog, stores)
            else:
                await asyncio.to_thread(_stage, source, self._data, count)
                await self._give_up(name)
                await self._exchange(self._data)
        except UnsoundSnapshot as error:
            log.error("snapshot refused: damaged", snapshot=name, cause=str(error))
            raise BrokerError(
                Condition.NOT_ALLOWED, f"The snapshot '{name}' is damaged and was not restored: {error}"
            ) from error
        except (OSError, *DAMAGED) as error:
            log.error("restore failed", snapshot=name, cause=str(error))
            raise BrokerError(Condition.SERVER_BUSY, f"The snapshot '{name}' was not restored: {error}") from error
        log.info("snapshot restored", snapshot=name, entities=snapshot.entity_count, messages=snapshot.message_count)
        return snapshot

    async def _give_up(self, name: SnapshotName) -> None:
        detached = BrokerError(Condition.DETACH_FORCED, f"The snapshot '{name}' is restored; attach again.")
        away = BrokerError(Condition.SERVER_BUSY, f"The snapshot '{name}' is being restored; please try again.")
        await self._broker.give_up_stores(detached, away)

    async def _exchange(self, data: DataFolder) -> None:
        """Replace the data folder's stores by the staged ones; go back to the old ones if that fails."""
        data.look_away()
        try:
            await asyncio.to_thread(_commit, data.path)
        except OSError:
            if (data.path / STAGING_FOLDER / COMPLETE_FILE).exists():
                log.critical("the restore is incomplete; restart the server to finish it")
                raise
            self._broker.go_on_with(*self._open_stores())
            raise
        self._broker.go_on_with(*self._open_stores())


class UnsoundSnapshot(Exception):  # noqa: N818 - it says what the snapshot is
    """A snapshot can't be restored; the text says why."""


def finish_restore(data: Path) -> bool:
    """Finish or undo a restore of data folder `data` that a kill has interrupted.

    Returns whether the namespace was replaced. The caller has the folder's lock. OSError.
    """
    staging = data / STAGING_FOLDER
    if not staging.is_dir():
        return False
    is_complete = (staging / COMPLETE_FILE).is_file()
    if is_complete:
        for new in sorted(path for path in staging.iterdir() if path.is_dir()):
            if (data / new.name).exists():
                shutil.rmtree(data / new.name)
            new.rename(data / new.name)
        if (staging / MANIFEST_FILE).exists():
            (staging / MANIFEST_FILE).rename(data / MANIFEST_FILE)
        sync_file(data)
        (staging / COMPLETE_FILE).unlink()
    shutil.rmtree(staging)
    return is_complete


def _commit(data: Path) -> None:
    staging = data / STAGING_FOLDER
    (staging / COMPLETE_FILE).touch()
    sync_file(staging)
    finish_restore(data)


def _stage(source: Path, data: DataFolder, store_count: int) -> None:
    """Copy a snapshot into the data folder, durably, and check that a broker can open it.

    UnsoundSnapshot, DAMAGED, OSError: it can't; the copy is deleted.
    """
    staging = data.path / STAGING_FOLDER
    try:
        _copy_for_restore(source, staging, store_count)
        sync_file(staging)
        sync_file(data.path)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def _copy_for_restore(source: Path, place: Path, store_count: int) -> None:
    """Copy a snapshot to folder `place` as the parts of a new namespace, durably but for the folder.

    UnsoundSnapshot, DAMAGED, OSError: no broker could open it.
    """
    _make_empty(place)
    _refuse_unsound(source, store_count)
    for folder in part_names(store_count):
        copy_files(source / folder, place / folder)
    _begin_generation(place / CATALOG_FOLDER)
    mark_copies(place, store_count, __version__)


def _begin_generation(folder: Path) -> None:
    """Give the entities of the copied catalog another generation: their sequence numbers go back. StoreError.

    The snapshot may be of an older release.
    """
    upgrade_store(folder, CATALOG_TABLES, CATALOG_UPGRADES)
    catalog = Catalog(open_store(folder, CATALOG_TABLES, Durability.FULL, create=False))
    try:
        catalog.begin_generation()
    finally:
        catalog.close()


def _refuse_unsound(source: Path, store_count: int) -> None:
    from .broker.admin.verify import problems_of_parts  # a start does not need it

    for problem in problems_of_parts(source, store_count):
        raise UnsoundSnapshot(problem)


def _make_empty(folder: Path) -> None:
    shutil.rmtree(folder, ignore_errors=True)
    for each in (*make_folder(folder.parent), *make_folder(folder)):
        sync_file(each)  # the sync of a folder keeps the names in it, not its own


def _read_all(source: Path, store_count: int) -> tuple[Catalog, Sequence[Store]]:
    catalog = Catalog(read_into_memory(source / CATALOG_FOLDER, CATALOG_TABLES, CATALOG_UPGRADES))
    folders = [source / STORE_FOLDER.format(index) for index in range(store_count)]
    return catalog, [read_into_memory(folder, TABLES, upgrades_of(folder.name)) for folder in folders]


def _read(folder: Path, name: SnapshotName) -> Snapshot:
    """The description of a snapshot. ValueError, KeyError, TypeError: it is none; OSError."""
    from .web.json_reader import read_json  # a start without snapshots reads none

    with (folder / MANIFEST).open("rb") as file:
        data = file.read(MANIFEST_BYTES_MAX + 1)
    if len(data) > MANIFEST_BYTES_MAX:
        raise ValueError(f"{MANIFEST} has more than {MANIFEST_BYTES_MAX} bytes")
    values = read_json(data)
    if not isinstance(values, dict):
        raise TypeError(f"{MANIFEST} is no JSON object")
    if values.pop("format") != FORMAT:
        raise ValueError(f"its format is not {FORMAT}")
    return _snapshot(values, name)


def _snapshot(values: Mapping[str, object], name: SnapshotName) -> Snapshot:
    numbers: dict[str, int] = {}
    for key, value in values.items():
        if key == "name":
            continue
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value < 1 << 63:
            raise ValueError(f"{key} is {value!r}")
        numbers[key] = value
    return Snapshot(name=name, **numbers)


def _restorable(draft: Path, name: SnapshotName) -> Snapshot:
    """The description in an archive, if it can be restored. UnsoundSnapshot, DAMAGED, OSError."""
    try:
        snapshot = _read(draft, name)
    except OSError:
        raise ValueError(f"it has no {MANIFEST}") from None
    snapshot = _snapshot({**asdict(snapshot), "size_bytes": _size(draft)}, name)
    if not 1 <= snapshot.store_count <= 64:
        raise ValueError(f"it has {snapshot.store_count} messaging stores")
    trial = draft / TRIAL_FOLDER
    try:  # all that a restore does: damage may show only when a store is written
        _copy_for_restore(draft, trial, snapshot.store_count)
    finally:
        shutil.rmtree(trial, ignore_errors=True)
    return snapshot


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob(DATA_FILE))
