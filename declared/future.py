"""A namespace that exists only in thought: resources are applied to it as to a running one.

What comes of that is written to a Config.json, or said to who asks what a deployment would change. It knows what a
description may be, as `declared/applying.py` does, and not what a running namespace has besides: quotas, messages.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
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
from ..broker.model.profiles import Limits
from ..broker.model.validation import authorization_violations

NAME = "sbemulatorns"
_ROOT = AuthorizationRule(DEFAULT_SHARED_KEY.name, tuple(Right), DEFAULT_SHARED_KEY.key)
"""Which every namespace has."""


class FutureNamespace:
    """Entities by their paths (`declared.applying.Port`)."""

    def __init__(
        self,
        limits: Limits,
        name: str = NAME,
        entities: Iterable[Description] = (),
        keys: Sequence[AuthorizationRule] = (_ROOT,),
    ) -> None:
        self.limits = limits
        self.name = name
        self._entities = {entity_key(path_of(each)): each for each in entities}
        self._keys = list(keys)

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
