"""AMQP frames as bytes: where each begins and ends, and which performative it holds [AMQP 2.3, 2.7].

Knows the frame header, the protocol headers and the codes of performatives. Does not know their fields, links and
deliveries. Pure functions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

AMQP_HEADER: Final = b"AMQP\x00\x01\x00\x00"
SASL_HEADER: Final = b"AMQP\x03\x01\x00\x00"
EMPTY_FRAME: Final = b"\x00\x00\x00\x08\x02\x00\x00\x00"

OPEN, BEGIN, ATTACH, FLOW, TRANSFER, DISPOSITION, DETACH, END, CLOSE = range(0x10, 0x19)
"""Descriptor codes of the performatives."""

_pack_header: Final = Struct(">IBBH").pack  # size, offset of the body in words of four bytes, type, channel
_SIZE_MAX: Final = 0xFFFF_FFFF
_size_at: Callable[..., tuple[int]] = Struct(">I").unpack_from


def frame_ends(data: bytes, pos: int = 0, size_max: int = _SIZE_MAX) -> tuple[list[int], bool]:
    """Return where each whole frame from `pos` on ends, and whether what follows the last can't be a frame.

    Can't be: its size is below 8 or above `size_max`. Otherwise what follows is nothing, or the beginning of a frame.
    """
    ends: list[int] = []
    length = len(data)
    last = length - 4
    while pos <= last:
        size = _size_at(data, pos)[0]
        if size < 8 or size > size_max:
            return ends, True
        pos += size
        if pos > length:
            break
        ends.append(pos)
    return ends, False


def performatives(data: bytes) -> Iterator[tuple[int, int, int, int]]:
    """Yield channel, performative's code, start and end of each whole frame that holds one in its usual form.

    The usual form is a header of eight bytes and the code as a small ulong: the performative's list begins 11 bytes
    behind the frame's start. A protocol header at the beginning of `data` is passed over.
    """
    start = len(AMQP_HEADER) if data.startswith(b"AMQP") else 0
    for stop in frame_ends(data, start)[0]:
        if (
            stop - start > 11
            and data[start + 4 : start + 6] == b"\x02\x00"
            and data[start + 8 : start + 10] == b"\x00\x53"
        ):
            yield int.from_bytes(data[start + 6 : start + 8], "big"), data[start + 10], start, stop
        start = stop


def write_frame(channel: int, code: int, fields: bytes) -> bytes:
    """Return an AMQP frame around the encoded list of a performative."""
    return _pack_header(11 + len(fields), 2, 0, channel) + bytes((0, 0x53, code)) + fields
