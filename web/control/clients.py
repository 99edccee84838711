"""Endpoints that end what a client holds: one connection, one message session.

Does not know how a connection is cut and a session lock ends.
"""

from __future__ import annotations

from typing import Final

from ...broker.admin.overview import Overview
from .endpoints import ControlCall, ControlRefusal, Endpoint
from .entities import ENTITY_AT, ENTITY_PATH
from .message_json import NUMBER_MAX
from .schema import integer, named, record, text

NUMBERS_SHOWN: Final = 10
_DROPPED: Final = named(
    "DroppedConnection", record("The connection.", {"number": integer("Its number.", 1, NUMBER_MAX)})
)
_SESSION: Final = named("ReleasedSession", record("The session.", {"session_id": text("Its id.", chars_max=10_000)}))


async def drop_connection(call: ControlCall) -> object:
    number = call.path.one("number", int)
    if not call.services.faults.drop_connection(number):
        numbers = [str(each["number"]) for each in call.services.connections()]
        there_are = ", ".join(numbers[:NUMBERS_SHOWN]) + (", …" if len(numbers) > NUMBERS_SHOWN else "") or "none"
        raise ControlRefusal(404, f"There is no connection {number}; it may have ended. There are {there_are}.")
    return {"number": number}


async def release_session(call: ControlCall) -> object:
    """End the lock of a session; its receiver loses it."""
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    if not entity.requires_session:
        raise ControlRefusal(404, f"'{entity.path}' has no message sessions.")
    session_id = call.body.one("session_id", str)
    call.services.broker.sessions.release(entity.path, session_id)
    return {"session_id": session_id}


ENDPOINTS: Final = (
    Endpoint(
        "DELETE",
        "/connections/{number}",
        "Drop one AMQP connection",
        drop_connection,
        _DROPPED,
        at={"number": integer("Its number.", 1, NUMBER_MAX)},
    ),
    Endpoint(
        "POST",
        f"/entities/{ENTITY_AT}/sessions/release",
        "End the lock of a message session, if a receiver holds it; delivery counts do not rise",
        release_session,
        _SESSION,
        at={"entity": ENTITY_PATH},
        body=_SESSION,
        example={"session_id": "s1"},
    ),
)
