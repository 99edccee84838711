"""Changes of an encoded message that is sent again: body, properties, application properties, key, times.

Every section that is not changed keeps its bytes. What the broker wrote it drops when the message arrives again.
Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ...broker.message.builder import LIFETIME_PROPERTIES, header_ttl, lifetime
from ...broker.message.message import PROPERTY_NAMES
from ...codec.encode import encode
from ...codec.sections import (
    APPLICATION_PROPERTIES,
    BODY,
    DATA,
    HEADER,
    MESSAGE_ANNOTATIONS,
    PROPERTIES,
    canonical,
    list_with,
    locate,
    map_with_entries,
    with_sections,
)
from ...codec.types import Symbol, Timestamp

PARTITION_KEY: Final = "x-opt-partition-key"
SCHEDULED_FOR: Final = "x-opt-scheduled-enqueue-time"
_CODES: Final = {HEADER: 0x70, MESSAGE_ANNOTATIONS: 0x72, PROPERTIES: 0x73, APPLICATION_PROPERTIES: 0x74}
_TTL_AT: Final = 2  # in the header [AMQP 3.2.1]
_SYMBOLIC: Final = frozenset({"content-type", "content-encoding"})


NULL: Final = object()
"""An application property that is there and null; in `Changes` None removes one."""


class Lifetime(NamedTuple):
    """A new time to live of a message that is made at `created_at` (Unix ms); None for an endless one."""

    ttl_ms: int | None
    created_at: int


@dataclass(frozen=True, slots=True)
class Changes:
    """What differs from the original; what is absent stays, None removes.

    `body` becomes one data section. `properties` have AMQP names (`PROPERTY_NAMES`); without a message id the message
    gets a new one. `annotations` are the partition key and the time (`Timestamp`) that it is scheduled for.
    """

    body: bytes | None = None
    properties: Mapping[str, object] = field(default_factory=dict[str, object])
    application_properties: Mapping[str, object] = field(default_factory=dict[str, object])
    annotations: Mapping[str, object] = field(default_factory=dict[str, object])
    lifetime: Lifetime | None = None

    @property
    def are_none(self) -> bool:
        """Whether the message stays as it is."""
        return self == Changes()


def scheduled_for(at: int | None) -> object:
    """The annotation's value for an instant (Unix ms)."""
    return None if at is None else Timestamp(at)


def changed(encoded: bytes, changes: Changes) -> bytes:
    """The message with its changes. DecodeError for a malformed one; TypeError or ValueError for a value without an
    AMQP type."""
    if changes.are_none:
        return encoded
    data, at = encoded, locate(encoded)
    if at is None:
        data = canonical(encoded)
        at = locate(data)
        assert at is not None, "canonical messages can be located"
    sections: dict[int, bytes] = {}
    header, times = {}, {}
    if changes.lifetime is not None:
        header[_TTL_AT] = encode(header_ttl(changes.lifetime.ttl_ms))
        times = {**dict.fromkeys(LIFETIME_PROPERTIES), **lifetime(*changes.lifetime)}
    properties = {**times, **changes.properties}
    for rank, positions in (
        (HEADER, header),
        (PROPERTIES, {PROPERTY_NAMES.index(name): _property(name, each) for name, each in properties.items()}),
    ):
        if positions:
            sections[rank] = _encoded_section(rank, list_with(data, at[rank], at[rank + 7] or at[rank], positions))
    for rank, entries in (
        (MESSAGE_ANNOTATIONS, changes.annotations),
        (APPLICATION_PROPERTIES, changes.application_properties),
    ):
        if entries:
            given = {name: None if value is NULL else value for name, value in entries.items() if value is not None}
            start, stop = at[rank], at[rank + 7] or at[rank]
            symbols = rank == MESSAGE_ANNOTATIONS
            sections[rank] = _encoded_section(
                rank, map_with_entries(data, start, stop, given, entries.keys() - given.keys(), symbols=symbols)
            )
    if changes.body is not None:
        sections[BODY] = bytes((0, 0x53, DATA)) + encode(changes.body)
    return with_sections(data, at, sections)


def _property(name: str, value: object) -> bytes:
    return encode(Symbol(value) if isinstance(value, str) and name in _SYMBOLIC else value)


def _encoded_section(rank: int, value: bytes) -> bytes:
    return bytes((0, 0x53, _CODES[rank])) + value
