"""Rules as XML: filters, actions, and the description around them [http 3].

Knows the types of filters and actions and the order of their parts. Does not know whether a rule can be used:
`broker.rules` decides that when it is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final
from xml.etree.ElementTree import Element

from ...broker.model.descriptions import (
    DEFAULT_RULE_NAME,
    CorrelationFilter,
    EntityDescription,
    FalseFilter,
    Filter,
    PropertyValue,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    SubscriptionDescription,
    TrueFilter,
    entity_key,
)
from ...broker.model.properties import CORRELATION_NAMES
from ..errors import excerpt
from ..markup import CONNECT, INSTANCE, element, instant
from .parsing import bad, child, children, local_name, text_of, type_of
from .values import values_in, values_markup

KIND: Final = "RuleDescription"
_EVERYTHING: Final = "1=1"
_LEVEL: Final = "<CompatibilityLevel>20</CompatibilityLevel>"

_CORRELATION: Final = {name: field for field, name in CORRELATION_NAMES.items()}
"""The elements of a correlation filter in their order, and the fields that they set."""


# ---------------------------------------------------------------- reading


def rule_in(node: Element, name: str | None = None) -> RuleDescription:
    """The rule that an element describes; `name`, from the address, comes before the one in the element.

    HttpRefusal (400) for what is no rule.
    """
    given = child(node, "Name")
    if name is None:
        name = DEFAULT_RULE_NAME if given is None else text_of(given)
    action, parameters = _action_in(child(node, "Action"))
    return RuleDescription(name, _filter_in(child(node, "Filter")), action, action_parameters=parameters)


def rule_of(subscription: EntityDescription, node: Element, name: str | None = None) -> RuleDescription:
    """The rule of a subscription that an element describes, read as `rule_in` does.

    A subscription of JMS has its selector in the rule `$Default`, where it is written as a SQL filter [jms 4].
    """
    return of_subscription(subscription, rule_in(node, name))


def of_subscription(subscription: EntityDescription, rule: RuleDescription) -> RuleDescription:
    """The rule with a selector in place of SQL where it is that of a subscription of JMS."""
    of_jms = isinstance(subscription, SubscriptionDescription) and subscription.jms is not None
    if not of_jms or entity_key(rule.name) != entity_key(DEFAULT_RULE_NAME) or type(rule.filter) is not SqlFilter:
        return rule
    expression = rule.filter.expression
    return replace(rule, filter=TrueFilter() if expression == _EVERYTHING else SelectorFilter(expression))


def _filter_in(node: Element | None) -> Filter:
    if node is None:
        return TrueFilter()
    kind = type_of(node)
    read = _FILTERS.get(kind or "")
    if read is None:
        raise bad(f"The filter is of type '{excerpt(kind or '')}'; allowed is {', '.join(_FILTERS)}.")
    return read(node)


def _sql_in(node: Element) -> Filter:
    return SqlFilter(_expression(node, "SqlFilter"), values_in(child(node, "Parameters")))


def _correlation_in(node: Element) -> Filter:
    texts = {
        _CORRELATION[local_name(part)]: text_of(part) for part in children(node) if local_name(part) in _CORRELATION
    }
    return CorrelationFilter(**texts, properties=values_in(child(node, "Properties")))


_FILTERS: Final[Mapping[str, Callable[[Element], Filter]]] = {
    "SqlFilter": _sql_in,
    "CorrelationFilter": _correlation_in,
    "TrueFilter": lambda _: TrueFilter(),
    "FalseFilter": lambda _: FalseFilter(),
}


def _action_in(node: Element | None) -> tuple[str | None, dict[str, PropertyValue]]:
    """The SQL of an action and its parameters; None for an empty one."""
    kind = None if node is None else type_of(node)
    if node is None or kind in (None, "EmptyRuleAction"):
        return None, {}
    if kind != "SqlRuleAction":
        raise bad(f"The action is of type '{excerpt(kind or '')}'; allowed is SqlRuleAction, EmptyRuleAction.")
    return _expression(node, "SqlRuleAction"), values_in(child(node, "Parameters"))


def _expression(node: Element, kind: str) -> str:
    expression = child(node, "SqlExpression")
    if expression is None:
        raise bad(f"The {kind} has no SqlExpression.")
    return text_of(expression)


# ---------------------------------------------------------------- writing


def rule_markup(rule: RuleDescription) -> str:
    parts = f"{_filter_markup(rule.filter)}{_action_markup(rule)}"
    created, name = element("CreatedAt", instant(rule.created_at)), element("Name", rule.name)
    return f'<{KIND} xmlns="{CONNECT}" xmlns:i="{INSTANCE}">{parts}{created}{name}</{KIND}>'


def _filter_markup(description: Filter) -> str:
    match description:
        case SqlFilter():
            parameters = values_markup("Parameters", description.parameters)
            return f'<Filter i:type="SqlFilter">{_sql(description.expression)}{parameters}</Filter>'
        case TrueFilter():
            return f'<Filter i:type="TrueFilter">{_sql(_EVERYTHING)}</Filter>'
        case FalseFilter():
            return f'<Filter i:type="FalseFilter">{_sql("1=0")}</Filter>'
        case CorrelationFilter():
            texts = (element(name, getattr(description, field)) for name, field in _CORRELATION.items())
            properties = values_markup("Properties", description.properties)
            return f'<Filter i:type="CorrelationFilter">{"".join(texts)}{properties}</Filter>'


def _action_markup(rule: RuleDescription) -> str:
    """The action; there is always one, because JavaScript reads its type unconditionally."""
    if rule.action is None:
        return '<Action i:type="EmptyRuleAction"/>'
    parameters = values_markup("Parameters", rule.action_parameters)
    return f'<Action i:type="SqlRuleAction">{_sql(rule.action)}{parameters}</Action>'


def _sql(expression: str) -> str:
    return f"{element('SqlExpression', expression)}{_LEVEL}"
