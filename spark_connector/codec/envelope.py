"""Batch envelopes: many encoded messages in one, sent with message-format 0x80013700 [wire 4.4].

Knows that an envelope is a message with one data section for each message in it, and that it copies message id, session
id and partition key of the first, as SDKs do, by which a service finds the partition. Does not know limits: the sink
adds up sizes with `envelope_overhead` and `data_overhead`. Pure functions.
"""

from __future__ import annotations

from collections.abc import Sequence

from .encode import EncodedRow, data_start, partition_key_annotation, section, string

__all__ = ["data_overhead", "envelope", "envelope_overhead"]


def envelope(messages: Sequence[bytes], first: EncodedRow) -> bytes:
    """Return the envelope around encoded messages, of which `first` describes the first."""
    pieces = [_head_sections(first)]
    for message in messages:
        pieces.append(data_start(len(message)))
        pieces.append(message)
    return b"".join(pieces)


def envelope_overhead(first: EncodedRow) -> int:
    """Return the bytes of an envelope without its data sections."""
    return len(_head_sections(first))


def data_overhead(size_bytes: int) -> int:
    """Return the bytes that a message of this size costs beyond itself."""
    return 5 if size_bytes < 256 else 8


def _head_sections(first: EncodedRow) -> bytes:
    start = b""
    if first.partition_key is not None:
        start = section(0x72, 0xC1, 2, partition_key_annotation(first.partition_key))
    message_id, session_id = (
        b"\x40" if text is None else string(text.encode()) for text in (first.message_id, first.session_id)
    )
    if first.session_id is not None:
        start += section(0x73, 0xC0, 11, message_id + b"\x40" * 9 + session_id)
    elif first.message_id is not None:
        start += section(0x73, 0xC0, 1, message_id)
    return start
