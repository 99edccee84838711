"""Translation between the driver protocol's JSON and the objects of ``azure-servicebus``.

Knows: messages in and out, typed properties and the kinds of errors (``tests/sdk/PROTOCOL.md``). Refuses to
know: clients, senders and receivers, and which of the SDK's two faces (plain or asyncio) is driven. Pure functions;
nothing here keeps an object. Runs under every version of the SDK that the tests cover, so it uses only what all of
them have.
"""

from __future__ import annotations

import base64
import hashlib
import importlib.metadata
import uuid
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from azure.core.exceptions import HttpResponseError, ResourceNotFoundError
from azure.servicebus import ServiceBusMessage, ServiceBusReceivedMessage

JSON = dict[str, Any]

BODY_TEXT_BYTES_MAX = 1024
TEXT_PROPERTIES = (
    "message_id",
    "subject",
    "session_id",
    "partition_key",
    "correlation_id",
    "content_type",
    "reply_to",
    "reply_to_session_id",
    "to",
)

PROPERTY_TYPES = ("int", "double", "timestamp", "uuid")  # bytes it sends as a string

KIND_BY_CONDITION = {
    "amqp:not-found": "not-found",
    "amqp:link:message-size-exceeded": "message-size",
    "com.microsoft:message-lock-lost": "lock-lost",
    "com.microsoft:session-lock-lost": "session-lock-lost",
    "com.microsoft:session-cannot-be-locked": "session-cannot-be-locked",
    "com.microsoft:timeout": "timeout",
    "amqp:unauthorized-access": "unauthorized",
    "amqp:resource-limit-exceeded": "quota",
    "com.microsoft:server-busy": "busy",
    "com.microsoft:entity-disabled": "disabled",
    "com.microsoft:message-not-found": "message-not-found",
    "amqp:not-allowed": "not-allowed",
    "com.microsoft:argument-error": "argument",
}
KIND_BY_TYPE = {
    "MessagingEntityNotFoundError": "not-found",
    "MessageSizeExceededError": "message-size",
    "MessageLockLostError": "lock-lost",
    "SessionLockLostError": "session-lock-lost",
    "SessionCannotBeLockedError": "session-cannot-be-locked",
    "OperationTimeoutError": "timeout",
    "ServiceBusAuthenticationError": "unauthorized",
    "ServiceBusAuthorizationError": "unauthorized",
    "ServiceBusQuotaExceededError": "quota",
    "ServiceBusServerBusyError": "busy",
    "MessagingEntityDisabledError": "disabled",
    "MessageNotFoundError": "message-not-found",
    "MessagingEntityAlreadyExistsError": "exists",
}


KIND_BY_STATUS = {400: "argument", 401: "unauthorized", 403: "quota", 404: "not-found", 409: "exists", 503: "busy"}


def version() -> tuple[int, ...]:
    """The first two numbers of the SDK's version."""
    return tuple(map(int, importlib.metadata.version("azure-servicebus").split(".")[:2]))


def error_to_json(error: BaseException) -> JSON:
    """The error object of an answer: kind, type, code and message."""
    name = type(error).__name__
    if isinstance(error, HttpResponseError):
        status = error.status_code
        kind = "not-found" if isinstance(error, ResourceNotFoundError) else KIND_BY_STATUS.get(status or 0, "other")
        return {"kind": kind, "type": name, "code": None if status is None else str(status), "message": str(error)}
    condition = getattr(error, "_condition", None)
    if isinstance(condition, bytes):
        condition = condition.decode()
    code = None if condition is None else str(getattr(condition, "value", condition))
    kind = KIND_BY_TYPE.get(name) or KIND_BY_CONDITION.get(code or "", "other")
    message = str(error)
    inner = getattr(error, "inner_exception", None)
    status = getattr(inner, "status_code", None)
    if status is not None:  # a token was refused: only the exception inside says why, 404 that there is no such entity
        kind, message = KIND_BY_STATUS.get(status, kind), f"{message} {inner}"
    return {"kind": kind, "type": name, "code": code, "message": message}


def made_body(size_bytes: int) -> bytes:
    """The deterministic body of *size_bytes* bytes that every driver makes alike."""
    period = bytes((index * 31 + 7) % 256 for index in range(256))
    return (period * (size_bytes // 256 + 1))[:size_bytes]


def body_from_json(spec: JSON) -> bytes:
    """The body that a message in asks for; empty when it asks for none."""
    if spec.get("body_base64") is not None:
        return base64.b64decode(spec["body_base64"])
    if spec.get("body_size") is not None:
        return made_body(int(spec["body_size"]))
    return str(spec.get("body") or "").encode()


def message_from_json(spec: JSON) -> ServiceBusMessage:
    """A message in as the SDK's message."""
    options: JSON = {name: spec[name] for name in TEXT_PROPERTIES if spec.get(name) is not None}
    if spec.get("ttl_ms") is not None:
        options["time_to_live"] = timedelta(milliseconds=spec["ttl_ms"])
    if spec.get("scheduled_at_ms") is not None:
        options["scheduled_enqueue_time_utc"] = instant_from_ms(spec["scheduled_at_ms"])
    if spec.get("properties") is not None:
        options["application_properties"] = {
            name: property_from_json(value) for name, value in spec["properties"].items()
        }
    message = ServiceBusMessage(body_from_json(spec), **options)
    if spec.get("annotations") is not None:
        raw = message.raw_amqp_message
        raw.annotations = {**(raw.annotations or {}), **spec["annotations"]}
    return message


def message_to_json(message: ServiceBusReceivedMessage, handle: str | None) -> JSON:
    """A received or peeked message as a message out."""
    body = body_bytes(message)
    properties = message.application_properties or {}
    answer: JSON = {name: text_or_none(getattr(message, name)) for name in TEXT_PROPERTIES}
    answer |= {
        "handle": handle,
        "ttl_ms": None if message.time_to_live is None else message.time_to_live // timedelta(milliseconds=1),
        "scheduled_at_ms": ms_from_instant(message.scheduled_enqueue_time_utc),
        "properties": {text_or_none(name): property_to_json(value) for name, value in properties.items()},
        "sequence_number": None if message.sequence_number is None else str(message.sequence_number),
        "enqueued_at_ms": ms_from_instant(message.enqueued_time_utc),
        "expires_at_ms": ms_from_instant(message.expires_at_utc),
        "locked_until_ms": None if handle is None else ms_from_instant(message.locked_until_utc),
        "delivery_count": message.delivery_count,
        "state": message.state.name.lower(),
        "dead_letter_reason": message.dead_letter_reason,
        "dead_letter_description": message.dead_letter_error_description,
        "dead_letter_source": message.dead_letter_source,
        "body": body_text(body),
        "body_size": len(body),
        "body_sha256": hashlib.sha256(body).hexdigest(),
    }
    return answer


def body_bytes(message: ServiceBusReceivedMessage) -> bytes:
    """The bytes of the body: data sections joined, an AMQP value as its own bytes or text."""
    body = message.body
    if body is None:
        return b""
    if isinstance(body, bytes):
        return body
    if isinstance(body, str):
        return body.encode()
    return b"".join(bytes(section) for section in body)


def body_text(body: bytes) -> str | None:
    """The body as text where the protocol shows it as text."""
    if len(body) > BODY_TEXT_BYTES_MAX:
        return None
    try:
        return body.decode()
    except UnicodeDecodeError:
        return None


def text_or_none(value: Any) -> str | None:
    """Text of a name or property that the SDK hands out as text or as bytes."""
    if value is None:
        return None
    return value.decode() if isinstance(value, bytes) else str(value)


def property_from_json(value: Any) -> Any:
    """A typed property of the protocol as the Python value that the SDK encodes as that type."""
    if not isinstance(value, Mapping):
        return value
    kind, inner = value["type"], value["value"]
    if kind not in PROPERTY_TYPES:
        raise TypeError(f"azure-servicebus sends no application property of type {kind}")
    if kind == "int":
        return int(inner)
    if kind == "double":
        return float(inner)
    if kind == "timestamp":
        return instant_from_ms(inner)
    return uuid.UUID(inner)


def property_to_json(value: Any) -> Any:
    """A received application property in the protocol's form.

    The SDK hands out strings as bytes, so bytes that are text count as a string, and timestamps as integers.
    """
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int):
        return {"type": "long", "value": str(value)}
    if isinstance(value, float):
        return {"type": "double", "value": value}
    if isinstance(value, uuid.UUID):
        return {"type": "uuid", "value": str(value)}
    if isinstance(value, bytes):
        try:
            return value.decode()
        except UnicodeDecodeError:
            return {"type": "binary", "value": base64.b64encode(value).decode()}
    return {"type": "other", "value": repr(value)}


def instant_from_ms(at_ms: int) -> datetime:
    """Unix milliseconds as an aware datetime."""
    return datetime(1970, 1, 1, tzinfo=UTC) + timedelta(milliseconds=at_ms)


def ms_from_instant(instant: datetime | None) -> int | None:
    """An aware datetime as Unix milliseconds."""
    return None if instant is None else round(instant.timestamp() * 1000)
