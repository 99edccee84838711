"""BrokerProperties: the system properties of a message, as JSON in one HTTP header [http 5].

Knows the names, the forms of their values, and where each is kept in an AMQP message. Does not know requests and
answers. An invalid property is an `HttpRefusal` with status 400 that names it and its value. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from ...broker import service_errors
from ...broker.api import SEQUENCE_NUMBER_MAX
from ...broker.ids import token_to_uuid
from ...broker.message.builder import TTL_MS_MAX
from ...codec.durations import TICKS_PER_S, clock_ticks
from ..errors import HttpRefusal, excerpt
from ..json_reader import JsonError, read_json
from .texts import http_date, identifier_text, instant_in

HEADER: Final = "BrokerProperties"

PROPERTIES: Final[Mapping[str, str]] = {
    "CorrelationId": "correlation-id",
    "Label": "subject",
    "MessageId": "message-id",
    "ReplyTo": "reply-to",
    "ReplyToSessionId": "reply-to-group-id",
    "SessionId": "group-id",
    "To": "to",
}
"""Strings that a sender may set, and their fields in the AMQP properties."""

BATCH_PROPERTIES: Final[Mapping[str, str]] = {**PROPERTIES, "ContentType": "content-type"}
"""In a batch they include the content type: messages have no headers of their own."""

STATES: Final = ("Active", "Deferred", "Scheduled")
TTL_S_NEVER: Final = 922337203685.47754
"""The time to live of a message that never expires: the longest TimeSpan of .NET, in seconds."""


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """The properties that a sender has set: `properties` by AMQP name, instants in Unix ms."""

    properties: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    partition_key: str | None = None
    scheduled_enqueue_at: int | None = None
    ttl_ms: int | None = None


def broker_properties_in(text: str) -> BrokerProperties:
    """The properties in the header of a single message."""
    problem = "no JSON object"
    try:
        found = read_json(text)
    except JsonError as error:
        found, problem = None, f"no JSON object that can be read, {error}"
    if not isinstance(found, dict):
        raise HttpRefusal(400, f"The value '{excerpt(text)}' of the HTTP header '{HEADER}' is invalid: {problem}.")
    return read(found, PROPERTIES)


def read(found: Mapping[str, object], names: Mapping[str, str]) -> BrokerProperties:
    """The properties in a JSON object; unknown and read-only ones are ignored, as the service does.

    An empty string means absent. HttpRefusal (400), KeysDifferError.
    """
    properties = {names[name]: _text(name, value) for name, value in found.items() if name in names}
    partition_key, session_id = _text("PartitionKey", found.get("PartitionKey")), properties.get("group-id")
    if partition_key is not None and session_id is not None and partition_key != session_id:
        raise service_errors.key_mismatch(session_id, partition_key)
    return BrokerProperties(properties, partition_key, _scheduled_at(found), _ttl_ms(found))


def _text(name: str, value: object) -> str | None:
    match value:
        case None | "":
            return None
        case str():
            return value
        case bool():
            return "true" if value else "false"
        case int() | float():
            return str(value)
        case _:
            raise _bad(name, value, "a string")


def _scheduled_at(found: Mapping[str, object]) -> int | None:
    value = found.get("ScheduledEnqueueTimeUtc")
    if value is None or value == "":
        return None
    at = instant_in(value) if isinstance(value, str) else None
    if at is None:
        raise _bad("ScheduledEnqueueTimeUtc", value, "a date such as 'Sun, 06 Nov 1994 08:49:37 GMT'")
    return at


def _ttl_ms(found: Mapping[str, object]) -> int | None:
    """Seconds as a number, or as text (Python client); in batches also a time span, under another name."""
    for name in ("TimeToLiveTimeSpan", "TimeToLive"):
        value = found.get(name)
        if value is None or value == "":
            continue
        seconds = _seconds(value)
        if seconds is None or not seconds > 0:
            raise _bad(name, value, "a number of seconds above 0, or a time span such as '0.00:00:40'")
        return max(1, min(round(seconds * 1000), TTL_MS_MAX))
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        ticks = clock_ticks(value)
        if ticks is not None:
            return ticks / TICKS_PER_S
        try:
            value = float(value)
        except ValueError:
            return None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None


def _bad(name: str, value: object, expected: str) -> HttpRefusal:
    problem = f"The value '{excerpt(str(value))}' of the broker property '{name}' is invalid: it is not {expected}."
    return HttpRefusal(400, problem)


@dataclass(frozen=True, slots=True)
class ReceivedProperties:
    """The parts of a received message that make its BrokerProperties, by AMQP name."""

    sequence_number: int
    properties: Mapping[str, object]
    annotations: Mapping[object, object]
    delivery_count: int
    ttl_ms: int | None


def header_of(found: ReceivedProperties, lock_token: bytes | None) -> str:
    """The header of a received message; with lock token and end of the lock if it is locked.

    DeliveryCount includes this delivery, as in the service: the first has 1.
    """
    values: dict[str, object] = {
        name: identifier_text(found.properties.get(field_name)) for name, field_name in PROPERTIES.items()
    }
    annotations = found.annotations
    first_number = _sequence_number_in(annotations.get("x-opt-enqueue-sequence-number"))
    state = annotations.get("x-opt-message-state", 0)
    values |= {
        "DeadLetterSource": _text_or_none(annotations.get("x-opt-deadletter-source")),
        "DeliveryCount": found.delivery_count + 1,
        # The service has 0 here for a message that was not moved.
        "EnqueuedSequenceNumber": 0 if first_number in (None, found.sequence_number) else first_number,
        "EnqueuedTimeUtc": _date(annotations.get("x-opt-enqueued-time")),
        "PartitionKey": _text_or_none(annotations.get("x-opt-partition-key")),
        "ScheduledEnqueueTimeUtc": _date(annotations.get("x-opt-scheduled-enqueue-time")),
        "SequenceNumber": found.sequence_number,
        "State": STATES[state] if isinstance(state, int) and 0 <= state < len(STATES) else STATES[0],
        "TimeToLive": TTL_S_NEVER if found.ttl_ms is None else _in_seconds(found.ttl_ms),
    }
    if lock_token is not None:
        values["LockToken"] = str(token_to_uuid(lock_token))
        values["LockedUntilUtc"] = _date(annotations.get("x-opt-locked-until"))
    return as_header(values)


def as_header(values: Mapping[str, object]) -> str:
    """Properties that are set, in the order of their names, in ASCII."""
    return json.dumps(
        {name: values[name] for name in sorted(values) if values[name] is not None}, separators=(",", ":")
    )


def _text_or_none(value: object) -> str | None:
    return str.__str__(value) if isinstance(value, str) else None


def _sequence_number_in(value: object) -> int | None:
    return int(value) if isinstance(value, int) and 0 <= value <= SEQUENCE_NUMBER_MAX else None


def _date(value: object) -> str | None:
    return http_date(int(value)) if isinstance(value, int) else None


def _in_seconds(ms: int) -> float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000
