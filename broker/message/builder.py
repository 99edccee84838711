"""Builds encoded messages from plain values, for senders without an AMQP client (HTTP, the web page).

Knows the section of each value, and the types of `codec.types`. Does not know how the broker reads a message
(`message`). Pure.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from ...codec.encode import encode, encode_map, list_from_items
from ...codec.types import Symbol, Timestamp, Uint
from .message import PROPERTY_NAMES

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION_PROPERTIES, _DATA = 0x70, 0x72, 0x73, 0x74, 0x75
_SYMBOLIC = frozenset({"content-type", "content-encoding"})

_HEADER_TTL_MS_MAX: Final = 0xFFFF_FFFF
TTL_MS_MAX: Final = 200_000_000_000_000
"""The longest time to live that senders may ask for: 6 300 years, so that it ends before the year 10000."""


@dataclass(frozen=True, slots=True)
class NewMessage:
    """A new message with one data section as its body.

    `properties` have AMQP names (`message.PROPERTY_NAMES`); None omits one. Instants are Unix milliseconds. A message
    with `ttl_ms` needs `created_at`: as SDKs do, it says the time to live twice, because a header can hold 49.7 days.
    """

    body: bytes = b""
    properties: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    application_properties: Mapping[str, object] = field(default_factory=dict[str, object])
    partition_key: str | None = None
    scheduled_enqueue_at: int | None = None
    ttl_ms: int | None = None
    created_at: int | None = None

    @property
    def message_id(self) -> str | None:
        return self.properties.get("message-id")

    @property
    def session_id(self) -> str | None:
        return self.properties.get("group-id")

    def encoded(self) -> bytes:
        """Return the encoded message. Raises TypeError or ValueError for a value without an AMQP type."""
        sections: list[bytes] = []
        if self.ttl_ms is not None:
            sections.append(_encoded_section(_HEADER, encode([None, None, header_ttl(self.ttl_ms)])))
        annotations: dict[object, object] = {}
        if self.partition_key is not None:
            annotations[Symbol("x-opt-partition-key")] = self.partition_key
        if self.scheduled_enqueue_at is not None:
            annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(self.scheduled_enqueue_at)
        if annotations:
            sections.append(_encoded_section(_ANNOTATIONS, encode_map(annotations)))
        times = lifetime(self.ttl_ms, self.created_at)
        fields = [times.get(name) or _property(name, self.properties.get(name)) for name in PROPERTY_NAMES]
        if any(value is not None for value in fields):
            items = b"".join(map(encode, fields))
            sections.append(_encoded_section(_PROPERTIES, list_from_items(len(fields), items)))
        if self.application_properties:
            sections.append(_encoded_section(_APPLICATION_PROPERTIES, encode_map(dict(self.application_properties))))
        sections.append(_encoded_section(_DATA, encode(self.body)))
        return b"".join(sections)


LIFETIME_PROPERTIES: Final = ("absolute-expiry-time", "creation-time")
"""The properties that say the time to live once more: as their difference."""


def header_ttl(ttl_ms: int | None) -> Uint | None:
    """The field of the header for a time to live."""
    return None if ttl_ms is None else Uint(min(ttl_ms, _HEADER_TTL_MS_MAX))


def lifetime(ttl_ms: int | None, created_at: int | None) -> Mapping[str, Timestamp]:
    """`LIFETIME_PROPERTIES` of a message that is created at an instant (Unix ms); empty if one of the two is None."""
    if ttl_ms is None or created_at is None:
        return {}
    return dict(zip(LIFETIME_PROPERTIES, (Timestamp(created_at + ttl_ms), Timestamp(created_at)), strict=True))


def envelope(encoded: Iterable[bytes]) -> bytes:
    """Return one batch delivery of encoded messages [wire 4.4]."""
    return b"".join(_encoded_section(_DATA, encode(each)) for each in encoded)


def _encoded_section(code: int, value: bytes) -> bytes:
    return bytes((0, 0x53, code)) + value


def _property(name: str, value: str | None) -> object:
    return Symbol(value) if value is not None and name in _SYMBOLIC else value
