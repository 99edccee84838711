"""Why a part of a filter is UNKNOWN: the smallest part with operands that its operator does not take.

Evaluates the parts again. Knows the syntax tree and the kinds of values. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from ..broker.rules.context import MessageContext
from ..broker.rules.sql import syntax
from ..broker.rules.sql.compiler import Compiler
from ..broker.rules.values import ARITHMETIC, COMPARISONS, Value, compare, kind_text
from .sql_text import Node, text_of


def why_unknown(node: Node, compiler: Compiler, context: MessageContext) -> str:
    """Return the first reason for which a part is UNKNOWN or NULL, "" if it is neither. Raises FilterException."""
    return next(_Search(compiler, context).reasons(node), "")


def absence(node: syntax.Property, context: MessageContext) -> str:
    """Say of a property without a value whether it is null or not there."""
    is_null = isinstance(node, syntax.UserName) and node.name.lower() in context.folded()
    return "is null" if is_null else "is not set"


def operator_refusal_text(sign: str, left: Value, right: Value) -> str:
    """Say that an operator does not take two values."""
    return f"there is no {sign} for {kind_text(left)} and {kind_text(right)}"


class _Search:
    """Looks for reasons in a filter, with one message; the operands come before their operator."""

    def __init__(self, compiler: Compiler, context: MessageContext) -> None:
        self._compiler = compiler
        self._context = context

    def reasons(self, *nodes: Node) -> Iterator[str]:
        for node in nodes:
            yield from _SEARCHES[type(node)](self, node)

    def _value(self, node: Node) -> Value:
        value: Value = self._compiler.compile(node).evaluate(self._context)
        return value

    def constant(self, node: syntax.Constant | syntax.Parameter | syntax.NewId) -> Iterator[str]:
        if self._value(node) is None:
            yield f"{text_of(node)} is null"

    def property(self, node: syntax.Property) -> Iterator[str]:
        if self._value(node) is None:
            yield f"{text_of(node)} {absence(node, self._context)}"

    def call(self, node: syntax.PropertyCall) -> Iterator[str]:
        yield from self.reasons(node.argument)
        if self._value(node) is not None:
            return
        name = self._value(node.argument)
        if not isinstance(name, str):
            yield f"property() takes a string, and {text_of(node.argument)} is {kind_text(name)}"
        elif name.lower().startswith("sys."):
            yield f"property() reads no system property, and no application property is named '{name}'"
        else:
            yield f"no application property '{name}' is set"

    def signed(self, node: syntax.Signed) -> Iterator[str]:
        yield from self.reasons(node.operand)
        if self._value(node) is None:
            yield f"there is no {'-' if node.negative else '+'} for {kind_text(self._value(node.operand))}"

    def chain(self, node: syntax.Chain) -> Iterator[str]:
        yield from self.reasons(node.first, *(operand for _, operand in node.rest))
        left = self._value(node.first)
        for sign, operand in node.rest:
            right = self._value(operand)
            result = ARITHMETIC[sign](left, right)
            if result is None:
                yield operator_refusal_text(sign, left, right)
                return
            left = result

    def comparison(self, node: syntax.Comparison) -> Iterator[str]:
        yield from self.reasons(node.left, node.right)
        left, right = self._value(node.left), self._value(node.right)
        if compare(COMPARISONS[node.operator], left, right) is None:
            yield operator_refusal_text(node.operator, left, right)

    def is_in(self, node: syntax.In) -> Iterator[str]:
        yield from self.reasons(node.left, *node.items)
        left = self._value(node.left)
        for right in map(self._value, node.items):
            if compare(operator.eq, left, right) is None:
                yield operator_refusal_text("=", left, right)

    def like(self, node: syntax.Like) -> Iterator[str]:
        parts = [node.left, node.pattern, *([] if node.escape is None else [node.escape])]
        yield from self.reasons(*parts)
        for part in parts:
            value = self._value(part)
            if not isinstance(value, str):
                yield f"LIKE takes strings, and {text_of(part)} is {kind_text(value)}"

    def negation(self, node: syntax.Not) -> Iterator[str]:
        return self.reasons(node.operand)

    def several(self, node: syntax.All | syntax.AnyOf) -> Iterator[str]:
        return self.reasons(*(item for item in node.items if self._value(item) is None))

    def never_unknown(self, _node: syntax.IsNull | syntax.Exists) -> Iterator[str]:
        return iter(())


_SEARCHES: Final[Mapping[type, Callable[[Any, Any], Iterator[str]]]] = {
    syntax.Constant: _Search.constant,
    syntax.Parameter: _Search.constant,
    syntax.NewId: _Search.constant,
    syntax.SystemName: _Search.property,
    syntax.UserName: _Search.property,
    syntax.PropertyCall: _Search.call,
    syntax.Signed: _Search.signed,
    syntax.Chain: _Search.chain,
    syntax.Comparison: _Search.comparison,
    syntax.In: _Search.is_in,
    syntax.Like: _Search.like,
    syntax.Not: _Search.negation,
    syntax.All: _Search.several,
    syntax.AnyOf: _Search.several,
    syntax.IsNull: _Search.never_unknown,
    syntax.Exists: _Search.never_unknown,
}
