"""The reply to a peek, taken apart: one big message that holds many [wire 7.2].

Knows the shape of the reply: an amqp-value with a map, in it "messages", a list of maps, in each "message", a binary.
Does not know what is in the messages. A pure function.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from ...codec.sections import VALUE, open_items, section_at
from ...codec.skip import skip
from ..errors import Code, ConnectorError
from .decode import MALFORMED, problem_of

_u32: Final = Struct(">I").unpack_from
_TEXTS: Final = b"\xa1\xa3\xb1\xb3"


def split_peek_reply(data: bytes) -> list[bytes]:
    """Return the encoded messages of a whole encoded reply, in its order; none if it tells of none.

    Raises ConnectorError(MALFORMED_MESSAGE).
    """
    try:
        data = bytes(data)
        pos, end = 0, len(data)
        while pos < end:
            _, code, value_at, pos = section_at(data, pos)
            if code == VALUE:
                return _messages(data, value_at)
        return []
    except MALFORMED as error:
        raise ConnectorError(
            Code.MALFORMED_MESSAGE, f"the service's reply to a peek is malformed: {problem_of(error)}"
        ) from None


def _messages(data: bytes, pos: int) -> list[bytes]:
    if data[pos] == 0x40:
        return []
    list_at = _entry(data, pos, b"messages")
    if list_at is None or data[list_at] == 0x40:
        return []
    constructor = data[list_at]
    if constructor not in b"\x45\xc0\xd0":
        raise ValueError(f'"messages" begins with 0x{constructor:02x}, not with that of a list')
    count, pos = open_items(data, list_at)
    found: list[bytes] = []
    for _ in range(count):
        # What every known service writes: a map with this one entry.
        if data[pos] == 0xD1 and data[pos + 8 : pos + 19] == b"\x02\xa1\x07message\xb0":
            start = pos + 23
            pos = start + _u32(data, pos + 19)[0]
            found.append(data[start:pos])
        else:
            message_at = _entry(data, pos, b"message")
            if message_at is None or data[message_at] not in b"\xa0\xb0":
                raise ValueError(f'an item of "messages" without a binary "message" (offset {pos})')
            found.append(data[message_at + (2 if data[message_at] < 0xB0 else 5) : skip(data, message_at)])
            pos = skip(data, pos)
    if pos != skip(data, list_at):
        raise ValueError(f"the last of {count} messages ends at {pos}, the list at {skip(data, list_at)}")
    return found


def _entry(data: bytes, pos: int, key: bytes) -> int | None:
    """Return the offset of the value of `key`, a string or symbol, in the map at `pos`."""
    if data[pos] not in b"\xc1\xd1":
        raise ValueError(f"0x{data[pos]:02x} begins no map (offset {pos})")
    count, pos = open_items(data, pos)
    for _ in range(count // 2):
        value_at = skip(data, pos)
        if data[pos] in _TEXTS and data[pos + (2 if data[pos] < 0xB0 else 5) : value_at] == key:
            return value_at
        pos = skip(data, value_at)
    return None
