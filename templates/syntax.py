"""The syntax of the expressions in a template: `[concat(parameters('a'), '/', copyIndex())]` read into a tree.

Knows no function. A text is an expression if it starts with `[` and ends with `]`; `[[` at its start is one bracket.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

from .values import NUMBER_MAX, Unresolved, quoted

EXPRESSION_CHARS_MAX: Final = 24_576
"""As in the service (template limits: "24,576 characters in a template expression")."""
NESTED_MAX: Final = 64
"""Calls in each other."""
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+(?:\.\d+)?)|(?P<name>[A-Za-z_$][\w$]*)|(?P<sign>\?\.|[()\[\],.?]))"
)


@dataclass(frozen=True, slots=True)
class Literal:
    value: object


@dataclass(frozen=True, slots=True)
class Call:
    """A function and its arguments; the name is lower-case, with its namespace if it has one."""

    name: str
    written: str
    arguments: tuple[Expression, ...]


@dataclass(frozen=True, slots=True)
class Item:
    """A member of an object or an item of a list; null if it is absent and `is_safe`."""

    of: Expression
    key: Expression
    is_safe: bool = False


Expression = Literal | Call | Item


def is_expression(text: str) -> bool:
    return text.startswith("[") and text.endswith("]") and not text.startswith("[[")


def literal_of(text: str) -> str:
    """A text that is no expression."""
    return text[1:] if text.startswith("[[") else text


def parse(text: str) -> Expression:
    """The tree of an expression without its brackets. Unresolved."""
    if len(text) > EXPRESSION_CHARS_MAX:
        raise Unresolved(f"the expression {quoted(text)} has more than {EXPRESSION_CHARS_MAX} characters")
    return _Parser(text).whole()


class _Parser:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = list(self._split(text))
        self._at = 0
        self._depth = 0

    def whole(self) -> Expression:
        found = self._expression()
        if self._at < len(self._tokens):
            raise self._unreadable(f"{quoted(self._tokens[self._at][1])} is left over")
        return found

    def _unreadable(self, why: str) -> Unresolved:
        return Unresolved(f"the expression {quoted(self._text)} can't be read: {why}")

    def _split(self, text: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        at, end = 0, len(text.rstrip())
        while at < end:
            match = _TOKEN.match(text, at)
            if match is None:
                raise self._unreadable(f"{quoted(text[at : at + 20])} is no part of one")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        return found

    def _expression(self) -> Expression:
        self._depth += 1
        if self._depth > NESTED_MAX:
            raise self._unreadable(f"it has more than {NESTED_MAX} calls in each other")
        kind, text = self._next()
        if kind == "text":
            found: Expression = Literal(text[1:-1].replace("''", "'"))
        elif kind == "number":
            found = Literal(self._number(text))
        elif kind == "name":
            while self._take("."):
                text += "." + self._next()[1]
            self._expect("(")
            found = Call(text.lower(), text, self._arguments())
        else:
            raise self._unreadable(f"{quoted(text)} starts no value")
        while True:
            if self._take("."):
                found = Item(found, Literal(self._next()[1]))
            elif self._take("?."):
                found = Item(found, Literal(self._next()[1]), is_safe=True)
            elif self._take("["):
                is_safe = self._take("?")
                found = Item(found, self._expression(), is_safe=is_safe)
                self._expect("]")
            else:
                self._depth -= 1
                return found

    def _arguments(self) -> tuple[Expression, ...]:
        found: list[Expression] = []
        while not self._take(")"):
            if found:
                self._expect(",")
            found.append(self._expression())
        return tuple(found)

    def _number(self, text: str) -> object:
        if "." in text:
            return float(text)
        number = int(text) if len(text) < 21 else NUMBER_MAX
        if not -NUMBER_MAX <= number < NUMBER_MAX:
            raise self._unreadable("a whole number has at most 64 bits")
        return number

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise self._unreadable("it ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise self._unreadable(f"'{sign}' is missing")
