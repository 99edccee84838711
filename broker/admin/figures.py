"""Figures of a running namespace for metrics, the control API and the page: stores, partitions, placement.

Reads the counters of messaging stores and partitions. Changes nothing and counts nothing itself. Each report is an
immutable copy.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Final

from ...storage import StoreError, View
from ..address import SubQueue
from ..entities.entity import Entity, PartitionHandle
from ..entities.namespace import Namespace
from ..lazy_dataclass import dataclass
from ..partition.contract import Counted
from ..partition.records import (
    HOMES,
    MESSAGES,
    PARTITION_SHIFT,
    STATE,
    STATE_KEY,
    Counters,
    Home,
    Record,
    message_key,
)
from ..stores.counting import Histogram
from ..stores.outage import HEALTHY, Outage
from ..stores.recovery import Failure
from ..stores.worker import Worker

HOME_NAMES: Final = tuple(home.name.lower().replace("_", "-") for home in HOMES)

ALL_STATES_MAX = 1 << 24
ARRIVALS: Final = (Counted.SENT, Counted.FORWARDED, Counted.COPIED, Counted.RESUBMITTED)
"""The ways in which messages come to an entity."""


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Distribution:
    """A histogram: `counts[i]` values were at most `bounds[i]` and above the bound before; the last count is for
    larger values. `total` is the sum of all values."""

    bounds: Sequence[int]
    counts: Sequence[int]
    total: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class MessagingStoreReport:
    """A messaging store: its health (HEALTHY or a kind of outage), its current outage or failure, its commits since the
    start with their durations (microseconds) and their numbers of requests."""

    store: int
    health: str
    outage: Outage | None
    failure: Failure | None
    is_available: bool
    failed_commit_count: int
    commit_us: Distribution
    commands: Distribution

    @property
    def is_out(self) -> bool:
        """Whether it has an outage or a failure."""
        return self.health != HEALTHY

    @property
    def commit_count(self) -> int:
        return sum(self.commands.counts)


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class PartitionFigures:
    """Counters of a partition. `numbers_given` is the number of assigned sequence numbers; `last_activity_at` (Unix ms)
    is None if the partition was not used since the start, `oldest_at` (Unix ms), when its first active message was
    enqueued, without one."""

    path: str
    partition_id: int
    store: int
    messages: Mapping[str, int]
    size_bytes: int
    locked_count: int
    numbers_given: int
    last_activity_at: int | None
    oldest_at: int | None


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Activity:
    """What went on in an entity since its partitions are in memory: messages that came, how many more there are than
    then, expired locks; and its present active messages and dead letters."""

    came: int
    messages_more: int
    lock_losses: int
    active_count: int
    dead_letter_count: int


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Placement:
    """The partition and store of a sequence number. `first_number` is the lowest number of the partition, `next_number`
    the next one it assigns, None while its store is unreachable."""

    partition_id: int
    store: int
    first_number: int
    next_number: int | None


def stores(namespace: Namespace) -> list[MessagingStoreReport]:
    return [store(namespace, worker.index) for worker in namespace.workers]


def store(namespace: Namespace, index: int) -> MessagingStoreReport:
    worker = namespace.workers[index]
    commit_stats = worker.commit_stats
    return MessagingStoreReport(
        worker.index,
        worker.health,
        worker.outage,
        worker.failure,
        worker.available,
        commit_stats.failures,
        _distribution(commit_stats.latency_us),
        _distribution(commit_stats.sizes),
    )


def used_partitions(namespace: Namespace) -> Iterator[PartitionFigures]:
    """Return the partitions that ever held a message, by store; unreachable stores are omitted."""
    entities = {entity.queue_id: entity for entity in namespace.entities()}
    for worker in namespace.workers:
        if not worker.available:
            continue
        try:
            with worker.view() as view:
                states = [
                    (STATE_KEY.unpack(key)[0], Counters.unpack(row))
                    for key, row in view.scan(STATE, b"", b"\xff" * (STATE_KEY.size + 1), ALL_STATES_MAX)
                ]
                rows = [(queue_id, counters, _oldest_at(queue_id, counters, view)) for queue_id, counters in states]
        except StoreError:
            continue
        for queue_id, counters, oldest_at in rows:
            entity = entities.get(queue_id)
            handle = None if entity is None else _partition_in(entity, worker)
            if handle is not None:
                yield _figures(handle, counters, oldest_at)


def message_counts(namespace: Namespace) -> Iterator[tuple[str, Counter[tuple[Counted, str]]]]:
    """Return what happened to messages since the start, by the path of the entity; unused entities are omitted."""
    for entity in namespace.entities():
        total = Counter[tuple[Counted, str]]()
        for handle in entity.partitions:
            total.update(handle.worker.message_counts.of(handle.queue_id))
        if total:
            yield entity.path, total


def activity(namespace: Namespace) -> dict[str, Activity]:
    """Return the counters of all entities with partitions in memory, by path; it takes no look into the stores."""
    sums: dict[str, list[int]] = {}
    for worker in namespace.workers:
        for partition in worker.open_partitions():
            state = partition.state
            messages, counts = state.counters.messages, worker.message_counts.of(state.queue_id)
            own = (
                sum(counts.get((what, ""), 0) for what in ARRIVALS),
                sum(messages) - state.loaded_count,
                sum(counts.get((Counted.LOCKS_EXPIRED, each), 0) for each in SubQueue),
                messages[Home.ACTIVE],
                messages[Home.DEAD_LETTER] + messages[Home.TRANSFER_DEAD_LETTER],
            )
            known = sums.get(state.ref.path)
            sums[state.ref.path] = list(own) if known is None else [a + b for a, b in zip(known, own, strict=True)]
    return {path: Activity(*each) for path, each in sums.items()}


def commits(namespace: Namespace) -> tuple[int, int]:
    """Return how many commits all stores made, and how long they took together (microseconds)."""
    stats = [worker.commit_stats.latency_us for worker in namespace.workers]
    return sum(sum(each.counts) for each in stats), sum(each.total for each in stats)


def placement(entity: Entity, number: int) -> Placement:
    """Return the partition and store of a sequence number."""
    return placement_in(entity, number >> PARTITION_SHIFT if entity.partitioned else 0)


def placement_in(entity: Entity, partition_id: int) -> Placement:
    handle = entity.partitions[partition_id]
    first = partition_id << PARTITION_SHIFT if entity.partitioned else 0
    counters = _counters(handle)
    return Placement(
        partition_id, handle.worker.index, first, None if counters is None else first | counters.next_counter
    )


def oldest_at(entity: Entity) -> int | None:
    """Return when the first active message of an entity was enqueued (Unix ms), None if none can be reached."""
    found: list[int | None] = []
    for handle in entity.partitions:
        worker = handle.worker
        with suppress(StoreError):
            # Most partitions of most entities are empty, and a view costs more than all else here.
            if worker.available and worker.counters(entity.queue_id).messages[Home.ACTIVE]:
                with worker.view() as view:
                    found.append(_oldest_at(entity.queue_id, worker.counters(entity.queue_id), view))
    return min((each for each in found if each is not None), default=None)


def _oldest_at(queue_id: int, counters: Counters, view: View) -> int | None:
    """When the first active message of a partition was enqueued (Unix ms), None without one."""
    if not counters.messages[Home.ACTIVE]:
        return None
    first, stop = message_key(queue_id, Home.ACTIVE, 0), message_key(queue_id, Home.ACTIVE + 1, 0)
    rows = view.scan(MESSAGES, first, stop, 1)
    return Record.unpack(rows[0][1]).enqueued_at if rows else None


def _figures(handle: PartitionHandle, counters: Counters, oldest_at: int | None) -> PartitionFigures:
    partition = handle.worker.partition(handle.queue_id)
    return PartitionFigures(
        handle.path,
        handle.index,
        handle.worker.index,
        dict(zip(HOME_NAMES, counters.messages, strict=True)),
        handle.size_of(counters),
        0 if partition is None else partition.locked_count(),
        counters.next_counter & ((1 << PARTITION_SHIFT) - 1),
        None if partition is None else partition.state.last_activity_at or None,
        oldest_at,
    )


def _partition_in(entity: Entity, worker: Worker) -> PartitionHandle | None:
    return next((each for each in entity.partitions if each.worker is worker), None)


def _counters(handle: PartitionHandle) -> Counters | None:
    """Return the counters of a partition; None while its store is unreachable."""
    try:
        return handle.worker.counters(handle.queue_id) if handle.worker.available else None
    except StoreError:
        return None


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(histogram.bounds, tuple(histogram.counts), histogram.total)
