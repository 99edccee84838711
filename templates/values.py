"""Values of a template: JSON, and what nobody knows here; what an evaluation may cost.

A value of the cloud (`resourceGroup().location`, `uniqueString()`) and a parameter without a value are `Unknown`. It
may be passed on, put in texts and thrown away; it is an error only where an entity can't do without it. A text that is
partly known keeps its known pieces (`Mixed`), because the name of a queue starts with the name of its namespace, which
is hardly ever known and never needed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

TEXT_CHARS_MAX: Final = 131_072
"""Of a text that a function makes. The service takes expressions of 24 576 characters, and no property is longer than
1 024."""
ITEMS_MAX: Final = 10_000
"""Of a list that a function makes: as many as `range` may make in the service, and a loop has rounds."""
NUMBER_MAX: Final = 1 << 63
STEPS_MAX: Final = 1_000_000
"""Of a template in all: values, calls, rounds of loops. Ten thousand entities with ten properties are 300 000 steps;
all of them take 3 s."""
WEIGHT_MAX: Final = 16 << 20
"""Of all that functions make: characters and items."""
DEPTH_MAX: Final = 96
"""Calls, variables and values in each other; each level takes up to six frames of Python's stack of 1 000."""
MESSAGE_CHARS: Final = 60
"""Of a value that a message quotes."""


class Unresolved(Exception):  # noqa: N818 - it says what the value is
    """The value can't be had, and the text says why; `parameter` is the one that would give it, or empty."""

    def __init__(self, why: str, parameter: str = "") -> None:
        super().__init__(why)
        self.why = why
        self.parameter = parameter


class TooMuch(Exception):  # noqa: N818 - it says what the template is
    """The template grows beyond all use; nothing of it is read. The text says which limit it is over."""


@dataclass(frozen=True, slots=True)
class Unknown:
    """A value that can't be known here: why, and the parameter of the template that would give it, or empty."""

    why: str
    parameter: str = ""

    def needed(self) -> Unresolved:
        """The error of one who can't do without it."""
        return Unresolved(self.why, self.parameter)


@dataclass(frozen=True, slots=True)
class Mixed:
    """A text of which some pieces are unknown."""

    pieces: tuple[str | Unknown, ...]

    @property
    def first_unknown(self) -> Unknown:
        return next(each for each in self.pieces if isinstance(each, Unknown))


class Partly(dict[str, object]):
    """An object of which some members are known; others are unknown, not absent."""

    def __init__(self, members: Mapping[str, object], why: str, parameter: str = "") -> None:
        super().__init__(members)
        self.missing = Unknown(why, parameter)


class Budget:
    """What the evaluation of a template may cost: it may be a few lines that ask for work without end."""

    def __init__(self) -> None:
        self._steps = 0
        self._weight = 0
        self.depth = 0

    def step(self, count: int = 1) -> None:
        """Count steps. TooMuch."""
        self._steps += count
        if self._steps > STEPS_MAX:
            raise TooMuch(f"it takes more than {STEPS_MAX} steps to evaluate; split it, or make its loops shorter")

    def made(self, value: object) -> None:
        """Count what a function has made. TooMuch."""
        found = weight(value)
        if isinstance(value, list | dict):
            self.step(found // 8)
        self._weight += found
        if self._weight > WEIGHT_MAX:
            raise TooMuch(f"its values have more than {WEIGHT_MAX} characters in all; make its texts shorter")

    def deeper(self, what: str) -> None:
        """Enter a value within a value; the caller takes one from `depth` when it leaves. Unresolved."""
        if self.depth >= DEPTH_MAX:
            raise Unresolved(f"{what} depends on itself, or is nested more than {DEPTH_MAX} levels deep")
        self.depth += 1


def weight(value: object) -> int:
    """Characters and values in this one, all that are within each other; not more than is allowed is counted.

    A list that holds another one twice is as large as if it were written out: who walks it walks it twice.
    """
    found, left = 0, [value]
    while left and found <= WEIGHT_MAX:
        each = left.pop()
        found += len(each) + 1 if isinstance(each, str) else 1
        if isinstance(each, list):
            left += each
        elif isinstance(each, dict):
            left += each.values()
            found += sum(map(len, each))
    return found


def unknown_in(value: object) -> Unknown | None:
    """The first unknown value in this one, if any."""
    match value:
        case Unknown():
            return value
        case Mixed():
            return value.first_unknown
        case dict():
            inner: Iterable[object] = value.values()
        case list():
            inner = value
        case _:
            return None
    return next((found for each in inner if (found := unknown_in(each)) is not None), None)


def blamed(value: object, parameter: str) -> object:
    """The value, with what is unknown in it laid to a parameter of the template."""
    match value:
        case Unknown():
            return replace(value, parameter=parameter)
        case Mixed():
            return Mixed(tuple(replace(e, parameter=parameter) if isinstance(e, Unknown) else e for e in value.pieces))
        case dict():
            return {name: blamed(each, parameter) for name, each in value.items()}
        case list():
            return [blamed(each, parameter) for each in value]
        case _:
            return value


def text_from(pieces: Iterable[str | Unknown | Mixed]) -> str | Mixed:
    """A text of pieces; known ones are joined. Unresolved if it is too long."""
    flat: list[str | Unknown] = []
    length = 0
    for piece in pieces:
        for each in piece.pieces if isinstance(piece, Mixed) else (piece,):
            length += len(each) if isinstance(each, str) else 1
            short(length)
            flat.append(each)
    found: list[str | Unknown] = []
    for is_known, group in groupby(flat, lambda each: isinstance(each, str)):
        run = [*group]
        found += ["".join(map(str, run))] if is_known else run
    return Mixed(tuple(found)) if any(isinstance(each, Unknown) for each in found) else "".join(map(str, found))


def piecewise(text: str | Mixed, work: Callable[[str], str]) -> str | Mixed:
    """The text with its known pieces changed."""
    if isinstance(text, str):
        return work(text)
    return text_from(work(each) if isinstance(each, str) else each for each in text.pieces)


def short(length: int) -> None:
    """Refuse a text before it is made. Unresolved."""
    if length > TEXT_CHARS_MAX:
        raise Unresolved(f"the text would have more than {TEXT_CHARS_MAX} characters")


def few(count: int) -> None:
    """Refuse a list before it is made. Unresolved."""
    if count > ITEMS_MAX:
        raise Unresolved(f"the list would have more than {ITEMS_MAX} items")


def quoted(value: object) -> str:
    """A value as a message shows it."""
    text = f"'{value}'" if isinstance(value, str) else str(value)
    return text if len(text) <= MESSAGE_CHARS else f"{text[: MESSAGE_CHARS - 3]}..."


def kind_of(value: object) -> str:
    """The type of a value in the words of ARM."""
    match value:
        case None:
            return "null"
        case bool():
            return "bool"
        case int() | float():
            return "int"
        case str() | Mixed():
            return "string"
        case list():
            return "array"
        case Mapping():
            return "object"
        case _:
            return "unknown"


def member(value: Mapping[str, object], name: object) -> object:
    """The member of an object, in any case, as ARM finds it. LookupError."""
    if name in value:
        return value[str(name)]
    lowered = str(name).lower()
    for each, found in value.items():
        if each.lower() == lowered:
            return found
    raise LookupError
