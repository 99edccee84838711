"""The SQL compiler: `syntax` to closures [wire 10.9].

Knows scopes, parameters, three-valued logic and constant folding; `values` defines the operators. AND and OR evaluate
from left to right and stop as soon as the result is certain; comparison, LIKE and arithmetic evaluate all operands.
Nesting is limited, so that compilation and evaluation stay far below Python's recursion limit.

A compiler object serves one filter or one statement; the closures are immutable.
"""

from __future__ import annotations

import operator
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, cast

from ...ids import new_tracking_id
from ...model.descriptions import PropertyValue
from ..compiled import CompiledFilter, Equality, Space, Test, all_of
from ..context import MessageContext
from ..errors import FilterError, FilterException
from ..values import (
    ARITHMETIC,
    COMPARISONS,
    Truth,
    Value,
    compare,
    equality_key,
    from_description,
    is_equal_by_key,
    negate,
    plus,
)
from . import syntax
from .grammar import parse_filter
from .patterns import Pattern, like_pattern

NESTING_MAX: Final = 100
"""The maximum depth of the syntax tree: parentheses, functions, NOT."""

Read = Callable[[MessageContext], Value]
_NO_MESSAGE: Final = cast(MessageContext, None)  # the context of constants, which read nothing


@dataclass(frozen=True, slots=True)
class Compiled:
    """A closure; whether its result is constant, and whether it never raises on a readable message."""

    evaluate: Callable[[MessageContext], Any]
    is_constant: bool
    is_safe: bool


def _folded(evaluate: Callable[[MessageContext], Any], parts: list[Compiled], *, is_safe: bool = True) -> Compiled:
    """Return the closure over `parts`, folded if all of them are constant."""
    is_safe = is_safe and all(part.is_safe for part in parts)
    if all(part.is_constant for part in parts):
        try:
            value = evaluate(_NO_MESSAGE)
        except FilterException:
            return Compiled(evaluate, False, False)  # it must fail at evaluation, not here
        return Compiled(lambda _: value, True, True)
    return Compiled(evaluate, False, is_safe)


class Compiler:
    """Compiles one filter or statement, and collects the properties that it reads."""

    def __init__(self, parameters: Mapping[str, PropertyValue], compilers: Compilers | None = None) -> None:
        self._compilers = COMPILERS if compilers is None else compilers
        self._parameters = {name.lstrip("@").lower(): value for name, value in parameters.items()}
        self._depth = 0
        self.system_names: set[str] = set()
        self.reads_user = False

    def compile(self, node: syntax.Predicate | syntax.Expression) -> Compiled:
        """Compile a node: a predicate returns a truth, an expression a value. Raises FilterError."""
        if self._depth >= NESTING_MAX:
            raise FilterError(f"the expression is nested deeper than {NESTING_MAX} levels")
        self._depth += 1
        compiled = self._compilers[type(node)](self, node)
        self._depth -= 1
        return compiled

    # ------------------------------------------------------------ expressions

    def _constant(self, node: syntax.Constant) -> Compiled:
        value = node.value
        if type(value) is int and value >= 2**63:
            raise FilterError(
                f"'{value}' does not fit a 64-bit integer", line=node.line, column=node.column, token=str(value)
            )
        return Compiled(lambda _: value, True, True)

    def _parameter(self, node: syntax.Parameter) -> Compiled:
        where = partial(FilterError, line=node.line, column=node.column, token=f"@{node.name}")
        if node.name.lower() not in self._parameters:
            raise where(f"the parameter @{node.name:.80} has no value")
        try:
            value = from_description(self._parameters[node.name.lower()])
        except ValueError as error:
            raise where(f"the parameter @{node.name:.80}: {error}") from None
        return Compiled(lambda _: value, True, True)

    def _system_name(self, node: syntax.SystemName) -> Compiled:
        name = node.name
        self.system_names.add(name)
        return Compiled(lambda context: context.system(name), False, True)

    def _user_name(self, node: syntax.UserName) -> Compiled:
        key = node.name.lower()
        self.reads_user = True
        return Compiled(lambda context: context.folded().get(key), False, True)

    def _new_id(self, _node: syntax.NewId) -> Compiled:
        return Compiled(lambda _: uuid.UUID(new_tracking_id()), False, True)

    def _property_call(self, node: syntax.PropertyCall) -> Compiled:
        argument = self.compile(node.argument)
        self.reads_user = True
        read = argument.evaluate

        def evaluate(context: MessageContext) -> Value:
            name = read(context)
            return property_named(name, context.folded()) if type(name) is str else None

        return Compiled(evaluate, False, argument.is_safe)

    def _signed(self, node: syntax.Signed) -> Compiled:
        operand = self.compile(node.operand)
        read = operand.evaluate
        sign = negate if node.negative else plus
        return _folded(lambda context: sign(read(context)), [operand], is_safe=False)  # a span may be too long

    def _chain(self, node: syntax.Chain) -> Compiled:
        first = self.compile(node.first)
        rest = [self.compile(operand) for _, operand in node.rest]
        start = first.evaluate
        steps = [(ARITHMETIC[sign], operand.evaluate) for (sign, _), operand in zip(node.rest, rest, strict=True)]

        def evaluate(context: MessageContext) -> Value:
            value: Value = start(context)
            for apply, read in steps:
                value = apply(value, read(context))
            return value

        # Division by zero raises, and what is too large: a string, a decimal, a date, a span.
        return _folded(evaluate, [first, *rest], is_safe=False)

    # ------------------------------------------------------------ predicates

    def _comparison(self, node: syntax.Comparison) -> Compiled:
        left, right = self.compile(node.left), self.compile(node.right)
        test = COMPARISONS[node.operator]
        first, second = left.evaluate, right.evaluate
        if right.is_constant and not left.is_constant:
            value = second(_NO_MESSAGE)
            if type(value) is str:
                return Compiled(_compare_with_text(test, first, value), False, left.is_safe)
        return _folded(lambda context: compare(test, first(context), second(context)), [left, right])

    def _is_null(self, node: syntax.IsNull) -> Compiled:
        read = self.compile(node.property).evaluate
        return Compiled(lambda context: read(context) is None, False, True)

    def _exists(self, node: syntax.Exists) -> Compiled:
        self.compile(node.property)
        if isinstance(node.property, syntax.SystemName):
            name = node.property.name
            return Compiled(lambda context: context.system(name) is not None, False, True)
        key = node.property.name.lower()
        return Compiled(lambda context: key in context.folded(), False, True)

    def _is_in(self, node: syntax.In) -> Compiled:
        left = self.compile(node.left)
        items = [self.compile(item) for item in node.items]
        read, reads = left.evaluate, [item.evaluate for item in items]

        def evaluate(context: MessageContext) -> Truth:
            value = read(context)
            if value is None:
                return None
            truth: Truth = False
            for read_item in reads:
                each = compare(operator.eq, value, read_item(context))
                if each:
                    return True
                if each is None:
                    truth = None
            return truth

        return _folded(evaluate, [left, *items])

    def _like(self, node: syntax.Like) -> Compiled:
        """LIKE: a constant pattern is prepared once, and null where it can't match; any other one at each message.

        Only the latter can fail at a message, so only it is unsafe for the index to skip.
        """
        left, pattern = self.compile(node.left), self.compile(node.pattern)
        escape = self.compile(node.escape) if node.escape is not None else Compiled(lambda _: None, True, True)
        has_escape = node.escape is not None
        read, read_pattern, read_escape = left.evaluate, pattern.evaluate, escape.evaluate
        if pattern.is_constant and escape.is_constant:
            ready = _constant_pattern(node, read_pattern(_NO_MESSAGE), read_escape(_NO_MESSAGE))
            if ready is None:
                return _folded(lambda context: _nothing(read(context)), [left])
            return _folded(_constant_like(ready, read), [left])

        def evaluate(context: MessageContext) -> Truth:
            value, text, character = read(context), read_pattern(context), read_escape(context)
            if not isinstance(value, str) or not isinstance(text, str):
                return None
            if has_escape and not isinstance(character, str):
                return None
            try:
                return like_pattern(text, cast("str | None", character)).matches(value)
            except ValueError as error:
                raise FilterException(f"LIKE: {error}") from None

        return _folded(evaluate, [left, pattern, escape], is_safe=False)

    def _negation(self, node: syntax.Not) -> Compiled:
        operand = self.compile(node.operand)
        test = operand.evaluate

        def evaluate(context: MessageContext) -> Truth:
            truth = test(context)
            return None if truth is None else not truth

        return _folded(evaluate, [operand])

    def _all(self, node: syntax.All) -> Compiled:
        parts = [self.compile(item) for item in node.items]
        return _folded(all_of([part.evaluate for part in parts]), parts)

    def _any(self, node: syntax.AnyOf) -> Compiled:
        parts = [self.compile(item) for item in node.items]
        tests = [part.evaluate for part in parts]

        def evaluate(context: MessageContext) -> Truth:
            truth: Truth = False
            for test in tests:
                each = test(context)
                if each:
                    return True
                if each is None:
                    truth = None
            return truth

        return _folded(evaluate, parts)


Compilers = Mapping[type, Callable[[Any, Any], Compiled]]
"""The method for each type of node."""
COMPILERS: Final[Compilers] = {
    syntax.Constant: Compiler._constant,
    syntax.Parameter: Compiler._parameter,
    syntax.SystemName: Compiler._system_name,
    syntax.UserName: Compiler._user_name,
    syntax.NewId: Compiler._new_id,
    syntax.PropertyCall: Compiler._property_call,
    syntax.Signed: Compiler._signed,
    syntax.Chain: Compiler._chain,
    syntax.Comparison: Compiler._comparison,
    syntax.IsNull: Compiler._is_null,
    syntax.Exists: Compiler._exists,
    syntax.In: Compiler._is_in,
    syntax.Like: Compiler._like,
    syntax.Not: Compiler._negation,
    syntax.All: Compiler._all,
    syntax.AnyOf: Compiler._any,
}


def property_named(name: str, properties: Mapping[str, Value]) -> Value:
    """Return what `property(name)` finds: an application property, never a system one.

    A user of the service read no system property by it under any name (MicrosoftDocs/azure-docs, thread 87667).
    `properties` has lower-case names.
    """
    key = name.lower()
    return properties[key] if key in properties else properties.get(key.removeprefix("user."))


def _compare_with_text(test: Callable[[Any, Any], bool], read: Read, text: str) -> Test:
    def evaluate(context: MessageContext) -> Truth:
        value = read(context)
        return test(value, text) if type(value) is str else compare(test, value, text)

    return evaluate


def _constant_pattern(node: syntax.Like, pattern: Value, escape: Value) -> Pattern | None:
    """Return the pattern, None if it or its escape is NULL. Raises FilterError."""
    if pattern is None or (node.escape is not None and escape is None):
        return None
    problem = "the pattern of LIKE must be a string" if type(pattern) is not str else ""
    problem = problem or ("the ESCAPE of LIKE must be a string" if type(escape) not in (str, type(None)) else "")
    if not problem:
        try:
            return like_pattern(cast(str, pattern), cast("str | None", escape))
        except ValueError as error:
            problem = str(error)
    raise FilterError(problem, line=node.line, column=node.column, token="LIKE")


def _constant_like(pattern: Pattern, read: Callable[[MessageContext], Value]) -> Callable[[MessageContext], Truth]:
    matches = pattern.matches

    def evaluate(context: MessageContext) -> Truth:
        value = read(context)
        return matches(value) if isinstance(value, str) else None

    return evaluate


def _nothing(_value: Value) -> Truth:
    return None


# ---------------------------------------------------------------- whole filters


def compile_sql(text: str, parameters: Mapping[str, PropertyValue]) -> CompiledFilter:
    """Compile a SQL filter. Raises FilterError."""
    predicate = parse_filter(text)
    compiler = Compiler(parameters)
    items = predicate.items if isinstance(predicate, syntax.All) else (predicate,)
    try:
        parts = [compiler.compile(item) for item in items]
    except FilterError as error:
        raise FilterError(
            f"SQL filter: {error.problem}", line=error.line, column=error.column, token=error.token
        ) from None
    conditions = tuple(part.evaluate for part in parts)
    test = all_of(conditions)
    if all(part.is_constant for part in parts):
        return CompiledFilter(test, test(_NO_MESSAGE) is True)
    return CompiledFilter(
        test,
        conditions=conditions,
        equalities=_equalities(compiler, items) if all(part.is_safe for part in parts) else (),
        system_names=frozenset(compiler.system_names),
        reads_user=compiler.reads_user,
    )


def _equalities(compiler: Compiler, items: tuple[syntax.Predicate, ...]) -> tuple[Equality, ...]:
    """Return the operands of an AND that compare a property with a constant."""
    found = []
    for position, item in enumerate(items):
        match item:
            case syntax.Comparison("=", syntax.SystemName() | syntax.UserName() as name, other):
                pass
            case syntax.Comparison("=", other, syntax.SystemName() | syntax.UserName() as name):
                pass
            case _:
                continue
        value = compiler.compile(other)
        expected: Value = value.evaluate(_NO_MESSAGE) if value.is_constant else None
        if expected is None:
            continue
        is_system = isinstance(name, syntax.SystemName)
        space, key = (Space.SYSTEM, name.name) if is_system else (Space.FOLDED, name.name.lower())
        found.append(Equality(space, key, equality_key(expected), position if is_equal_by_key(expected) else None))
    return tuple(found)
