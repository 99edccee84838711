"""Encodes a stored message for delivery to a client [wire 5.4].

Knows the broker's annotations. Does not know why a message is delivered. Pure.
"""

from __future__ import annotations

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
    rfc_order,
    split_delivery_annotations,
)

# delivery-count; section, size and count of a map32; sequence number; enqueued time
_DELIVERY_START: Final = Struct(">BI4sII24sq22sq")
_DELIVERY_ENTRIES_BYTES: Final = _DELIVERY_START.size - 13  # the part inside the map's size
_SEQUENCE_NUMBER: Final = annotation_key("x-opt-sequence-number") + b"\x81"
_ENQUEUED_TIME: Final = annotation_key("x-opt-enqueued-time") + b"\x83"
_LOCKED_UNTIL: Final = annotation_key("x-opt-locked-until") + b"\x83"
_MESSAGE_STATES: Final = tuple(annotation_key("x-opt-message-state") + bytes((0x54, state)) for state in range(3))
_PARTITION_ID: Final = annotation_key("x-opt-partition-id") + b"\x61"
_ENQUEUE_SEQUENCE_NUMBER: Final = annotation_key("x-opt-enqueue-sequence-number") + b"\x81"
_DEADLETTER_SOURCE: Final = annotation_key("x-opt-deadletter-source")
_ONLY_LOCK_TOKEN: Final = DELIVERY_ANNOTATIONS_HEAD + b"\xc1" + bytes((1 + len(LOCK_TOKEN) + 16, 2)) + LOCK_TOKEN
_NO_DELIVERY_ANNOTATIONS: Final = DELIVERY_ANNOTATIONS_HEAD + b"\xc1\x01\x00"
_pack_i64 = Struct(">q").pack
_pack_i16 = Struct(">h").pack


def delivery_bytes(
    stored: bytes,
    *,
    sequence_number: int,
    enqueued_at: int,
    delivery_count: int,
    locked_until_at: int | None,
    state: int | None,
    partition_id: int | None,
    enqueue_sequence_number: int | None,
    dead_letter_source: str | None = None,
    lock_token: bytes | None = None,
    deleted: bool = False,
) -> bytes:
    """Return the encoded message for a client [wire 5.4]; instants in Unix milliseconds, None omits a value.

    `state` is 0 active, 1 deferred, 2 scheduled. The delivery annotations get `lock_token` (16 bytes, as in a
    delivery-tag). `deleted`: the client receives and deletes; without delivery annotations it gets an empty section,
    as from the service.
    """
    version, start_bytes, entries_count, entries_bytes = FORM_HEAD.unpack_from(stored)
    start_at = FORM_HEAD_BYTES
    annotations = b""
    if version != PLAIN:
        start_at, entries_at, annotations = split_delivery_annotations(stored, start_bytes, lock_token)
    else:
        entries_at = start_at + start_bytes
        if lock_token is not None:
            annotations = _ONLY_LOCK_TOKEN + rfc_order(lock_token)
        elif deleted:
            annotations = _NO_DELIVERY_ANNOTATIONS
    more, more_count = b"", 4
    if locked_until_at is not None:
        more, more_count = _LOCKED_UNTIL + _pack_i64(locked_until_at), 6
    if enqueue_sequence_number is not None:
        more += _ENQUEUE_SEQUENCE_NUMBER + _pack_i64(enqueue_sequence_number)
        more_count += 2
    if state is not None:
        more += _MESSAGE_STATES[state]
        more_count += 2
    if partition_id is not None:
        more += _PARTITION_ID + _pack_i16(partition_id)
        more_count += 2
    if dead_letter_source is not None:
        more += _DEADLETTER_SOURCE + encode(str(dead_letter_source))
        more_count += 2
    start = _DELIVERY_START.pack(
        0x70,
        delivery_count,
        ANNOTATIONS_HEAD,
        _DELIVERY_ENTRIES_BYTES + len(more) + entries_bytes,
        more_count + entries_count,
        _SEQUENCE_NUMBER,
        sequence_number,
        _ENQUEUED_TIME,
        enqueued_at,
    )
    if annotations:  # after the header, which ends with the delivery count
        start = start[:5] + annotations + start[5:]
    return stored[start_at : start_at + start_bytes] + start + more + stored[entries_at:]
