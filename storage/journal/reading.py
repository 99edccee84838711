"""The entries of a journal after a crash, and what of its file the disk may lack. Writes nothing but that again.

A file is one of these cases, and of one only. Each part of it is read by the first row that fits.

| case | of | what is there | what is done |
| --- | --- | --- | --- |
| @TITLE | file | the title is not that of a journal, or of another one, or the file has another size | refuse |
| @HEAD | head | no record of a lap can be read | refuse |
| @BEFORE | lap before the newest | it can't be read up to the length that the newest lap's record gives it | refuse |
| @LAP | half after the newest lap | a group of a lap that no record names: that record is damaged | refuse |
| @GAP | newest lap | behind its end, a group before which the disk had more than that: the end is damage | refuse |
| @TORN | newest lap | behind its end, groups before which the disk had no more: none of them counts | read to the end |
| @END | newest lap | behind its end, no group of this lap | read to the end |

The **end** of the newest lap is its first place without a whole group. @GAP is what tells damage from an interrupted
write: a group says how many bytes of its lap were on the disk before it was written, and these can't be lost in a power
cut. If groups wait for the disk (durability `full`), all bytes before a group are, so @TORN is never met then; the
group that was being written at the crash is at the end, can't be read, and was not confirmed. If they don't, the disk
may have got pages of the last second in any order; what is read is the beginning of what was confirmed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from ..checksum import crc32
from ..folder import wait_for_disk
from .journal import (
    CHECKED_FROM,
    DELETED,
    GROUP,
    GROUP_1,
    GROUP_MAGIC,
    HALF_BYTES,
    HEAD_BYTES,
    LAP,
    LAP_PLACES,
    MAGIC,
    MAGIC_1,
    ROW,
    TABLE,
    lap_record,
    title_of,
)
from .rows import Rows


class Case(Enum):
    """What a journal's file is after a crash; the table above says what each means."""

    TITLE = "@TITLE"
    HEAD = "@HEAD"
    BEFORE = "@BEFORE"
    LAP = "@LAP"
    GAP = "@GAP"
    TORN = "@TORN"
    END = "@END"


class UnreadableJournalError(ValueError):
    """A journal's file is refused; `case` says as what."""

    def __init__(self, case: Case, text: str) -> None:
        super().__init__(text)
        self.case = case


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Entry:
    """The rows that one batch of the store of this name has changed, packed in so many bytes; numbers go up."""

    number: int
    store: str
    rows: Rows
    byte_count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Recovered:
    """What a journal's file has: its entries, in order, and how it was read.

    The disk may lack the `doubtful_bytes` of the file that begin at `doubtful_at`, even if they can be read.
    """

    case: Case
    entries: list[Entry]
    doubtful_at: int
    doubtful_bytes: int


def read_journal(file: Path, journal_id: str) -> list[Entry]:
    """Return the entries of a journal in order; the last groups may be missing if the disk did not get them.

    ValueError: it is another journal, or damaged. OSError.
    """
    return recovered(file.read_bytes(), journal_id).entries


def keep_journal(file: Path, journal_id: str) -> None:
    """Put on the disk what can be read of a journal, before any of it is replayed into a file. ValueError, OSError.

    A killed process may have left it to the kernel, or to pages of a failed wait, which are called clean and may not be
    on the disk. What one store's file gets, a power cut must not leave there without what was confirmed before it.
    """
    content = file.read_bytes()
    found = recovered(content, journal_id)
    if not found.doubtful_bytes:
        return
    doubtful = content[found.doubtful_at : found.doubtful_at + found.doubtful_bytes]
    fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
    try:
        os.pwrite(fd, doubtful, found.doubtful_at)
        wait_for_disk(fd)
    finally:
        os.close(fd)


def recovered(content: bytes, journal_id: str) -> Recovered:
    """Read the content of a journal's file. UnreadableJournalError."""
    is_1 = content.startswith(MAGIC_1)
    if not is_1 and not content.startswith(MAGIC):
        raise UnreadableJournalError(Case.TITLE, "it is not a journal of emubus")
    if not content.startswith(title_of(journal_id, MAGIC_1 if is_1 else MAGIC)):
        raise UnreadableJournalError(Case.TITLE, "it belongs to another data folder, or to another run")
    if len(content) != HEAD_BYTES + 2 * HALF_BYTES:
        sizes = f"{len(content)} bytes instead of {HEAD_BYTES + 2 * HALF_BYTES}"
        raise UnreadableJournalError(Case.TITLE, f"it has {sizes}")
    seed = crc32(journal_id.encode())
    lap, used_before = _newest_lap(content, seed)
    before = _Lap(content, lap - 1, seed, is_1, used_before)
    if before.end != used_before:
        raise UnreadableJournalError(
            Case.BEFORE, f"it is damaged: lap {lap - 1} can be read up to byte {before.end}, and has {used_before}"
        )
    after = _Lap(content, lap + 1, seed, is_1, 0)
    for group in after.groups_behind(0):
        text = f"it is damaged: entry {group.number} can be read, and the head lacks lap {group.lap}"
        raise UnreadableJournalError(Case.LAP, text)
    newest = _Lap(content, lap, seed, is_1)
    case = Case.END
    for group in newest.groups_behind(newest.end + 1):
        if group.lap > lap or group.durable_bytes > newest.end:
            text = f"it is damaged: entry {group.number} can be read, and one before it can't"
            raise UnreadableJournalError(Case.GAP, text)
        case = Case.TORN
    doubtful = newest.groups[-1].durable_bytes if newest.groups else newest.end
    at = HEAD_BYTES + (lap % 2) * HALF_BYTES + doubtful
    groups = [*before.groups, *newest.groups]
    return Recovered(case, [entry for group in groups for entry in group.entries()], at, newest.end - doubtful)


def _newest_lap(content: bytes, seed: int) -> tuple[int, int]:
    found: list[tuple[int, int]] = []
    for place in LAP_PLACES:
        lap, used_before = LAP.unpack_from(content, place)[2:]
        if content[place : place + LAP.size] == lap_record(lap, used_before, seed):
            found.append((lap, used_before))
    if not found:
        raise UnreadableJournalError(Case.HEAD, "it is damaged: its head can't be read")
    return max(found)


class _Lap:
    """The groups of a lap from the beginning of its half, up to `used_bytes` if that is known, and where they end."""

    def __init__(self, content: bytes, lap: int, seed: int, is_1: bool, used_bytes: int | None = None) -> None:
        start = HEAD_BYTES + (lap % 2) * HALF_BYTES
        self._lap, self._seed, self._is_1 = lap, seed, is_1
        self._half = memoryview(content)[start : start + HALF_BYTES]
        self.groups: list[_Group] = []
        self.end = 0
        while self.end != used_bytes:
            group = _group_at(self._half, self.end, seed, is_1)
            if group is None or group.lap != lap:
                break
            self.groups.append(group)
            self.end += group.byte_count

    def groups_behind(self, start: int) -> Iterator[_Group]:
        """Yield the groups of this lap, or of a later one, at `start` and behind it, wherever they are."""
        content = bytes(self._half)
        at = content.find(GROUP_MAGIC, start)
        while at >= 0:
            group = _group_at(self._half, at, self._seed, self._is_1)
            if group is not None and group.lap >= self._lap:
                yield group
            at = content.find(GROUP_MAGIC, at + 1)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class _Group:
    lap: int
    number: int
    entry_count: int
    byte_count: int
    durable_bytes: int
    body: memoryview

    def entries(self) -> Iterator[Entry]:
        """Yield the entries. ValueError."""
        at = 0
        for index in range(self.entry_count):
            began = at
            store, rows, at = _unpack_entry(self.body, at)
            yield Entry(self.number + index, store, rows, at - began)


def _group_at(half: memoryview, at: int, seed: int, is_1: bool) -> _Group | None:
    """Return the group at this place, None if there is no complete one."""
    head = GROUP_1 if is_1 else GROUP
    if at + head.size > len(half):
        return None
    magic, checksum, size, lap, number, count, *more = head.unpack_from(half, at)
    if magic != GROUP_MAGIC or not head.size <= size <= len(half) - at:
        return None
    if crc32(half[at + CHECKED_FROM : at + size], seed) != checksum:
        return None
    return _Group(lap, number, count, size, more[0] if more else at, half[at + head.size : at + size])


def _unpack_entry(body: memoryview, at: int) -> tuple[str, Rows, int]:
    name_bytes, table_count = body[at], body[at + 1]
    at += 2
    store = str(body[at : at + name_bytes], "utf-8")
    at += name_bytes
    rows: dict[str, Mapping[bytes, bytes | None]] = {}
    for _ in range(table_count):
        name_bytes, row_count = TABLE.unpack_from(body, at)
        at += TABLE.size
        changes: dict[bytes, bytes | None] = {}
        rows[str(body[at : at + name_bytes], "utf-8")] = changes
        at += name_bytes
        for _ in range(row_count):
            key_bytes, value_bytes = ROW.unpack_from(body, at)
            at += ROW.size
            key = bytes(body[at : at + key_bytes])
            at += key_bytes
            if value_bytes == DELETED:
                changes[key] = None
            else:
                changes[key] = bytes(body[at : at + value_bytes])
                at += value_bytes
    return store, rows, at
