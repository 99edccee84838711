"""The field of a transfer that Proton can't write: the message-format, which makes a transfer a batch.

Proton always writes 0. So a batch gets a delivery tag of twelve bytes whose first four are a mark; this module removes
the mark from the frames that Proton has written and writes the format in its place. The format needs five bytes instead
of Proton's one, and the tag without the mark is four bytes shorter, so the frame keeps its length.

Knows the beginning of a transfer frame as Proton writes it. Does not know links and messages.
"""

from __future__ import annotations

from struct import Struct
from typing import Final

BATCH_FORMAT: Final = 0x80013700
MARK: Final = b"\xe5\x42\x17\xba"
MARKED_TAG_BYTES: Final = 12

_HEAD_BYTES_MAX: Final = 64
"""All before the end of the message-format: frame header 8, descriptor 3, list 9, handle 5, id 5, tag 14, format 5."""
_AMQP: Final = 0x414D5150  # a protocol header, "AMQP" and four more bytes, stands where a frame's size would
_TRANSFER: Final = b"\x00\x53\x14"
_FIELD_BYTES: Final = {0x40: 1, 0x43: 1, 0x52: 2, 0x70: 5}
_TAG: Final = b"\xa0\x0c" + MARK
_FORMAT: Final = b"\x70" + BATCH_FORMAT.to_bytes(4, "big")
_size_at = Struct(">I").unpack_from


class EnvelopeMarker:
    """Reads a connection's output frame by frame and writes the format of batches."""

    __slots__ = ("_skip",)

    def __init__(self) -> None:
        self._skip = 0
        """Bytes until the next frame begins."""

    def mark(self, view: memoryview) -> int:
        """Rewrite the next bytes of output in place; returns how many of them can be sent now.

        Fewer than all only if the beginning of the last frame is incomplete: those bytes must be passed again with
        more.
        """
        at, end = self._skip, len(view)
        while at < end:
            if end - at < 8:
                break
            size = 8 if (size := _size_at(view, at)[0]) == _AMQP else size
            if end - at < min(size, _HEAD_BYTES_MAX):
                break
            if size > 16:
                _rewrite(view, at)
            at += size
        if at >= end:
            self._skip = at - end
            return end
        self._skip = 0
        return at


def _rewrite(view: memoryview, at: int) -> None:
    """Give the frame at `at` the batch format, if it is a transfer with a marked tag."""
    pos = at + 4 * view[at + 4]
    if view[at + 5] != 0 or bytes(view[pos : pos + 3]) != _TRANSFER:
        return
    pos += 3 + (3 if view[pos + 3] == 0xC0 else 9)
    pos += _FIELD_BYTES.get(view[pos], 1)  # handle
    pos += _FIELD_BYTES.get(view[pos], 1)  # delivery-id
    if bytes(view[pos : pos + 6]) != _TAG or view[pos + 14] != 0x43:
        return
    number = bytes(view[pos + 6 : pos + 14])
    view[pos : pos + 15] = b"\xa0\x08" + number + _FORMAT
