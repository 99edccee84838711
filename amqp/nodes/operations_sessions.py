"""The `$management` operations on message sessions [wire 7.3].

Knows what each one's body holds and the exact types of what comes back. Does not know who holds a session: the broker
refuses what needs its lock.
"""

from __future__ import annotations

from typing import Final

from ...broker.errors import BrokerError, Condition
from ...codec.encode import encode, encode_array
from ...codec.types import Int, Timestamp
from .operations import NO_CONTENT, Body, Context, Result, encoded_fields

_STRING: Final = 0xB1  # with 32 bits for its length: in an array all have the same
_ALL_SESSIONS_FROM: Final = 253_402_300_799_999  # the last millisecond that .NET knows; some SDKs round it up
_PAGE_COUNT: Final = 100


async def renew_session_lock(context: Context, body: Body) -> Result:
    """A new end for the lock of a session."""
    until_at = await context.broker.sessions.renew(context.address, body.text("session-id"))
    return Result(body=encoded_fields({"expiration": encode(Timestamp(until_at))}))


async def set_session_state(context: Context, body: Body) -> Result:
    """Keep a state, or with null none."""
    broker, session_id, state = context.broker, body.text("session-id"), body.binary_or_none("session-state")
    if context.transaction is None:
        await broker.sessions.set_state(context.address, session_id, state)
    else:
        await broker.work.set_state(context.transaction, context.address, session_id, state)
    return Result()


async def get_session_state(context: Context, body: Body) -> Result:
    """The state; null if there is none, for .NET looks for the key."""
    state = await context.broker.sessions.state(context.address, body.text("session-id"))
    return Result(body=encoded_fields({"session-state": encode(state)}))


async def get_message_sessions(context: Context, body: Body) -> Result:
    """Names of sessions, a page at a time."""
    skip, count = body.integer("skip", 0), body.count("top", _PAGE_COUNT)
    if skip < 0:
        raise BrokerError(Condition.ARGUMENT_OUT_OF_RANGE, "The field 'skip' must not be negative.")
    updated_after = body.integer("last-updated-time", _ALL_SESSIONS_FROM)
    names = await context.broker.sessions.names(
        context.address, None if updated_after >= _ALL_SESSIONS_FROM else updated_after
    )
    page = names[skip : skip + count]
    if not page:
        return Result(
            NO_CONTENT, description="There are no such sessions.", condition=Condition.SESSION_NOT_FOUND.value
        )
    return Result(body=encoded_fields({"skip": encode(Int(skip)), "sessions-ids": encode_array(_STRING, page)}))
