"""BrokerProperties: what Service Bus itself knows of a message, as the JSON of one HTTP header [http 5].

Knows the names, the forms of their values, and where each is kept in an AMQP message. Does not know requests and
answers. What can't be understood is an `HttpRefusal` with status 400 that names the property and its value. Pure.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NoReturn

from ...broker import service_errors
from ...broker.api import SEQUENCE_NUMBER_MAX
from ...broker.ids import token_to_uuid
from ...broker.message.builder import TTL_MS_MAX
from ..atom.parsing import shown
from ..errors import HttpRefusal
from .texts import http_date, identifier_text, instant_in, span_s_in

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
"""Strings that a sender may set, and the fields of the AMQP properties that keep them."""

BATCH_PROPERTIES: Final[Mapping[str, str]] = {**PROPERTIES, "ContentType": "content-type"}
"""In a batch the content type is among them: there is no header for each message."""

STATES: Final = ("Active", "Deferred", "Scheduled")
TTL_S_NEVER: Final = 922337203685.47754
"""The time to live of a message that never expires: the longest TimeSpan of .NET, in seconds."""


@dataclass(frozen=True, slots=True)
class BrokerProperties:
    """What a sender has set: `properties` by their AMQP names, instants in Unix milliseconds."""

    properties: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    partition_key: str | None = None
    scheduled_enqueue_at: int | None = None
    ttl_ms: int | None = None


def broker_properties_in(text: str) -> BrokerProperties:
    """What the header of a single message says."""
    try:
        found = json.loads(text, parse_constant=_no_constant)
    except (ValueError, RecursionError):
        found = None
    if not isinstance(found, dict):
        raise HttpRefusal(400, f"The value '{shown(text)}' of the HTTP header '{HEADER}' is invalid: no JSON object.")
    return read(found, PROPERTIES)


def read(found: Mapping[str, Any], names: Mapping[str, str]) -> BrokerProperties:
    """What an object says; properties that nobody may set or knows are passed over, as the service does.

    An empty string is as good as none. HttpRefusal (400), KeysDifferError.
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


def _scheduled_at(found: Mapping[str, Any]) -> int | None:
    value = found.get("ScheduledEnqueueTimeUtc")
    if value is None or value == "":
        return None
    at = instant_in(value) if isinstance(value, str) else None
    if at is None:
        raise _bad("ScheduledEnqueueTimeUtc", value, "a date such as 'Sun, 06 Nov 1994 08:49:37 GMT'")
    return at


def _ttl_ms(found: Mapping[str, Any]) -> int | None:
    """A number of seconds, or its text as the Python client sends it; a time span has a name of its own in batches."""
    for name in ("TimeToLiveTimeSpan", "TimeToLive"):
        value = found.get(name)
        if value is None or value == "":
            continue
        seconds = _seconds(value)
        if seconds is None or not seconds > 0:
            raise _bad(name, value, "a number of seconds above 0, or a time span such as '0.00:00:40'")
        # Beyond 49 days an AMQP header can't say it; SDKs write the longest that it can.
        return max(1, min(round(seconds * 1000), TTL_MS_MAX))
    return None


def _seconds(value: object) -> float | None:
    if isinstance(value, str):
        span_s = span_s_in(value)
        if span_s is not None:
            return span_s
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
    problem = f"The value '{shown(str(value))}' of the broker property '{name}' is invalid: it is not {expected}."
    return HttpRefusal(400, problem)


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is no JSON")


@dataclass(frozen=True, slots=True)
class Found:
    """The parts of a received message that BrokerProperties are made of, by their AMQP names."""

    sequence_number: int
    properties: Mapping[str, object]
    annotations: Mapping[object, Any]
    delivery_count: int
    ttl_ms: int | None


def shown_properties(found: Found, lock_token: bytes | None) -> str:
    """The header of a received message; with the lock's token and end if it is locked.

    The delivery that brings it is counted, as in the service: the first one has DeliveryCount 1.
    """
    told: dict[str, object] = {
        name: identifier_text(found.properties.get(field_name)) for name, field_name in PROPERTIES.items()
    }
    annotations = found.annotations
    first_number = _number(annotations.get("x-opt-enqueue-sequence-number"))
    state = annotations.get("x-opt-message-state", 0)
    told |= {
        "DeadLetterSource": annotations.get("x-opt-deadletter-source"),
        "DeliveryCount": found.delivery_count + 1,
        # The service has 0 here for a message that is where it was sent to.
        "EnqueuedSequenceNumber": 0 if first_number in (None, found.sequence_number) else first_number,
        "EnqueuedTimeUtc": _date(annotations.get("x-opt-enqueued-time")),
        "PartitionKey": annotations.get("x-opt-partition-key"),
        "ScheduledEnqueueTimeUtc": _date(annotations.get("x-opt-scheduled-enqueue-time")),
        "SequenceNumber": found.sequence_number,
        "State": STATES[state] if isinstance(state, int) and 0 <= state < len(STATES) else STATES[0],
        "TimeToLive": TTL_S_NEVER if found.ttl_ms is None else _in_seconds(found.ttl_ms),
    }
    if lock_token is not None:
        told["LockToken"] = str(token_to_uuid(lock_token))
        told["LockedUntilUtc"] = _date(annotations.get("x-opt-locked-until"))
    return as_header(told)


def as_header(told: Mapping[str, object]) -> str:
    """Properties that are set, in the order of their names, in ASCII."""
    return json.dumps({name: told[name] for name in sorted(told) if told[name] is not None}, separators=(",", ":"))


def _number(value: object) -> int | None:
    return int(value) if isinstance(value, int) and 0 <= value <= SEQUENCE_NUMBER_MAX else None


def _date(value: object) -> str | None:
    return http_date(int(value)) if isinstance(value, int) else None


def _in_seconds(ms: int) -> float:
    return ms // 1000 if ms % 1000 == 0 else ms / 1000
