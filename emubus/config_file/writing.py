"""Writes a running namespace as a Config.json: what `reading` reads back as equal descriptions.

Knows which properties are written: those that differ from Service Bus, and those whose default depends on the profile.
A subscription without rules gets a rule that matches nothing, because no rules in the file means the default rule.
What goes with its JMS client is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import MISSING, fields
from typing import Final

from ..broker.access import DEFAULT_SHARED_KEY
from ..broker.address import strip_authority
from ..broker.admin.jms import is_passing
from ..broker.directory import KnownIdentity
from ..broker.keys import Right, SharedKey
from ..broker.model.catalog import Description
from ..broker.model.descriptions import (
    DEFAULT_RULES,
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    JmsSubscription,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TypedText,
    entity_key,
    is_same,
)
from ..broker.model.profiles import KIB
from ..broker.model.properties import Value
from ..broker.roles import RoleAssignment
from ..codec.durations import format_duration
from .identities import IDENTITIES, identities_json
from .properties import (
    CLIENT,
    CORRELATION_PROPERTIES,
    KEYS,
    QUEUE_PROPERTIES,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    Properties,
)

JsonObject = dict[str, object]

NOTHING: Final = RuleDescription("$Nothing", FalseFilter())


def config_json(
    namespace: str,
    entities: Iterable[Description],
    keys: Sequence[SharedKey] = (),
    identities: Sequence[KnownIdentity] = (),
    roles: Iterable[RoleAssignment] = (),
) -> JsonObject:
    """The Config.json of a namespace; queues and topics by name. `keys` are those of the namespace."""
    lasting = (each for each in entities if not is_passing(each))
    found = sorted(lasting, key=lambda each: entity_key(each.name))
    subscriptions: dict[str, list[SubscriptionDescription]] = {}
    for each in found:
        if isinstance(each, SubscriptionDescription):
            subscriptions.setdefault(entity_key(each.topic_name), []).append(each)
    own: JsonObject = {"Name": namespace}
    rules = [_key_json(each) for each in keys if each != DEFAULT_SHARED_KEY and each.scope is None]
    if rules:
        own[KEYS] = rules
    known = identities_json(identities, roles)
    if known:
        own[IDENTITIES] = known
    own["Queues"] = [_queue(each) for each in found if isinstance(each, QueueDescription)]
    topics = [each for each in found if isinstance(each, TopicDescription)]
    own["Topics"] = [_topic(each, subscriptions.get(entity_key(each.name), ())) for each in topics]
    return {"UserConfig": {"Namespaces": [own], "Logging": {"Type": "File"}}}


def _queue(queue: QueueDescription) -> JsonObject:
    properties = _properties(queue, QUEUE_PROPERTIES)
    return {"Name": queue.name, "Properties": {**properties, **_keys(queue.authorization_rules)}}


def _topic(topic: TopicDescription, subscriptions: Iterable[SubscriptionDescription]) -> JsonObject:
    properties = _properties(topic, TOPIC_PROPERTIES)
    return {
        "Name": topic.name,
        "Properties": {**properties, **_keys(topic.authorization_rules)},
        "Subscriptions": [_subscription(each) for each in subscriptions],
    }


def _subscription(subscription: SubscriptionDescription) -> JsonObject:
    properties = {**_properties(subscription, SUBSCRIPTION_PROPERTIES), **_client_affine_properties(subscription.jms)}
    found: JsonObject = {"Name": subscription.name, "Properties": properties}
    rules = subscription.rules
    if len(rules) == 1 and is_same(rules[0], DEFAULT_RULES[0]):
        return found
    return {**found, "Rules": [_rule(each) for each in rules or (NOTHING,)]}


def _properties(description: Description, table: Properties) -> JsonObject:
    defaults = {each.name: each.default for each in fields(description) if each.default is not MISSING}
    written: JsonObject = {}
    for name, row in table.items():
        value = getattr(description, row.field)
        if row.is_by_profile or value != defaults[row.field]:
            written[name] = _value(row.value, value)
    return written


def _value(kind: Value, value: object) -> object:
    match kind, value:
        case Value.TARGET, str():
            return strip_authority(value)
        case Value.BYTES, int():
            return value // KIB
        case ((Value.DURATION | Value.LIMIT), (int() | None)):
            return format_duration(value)
        case _:
            return value


def _client_affine_properties(jms: JmsSubscription | None) -> JsonObject:
    if jms is None:
        return {}
    return {CLIENT: {"ClientId": jms.client_id, "IsDurable": True, "IsShared": jms.is_shared}}


def _rule(rule: RuleDescription) -> JsonObject:
    found: JsonObject = _filter(rule)
    if rule.action is not None:
        found["Action"] = _sql(rule.action, rule.action_parameters)
    return {"Name": rule.name, "Properties": found}


def _filter(rule: RuleDescription) -> JsonObject:
    match rule.filter:
        case SelectorFilter(selector):
            return {"FilterType": "Selector", "SelectorFilter": {"Selector": selector}}
        case SqlFilter(expression, parameters):
            return {"FilterType": "Sql", "SqlFilter": _sql(expression, parameters)}
        case CorrelationFilter() as own:
            texts = {name: getattr(own, field) for name, field in CORRELATION_PROPERTIES.items()}
            given: JsonObject = {name: text for name, text in texts.items() if text is not None}
            if own.properties:
                given["Properties"] = _values(own.properties)
            return {"FilterType": "Correlation", "CorrelationFilter": given}
        case other:
            return {"FilterType": "False" if isinstance(other, FalseFilter) else "True"}


def _sql(expression: str, parameters: Mapping[str, PropertyValue]) -> JsonObject:
    return {"SqlExpression": expression, **({"Parameters": _values(parameters)} if parameters else {})}


def _values(values: Mapping[str, PropertyValue]) -> JsonObject:
    return {
        name: {"Type": value.type, "Value": value.text} if isinstance(value, TypedText) else value
        for name, value in values.items()
    }


def _keys(rules: Iterable[AuthorizationRule]) -> JsonObject:
    found = [_key(each.key_name, each.rights, each.primary_key, each.secondary_key) for each in rules]
    return {KEYS: found} if found else {}


def _key_json(key: SharedKey) -> JsonObject:
    return _key(key.name, [each for each in Right if each in key.rights], key.key, key.secondary_key or "")


def _key(name: str, rights: Iterable[Right], primary: str, secondary: str) -> JsonObject:
    found: JsonObject = {"KeyName": name, "Rights": [each.value for each in rights], "PrimaryKey": primary}
    return {**found, "SecondaryKey": secondary} if secondary else found
