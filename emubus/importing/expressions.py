"""The expressions of ARM templates, as far as they are literal: `[concat(parameters('a'), '/', copyIndex())]`.

Knows the syntax and the functions that depend on nothing but the template and its parameters. What depends on the cloud
(`resourceGroup()`, `uniqueString()`, `reference()`) is `Unresolved`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

DEPTH_MAX: Final = 32
"""Variables in each other, and calls in each other."""
TEXT_CHARS_MAX: Final = 131_072
"""Of a text that a function makes. The service takes expressions of 24 576 characters, and no property is longer than
1 024."""
ITEMS_MAX: Final = 10_000
"""Of a list that a function makes: as many as `range` may make in the service, and a loop has rounds."""
NUMBER_MAX: Final = 1 << 63
STEPS_MAX: Final = 500_000
"""Of a template in all: values, calls, rounds of loops. Ten thousand entities with ten properties are 200 000 steps;
all of them take 3 s."""
WEIGHT_MAX: Final = 16 << 20
"""Of all that functions make: characters and items."""
_TOKEN: Final = re.compile(
    r"\s*(?:(?P<text>'(?:[^']|'')*')|(?P<number>-?\d+)|(?P<name>[A-Za-z_]\w*)|(?P<sign>[()\[\],.]))"
)


class Unresolved(Exception):  # noqa: N818 - it says what the value is
    """The expression is not literal, or can't be read; the text says why."""


class TooMuch(Exception):  # noqa: N818 - it says what the template is
    """The template grows beyond all use; nothing of it is imported. The text says which limit it is over."""


class Budget:
    """What the evaluation of a template may cost: it may be a few lines that ask for work without end."""

    def __init__(self) -> None:
        self._steps = 0
        self._weight = 0

    def step(self, count: int = 1) -> None:
        """Count steps. TooMuch."""
        self._steps += count
        if self._steps > STEPS_MAX:
            raise TooMuch(f"it takes more than {STEPS_MAX} steps to evaluate; split it, or make its loops shorter")

    def made(self, value: object) -> None:
        """Count what a function has made. TooMuch."""
        self._weight += _weight(value)
        if self._weight > WEIGHT_MAX:
            raise TooMuch(f"its values have more than {WEIGHT_MAX} characters in all; make its texts shorter")


def _weight(value: object) -> int:
    """Characters and items of a value."""
    weight, parts = 0, [value]
    while parts:
        each = parts.pop()
        weight += len(each) if isinstance(each, str) else 1
        if isinstance(each, dict):
            parts += each.values()
        elif isinstance(each, list):
            parts += each
    return weight


@dataclass(frozen=True)
class Scope:
    """The parameters and variables of a template, and the index of each loop by its name ("" for the innermost)."""

    parameters: Mapping[str, object] = field(default_factory=dict[str, object])
    variables: Mapping[str, object] = field(default_factory=dict[str, object])
    loops: Mapping[str, int] = field(default_factory=dict[str, int])
    depth: int = 0
    budget: Budget = field(default_factory=Budget)

    def value(self, written: object) -> object:
        """A value of the template with all expressions in it replaced. Unresolved, TooMuch."""
        self.budget.step()
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
        return replace(self, depth=self.depth + 1).value(values[found])


class _Parser:
    """Reads and evaluates one expression."""

    def __init__(self, text: str, scope: Scope) -> None:
        self._text = text
        self._scope = scope
        self._tokens = list(self._split(text))
        self._at = 0
        self._depth = 0

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
            found = _whole_number(text)
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
        self._scope.budget.step()
        self._depth += 1
        if self._depth > DEPTH_MAX:
            raise Unresolved(f"'{self._text}' has more than {DEPTH_MAX} calls in each other")
        given: list[object] = []
        while not self._take(")"):
            if given:
                self._expect(",")
            given.append(self._expression())
        self._depth -= 1
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
    if lowered == "union":  # compares each with each
        scope.budget.step(sum(len(each) for each in given if isinstance(each, list)) ** 2 // 1_000)
    try:
        found = function(*given)
    except (TypeError, ValueError, LookupError, ArithmeticError, AttributeError) as error:
        raise Unresolved(f"{name}() can't be evaluated: {error}") from None
    scope.budget.made(found)
    return found


def _copy_index(scope: Scope, given: list[object]) -> int:
    loop = given[0] if given and isinstance(given[0], str) else ""
    offset = next((each for each in given if isinstance(each, int)), 0)
    if loop.lower() not in scope.loops:
        raise Unresolved("copyIndex() outside of a loop")
    return scope.loops[loop.lower()] + offset


# The values of a template have any type. The types of the functions below say which ones a function is for; with others
# Python raises what `_called` makes an Unresolved of.


def _short(length: int) -> None:
    """Refuse a text before it is made."""
    if length > TEXT_CHARS_MAX:
        raise ValueError(f"the text would have more than {TEXT_CHARS_MAX} characters")


def _joined(parts: Iterable[str]) -> str:
    found: list[str] = []
    length = 0
    for each in parts:
        length += len(each)
        _short(length)
        found.append(each)
    return "".join(found)


def _whole_number(value: object) -> int:
    """A number as the service has them: of 64 bits."""
    if not isinstance(value, int | str) or (isinstance(value, str) and len(value) > len(str(NUMBER_MAX)) + 1):
        raise Unresolved(f"{str(value)[:40]!r} is no whole number of 64 bits")
    try:
        found = int(value)
    except ValueError:
        raise Unresolved(f"{str(value)[:40]!r} is no whole number") from None
    if not -NUMBER_MAX <= found < NUMBER_MAX:
        raise Unresolved(f"{found} is no whole number of 64 bits")
    return found


def _calculated(work: Callable[[int, int], int]) -> Callable[[object, object], int]:
    """A function of two numbers, not of texts that look like some."""

    def calculate(a: object, b: object) -> int:
        if not isinstance(a, int) or not isinstance(b, int):
            raise TypeError("it is for numbers")
        return _whole_number(work(a, b))

    return calculate


def _concat(*given: Iterable[object]) -> object:
    if given and isinstance(given[0], list):
        _few(sum(len([*each]) for each in given))
        return [item for each in given for item in each]
    return _joined(map(_string, given))


def _few(count: int) -> None:
    """Refuse a list before it is made."""
    if count > ITEMS_MAX:
        raise ValueError(f"the list would have more than {ITEMS_MAX} items")


def _string(value: object) -> str:
    _short(_weight(value))
    return str(value).lower() if isinstance(value, bool) else str(value)


def _format(pattern: str, *given: object) -> str:
    pieces = re.split(r"\{(\d+)(?::[^}]*)?\}", pattern)
    return _joined(_string(given[int(each)]) if at % 2 else each for at, each in enumerate(pieces))


def _range(start: int, count: int) -> list[int]:
    _few(count)
    return list(range(start, start + count))


def _padded(value: object, width: int, sign: str = " ") -> str:
    _short(width)
    return _string(value).rjust(width, sign)


def _replaced(value: str, old: str, new: str) -> str:
    _short(len(value) + value.count(old) * max(0, len(new) - len(old)))
    return value.replace(old, new)


def _split(value: str, between: str) -> list[str]:
    _few(value.count(between) + 1)
    return value.split(between)


def _merged(*given: Mapping[str, object]) -> dict[str, object]:
    return {name: each for value in given for name, each in value.items()}


def _united(*given: Sequence[object]) -> list[object]:
    return [item for at, value in enumerate(given) for item in value if not any(item in each for each in given[:at])]


_FUNCTIONS: Final[Mapping[str, Callable[..., object]]] = {
    "add": _calculated(lambda a, b: a + b),
    "and": lambda *each: all(each),
    "bool": lambda value: _string(value).lower() in ("true", "1"),
    "coalesce": lambda *each: next((value for value in each if value is not None), None),
    "concat": _concat,
    "contains": lambda value, item: item in value,
    "createarray": lambda *each: [*each],
    "createobject": lambda *each: dict(zip(each[::2], each[1::2], strict=True)),
    "div": _calculated(lambda a, b: a // b),
    "empty": lambda value: not value,
    "equals": lambda a, b: a == b,
    "false": lambda: False,
    "first": lambda value: value[0],
    "format": _format,
    "greater": lambda a, b: a > b,
    "if": lambda test, yes, no: yes if test else no,
    "int": _whole_number,
    "join": lambda value, between: _joined(
        part for at, each in enumerate(value) for part in ((between, _string(each)) if at else (_string(each),))
    ),
    "last": lambda value: value[-1],
    "length": len,
    "less": lambda a, b: a < b,
    "mod": _calculated(lambda a, b: a % b),
    "mul": _calculated(lambda a, b: a * b),
    "not": lambda value: not value,
    "null": lambda: None,
    "or": lambda *each: any(each),
    "padleft": _padded,
    "range": _range,
    "replace": _replaced,
    "split": _split,
    "string": _string,
    "sub": _calculated(lambda a, b: a - b),
    "substring": lambda value, start, count=None: value[start:] if count is None else value[start : start + count],
    "tolower": lambda value: value.lower(),
    "toupper": lambda value: value.upper(),
    "trim": lambda value: value.strip(),
    "true": lambda: True,
    "union": lambda *given: (_merged if isinstance(given[0], dict) else _united)(*given),
}
