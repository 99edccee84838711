"""Pages of lists: `count` items from where the last page ended, which its `next_page` says.

Knows how a place in a list is written: as the key of the last item, or as a sequence number. Pure.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Sequence
from typing import Final, TypeVar

from .schema import Schema, nullable, text

PAGE_CHARS_MAX: Final = 1_024
PAGE: Final = text("The next_page of the last answer; without it the list begins.", chars_max=PAGE_CHARS_MAX)
NUMBER_PAGE: Final = text("The next_page of the last answer; without it the list begins.", pattern="[0-9]{0,19}")
NEXT_PAGE: Final = nullable(text("The page that follows, for the parameter page; null at the end.", chars_max=10_000))

T = TypeVar("T")


def page_of(
    items: Sequence[T], key: Callable[[T], str], page: str | None, count: int
) -> tuple[Sequence[T], str | None]:
    """A page of items in ascending order of their keys, and the next page."""
    start = 0 if page is None else bisect_right(items, page, key=key)
    found = items[start : start + count]
    return found, key(found[-1]) if start + count < len(items) and found else None


def number_of_page(page: str | None) -> int:
    """The sequence number at which a page of messages begins."""
    return int(page or 0)


def deprecated(schema: Schema) -> Schema:
    """A field that clients should no longer use."""
    return {**schema, "deprecated": True}
