"""SQL filters and SQL actions as text: the grammar, and the parsers that turn text into `syntax` [wire 10.9].

Knows the documented language and the texts of syntax errors. Does not know the meaning of a filter and its parameters.
A syntax error is a `FilterError` with line and column; parsing needs no recursion and takes linear time.

The first text imports the parser generator and builds its tables. That takes about as long as the rest of the start,
and a namespace without SQL rules never needs it. The parsers are shared.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Collection, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING, Any, Final

from ..errors import FilterError
from ..names import system_property, unknown_system_property
from . import syntax
from .remembering import remembered

if TYPE_CHECKING:
    from lark import Lark, Token
    from lark.exceptions import UnexpectedInput

_TOKEN_SHOWN_CHARS_MAX: Final = 40

GRAMMAR: Final = r"""
filter: any_of

?any_of: all_of (_OR all_of)*
?all_of: negation (_AND negation)*
?negation: _NOT negation                        -> negated
         | condition
?condition: "(" any_of ")"
          | expression (COMPARE | EQUALS) expression  -> comparison
          | property _IS NULL                   -> is_null
          | property _IS _NOT NULL              -> is_not_null
          | expression _IN items                -> is_in
          | expression _NOT _IN items           -> is_not_in
          | expression LIKE expression escape?        -> like
          | expression _NOT LIKE expression escape?   -> not_like
          | _EXISTS "(" property ")"            -> exists
escape: _ESCAPE expression
items: "(" expression ("," expression)* ")"

?expression: addition
?addition: multiplication ((PLUS | MINUS) multiplication)*
?multiplication: factor ((STAR | SLASH | PERCENT) factor)*
?factor: (PLUS | MINUS) factor                  -> signed
       | "(" expression ")"
       | constant
       | property
       | NAME "(" [expression] ")"              -> call
       | PARAMETER                              -> parameter
constant: INTEGER | DOUBLE | STRING | TRUE | FALSE | NULL
property: [NAME "."] (NAME | BRACKETED | QUOTED)

action: statement ((";" | ",")? statement)* ";"?
?statement: SET property EQUALS expression      -> set_property
          | REMOVE property                     -> remove_property

_AND: "AND"i
_OR: "OR"i
_NOT: "NOT"i
_IS: "IS"i
_IN: "IN"i
_EXISTS: "EXISTS"i
_ESCAPE: "ESCAPE"i
LIKE: "LIKE"i
NULL: "NULL"i
TRUE: "TRUE"i
FALSE: "FALSE"i
SET: "SET"i
REMOVE: "REMOVE"i
EQUALS.2: "="
COMPARE: "<>" | "!=" | "<=" | ">=" | "<" | ">"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
NAME: /[^\W\d_]\w*/i
BRACKETED: /\[[^\]]*(?:\]\][^\]]*)*\]/
QUOTED: /"[^"]*(?:""[^"]*)*"/
STRING: /'[^']*(?:''[^']*)*'/
DOUBLE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?|[0-9]+e[+-]?[0-9]+/i
INTEGER: /[0-9]+/
PARAMETER: /@[^\W\d]\w*/
%ignore /\s+/
"""


@remembered
def parse_filter(text: str) -> syntax.Predicate:
    """Parse a SQL filter. Raises FilterError."""
    predicate: syntax.Predicate = parse_text(partial(_parser, "filter"), "SQL filter", text)
    return predicate


@remembered
def parse_action(text: str) -> tuple[syntax.Statement, ...]:
    """Parse a SQL action to one or more statements, in order. Raises FilterError."""
    statements: tuple[syntax.Statement, ...] = parse_text(partial(_parser, "action"), "SQL action", text)
    return statements


def parse_text(parser: Callable[[], Lark], what: str, text: str) -> Any:
    """Parse a text with the parser that `parser()` returns. Raises FilterError; `what` names the text in it."""
    from lark.exceptions import UnexpectedInput

    if not text.strip():
        raise FilterError(f"{what}: the text is empty", line=1, column=1)
    try:
        return parser().parse(text)
    except UnexpectedInput as unexpected:
        raise _syntax_error(what, text, unexpected) from None
    except FilterError as error:
        raise FilterError(f"{what}: {error.problem}", line=error.line, column=error.column, token=error.token) from None


@cache
def _parser(start: str) -> Lark:
    from lark import Lark

    # Keywords are reserved everywhere: the contextual lexer would take `a = in` for a property.
    return Lark(GRAMMAR, start=start, parser="lalr", lexer="basic", transformer=Builder())


# ---------------------------------------------------------------- error texts

_EXPECTED: Final[Mapping[str, str]] = {
    "RPAR": "')'",
    "COMMA": "','",
    "EQUALS": "'='",
    "SEMICOLON": "';'",
    "NULL": "NULL",
    "SET": "SET",
    "REMOVE": "REMOVE",
    "_AND": "AND",
    "_OR": "OR",
    "_NOT": "NOT",
    "_IS": "IS",
    "_IN": "IN",
    "LIKE": "LIKE",
    "_ESCAPE": "ESCAPE",
    "$END": "the end",
}


def _syntax_error(what: str, text: str, unexpected: UnexpectedInput) -> FilterError:
    from lark.exceptions import UnexpectedToken

    if isinstance(unexpected, UnexpectedToken):
        token = unexpected.token
        line, column = (token.line, token.column) if token.type != "$END" else _end_of(text)
        shown = _quoted_token(token) if token.type != "$END" else "the end of the text"
        return FilterError(
            f"{what}: unexpected {shown}; expected {_expected_text(unexpected.accepts or unexpected.expected)}",
            line=line or 1,
            column=column or 1,
            token=str(token),
        )
    position = unexpected.pos_in_stream or 0
    character = text[position : position + 1]
    closing = {"'": "string", '"': "quoted name", "[": "name in brackets"}.get(character)
    problem = f"a {closing} is not closed" if closing else f"unexpected character {character!r}"
    return FilterError(f"{what}: {problem}", line=unexpected.line, column=unexpected.column, token=character)


def _end_of(text: str) -> tuple[int, int]:
    return text.count("\n") + 1, len(text) - text.rfind("\n")


def _expected_text(terminals: Collection[str]) -> str:
    if "NAME" in terminals:
        return "a value" if "INTEGER" in terminals else "a property"
    names = [words for terminal, words in _EXPECTED.items() if terminal in terminals]
    if "COMPARE" in terminals:
        return "a comparison, IN, LIKE or IS: a value alone is no condition"
    return ", ".join(names[:-1]) + " or " + names[-1] if len(names) > 1 else "".join(names) or "'('"


def _quoted_token(token: str) -> str:
    text = str(token)
    return repr(text if len(text) <= _TOKEN_SHOWN_CHARS_MAX else text[:_TOKEN_SHOWN_CHARS_MAX] + "…")


# ---------------------------------------------------------------- from rules to syntax

_FUNCTIONS: Final = ("newid", "property", "p")
_INTEGER_DIGITS_MAX: Final = 19  # of 2^63
_QUOTES: Final[Mapping[str, tuple[str, str]]] = {"BRACKETED": ("]]", "]"), "QUOTED": ('""', '"')}


def error_at(token: Token, problem: str) -> FilterError:
    return FilterError(problem, line=token.line or 1, column=token.column or 1, token=str(token))


class Builder:
    """The parser's callbacks: one method per grammar rule, children in, syntax out."""

    def filter(self, children: list[Any]) -> Any:
        return children[0]

    def any_of(self, children: list[Any]) -> Any:
        return syntax.AnyOf(tuple(children))

    def all_of(self, children: list[Any]) -> Any:
        return syntax.All(tuple(children))

    def negated(self, children: list[Any]) -> Any:
        operand = children[0]
        return operand.operand if isinstance(operand, syntax.Not) else syntax.Not(operand)

    def comparison(self, children: list[Any]) -> Any:
        left, operator, right = children
        return syntax.Comparison(str(operator), left, right)

    def is_null(self, children: list[Any]) -> Any:
        return syntax.IsNull(children[0])

    def is_not_null(self, children: list[Any]) -> Any:
        return syntax.Not(syntax.IsNull(children[0]))

    def is_in(self, children: list[Any]) -> Any:
        return syntax.In(*children)

    def is_not_in(self, children: list[Any]) -> Any:
        return syntax.Not(syntax.In(*children))

    def items(self, children: list[Any]) -> Any:
        return tuple(children)

    def like(self, children: list[Any]) -> Any:
        left, keyword, pattern, *escape = children
        return syntax.Like(left, pattern, escape[0] if escape else None, keyword.line, keyword.column)

    def not_like(self, children: list[Any]) -> Any:
        return syntax.Not(self.like(children))

    def escape(self, children: list[Any]) -> Any:
        return children[0]

    def exists(self, children: list[Any]) -> Any:
        return syntax.Exists(children[0])

    def addition(self, children: list[Any]) -> Any:
        operators, operands = children[1::2], children[2::2]
        return syntax.Chain(children[0], tuple(zip(map(str, operators), operands, strict=True)))

    multiplication = addition

    def signed(self, children: list[Any]) -> Any:
        sign, operand = children
        negative = sign == "-"
        if isinstance(operand, syntax.Signed):
            return syntax.Signed(negative != operand.negative, operand.operand)
        if isinstance(operand, syntax.Constant) and type(operand.value) in (int, float):
            value = -operand.value if negative and operand.value != -(2**63) else operand.value  # type: ignore[operator]
            return syntax.Constant(value, operand.line, operand.column)
        return syntax.Signed(negative, operand)

    def call(self, children: list[Any]) -> Any:
        name, argument = children
        function = name.lower()
        if function not in _FUNCTIONS:
            near = difflib.get_close_matches(function, _FUNCTIONS, 1)
            hint = f"; did you mean {near[0]}()?" if near else ""
            raise error_at(name, f"there is no function {_quoted_token(name)}{hint}")
        if (function == "newid") != (argument is None):
            count = "no argument" if function == "newid" else "one argument"
            raise error_at(name, f"{function}() takes {count}")
        return syntax.NewId() if argument is None else syntax.PropertyCall(argument, name.line, name.column)

    def parameter(self, children: list[Any]) -> Any:
        token = children[0]
        return syntax.Parameter(token[1:], token.line, token.column)

    def constant(self, children: list[Any]) -> Any:
        token = children[0]
        value: bool | int | float | str | None
        match token.type:
            case "INTEGER":
                value = _integer(token)
            case "DOUBLE":
                value = float(token)
                if value == float("inf"):
                    raise error_at(token, f"{_quoted_token(token)} does not fit a double")
            case "STRING":
                value = token[1:-1].replace("''", "'")
            case kind:
                value = {"TRUE": True, "FALSE": False, "NULL": None}[kind]
        return syntax.Constant(value, token.line, token.column)

    def property(self, children: list[Any]) -> Any:
        scope, token = children
        name = str(token)
        if token.type in _QUOTES:
            name = name[1:-1].replace(*_QUOTES[token.type])
            if not name:
                raise error_at(token, "the name of a property is empty")
        if scope is None or scope.lower() == "user":
            return syntax.UserName(name)
        if scope.lower() != "sys":
            raise error_at(scope, f"there is no scope {_quoted_token(scope)}, only sys and user")
        known = system_property(name)
        if known is None:
            raise error_at(token, unknown_system_property(name))
        return syntax.SystemName(known.name, token.line, token.column)

    def action(self, children: list[Any]) -> Any:
        return tuple(children)

    def set_property(self, children: list[Any]) -> Any:
        keyword, name, _, expression = children
        return syntax.Set(name, expression, keyword.line, keyword.column)

    def remove_property(self, children: list[Any]) -> Any:
        keyword, name = children
        return syntax.Remove(name, keyword.line, keyword.column)


def _integer(token: Token) -> int:
    """Return an integer up to 2^63; only a minus in front makes 2^63 valid."""
    digits = token.lstrip("0") or "0"
    value = int(digits) if len(digits) <= _INTEGER_DIGITS_MAX else 2**64
    if value > 2**63:
        raise error_at(token, f"{_quoted_token(token)} does not fit a 64-bit integer")
    return value
