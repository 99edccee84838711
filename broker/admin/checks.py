"""Checks before a change of the catalog: limits of the profile, quotas, forwarding targets, available stores."""

from __future__ import annotations

from .. import service_errors
from ..entities.entity import Entity
from ..entities.namespace import Namespace
from ..entities.topic import count_filters, growth_bytes, rules_of
from ..errors import BrokerError, Condition
from ..hosts import host_of, is_of_another_namespace
from ..model.catalog import Description, path_of
from ..model.descriptions import (
    CorrelationFilter,
    QueueDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
)
from ..model.profiles import Limits, Profile, limits_of_file
from ..model.validation import Violation, queue_violations, subscription_violations, topic_violations
from ..rules import check_rule


class Checks:
    """Refuses changes of `namespace` that its profile, quotas or stores forbid."""

    def __init__(self, namespace: Namespace) -> None:
        self._namespace = namespace

    def description(
        self, description: Description, *, before: Description | None = None, of_file: bool = False
    ) -> None:
        """Raise BrokerError if the profile forbids the description, its topic is missing or a rule is invalid.

        `before` is the existing entity: a value that it has is kept, wherever it is from (a Config.json, a folder of
        another profile), since clients send all properties back to change one. `of_file`: it comes from a Config.json.
        """
        limits = limits_of_file(self._namespace.limits) if of_file else self._namespace.limits
        kept = [] if before is None else _violations(before, limits, is_new=False)
        for violation in _violations(description, limits, is_new=before is None):
            if violation not in kept:
                raise self._refusal(violation, path_of(description))
        if isinstance(description, SubscriptionDescription):
            topic = self._namespace.entity(description.topic_name)
            if topic is None or not isinstance(topic.description, TopicDescription):
                raise service_errors.not_found(self._namespace.name, description.topic_name)
            for rule in description.rules:
                check_rule(rule, self._namespace.limits)

    def targets(self, description: Description, before: Description | None = None) -> None:
        """Raise BrokerError unless the forwarding targets exist; `before` keeps those that it has.

        An update finds its targets anew, as a creation does (azure-service-bus 693, ServiceBusExplorer 384). Clients
        send all properties back: one whose target is gone may still be disabled (a guess).
        """
        kept = {} if before is None else _targets(before)
        for name, target in _targets(description).items():
            if kept.get(name) == target:
                continue
            try:
                self._namespace.find_target(target)
            except BrokerError as error:
                if error.condition not in {Condition.NOT_FOUND, Condition.NOT_ALLOWED}:
                    raise
                raise service_errors.forward_target_missing(name, target) from error

    def hosts(self, description: Description, before: Description | None, own_name: str | None) -> None:
        """Raise BrokerError if a target has the host of another namespace; `before` keeps the targets that it has."""
        kept = {} if before is None else _targets(before)
        names = [self._namespace.name, *([] if own_name is None else [own_name])]
        for what, target in _targets(description).items():
            is_elsewhere = is_of_another_namespace(target, names) or self._namespace.is_elsewhere(host_of(target))
            if kept.get(what) != target and is_elsewhere:
                raise service_errors.forward_target_elsewhere(what, target, self._namespace.name)

    def _refusal(self, violation: Violation, path: str) -> BrokerError:
        if violation.is_character:
            return service_errors.wrong_characters(service_errors.address_of(self._namespace.name, path))
        return violation.refusal or BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, str(violation))

    def quotas(self, description: Description) -> None:
        """Raise BrokerError for an entity above the quotas of the namespace or topic (P5)."""
        limits = self._namespace.limits
        if isinstance(description, SubscriptionDescription):
            count = len(self._namespace.subscriptions_of(description.topic_name).entities())
            _refuse_above(count + 1, limits.subscriptions_per_topic_max, "Subscription", limits.profile)
            self.rule_quotas(None, description)
            return
        entities = self._namespace.entities()
        tops = [each for each in entities if not isinstance(each.description, SubscriptionDescription)]
        _refuse_above(len(tops) + 1, limits.entities_max, "Queue or Topic", limits.profile)
        if description.enable_partitioning:
            count = sum(each.partitioned for each in tops)
            # The service's spelling.
            _refuse_above(count + 1, limits.partitioned_entities_max, "EnablePartioning == true", limits.profile)

    def rule_quotas(self, entity: Entity | None, description: SubscriptionDescription) -> None:
        """Raise BrokerError for rules above the topic's quotas; `entity` is the existing subscription."""
        limits = self._namespace.limits
        routing = self._namespace.subscriptions_of(description.topic_name)
        for kind, name, count_max in (
            (SqlFilter, "SqlFilter", limits.sql_filters_per_topic_max),
            (CorrelationFilter, "CorrelationFilter", limits.correlation_filters_per_topic_max),
        ):
            before = 0 if entity is None else count_filters(entity.description, kind)
            after = count_filters(description, kind)
            if after > before:
                _refuse_above(routing.filter_count(kind) - before + after, count_max, name, limits.profile)
        growth = growth_bytes(() if entity is None else rules_of(entity.description), description.rules)
        if growth > 0 and routing.rule_bytes + growth > limits.rule_bytes_per_topic_max:
            raise BrokerError(
                Condition.RESOURCE_LIMIT_EXCEEDED,
                f"The rules of the topic '{description.topic_name}' would take {routing.rule_bytes + growth} bytes; at "
                f"most {limits.rule_bytes_per_topic_max} are allowed. Remove rules, or shorten their values.",
            )

    def all_stores_work(self) -> None:
        """Raise BrokerError unless all stores work: a change must reach every partition (P17)."""
        if self._namespace.away is not None:
            raise self._namespace.away
        for worker in self._namespace.workers:
            if worker.trouble is not None:
                raise service_errors.store_unavailable(worker.index, worker.trouble)


def _violations(description: Description, limits: Limits, *, is_new: bool) -> list[Violation]:
    if isinstance(description, QueueDescription):
        return queue_violations(description, limits, is_new=is_new)
    if isinstance(description, TopicDescription):
        return topic_violations(description, limits, is_new=is_new)
    return subscription_violations(description, limits, is_new=is_new)


def _targets(description: Description) -> dict[str, str]:
    """The forwarding targets of an entity, by the service's word for the way."""
    if isinstance(description, TopicDescription):
        return {}
    found = {"auto forwarding": description.forward_to, "dead letter forwarding": description.forward_dead_letters_to}
    return {what: target for what, target in found.items() if target is not None}


def _refuse_above(count: int, count_max: int | None, what: str, profile: Profile) -> None:
    """Raise BrokerError if a count exceeds its maximum."""
    if count_max is not None and count > count_max:
        raise service_errors.resources_exceeded(what, count - 1, count_max, profile.value)
