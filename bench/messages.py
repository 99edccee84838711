"""The messages that the load client sends: encoded once, their varying bytes written in place.

Knows the encoding of the sections that occur here [AMQP 3.2]. Nothing is encoded while the clock runs. The last eight
bytes of each body are the message's number, by which the receiver notices a lost or doubled message.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from cproton_ffi import ffi
from engine import Pointer

HEADER: Final = bytes.fromhex("005370c0020141")
"""Header section {durable: true}."""

NUMBER_BYTES: Final = 8
ID_DIGITS: Final = 32
COLORS: Final = 10
"""Values of the application property `color`: c0 to c9."""

_NULL: Final = b"\x40"
_DATA: Final = bytes.fromhex("005375b0")
_PROPERTIES: Final = bytes.fromhex("005373c0")
_APPLICATION_PROPERTIES: Final = bytes.fromhex("005374c1")


@dataclass(frozen=True, slots=True)
class Shape:
    """What messages have besides their bodies."""

    has_properties: bool = False
    """A message id of 32 digits, and the application property `color`, as SDKs send them."""


SHAPES: Final[Mapping[str, Shape]] = {"bare": Shape(), "properties": Shape(has_properties=True)}


class Template:
    """One encoded message whose number is written in place."""

    def __init__(self, size_bytes: int, shape: Shape = SHAPES["bare"]) -> None:
        if size_bytes < NUMBER_BYTES:
            raise SystemExit(f"a body needs at least {NUMBER_BYTES} bytes")
        sections = HEADER
        message_id = _text("0" * ID_DIGITS) if shape.has_properties else b""
        if message_id:
            sections += _PROPERTIES + _compound(message_id, 1)
        id_end = len(sections)
        if shape.has_properties:
            sections += _APPLICATION_PROPERTIES + _compound(_text("color") + _text("c0"), 2)
        color_end = len(sections)
        encoded = sections + _DATA + size_bytes.to_bytes(4, "big") + b"x" * size_bytes
        self.length = len(encoded)
        self.data: Pointer = ffi.new("char[]", encoded)
        self._bytes = ffi.buffer(self.data)
        self._number = ffi.cast("uint64_t *", self.data + self.length - NUMBER_BYTES)
        self._id = slice(id_end - NUMBER_BYTES * 2, id_end) if shape.has_properties else None
        self._color = slice(color_end - 1, color_end)

    def write(self, number: int) -> None:
        """Number the message."""
        self._number[0] = number
        if self._id is not None:
            self._bytes[self._id] = b"%016d" % number
            self._bytes[self._color] = b"%d" % (number % COLORS)


def _text(value: str) -> bytes:
    return b"\xa1" + bytes([len(value)]) + value.encode()


def _compound(items: bytes, count: int) -> bytes:
    """Size, count and items of a short list or map."""
    return bytes([len(items) + 1, count]) + items
