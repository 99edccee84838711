"""Figures of a running namespace for metrics, the control API and the page: stores, partitions, where a message is.

Knows which counters the messaging stores and partitions keep. Changes nothing, counts nothing of its own. Each report
is a copy: it does not change after it was made.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from ...storage import StoreError
from ..entities.entity import Entity
from ..entities.entity_base import PartitionHandle
from ..entities.namespace import Namespace
from ..partition.records import PARTITION_SHIFT, STATE, STATE_KEY, Counters, Home
from ..stores.commit_stats import Histogram
from ..stores.outage import Outage
from ..stores.worker import Worker
from .overview import HEALTHY, HOME_NAMES

ALL_STATES_MAX = 1 << 24


@dataclass(frozen=True, slots=True)
class Distribution:
    """A histogram: `counts[i]` values were at most `bounds[i]` and above the bound before; one more count is for
    larger values. `total` is the sum of all values."""

    bounds: Sequence[int]
    counts: Sequence[int]
    total: int


@dataclass(frozen=True, slots=True)
class MessagingStoreReport:
    """A messaging store: its outage, if one is set; commits since the start, their durations (microseconds) and how
    many commands each one had."""

    store: int
    outage: Outage | None
    is_available: bool
    failed_commit_count: int
    commit_us: Distribution
    commands: Distribution

    @property
    def health(self) -> str:
        """ "available", or the kind of the outage."""
        return HEALTHY if self.outage is None else self.outage.kind.value

    @property
    def commit_count(self) -> int:
        """Commits since the start."""
        return sum(self.commands.counts)


@dataclass(frozen=True, slots=True)
class PartitionFigures:
    """What a partition counts. `numbers_given` is how many sequence numbers it has assigned, one more than the last
    one's counter; `last_activity_at` (Unix ms) is None if it was not used since the start."""

    path: str
    partition_id: int
    store: int
    messages: Mapping[str, int]
    size_bytes: int
    locked_count: int
    numbers_given: int
    last_activity_at: int | None


@dataclass(frozen=True, slots=True)
class ArrivalFigures:
    """What an entity's reachable partitions count: sequence numbers assigned, dead letters, messages of any state."""

    numbers_given: int
    dead_letter_count: int
    message_count: int


@dataclass(frozen=True, slots=True)
class Placement:
    """Where a message with a sequence number is: `first_number` is the lowest that its partition can assign, and
    `next_number` the next that it will; None if its store can't be reached."""

    partition_id: int
    store: int
    first_number: int
    next_number: int | None


def stores(namespace: Namespace) -> list[MessagingStoreReport]:
    """Every messaging store, in the order of their numbers."""
    return [store(namespace, worker.index) for worker in namespace.workers]


def store(namespace: Namespace, index: int) -> MessagingStoreReport:
    """One messaging store."""
    worker = namespace.workers[index]
    commit_stats = worker.commit_stats
    return MessagingStoreReport(
        worker.index,
        worker.outage,
        worker.available,
        commit_stats.failures,
        _distribution(commit_stats.latency_us),
        _distribution(commit_stats.sizes),
    )


def used_partitions(namespace: Namespace) -> Iterator[PartitionFigures]:
    """The partitions that ever held a message, store by store; those of stores that can't be reached are left out."""
    entities = {entity.queue_id: entity for entity in namespace.entities()}
    for worker in namespace.workers:
        if not worker.available:
            continue
        try:
            with worker.read() as view:
                rows = view.scan(STATE, b"", b"\xff" * (STATE_KEY.size + 1), ALL_STATES_MAX)
        except StoreError:
            continue
        for key, row in rows:
            entity = entities.get(STATE_KEY.unpack(key)[0])
            handle = None if entity is None else _partition_in(entity, worker)
            if handle is not None:
                yield _figures(handle, Counters.unpack(row))


def arrivals(entity: Entity) -> ArrivalFigures:
    """What the partitions of an entity have counted; those that can't be reached are left out."""
    given = dead = there = 0
    for handle in entity.partitions:
        counters = _counters(handle)
        if counters is not None:
            given += counters.next_counter
            dead += counters.messages[Home.DEAD_LETTER] + counters.messages[Home.TRANSFER_DEAD_LETTER]
            there += sum(counters.messages)
    return ArrivalFigures(given, dead, there)


def placement(entity: Entity, number: int) -> Placement:
    """The partition and store of the message with that sequence number."""
    return placement_in(entity, number >> PARTITION_SHIFT if entity.partitioned else 0)


def placement_in(entity: Entity, partition_id: int) -> Placement:
    """One partition of an entity and its store."""
    handle = entity.partitions[partition_id]
    first = partition_id << PARTITION_SHIFT if entity.partitioned else 0
    counters = _counters(handle)
    return Placement(
        partition_id, handle.worker.index, first, None if counters is None else first | counters.next_counter
    )


def _figures(handle: PartitionHandle, counters: Counters) -> PartitionFigures:
    partition = handle.worker.partition(handle.queue_id)
    return PartitionFigures(
        handle.path,
        handle.index,
        handle.worker.index,
        dict(zip(HOME_NAMES, counters.messages, strict=True)),
        counters.bytes_used,
        0 if partition is None else partition.locked_count(),
        counters.next_counter & ((1 << PARTITION_SHIFT) - 1),
        None if partition is None else partition.state.last_activity_at or None,
    )


def _partition_in(entity: Entity, worker: Worker) -> PartitionHandle | None:
    return next((each for each in entity.partitions if each.worker is worker), None)


def _counters(handle: PartitionHandle) -> Counters | None:
    """The counters of a partition; None while its store can't be reached."""
    try:
        return handle.worker.counters(handle.queue_id) if handle.worker.available else None
    except StoreError:
        return None


def _distribution(histogram: Histogram) -> Distribution:
    return Distribution(histogram.bounds, tuple(histogram.counts), histogram.total)
