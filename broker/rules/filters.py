"""Compiles filter descriptions and checks rules.

Knows the kinds of filters, and the SQL texts that need no parser. Does not know their evaluation.
"""

from __future__ import annotations

import re
from typing import Final

from ..model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
    TrueFilter,
)
from ..model.profiles import Limits
from ..model.validation import rule_violations
from .compiled import ALWAYS, NEVER, CompiledFilter
from .correlation import compile_correlation
from .errors import FilterError

# True and false filters as SDKs send them over AMQP; they need no parser.
_CONSTANT_SQL: Final = re.compile(r"\s*1\s*=\s*([01])\s*")


def compile_filter(description: Filter) -> CompiledFilter:
    """Compile a filter. Raises FilterError."""
    match description:
        case TrueFilter():
            return ALWAYS
        case FalseFilter():
            return NEVER
        case CorrelationFilter():
            return compile_correlation(description)
        case SelectorFilter():
            from .sql.selector import compile_selector

            return compile_selector(description.expression)
        case SqlFilter():
            constant = _CONSTANT_SQL.fullmatch(description.expression)
            if constant is not None:
                return ALWAYS if constant.group(1) == "1" else NEVER
            from .sql.compiler import compile_sql

            return compile_sql(description.expression, description.parameters)


def check_rule(rule: RuleDescription, limits: Limits) -> None:
    """Raise FilterError for an invalid rule or one above the limits."""
    violations = rule_violations(rule, limits)
    if violations:
        raise FilterError(f"rule {rule.name!r:.80}: {'; '.join(map(str, violations))}")
    compile_filter(rule.filter)
    if rule.action is not None:
        from .sql.action import compile_action

        compile_action(rule.action, parameters=rule.action_parameters, statements_max=limits.action_statements_max)
