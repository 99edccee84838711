"""Remembers what short texts of clients mean: rules, selectors and patterns that come again.

No account counts the memory of these texts, so both their number and their length are limited: a tree takes 33 bytes
for each character of its text.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache, wraps
from typing import Concatenate, Final, ParamSpec, TypeVar

CHARS_MAX: Final = 1_024
"""Longer texts are read each time; it is the service's limit for a rule."""
TEXTS_MAX: Final = 256
"""How many are remembered: 8 MiB of the longest. A start reads each rule once, so that more would save little."""

P = ParamSpec("P")
T = TypeVar("T")


def remembered(read: Callable[Concatenate[str, P], T]) -> Callable[Concatenate[str, P], T]:
    """Make a function that remembers the last results of `read` for short texts; errors are not remembered."""
    known = lru_cache(TEXTS_MAX)(read)

    @wraps(read)
    def find(text: str, /, *more: P.args, **named: P.kwargs) -> T:
        if len(text) > CHARS_MAX:
            return read(text, *more, **named)
        return known(text, *more, **named)  # type: ignore[arg-type] # what is hashable is the caller's affair

    return find
