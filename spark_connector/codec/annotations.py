"""The service's annotations of a message, and its header: what every peeked message carries, read fast [wire 5.4].

Knows the annotations that become columns. A service writes the same ones in the same order on every message, so the
layout of a section once walked is kept: a section that begins alike is then read in one go, after all that is fixed
in it was compared; one that differs is walked. Does not know what the values are good for. The layouts are kept per
process, a few hundred at most; nothing else has an owner.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import itemgetter
from struct import Struct
from typing import Final, NamedTuple

from ...codec.decode import decode_exactly
from ...codec.sections import open_items
from ...codec.skip import skip
from ...codec.types import TYPE_NAMES, Symbol

__all__ = ["DEAD_LETTER_SOURCE", "NO_ANNOTATIONS", "PARTITION_KEY", "Annotations", "read_annotations", "read_header"]

Annotations = tuple[int | None, int | None, int | None, int | None, int | None, bytes | None, bytes | None]
"""Sequence number, enqueued time, message state, scheduled enqueue time, enqueued sequence number, partition key,
dead-letter source; instants in Unix milliseconds, the texts in UTF-8."""

NO_ANNOTATIONS: Final[Annotations] = (None, None, None, None, None, None, None)
PARTITION_KEY: Final = 5
DEAD_LETTER_SOURCE: Final = 6

_POSITIONS: Final = {
    b"x-opt-sequence-number": 0,
    b"x-opt-enqueued-time": 1,
    b"x-opt-message-state": 2,
    b"x-opt-scheduled-enqueue-time": 3,
    b"x-opt-enqueue-sequence-number": 4,
    b"x-opt-partition-key": PARTITION_KEY,
    b"x-opt-deadletter-source": DEAD_LETTER_SOURCE,
}
_NAMES: Final = tuple(key.decode() for key in _POSITIONS)
_TEXTS: Final = b"\xa1\xa3\xb1\xb3"
_LONG_MAX: Final = 0x7FFF_FFFF_FFFF_FFFF
_LAYOUTS_MAX: Final = 256
_NO_FORMAT: Final = ""
_FORMATS: Final = {0x81: "q", 0x83: "q", 0x54: "b", 0x55: "b", 0x71: "i", 0x61: "h", 0x98: "16s"}


class _Layout(NamedTuple):
    unpack: Callable[[bytes, int], tuple[object, ...]]  # fixed bytes and values by turns
    fixed: tuple[object, ...]
    pick: Callable[[tuple[object, ...]], Annotations]  # the values and a None at the end, in the order of Annotations


_layouts: Final[dict[bytes, _Layout | None]] = {}


def read_annotations(data: bytes, value_at: int, stop: int) -> Annotations:
    """Return the annotations of the map at `value_at`, which ends at `stop`. Raises MALFORMED."""
    start = data[value_at : value_at + 5]
    layout = _layouts.get(start)
    if layout is not None:
        read_at_once = layout.unpack(data, value_at)
        if read_at_once[::2] == layout.fixed:
            picked = layout.pick((*read_at_once[1::2], None))
            for octets in picked[PARTITION_KEY:]:
                if octets is not None:
                    octets.decode()  # a text that is none is malformed, here as in the walk
            return picked
        return _walk(data, value_at, stop, None)
    if start in _layouts:
        return _walk(data, value_at, stop, None)
    places: list[tuple[int, str, int]] = []
    found = _walk(data, value_at, stop, places)
    if len(_layouts) >= _LAYOUTS_MAX:
        _layouts.clear()
    _layouts[start] = _layout(data, value_at, stop, places)
    return found


def _walk(data: bytes, value_at: int, stop: int, places: list[tuple[int, str, int]] | None) -> Annotations:
    """Read entry by entry; `places` takes offset, format and position (-1 for none) of each value of fixed width.

    Of a value that becomes a column and has no fixed width it takes `_NO_FORMAT`.
    """
    found: list[int | bytes | None] = [None] * 7
    count, pos = open_items(data, value_at)
    for _ in range(count // 2):
        constructor = data[pos]
        entry_at = skip(data, pos)
        position = -1
        if constructor in _TEXTS:
            position = _POSITIONS.get(data[pos + (2 if constructor < 0xB0 else 5) : entry_at], -1)
        pos = skip(data, entry_at)
        if pos > stop:
            raise ValueError(f"an annotation ends at {pos}, the section at {stop}")
        code = data[entry_at]
        if position >= 0 and code != 0x40:
            found[position] = _column_value(data, entry_at, pos, position)
        if places is not None:
            if code in _FORMATS:
                places.append((entry_at + 1, _FORMATS[code], position))
            elif code in b"\xa1\xa3":
                places.append((entry_at + 2, f"{data[entry_at + 1]}s", position))
            elif position >= 0 and code != 0x40:
                places.append((entry_at, _NO_FORMAT, position))
    if pos != stop or count & 1:
        raise ValueError(f"{count} annotation keys and values end at {pos}, the section at {stop}")
    sequence_number, enqueued, state, scheduled, enqueued_number, key, source = found
    return sequence_number, enqueued, state, scheduled, enqueued_number, key, source  # type: ignore[return-value]


def _column_value(data: bytes, entry_at: int, end: int, position: int) -> int | bytes:
    """Return the value at `entry_at` as a column takes it."""
    value, _ = decode_exactly(data, entry_at, end)
    if position >= PARTITION_KEY:
        if isinstance(value, str) and type(value) in (str, Symbol):
            return value.encode()
    elif isinstance(value, int) and not isinstance(value, bool) and value <= _LONG_MAX:
        return int(value)
    raise ValueError(f"the annotation {_NAMES[position]} is of type {TYPE_NAMES[type(value)]}")


def _layout(data: bytes, value_at: int, stop: int, places: list[tuple[int, str, int]]) -> _Layout | None:
    """Return how a section like this one is read in one go; None when that would not help."""
    if any(layout == _NO_FORMAT for _, layout, _ in places):
        return None
    formats, fixed, behind = [">"], list[bytes](), value_at
    positions: dict[int, int] = {}
    for index, (at, layout, position) in enumerate(places):
        formats.append(f"{at - behind}s{layout}")
        fixed.append(data[behind:at])
        behind = at + Struct(">" + layout).size
        if position >= 0:
            positions[position] = index
    formats.append(f"{stop - behind}s")
    fixed.append(data[behind:stop])
    if not positions:
        return None
    missing = len(places)
    pick = itemgetter(*(positions.get(position, missing) for position in range(7)))
    return _Layout(Struct("".join(formats)).unpack_from, tuple(fixed), pick)


# --- The header -----------------------------------------------------------------------------------

Header = tuple[int | None, int]
"""Time to live in milliseconds, delivery count."""

NO_HEADER: Final[Header] = (None, 0)
_HEADERS_MAX: Final = 1024
_HEADER_BYTES_MAX: Final = 40
_headers: Final[dict[bytes, Header]] = {}


def read_header(data: bytes, value_at: int, stop: int) -> Header:
    """Return what becomes columns of the header at `value_at`. Raises MALFORMED. Few differ, so those read are kept."""
    section = data[value_at:stop]
    header = _headers.get(section)
    if header is None:
        header = _read_header(section)
        if len(section) <= _HEADER_BYTES_MAX:
            if len(_headers) >= _HEADERS_MAX:
                _headers.clear()
            _headers[section] = header
    return header


def _read_header(section: bytes) -> Header:
    fields, stop = decode_exactly(section)
    if stop != len(section):
        raise ValueError(f"the header's fields end at {stop}, the section at {len(section)}")
    _, _, ttl, _, delivery_count = [*(fields if isinstance(fields, list) else []), *[None] * 5][:5]
    numbers: list[int | None] = []
    for name, field in (("ttl", ttl), ("delivery-count", delivery_count)):
        if field is None:
            numbers.append(None)
        elif isinstance(field, int) and not isinstance(field, bool) and 0 <= field <= _LONG_MAX:
            numbers.append(int(field))
        else:
            raise ValueError(f"the header's {name} is {field!r:.40} of type {TYPE_NAMES[type(field)]}")
    return numbers[0], numbers[1] or 0
