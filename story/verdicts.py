"""Why a subscription took a message or did not: its rules, each with the part of its filter that was not true.

Tests a message again, with the rules of its time. Knows filters and the value of a property. Stores nothing. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from ..broker.message.message import Message
from ..broker.model.descriptions import (
    CorrelationFilter,
    FalseFilter,
    Filter,
    PropertyValue,
    RuleDescription,
    SelectorFilter,
    SqlFilter,
)
from ..broker.rules.context import Draft, MessageContext
from ..broker.rules.correlation import FIELDS
from ..broker.rules.errors import FilterError, FilterException
from ..broker.rules.filters import compile_filter
from ..broker.rules.sql import syntax
from ..broker.rules.sql.action import compile_action
from ..broker.rules.sql.compiler import Compiler
from ..broker.rules.sql.grammar import parse_action, parse_filter
from ..broker.rules.values import OPAQUE, Value, compare, from_description, kind_text, to_text
from .sql_text import names_in, text_of
from .unknown import absence, operator_refusal_text, why_unknown

REASONS_MAX: Final = 3
"""Alternatives of an OR that are explained."""
VALUE_CHARS_MAX: Final = 80


@dataclass(frozen=True, slots=True)
class RuleVerdict:
    """A rule and whether it matches, None if it failed.

    `reason` says why it does not match, or what its action could not calculate.
    """

    name: str
    matches: bool | None
    reason: str = ""

    @property
    def text(self) -> str:
        """The verdict in words: the same for a message that was sent, may be sent, or is tried."""
        said = {True: "matches", False: "does not match", None: "fails"}[self.matches]
        return f"{said}: {self.reason}" if self.reason else said


@dataclass(frozen=True, slots=True)
class Verdict:
    """A subscription and its rules; it takes the message if one of them matches."""

    path: str
    rules: Sequence[RuleVerdict]

    @property
    def takes(self) -> bool:
        return any(each.matches for each in self.rules)


def verdicts_on(message: Message, rules: Mapping[str, Sequence[RuleDescription]], at: int) -> list[Verdict]:
    """The verdict of each subscription on a message that was enqueued at `at` (Unix ms)."""
    context = MessageContext(message, enqueued_at=at)
    return [Verdict(path, [rule_verdict(each, context) for each in of_path]) for path, of_path in rules.items()]


def rule_verdict(rule: RuleDescription, context: MessageContext) -> RuleVerdict:
    try:
        if compile_filter(rule.filter)(context) is True:
            return RuleVerdict(rule.name, True, unknown_values(rule, context))
        return RuleVerdict(rule.name, False, why_not(rule.filter, context))
    except (FilterException, FilterError) as error:
        return RuleVerdict(rule.name, None, str(error))


def unknown_values(rule: RuleDescription, context: MessageContext) -> str:
    """Say which SET of a rule's action has no value, and why: it changes nothing, or clears. FilterException."""
    if rule.action is None:
        return ""
    draft, reasons = Draft(context), list[str]()
    action = compile_action(rule.action, parameters=rule.action_parameters)
    for statement, step in zip(parse_action(rule.action), action.steps, strict=True):
        if isinstance(statement, syntax.Set):
            why = why_unknown(statement.expression, Compiler(rule.action_parameters), draft)
            name = text_of(statement.property)
            if why and not (isinstance(statement.expression, syntax.Constant) and statement.expression.value is None):
                reasons.append(f"SET {name} = {text_of(statement.expression)} is unknown: {why}")
        step(draft)
    return "; ".join(reasons)


def why_not(filter_: Filter, context: MessageContext) -> str:
    """The part of a filter that is not true for a message, with the values that it read. FilterException."""
    match filter_:
        case FalseFilter():
            return "the filter matches nothing"
        case CorrelationFilter():
            return _of_correlation(filter_, context)
        case SelectorFilter(expression):
            return f"the selector is not true: {expression}"
        case SqlFilter(expression, parameters):
            return _of_predicate(parse_filter(expression), Compiler(parameters), context)
        case _:
            return ""


def _of_correlation(filter_: CorrelationFilter, context: MessageContext) -> str:
    wanted: dict[str, tuple[PropertyValue, Value]] = {}
    for field, name in FIELDS.items():
        text: str | None = getattr(filter_, field)
        if text is not None:
            wanted[f"sys.{name}"] = text, context.system(name)
    for name, value in filter_.properties.items():
        wanted[name] = value, context.folded().get(name.lower())
    reasons: list[str] = []
    for name, (value, found) in wanted.items():
        wanted_value = from_description(value)
        truth = compare(operator.eq, found, wanted_value)
        if truth is not True:
            is_now = "not set" if found is None else _value_text(found)
            said = f"{name} must be {_value_text(wanted_value)}, and is {is_now}"
            is_of_kind = truth is False or found is None
            reasons.append(said if is_of_kind else f"{said}: {operator_refusal_text('=', found, wanted_value)}")
    return "; ".join(reasons)


def _of_predicate(node: syntax.Predicate, compiler: Compiler, context: MessageContext) -> str:
    """Why a predicate that is not true is not: the smallest parts that decide."""
    match node:
        case syntax.All(items):
            for item in items:
                if compiler.compile(item).evaluate(context) is not True:
                    return _of_predicate(item, compiler, context)
        case syntax.AnyOf(items):
            reasons = [_of_predicate(item, compiler, context) for item in items[:REASONS_MAX]]
            more = len(items) - len(reasons)
            return "; ".join(reasons) + (f"; and {more} more" if more else "")
    truth = compiler.compile(node).evaluate(context)
    said = f"{text_of(node)} is {_truth(truth)}{_values(node, compiler, context)}"
    why = why_unknown(node, compiler, context) if truth is None else ""
    return said if not why or why in said else f"{said}: {why}"


def _truth(truth: object) -> str:
    return "unknown" if truth is None else str(truth).lower()


def _values(node: syntax.Predicate, compiler: Compiler, context: MessageContext) -> str:
    """The values of the properties of a predicate, as the end of a sentence."""
    texts: dict[str, str] = {}
    for name in names_in(node):
        value = compiler.compile(name).evaluate(context)
        texts[text_of(name)] = absence(name, context) if value is None else f"is {_value_text(value)}"
    shown = ", ".join(f"{name} {said}" for name, said in texts.items())
    return f" ({shown})" if shown else ""


def _value_text(value: Value) -> str:
    if value is OPAQUE:
        return kind_text(value)
    text = f"'{value}'" if isinstance(value, str) else to_text(value)
    text = text.lower() if isinstance(value, bool) else text
    return text if len(text) <= VALUE_CHARS_MAX else f"{text[:VALUE_CHARS_MAX]}…"
