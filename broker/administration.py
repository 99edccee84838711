"""Changing what entities there are: create, update, delete; rules; deletion of what is idle.

Knows what must be checked before the catalog changes, and that a change reaches all partitions or none (P17). Refuses
to know how clients ask for it. Owned by the `Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from . import sentences
from .catalog import Description, path_of
from .clock import Timer
from .commands import Clear
from .description import (
    QueueDescription,
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from .entity import Entity, EntityPartition
from .errors import BrokerError, Condition
from .limits import (
    Violation,
    validate_queue,
    validate_rule,
    validate_subscription,
    validate_topic,
)
from .records import Home
from .rules import check_rule

if TYPE_CHECKING:
    from .broker import Broker

CLEAR_ROWS = 500
RETRY_AFTER_MS = 1_000

log = structlog.get_logger(__name__)


class Administration:
    """Creates, updates and deletes entities of `broker`."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._clearing: set[asyncio.Task[None]] = set()
        self._idle_timers: dict[int, Timer] = {}
        self._used_at: dict[int, int] = {}

    def start(self) -> None:
        """Go on with deletions that an earlier run did not finish."""
        for queue_id, stores in list(self._broker.catalog.deleted.items()):
            self._clear_later(queue_id, stores)

    async def stop(self) -> None:
        """Stop clearing; it goes on after the next start."""
        for timer in self._idle_timers.values():
            timer.cancel()
        for task in list(self._clearing):
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)

    # ---- entities

    def create(self, description: Description) -> Entity:
        """Create an entity; BrokerError: entity-already-exists, argument-out-of-range, not-found, server-busy."""
        self._check(description)
        self._need_all_stores()
        return self._broker.add(self._broker.catalog.create(description))

    def update(self, description: Description) -> Entity:
        """Change an entity's properties; BrokerError (not-allowed) for what is chosen at creation (P1)."""
        path = path_of(description)
        entity = self._broker.entity(path)
        if entity is None:
            raise sentences.not_found(path)
        self._check(description)
        for field in ("enable_partitioning", "requires_session", "requires_duplicate_detection"):
            if getattr(entity.description, field, None) != getattr(description, field, None):
                raise BrokerError(Condition.NOT_ALLOWED, f"{field} of '{path}' is chosen at creation and can't change.")
        self._need_all_stores()
        entry = self._broker.catalog.update(description)
        before = entity.description
        entity.describe(entry.description)
        if isinstance(entry.description, SubscriptionDescription):
            self._broker.fan_out_of(entry.description.topic_name).change_rules(entity, entry.description.rules)
        if entry.description.status is not before.status:
            entity.detach_all(sentences.disabled(path, entry.description.status.value))
        self.watch(entity)
        return entity

    def delete(self, path: str) -> None:
        """Delete an entity, a topic with its subscriptions; BrokerError: not-found, server-busy."""
        entity = self._broker.entity(path)
        if entity is None:
            raise sentences.not_found(path)
        self._need_all_stores()
        doomed = [entity]
        if isinstance(entity.description, TopicDescription):
            doomed += self._broker.fan_out_of(entity.path).entities()
        stores = {each.queue_id: [place.worker.index for place in each.partitions] for each in doomed}
        self._broker.catalog.delete([each.path for each in doomed], stores)
        for each in reversed(doomed):
            self._unwatch(each)
            self._broker.remove(each)
        for queue_id, places in stores.items():
            self._clear_later(queue_id, places)

    # ---- rules

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription; BrokerError: entity-already-exists, argument-error for a bad filter."""
        entity, description = self._subscription(path)
        for violation in validate_rule(rule, self._broker.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        check_rule(rule, self._broker.limits)
        if any(entity_key(known.name) == entity_key(rule.name) for known in description.rules):
            raise sentences.already_exists(f"{path}/Rules/{rule.name}")
        self._set_rules(entity, description, (*description.rules, rule))

    def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule of a subscription; BrokerError (amqp:not-found)."""
        entity, description = self._subscription(path)
        left = tuple(rule for rule in description.rules if entity_key(rule.name) != entity_key(name))
        if len(left) == len(description.rules):
            raise sentences.not_found(f"{path}/Rules/{name}")
        self._set_rules(entity, description, left)

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        """The rules of a subscription, in the order in which they were added."""
        return self._subscription(path)[1].rules

    def _subscription(self, path: str) -> tuple[Entity, SubscriptionDescription]:
        entity = self._broker.entity(path)
        if entity is None:
            raise sentences.not_found(path)
        if not isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' has no rules: it is not a subscription.")
        return entity, entity.description

    def _set_rules(
        self, entity: Entity, description: SubscriptionDescription, rules: Sequence[RuleDescription]
    ) -> None:
        changed = replace(description, rules=tuple(rules))
        self._broker.catalog.update(changed)
        entity.describe(changed)
        self._broker.fan_out_of(description.topic_name).change_rules(entity, changed.rules)
        self.used(entity)

    # ---- checks

    def _check(self, description: Description) -> None:
        for violation in self._violations(description):
            raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, str(violation))
        if isinstance(description, SubscriptionDescription):
            topic = self._broker.entity(description.topic_name)
            if topic is None or not isinstance(topic.description, TopicDescription):
                raise sentences.not_found(description.topic_name)
            for rule in description.rules:
                check_rule(rule, self._broker.limits)

    def _violations(self, description: Description) -> list[Violation]:
        limits = self._broker.limits
        if isinstance(description, QueueDescription):
            return validate_queue(description, limits)
        if isinstance(description, TopicDescription):
            return validate_topic(description, limits)
        return validate_subscription(description, limits)

    def _need_all_stores(self) -> None:
        """Create, update and delete must reach every partition (P17)."""
        for worker in self._broker.workers:
            if worker.outage is not None:
                raise sentences.store_unavailable(worker.index, f"it is {worker.outage.kind.value}")

    # ---- clearing what was deleted

    def _clear_later(self, queue_id: int, stores: Sequence[int]) -> None:
        task = asyncio.create_task(self._clear(queue_id, list(stores)), name=f"clear {queue_id}")
        self._clearing.add(task)
        task.add_done_callback(self._clearing.discard)

    async def _clear(self, queue_id: int, stores: list[int]) -> None:
        for store_index in stores:
            place = self._broker.place_for_clearing(queue_id, store_index)
            while True:
                try:
                    if not await place.request(partial(Clear, CLEAR_ROWS)):
                        break
                except BrokerError as error:
                    log.info("clearing waits", queue_id=queue_id, store=store_index, cause=error.description)
                    await self._pause()
            self._broker.drop_place(queue_id, store_index)
        self._broker.catalog.forget_deleted(queue_id)

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock = self._broker.clock
        clock.call_at(clock.now_ms() + RETRY_AFTER_MS, lambda: None if over.done() else over.set_result(None))
        await over

    # ---- idle entities

    def used(self, entity: Entity) -> None:
        """Something was done with an entity that counts as use."""
        self._used_at[entity.queue_id] = self._broker.clock.now_ms()

    def watch(self, entity: Entity) -> None:
        """Delete the entity once it has been idle for as long as its description says."""
        self._unwatch(entity)
        idle_ms = entity.description.auto_delete_on_idle_ms
        if idle_ms is not None:
            self.used(entity)
            self._arm(entity, self._broker.clock.now_ms() + idle_ms)

    def _unwatch(self, entity: Entity) -> None:
        timer = self._idle_timers.pop(entity.queue_id, None)
        if timer is not None:
            timer.cancel()
        self._used_at.pop(entity.queue_id, None)

    def _arm(self, entity: Entity, at: int) -> None:
        self._idle_timers[entity.queue_id] = self._broker.clock.call_at(at, lambda: self._look(entity))

    def _look(self, entity: Entity) -> None:
        idle_ms = entity.description.auto_delete_on_idle_ms
        if idle_ms is None:
            return
        now = self._broker.clock.now_ms()
        last = max([self._used_at.get(entity.queue_id, 0), *(_last_activity(place) for place in entity.partitions)])
        if entity.has_waiting_receivers or any(_scheduled(place) for place in entity.partitions):
            last = now
        if now < last + idle_ms:
            self._arm(entity, last + idle_ms)
            return
        log.info("deleted: idle", entity=entity.path, idle_ms=now - last)
        try:
            self.delete(entity.path)
        except BrokerError:
            self._arm(entity, now + RETRY_AFTER_MS)


def _last_activity(place: EntityPartition) -> int:
    partition = place.worker.partition(place.queue_id)
    return 0 if partition is None else partition.state.last_activity_at


def _scheduled(place: EntityPartition) -> bool:
    partition = place.worker.partition(place.queue_id)
    return partition is not None and partition.counters.messages[Home.SCHEDULED] > 0
