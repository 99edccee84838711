"""Reads a message in the form that SDKs write, in one pass: in C, where the wheel was built with it.

`scan(data, key_length_max, message_bytes_max)` returns (stored form, session id, partition key), or None for a message
that is unusual in any way: in another order or encoding, with a time to live, a schedule, delivery annotations, an
annotation of the broker, a message id that is missing or no string, a key longer than `key_length_max` bytes, or more
than `message_bytes_max` bytes. The parser (`message.parse_sent`) reads those, and all messages without the C function:
it is the reference, and a property test holds both together. The stored form is that of `Message.stored` without a
time to live. Pure.
"""

from __future__ import annotations

from typing import Final

from ...codec.native import native_module

Scanned = tuple[bytes, str | None, str | None]


def scan(data: bytes, key_length_max: int, message_bytes_max: int) -> Scanned | None:
    """Leave every message to the parser."""
    del data, key_length_max, message_bytes_max
    return None


_native: Final = native_module(f"{__package__}._scan")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
if _native is not None:
    scan = _native.scan
