"""Checks a data folder: the soundness of the stores, and the consistency of their rows.

Knows how the tables of a messaging store relate: batches are atomic, so each row implies others. Finds every reason for
which a server refuses the folder (`FolderView.verify`); `storage` checks the structure of a store. Reads everything,
writes nothing, and needs exclusive access to the folder.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ...storage import (
    FORMAT_VERSION,
    FolderLock,
    FolderState,
    Manifest,
    RowsWithJournal,
    StoreError,
    StoreReader,
    read_into_memory,
)
from ...storage.check import check_store
from ..errors import BrokerError
from ..message.stored import parse_stored
from ..message.stored_form import ROW_HEAD_BYTES
from ..model.catalog import CATALOG_TABLES, CATALOG_UPGRADES, Catalog, CatalogError, Description, Entry, path_of
from ..partition.records import (
    COUNTER_MASK,
    DUE,
    DUE_KEY,
    DUPLICATES,
    HOMES,
    INSTANT,
    KEY,
    MESSAGES,
    OLD_STATE_VALUE,
    RECORD_VERSIONS,
    SESSION_HEADS,
    SESSION_MESSAGE_KEY,
    SESSION_MESSAGES,
    SESSION_NUMBER_KEY,
    SESSION_STATE,
    SESSION_VALUE,
    SESSIONS,
    STATE,
    STATE_KEY,
    STATE_VALUE,
    Counters,
    Due,
    Home,
    Record,
    due_key,
    large_bytes_of,
    record_version,
    session_number,
    unpack_head,
)
from .folder_view import CATALOG_FOLDER, REMEDIES, FolderView, part_names

Message = tuple[int, int]


@dataclass(slots=True)
class QueueTotals:
    """Totals of a queue over all stores: messages per home, bytes, partitions with rows."""

    messages: list[int] = field(default_factory=lambda: [0] * len(HOMES))
    bytes_used: int = 0
    large_bytes: int = 0  # of those rows that count twice in the size of a queue
    state_bytes: int = 0  # of the states of message sessions
    partitions: int = 0


@dataclass(slots=True)
class FolderReport:
    """The result: `problems` in words (empty: sound), totals per queue name, number of stores."""

    folder: Path
    store_count: int = 0
    problems: list[str] = field(default_factory=list[str])
    notes: list[str] = field(default_factory=list[str])
    queues: dict[str, QueueTotals] = field(default_factory=dict[str, QueueTotals])

    @property
    def sound(self) -> bool:
        return not self.problems

    def lines(self) -> Iterator[str]:
        yield f"{self.folder}: {self.store_count} messaging stores, {len(self.queues)} entities"
        for name, totals in sorted(self.queues.items()):
            counts = ", ".join(
                f"{count} {home.name.lower().replace('_', '-')}"
                for home, count in zip(HOMES, totals.messages, strict=True)
                if count
            )
            yield f"  {name}: {counts or 'empty'} ({totals.bytes_used} bytes in {totals.partitions} partitions)"
        yield from (f"  {note}" for note in self.notes)
        for problem in self.problems:
            yield f"  PROBLEM: {problem}"
        if not self.sound:
            yield f"To use it again: {REMEDIES}"
        yield "sound" if self.sound else f"{len(self.problems)} problems"


def check_data_folder(folder: Path) -> FolderReport:
    """Check all stores of a data folder and the counters of all queues. Raises StoreError if a server has it open."""
    lock = FolderLock(folder, reading=True)
    try:
        report = FolderReport(folder)
        _check(FolderView(folder), report)
        return report
    finally:
        lock.release()


def _check(view: FolderView, report: FolderReport) -> None:
    """Fill the report: first the folder and its files, then the rows, which make sense in sound files only.

    A folder that a killed process was still making or emptying has no rows to check: the next start finishes it.
    """
    try:
        view.refuse_foreign()
        manifest = view.manifest()
        if not view.entries():
            report.notes.append("it is empty: a start with --data makes a namespace in it")
            return
        report.notes += _steps_of_next_start(view, manifest)
        report.problems += view.verify(manifest)
        if manifest is not None and manifest.state in (FolderState.MAKING, FolderState.EMPTYING):
            return
        names = [CATALOG_FOLDER, *view.stores()]
        report.store_count = len(names) - 1
        if not report.problems:
            for name in names:
                report.problems += (f"{name}: {problem}" for problem in check_store(view.part_path(name)).problems)
        if not report.problems:
            _check_rows(view, names[1:], report)
    except StoreError as error:
        report.problems.append(error.reason)
    except CatalogError as error:
        report.problems.append(str(error))


def problems_of_parts(folder: Path, store_count: int) -> list[str]:
    """Return the problems of the stores of a snapshot, files and rows, a sentence each."""
    report = FolderReport(folder)
    names = part_names(store_count)
    try:
        for name in names:
            report.problems += (f"{name}: {problem}" for problem in check_store(folder / name).problems)
        if not report.problems:
            _check_rows(FolderView(folder), names[1:], report)
    except StoreError as error:
        report.problems.append(f"{error.store.name if error.store else folder}: {error.reason}")
    except CatalogError as error:
        report.problems.append(str(error))
    return report.problems


def _steps_of_next_start(view: FolderView, manifest: Manifest | None) -> Iterator[str]:
    """Yield the steps that the next start takes before it uses the folder."""
    if view.is_restoring:
        yield "a restore was interrupted with complete data: the next start finishes it; this report shows its data"
    if manifest is None or manifest.state is FolderState.UPGRADING or manifest.version < FORMAT_VERSION:
        yield "an older release of emubus made it: the next start upgrades it"
    elif manifest.state in (FolderState.MAKING, FolderState.EMPTYING):
        yield "its creation was interrupted and it is empty: the next start creates it again"


def _check_rows(view: FolderView, stores: list[str], report: FolderReport) -> None:
    catalog = Catalog(read_into_memory(view.part_path(CATALOG_FOLDER), CATALOG_TABLES, CATALOG_UPGRADES))
    entries = {entry.queue_id: entry for entry in catalog.entries()}
    catalog.close()
    for entry in entries.values():
        report.queues[path_of(entry.description)] = QueueTotals()
    manifest = view.manifest()
    journaled = {} if manifest is None else view.entries_by_store(manifest)
    journal_id = "" if manifest is None else manifest.journal or ""
    for name in stores:
        with StoreReader(view.part_path(name)) as reader:
            rows = _Rows(RowsWithJournal(reader, journal_id, journaled.get(name, [])))
            try:
                _check_partition_rows(name, rows, entries, report)
            except (struct.error, ValueError, IndexError, KeyError, TypeError, OverflowError) as error:
                report.problems.append(_unreadable(name, *rows.at, error))


def _unreadable(store_name: str, table: str, key: bytes, error: Exception) -> str:
    return f"{store_name}: row {key!r:.100} of table '{table}' can't be read ({type(error).__name__}: {error!s:.200})"


class _Rows:
    """The rows of a store; `at` is table and key of the row read last."""

    def __init__(self, store: RowsWithJournal) -> None:
        self._store = store
        self.at = ("", b"")

    def of(self, table: str) -> Iterator[tuple[bytes, bytes]]:
        """Yield the rows of a table in key order."""
        for row in self._store.rows(table):
            self.at = (table, row[0])
            yield row


@dataclass(slots=True)
class _Contents:
    """The contents of one messaging store; a message is its queue id and sequence number."""

    totals: dict[int, QueueTotals] = field(default_factory=dict[int, QueueTotals])
    highest: dict[int, int] = field(default_factory=dict[int, int])  # sequence number, without the partition
    active: set[Message] = field(default_factory=set[Message])
    due: set[bytes] = field(default_factory=set[bytes])  # the rows of `due` that the messages require
    unreadable: dict[Message, str] = field(default_factory=dict[Message, str])  # why

    def saw(self, queue_id: int, number: int) -> None:
        self.highest[queue_id] = max(number & COUNTER_MASK, self.highest.get(queue_id, 0))


def _contents(rows: _Rows) -> _Contents:
    """Read every message of a store once: what the counters, due times and sessions of its partitions must agree with.

    A row that can't be read is noted and passed over, so that one damaged message hides no other problem.
    """
    contents = _Contents()
    for key, record in rows.of(MESSAGES):
        queue_id, home, number = KEY.unpack(key)
        if len(record) < ROW_HEAD_BYTES or record_version(record) not in RECORD_VERSIONS:
            contents.unreadable[queue_id, number] = "has an unknown record version"
            continue
        try:
            stored = parse_stored(Record.unpack(record).stored)
        except BrokerError as error:
            contents.unreadable[queue_id, number] = f"can't be read ({error.description:.200})"
            continue
        contents.saw(queue_id, number)
        totals = contents.totals.setdefault(queue_id, QueueTotals())
        totals.messages[home] += 1
        totals.bytes_used += len(record)
        totals.large_bytes += large_bytes_of((len(record),))
        if home == Home.ACTIVE:
            contents.active.add((queue_id, number))
            expires_at = unpack_head(record)[5]
            if expires_at:
                contents.due.add(due_key(expires_at, queue_id, Due.EXPIRE, number))
        elif home == Home.SCHEDULED:
            at = stored.scheduled_enqueue_at
            contents.due.add(due_key(unpack_head(record)[4] if at is None else at, queue_id, Due.ACTIVATE, number))
    for key, state in rows.of(SESSION_STATE):
        totals = contents.totals.setdefault(SESSION_NUMBER_KEY.unpack(key)[0], QueueTotals())
        totals.state_bytes += len(state)
    return contents


def _check_partition_rows(store_name: str, rows: _Rows, entries: dict[int, Entry], report: FolderReport) -> None:
    """Compare what a store's partitions say of themselves with the messages that they have.

    The next sequence number must be above the highest in use: a number that is given out twice would hide a message.
    """
    contents = _contents(rows)
    for (queue_id, number), problem in contents.unreadable.items():
        report.problems.append(f"{store_name}: message {number} of queue id {queue_id} {problem}")
    problems = [*_due_problems(rows, contents, entries), *_session_problems(rows, contents, entries)]
    report.problems += (f"{store_name}: {count} {what}" for what, count in problems if count)
    states = {STATE_KEY.unpack(key)[0]: _counters(row) for key, row in rows.of(STATE)}
    for queue_id in sorted(states.keys() | contents.totals.keys() | contents.highest.keys()):
        name = path_of(entries[queue_id].description) if queue_id in entries else str(queue_id)
        totals = contents.totals.get(queue_id, QueueTotals())
        counters, is_older = states.get(queue_id, (None, False))
        if counters is None:
            report.problems.append(f"{store_name}: queue '{name}' has messages but no counters")
            continue
        counted_beside = counters.large_bytes, counters.state_bytes
        if not is_older and counted_beside != (totals.large_bytes, totals.state_bytes):
            report.problems.append(
                f"{store_name}: queue '{name}' counts {counters.large_bytes} bytes of large messages and "
                f"{counters.state_bytes} of session states but holds {totals.large_bytes} and {totals.state_bytes}"
            )
        if (counters.messages, counters.bytes_used) != (totals.messages, totals.bytes_used):
            report.problems.append(
                f"{store_name}: queue '{name}' counts {counters.messages} messages and "
                f"{counters.bytes_used} bytes but holds {totals.messages} and {totals.bytes_used}"
            )
        highest = contents.highest.get(queue_id, 0)
        if highest >= counters.next_counter:
            report.problems.append(
                f"{store_name}: queue '{name}' has sequence number {highest} and would give out "
                f"{counters.next_counter} next"
            )
        known = report.queues.get(name) if queue_id in entries else None
        if known is not None:
            known.messages = [a + b for a, b in zip(known.messages, totals.messages, strict=True)]
            known.bytes_used += totals.bytes_used
            known.partitions += 1


def _counters(row: bytes) -> tuple[Counters, bool]:
    """The counters of a row, and whether it is of a folder that the next start upgrades and lacks the last ones."""
    is_older = len(row) == OLD_STATE_VALUE.size
    return Counters.unpack(row + bytes(STATE_VALUE.size - len(row)) if is_older else row), is_older


def _due_problems(rows: _Rows, contents: _Contents, entries: dict[int, Entry]) -> Iterator[tuple[str, int]]:
    """Yield contradictions between `due`, messages and remembered message ids, with their counts."""
    due = [key for key, _ in rows.of(DUE)]
    of_messages = {key for key in due if DUE_KEY.unpack(key)[2] != Due.FORGET}
    forgets = {key for key in due if DUE_KEY.unpack(key)[2] == Due.FORGET}
    yield f"messages with a time have no row in '{DUE}'", len(contents.due - of_messages)
    stray = [key for key in of_messages - contents.due if DUE_KEY.unpack(key)[1] in entries]  # else clean-up
    yield f"rows of '{DUE}' belong to no message", len(stray)
    remembered = {
        due_key(INSTANT.unpack(row)[0], queue_id, Due.FORGET, number)
        for key, row in rows.of(DUPLICATES)
        for queue_id, number in (SESSION_NUMBER_KEY.unpack(key),)
    }
    yield "remembered message ids would never be forgotten", len(remembered - forgets)


def _session_problems(rows: _Rows, contents: _Contents, entries: dict[int, Entry]) -> Iterator[tuple[str, int]]:
    """Yield contradictions between message sessions and their messages, with their counts."""
    with_sessions = {queue_id for queue_id, each in entries.items() if _requires_session(each.description)}
    firsts: dict[Message, int] = {}  # by queue id and session number
    members: set[Message] = set()
    for key, _ in rows.of(SESSION_MESSAGES):
        queue_id, session, number = SESSION_MESSAGE_KEY.unpack(key)
        contents.saw(queue_id, number)
        firsts.setdefault((queue_id, session), number)
        members.add((queue_id, number))
    expected = {message for message in contents.active if message[0] in with_sessions}
    yield "rows of sessions point to no active message", len(members - contents.active)
    yield "active messages are in no message session", len(expected - members)
    # Rows of older formats have numbers of other hashes of the names.
    numbers = {
        (STATE_KEY.unpack(key[:4])[0], row[SESSION_VALUE.size :]): SESSION_VALUE.unpack_from(row)[0]
        for key, row in rows.of(SESSIONS)
    }
    heads: dict[Message, int] = {}
    for key, name in rows.of(SESSION_HEADS):
        queue_id, number = SESSION_NUMBER_KEY.unpack(key)
        contents.saw(queue_id, number)
        session = numbers.get((queue_id, name))
        heads.setdefault((queue_id, session_number(name.decode()) if session is None else session), number)
    unreachable = sum(1 for session, first in firsts.items() if heads.get(session, first + 1) > first)
    yield "message sessions with messages can't be found", unreachable
    named = {(queue_id, number) for (queue_id, _), number in numbers.items()}
    states = {SESSION_NUMBER_KEY.unpack(key) for key, _ in rows.of(SESSION_STATE)}
    yield "message sessions have no name", len((firsts.keys() | states) - named)


def _requires_session(description: Description) -> bool:
    return bool(getattr(description, "requires_session", False))
