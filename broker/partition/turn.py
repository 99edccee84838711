"""A turn: one batch of requests, the instant and the rows that it sees, and what comes of it.

The worker makes one `Turn` for a batch and gives it to every handler of every partition that the batch has requests
for. Handlers read `now` and `view`, and add to the rest; nothing of it is stored, and nobody hears of it, before the
batch is committed. Does not know requests, stores and clocks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from ..message.message import Message
from .contract import Counted, Counts, Delays, Event, EventKind, Observer, PartitionRef, new_event
from .ready_queue import Reader
from .records import MESSAGES, STATE, STATE_KEY, Counters


class Writer(Protocol):
    """The write half of a store's batch (`storage.contract.Batch`)."""

    def put(self, table: str, key: bytes, value: bytes) -> None:
        """Write or overwrite a row."""
        ...

    def delete(self, table: str, key: bytes) -> bool:
        """Remove a row; False if it wasn't there."""
        ...

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        """Write rows that are in the order of their keys."""
        ...

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        """Remove each of `keys` that is there."""
        ...


class Turn:
    """One batch of requests.

    It sees: `now`, the one instant of all its requests (Unix ms), `delays`, what is late on purpose (None as a rule),
    and `view`, the rows as they are with the changes of the requests before. What a request changes itself shows in the
    view only after it.

    It leaves: `rows` (new rows of the `messages` table, key and row: `row_runs` runs, each in order, of `row_bytes` in
    all), `changes` (table, key, value or None to delete) and `removed` (keys of the `messages` table to delete). They
    are written in this order after each request: a request may replace a row and then remove it, but stores no row
    under a key that it has removed. `touched` has the changed counters by queue id. `effects` are calls with their
    argument, which the worker makes after the commit, on the event-loop thread. `counts` are for the counters of
    entities, `events` for an observer; None without one. `next_due` is the earliest instant (Unix ms) that the changes
    added to the `due` table, or None. `matches` has those of a topic's messages that were found before the batch, by
    the identity of the message, which lives as long as the batch (`Send.matches`).
    """

    __slots__ = (
        "changes",
        "counts",
        "delays",
        "effects",
        "events",
        "matches",
        "next_due",
        "now",
        "removed",
        "row_bytes",
        "row_runs",
        "rows",
        "touched",
        "view",
    )

    def __init__(self, now: int, view: Reader, events: list[Event] | None = None, delays: Delays | None = None) -> None:
        self.now = now
        self.view = view
        self.events = events
        self.delays = delays
        self.matches: dict[int, object] = {}
        self.rows: list[tuple[bytes, bytes]] = []
        self.row_bytes = self.row_runs = 0
        self.removed: list[bytes] = []
        self.changes: list[tuple[str, bytes, bytes | None]] = []
        self.effects: list[tuple[Callable[..., None], object]] = []
        self.touched: dict[int, Counters] = {}
        self.counts: list[Counts] = []
        self.next_due: int | None = None

    def write_to(self, batch: Writer) -> int:
        """Write the changes to `batch` and forget them; return about how many bytes they have, 0 for no change."""
        written_bytes = 0
        if self.rows:
            if self.row_runs > 1:  # a run is in order already; the copies of a topic are of several queues
                self.rows.sort()
            batch.put_rows(MESSAGES, self.rows)
            written_bytes, self.row_bytes, self.row_runs = self.row_bytes, 0, 0
            self.rows = []
        if self.changes:
            put, delete = batch.put, batch.delete
            for table, key, value in self.changes:
                if value is None:
                    written_bytes += 1
                    delete(table, key)
                else:
                    written_bytes += len(value) + 1
                    put(table, key, value)
            self.changes.clear()
        if self.removed:
            batch.delete_rows(MESSAGES, self.removed)
            written_bytes += len(self.removed)
            self.removed = []
        return written_bytes

    def write_counters(self, batch: Writer) -> bool:
        """Write the changed counters to `batch`, once for all requests; return whether there are any."""
        for queue_id, counters in self.touched.items():
            batch.put(STATE, STATE_KEY.pack(queue_id), counters.pack())
        return bool(self.touched)

    def release(self, observer: Observer) -> None:
        """Once the changes are stored: report the events, then make the effects' calls."""
        assert not self.rows, "these rows are in no batch"
        assert not self.changes
        assert not self.removed
        if self.events:
            observer.observe(self.now, self.events)  # first: what the effects cause comes later
        for effect, argument in self.effects:
            effect(argument)

    def note(
        self,
        kind: EventKind,
        ref: PartitionRef,
        numbers: Sequence[int | None],
        messages: Sequence[Message] = (),
        source: tuple[int, int] | None = None,
        **facts: object,
    ) -> None:
        """Note an event for the observer, if there is one; `numbers` may be a list that is filled afterwards."""
        if self.events is not None:
            self.events.append(new_event((kind, ref, numbers, messages, source, facts)))

    def count(self, queue_id: int, what: Counted, count: int = 1, detail: str = "") -> None:
        """Count what happened to messages of a partition, once for a run. What each message passes adds to `counts`."""
        self.counts.append((queue_id, what, detail, count))

    def due_at(self, at: int) -> None:
        """Note that a change adds a row to the `due` table for the instant `at` (Unix ms)."""
        if self.next_due is None or at < self.next_due:
            self.next_due = at
