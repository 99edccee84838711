"""AMQP values of requests, responses and link properties: Python to bytes and back, by Proton.

Knows which Python value stands for which AMQP type: plain `int` is a long, `str` a string, `bytes` binary, and the
names below are for the rest. Does not know messages that users send and read: those are the codec's, and much faster
there. What is decoded comes back as plain Python: arrays are lists, symbols are `str`, every whole number is `int`.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final
from uuid import UUID

import proton
from cproton_ffi import ffi as _ffi
from cproton_ffi import lib as _lib

ffi: Any = _ffi
lib: Any = _lib

_types: Any = proton
UNDESCRIBED: Any = _types.UNDESCRIBED
Array: Any = _types.Array
Data: Any = _types.Data
Described: Any = _types.Described
Int: Any = _types.int32
Uint: Any = _types.uint
Symbol: Any = _types.symbol
Timestamp: Any = _types.timestamp

PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
BODY_CODES: Final = (0x75, 0x76, 0x77)
VALUE: Final = 0x77


def longs(values: Iterable[int]) -> Any:
    """An array of longs."""
    return Array(UNDESCRIBED, Data.LONG, *map(int, values))


def uuids(values: Iterable[UUID]) -> Any:
    """An array of uuids."""
    return Array(UNDESCRIBED, Data.UUID, *values)


def described(code: int, value: object) -> Any:
    """A described value, as sections of a message and states are."""
    return Described(_types.ulong(code), value)


def encode(value: object) -> bytes:
    """The encoded form of a value; KeyError for a type that stands for nothing."""
    data = Data()
    data.put_object(value)
    encoded: bytes = bytes(data.encode())
    return encoded


def decode(data: bytes, at: int = 0) -> tuple[Any, int]:
    """The value at `at` and the offset behind it; ValueError if there is none."""
    values = Data()
    size = lib.pn_data_decode(values._data, ffi.from_buffer(data) + at, len(data) - at)
    if size <= 0:
        raise ValueError(f"no AMQP value at offset {at} of {len(data)} bytes")
    values.rewind()
    values.next()
    return _plain(values.get_object()), at + size


def value_of(pointer: Any) -> Any:
    """The plain value in one of Proton's data objects; None when it is empty."""
    if not pointer:
        return None
    values = Data(pointer)
    values.rewind()
    return _plain(values.get_object()) if values.next() else None


def put_value(pointer: Any, value: object) -> None:
    """Replace the value in one of Proton's data objects."""
    values = Data(pointer)
    values.clear()
    values.put_object(value)


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | float | UUID):
        return value
    if isinstance(value, str):
        return str(value)
    if isinstance(value, int):
        return int(value)
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value)
    if isinstance(value, dict):
        return {_plain(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(each) for each in value]
    if isinstance(value, Array):
        return [_plain(each) for each in value.elements]
    if isinstance(value, Described):
        return Described(_plain(value.descriptor), _plain(value.value))
    return value


def outcome_code(value: Any) -> int | None:
    """The descriptor of a described value, as in a transactional state; None if it isn't one."""
    return int(value.descriptor) if isinstance(value, Described) and isinstance(value.descriptor, int) else None


def described_fields(value: Any) -> list[Any]:
    """The fields of a described list; none if it isn't one."""
    return list(value.value) if isinstance(value, Described) and isinstance(value.value, list) else []
