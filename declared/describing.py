"""Descriptions as resources: what a namespace has, declared for another one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from ..broker.model.catalog import Description
from ..broker.model.descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TypedText,
)
from ..broker.model.profiles import KIB
from ..broker.model.properties import CORRELATION_NAMES, PROPERTIES_OF, Property, Value
from ..codec.durations import format_duration
from .reading import camel
from .resources import Declared, Kind, Origin

_KINDS: Final[Mapping[type[Description], Kind]] = {
    QueueDescription: Kind.QUEUE,
    TopicDescription: Kind.TOPIC,
    SubscriptionDescription: Kind.SUBSCRIPTION,
}


def declared_of(description: Description, origin: Origin) -> Iterator[Declared]:
    """The resources of an entity: itself, its authorization rules, its rules."""
    rows = PROPERTIES_OF[type(description)]
    properties = {camel(row.name): _service_value(row, getattr(description, row.field)) for row in rows}
    if not isinstance(description, SubscriptionDescription):
        path: tuple[str, ...] = (description.name,)
        yield Declared(_KINDS[type(description)], path, properties, origin)
        for key in description.authorization_rules:
            yield _declared_key(path, key, origin)
        return
    path = description.topic_name, description.name
    if description.jms is not None:
        parts = {"clientId": description.jms.client_id, "isShared": description.jms.is_shared}
        properties |= {"isClientAffine": True, "clientAffineProperties": parts}
    yield Declared(Kind.SUBSCRIPTION, path, properties, origin)
    for rule in description.rules:
        yield Declared(Kind.RULE, (*path, rule.name), _rule(rule), origin)


def _declared_key(of: tuple[str, ...], key: AuthorizationRule, origin: Origin) -> Declared:
    rights = [each.value for each in key.rights]
    keys = {"primaryKey": key.primary_key, "secondaryKey": key.secondary_key or None}
    return Declared(Kind.AUTHORIZATION_RULE, (*of, key.key_name), {"rights": rights, **keys}, origin)


def _service_value(row: Property, value: object) -> object:
    match row.value, value:
        case Value.LIMIT, int() | None:
            return format_duration(value)
        case Value.DURATION, int():
            return format_duration(value)
        case Value.BYTES, int():
            return value // KIB
        case Value.STATUS, str():
            return str(value)
        case _:
            return value


def _rule(rule: RuleDescription) -> dict[str, object]:
    action = {"sqlExpression": rule.action, "parameters": _with_types(rule.action_parameters)}
    found: dict[str, object] = {} if rule.action is None else {"action": action}
    match rule.filter:
        case CorrelationFilter() as own:
            texts = {camel(name): getattr(own, field) for field, name in CORRELATION_NAMES.items()}
            parts = {**texts, "properties": _with_types(own.properties)}
            return {**found, "filterType": "CorrelationFilter", "correlationFilter": parts}
        case SqlFilter() as own:
            sql: dict[str, object] = {"sqlExpression": own.expression, "parameters": _with_types(own.parameters)}
        case FalseFilter():
            sql = {"sqlExpression": "1=0"}
        case _:
            sql = {"sqlExpression": "1=1"}
    return {**found, "filterType": "SqlFilter", "sqlFilter": sql}


def _with_types(values: Mapping[str, PropertyValue]) -> dict[str, object]:
    return {
        name: {"type": value.type, "value": value.text} if isinstance(value, TypedText) else value
        for name, value in values.items()
    }
