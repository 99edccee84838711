"""Messages for the tests of rules, built section by section."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from emubus.broker.message.message import Message, parse_message
from emubus.broker.model.descriptions import SqlFilter
from emubus.broker.rules import MessageContext, Truth, compile_filter
from emubus.codec.encode import encode, encode_described
from emubus.codec.types import Symbol, Timestamp, Uint, Ulong

HEADER, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, FOOTER = 0x70, 0x72, 0x73, 0x74, 0x75, 0x78
FIELDS = {
    "message_id": 0,
    "user_id": 1,
    "to": 2,
    "label": 3,
    "reply_to": 4,
    "correlation_id": 5,
    "content_type": 6,
    "absolute_expiry_time": 8,
    "creation_time": 9,
    "session_id": 10,
    "reply_to_session_id": 12,
}


def section(code: int, value: object) -> bytes:
    return encode_described(Ulong(code), encode(value))


def encoded(
    user: Mapping[Any, object] | None = None,
    *,
    ttl_ms: int | None = None,
    partition_key: str | None = None,
    scheduled_at: int | None = None,
    body: bytes = b"body",
    **fields: object,
) -> bytes:
    """An encoded message with application properties `user` and fields of the properties by the names in `FIELDS`."""
    data = b""
    if ttl_ms is not None:
        data += section(HEADER, [True, None, Uint(ttl_ms)])
    annotations: dict[Any, object] = {Symbol("mine"): 1}
    if partition_key is not None:
        annotations[Symbol("x-opt-partition-key")] = partition_key
    if scheduled_at is not None:
        annotations[Symbol("x-opt-scheduled-enqueue-time")] = Timestamp(scheduled_at)
    data += section(ANNOTATIONS, annotations)
    if fields:
        values: list[object] = [None] * 13
        for name, value in fields.items():
            values[FIELDS[name]] = value
        data += section(PROPERTIES, values)
    if user is not None:
        data += section(APPLICATION, dict(user))
    return data + section(DATA, body) + section(FOOTER, {Symbol("end"): True})


def message(user: Mapping[Any, object] | None = None, **options: Any) -> Message:
    return parse_message(encoded(user, **options))


def context(user: Mapping[Any, object] | None = None, **options: Any) -> MessageContext:
    return MessageContext(message(user, **options))


def truth(expression: str, user: Mapping[Any, object] | None = None, **options: Any) -> Truth:
    """What a SQL filter says to a message."""
    return compile_filter(SqlFilter(expression))(context(user, **options))
