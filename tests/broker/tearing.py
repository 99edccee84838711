"""Partitions driven by hand over a store that fails in every way a disk can, and what is in such a store, in words.

A commit that fails has stored nothing (the disk refused) or everything (it is all there, but the confirmation was
lost): stores are atomic, and their driver learns only that the commit failed. The store can also do
what no store may, keep a part of a batch, to show that those who look for that find it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from enum import Enum, auto
from functools import lru_cache
from itertools import islice
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from sortedcontainers import SortedDict

from emubus.broker.api import TABLES
from emubus.broker.errors import BrokerError, Condition
from emubus.broker.partition.contract import PartitionRef
from emubus.broker.partition.partition import Partition
from emubus.broker.partition.ready_queue import Reader, WindowBudget
from emubus.broker.partition.records import (
    DUE,
    DUE_KEY,
    DUPLICATES,
    FORWARDED,
    FORWARDED_KEY,
    HOMES,
    INSTANT,
    KEY,
    MESSAGES,
    NUMBER,
    SESSION_HEADS,
    SESSION_MESSAGE_KEY,
    SESSION_MESSAGES,
    SESSION_NUMBER_KEY,
    SESSION_STATE,
    SESSION_VALUE,
    SESSIONS,
    STATE,
    STATE_KEY,
    Counters,
    Record,
    duplicate_hash,
)
from emubus.broker.partition.requests import Request
from emubus.broker.partition.turn import Turn
from emubus.storage import Batch, Store, StoreError, StoreFailed, View
from emubus.storage.contract import BatchState, StoreWithoutJournal
from emubus.storage.memory_store import MemoryStore

from .stored_fields import application_properties

LAST_KEY = b"\xff" * 32
ROWS_MAX = 1 << 30
NAME_AT = b"name:"
NAME_CHARS = 6
FAILURE = BrokerError(Condition.SERVER_BUSY, "the commit failed")

Picture = dict[str, Any]
"""All that a store has of one partition, in words; see `picture_of`."""


class Fate(Enum):
    """What becomes of a batch. All but the first raise the same error in the committer."""

    STORED = auto()
    REFUSED = auto()
    UNCONFIRMED = auto()
    HALF = auto()


class TearingStore(MemoryStore):
    """A store in memory; `fate` is that of the batches to come."""

    def __init__(self) -> None:
        super().__init__(TABLES)
        self.fate = Fate.STORED

    def finish(self, layer: dict[str, Any]) -> None:
        if self.fate is Fate.REFUSED:
            raise StoreFailed(None, "commit failed: the disk failed")
        super().finish(half_of(layer) if self.fate is Fate.HALF else layer)

    def committed(self) -> None:
        super().committed()
        if self.fate is not Fate.STORED:
            raise StoreFailed(None, "commit failed: the disk failed")


def half_of(layer: dict[str, Any]) -> dict[str, Any]:
    """The first half of a batch's writes, table by table."""
    writes = [(table, key, value) for table, rows in layer.items() for key, value in rows.items()]
    half: dict[str, Any] = {}
    for table, key, value in islice(writes, len(writes) // 2):
        half.setdefault(table, SortedDict())[key] = value
    return half


class Lossy:
    """What the stores around which a `LossyStore` is do wrong: the next batch loses writes."""

    def __init__(self) -> None:
        self.lost: tuple[int, ...] | None = None  # by their numbers in the batch
        self.writes = 0  # of the batch that has lost some

    def lose(self, lost: tuple[int, ...]) -> None:
        self.lost = lost

    def around(self, store: Store) -> Store:
        return LossyStore(store, self)


class LossyStore(StoreWithoutJournal):
    """Any store, with which no batch is safe: a write of it may be lost without an error."""

    def __init__(self, store: Store, lossy: Lossy) -> None:
        self._store = store
        self._lossy = lossy
        self.blocking, self.waits = store.blocking, store.waits

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Batch:
        return LossyBatch(self._store.begin(expected_bytes, frees=frees), self._lossy)

    def view(self) -> View:
        return self._store.view()

    @property
    def failure(self) -> str | None:
        return self._store.failure

    def recover(self) -> None:
        self._store.recover()

    def copy_to(self, path: Path) -> Callable[[], None]:
        return self._store.copy_to(path)

    def close(self) -> None:
        self._store.close()


class LossyBatch:
    """A batch of such a store."""

    def __init__(self, batch: Batch, lossy: Lossy) -> None:
        self._batch = batch
        self._lossy = lossy
        self._before: dict[tuple[str, bytes], bytes | None] = {}
        self.get = batch.get
        self.scan = batch.scan
        self.abort = batch.abort
        self.close = batch.close

    @property
    def shared(self) -> None:
        return

    @property
    def state(self) -> BatchState:
        return self._batch.state

    def put(self, table: str, key: bytes, value: bytes) -> None:
        self._before.setdefault((table, key), self._batch.get(table, key))
        self._batch.put(table, key, value)

    def delete(self, table: str, key: bytes) -> bool:
        self._before.setdefault((table, key), self._batch.get(table, key))
        return self._batch.delete(table, key)

    def put_rows(self, table: str, rows: Sequence[tuple[bytes, bytes]]) -> None:
        for key, value in rows:
            self.put(table, key, value)

    def delete_rows(self, table: str, keys: Sequence[bytes]) -> None:
        for key in keys:
            self.delete(table, key)

    def commit(self) -> None:
        lost, self._lossy.lost = self._lossy.lost, None
        if lost is not None:
            self._lossy.writes = len(self._before)
            for (table, key), value in [list(self._before.items())[number] for number in lost]:
                if value is None:
                    self._batch.delete(table, key)
                else:
                    self._batch.put(table, key, value)
        self._batch.commit()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._batch.abort()


class Cell:
    """The partitions of one messaging store, and their batches, as `Worker` does it without a loop."""

    def __init__(self, window_bytes: int = 1 << 20) -> None:
        self.store = TearingStore()
        self.partitions: dict[int, Partition] = {}
        self.budget = WindowBudget(window_bytes)
        self._seen: set[int] = set()

    def run(self, now: int, *requests: tuple[PartitionRef, Request]) -> set[int] | None:
        """One batch: decide, commit, release the effects.

        None if that went well. Else all commands have failed, and the answer is the ids of the queues whose memory was
        dropped: none after a refused commit, which changes no lock.
        """
        batch = self.store.begin(1 << 20)
        turn = Turn(now, batch)
        self._seen.clear()
        changed = False
        for ref, request in requests:
            self._sibling(ref, batch).handlers[type(request)](request, turn)
            changed = turn.write_to(batch) > 0 or changed
        changed = turn.write_counters(batch) or changed
        try:
            if changed:
                batch.commit()
            else:
                batch.abort()
        except StoreError:
            dropped = set[int]() if self.store.fate is Fate.REFUSED else set(self._seen)
            with self.store.view() as view:
                for queue_id in self._seen - dropped:
                    self.partitions[queue_id].roll_back(view)
            for queue_id in dropped:
                self.partitions.pop(queue_id).close()
            for _, request in requests:
                request.fail(FAILURE)
            return dropped
        for queue_id in self._seen:
            self.partitions[queue_id].keep()
        for effect, argument in turn.effects:
            effect(argument)
        return None

    def reopen(self) -> None:
        """Forget all memory, as a restart does."""
        for partition in self.partitions.values():
            partition.close()
        self.partitions.clear()
        assert self.budget.bytes_used == 0

    def check(self) -> None:
        """The invariants of all partitions hold against what is stored."""
        with self.store.view() as view:
            for partition in self.partitions.values():
                partition.check_invariants(view)

    def due_rows(self, queue_id: int, now: int) -> list[tuple[int, int, int]]:
        """The rows of the `due` table of a queue up to now, as the worker would read them."""
        with self.store.view() as view:
            rows = view.scan(DUE, b"", DUE_KEY.pack(now + 1, 0, 0, 0), ROWS_MAX)
        found = [DUE_KEY.unpack(key) for key, _ in rows]
        return [(at, what, number) for at, its_queue_id, what, number in found if its_queue_id == queue_id]

    def rows_left(self) -> dict[str, int]:
        """How many rows each table holds; `due` is left out, its rows go when they are due."""
        with self.store.view() as view:
            counts = {table: len(view.scan(table, b"", LAST_KEY, ROWS_MAX)) for table in TABLES if table != DUE}
        return {table: count for table, count in counts.items() if count}

    def _sibling(self, ref: PartitionRef, view: Reader) -> Partition:
        self._seen.add(ref.queue_id)
        partition = self.partitions.get(ref.queue_id)
        if partition is None:
            partition = self.partitions[ref.queue_id] = Partition(ref, view, self.budget, self._sibling)
        return partition


# ---- what is stored, in words


def name_of(stored: bytes) -> str:
    """The name in a message's body, read from its bytes (decoding all of it takes too long here)."""
    start = stored.index(NAME_AT) + len(NAME_AT)
    return stored[start : start + NAME_CHARS].decode()


@lru_cache(1 << 14)
def _reported(row: bytes) -> tuple[object, ...]:
    """The name of a stored message and all that its row says besides, in the order of `Item.reported`."""
    record = Record.unpack(row)
    reason = application_properties(record.stored).get("DeadLetterReason") if b"DeadLetterReason" in row else None
    return (
        name_of(record.stored),
        record.delivery_count,
        record.enqueued_at,
        record.expires_at,
        record.enqueued_number,
        record.hops,
        record.other_path,
        reason,
    )


@lru_cache(1 << 14)
def hash_of(message_id: str) -> int:
    """Under which a message id is remembered in an entity without partitions."""
    return duplicate_hash(f"{message_id}\0")


def picture_of(store: MemoryStore, queue_id: int) -> Picture:
    """All rows of one queue but those of sessions without state and of `session_heads`, decoded."""
    first, last = STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1)
    with store.view() as view:
        rows = {
            table: view.scan(table, first, last, ROWS_MAX)
            for table in (MESSAGES, SESSIONS, SESSION_MESSAGES, SESSION_STATE, DUPLICATES, FORWARDED)
        }
        due = [DUE_KEY.unpack(key) for key, _ in view.scan(DUE, b"", LAST_KEY, ROWS_MAX)]
        counters = Counters.unpack(view.get(STATE, first))
    messages = [(KEY.unpack(key), row) for key, row in rows[MESSAGES]]
    changed_at = dict(SESSION_VALUE.unpack_from(row) for _, row in rows[SESSIONS])
    states = {SESSION_NUMBER_KEY.unpack(key)[1]: row for key, row in rows[SESSION_STATE]}
    return {
        "messages": {(HOMES[home], number): _reported(row) for (_, home, number), row in messages},
        "next": counters.next_counter,
        "counts": counters.messages,
        "bytes miscounted": counters.bytes_used - sum(len(row) for _, row in rows[MESSAGES]),
        "state bytes miscounted": counters.state_bytes - sum(len(row) for _, row in rows[SESSION_STATE]),
        "due": {(what, at, number) for at, its_queue_id, what, number in due if its_queue_id == queue_id},
        "duplicates": {SESSION_NUMBER_KEY.unpack(key)[1]: INSTANT.unpack(row)[0] for key, row in rows[DUPLICATES]},
        "forwarded": {FORWARDED_KEY.unpack(key)[1:]: NUMBER.unpack(row)[0] for key, row in rows[FORWARDED]},
        "in sessions": {SESSION_MESSAGE_KEY.unpack(key)[1:] for key, _ in rows[SESSION_MESSAGES]},
        "session states": {session: (state, changed_at.get(session)) for session, state in states.items()},
    }


def sessions_of(store: MemoryStore, queue_id: int) -> dict[str, tuple[int, int]]:
    """The rows of `sessions`: name → (session number, instant of the last change of state)."""
    with store.view() as view:
        rows = view.scan(SESSIONS, STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1), ROWS_MAX)
    return {row[SESSION_VALUE.size :].decode(): SESSION_VALUE.unpack_from(row) for _, row in rows}


def heads_of(store: MemoryStore, queue_id: int) -> dict[int, str]:
    """The rows of `session_heads`: sequence number → name."""
    with store.view() as view:
        rows = view.scan(SESSION_HEADS, STATE_KEY.pack(queue_id), STATE_KEY.pack(queue_id + 1), ROWS_MAX)
    return {SESSION_NUMBER_KEY.unpack(key)[1]: row.decode() for key, row in rows}
