"""What a peeked message says about itself: its state, and when it was enqueued.

Knows where the broker writes its annotations, so that most messages need no decoding: a search reads all messages of a
queue. Pure.
"""

from __future__ import annotations

from typing import Final

from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.types import Described

STATES: Final = ("active", "deferred", "scheduled")
SCHEDULED: Final = STATES[2]
_ANNOTATIONS: Final = 0x72
_STATE, _UNTIL = "x-opt-message-state", "x-opt-scheduled-enqueue-time"
_STATE_BYTES, _UNTIL_BYTES, _ENQUEUED_BYTES = _STATE.encode(), _UNTIL.encode(), b"x-opt-enqueued-time"
_TIMESTAMP, _SMALL_INT = b"\x83", b"\x54"  # constructors


def enqueued_at(encoded: bytes) -> int:
    """The enqueued time (Unix ms), for a scheduled message the one that it will get; 0 if unknown."""
    tail = _bytes_after(_ENQUEUED_BYTES, encoded, 9)
    if tail[:1] == _TIMESTAMP:
        return int.from_bytes(tail[1:], "big", signed=True)
    until = map_section(encoded, _ANNOTATIONS).get(_UNTIL)
    return int(until) if isinstance(until, int) else 0


def due_at(encoded: bytes) -> int:
    """When a scheduled message is due (Unix ms), the enqueued time of any other."""
    if _UNTIL_BYTES not in encoded or state_of(encoded) != SCHEDULED:
        return enqueued_at(encoded)
    until = map_section(encoded, _ANNOTATIONS).get(_UNTIL)
    return int(until) if isinstance(until, int) else enqueued_at(encoded)


def state_of(encoded: bytes) -> str:
    """One of `STATES`."""
    tail = _bytes_after(_STATE_BYTES, encoded, 2)
    value = tail[1] if tail[:1] == _SMALL_INT else map_section(encoded, _ANNOTATIONS).get(_STATE)
    return STATES[value] if isinstance(value, int) and 0 <= value < len(STATES) else STATES[0]


def _bytes_after(name: bytes, encoded: bytes, size: int) -> bytes:
    """The bytes behind an annotation's name: the broker writes them first. Decoding takes ten times as long."""
    at = encoded.find(name)
    return b"" if at < 0 else encoded[at + len(name) : at + len(name) + size]


def map_section(encoded: bytes, descriptor: int) -> dict[object, object]:
    """The entries of a section that is a map; empty without it, or if it or a section before it is malformed."""
    try:
        position = 0
        while position < len(encoded):
            section, position = decode(encoded, position)
            if isinstance(section, Described) and section.descriptor == descriptor:
                return section.value if isinstance(section.value, dict) else {}
    except DecodeError:
        pass
    return {}
