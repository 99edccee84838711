"""Single parts of a delivered message, read without the rest: a search looks at all messages of a queue.

Knows the form in which usual encoders write, with the sections in order, as the broker stores them; steps over what is
not asked for. Anything else, and what is wrong with it, is left to the parser (`message`), which takes four times as
long and is the reference: a property test holds both together. Pure.
"""

from __future__ import annotations

from struct import Struct
from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ...codec.errors import DecodeError
from ...codec.sections import APPLICATION_PROPERTIES, HEADS, MESSAGE_ANNOTATIONS, PROPERTIES, open_items
from ...codec.skip import WIDTHS, skip
from .annotations import value_at
from .message import parse_message

_SMALL_MAP, _SHORT_STRING, _SHORT_SYMBOL = 0xC1, 0xA1, 0xA3
_GROUP_ID: Final = 10
_PARTITION_KEY: Final = b"x-opt-partition-key"
_NOT_FIXED: Final = 0
_u32: Final = Struct(">I").unpack_from
_head = HEADS.get


class _Unusual(Exception):  # noqa: N818 - the parser reads it
    """The form is another one."""


_LEFT_TO_THE_PARSER: Final = (_Unusual, DecodeError, IndexError, StructError, UnicodeDecodeError)


def _section_start(data: bytes, wanted: int) -> int:
    """Where a section of a rank begins, -1 without it. _Unusual, IndexError, StructError."""
    pos, end, last = 0, len(data), -1
    while pos < end:
        head = _head(data[pos : pos + 4])
        if head is None:
            raise _Unusual
        rank, _, width = head
        if rank >= wanted:
            return pos if rank == wanted else -1
        if rank <= last:
            raise _Unusual
        last = rank
        if width == 1:
            pos += 5 + data[pos + 4]
        elif width == 4:
            pos += 8 + _u32(data, pos + 4)[0]
        elif width == 0:
            pos += 4
        else:
            raise _Unusual
    return -1


def field(data: bytes, position: int) -> object:
    """A field of the properties section, None without it. BrokerError (DECODE_ERROR)."""
    try:
        at = _section_start(data, PROPERTIES)
        if at < 0:
            return None
        count, pos = open_items(data, at + 3)
        if position >= count:
            return None
        pos = skip(data, pos, position) if position else pos
        skip(data, pos)
        return value_at(data, pos)
    except _LEFT_TO_THE_PARSER:
        return parse_message(data).field(position)


def application_property(data: bytes, name: str, *, is_folded: bool = False) -> tuple[bool, object]:
    """Whether a message has an application property, and its value. BrokerError (DECODE_ERROR).

    If `is_folded` the name is in lower case, and the first property counts whose name is the same in lower case.
    """
    try:
        at = _section_start(data, APPLICATION_PROPERTIES)
        return (False, None) if at < 0 else _entry(data, at + 3, name.encode(), is_folded)
    except _LEFT_TO_THE_PARSER:
        found = parse_message(data).application_properties()
        if not is_folded:
            return name in found, found.get(name)
        return next(((True, value) for each, value in found.items() if each.lower() == name), (False, None))


def _entry(data: bytes, pos: int, key: bytes, is_folded: bool) -> tuple[bool, object]:
    """The entry of a small map whose keys are short strings."""
    if data[pos] != _SMALL_MAP or len(key) > 255:
        raise _Unusual
    stop, left, pos = pos + 2 + data[pos + 1], data[pos + 2], pos + 3
    found_at = -1
    while left >= 2:
        if data[pos] != _SHORT_STRING:
            raise _Unusual
        at = pos + 2 + data[pos + 1]
        text = data[pos + 2 : at]
        if is_folded:
            if not text.isascii():
                raise _Unusual
            is_it = found_at < 0 and text.lower() == key
        else:
            is_it = text == key  # of two the last one counts
        if is_it:
            found_at = at
        width = WIDTHS[data[at]]
        pos, left = at + width if width > _NOT_FIXED else skip(data, at), left - 2
    if left or pos != stop or stop > len(data):
        raise _Unusual
    return (False, None) if found_at < 0 else (True, value_at(data, found_at))


def key(data: bytes) -> object:
    """What chooses the partition: the session id or else the partition key. BrokerError."""
    session_id = field(data, _GROUP_ID)
    if isinstance(session_id, str):
        return session_id
    if _PARTITION_KEY not in data:
        return None
    try:
        at = _section_start(data, MESSAGE_ANNOTATIONS)
        if at < 0:
            return None
        count, pos = open_items(data, at + 3)
        for _ in range(count >> 1):
            if data[pos] != _SHORT_SYMBOL:
                raise _Unusual
            at = pos + 2 + data[pos + 1]
            if data[pos + 2 : at] == _PARTITION_KEY:
                if data[at] != _SHORT_STRING:
                    raise _Unusual
                return value_at(data, at)
            width = WIDTHS[data[at]]
            pos = at + width if width > _NOT_FIXED else skip(data, at)
        return None
    except _LEFT_TO_THE_PARSER:
        return parse_message(data).partition_key
