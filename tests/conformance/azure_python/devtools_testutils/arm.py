"""The clients of Azure's resource manager that the suite's preparers use, over the SDK's own administration client.

`install` puts them where the suite imports them: `azure.mgmt.resource` and `azure.mgmt.servicebus`.
"""

from __future__ import annotations

import base64
import os
import sys
from collections.abc import Iterable, Mapping
from enum import StrEnum
from types import ModuleType, SimpleNamespace
from typing import Any, Final

from azure.servicebus.management import AuthorizationRule, ServiceBusAdministrationClient

HOST: Final = "emulator.servicebus.windows.net"
ROOT: Final = "RootManageSharedAccessKey"
ROOT_KEY: Final = "SAS_KEY_VALUE"


class AccessRights(StrEnum):
    """The rights of a rule."""

    manage = "Manage"
    send = "Send"
    listen = "Listen"


class Model(SimpleNamespace):
    """A description that a preparer makes."""


class Done(SimpleNamespace):
    """A long operation at its end."""

    value: object = None

    def result(self) -> object:
        """What came out."""
        return self.value


def connection_string(rule: str, key: str, entity: str = "") -> str:
    """How clients of a rule come here."""
    path = f";EntityPath={entity}" if entity else ""
    return f"Endpoint=sb://{HOST}/;SharedAccessKeyName={rule};SharedAccessKey={key}{path}"


def client() -> ServiceBusAdministrationClient:
    """The administration client that makes everything."""
    return ServiceBusAdministrationClient.from_connection_string(connection_string(ROOT, ROOT_KEY))


def keys(rule: str, key: str, entity: str = "") -> Model:
    """The answer about a rule's keys."""
    return Model(key_name=rule, primary_key=key, primary_connection_string=connection_string(rule, key, entity))


def named(name: str) -> Model:
    """A resource, which preparers know by its name."""
    return Model(name=name, id=name)


def stated(model: Model | Mapping[str, Any] | None) -> dict[str, Any]:
    """The properties of a description that are given."""
    if model is None:
        return {}
    given = model if isinstance(model, Mapping) else vars(model)
    return {name: value for name, value in given.items() if value is not None}


def rule_of(rights: Iterable[str]) -> str:
    """The namespace's rule with these rights: the configuration file has one of each kind."""
    wanted = set(map(str, rights))
    return "manage-rule" if "Manage" in wanted else "send-rule" if "Send" in wanted else "listen-rule"


class Namespaces:
    """There is one namespace, and its rules stand in the configuration file of the server."""

    rules: Final[dict[str, str]] = {ROOT: ROOT}  # the file's name of each rule that a preparer made

    def begin_create_or_update(self, _group: str, _name: str, _model: object) -> Done:
        """The namespace that is there."""
        return Done(value=named(HOST.partition(".")[0]))

    def create_or_update_authorization_rule(self, _group: str, _namespace: str, rule: str, model: Model) -> Model:
        """Choose the rule that has the rights."""
        self.rules[rule] = rule_of(model.rights)
        return named(rule)

    def list_keys(self, _group: str, _namespace: str, rule: str) -> Model:
        """The keys of a rule."""
        name = self.rules[rule]
        return keys(name, ROOT_KEY if name == ROOT else f"{name}-key")

    def delete(self, *_: str) -> None:
        """Nothing: the namespace stays."""

    delete_authorization_rule = delete


class Queues:
    """Queues, and rules of theirs."""

    def create_or_update(self, _group: str, _namespace: str, name: str, model: Model) -> Model:
        """Make a queue."""
        with client() as admin:
            admin.create_queue(name, **stated(model))
        return named(name)

    def delete(self, _group: str, _namespace: str, name: str) -> None:
        """Delete it."""
        with client() as admin:
            admin.delete_queue(name)

    def create_or_update_authorization_rule(
        self, _group: str, _namespace: str, queue: str, rule: str, model: Model
    ) -> Model:
        """Give the queue a rule with keys made here."""
        new = [base64.b64encode(os.urandom(32)).decode() for _ in range(2)]
        with client() as admin:
            properties = admin.get_queue(queue)
            made = AuthorizationRule(
                type="SharedAccessAuthorizationRule",
                claim_type="SharedAccessKey",
                claim_value="None",
                rights=list(map(str, model.rights)),
                key_name=rule,
                primary_key=new[0],
                secondary_key=new[1],
            )
            properties.authorization_rules = [made]
            admin.update_queue(properties)
        return named(rule)

    def list_keys(self, _group: str, _namespace: str, queue: str, rule: str) -> Model:
        """The keys of a queue's rule."""
        with client() as admin:
            found = [each for each in admin.get_queue(queue).authorization_rules or [] if each.key_name == rule]
        return keys(rule, str(found[0].primary_key), queue)

    def delete_authorization_rule(self, *_: str) -> None:
        """Nothing: it goes with its queue."""


class Topics:
    """Topics."""

    def create_or_update(self, _group: str, _namespace: str, name: str, model: Model | None) -> Model:
        """Make a topic."""
        with client() as admin:
            admin.create_topic(name, **stated(model))
        return named(name)

    def delete(self, _group: str, _namespace: str, name: str) -> None:
        """Delete it."""
        with client() as admin:
            admin.delete_topic(name)


class Subscriptions:
    """Subscriptions."""

    def create_or_update(self, _group: str, _namespace: str, topic: str, name: str, model: Model) -> Model:
        """Make a subscription."""
        with client() as admin:
            admin.create_subscription(topic, name, **stated(model))
        return named(name)

    def delete(self, _group: str, _namespace: str, topic: str, name: str) -> None:
        """Delete it."""
        with client() as admin:
            admin.delete_subscription(topic, name)


class ServiceBusManagementClient:
    """The client that makes entities."""

    def __init__(self) -> None:
        self.namespaces, self.queues = Namespaces(), Queues()
        self.topics, self.subscriptions = Topics(), Subscriptions()


class Groups:
    """Resource groups, which the server has not."""

    def create_or_update(self, name: str, _model: object) -> Model:
        """One by its name."""
        return named(name)

    def begin_delete(self, _name: str, **_: object) -> Done:
        """Nothing to delete."""
        return Done()


class ResourceManagementClient:
    """The client that makes resource groups."""

    def __init__(self) -> None:
        self.resource_groups = Groups()


def install() -> None:
    """Make the modules that the suite imports."""
    models: dict[str, object] = {
        "SBQueue": Model,
        "SBSubscription": Model,
        "SBAuthorizationRule": Model,
        "AccessRights": AccessRights,
    }
    modules: dict[str, dict[str, object]] = {
        "azure.mgmt": {"__path__": []},
        "azure.mgmt.resource": {"ResourceManagementClient": ResourceManagementClient},
        "azure.mgmt.servicebus": {"ServiceBusManagementClient": ServiceBusManagementClient, "__path__": []},
        "azure.mgmt.servicebus.models": models,
    }
    for name, attributes in modules.items():
        module = ModuleType(name)
        module.__dict__.update(attributes)
        sys.modules[name] = module
