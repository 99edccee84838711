"""Correlation filters: every given property must have the given value [wire 10.9].

Knows the system properties of the filter's fields. Text is compared with case, and values by kind: the string "2"
differs from the number 2; numbers of all widths compare by value. Names of application properties have no case, as in
SQL. Pure.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from ..model.descriptions import CorrelationFilter
from ..model.properties import CORRELATION_NAMES
from .compiled import ALWAYS, CompiledFilter, Equality, Space, Test, all_of
from .context import MessageContext
from .errors import FilterError
from .names import SYSTEM_PROPERTIES
from .values import Value, compare, equality_key, from_description, is_equal_by_key

# Most selective fields first: the index takes the first of equally good ones.
_SELECTIVE_FIRST: Final = (
    "message_id",
    "correlation_id",
    "session_id",
    "reply_to_session_id",
    "label",
    "to",
    "reply_to",
    "content_type",
)
FIELDS: Final[Mapping[str, str]] = {field: CORRELATION_NAMES[field] for field in _SELECTIVE_FIRST}
"""System properties by the fields of `CorrelationFilter`."""
assert FIELDS.keys() == CORRELATION_NAMES.keys()

_Read = Callable[[MessageContext], Value]


def compile_correlation(description: CorrelationFilter) -> CompiledFilter:
    """Compile the filter; an empty one matches everything. Raises FilterError for an invalid value."""
    parts: list[tuple[Space, str, Value, _Read]] = []
    for field, name in FIELDS.items():
        text: str | None = getattr(description, field)
        if text is not None:
            parts.append((Space.SYSTEM, name, text, partial(_read_system, SYSTEM_PROPERTIES[name].name)))
    for name, given in description.properties.items():
        try:
            value = from_description(given)
        except ValueError as error:
            raise FilterError(f"correlation filter: property {name!r:.80}: {error}") from None
        if value is not None:
            key = name.lower()
            parts.append((Space.FOLDED, key, value, partial(_read_user, key)))
    if not parts:
        return ALWAYS
    conditions: tuple[Test, ...] = tuple(_equals(value, read) for _, _, value, read in parts)
    return CompiledFilter(
        all_of(conditions),
        conditions=conditions,
        equalities=tuple(
            Equality(space, name, equality_key(value), position if is_equal_by_key(value) else None)
            for position, (space, name, value, _) in enumerate(parts)
        ),
        system_names=frozenset(name for space, name, _, _ in parts if space is Space.SYSTEM),
        reads_user=any(space is Space.FOLDED for space, _, _, _ in parts),
    )


def _read_system(name: str, context: MessageContext) -> Value:
    return context.system(name)


def _read_user(key: str, context: MessageContext) -> Value:
    return context.folded().get(key)


def _equals(expected: Value, read: _Read) -> Test:
    return lambda context: compare(operator.eq, read(context), expected) is True
