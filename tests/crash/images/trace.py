"""What a recorded process did to the files of a folder, and images of what a crash may leave of them.

A trace is a list of records in the order in which they happened; a *position* is a moment between two of them. The
model of the disk: a write is in the kernel's cache when it begins; it is durable when a sync of its file that began
after the write's end has succeeded, or at its own end in a file that was opened with O_DSYNC. What is not durable may
be on the disk, or a part of it: sectors of 512 bytes are written whole or not at all, in any order. After a sync that
failed the pages are clean in the cache and perhaps not on the disk: a later sync leaves them out. A name is durable
when its folder was synced after it was made.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from enum import IntEnum, StrEnum
from pathlib import Path
from struct import Struct
from typing import Final

RECORD: Final = Struct("<BBBBIIQQ")  # `struct record` of recorder.c
SECTOR_BYTES: Final = 512
PAGE_BYTES: Final = 4096


class Kind(IntEnum):
    """What a record is about, as in recorder.c."""

    OPEN = 1
    WRITE = 2
    SYNC = 3
    TRUNCATE = 4
    RENAME = 5
    UNLINK = 6
    MKDIR = 7
    RMDIR = 8
    NOTE = 9


DSYNC, CREATED, FOLDER = 1, 2, 4


@dataclass(frozen=True, slots=True)
class Record:
    """One call, or its end; `op` joins the two. `offset` is a size for TRUNCATE, and at the end of a WRITE."""

    kind: Kind
    is_end: bool
    flags: int
    failed: bool
    op: int
    inode: int
    offset: int
    data: bytes

    @property
    def paths(self) -> list[Path]:
        """The paths of a change of names."""
        return [Path(each.decode()) for each in self.data.split(b"\0")[:-1]]


def read_trace(log: Path) -> list[Record]:
    """The records of one or several processes that were recorded one after the other.

    A write during which its process was killed ends there: the kernel finishes it, and what the next process writes
    into the same place comes behind it.
    """
    content, at, found, shift, last_op = log.read_bytes(), 0, list[Record](), 0, 0
    under_way: dict[int, Record] = {}
    while at + RECORD.size <= len(content):
        kind, phase, flags, failed, op, size, inode, offset = RECORD.unpack_from(content, at)
        if op == 1 and not phase:
            shift = last_op  # another process counts from 1
            found += (replace(each, is_end=True, offset=len(each.data), data=b"") for each in under_way.values())
            under_way.clear()
        data = content[at + RECORD.size : at + RECORD.size + size]
        last_op = max(last_op, op + shift)
        found.append(Record(Kind(kind), bool(phase), flags, bool(failed), op + shift, inode, offset, data))
        if kind == Kind.WRITE and not phase:
            under_way[op + shift] = found[-1]
        else:
            under_way.pop(op + shift, None)
        at += RECORD.size + size
    return found


@dataclass(slots=True, eq=False)
class Change:
    """A write that is not durable, or a new size (`data` is None)."""

    offset: int
    data: bytes | None
    has_ended: bool = False
    is_lost: bool = False
    """A sync of it has failed: it may be on the disk, and no later sync brings it there."""


@dataclass(slots=True, eq=False)
class File:
    """A file: what of it is durable, and what was done to it since, in order."""

    durable: bytearray = field(default_factory=bytearray)
    pending: list[Change] = field(default_factory=list[Change])

    def sync(self, changes: Sequence[Change]) -> None:
        """Make changes durable, and with them what is lost of their pages: the kernel writes pages."""
        synced = set(changes)
        pages = {page for each in changes for page in pages_of(each)}
        left: list[Change] = []
        for each in self.pending:
            if each in synced:
                apply(self.durable, each)
            elif each.is_lost and not pages.isdisjoint(pages_of(each)):
                for part in split(each, PAGE_BYTES):
                    if pages.isdisjoint(pages_of(part)):
                        left.append(part)
                    else:
                        apply(self.durable, part)
            else:
                left.append(each)
        self.pending = left


def pages_of(change: Change) -> range:
    """The pages that a write touches."""
    size = len(change.data or b"")
    return range(change.offset // PAGE_BYTES, -(-(change.offset + size) // PAGE_BYTES))


def split(write: Change, unit: int) -> Iterator[Change]:
    """A write in parts that do not cross a multiple of `unit`."""
    data, offset = write.data or b"", write.offset
    while data:
        size = unit - offset % unit
        yield Change(offset, data[:size], write.has_ended, write.is_lost)
        data, offset = data[size:], offset + size


def apply(content: bytearray, change: Change) -> None:
    """Make a change."""
    if change.data is None:
        del content[change.offset :]
        content.extend(bytes(change.offset - len(content)))
        return
    end = change.offset + len(change.data)
    content.extend(bytes(max(0, end - len(content))))
    content[change.offset : end] = change.data


@dataclass(slots=True, eq=False)
class Folder:
    """The names in a folder: those that are durable, and the changes since: name and inode, None: no such name."""

    durable: dict[str, int] = field(default_factory=dict[str, int])
    pending: list[tuple[str, int | None]] = field(default_factory=list[tuple[str, int | None]])

    def names(self, pending_count: int | None = None) -> dict[str, int]:
        """The names after the first changes, after all by default."""
        found = dict(self.durable)
        for name, inode in self.pending[:pending_count]:
            if inode is None:
                found.pop(name, None)
            else:
                found[name] = inode
        return found


class Loss(StrEnum):
    """What of that which is not durable a crash leaves."""

    ALL = "nothing of it is there"
    NONE = "all of it is there"
    FILES = "of each file all or nothing"
    WRITES = "any of the writes"
    SECTORS = "any sectors of the writes"
    LATER = "what was done before some moment"


class Disk:
    """The folder `root` during a trace; `go_to` goes through it once, `image` shows what a crash there may leave."""

    def __init__(self, records: Sequence[Record], root: Path) -> None:
        self._records = records
        self._root = root
        self._at = 0
        self._files: dict[int, File] = {}
        self._above = Folder()  # has the name of `root`
        self._folders: dict[int, Folder] = {}
        self._writes: dict[int, Change] = {}
        self._syncs: dict[int, list[Change]] = {}

    def go_to(self, position: int) -> None:
        """Go on to this position."""
        for record in self._records[self._at : position]:
            self._take(record)
        self._at = position

    def _take(self, record: Record) -> None:
        match record.kind:
            case Kind.OPEN:
                self._open(record)
            case Kind.MKDIR:
                self._folders[record.inode] = Folder()
                self._name(record.paths[0], record.inode)
            case Kind.WRITE if not record.is_end:
                change = self._writes[record.op] = Change(record.offset, record.data)
                self._files[record.inode].pending.append(change)
            case Kind.WRITE:
                self._end_write(record)
            case Kind.TRUNCATE:
                self._files[record.inode].pending.append(Change(record.offset, None, has_ended=True))
            case Kind.SYNC if not record.is_end:
                if record.inode in self._files:
                    pending = self._files[record.inode].pending
                    self._syncs[record.op] = [each for each in pending if each.has_ended and not each.is_lost]
            case Kind.SYNC:
                self._end_sync(record)
            case Kind.RENAME:
                old, new = record.paths
                inode = self._inode(old)
                self._name(new, inode)
                self._name(old, None)
            case Kind.UNLINK | Kind.RMDIR:
                self._name(record.paths[0], None)
            case Kind.NOTE:
                pass

    def _open(self, record: Record) -> None:
        if record.flags & FOLDER:
            self._folders.setdefault(record.inode, self._above if record.paths[0] == self._root.parent else Folder())
            return
        if record.flags & CREATED:
            self._files[record.inode] = File()
            self._name(record.paths[0], record.inode)

    def _end_write(self, record: Record) -> None:
        change = self._writes.pop(record.op)
        file = self._files[record.inode]
        if record.failed:
            file.pending.remove(change)
            return
        change.data = (change.data or b"")[: record.offset]  # a write may be short
        change.has_ended = True
        if record.flags & DSYNC:
            file.sync([change])

    def _end_sync(self, record: Record) -> None:
        folder = self._folders.get(record.inode)
        if folder is not None:
            if not record.failed:
                folder.durable, folder.pending = folder.names(), []
            return
        changes = self._syncs.pop(record.op)
        if not record.failed:
            self._files[record.inode].sync(changes)
        for each in changes if record.failed else ():
            each.is_lost = True

    def _folder_of(self, path: Path) -> Folder:
        if path == self._root:
            return self._above
        return self._folders[self._inode(path.parent)]

    def _inode(self, path: Path) -> int:
        return self._folder_of(path).names()[path.name]

    def _name(self, path: Path, inode: int | None) -> None:
        self._folder_of(path).pending.append((path.name, inode))

    # ---- images

    def image(self, loss: Loss, chance: random.Random) -> dict[Path, bytes | None]:
        """The files of the folder after a crash, by their paths in it; None is a folder."""
        found: dict[Path, bytes | None] = {}
        top = self._names(self._above, loss, chance)
        if self._root.name in top:
            self._add(Path(), top[self._root.name], loss, chance, found)
        return found

    def _add(self, path: Path, inode: int, loss: Loss, chance: random.Random, found: dict[Path, bytes | None]) -> None:
        if inode in self._files:
            found[path] = bytes(self._content(self._files[inode], loss, chance))
            return
        found[path] = None
        for name, each in self._names(self._folders[inode], loss, chance).items():
            self._add(path / name, each, loss, chance, found)

    @staticmethod
    def _names(folder: Folder, loss: Loss, chance: random.Random) -> dict[str, int]:
        if loss is Loss.ALL:
            return folder.names(0)
        if loss is Loss.NONE:
            return folder.names()
        return folder.names(chance.randint(0, len(folder.pending)))

    @staticmethod
    def _content(file: File, loss: Loss, chance: random.Random) -> bytearray:
        content = bytearray(file.durable)
        for change in left(file.pending, loss, chance):
            apply(content, change)
        return content


def left(pending: Sequence[Change], loss: Loss, chance: random.Random) -> Iterator[Change]:
    """What a crash leaves of changes that are not durable."""
    match loss:
        case Loss.ALL:
            return
        case Loss.NONE:
            yield from pending
        case Loss.FILES:
            yield from pending if chance.random() < 0.5 else ()
        case Loss.LATER:
            yield from pending[: chance.randint(0, len(pending))]
        case Loss.WRITES:
            yield from (each for each in pending if chance.random() < 0.5)
        case Loss.SECTORS:
            for each in pending:
                yield from (each,) if each.data is None else sectors(each, chance)


def sectors(write: Change, chance: random.Random) -> Iterator[Change]:
    """Some sectors of a write, as parts of it."""
    share = chance.random()
    return (each for each in split(write, SECTOR_BYTES) if chance.random() < share)
