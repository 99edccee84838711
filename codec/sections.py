"""Where the sections of an encoded message lie, and how to put a new piece into one of them [AMQP 3.2].

Knows the order, the descriptors and the outer shape of the sections, and splices lists and maps so that every item
that is not replaced keeps its very bytes. Does not know what any field or annotation means: `message` does.
Every function is pure. What is wrong with a peer's bytes comes out as `DecodeError`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from contextlib import suppress
from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from .decode import decode
from .encode import encode, list_from_items, map_from_items
from .errors import DecodeError
from .native import native_module
from .skip import skip
from .types import Symbol, Ulong

HEADER, DELIVERY_ANNOTATIONS, MESSAGE_ANNOTATIONS, PROPERTIES, APPLICATION_PROPERTIES, BODY, FOOTER = range(7)
"""Ranks of the sections: their order in a message [AMQP 3.2]."""

_LIST, _MAP, _BINARY, _ANY, _TEXT = b"\x45\xc0\xd0", b"\xc1\xd1", b"\xa0\xb0", bytes(range(256)), b"\xa1\xa3\xb1\xb3"

Entries = Mapping[bytes, tuple[bytes, bytes]]
"""Entries of a map by the text of their keys: key and value, encoded."""

DATA, SEQUENCE, VALUE = range(0x75, 0x78)
"""Descriptor codes of the three kinds of body."""

# descriptor code: (rank, symbolic descriptor, constructors of its value, may be repeated)
_SECTIONS: Final = {
    0x70: (HEADER, "amqp:header:list", _LIST, False),
    0x71: (DELIVERY_ANNOTATIONS, "amqp:delivery-annotations:map", _MAP, False),
    0x72: (MESSAGE_ANNOTATIONS, "amqp:message-annotations:map", _MAP, False),
    0x73: (PROPERTIES, "amqp:properties:list", _LIST, False),
    0x74: (APPLICATION_PROPERTIES, "amqp:application-properties:map", _MAP, False),
    0x75: (BODY, "amqp:data:binary", _BINARY, True),
    0x76: (BODY, "amqp:amqp-sequence:list", _LIST, True),
    0x77: (BODY, "amqp:amqp-value:*", _ANY, False),
    0x78: (FOOTER, "amqp:footer:map", _MAP, False),
}
_EMPTY: Final = (b"\xa0\0", b"\xb0\0\0\0\0")  # binaries
_CODE_BY_SYMBOL: Final = {symbol: code for code, (_, symbol, _, _) in _SECTIONS.items()}

HEADS: Final = {
    bytes((0, 0x53, code, constructor)): (
        rank,
        code,
        -1 if code == VALUE else {0x4: 0, 0xD: 4, 0xB: 4}.get(constructor >> 4, 1),
    )
    for code, (rank, _, constructors, _) in _SECTIONS.items()
    for constructor in constructors
}
"""The first four bytes of a section in its usual form: rank, descriptor code, width of the value's size.

A width of 0 means that no size follows (the empty list), -1 that the value has to be skipped.
"""
_head = HEADS.get
_u32: Final = Struct(">I").unpack_from


def locate(data: bytes, *, mixed: bool = False) -> list[int] | None:
    """Return 14 offsets: where each of the 7 ranks begins (0-6) and where it ends (7-13; 0 when it is not there).

    Knows the form in which every usual encoder writes: sections in order, descriptors as small ulongs. None for
    whatever is not in that form; `canonical` then brings it there or raises. All body sections together make one
    span; with `mixed` they may be of several kinds. Raises IndexError or DecodeError for data that is
    cut off.
    """
    at = [0] * 14
    pos, end, last_rank, last_code = 0, len(data), -1, 0
    while pos < end:
        head = _head(data[pos : pos + 4])
        if head is None:
            return None
        rank, code, width = head
        if rank > last_rank:
            at[rank] = pos
            last_rank = rank
        elif rank != BODY or last_rank != BODY or (code == VALUE if code == last_code else not mixed):
            return None
        last_code = code
        if width == 1:
            pos += 5 + data[pos + 4]
        elif width == 4:
            try:
                pos += 8 + _u32(data, pos + 4)[0]
            except StructError:
                raise DecodeError(end, f"the last section should end at {pos + 8 + _cut_off(data, pos + 4)}") from None
        elif width == 0:
            pos += 4
        else:
            pos = skip(data, pos + 3)
        if pos < end and rank == BODY and code != VALUE:
            pos = sections_end(data, pos, code)  # there may be 200 000
        at[rank + 7] = pos
    if pos != end:
        raise DecodeError(end, f"the last section should end at {pos}")
    return at


def canonical(data: bytes) -> bytes:
    """Return the message with its sections in order and their descriptors as small ulongs, values as they came.

    A section that is null is left out: some encoders write one for what is not set. Raises DecodeError,
    also for a section that comes twice, for a described value that is no section, and for two kinds of body. An empty
    data section beside another body is none: some senders write one whatever the body is.
    """
    parts, body_count, stop = gather(data)
    if stop < len(data):
        raise _refusal(data, stop, parts)
    if body_count > 1:
        raise DecodeError(0, "a message with more than one kind of body")
    return b"".join(parts[code] for code in sorted(parts))


def gather_in_python(data: bytes, /) -> tuple[dict[int, bytes], int, int]:
    """Return the sections of a message by code, descriptors in the usual form and those of a code together.

    Also returns how many kinds of body have more than empty data, and where the first section is that can't be taken.
    """
    found: dict[int, list[bytes]] = {}
    bodies = set[int]()
    pos, end = 0, len(data)
    with suppress(DecodeError):
        while pos < end:
            code, value_pos = _descriptor(data, pos)
            rank, _, constructors, is_repeatable = _SECTIONS[code]
            if data[value_pos : value_pos + 1] == b"\x40" and code != VALUE:
                pos = value_pos + 1
                continue
            if value_pos >= end or data[value_pos] not in constructors or (code in found and not is_repeatable):
                break
            stop = skip(data, value_pos)
            value = data[value_pos:stop]
            found.setdefault(code, []).append(bytes((0, 0x53, code)) + value)
            if rank == BODY and value not in _EMPTY:
                bodies.add(code)
            pos = stop
    return {code: b"".join(sections) for code, sections in found.items()}, len(bodies), pos


def _refusal(data: bytes, pos: int, seen: Collection[int]) -> DecodeError:
    """Return what is wrong with the section at `pos`, behind those of the codes `seen`."""
    try:
        code, value_pos = _descriptor(data, pos)
        _, symbol, constructors, is_repeatable = _SECTIONS[code]
        if value_pos >= len(data) or data[value_pos] not in constructors:
            return DecodeError(value_pos, f"not the value of a section {symbol}")
        if code in seen and not is_repeatable:
            return DecodeError(pos, f"a second section {symbol}")
        skip(data, value_pos)
    except DecodeError as error:
        return error
    raise AssertionError(f"nothing is wrong with the section at {pos}")


def sections_end_in_python(data: bytes, pos: int, code: int, /) -> int:
    """Return where the sections of a code that follow each other from `pos` on end: whole ones in the usual form."""
    constructors, head = _SECTIONS[code][2], bytes((0, 0x53, code))
    with suppress(DecodeError):
        while data.startswith(head, pos) and data[pos + 3 : pos + 4] in constructors and pos + 3 < len(data):
            pos = skip(data, pos + 3)
    return pos


def _descriptor(data: bytes, pos: int) -> tuple[int, int]:
    """Return the code of the section that begins at `pos` and the offset of its value."""
    if data[pos] != 0:
        raise DecodeError(pos, f"a section begins with 0x00, not with 0x{data[pos]:02x}")
    descriptor, value_pos = decode(data, pos + 1)
    if isinstance(descriptor, Symbol):
        code = _CODE_BY_SYMBOL.get(descriptor)
    else:
        code = int(descriptor) if isinstance(descriptor, Ulong) and descriptor in _SECTIONS else None
    if code is None:
        raise DecodeError(pos + 1, f"{descriptor!r:.60} describes no section of a message")
    return code, value_pos


_BINARY_CONSTRUCTORS: Final = _BINARY[:1], _BINARY[1:]
_ULONG_DATA: Final = b"\x00\x80" + bytes(7) + b"\x75"
CONSTRUCTORS_MAX: Final = 4_500
"""So many bytes that may begin a binary are counted before the sections themselves are."""


def data_sections_max(data: bytes) -> int:
    """Return a number that `data` has no more data sections than.

    Each data section has a constructor of a binary, whatever form its descriptor has: to look for that byte takes a
    fifth of the time of reading a batch of 100 messages of 1 KB, less than to look for three descriptors. Where there
    are `CONSTRUCTORS_MAX` of them, the sections are read: bodies may be full of such bytes.
    """
    found = 0
    for constructor in _BINARY_CONSTRUCTORS:
        at = data.find(constructor)
        while at >= 0:
            found += 1
            if found == CONSTRUCTORS_MAX:
                try:
                    return len(data_sections(data))
                except DecodeError:
                    return found  # the batch will be refused
            at = data.find(constructor, at + 1)
    return found


def data_sections(data: bytes) -> list[bytes]:
    """Return what the data sections of a message hold, ignoring its other sections. Raises DecodeError."""
    found, stop = find_data_sections(data)
    if stop < len(data):
        code, value_pos = _descriptor(data, stop)
        skip(data, value_pos)
        assert code == DATA, f"nothing is wrong with the section at {stop}"
        raise DecodeError(value_pos, "a data section that holds no binary")
    return found


def find_data_sections_in_python(data: bytes, /) -> tuple[list[bytes], int]:
    """Return what the data sections of a message hold, and where the first section is that can't be read."""
    found: list[bytes] = []
    pos, end = 0, len(data)
    with suppress(DecodeError):
        while pos < end:
            if data.startswith(b"\x00\x53\x75", pos):
                code, value_pos = DATA, pos + 3
            elif data.startswith(_ULONG_DATA, pos):
                code, value_pos = DATA, pos + 10
            else:
                code, value_pos = _descriptor(data, pos)
            stop = skip(data, value_pos)
            if code == DATA:
                constructor = data[value_pos]
                if constructor not in _BINARY:
                    break
                found.append(data[value_pos + (2 if constructor == _BINARY[0] else 5) : stop])
            pos = stop
    return found, pos


def section_at(data: bytes, pos: int) -> tuple[int, int, int, int]:
    """Return rank and descriptor code of the section at `pos`, in whatever form, where its value begins and ends.

    Raises DecodeError, or IndexError for data that is cut off.
    """
    head = _head(data[pos : pos + 4])
    if head is None:
        code, value_pos = _descriptor(data, pos)
        rank, symbol, constructors, _ = _SECTIONS[code]
        if value_pos >= len(data) or data[value_pos] not in constructors:
            raise DecodeError(value_pos, f"not the value of a section {symbol}")
        stop = skip(data, value_pos)
    else:
        rank, code, width = head
        value_pos = pos + 3
        if width == 1:
            stop = pos + 5 + data[pos + 4]
        elif width == 4:
            stop = pos + 8 + (_u32(data, pos + 4)[0] if pos + 8 <= len(data) else _cut_off(data, pos + 4))
        else:
            stop = skip(data, value_pos)
    if stop > len(data):
        raise DecodeError(pos, f"a section ends at {stop}, the data at {len(data)}")
    return rank, code, value_pos, stop


def open_items(data: bytes, pos: int) -> tuple[int, int]:
    """Return the number of items of the list or map at `pos`, and the offset of the first.

    `pos` is known to hold a list or map that ends within `data`. Raises IndexError for a count that is cut off.
    """
    constructor = data[pos]
    if constructor < 0xC0:
        return 0, pos + 1
    if constructor < 0xD0:
        return data[pos + 2], pos + 3
    try:
        return _u32(data, pos + 5)[0], pos + 9
    except StructError:
        return _cut_off(data, pos + 5), pos + 9


def _cut_off(data: bytes, pos: int) -> int:
    """Return what is there of a 32-bit number that the end of the data cuts off."""
    return int.from_bytes(data[pos : pos + 4], "big")


def check_items(data: bytes, start: int, stop: int) -> None:
    """Raise DecodeError unless the items of the section from `start` to `stop` fill it exactly."""
    count, pos = open_items(data, start + 3)
    if skip(data, pos, count) != stop or (count & 1 and data[start + 3] in _MAP):
        raise DecodeError(start, f"{count} items do not fill the section, which ends at {stop}")


def list_with_fields(data: bytes, start: int, stop: int, first: int, value: bytes, default: bytes) -> bytes:
    """Return the list section from `start` to `stop` with new bytes for two fields, without descriptor.

    Field number `first` becomes `value`; the one behind it becomes `default` if it is null or not there. Fields that
    are missing before them become null; all others keep their bytes. `start == stop` stands for an empty list.
    """
    count, pos = open_items(data, start + 3) if start < stop else (0, start)
    if count <= first:
        nulls = b"\x40" * (first - count)
        return list_from_items(first + 2, data[pos:stop] + nulls + value + default)
    before = skip(data, pos, first)
    behind = skip(data, before)
    if count == first + 1:
        count, value = count + 1, value + default
    elif data[behind] == 0x40:
        behind, value = behind + 1, value + default
    return list_from_items(count, data[pos:before] + value + data[behind:stop])


def list_with(data: bytes, start: int, stop: int, values: Mapping[int, bytes]) -> bytes:
    """Return the list section from `start` to `stop` with new bytes at some positions, without descriptor.

    Fields that are missing before them become null; all others keep their bytes. `start == stop` stands for an empty
    list.
    """
    count, pos = open_items(data, start + 3) if start < stop else (0, start)
    items: list[bytes] = []
    for _ in range(count):
        next_pos = skip(data, pos)
        items.append(data[pos:next_pos])
        pos = next_pos
    items += [b"\x40"] * (max(values, default=-1) + 1 - count)
    for position, value in values.items():
        items[position] = value
    return list_from_items(len(items), b"".join(items))


def with_sections(data: bytes, at: list[int], sections: Mapping[int, bytes]) -> bytes:
    """Return the message with the sections of some ranks replaced or added; `at` comes from `locate`."""
    return b"".join(
        sections[rank] if rank in sections else data[at[rank] : at[rank + 7]] if at[rank + 7] else b""
        for rank in range(HEADER, FOOTER + 1)
    )


def map_with_entries(
    data: bytes,
    start: int,
    stop: int,
    changes: Mapping[str, object],
    removed: Collection[str] = (),
    *,
    symbols: bool = False,
) -> bytes:
    """Return the map section from `start` to `stop`, entries of `changes` replaced or appended, without descriptor.

    Other entries keep their bytes and all their order, but for those whose keys are in `removed`. New keys are
    strings, or `symbols`. `start == stop` stands for an empty map. Raises TypeError or ValueError for a value that
    AMQP cannot hold.
    """
    return map_with_encoded(data, start, stop, encoded_entries(changes, symbols=symbols), removed)


def encoded_entries(changes: Mapping[str, object], *, symbols: bool = False) -> Entries:
    """Return changes of a map for `map_with_encoded`, so that they are encoded once for many messages.

    Raises TypeError or ValueError for a value that AMQP cannot hold.
    """
    write = Symbol if symbols else str
    return {key.encode(): (encode(write(key)), encode(value)) for key, value in changes.items()}


def map_with_encoded(data: bytes, start: int, stop: int, entries: Entries, removed: Collection[str] = ()) -> bytes:
    """The same as `map_with_entries`, with the changes from `encoded_entries`."""
    count, pos = open_items(data, start + 3) if start < stop else (0, start)
    if not removed and not count & 1 and not any(data.find(key, pos, stop) >= 0 for key in entries):  # the usual case
        return map_from_items(count + 2 * len(entries), data[pos:stop] + b"".join(map(b"".join, entries.values())))
    missing = dict(entries)
    gone = {key.encode() for key in removed}
    pieces: list[bytes] = []
    kept_count = count
    for _ in range(count // 2):
        value_pos = skip(data, pos)
        next_pos = skip(data, value_pos)
        key = data[pos + (2 if data[pos] < 0xB0 else 5) : value_pos]
        is_text = data[pos] in _TEXT
        if is_text and key in entries:
            missing.pop(key, None)
            pieces += (data[pos:value_pos], entries[key][1])
        elif is_text and key in gone:
            kept_count -= 2
        else:
            pieces.append(data[pos:next_pos])
        pos = next_pos
    for encoded in missing.values():
        pieces += encoded
    return map_from_items(kept_count + 2 * len(missing), b"".join(pieces))


gather, find_data_sections, sections_end = gather_in_python, find_data_sections_in_python, sections_end_in_python
_native: Final = native_module(f"{__package__}._walk")
if _native is not None:
    gather, find_data_sections, sections_end = _native.gather, _native.data_sections, _native.sections_end
