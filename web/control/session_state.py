"""Endpoints for the state of a message session: read, set, clear.

Does not know how a session is held while its state is set (`web.messages.sessions`).
"""

from __future__ import annotations

import base64
import binascii
from typing import Final

from ...broker.admin.overview import Overview
from ...broker.api import Entity
from ...broker.aside import ASIDE_BYTES
from ...broker.message.bounds import IDENTIFIER_CHARS_MAX
from ..json_writer import json_pieces
from ..messages.sessions import HeldSessions
from .endpoints import ControlCall, ControlRefusal, Endpoint, answer_in_pieces
from .entities import ENTITY_AT, ENTITY_PATH, NO_SESSIONS
from .message_json import CONTENT, NUMBER_MAX, data_json
from .schema import default, integer, named, nullable, record, text

CLIENT: Final = "the control API"
"""The holder of a session while its state is set."""
STATE_CHARS_MAX: Final = 8 << 20
_BASE64: Final = r"([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?"
STATE: Final = named(
    "SessionState",
    record(
        "The state of a message session: as text if it is UTF-8, else in base64; `json` if it is JSON.",
        {
            "session_id": text("The id of the session.", chars_max=10_000),
            "state_bytes": nullable(integer("Size of the state; null: the session has none.", 0, NUMBER_MAX)),
            **CONTENT,
        },
    ),
)
NEW_STATE: Final = named(
    "NewSessionState",
    record(
        "The new state.",
        {
            "text": nullable(
                text("The state as text; null without base64, or empty: it is cleared.", chars_max=STATE_CHARS_MAX)
            ),
            "base64": default(
                nullable(text("The state in base64; text is then null.", chars_max=STATE_CHARS_MAX, pattern=_BASE64)),
                None,
            ),
        },
    ),
)
_PATH: Final = f"/entities/{ENTITY_AT}/sessions/{{session}}/state"
_AT: Final = {
    "entity": ENTITY_PATH,
    "session": text("The id of the session, slashes as %2F.", chars_min=1, chars_max=IDENTIFIER_CHARS_MAX),
}


def _entity_and_session(call: ControlCall) -> tuple[Entity, str]:
    """The entity and the session of a request. ControlRefusal, BrokerError (not-found)."""
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    if not entity.requires_session:
        raise ControlRefusal(409, NO_SESSIONS.format(entity.path))
    return entity, call.path.one("session", str)


async def show_session_state(call: ControlCall) -> object:
    entity, session_id = _entity_and_session(call)
    return await _answer(call, session_id, Overview(call.services.broker.namespace).session_state(entity, session_id))


async def set_session_state(call: ControlCall) -> object:
    """Set or clear the state of a session that no client holds."""
    entity, session_id = _entity_and_session(call)
    state = _state(call.body.optional("text", str), call.body.optional("base64", str))
    await HeldSessions(call.services.broker, CLIENT).set_state(entity, session_id, state)
    return await _answer(call, session_id, state or None)


async def _answer(call: ControlCall, session_id: str, state: bytes | None) -> object:
    if state is None or len(state) <= ASIDE_BYTES:
        return _state_json(session_id, state)
    return await answer_in_pieces(call.request, lambda: json_pieces(_state_json(session_id, state)))


def _state(content: str | None, encoded: str | None) -> bytes | None:
    """The state of a request, None to clear it. ControlRefusal."""
    if encoded is None:
        return None if content is None else content.encode()
    if content is not None:
        raise ControlRefusal(409, "The state is given as text and in base64.")
    try:
        return base64.b64decode(encoded, validate=True)
    except binascii.Error:
        raise ControlRefusal(409, "base64 is not base64.") from None


def _state_json(session_id: str, state: bytes | None) -> dict[str, object]:
    """A state as `STATE` describes it."""
    if state is None:
        return {"session_id": session_id, "state_bytes": None, "text": None, "base64": None, "json": None}
    data = data_json(state)
    return {
        "session_id": session_id,
        "state_bytes": len(state),
        "text": data["text"],
        "base64": data["base64"],
        "json": data["json"],
    }


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        _PATH,
        "The state of a message session, also while a client holds it",
        show_session_state,
        STATE,
        at=_AT,
        errors=(409,),
        answers={
            "session_id": "s1",
            "state_bytes": 10,
            "text": '{"step":2}',
            "base64": None,
            "json": {"step": 2},
        },
    ),
    Endpoint(
        "PUT",
        _PATH,
        "Set or clear the state of a message session, unless a client holds the session",
        set_session_state,
        STATE,
        at=_AT,
        body=NEW_STATE,
        errors=(409,),
        body_bytes_max=2 * STATE_CHARS_MAX,
        example={"text": '{"step":2}'},
    ),
)
