"""The check of a data folder: are the stores sound, and do the rows in them agree with each other?

Knows which folders a namespace consists of and how the tables of a messaging store relate: a batch is stored whole or
not at all, so each row implies others. Leaves the check of the stores' own structure to `storage`. Reads everything
once; needs the folder to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..storage import Durability, Store, StoreError, check_store, open_store
from .catalog import CATALOG_TABLES, Catalog, Description, Entry, path_of
from .message import parse_stored
from .records import (
    COUNTER_MASK,
    DUE,
    DUE_KEY,
    DUPLICATES,
    HEAD_BYTES,
    HOMES,
    INSTANT,
    KEY,
    MESSAGES,
    RECORD_VERSION,
    SESSION_HEADS,
    SESSION_MESSAGE_KEY,
    SESSION_MESSAGES,
    SESSION_NUMBER_KEY,
    SESSION_STATE,
    SESSION_VALUE,
    SESSIONS,
    STATE,
    STATE_KEY,
    TABLES,
    Counters,
    Due,
    Home,
    Record,
    due_key,
    session_number,
    unpack_head,
)

ROWS_AT_ONCE = 1000
LAST_KEY = b"\xff" * 512  # behind all keys: those of sessions hold names

Message = tuple[int, int]


@dataclass(slots=True)
class QueueTotals:
    """What a queue holds over all stores: messages per home, bytes, and how many partitions have rows."""

    messages: list[int] = field(default_factory=lambda: [0] * len(HOMES))
    bytes_used: int = 0
    partitions: int = 0


@dataclass(slots=True)
class FolderReport:
    """The result: `problems` in words (empty: sound), totals per queue name, how many stores there are."""

    folder: Path
    store_count: int = 0
    problems: list[str] = field(default_factory=list[str])
    queues: dict[str, QueueTotals] = field(default_factory=dict[str, QueueTotals])

    @property
    def sound(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def lines(self) -> Iterator[str]:
        """The report for people, line by line."""
        yield f"{self.folder}: {self.store_count} messaging stores, {len(self.queues)} entities"
        for name, totals in sorted(self.queues.items()):
            counts = ", ".join(
                f"{count} {home.name.lower().replace('_', '-')}"
                for home, count in zip(HOMES, totals.messages, strict=True)
                if count
            )
            yield f"  {name}: {counts or 'empty'} ({totals.bytes_used} bytes in {totals.partitions} partitions)"
        for problem in self.problems:
            yield f"  PROBLEM: {problem}"
        yield "sound" if self.sound else f"{len(self.problems)} problems"


def check_data_folder(folder: Path) -> FolderReport:
    """Check every store below `folder` and the counters of every queue; never raises for what it finds there."""
    report = FolderReport(folder)
    if not (folder / "namespace").is_dir():
        report.problems.append(f"{folder} is not a data folder of emubus: it has no folder 'namespace'")
        return report
    paths = sorted(folder.glob("store-*"))
    report.store_count = len(paths)
    try:
        for path in (folder / "namespace", *paths):
            report.problems += (f"{path.name}: {problem}" for problem in check_store(path).problems)
        if report.problems:
            return report
        entries = _entries(folder)
        for entry in entries.values():
            report.queues[path_of(entry.description)] = QueueTotals()
        for path in paths:
            store = open_store(path, TABLES, Durability.PROCESS)
            try:
                _check_partition_rows(path.name, store, entries, report)
            finally:
                store.close()
    except StoreError as error:
        report.problems.append(str(error))
    return report


def _entries(folder: Path) -> dict[int, Entry]:
    catalog = Catalog(open_store(folder / "namespace", CATALOG_TABLES, Durability.PROCESS))
    try:
        return {entry.queue_id: entry for entry in catalog.entries()}
    finally:
        catalog.close()


def _rows(store: Store, table: str) -> Iterator[tuple[bytes, bytes]]:
    start = b""
    while True:
        with store.view() as view:
            rows = view.scan(table, start, LAST_KEY, ROWS_AT_ONCE)
        yield from rows
        if len(rows) < ROWS_AT_ONCE:
            return
        start = rows[-1][0] + b"\x00"


@dataclass(slots=True)
class _Contents:
    """What one messaging store has; a message is named by its queue id and sequence number."""

    totals: dict[int, QueueTotals] = field(default_factory=dict[int, QueueTotals])
    highest: dict[int, int] = field(default_factory=dict[int, int])  # sequence number, without the partition
    active: set[Message] = field(default_factory=set[Message])
    due: set[bytes] = field(default_factory=set[bytes])  # the rows of `due` that there must be for messages
    unreadable: list[Message] = field(default_factory=list[Message])

    def saw(self, queue_id: int, number: int) -> None:
        """There is a row of this sequence number."""
        self.highest[queue_id] = max(number & COUNTER_MASK, self.highest.get(queue_id, 0))


def _contents(store: Store) -> _Contents:
    contents = _Contents()
    for key, record in _rows(store, MESSAGES):
        queue_id, home, number = KEY.unpack(key)
        if len(record) < HEAD_BYTES or record[0] != RECORD_VERSION:
            contents.unreadable.append((queue_id, number))
            continue
        contents.saw(queue_id, number)
        totals = contents.totals.setdefault(queue_id, QueueTotals())
        totals.messages[home] += 1
        totals.bytes_used += len(record)
        if home == Home.ACTIVE:
            contents.active.add((queue_id, number))
            expires_at = unpack_head(record)[5]
            if expires_at:
                contents.due.add(due_key(expires_at, queue_id, Due.EXPIRE, number))
        elif home == Home.SCHEDULED:
            at = parse_stored(Record.unpack(record).stored).scheduled_enqueue_at
            contents.due.add(due_key(unpack_head(record)[4] if at is None else at, queue_id, Due.ACTIVATE, number))
    return contents


def _check_partition_rows(place: str, store: Store, entries: dict[int, Entry], report: FolderReport) -> None:
    contents = _contents(store)
    for queue_id, number in contents.unreadable:
        report.problems.append(f"{place}: message {number} of queue id {queue_id} has an unknown record version")
    problems = [*_due_problems(store, contents, entries), *_session_problems(store, contents, entries)]
    report.problems += (f"{place}: {count} {what}" for what, count in problems if count)
    states = {STATE_KEY.unpack(key)[0]: Counters.unpack(row) for key, row in _rows(store, STATE)}
    for queue_id in sorted(states.keys() | contents.totals.keys() | contents.highest.keys()):
        name = path_of(entries[queue_id].description) if queue_id in entries else str(queue_id)
        totals = contents.totals.get(queue_id, QueueTotals())
        counters = states.get(queue_id)
        if counters is None:
            report.problems.append(f"{place}: queue '{name}' has messages but no counters")
            continue
        if (counters.messages, counters.bytes_used) != (totals.messages, totals.bytes_used):
            report.problems.append(
                f"{place}: queue '{name}' counts {counters.messages} messages and "
                f"{counters.bytes_used} bytes but holds {totals.messages} and {totals.bytes_used}"
            )
        highest = contents.highest.get(queue_id, 0)
        if highest >= counters.next_counter:
            report.problems.append(
                f"{place}: queue '{name}' has sequence number {highest} and would give out {counters.next_counter} next"
            )
        known = report.queues.get(name) if queue_id in entries else None
        if known is not None:
            known.messages = [a + b for a, b in zip(known.messages, totals.messages, strict=True)]
            known.bytes_used += totals.bytes_used
            known.partitions += 1


def _due_problems(store: Store, contents: _Contents, entries: dict[int, Entry]) -> Iterator[tuple[str, int]]:
    """What does not agree between `due`, the messages and the remembered message ids, and how often."""
    rows = [key for key, _ in _rows(store, DUE) if len(key) == DUE_KEY.size]
    of_messages = {key for key in rows if DUE_KEY.unpack(key)[2] != Due.FORGET}
    forgets = {key for key in rows if DUE_KEY.unpack(key)[2] == Due.FORGET}
    yield f"messages with a time have no row in '{DUE}'", len(contents.due - of_messages)
    stray = [key for key in of_messages - contents.due if DUE_KEY.unpack(key)[1] in entries]  # the others go in time
    yield f"rows of '{DUE}' belong to no message", len(stray)
    remembered = {
        due_key(INSTANT.unpack(row)[0], queue_id, Due.FORGET, number)
        for key, row in _rows(store, DUPLICATES)
        for queue_id, number in (SESSION_NUMBER_KEY.unpack(key),)
    }
    yield "remembered message ids would never be forgotten", len(remembered - forgets)


def _session_problems(store: Store, contents: _Contents, entries: dict[int, Entry]) -> Iterator[tuple[str, int]]:
    """What does not agree between message sessions and their messages, and how often."""
    with_sessions = {queue_id for queue_id, each in entries.items() if _requires_session(each.description)}
    firsts: dict[Message, int] = {}  # by queue id and session number
    members: set[Message] = set()
    for key, _ in _rows(store, SESSION_MESSAGES):
        queue_id, session, number = SESSION_MESSAGE_KEY.unpack(key)
        contents.saw(queue_id, number)
        firsts.setdefault((queue_id, session), number)
        members.add((queue_id, number))
    expected = {message for message in contents.active if message[0] in with_sessions}
    yield "rows of sessions point to no active message", len(members - contents.active)
    yield "active messages are in no message session", len(expected - members)
    heads: dict[Message, int] = {}
    for key, name in _rows(store, SESSION_HEADS):
        queue_id, number = SESSION_NUMBER_KEY.unpack(key)
        contents.saw(queue_id, number)
        heads.setdefault((queue_id, session_number(name.decode())), number)
    unreachable = sum(1 for session, first in firsts.items() if heads.get(session, first + 1) > first)
    yield "message sessions with messages can't be found", unreachable
    named = {(STATE_KEY.unpack(key[:4])[0], SESSION_VALUE.unpack_from(row)[0]) for key, row in _rows(store, SESSIONS)}
    states = {SESSION_NUMBER_KEY.unpack(key) for key, _ in _rows(store, SESSION_STATE)}
    yield "message sessions have no name", len((firsts.keys() | states) - named)


def _requires_session(description: Description) -> bool:
    return bool(getattr(description, "requires_session", False))
