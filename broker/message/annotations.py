"""The annotations of an arriving message: the ones that Service Bus reads, and the ones that it drops [wire 4.3].

Knows keys and types. Drops the broker's annotations, which a resent message has, and keeps the sender's byte for byte;
a delivery gets new broker annotations. Must not depend on queues, clocks and storage. Pure.
"""

from __future__ import annotations

from enum import IntEnum
from typing import Final

from ...codec.decode import decode, is_readable
from ...codec.errors import DecodeError
from ...codec.sections import open_items
from ...codec.skip import skip
from ...codec.types import Long, Timestamp
from ..errors import BrokerError, Condition


class _Owner(IntEnum):
    """The use of an annotation that Service Bus knows: drop the broker's, read the sender's."""

    BROKER = 0
    PARTITION_KEY = 1
    VIA_PARTITION_KEY = 2
    SCHEDULED_ENQUEUE_TIME = 3
    DELIVERY_TIME = 4  # the same in JMS


_OWNERS: Final = {
    b"x-opt-sequence-number": _Owner.BROKER,
    b"x-opt-enqueued-time": _Owner.BROKER,
    b"x-opt-locked-until": _Owner.BROKER,
    b"x-opt-message-state": _Owner.BROKER,
    b"x-opt-lock-token": _Owner.BROKER,
    b"x-opt-enqueue-sequence-number": _Owner.BROKER,
    b"x-opt-offset": _Owner.BROKER,
    b"x-opt-partition-id": _Owner.BROKER,
    b"x-opt-deadletter-source": _Owner.BROKER,
    b"x-opt-partition-key": _Owner.PARTITION_KEY,
    b"x-opt-via-partition-key": _Owner.VIA_PARTITION_KEY,
    b"x-opt-scheduled-enqueue-time": _Owner.SCHEDULED_ENQUEUE_TIME,
    b"x-opt-delivery-time": _Owner.DELIVERY_TIME,
}
BROKER_ANNOTATIONS: Final = frozenset(name.decode() for name, owner in _OWNERS.items() if owner is _Owner.BROKER)
"""What the broker writes into a delivered message, and drops from an arriving one."""

INSTANT_MAX: Final = 253_402_300_799_999
"""The last millisecond of the year 9999."""

_PREFIX: Final = b"x-opt-"
assert all(name.startswith(_PREFIX) for name in _OWNERS), "where no key begins so, none has a meaning"

_LOCK_TOKEN: Final = b"x-opt-lock-token"
_STRINGS: Final = b"\xa1\xa3\xb1\xb3"
_BINARIES: Final = b"\xa0\xb0"  # Python's SDK resends strings as binary; a string's constructor is one higher


Annotations = tuple[int, bytes, str | None, str | None, int | None]
"""The number of kept keys and values, and their bytes; partition key, via-partition-key, scheduled enqueue time (Unix
ms)."""

NO_ANNOTATIONS: Final[Annotations] = (0, b"", None, None, None)


def read_annotations(data: bytes, start: int, stop: int) -> Annotations:
    """Read the section of message annotations from `start` to `stop`, without the broker's annotations.

    Raises DecodeError, and BrokerError (INVALID_FIELD) for a value of the wrong type.
    """
    count, pos = open_items(data, start + 3)
    if data.find(_PREFIX, pos, stop) < 0:  # a peer may send 20 000 of its own
        _check_end(count, skip(data, pos, count), start, stop)
        return count, data[pos:stop], None, None, None
    kept_from, kept = pos, list[bytes]()
    kept_count = count
    partition_key: str | None = None
    via_partition_key: str | None = None
    scheduled_enqueue_at: int | None = None
    for _ in range(count >> 1):
        constructor = data[pos]
        value_pos = skip(data, pos)
        owner = None
        if constructor in _STRINGS:
            owner = _OWNERS.get(data[pos + (2 if constructor < 0xB0 else 5) : value_pos])
        next_pos = skip(data, value_pos)
        if owner is _Owner.BROKER:
            kept.append(data[kept_from:pos])
            kept_from = next_pos
            kept_count -= 2
        elif owner is _Owner.SCHEDULED_ENQUEUE_TIME:
            scheduled_enqueue_at = _instant("x-opt-scheduled-enqueue-time", data[value_pos:next_pos])
        elif owner is _Owner.DELIVERY_TIME:
            at, _ = decode(data[value_pos:next_pos])
            scheduled_enqueue_at = _within_time(at) if isinstance(at, Timestamp | Long) else scheduled_enqueue_at
        elif owner is not None:
            value = data[value_pos:next_pos]
            if value[0] in _BINARIES:
                value = bytes((value[0] + 1,)) + value[1:]
                kept += (data[kept_from:value_pos], value)
                kept_from = next_pos
            if owner is _Owner.PARTITION_KEY:
                partition_key = _key("x-opt-partition-key", value)
            else:
                via_partition_key = _key("x-opt-via-partition-key", value)
        pos = next_pos
    _check_end(count, pos, start, stop)
    encoded = b"".join((*kept, data[kept_from:stop])) if kept else data[kept_from:stop]
    return kept_count, encoded, partition_key, via_partition_key, scheduled_enqueue_at


def read_delivery_annotations(data: bytes, start: int, stop: int) -> tuple[int, bytes] | None:
    """Read the delivery annotations from `start` to `stop`, without the lock token of an earlier delivery.

    Returns the number of keys and values and their bytes, None if there are none. Raises DecodeError, also for a
    malformed value, because receivers decode all delivery annotations to read the lock token.
    """
    if not is_readable(data, start + 3):
        decode(data, start + 3)  # raises
    count, pos = open_items(data, start + 3)
    if data.find(_LOCK_TOKEN, pos, stop) < 0:
        _check_end(count, skip(data, pos, count), start, stop)
        return (count, data[pos:stop]) if count else None
    kept: list[bytes] = []
    for _ in range(count >> 1):
        value_pos = skip(data, pos)
        next_pos = skip(data, value_pos)
        if data[pos] not in _STRINGS or data[pos + (2 if data[pos] < 0xB0 else 5) : value_pos] != _LOCK_TOKEN:
            kept.append(data[pos:next_pos])
        pos = next_pos
    _check_end(count, pos, start, stop)
    return (2 * len(kept), b"".join(kept)) if kept else None


def _check_end(count: int, pos: int, start: int, stop: int) -> None:
    if pos != stop or count & 1:
        raise DecodeError(start, f"{count} annotation keys and values do not fill the section to {stop}")


def _instant(name: str, encoded: bytes) -> int | None:
    value, _ = decode(encoded)
    if value is not None and not isinstance(value, Timestamp):
        raise wrong_type(name, "timestamp", value)
    return None if value is None else _within_time(value)


def _within_time(at: int) -> int:
    """Return the nearest instant (Unix ms) that a client of .NET can express: what its AMQP library reads of `at`."""
    return min(max(at, 0), INSTANT_MAX)


def _key(name: str, encoded: bytes) -> str | None:
    value = value_at(encoded, 0)
    return None if value is None else identifier(name, value)


def value_at(data: bytes, pos: int) -> object:
    """Return the value at `pos`, which `skip` has checked; short strings, the common case, are faster."""
    if data[pos] != 0xA1:
        return decode(data, pos)[0]
    try:
        return data[pos + 2 : pos + 2 + data[pos + 1]].decode()
    except UnicodeDecodeError as error:
        raise DecodeError(pos, str(error)) from None


def identifier(name: str, value: object) -> str:
    """Return a message id, session id or partition key as text; BrokerError (INVALID_FIELD) for another type."""
    if not isinstance(value, str):
        raise wrong_type(name, "string", value)
    return str(value)


def wrong_type(name: str, expected: str, value: object) -> BrokerError:
    """Return the error for a value of another AMQP type than `expected`."""
    return BrokerError(
        Condition.INVALID_FIELD, f"The {name} of the message is of type {type(value).__name__}, not {expected}."
    )
