"""A running topic: its subscriptions, and the routing of messages to them.

Knows the subscriptions' partitions and the index of their rules. Does not evaluate rules (`rules/`) and does not store
copies (`partition/enqueue.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from functools import partial
from operator import is_
from typing import cast

from ..message.message import Message
from ..model.descriptions import (
    CorrelationFilter,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from ..model.validation import rule_bytes
from ..partition.contract import PartitionRef, RoutedMessage
from ..partition.records import ByteTotal
from ..rules import Match, MessageContext, RuleIndex
from .entity import Description, Entity
from .router import key_of

REASON_FILTER = "FilterException"


CountedFilter = type[SqlFilter] | type[CorrelationFilter]
HoldsRules = Callable[[str, Callable[[], None]], bool]


def rules_of(description: Description) -> Sequence[RuleDescription]:
    """Return the rules of a subscription, () for another entity."""
    return description.rules if isinstance(description, SubscriptionDescription) else ()


def count_filters(description: Description, kind: CountedFilter) -> int:
    """Count the rules of a subscription with a filter of that kind."""
    return [type(rule.filter) for rule in rules_of(description)].count(kind)


def growth_bytes(before: Sequence[RuleDescription], after: Sequence[RuleDescription]) -> int:
    """How many bytes more rules have after a change, which leaves the others the same objects."""
    start = _same_count(before, after)
    before, after = before[start:], after[start:]
    known, wanted = set(map(id, before)), set(map(id, after))
    added = sum(rule_bytes(rule) for rule in after if id(rule) not in known)
    return added - sum(rule_bytes(rule) for rule in before if id(rule) not in wanted)


def _same_count(before: Sequence[RuleDescription], after: Sequence[RuleDescription]) -> int:
    """How many of the first rules are the same objects: nearly all of thousands, when one is added."""
    same = list(map(is_, before, after))
    return same.index(False) if False in same else len(same)


class TopicSubscriptions:
    """Routes a topic's messages to its subscriptions; all partitions of the topic share the index of rules."""

    def __init__(self, topic: Entity) -> None:
        self._topic = topic
        self._totals = [ByteTotal() for _ in topic.partitions]
        topic.count_into(self._totals)
        self._index = RuleIndex()
        self._entities: dict[str, Entity] = {}
        self._copies_max: int | None = None  # None: not counted yet
        self._rules: dict[str, Sequence[RuleDescription]] | None = None  # None: not gathered yet
        self.rule_bytes = 0
        """The size of the rules of all subscriptions."""
        self._present: dict[str, Sequence[RuleDescription]] = {}
        self._change_count = 0
        self._used_changes: dict[str, int] = {}
        """The newest change of rules that is in use, by subscription."""

    def add(self, subscription: Entity) -> None:
        """Add a subscription; it gets the messages sent from now on."""
        description = subscription.description
        assert isinstance(description, SubscriptionDescription)
        key = description.name.lower()
        self._entities[key] = subscription
        subscription.count_into(self._totals)
        self._index.put_subscription(key, description.rules)
        self._count_bytes(key, description.rules)
        self._copies_max = self._rules = None

    def change_rules(
        self, subscription: Entity, rules: Sequence[RuleDescription], holds: HoldsRules | None = None
    ) -> None:
        """Change the rules of a subscription: at once, unless `holds(path, use)` says that it calls `use()` later."""
        self._change_count += 1
        self._count_bytes(subscription.description.name.lower(), rules)
        self._copies_max = self._rules = None
        use = partial(self._use_rules, subscription, rules, self._change_count)
        if holds is None or not holds(subscription.path, use):
            use()

    def _count_bytes(self, key: str, rules: Sequence[RuleDescription]) -> None:
        self.rule_bytes += growth_bytes(self._present.pop(key, ()), rules)
        if rules:
            self._present[key] = rules

    def _use_rules(self, subscription: Entity, rules: Sequence[RuleDescription], change: int) -> None:
        """Messages meet these rules from now on, unless newer ones are in use or the subscription has gone."""
        description = subscription.description
        assert isinstance(description, SubscriptionDescription)
        key = description.name.lower()
        if self._entities.get(key) is subscription and change > self._used_changes.get(key, 0):
            self._used_changes[key] = change
            self._index.change_subscription(key, rules)

    def remove(self, subscription: Entity) -> None:
        description = subscription.description
        assert isinstance(description, SubscriptionDescription)
        key = description.name.lower()
        self._entities.pop(key, None)
        self._count_bytes(key, ())
        self._used_changes.pop(key, None)
        for handle in subscription.partitions:
            handle.total = None
            partition = handle.worker.partition(handle.queue_id)
            if partition is not None:
                partition.state.rows.leave_topic()
        for total in self._totals:
            total.forget(subscription.queue_id)
        self._index.remove_subscription(key)
        self._copies_max = self._rules = None

    @property
    def copies_max(self) -> int:
        """The maximum of copies of a message: one per subscription, and one more per rule with an action."""
        if self._copies_max is None:
            rules = (rule for entity in self._entities.values() for rule in rules_of(entity.description))
            self._copies_max = len(self._entities) + sum(rule.action is not None for rule in rules)
        return self._copies_max

    @property
    def rules(self) -> Mapping[str, Sequence[RuleDescription]]:
        """The present rules of each subscription, by its path; the same object until they change."""
        if self._rules is None:
            self._rules = {each.path: rules_of(each.description) for each in self._entities.values()}
        return self._rules

    def filter_count(self, kind: CountedFilter) -> int:
        """Count the rules of all subscriptions with a filter of that kind."""
        return sum(count_filters(entity.description, kind) for entity in self._entities.values())

    def entities(self) -> list[Entity]:
        return list(self._entities.values())

    # ---- for partitions (`step.SubscriptionRouting`)

    @property
    def evaluations_max(self) -> int:
        """How many rules are evaluated for one message at most."""
        return self._index.evaluations_max

    def matching(self, message: Message, now: int) -> Generator[None, None, Sequence[Match]]:
        """Evaluate the rules for a message, a few at each step; return the matches. Never raises."""
        return self._index.matching(MessageContext(message, enqueued_at=now))

    def route(
        self, message: Message, partition_index: int, now: int, matches: object | None = None
    ) -> list[RoutedMessage]:
        """Return the copies of a message, each with the subscription's partition for it. Never raises.

        `matches` are what `matching` returned, perhaps before subscriptions have gone.
        """
        found: list[RoutedMessage] = []
        if matches is None:
            matches = self._index.matches(MessageContext(message, enqueued_at=now))
        for match in cast("Sequence[Match]", matches):
            entity = self._entities.get(match.subscription)
            if entity is None:
                continue
            ref = entity.partitions[partition_index]
            if match.error is not None:
                description = entity.description
                assert isinstance(description, SubscriptionDescription)
                if description.dead_letter_on_filter_exceptions:
                    found.append(RoutedMessage(ref, message, (REASON_FILTER, str(match.error))))
            for each in match.copies:
                index = partition_index if each is message else self._partition_of_changed(each, partition_index)
                found.append(RoutedMessage(ref, each, target_index=None if index == partition_index else index))
        return found

    def _partition_of_changed(self, copy: Message, partition_index: int) -> int:
        """Return the partition index of an action's copy: by its new key, else unchanged."""
        topic = self._topic
        if not topic.partitioned:
            return partition_index
        description = topic.description
        assert isinstance(description, TopicDescription)
        key = key_of(copy, duplicate_detection=description.requires_duplicate_detection)
        return partition_index if key is None else topic.partition_index_of_key(key)

    def subscriptions(self, partition_index: int) -> list[PartitionRef]:
        """Return the partitions of all subscriptions in the store of the topic's partition of that index."""
        return [entity.partitions[partition_index] for entity in self._entities.values()]
