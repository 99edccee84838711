"""AMQP values of requests, responses and link properties: into Proton's data objects and out of them, and plain.

Knows how a described value and arrays are built of the types of `codec`, and what plain Python is: arrays are lists,
symbols are `str`, every whole number is `int`. Does not know messages that users send and read.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

from cproton_ffi import ffi as _ffi
from cproton_ffi import lib as _lib

from ...codec.decode import decode
from ...codec.encode import encode
from ...codec.types import Array, Described, Ulong

ffi: Any = _ffi
lib: Any = _lib

PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
BODY_CODES: Final = (0x75, 0x76, 0x77)
VALUE: Final = 0x77
_LONG, _UUID = 0x81, 0x98  # constructors


def longs(values: Iterable[int]) -> Array:
    return Array(_LONG, tuple(map(int, values)))


def uuids(values: Iterable[UUID]) -> Array:
    return Array(_UUID, tuple(values))


def described(code: int, value: object) -> Described:
    """A described value, as sections of a message and states are."""
    return Described(Ulong(code), value)


def value_of(pointer: Any) -> Any:
    """The plain value in one of Proton's data objects; None when it is empty. Raises DecodeError."""
    size = lib.pn_data_encoded_size(pointer) if pointer else 0
    if size <= 0:
        return None
    buffer = ffi.new("char[]", size)
    size = lib.pn_data_encode(pointer, buffer, size)
    return plain(decode(ffi.buffer(buffer, size)[:])[0]) if size > 0 else None


def put_value(pointer: Any, value: object) -> None:
    """Replace the value in one of Proton's data objects."""
    encoded = encode(value)
    lib.pn_data_clear(pointer)
    lib.pn_data_decode(pointer, encoded, len(encoded))


def plain(value: object) -> Any:
    """The value without the types of AMQP that Python has none for."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        return float(value)
    if isinstance(value, bytes):
        return bytes(value)
    if isinstance(value, dict):
        return {plain(key): plain(each) for key, each in value.items()}
    if isinstance(value, list):
        return [plain(each) for each in value]
    if isinstance(value, Array):
        return [plain(each) for each in value.values]
    if isinstance(value, Described):
        return Described(plain(value.descriptor), plain(value.value))
    return value


def outcome_code(value: Any) -> int | None:
    """The descriptor of a described value, as in a transactional state; None if it isn't one."""
    return int(value.descriptor) if isinstance(value, Described) and isinstance(value.descriptor, int) else None


def described_fields(value: Any) -> list[Any]:
    """The fields of a described list; none if it isn't one."""
    return list(value.value) if isinstance(value, Described) and isinstance(value.value, list) else []
