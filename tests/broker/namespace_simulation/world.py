"""The broker of a simulation: over stores in memory that tear, with a clock and a loop that stand still until moved.

Knows how to stop, kill and start it, and what is in its stores. Does not know what should be there (`model.py`).
"""

from __future__ import annotations

import gc
import random
import traceback
from collections.abc import Callable, Iterator, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import structlog

from emubus.broker import ids
from emubus.broker.api import Home, Outage, OutageKind
from emubus.broker.broker import Broker
from emubus.broker.clock import Clock, Timer
from emubus.broker.errors import BrokerError
from emubus.broker.message.stored import parse_stored
from emubus.broker.model.catalog import CATALOG_TABLES, Catalog
from emubus.broker.model.profiles import Profile, limits_for
from emubus.broker.partition.records import HOMES, MESSAGES, SESSION_NUMBER_KEY, SESSION_STATE, Record
from emubus.storage import StoreError
from emubus.storage.memory_store import MemoryStore

from ..namespace import forwarding_count
from ..stored_fields import application_properties
from ..tearing import Fate, TearingStore
from .loop import SteppedLoop
from .shapes import Shape, topology

STORES = 16
START_AT = 1_800_000_000_000
LAST_KEY = b"\xff" * 32
ROWS_MAX = 1 << 30
LABEL_AT, LABEL_DIGITS = b"name:", 6
LIMITS = replace(limits_for(Profile.STANDARD), size_is_per_partition=False)
STEP_MS, STEPS_MAX = 1_000, 400
LONG_US, LONG_PART = 3_000, 0.1


class UnevenClock(Clock):
    """Stands still but for commands, and so does elapsed time; what takes long on its stopwatch is chance, the same in
    each run: workers wait for turns by it."""

    def __init__(self, now: int) -> None:
        super().__init__(start_at=now, frozen=True)
        self._chance = random.Random(now)
        self._stopwatch_us = 0

    def call_after(self, delay_ms: int, callback: Callable[[], None]) -> Timer:
        return self.call_at(self.now_ms() + delay_ms, callback)

    def stopwatch_us(self) -> int:  # type: ignore[override]
        """Microseconds; sometimes more than a turn has."""
        self._stopwatch_us += LONG_US if self._chance.random() < LONG_PART else 1
        return self._stopwatch_us


class Disk(TearingStore):
    """A store whose rows outlive the process; a dead process can't write to it any more."""

    def __init__(self, before: Disk | None = None) -> None:
        super().__init__()
        self.dead = False
        self.failures = 0  # batches that were not confirmed
        self.rows: list[Row] | None = None  # what was found in it since something was written last
        self.known: dict[bytes, tuple[bytes, Row]] = {}  # by key: what was found the last time, and its bytes
        if before is not None:
            before._fold()
            self._base = before._base

    def begin(self, expected_bytes: int, *, frees: bool = False) -> Any:
        if self.dead:
            raise StoreError(None, "the process is gone")
        return super().begin(expected_bytes, frees=frees)

    def committed(self) -> None:
        if self.fate is not Fate.STORED:
            self.failures += 1
        super().committed()

    def finish(self, layer: dict[str, Any]) -> None:
        if self.dead or self.fate is Fate.REFUSED:
            self.failures += 1
        self.rows = None
        super().finish(layer)

    def close(self) -> None:
        self._fold()
        self._closed = True


class CatalogDisk(MemoryStore):
    """The rows of the catalog, which outlive the process, too."""

    def __init__(self, before: CatalogDisk | None = None) -> None:
        super().__init__(CATALOG_TABLES)
        if before is not None:
            before._fold()
            self._base = before._base

    def close(self) -> None:
        self._fold()
        self._closed = True


@dataclass(slots=True)  # not frozen, as hundreds are made at each look
class Row:
    """A message as a store has it."""

    path: str
    home: Home
    store: int
    number: int
    label: int
    session: str | None
    key: str | None
    colour: str | None
    rule: str | None
    reason: str | None
    deliveries: int
    expires_at: int
    ttl_ms: int | None
    hops: int
    size_bytes: int

    def __str__(self) -> str:
        return (
            f"message {self.label} in {self.path} ({self.home.name}), store {self.store}, number {self.number:#x}: "
            f"session {self.session}, key {self.key}, count {self.deliveries}, hops {self.hops}, "
            f"{self.reason or 'no reason'}"
        )


@lru_cache(1 << 15)
def _decoded(row: bytes) -> tuple[Any, ...]:
    record = Record.unpack(row)
    message = parse_stored(record.stored)
    properties = application_properties(record.stored)
    return (
        label_of(record.stored),
        message.session_id,
        message.partition_key,
        properties.get("colour"),
        properties.get("RuleName"),
        properties.get("DeadLetterReason"),
        record.delivery_count,
        record.expires_at,
        message.ttl_ms,
        record.hops,
        len(row),
    )


def label_of(payload: bytes) -> int:
    """The label in a message's body."""
    start = payload.index(LABEL_AT) + len(LABEL_AT)
    return int(payload[start : start + LABEL_DIGITS])


def label_bytes(label: int) -> bytes:
    """How a label stands in a body."""
    return LABEL_AT + f"{label:0{LABEL_DIGITS}}".encode()


Mark = tuple[int, int, int]
"""What a receiver is not shown: how often a message was forwarded, and when it expires (Unix ms, 0 for never)."""


class World:
    """One namespace, its disks, its clock and its loop."""

    def __init__(self, shapes: tuple[Shape, ...]) -> None:
        self.loop = SteppedLoop()
        self.errors: list[str] = []  # what was logged with a traceback
        self.disks = [Disk() for _ in range(STORES)]
        self._catalog = CatalogDisk()
        self.clock = UnevenClock(START_AT)
        self._topology = topology(shapes)
        self.troubles: list[int] = []  # each store that fell into trouble, once for each time
        self._slow: set[int] = set()  # also under the outage that followed: what waits goes on waiting
        self.life = 0  # how often it was started
        self._paths: dict[int, str] = {}  # of the entities when rows were looked for last
        self.broker = self._start()

    # ---- life

    @contextmanager
    def running(self) -> Iterator[None]:
        """Be in the loop; what the broker logs is not printed, and the ids that it gives are the same every time."""
        before = structlog.get_config()
        take_before = ids._take
        chance = random.Random(0)
        # A message id that the broker gives may choose the partition.
        ids._take = lambda count: chance.randbytes(count)
        structlog.configure(
            processors=[self._log],
            wrapper_class=structlog.make_filtering_bound_logger(40),
            cache_logger_on_first_use=False,
        )
        try:
            gc.disable()  # a run makes no garbage to speak of that reference counts leave
            with self.loop.running():
                yield
                self.loop.cancel_all()
        finally:
            gc.enable()
            ids._take = take_before
            structlog.configure(**before)

    def start(self) -> None:
        """Begin to work; inside `running`."""
        self.broker.start(self._topology, only_if_new=True)
        self.loop.run_until_idle()

    def stop(self) -> None:
        """Stop as an operator does: what was accepted for work is finished."""
        stopping = self.loop.create_task(self.broker.stop())
        self.loop.run_until_idle()
        for _ in range(STEPS_MAX):
            if stopping.done():
                break
            self.advance(STEP_MS)
        stopping.result()

    def restart(self, *, crash: bool) -> None:
        """Stop, or die, and start again over the same disks."""
        if crash:
            for disk in self.disks:
                disk.dead = True
            self.loop.cancel_all()
            self.broker.namespace.pool.shutdown(wait=False)
        else:
            self.stop()
        self._slow.clear()
        now = self.clock.now_ms()
        self.clock.close()
        self.clock = UnevenClock(now)
        fates = [disk.fate for disk in self.disks]
        self.disks = [Disk(disk) for disk in self.disks]
        for disk, fate in zip(self.disks, fates, strict=True):
            disk.fate = fate
        self._catalog = CatalogDisk(self._catalog)
        self.broker = self._start()
        self.start()

    def _start(self) -> Broker:
        self.life += 1
        return Broker(Catalog(self._catalog), self.disks, self.clock, LIMITS)

    # ---- time and trouble

    def advance(self, ms: int) -> None:
        """Move the clock, and let happen what falls due."""
        self.clock.advance(ms)
        self.loop.run_until_idle()

    def begin_outage(self, store: int, kind: OutageKind) -> None:
        """A store is out until it is mended."""
        self.troubles.append(store)
        self.broker.outages.begin(store, Outage(kind, 5_000))
        if kind is OutageKind.SLOW:
            self._slow.add(store)

    def tear(self, store: int, fate: Fate) -> None:
        """The commits of a store fail from now on."""
        self.troubles.append(store)
        self.disks[store].fate = fate

    def mend(self, store: int) -> None:
        """A store works."""
        if self.is_troubled(store) or store in self._slow:
            self.disks[store].fate = Fate.STORED
            self._slow.discard(store)
            self.broker.outages.end(store)

    def is_troubled(self, store: int) -> bool:
        """Whether a store may fail what it is asked for now."""
        return self.broker.namespace.workers[store].outage is not None or self.disks[store].fate is not Fate.STORED

    def troubled(self) -> set[int]:
        """The stores that may fail what they are asked for now."""
        states = zip(self.broker.namespace.workers, self.disks, strict=True)
        return {
            store
            for store, (worker, disk) in enumerate(states)
            if worker.outage is not None or disk.fate is not Fate.STORED
        }

    def is_slow(self) -> bool:
        """Whether a store keeps what it is asked for waiting."""
        return bool(self._slow)

    def is_busy(self) -> bool:
        """Whether anything is under way between entities."""
        return bool(self.is_forwarding() or self.broker.namespace.catalog.deleted)

    def is_forwarding(self) -> bool:
        """Whether messages go to other entities now, or wait for a second attempt."""
        return forwarding_count(self.broker) > 0

    def failures(self) -> int:
        """How many batches were not confirmed in this life: their partitions have lost their memory, and all locks."""
        outages = sum(worker.commit_stats.failures for worker in self.broker.namespace.workers)
        return outages + sum(disk.failures for disk in self.disks)

    # ---- what is stored

    def rows(self) -> list[Row]:
        """Every message in every store."""
        paths = {entity.queue_id: entity.path for entity in self.broker.namespace.entities()}
        if paths != self._paths:
            self._paths = paths
            for disk in self.disks:
                disk.rows = None
                disk.known = {}
        found: list[Row] = []
        for index, disk in enumerate(self.disks):
            if disk.rows is None:
                disk.rows = self._rows_of(index, disk)
            found += disk.rows
        return found

    def _rows_of(self, index: int, disk: Disk) -> list[Row]:
        known: dict[bytes, tuple[bytes, Row]] = {}
        with disk.view() as view:
            for key, value in view.scan(MESSAGES, b"\0", LAST_KEY, ROWS_MAX):
                before = disk.known.get(key)
                if before is not None and before[0] is value:
                    known[key] = before
                    continue
                queue_id = int.from_bytes(key[:4], "big")
                path = self._paths.get(queue_id, f"(deleted {queue_id})")
                number = int.from_bytes(key[5:], "big")
                known[key] = value, Row(path, HOMES[key[4]], index, number, *_decoded(value))
        disk.known = known
        return [row for _, row in known.values()]

    def marks_in(self, path: str, home: str) -> dict[int, Mark]:
        """For each message in a place, by sequence number: hops, when it expires, failed deliveries."""
        entity = self.broker.namespace.entity(path)
        if entity is None:
            return {}
        place = entity.queue_id.to_bytes(4, "big") + bytes((Home[home],))
        found: dict[int, Mark] = {}
        for disk in self.disks:
            with disk.view() as view:
                for key, row in view.scan(MESSAGES, place, place + LAST_KEY, ROWS_MAX):
                    *_, deliveries, expires_at, _, hops, _ = _decoded(row)
                    found[int.from_bytes(key[5:], "big")] = hops, expires_at, deliveries
        return found

    def labels_stored(self) -> set[int]:
        """The labels of all messages in all stores."""
        return {row.label for row in self.rows()}

    def states(self) -> dict[tuple[str, int], str]:
        """The states of message sessions, by path and number of the session."""
        paths = {entity.queue_id: entity.path for entity in self.broker.namespace.entities()}
        found: dict[tuple[str, int], str] = {}
        for disk in self.disks:
            with disk.view() as view:
                for key, value in view.scan(SESSION_STATE, b"\0", LAST_KEY, ROWS_MAX):
                    queue_id, session = SESSION_NUMBER_KEY.unpack(key)
                    found[paths.get(queue_id, ""), session] = value.decode()
        return found

    # ---- helpers

    def ask(self, coroutine: Any) -> Answer:
        """Begin a request; the answer is there when the loop is idle, unless a store keeps it waiting."""
        answer = Answer()
        life = self.life

        async def run() -> None:
            try:
                result = await coroutine
            except BrokerError as error:
                result = error
            except Exception:
                self.errors.append(traceback.format_exc(limit=-4))
                return
            if life == self.life:
                answer.give(result)

        task = self.loop.create_task(run(), name="request")
        task.add_done_callback(lambda _: coroutine.close())  # it has not begun if the process died before
        return answer

    def _log(self, logger: Any, name: str, event: MutableMapping[str, Any]) -> str:
        if event.get("exc_info"):
            self.errors.append(f"{event.get('event')}: {traceback.format_exc(limit=-4)}")
        raise structlog.DropEvent


class Answer:
    """What a verb was answered with, once it was."""

    __slots__ = ("given", "result")

    def __init__(self) -> None:
        self.given = False
        self.result: Any = None

    def give(self, result: Any) -> None:
        assert not self.given, f"answered twice: {self.result} and {result}"
        self.given = True
        self.result = result

    @property
    def error(self) -> BrokerError | None:
        return self.result if isinstance(self.result, BrokerError) else None
