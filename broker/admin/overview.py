"""Read-only overview of a namespace: entities, their partitions (P31), messages, and the route of a message (P32).

Knows where the counters are, and reads messages without locks and without counting as use. Changes nothing and does not
know the presentation. Made per request, over a `Namespace`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple

from ...storage import StoreError
from .. import service_errors
from ..address import SubQueue, parse_address
from ..entities.entity import Entity, PartitionHandle
from ..entities.namespace import Namespace
from ..errors import BrokerError, Condition
from ..identity import folded
from ..model.descriptions import SubscriptionDescription
from ..partition.records import (
    HOMES,
    MESSAGES,
    OUTBOXES,
    PARTITION_SHIFT,
    SESSION_MESSAGES,
    SESSION_STATE,
    Counters,
    Home,
    Record,
    message_key,
    session_message_key,
    session_number,
    session_number_key,
)
from ..partition.requests import Peek
from .figures import HOME_NAMES

SESSION_MESSAGES_MAX = 10_000
SHOWN_HOMES = tuple(home for home in HOMES if home not in OUTBOXES)


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition: its counters, and the health of its messaging store ("available", or the kind of its outage).

    The figures are None while the store is unreachable. `first_sequence_number` is the lowest one stored (None: empty),
    `next_sequence_number` the next one assigned. Instants are Unix ms; None: not used since the start.
    """

    partition_id: int
    store: int
    health: str
    messages: Mapping[str, int] | None
    size_bytes: int | None
    locked_count: int | None
    first_sequence_number: int | None
    next_sequence_number: int | None
    last_activity_at: int | None


@dataclass(frozen=True, slots=True)
class EntityReport:
    """Summary of an entity; `is_limited`: the figures lack an unreachable partition."""

    path: str
    kind: str
    status: str
    is_partitioned: bool
    partition_count: int
    requires_session: bool
    is_limited: bool
    messages: Mapping[str, int]
    size_bytes: int
    size_bytes_max: int
    locked_count: int
    link_count: int
    last_activity_at: int | None


@dataclass(frozen=True, slots=True)
class Route:
    """The route of a message: `key` is the effective key and `key_source` its property, both None without a key.

    `partition_id` is None without a key, because the partitions take turns.
    """

    key: str | None
    key_source: str | None
    partition_count: int
    partition_id: int | None
    store: int | None
    is_available: bool


class Seen(NamedTuple):
    """A peeked message: `encoded` as a client gets it; `locked_until_at` (Unix ms) if it is locked."""

    partition_id: int
    sequence_number: int
    encoded: bytes
    locked_until_at: int | None


@dataclass(frozen=True, slots=True)
class Page:
    """A page of messages; the next page begins at `next_sequence_number` (None: last page)."""

    messages: list[Seen]
    next_sequence_number: int | None


@dataclass(frozen=True, slots=True)
class SessionReport:
    """A message session: its active messages (counted up to `SESSION_MESSAGES_MAX`), the size of its state (None: it
    has none), the end of its lock (Unix ms; None: no receiver holds it), the client that holds it, and when its first
    active message was enqueued (Unix ms; None: it has none)."""

    session_id: str
    partition_id: int
    message_count: int
    state_bytes: int | None
    locked_until_at: int | None
    holder: str | None
    oldest_at: int | None


class Overview:
    """Reports on `namespace`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def entity(self, path: str) -> Entity:
        """Return the entity of a path. Raises BrokerError (not-found; not-allowed for a sub-queue or `$management`).

        An address of these means its entity to `Namespace`: who purges dead letters by their address would purge all.
        """
        asked = parse_address(path)
        if asked.sub_queue or asked.management:
            raise BrokerError(
                Condition.NOT_ALLOWED,
                f"'{path}' is no entity, but a part of '{asked.entity}': name that, and say apart which messages are "
                "meant, such as --dead-letters or sub_queue 'dead-letter'.",
            )
        found = self._namespace.entity(path)
        return self._namespace.find(path)[0] if found is None else found

    def report(self, entity: Entity) -> EntityReport:
        totals = entity.totals_now()
        partitions = [handle.worker.partition(entity.queue_id) for handle in entity.partitions]
        used = [each for each in partitions if each is not None]
        description = entity.description
        return EntityReport(
            path=entity.path,
            kind=description.kind.value,
            status=description.status.value,
            is_partitioned=entity.partitioned,
            partition_count=len(entity.partitions),
            requires_session=entity.requires_session,
            is_limited=totals.is_limited,
            messages=dict(zip(HOME_NAMES, totals.messages, strict=True)),
            size_bytes=totals.bytes_used,
            size_bytes_max=sum(handle.size_bytes_max for handle in entity.partitions),
            locked_count=sum(each.locked_count() for each in used),
            link_count=len(entity.attached),
            last_activity_at=max((each.state.last_activity_at for each in used), default=0) or None,
        )

    def partitions(self, entity: Entity) -> list[PartitionReport]:
        """Return all partitions of an entity (P31)."""
        return [self._partition(handle) for handle in entity.partitions]

    def _partition(self, handle: PartitionHandle) -> PartitionReport:
        """The report of one partition; without counts while its store is out or its disk fails the read."""
        worker = handle.worker
        away = PartitionReport(handle.index, worker.index, worker.health, *(None,) * 6)
        if not worker.available:
            return away
        base = handle.index << PARTITION_SHIFT if handle.partitioned else 0
        partition = worker.partition(handle.queue_id)
        try:
            counters = worker.counters(handle.queue_id)
            first = _first_number(handle, counters)
        except StoreError:
            return away
        return PartitionReport(
            handle.index,
            worker.index,
            worker.health,
            dict(zip(HOME_NAMES, counters.messages, strict=True)),
            handle.size_of(counters),
            0 if partition is None else partition.locked_count(),
            first,
            base | counters.next_counter,
            None if partition is None else partition.state.last_activity_at or None,
        )

    def route(self, entity: Entity, *, session_id: str | None, partition_key: str | None, **more: str | None) -> Route:
        """Return the route of a message (P32) with these properties, or with `message_id`, or with a `key`.

        Raises BrokerError (not-allowed) if session id and partition key differ (P9), if there is none of them where a
        message needs a key (P8), or for a subscription.
        """
        description = entity.description
        if isinstance(description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"Messages are sent to the topic, not to '{entity.path}'.")
        candidates = {"key": more.get("key"), "session-id": session_id, "partition-key": partition_key}
        if session_id is not None and partition_key is not None and session_id != partition_key:
            raise BrokerError(
                Condition.NOT_ALLOWED, f"SessionId '{session_id}' and PartitionKey '{partition_key}' differ (P9)."
            )
        if description.requires_duplicate_detection:
            candidates["message-id"] = more.get("message_id")
        source, key = next(((name, key) for name, key in candidates.items() if key is not None), (None, None))
        count = len(entity.partitions)
        if key is None and entity.needs_key:
            raise service_errors.key_missing()
        if key is None and count > 1:
            available = any(handle.worker.available for handle in entity.partitions)
            return Route(None, None, count, None, None, available)
        handle = entity.partitions[0 if key is None else entity.partition_index_of_key(key)]
        return Route(key, source, count, handle.index, handle.worker.index, handle.worker.available)

    async def messages(
        self,
        entity: Entity,
        sub_queue: SubQueue,
        *,
        first: int,
        count: int,
        bytes_max: int,
        session_id: str | None = None,
        partition_id: int | None = None,
    ) -> Page:
        """Return up to `count` messages, about `bytes_max` bytes in all, from sequence number `first` on, by partition.

        Skips unreachable partitions. Raises BrokerError (not-found) for an unknown `partition_id`.
        """
        if partition_id is not None and partition_id >= len(entity.partitions):
            raise BrokerError(
                Condition.NOT_FOUND,
                f"'{entity.path}' has no partition {partition_id}: it has {len(entity.partitions)}, counted from 0.",
            )
        found: list[Seen] = []
        for handle in entity.partitions:
            if partition_id not in (None, handle.index) or not handle.worker.available:
                continue
            if entity.partitioned and first >> PARTITION_SHIFT > handle.index:
                continue
            start = first
            while True:  # bytes_max may shorten an answer: only an empty one is the end
                ask = partial(_peek_request, sub_queue, start, count - len(found), bytes_max, session_id)
                rows: list[tuple[int, bytes]] = await handle.request(ask)
                if not rows:
                    break
                found += self._seen(handle, rows)
                bytes_max -= sum(len(encoded) for _, encoded in rows)
                start = rows[-1][0] + 1
                if len(found) >= count or bytes_max <= 0:
                    return Page(found, start)
        return Page(found, None)

    async def message(self, entity: Entity, sub_queue: SubQueue, number: int) -> Seen | None:
        """Return the message with this sequence number, None if it is not there or its store is unreachable."""
        handle = entity.partition_of_number(number)
        if handle is None:
            return None
        page = await self.messages(entity, sub_queue, first=number, count=1, bytes_max=1, partition_id=handle.index)
        return next((seen for seen in page.messages if seen.sequence_number == number), None)

    def session_holder(self, entity: Entity, session_id: str) -> str | None:
        """Return the client that holds a session ("" if it gave no name), None if no receiver holds it."""
        handle = entity.partitions[entity.partition_index_of_session(session_id)]
        partition = handle.worker.partition(handle.queue_id)
        return None if partition is None else partition.session_holders().get(folded(session_id))

    def session_state(self, entity: Entity, session_id: str) -> bytes | None:
        """Return the state of a session, None if it has none. BrokerError (server-busy: store down), StoreError."""
        handle = entity.partitions[entity.partition_index_of_session(session_id)]
        if not handle.worker.available:
            raise service_errors.store_unavailable(handle.worker.index, handle.worker.trouble or "")
        with handle.worker.view() as view:
            return view.get(SESSION_STATE, session_number_key(handle.queue_id, session_number(session_id)))

    async def sessions(self, entity: Entity) -> list[SessionReport]:
        """Return the message sessions with active messages or a state, by name; skips unreachable partitions.

        Raises StoreError.
        """
        found: list[SessionReport] = []
        for name in await entity.list_sessions(None):
            handle, number = entity.partitions[entity.partition_index_of_session(name)], session_number(name)
            if not handle.worker.available:
                continue
            partition, queue_id = handle.worker.partition(handle.queue_id), handle.queue_id
            start, stop = session_message_key(queue_id, number, 0), session_message_key(queue_id, number + 1, 0)
            with handle.worker.view() as view:
                numbers = view.scan(SESSION_MESSAGES, start, stop, SESSION_MESSAGES_MAX)
                first = (
                    view.get(MESSAGES, message_key(queue_id, Home.ACTIVE, _sequence_number(numbers[0][0])))
                    if numbers
                    else None
                )
                state = view.get(SESSION_STATE, session_number_key(queue_id, number))
            until_at = None if partition is None else partition.session_ends().get(folded(name))
            holder = None if partition is None else partition.session_holders().get(folded(name))
            state_bytes = None if state is None else len(state)
            oldest_at = None if first is None else Record.unpack(first).enqueued_at
            found.append(SessionReport(name, handle.index, len(numbers), state_bytes, until_at, holder, oldest_at))
        return found

    def _seen(self, handle: PartitionHandle, rows: Sequence[tuple[int, bytes]]) -> list[Seen]:
        partition = handle.worker.partition(handle.queue_id)
        locks = None if partition is None else partition.state.locks.by_number
        if not locks:
            return [Seen(handle.index, number, encoded, None) for number, encoded in rows]
        found = ((number, encoded, locks.get(number)) for number, encoded in rows)
        return [
            Seen(handle.index, number, encoded, None if lock is None else lock.until_at)
            for number, encoded, lock in found
        ]


def _peek_request(
    sub_queue: SubQueue,
    first: int,
    count: int,
    bytes_max: int,
    session_id: str | None,
    reply: Callable[[list[tuple[int, bytes]] | BrokerError], None],
) -> Peek:
    return Peek(sub_queue, first, count, bytes_max, session_id, reply, is_use=False)


def _sequence_number(key: bytes) -> int:
    """The sequence number at the end of a row's key."""
    return int.from_bytes(key[-8:], "big")


def _first_number(handle: PartitionHandle, counters: Counters) -> int | None:
    """Return the lowest sequence number of a partition. Raises StoreError."""
    firsts: list[int] = []
    with handle.worker.view() as view:
        for home in SHOWN_HOMES:
            if counters.messages[home]:
                start, stop = message_key(handle.queue_id, home, 0), message_key(handle.queue_id, home + 1, 0)
                firsts += (_sequence_number(key) for key, _ in view.scan(MESSAGES, start, stop, 1))
    return min(firsts, default=None)
