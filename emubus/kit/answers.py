"""JSON objects that a server has answered, or that a file of ours holds: members are read by their type.

Knows the types of JSON, and how deep an answer may be. Does not know which members it has: the caller does. The server
may be no emubus at all, so nothing is taken for granted: whatever is wrong is an AnswerError.
"""

from __future__ import annotations

import json
import reprlib
from collections.abc import Mapping
from enum import StrEnum
from typing import Final, TypeVar

T = TypeVar("T")
E = TypeVar("E", bound=StrEnum)

DEPTH_MAX: Final = 256
"""Lists and objects in each other. A body is the deepest part: AMQP values of 64 levels (`codec/decode.py`), each of
which is three in JSON if it is a map. Python's writer of JSON fails at about 900."""


class AnswerError(ValueError):
    """This is no answer of emubus's; the text says what is wrong with it."""


class Answer(dict[str, object]):
    """A JSON object. A reader raises AnswerError if there is no such member, or if it has another type."""

    def __missing__(self, name: str) -> object:
        """Fail with the name of a member that is missing."""
        raise AnswerError(f"{name} is missing")

    def text(self, name: str) -> str:
        return self._member(name, str)

    def text_or_none(self, name: str) -> str | None:
        return None if self[name] is None else self.text(name)

    def number(self, name: str) -> int:
        return self._member(name, int)

    def number_or_none(self, name: str) -> int | None:
        return None if self[name] is None else self.number(name)

    def fraction(self, name: str) -> float:
        value = self[name]
        return value if isinstance(value, int) else self._member(name, float)

    def flag(self, name: str) -> bool:
        return self._member(name, bool)

    def part(self, name: str) -> Answer:
        return self._member(name, Answer)

    def part_or_none(self, name: str) -> Answer | None:
        return None if self[name] is None else self.part(name)

    def members(self, name: str) -> Mapping[str, object]:
        """An object with names that its writer chose."""
        found: dict[str, object] = self._member(name, dict)
        return found

    def choice(self, name: str, kind: type[E]) -> E:
        """A text that is one of an enumeration."""
        text = self.text(name)
        if text not in {each.value for each in kind}:
            raise AnswerError(f"{name} is {reprlib.repr(ascii(text))}, which is none of {', '.join(kind)}")
        return kind(text)

    def parts(self, name: str) -> list[Answer]:
        return self._items(name, Answer)

    def texts(self, name: str) -> list[str]:
        return self._items(name, str)

    def _items(self, name: str, kind: type[T]) -> list[T]:
        items: list[object] = self._member(name, list)
        found = [each for each in items if isinstance(each, kind)]
        if len(found) < len(items):
            raise AnswerError(f"{name} has something else than {kind.__name__}")
        return found

    def _member(self, name: str, kind: type[T]) -> T:
        value = self[name]
        if not isinstance(value, kind):
            raise AnswerError(f"{name} is {reprlib.repr(value)}; it must be {kind.__name__}")
        return value


def parse_answer(text: str | bytes) -> Answer:
    """The object that a text has. AnswerError if it has another value, or is not JSON."""
    try:
        found: object = json.loads(text, object_hook=Answer)
    except RecursionError:
        raise AnswerError("the JSON is nested too deeply") from None
    except ValueError as error:  # also a number of thousands of digits, and bytes that are no text
        raise AnswerError(f"it is not JSON: {error}") from None
    if not isinstance(found, Answer):
        raise AnswerError(f"the JSON is {type(found).__name__}; it must be an object")
    if is_deeper(found, DEPTH_MAX):
        raise AnswerError(f"the JSON is nested more than {DEPTH_MAX} levels deep")
    return found


def is_deeper(value: object, depth_max: int) -> bool:
    """Whether a value of JSON has more levels; found level by level, as the stack is what must be spared."""
    level: list[object] = [value]
    for _ in range(depth_max):
        level = [
            part
            for each in level
            if isinstance(each, dict | list)
            for part in (each.values() if isinstance(each, dict) else each)
            if isinstance(part, dict | list)
        ]
        if not level:
            return False
    return True
