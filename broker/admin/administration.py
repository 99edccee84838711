"""Changing what entities there are: create, update, delete; rules; deletion of what is idle.

Knows what must be checked before the catalog changes, and that a change reaches all partitions or none (P17). Refuses
to know how clients ask for it. Owned by the `Broker`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import structlog

from ...storage import StoreError
from .. import service_errors
from ..clock import Timer
from ..entities.entity import Entity, EntityPartition
from ..entities.topic import count_filters
from ..errors import BrokerError, Condition
from ..model.catalog import FIXED_FIELDS, Description, path_of
from ..model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from ..model.profiles import Profile
from ..model.validation import Violation, validate_queue, validate_rule, validate_subscription, validate_topic
from ..partition.records import Home
from ..partition.requests import Clear
from ..rules import check_rule

if TYPE_CHECKING:
    from ..broker import Broker

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
        self._idle_timers.clear()
        self._used_at.clear()
        for task in list(self._clearing):
            task.cancel()
        await asyncio.gather(*self._clearing, return_exceptions=True)

    # ---- entities

    def create(self, description: Description, *, targets_exist: bool = False) -> Entity:
        """Create an entity; with `targets_exist` only if there is what it forwards to, as the service wants it.

        BrokerError: entity-already-exists, argument-out-of-range, not-found, resource-limit-exceeded, server-busy.
        """
        self._check(description)
        if targets_exist:
            self._check_targets(description)
        path = path_of(description)
        known = self._broker.entity(path)
        if known is None:
            self._check_quotas(description)
        self._need_all_stores()
        if known is not None:
            raise service_errors.already_exists(self._broker.namespace, path)
        return self._broker.add(self._broker.catalog.create(description, self._broker.clock.now_ms()))

    def update(self, description: Description) -> Entity:
        """Change an entity's properties; BrokerError (not-allowed) for what is chosen at creation (P1)."""
        path = path_of(description)
        entity = self._broker.entity(path)
        if entity is None:
            if isinstance(description, SubscriptionDescription):
                self._check(description)  # the service looks at what it is given first here [http 4]
            raise service_errors.not_found(self._broker.namespace, path)
        before = entity.description
        if type(before) is not type(description):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' is a {before.kind}, not a {description.kind}.")
        for field, name in FIXED_FIELDS.items():
            if getattr(before, field, None) != getattr(description, field, None):
                raise service_errors.fixed_at_creation(name, before.kind)
        self._check(description, is_new=False)
        if isinstance(description, SubscriptionDescription):
            self._check_rule_quotas(entity, description)
        self._need_all_stores()
        entry = self._broker.catalog.update(description, self._broker.clock.now_ms())
        self._broker.describe(entity, entry.description)
        if entry.description.status is not before.status:
            entity.detach_all(entity.disabled())
        self.watch(entity)
        return entity

    def delete(self, path: str) -> None:
        """Delete an entity, a topic with its subscriptions; BrokerError: not-found, server-busy."""
        entity = self._broker.entity(path)
        if entity is None:
            raise service_errors.not_found(self._broker.namespace, path)
        self._need_all_stores()
        doomed = [entity]
        if isinstance(entity.description, TopicDescription):
            doomed += self._broker.fan_out_of(entity.path).entities()
        stores = places_of(doomed)
        self._broker.catalog.delete([each.path for each in doomed], stores)
        self.clear(doomed, stores)

    def exchange(
        self, doomed: Sequence[Entity], made: Sequence[Description], detached: BrokerError
    ) -> list[tuple[Entity, Entity | None]]:
        """Delete entities (topics before their subscriptions) and create others, as one change of the namespace.

        Their links hear `detached`. The new entities, each with the one that had its path. BrokerError (server-busy).
        """
        self._need_all_stores()
        stores = places_of(doomed)
        before = {entity_key(each.path): each for each in doomed}
        paths = [each.path for each in doomed]
        entries = self._broker.catalog.exchange(paths, stores, made, self._broker.clock.now_ms())
        self.clear(doomed, stores, detached)
        added = [self._broker.add(entry) for entry in entries]
        return [(each, before.get(entity_key(each.path))) for each in added]

    def clear(
        self, doomed: Sequence[Entity], stores: Mapping[int, list[int]], detached: BrokerError | None = None
    ) -> None:
        """Take entities out of the running namespace that the catalog has no more, and their rows out of the stores."""
        for each in reversed(doomed):
            self._unwatch(each)
            self._broker.remove(each, detached)
        for queue_id, places in stores.items():
            self._clear_later(queue_id, places)

    # ---- rules

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription.

        BrokerError: entity-already-exists, argument-error for a bad filter, server-busy.
        """
        entity, description = self._subscription(path)
        for violation in validate_rule(rule, self._broker.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        check_rule(rule, self._broker.limits)
        if any(entity_key(known.name) == entity_key(rule.name) for known in description.rules):
            raise service_errors.already_exists(self._broker.namespace, f"{path}/Rules/{rule.name}")
        self._set_rules(entity, description, (*description.rules, rule))

    def replace_rule(self, path: str, rule: RuleDescription) -> None:
        """Change a rule of a subscription, which keeps its place and the spelling of its name; BrokerError as above."""
        entity, description = self._subscription(path)
        check_rule(rule, self._broker.limits)
        names = [entity_key(known.name) for known in description.rules]
        if entity_key(rule.name) not in names:
            raise service_errors.not_found(self._broker.namespace, f"{path}/Rules/{rule.name}")
        rules = list(description.rules)
        place = names.index(entity_key(rule.name))
        rules[place] = replace(rule, name=rules[place].name)
        self._set_rules(entity, description, rules)

    def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule of a subscription; BrokerError: amqp:not-found, server-busy."""
        entity, description = self._subscription(path)
        left = tuple(rule for rule in description.rules if entity_key(rule.name) != entity_key(name))
        if len(left) == len(description.rules):
            raise service_errors.not_found(self._broker.namespace, f"{path}/Rules/{name}")
        self._set_rules(entity, description, left)

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        """The rules of a subscription, in the order in which they were added."""
        return self._subscription(path)[1].rules

    def _subscription(self, path: str) -> tuple[Entity, SubscriptionDescription]:
        entity = self._broker.entity(path)
        if entity is None:
            raise service_errors.not_found(self._broker.namespace, path)
        if not isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' has no rules: it is not a subscription.")
        return entity, entity.description

    def _set_rules(
        self, entity: Entity, description: SubscriptionDescription, rules: Sequence[RuleDescription]
    ) -> None:
        changed = replace(description, rules=tuple(rules))
        self._check_rule_quotas(entity, changed)
        self._need_all_stores()
        entry = self._broker.catalog.update(changed, self._broker.clock.now_ms())
        self._broker.describe(entity, entry.description)
        self.used(entity)

    # ---- checks

    def _check(self, description: Description, *, is_new: bool = True) -> None:
        for violation in self._violations(description, is_new):
            raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, str(violation))
        if isinstance(description, SubscriptionDescription):
            topic = self._broker.entity(description.topic_name)
            if topic is None or not isinstance(topic.description, TopicDescription):
                raise service_errors.not_found(self._broker.namespace, description.topic_name)
            for rule in description.rules:
                check_rule(rule, self._broker.limits)

    def _check_targets(self, description: Description) -> None:
        if isinstance(description, TopicDescription):
            return
        for name, target in (
            ("auto forwarding", description.forward_to),
            ("dead letter forwarding", description.forward_dead_letters_to),
        ):
            try:
                if target is not None:
                    self._broker.find_target(target)
            except BrokerError as error:
                if error.condition not in {Condition.NOT_FOUND, Condition.NOT_ALLOWED}:
                    raise
                raise service_errors.forward_target_missing(name, str(target)) from error

    def _violations(self, description: Description, is_new: bool) -> list[Violation]:
        limits = self._broker.limits
        if isinstance(description, QueueDescription):
            return validate_queue(description, limits, is_new=is_new)
        if isinstance(description, TopicDescription):
            return validate_topic(description, limits, is_new=is_new)
        return validate_subscription(description, limits)

    def _check_quotas(self, description: Description) -> None:
        """Refuse an entity beyond what a namespace or a topic may have (P5)."""
        limits = self._broker.limits
        if isinstance(description, SubscriptionDescription):
            count = len(self._broker.fan_out_of(description.topic_name).entities())
            _refuse_above(count + 1, limits.subscriptions_per_topic_max, "Subscription", limits.profile)
            self._check_rule_quotas(None, description)
            return
        tops = [each for each in self._broker.entities() if not isinstance(each.description, SubscriptionDescription)]
        _refuse_above(len(tops) + 1, limits.entities_max, "Queue or Topic", limits.profile)
        if description.enable_partitioning:
            count = sum(each.partitioned for each in tops)
            # The service names the property so.
            _refuse_above(count + 1, limits.partitioned_entities_max, "EnablePartioning == true", limits.profile)

    def _check_rule_quotas(self, entity: Entity | None, description: SubscriptionDescription) -> None:
        """Refuse rules of a subscription (`entity` if it is there already) beyond what a topic may have."""
        limits = self._broker.limits
        fan_out = self._broker.fan_out_of(description.topic_name)
        for kind, name, count_max in (
            (SqlFilter, "SqlFilter", limits.sql_filters_per_topic_max),
            (CorrelationFilter, "CorrelationFilter", limits.correlation_filters_per_topic_max),
        ):
            before = 0 if entity is None else count_filters(entity.description, kind)
            after = count_filters(description, kind)
            if after > before:
                _refuse_above(fan_out.filter_count(kind) - before + after, count_max, name, limits.profile)

    def _need_all_stores(self) -> None:
        """Create, update and delete, also of rules, must reach every partition (P17).

        A store whose newest commit failed is asked for another one, so that a later try succeeds once it works again.
        """
        if self._broker.away is not None:
            raise self._broker.away
        for worker in self._broker.workers:
            if worker.outage is not None:
                raise service_errors.store_unavailable(worker.index, f"it is {worker.outage.kind.value}")
            if worker.fault is not None:
                worker.probe()
                raise service_errors.store_unavailable(worker.index, worker.fault)

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
        while True:
            try:
                return self._broker.catalog.forget_deleted(queue_id)
            except BrokerError as error:
                log.info("clearing waits", queue_id=queue_id, cause=error.description)
                await self._pause()

    async def _pause(self) -> None:
        over: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        clock = self._broker.clock
        clock.call_at(clock.now_ms() + RETRY_AFTER_MS, lambda: None if over.done() else over.set_result(None))
        await over

    # ---- use, and entities without it

    def accessed_at(self, entity: Entity) -> int | None:
        """When an entity was last used (Unix ms); None if it never was."""
        entry = self._broker.catalog.entry(entity.path)
        known = None if entry is None else entry.accessed_at
        return max(known or 0, _last_activity(entity)) or None

    def remember_access(self) -> None:
        """Keep in the catalog when each entity was last used; a fault of its store is logged only."""
        instants = {entity.path: self.accessed_at(entity) for entity in self._broker.entities()}
        try:
            catalog = self._broker.catalog
            known = {path: entry.accessed_at for path in instants if (entry := catalog.entry(path)) is not None}
            catalog.remember_access({path: at for path, at in instants.items() if at and at != known.get(path)})
        except StoreError as error:
            log.warning("when entities were used is not kept", cause=str(error))

    def used(self, entity: Entity) -> None:
        """Something was done with an entity that counts as use."""
        self._used_at[entity.queue_id] = self._broker.clock.now_ms()

    def watch(self, entity: Entity) -> None:
        """Delete the entity once it has been idle for as long as its description says.

        One that forwards its messages, from which nobody can receive, is never idle [wire 10.7].
        """
        self._unwatch(entity)
        description = entity.description
        idle_ms = description.auto_delete_on_idle_ms
        if idle_ms is not None and getattr(description, "forward_to", None) is None:
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
        last = max(self._used_at.get(entity.queue_id, 0), _last_activity(entity))
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


def places_of(entities: Iterable[Entity]) -> dict[int, list[int]]:
    """The messaging stores of entities, by queue id."""
    return {each.queue_id: [place.worker.index for place in each.partitions] for each in entities}


def _last_activity(entity: Entity) -> int:
    """When something was sent to, asked of or done with an entity last (Unix ms), 0 if never since the start."""
    return max(entity.received_at, *(place.worker.last_activity_at(place.queue_id) for place in entity.partitions))


def _scheduled(place: EntityPartition) -> bool:
    try:
        return place.worker.counters(place.queue_id).messages[Home.SCHEDULED] > 0
    except StoreError:
        return True  # it can't be known now


def _refuse_above(count: int, count_max: int | None, what: str, profile: Profile) -> None:
    """BrokerError if there would be more of a kind of resource than allowed."""
    if count_max is not None and count > count_max:
        raise service_errors.resources_exceeded(what, count - 1, count_max, profile.value)
