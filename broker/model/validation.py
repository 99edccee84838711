"""Compares descriptions with the limits of a profile.

A `Violation` names the property like the management API and Config.json, its value and the allowed values; callers turn
it into HTTP 400, an AMQP error or a configuration error.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Final

from ...codec.durations import format_duration, format_span
from .. import service_errors
from ..address import strip_authority
from ..errors import BrokerError
from ..keys import Right
from ..lazy_dataclass import dataclass
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
from .profiles import KIB, MINUTE_MS, Limits, Partitioning, Profile, Range
from .properties import SERVICE_NAMES as NAMES


@dataclass(frozen=True, slots=True)
class Violation:
    """A forbidden value: the property as Service Bus spells it, its value, and the allowed values.

    `refusal` is the service's own error for it, where that is known. `is_character`: a name holds a character that it
    must not hold; the service's text for that names the address of the request.
    """

    property: str
    value: str
    allowed: str
    refusal: BrokerError | None = field(default=None, compare=False, repr=False)
    is_character: bool = field(default=False, compare=False)

    def __str__(self) -> str:
        return f"{self.property} is {self.value}; allowed is {self.allowed}"


def queue_violations(description: QueueDescription, limits: Limits, *, is_new: bool = True) -> list[Violation]:
    """Return the violations of a queue, in the order of its properties.

    Without `is_new` the queue exists, and its name and partitioning are not checked.
    """
    return list(_of_queue(description, limits, is_new))


def topic_violations(description: TopicDescription, limits: Limits, *, is_new: bool = True) -> list[Violation]:
    """Return the violations of a topic without its subscriptions; `is_new` as for a queue."""
    return list(_of_topic(description, limits, is_new))


def subscription_violations(
    description: SubscriptionDescription, limits: Limits, *, is_new: bool = True
) -> list[Violation]:
    """Return the violations of a subscription without its rules; `is_new` as for a queue."""
    return list(_of_subscription(description, limits, is_new))


def rule_violations(description: RuleDescription, limits: Limits) -> list[Violation]:
    """Return the violations of a rule; its SQL is not parsed."""
    return list(_of_rule(description, limits))


def is_rule_name(name: str, limits: Limits) -> bool:
    """Whether the service's gateway takes a name of a rule in an address, as it takes names of subscriptions.

    Over AMQP a rule may have other characters: the SDKs that add rules there refuse only a few.
    """
    return limits.profile is Profile.RELAXED or _SUBSCRIPTION_NAME.fullmatch(name) is not None


def forwards_to_itself(description: QueueDescription | SubscriptionDescription, path: str) -> list[Violation]:
    """Return the forwarding properties that name the entity itself. The service accepts such an update."""
    return [
        Violation(label, repr(target), "another entity than this one")
        for label, target in (
            (NAMES["forward_to"], description.forward_to),
            (NAMES["forward_dead_letters_to"], description.forward_dead_letters_to),
        )
        if target is not None and entity_key(strip_authority(target)) == entity_key(path)
    ]


def _of_queue(queue: QueueDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    if is_new:
        yield from _entity_name(queue.name, limits)
    yield from _store_violations(queue, limits, is_new)
    yield from _receive_violations(queue, limits)


def _of_topic(topic: TopicDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    if is_new:
        yield from _entity_name(topic.name, limits)
    yield from _store_violations(topic, limits, is_new)
    yield from _common_violations(topic, limits)
    if topic.status is EntityStatus.RECEIVE_DISABLED:
        yield Violation(NAMES["status"], topic.status, "Active, Disabled or SendDisabled for a topic")


def _of_subscription(subscription: SubscriptionDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    if is_new:
        yield from _subscription_name(subscription, limits)
    if subscription.jms is not None and not limits.jms:
        yield Violation("ClientAffineProperties", "set", "none: JMS needs the profile premium, without partitions")
    yield from _receive_violations(subscription, limits)
    if subscription.status is EntityStatus.SEND_DISABLED:
        yield Violation(NAMES["status"], subscription.status, "Active, Disabled or ReceiveDisabled for a subscription")


def _of_rule(rule: RuleDescription, limits: Limits) -> Iterator[Violation]:
    yield from _sub_entity_name(rule.name, limits)
    if isinstance(rule.filter, SqlFilter):
        yield from _text_length("SqlExpression", rule.filter.expression, 1, limits.rule_text_length_max)
    elif isinstance(rule.filter, CorrelationFilter) and rule.filter.is_empty:
        yield Violation("CorrelationFilter", "empty", "at least one property to compare")
    if rule.action is not None:
        yield from _text_length("Action", rule.action, 1, limits.rule_text_length_max)
    yield from _rule_size(rule, limits)


def rule_bytes(rule: RuleDescription) -> int:
    """The size of a rule: all its texts, names and values."""
    own = rule.filter
    texts: list[str | None] = [rule.name, rule.action]
    if isinstance(own, CorrelationFilter):
        texts += (own.content_type, own.correlation_id, own.label, own.message_id)
        texts += (own.reply_to, own.reply_to_session_id, own.session_id, own.to)
    elif isinstance(own, SqlFilter):
        texts.append(own.expression)
    for _, given in _rule_values(rule):
        texts += given
        texts += map(_value_text, given.values())
    return sum(len(text.encode(errors="surrogatepass")) for text in texts if text is not None)


def _rule_values(rule: RuleDescription) -> Iterator[tuple[str, Mapping[str, PropertyValue]]]:
    yield "ActionParameters", rule.action_parameters
    if isinstance(rule.filter, CorrelationFilter):
        yield "Properties", rule.filter.properties
    elif isinstance(rule.filter, SqlFilter):
        yield "Parameters", rule.filter.parameters


def _rule_size(rule: RuleDescription, limits: Limits) -> Iterator[Violation]:
    """Check the total size of a rule: compiling and storing it cost in proportion."""
    own = rule.filter
    for label, given in _rule_values(rule):
        if len(given) > limits.rule_properties_max:
            yield Violation(label, f"{len(given)} entries long", f"at most {limits.rule_properties_max}")
    size_bytes = rule_bytes(rule)
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
"""An unterminated literal takes the rest of the text, so that counting is linear."""


def _store_violations(entity: QueueDescription | TopicDescription, limits: Limits, is_new: bool) -> Iterator[Violation]:
    """Return violations of queues and topics only: partitions, size, duplicates."""
    partitioned = entity.enable_partitioning
    if is_new and partitioned and limits.partitioning is Partitioning.NEVER:
        yield Violation(NAMES["enable_partitioning"], "true", "false: the namespace is not partitioned")
    if is_new and not partitioned and limits.partitioning is Partitioning.ALWAYS:
        yield Violation(NAMES["enable_partitioning"], "false", "true: the namespace is partitioned")
    choices = limits.max_size_mb_choices
    if choices is not None and entity.max_size_mb not in choices:
        refusal = service_errors.size_not_listed(entity.max_size_mb, choices)
        yield Violation(NAMES["max_size_mb"], str(entity.max_size_mb), _one_of(choices), refusal)
    elif entity.max_size_mb not in limits.max_size_mb:
        yield Violation(NAMES["max_size_mb"], str(entity.max_size_mb), _range_text(limits.max_size_mb))
    yield from _message_size(entity, limits)
    if entity.enable_express and limits.profile is Profile.PREMIUM:
        yield Violation(NAMES["enable_express"], "true", "false: the Premium tier has no express entities")
    elif entity.enable_express and entity.requires_duplicate_detection and limits.profile is not Profile.RELAXED:
        refusal = service_errors.express_with_duplicates()
        yield Violation(NAMES["enable_express"], "true", "false, as RequiresDuplicateDetection is true", refusal)
    if entity.duplicate_window_ms not in limits.duplicate_window_ms:
        yield _duration(NAMES["duplicate_window_ms"], entity.duplicate_window_ms, limits.duplicate_window_ms)
    yield from authorization_violations(entity.authorization_rules, limits)


def authorization_violations(rules: Sequence[AuthorizationRule], limits: Limits) -> Iterator[Violation]:
    if len(rules) > limits.authorization_rules_max:
        yield Violation("AuthorizationRules", f"{len(rules)} rules long", f"at most {limits.authorization_rules_max}")
    for name, count in Counter(rule.key_name for rule in rules).items():
        yield from _text_length("KeyName", name, 1, limits.key_name_length_max)
        if count > 1:
            yield Violation("KeyName", repr(name), "names that differ")
    for rule in rules:
        yield from _text_length("PrimaryKey", rule.primary_key, 1, limits.shared_key_length_max)
        yield from _text_length("SecondaryKey", rule.secondary_key, 0, limits.shared_key_length_max)
        if not rule.rights:
            yield Violation("Rights", "empty", f"any of {', '.join(Right)}")
        elif Right.MANAGE in rule.rights and len(set(rule.rights)) < len(Right):
            yield Violation("Rights", ", ".join(rule.rights), "Send and Listen together with Manage")


def _message_size(entity: QueueDescription | TopicDescription, limits: Limits) -> Iterator[Violation]:
    size_bytes = entity.max_message_bytes
    # Clients may echo the reported value, even if the profile does not let them choose it.
    if size_bytes is None or size_bytes == limits.message_bytes_max:
        return
    allowed = limits.message_bytes_settable
    if allowed is not None and entity.enable_partitioning and limits.partitioned_message_bytes_max is not None:
        allowed = Range(allowed.start, limits.partitioned_message_bytes_max)
    if allowed is None:
        fixed = limits.message_bytes_max // KIB
        of_service: BrokerError | None = service_errors.message_size_fixed(size_bytes / KIB, fixed)
        yield Violation(NAMES["max_message_bytes"], f"{size_bytes / KIB:g}", f"{fixed} (fixed)", of_service)
    elif size_bytes not in allowed:
        kilobytes = Range(allowed.start // KIB, allowed.stop // KIB if allowed.stop else None)
        stop = kilobytes.stop
        of_service = None if stop is None else service_errors.message_size_out_of_range(kilobytes.start, stop)
        yield Violation(NAMES["max_message_bytes"], f"{size_bytes / KIB:g}", _range_text(kilobytes), of_service)


def _receive_violations(entity: QueueDescription | SubscriptionDescription, limits: Limits) -> Iterator[Violation]:
    """Return violations of queues and subscriptions only: locks, delivery counts, forwarding."""
    if entity.lock_duration_ms not in limits.lock_duration_ms:
        yield _lock_duration(entity.lock_duration_ms, limits.lock_duration_ms)
    if entity.max_delivery_count not in limits.max_delivery_count:
        yield Violation(
            NAMES["max_delivery_count"], str(entity.max_delivery_count), _range_text(limits.max_delivery_count)
        )
    yield from _common_violations(entity, limits)
    if entity.forward_to is not None and entity.requires_session:
        refusal = service_errors.forwards_sessions(entity.forward_to)
        yield Violation(NAMES["forward_to"], repr(entity.forward_to), "none, as RequiresSession is true", refusal)


def _common_violations(entity: EntityDescription, limits: Limits) -> Iterator[Violation]:
    if entity.default_ttl_ms not in limits.ttl_ms:
        yield _duration(NAMES["default_ttl_ms"], entity.default_ttl_ms, limits.ttl_ms)
    idle_ms = entity.auto_delete_on_idle_ms
    if idle_ms is not None and idle_ms not in limits.auto_delete_on_idle_ms:
        yield _duration(NAMES["auto_delete_on_idle_ms"], idle_ms, limits.auto_delete_on_idle_ms)
    if entity.user_metadata is not None:
        yield from _text_length(NAMES["user_metadata"], entity.user_metadata, 0, limits.user_metadata_length_max)


def _subscription_name(subscription: SubscriptionDescription, limits: Limits) -> Iterator[Violation]:
    name = subscription.name
    if subscription.jms is None:
        found = list(_sub_entity_name(name, limits))
        if not found and limits.profile is not Profile.RELAXED and not _SUBSCRIPTION_NAME.fullmatch(name):
            found = [Violation("Name", repr(name), "letters, digits and . - _ ~ $", is_character=True)]
        yield from found
        return
    # A subscription of JMS has the text that a program chose, and its client id [jms 4].
    suffix = subscription.jms.suffix
    if len(suffix) > limits.entity_path_length_max or not name.endswith(suffix):
        yield Violation("Name", repr(name), f"a name that ends with the client id, as in {suffix!r:.80}")
    yield from _sub_entity_name(name.removesuffix(suffix), limits)
    if suffix:
        yield from _sub_entity_name(suffix, replace(limits, sub_entity_name_length_max=len(suffix)))


# What the service's text of a refusal names (`wrong_characters` in `broker/service_errors.py`) and the tilde, which
# MassTransit uses; any of them at both ends: MassTransit's queues of faults end with hyphens.
_ENTITY_NAME = re.compile(r"[\w.\-/~]+", re.ASCII)
_ENTITY_NAME_MS_EMULATOR = re.compile(r"[A-Za-z0-9](?:[\w.\-/]*[A-Za-z0-9])?", re.ASCII)
# `relaxed` refuses only names that an address cannot contain.
_ENTITY_NAME_RELAXED = re.compile(r"[^@?#*\\\x00-\x20\x7f/](?:[^@?#*\\\x00-\x1f\x7f]*[^@?#*\\\x00-\x20\x7f/])?")
_SUBSCRIPTION_NAME = re.compile(r"[\w.\-~$]+", re.ASCII)  # the dollar of names that the service itself gives
_SUB_ENTITY_NAME = re.compile(r"[^@?#*\\/\x00-\x1f\x7f]+")
# HTTP clients take `.` and `..` out of a path before they send it [RFC 3986 5.2.4]: such an entity can't be addressed.
_RESERVED_SEGMENT = re.compile(r"(?:^|/)(\$[^/]*|subscriptions|\.{0,2})(?=/|$)", re.IGNORECASE)
_ENTITY_NAMES: Final[Mapping[Profile, tuple[re.Pattern[str], str]]] = {
    Profile.STANDARD: (_ENTITY_NAME, "letters, digits and . - _ / ~"),
    Profile.PREMIUM: (_ENTITY_NAME, "letters, digits and . - _ / ~"),
    Profile.MS_EMULATOR: (
        _ENTITY_NAME_MS_EMULATOR,
        "letters, digits and . - _ /, a letter or digit at both ends",
    ),
    Profile.RELAXED: (_ENTITY_NAME_RELAXED, "any characters but @ ? # * \\ and controls"),
}


def _entity_name(name: str, limits: Limits) -> Iterator[Violation]:
    pattern, allowed = _ENTITY_NAMES[limits.profile]
    if not 1 <= len(name) <= limits.entity_path_length_max:
        yield Violation("Name", repr(name), f"1 to {limits.entity_path_length_max} characters: {allowed}")
    elif _RESERVED_SEGMENT.search(name):
        allowed = "a path without empty segments, '.', '..', 'Subscriptions' and segments that begin with '$'"
        yield Violation("Name", repr(name), allowed)
    elif not pattern.fullmatch(name):
        yield Violation("Name", repr(name), allowed, is_character=True)


def _sub_entity_name(name: str, limits: Limits) -> Iterator[Violation]:
    if not 1 <= len(name) <= limits.sub_entity_name_length_max or name in (".", ".."):
        allowed = f"1 to {limits.sub_entity_name_length_max} characters, not . or .."
        yield Violation("Name", repr(name), allowed)
    elif not _SUB_ENTITY_NAME.fullmatch(name):
        yield Violation("Name", repr(name), "characters but @ ? # * / \\ and controls", is_character=True)


def _lock_duration(duration_ms: int, allowed: Range) -> Violation:
    refusal = None
    if allowed.stop is not None and duration_ms > allowed.stop:
        refusal = service_errors.lock_too_long(allowed.stop // MINUTE_MS, format_span(duration_ms))
    return replace(_duration(NAMES["lock_duration_ms"], duration_ms, allowed), refusal=refusal)


def _duration(label: str, value_ms: int | None, allowed: Range) -> Violation:
    return Violation(label, format_duration(value_ms), duration_range(allowed))


def duration_range(allowed: Range) -> str:
    """Return a range of milliseconds as text: `PT5S to PT5M`."""
    start = format_duration(allowed.start)
    return f"{start} or more" if allowed.stop is None else f"{start} to {format_duration(allowed.stop)}"


def _range_text(allowed: Range) -> str:
    return f"{allowed.start} or more" if allowed.stop is None else f"{allowed.start} to {allowed.stop}"


def _one_of(choices: Collection[int]) -> str:
    return ("" if len(choices) == 1 else "one of ") + ", ".join(map(str, choices))


def _text_length(label: str, value: str, length_min: int, length_max: int) -> Iterator[Violation]:
    if not length_min <= len(value) <= length_max:
        yield Violation(label, f"{len(value)} characters long", f"{length_min} to {length_max} characters")
