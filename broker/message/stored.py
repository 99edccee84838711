"""Stored messages: read again for a move, their properties read and changed."""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from ...codec.sections import (
    APPLICATION_PROPERTIES,
    PROPERTIES,
    map_with_entries,
)
from .message import PROPERTY_NAMES, Message, parse_message
from .stored_form import (
    ANNOTATIONS_HEAD,
    FORM_HEAD,
    FORM_HEAD_BYTES,
    PLAIN,
    decoded,
    locate_bare,
    named_values,
    split_delivery_annotations,
)

_MAP32_HEAD: Final = Struct(">4sII")
_NO_DELIVERY_COUNT: Final = b"\x70\0\0\0\0"


def parse_stored(stored: bytes) -> Message:
    """Return a stored message as if it arrived again, for a move to another entity: forwarding, activation.

    Its `ttl_ms` is the effective one that it was stored with; `size_bytes` is the size of what is kept. Never raises
    for what `Message.stored` and `with_application_properties` gave.
    """
    version, start_bytes, entries_count, entries_bytes = FORM_HEAD.unpack_from(stored)
    start_at, annotations = FORM_HEAD_BYTES, b""
    if version != PLAIN:
        start_at, entries_at, annotations = split_delivery_annotations(stored, start_bytes, None)
    else:
        entries_at = start_at + start_bytes
    header = stored[start_at : start_at + start_bytes]
    section = _MAP32_HEAD.pack(ANNOTATIONS_HEAD, entries_bytes + 4, entries_count)
    return parse_message(header + _NO_DELIVERY_COUNT + annotations + section + stored[entries_at:])


_DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")


def without_dead_letter_reason(message: Message) -> Message:
    """Return a message without the application properties that tell why it was dead-lettered; all else as it is."""
    data, at = message.located()
    start, stop = at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7]
    if not stop:
        return message
    section = b"\x00\x53\x74" + map_with_entries(data, start, stop, {}, _DEAD_LETTER_PROPERTIES)
    return parse_message(data[:start] + section + data[stop:])


def with_application_properties(stored: bytes, changes: Mapping[str, object]) -> bytes:
    """Return the stored message with application properties added or replaced; all else keeps its bytes.

    Values are Python values or wrapper types of `codec.types`. Raises TypeError or ValueError for a value that AMQP
    cannot hold.
    """
    bare_at, at = locate_bare(stored)
    bare = stored[bare_at:]
    start, stop = at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7]
    if not stop:
        start = stop = at[PROPERTIES + 7]
    section = b"\x00\x53\x74" + map_with_entries(bare, start, stop, changes)
    return stored[:bare_at] + bare[:start] + section + bare[stop:]


def application_properties(stored: bytes) -> dict[str, object]:
    """Return the application properties, decoded; an entry whose key is no string is left out.

    Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
    """
    bare_at, at = locate_bare(stored)
    if not at[APPLICATION_PROPERTIES + 7]:
        return {}
    return named_values(stored, bare_at + at[APPLICATION_PROPERTIES])


def properties_fields(stored: bytes) -> dict[str, object]:
    """Return the properties that are not null, decoded, by their AMQP names ("message-id", "group-id", …).

    Raises BrokerError(DECODE_ERROR) when a value is broken inside, which nobody looked at before.
    """
    bare_at, at = locate_bare(stored)
    if not at[PROPERTIES + 7]:
        return {}
    fields = decoded(stored, bare_at + at[PROPERTIES] + 3)
    if not isinstance(fields, list):
        return {}
    return {name: value for name, value in zip(PROPERTY_NAMES, fields, strict=False) if value is not None}
