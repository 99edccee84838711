"""Stored messages: parses them for a move, and changes their application properties.

Does not know records and homes (`partition.records`). Pure.
"""

from __future__ import annotations

from collections.abc import Mapping
from struct import Struct
from typing import Final

from ...codec.sections import (
    APPLICATION_PROPERTIES,
    Entries,
    encoded_entries,
    map_with_encoded,
    map_with_entries,
)
from .message import Message, parse_message
from .stored_form import (
    ANNOTATIONS_HEAD,
    FORM_HEAD,
    FORM_HEAD_BYTES,
    PLAIN,
    bare_at_of,
    split_delivery_annotations,
)

EncodedProperties = Entries

_MAP32_HEAD: Final = Struct(">4sII")
_size_at = Struct(">I").unpack_from
_NO_DELIVERY_COUNT: Final = b"\x70\0\0\0\0"


def parse_stored(stored: bytes) -> Message:
    """Parse a stored message for a move: forwarding, activation, resubmission.

    Its `ttl_ms` is the effective ttl in the stored form, `size_bytes` the size of its stored sections. Never raises for
    results of `Message.stored` and `with_application_properties`.
    """
    version, start_bytes, entries_count, entries_bytes = FORM_HEAD.unpack_from(stored)
    start_at, annotations = FORM_HEAD_BYTES, b""
    if version != PLAIN:
        start_at, entries_at, annotations = split_delivery_annotations(stored, 0, start_bytes)
    else:
        entries_at = start_at + start_bytes
    header = stored[start_at : start_at + start_bytes]
    section = _MAP32_HEAD.pack(ANNOTATIONS_HEAD, entries_bytes + 4, entries_count)
    return parse_message(header + _NO_DELIVERY_COUNT + annotations + section + stored[entries_at:])


_DEAD_LETTER_PROPERTIES: Final = ("DeadLetterReason", "DeadLetterErrorDescription")


def without_dead_letter_reason(message: Message) -> Message:
    """Return a message without the application properties with its dead-letter reason; other bytes are unchanged."""
    data, at = message.located()
    start, stop = at[APPLICATION_PROPERTIES], at[APPLICATION_PROPERTIES + 7]
    if not stop:
        return message
    section = b"\x00\x53\x74" + map_with_entries(data, start, stop, {}, _DEAD_LETTER_PROPERTIES)
    return parse_message(data[:start] + section + data[stop:])


def with_application_properties(stored: bytes, changes: Mapping[str, object]) -> bytes:
    """Return the stored message with application properties added or replaced; other bytes are unchanged.

    Values are Python values or types of `codec.types`. Raises TypeError or ValueError for a value without an AMQP type.
    """
    return with_encoded_properties(stored, encoded_properties(changes))


def encoded_properties(changes: Mapping[str, object]) -> EncodedProperties:
    """Encode changes once for many messages. Raises as `with_application_properties`."""
    return encoded_entries(changes)


def with_encoded_properties(stored: bytes, entries: EncodedProperties) -> bytes:
    """The same as `with_application_properties`, with changes from `encoded_properties`."""
    start, stop = application_section(stored, 0)
    return stored[:start] + changed_section(stored[start:stop], entries) + stored[stop:]


def application_section(data: bytes, at: int) -> tuple[int, int]:
    """Where the section of application properties is, or would be, of the stored form that is `data` from `at` on."""
    start = _section_end(data, bare_at_of(data, at), b"\x00\x53\x73")
    return start, _section_end(data, start, b"\x00\x53\x74")


def changed_section(section: bytes, entries: EncodedProperties) -> bytes:
    """A section of application properties, b"" for none, with entries added or replaced."""
    return b"\x00\x53\x74" + map_with_encoded(section, 0, len(section), entries)


def _section_end(stored: bytes, at: int, head: bytes) -> int:
    """The end of the list or map section with this head that may begin at `at`, which is its end if it is not there."""
    if stored[at : at + 3] != head:
        return at
    width = stored[at + 3] >> 4
    if width == 0x4:
        return at + 4
    return at + 5 + stored[at + 4] if width == 0xC else at + 8 + _size_at(stored, at + 4)[0]
