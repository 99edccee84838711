"""Changing what entities there are: create, update, delete; rules; deletion of what is idle.

Knows what must be checked before the catalog changes, and that a change reaches all partitions or none (P17). Refuses
to know how clients ask for it. Owned by the `Broker`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace

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
from ..model.validation import validate_rule
from ..rules import check_rule
from .checks import Checks
from .cleanup import Cleanup
from .idle import IdleWatch


class Administration:
    """Creates, updates and deletes entities of `namespace`."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace
        self._checks = Checks(namespace)
        self._cleanup = Cleanup(namespace)
        self.idle = IdleWatch(namespace, self.delete)
        namespace.on_entity_added(self.idle.watch)

    def start(self) -> None:
        """Go on with deletions that an earlier run did not finish."""
        self._cleanup.start()

    async def stop(self) -> None:
        """Stop watching and cleaning up; it goes on after the next start."""
        self.idle.stop()
        await self._cleanup.stop()

    def accessed_at(self, entity: Entity) -> int | None:
        """When an entity was last used (Unix ms); None if it never was."""
        return self.idle.accessed_at(entity)

    # ---- entities

    def create(self, description: Description, *, targets_exist: bool = False) -> Entity:
        """Create an entity; with `targets_exist` only if there is what it forwards to, as the service wants it.

        BrokerError: entity-already-exists, argument-out-of-range, not-found, resource-limit-exceeded, server-busy.
        """
        self._checks.description(description)
        if targets_exist:
            self._checks.targets(description)
        path = path_of(description)
        known = self._namespace.entity(path)
        if known is None:
            self._checks.quotas(description)
        self._checks.all_stores_work()
        if known is not None:
            raise service_errors.already_exists(self._namespace.namespace, path)
        return self._namespace.add(self._namespace.catalog.create(description, self._namespace.clock.now_ms()))

    def update(self, description: Description) -> Entity:
        """Change an entity's properties; BrokerError (not-allowed) for what is chosen at creation (P1)."""
        path = path_of(description)
        entity = self._namespace.entity(path)
        if entity is None:
            if isinstance(description, SubscriptionDescription):
                self._checks.description(description)  # the service looks at what it is given first here [http 4]
            raise service_errors.not_found(self._namespace.namespace, path)
        before = entity.description
        if type(before) is not type(description):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' is a {before.kind}, not a {description.kind}.")
        for field, name in FIXED_FIELDS.items():
            if getattr(before, field, None) != getattr(description, field, None):
                raise service_errors.fixed_at_creation(name, before.kind)
        self._checks.description(description, is_new=False)
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
        """Delete an entity, a topic with its subscriptions; BrokerError: not-found, server-busy."""
        entity = self._namespace.entity(path)
        if entity is None:
            raise service_errors.not_found(self._namespace.namespace, path)
        self._checks.all_stores_work()
        doomed = [entity]
        if isinstance(entity.description, TopicDescription):
            doomed += self._namespace.subscriptions_of(entity.path).entities()
        stores = stores_of(doomed)
        self._namespace.catalog.delete([each.path for each in doomed], stores)
        self.clear(doomed, stores)

    def exchange(
        self, doomed: Sequence[Entity], made: Sequence[Description], detached: BrokerError
    ) -> list[tuple[Entity, Entity | None]]:
        """Delete entities (topics before their subscriptions) and create others, as one change of the namespace.

        Their links hear `detached`. The new entities, each with the one that had its path. BrokerError (server-busy).
        """
        self._checks.all_stores_work()
        stores = stores_of(doomed)
        before = {entity_key(each.path): each for each in doomed}
        paths = [each.path for each in doomed]
        entries = self._namespace.catalog.exchange(paths, stores, made, self._namespace.clock.now_ms())
        self.clear(doomed, stores, detached)
        added = [self._namespace.add(entry) for entry in entries]
        return [(each, before.get(entity_key(each.path))) for each in added]

    def clear(
        self, doomed: Sequence[Entity], stores: Mapping[int, list[int]], detached: BrokerError | None = None
    ) -> None:
        """Take entities out of the running namespace that the catalog has no more, and their rows out of the stores."""
        for each in reversed(doomed):
            self.idle.forget(each)
            self._namespace.remove(each, detached)
        for queue_id, handles in stores.items():
            self._cleanup.remove_rows(queue_id, handles)

    # ---- rules

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        """Add a rule to a subscription.

        BrokerError: entity-already-exists, argument-error for a bad filter, server-busy.
        """
        entity, description = self._subscription(path)
        for violation in validate_rule(rule, self._namespace.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        check_rule(rule, self._namespace.limits)
        if any(entity_key(known.name) == entity_key(rule.name) for known in description.rules):
            raise service_errors.already_exists(self._namespace.namespace, f"{path}/Rules/{rule.name}")
        self._set_rules(entity, description, (*description.rules, rule))

    def replace_rule(self, path: str, rule: RuleDescription) -> None:
        """Change a rule of a subscription, which keeps its place and the spelling of its name; BrokerError as above."""
        entity, description = self._subscription(path)
        check_rule(rule, self._namespace.limits)
        names = [entity_key(known.name) for known in description.rules]
        if entity_key(rule.name) not in names:
            raise service_errors.not_found(self._namespace.namespace, f"{path}/Rules/{rule.name}")
        rules = list(description.rules)
        handle = names.index(entity_key(rule.name))
        rules[handle] = replace(rule, name=rules[handle].name)
        self._set_rules(entity, description, rules)

    def remove_rule(self, path: str, name: str) -> None:
        """Remove a rule of a subscription; BrokerError: amqp:not-found, server-busy."""
        entity, description = self._subscription(path)
        left = tuple(rule for rule in description.rules if entity_key(rule.name) != entity_key(name))
        if len(left) == len(description.rules):
            raise service_errors.not_found(self._namespace.namespace, f"{path}/Rules/{name}")
        self._set_rules(entity, description, left)

    def rules(self, path: str) -> tuple[RuleDescription, ...]:
        """The rules of a subscription, in the order in which they were added."""
        return self._subscription(path)[1].rules

    def _subscription(self, path: str) -> tuple[Entity, SubscriptionDescription]:
        entity = self._namespace.entity(path)
        if entity is None:
            raise service_errors.not_found(self._namespace.namespace, path)
        if not isinstance(entity.description, SubscriptionDescription):
            raise BrokerError(Condition.NOT_ALLOWED, f"'{path}' has no rules: it is not a subscription.")
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
    """The messaging stores of entities, by queue id."""
    return {each.queue_id: [handle.worker.index for handle in each.partitions] for each in entities}
