"""Subscription rules: SQL filters, SQL actions, correlation filters, and the index of a topic's rules [wire 10.9].

A filter is compiled once, from its description to a closure, and then called with a `MessageContext` for each message;
its answer is one of three truths, and only True is a match. An action is compiled to steps that change a draft; the
copy is spliced together, so that all that the action does not name keeps its bytes. The `RuleIndex` holds the rules of
all subscriptions of a topic and tells which of them get which copies of a message.

From text to truth: `grammar` (text to `syntax`), `compiler` (syntax to closures), `values` and `patterns` (operators),
`context` (the message). A rule that cannot be used is a `FilterError` where it is written; one that fails for a message
is a `FilterException` where it is evaluated.
"""

from .compiled import CompiledFilter
from .context import MessageContext
from .errors import FilterError, FilterException
from .filters import check_rule, compile_filter
from .index import Match, RuleIndex
from .sql.action import RULE_NAME_PROPERTY, Action, compile_action
from .values import Truth
from .wire import rule_from_amqp, rule_to_amqp

__all__ = [
    "RULE_NAME_PROPERTY",
    "Action",
    "CompiledFilter",
    "FilterError",
    "FilterException",
    "Match",
    "MessageContext",
    "RuleIndex",
    "Truth",
    "check_rule",
    "compile_action",
    "compile_filter",
    "rule_from_amqp",
    "rule_to_amqp",
]
