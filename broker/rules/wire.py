"""The AMQP forms of rules: the request of `add-rule` and the answer of `enumerate-rules` [wire 7.4].

Knows the descriptors, field orders and field names of both forms. Does not parse SQL or evaluate rules. Pure.
"""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from decimal import Decimal
from typing import Final

from ...codec.types import Described, Int, Long, Symbol, Timestamp, Ulong
from ..errors import BrokerError, Condition
from ..model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    PropertyValue,
    RuleDescription,
    SqlFilter,
    TrueFilter,
    TypedText,
)
from .errors import FilterException
from .values import TEXT_TYPES, Instant, Span, Value, iso_span, normalise, to_amqp, to_text

# Rule and action codes are 0x137_…, filter codes 0x1370_…; both are correct.
RULE_DESCRIPTION: Final = Ulong(0x0000013700000004)
EMPTY_ACTION: Final = Ulong(0x0000013700000005)
SQL_ACTION: Final = Ulong(0x0000013700000006)
SQL_FILTER: Final = Ulong(0x0000001370000006)
TRUE_FILTER: Final = Ulong(0x0000001370000007)
FALSE_FILTER: Final = Ulong(0x0000001370000008)
CORRELATION_FILTER: Final = Ulong(0x0000001370000009)
_COMPATIBILITY_LEVEL: Final = Int(20)

_CORRELATION_FIELDS: Final[Mapping[str, str]] = {
    "correlation-id": "correlation_id",
    "message-id": "message_id",
    "to": "to",
    "reply-to": "reply_to",
    "label": "label",
    "session-id": "session_id",
    "reply-to-session-id": "reply_to_session_id",
    "content-type": "content_type",
}
"""Fields of `CorrelationFilter` by name in `add-rule`, in the order of the described list."""

_INT32: Final = range(-(2**31), 2**31)

# ---------------------------------------------------------------- to the wire


def rule_to_amqp(rule: RuleDescription) -> Described:
    """Return the described list of a rule, without its creation if unknown."""
    action = (
        Described(EMPTY_ACTION, [])  # never null: JavaScript reads its descriptor
        if rule.action is None
        else Described(SQL_ACTION, [rule.action, _COMPATIBILITY_LEVEL])
    )
    created_at = [] if rule.created_at is None else [Timestamp(rule.created_at)]
    return Described(RULE_DESCRIPTION, [_filter_to_amqp(rule.filter), action, rule.name, *created_at])


def _filter_to_amqp(description: Filter) -> Described:
    match description:
        case SqlFilter(expression):
            return Described(SQL_FILTER, [expression, _COMPATIBILITY_LEVEL])
        case TrueFilter():
            return Described(TRUE_FILTER, [])
        case FalseFilter():
            return Described(FALSE_FILTER, [])
        case CorrelationFilter():
            texts: list[object] = [getattr(description, field) for field in _CORRELATION_FIELDS.values()]
            properties = {name: _value_to_amqp(value) for name, value in description.properties.items()}
            return Described(CORRELATION_FILTER, [*texts, properties])


def _value_to_amqp(value: PropertyValue) -> object:
    """Convert a property value: integers to the smallest of int, long and ulong; unparsable texts stay texts."""
    if isinstance(value, TypedText):
        read = TEXT_TYPES.get(value.type)
        try:
            return value.text if read is None else to_amqp(read(value.text))
        except ValueError:
            return value.text
    if isinstance(value, int) and not isinstance(value, bool):
        return Int(value) if value in _INT32 else Long(value) if value < 2**63 else Ulong(value)
    return value


# ---------------------------------------------------------------- from the wire


def rule_from_amqp(name: str, mapping: Mapping[str, object]) -> RuleDescription:
    """Return the rule of an `add-rule` request; `mapping` is its `rule-description`.

    Raises BrokerError (argument-error) with the wrong field.
    """
    sql = _map_member(mapping, "sql-filter")
    correlation = _map_member(mapping, "correlation-filter")
    action = _map_member(mapping, "sql-rule-action")
    if sql is not None and correlation is not None:
        raise _field_error("rule-description", "it has both a sql-filter and a correlation-filter")
    description: Filter = TrueFilter()
    if sql is not None:
        expression = _text_member(sql, "expression", "sql-filter.")
        if expression is None:
            raise _field_error("sql-filter.expression", "it is missing")
        description = SqlFilter(expression)
    elif correlation is not None:
        description = _correlation(correlation)
    action_text = None if action is None else _text_member(action, "expression", "sql-rule-action.")
    return RuleDescription(name, description, action_text or None)


def _correlation(fields: Mapping[str, object]) -> CorrelationFilter:
    texts = {field: _text_member(fields, key, "correlation-filter.") for key, field in _CORRELATION_FIELDS.items()}
    given = _map_member(fields, "properties", "correlation-filter.") or {}
    properties: dict[str, PropertyValue] = {}
    for key, value in given.items():
        if not isinstance(key, str):
            raise _field_error("correlation-filter.properties", f"a name is of type {_type(key)}, not string")
        properties[str(key)] = _value_from_amqp(str(key), value)
    return CorrelationFilter(**texts, properties=properties)


def _value_from_amqp(name: str, raw: object) -> PropertyValue:
    value: Value = normalise(raw)
    match value:
        case Instant():
            return TypedText("dateTime", _instant_text(name, value))
        case Span():
            return TypedText("duration", iso_span(value))
        case Decimal():
            return TypedText("decimal", to_text(value))
        case uuid.UUID():
            return TypedText("guid", str(value))
        case None | bool():
            return value
        case int() | float() | str():  # the types of the codec become Python's own
            return int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else str(value)
    raise _field_error(
        f"correlation-filter.properties[{name!r:.80}]", f"values of type {_type(raw)} cannot be compared"
    )


def _instant_text(name: str, instant: Instant) -> str:
    try:
        return to_text(instant)
    except FilterException:
        field = f"correlation-filter.properties[{name!r:.80}]"
        raise _field_error(field, "the instant lies outside the years 1 to 9999") from None


def _map_member(fields: Mapping[str, object], key: str, path: str = "") -> Mapping[str, object] | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, dict):
        raise _field_error(path + key, f"it is of type {_type(value)}, not map")
    return value


def _text_member(fields: Mapping[str, object], key: str, path: str) -> str | None:
    value = fields.get(key)
    if value is not None and not isinstance(value, str):
        raise _field_error(path + key, f"it is of type {_type(value)}, not string")
    return None if value is None else str(value)


def _type(value: object) -> str:
    if isinstance(value, Described) and isinstance(value.descriptor, Symbol):
        return str(value.descriptor)
    return type(value).__name__.lower()


def _field_error(field: str, problem: str) -> BrokerError:
    return BrokerError(Condition.ARGUMENT_ERROR, f"The field {field} cannot be used: {problem}.")
