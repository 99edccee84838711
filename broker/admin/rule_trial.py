"""Tests the rules of a subscription on a message, rule by rule.

Evaluates each rule separately and applies its action. Stores and counts nothing; the outcome equals that of
`RuleIndex`, which joins the copies of all rules. Pure.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ..message.message import Message
from ..model.descriptions import RuleDescription
from ..rules.context import MessageContext
from ..rules.errors import FilterException
from ..rules.filters import compile_filter
from ..rules.sql.action import compile_action


@dataclass(frozen=True, slots=True)
class Verdict:
    """The result of one rule: whether it matches, None if it fails with `error`.

    `copy` is the copy that a matching rule makes; without action the message itself.
    """

    rule: RuleDescription
    matches: bool | None
    error: str = ""
    copy: Message | None = None


def try_rules(rules: Iterable[RuleDescription], message: Message, now: int) -> list[Verdict]:
    """Return the verdict of each rule, in order; `now` (Unix ms) is the assumed enqueued time."""
    context = MessageContext(message, enqueued_at=now)
    return [_try(rule, context) for rule in rules]


def _try(rule: RuleDescription, context: MessageContext) -> Verdict:
    try:
        if compile_filter(rule.filter)(context) is not True:
            return Verdict(rule, False)
        if rule.action is None:
            return Verdict(rule, True, copy=context.message)
        action = compile_action(rule.action, parameters=rule.action_parameters)
        return Verdict(rule, True, copy=action.apply(context, rule.name))
    except FilterException as error:
        return Verdict(rule, None, str(error))
