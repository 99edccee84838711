"""Encodes a stored message for delivery to a client [wire 5.4].

Knows the broker's annotations. Does not know why a message is delivered. Pure.
"""

from __future__ import annotations

from functools import lru_cache
from struct import Struct
from typing import Final

from ...codec.encode import encode
from .stored_form import (
    ANNOTATIONS_HEAD,
    DELIVERY_ANNOTATIONS_HEAD,
    FORM_HEAD,
    FORM_HEAD_BYTES,
    LOCK_TOKEN,
    PLAIN,
    annotation_key,
    split_delivery_annotations,
)

_UUID_BYTES: Final = 16
_SEQUENCE_NUMBER: Final = annotation_key("x-opt-sequence-number") + b"\x81"
_ENQUEUED_TIME: Final = annotation_key("x-opt-enqueued-time") + b"\x83"
_LOCKED_UNTIL: Final = annotation_key("x-opt-locked-until") + b"\x83"
_MESSAGE_STATES: Final = tuple(annotation_key("x-opt-message-state") + bytes((0x54, state)) for state in range(3))
_PARTITION_ID: Final = annotation_key("x-opt-partition-id") + b"\x61"
_ENQUEUE_SEQUENCE_NUMBER: Final = annotation_key("x-opt-enqueue-sequence-number") + b"\x81"
_DEADLETTER_SOURCE: Final = annotation_key("x-opt-deadletter-source")
_ONLY_LOCK_TOKEN: Final = (
    DELIVERY_ANNOTATIONS_HEAD + b"\xc1" + bytes((1 + len(LOCK_TOKEN) + _UUID_BYTES, 2)) + LOCK_TOKEN
)
_NO_DELIVERY_ANNOTATIONS: Final = DELIVERY_ANNOTATIONS_HEAD + b"\xc1\x01\x00"
# The map's count (u32), sequence number and enqueued time: what a map's size counts besides further entries.
_ENTRIES_BYTES: Final = 4 + len(_SEQUENCE_NUMBER) + 8 + len(_ENQUEUED_TIME) + 8
_SHAPES_MAX: Final = 256
_unpack_form = FORM_HEAD.unpack_from
_pack_i64 = Struct(">q").pack
_pack_i16 = Struct(">h").pack


@lru_cache(_SHAPES_MAX)
def _start(delivery_bytes: int, uuid_bytes: int, more_bytes: int) -> Struct:
    """What the broker writes into a message: the end of its header, delivery annotations, the first annotations.

    Code and delivery count; delivery annotations with a lock token at their end; section, size and count of a map32,
    sequence number, enqueued time, more entries.
    """
    entries = f"{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq{more_bytes}s"
    return Struct(f">BI{delivery_bytes}s{uuid_bytes}s{len(ANNOTATIONS_HEAD)}sII{entries}")


class DeliveryEncoder:
    """Encodes stored messages for a client; has what the messages of one answer share."""

    __slots__ = ("_count", "_delivery", "_first", "_last", "_more", "_pack")

    def __init__(
        self,
        *,
        locked_until_at: int | None,
        state: int | None,
        partition_id: int | None,
        with_lock_token: bool,
        deleted: bool = False,
    ) -> None:
        """The lock's end is in Unix milliseconds, `state` is 0 active, 1 deferred, 2 scheduled; None omits a value.

        `with_lock_token`: `encode` gets lock tokens, for the delivery annotations. `deleted`: the client receives and
        deletes; without delivery annotations it gets an empty section, as from the service.
        """
        self._first = b"" if locked_until_at is None else _LOCKED_UNTIL + _pack_i64(locked_until_at)
        state_entry = b"" if state is None else _MESSAGE_STATES[state]
        self._last = state_entry + (b"" if partition_id is None else _PARTITION_ID + _pack_i16(partition_id))
        self._more = self._first + self._last
        self._count = 4 + 2 * sum(value is not None for value in (locked_until_at, state, partition_id))
        self._delivery = _ONLY_LOCK_TOKEN if with_lock_token else _NO_DELIVERY_ANNOTATIONS if deleted else b""
        self._pack = _start(len(self._delivery), _UUID_BYTES if with_lock_token else 0, len(self._more)).pack

    def encode(
        self,
        data: bytes,
        at: int,
        lock_uuid: bytes,
        sequence_number: int,
        enqueued_at: int,
        delivery_count: int,
        enqueue_sequence_number: int | None = None,
        dead_letter_source: str | None = None,
    ) -> bytes:
        """Return the encoded message whose stored form is `data` from `at` on; None omits a value.

        `lock_uuid` is the lock token as from `token_uuids`, empty without one; `enqueued_at` in Unix milliseconds.
        """
        version, header_bytes, entries_count, entries_bytes = _unpack_form(data, at)
        header_at = at + FORM_HEAD_BYTES
        entries_at = header_end = header_at + header_bytes
        pack, delivery, more, count = self._pack, self._delivery, self._more, self._count
        if version != PLAIN or enqueue_sequence_number is not None or dead_letter_source is not None:
            more, more_count = self._entries(enqueue_sequence_number, dead_letter_source)
            count += more_count
            if version != PLAIN:
                header_at, entries_at, delivery = split_delivery_annotations(data, at, header_bytes, lock_uuid)
                header_end = header_at + header_bytes
                lock_uuid = b""
            pack = _start(len(delivery), len(lock_uuid), len(more)).pack
        start = pack(
            0x70,
            delivery_count,
            delivery,
            lock_uuid,
            ANNOTATIONS_HEAD,
            _ENTRIES_BYTES + len(more) + entries_bytes,
            count + entries_count,
            _SEQUENCE_NUMBER,
            sequence_number,
            _ENQUEUED_TIME,
            enqueued_at,
            more,
        )
        return data[header_at:header_end] + start + data[entries_at:]

    def _entries(self, enqueue_sequence_number: int | None, dead_letter_source: str | None) -> tuple[bytes, int]:
        """The further entries of a message with an origin, and how many items these are more than others have."""
        more, more_count = self._first, 0
        if enqueue_sequence_number is not None:
            more += _ENQUEUE_SEQUENCE_NUMBER + _pack_i64(enqueue_sequence_number)
            more_count += 2
        more += self._last
        if dead_letter_source is not None:
            more += _DEADLETTER_SOURCE + encode(dead_letter_source)
            more_count += 2
        return more, more_count
