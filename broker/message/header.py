"""The header section of a message: reads the sender's, encodes the delivered one [AMQP 3.2.1].

Knows the five fields and their bytes. A field that the sender omitted stays null, as in the service; the broker sets
the delivery count. Must not depend on queues, clocks and storage. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.sections import check_items, open_items
from ...codec.types import Ubyte, Uint

_CACHED_MAX: Final = 1024
_CACHED_BYTES_MAX: Final = 40  # keeps the cache small; usual headers have 5 to 25 bytes
_FIELDS: Final = 5  # the last is the delivery count [AMQP 3.2.1]
_LISTS: Final = b"\x45\xc0\xd0"
_BOOLEANS: Final = {None: b"\x40", True: b"\x41", False: b"\x42"}


class Header(NamedTuple):
    """The sender's fields; None for an omitted one."""

    durable: bool | None = None
    priority: int | None = None
    ttl_ms: int | None = None
    first_acquirer: bool | None = None


NO_HEADER: Final = Header()


def read_header(section: bytes) -> Header:
    """Return the sender's fields of a header section. Raises DecodeError."""
    return _read_cached(section) if len(section) <= _CACHED_BYTES_MAX else _read(section)


def _read(section: bytes) -> Header:
    if section[3] not in _LISTS:
        raise DecodeError(0, "the header is not a list")
    check_items(section, 0, len(section))
    count, pos = open_items(section, 3)
    fields: list[object] = [None] * _FIELDS
    for position in range(min(count, _FIELDS)):  # a peer may send a million, and those behind have no meaning
        fields[position], pos = decode(section, pos)
    durable, priority, ttl_ms, first_acquirer, _ = fields
    if not (
        isinstance(durable, bool | None)
        and isinstance(priority, Ubyte | None)
        and isinstance(ttl_ms, Uint | None)
        and isinstance(first_acquirer, bool | None)
    ):
        raise DecodeError(0, "a header field of the wrong type")
    return Header(
        durable, None if priority is None else int(priority), None if ttl_ms is None else int(ttl_ms), first_acquirer
    )


@lru_cache(_CACHED_MAX)  # a queue has one default time to live, and senders write the same few headers
def header_start(header: Header, ttl_ms: int | None) -> bytes:
    """Return the delivered header section up to the delivery count (a five-byte uint, appended later).

    `ttl_ms` replaces the sender's ttl.
    """
    fields = b"".join(
        (
            _BOOLEANS[header.durable],
            b"\x40" if header.priority is None else bytes((0x50, header.priority)),
            b"\x40" if ttl_ms is None else b"\x70" + ttl_ms.to_bytes(4, "big"),
            _BOOLEANS[header.first_acquirer],
        )
    )
    return b"\x00\x53\x70\xc0" + bytes((len(fields) + 6, 5)) + fields


_read_cached = lru_cache(_CACHED_MAX)(_read)
