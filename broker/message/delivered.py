"""Encodes stored messages for delivery to a client [wire 5.4].

Knows the broker's annotations. Does not know why a message is delivered. The function in Python is the reference;
`_delivered.c` has the same one for usual messages, and takes its place where it was built. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import lru_cache
from struct import Struct
from typing import Final, NamedTuple

from ...codec.encode import encode
from ...codec.native import native_module
from .stored_form import (
    ANNOTATIONS_HEAD,
    DELIVERY_ANNOTATIONS_HEAD,
    FORM_HEAD,
    FORM_HEAD_BYTES,
    LOCK_TOKEN,
    PLAIN,
    ROW_HEAD,
    ROW_HEAD_BYTES,
    annotation_key,
    is_of_scheduled,
    split_delivery_annotations,
    token_uuids,
)

_UUID_BYTES: Final = 16
_SEQUENCE_NUMBER: Final = annotation_key("x-opt-sequence-number") + b"\x81"
_ENQUEUED_TIME: Final = annotation_key("x-opt-enqueued-time") + b"\x83"
_LOCKED_UNTIL: Final = annotation_key("x-opt-locked-until") + b"\x83"
_MESSAGE_STATES: Final = tuple(annotation_key("x-opt-message-state") + bytes((0x54, state)) for state in range(3))
_SCHEDULED: Final = 2  # the index of its annotation
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
_unpack_row = ROW_HEAD.unpack_from
_HEADS: Final = Struct(">xBHIq16xBBII")  # what is needed here of ROW_HEAD and FORM_HEAD, in a row without a path
_HEADS_BYTES: Final = ROW_HEAD_BYTES + FORM_HEAD_BYTES
_unpack_heads = _HEADS.unpack_from
_pack_i64 = Struct(">q").pack
_pack_i16 = Struct(">h").pack


@lru_cache(_SHAPES_MAX)
def _broker_sections(delivery_bytes: int, uuid_bytes: int, more_bytes: int) -> Struct:
    """What the broker writes into a message: the end of its header, delivery annotations, the first annotations.

    Code and delivery count; delivery annotations with a lock token at their end; section, size and count of a map32,
    sequence number, enqueued time, more entries.
    """
    entries = f"{len(_SEQUENCE_NUMBER)}sq{len(_ENQUEUED_TIME)}sq{more_bytes}s"
    return Struct(f">BI{delivery_bytes}s{uuid_bytes}s{len(ANNOTATIONS_HEAD)}sII{entries}")


class _Shape(NamedTuple):
    """What encoders share that write the same annotations."""

    item_count: int
    """Keys and values in the annotations."""

    delivery: bytes
    """The delivery annotations, without the lock token at their end."""

    last: bytes
    """The last annotations."""

    pack: Callable[..., bytes]
    """Packs what is written into each message (see `_broker_sections`)."""

    head: bytes
    """What is written before the lock's end, with zeros where messages differ."""

    tail: bytes
    """What is written behind it."""

    gaps: tuple[int, int, int, int, int]
    """Where messages differ in that: lock token, size and count of the annotations, sequence number, enqueued time,
    number in the topic (-1: none)."""


@lru_cache(_SHAPES_MAX)
def _shape(
    with_end: bool, state: int | None, partition_id: int | None, with_token: bool, deleted: bool, with_origins: bool
) -> _Shape:
    """The shape for an encoder with the same arguments; `with_end`: with the lock's end."""
    first_bytes = (len(_LOCKED_UNTIL) + 8) * with_end
    state_entry = b"" if state is None else _MESSAGE_STATES[state]
    last = state_entry + (b"" if partition_id is None else _PARTITION_ID + _pack_i16(partition_id))
    count = 4 + 2 * sum((with_end, state is not None, partition_id is not None))
    delivery = _ONLY_LOCK_TOKEN if with_token else _NO_DELIVERY_ANNOTATIONS if deleted else b""
    uuid_bytes = _UUID_BYTES * with_token
    pack = _broker_sections(len(delivery), uuid_bytes, first_bytes + len(last)).pack
    tail = (_ENQUEUE_SEQUENCE_NUMBER + _pack_i64(0) if with_origins else b"") + last
    sizes = _ENTRIES_BYTES + first_bytes + len(tail), count + 2 * with_origins
    numbers = _SEQUENCE_NUMBER, 0, _ENQUEUED_TIME, 0
    sections = _broker_sections(len(delivery), uuid_bytes, 0)
    head = sections.pack(0x70, 0, delivery, b"", ANNOTATIONS_HEAD, *sizes, *numbers, b"")
    token_at = 5 + len(delivery)
    map_at = token_at + uuid_bytes + len(ANNOTATIONS_HEAD)
    number_at = map_at + 8 + len(_SEQUENCE_NUMBER)
    enqueued_at = number_at + 8 + len(_ENQUEUED_TIME)
    origin_at = enqueued_at + 8 + first_bytes + len(_ENQUEUE_SEQUENCE_NUMBER) if with_origins else -1
    return _Shape(count, delivery, last, pack, head, tail, (token_at, map_at, number_at, enqueued_at, origin_at))


class DeliveryEncoder:
    """Encodes stored messages for a client; has what the messages of one answer share."""

    __slots__ = ("_first", "_of_scheduled", "_shape", "_with_lock_token", "_with_origins")

    def __init__(
        self,
        *,
        locked_until_at: int | None,
        state: int | None,
        partition_id: int | None,
        with_lock_token: bool,
        deleted: bool = False,
        with_origins: bool = False,
    ) -> None:
        """The lock's end is in Unix milliseconds, `state` is 0 active, 1 deferred, 2 scheduled; None omits a value.

        `with_lock_token`: there are lock tokens, for the delivery annotations. `deleted`: the client receives and
        deletes; without delivery annotations it gets an empty section, as from the service. `with_origins`: messages
        have the number that they had in their topic; forwarded ones have that of their source in any case.
        """
        self._shape = _shape(locked_until_at is not None, state, partition_id, with_lock_token, deleted, with_origins)
        self._first = b"" if locked_until_at is None else _LOCKED_UNTIL + _pack_i64(locked_until_at)
        self._with_lock_token = with_lock_token
        self._with_origins = with_origins
        # A message that was scheduled is received with that state (JavaScript's live test of sending and scheduling,
        # azure-sdk-for-js#19357). A peek, which has states of its own, shows where the message is.
        self._of_scheduled = (
            (locked_until_at, partition_id, with_lock_token, deleted, with_origins) if state is None else None
        )

    def encode_rows(self, rows: Sequence[tuple[int, bytes]], tokens: Sequence[bytes] = ()) -> list[bytes]:
        """Return the encoded messages of rows (sequence number, row) with these lock tokens."""
        if _native is not None:
            shape = self._shape
            start = shape.head + self._first + shape.tail
            payloads: list[bytes] | None = _native.encode_rows(
                rows, tokens if self._with_lock_token else None, start, *shape.gaps
            )
            if payloads is not None:
                return payloads
        return self.encode_each(rows, tokens)

    def encode_each(self, rows: Sequence[tuple[int, bytes]], tokens: Sequence[bytes] = ()) -> list[bytes]:
        """The same one by one: the reference. Plain rows without a call for each, which would cost a third."""
        uuids = token_uuids(tokens) if self._with_lock_token else [b""] * len(rows)
        shape, with_origins = self._shape, self._with_origins
        pack, delivery, more, count = shape.pack, shape.delivery, self._first + shape.last, shape.item_count
        own_bytes = _ENTRIES_BYTES + len(more)
        payloads: list[bytes] = []
        for (sequence_number, row), uuid in zip(rows, uuids, strict=True):
            hops, path_bytes, delivery_count, enqueued_at, version, header_bytes, entries_count, entries_bytes = (
                _unpack_heads(row)  # with a path, the last four mean nothing
            )
            if path_bytes or hops or with_origins or version != PLAIN or is_of_scheduled(row):
                payloads.append(self._encode_row(row, uuid, sequence_number))
                continue
            entries_at = _HEADS_BYTES + header_bytes
            start = pack(
                0x70,
                delivery_count,
                delivery,
                uuid,
                ANNOTATIONS_HEAD,
                own_bytes + entries_bytes,
                count + entries_count,
                _SEQUENCE_NUMBER,
                sequence_number,
                _ENQUEUED_TIME,
                enqueued_at,
                more,
            )
            payloads.append(row[_HEADS_BYTES:entries_at] + start + row[entries_at:])
        return payloads

    def _encode_row(self, row: bytes, uuid: bytes, sequence_number: int) -> bytes:
        if self._of_scheduled is not None and is_of_scheduled(row):
            locked_until_at, partition_id, with_lock_token, deleted, with_origins = self._of_scheduled
            encoder = DeliveryEncoder(
                locked_until_at=locked_until_at,
                state=_SCHEDULED,
                partition_id=partition_id,
                with_lock_token=with_lock_token,
                deleted=deleted,
                with_origins=with_origins,
            )
            return encoder._encode_row(row, uuid, sequence_number)
        _, hops, path_bytes, delivery_count, enqueued_at, _, enqueued_number = _unpack_row(row)
        stored_at = ROW_HEAD_BYTES + path_bytes
        source = row[ROW_HEAD_BYTES:stored_at].decode() or None
        has_origin = (hops or self._with_origins) and enqueued_number >= 0  # it had another number in its source
        origin = enqueued_number if has_origin else None
        return self.encode(row, stored_at, uuid, sequence_number, enqueued_at, delivery_count, origin, source)

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
        shape = self._shape
        pack, delivery, more, count = shape.pack, shape.delivery, self._first + shape.last, shape.item_count
        if version != PLAIN or enqueue_sequence_number is not None or dead_letter_source is not None:
            more, more_count = self._entries(enqueue_sequence_number, dead_letter_source)
            count += more_count
            if version != PLAIN:
                header_at, entries_at, delivery = split_delivery_annotations(data, at, header_bytes, lock_uuid)
                header_end = header_at + header_bytes
                lock_uuid = b""
            pack = _broker_sections(len(delivery), len(lock_uuid), len(more)).pack
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
        more += self._shape.last
        if dead_letter_source is not None:
            more += _DEADLETTER_SOURCE + encode(dead_letter_source)
            more_count += 2
        return more, more_count


_native: Final = native_module(f"{__package__}._delivered")
IS_NATIVE: Final = _native is not None
"""Whether the function in C is in use."""
