"""An ARM template of the entities in a Config.json; `emubus import --arm` reads it back.

Knows resource types, names and the spelling of properties. Keys are left out: a template can't set them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

API_VERSION: Final = "2022-10-01-preview"
SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
DEFAULT_RULE: Final = "$Default"
_TYPE: Final = "Microsoft.ServiceBus/namespaces"
_TARGETS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_SQL: Final[Mapping[str, str]] = {"True": "1=1", "False": "1=0"}
JsonObject = dict[str, Any]


def arm_template(config: Mapping[str, Any]) -> JsonObject:
    """The template; the name of the namespace is a parameter."""
    (namespace,) = config["UserConfig"]["Namespaces"]
    kinds = {each["Name"].lower(): "queues" for each in namespace["Queues"]}
    kinds |= {each["Name"].lower(): "topics" for each in namespace["Topics"]}
    resources: list[JsonObject] = []
    for queue in namespace["Queues"]:
        resources.append(_resource("queues", [queue["Name"]], queue["Properties"], _targets(queue, kinds)))
    for topic in namespace["Topics"]:
        resources.append(_resource("topics", [topic["Name"]], topic["Properties"], []))
        for subscription in topic["Subscriptions"]:
            names = [topic["Name"], subscription["Name"]]
            needs = [_id("topics", names[:1]), *_targets(subscription, kinds)]
            resources.append(_resource("topics/subscriptions", names, subscription["Properties"], needs))
            needs = [_id("topics/subscriptions", names)]
            for name, properties in _rules(subscription):
                resources.append(_resource("topics/subscriptions/rules", [*names, name], properties, needs))
    return {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {"namespaceName": {"type": "string", "defaultValue": namespace["Name"]}},
        "resources": resources,
    }


def _resource(kind: str, names: list[str], properties: Mapping[str, Any], needs: list[str]) -> JsonObject:
    path = "/".join(_segment(name) for name in names).replace("'", "''")
    given = {_camel(name): value for name, value in properties.items() if name != "AuthorizationRules"}
    found: JsonObject = {
        "type": f"{_TYPE}/{kind}",
        "apiVersion": API_VERSION,
        "name": f"[concat(parameters('namespaceName'), '/{path}')]",
        "properties": given,
    }
    return {**found, "dependsOn": needs} if needs else found


def _segment(name: str) -> str:
    """A name within the name of a resource, where a slash separates segments."""
    return name.replace("/", "~")


def _targets(entity: Mapping[str, Any], kinds: Mapping[str, str]) -> list[str]:
    """The entities that it forwards to, which must exist before it."""
    given = [entity["Properties"].get(name) for name in _TARGETS]
    return [_id(kinds[each.lower()], [each]) for each in given if each is not None and each.lower() in kinds]


def _id(kind: str, names: list[str]) -> str:
    words = ", ".join("'{}'".format(_segment(name).replace("'", "''")) for name in names)
    return f"[resourceId('{_TYPE}/{kind}', parameters('namespaceName'), {words})]"


def _rules(subscription: Mapping[str, Any]) -> Iterator[tuple[str, JsonObject]]:
    """The rules; the default rule, which Service Bus makes of itself, matches nothing unless it is one of them."""
    rules = subscription.get("Rules")
    if rules is None:
        return
    if all(rule["Name"] != DEFAULT_RULE for rule in rules):
        yield DEFAULT_RULE, {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": _SQL["False"]}}
    for rule in rules:
        given = rule["Properties"]
        kind = given["FilterType"]
        found: JsonObject = {"filterType": "CorrelationFilter" if kind == "Correlation" else "SqlFilter"}
        if kind == "Correlation":
            found["correlationFilter"] = _camels(given["CorrelationFilter"])
        else:
            found["sqlFilter"] = _camels(given.get("SqlFilter", {"SqlExpression": _SQL.get(kind, "1=1")}))
        if "Action" in given:
            found["action"] = _camels(given["Action"])
        yield rule["Name"], found


def _camels(values: Mapping[str, Any]) -> JsonObject:
    return {_camel(name): value for name, value in values.items()}


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
