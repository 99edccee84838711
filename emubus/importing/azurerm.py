"""Attributes of Terraform's provider azurerm, and of Pulumi's Azure Classic, which is made of it, as ARM's properties.

A row is a type of resource, with the attributes that it has in the versions 2 to 4 of the provider: some were renamed
on the way [1]. An attribute that has no meaning in an emulator stands in `without_effect`, and one that no row has is
named to the user. Does not know plans, states and stacks.

[1] hashicorp/terraform-provider-azurerm, website/docs/r/servicebus_*.html.markdown and internal/services/servicebus;
`enable_…` became `…_enabled` in version 4 (website/docs/4.0-upgrade-guide.html.markdown).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ..broker.keys import Right
from ..broker.model.descriptions import (
    EntityDescription,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
)
from ..broker.model.properties import CORRELATION_NAMES, PROPERTIES_OF
from ..declared.reading import camel
from ..declared.resources import Kind

_TYPICAL_MESSAGE_KB: Final = 256
"""What a namespace below Premium reports; azurerm does not send it either (`servicebus_queue_resource.go`)."""


@dataclass(frozen=True, slots=True)
class Row:
    """A type of resource. `parent` is the attribute with the id of what it is in, `parents` those with names (v2)."""

    kind: Kind
    parent: str = ""
    parents: tuple[str, ...] = ()
    attributes: Mapping[str, str] = field(default_factory=dict[str, str])
    without_effect: frozenset[str] = frozenset()


_OTHER_NAMES: Final[Mapping[str, str]] = {
    "batched_operations_enabled": "enable_batched_operations",
    "dead_lettering_on_filter_evaluation_error": "dead_letter_on_filter_exceptions",
    "default_message_ttl": "default_ttl_ms",
    "express_enabled": "enable_express",
    "partitioning_enabled": "enable_partitioning",
}
"""Attributes that are not called as the service's property is in snake case, and the fields of descriptions."""
_OF_CLIENT: Final = {
    "client_scoped_subscription": "clientAffineProperties",
    "client_scoped_subscription_enabled": "isClientAffine",
}


def snake(name: str) -> str:
    """`lock_duration` of `LockDuration` and of `lockDuration`."""
    return re.sub(r"(?<!^)([A-Z])", r"_\1", name).lower()


def _attributes(kind: type[EntityDescription]) -> dict[str, str]:
    """ARM's properties of a kind of entity by the attributes."""
    found = {snake(row.name): camel(row.name) for row in PROPERTIES_OF[kind]}
    by_field = {row.field: camel(row.name) for row in PROPERTIES_OF[kind]}
    return found | {name: by_field[each] for name, each in _OTHER_NAMES.items() if each in by_field}


_CLIENT: Final = {
    "client_id": "clientId",
    "is_client_scoped_subscription_durable": "isDurable",
    "is_client_scoped_subscription_shareable": "isShared",
}
_RULE: Final = {
    "action": "action",
    "correlation_filter": "correlationFilter",
    "filter_type": "filterType",
    "sql_filter": "sqlFilter",
}
_CORRELATION: Final = {"properties": "properties", **{snake(each): camel(each) for each in CORRELATION_NAMES.values()}}
_KEYS: Final = {
    "listen": "rights",
    "manage": "rights",
    "primary_key": "primaryKey",
    "secondary_key": "secondaryKey",
    "send": "rights",
}
_STRINGS: Final = frozenset(
    f"{which}_connection_string{alias}" for which in ("primary", "secondary") for alias in ("", "_alias")
)
_ALWAYS: Final = frozenset({"id", "location", "name", "resource_group_name", "timeouts"})
_NAMES: Final = frozenset({"namespace_id", "namespace_name", "queue_id", "queue_name"}) | {
    *("subscription_id", "subscription_name", "topic_id", "topic_name"),
}

TYPES: Final[Mapping[str, Row]] = {
    "azurerm_servicebus_namespace": Row(
        Kind.NAMESPACE,
        attributes={"sku": "sku"},
        without_effect=frozenset(
            {
                *("capacity", "customer_managed_key", "default_primary_connection_string", "default_primary_key"),
                *("default_secondary_connection_string", "default_secondary_key", "endpoint", "identity"),
                *("local_auth_enabled", "minimum_tls_version", "network_rule_set", "premium_messaging_partitions"),
                *("public_network_access_enabled", "tags", "zone_redundant"),
            }
        ),
    ),
    "azurerm_servicebus_queue": Row(Kind.QUEUE, "namespace_id", ("namespace_name",), _attributes(QueueDescription)),
    "azurerm_servicebus_topic": Row(Kind.TOPIC, "namespace_id", ("namespace_name",), _attributes(TopicDescription)),
    "azurerm_servicebus_subscription": Row(
        Kind.SUBSCRIPTION,
        "topic_id",
        ("namespace_name", "topic_name"),
        {**_attributes(SubscriptionDescription), **_OF_CLIENT},
    ),
    "azurerm_servicebus_subscription_rule": Row(
        Kind.RULE,
        "subscription_id",
        ("namespace_name", "topic_name", "subscription_name"),
        _RULE,
        frozenset({"sql_filter_compatibility_level"}),
    ),
    "azurerm_servicebus_namespace_authorization_rule": Row(
        Kind.AUTHORIZATION_RULE, "namespace_id", ("namespace_name",), _KEYS, _STRINGS
    ),
    "azurerm_servicebus_queue_authorization_rule": Row(
        Kind.AUTHORIZATION_RULE, "queue_id", ("namespace_name", "queue_name"), _KEYS, _STRINGS
    ),
    "azurerm_servicebus_topic_authorization_rule": Row(
        Kind.AUTHORIZATION_RULE, "topic_id", ("namespace_name", "topic_name"), _KEYS, _STRINGS
    ),
    "azurerm_servicebus_namespace_network_rule_set": Row(
        Kind.NETWORK_RULES,
        "namespace_id",
        ("namespace_name",),
        without_effect=frozenset(
            {
                *("default_action", "ip_rules", "network_rules", "public_network_access_enabled"),
                "trusted_services_allowed",
            }
        ),
    ),
}
SETTINGS: Final = frozenset(
    {"azurerm_servicebus_namespace_customer_managed_key", "azurerm_servicebus_namespace_disaster_recovery_config"}
)
"""Types of Service Bus that have no meaning in an emulator."""


def properties_of(row: Row, attributes: Mapping[str, object]) -> tuple[dict[str, object], list[str]]:
    """ARM's properties of attributes, and the attributes that no table has; what is null, "" or [] is absent."""
    found: dict[str, object] = {}
    unread: list[str] = []
    for name, value in attributes.items():
        if value is None or value == "" or value == [] or value == {}:
            continue
        if name in row.attributes:
            unread += [f"{name}.{each}" for each in _put(found, row.attributes[name], value)]
        elif name not in row.without_effect and name not in _ALWAYS and name not in _NAMES:
            unread.append(name)
    if row.kind is Kind.AUTHORIZATION_RULE:
        found["rights"] = [each.value for each in Right if attributes.get(each.value.lower()) in (True, "true")]
    if found.get("maxMessageSizeInKilobytes") in (_TYPICAL_MESSAGE_KB, str(_TYPICAL_MESSAGE_KB)):
        del found["maxMessageSizeInKilobytes"]
    return found, unread


def _put(found: dict[str, object], arm: str, value: object) -> list[str]:
    """Set a property; the parts of a block that are unknown."""
    match arm:
        case "rights":
            return []
        case "sku":
            found[arm] = {"name": value}
        case "action" | "sqlFilter":
            found[arm] = {"sqlExpression": value}
        case "correlationFilter" | "clientAffineProperties":
            found[arm], unread = _block(value, _CORRELATION if arm == "correlationFilter" else _CLIENT)
            return unread
        case _:
            found[arm] = value
    return []


def _block(value: object, names: Mapping[str, str]) -> tuple[dict[str, object], list[str]]:
    """A block, which Terraform has as a list of one, and Pulumi as an object."""
    first = value[0] if isinstance(value, list) and value else value
    given = {str(name): each for name, each in first.items()} if isinstance(first, dict) else {}
    kept = {name: each for name, each in given.items() if each is not None and each != "" and each != {}}
    return {names[name]: each for name, each in kept.items() if name in names}, [
        each for each in kept if each not in names
    ]


def jms_name(name: str, properties: Mapping[str, object]) -> str:
    """The name of a subscription in the service: that of a client has the client's id behind it.

    azurerm makes it of both (`servicebus_subscription_resource.go`): `name$client$D`.
    """
    if properties.get("isClientAffine") not in (True, "true"):
        return name
    parts = properties.get("clientAffineProperties")
    client = parts.get("clientId", "") if isinstance(parts, dict) else ""
    suffix = f"${client}$D"
    return name if name.endswith(suffix) else name + suffix
