"""The `$filter` of lists: which entities are meant [http 2].

Knows the expressions that NamespaceManager and Service Bus Explorer send, and the service's words for those that it
refuses. Does not know how entities are counted: an `EntityFacts` has what can be asked. Pure.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from ..errors import HttpRefusal, excerpt

FILTER_CHARS_MAX: Final = 1024
DEPTH_MAX: Final = 50
YEAR_1_MS: Final = -62_135_596_800_000
"""What never happened was in the year 1, as in .NET."""


@dataclass(frozen=True, slots=True)
class EntityFacts:
    """What a filter can ask of an entity; instants in Unix ms, None for what has not happened.

    `message_count` is a function, since counting takes a look at the stores.
    """

    path: str
    created_at: int | None
    updated_at: int | None
    accessed_at: int | None
    message_count: Callable[[], int]


Predicate = Callable[[EntityFacts], bool]
Value = str | int | bool


@dataclass(frozen=True, slots=True)
class FilterProperty:
    """A property: how it is read, and how the text of a literal becomes a value of its kind; ValueError."""

    get: Callable[[EntityFacts], Value]
    read: Callable[[str], Value]


def _instant_in(text: str) -> int:
    """An instant (Unix ms) in ISO 8601, or as .NET writes it in the invariant culture; without a zone in UTC."""
    text = re.sub(r"(\.\d{1,6})\d*", r"\1", text.strip())
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = datetime.strptime(text, "%m/%d/%Y %H:%M:%S")
    if at.tzinfo is None:
        at = at.replace(tzinfo=UTC)
    return round((at - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)


def _instant_or_year_1(at: int | None) -> int:
    return YEAR_1_MS if at is None else at


_CREATED: Final = FilterProperty(lambda facts: _instant_or_year_1(facts.created_at), _instant_in)
_UPDATED: Final = FilterProperty(lambda facts: _instant_or_year_1(facts.updated_at), _instant_in)
_ACCESSED: Final = FilterProperty(lambda facts: _instant_or_year_1(facts.accessed_at), _instant_in)
_COUNT: Final = FilterProperty(lambda facts: facts.message_count(), int)
_PATH: Final = FilterProperty(lambda facts: facts.path.lower(), str.lower)

OF_SUBSCRIPTIONS: Final[Mapping[str, FilterProperty]] = {
    "createdat": _CREATED,
    "updatedat": _UPDATED,
    "modifiedat": _UPDATED,
    "lastmodifiedtime": _UPDATED,
    "accessedat": _ACCESSED,
    "messagecount": _COUNT,
}
OF_RULES: Final[Mapping[str, FilterProperty]] = {"createdat": _CREATED}
OF_TOP_LEVEL: Final[Mapping[str, FilterProperty]] = {"path": _PATH, **OF_SUBSCRIPTIONS}

_COMPARISONS: Final[Mapping[str, Callable[[Value, Value], bool]]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "gt": operator.gt,
    "ge": operator.ge,
    "lt": operator.lt,
    "le": operator.le,
}
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<sign>[(),])|(?:datetime)?'(?P<text>(?:[^']|'')*)'|(?P<word>[A-Za-z_]\w*)(?!')|(?P<literal>[0-9+-][^\s(),']*))",
    re.IGNORECASE,
)


@dataclass(frozen=True, slots=True)
class _Token:
    """A word, a sign, or a literal without its quotes; `at` is its place in the filter, from 0."""

    kind: str
    text: str
    at: int


def filter_in(text: str, properties: Mapping[str, FilterProperty]) -> Predicate:
    """The predicate that a filter describes; HttpRefusal (400) in the service's words for one that can't be used.

    The words: ServiceBusExplorer 452, azure-service-bus 15 and 667.
    """
    if len(text) > FILTER_CHARS_MAX:
        raise refusal(f"It is {len(text)} characters long; at most {FILTER_CHARS_MAX} are allowed.")
    return _Parser(text, properties).whole()


def refusal(problem: str) -> HttpRefusal:
    """The answer to a filter that can't be used."""
    return HttpRefusal(400, f"SubCode=40000. Invalid Filter. {problem}")


class _Parser:
    """One filter: comparisons and `startswith(path, 'text') [eq true]`, joined with `and`, `or`, `not`, parentheses."""

    def __init__(self, text: str, properties: Mapping[str, FilterProperty]) -> None:
        self._properties = properties
        self._tokens = self._split(text)
        self._next = 0
        self._depth = 0

    def whole(self) -> Predicate:
        found = self._any_of()
        if self._tokens[self._next].kind != "end":
            raise self._unexpected("Unexpected token.")
        return found

    def _any_of(self) -> Predicate:
        found = self._all_of()
        while self._takes("or"):
            found = _either(found, self._all_of())
        return found

    def _all_of(self) -> Predicate:
        found = self._one()
        while self._takes("and"):
            found = _both(found, self._one())
        return found

    def _one(self) -> Predicate:
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise refusal(f"It is nested more than {DEPTH_MAX} times; write it with fewer parentheses.")
        try:
            if self._takes("not"):
                inner = self._one()
                return lambda facts: not inner(facts)
            if self._takes("("):
                inner = self._any_of()
                self._needs(")")
                return inner
            return self._comparison()
        finally:
            self._depth -= 1

    def _comparison(self) -> Predicate:
        token = self._tokens[self._next]
        if token.kind != "word":
            raise self._unexpected("A property is expected.")
        self._next += 1
        if token.text.lower() == "startswith":
            return self._starts_with()
        known = self._properties.get(token.text.lower())
        if known is None:
            raise refusal(
                f"The specified property '{excerpt(token.text)}' does not exist or is not allowed.\n"
                "Parameter name: propertyName."
            )
        compare = _COMPARISONS.get(self._tokens[self._next].text.lower())
        if compare is None or self._tokens[self._next].kind != "word":
            raise self._unexpected(f"One of {', '.join(_COMPARISONS)} is expected.")
        self._next += 1
        value = self._value(known)
        return lambda facts: compare(known.get(facts), value)

    def _starts_with(self) -> Predicate:
        """`startswith(path, '…')`, alone or compared with a boolean, as NamespaceManager writes it: `… eq true`."""
        if "path" not in self._properties:
            raise refusal("StartsWith is not allowed in the filter expression.")
        self._needs("(")
        name = self._tokens[self._next].text
        if name.lower() != "path":
            raise refusal(
                f"The specified property '{excerpt(name)}' does not exist or is not allowed.\n"
                "Parameter name: propertyName."
            )
        self._next += 1
        self._needs(",")
        start = str(self._value(_PATH))
        self._needs(")")
        wanted = True
        if self._tokens[self._next].text.lower() in ("eq", "ne"):
            is_equal = self._tokens[self._next].text.lower() == "eq"
            self._next += 1
            answer = self._tokens[self._next].text.lower()
            if answer not in ("true", "false"):
                raise self._unexpected("true or false is expected.")
            self._next += 1
            wanted = is_equal == (answer == "true")
        return lambda facts: facts.path.lower().startswith(start) == wanted

    def _value(self, known: FilterProperty) -> Value:
        token = self._tokens[self._next]
        if token.kind not in ("text", "literal"):
            raise self._unexpected("A value is expected.")
        try:
            value = known.read(token.text)
        except (ValueError, OverflowError):
            raise self._unexpected("The value is not of the property's type.") from None
        self._next += 1
        return value

    def _takes(self, text: str) -> bool:
        token = self._tokens[self._next]
        if token.kind not in ("word", "sign") or token.text.lower() != text:
            return False
        self._next += 1
        return True

    def _needs(self, sign: str) -> None:
        if not self._takes(sign):
            raise self._unexpected(f"'{sign}' is expected.")

    def _split(self, text: str) -> list[_Token]:
        tokens: list[_Token] = []
        at = 0
        while text[at:].strip():
            found = _TOKEN.match(text, at)
            if found is None:
                at += len(text[at:]) - len(text[at:].lstrip())
                raise _parse_error(at, text[at], f"Unrecognized character. '{text[at]}'")
            kind = str(found.lastgroup)
            tokens.append(_Token(kind, found[kind].replace("''", "'"), found.start(kind)))
            at = found.end()
        return [*tokens, _Token("end", "", len(text))]

    def _unexpected(self, details: str) -> HttpRefusal:
        token = self._tokens[self._next]
        return _parse_error(token.at, token.text, details)


def _parse_error(at: int, token: str, details: str) -> HttpRefusal:
    return refusal(
        "There was an error parsing the filter expression. "
        f"[Token line=1, column={at + 1}, Token in error= {excerpt(token)}, Additional details= {details}]"
    )


def _either(left: Predicate, right: Predicate) -> Predicate:
    return lambda facts: left(facts) or right(facts)


def _both(left: Predicate, right: Predicate) -> Predicate:
    return lambda facts: left(facts) and right(facts)
