"""Declared resources, applied to the running namespace: the one way for the control API and for Resource Manager's.

Knows the broker's verbs. Does not know what is to be done with a resource: `declared/applying.py` does.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext

from ..broker.broker import Broker
from ..broker.errors import BrokerError, Condition
from ..broker.ids import new_shared_key
from ..broker.kept_keys import written
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import AuthorizationRule, RuleDescription
from ..broker.model.profiles import Limits
from ..broker.model.validation import authorization_violations
from ..broker.names import KeptFile
from ..declared.applying import FAILURES, Result, apply
from ..declared.resources import Resources
from .long_work import Pace
from .services import Services

Around = Callable[[str, str, bool], AbstractContextManager[object]]
"""What each change is done in: takes its verb (PUT, DELETE), the path of entity or rule, and whether that is new."""


def _nothing_around(_verb: str, _path: str, _is_new: bool) -> AbstractContextManager[object]:
    return nullcontext()


class LiveNamespace:
    """The running namespace (`declared.applying.Port`). What `around` raises refuses a change; it is a BrokerError."""

    def __init__(self, services: Services, around: Around = _nothing_around) -> None:
        self._services = services
        self._broker: Broker = services.broker
        self._around = around
        self._pace = Pace()

    @property
    def name(self) -> str:
        return self._broker.name

    @property
    def limits(self) -> Limits:
        return self._broker.limits

    def find(self, path: str) -> Description | None:
        entity = self._broker.namespace.entity(path)
        return None if entity is None else entity.description

    def create(self, description: Description) -> None:
        with self._around("PUT", path_of(description), True):
            self._broker.administration.create(description)

    def update(self, description: Description) -> None:
        with self._around("PUT", path_of(description), False):
            self._broker.administration.update(description)

    def add_rule(self, path: str, rule: RuleDescription) -> None:
        with self._around("PUT", f"{path}/Rules/{rule.name}", True):
            self._broker.administration.add_rule(path, rule)

    def replace_rule(self, path: str, rule: RuleDescription) -> None:
        with self._around("PUT", f"{path}/Rules/{rule.name}", False):
            self._broker.administration.replace_rule(path, rule)

    def remove_rule(self, path: str, name: str) -> None:
        with self._around("DELETE", f"{path}/Rules/{name}", False):
            self._broker.administration.remove_rule(path, name)

    def new_key(self) -> str:
        return new_shared_key()

    def namespace_rules(self) -> Sequence[AuthorizationRule]:
        return [
            AuthorizationRule(each.name, tuple(sorted(each.rights)), each.key, each.secondary_key or "")
            for each in self._services.access.keys
        ]

    async def replace_namespace_rules(self, rules: Sequence[AuthorizationRule]) -> None:
        services = self._services
        for violation in authorization_violations(rules, self.limits):
            raise BrokerError(Condition.ARGUMENT_ERROR, str(violation))
        keys = [each.shared_key(None) for each in rules]
        if services.files is not None:
            data = written(services.access.configured, keys)
            await asyncio.to_thread(services.files.write, KeptFile.KEYS, data)
        services.access.replace_keys(keys)
        self._broker.namespace.keys_changed()

    async def turn(self) -> None:
        await self._pace.step()


async def apply_resources(
    services: Services,
    client: str,
    resources: Resources,
    *,
    whole_rules: bool = False,
    sets_targets: bool = True,
    around: Around = _nothing_around,
) -> list[Result]:
    """Apply resources to the running namespace; what is refused is logged as refused to `client`."""
    port = LiveNamespace(services, around)
    found = await apply(resources, port, whole_rules=whole_rules, sets_targets=sets_targets)
    for each in found:
        if each.status in FAILURES:
            services.broker.refusals.refused_because(client, each.path or each.what, each.status, each.why)
    return found
