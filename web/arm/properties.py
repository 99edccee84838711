"""The properties of queues, topics, subscriptions and rules as Resource Manager's JSON has them.

Its names are the service's with a small first letter, from the table of `broker/model/properties.py`; a text in JSON is
the one that Atom has in its element. What only answers have stands in `_READ_ONLY`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from ...broker.model.descriptions import (
    CorrelationFilter,
    EntityDescription,
    FalseFilter,
    Filter,
    JmsSubscription,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
)
from ...broker.model.properties import CORRELATION_NAMES, PROPERTIES_OF, Property, Value
from ..atom.fields import COUNTED, FIELDS, READ, EntityView
from ..errors import excerpt
from .calls import bad
from .values import object_in, shown, text_in, texts_in

_EVERYTHING: Final = "1=1"
_LEVEL: Final = 20
"""The compatibility level of every expression."""
_NUMBERS: Final = frozenset({"SizeInBytes", "MessageCount", "SubscriptionCount"})
_READ_ONLY: Final[Mapping[type[EntityDescription], frozenset[str]]] = {
    QueueDescription: frozenset({"SizeInBytes", "MessageCount", "CreatedAt", "UpdatedAt", "AccessedAt"}),
    TopicDescription: frozenset({"SizeInBytes", "SubscriptionCount", "CreatedAt", "UpdatedAt", "AccessedAt"}),
    SubscriptionDescription: frozenset({"MessageCount", "CreatedAt", "UpdatedAt", "AccessedAt"}),
}
_FILTERS: Final = ("SqlFilter", "CorrelationFilter")


def camel(name: str) -> str:
    """The name in Resource Manager's JSON of what the service calls `name`."""
    return name[0].lower() + name[1:]


# ---------------------------------------------------------------- entities


def described(view: EntityView) -> dict[str, object]:
    """The properties of an entity, with its counts."""
    kind = type(view.description)
    found: dict[str, object] = {}
    for each in FIELDS[kind]:
        text = each.show(view) if each.own is not None or each.name in _READ_ONLY[kind] else None
        if text is not None:
            found[camel(each.name)] = _value(each.own, each.name, text)
    messages = view.totals.messages
    counts = {camel(name): sum(messages[home] for home in homes) for name, homes in COUNTED.items()}
    found["countDetails"] = counts
    if isinstance(view.description, SubscriptionDescription):
        found["isClientAffine"] = view.jms is not None
        if view.jms is not None:
            own = view.jms
            found["clientAffineProperties"] = {
                "clientId": own.client_id,
                "isDurable": own.is_durable,
                "isShared": own.is_shared,
            }
    return found


def _value(own: Property | None, name: str, text: str) -> object:
    if own is None:
        return int(text) if name in _NUMBERS else text
    if own.value is Value.BOOLEAN:
        return text == "true"
    return int(text) if own.value in (Value.COUNT, Value.BYTES) else text


def given_values(kind: type[EntityDescription], properties: object) -> dict[str, object]:
    """The values that a body sets, by the fields of a description. ArmRefusal names a value that can't be read.

    Names that the kind doesn't have are passed over, as the service does: clients send back what they have read.
    """
    given = object_in(properties, "properties")
    values: dict[str, object] = {}
    for row in PROPERTIES_OF[kind]:
        text = text_in(given.get(row.name.lower()), f"properties.{camel(row.name)}")
        if text is None:
            continue
        try:
            values[row.field] = READ[row.value](text.strip())
        except ValueError as error:
            problem = excerpt(str(error)) if text.strip() else "it is empty"
            raise bad(f"The value of 'properties.{camel(row.name)}' can't be used: {problem}.") from None
    return values


def client_in(properties: object) -> JmsSubscription | None:
    """What marks a new subscription of JMS."""
    given = object_in(properties, "properties")
    if not _truth(given.get("isclientaffine"), "properties.isClientAffine", default=False):
        return None
    parts = object_in(given.get("clientaffineproperties"), "properties.clientAffineProperties")
    client = text_in(parts.get("clientid"), "properties.clientAffineProperties.clientId") or ""
    is_shared = _truth(parts.get("isshared"), "properties.clientAffineProperties.isShared", default=True)
    return JmsSubscription(client, is_durable=True, is_shared=is_shared)


def _truth(value: object, what: str, *, default: bool) -> bool:
    text = text_in(value, what)
    if text is None:
        return default
    if text.lower() not in ("true", "false"):
        raise bad(f"{what} is {shown(value)}; it must be true or false.")
    return text.lower() == "true"


# ---------------------------------------------------------------- rules


def rule_json(rule: RuleDescription) -> dict[str, object]:
    """The properties of a rule; `1=1` and `1=0` are what a filter for all and one for none are."""
    found: dict[str, object] = {"action": {} if rule.action is None else _sql_json(rule.action)}
    if rule.action is not None and rule.action_parameters:
        found["action"] = {**_sql_json(rule.action), "parameters": dict(_without_types(rule.action_parameters))}
    match rule.filter:
        case CorrelationFilter() as own:
            texts = {camel(name): getattr(own, field) for field, name in CORRELATION_NAMES.items()}
            parts = {name: text for name, text in texts.items() if text is not None}
            plain = {name: text_in(value, name) for name, value in _without_types(own.properties).items()}
            return {**found, "filterType": "CorrelationFilter", "correlationFilter": {**parts, "properties": plain}}
        case SqlFilter() as own:
            parameters = {"parameters": _without_types(own.parameters)} if own.parameters else {}
            return {**found, "filterType": "SqlFilter", "sqlFilter": {**_sql_json(own.expression), **parameters}}
        case TrueFilter():
            return {**found, "filterType": "SqlFilter", "sqlFilter": _sql_json(_EVERYTHING)}
        case FalseFilter():
            return {**found, "filterType": "SqlFilter", "sqlFilter": _sql_json("1=0")}


def _without_types(values: Mapping[str, PropertyValue]) -> dict[str, object]:
    return {
        name: value if value is None or isinstance(value, str | int | float) else value.text
        for name, value in values.items()
    }


def _sql_json(expression: str) -> dict[str, object]:
    return {"sqlExpression": expression, "compatibilityLevel": _LEVEL}


def rule_in(name: str, properties: object) -> RuleDescription:
    """The rule that a body describes: without a filter it matches all. ArmRefusal."""
    given = object_in(properties, "properties")
    rule = RuleDescription(name, _filter_in(given))
    action = object_in(given.get("action"), "properties.action")
    text = text_in(action.get("sqlexpression"), "properties.action.sqlExpression")
    return replace(rule, action=text) if text else rule


def _filter_in(given: Mapping[str, object]) -> Filter:
    """The filter: of the type that is named, else of the one that is there."""
    correlation = given.get("correlationfilter")
    named = text_in(given.get("filtertype"), "properties.filterType")
    kind = named or ("CorrelationFilter" if correlation is not None and "sqlfilter" not in given else "SqlFilter")
    match kind.lower():
        case "correlationfilter":
            return _correlation_in(correlation)
        case "sqlfilter":
            sql = object_in(given.get("sqlfilter"), "properties.sqlFilter")
            expression = text_in(sql.get("sqlexpression"), "properties.sqlFilter.sqlExpression")
            return TrueFilter() if expression is None else SqlFilter(expression)
        case _:
            allowed = ", ".join(_FILTERS)
            raise bad(f"properties.filterType is '{excerpt(kind)}'; it must be one of {allowed}.")


def _correlation_in(value: object) -> CorrelationFilter:
    what = "properties.correlationFilter"
    given = object_in(value, what)
    texts = {
        field: text_in(given.get(name.lower()), f"{what}.{camel(name)}") for field, name in CORRELATION_NAMES.items()
    }
    properties: dict[str, PropertyValue] = dict(texts_in(given.get("properties"), f"{what}.properties"))
    return CorrelationFilter(**texts, properties=properties)
