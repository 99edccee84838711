"""The expressions of ARM templates, as far as they are literal: `[concat(parameters('a'), '/', copyIndex())]`.

Knows the syntax and the functions that depend on nothing but the template and its parameters. What depends on the cloud
(`resourceGroup()`, `uniqueString()`, `reference()`) is `Unresolved`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

DEPTH_MAX: Final = 32
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[()\[\],.]))"
)


class Unresolved(Exception):  # noqa: N818 - it says what the value is
    """The expression is not literal, or can't be read; the text says why."""


@dataclass(frozen=True)
class Scope:
    """The parameters and variables of a template, and the index of each loop by its name ("" for the innermost)."""

    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    loops: Mapping[str, int] = field(default_factory=dict[str, int])
    depth: int = 0

    def value(self, written: object) -> object:
        """A value of the template with all expressions in it replaced. Unresolved."""
        match written:
            case dict():
                return {str(name): self.value(each) for name, each in written.items()}
            case list():
                return [self.value(each) for each in written]
            case str() if written.startswith("[["):
                return written[1:]
            case str() if written.startswith("[") and written.endswith("]"):
                return _Parser(written[1:-1], self).whole()
            case _:
                return written

    def named(self, kind: str, values: Mapping[str, object], name: object) -> object:
        """A parameter or variable. Unresolved if it has no value."""
        found = {each.lower(): each for each in values}.get(str(name).lower())
        if found is None:
            raise Unresolved(f"the {kind} '{name}' has no value")
        if self.depth >= DEPTH_MAX:
            raise Unresolved(f"the {kind} '{name}' depends on itself")
        return Scope(self.parameters, self.variables, self.loops, self.depth + 1).value(values[found])


class _Parser:
    """Reads and evaluates one expression."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._scope = scope
        self._tokens = list(self._split(text))
        self._at = 0

    def whole(self) -> object:
        """The value of the expression."""
        found = self._expression()
        if self._at < len(self._tokens):
            raise Unresolved(f"'{self._text}' can't be read")
        return found

    @staticmethod
    def _split(text: str) -> list[tuple[str, str]]:
        found: list[tuple[str, str]] = []
        at = 0
        while at < len(text.rstrip()):
            match = _TOKEN.match(text, at)
            if match is None:
                raise Unresolved(f"'{text}' can't be read")
            found.append((str(match.lastgroup), match[str(match.lastgroup)]))
            at = match.end()
        return found

    def _expression(self) -> object:
        kind, text = self._next()
        if kind == "text":
            found: object = text[1:-1].replace("''", "'")
        elif kind == "number":
            found = int(text)
        elif kind == "name" and self._take("("):
            found = self._call(text)
        else:
            raise Unresolved(f"'{self._text}' can't be read")
        while True:
            if self._take("."):
                found = self._item(found, self._next()[1])
            elif self._take("["):
                found = self._item(found, self._expression())
                self._expect("]")
            else:
                return found

    def _call(self, name: str) -> object:
        given: list[object] = []
        while not self._take(")"):
            if given:
                self._expect(",")
            given.append(self._expression())
        return _called(self._scope, name, given)

    @staticmethod
    def _item(value: object, key: object) -> object:
        try:
            if isinstance(value, dict):
                return {str(name).lower(): each for name, each in value.items()}[str(key).lower()]
            if isinstance(value, list | str) and isinstance(key, int):
                return value[key]
        except LookupError:
            pass
        raise Unresolved(f"there is no '{key}' in a value")

    def _next(self) -> tuple[str, str]:
        if self._at == len(self._tokens):
            raise Unresolved(f"'{self._text}' ends too early")
        self._at += 1
        return self._tokens[self._at - 1]

    def _take(self, sign: str) -> bool:
        if self._at < len(self._tokens) and self._tokens[self._at] == ("sign", sign):
            self._at += 1
            return True
        return False

    def _expect(self, sign: str) -> None:
        if not self._take(sign):
            raise Unresolved(f"'{self._text}' can't be read: '{sign}' is missing")


def _called(scope: Scope, name: str, given: list[object]) -> object:
    """The value of a function. Unresolved if it depends on the cloud."""
    lowered = name.lower()
    if lowered == "parameters" and len(given) == 1:
        return scope.named("parameter", scope.parameters, given[0])
    if lowered == "variables" and len(given) == 1:
        return scope.named("variable", scope.variables, given[0])
    if lowered == "copyindex":
        return _copy_index(scope, given)
    function = _FUNCTIONS.get(lowered)
    if function is None:
        raise Unresolved(f"{name}() is not literal")
    try:
        return function(*given)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise Unresolved(f"{name}() can't be evaluated: {error}") from None


def _copy_index(scope: Scope, given: list[object]) -> int:
    loop = given[0] if given and isinstance(given[0], str) else ""
    offset = next((each for each in given if isinstance(each, int)), 0)
    if loop.lower() not in scope.loops:
        raise Unresolved("copyIndex() outside of a loop")
    return scope.loops[loop.lower()] + offset


# The values of a template have any type. The types of the functions below say which ones a function is for; with others
# Python raises what `_called` makes an Unresolved of.


def _concat(*given: Iterable[object]) -> object:
    if given and isinstance(given[0], list):
        return [item for each in given for item in each]
    return "".join(map(_string, given))


def _string(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format(pattern: str, *given: object) -> str:
    return re.sub(r"\{(\d+)(?::[^}]*)?\}", lambda match: _string(given[int(match[1])]), pattern)


def _merged(*given: Mapping[str, object]) -> dict[str, object]:
    return {name: each for value in given for name, each in value.items()}


def _united(*given: Sequence[object]) -> list[object]:
    return [item for at, value in enumerate(given) for item in value if not any(item in each for each in given[:at])]


_FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "add": lambda a, b: a + b,
    "and": lambda *each: all(each),
    "bool": lambda value: _string(value).lower() in ("true", "1"),
    "coalesce": lambda *each: next((value for value in each if value is not None), None),
    "concat": _concat,
    "contains": lambda value, item: item in value,
    "createarray": lambda *each: [*each],
    "createobject": lambda *each: dict(zip(each[::2], each[1::2], strict=True)),
    "div": lambda a, b: a // b,
    "empty": lambda value: not value,
    "equals": lambda a, b: a == b,
    "false": lambda: False,
    "first": lambda value: value[0],
    "format": _format,
    "greater": lambda a, b: a > b,
    "if": lambda test, yes, no: yes if test else no,
    "int": int,
    "join": lambda value, between: between.join(map(_string, value)),
    "last": lambda value: value[-1],
    "length": len,
    "less": lambda a, b: a < b,
    "mod": lambda a, b: a % b,
    "mul": lambda a, b: a * b,
    "not": lambda value: not value,
    "null": lambda: None,
    "or": lambda *each: any(each),
    "padleft": lambda value, width, sign=" ": _string(value).rjust(width, sign),
    "range": lambda start, count: list(range(start, start + count)),
    "replace": lambda value, old, new: value.replace(old, new),
    "split": lambda value, between: value.split(between),
    "string": _string,
    "sub": lambda a, b: a - b,
    "substring": lambda value, start, count=None: value[start:] if count is None else value[start : start + count],
    "tolower": lambda value: value.lower(),
    "toupper": lambda value: value.upper(),
    "trim": lambda value: value.strip(),
    "true": lambda: True,
    "union": lambda *given: (_merged if isinstance(given[0], dict) else _united)(*given),
}
