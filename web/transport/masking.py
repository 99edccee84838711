"""Refuses unmasked WebSocket frames of clients [RFC 6455 5.1], which aiohttp accepts.

Knows frame headers, and counts the bytes of messages. Does not know payloads: the reader behind it does. One guard
belongs to one connection.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from aiohttp.http_websocket import WebSocketReader

_MASKED: Final = 0x80
_LENGTH_BITS: Final = 0x7F
_CONTROL: Final = 0x08
"""The bit of an opcode that makes a control frame."""
_EXTENDED: Final = {126: 2, 127: 8}
_MASK_BYTES: Final = 4
_END_BYTES_MAX: Final = 256 << 10
"""What a client may have sent before it sees our close: what its socket and ours hold."""
_NOT_A_FRAME: Final = b"\xff\x80\x00\x00\x00\x00"
"""A frame with every reserved bit set: a reader closes the connection with 1002, protocol error."""


class MaskGuard:
    """A reader in front of another one; replaces an unmasked frame by an invalid one, which closes the connection.

    `refused` is called once when that happens.
    """

    def __init__(self, reader: WebSocketReader, refused: Callable[[], None]) -> None:
        self._reader = reader
        self._on_refusal = refused
        self._held = b""  # the beginning of a frame header
        self._payload_bytes = 0  # payload bytes of the current frame that have yet to come
        self._is_control = False  # the current frame
        self._refused = False
        self._left_bytes: int | None = None  # that may still come, once the connection ends
        self.message_bytes = 0
        """Bytes of all messages so far, those of an unfinished one among them."""

    def feed_data(self, data: bytes) -> tuple[bool, bytes]:
        """See aiohttp's reader; a partial frame header is held back."""
        if self._refused:
            return True, b""
        if self._left_bytes is not None:
            self._left_bytes -= len(data)
            if self._left_bytes < 0:
                return True, b""
        data = self._held + data
        end, at = len(data), self._payload_bytes
        if not self._is_control:
            self.message_bytes += min(at, end)
        while at < end:
            if end - at < 2:
                break
            if not data[at + 1] & _MASKED:
                self._refused = True
                self._on_refusal()
                return self._reader.feed_data(data[:at] + _NOT_A_FRAME)
            length = data[at + 1] & _LENGTH_BITS
            extended = _EXTENDED.get(length, 0)
            behind = at + 2 + extended + _MASK_BYTES
            if behind > end:
                break
            if extended:
                length = int.from_bytes(data[at + 2 : at + 2 + extended], "big")
            self._is_control = bool(data[at] & _CONTROL)
            at = behind + length
            if not self._is_control:
                self.message_bytes += min(at, end) - behind
        whole = min(at, end)
        self._held, self._payload_bytes = data[whole:], at - whole
        return self._reader.feed_data(data[:whole]) if whole else (False, b"")

    def end(self) -> None:
        """Our side has closed: only the client's close may still come, behind little else."""
        self._left_bytes = _END_BYTES_MAX

    def feed_eof(self) -> None:
        self._reader.feed_eof()
