"""An ARM template of the entities in a Config.json; `emubus import --arm` reads it back.

Knows resource types, names and the spelling of properties. Keys are left out: a template can't set them. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ...broker.model.properties import TARGET_NAMES
from ..json_object import JsonObject

API_VERSION: Final = "2022-10-01-preview"
SCHEMA: Final = "https://schema.management.azure.com/schemas/2019-04-01/deploymentTemplate.json#"
DEFAULT_RULE: Final = "$Default"
_TYPE: Final = "Microsoft.ServiceBus/namespaces"
_CLIENT: Final = "ClientAffineProperties"
_SQL: Final[Mapping[str, str]] = {"True": "1=1", "False": "1=0"}


def arm_template(config: Mapping[str, object]) -> dict[str, object]:
    """The template; the name of the namespace is a parameter."""
    (namespace,) = JsonObject(config).object_of("UserConfig").objects_of("Namespaces")
    queues, topics = namespace.objects_of("Queues"), namespace.objects_of("Topics")
    kinds = {each.one("Name", str).lower(): "queues" for each in queues}
    kinds |= {each.one("Name", str).lower(): "topics" for each in topics}
    resources: list[dict[str, object]] = []
    for queue in queues:
        resources.append(_resource("queues", [queue.one("Name", str)], queue, _targets(queue, kinds)))
    for topic in topics:
        resources.append(_resource("topics", [topic.one("Name", str)], topic, []))
        for subscription in topic.objects_of("Subscriptions"):
            names = [topic.one("Name", str), subscription.one("Name", str)]
            needs = [_id("topics", names[:1]), *_targets(subscription, kinds)]
            resources.append(_resource("topics/subscriptions", names, subscription, needs))
            needs = [_id("topics/subscriptions", names)]
            for name, properties in _rules(subscription):
                resources.append(_of_type("topics/subscriptions/rules", [*names, name], properties, needs))
    return {
        "$schema": SCHEMA,
        "contentVersion": "1.0.0.0",
        "parameters": {"namespaceName": {"type": "string", "defaultValue": namespace["Name"]}},
        "resources": resources,
    }


def _resource(kind: str, names: list[str], entity: JsonObject, needs: list[str]) -> dict[str, object]:
    own = entity.object_of("Properties")
    given = _camels({name: value for name, value in own.items() if name not in ("AuthorizationRules", _CLIENT)})
    if _CLIENT in own:
        given |= {"isClientAffine": True, _camel(_CLIENT): _camels(own.object_of(_CLIENT))}
    return _of_type(kind, names, given, needs)


def _of_type(kind: str, names: list[str], properties: Mapping[str, object], needs: list[str]) -> dict[str, object]:
    path = "/".join(_segment(name) for name in names).replace("'", "''")
    found: dict[str, object] = {
        "type": f"{_TYPE}/{kind}",
        "apiVersion": API_VERSION,
        "name": f"[concat(parameters('namespaceName'), '/{path}')]",
        "properties": properties,
    }
    return {**found, "dependsOn": needs} if needs else found


def _segment(name: str) -> str:
    """A name within the name of a resource, where a slash separates segments."""
    return name.replace("/", "~")


def _targets(entity: JsonObject, kinds: Mapping[str, str]) -> list[str]:
    """The entities that it forwards to, which must exist before it."""
    given = [entity.object_of("Properties").optional(name, str) for name in TARGET_NAMES]
    return [_id(kinds[each.lower()], [each]) for each in given if each is not None and each.lower() in kinds]


def _id(kind: str, names: list[str]) -> str:
    words = ", ".join("'{}'".format(_segment(name).replace("'", "''")) for name in names)
    return f"[resourceId('{_TYPE}/{kind}', parameters('namespaceName'), {words})]"


def _rules(subscription: JsonObject) -> Iterator[tuple[str, dict[str, object]]]:
    """The rules; the default rule, which Service Bus makes of itself, matches nothing unless it is one of them."""
    if subscription.get("Rules") is None:
        return
    rules = subscription.objects_of("Rules")
    if all(rule["Name"] != DEFAULT_RULE for rule in rules):
        yield DEFAULT_RULE, {"filterType": "SqlFilter", "sqlFilter": {"sqlExpression": _SQL["False"]}}
    for rule in rules:
        given = rule.object_of("Properties")
        kind = given.one("FilterType", str)
        found: dict[str, object] = {"filterType": "CorrelationFilter" if kind == "Correlation" else "SqlFilter"}
        if kind == "Correlation":
            found["correlationFilter"] = _camels(given.object_of("CorrelationFilter"))
        elif kind == "Selector":  # the service has it in a SQL filter
            found["sqlFilter"] = {"sqlExpression": given.object_of("SelectorFilter").one("Selector", str)}
        else:
            sql = given.object_of("SqlFilter") if "SqlFilter" in given else {"SqlExpression": _SQL.get(kind, "1=1")}
            found["sqlFilter"] = _camels(sql)
        if "Action" in given:
            found["action"] = _camels(given.object_of("Action"))
        yield rule.one("Name", str), found


def _camels(values: Mapping[str, object]) -> dict[str, object]:
    return {_camel(name): value for name, value in values.items()}


def _camel(name: str) -> str:
    return name[0].lower() + name[1:]
