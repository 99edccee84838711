"""The journal of a data folder: small batches of all its stores, durable after one write and one wait for the disk.

A commit of LMDB waits for the disk twice, and each store for its own file. A batch in the journal waits once, together
with the batches of other stores that are ready. Its rows go into the store's file later, with a larger batch
(docs/decisions/0017). Knows the file: groups of entries in two halves, and when a half is free. Does not know stores.

The file: a head of HEAD_BYTES with the journal's id, then two halves. A **lap** fills one half with groups, the next
lap the other one; it begins when all rows of the lap before the current one are in their stores' files. The head says
which lap is the newest and how long the one before it was. One group is one write: checksum, length, lap, number of its
first entry, entries. After a crash the last group of the newest lap may be torn; its batches were not confirmed.
`commit` and `append` write on their caller's thread, one at a time; `start` has the writer's thread do it, so that the
owner's thread, which has all the rest, does not wait.
"""

from __future__ import annotations

import os
import struct
import threading
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from ..data_file import place_of
from ..folder import make_private_file
from .row_layers import ROW_BYTES, Rows
from .writing import DiskWriter, PythonWriter, Writes, Written, write_all

HEAD_BYTES: Final = 4096
HALF_BYTES: Final = 8 << 20
GROWTH_BYTES: Final = 64 << 10
"""The first group to reach a place writes zeros behind it, up to the next multiple of this: where a file grows, a file
system writes more than the group, and the wait for the disk takes 20 us longer."""

MAGIC: Final = b"emubus journal 1\n"
GROUP_MAGIC: Final = b"eGRP"

LAP_MAGIC: Final = b"eLAP"
LAP_PLACES: Final = (1024, 2048)  # in the head, for even and odd laps: a torn one leaves the other
LAP: Final = struct.Struct("<4sIQI")  # magic, checksum of the rest, lap, bytes used by the one before

GROUP: Final = struct.Struct("<4sIIQQI")  # magic, checksum of the rest, bytes in all, lap, first number, entries
CHECKED_FROM: Final = 8
TABLE: Final = struct.Struct("<BI")  # bytes of the name, rows
ROW: Final = struct.Struct("<Hi")  # bytes of key and value; DELETED
DELETED: Final = -1
_DELETIONS: Final = frozenset({type(None)})


class JournalFull(Exception):  # noqa: N818 - the state of the journal
    """There is no room until more stores have their rows in their own files. Nothing was written."""


class Committable(Protocol):
    """A batch that is committed here."""

    def start_commit(self) -> tuple[str, Rows]:
        """Return the store's name and the rows. Raises what refuses the batch."""
        ...

    def end_commit(self, byte_count: int, error: Exception | None) -> None:
        """The rows, so many bytes in memory, are durable; or raise the StoreError for an `error` of `append`."""
        ...


class _Group:
    """Batches that are committed together: those that can be have entries."""

    __slots__ = ("_errors", "_memory", "_started", "entries", "error")

    def __init__(self, batches: Sequence[object]) -> None:
        self.entries: list[tuple[str, bytes]] = []
        self.error: Exception | None = None
        """Of the group's writes."""
        self._errors: list[BaseException | None] = [None] * len(batches)
        self._started: list[tuple[int, Committable]] = []
        self._memory: list[int] = []
        for index, batch in enumerate(cast("Sequence[Committable]", batches)):
            try:
                store, rows = batch.start_commit()
            except BaseException as error:
                self._errors[index] = error
                continue
            entry = _packed(store, rows)
            self._started.append((index, batch))
            self.entries.append((store, entry))
            self._memory.append(len(entry) + ROW_BYTES * sum(map(len, rows.values())))

    def end(self) -> list[BaseException | None]:
        """End the batches after the writes; return each one's error."""
        for (index, batch), byte_count in zip(self._started, self._memory, strict=True):
            try:
                batch.end_commit(byte_count, self.error)
            except BaseException as error:
                self._errors[index] = error
        return self._errors


@dataclass(frozen=True, slots=True)
class _Plan:
    """What a group of entries of these stores writes; afterwards the journal is in `lap`, and has used and written so
    many bytes of its half."""

    writes: Writes
    stores: Sequence[str]
    lap: int
    used_bytes: int
    grown_bytes: int


class Journal:
    """A new journal in `file`, which must not exist; `make_writer` is `PythonWriter` or the same in C. OSError."""

    def __init__(self, file: Path, journal_id: str, make_writer: Callable[[int], DiskWriter] = PythonWriter) -> None:
        self.id = journal_id
        self.path = file
        self.failed = False
        """After a write that may be incomplete, nothing is appended before `recover`."""
        self._cause = ""  # of `failed`
        self.lap = 1
        self._used_bytes = 0  # of this lap's half
        self._grown_bytes = [0, 0]  # of the halves of even and odd laps: written once, at least with zeros
        self._next_number = 1
        self._oldest: dict[str, int] = {}  # store -> the first lap with rows that its own file lacks
        self._wanted: dict[str, Callable[[], object]] = {}
        self._lock = threading.Lock()  # held while a group is written
        self._number_lock = threading.Lock()
        with make_private_file(file) as made:
            made.write(head_of(journal_id))
            made.truncate(HEAD_BYTES + 2 * HALF_BYTES)  # room on the disk is taken later, in steps of GROWTH_BYTES
            made.flush()
            os.fsync(made.fileno())
        self._under_way: tuple[_Group, _Plan | None] | None = None  # between `start` and `finish`
        self._fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._writer = make_writer(self._fd)
        self._thread = threading.Thread(target=self._writer.run, name="journal", daemon=True)
        self._thread.start()
        status = os.fstat(self._fd)
        self._place = status.st_dev, status.st_ino
        self._seed = zlib.crc32(journal_id.encode())

    def on_flush_wanted(self, store: str, call: Callable[[], object]) -> None:
        """Call `call` on any thread when `store` should write its rows to its own file soon."""
        self._wanted[store] = call

    def next_number(self) -> int:
        """Return a number above all that were given; an entry below it that a store has seen is out of date."""
        return self._take_numbers(1)

    def _take_numbers(self, count: int) -> int:
        """Return the first of so many new numbers; never waits for the disk."""
        with self._number_lock:
            number = self._next_number
            self._next_number += count
        return number

    def commit(self, batches: Sequence[object]) -> list[BaseException | None]:
        """Commit batches of several stores in one group, on this thread; return each one's error. Any thread."""
        group = _Group(batches)
        try:
            if group.entries:
                self.append(group.entries)
        except (OSError, JournalFull) as error:
            group.error = error
        return group.end()

    def append(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Store packed entries of these stores durably, on this thread.

        JournalFull: nothing is stored. OSError: it is unknown whether the group is stored; `failed` from now on.
        """
        with self._lock:
            plan = self._plan(entries)
            self._conclude(plan, write_all(self._fd, plan.writes))

    def start(self, batches: Sequence[object]) -> bool:
        """Begin to commit batches in one group; see `contract.CommitTogether.start`."""
        if not self._lock.acquire(blocking=False):
            return False
        group, plan = _Group(batches), None
        try:
            if group.entries:
                plan = self._plan(group.entries)
        except Exception as error:  # JournalFull
            group.error = error
        self._under_way = group, plan
        self._writer.start(plan.writes if plan else ())
        return True

    def fileno(self) -> int:
        """See `contract.CommitTogether.fileno`."""
        return self._writer.fileno()

    def finish(self) -> list[BaseException | None]:
        """Return the errors of the batches of `start`; see `contract.CommitTogether.finish`."""
        if self._under_way is None:
            raise RuntimeError("no group was started")
        (group, plan), self._under_way = self._under_way, None
        written = self._writer.finish()
        try:
            if plan is not None:
                self._conclude(plan, written)
        except (OSError, JournalFull) as error:
            group.error = error
        finally:
            self._lock.release()
        return group.end()

    def _plan(self, entries: Sequence[tuple[str, bytes]]) -> _Plan:
        """Return the writes for a group of these entries. JournalFull; holds the lock."""
        body = b"".join([entry for _, entry in entries])
        size = GROUP.size + len(body)
        lap, used_bytes, writes = self.lap, self._used_bytes, []
        if self._needs_lap(size):
            lap, used_bytes = lap + 1, 0
            writes.append((LAP_PLACES[lap % 2], lap_record(lap, self._used_bytes, self._seed)))
        number = self._take_numbers(len(entries))
        rest = GROUP.pack(GROUP_MAGIC, 0, size, lap, number, len(entries))[CHECKED_FROM:]
        checksum = zlib.crc32(body, zlib.crc32(rest, self._seed))
        group = b"".join([GROUP_MAGIC, checksum.to_bytes(4, "little"), rest, body])
        end = grown_bytes = used_bytes + size
        if end > self._grown_bytes[lap % 2]:
            grown_bytes = min(end + -end % GROWTH_BYTES, HALF_BYTES)
            group += bytes(grown_bytes - end)
        writes.append((HEAD_BYTES + (lap % 2) * HALF_BYTES + used_bytes, group))
        return _Plan(writes, [store for store, _ in entries], lap, end, grown_bytes)

    def _conclude(self, plan: _Plan, written: Written) -> None:
        """Note what became of the plan's writes. JournalFull, OSError; holds the lock."""
        done_count, code = written
        begins_lap = plan.lap != self.lap
        if begins_lap and done_count:
            self.lap, self._used_bytes = plan.lap, 0
        if code > 0:
            self._fail(os.strerror(code))
        if self.failed or (begins_lap and done_count):
            self._want_flush()
        if code > 0:
            raise OSError(code, os.strerror(code))
        if code < 0:  # no room on the disk, for instance; the next group takes this place
            raise JournalFull from OSError(-code, os.strerror(-code))
        self._used_bytes = plan.used_bytes
        self._grown_bytes[plan.lap % 2] = max(self._grown_bytes[plan.lap % 2], plan.grown_bytes)
        for store in plan.stores:
            self._oldest.setdefault(store, self.lap)

    def _needs_lap(self, size: int) -> bool:
        """Whether a group of so many bytes begins the next lap: this one's half has no room for it. JournalFull."""
        if not self.failed and not self._is_in_place():
            self._fail("its file was deleted or replaced")
            self._want_flush()
        if self.failed or size > HALF_BYTES:
            raise JournalFull
        if self._used_bytes + size <= HALF_BYTES:
            return False
        if any(lap < self.lap for lap in list(self._oldest.values())):
            raise JournalFull
        return True

    def _fail(self, cause: str) -> None:
        self.failed, self._cause = True, cause

    @property
    def failure(self) -> str | None:
        """See `contract.CommitTogether.failure`."""
        return f"{self.path.name}: {self._cause}" if self.failed else None

    def recover(self) -> None:
        """Begin the next lap; see `contract.CommitTogether.recover`.

        What the group that failed has left is of no lap then: its half ends before it.
        """
        with self._lock:
            if not self.failed:
                return
            if not self._is_in_place():
                raise OSError(f"{self.path} was deleted or replaced")
            if self._oldest:
                raise JournalFull(f"the rows of {len(self._oldest)} stores are not in their files yet")
            lap = self.lap + 1
            record = lap_record(lap, self._used_bytes, self._seed)
            _, code = write_all(self._fd, [(LAP_PLACES[lap % 2], record)])
            if code:
                raise OSError(abs(code), os.strerror(abs(code)))
            self.lap, self._used_bytes, self.failed = lap, 0, False

    def _is_in_place(self) -> bool:
        """Whether the file was neither deleted nor replaced."""
        try:
            return place_of(str(self.path)) == self._place
        except OSError:
            return False

    def _want_flush(self) -> None:
        for store in list(self._oldest):
            call = self._wanted.get(store)
            if call is not None:
                call()

    def wants_flush(self, store: str) -> bool:
        """Whether `store` has rows here that it should write to its own file."""
        lap = self._oldest.get(store)
        return lap is not None and (lap < self.lap or self.failed)

    def flushed(self, store: str) -> None:
        """All rows of `store` are in its own file, durably; on any thread."""
        self._oldest.pop(store, None)

    @property
    def is_empty(self) -> bool:
        """Whether all rows are in the stores' own files."""
        return not self._oldest

    def close(self) -> None:
        """Close the file, after the group that is under way; it stays."""
        if self._fd >= 0:
            self._writer.stop()
            self._thread.join()
            self._writer.close()
            os.close(self._fd)
            self._fd = -1


def title_of(journal_id: str) -> bytes:
    """Return the beginning of a journal's file."""
    return (MAGIC + journal_id.encode() + b"\n").ljust(LAP_PLACES[0], b"\0")


def head_of(journal_id: str) -> bytes:
    """Return the head of a new journal's file, in its first lap."""
    head = title_of(journal_id).ljust(LAP_PLACES[1], b"\0") + lap_record(1, 0, zlib.crc32(journal_id.encode()))
    return head.ljust(HEAD_BYTES, b"\0")


def lap_record(lap: int, used_before: int, seed: int) -> bytes:
    """Return the record of a lap that begins: the one before has used so many bytes of its half."""
    rest = LAP.pack(LAP_MAGIC, 0, lap, used_before)[CHECKED_FROM:]
    return LAP_MAGIC + zlib.crc32(rest, seed).to_bytes(4, "little") + rest


def _packed(store: str, rows: Rows) -> bytes:
    parts = [bytes((len(store), len(rows))), store.encode()]
    for table, changes in rows.items():
        parts += TABLE.pack(len(table), len(changes)), table.encode()
        key_sizes = set(map(len, changes))
        if len(key_sizes) == 1 and _DELETIONS.issuperset(map(type, changes.values())):  # as of completed messages
            head = ROW.pack(key_sizes.pop(), DELETED)
            parts += head, head.join(changes)
        else:
            parts += _packed_rows(changes)
    return b"".join(parts)


def _packed_rows(changes: Mapping[bytes, bytes | None]) -> list[bytes]:
    parts: list[bytes] = []
    for key, value in changes.items():
        if value is None:
            parts += ROW.pack(len(key), DELETED), key
        else:
            parts += ROW.pack(len(key), len(value)), key, value
    return parts
