"""The journal of a data folder: small batches of all its stores, confirmed after one write for all of them.

A commit of LMDB waits for the disk twice, and each store for its own file. A batch in the journal waits once, together
with the batches of other stores that are ready, or not at all. Its rows go into the store's file later, with a larger
batch (docs/decisions/0017). Knows the file: groups of entries in two halves, and when a half is free. Does not know
stores.

The file: a head of HEAD_BYTES with the journal's id, then two halves. A **lap** fills one half with groups, the next
lap the other one; it begins when all rows of the lap before the current one are in their stores' files. The head says
which lap is the newest and how long the one before it was. One group is one write: checksum, length, lap, number of its
first entry, how many bytes of the lap were on the disk before it, entries.

**When a group is confirmed.** A journal that `waits` (durability `full`) confirms a group once it is on the disk. One
that does not (`second`) confirms it once the system has it: a kill of the process loses nothing. What is confirmed and
not on the disk is the **tail**; `sync` puts it there, once a second and before each commit of a store's file. So no
file ever has a row while the disk lacks a group that was confirmed before the row's batch began, and what a power cut
leaves, journal and files together, is the beginning of what was confirmed.

| state | a group | a lap | ends with |
| --- | --- | --- | --- |
| sound, no tail | goes behind the last one | begins, if the other half is free | a group that does not wait |
| sound, with a tail | same | begins, once the tail is on the disk | `sync`, which waits for the disk |
| failed (a wait has) | JournalFull: the files take it | by `recover` only | `recover`: no tail, all rows in files |

In the last one `sync` writes the tail again before it waits.

What breaks if a rule here is bent (`tests/crash/images` breaks each on purpose, and must notice):
* A group of a lap before the lap's record is on the disk: recovery would take the lap for damage, or miss it.
* A lap's record before all groups of the lap before: its length says more than the disk has, which is damage.
* A file's commit before `sync`: a row of its last batch may be there, and the group that was confirmed before it lost.
* A second wait after a failed one, without writing the tail again: the kernel calls its pages clean and says "done".

Step 4 of a batch (`broker/stores/batch_runner.py`), in `start`, `finish` and what they call: (4a) each batch says what
it has changed; (4b) the group is packed and its place chosen; (4c) it is written, and waited for; (4d) what became of
it is noted; (4e) each batch learns it, and its rows are pending. Nothing is confirmed before 4e.

`commit` and `append` write on their caller's thread, one at a time. `start` writes on its caller's thread if it may,
and otherwise has the writer's thread do it, so that the event loop does not wait. `sync` has a file descriptor of its
own: the kernel reports an error of the disk once to each.
"""

from __future__ import annotations

import errno
import os
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Protocol, cast

from ..checksum import crc32
from ..folder import make_private_file, wait_for_disk
from .rows import ROW_BYTES, Rows
from .writing import DiskWriter, PythonWriter, Writes, Written

HEAD_BYTES: Final = 4096

HALF_BYTES: Final = 8 << 20
"""A lap. When one begins, each store with rows of the lap before writes them into its file: a smaller half does that
more often, for fewer rows; a larger one takes more of the disk, and the start after a kill reads it all.
`bench/compare.py REF --cells '*-part-w20'` shows it; change it if flushes of idle stores show there."""

GROWTH_BYTES: Final = 64 << 10
"""The first group to reach a place writes zeros behind it, up to the next multiple of this: where a file grows, a file
system writes more than the group, and the wait for the disk takes 20 us longer. More of it makes that one group slower
and is wasted in a journal that stays short; `bench/handover.py` shows the wait."""

MAGIC: Final = b"emubus journal 2\n"
MAGIC_1: Final = b"emubus journal 1\n"
"""Of a release whose groups do not say what was on the disk before them: all of the lap was."""

GROUP_MAGIC: Final = b"eGRP"

LAP_MAGIC: Final = b"eLAP"
LAP_PLACES: Final = (1024, 2048)  # in the head, for even and odd laps: a torn one leaves the other
LAP: Final = struct.Struct("<4sIQI")  # magic, checksum of the rest, lap, bytes used by the one before

GROUP: Final = struct.Struct("<4sIIQQII")
"""Magic, checksum of the rest, bytes in all, lap, first number, entries, bytes of the lap that were on the disk."""
GROUP_1: Final = struct.Struct("<4sIIQQI")  # of MAGIC_1
CHECKED_FROM: Final = 8
TABLE: Final = struct.Struct("<BI")  # bytes of the name, rows
ROW: Final = struct.Struct("<Hi")  # bytes of key and value; DELETED
DELETED: Final = -1
_DELETIONS: Final = frozenset({type(None)})

assert LAP_PLACES[1] + LAP.size <= HEAD_BYTES, "the head holds both records"
assert not any(place % 512 for place in (*LAP_PLACES, HEAD_BYTES)), (
    "no sector holds two records, or a record and groups"
)
assert HALF_BYTES % GROWTH_BYTES == 0, "the last zeros of a half end with it"


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

    __slots__ = ("_errors", "_memory", "_started", "entries", "error", "stores")

    def __init__(self, batches: Sequence[object]) -> None:
        self.stores: list[str] = []
        self.entries: list[bytes] = []
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
            entry = _pack_entry(store, rows)
            self._started.append((index, batch))
            self.stores.append(store)
            self.entries.append(entry)
            self._memory.append(len(entry) + ROW_BYTES * sum(map(len, rows.values())))

    def end(self) -> list[BaseException | None]:
        """End the batches after the writes; return each one's error."""
        for (index, batch), byte_count in zip(self._started, self._memory, strict=True):
            try:
                batch.end_commit(byte_count, self.error)
            except BaseException as error:
                self._errors[index] = error
        return self._errors


@dataclass(slots=True)  # not frozen: it is made for each group, and frozen ones take three times as long
class _Plan:
    """What a group of entries of these stores writes; afterwards the journal is in `lap`, and has used and written so
    many bytes of its half. `record_at`: which of the writes is the record of a lap that begins."""

    writes: Writes
    stores: Sequence[str]
    lap: int
    number: int
    used_bytes: int
    grown_bytes: int
    record_at: int | None


@dataclass(slots=True, eq=False, repr=False)
class _Written:
    """A group of the tail: its first entry's number, where it stands, and where it ends in its lap."""

    number: int
    lap: int
    offset: int
    data: bytes
    end: int


class Journal:
    """A new journal in `file`, which must not exist; `make_writer` is `PythonWriter` or the same in C. OSError.

    `waits`: what is confirmed is on the disk; otherwise it is once `sync` has returned.
    """

    def __init__(
        self,
        file: Path,
        journal_id: str,
        make_writer: Callable[[int], DiskWriter] = PythonWriter,
        *,
        waits: bool = True,
    ) -> None:
        # For ever:
        self.id = journal_id
        self.path = file
        self._file_name = str(file)
        self.waits = waits
        self._seed = crc32(journal_id.encode())
        self._wanted: dict[str, Callable[[], object]] = {}
        # The file, changed by the thread that holds `_lock`: the one that writes a group.
        self._lock = threading.Lock()
        self.lap = 1
        self._used_bytes = 0  # of this lap's half
        self._grown_bytes = [0, 0]  # of the halves of even and odd laps: written once, at least with zeros
        self._under_way: tuple[_Group, _Plan | None, Written | None] | None = None  # between `start` and `finish`
        self.has_ended = False
        """See `contract.CommitTogether.has_ended`."""
        self.failed = False
        """After a write that may be incomplete, nothing is appended before `recover`."""
        self._cause = ""  # of `failed`
        # Numbers are also given to commits of files, which must not wait for a group.
        self._number_lock = threading.Lock()
        self._next_number = 1
        # Whose rows are where; any thread, one operation of the dict at a time.
        self.oldest: dict[str, int] = {}
        """Store -> the first lap with rows that its own file lacks."""
        # The tail, for the thread that writes and those that call `sync`.
        self._sync_lock = threading.Lock()  # held during a wait
        self._tail_lock = threading.Lock()  # never held during a wait
        self._tail: deque[_Written] = deque()
        self.tail_bytes = 0
        """Bytes that are confirmed and may not be on the disk."""
        self._durable_bytes = 0  # of this lap
        with make_private_file(file) as made:
            made.write(head_of(journal_id))
            made.truncate(HEAD_BYTES + 2 * HALF_BYTES)  # room on the disk is taken later, in steps of GROWTH_BYTES
            made.flush()
            os.fsync(made.fileno())
        self._fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._sync_fd = os.open(file, os.O_RDWR | os.O_CLOEXEC)
        self._writer = make_writer(self._fd)
        self._thread = threading.Thread(target=self._writer.run, name="journal", daemon=True)
        self._thread.start()
        status = os.fstat(self._fd)
        self._place = status.st_dev, status.st_ino

    def on_flush_wanted(self, store: str, call: Callable[[], object]) -> None:
        """Call `call` on any thread when `store` should write its rows to its own file soon."""
        self._wanted[store] = call

    def next_number(self) -> int:
        """Return a number above all that were given; an entry below it that a store has seen is out of date."""
        with self._number_lock:  # never held while the disk is waited for
            number = self._next_number
            self._next_number += 1
        return number

    def commit(self, batches: Sequence[object]) -> list[BaseException | None]:
        """Commit batches of several stores in one group, on this thread; return each one's error. Any thread."""
        group = _Group(batches)
        try:
            if group.entries:
                self._append(group.stores, group.entries)
        except (OSError, JournalFull) as error:
            group.error = error
        return group.end()

    def append(self, entries: Sequence[tuple[str, bytes]]) -> None:
        """Store packed entries of these stores, on this thread.

        JournalFull: nothing is stored. OSError: it is unknown whether the group is stored; `failed` from now on.
        """
        self._append([store for store, _ in entries], [entry for _, entry in entries])

    def _append(self, stores: Sequence[str], entries: Sequence[bytes]) -> None:
        with self._lock:
            plan = self._plan(stores, entries)
            self._conclude(plan, self._writer.write(plan.writes, self.waits))

    def start(self, batches: Sequence[object], *, here: bool = False) -> bool:
        """Begin to commit batches in one group; see `contract.CommitTogether.start`.

        Step 4.3 of a batch (`broker/stores/batch_runner.py`).
        """
        if not self._lock.acquire(blocking=False):
            return False
        group, plan, written = _Group(batches), None, None  # 4a
        try:
            if group.entries:
                plan = self._plan(group.stores, group.entries)  # 4b
        except Exception as error:  # JournalFull
            group.error = error
        if plan is None:
            written = 0, 0
        elif here and plan.record_at is None and not self._sync_lock.locked():
            written = self._writer.write(plan.writes, self.waits)  # 4c
        else:
            self._writer.start(plan.writes, self.waits)
        self._under_way, self.has_ended = (group, plan, written), written is not None
        return True

    def fileno(self) -> int:
        return self._writer.fileno()

    def finish(self) -> list[BaseException | None]:
        if self._under_way is None:
            raise RuntimeError("no group was started")
        (group, plan, written), self._under_way, self.has_ended = self._under_way, None, False
        if written is None:
            written = self._writer.finish()
        try:
            if plan is not None:
                self._conclude(plan, written)  # 4d
        except (OSError, JournalFull) as error:
            group.error = error
        finally:
            self._lock.release()
        return group.end()  # 4e

    def _plan(self, stores: Sequence[str], entries: Sequence[bytes]) -> _Plan:
        """Return the writes for a group of these stores' entries. JournalFull; holds the lock."""
        body = b"".join(entries)
        size = GROUP.size + len(body)
        if not self.failed and not is_in_place(self._file_name, self._place):
            self._fail("its file was deleted or replaced")
            self._want_flush()
        if self.failed or size > HALF_BYTES:
            raise JournalFull
        lap, used_bytes, durable_bytes, writes, record_at = self.lap, self._used_bytes, self._durable_bytes, [], None
        if used_bytes + size > HALF_BYTES and self._needs_lap(size):  # most groups pass the first half alone
            lap, used_bytes, durable_bytes = lap + 1, 0, 0
            if self._tail:  # before the record, which says that it is there
                writes.append((0, b""))
            record_at = len(writes)
            writes.append((LAP_PLACES[lap % 2], lap_record(lap, self._used_bytes, self._seed)))
        with self._number_lock:
            number = self._next_number
            self._next_number += len(entries)
        rest = GROUP.pack(GROUP_MAGIC, 0, size, lap, number, len(entries), durable_bytes)[CHECKED_FROM:]
        checksum = crc32(body, crc32(rest, self._seed))
        group = b"".join([GROUP_MAGIC, checksum.to_bytes(4, "little"), rest, body])
        end = grown_bytes = used_bytes + size
        if end > self._grown_bytes[lap % 2]:
            grown_bytes = min(end + -end % GROWTH_BYTES, HALF_BYTES)
            group += bytes(grown_bytes - end)
        writes.append((HEAD_BYTES + (lap % 2) * HALF_BYTES + used_bytes, group))
        assert durable_bytes <= used_bytes < end <= grown_bytes <= HALF_BYTES
        return _Plan(writes, stores, lap, number, end, grown_bytes, record_at)

    def _needs_lap(self, size: int) -> bool:
        """Return whether a group of so many bytes begins a lap.

        JournalFull: it does, and the half of that lap has rows that are nowhere else. Holds the lock.
        """
        if self._used_bytes + size <= HALF_BYTES:
            return False
        if any(of_store < self.lap for of_store in list(self.oldest.values())):
            raise JournalFull
        return True

    def _conclude(self, plan: _Plan, written: Written) -> None:
        """Note what became of the plan's writes. JournalFull, OSError; holds the lock."""
        done_count, code = written
        if plan.record_at is not None:
            if plan.record_at and done_count:
                self._end_tail(plan.number)
            if done_count > plan.record_at:
                assert not self._tail
                with self._tail_lock:
                    self.lap, self._used_bytes, self._durable_bytes = plan.lap, 0, 0
        if code > 0:
            self._fail(os.strerror(code))
        if self.failed or (plan.record_at is not None and self.lap == plan.lap):
            self._want_flush()
        if code > 0:
            raise OSError(code, os.strerror(code))
        if code < 0:  # no room on the disk, for instance; the next group takes this place
            raise JournalFull from OSError(-code, os.strerror(-code))
        assert (done_count, self.lap) == (len(plan.writes), plan.lap)
        self._used_bytes = plan.used_bytes
        self._grown_bytes[plan.lap % 2] = max(self._grown_bytes[plan.lap % 2], plan.grown_bytes)
        for store in plan.stores:
            self.oldest.setdefault(store, self.lap)
        if self.waits:
            self._durable_bytes = plan.used_bytes
        else:
            offset, data = plan.writes[-1]
            with self._tail_lock:
                self._tail.append(_Written(plan.number, plan.lap, offset, data, plan.used_bytes))
                self.tail_bytes += len(data)

    def sync(self) -> None:
        """Put on the disk all that is confirmed; see `contract.CommitTogether.sync`.

        OSError: the disk lacks some of the tail; `failed` from now on.
        """
        if not self._tail:
            return
        with self._sync_lock:
            with self._tail_lock:
                tail = list(self._tail)
            if not tail or (self.failed and not is_in_place(self._file_name, self._place)):
                return  # without the file, the tail is in memory alone: the stores' files have to take its rows
            try:
                if self.failed:  # the kernel may call pages clean that the disk lacks: let them be dirty
                    for each in tail:
                        if os.pwrite(self._sync_fd, each.data, each.offset) != len(each.data):
                            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
                wait_for_disk(self._sync_fd)
            except OSError as error:
                self._fail(os.strerror(error.errno or errno.EIO))
                self._want_flush()
                raise
            self._end_tail(tail[-1].number + 1)

    def _end_tail(self, number: int) -> None:
        """The groups of the tail that begin before this entry are on the disk."""
        with self._tail_lock:
            while self._tail and self._tail[0].number < number:
                group = self._tail.popleft()
                self.tail_bytes -= len(group.data)
                if group.lap == self.lap:
                    self._durable_bytes = group.end

    def _fail(self, cause: str) -> None:
        self.failed, self._cause = True, cause

    @property
    def failure(self) -> str | None:
        if not self.failed:
            return None
        lost = f"; {self.tail_bytes} bytes are confirmed and may not be on the disk" if self.tail_bytes else ""
        return f"{self.path.name}: {self._cause}{lost}"

    def recover(self) -> None:
        """Begin the next lap; see `contract.CommitTogether.recover`.

        What the group that failed has left is of no lap then: its half ends before it.
        """
        with self._lock:
            if not self.failed:
                return
            if not is_in_place(self._file_name, self._place):
                raise OSError(f"{self.path} was deleted or replaced")
            self.sync()
            if self.oldest:
                raise JournalFull(f"the rows of {len(self.oldest)} stores are not in their files yet")
            lap = self.lap + 1
            record = lap_record(lap, self._used_bytes, self._seed)
            _, code = self._writer.write([(LAP_PLACES[lap % 2], record)])
            if code:
                raise OSError(abs(code), os.strerror(abs(code)))
            with self._tail_lock:
                self.lap, self._used_bytes, self._durable_bytes = lap, 0, 0
            self.failed = False

    def _want_flush(self) -> None:
        for store in list(self.oldest):
            call = self._wanted.get(store)
            if call is not None:
                call()

    def wants_flush(self, store: str) -> bool:
        """Whether `store` has rows here that it should write to its own file."""
        lap = self.oldest.get(store)
        return lap is not None and (lap < self.lap or self.failed)

    def flushed(self, store: str) -> None:
        """All rows of `store` are in its own file, durably; on any thread."""
        self.oldest.pop(store, None)

    @property
    def is_empty(self) -> bool:
        """Whether all rows are in the stores' own files."""
        return not self.oldest

    def close(self) -> None:
        """Close the file, after the group that is under way, and with all that is confirmed on the disk; it stays."""
        if self._fd >= 0:
            self._writer.stop()
            self._thread.join()
            self._writer.close()
            with suppress(OSError):  # what the stores' files lack is in the journal as the system has it
                self.sync()
            os.close(self._fd)
            os.close(self._sync_fd)
            self._fd = self._sync_fd = -1


def is_in_place(file_name: str, place: tuple[int, int] | None) -> bool:
    """Whether the file of that name has this device and inode: it was neither deleted nor replaced."""
    try:
        status = os.stat(file_name)  # noqa: PTH116 - twice per group: half the cost of Path.stat
    except OSError:
        return False
    return (status.st_dev, status.st_ino) == place


def title_of(journal_id: str, magic: bytes = MAGIC) -> bytes:
    """Return the beginning of a journal's file."""
    return (magic + journal_id.encode() + b"\n").ljust(LAP_PLACES[0], b"\0")


def head_of(journal_id: str) -> bytes:
    """Return the head of a new journal's file, in its first lap."""
    head = title_of(journal_id).ljust(LAP_PLACES[1], b"\0") + lap_record(1, 0, crc32(journal_id.encode()))
    return head.ljust(HEAD_BYTES, b"\0")


def lap_record(lap: int, used_before: int, seed: int) -> bytes:
    """Return the record of a lap that begins: the one before has used so many bytes of its half."""
    rest = LAP.pack(LAP_MAGIC, 0, lap, used_before)[CHECKED_FROM:]
    return LAP_MAGIC + crc32(rest, seed).to_bytes(4, "little") + rest


def _pack_entry(store: str, rows: Rows) -> bytes:
    parts = [bytes((len(store), len(rows))), store.encode()]
    for table, changes in rows.items():
        parts += TABLE.pack(len(table), len(changes)), table.encode()
        key_sizes = set(map(len, changes))
        if len(key_sizes) == 1 and _DELETIONS.issuperset(map(type, changes.values())):  # as of completed messages
            head = ROW.pack(key_sizes.pop(), DELETED)
            parts += head, head.join(changes)
            continue
        for key, value in changes.items():
            if value is None:
                parts += ROW.pack(len(key), DELETED), key
            else:
                parts += ROW.pack(len(key), len(value)), key, value
    return b"".join(parts)
