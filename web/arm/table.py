"""The table of operations: a row is a method, a path with names in braces, and what answers it.

Paths are compared in any case, as Resource Manager does. The rows of Microsoft.ServiceBus are those of its
specification (azure-rest-api-specs) without disaster recovery, migration and private endpoints, which an emulator has
nothing for.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from . import authorization_rules, entities, groups, namespaces
from .calls import ArmCall, Operation, Reply, Run

_SUBSCRIPTION: Final = "subscriptions/{subscription}"
_GROUPS: Final = f"{_SUBSCRIPTION}/resourceGroups"
_GROUP: Final = f"{_GROUPS}/{{group}}"
_NAMESPACES: Final = f"{_GROUP}/providers/Microsoft.ServiceBus/namespaces"
_NAMESPACE: Final = f"{_NAMESPACES}/{{namespace}}"
_NETWORKS: Final = f"{_NAMESPACE}/networkRuleSets"
_QUEUES: Final = f"{_NAMESPACE}/queues"
_QUEUE: Final = f"{_QUEUES}/{{queue}}"
_TOPICS: Final = f"{_NAMESPACE}/topics"
_TOPIC: Final = f"{_TOPICS}/{{topic}}"
_BELOW: Final = f"{_TOPIC}/subscriptions"
_SUBSCRIBED: Final = f"{_BELOW}/{{subscription_name}}"
_RULES: Final = f"{_SUBSCRIBED}/rules"
_RULE: Final = f"{_RULES}/{{rule}}"


TEMPLATE_BYTES_MAX: Final = 4 << 20
"""The longest template of the service."""


def _deployment_operation(name: str) -> Run:
    """An operation on deployments; the evaluator of templates is loaded by the first one."""

    async def run(call: ArmCall) -> Reply:
        from .deployments import RUNS  # only for a template

        return await RUNS[name](call)

    return run


def _deployments_at(parent: str) -> tuple[Operation, ...]:
    """The operations on deployments in a resource group or in the subscription."""
    every = f"{parent}/providers/Microsoft.Resources/deployments"
    one, most = f"{every}/{{deployment}}", TEMPLATE_BYTES_MAX
    return (
        Operation("GET", every, _deployment_operation("list_all")),
        Operation("GET", one, _deployment_operation("show")),
        Operation("HEAD", one, _deployment_operation("head")),
        Operation("PUT", one, _deployment_operation("put"), most, is_loose=True),
        Operation("DELETE", one, _deployment_operation("delete")),
        Operation("POST", f"{one}/validate", _deployment_operation("validate"), most, is_loose=True),
        Operation("POST", f"{one}/whatIf", _deployment_operation("what_if"), most, is_loose=True),
        Operation("GET", f"{one}/operations", _deployment_operation("list_operations")),
        Operation("GET", f"{one}/operationStatuses/{{operation}}", _deployment_operation("show_status")),
    )


def _keys_at(parent: str) -> tuple[Operation, ...]:
    """The operations on the authorization rules of a resource."""
    every, one = f"{parent}/authorizationRules", f"{parent}/authorizationRules/{{authorization_rule}}"
    return (
        Operation("GET", every, authorization_rules.list_all),
        Operation("GET", one, authorization_rules.show),
        Operation("PUT", one, authorization_rules.put),
        Operation("POST", one, authorization_rules.put),  # the Go and .NET SDKs of 2015-08-01
        Operation("DELETE", one, authorization_rules.delete),
        Operation("POST", f"{one}/listKeys", authorization_rules.list_keys),
        Operation("POST", f"{one}/regenerateKeys", authorization_rules.regenerate),
    )


OPERATIONS: Final[tuple[Operation, ...]] = (
    Operation("GET", "metadata/endpoints", groups.show_endpoints, is_public=True),
    Operation("GET", "tenants", groups.list_tenants),
    Operation("GET", "subscriptions", groups.list_subscriptions),
    Operation("GET", _SUBSCRIPTION, groups.show_subscription),
    Operation("GET", f"{_SUBSCRIPTION}/locations", groups.list_locations),
    Operation("GET", f"{_SUBSCRIPTION}/providers", groups.list_providers),
    Operation("GET", f"{_SUBSCRIPTION}/providers/{{provider}}", groups.show_provider),
    Operation("POST", f"{_SUBSCRIPTION}/providers/{{provider}}/register", groups.show_provider),
    Operation("GET", "providers/Microsoft.ServiceBus/operations", groups.list_operations),
    Operation("GET", f"{_SUBSCRIPTION}/resources", groups.list_resources),
    Operation("GET", _GROUPS, groups.list_groups),
    Operation("GET", _GROUP, groups.show_group),
    Operation("HEAD", _GROUP, groups.head_group),
    Operation("PUT", _GROUP, groups.put_group),
    Operation("PATCH", _GROUP, groups.patch_group),
    Operation("DELETE", _GROUP, groups.delete_group),
    Operation("GET", f"{_GROUP}/resources", groups.list_resources),
    *_deployments_at(_GROUP),
    *_deployments_at(_SUBSCRIPTION),
    Operation("GET", f"{_SUBSCRIPTION}/providers/Microsoft.ServiceBus/namespaces", namespaces.list_namespaces),
    Operation("POST", f"{_SUBSCRIPTION}/providers/Microsoft.ServiceBus/CheckNameAvailability", namespaces.check_name),
    Operation("GET", _NAMESPACES, namespaces.list_namespaces),
    Operation("GET", _NAMESPACE, namespaces.show_namespace),
    Operation("PUT", _NAMESPACE, namespaces.put_namespace),
    Operation("PATCH", _NAMESPACE, namespaces.patch_namespace),
    Operation("DELETE", _NAMESPACE, namespaces.delete_namespace),
    Operation("GET", _NETWORKS, namespaces.list_networks),
    Operation("GET", f"{_NETWORKS}/default", namespaces.show_network),
    Operation("PUT", f"{_NETWORKS}/default", namespaces.put_network),
    *_keys_at(_NAMESPACE),
    Operation("GET", _QUEUES, entities.list_queues),
    Operation("GET", _QUEUE, entities.show_top_level),
    Operation("PUT", _QUEUE, entities.put_top_level),
    Operation("DELETE", _QUEUE, entities.delete_top_level),
    *_keys_at(_QUEUE),
    Operation("GET", _TOPICS, entities.list_topics),
    Operation("GET", _TOPIC, entities.show_top_level),
    Operation("PUT", _TOPIC, entities.put_top_level),
    Operation("DELETE", _TOPIC, entities.delete_top_level),
    *_keys_at(_TOPIC),
    Operation("GET", _BELOW, entities.list_subscriptions),
    Operation("GET", _SUBSCRIBED, entities.show_subscription),
    Operation("PUT", _SUBSCRIBED, entities.put_subscription),
    Operation("DELETE", _SUBSCRIBED, entities.delete_subscription),
    Operation("GET", _RULES, entities.list_rules),
    Operation("GET", _RULE, entities.show_rule),
    Operation("PUT", _RULE, entities.put_rule),
    Operation("DELETE", _RULE, entities.delete_rule),
)


def _by_length() -> Mapping[int, Sequence[Operation]]:
    found: dict[int, list[Operation]] = {}
    for each in OPERATIONS:
        found.setdefault(len(each.words), []).append(each)
    return found


_BY_LENGTH: Final = _by_length()


def matching(parts: Sequence[str]) -> list[tuple[Operation, dict[str, str]]]:
    """The rows of a path, of all methods, with the names in it."""
    found: list[tuple[Operation, dict[str, str]]] = []
    for each in _BY_LENGTH.get(len(parts), ()):
        names = each.names_in(parts)
        if names is not None:
            found.append((each, names))
    return found
