"""A peeked message as JSON: properties, annotations and body, decoded.

Values are as `codec/json_values.py` shows them. Does not know where the message comes from. Pure.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping
from typing import Final, TypedDict

from ...broker.admin.overview import Seen
from ...broker.message.message import effective_ttl
from ...codec.decode import decode
from ...codec.errors import DecodeError
from ...codec.json_values import shown, shown_map
from ...codec.types import Described
from ..json_reader import JsonError, read_json
from ..messages.annotations import STATES
from .paging import NEXT_PAGE
from .schema import Schema, anything, array, integer, named, nullable, record, text

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = 0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
_HEADER_FIELDS: Final = ("durable", "priority", "ttl_ms", "first_acquirer", "delivery_count")
_PROPERTY_FIELDS: Final = (
    "message_id",
    "user_id",
    "to",
    "subject",
    "reply_to",
    "correlation_id",
    "content_type",
    "content_encoding",
    "absolute_expiry_time",
    "creation_time",
    "session_id",
    "group_sequence",
    "reply_to_session_id",
)
NUMBER_MAX: Final = (1 << 63) - 1
VALUES_SHOWN_MAX: Final = 1_000_000
"""Most values of a body that is shown as JSON; with more it is shown as text. They take a second aside."""

_NAMED: Final[Schema] = {"type": "object", "additionalProperties": True}

CONTENT: Final[dict[str, Schema]] = {
    "text": nullable(text("As text.", chars_max=1 << 30)),
    "base64": nullable(text("In base64.", chars_max=1 << 30)),
    "json": anything("As JSON."),
}
"""The fields of bytes: text if they are UTF-8, else in base64; `json` if `json_reader` can read them."""

MESSAGE: Final = named(
    "Message",
    record(
        "A message. Values of AMQP types that JSON lacks are objects {type, value}.",
        {
            "partition_id": integer("Its partition.", 0, 65535),
            "sequence_number": integer("Its number.", 0, NUMBER_MAX),
            "state": text("active, deferred or scheduled."),
            "locked_until_at": nullable(integer("End of its lock, if it is locked.", 0, NUMBER_MAX)),
            "enqueued_at": nullable(integer("When it came.", -NUMBER_MAX, NUMBER_MAX)),
            "delivery_count": integer("Failed deliveries.", 0, NUMBER_MAX),
            "size_bytes": integer("Encoded size as delivered.", 0, NUMBER_MAX),
            "header": {**_NAMED, "description": "The other header fields that are set."},
            "properties": {**_NAMED, "description": "The properties that are set."},
            "application_properties": {**_NAMED, "description": "The application properties."},
            "annotations": {**_NAMED, "description": "The message annotations."},
            "body": named(
                "Body",
                record(
                    "The body: data as text if it is UTF-8, else in base64; `json` if it is JSON or an AMQP value.",
                    {
                        "kind": text("data, sequence, value, none, or malformed."),
                        **CONTENT,
                    },
                ),
            ),
        },
    ),
)
FAILED_MESSAGE: Final = named(
    "FailedMessage",
    record(
        "A message that stays as it is.",
        {
            "sequence_number": integer("Its number.", 0, NUMBER_MAX),
            "message": text("Why.", chars_max=100_000),
        },
    ),
)
MESSAGES: Final = named(
    "Messages",
    record(
        "Messages, ordered by partition and sequence number.",
        {
            "messages": array("The messages.", MESSAGE),
            "next_sequence_number": nullable(
                integer("Start of the next page; null if this is the last.", 0, NUMBER_MAX)
            ),
            "next_page": NEXT_PAGE,
        },
    ),
)


class BodyJson(TypedDict):
    """The body in `MESSAGE`."""

    kind: str
    text: str | None
    base64: str | None
    json: object


class MessageJson(TypedDict):
    """What `MESSAGE` describes."""

    partition_id: int
    sequence_number: int
    state: str
    locked_until_at: int | None
    enqueued_at: int | None
    delivery_count: int
    size_bytes: int
    header: dict[str, object]
    properties: dict[str, object]
    application_properties: dict[str, object]
    annotations: dict[str, object]
    body: BodyJson


def message_json(seen: Seen) -> MessageJson:
    """A peeked message, as `MESSAGE` describes it."""
    sections: dict[int, list[object]] = {}
    try:
        position = 0
        while position < len(seen.encoded):
            section, position = decode(seen.encoded, position)
            if isinstance(section, Described) and isinstance(section.descriptor, int):
                sections.setdefault(int(section.descriptor), []).append(section.value)
        body = _body(sections)
    except DecodeError:  # the broker does not check bodies
        body = BodyJson(kind="malformed", text=None, base64=_base64(seen.encoded), json=None)
    header = _fields(sections.get(_HEADER), _HEADER_FIELDS)
    properties = _fields(sections.get(_PROPERTIES), _PROPERTY_FIELDS)
    if isinstance(ttl_ms := header.get("ttl_ms"), int):
        times = properties.get("absolute_expiry_time"), properties.get("creation_time")
        header["ttl_ms"] = effective_ttl(int(ttl_ms), *times)
    annotations = _map_or_empty(sections.get(_ANNOTATIONS))
    state = annotations.get("x-opt-message-state")
    enqueued_at, delivery_count = annotations.get("x-opt-enqueued-time"), header.pop("delivery_count", 0)
    return {
        "partition_id": seen.partition_id,
        "sequence_number": seen.sequence_number,
        "state": STATES[state] if isinstance(state, int) and 0 <= state < len(STATES) else STATES[0],
        "locked_until_at": seen.locked_until_at,
        "enqueued_at": int(enqueued_at) if isinstance(enqueued_at, int) else None,
        "delivery_count": delivery_count if isinstance(delivery_count, int) else 0,
        "size_bytes": len(seen.encoded),
        "header": shown_map(header),
        "properties": shown_map(properties),
        "application_properties": shown_map(_map_or_empty(sections.get(_APPLICATION))),
        "annotations": shown_map(annotations),
        "body": body,
    }


def _body(sections: Mapping[int, list[object]]) -> BodyJson:
    body: BodyJson = {"kind": "none", "text": None, "base64": None, "json": None}
    if _DATA in sections:
        return data_json(b"".join(each for each in sections[_DATA] if isinstance(each, bytes)))
    if _VALUE in sections:
        body["kind"] = "value"
        body["json"] = value = shown(sections[_VALUE][0])
        if isinstance(sections[_VALUE][0], str) and isinstance(value, str):
            body["text"] = value
    elif _SEQUENCE in sections:
        body["kind"] = "sequence"
        items = [item for each in sections[_SEQUENCE] for item in (each if isinstance(each, list) else [each])]
        body["json"] = shown(items)
    return body


def data_json(data: bytes) -> BodyJson:
    """Bytes as JSON: as text if they are UTF-8, else in base64."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return {"kind": "data", "text": None, "base64": _base64(data), "json": None}
    return {"kind": "data", "text": text, "base64": None, "json": _parsed_or_none(text)}


def _parsed_or_none(content: str) -> object:
    """The JSON value in a text; None if it is not JSON, or beyond the limits of `json_reader`."""
    try:
        return read_json(content, VALUES_SHOWN_MAX)
    except JsonError:
        return None


def _fields(values: list[object] | None, names: tuple[str, ...]) -> dict[str, object]:
    items = values[0] if values and isinstance(values[0], list) else []
    return {name: value for name, value in zip(names, items, strict=False) if value is not None}


def _map_or_empty(values: list[object] | None) -> dict[object, object]:
    return dict(values[0]) if values and isinstance(values[0], dict) else {}


def _base64(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")
