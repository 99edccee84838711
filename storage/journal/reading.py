"""The entries of a journal after a crash. Writes nothing."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from .journal import (
    CHECKED_FROM,
    DELETED,
    GROUP,
    GROUP_MAGIC,
    HALF_BYTES,
    HEAD_BYTES,
    LAP,
    LAP_PLACES,
    MAGIC,
    ROW,
    TABLE,
    lap_record,
    title_of,
)
from .row_layers import Rows


@dataclass(frozen=True, slots=True)
class Entry:
    """The rows that one batch of the store of this name has changed, packed in so many bytes; numbers go up."""

    number: int
    store: str
    rows: Rows
    byte_count: int


def read_journal(file: Path, journal_id: str) -> list[Entry]:
    """Return the entries of a journal in order; the last group may be missing if its write was not confirmed.

    ValueError: it is another journal, or damaged. OSError.
    """
    return entries_of(file.read_bytes(), journal_id)


def entries_of(content: bytes, journal_id: str) -> list[Entry]:
    """Return the entries of a journal's file as `read_journal` does. ValueError."""
    if not content.startswith(MAGIC):
        raise ValueError("it is not a journal of emubus")
    if not content.startswith(title_of(journal_id)):
        raise ValueError("it belongs to another data folder, or to another run")
    if len(content) != HEAD_BYTES + 2 * HALF_BYTES:
        raise ValueError(f"it has {len(content)} bytes instead of {HEAD_BYTES + 2 * HALF_BYTES}")
    seed = zlib.crc32(journal_id.encode())
    lap, used_before = _newest_lap(content, seed)
    before, _ = _read_lap(content, lap - 1, seed, used_before)
    newest, end = _read_lap(content, lap, seed)
    _refuse_damage(_half(content, lap), end + 1, lap, seed)
    _refuse_damage(_half(content, lap + 1), 0, lap + 1, seed)
    return [*before, *newest]


def _newest_lap(content: bytes, seed: int) -> tuple[int, int]:
    found: list[tuple[int, int]] = []
    for place in LAP_PLACES:
        lap, used_before = LAP.unpack_from(content, place)[2:]
        if content[place : place + LAP.size] == lap_record(lap, used_before, seed):
            found.append((lap, used_before))
    if not found:
        raise ValueError("it is damaged: its head can't be read")
    return max(found)


def _half(content: bytes, lap: int) -> memoryview:
    start = HEAD_BYTES + (lap % 2) * HALF_BYTES
    return memoryview(content)[start : start + HALF_BYTES]


def _read_lap(content: bytes, lap: int, seed: int, used_bytes: int | None = None) -> tuple[list[Entry], int]:
    """Return the entries of a lap, and where its groups end. ValueError unless that is at `used_bytes`, if known."""
    entries: list[Entry] = []
    half, at = _half(content, lap), 0
    while at != used_bytes and (group := _group_at(half, at, seed)) is not None and group.lap == lap:
        entries += group.entries()
        at += group.byte_count
    if used_bytes not in (None, at):
        raise ValueError(f"it is damaged: lap {lap} can be read up to byte {at}, and has {used_bytes}")
    return entries, at


def _refuse_damage(half: memoryview, start: int, lap: int, seed: int) -> None:
    """ValueError if a group of this lap, or of a later one, stands at `start` or behind it.

    Behind the end of the newest lap: that end is damage then, not an interrupted write. Anywhere in the half of a lap
    that the head does not know: its record is, since no group of a lap is written before the lap's record is durable.
    """
    content = bytes(half)
    at = content.find(GROUP_MAGIC, start)
    while at >= 0:
        group = _group_at(half, at, seed)
        if group is not None and group.lap >= lap:
            what = "one before it can't" if group.lap == lap and start else f"the head lacks lap {group.lap}"
            raise ValueError(f"it is damaged: entry {group.number} can be read, and {what}")
        at = content.find(GROUP_MAGIC, at + 1)


@dataclass(frozen=True, slots=True)
class _Group:
    lap: int
    number: int
    entry_count: int
    byte_count: int
    body: memoryview

    def entries(self) -> Iterator[Entry]:
        """Yield the entries. ValueError."""
        at = 0
        for index in range(self.entry_count):
            began = at
            store, rows, at = _unpacked(self.body, at)
            yield Entry(self.number + index, store, rows, at - began)


def _group_at(half: memoryview, at: int, seed: int) -> _Group | None:
    """Return the group at this place, None if there is no complete one."""
    if at + GROUP.size > len(half):
        return None
    magic, checksum, size, lap, number, count = GROUP.unpack_from(half, at)
    if magic != GROUP_MAGIC or not GROUP.size <= size <= len(half) - at:
        return None
    if zlib.crc32(half[at + CHECKED_FROM : at + size], seed) != checksum:
        return None
    return _Group(lap, number, count, size, half[at + GROUP.size : at + size])


def _unpacked(body: memoryview, at: int) -> tuple[str, Rows, int]:
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
