"""Turns a request into encoded messages: one from body and headers, or a batch from JSON.

Knows which part of a request becomes which part of a message. Does not know where messages go. The body is limited
before it is read. An invalid part is an `HttpRefusal` with status 400 that names it; a body that is too large is one
with 403, as Microsoft documents it.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Final

from aiohttp import hdrs, web

from ...broker.api import Sender
from ...broker.message.builder import NewMessage, envelope
from ..errors import HttpRefusal, excerpt
from ..json_reader import JsonError, read_json
from ..limits import BATCH_JSON_FACTOR
from ..long_work import ASIDE
from .broker_properties import BATCH_PROPERTIES, HEADER, BrokerProperties, broker_properties_in, read
from .headers import is_http_header, is_ignorable
from .texts import LONG_MAX, header_text, property_in

BATCH_TYPE: Final = "application/vnd.microsoft.servicebus.json"
"""Exactly this text: with parameters, the body is a single message in JSON."""


async def encoded_in(request: web.Request, sender: Sender, now: int) -> tuple[bytes, bool]:
    """The delivery in a request at an instant (Unix ms), and whether it is a batch. HttpRefusal (400, 403)."""
    is_batch = request.headers.get(hdrs.CONTENT_TYPE) == BATCH_TYPE
    try:
        if is_batch:
            body = await body_of(request, sender.batch_bytes_max * BATCH_JSON_FACTOR)
            return await request.app[ASIDE].run(lambda: _encode_batch(body, now), len(body)), True
        single = _single_message_headers(request)
        body = await body_of(request, sender.message_bytes_max)
        return _new_message(body, *single, now).encoded(), False
    except (TypeError, ValueError) as error:  # half a surrogate pair, a content type beyond ASCII
        raise HttpRefusal(400, f"The message can't be encoded: {excerpt(str(error))}.") from None


async def body_of(request: web.Request, bytes_max: int) -> bytes:
    """The body of a request, up to a limit in bytes. HttpRefusal: 403 for a larger one, 400 for a broken one."""
    announced = request.content_length
    if announced is not None and announced > bytes_max:
        raise _too_large(announced, bytes_max)
    chunks: list[bytes] = []
    size_bytes = 0
    try:
        async for chunk in request.content.iter_any():
            size_bytes += len(chunk)
            if size_bytes > bytes_max:
                raise _too_large(size_bytes, bytes_max)
            chunks.append(chunk)
    except (ConnectionError, web.RequestPayloadError) as error:
        raise HttpRefusal(400, f"The body of the request is broken: {excerpt(str(error))}.") from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(size_bytes: int, bytes_max: int) -> HttpRefusal:
    return HttpRefusal(403, f"The body has {size_bytes} bytes or more; at most {bytes_max} are allowed here.")


def _single_message_headers(request: web.Request) -> tuple[BrokerProperties, str | None, dict[str, object]]:
    """The headers of a single message: broker properties, content type and custom properties."""
    text = request.headers.get(HEADER)
    if text is None:
        broker_properties = BrokerProperties()
    else:
        broker_properties = broker_properties_in(header_text(text.encode("utf-8", "surrogateescape")))
    return broker_properties, request.headers.get(hdrs.CONTENT_TYPE), _custom_properties(request)


def _custom_properties(request: web.Request) -> dict[str, object]:
    """The headers that are properties of the message, with their names as written."""
    found: dict[str, object] = {}
    seen: set[str] = set()
    for raw_name, raw_value in request.raw_headers:  # `request.headers` has the library's spelling
        name = raw_name.decode("ascii", "replace")
        lowered = name.lower()
        if is_http_header(lowered):
            continue
        text = header_text(raw_value)
        try:
            value = property_in(text)
        except ValueError:
            if is_ignorable(lowered):
                continue
            raise HttpRefusal(
                400,
                f"The value '{excerpt(text)}' of the HTTP header '{excerpt(name)}' is invalid: strings and dates "
                "need quotation marks; numbers, true and false have none.",
            ) from None
        if lowered in seen:
            raise HttpRefusal(400, f"The HTTP header '{excerpt(name)}' is given more than once.")
        seen.add(lowered)
        found[name] = value
    return found


def _new_message(
    body: bytes,
    broker_properties: BrokerProperties,
    content_type: str | None,
    application_properties: Mapping[str, object],
    now: int,
) -> NewMessage:
    properties = {**broker_properties.properties}
    if content_type is not None:
        properties["content-type"] = content_type
    return NewMessage(
        body,
        properties,
        application_properties,
        broker_properties.partition_key,
        broker_properties.scheduled_enqueue_at,
        broker_properties.ttl_ms,
        created_at=now,
    )


# ---- batches


def _encode_batch(body: bytes, now: int) -> bytes:
    """The delivery of a batch. HttpRefusal, TypeError, ValueError."""
    return envelope([message.encoded() for message in _batch_messages(body, now)])


def _batch_messages(body: bytes, now: int) -> list[NewMessage]:
    try:
        found = read_json(body)
    except JsonError as error:
        raise HttpRefusal(400, f"The batch can't be read as JSON: {error}.") from None
    if not isinstance(found, list) or not found:
        raise HttpRefusal(400, "The batch is no JSON array of messages, or it is empty.")
    return [_batch_message(number, each, now) for number, each in enumerate(found, 1)]


def _batch_message(number: int, found: object, now: int) -> NewMessage:
    try:
        if not isinstance(found, dict):
            raise HttpRefusal(400, "it is no JSON object.")
        properties = read(_object_member(found, "BrokerProperties"), BATCH_PROPERTIES)
        users = _object_member(found, "UserProperties")
        values = {name: _user_value(name, value) for name, value in users.items() if value is not None}
        return _new_message(_batch_body(found), properties, None, values, now)
    except HttpRefusal as refusal:
        raise HttpRefusal(refusal.status, f"Message {number} of the batch is invalid: {refusal.detail}") from None


def _object_member(found: Mapping[str, object], name: str) -> Mapping[str, object]:
    value = found.get(name)
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise HttpRefusal(400, f"'{name}' is no JSON object.")
    return value


def _batch_body(found: Mapping[str, object]) -> bytes:
    body = found.get("Body")
    if body is None:
        return b""
    if not isinstance(body, str):
        raise HttpRefusal(400, f"'Body' is of type {type(body).__name__}; it must be a string.")
    encoded = found.get("IsBodyBase64", False)
    if not isinstance(encoded, bool | None):
        raise HttpRefusal(400, f"'IsBodyBase64' is '{excerpt(str(encoded))}'; it must be true or false.")
    if not encoded:
        return body.encode()
    try:
        return base64.b64decode(body, validate=True)
    except (binascii.Error, ValueError):
        raise HttpRefusal(400, "'Body' is not base64, but 'IsBodyBase64' is true.") from None


def _user_value(name: str, value: object) -> object:
    match value:
        case bool() | float() | str():
            return value
        case int():
            return value if -LONG_MAX - 1 <= value <= LONG_MAX else float(value)
        case _:
            raise HttpRefusal(
                400,
                f"The user property '{excerpt(name)}' is an object or array; "
                "strings, numbers and booleans are allowed.",
            )
