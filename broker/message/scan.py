"""Reads a message in the form that SDKs write, in one pass: in C, where that was built (`_scan.c`).

The parser (`message.parse_sent`) reads all other messages, and all without the function in C. It is the reference:
property tests hold the scan against it. Pure.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ...codec.native import native_module

Scanned = tuple[bytes, str | None, str | None, bytes | None, int]


def scan(data: bytes, key_length_max: int, message_bytes_max: int, new_id: Callable[[], str]) -> Scanned | None:
    """Return what the broker needs of a message in the form that SDKs write, None for an unusual message.

    (stored form, session id, partition key, message with an added id, position of its application properties)

    A message without an id gets `new_id()`, 32 ASCII characters; the fourth item is None for one that has an id.
    The position is that of the section in the message with its id, -1 without application properties.
    Unusual: another order or encoding of the sections, a time to live, a schedule, delivery annotations, an annotation
    of the broker, a message id that is no string, a key longer than `key_length_max` bytes, more than
    `message_bytes_max` bytes. The stored form is that of `Message.stored` without a time to live.
    """
    del data, key_length_max, message_bytes_max, new_id
    return None


_native: Final = native_module(f"{__package__}._scan")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
if _native is not None:
    scan = _native.scan
