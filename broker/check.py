"""The check of a data folder: are the stores sound, and do a queue's counters agree with its rows?

Knows which folders a namespace consists of and how rows and counters relate; leaves the check of the stores' own
structure to `storage`. Reads everything once; needs the folder to itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from ..storage import Durability, Store, StoreError, check_store, open_store
from .catalog import CATALOG_TABLES, Catalog, path_of
from .records import (
    DUE,
    DUE_KEY,
    HEAD_BYTES,
    HOMES,
    KEY,
    MESSAGES,
    RECORD_VERSION,
    SESSION_MESSAGES,
    STATE,
    STATE_KEY,
    TABLES,
    Counters,
    Home,
    unpack_head,
)

ROWS_AT_ONCE = 1000
LAST_KEY = b"\xff" * 24


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
        names = _queue_names(folder)
        for name in names.values():
            report.queues[name] = QueueTotals()
        for path in paths:
            store = open_store(path, TABLES, Durability.PROCESS)
            try:
                _check_partition_rows(path.name, store, names, report)
            finally:
                store.close()
    except StoreError as error:
        report.problems.append(str(error))
    return report


def _queue_names(folder: Path) -> dict[int, str]:
    catalog = Catalog(open_store(folder / "namespace", CATALOG_TABLES, Durability.PROCESS))
    try:
        return {entry.queue_id: path_of(entry.description) for entry in catalog.entries()}
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


def _check_partition_rows(place: str, store: Store, names: dict[int, str], report: FolderReport) -> None:
    found: dict[int, QueueTotals] = {}
    expiring: set[bytes] = set()
    active: set[bytes] = set()  # queue id and number of the messages that sessions may point to
    in_sessions = {key[:4] + key[-8:] for key, _ in _rows(store, SESSION_MESSAGES)}
    for key, record in _rows(store, MESSAGES):
        queue_id, home, number = KEY.unpack(key)
        if len(record) < HEAD_BYTES or record[0] != RECORD_VERSION:
            report.problems.append(f"{place}: message {number} of queue id {queue_id} has an unknown record version")
            continue
        totals = found.setdefault(queue_id, QueueTotals())
        totals.messages[home] += 1
        totals.bytes_used += len(record)
        if home == Home.ACTIVE:
            if unpack_head(record)[5]:
                expiring.add(key)
            if key[:4] + key[-8:] in in_sessions:
                active.add(key[:4] + key[-8:])
    expiring -= {key[8:] for key, _ in _rows(store, DUE) if len(key) == DUE_KEY.size}
    if expiring:
        report.problems.append(f"{place}: {len(expiring)} messages with a time to live have no row in '{DUE}'")
    if in_sessions != active:
        report.problems.append(f"{place}: {len(in_sessions - active)} rows of sessions point to no active message")
    for key, row in _rows(store, STATE):
        (queue_id,) = STATE_KEY.unpack(key)
        counters = Counters.unpack(row)
        totals = found.pop(queue_id, QueueTotals())
        if (counters.messages, counters.bytes_used) != (totals.messages, totals.bytes_used):
            report.problems.append(
                f"{place}: queue '{names.get(queue_id, queue_id)}' counts {counters.messages} messages and "
                f"{counters.bytes_used} bytes but holds {totals.messages} and {totals.bytes_used}"
            )
        known = report.queues.get(names.get(queue_id, ""))
        if known is not None:
            known.messages = [a + b for a, b in zip(known.messages, totals.messages, strict=True)]
            known.bytes_used += totals.bytes_used
            known.partitions += 1
    for queue_id in found:
        report.problems.append(f"{place}: queue '{names.get(queue_id, queue_id)}' has messages but no counters")
