"""Translation between the protocol's properties of entities and those of ``azure.servicebus.management``.

Knows the names and units on both sides, rules with their filters, and what the SDK has for which kind of entity
(``tests/sdk/PROTOCOL.md``). Does not know clients. Pure functions; nothing here keeps an object.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.servicebus.management import (
    AccessRights,
    AuthorizationRule,
    CorrelationRuleFilter,
    FalseRuleFilter,
    SqlRuleAction,
    SqlRuleFilter,
    TrueRuleFilter,
)

from .translate import JSON, ms_from_instant, property_from_json, property_to_json

Convert = Callable[[Any], Any]

LONGEST_SHOWN = timedelta(days=10_000_000)
CORRELATION_NAMES = {
    "correlation_id": "correlation_id",
    "message_id": "message_id",
    "to": "to",
    "reply_to": "reply_to",
    "subject": "label",
    "session_id": "session_id",
    "reply_to_session_id": "reply_to_session_id",
    "content_type": "content_type",
}


def same(value: Any) -> Any:
    """The value itself."""
    return value


def text(value: Any) -> str:
    """A word of an enumeration, which the SDK shows as a member or as text."""
    return str(getattr(value, "value", value))


def duration_from_ms(ms: int | None) -> timedelta | None:
    """Milliseconds as the SDK's duration."""
    return None if ms is None else timedelta(milliseconds=ms)


def ms_from_duration(duration: timedelta) -> int | None:
    """The SDK's duration in milliseconds, None for the longest one."""
    return None if duration > LONGEST_SHOWN else duration // timedelta(milliseconds=1)


def last_part(address: str) -> str:
    """The entity that an address names."""
    return address.rpartition("/")[2]


def access_rules_from_json(rules: list[JSON] | None) -> list[AuthorizationRule] | None:
    """The SDK's authorization rules."""
    if rules is None:
        return None
    return [
        AuthorizationRule(
            type="SharedAccessAuthorizationRule",
            claim_type="SharedAccessKey",
            claim_value="None",
            rights=[AccessRights(right) for right in rule["rights"]],
            key_name=rule["name"],
            primary_key=rule["primary_key"],
            secondary_key=rule["secondary_key"],
        )
        for rule in rules
    ]


def access_rules_to_json(rules: list[AuthorizationRule]) -> list[JSON]:
    """The protocol's authorization rules."""
    return [
        {
            "name": rule.key_name,
            "rights": sorted(text(right) for right in rule.rights or []),
            "primary_key": rule.primary_key,
            "secondary_key": rule.secondary_key,
        }
        for rule in rules
    ]


def filter_from_json(spec: JSON | None) -> CorrelationRuleFilter | SqlRuleFilter | None:
    """A filter of the protocol as the SDK's."""
    if spec is None:
        return None
    if "sql" in spec:
        return SqlRuleFilter(spec["sql"])
    if "true" in spec or "false" in spec:
        return TrueRuleFilter() if "true" in spec else FalseRuleFilter()
    given = spec["correlation"]
    options: JSON = {ours: given[name] for name, ours in CORRELATION_NAMES.items() if given.get(name) is not None}
    values = {name: _filter_value_from_json(value) for name, value in (given.get("properties") or {}).items()}
    return CorrelationRuleFilter(**options, properties=values or None)


def filter_to_json(shown: CorrelationRuleFilter | SqlRuleFilter) -> JSON:
    """A filter of the SDK as the protocol's."""
    if isinstance(shown, TrueRuleFilter):
        return {"true": True}
    if isinstance(shown, FalseRuleFilter):
        return {"false": True}
    if isinstance(shown, SqlRuleFilter):
        return {"sql": shown.sql_expression}
    values = {name: _filter_value_to_json(value) for name, value in (shown.properties or {}).items()}
    names = {name: getattr(shown, ours) for name, ours in CORRELATION_NAMES.items() if getattr(shown, ours) is not None}
    return {"correlation": names | ({"properties": values} if values else {})}


def action_from_json(expression: str | None) -> SqlRuleAction | None:
    """An action of the protocol as the SDK's."""
    return None if expression is None else SqlRuleAction(expression)


def _filter_value_from_json(value: Any) -> Any:
    if isinstance(value, Mapping) and value["type"] == "long":
        return int(value["value"])  # the SDK writes it as int or long by its size
    made = property_from_json(value)
    return made.replace(tzinfo=None) if isinstance(made, datetime) else made


def _filter_value_to_json(value: Any) -> Any:
    if isinstance(value, datetime):
        return {"type": "timestamp", "value": ms_from_instant(value.replace(tzinfo=UTC))}
    return property_to_json(value)


# The protocol's name: the SDK's name, the way in, the way out.
NAMES: Mapping[str, tuple[str, Convert, Convert]] = {
    "lock_duration_ms": ("lock_duration", duration_from_ms, ms_from_duration),
    "max_size_mb": ("max_size_in_megabytes", same, same),
    "requires_duplicate_detection": ("requires_duplicate_detection", same, same),
    "requires_session": ("requires_session", same, same),
    "default_ttl_ms": ("default_message_time_to_live", duration_from_ms, ms_from_duration),
    "dead_lettering_on_expiration": ("dead_lettering_on_message_expiration", same, same),
    "dead_lettering_on_filter_error": ("dead_lettering_on_filter_evaluation_exceptions", same, same),
    "duplicate_window_ms": ("duplicate_detection_history_time_window", duration_from_ms, ms_from_duration),
    "max_delivery_count": ("max_delivery_count", same, same),
    "enable_batched_operations": ("enable_batched_operations", same, same),
    "status": ("status", same, text),
    "auto_delete_on_idle_ms": ("auto_delete_on_idle", duration_from_ms, ms_from_duration),
    "enable_partitioning": ("enable_partitioning", same, same),
    "forward_to": ("forward_to", same, last_part),
    "forward_dead_letters_to": ("forward_dead_lettered_messages_to", same, last_part),
    "user_metadata": ("user_metadata", same, same),
    "enable_express": ("enable_express", same, same),
    "max_message_size_kb": ("max_message_size_in_kilobytes", same, same),
    "supports_ordering": ("support_ordering", same, same),
    "availability": ("availability_status", same, text),
    "authorization_rules": ("authorization_rules", access_rules_from_json, access_rules_to_json),
    "filter": ("filter", filter_from_json, filter_to_json),
    "action": ("action", action_from_json, lambda action: action.sql_expression),
}
RUNTIME_NAMES: Mapping[str, tuple[str, Convert]] = {
    "active_count": ("active_message_count", same),
    "dead_letter_count": ("dead_letter_message_count", same),
    "scheduled_count": ("scheduled_message_count", same),
    "transfer_count": ("transfer_message_count", same),
    "transfer_dead_letter_count": ("transfer_dead_letter_message_count", same),
    "total_count": ("total_message_count", same),
    "subscription_count": ("subscription_count", same),
    "size_bytes": ("size_in_bytes", same),
    "created_at_ms": ("created_at_utc", ms_from_instant),
    "updated_at_ms": ("updated_at_utc", ms_from_instant),
    "accessed_at_ms": ("accessed_at_utc", ms_from_instant),
}


def properties_from_json(properties: JSON) -> JSON:
    """The protocol's properties by the SDK's names; TypeError for what the SDK has for no entity."""
    if unknown := properties.keys() - NAMES.keys():
        raise TypeError(f"azure-servicebus has no {', '.join(sorted(unknown))}")
    return {NAMES[name][0]: NAMES[name][1](value) for name, value in properties.items()}


def properties_to_json(entity: Any) -> JSON:
    """What the SDK's description of an entity shows."""
    shown = ((name, getattr(entity, ours, None), out) for name, (ours, _, out) in NAMES.items())
    return {name: out(value) for name, value, out in shown if value is not None}


def runtime_to_json(entity: Any) -> JSON:
    """What the SDK's runtime properties of an entity show."""
    shown = ((name, getattr(entity, ours, None), out) for name, (ours, out) in RUNTIME_NAMES.items())
    return {name: out(value) for name, value, out in shown if value is not None}
