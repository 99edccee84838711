"""Faults put into emubus on purpose, to see that the explorer notices each.

Those of `READING` are put into the process that judges, all others into the one that is recorded. `NONE` is no fault.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

import lmdb

from emubus import data_folder
from emubus.broker.entities.entity import Entity
from emubus.storage import manifest, sync_file
from emubus.storage.journal import journal, journaled_store, reading, replay, writing

NONE: Final = "none"
HALF_BYTES: Final = 6 << 10
"""Halves of a recorded journal: a lap begins after some messages."""

Patch = Callable[[Any, str, Any], None]


def replace(owner: Any, name: str, value: Any) -> None:
    """Set an attribute that exists. AttributeError: it has gone, and a fault that sets it would be none."""
    getattr(owner, name)
    setattr(owner, name, value)


def put(name: str, patch: Patch = replace) -> None:
    """Put a fault into this process, and use small halves; `patch` sets an attribute of a module or a class."""
    for module in (journal, reading):
        patch(module, "HALF_BYTES", HALF_BYTES)
    if name != NONE:
        FAULTS[name](patch)


def _journal_not_synced(patch: Patch) -> None:
    patch(data_folder, "JOURNAL_WRITER", writing.PythonWriter)
    patch(writing, "wait_for_disk", lambda _: None)


def _group_before_lap(patch: Patch) -> None:
    plan = journal.Journal._plan

    def reversed_plan(self: journal.Journal, stores: Sequence[str], entries: Sequence[bytes]) -> Any:
        made = plan(self, stores, entries)
        made.writes.reverse()  # type: ignore[attr-defined]
        return made

    patch(journal.Journal, "_plan", reversed_plan)


def _no_lap_record(patch: Patch) -> None:
    plan = journal.Journal._plan

    def without(self: journal.Journal, stores: Sequence[str], entries: Sequence[bytes]) -> Any:
        made = plan(self, stores, entries)
        del made.writes[:-1]  # type: ignore[attr-defined]
        return made

    patch(journal.Journal, "_plan", without)


def _flushed_early(patch: Patch) -> None:
    begin = journaled_store.JournaledStore._begin_in_file

    def early(self: journaled_store.JournaledStore, expected_bytes: int) -> Any:
        batch = begin(self, expected_bytes)
        self.journal.flushed(self.name)
        return batch

    patch(journaled_store.JournaledStore, "_begin_in_file", early)


def _laps_do_not_wait(patch: Patch) -> None:
    def needs_lap(self: journal.Journal, size: int) -> bool:
        if size > journal.HALF_BYTES:
            raise journal.JournalFull
        return self._used_bytes + size > journal.HALF_BYTES

    patch(journal.Journal, "_needs_lap", needs_lap)


def _files_not_synced(patch: Patch) -> None:
    _open_lmdb_with(patch, sync=False, metasync=False)


def _roots_not_synced(patch: Patch) -> None:
    _open_lmdb_with(patch, metasync=False)


def _open_lmdb_with(patch: Patch, **options: bool) -> None:
    opened = lmdb.open

    def open_with(path: str, **given: Any) -> Any:
        return opened(path, **(given | options if given.get("sync") else given))

    patch(lmdb, "open", open_with)


def _no_row_of_the_journal(patch: Patch) -> None:
    patch(journaled_store, "row_of", lambda *_: b"x" * 40)


def _manifest_not_synced(patch: Patch) -> None:
    def replace(path: Path, data: bytes) -> None:
        new = path.with_name(f"{path.name}.new")
        new.write_bytes(data)
        new.replace(path)

    patch(manifest, "replace_file", replace)


def _old_journal_dropped_first(patch: Patch) -> None:
    begin = data_folder.DataFolder._begin_journal

    def drop(self: data_folder.DataFolder, of: manifest.Manifest) -> manifest.Manifest:
        for file in self.path.glob("journal-*"):
            file.unlink()
        sync_file(self.path)
        return begin(self, of)

    patch(data_folder.DataFolder, "_begin_journal", drop)


def _purge_forgets_numbers(patch: Patch) -> None:
    patch(Entity, "next_counters", lambda self: [1] * len(self.partitions))


def _replays_all(patch: Patch) -> None:
    patch(replay, "lacking", lambda row, journal_id, entries: list(entries))


def _files_before_the_tail(patch: Patch) -> None:
    def sync(self: journal.Journal) -> None:
        self._end_tail(self._next_number)

    patch(journal.Journal, "sync", sync)


def _lap_before_the_tail(patch: Patch) -> None:
    plan = journal.Journal._plan

    def without(self: journal.Journal, stores: Sequence[str], entries: Sequence[bytes]) -> Any:
        made = plan(self, stores, entries)
        if made.record_at:
            del made.writes[0]  # type: ignore[attr-defined]
            made.record_at = 0
            self._end_tail(made.number)
        return made

    patch(journal.Journal, "_plan", without)


def _no_checksum(patch: Patch) -> None:
    def unchecked(half: memoryview, at: int, seed: int, _: bool) -> Any:
        if at + journal.GROUP.size > len(half):
            return None
        magic, _, size, lap, number, count, durable_bytes = journal.GROUP.unpack_from(half, at)
        if magic != journal.GROUP_MAGIC or not journal.GROUP.size <= size <= len(half) - at:
            return None
        body = half[at + journal.GROUP.size : at + size]
        return reading._Group(lap, number, count, size, durable_bytes, body)

    patch(reading, "_group_at", unchecked)


FAULTS: Final[dict[str, Callable[[Patch], None]]] = {
    "journal-not-synced": _journal_not_synced,
    "group-before-lap": _group_before_lap,
    "no-lap-record": _no_lap_record,
    "flushed-early": _flushed_early,
    "laps-do-not-wait": _laps_do_not_wait,
    "files-not-synced": _files_not_synced,
    "roots-not-synced": _roots_not_synced,
    "no-row-of-the-journal": _no_row_of_the_journal,
    "manifest-not-synced": _manifest_not_synced,
    "old-journal-dropped-first": _old_journal_dropped_first,
    "purge-forgets-numbers": _purge_forgets_numbers,
    "replays-all": _replays_all,
    "no-checksum": _no_checksum,
    "files-before-the-tail": _files_before_the_tail,
    "lap-before-the-tail": _lap_before_the_tail,
}
UNSYNCED: Final = frozenset({"files-before-the-tail", "lap-before-the-tail"})
"""Faults of a journal that does not wait."""
READING: Final = frozenset({"replays-all", "no-checksum"})
"""Faults of what reads a folder after a crash."""
