"""Sending a message again, edited: the fields of the form from a message, and the changes that a form makes.

Knows how a form shows application properties. Very long ones, sections that the form does not have, and a body that is
no data stay as they are in the original. Pure.
"""

from __future__ import annotations

import base64
from json import dumps
from typing import Final

from ...broker.admin.overview import Seen
from ...broker.message.builder import LIFETIME_PROPERTIES, NewMessage
from ...broker.message.message import effective_ttl
from ...codec.json_values import from_json
from ...codec.types import TYPE_NAMES, Timestamp
from ..json_object import JsonObject
from ..json_reader import JsonError, read_json
from ..messages.changes import NULL, PARTITION_KEY, SCHEDULED_FOR, Changes, Lifetime, scheduled_for
from ..messages.json_lines import line_of
from .message_form import FIELDS, JSON, PROPERTY_TYPES
from .rendering import indented, instant_input, span_input

BODY_CHARS_MAX: Final = 512 << 10
"""Longest body that a form shows; a longer one stays as it is."""
INDENTED_CHARS_MAX: Final = 64 << 10
PROPERTY_CHARS_MAX: Final = 4 << 10
"""Longest application property that a form shows."""
UNCHANGED: Final = "unchanged"
DROPPED: Final = ("DeadLetterReason", "DeadLetterErrorDescription")
"""Application properties that a dead letter got from the broker or its receiver."""


def form_values(seen: Seen) -> dict[str, list[str]]:
    """What the fields contain for a message. DecodeError."""
    return values_of(message_json_of(seen))


def values_of(message: JsonObject) -> dict[str, list[str]]:
    """What the fields contain for a message as in JSON Lines."""
    properties = message.object_of("properties")
    values = {name: [_text(properties.get(name))] for name in FIELDS}
    values |= _body_fields(message.object_of("body"))
    partition_key = message.object_of("annotations").get(PARTITION_KEY)
    if isinstance(partition_key, str):
        values["partition_key"] = [partition_key]
    times = [properties.get(name.replace("-", "_")) for name in LIFETIME_PROPERTIES]
    ttl_ms = effective_ttl(message.object_of("header").optional("ttl_ms", int), *map(from_json, times))
    values["ttl"] = ["" if ttl_ms is None else span_input(ttl_ms)]
    shown = _property_fields(message.object_of("application_properties"))
    values["drop_dead_letter"] = ["yes"]
    values["property_name"] = [name for name, _, _ in shown]
    values["property_type"] = [kind for _, kind, _ in shown]
    values["property_value"] = [text for _, _, text in shown]
    return values


def changes_of(seen: Seen, message: NewMessage, *, keeps_body: bool, drops_reason: bool) -> Changes:
    """What makes the original the message of a form; a body whose text differs in its indentation alone is kept.
    DecodeError."""
    written = message_json_of(seen)
    original = written.object_of("application_properties")
    given = {name: NULL if value is None else value for name, value in message.application_properties.items()}
    gone: dict[str, object] = {name: None for name, _, _ in _property_fields(original) if name not in given}
    if drops_reason:
        gone |= {name: None for name in DROPPED if name in original}
        given = {name: value for name, value in given.items() if name not in DROPPED}
    shown_body = _body_fields(written.object_of("body"))["body"][0]
    return Changes(
        None if keeps_body or message.body == shown_body.replace("\r\n", "\n").encode() else message.body,
        dict(message.properties),
        {**gone, **given},
        {PARTITION_KEY: message.partition_key, SCHEDULED_FOR: scheduled_for(message.scheduled_enqueue_at)},
        None if message.created_at is None else Lifetime(message.ttl_ms, message.created_at),
    )


def message_json_of(seen: Seen) -> JsonObject:
    """A peeked message as in JSON Lines. DecodeError."""
    return JsonObject(line_of(seen)).object_of("message")


def _text(value: object) -> str:
    if isinstance(value, dict):
        return str(value.get("value", ""))
    return "" if value is None else str(value)


def _body_fields(body: JsonObject) -> dict[str, list[str]]:
    if body["kind"] == "none":
        return {"body": [""], "body_form": ["text"]}
    if body["kind"] == "data":
        text, encoded = body.optional("text", str), body.optional("base64", str)
        if text is not None and len(text) <= BODY_CHARS_MAX:
            return {"body": [_indented_json(text)], "body_form": ["text"]}
        if encoded is not None and len(encoded) <= BODY_CHARS_MAX:
            return {"body": [base64.b64decode(encoded).hex(" ")], "body_form": ["hex"]}
    return {"body": [""], "body_form": [UNCHANGED]}


def _indented_json(text: str) -> str:
    """JSON with a line for each member; another text as it is. Numbers and repeated names stay as they are written."""
    if not text.lstrip().startswith(("{", "[")) or len(text) > INDENTED_CHARS_MAX:
        return text
    try:
        read_json(text)
    except JsonError:
        return text
    return indented(text)


def _property_fields(properties: JsonObject) -> list[tuple[str, str, str]]:
    """Name, type and text of the application properties that a form shows: of all but very long ones."""
    found: list[tuple[str, str, str]] = []
    for name, written in properties.items():
        value = from_json(written)
        kind, text = _type_and_text(value, written)
        if len(text) <= PROPERTY_CHARS_MAX:
            found.append((name, kind, text))
    return found


def _type_and_text(value: object, written: object) -> tuple[str, str]:
    """The type of an application property in a form, and its text; `written` is its JSON."""
    kind = TYPE_NAMES.get(type(value), "")
    if isinstance(value, bool):
        return kind, str(value).lower()
    if isinstance(value, Timestamp):
        return kind, instant_input(value)
    text = _text(written)
    # A field is one line long; what it can't hold, and what has parts, has one line as JSON.
    is_one_line = text.isprintable() and text == text.strip() and bool(text or kind in ("string", "null", "symbol"))
    return (kind, text) if kind in PROPERTY_TYPES and is_one_line else (JSON, dumps(written, ensure_ascii=True))
