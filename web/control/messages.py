"""Endpoints that send, receive and settle messages, and resubmit dead letters.

Knows the JSON of a new message and of what was received. Does not know partitions and locks; the broker decides.
"""

from __future__ import annotations

import base64
import binascii
import uuid
from collections.abc import Sequence
from typing import Final

from ...broker.address import SubQueue
from ...broker.admin import figures
from ...broker.admin.overview import Overview, Seen
from ...broker.api import Abandon, Complete, DeadLetter, Defer, Delivery, Entity, Outcome, ReceiveMode
from ...broker.errors import BrokerError
from ...broker.ids import token_from_uuid, token_to_uuid
from ...broker.message.bounds import IDENTIFIER_CHARS_MAX
from ...broker.message.builder import TTL_MS_MAX, NewMessage
from ...broker.model.descriptions import SubscriptionDescription
from ..json_object import JsonObject
from ..single_send import Sent, send_one
from .endpoints import ControlCall, ControlRefusal, Endpoint, answer_of_list
from .entities import ENTITY_AT, ENTITY_PATH, NO_SESSIONS, SUB_QUEUES, entity_with_messages
from .message_json import FAILED_MESSAGE, MESSAGE, NUMBER_MAX, message_json
from .receiving import received
from .schema import Schema, array, choice, default, fields_of, integer, mapping, named, nullable, record, scalar, text

SEND_COUNT_MAX: Final = 100
SEND_BYTES_MAX: Final = 8 << 20
RECEIVE_COUNT_MAX: Final = 250
NO_SESSIONS_THERE: Final = "Sub-queues have no message sessions: receive from them without session_id (--session)."
WAIT_MS_MAX: Final = 60_000
RESUBMIT_COUNT_MAX: Final = 100
RESUBMIT_BYTES_MAX: Final = 4 << 20
AT_MS_MAX: Final = 32_503_680_000_000
TEXT_FIELDS: Final = {
    "message_id": "message-id",
    "subject": "subject",
    "correlation_id": "correlation-id",
    "content_type": "content-type",
    "to": "to",
    "reply_to": "reply-to",
    "session_id": "group-id",
    "reply_to_session_id": "reply-to-group-id",
}
"""Fields of the properties section, with their names in AMQP."""


def _optional(schema: Schema) -> Schema:
    return default(nullable(schema), None)


def _property(name: str) -> Schema:
    pattern = "[ -~]*" if name == "content_type" else None
    return _optional(text(f"The {name}.", chars_max=IDENTIFIER_CHARS_MAX, pattern=pattern))


NEW_MESSAGE: Final = named(
    "NewMessage",
    record(
        "A message: a body as text or in base64, and its properties.",
        {
            "body": default(text("The body as text.", chars_max=SEND_BYTES_MAX), ""),
            "body_base64": _optional(text("The body in base64, instead of a text.", chars_max=SEND_BYTES_MAX)),
            **{name: _property(name) for name in TEXT_FIELDS},
            "partition_key": _optional(text("The partition key.", chars_max=IDENTIFIER_CHARS_MAX)),
            "application_properties": default(mapping("Values by name.", scalar("A value.", chars_max=32_768)), {}),
            "ttl_ms": _optional(integer("Time to live in milliseconds.", 1, TTL_MS_MAX)),
            "delay_ms": _optional(integer("Schedule it so far from now.", 1, WAIT_MS_MAX * 60 * 24 * 366)),
            "scheduled_at": _optional(integer("Schedule it for this instant (Unix ms).", 0, AT_MS_MAX)),
        },
    ),
)
SENT: Final = named(
    "Sent",
    record(
        "What became of each message, in their order.",
        {
            "results": array(
                "The results.",
                named(
                    "SendResult",
                    record(
                        "A message that was sent, dropped as a duplicate (no sequence number), or refused (an error).",
                        {
                            "sequence_number": nullable(integer("Its number.", 0, NUMBER_MAX)),
                            "partition_id": nullable(integer("Its partition.", 0, 65535)),
                            "store": nullable(integer("The messaging store of the partition.", 0, 65535)),
                            "error": nullable(text("Why it was refused.", chars_max=100_000)),
                        },
                    ),
                ),
            )
        },
    ),
)
_TOKEN: Final = text("A lock token.", pattern="[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}")
_SUB_QUEUE: Final = default(choice("Sub-queue of the entity.", SUB_QUEUES), "active")
_REASONS: Final = {
    "reason": _optional(text("dead-letter: the reason.")),
    "description": _optional(text("dead-letter: its description.")),
}
_ENDS: Final = ("complete", "abandon", "dead-letter", "defer")
RECEIVED: Final = named(
    "Received",
    record(
        "The messages.",
        {
            "messages": array(
                "The messages.",
                named(
                    "ReceivedMessage",
                    record(
                        "A message; its lock token if it stays locked.",
                        {**fields_of(MESSAGE), "lock_token": nullable(text("Its lock token."))},
                    ),
                ),
            ),
            "session_id": nullable(text("The message session that they came from.", chars_max=10_000)),
        },
    ),
)
SETTLED: Final = named("Settled", record("Settled messages.", {"settled_count": integer("How many.", 0, NUMBER_MAX)}))
RESUBMITTED: Final = named(
    "Resubmitted",
    record(
        "What became of dead letters. Ask again with `next_sequence_number` and `ends` until the former is null.",
        {
            "resubmitted_count": integer("How many were moved.", 0, NUMBER_MAX),
            "failures": array(
                "Dead letters that stay.",
                FAILED_MESSAGE,
            ),
            "next_sequence_number": nullable(integer("Where to go on; null at the end.", 0, NUMBER_MAX)),
            "total": integer("Dead letters at the start.", 0, NUMBER_MAX),
            "ends": array(
                "Per partition: dead letters from this number on came later and stay.",
                nullable(integer("A sequence number; null: the partition can't be reached.", 0, NUMBER_MAX)),
            ),
        },
    ),
)
_AT: Final = {"entity": ENTITY_PATH}


# ---------------------------------------------------------------- sending


def _encoded_message(asked: JsonObject, now: int) -> bytes:
    """The encoded message of a request. ControlRefusal."""
    try:
        given = asked.optional("body_base64", str)
        body = asked.one("body", str).encode() if given is None else base64.b64decode(given, validate=True)
    except (binascii.Error, ValueError):
        raise ControlRefusal(409, "body_base64 is not base64.") from None
    delay_ms = asked.optional("delay_ms", int)
    message = NewMessage(
        body,
        {amqp_name: asked.optional(name, str) for name, amqp_name in TEXT_FIELDS.items()},
        {name: value for name, value in asked.object_of("application_properties").items() if value is not None},
        asked.optional("partition_key", str),
        asked.optional("scheduled_at", int) if delay_ms is None else now + delay_ms,
        asked.optional("ttl_ms", int),
        created_at=now,
    )
    try:
        return message.encoded()
    except (TypeError, ValueError) as error:
        raise ControlRefusal(409, f"The message can't be encoded: {error}.") from None


async def send_messages(call: ControlCall) -> object:
    broker = call.services.broker
    entity = Overview(broker.namespace).entity(call.path.one("entity", str))
    now = call.services.clock.now_ms()
    encoded = [_encoded_message(each, now) for each in call.body.objects_of("messages")]
    results: list[dict[str, object]] = []
    for data in encoded:
        try:
            number = await send_one(broker, entity, data)
        except BrokerError as error:
            if len(encoded) == 1:
                raise
            results.append(sent_json(entity, error))
            continue
        results.append(sent_json(entity, number))
    return {"results": results}


def sent_json(entity: Entity, sent: Sent) -> dict[str, object]:
    """What became of a message, as `SENT` describes it."""
    if isinstance(sent, BrokerError):
        return {"sequence_number": None, "partition_id": None, "store": None, "error": sent.description}
    number = sent
    placed = None if number is None else figures.placement(entity, number)
    return {
        "sequence_number": number,
        "partition_id": None if placed is None else placed.partition_id,
        "store": None if placed is None else placed.store,
        "error": None,
    }


# ---------------------------------------------------------------- receiving and settling


def _outcome(asked: JsonObject) -> Outcome:
    match asked["outcome"]:
        case "complete":
            return Complete()
        case "abandon":
            return Abandon()
        case "defer":
            return Defer()
        case _:
            return DeadLetter(asked.optional("reason", str), asked.optional("description", str))


def _address(entity: Entity, sub_queue: SubQueue) -> str:
    return f"{entity.path}/{sub_queue.value}" if sub_queue else entity.path


async def receive_messages(call: ControlCall) -> object:
    """Receive messages and settle them, or leave them locked."""
    body, broker = call.body, call.services.broker
    entity = entity_with_messages(call)
    address = _address(entity, SUB_QUEUES[body.one("sub_queue", str)])
    outcome = None if body["outcome"] == "lock" else _outcome(body)
    session_id = body.optional("session_id", str)
    has_sessions = entity.requires_session and body["sub_queue"] == "active"
    if session_id is not None and not has_sessions:  # else messages of any session would be taken
        what = NO_SESSIONS.format(entity.path) if not entity.requires_session else NO_SESSIONS_THERE
        raise ControlRefusal(409, what)
    if numbers := body.list_of("sequence_numbers", int):
        found = await broker.messages.receive_by_sequence_number(address, numbers, ReceiveMode.PEEK_LOCK, session_id)
        if outcome is not None:
            await broker.messages.settle(address, [each.token for each in found], outcome)
    else:
        found, session_id = await received(
            call.services,
            call.request.protocol,
            address,
            count=body.one("count", int),
            timeout_ms=body.one("timeout_ms", int),
            session_id=session_id,
            sessions=has_sessions,
            outcome=outcome,
        )
    return await answer_of_list(
        call,
        "messages",
        found,
        lambda each: _delivery_json(entity, each, outcome is None),
        lambda each: len(each.payload),
        {"session_id": session_id},
    )


def _delivery_json(entity: Entity, delivery: Delivery, is_locked: bool) -> dict[str, object]:
    handle = entity.partition_of_number(delivery.sequence_number)
    seen = Seen(0 if handle is None else handle.index, delivery.sequence_number, delivery.payload, None)
    return {**message_json(seen), "lock_token": str(token_to_uuid(delivery.token)) if is_locked else None}


async def settle_messages(call: ControlCall) -> object:
    entity = entity_with_messages(call)
    address = _address(entity, SUB_QUEUES[call.body.one("sub_queue", str)])
    tokens = [token_from_uuid(uuid.UUID(each)) for each in call.body.list_of("lock_tokens", str)]
    await call.services.broker.messages.settle(address, tokens, _outcome(call.body))
    return {"settled_count": len(tokens)}


# ---------------------------------------------------------------- dead letters


async def resubmit(call: ControlCall) -> object:
    """Resubmit dead letters to the entity they came from, a page at a time."""
    body, broker = call.body, call.services.broker
    entity = entity_with_messages(call)
    description = entity.description
    target = entity
    if isinstance(description, SubscriptionDescription):
        target = Overview(broker.namespace).entity(description.topic_name)
    extents = await entity.extents(SubQueue.DEAD_LETTER)
    ends = [each if isinstance(each, int) else None for each in body.list_of("ends", object)] or [
        None if each is None else each.next_sequence_number for each in extents
    ]
    following: int | None = None
    numbers = body.list_of("sequence_numbers", int)
    if not numbers:
        page = await Overview(broker.namespace).messages(
            entity,
            SubQueue.DEAD_LETTER,
            first=body.one("from_sequence_number", int),
            count=body.one("count", int),
            bytes_max=RESUBMIT_BYTES_MAX,
        )
        numbers = [each.sequence_number for each in page.messages if _is_before(each, ends)]
        following = page.next_sequence_number
    answer = await entity.resubmit(numbers, target) if numbers else {}
    refused = {number: error for number, error in answer.items() if error is not None}
    failures = [{"sequence_number": number, "message": error.description} for number, error in refused.items()]
    return {
        "resubmitted_count": len(answer) - len(failures),
        "failures": failures,
        "next_sequence_number": following,
        "total": sum(each.message_count for each in extents if each is not None),
        "ends": ends,
    }


def _is_before(seen: Seen, ends: Sequence[int | None]) -> bool:
    end = ends[seen.partition_id] if seen.partition_id < len(ends) else None
    return end is not None and seen.sequence_number < end


_NUMBERS: Final = default(
    array("Only these sequence numbers.", integer("A number.", 0, NUMBER_MAX), count_max=RESUBMIT_COUNT_MAX), []
)
ENDPOINTS: Final = (
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/messages",
        "Send messages to a queue or topic, one after the other",
        send_messages,
        SENT,
        at=_AT,
        body=record(
            "The messages.",
            {"messages": {**array("The messages.", NEW_MESSAGE, count_min=1), "maxItems": SEND_COUNT_MAX}},
        ),
        errors=(409,),
        body_bytes_max=2 * SEND_BYTES_MAX,
        example={"messages": [{"body": "hello", "session_id": "s1", "application_properties": {"colour": "red"}}]},
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/receive",
        "Receive messages and settle them, or leave them locked (not those of message sessions)",
        receive_messages,
        RECEIVED,
        at=_AT,
        body=record(
            "How many, and what becomes of them.",
            {
                "count": default(integer("Maximum number of messages.", 1, RECEIVE_COUNT_MAX), 1),
                "timeout_ms": default(integer("How long to wait for the first one.", 0, WAIT_MS_MAX), 0),
                "outcome": default(choice("lock: they stay locked.", ("lock", *_ENDS)), "complete"),
                "sub_queue": _SUB_QUEUE,
                "session_id": _optional(text("Only this message session.", chars_max=IDENTIFIER_CHARS_MAX)),
                "sequence_numbers": {**_NUMBERS, "description": "Only these deferred messages."},
                **_REASONS,
            },
        ),
        errors=(409,),
        example={"count": 10, "timeout_ms": 1_000, "outcome": "complete"},
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/settle",
        "Settle locked messages by their lock tokens",
        settle_messages,
        SETTLED,
        at=_AT,
        body=record(
            "Which ones, and how.",
            {
                "lock_tokens": array("The lock tokens.", _TOKEN, count_min=1, count_max=RECEIVE_COUNT_MAX),
                "outcome": choice("How.", _ENDS),
                "sub_queue": _SUB_QUEUE,
                **_REASONS,
            },
        ),
        errors=(409,),
        example={"lock_tokens": ["6e2b1f0c-3c2d-4b5a-9f00-0123456789ab"], "outcome": "abandon"},
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/resubmit",
        "Resubmit dead letters to the queue or topic they came from, a page at a time",
        resubmit,
        RESUBMITTED,
        at=_AT,
        body=record(
            "Which ones.",
            {
                "sequence_numbers": _NUMBERS,
                "from_sequence_number": default(integer("Start here.", 0, NUMBER_MAX), 0),
                "count": default(integer("Maximum number.", 1, RESUBMIT_COUNT_MAX), RESUBMIT_COUNT_MAX),
                "ends": default(array("From an earlier answer.", nullable(integer("A number.", 0, NUMBER_MAX))), []),
            },
        ),
        errors=(409,),
        example={"sequence_numbers": [1, 2, 3]},
    ),
)
