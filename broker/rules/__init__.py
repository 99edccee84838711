"""Subscription rules: SQL filters, SQL actions, correlation filters, and the index of a topic's rules [wire 10.9].

A filter is compiled once, from its description to a closure, and evaluated with a `MessageContext` per message. The
result is TRUE, FALSE or UNKNOWN; only TRUE matches. An action is compiled to steps that change a draft; properties that
the action does not name keep their bytes. The `RuleIndex` holds the rules of all subscriptions of a topic and returns
the copies of a message for each of them.

The path of a text: `grammar` (text to `syntax`), `compiler` (syntax to closures), `values` and `patterns` (operators),
`context` (the message). An invalid rule raises `FilterError` when it is created; a rule that fails on a message raises
`FilterException` when it is evaluated. `sql/` is imported for the first SQL text: most namespaces have none.
"""

from .compiled import CompiledFilter
from .context import MessageContext
from .errors import FilterError, FilterException
from .filters import check_rule, compile_filter
from .index import Match, RuleIndex
from .values import Truth
from .wire import rule_from_amqp, rule_to_amqp

__all__ = [
    "CompiledFilter",
    "FilterError",
    "FilterException",
    "Match",
    "MessageContext",
    "RuleIndex",
    "Truth",
    "check_rule",
    "compile_filter",
    "rule_from_amqp",
    "rule_to_amqp",
]
