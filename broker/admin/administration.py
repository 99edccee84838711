"""Creates, updates and deletes entities and rules.

Knows the checks before a change of the catalog, and that a change reaches all partitions or none (P17). Does not know
the protocols that ask for changes. Owned by the `Broker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

from ...storage import StoreError
from .. import service_errors
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..errors import BrokerError, Condition
from ..model.catalog import FIXED_FIELDS, Description, path_of
from ..model.descriptions import (
    RuleDescription,
    SubscriptionDescription,
    TopicDescription,
    entity_key,
)
from ..model.validation import rule_violations
from ..rules import check_rule
from .checks import Checks
from .cleanup import Cleanup
from .idle import IdleWatch


class Administration:
    """Creates, updates and deletes the entities and rules of `namespace`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._checks = Checks(namespace)
        self._cleanup = Cleanup(namespace)
        self.idle = IdleWatch(namespace, self.delete)
        namespace.on_entity_added(self.idle.watch)

    def start(self) -> None:
        """Continue the unfinished deletions of an earlier run."""
        self._cleanup.start()

    async def stop(self) -> None:
        """Stop the idle watch and the clean-up; the next start continues them."""
        self.idle.stop()
        await self._cleanup.stop()

    def accessed_at(self, entity: Entity) -> int | None:
        """Return the last use of an entity (Unix ms); None if it was never used."""
        return self.idle.accessed_at(entity)

    # ---- entities

    def create(
        self,
        description: Description,
        *,
        targets_exist: bool = False,
        own_name: str | None = None,
        of_file: bool = False,
    ) -> Entity:
        """Create an entity; with `targets_exist` its forwarding targets must exist.

        `own_name`: another name by which the client knows this namespace; forwarding addresses may have it as host.
        `of_file`: it comes from a Config.json, whose ranges apply.
        Raises BrokerError: entity-already-exists, argument-out-of-range, not-found, resource-limit-exceeded,
        server-busy.
        """
        self._checks.description(description, of_file=of_file)
        self._checks.hosts(description, None, own_name)
        if targets_exist:
            self._checks.targets(description)
        path = path_of(description)
        known = self._namespace.entity(path)
        if known is None:
            self._checks.quotas(description)
        self._checks.all_stores_work()
        if known is not None:
            raise service_errors.already_exists(self._namespace.name, path)
        entity = self._namespace.add(self._namespace.catalog.create(description, self._namespace.clock.now_ms()))
        if isinstance(description, SubscriptionDescription):
            topic = self._namespace.entity(description.topic_name)
            assert topic is not None
            self.idle.subscribed(topic)
        return entity

    def update(self, description: Description, *, own_name: str | None = None) -> Entity:
        """Change an entity's properties; new forwarding targets must exist. `own_name` as for `create`.

        Raises BrokerError: not-allowed for properties fixed at creation (P1), and like `create`.
        """
        path = path_of(description)
        entity = self._namespace.entity(path)
        if entity is None:
            if isinstance(description, SubscriptionDescription):
                self._checks.description(description)  # the service validates first here [http 4]
            raise service_errors.not_found(self._namespace.name, path)
        before = entity.description
        if type(before) is not type(description):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' is a {before.kind}, not a {description.kind}.")
        for field, name in FIXED_FIELDS.items():
            if getattr(before, field, None) != getattr(description, field, None):
                raise service_errors.fixed_at_creation(name, before.kind)
        self._checks.description(description, before=before)
        self._checks.hosts(description, before, own_name)
        self._checks.targets(description, before)
        if isinstance(description, SubscriptionDescription):
            self._checks.rule_quotas(entity, description)
        self._checks.all_stores_work()
        entry = self._namespace.catalog.update(description, self._namespace.clock.now_ms())
        self._namespace.describe(entity, entry.description)
        if entry.description.status is not before.status:
            entity.detach_all(entity.disabled())
        self.idle.watch(entity)
        return entity

    def delete(self, path: str) -> None:
        """Delete an entity, a topic with its subscriptions. Raises BrokerError: not-found, server-busy."""
        entity = self._namespace.entity(path)
        if entity is None:
            raise service_errors.not_found(self._namespace.name, path)
        self._checks.all_stores_work()
        doomed = [entity]
        if isinstance(entity.description, TopicDescription):
            doomed += self._namespace.subscriptions_of(entity.path).entities()
        stores = stores_of(doomed)
        self._namespace.catalog.delete([each.path for each in doomed], stores)
        self.clear(doomed, stores)

    def replace_entities(
        self,
        doomed: Sequence[Entity],
        made: Sequence[Description],
        detached: BrokerError,
        *,
        keeps_numbers: bool = False,
    ) -> list[tuple[Entity, Entity | None]]:
        """Delete entities (topics before their subscriptions) and create others, in one change of the catalog.

        Detaches the links of deleted entities with `detached`. With `keeps_numbers` a new entity continues the sequence
        numbers of the old one of its path. Returns each new entity with that old one, if any. Raises BrokerError
        (server-busy).
        """
        self._checks.all_stores_work()
        stores = stores_of(doomed)
        before = {entity_key(each.path): each for each in doomed}
        paths = [each.path for each in doomed]
        now = self._namespace.clock.now_ms()
        try:
            counters = {each.queue_id: each.next_counters() for each in doomed} if keeps_numbers else {}
        except StoreError as error:
            raise service_errors.namespace_unavailable(str(error)) from error
        entries = self._namespace.catalog.replace_entities(paths, stores, made, now, counters)
        self.clear(doomed, stores, detached)
        added = [self._namespace.add(entry) for entry in entries]
        return [(each, before.get(entity_key(each.path))) for each in added]

    def clear(
        self, doomed: Sequence[Entity], stores: Mapping[int, list[int]], detached: BrokerError | None = None
    ) -> None:
        """Remove entities that the catalog has deleted from the namespace, and begin to remove their rows."""
        for each in reversed(doomed):
            self.idle.forget(each)
            self._namespace.remove(each, detached)
        for queue_id, indexes in stores.items():
            self._cleanup.remove_rows(queue_id, indexes)

    # ---- rules

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription.

        Raises BrokerError: entity-already-exists, argument-error for a bad filter, server-busy.
        """
        entity, description = self._subscription(path)
        for violation in rule_violations(rule, self._namespace.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        check_rule(rule, self._namespace.limits)
        key = entity_key(rule.name)
        if any(entity_key(known.name) == key for known in description.rules):
            raise service_errors.already_exists(self._namespace.name, f"{path}/Rules/{rule.name}")
        self._set_rules(entity, description, (*description.rules, rule))

    def replace_rule(self, path: str, rule: RuleDescription) -> None:
        """Replace a rule of a subscription; its rank and the spelling of its name stay. Raises like `add_rule`."""
        entity, description = self._subscription(path)
        check_rule(rule, self._namespace.limits)
        names = [entity_key(known.name) for known in description.rules]
        if entity_key(rule.name) not in names:
            raise service_errors.not_found(self._namespace.name, f"{path}/Rules/{rule.name}")
        rules = list(description.rules)
        position = names.index(entity_key(rule.name))
        rules[position] = replace(rule, name=rules[position].name)
        self._set_rules(entity, description, rules)

    def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule of a subscription. Raises BrokerError: not-found, server-busy."""
        entity, description = self._subscription(path)
        left = tuple(rule for rule in description.rules if entity_key(rule.name) != entity_key(name))
        if len(left) == len(description.rules):
            raise service_errors.not_found(self._namespace.name, f"{path}/Rules/{name}")
        self._set_rules(entity, description, left)

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        """Return the rules of a subscription by name, as the service lists them [wire 7.4]."""
        return tuple(sorted(self._subscription(path)[1].rules, key=lambda rule: entity_key(rule.name)))

    def _subscription(self, path: str) -> tuple[Entity, SubscriptionDescription]:
        entity = self._namespace.entity(path)
        if entity is None:
            raise service_errors.not_found(self._namespace.name, path)
        if not isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' has no rules: it is not a subscription (topic/name).")
        return entity, entity.description

    def _set_rules(
        self, entity: Entity, description: SubscriptionDescription, rules: Sequence[RuleDescription]
    ) -> None:
        changed = replace(description, rules=tuple(rules))
        self._checks.rule_quotas(entity, changed)
        self._checks.all_stores_work()
        entry = self._namespace.catalog.update(changed, self._namespace.clock.now_ms())
        self._namespace.describe(entity, entry.description)
        self.idle.used(entity)


def stores_of(entities: Iterable[Entity]) -> dict[int, list[int]]:
    """Return the store indexes of entities by queue id."""
    return {each.queue_id: [handle.worker.index for handle in each.partitions] for each in entities}
