"""Config.json: the file of Microsoft's emulator, with extensions, read into descriptions.

Knows what must hold for an entity and across entities, beyond the types in `properties`: unique names, existing
forwarding targets, quotas. Does not know where the file is, or the running namespace. A `ConfigFileError` has every
error with file, line, column, path, value and what is allowed; nothing is repaired silently.

What Microsoft's published schema allows is taken under every profile: names are case-insensitive, a
property that it does not name is a warning, and values in its ranges pass where the tier has a narrower one. Of
properties that only emubus has, a value of another tier is a warning, too, and has no effect; one that no tier has is
an error, but under `ms-emulator`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from dataclasses import MISSING, dataclass, field, fields, replace
from pathlib import Path
from typing import Final, TypeVar

from ..broker.address import strip_authority
from ..broker.directory import KnownIdentity
from ..broker.errors import BrokerError
from ..broker.hosts import host_of, is_of_another_namespace, label_of
from ..broker.keys import Right, SharedKey
from ..broker.model.catalog import Description, path_of
from ..broker.model.descriptions import (
    DEFAULT_RULES,
    AuthorizationRule,
    CorrelationFilter,
    FalseFilter,
    Filter,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    Topology,
    TrueFilter,
    entity_key,
    with_fields,
)
from ..broker.model.profiles import (
    LIMITS,
    Limits,
    Profile,
    defaults_of,
    limits_for,
    limits_of_file,
    size_mb_from_client,
)
from ..broker.model.properties import SERVICE_NAMES, Value
from ..broker.model.validation import (
    Violation,
    duration_range,
    forwards_to_itself,
    queue_violations,
    rule_bytes,
    rule_violations,
    subscription_violations,
    topic_violations,
)
from ..broker.names import NamespaceName
from ..broker.roles import RoleAssignment
from ..broker.rules import FilterError, compile_filter
from ..codec.durations import format_duration
from .cursor import ConfigFileError, Cursor, Members, Problem, items_of, json_of, refuse_duplicates
from .identities import IDENTITIES, IdentityReader
from .json_text import JsonTextError, parse_json
from .properties import (
    CLIENT,
    CORRELATION_PROPERTIES,
    DOCUMENTED,
    FILTER_TYPE_SPELLINGS,
    IDLE,
    KEYS,
    LOGGING_TYPES,
    QUEUE_PROPERTIES,
    READERS,
    ROWS,
    SQL_PROPERTIES,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    Properties,
)
from .text_file import NotTextError, text_of

PROFILE, PORT = "Profile", "Port"
PORT_MAX = 65_535
_T = TypeVar("_T")
_Entity = TypeVar("_Entity", QueueDescription, TopicDescription, SubscriptionDescription)


@dataclass(frozen=True, slots=True)
class FileConfig:
    """The content of a Config.json; `keys` are the namespace's authorisation rules, empty if it has none."""

    topology: Topology
    keys: tuple[SharedKey, ...] = ()
    warnings: tuple[Problem, ...] = ()
    limits: Limits | None = field(default=None, compare=False)
    """Those by which it was read."""
    port: int | None = None
    """A port of its own, which a namespace besides the first may have."""
    more: tuple[FileConfig, ...] = ()
    """The namespaces besides the first."""
    identities: tuple[KnownIdentity, ...] = ()
    roles: tuple[RoleAssignment, ...] = ()


_WHY: Final[Mapping[type[OSError], str]] = {
    IsADirectoryError: "Is a directory; Docker makes one where the file of a bind mount is missing",
    PermissionError: "Permission denied; the user of the server must be able to read it (chmod a+r)",
}


def read_config_file(path: Path, limits: Limits, *, takes_profile: bool = False) -> FileConfig:
    """Read and check a file against a profile's limits; ConfigFileError if it cannot be read or used."""
    try:
        data = path.read_bytes()
    except OSError as error:
        why = _WHY.get(type(error), error.strerror or str(error))
        if isinstance(error, FileNotFoundError) and path.is_symlink():
            why = f"it is a link to {path.readlink()}, which is not there"
        raise ConfigFileError(Problem(str(path), 0, 0, f"cannot be read: {why}")) from error
    return parse_config_bytes(data, limits, str(path), takes_profile=takes_profile)


def parse_config_bytes(
    data: bytes, limits: Limits, file: str = "Config.json", *, takes_profile: bool = False
) -> FileConfig:
    """As `read_config_file`, for the bytes of a file; `file` is its name in errors."""
    try:
        text, doubt = text_of(data)
    except NotTextError as error:
        raise ConfigFileError(Problem(file, 0, 0, str(error))) from error
    found = parse_config(text, limits, file, takes_profile=takes_profile)
    return found if doubt is None else replace(found, warnings=(Problem(file, 0, 0, doubt), *found.warnings))


def parse_config(text: str, limits: Limits, file: str = "Config.json", *, takes_profile: bool = False) -> FileConfig:
    """As `read_config_file`, for a text; `file` is its name in errors.

    Each namespace but the first has the profile that it names, by default that of `limits`; the first one only if the
    file `takes_profile`, because it is nowhere else.
    """
    try:
        root = parse_json(text.removeprefix("\ufeff"))
    except JsonTextError as error:
        raise ConfigFileError(NotJson(file, error.line, error.column, f"is not JSON: {error}")) from error
    cursor = Cursor(root, "$", file)
    errors = cursor.findings.errors
    try:
        found = _Reader(limits, takes_profile).root(cursor)
    except ConfigFileError:
        raise ConfigFileError(*errors, warnings=cursor.findings.warnings) from None
    if errors:
        raise ConfigFileError(*errors, warnings=cursor.findings.warnings)
    return replace(found, warnings=tuple(cursor.findings.warnings))


class NotJson(Problem):
    """A mistake in the text itself, whose column is always shown."""

    def __str__(self) -> str:
        """One line with the column."""
        return self.with_column


_NAMESPACE_NAME = re.compile(r"[A-Za-z](?:[A-Za-z0-9-]{0,48}[A-Za-z0-9])?", re.ASCII)


@dataclass(slots=True)
class _Reader:
    """Reads the file from top to bottom; checks across entities come last."""

    limits: Limits
    takes_profile: bool = False
    keys: list[SharedKey] = field(default_factory=list[SharedKey])
    forwards: list[Cursor] = field(default_factory=list[Cursor])
    is_whole: bool = False
    """Whether all entities of the namespace could be read."""
    identities: IdentityReader = field(default_factory=IdentityReader)

    def root(self, cursor: Cursor) -> FileConfig:
        root = cursor.members(("UserConfig", "$schema"), required=["UserConfig"])
        user = root["UserConfig"].members(("Namespaces", "Logging"), required=["Namespaces"])
        if "Logging" in user:
            logging = user["Logging"].members(["Type"])
            if "Type" in logging:
                logging["Type"].choice(*LOGGING_TYPES)
        namespaces = user["Namespaces"].items()
        if not namespaces:
            user["Namespaces"].fail("has no namespace; it must have one or more")
        found = {each: _Reader(self.limits, self.takes_profile or number > 0) for number, each in enumerate(namespaces)}
        read = self.each(namespaces, lambda each: found[each].namespace(each, is_first=each is namespaces[0]))
        refuse_duplicates(read, [each.topology.namespace for each in read.values()], "namespace")
        names = [each.topology.namespace for each in read.values()]
        for each, reader in found.items():
            if each in read and reader.is_whole:
                reader.check_forwards(read[each].topology, names)
            if each in read and len(namespaces) > 1:
                _refuse_no_host(each, read[each].topology.namespace)
        if len(read) < len(namespaces):
            raise ConfigFileError(*cursor.findings.errors)
        first, *more = read.values()
        return replace(first, more=tuple(more))

    def namespace(self, cursor: Cursor, *, is_first: bool) -> FileConfig:
        members = cursor.members(("Name", "Queues", "Topics", KEYS, IDENTITIES, PROFILE, PORT), required=["Name"])
        name = members["Name"].text()
        if PROFILE in members:
            profile = Profile(members[PROFILE].choice(*Profile))
            if self.takes_profile and profile is not self.limits.profile:
                self.limits = limits_for(profile)
        tier, self.limits = self.limits, limits_of_file(self.limits)
        own_port = None
        if PORT in members:
            if is_first:
                members[PORT].note("is for namespaces besides the first, which has the ports of the command line")
            own_port = members[PORT].integer()
            if not 0 <= own_port <= PORT_MAX:
                members[PORT].note(f"is {own_port}; allowed is 0 (a free one) to {PORT_MAX}")
        if not name.isprintable() or not name:
            members["Name"].note(f"is {json_of(name)}; allowed is any text without control characters")
        elif not _NAMESPACE_NAME.fullmatch(name):
            members["Name"].warn(
                f"is {json_of(name)}; Service Bus allows 1 to 50 letters, digits and -, beginning with a letter: "
                "it is taken, though no host has that name"
            )
        self.keys += [each.shared_key(None) for each in self.authorization_rules(members)]
        self.identities.read(members)
        queue_cursors = items_of(members, "Queues")
        topic_cursors = items_of(members, "Topics")
        found_queues, found_topics = self.each(queue_cursors, self.queue), self.each(topic_cursors, self.topic)
        queues, topics = tuple(found_queues.values()), tuple(found_topics.values())
        topology = Topology(
            name,
            queues,
            tuple(topic for topic, _ in topics),
            tuple(subscription for _, subscriptions in topics for subscription in subscriptions),
        )
        entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
        refuse_duplicates([*found_queues, *found_topics], [each.name for each in entities], "queue or topic")
        self.at_most(cursor, len(entities), self.limits.entities_max, "queues and topics")
        partitioned = sum(each.enable_partitioning for each in entities)
        self.at_most(cursor, partitioned, self.limits.partitioned_entities_max, "partitioned entities")
        # else a target may be one that can't be read
        self.is_whole = len(entities) == len(queue_cursors) + len(topic_cursors)
        if self.is_whole:
            described: list[Description] = [*entities, *topology.subscriptions]
            self.identities.check({entity_key(path_of(each)) for each in described})
        own = self.identities
        return FileConfig(
            topology,
            tuple(self.keys),
            limits=tier,
            port=own_port,
            identities=tuple(own.identities),
            roles=tuple(own.roles),
        )

    def queue(self, cursor: Cursor) -> QueueDescription:
        members = cursor.members(("Name", "Properties"), required=["Name"], inner=(*QUEUE_PROPERTIES, KEYS))
        name = members["Name"].text()
        properties = self.properties(members, QUEUE_PROPERTIES, KEYS)
        queue = QueueDescription(name, **defaults_of(QueueDescription, self.limits))
        queue = with_fields(queue, self.values(properties, QUEUE_PROPERTIES))
        keys = self.authorization_rules(properties)
        queue = replace(queue, max_size_mb=self.size_mb(queue), authorization_rules=keys)
        places = {**members, **properties}
        queue = self.judged(queue, queue_violations, places)
        violations = queue_violations(queue, self.limits) + forwards_to_itself(queue, name)
        _refuse(violations, cursor, places, self.limits)
        return queue

    def topic(self, cursor: Cursor) -> tuple[TopicDescription, list[SubscriptionDescription]]:
        known = ("Name", "Properties", "Subscriptions")
        members = cursor.members(known, required=["Name"], inner=(*TOPIC_PROPERTIES, KEYS))
        name = members["Name"].text()
        properties = self.properties(members, TOPIC_PROPERTIES, KEYS)
        topic = TopicDescription(name, **defaults_of(TopicDescription, self.limits))
        topic = with_fields(topic, self.values(properties, TOPIC_PROPERTIES))
        keys = self.authorization_rules(properties)
        topic = replace(topic, max_size_mb=self.size_mb(topic), authorization_rules=keys)
        places = {**members, **properties}
        topic = self.judged(topic, topic_violations, places)
        _refuse(topic_violations(topic, self.limits), cursor, places, self.limits)
        cursors = items_of(members, "Subscriptions")
        found = self.each(cursors, lambda each: self.subscription(each, name))
        subscriptions = list(found.values())
        refuse_duplicates(found, [each.name for each in subscriptions], "subscription of this topic")
        self.at_most(cursor, len(subscriptions), self.limits.subscriptions_per_topic_max, "subscriptions")
        rules = [rule for subscription in subscriptions for rule in subscription.rules]
        filters = [rule.filter for rule in rules]
        sql_count = sum(isinstance(each, SqlFilter) for each in filters)
        self.at_most(cursor, sql_count, self.limits.sql_filters_per_topic_max, "SQL filters")
        correlation_count = sum(isinstance(each, CorrelationFilter) for each in filters)
        self.at_most(cursor, correlation_count, self.limits.correlation_filters_per_topic_max, "correlation filters")
        self.at_most(cursor, sum(map(rule_bytes, rules)), self.limits.rule_bytes_per_topic_max, "bytes of rules")
        return topic, subscriptions

    def subscription(self, cursor: Cursor, topic_name: str) -> SubscriptionDescription:
        known = ("Name", "Properties", "Rules")
        members = cursor.members(known, required=["Name"], inner=(*SUBSCRIPTION_PROPERTIES, CLIENT))
        properties = self.properties(members, SUBSCRIPTION_PROPERTIES, CLIENT)
        given = self.values(properties, SUBSCRIPTION_PROPERTIES)
        defaults = defaults_of(SubscriptionDescription, self.limits)
        cursors = items_of(members, "Rules")
        found = self.each(cursors, self.rule)
        rules = tuple(found.values())
        refuse_duplicates(found, [rule.name for rule in rules], "rule of this subscription")
        # Generators write an empty list for no rules: Microsoft's emulator then adds $Default.
        subscription = SubscriptionDescription(
            topic_name, members["Name"].text(), rules=rules or DEFAULT_RULES, **defaults
        )
        subscription = with_fields(subscription, given)
        if CLIENT in properties:
            with suppress(ConfigFileError):  # it is noted
                subscription = replace(subscription, jms=properties[CLIENT].jms_subscription())
        places = {**members, **properties}
        subscription = self.judged(subscription, subscription_violations, places)
        violations = subscription_violations(subscription, self.limits)
        violations += forwards_to_itself(subscription, subscription.path)
        _refuse(violations, cursor, places, self.limits)
        return subscription

    def rule(self, cursor: Cursor) -> RuleDescription:
        known = ("FilterType", "CorrelationFilter", "SqlFilter", "SelectorFilter", "Action")
        members = cursor.members(("Name", "Properties"), required=["Name", "Properties"], inner=known)
        properties = members["Properties"].members(known, required=["FilterType"])
        places = {**members, **properties}
        action, parameters = None, dict[str, PropertyValue]()
        if "Action" in properties:
            parts = properties["Action"].members(SQL_PROPERTIES)
            places["Action"] = parts.get("SqlExpression", properties["Action"])
            action = parts["SqlExpression"].optional_text() if "SqlExpression" in parts else None
            parameters = {} if action is None else _values_in(parts, "Parameters")
        own_filter = self.filter(members["Properties"], places)
        rule = RuleDescription(members["Name"].text(), own_filter, action, action_parameters=parameters)
        _refuse(rule_violations(rule, self.limits), cursor, places, self.limits)
        try:
            compile_filter(rule.filter)
        except FilterError as error:
            places.get("SqlExpression", cursor).note(f"can't be used: {error.description}")
        try:
            if action is not None:
                from ..broker.rules.sql.action import compile_action  # only for a file with an action

                compile_action(action, parameters=parameters, statements_max=self.limits.action_statements_max)
        except FilterError as error:
            places["Action"].note(f"can't be used: {error.description}")
        return rule

    def filter(self, cursor: Cursor, places: dict[str, Cursor]) -> Filter:
        """The filter of a rule; adds the position of a SQL expression to `places`."""
        kind = places["FilterType"].choice(*FILTER_TYPE_SPELLINGS).removesuffix("Filter")
        if kind in ("True", "False"):
            return TrueFilter() if kind == "True" else FalseFilter()
        name = f"{kind}Filter"
        if name not in places:
            return _all(cursor, f"has no {name}, though FilterType is {kind}")
        if kind == "Selector":
            parts = places[name].members(("Selector",), required=["Selector"])
            places["SqlExpression"] = parts["Selector"]
            self.needs_jms(parts["Selector"])
            return SelectorFilter(parts["Selector"].text())
        if kind == "Sql":
            parts = places[name].members(SQL_PROPERTIES)
            if "SqlExpression" not in parts or parts["SqlExpression"].optional_text() is None:
                return _all(places[name], "has no SqlExpression")
            places["SqlExpression"] = parts["SqlExpression"]
            return SqlFilter(parts["SqlExpression"].text(), _values_in(parts, "Parameters"))
        parts = places[name].members((*CORRELATION_PROPERTIES, "Properties", *IDLE))
        values = {
            CORRELATION_PROPERTIES[each]: part.text() for each, part in parts.items() if each in CORRELATION_PROPERTIES
        }
        found = CorrelationFilter(**values, properties=_values_in(parts, "Properties"))
        return _all(places[name], "has no property to compare") if found.is_empty else found

    # ------------------------------------------------------------ parts of entities

    def properties(self, members: Members, known: Properties, part: str) -> Members:
        """The members of `Properties`: those of the table, and `part`, which the caller reads."""
        return members["Properties"].members((*known, part)) if "Properties" in members else {}

    def values(self, properties: Members, known: Properties) -> dict[str, object]:
        """The fields of a description that the file sets."""
        values: dict[str, object] = {}
        for name, cursor in properties.items():
            if name in known:
                row = known[name]
                try:
                    values[row.field] = READERS[row.value](cursor)
                except ConfigFileError:  # it is noted
                    if self.limits.profile is Profile.MS_EMULATOR and not row.is_microsofts:
                        cursor.warn_instead()
                if row.value is Value.TARGET and values.get(row.field) is not None:
                    self.forwards.append(cursor)
        return values

    def each(self, cursors: Iterable[Cursor], read: Callable[[Cursor], _T]) -> dict[Cursor, _T]:
        """What `read` makes of objects, but for those that can't be read: their errors are noted."""
        found: dict[Cursor, _T] = {}
        for cursor in cursors:
            with suppress(ConfigFileError):
                found[cursor] = read(cursor)
        return found

    def judged(self, entity: _Entity, judge: Callable[[_Entity, Limits], list[Violation]], places: Members) -> _Entity:
        """The entity without values of another tier, where Microsoft's schema does not name their properties.

        Its emulator passes them over, and projects that use it have them. Under `ms-emulator`, what leaves the ranges
        in the words of the schema is taken with a warning.
        """
        is_original = self.limits.profile is Profile.MS_EMULATOR
        given = {each.name: each.default for each in fields(entity) if each.default is not MISSING}
        given |= defaults_of(type(entity), self.limits)
        as_written = entity
        for violation in judge(entity, self.limits):
            row, name = ROWS.get(violation.property), violation.property
            if row is None or row.is_microsofts or name not in places:
                continue
            if not is_original and all(
                name in _refused_properties(judge(as_written, each)) for each in LIMITS.values()
            ):
                continue  # no tier has such a value: a mistake
            problem = f"is {violation.value}; allowed is {violation.allowed} (profile {self.limits.profile})"
            places[name].warn(f"{problem}: it is passed over")
            entity = with_fields(entity, {row.field: given[row.field]})
        for field_name, allowed in DOCUMENTED.items() if is_original else ():
            name, value = SERVICE_NAMES[field_name], getattr(entity, field_name, None)
            if name in places and value not in allowed:
                text = f"is {format_duration(value)}; Microsoft's schema names {duration_range(allowed)}"
                places[name].warn(f"{text}: it is taken")
        return entity

    def size_mb(self, entity: QueueDescription | TopicDescription) -> int:
        return size_mb_from_client(entity.max_size_mb, entity.enable_partitioning, self.limits)

    def authorization_rules(self, members: Members) -> tuple[AuthorizationRule, ...]:
        """The authorisation rules of the namespace or an entity; Manage includes the other rights."""
        found: list[AuthorizationRule] = []
        known = ("KeyName", "Rights", "PrimaryKey", "SecondaryKey")
        for cursor in items_of(members, KEYS):
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

    def needs_jms(self, cursor: Cursor) -> None:
        if not self.limits.jms:
            cursor.note(f"is for JMS, which a namespace of the profile {self.limits.profile} has not")

    def at_most(self, cursor: Cursor, count: int, count_max: int | None, what: str) -> None:
        if count_max is not None and count > count_max:
            cursor.note(f"has {count} {what}; allowed is at most {count_max} (profile {self.limits.profile})")

    def check_forwards(self, topology: Topology, namespaces: Collection[str]) -> None:
        """Note targets that this namespace, one of several, has not."""
        namespace = topology.namespace
        entities: list[QueueDescription | TopicDescription] = [*topology.queues, *topology.topics]
        names = {entity_key(each.name) for each in entities}
        others = {each.lower() for each in namespaces} - {namespace.lower()}
        for cursor in self.forwards:
            target = cursor.text()
            if is_of_another_namespace(target, [namespace]) or label_of(host_of(target)) in others:
                cursor.note(f"is {json_of(target)}, an address of another namespace than {json_of(namespace)}")
                continue
            key = entity_key(strip_authority(target))
            if key not in names:
                hint = cursor.hint(key, names)
                cursor.note(f"is {json_of(target)}; there is no queue or topic of that name{hint}")


def _refuse_no_host(cursor: Cursor, name: str) -> None:
    """Note a name by which no client can reach a namespace among several."""
    try:
        NamespaceName(name)
    except BrokerError as error:
        (place,) = (each for member, each in cursor.entries().items() if member.lower() == "name")
        place.note(error.description)


def _refused_properties(violations: Iterable[Violation]) -> set[str]:
    return {each.property for each in violations}


def _all(cursor: Cursor, why: str) -> TrueFilter:
    """The filter of a rule that says nothing to compare."""
    cursor.warn(f"{why}: the rule matches every message")
    return TrueFilter()


def _values_in(members: Members, name: str) -> dict[str, PropertyValue]:
    """The values of an object with names chosen by the user; none if it is absent."""
    if name not in members:
        return {}
    return {each: part.property_value() for each, part in members[name].entries().items()}


def _refuse(violations: Iterable[Violation], cursor: Cursor, places: Members, limits: Limits) -> None:
    """Note violations, each at the position of its property if the file has it."""
    for violation in violations:
        place = places.get(violation.property)
        if place is None:
            place = cursor.child(cursor.node, f".{violation.property}")
        place.note(f"is {violation.value}; allowed is {violation.allowed} (profile {limits.profile})")
