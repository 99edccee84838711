"""A namespace that exists only to be written as a Config.json: resources are applied to it as to a running one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from ..broker.access import DEFAULT_SHARED_KEY
from ..broker.errors import BrokerError, Condition
from ..broker.ids import new_shared_key
from ..broker.keys import Right, SharedKey
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import (
    AuthorizationRule,
    RuleDescription,
    SubscriptionDescription,
    entity_key,
)
from ..broker.model.profiles import LIMITS, Limits, Profile
from ..broker.model.validation import authorization_violations
from ..declared.resources import Kind, Resources

NAME = "sbemulatorns"


def limits_for_file(resources: Resources) -> Limits:
    """The limits of the tier that the namespace is declared with; JMS is left to the server that reads the file."""
    for each in resources.declared:
        sku = each.properties.get("sku") if each.kind is Kind.NAMESPACE else None
        if isinstance(sku, dict) and str(sku.get("name", sku.get("tier", ""))).lower() == Profile.PREMIUM:
            return LIMITS[Profile.PREMIUM]
    return replace(LIMITS[Profile.STANDARD], jms=True)


class FutureNamespace:
    """Entities by their paths (`declared.applying.Port`)."""

    def __init__(self, limits: Limits) -> None:
        self.limits = limits
        self.name = NAME
        self._entities: dict[str, Description] = {}
        root = DEFAULT_SHARED_KEY  # which every namespace has
        self._keys = [AuthorizationRule(root.name, tuple(Right), root.key)]

    @property
    def entities(self) -> list[Description]:
        return list(self._entities.values())

    @property
    def keys(self) -> list[SharedKey]:
        return [each.shared_key(None) for each in self._keys]

    def find(self, path: str) -> Description | None:
        return self._entities.get(entity_key(path))

    def create(self, description: Description) -> None:
        self._entities[entity_key(path_of(description))] = description

    def update(self, description: Description) -> None:
        self._entities[entity_key(path_of(description))] = description

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        self._set_rules(path, rule.name, rule)

    def replace_rule(self, path: str, rule: RuleDescription) -> None:
        self._set_rules(path, rule.name, rule)

    def remove_rule(self, path: str, name: str) -> None:
        self._set_rules(path, name, None)

    def _set_rules(self, path: str, name: str, rule: RuleDescription | None) -> None:
        from ..broker.rules import check_rule  # only for rules: it loads the parser of SQL

        if rule is not None:
            check_rule(rule, self.limits)
        found = self.find(path)
        assert isinstance(found, SubscriptionDescription), "the caller has found it"
        rules = [each for each in found.rules if entity_key(each.name) != entity_key(name)]
        place = next(
            (at for at, each in enumerate(found.rules) if entity_key(each.name) == entity_key(name)), len(rules)
        )
        rules[place:place] = [] if rule is None else [rule]
        self.update(replace(found, rules=tuple(rules)))

    def new_key(self) -> str:
        return new_shared_key()

    def namespace_rules(self) -> Sequence[AuthorizationRule]:
        return self._keys

    async def replace_namespace_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        for violation in authorization_violations(rules, self.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        self._keys = list(rules)

    async def turn(self) -> None:
        """Nobody waits."""
