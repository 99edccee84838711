"""The `$management` operations on messages [wire 7.2].

Knows what each one's body holds and the exact types of what comes back. Does not know how it is done: each is one of
the broker's verbs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from struct import Struct
from typing import Final

from ...broker.api import Abandon, Complete, DeadLetter, Defer, Outcome, ReceiveMode
from ...broker.errors import BrokerError, Condition
from ...broker.ids import token_to_uuid
from ...codec.encode import encode, encode_array
from ...codec.types import Int
from .operations import NO_CONTENT, Body, Context, Result, encoded_fields, encoded_list

_TIMESTAMP, _LONG = 0x83, 0x81
_PER_MESSAGE_BYTES: Final = 64  # what a peeked message costs besides its own bytes, at most
_REPLY_OVERHEAD_BYTES: Final = 1024
_PEEK_BYTES_MAX: Final = 256 * 1024  # one message may be larger (P23)
_PEEK_COUNT_MAX: Final = 250  # "Message browsing" and the limits of the service name it
_PEEK_COUNT_OF_PARTITION_MAX: Final = 5_000  # the connector's own operation reads queues in ranges
_MESSAGE_KEY: Final = encode("message")
_SHORT_MAP: Final = Struct(f">BBB{len(_MESSAGE_KEY)}sBB").pack
"""A map of one key whose size and value's size take one byte: codes, sizes, count of items; before the value."""
_LONG_MAP: Final = Struct(f">BII{len(_MESSAGE_KEY)}sBI").pack
"""The same with sizes of four bytes."""
_SHORT_MAP_BYTES: Final = 1 + len(_MESSAGE_KEY) + 2  # what the map's size counts besides the value
_LONG_MAP_BYTES: Final = 4 + len(_MESSAGE_KEY) + 5
_SHORT_BINARY_BYTES_MAX: Final = 255
_SHORT_MESSAGE_BYTES_MAX: Final = _SHORT_BINARY_BYTES_MAX - _SHORT_MAP_BYTES
PEEK_PARTITION: Final = "emubus:partition-id"
"""Ours: peek in this partition only, and end where it ends."""
DEFERRED_ONLY: Final = "emubus:deferred-only"
"""Ours: with 1, a peek in one partition shows deferred messages only."""
_END_OF_TIME: Final = 253_402_300_799_999


async def renew_lock(context: Context, body: Body) -> Result:
    """New ends for locks, in the order of their tokens."""
    ends = await context.broker.messages.renew_locks(context.address, body.lock_tokens(), bounded=True)
    return Result(body=encoded_fields({"expirations": encode_array(_TIMESTAMP, ends)}))


async def peek(context: Context, body: Body) -> Result:
    """Messages as they are; as many as fit."""
    count = body.count("message-count")
    first = body.integer("from-sequence-number", 0)
    partition = body.integer_or_none(PEEK_PARTITION)
    count_max = _PEEK_COUNT_MAX if partition is None else _PEEK_COUNT_OF_PARTITION_MAX
    budget = min(context.reply_bytes_max, _PEEK_BYTES_MAX) - _REPLY_OVERHEAD_BYTES
    messages = await context.broker.messages.peek(
        context.address,
        first,
        min(count, count_max),
        max(1, budget),
        body.session_id(),
        partition,
        deferred_only=bool(body.integer(DEFERRED_ONLY, 0)),
    )
    rows: list[bytes] = []
    for message in messages:
        budget -= len(message) + _PER_MESSAGE_BYTES
        if rows and budget < 0:
            break
        rows.append(_encoded_peeked(message))
    if not rows:
        return Result(NO_CONTENT, description="There are no messages to peek.")
    return Result(body=encoded_fields({"messages": encoded_list(rows)}))


def _encoded_peeked(message: bytes) -> bytes:
    """`encoded_fields({"message": encode(message)})`, at a quarter of its cost: readers ask for each message."""
    size = len(message)
    if size <= _SHORT_MESSAGE_BYTES_MAX:
        return _SHORT_MAP(0xC1, size + _SHORT_MAP_BYTES, 2, _MESSAGE_KEY, 0xA0, size) + message
    if size > _SHORT_BINARY_BYTES_MAX:
        return _LONG_MAP(0xD1, size + _LONG_MAP_BYTES, 2, _MESSAGE_KEY, 0xB0, size) + message
    return encoded_fields({"message": encode(message)})


async def schedule(context: Context, body: Body) -> Result:
    """Keep messages until the times in them. What else the maps hold is in the messages, too."""
    broker, messages = context.broker, body.messages("messages")
    if context.transaction is None:
        numbers = await broker.messages.schedule(context.address, messages)
    else:
        numbers = await broker.work.schedule(context.transaction, context.address, messages)
    return Result(body=encoded_fields({"sequence-numbers": encode_array(_LONG, numbers)}))


async def cancel_scheduled(context: Context, body: Body) -> Result:
    broker, numbers = context.broker, body.integers("sequence-numbers")
    if context.transaction is None:
        await broker.messages.cancel_scheduled(context.address, numbers)
    else:
        await broker.work.cancel(context.transaction, context.address, numbers)
    return Result()


_LOST: Final = frozenset((Condition.MESSAGE_LOCK_LOST, Condition.SESSION_LOCK_LOST))


async def update_disposition(context: Context, body: Body) -> Result:
    """Settle by lock token."""
    name = body.text("disposition-status")
    make = _DISPOSITIONS.get(name.lower())
    if make is None:
        raise BrokerError(
            Condition.ARGUMENT_ERROR,
            f"The field 'disposition-status' is '{name}'; it must be one of {', '.join(sorted(_DISPOSITIONS))}.",
        )
    tokens, outcome = body.lock_tokens(), make(body)
    if context.transaction is None:
        try:
            await context.broker.messages.settle(context.address, tokens, outcome, body.session_id(), bounded=True)
        except BrokerError as error:
            if error.condition not in _LOST or not context.past_links.have_settled(tokens, outcome):
                raise
    else:
        for token in tokens:
            context.broker.work.settle(context.transaction, context.address, token, outcome)
    return Result()


def _dead_letter_outcome(body: Body) -> Outcome:
    return DeadLetter(
        body.text_or_none("deadletter-reason"),
        body.text_or_none("deadletter-description"),
        body.property_changes("properties-to-modify"),
    )


_DISPOSITIONS: Final[Mapping[str, Callable[[Body], Outcome]]] = {
    "completed": lambda _: Complete(),
    "abandoned": lambda body: Abandon(body.property_changes("properties-to-modify")),
    "defered": lambda body: Defer(body.property_changes("properties-to-modify")),
    "deferred": lambda body: Defer(body.property_changes("properties-to-modify")),
    "suspended": _dead_letter_outcome,
}


async def receive_by_sequence_number(context: Context, body: Body) -> Result:
    """Deferred messages of one partition, all or none."""
    mode = ReceiveMode.RECEIVE_AND_DELETE if body.integer("receiver-settle-mode", 1) == 0 else ReceiveMode.PEEK_LOCK
    numbers = body.integers("sequence-numbers")
    rows: list[bytes] = []
    for each in await context.broker.messages.receive_by_sequence_number(
        context.address, numbers, mode, body.session_id(), bounded=True
    ):
        fields = {"message": encode(each.payload)}
        if mode is ReceiveMode.PEEK_LOCK:
            fields["lock-token"] = encode(token_to_uuid(each.token))
        rows.append(encoded_fields(fields))
    return Result(body=encoded_fields({"messages": encoded_list(rows)}))


async def batch_delete(context: Context, body: Body) -> Result:
    """Delete the oldest messages; how many it were, also when it were none."""
    count, before_at = body.count("message-count"), body.integer("enqueued-time-utc", _END_OF_TIME)
    deleted = await context.broker.messages.delete_messages(context.address, count, before_at, body.session_id())
    encoded = encoded_fields({"message-count": encode(Int(deleted))})
    if deleted:
        return Result(body=encoded)
    # JavaScript takes a 204 for an error unless it says so [wire 7.2].
    return Result(NO_CONTENT, encoded, "There are no messages to delete.", Condition.MESSAGE_NOT_FOUND.value)
