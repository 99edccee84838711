"""Objects of JSON that was checked before: their fields with the types that the reader expects.

Knows Python's types of JSON. Does not know what an object describes: schemas and the broker check that. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TypeVar

T = TypeVar("T")


class JsonObject(Mapping[str, object]):
    """A JSON object. A field of another type than asked for is a mistake of the program: TypeError; KeyError if it is
    absent."""

    def __init__(self, value: object = None) -> None:
        """An object; None stands for an empty one. TypeError."""
        found: object = {} if value is None else value
        if not isinstance(found, Mapping):
            raise TypeError(f"{found!r:.80} is not an object")
        self._fields: Mapping[str, object] = found

    def __getitem__(self, name: str) -> object:
        return self._fields[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def one(self, name: str, kind: type[T]) -> T:
        return _of_kind(self._fields[name], kind)

    def optional(self, name: str, kind: type[T]) -> T | None:
        """The value of a field; None if it is null or absent."""
        value = self._fields.get(name)
        return None if value is None else _of_kind(value, kind)

    def number(self, name: str) -> float:
        """A number, whole or not."""
        value = self._fields[name]
        return value if isinstance(value, int) else _of_kind(value, float)

    def list_of(self, name: str, kind: type[T]) -> list[T]:
        """The items of a list; none if it is null or absent."""
        items: object = self._fields.get(name)
        return [] if items is None else [_of_kind(each, kind) for each in _of_kind(items, list)]

    def object_of(self, name: str) -> JsonObject:
        """An object in this one; an empty one if it is null or absent."""
        return JsonObject(self._fields.get(name))

    def objects_of(self, name: str) -> list[JsonObject]:
        """The objects of a list; none if it is null or absent."""
        return [JsonObject(each) for each in self.list_of(name, object)]


def _of_kind(value: object, kind: type[T]) -> T:
    if not isinstance(value, kind):
        raise TypeError(f"{value!r:.80} is not of type {kind.__name__}")
    return value
