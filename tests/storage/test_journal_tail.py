"""A journal that does not wait for the disk: what is on it when, and that a power cut leaves the beginning of the rest.

The disk is modelled: what was written since the last wait may be there or not, by sectors.
"""

from __future__ import annotations

import errno
import os
import random
import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from emubus.storage import Durability, StoreFailed, newest_root, open_store
from emubus.storage.journal import journal as journal_file
from emubus.storage.journal import reading
from emubus.storage.journal.journal import (
    CHECKED_FROM,
    GROUP_1,
    GROUP_MAGIC,
    HEAD_BYTES,
    LAP_PLACES,
    MAGIC,
    MAGIC_1,
    Journal,
    JournalFull,
)
from emubus.storage.journal.reading import Case, UnreadableJournalError, keep_journal, recovered

from .test_journal import ID, Batch, Shown, flipped, put, shown

HALF_BYTES: Final = 4096
SECTOR_BYTES: Final = 512
PWRITE: Final = os.pwrite
TABLES: Final = ("rows",)


class Disk:
    """What of the journal's file is on the disk, and what happened to it, in order."""

    def __init__(self, path: Path, patch: pytest.MonkeyPatch) -> None:
        self._path = path
        self.durable = b""
        self.events: list[str] = []
        self.fails = 0
        """So many waits for the journal fail; what was written is then clean, and not on the disk."""
        self._dirty: set[int] = set()  # sectors
        patch.setattr(os, "pwrite", self._pwrite)
        patch.setattr(os, "fdatasync", self.sync)

    def is_journal(self, fd: int) -> bool:
        return os.fstat(fd).st_ino == self._path.stat().st_ino

    def _pwrite(self, fd: int, data: bytes, offset: int) -> int:
        if self.is_journal(fd):
            self.durable = self.durable or self._path.read_bytes()
            kind = {LAP_PLACES[0]: "lap", LAP_PLACES[1]: "lap"}.get(offset, "group") if data else "nothing"
            self.events.append(kind)
            self._dirty.update(range(offset // SECTOR_BYTES, -(-(offset + len(data)) // SECTOR_BYTES)))
        return PWRITE(fd, data, offset)

    def sync(self, fd: int) -> None:
        if not self.is_journal(fd):
            self.events.append("file")
            return
        dirty, self._dirty = self._dirty, set()
        if self.fails:
            self.fails -= 1
            self.events.append("failed")
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        self.durable = self._with(dirty)
        self.events.append("sync")

    def _with(self, sectors: set[int]) -> bytes:
        content, found = self._path.read_bytes(), bytearray(self.durable)
        for each in sectors:
            found[each * SECTOR_BYTES : (each + 1) * SECTOR_BYTES] = content[each * SECTOR_BYTES :][:SECTOR_BYTES]
        return bytes(found)

    def after_power_cut(self, chance: random.Random) -> bytes:
        """The file with any of the sectors that were not waited for."""
        share = chance.random()
        return self._with({each for each in self._dirty if chance.random() < share})

    def took(self) -> list[str]:
        """What happened since the last call."""
        events, self.events = self.events, []
        return events


@pytest.fixture
def journal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Journal]:
    for module in (journal_file, reading):
        monkeypatch.setattr(module, "HALF_BYTES", HALF_BYTES)
    made = Journal(tmp_path / "journal", ID, waits=False)
    yield made
    made.close()


@pytest.fixture
def disk(journal: Journal, monkeypatch: pytest.MonkeyPatch) -> Disk:
    return Disk(journal.path, monkeypatch)


def read(content: bytes) -> Shown:
    return shown(recovered(content, ID).entries)


def row(number: int, size: int = 100) -> Batch:
    return Batch("s", {b"%d" % number: bytes(size)})


def put_until_lap(journal: Journal, lap: int, first: int) -> int:
    """Put rows until this lap has begun; return the number of the next one."""
    while journal.lap < lap:
        put(journal, row(first))
        first += 1
    return first


# ---- what is on the disk when


def test_a_group_is_confirmed_without_a_wait_and_a_sync_waits_once(journal: Journal, disk: Disk) -> None:
    assert (journal.tail_bytes, journal.waits) == (0, False)
    put(journal, row(1))
    put(journal, row(2))
    assert (disk.took(), journal.tail_bytes > 0) == (["group", "group"], True)
    assert len(read(journal.path.read_bytes())) == 2  # a kill of the process loses nothing
    assert read(disk.durable) == []
    journal.sync()
    journal.sync()
    assert (disk.took(), journal.tail_bytes, len(read(disk.durable))) == (["sync"], 0, 2)


def test_a_group_may_be_written_on_the_thread_that_starts_it(journal: Journal, disk: Disk) -> None:
    assert journal.start([row(1)], here=True)
    assert (journal.has_ended, disk.took()) == (True, ["group"])
    assert journal.finish() == [None]
    assert journal.start([row(2)])  # not allowed: on the journal's thread
    assert not journal.has_ended
    assert journal.finish() == [None]
    with journal._sync_lock:  # while a sync waits, a write may have to wait, too
        assert journal.start([row(3)], here=True)
        assert not journal.has_ended
    assert journal.finish() == [None]
    assert len(read(journal.path.read_bytes())) == 3


def test_a_lap_begins_once_the_tail_is_on_the_disk_and_never_on_the_thread_that_starts_it(
    journal: Journal, disk: Disk
) -> None:
    number = put_until_lap(journal, 2, 0)
    assert disk.took()[-6:] == ["group", "nothing", "sync", "lap", "sync", "group"]
    journal.flushed("s")
    while journal._used_bytes + 200 < HALF_BYTES:
        put(journal, row(number))
    journal.flushed("s")
    disk.took()
    assert journal.start([row(number, 300)], here=True)
    assert not journal.has_ended
    assert journal.finish() == [None]
    assert (journal.lap, disk.took()) == (3, ["nothing", "sync", "lap", "sync", "group"])


def test_without_a_tail_a_lap_begins_with_its_record(journal: Journal, disk: Disk) -> None:
    while journal._used_bytes + 200 < HALF_BYTES:
        put(journal, row(0))
    journal.sync()
    disk.took()
    put(journal, row(1, 300))
    assert (journal.lap, disk.took()) == (2, ["lap", "sync", "group"])


def test_closing_it_puts_the_tail_on_the_disk(journal: Journal, disk: Disk) -> None:
    put(journal, row(1))
    journal.close()
    assert disk.took() == ["group", "sync"]


@pytest.mark.parametrize("behind", [False, True], ids=["own journal", "catalog"])
def test_a_files_commit_comes_after_all_that_was_confirmed_before(
    journal: Journal, disk: Disk, tmp_path: Path, behind: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = open_store(
        tmp_path / "store-00",
        TABLES,
        Durability.SECOND,
        journal=None if behind else journal,
        behind=journal if behind else None,
    )
    put(journal, Batch("another store", {b"x": b""}))
    data_file = tmp_path / "store-00" / "data.mdb"
    root = newest_root(data_file).transaction
    roots: list[int] = []

    def noting(fd: int) -> None:
        if disk.is_journal(fd):
            roots.append(newest_root(data_file).transaction)
        disk.sync(fd)

    monkeypatch.setattr(os, "fdatasync", noting)
    with store.begin(1 << 20) as batch:
        batch.put("rows", b"k", b"v")
        batch.commit()
    assert (roots, newest_root(data_file).transaction, journal.tail_bytes) == ([root], root + 1, 0)
    store.close()


# ---- what a power cut leaves


@pytest.mark.parametrize("seed", range(8))
def test_a_power_cut_leaves_the_beginning_of_what_was_confirmed(journal: Journal, disk: Disk, seed: int) -> None:
    chance = random.Random(seed)
    confirmed: Shown = []
    synced = first = 0
    met: set[Case] = set()
    for number in range(60):
        lap = journal.lap
        put(journal, Batch("s", {b"%03d" % number: chance.randbytes(chance.randrange(400))}))
        confirmed.append(read(journal.path.read_bytes())[-1])
        if journal.lap > lap:
            synced = number
            journal.flushed("s")
            first = len(confirmed) - sum(1 for _ in read(journal.path.read_bytes()))
        if chance.random() < 0.1:
            journal.sync()
            synced = number + 1
        for _ in range(4):
            content = disk.after_power_cut(chance)
            found = recovered(content, ID)
            met.add(found.case)
            entries = shown(found.entries)
            assert entries == confirmed[first : first + len(entries)]
            assert first + len(entries) >= synced
    assert met == {Case.TORN, Case.END}


def test_damage_before_the_last_sync_is_refused_and_behind_it_looks_like_a_power_cut(
    journal: Journal, disk: Disk
) -> None:
    for number in range(6):
        if number == 3:
            journal.sync()
        put(journal, row(number))
    content = journal.path.read_bytes()
    size = journal._used_bytes // 6
    half = HEAD_BYTES + HALF_BYTES
    for number in range(6):
        damaged = flipped(content, half + number * size + 60, 0)
        if number < 3:
            with pytest.raises(UnreadableJournalError) as caught:
                read(damaged)
            assert caught.value.case is Case.GAP
        else:
            assert len(read(damaged)) == number


def test_each_case_of_recovery_is_met_and_has_its_label(journal: Journal, disk: Disk, tmp_path: Path) -> None:
    put_until_lap(journal, 2, 0)
    for number in range(3):
        put(journal, row(number))
    content = journal.path.read_bytes()
    lap_1, lap_2, size = HEAD_BYTES + HALF_BYTES, HEAD_BYTES, journal._used_bytes // 4
    unsynced = flipped(content, lap_2 + size + 60, 0)
    journal.sync()
    put(journal, row(9))
    synced = flipped(journal.path.read_bytes(), lap_2 + size + 60, 0)
    contents = {
        b"junk": Case.TITLE,
        content[:-1]: Case.TITLE,
        flipped(content, len(MAGIC), 0): Case.TITLE,
        flipped(flipped(content, LAP_PLACES[0] + 9, 0), LAP_PLACES[1] + 9, 0): Case.HEAD,
        flipped(content, lap_1 + 60, 0): Case.BEFORE,
        flipped(content, LAP_PLACES[0] + 9, 0): Case.LAP,
        synced: Case.GAP,
        unsynced: Case.TORN,
        content: Case.END,
    }
    for each, case in contents.items():
        try:
            found = recovered(each, ID).case
        except UnreadableJournalError as error:
            found = error.case
        assert found is case
    assert set(contents.values()) == set(Case)


def test_a_journal_of_a_release_without_tails_is_read(journal: Journal) -> None:
    put(journal, row(1))
    put(journal, row(2))
    content = bytearray(journal.path.read_bytes())
    content[: len(MAGIC)] = MAGIC_1
    at = HEAD_BYTES + HALF_BYTES
    body = b"\x01\x01s" + struct.pack("<BI", 4, 1) + b"rows" + struct.pack("<Hi", 1, 2) + b"kvv"
    for number in (1, 2):
        rest = GROUP_1.pack(GROUP_MAGIC, 0, GROUP_1.size + len(body), 1, number, 1)[CHECKED_FROM:]
        checksum = zlib.crc32(rest + body, zlib.crc32(ID.encode()))
        group = GROUP_MAGIC + checksum.to_bytes(4, "little") + rest + body
        content[at : at + len(group)] = group
        at += len(group)
    content[at : HEAD_BYTES + 2 * HALF_BYTES] = bytes(HEAD_BYTES + 2 * HALF_BYTES - at)
    assert read(bytes(content)) == [("s", {"rows": {b"k": b"vv"}})] * 2
    with pytest.raises(UnreadableJournalError, match="one before it can't"):
        read(flipped(bytes(content), HEAD_BYTES + HALF_BYTES + 45, 0))


def test_what_a_killed_process_left_to_the_system_is_on_the_disk_before_a_replay(journal: Journal, disk: Disk) -> None:
    put(journal, row(1))
    journal.sync()
    put(journal, row(2))
    disk._dirty.clear()  # as after a wait that failed: clean, and not on the disk
    disk.took()
    assert (len(read(disk.durable)), len(read(journal.path.read_bytes()))) == (1, 2)
    keep_journal(journal.path, ID)
    assert (disk.took(), len(read(disk.durable))) == (["group", "sync"], 2)


# ---- a disk that fails


def test_a_failed_sync_is_said_and_its_tail_is_written_again(journal: Journal, disk: Disk) -> None:
    put(journal, row(1))
    disk.fails = 1
    with pytest.raises(OSError, match="Input/output error"):
        journal.sync()
    assert journal.failed
    tail = journal.tail_bytes
    assert journal.failure == (f"journal: Input/output error; {tail} bytes are confirmed and may not be on the disk")
    (error,) = journal.commit([row(2)])
    assert isinstance(error, JournalFull)
    with pytest.raises(JournalFull):
        journal.recover()  # the rows are not in the file yet
    assert read(disk.durable) == [("s", {"rows": {b"1": bytes(100)}})]
    journal.flushed("s")
    journal.recover()
    put(journal, row(3))
    assert (journal.failed, journal.lap, len(read(journal.path.read_bytes()))) == (False, 2, 2)


def test_while_the_tail_cannot_be_written_again_no_file_takes_anything_newer(
    journal: Journal, disk: Disk, tmp_path: Path
) -> None:
    store = open_store(tmp_path / "store-00", TABLES, Durability.SECOND, journal=journal)
    put(journal, Batch("another store", {b"x": b""}))
    root = newest_root(tmp_path / "store-00" / "data.mdb").transaction
    disk.fails = 2
    for _ in range(2):
        with store.begin(1 << 20) as batch:
            batch.put("rows", b"k", b"v")
            with pytest.raises(StoreFailed, match="Input/output error"):
                batch.commit()
        assert newest_root(tmp_path / "store-00" / "data.mdb").transaction == root
        store.recover()
    with store.begin(1 << 20) as batch:
        batch.put("rows", b"k", b"v")
        batch.commit()
    assert (journal.tail_bytes, newest_root(tmp_path / "store-00" / "data.mdb").transaction) == (0, root + 1)
    store.close()


def test_a_deleted_journal_keeps_no_file_from_taking_the_rows(
    journal: Journal, disk: Disk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(journal, row(1))
    monkeypatch.setattr("emubus.storage.journal.journal.is_in_place", lambda *_: False)
    (error,) = journal.commit([row(2)])
    assert isinstance(error, JournalFull)
    disk.took()
    journal.sync()
    assert (disk.took(), journal.failed) == ([], True)
