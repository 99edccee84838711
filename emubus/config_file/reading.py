"""Config.json: the file of Microsoft's emulator, with extensions, read into descriptions.

Knows the file's schema (one table per kind of object), how its values are spelt, and what must hold across entities:
unique names, existing forwarding targets, quotas. Does not know where the file is, or the running namespace. The first
error is a `ConfigFileError` with file, line, path, value and what is allowed; nothing is repaired or ignored silently.

Property names are case-insensitive, as in the original; unknown ones are errors, because an ignored misspelling would
be noticed much later.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

from ..broker.address import strip_authority
from ..broker.keys import Right, SharedKey
from ..broker.model.descriptions import (
    DEFAULT_RULES,
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    Filter,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    Topology,
    TrueFilter,
    entity_key,
)
from ..broker.model.profiles import Limits, Partitioning, size_mb_from_client
from ..broker.model.validation import (
    Violation,
    forwards_to_itself,
    validate_queue,
    validate_rule,
    validate_subscription,
    validate_topic,
)
from ..broker.rules import FilterError, compile_filter
from .cursor import ConfigFileError, Cursor, Members, items_of, json_of, refuse_duplicates, suggestion
from .json_text import JsonTextError, parse_json

_T = TypeVar("_T")

LOGGING_TYPES: Final = ("File", "Console", "File,Console", "Console,File")


@dataclass(frozen=True, slots=True)
class FileConfig:
    """The content of a Config.json; `keys` are the namespace's authorisation rules, empty if it has none."""

    topology: Topology
    keys: tuple[SharedKey, ...] = ()


def read_config_file(path: Path, limits: Limits) -> FileConfig:
    """Read and check a file against a profile's limits; ConfigFileError if it cannot be read or used."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except OSError as error:
        raise ConfigFileError(f"{path}: cannot be read: {error.strerror or error}") from error
    except UnicodeDecodeError as error:
        raise ConfigFileError(f"{path}: is not UTF-8 text (byte {error.start})") from error
    return parse_config(text, limits, file=str(path))


def parse_config(text: str, limits: Limits, file: str = "Config.json") -> FileConfig:
    """As `read_config_file`, for a text; `file` is its name in errors."""
    try:
        root = parse_json(text)
    except JsonTextError as error:
        raise ConfigFileError(f"{file}:{error.line}:{error.column}: is not JSON: {error}") from error
    return _Reader(limits).root(Cursor(root, "$", file))


# ---------------------------------------------------------------- the schema

_Properties = Mapping[str, tuple[str, Callable[[Cursor], object]]]
"""Property name: the field of the description, and how the value is read."""

_COMMON: Final[_Properties] = {
    "AutoDeleteOnIdle": ("auto_delete_on_idle_ms", Cursor.limit),
    "DefaultMessageTimeToLive": ("default_ttl_ms", Cursor.limit),
    "EnableBatchedOperations": ("enable_batched_operations", Cursor.boolean),
    "Status": ("status", Cursor.status),
    "UserMetadata": ("user_metadata", Cursor.optional_text),
}
_STORED: Final[_Properties] = {
    "DuplicateDetectionHistoryTimeWindow": ("duplicate_window_ms", Cursor.duration),
    "EnablePartitioning": ("enable_partitioning", Cursor.boolean),
    "MaxMessageSizeInKilobytes": ("max_message_bytes", Cursor.kilobytes),
    "MaxSizeInMegabytes": ("max_size_mb", Cursor.integer),
    "RequiresDuplicateDetection": ("requires_duplicate_detection", Cursor.boolean),
}
_RECEIVED: Final[_Properties] = {
    "DeadLetteringOnMessageExpiration": ("dead_letter_on_expiration", Cursor.boolean),
    "ForwardDeadLetteredMessagesTo": ("forward_dead_letters_to", Cursor.optional_text),
    "ForwardTo": ("forward_to", Cursor.optional_text),
    "LockDuration": ("lock_duration_ms", Cursor.duration),
    "MaxDeliveryCount": ("max_delivery_count", Cursor.integer),
    "RequiresSession": ("requires_session", Cursor.boolean),
}
QUEUE_PROPERTIES: Final[_Properties] = {**_COMMON, **_STORED, **_RECEIVED}
TOPIC_PROPERTIES: Final[_Properties] = {
    **_COMMON,
    **_STORED,
    "SupportOrdering": ("support_ordering", Cursor.boolean),
}
SUBSCRIPTION_PROPERTIES: Final[_Properties] = {
    **_COMMON,
    **_RECEIVED,
    "DeadLetteringOnFilterEvaluationExceptions": ("dead_letter_on_filter_exceptions", Cursor.boolean),
}
CORRELATION_PROPERTIES: Final[Mapping[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}
FILTER_TYPES: Final = ("Correlation", "Sql", "True", "False")
_FILTER_TYPE_SPELLINGS: Final = (*FILTER_TYPES, *(f"{kind}Filter" for kind in FILTER_TYPES))
# Written by generators of the file; they have no effect even in the cloud.
_IDLE: Final = ("RequiresPreprocessing", "CompatibilityLevel")

_NAMESPACE_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?", re.ASCII)


@dataclass(slots=True)
class _Reader:
    """Reads the file from top to bottom; checks across entities come last."""

    limits: Limits
    keys: list[SharedKey] = field(default_factory=list[SharedKey])
    forwards: list[Cursor] = field(default_factory=list[Cursor])

    def root(self, cursor: Cursor) -> FileConfig:
        root = cursor.members(("UserConfig", "$schema"), required=["UserConfig"])
        user = root["UserConfig"].members(("Namespaces", "Logging"), required=["Namespaces"])
        if "Logging" in user:
            logging = user["Logging"].members(["Type"])
            if "Type" in logging:
                logging["Type"].choice(*LOGGING_TYPES)
        namespaces = user["Namespaces"].items()
        if len(namespaces) != 1:
            user["Namespaces"].fail(
                f"has {len(namespaces)} namespaces; it must have one: "
                "start one server per namespace, each with its ports and its data folder"
            )
        topology = self.namespace(namespaces[0])
        return FileConfig(topology, tuple(self.keys))

    def namespace(self, cursor: Cursor) -> Topology:
        members = cursor.members(("Name", "Queues", "Topics", "AuthorizationRules"), required=["Name"])
        name = members["Name"].text()
        if not _NAMESPACE_NAME.fullmatch(name):
            members["Name"].fail(
                f"is {json_of(name)}; allowed is 1 to 50 letters, digits and -, beginning with a letter"
            )
        self.keys += [each.shared_key(None) for each in self.authorization_rules(members)]
        queue_cursors = items_of(members, "Queues")
        topic_cursors = items_of(members, "Topics")
        queues = tuple(self.queue(each) for each in queue_cursors)
        topics = tuple(self.topic(each) for each in topic_cursors)
        topology = Topology(
            name,
            queues,
            tuple(topic for topic, _ in topics),
            tuple(subscription for _, subscriptions in topics for subscription in subscriptions),
        )
        entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
        refuse_duplicates([*queue_cursors, *topic_cursors], [each.name for each in entities], "queue or topic")
        self.at_most(cursor, len(entities), self.limits.entities_max, "queues and topics")
        partitioned = sum(each.enable_partitioning for each in entities)
        self.at_most(cursor, partitioned, self.limits.partitioned_entities_max, "partitioned entities")
        self.check_forwards({entity_key(each.name) for each in entities})
        return topology

    def queue(self, cursor: Cursor) -> QueueDescription:
        members = cursor.members(("Name", "Properties"), required=["Name"])
        name = members["Name"].text()
        properties = self.properties(members, QUEUE_PROPERTIES, with_keys=True)
        values = {**self.store_defaults(), **self.receive_defaults(), **self.values(properties, QUEUE_PROPERTIES)}
        keys = self.authorization_rules(properties)
        queue = QueueDescription(name, **self.sized(values), authorization_rules=keys)
        violations = validate_queue(queue, self.limits) + forwards_to_itself(queue, name)
        _refuse(violations, cursor, {**members, **properties}, self.limits)
        return queue

    def topic(self, cursor: Cursor) -> tuple[TopicDescription, list[SubscriptionDescription]]:
        members = cursor.members(("Name", "Properties", "Subscriptions"), required=["Name"])
        name = members["Name"].text()
        properties = self.properties(members, TOPIC_PROPERTIES, with_keys=True)
        values = {**self.store_defaults(), **self.values(properties, TOPIC_PROPERTIES)}
        keys = self.authorization_rules(properties)
        topic = TopicDescription(name, **self.sized(values), authorization_rules=keys)
        _refuse(validate_topic(topic, self.limits), cursor, {**members, **properties}, self.limits)
        cursors = items_of(members, "Subscriptions")
        subscriptions = [self.subscription(each, name) for each in cursors]
        refuse_duplicates(cursors, [each.name for each in subscriptions], "subscription of this topic")
        self.at_most(cursor, len(subscriptions), self.limits.subscriptions_per_topic_max, "subscriptions")
        filters = [rule.filter for subscription in subscriptions for rule in subscription.rules]
        sql_count = sum(isinstance(each, SqlFilter) for each in filters)
        self.at_most(cursor, sql_count, self.limits.sql_filters_per_topic_max, "SQL filters")
        correlation_count = sum(isinstance(each, CorrelationFilter) for each in filters)
        self.at_most(cursor, correlation_count, self.limits.correlation_filters_per_topic_max, "correlation filters")
        return topic, subscriptions

    def subscription(self, cursor: Cursor, topic_name: str) -> SubscriptionDescription:
        members = cursor.members(("Name", "Properties", "Rules"), required=["Name"])
        properties = self.properties(members, SUBSCRIPTION_PROPERTIES)
        values = {**self.receive_defaults(), **self.values(properties, SUBSCRIPTION_PROPERTIES)}
        cursors = items_of(members, "Rules")
        rules = tuple(self.rule(each) for each in cursors)
        refuse_duplicates(cursors, [rule.name for rule in rules], "rule of this subscription")
        # Generators write an empty list for no rules: Microsoft's emulator then adds $Default.
        subscription = SubscriptionDescription(
            topic_name, members["Name"].text(), rules=rules or DEFAULT_RULES, **values
        )
        violations = validate_subscription(subscription, self.limits)
        violations += forwards_to_itself(subscription, subscription.path)
        _refuse(violations, cursor, {**members, **properties}, self.limits)
        return subscription

    def rule(self, cursor: Cursor) -> RuleDescription:
        members = cursor.members(("Name", "Properties"), required=["Name", "Properties"])
        known = ("FilterType", "CorrelationFilter", "SqlFilter", "Action")
        properties = members["Properties"].members(known, required=["FilterType"])
        places = {**members, **properties}
        action = None
        if "Action" in properties:
            parts = properties["Action"].members(("SqlExpression", *_IDLE), required=["SqlExpression"])
            places["Action"] = parts["SqlExpression"]
            action = parts["SqlExpression"].optional_text()
        rule = RuleDescription(members["Name"].text(), self.filter(members["Properties"], places), action)
        _refuse(validate_rule(rule, self.limits), cursor, places, self.limits)
        try:
            compile_filter(rule.filter)
        except FilterError as error:
            places.get("SqlExpression", cursor).fail(f"can't be used: {error.description}")
        try:
            if action is not None:
                from ..broker.rules.sql.action import compile_action  # only for a file with an action

                compile_action(action, statements_max=self.limits.action_statements_max)
        except FilterError as error:
            places["Action"].fail(f"can't be used: {error.description}")
        return rule

    def filter(self, cursor: Cursor, places: dict[str, Cursor]) -> Filter:
        """The filter of a rule; adds the position of a SQL expression to `places`."""
        kind = places["FilterType"].choice(*_FILTER_TYPE_SPELLINGS).removesuffix("Filter")
        if kind in ("True", "False"):
            return TrueFilter() if kind == "True" else FalseFilter()
        name = f"{kind}Filter"
        if name not in places:
            cursor.fail(f"has no {name}; it is required, as FilterType is {kind}")
        if kind == "Sql":
            parts = places[name].members(("SqlExpression", *_IDLE), required=["SqlExpression"])
            places["SqlExpression"] = parts["SqlExpression"]
            return SqlFilter(parts["SqlExpression"].text())
        parts = places[name].members((*CORRELATION_PROPERTIES, "Properties", *_IDLE))
        values: dict[str, Any] = {
            CORRELATION_PROPERTIES[each]: part.text() for each, part in parts.items() if each in CORRELATION_PROPERTIES
        }
        if "Properties" in parts:
            entries = parts["Properties"].entries()
            values["properties"] = {each: part.property_value() for each, part in entries.items()}
        return CorrelationFilter(**values)

    # ------------------------------------------------------------ parts of entities

    def properties(self, members: Members, known: _Properties, *, with_keys: bool = False) -> Members:
        """The members of `Properties`; `with_keys` it may hold authorisation rules."""
        if "Properties" not in members:
            return {}
        names = (*known, "AuthorizationRules") if with_keys else tuple(known)
        return members["Properties"].members(names)

    def values(self, properties: Members, known: _Properties) -> dict[str, Any]:
        """The fields of a description that the file sets."""
        values: dict[str, Any] = {}
        for name, cursor in properties.items():
            if name in known:
                target, read = known[name]
                values[target] = read(cursor)
                if name in ("ForwardTo", "ForwardDeadLetteredMessagesTo") and values[target] is not None:
                    self.forwards.append(cursor)
        return values

    def store_defaults(self) -> dict[str, Any]:
        defaults = self.limits.defaults
        return {
            "default_ttl_ms": defaults.ttl_ms,
            "duplicate_window_ms": defaults.duplicate_window_ms,
            "enable_partitioning": self.limits.partitioning is Partitioning.ALWAYS,
            "max_size_mb": defaults.max_size_mb,
        }

    def receive_defaults(self) -> dict[str, Any]:
        defaults = self.limits.defaults
        return {
            "default_ttl_ms": defaults.ttl_ms,
            "lock_duration_ms": defaults.lock_duration_ms,
            "max_delivery_count": defaults.max_delivery_count,
        }

    def sized(self, values: dict[str, Any]) -> dict[str, Any]:
        size_mb = size_mb_from_client(values["max_size_mb"], values["enable_partitioning"], self.limits)
        return {**values, "max_size_mb": size_mb}

    def authorization_rules(self, members: Members) -> tuple[AuthorizationRule, ...]:
        """The authorisation rules of the namespace or an entity; Manage includes the other rights."""
        found: list[AuthorizationRule] = []
        known = ("KeyName", "Rights", "PrimaryKey", "SecondaryKey")
        for cursor in items_of(members, "AuthorizationRules"):
            parts = cursor.members(known, required=["KeyName", "Rights", "PrimaryKey"])
            rights = frozenset(Right(each.choice(*Right)) for each in parts["Rights"].items())
            if not rights:
                parts["Rights"].fail(f"is empty; allowed is any of {', '.join(Right)}")
            for each in ("KeyName", "PrimaryKey"):
                if not parts[each].text():
                    parts[each].fail("is empty")
            secondary = parts["SecondaryKey"].optional_text() if "SecondaryKey" in parts else None
            name, key = parts["KeyName"].text(), parts["PrimaryKey"].text()
            if any(known_rule.key_name == name for known_rule in found):
                parts["KeyName"].fail(f"is {json_of(name)}; another rule has that name")
            granted = Right if Right.MANAGE in rights else sorted(rights)
            found.append(AuthorizationRule(name, tuple(granted), key, secondary or ""))
        return tuple(found)

    # ------------------------------------------------------------ checks across entities

    def at_most(self, cursor: Cursor, count: int, count_max: int | None, what: str) -> None:
        if count_max is not None and count > count_max:
            cursor.fail(f"has {count} {what}; allowed is at most {count_max} (profile {self.limits.profile})")

    def check_forwards(self, names: Collection[str]) -> None:
        for cursor in self.forwards:
            target = cursor.text()
            key = entity_key(strip_authority(target))
            if key not in names:
                cursor.fail(f"is {json_of(target)}; there is no queue or topic of that name{suggestion(key, names)}")


def _refuse(violations: Iterable[Violation], cursor: Cursor, places: Members, limits: Limits) -> None:
    """Fail with the first violation, at the position of its property if the file has it."""
    for violation in violations:
        place = places.get(violation.property)
        if place is None:
            place = Cursor(cursor.node, f"{cursor.path}.{violation.property}", cursor.file)
        place.fail(f"is {violation.value}; allowed is {violation.allowed} (profile {limits.profile})")
