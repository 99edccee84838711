"""The last use of entities, and the deletion of entities that are idle for AutoDeleteOnIdle."""

from __future__ import annotations

from collections.abc import Callable

import structlog

from ...storage import StoreError
from ..clock import Timer
from ..entities.entity import Entity, PartitionHandle
from ..entities.namespace import Namespace
from ..errors import BrokerError
from ..model.descriptions import TopicDescription
from ..partition.records import Home

RETRY_AFTER_MS = 1_000

log = structlog.get_logger(__name__)


class IdleWatch:
    """Tracks the last use of the entities of `namespace`; calls `delete(path)` for an idle one."""

    def __init__(self, namespace: Namespace, delete: Callable[[str], None]) -> None:
        self._namespace = namespace
        self._delete = delete
        self._timers: dict[int, Timer] = {}
        self._used_at: dict[int, int] = {}
        self._subscribed_at: dict[int, int] = {}

    def stop(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._used_at.clear()
        self._subscribed_at.clear()

    def accessed_at(self, entity: Entity) -> int | None:
        """Return the last use of an entity (Unix ms); None if it was never used."""
        entry = self._namespace.catalog.entry(entity.path)
        known = None if entry is None else entry.accessed_at
        subscribed_at = self._last_subscription_at(entity) if isinstance(entity.description, TopicDescription) else 0
        return max(known or 0, _last_activity(entity), subscribed_at) or None

    def subscribed(self, topic: Entity) -> None:
        """Record that a subscription of a topic was made, which is an access to the topic [http 3]."""
        self._subscribed_at[topic.queue_id] = self._namespace.clock.now_ms()

    def _last_subscription_at(self, topic: Entity) -> int:
        """When the newest subscription of a topic was made (Unix ms), 0 if it never had one."""
        subscriptions = self._namespace.subscriptions_of(topic.path).entities()
        entries = (self._namespace.catalog.entry(each.path) for each in subscriptions)
        made = [entry.created_at or 0 for entry in entries if entry is not None]
        return max(self._subscribed_at.get(topic.queue_id, 0), *made, 0)

    def remember_access(self) -> None:
        """Store the last use of each entity in the catalog; a fault of the store is only logged."""
        instants = {entity.path: self.accessed_at(entity) for entity in self._namespace.entities()}
        try:
            catalog = self._namespace.catalog
            known = {path: entry.accessed_at for path in instants if (entry := catalog.entry(path)) is not None}
            catalog.remember_access({path: at for path, at in instants.items() if at and at != known.get(path)})
        except StoreError as error:
            log.warning("last use of entities not stored", cause=str(error))

    def used(self, entity: Entity) -> None:
        self._used_at[entity.queue_id] = self._namespace.clock.now_ms()

    def watch(self, entity: Entity) -> None:
        """Delete the entity once it has been idle for its AutoDeleteOnIdle.

        An entity with ForwardTo has no receivers and is never idle [wire 10.7].
        """
        self._unwatch(entity)
        self.used(entity)
        idle_ms = entity.description.auto_delete_on_idle_ms
        if idle_ms is not None and not _forwards(entity):
            self._arm(entity, self._namespace.clock.now_ms() + idle_ms)

    def forget(self, entity: Entity) -> None:
        self._unwatch(entity)
        self._subscribed_at.pop(entity.queue_id, None)

    def _unwatch(self, entity: Entity) -> None:
        timer = self._timers.pop(entity.queue_id, None)
        if timer is not None:
            timer.cancel()
        self._used_at.pop(entity.queue_id, None)

    def _arm(self, entity: Entity, at: int) -> None:
        self._timers[entity.queue_id] = self._namespace.clock.call_at(at, lambda: self._look(entity))

    def _look(self, entity: Entity) -> None:
        idle_ms = entity.description.auto_delete_on_idle_ms
        if idle_ms is None:
            return
        now = self._namespace.clock.now_ms()
        users = [entity]
        if isinstance(entity.description, TopicDescription):  # what is done to its subscriptions counts [wire 10.8]
            users += self._namespace.subscriptions_of(entity.path).entities()
        last = max(max(self._used_at.get(each.queue_id, 0), _last_activity(each)) for each in users)
        if any(_is_in_use(each) for each in users):
            last = now
        if now < last + idle_ms:
            self._arm(entity, last + idle_ms)
            return
        log.info("deleted idle entity", entity=entity.path, idle_ms=now - last)
        try:
            self._delete(entity.path)
        except BrokerError:
            self._arm(entity, now + RETRY_AFTER_MS)


def _last_activity(entity: Entity) -> int:
    """Return the last send, receive or change of an entity (Unix ms), 0 if there was none since the start."""
    return max(entity.received_at, *(handle.worker.last_activity_at(handle.queue_id) for handle in entity.partitions))


def _is_in_use(entity: Entity) -> bool:
    """Whether an entity is used without anybody calling: a receiver waits, it forwards, or a message is scheduled."""
    return (
        entity.has_waiting_receivers or _forwards(entity) or any(_has_scheduled(handle) for handle in entity.partitions)
    )


def _forwards(entity: Entity) -> bool:
    return getattr(entity.description, "forward_to", None) is not None


def _has_scheduled(handle: PartitionHandle) -> bool:
    try:
        return handle.worker.counters(handle.queue_id).messages[Home.SCHEDULED] > 0
    except StoreError:
        return True  # unknown while the store is unreachable
