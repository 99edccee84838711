"""Reads a message in the form that SDKs write, in one pass: in C, where that was built (`_scan.c`).

The parser (`message.parse_sent`) reads all other messages, and all without the function in C. It is the reference:
property tests hold the scan against it. Pure.
"""

from __future__ import annotations

from typing import Final

from ...codec.native import native_module

Scanned = tuple[bytes, str | None, str | None]


def scan(data: bytes, key_length_max: int, message_bytes_max: int) -> Scanned | None:
    """Return (stored form, session id, partition key), None for a message that is unusual in any way.

    Unusual: another order or encoding of the sections, a time to live, a schedule, delivery annotations, an annotation
    of the broker, a message id that is missing or no string, a key longer than `key_length_max` bytes, more than
    `message_bytes_max` bytes. The stored form is that of `Message.stored` without a time to live.
    """
    del data, key_length_max, message_bytes_max
    return None


_native: Final = native_module(f"{__package__}._scan")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
if _native is not None:
    scan = _native.scan
