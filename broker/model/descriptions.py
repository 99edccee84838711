"""Descriptions of queues, topics, subscriptions and rules, as immutable values.

Knows the properties of each kind of entity with the defaults of Service Bus, and their JSON form in the catalog. Does
not know allowed values (`validation.py`), the spelling of clients (`web/`, Config.json) and run-time figures. An update
is a new value from `dataclasses.replace`.

Durations are milliseconds, None for "never"; sizes are as named. Entity names keep their spelling and are compared by
`entity_key`. Forwarding targets are paths or URLs as the client sent them.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, field, fields, replace
from enum import StrEnum
from typing import Any, ClassVar, Final, Self, TypeVar

from ..keys import Right, SharedKey
from ..lazy_dataclass import dataclass

JsonObject = dict[str, Any]

DEFAULT_RULE_NAME: Final = "$Default"


@dataclass(frozen=True, slots=True)
class TypedText:
    """A property value without a JSON type: its XML Schema type, one of `TEXT_TYPE_NAMES`, and text."""

    type: str
    text: str


TEXT_TYPE_NAMES: Final = ("dateTime", "decimal", "duration", "guid", "long")
"""The types of `TypedText`; a `long` may be as small as an int."""

PropertyValue = str | int | float | bool | None | TypedText
"""The value of a property in a filter."""


class EntityStatus(StrEnum):
    """The status of an entity; values as in the management API."""

    ACTIVE = "Active"
    DISABLED = "Disabled"
    SEND_DISABLED = "SendDisabled"
    RECEIVE_DISABLED = "ReceiveDisabled"


def entity_key(name: str) -> str:
    """Return a name in compared form: entity names are case-insensitive."""
    return name.lower()


@dataclass(frozen=True, slots=True)
class AuthorizationRule:
    """A shared key of a queue or topic, and its rights."""

    key_name: str
    rights: tuple[Right, ...]
    primary_key: str
    secondary_key: str = ""

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `dataclasses.asdict`."""
        known = _known_fields(cls, data)
        return cls(**{**known, "rights": tuple(Right(each) for each in known["rights"])})

    def shared_key(self, scope: str | None) -> SharedKey:
        """Return the key for `access`; `scope` is the path of its entity, None the namespace."""
        return SharedKey(self.key_name, self.primary_key, frozenset(self.rights), scope, self.secondary_key or None)


class EntityKind(StrEnum):
    """The kinds of entities; values as in reports, requests and errors."""

    QUEUE = "queue"
    TOPIC = "topic"
    SUBSCRIPTION = "subscription"

    @property
    def element(self) -> str:
        """The element name of its description in Atom XML."""
        return f"{self.value.title()}Description"


@dataclass(frozen=True, slots=True)
class QueueDescription:
    """A queue. `max_size_mb` is per partition; `max_message_bytes` None means the profile's limit."""

    kind: ClassVar[EntityKind] = EntityKind.QUEUE
    name: str
    enable_partitioning: bool = False
    lock_duration_ms: int = 60_000
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    dead_letter_on_expiration: bool = False
    max_size_mb: int = 1024
    max_message_bytes: int | None = None
    requires_session: bool = False
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 600_000
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    auto_delete_on_idle_ms: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    enable_batched_operations: bool = True
    enable_express: bool = False  # stored and reported without effect
    is_temporary: bool = False  # made by a JMS client, with whose link it goes
    shown_forward_to: str | None = None  # a ForwardTo without effect: shown by management only [http 2]
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def to_json(self) -> JsonObject:
        """Return a dict of JSON types for the catalog."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; missing fields get their defaults."""
        return cls(**_known_fields(cls, data))


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic, without its subscriptions. `max_size_mb` is per partition, as for queues."""

    kind: ClassVar[EntityKind] = EntityKind.TOPIC
    name: str
    enable_partitioning: bool = False
    default_ttl_ms: int | None = None
    max_size_mb: int = 1024
    max_message_bytes: int | None = None
    requires_duplicate_detection: bool = False
    duplicate_window_ms: int = 600_000
    support_ordering: bool = True
    auto_delete_on_idle_ms: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    enable_batched_operations: bool = True
    enable_express: bool = False  # stored and reported without effect
    is_temporary: bool = False  # made by a JMS client, with whose link it goes
    authorization_rules: tuple[AuthorizationRule, ...] = ()

    def to_json(self) -> JsonObject:
        """Return a dict of JSON types for the catalog."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; missing fields get their defaults."""
        return cls(**_known_fields(cls, data))


@dataclass(frozen=True, slots=True)
class SqlFilter:
    """Matches messages for which its expression is true; `parameters` are the `@name` values, set over HTTP only."""

    kind: ClassVar[str] = "sql"
    expression: str
    parameters: Mapping[str, PropertyValue] = field(default_factory=dict[str, PropertyValue])


@dataclass(frozen=True, slots=True)
class SelectorFilter(SqlFilter):
    """Matches messages for which a message selector of JMS is true; management shows it as a SQL filter."""

    kind: ClassVar[str] = "selector"


@dataclass(frozen=True, slots=True)
class CorrelationFilter:
    """Matches messages that have every given value; None and absent properties are not compared."""

    kind: ClassVar[str] = "correlation"
    content_type: str | None = None
    correlation_id: str | None = None
    label: str | None = None
    message_id: str | None = None
    reply_to: str | None = None
    reply_to_session_id: str | None = None
    session_id: str | None = None
    to: str | None = None
    properties: Mapping[str, PropertyValue] = field(default_factory=dict[str, PropertyValue])

    @property
    def is_empty(self) -> bool:
        """Whether it compares nothing; Service Bus refuses such a filter."""
        return not any(getattr(self, each.name) for each in fields(self))


@dataclass(frozen=True, slots=True)
class TrueFilter:
    """Matches every message."""

    kind: ClassVar[str] = "true"


@dataclass(frozen=True, slots=True)
class FalseFilter:
    """Matches no message."""

    kind: ClassVar[str] = "false"


Filter = SqlFilter | CorrelationFilter | TrueFilter | FalseFilter
_FILTERS: Final[Mapping[str, type[Filter]]] = {
    cls.kind: cls for cls in (SqlFilter, SelectorFilter, CorrelationFilter, TrueFilter, FalseFilter)
}


@dataclass(frozen=True, slots=True)
class RuleDescription:
    """A rule of a subscription: a filter and, optionally, the SQL text of an action on the matching copy.

    `action_parameters` are the `@name` values of the action, set over HTTP only. `created_at` (Unix ms) is only
    reported to clients; None in data of older versions.
    """

    name: str
    filter: Filter = field(default_factory=TrueFilter)
    action: str | None = None
    created_at: int | None = field(default=None, compare=False)
    action_parameters: Mapping[str, PropertyValue] = field(default_factory=dict[str, PropertyValue])

    def to_json(self) -> JsonObject:
        """Return a dict of JSON types for the catalog; the filter carries its kind."""
        own = {name: getattr(self, name) for name in ("name", "action", "created_at")}
        parameters = _property_json(self.action_parameters)
        return {**own, "filter": _filter_json(self.filter), "action_parameters": parameters}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; raises KeyError for an unknown kind of filter."""
        filter_json = data.get("filter", {"kind": TrueFilter.kind})
        filter_class = _FILTERS[filter_json["kind"]]
        known = _known_fields(filter_class, filter_json)
        for name in ("parameters", "properties"):
            if name in known:
                known[name] = _property_values(known[name])
        parameters = _property_values(data.get("action_parameters", {}))
        return cls(data["name"], filter_class(**known), data.get("action"), data.get("created_at"), parameters)


def with_creation_instants(
    rules: Iterable[RuleDescription], known: Iterable[RuleDescription], now: int
) -> tuple[RuleDescription, ...]:
    """Return the rules with their creation: that of the equal rule in `known`, else `now` (Unix ms)."""
    before = {rule.name: rule for rule in known}

    def with_instant(rule: RuleDescription) -> RuleDescription:
        old = before.get(rule.name)
        if old is rule:
            return rule
        is_kept = old is not None and is_same(old, rule)
        return old if old is not None and is_kept else replace(rule, created_at=now)

    return tuple(with_instant(rule) for rule in rules)


DEFAULT_RULES: Final = (RuleDescription(DEFAULT_RULE_NAME),)
"""The rule of a subscription created without rules: it matches every message [wire 10.9]."""


@dataclass(frozen=True, slots=True)
class JmsSubscription:
    """What marks a subscription that JMS has made: its client id ("" without one), and its kind."""

    client_id: str
    is_durable: bool
    is_shared: bool

    @property
    def suffix(self) -> str:
        """The end of the subscription's name, behind the name that the client gave."""
        return f"${self.client_id}${'D' if self.is_durable else 'ND'}"


@dataclass(frozen=True, slots=True)
class SubscriptionDescription:
    """A subscription with its rules; it is partitioned like its topic. `jms` is None for one that JMS has not made."""

    kind: ClassVar[EntityKind] = EntityKind.SUBSCRIPTION
    topic_name: str
    name: str
    lock_duration_ms: int = 60_000
    max_delivery_count: int = 10
    default_ttl_ms: int | None = None
    dead_letter_on_expiration: bool = False
    dead_letter_on_filter_exceptions: bool = True
    requires_session: bool = False
    forward_to: str | None = None
    forward_dead_letters_to: str | None = None
    auto_delete_on_idle_ms: int | None = None
    status: EntityStatus = EntityStatus.ACTIVE
    user_metadata: str | None = None
    enable_batched_operations: bool = True
    jms: JmsSubscription | None = None
    rules: tuple[RuleDescription, ...] = DEFAULT_RULES

    @property
    def path(self) -> str:
        """The entity path, `topic/Subscriptions/name`."""
        return f"{self.topic_name}/Subscriptions/{self.name}"

    def to_json(self) -> JsonObject:
        """Return a dict of JSON types for the catalog."""
        return {**asdict(replace(self, rules=())), "rules": [rule.to_json() for rule in self.rules]}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        """The inverse of `to_json`; missing fields get their defaults."""
        known = _known_fields(cls, data)
        if "rules" in known:
            known["rules"] = tuple(RuleDescription.from_json(rule) for rule in known["rules"])
        if known.get("jms") is not None:
            known["jms"] = JmsSubscription(**known["jms"])
        return cls(**known)


EntityDescription = QueueDescription | TopicDescription | SubscriptionDescription
_Description = TypeVar("_Description", bound=EntityDescription)


def with_fields(description: _Description, values: Mapping[str, Any]) -> _Description:
    """The description with other values, by the names of its fields; the caller has read them as the fields' types.

    TypeError for a name that it lacks.
    """
    return replace(description, **values)


def is_same(one: EntityDescription | RuleDescription, other: EntityDescription | RuleDescription) -> bool:
    """Whether two descriptions are equal, ignoring the creation of their rules.

    In Python 1, 1.0 and True are equal, in filters and actions they are not: equal rules that are different objects are
    also compared by their JSON.
    """
    if one is other:
        return True
    if one != other:
        return False
    if isinstance(one, SubscriptionDescription) and isinstance(other, SubscriptionDescription):
        return all(is_same(*pair) for pair in zip(one.rules, other.rules, strict=True))
    if isinstance(one, RuleDescription) and isinstance(other, RuleDescription):
        return _as_text(one) == _as_text(other)
    return True


def _as_text(rule: RuleDescription) -> str:
    return json.dumps(replace(rule, created_at=None).to_json(), sort_keys=True)


@dataclass(frozen=True, slots=True)
class Topology:
    """The entities of the start-up configuration, in written order."""

    namespace: str = "sbemulatorns"
    queues: tuple[QueueDescription, ...] = ()
    topics: tuple[TopicDescription, ...] = ()
    subscriptions: tuple[SubscriptionDescription, ...] = ()


def _known_fields(cls: type[Any], data: Mapping[str, Any]) -> dict[str, Any]:
    """Return the entries of `data` that are fields of `cls`, with the status as an `EntityStatus`."""
    names = {each.name for each in fields(cls)}
    known = {name: value for name, value in data.items() if name in names}
    if "status" in known:
        known["status"] = EntityStatus(known["status"])
    if "authorization_rules" in known:
        known["authorization_rules"] = tuple(AuthorizationRule.from_json(rule) for rule in known["authorization_rules"])
    return known


def _filter_json(own: Filter) -> JsonObject:
    given: JsonObject = {each.name: getattr(own, each.name) for each in fields(own)}
    for name in ("parameters", "properties"):
        if name in given:
            given[name] = _property_json(given[name])
    return {"kind": own.kind, **given}


def _property_json(values: Mapping[str, PropertyValue]) -> JsonObject:
    return {name: asdict(value) if isinstance(value, TypedText) else value for name, value in values.items()}


def _property_values(values: Mapping[str, Any]) -> dict[str, PropertyValue]:
    return {name: TypedText(**value) if isinstance(value, dict) else value for name, value in values.items()}
