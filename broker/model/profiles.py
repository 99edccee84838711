"""The limits of every profile in one table, and the check of a description against them.

Knows which values Service Bus allows: on its Standard tier, its Premium tier, in Microsoft's emulator, and in
the `relaxed` profile, which lifts the quotas and keeps what the program itself needs. Does not know where a
value came from: it answers with `Violation`s that name the property as the management API and Config.json do,
the value and what is allowed; its callers make of them a 400, an AMQP error or a complaint about a file.

Sources: [SB: service-bus-quotas], [P2]-[P5], [wire 10.13]; for Microsoft's emulator its published schema.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from ..access import Right
from ..address import strip_authority
from ..durations import format_duration
from .descriptions import (
    AuthorizationRule,
    CorrelationFilter,
    EntityDescription,
    EntityStatus,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TypedText,
    entity_key,
)

SECOND_MS: Final = 1_000
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 3_600_000
DAY_MS: Final = 86_400_000
KIB: Final = 1024
MIB: Final = 1024 * 1024


class Profile(StrEnum):
    """Whose limits hold."""

    STANDARD = "standard"
    PREMIUM = "premium"
    MS_EMULATOR = "ms-emulator"
    RELAXED = "relaxed"


class Partitioning(StrEnum):
    """Who decides whether an entity is partitioned: each for itself, or its namespace for all of them."""

    PER_ENTITY = "per-entity"
    ALWAYS = "always"
    NEVER = "never"


@dataclass(frozen=True, slots=True)
class Range:
    """An inclusive range of whole numbers; `stop` None is no upper bound."""

    start: int
    stop: int | None = None

    def __contains__(self, value: int | None) -> bool:
        """Whether a value is allowed; None is "without limit"."""
        if value is None:
            return self.stop is None
        return self.start <= value and (self.stop is None or value <= self.stop)


@dataclass(frozen=True, slots=True)
class Defaults:
    """What an entity gets for a property that its creator left out."""

    lock_duration_ms: int = MINUTE_MS
    max_delivery_count: int = 10
    ttl_ms: int | None = None
    duplicate_window_ms: int = 10 * MINUTE_MS
    max_size_mb: int = 1024


@dataclass(frozen=True, slots=True)
class Limits:
    """The limits of one profile; as written here, those of the Standard tier."""

    profile: Profile = Profile.STANDARD
    defaults: Defaults = Defaults()
    jms: bool = False
    """Whether clients of JMS 2.0 (the library azure-servicebus-jms) are let in: on Premium that is not partitioned."""

    # Partitions. `max_size_mb` counts per partition where `size_is_per_partition`.
    partitioning: Partitioning = Partitioning.PER_ENTITY
    partition_count: int = 16
    max_size_mb: Range = Range(1024, 5120)
    max_size_mb_choices: tuple[int, ...] | None = (1024, 2048, 3072, 4096, 5120)
    size_is_per_partition: bool = True

    # Messages. Where `message_bytes_settable` is None an entity cannot choose its own maximum.
    message_bytes_max: int = 256 * KIB
    message_bytes_settable: Range | None = None
    partitioned_message_bytes_max: int | None = None
    batch_bytes_max: int = 256 * KIB
    properties_bytes_max: int = 64 * KIB
    property_bytes_max: int = 32 * KIB
    key_length_max: int = 128  # message id, session id, partition key: characters

    # Properties of entities.
    lock_duration_ms: Range = Range(5 * SECOND_MS, 5 * MINUTE_MS)
    # Frameworks ask for int.MaxValue to switch dead-lettering off, and the service lets them.
    max_delivery_count: Range = Range(1, 2**31 - 1)
    ttl_ms: Range = Range(SECOND_MS)
    duplicate_window_ms: Range = Range(20 * SECOND_MS, 7 * DAY_MS)
    auto_delete_on_idle_ms: Range = Range(5 * MINUTE_MS)
    user_metadata_length_max: int = 1024

    # Numbers of things.
    entities_max: int = 10_000  # queues and topics
    partitioned_entities_max: int | None = 100
    subscriptions_per_topic_max: int = 2_000
    sql_filters_per_topic_max: int = 2_000
    correlation_filters_per_topic_max: int = 100_000
    connections_max: int = 5_000
    receives_per_entity_max: int = 5_000
    messages_per_transaction_max: int = 100
    messages_per_delete_max: int = 500
    messages_per_range_delete_max: int = 4_000
    forward_hops_max: int = 4

    authorization_rules_max: int = 12  # of one entity

    # Texts.
    key_name_length_max: int = 256
    shared_key_length_max: int = 256
    entity_path_length_max: int = 260
    sub_entity_name_length_max: int = 50
    rule_text_length_max: int = 1024
    action_statements_max: int = 32
    # What one rule may be besides; the service has no figures for these, and no rule in use comes near them.
    rule_tokens_max: int = 1024  # words, signs and literals of one SQL text
    rule_properties_max: int = 1_000  # application properties of a correlation filter; parameters of a SQL text
    rule_bytes_max: int = 64 * KIB  # all texts, names and values of a rule in UTF-8


_STANDARD: Final = Limits()

LIMITS: Final[Mapping[Profile, Limits]] = {
    Profile.STANDARD: _STANDARD,
    # Not partitioned: `limits_for` has the partitioned namespace. Counts are those of one messaging unit.
    Profile.PREMIUM: replace(
        _STANDARD,
        profile=Profile.PREMIUM,
        partitioning=Partitioning.NEVER,
        partition_count=1,
        max_size_mb=Range(1024, 81920),
        max_size_mb_choices=(1024, 2048, 3072, 4096, 5120, 10240, 20480, 40960, 81920),
        size_is_per_partition=False,
        message_bytes_max=MIB,
        message_bytes_settable=Range(MIB, 100 * MIB),
        batch_bytes_max=MIB,
        jms=True,
        entities_max=1_000,
        partitioned_entities_max=None,
        messages_per_delete_max=4_000,
    ),
    # The original has no partitions. EnablePartitioning is allowed nevertheless: it is off unless asked for.
    Profile.MS_EMULATOR: replace(
        _STANDARD,
        profile=Profile.MS_EMULATOR,
        defaults=Defaults(max_delivery_count=3, ttl_ms=HOUR_MS, duplicate_window_ms=20 * SECOND_MS, max_size_mb=100),
        max_size_mb=Range(100, 100),
        max_size_mb_choices=(100,),
        size_is_per_partition=False,
        max_delivery_count=Range(1, 10),
        ttl_ms=Range(5 * MINUTE_MS, HOUR_MS),
        duplicate_window_ms=Range(5 * SECOND_MS, 5 * MINUTE_MS),
        entities_max=50,
        partitioned_entities_max=50,
        subscriptions_per_topic_max=50,
        sql_filters_per_topic_max=70,
        correlation_filters_per_topic_max=1_000,
        connections_max=10,
        receives_per_entity_max=200,
    ),
    Profile.RELAXED: replace(
        _STANDARD,
        profile=Profile.RELAXED,
        jms=True,
        max_size_mb=Range(1, 1024 * 1024),
        max_size_mb_choices=None,
        message_bytes_max=100 * MIB,
        message_bytes_settable=Range(KIB, 100 * MIB),
        batch_bytes_max=100 * MIB,
        properties_bytes_max=100 * MIB,
        property_bytes_max=100 * MIB,
        key_length_max=64 * KIB,
        lock_duration_ms=Range(SECOND_MS, DAY_MS),
        ttl_ms=Range(1),
        duplicate_window_ms=Range(SECOND_MS, 365 * DAY_MS),
        auto_delete_on_idle_ms=Range(SECOND_MS),
        user_metadata_length_max=64 * KIB,
        entities_max=100_000,
        partitioned_entities_max=None,
        subscriptions_per_topic_max=100_000,
        sql_filters_per_topic_max=100_000,
        connections_max=100_000,
        receives_per_entity_max=100_000,
        messages_per_transaction_max=10_000,
        messages_per_delete_max=4_000,
        sub_entity_name_length_max=260,
        rule_text_length_max=64 * KIB,
        action_statements_max=1_000,
        rule_tokens_max=4_000,
        rule_properties_max=4_000,
        rule_bytes_max=192 * KIB,
    ),
}

PREMIUM_PARTITION_COUNTS: Final = (1, 2, 4)


def limits_for(profile: Profile, premium_partitions: int | None = None) -> Limits:
    """The limits of a namespace; `premium_partitions` (1, 2 or 4) makes a Premium namespace partitioned [P3].

    ValueError if a number of partitions is given for another profile, or one that Premium does not offer.
    """
    limits = LIMITS[profile]
    if premium_partitions is None:
        return limits
    if profile is not Profile.PREMIUM or premium_partitions not in PREMIUM_PARTITION_COUNTS:
        raise ValueError(f"a namespace of profile {profile} cannot have {premium_partitions} partitions")
    return replace(
        limits,
        partitioning=Partitioning.ALWAYS,
        partition_count=premium_partitions,
        partitioned_message_bytes_max=MIB,
        jms=False,
        # A partitioned namespace has at least one messaging unit per partition.
        entities_max=limits.entities_max * premium_partitions,
    )


def limits_over(limits: Limits, store_count: int) -> Limits:
    """The limits of a namespace over the messaging stores that its data folder has.

    A namespace that is not partitioned may have been another one before: partitioned entities that were migrated to
    it keep their partitions and the size of each; new ones are not partitioned.
    """
    if limits.partitioning is not Partitioning.NEVER or store_count == limits.partition_count:
        return limits
    return replace(limits, partition_count=store_count, size_is_per_partition=True)


@dataclass(frozen=True, slots=True)
class Violation:
    """A forbidden value, as text: the property as Service Bus names it, its value, and what is allowed."""

    property: str
    value: str
    allowed: str

    def __str__(self) -> str:
        return f"{self.property} is {self.value}; allowed is {self.allowed}"


# ---------------------------------------------------------------- sizes and partitions of one entity


def partitions_of(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """The number of partitions of an entity: 1 if it is not partitioned."""
    return limits.partition_count if description.enable_partitioning else 1


def aggregate_size_mb(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """The size that management shows: per partition times partitions on Standard (5 GB x 16 = 80 GB) [P4]."""
    partitions = partitions_of(description, limits) if limits.size_is_per_partition else 1
    return description.max_size_mb * partitions


def size_mb_from_client(size_mb: int, enable_partitioning: bool, limits: Limits, known_mb: int | None = None) -> int:
    """The size per partition that a client means: clients echo the aggregate that they were shown.

    `known_mb` is the size per partition of the entity that is being updated: its aggregate changes nothing, also where
    the profile allows so large a partition.
    """
    if not (enable_partitioning and limits.size_is_per_partition):
        return size_mb
    per_partition_mb, rest = divmod(size_mb, limits.partition_count)
    if per_partition_mb == known_mb and not rest:
        return per_partition_mb
    is_aggregate = size_mb not in limits.max_size_mb and not rest and per_partition_mb in limits.max_size_mb
    return per_partition_mb if is_aggregate else size_mb


def message_bytes_max(description: QueueDescription | TopicDescription, limits: Limits) -> int:
    """The largest message that an entity takes, in bytes."""
    bytes_max = description.max_message_bytes or limits.message_bytes_max
    if description.enable_partitioning and limits.partitioned_message_bytes_max is not None:
        return min(bytes_max, limits.partitioned_message_bytes_max)
    return bytes_max


# ---------------------------------------------------------------- checks


def validate_queue(description: QueueDescription, limits: Limits, *, is_new: bool = True) -> list[Violation]:
    """Everything about a queue that the limits forbid, in the order of its properties.

    Without `is_new` it exists already, and whether it is partitioned is not looked at.
    """
    return list(_queue_violations(description, limits, is_new))


def validate_topic(description: TopicDescription, limits: Limits, *, is_new: bool = True) -> list[Violation]:
    """Everything about a topic that the limits forbid, without its subscriptions; `is_new` as for a queue."""
    return list(_topic_violations(description, limits, is_new))


def validate_subscription(description: SubscriptionDescription, limits: Limits) -> list[Violation]:
    """Everything about a subscription that the limits forbid, without its rules."""
    return list(_subscription_violations(description, limits))


def validate_rule(description: RuleDescription, limits: Limits) -> list[Violation]:
    """Everything about a rule that the limits forbid; whether its SQL is well formed is not looked at."""
    return list(_rule_violations(description, limits))


def forwards_to_itself(description: QueueDescription | SubscriptionDescription, path: str) -> list[Violation]:
    """The properties that name the entity itself: no message ever rests there. The service takes such an update."""
    return [
        Violation(label, repr(target), "another entity than this one")
        for label, target in (
            ("ForwardTo", description.forward_to),
            ("ForwardDeadLetteredMessagesTo", description.forward_dead_letters_to),
        )
        if target is not None and entity_key(strip_authority(target)) == entity_key(path)
    ]


def _queue_violations(queue: QueueDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    yield from _entity_name(queue.name, limits)
    yield from _store_violations(queue, limits, is_new)
    yield from _receive_violations(queue, limits)


def _topic_violations(topic: TopicDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    yield from _entity_name(topic.name, limits)
    yield from _store_violations(topic, limits, is_new)
    yield from _common_violations(topic, limits)
    if topic.status is EntityStatus.RECEIVE_DISABLED:
        yield Violation("Status", topic.status, "Active, Disabled or SendDisabled for a topic")


def _subscription_violations(subscription: SubscriptionDescription, limits: Limits) -> Iterator[Violation]:
    yield from _sub_entity_name(subscription.name, limits)
    yield from _receive_violations(subscription, limits)
    if subscription.status is EntityStatus.SEND_DISABLED:
        yield Violation("Status", subscription.status, "Active, Disabled or ReceiveDisabled for a subscription")


def _rule_violations(rule: RuleDescription, limits: Limits) -> Iterator[Violation]:
    yield from _sub_entity_name(rule.name, limits)
    if isinstance(rule.filter, SqlFilter):
        yield from _text("SqlExpression", rule.filter.expression, 1, limits.rule_text_length_max)
    elif isinstance(rule.filter, CorrelationFilter) and rule.filter.is_empty:
        yield Violation("CorrelationFilter", "empty", "at least one property to compare")
    if rule.action is not None:
        yield from _text("Action", rule.action, 1, limits.rule_text_length_max)
    yield from _rule_size(rule, limits)


def _rule_size(rule: RuleDescription, limits: Limits) -> Iterator[Violation]:
    """What a rule weighs as a whole: compiling it and storing it cost in proportion to that."""
    own = rule.filter
    parts: list[tuple[str, Mapping[str, PropertyValue]]] = [("ActionParameters", rule.action_parameters)]
    texts: list[str | None] = [rule.name, rule.action]
    if isinstance(own, CorrelationFilter):
        parts.append(("Properties", own.properties))
        texts += (own.content_type, own.correlation_id, own.label, own.message_id)
        texts += (own.reply_to, own.reply_to_session_id, own.session_id, own.to)
    elif isinstance(own, SqlFilter):
        parts.append(("Parameters", own.parameters))
        texts.append(own.expression)
    for label, given in parts:
        if len(given) > limits.rule_properties_max:
            yield Violation(label, f"{len(given)} entries long", f"at most {limits.rule_properties_max}")
        texts += (name for name in given)
        texts += (_value_text(value) for value in given.values())
    size_bytes = sum(len(text.encode(errors="surrogatepass")) for text in texts if text is not None)
    if size_bytes > limits.rule_bytes_max:
        yield Violation("The rule", f"{size_bytes} bytes in all", f"at most {limits.rule_bytes_max}; use several rules")
    for label, text in (("SqlExpression", getattr(own, "expression", None)), ("Action", rule.action)):
        token_count = 0 if text is None else sum(1 for _ in _SQL_TOKEN.finditer(text))
        if token_count > limits.rule_tokens_max:
            yield Violation(label, f"{token_count} words, signs and literals long", f"at most {limits.rule_tokens_max}")


def _value_text(value: PropertyValue) -> str:
    return value.text if isinstance(value, TypedText) else str(value)


_SQL_TOKEN: Final = re.compile(
    r"""'[^']*(?:''[^']*)*(?:'|$)|"[^"]*(?:""[^"]*)*(?:"|$)|\[[^\]]*(?:\]\][^\]]*)*(?:\]|$)|\w+|[^\w\s]"""
)
"""A literal that does not end takes the rest of the text: counting is linear for any text."""


def _store_violations(entity: QueueDescription | TopicDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    """What queues and topics have and subscriptions have not: partitions, size, duplicates."""
    partitioned = entity.enable_partitioning
    if is_new and partitioned and limits.partitioning is Partitioning.NEVER:
        yield Violation("EnablePartitioning", "true", "false: the namespace is not partitioned")
    if is_new and not partitioned and limits.partitioning is Partitioning.ALWAYS:
        yield Violation("EnablePartitioning", "false", "true: the namespace is partitioned")
    choices = limits.max_size_mb_choices
    if choices is not None and entity.max_size_mb not in choices:
        yield Violation("MaxSizeInMegabytes", str(entity.max_size_mb), _one_of(choices))
    elif entity.max_size_mb not in limits.max_size_mb:
        yield Violation("MaxSizeInMegabytes", str(entity.max_size_mb), _numbers(limits.max_size_mb))
    yield from _message_size(entity, limits)
    if entity.duplicate_window_ms not in limits.duplicate_window_ms:
        yield _duration("DuplicateDetectionHistoryTimeWindow", entity.duplicate_window_ms, limits.duplicate_window_ms)
    yield from _authorization_violations(entity.authorization_rules, limits)


def _authorization_violations(rules: Sequence[AuthorizationRule], limits: Limits) -> Iterator[Violation]:
    if len(rules) > limits.authorization_rules_max:
        yield Violation("AuthorizationRules", f"{len(rules)} rules long", f"at most {limits.authorization_rules_max}")
    for name, count in Counter(rule.key_name for rule in rules).items():
        yield from _text("KeyName", name, 1, limits.key_name_length_max)
        if count > 1:
            yield Violation("KeyName", repr(name), "names that differ")
    for rule in rules:
        yield from _text("PrimaryKey", rule.primary_key, 1, limits.shared_key_length_max)
        yield from _text("SecondaryKey", rule.secondary_key, 0, limits.shared_key_length_max)
        if not rule.rights:
            yield Violation("Rights", "empty", f"any of {', '.join(Right)}")
        elif Right.MANAGE in rule.rights and len(set(rule.rights)) < len(Right):
            yield Violation("Rights", ", ".join(rule.rights), "Send and Listen together with Manage")


def _message_size(entity: QueueDescription | TopicDescription, limits: Limits) -> Iterator[Violation]:
    size_bytes = entity.max_message_bytes
    # What management shows may be echoed, whether or not the profile lets it be chosen.
    if size_bytes is None or size_bytes == limits.message_bytes_max:
        return
    allowed = limits.message_bytes_settable
    if allowed is not None and entity.enable_partitioning and limits.partitioned_message_bytes_max is not None:
        allowed = Range(allowed.start, limits.partitioned_message_bytes_max)
    if allowed is None:
        fixed = limits.message_bytes_max // KIB
        yield Violation("MaxMessageSizeInKilobytes", f"{size_bytes / KIB:g}", f"{fixed} (fixed)")
    elif size_bytes not in allowed:
        kilobytes = Range(allowed.start // KIB, allowed.stop // KIB if allowed.stop else None)
        yield Violation("MaxMessageSizeInKilobytes", f"{size_bytes / KIB:g}", _numbers(kilobytes))


def _receive_violations(entity: QueueDescription | SubscriptionDescription, limits: Limits) -> Iterator[Violation]:
    """What queues and subscriptions have and topics have not: locks, delivery counts, forwarding."""
    if entity.lock_duration_ms not in limits.lock_duration_ms:
        yield _duration("LockDuration", entity.lock_duration_ms, limits.lock_duration_ms)
    if entity.max_delivery_count not in limits.max_delivery_count:
        yield Violation("MaxDeliveryCount", str(entity.max_delivery_count), _numbers(limits.max_delivery_count))
    yield from _common_violations(entity, limits)
    if entity.forward_to is not None and entity.requires_session:
        yield Violation("ForwardTo", repr(entity.forward_to), "none, as RequiresSession is true")


def _common_violations(entity: EntityDescription, limits: Limits) -> Iterator[Violation]:
    if entity.default_ttl_ms not in limits.ttl_ms:
        yield _duration("DefaultMessageTimeToLive", entity.default_ttl_ms, limits.ttl_ms)
    idle_ms = entity.auto_delete_on_idle_ms
    if idle_ms is not None and idle_ms not in limits.auto_delete_on_idle_ms:
        yield _duration("AutoDeleteOnIdle", idle_ms, limits.auto_delete_on_idle_ms)
    if entity.user_metadata is not None:
        yield from _text("UserMetadata", entity.user_metadata, 0, limits.user_metadata_length_max)


# ---------------------------------------------------------------- names

# The cloud takes more than its documentation and Microsoft's emulator say: tildes, underscores at the ends.
# `relaxed` refuses only what an address cannot carry.
_ENTITY_NAME = re.compile(r"[A-Za-z0-9_](?:[\w.\-/~]*[A-Za-z0-9_])?", re.ASCII)
_ENTITY_NAME_MS_EMULATOR = re.compile(r"[A-Za-z0-9](?:[\w.\-/]*[A-Za-z0-9])?", re.ASCII)
_ENTITY_NAME_RELAXED = re.compile(r"[^@?#*\\\x00-\x20\x7f/](?:[^@?#*\\\x00-\x1f\x7f]*[^@?#*\\\x00-\x20\x7f/])?")
_SUB_ENTITY_NAME = re.compile(r"[^@?#*\\/\x00-\x1f\x7f]+")
_RESERVED_SEGMENT = re.compile(r"(?:^|/)(\$[^/]*|subscriptions|)(?=/|$)", re.IGNORECASE)

_ENTITY_NAMES: Final[Mapping[Profile, tuple[re.Pattern[str], str]]] = {
    Profile.STANDARD: (_ENTITY_NAME, "letters, digits and . - _ / ~, a letter, digit or _ at both ends"),
    Profile.PREMIUM: (_ENTITY_NAME, "letters, digits and . - _ / ~, a letter, digit or _ at both ends"),
    Profile.MS_EMULATOR: (
        _ENTITY_NAME_MS_EMULATOR,
        "letters, digits and . - _ /, a letter or digit at both ends",
    ),
    Profile.RELAXED: (_ENTITY_NAME_RELAXED, "any characters but @ ? # * \\ and controls"),
}


def _entity_name(name: str, limits: Limits) -> Iterator[Violation]:
    pattern, allowed = _ENTITY_NAMES[limits.profile]
    if len(name) > limits.entity_path_length_max or not pattern.fullmatch(name):
        yield Violation("Name", repr(name), f"1 to {limits.entity_path_length_max} characters: {allowed}")
    elif _RESERVED_SEGMENT.search(name):
        allowed = "a path without empty segments, 'Subscriptions' and segments that begin with '$'"
        yield Violation("Name", repr(name), allowed)


def _sub_entity_name(name: str, limits: Limits) -> Iterator[Violation]:
    if len(name) > limits.sub_entity_name_length_max or not _SUB_ENTITY_NAME.fullmatch(name):
        allowed = f"1 to {limits.sub_entity_name_length_max} characters without @ ? # * / \\ and controls"
        yield Violation("Name", repr(name), allowed)


# ---------------------------------------------------------------- words


def _duration(label: str, value_ms: int | None, allowed: Range) -> Violation:
    return Violation(label, format_duration(value_ms), duration_range(allowed))


def duration_range(allowed: Range) -> str:
    """A range of milliseconds in words: `PT5S to PT5M`."""
    start = format_duration(allowed.start)
    return f"{start} or more" if allowed.stop is None else f"{start} to {format_duration(allowed.stop)}"


def _numbers(allowed: Range) -> str:
    return f"{allowed.start} or more" if allowed.stop is None else f"{allowed.start} to {allowed.stop}"


def _one_of(choices: Collection[int]) -> str:
    return ("" if len(choices) == 1 else "one of ") + ", ".join(map(str, choices))


def _text(label: str, value: str, length_min: int, length_max: int) -> Iterator[Violation]:
    if not length_min <= len(value) <= length_max:
        yield Violation(label, f"{len(value)} characters long", f"{length_min} to {length_max} characters")
