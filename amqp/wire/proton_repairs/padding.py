"""Trailing nulls for clients that need every field: Proton leaves them out.

Python's SDK before 7.15 takes fields by position and fails without them (`clients`). Needed as long as Proton writes
the shortest form (0.40.0: `tests/amqp/test_padding.py`). Knows the number of fields of each performative.
"""

from __future__ import annotations

from struct import error as StructError  # noqa: N812  (the standard name is a bare `error`)
from typing import Final

from ....codec.encode import list_from_items
from ....codec.errors import DecodeError
from ....codec.frames import frame_ends
from ....codec.skip import skip
from ..performatives import FIELDS, FRAME_BYTES_MIN, open_list, size_at

_REJECTED, _ERROR = 0x25, 0x1D
_INNER_FIELDS: Final = {_REJECTED: (1, 0), _ERROR: (3, -1)}

PADDING_BYTES_MAX: Final = 16
"""By how much padding can make a transfer longer: ten nulls, and four-byte sizes in place of one-byte ones."""


class FramePadder:
    """Writes Proton's frames anew with every field present, as Python clients before 7.15 need them."""

    __slots__ = ("_rest", "_started")

    def __init__(self) -> None:
        self._rest = b""
        self._started = False

    def feed(self, data: bytes) -> bytes:
        """The padded form of the frames that `data` completes; the protocol header goes through as it is."""
        data = self._rest + data
        out: list[bytes] = []
        pos = 0
        if not self._started and len(data) >= 8:
            self._started = True
            if data.startswith(b"AMQP"):
                out.append(data[:8])
                pos = 8
        for stop in frame_ends(data, pos)[0] if self._started else ():
            out.append(_padded_frame(data[pos + 4 : pos + 8], data[pos + 8 : stop]))
            pos = stop
        self._rest = data[pos:]
        return b"".join(out)


def with_lower_frame_size(frame: bytes, by: int) -> bytes:
    """The client's `open` with a max-frame-size that leaves `by` bytes for padding; other frames unchanged."""
    try:
        count, pos, _ = open_list(frame, 11)
        if count > 2:
            pos = skip(frame, pos, 2)
            if frame[pos] == 0x70:
                size = size_at(frame, pos + 1)[0]
                lower = max(FRAME_BYTES_MIN, size - by).to_bytes(4, "big")
                return frame[: pos + 1] + lower + frame[pos + 5 :]
    except (DecodeError, IndexError, StructError):
        pass
    return frame


def _padded_frame(header: bytes, body: bytes) -> bytes:
    """A frame with all fields of its performative; `header` is that of Proton's frame, without the size."""
    if len(body) > 3 and body[:2] == b"\x00\x53" and body[2] in FIELDS:
        performative, behind = _with_all_fields(body, 0, FIELDS)
        body = performative + body[behind:]
    return (8 + len(body)).to_bytes(4, "big") + header + body


def _with_all_fields(data: bytes, at: int, table: dict[int, tuple[int, int]]) -> tuple[bytes, int]:
    """The described list at `at` with all its fields, and the offset behind the original."""
    fields, error_at = table[data[at + 2]]
    count, pos, behind = open_list(data, at + 3)
    items = data[pos:behind]
    if 0 <= error_at < count:
        start = skip(data, pos, error_at)
        if data[start : start + 2] == b"\x00\x53" and data[start + 2] in _INNER_FIELDS:
            inner, stop = _with_all_fields(data, start, _INNER_FIELDS)
            items = data[pos:start] + inner + data[stop:behind]
    missing = max(0, fields - count)
    return data[at : at + 3] + list_from_items(count + missing, items + b"\x40" * missing), behind
