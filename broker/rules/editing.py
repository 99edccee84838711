"""Copies a message with changed properties; all other bytes stay (R8).

Knows the section and the encoding of each system property. Does not know rules. Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ...codec.durations import TICKS_PER_MS
from ...codec.encode import encode
from ...codec.sections import (
    APPLICATION_PROPERTIES,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    list_with,
    map_with_entries,
    with_sections,
)
from ...codec.types import Symbol, Timestamp, Uint
from ..errors import BrokerError
from ..message.message import INSTANT_MS_MAX, PROPERTY_NAMES, Message, parse_message
from .errors import FilterException
from .names import SYSTEM_PROPERTIES, Kind, Section, SystemProperty
from .values import Span, Value

_TTL_MS_MAX: Final = 0xFFFF_FFFF  # 49 days: the maximum of the header field
_EXPIRY_POSITION: Final = PROPERTY_NAMES.index("absolute-expiry-time")
_SECTION_CODE: Final = 0x70  # of the header; the others follow by rank


def changed_message(
    message: Message, system: Mapping[str, Value], user: Mapping[str, object], removed: list[str]
) -> Message:
    """Return a copy of the message with changed properties.

    `system` has values by canonical name, None to clear; `user` has AMQP values by exact name; `removed` has exact
    names of application properties. Raises FilterException if the copy is no valid message.
    """
    data, at = message.located()
    sections: dict[int, bytes] = {}

    def put(rank: int, value: bytes) -> None:
        sections[rank] = bytes((0, 0x53, _SECTION_CODE + rank)) + value

    def span(rank: int) -> tuple[int, int]:
        return (at[rank], at[rank + 7]) if at[rank + 7] else (0, 0)

    try:
        for section, rank in ((Section.HEADER, HEADER), (Section.PROPERTIES, PROPERTIES)):
            values = {
                known.position: _encoded_field(known, system[known.name])
                for known in _properties_of_section(section, system)
            }
            if section is Section.PROPERTIES and "TimeToLive" in system:
                values |= _expiry(message, system["TimeToLive"])
            if values:
                put(rank, list_with(data, *span(rank), values))
        annotations = {
            known.annotation: system[known.name] for known in _properties_of_section(Section.ANNOTATIONS, system)
        }
        if annotations:
            given = {key: value for key, value in annotations.items() if value is not None}
            gone = annotations.keys() - given.keys()
            put(
                MESSAGE_ANNOTATIONS,
                map_with_entries(data, *span(MESSAGE_ANNOTATIONS), given, gone, symbols=True),
            )
        if user or removed:
            put(APPLICATION_PROPERTIES, map_with_entries(data, *span(APPLICATION_PROPERTIES), user, removed))
        return parse_message(with_sections(data, at, sections))
    except (BrokerError, ValueError) as error:
        raise FilterException(f"The action gives no valid message: {error}") from None


def _properties_of_section(section: Section, names: Mapping[str, Value]) -> list[SystemProperty]:
    return [SYSTEM_PROPERTIES[name] for name in names if SYSTEM_PROPERTIES[name].section is section]


def _expiry(message: Message, ttl: Value) -> Mapping[int, bytes]:
    """The sender's absolute-expiry-time, moved with the time to live: readers take it for the exact one.

    Without a creation-time to count from the header alone says the new one.
    """
    expiry, creation = message.times()
    if expiry is None:
        return {}
    if creation is None or not isinstance(ttl, Span):
        return {_EXPIRY_POSITION: encode(None)}
    return {_EXPIRY_POSITION: encode(Timestamp(min(creation + _in_ms(ttl), INSTANT_MS_MAX)))}


def _in_ms(span: Span) -> int:
    return max(span // TICKS_PER_MS, 1)


def _encoded_field(known: SystemProperty, value: Value) -> bytes:
    """Encode a field of the header or the properties."""
    if isinstance(value, Span):
        return encode(Uint(min(_in_ms(value), _TTL_MS_MAX)))
    if known.kind is Kind.SYMBOL and isinstance(value, str):
        return encode(Symbol(value))
    return encode(value)
