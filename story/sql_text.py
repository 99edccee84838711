"""The text of a part of a SQL filter, and the properties that it reads.

Knows how each node of the syntax tree is written. Does not evaluate. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import assert_never

from ..broker.rules.sql import syntax

Node = syntax.Predicate | syntax.Expression


def text_of(node: Node) -> str:
    """A part of a filter as SQL; parentheses stand wherever they could be needed."""
    match node:
        case syntax.Constant(value):
            return _constant(value)
        case syntax.Parameter(name):
            return f"@{name}"
        case syntax.SystemName(name):
            return f"sys.{name}"
        case syntax.UserName(name):
            return name
        case syntax.NewId():
            return "newid()"
        case syntax.PropertyCall(argument):
            return f"property({text_of(argument)})"
        case syntax.Signed(negative, operand):
            return f"{'-' if negative else '+'}{_in_parentheses(operand)}"
        case syntax.Chain(first, rest):
            return " ".join([_in_parentheses(first), *(f"{sign} {_in_parentheses(operand)}" for sign, operand in rest)])
        case _:
            return _predicate(node)


def _predicate(node: syntax.Predicate) -> str:
    match node:
        case syntax.Comparison(operator, left, right):
            return f"{_in_parentheses(left)} {operator} {_in_parentheses(right)}"
        case syntax.IsNull(name):
            return f"{text_of(name)} IS NULL"
        case syntax.Exists(name):
            return f"EXISTS ({text_of(name)})"
        case syntax.In(left, items):
            return f"{_in_parentheses(left)} IN ({', '.join(map(text_of, items))})"
        case syntax.Like(left, pattern, escape):
            tail = "" if escape is None else f" ESCAPE {text_of(escape)}"
            return f"{_in_parentheses(left)} LIKE {text_of(pattern)}{tail}"
        case syntax.Not(operand):
            return f"NOT {_in_parentheses(operand)}"
        case syntax.All(items):
            return " AND ".join(map(_in_parentheses, items))
        case syntax.AnyOf(items):
            return " OR ".join(map(_in_parentheses, items))


def _in_parentheses(node: Node) -> str:
    text = text_of(node)
    return f"({text})" if isinstance(node, syntax.Chain | syntax.All | syntax.AnyOf) else text


def _constant(value: bool | int | float | str | None) -> str:
    if value is None:
        return "NULL"
    if isinstance(value, bool):
        return "TRUE" if value else "FALSE"
    return "'" + value.replace("'", "''") + "'" if isinstance(value, str) else str(value)


def names_in(node: Node) -> Iterator[syntax.Property]:
    """The properties that a part of a filter reads, each as often as it reads it."""
    match node:
        case syntax.SystemName() | syntax.UserName():
            yield node
        case syntax.Signed(_, inner) | syntax.PropertyCall(inner) | syntax.Not(inner):
            yield from names_in(inner)
        case syntax.Chain(first, rest):
            for each in (first, *(operand for _, operand in rest)):
                yield from names_in(each)
        case syntax.Comparison(_, left, right):
            yield from (*names_in(left), *names_in(right))
        case syntax.IsNull(name) | syntax.Exists(name):
            yield name
        case syntax.In(left, items):
            for each in (left, *items):
                yield from names_in(each)
        case syntax.Like(left, pattern, escape):
            for each in (left, pattern) if escape is None else (left, pattern, escape):
                yield from names_in(each)
        case syntax.All(items) | syntax.AnyOf(items):
            for item in items:
                yield from names_in(item)
        case syntax.Constant() | syntax.Parameter() | syntax.NewId():
            pass
        case _:
            assert_never(node)
