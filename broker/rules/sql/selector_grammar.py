"""Message selectors of JMS as text: the grammar, and the parser that turns text into `syntax` [JMS 2.0, 3.8.1].

Knows the language of the specification and what Qpid JMS lets through besides: `%`, names in double quotes, comments
and NULL. Conditions and values share one grammar, because a name alone may be either; the builder tells them apart.
Does not know what names mean (`selector`).
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any, Final, get_args

from ..errors import FilterError
from . import syntax
from .grammar import Builder, error_at, parse_text
from .remembering import remembered

if TYPE_CHECKING:
    from lark import Lark, Token

GRAMMAR: Final = r"""
selector: any_of

?any_of: all_of (_OR all_of)*
?all_of: negation (_AND negation)*
?negation: _NOT negation                        -> negated
         | comparison
?comparison: addition
           | addition (COMPARE | EQUALS) addition             -> comparison
           | addition _IS NULL                                -> is_null
           | addition _IS _NOT NULL                           -> is_not_null
           | addition _BETWEEN addition _AND addition         -> between
           | addition _NOT _BETWEEN addition _AND addition    -> not_between
           | addition _IN items                               -> is_in
           | addition _NOT _IN items                          -> is_not_in
           | addition LIKE addition escape?                   -> like
           | addition _NOT LIKE addition escape?              -> not_like
escape: _ESCAPE addition
items: "(" addition ("," addition)* ")"

?addition: multiplication ((PLUS | MINUS) multiplication)*
?multiplication: factor ((STAR | SLASH | PERCENT) factor)*
?factor: (PLUS | MINUS) factor                  -> signed
       | "(" any_of ")"
       | constant
       | property
constant: INTEGER | DOUBLE | STRING | TRUE | FALSE | NULL
property: NAME | QUOTED

_AND: "AND"i
_OR: "OR"i
_NOT: "NOT"i
_IS: "IS"i
_IN: "IN"i
_BETWEEN: "BETWEEN"i
_ESCAPE: "ESCAPE"i
LIKE: "LIKE"i
NULL: "NULL"i
TRUE: "TRUE"i
FALSE: "FALSE"i
EQUALS.2: "="
COMPARE: "<>" | "<=" | ">=" | "<" | ">"
PLUS: "+"
MINUS: "-"
STAR: "*"
SLASH: "/"
PERCENT: "%"
NAME: /(?:[^\W\d]|\$)(?:\w|\$)*/i
QUOTED: /"[^"]*(?:""[^"]*)*"/
STRING: /'[^']*(?:''[^']*)*'/
DOUBLE.2: /(?:[0-9]+\.[0-9]*|\.[0-9]+)(?:e[+-]?[0-9]+)?[fd]?|[0-9]+e[+-]?[0-9]+[fd]?|[0-9]+[fd](?!\w)/i
INTEGER.2: /0x[0-9a-f]+l?|[0-9]+l?/i
COMMENT.3: /--[^\r\n]*|\/\*(?:[^*]|\*(?!\/))*\*\//
%ignore COMMENT
%ignore /\s+/
"""


@remembered
def parse_selector(text: str) -> syntax.Predicate:
    """Parse a selector. Raises FilterError."""
    predicate: syntax.Predicate = parse_text(_parser, "Selector", text)
    return predicate


@cache
def _parser() -> Lark:
    from lark import Lark

    return Lark(GRAMMAR, start="selector", parser="lalr", lexer="basic", transformer=_SelectorBuilder())


_PREDICATES: Final = get_args(syntax.Predicate)


def _condition(node: Any) -> Any:
    """Return a node as a predicate: a name or a boolean alone is a comparison with TRUE. Raises FilterError."""
    if isinstance(node, _PREDICATES):
        return node
    if isinstance(node, syntax.UserName) or (isinstance(node, syntax.Constant) and isinstance(node.value, bool)):
        return syntax.Comparison("=", node, syntax.Constant(True))
    raise FilterError("a value alone is no condition, unless it is a boolean", line=1, column=1)


def _require_value(node: Any) -> Any:
    """Return a node as an expression. Raises FilterError for a predicate."""
    if isinstance(node, _PREDICATES):
        raise FilterError("a condition stands where a value is expected", line=1, column=1)
    return node


class _SelectorBuilder(Builder):
    """The parser's callbacks, where selectors differ from SQL filters."""

    def selector(self, children: list[Any]) -> Any:
        return _condition(children[0])

    def any_of(self, children: list[Any]) -> Any:
        return syntax.AnyOf(tuple(map(_condition, children)))

    def all_of(self, children: list[Any]) -> Any:
        return syntax.All(tuple(map(_condition, children)))

    def negated(self, children: list[Any]) -> Any:
        return super().negated([_condition(children[0])])

    def comparison(self, children: list[Any]) -> Any:
        left, operator, right = children
        return syntax.Comparison(str(operator), _require_value(left), _require_value(right))

    def is_null(self, children: list[Any]) -> Any:
        return syntax.IsNull(_name(children[0], "IS NULL"))

    def is_not_null(self, children: list[Any]) -> Any:
        return syntax.Not(self.is_null(children))

    def between(self, children: list[Any]) -> Any:
        value, low, high = map(_require_value, children)
        return syntax.All((syntax.Comparison(">=", value, low), syntax.Comparison("<=", value, high)))

    def not_between(self, children: list[Any]) -> Any:
        return syntax.Not(self.between(children))

    def is_in(self, children: list[Any]) -> Any:
        name, items = children
        return syntax.AnyOf(
            tuple(syntax.Comparison("=", _name(name, "IN"), _require_string(item, "IN")) for item in items)
        )

    def is_not_in(self, children: list[Any]) -> Any:
        return syntax.Not(self.is_in(children))

    def like(self, children: list[Any]) -> Any:
        name, keyword, pattern, *escape = children
        character = _require_string(escape[0], "ESCAPE") if escape else None
        return syntax.Like(
            _name(name, "LIKE"), _require_string(pattern, "LIKE"), character, keyword.line or 1, keyword.column or 1
        )

    def addition(self, children: list[Any]) -> Any:
        return super().addition(
            [each if position % 2 else _require_value(each) for position, each in enumerate(children)]
        )

    multiplication = addition

    def signed(self, children: list[Any]) -> Any:
        sign, operand = children
        return super().signed([sign, _require_value(operand)])

    def constant(self, children: list[Any]) -> Any:
        token = children[0]
        if token.type == "INTEGER":
            return syntax.Constant(_integer(token), token.line, token.column)
        if token.type == "DOUBLE":
            token = token.update(value=token.rstrip("fFdD"))
        return super().constant([token])

    def property(self, children: list[Any]) -> Any:
        token = children[0]
        name = str(token)
        if token.type == "QUOTED":
            name = name[1:-1].replace('""', '"')
            if not name:
                raise error_at(token, "the name of a property is empty")
        return syntax.UserName(name)


def _name(node: Any, keyword: str) -> syntax.UserName:
    if not isinstance(node, syntax.UserName):
        raise FilterError(f"the left side of {keyword} must be the name of a property", line=1, column=1)
    return node


def _require_string(node: Any, keyword: str) -> syntax.Constant:
    if not isinstance(node, syntax.Constant) or not isinstance(node.value, str):
        raise FilterError(f"{keyword} takes strings only", line=1, column=1)
    return node


def _integer(token: Token) -> int:
    """Return the value of a decimal, hexadecimal or octal literal as in Java. Raises FilterError."""
    digits = token.lower().rstrip("l")
    base = 16 if digits.startswith("0x") else 8 if digits.startswith("0") else 10
    try:
        value = int(digits, base)
    except ValueError:  # an octal literal with the digit 8 or 9, or thousands of digits
        value = 2**64
    if value > 2**63:
        raise error_at(token, f"'{token[:40]}' is no integer of 64 bits")
    return value
