"""The messages that the load client sends: encoded once, their varying bytes written in place.

Knows the encoding of the sections that occur here [AMQP 3.2], and that of a batch of Service Bus: a delivery whose data
sections are the messages, each encoded whole. The last eight bytes of each body are the message's number, by which the
receiver notices a lost or doubled message; what else varies is made of the number, too.
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
COLORS: Final = 10
"""Values of the application property `color`: c0 to c9, the last digit of the number."""

BATCH: Final = 100
GROUP: Final = 10
"""Messages in a batch, and neighbours that have the same partition key: those of one transaction."""

_NULL: Final = b"\x40"
_DATA: Final = bytes.fromhex("005375b0")
_ANNOTATIONS: Final = bytes.fromhex("005372c1")
_PROPERTIES: Final = bytes.fromhex("005373c0")
_APPLICATION_PROPERTIES: Final = bytes.fromhex("005374c1")
_KEY: Final = b"\xa3\x13x-opt-partition-key"
_NULLS_BEFORE_GROUP_ID: Final = 9


@dataclass(frozen=True, slots=True)
class Shape:
    """What a delivery has besides bodies."""

    has_properties: bool = False
    """A message id of 32 digits, and the application property `color`."""

    sessions: int = 0
    """Message n belongs to session n modulo this; 0: to none."""

    has_key: bool = False
    """A partition key, which changes after every `GROUP` messages."""

    batch: int = 1
    """Messages in a delivery; more than one are a batch of Service Bus."""


SHAPES: Final[Mapping[str, Shape]] = {
    "bare": Shape(),
    "properties": Shape(has_properties=True),
    "batch": Shape(has_properties=True, batch=BATCH),
    "sessions": Shape(has_properties=True, sessions=100),
    "many-sessions": Shape(has_properties=True, sessions=10_000),
    "keys": Shape(has_properties=True, has_key=True),
}


def session_id(number: int) -> str:
    """The id of a session; all have the same length."""
    return f"s{number:07d}"


@dataclass(frozen=True, slots=True)
class Digits:
    """A place in a message for digits: those of (number // divisor) % modulus."""

    places: int
    divisor: int = 1
    modulus: int = 1 << 62

    def __len__(self) -> int:
        return self.places

    def text(self, number: int) -> bytes:
        """The digits of a message's number."""
        return b"%0*d" % (self.places, number // self.divisor % self.modulus)


Pieces = list[bytes | Digits]


def _string(start: bytes, digits: Digits) -> Pieces:
    return [b"\xa1" + bytes([len(start) + len(digits)]) + start, digits]


def _section(code: bytes, count: int, *items: Pieces) -> Pieces:
    """A section that is a list or map with `count` items and less than 256 bytes."""
    pieces = [piece for item in items for piece in item]
    return [code + bytes([sum(map(len, pieces)) + 1, count]), *pieces]


def _message(size_bytes: int, shape: Shape) -> Pieces:
    pieces: Pieces = [HEADER]
    if shape.has_key:
        pieces += _section(_ANNOTATIONS, 2, [_KEY], _string(b"k", Digits(7, GROUP)))
    if shape.has_properties:
        items: list[Pieces] = [_string(b"0" * 16, Digits(16))]
        if shape.sessions:
            null: Pieces = [_NULL]
            items += [null] * _NULLS_BEFORE_GROUP_ID
            items += [_string(b"s", Digits(7, modulus=shape.sessions))]
        pieces += _section(_PROPERTIES, len(items), *items)
        pieces += _section(_APPLICATION_PROPERTIES, 2, [b"\xa1\x05color"], _string(b"c", Digits(1, modulus=COLORS)))
    return [*pieces, _DATA + size_bytes.to_bytes(4, "big") + b"x" * (size_bytes - NUMBER_BYTES), b"\0" * NUMBER_BYTES]


class Template:
    """One encoded delivery whose numbers are written in place: nothing is encoded while the clock runs."""

    def __init__(self, size_bytes: int, shape: Shape = SHAPES["bare"]) -> None:
        if size_bytes < NUMBER_BYTES:
            raise SystemExit(f"a body needs at least {NUMBER_BYTES} bytes")
        pieces = _message(size_bytes, shape)
        if shape.batch > 1:
            pieces.insert(0, _DATA + sum(map(len, pieces)).to_bytes(4, "big"))
        encoded = b"".join(piece.text(0) if isinstance(piece, Digits) else piece for piece in pieces)
        self.messages = shape.batch
        self.length = len(encoded) * shape.batch
        self.data: Pointer = ffi.new("char[]", encoded * shape.batch)
        self._bytes = ffi.buffer(self.data)
        self._bodies = [
            ffi.cast("uint64_t *", self.data + (part + 1) * len(encoded) - NUMBER_BYTES) for part in range(shape.batch)
        ]
        self._digits: list[list[tuple[slice, Digits]]] = [[] for _ in range(shape.batch)]
        at = 0
        for part in range(shape.batch):
            for piece in pieces:
                if isinstance(piece, Digits):
                    self._digits[part].append((slice(at, at + len(piece)), piece))
                at += len(piece)

    def write(self, number: int) -> None:
        """Number the message; in a batch, the first one, and the others count on."""
        for each, (body, places) in enumerate(zip(self._bodies, self._digits, strict=True), number):
            body[0] = each
            for where, digits in places:
                self._bytes[where] = digits.text(each)
