"""Messages from forms, for sending and for trying rules.

Knows the fields and how their texts are read. Does not send.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from ...broker.message.builder import TTL_MS_MAX, NewMessage
from ...broker.rules.values import parse_decimal, to_amqp
from ...broker.rules.values import parse_span as parse_tick_span
from ...codec.decimals import from_text
from ...codec.json_values import from_json
from ...codec.types import (
    Byte,
    Char,
    Decimal32,
    Decimal64,
    Decimal128,
    Float,
    Int,
    Long,
    Short,
    Symbol,
    Timestamp,
    Ubyte,
    Uint,
    Ulong,
    Ushort,
)
from ..json_reader import read_json
from .forms import Form, FormError, parse_instant, parse_span, quoted

FIELDS: Final[Mapping[str, tuple[str, str]]] = {
    "message_id": ("message-id", "MessageId"),
    "subject": ("subject", "Subject (Label)"),
    "correlation_id": ("correlation-id", "CorrelationId"),
    "content_type": ("content-type", "ContentType"),
    "to": ("to", "To"),
    "reply_to": ("reply-to", "ReplyTo"),
    "session_id": ("group-id", "SessionId"),
    "reply_to_session_id": ("reply-to-group-id", "ReplyToSessionId"),
}
"""Fields of the properties section: name in the form, AMQP name and label."""

PROPERTIES_MAX: Final = 100
JSON: Final = "as JSON"
_TRUTHS: Final = {"true": True, "false": False}


def _whole_number(kind: type[int], bits: int, *, is_signed: bool) -> tuple[Callable[[str], object], str]:
    """The reader of a whole number of so many bits, and what it takes."""
    start = -(1 << (bits - 1)) if is_signed else 0
    stop = (1 << (bits - 1)) - 1 if is_signed else (1 << bits) - 1

    def read(text: str) -> object:
        value = int(text)
        if not start <= value <= stop:
            raise ValueError
        return kind(value)

    return read, f"a whole number of {bits} bits, from {start} to {stop}"


def _float(text: str) -> object:
    value = Float(float(text))
    Struct(">f").pack(value)  # OverflowError for a number beyond 32 bits
    return value


def _char(text: str) -> object:
    if len(text) != 1:
        raise ValueError
    return Char(text)


def _symbol(text: str) -> object:
    return Symbol(text.encode("ascii").decode())


def _nothing(text: str) -> object:
    if text:
        raise ValueError
    return None


def _base64(text: str) -> bytes:
    return base64.b64decode("".join(text.split()), validate=True)


PROPERTY_TYPES: Final[Mapping[str, tuple[Callable[[str], object], str]]] = {
    "string": (str, "any text"),
    "int": _whole_number(Int, 32, is_signed=True),
    "long": _whole_number(Long, 64, is_signed=True),
    "double": (float, "a number"),
    "boolean": (lambda text: _TRUTHS[text.lower()], "true or false"),
    "timestamp": (lambda text: Timestamp(parse_instant(text)), "an instant such as 2030-01-01T12:00Z"),
    "uuid": (uuid.UUID, "a UUID"),
    "decimal": (lambda text: to_amqp(parse_decimal(text)), "a decimal number such as 19.90"),
    "time span": (lambda text: to_amqp(parse_tick_span(text)), "a time span such as PT1M or 00:01:00"),
    "byte": _whole_number(Byte, 8, is_signed=True),
    "short": _whole_number(Short, 16, is_signed=True),
    "ubyte": _whole_number(Ubyte, 8, is_signed=False),
    "ushort": _whole_number(Ushort, 16, is_signed=False),
    "uint": _whole_number(Uint, 32, is_signed=False),
    "ulong": _whole_number(Ulong, 64, is_signed=False),
    "float": (_float, "a number of 32 bits"),
    "decimal32": (lambda text: Decimal32(from_text(text, 4)), "a decimal number of 7 digits"),
    "decimal64": (lambda text: Decimal64(from_text(text, 8)), "a decimal number of 16 digits"),
    "decimal128": (lambda text: Decimal128(from_text(text, 16)), "a decimal number of 34 digits"),
    "char": (_char, "one character"),
    "symbol": (_symbol, "ASCII text"),
    "binary": (_base64, "bytes in base64"),
    "null": (_nothing, "empty"),
    JSON: (lambda text: from_json(read_json(text)), 'a value as in JSON Lines, such as a list or {"map": [[1, 2]]}'),
}
"""Types of application properties, those that SDKs use first: reader of the text, and what is allowed. They are the
scalar types of AMQP [AMQP 1.6], two that the service describes, and for every other value its spelling as JSON."""

BODY_FORMS: Final[Mapping[str, tuple[Callable[[str], bytes], str]]] = {
    "text": (str.encode, "any text"),
    "hex": (bytes.fromhex, "bytes in hexadecimal, such as 00 ff 7e"),
    "base64": (_base64, "bytes in base64"),
}


def message_in(form: Form, now: int) -> NewMessage:
    """The message of a form; relative times count from `now` (Unix ms). FormError."""
    read, allowed = BODY_FORMS[
        form.choice("body_form", "Body as", list(BODY_FORMS)) if form.text("body_form") else "text"
    ]
    try:
        body = read(form.raw("body"))
    except (ValueError, binascii.Error):
        raise FormError(f"Body: {quoted(form.text('body'))} is not {allowed}.", "body") from None
    properties: dict[str, str | None] = {}
    for name, (amqp_name, label) in FIELDS.items():
        properties[amqp_name] = form.optional(name)
        if name == "content_type" and not form.text(name).isascii():
            raise FormError(f"{label}: {quoted(form.text(name))} is not ASCII text.", name)
    ttl_ms = form.finite_span("ttl", "Time to live", 1, TTL_MS_MAX) if form.text("ttl") else None
    return NewMessage(
        body,
        properties,
        _application_properties(form),
        form.optional("partition_key"),
        _scheduled_in(form, now),
        ttl_ms,
        created_at=now,
    )


def _scheduled_in(form: Form, now: int) -> int | None:
    text = form.text("scheduled")
    if not text:
        return None
    try:
        ms = parse_span(text)
        if ms is not None:
            return now + ms
    except ValueError:
        pass
    try:
        return parse_instant(text)
    except (ValueError, OverflowError):
        allowed = "a time from now such as 10m, or an instant such as 2030-01-01T12:00Z"
        raise FormError(f"Scheduled for: {quoted(text)} is not {allowed}.", "scheduled") from None


def _application_properties(form: Form) -> dict[str, object]:
    names, types, texts = form.all("property_name"), form.all("property_type"), form.all("property_value")
    if not len(names) == len(types) == len(texts) <= PROPERTIES_MAX:
        allowed = f"at most {PROPERTIES_MAX}, each with name, type and value"
        raise FormError(f"Application properties: {allowed}.", "property_name")
    found: dict[str, object] = {}
    for name, kind, text in zip((each.strip() for each in names), types, texts, strict=True):
        if not name:
            if text:
                raise FormError(f"Application properties: the value {quoted(text)} has no name.", "property_name")
            continue
        if name in found:
            raise FormError(f"Application properties: {quoted(name)} is given twice.", "property_name")
        if kind not in PROPERTY_TYPES:
            raise FormError(f"Application properties: {quoted(kind)} is no type.", "property_type")
        read, allowed = PROPERTY_TYPES[kind]
        try:
            found[name] = read(text if kind == "string" else text.strip())
        except (ValueError, KeyError, OverflowError):
            text_of = f"Application property {quoted(name)}: {quoted(text)} is not {allowed}."
            raise FormError(text_of, "property_value") from None
    return found


def encoded(message: NewMessage) -> bytes:
    """The bytes of a message. FormError for a value that AMQP can't hold."""
    try:
        return message.encoded()
    except (TypeError, ValueError) as error:
        raise FormError(f"The message can't be encoded: {error}.") from None
