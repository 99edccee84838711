"""JSON objects that a server has answered, or that a file of ours holds: members are read by their type.

Knows the types of JSON. Does not know which members an answer has: who asked does.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TypeVar

T = TypeVar("T")


class Answer(dict[str, object]):
    """A JSON object. A reader raises ValueError if the member has another type, KeyError if there is none."""

    def text(self, name: str) -> str:
        """A string."""
        return self._member(name, str)

    def text_or_none(self, name: str) -> str | None:
        """A string or null."""
        return None if self[name] is None else self.text(name)

    def number(self, name: str) -> int:
        """A whole number."""
        return self._member(name, int)

    def number_or_none(self, name: str) -> int | None:
        """A whole number or null."""
        return None if self[name] is None else self.number(name)

    def fraction(self, name: str) -> float:
        """Any number."""
        value = self[name]
        return value if isinstance(value, int) else self._member(name, float)

    def flag(self, name: str) -> bool:
        """True or false."""
        return self._member(name, bool)

    def part(self, name: str) -> Answer:
        """An object."""
        return self._member(name, Answer)

    def part_or_none(self, name: str) -> Answer | None:
        """An object or null."""
        return None if self[name] is None else self.part(name)

    def members(self, name: str) -> Mapping[str, object]:
        """An object with names that its writer chose."""
        found: dict[str, object] = self._member(name, dict)
        return found

    def parts(self, name: str) -> list[Answer]:
        """A list of objects."""
        return self._items(name, Answer)

    def texts(self, name: str) -> list[str]:
        """A list of strings."""
        return self._items(name, str)

    def _items(self, name: str, kind: type[T]) -> list[T]:
        items: list[object] = self._member(name, list)
        found = [each for each in items if isinstance(each, kind)]
        if len(found) < len(items):
            raise ValueError(f"{name} has something else than {kind.__name__}")
        return found

    def _member(self, name: str, kind: type[T]) -> T:
        value = self[name]
        if not isinstance(value, kind):
            raise ValueError(f"{name} is {value!r}; it must be {kind.__name__}")
        return value


def parse_answer(text: str | bytes) -> Answer:
    """The object that a text has. ValueError if it has another value, or is not JSON."""
    found: object = json.loads(text, object_hook=Answer)
    if not isinstance(found, Answer):
        raise ValueError(f"the JSON is {type(found).__name__}; it must be an object")
    return found
