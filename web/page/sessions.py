"""Message sessions of an entity: who holds them, and their states: shown, downloaded, set, cleared.

Does not know how a session is held while its state is set (`web.messages.sessions`).
"""

from __future__ import annotations

import binascii
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from ...broker.api import Entity
from ..control.entities import NO_SESSIONS
from ..control.message_json import data_json
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, FormError, query_form, quoted, read_form
from .message_form import BODY_FORMS
from .overview import row_of
from .rendering import BODY_CHARS_MAX, HEX_BYTES_MAX, BodyView, body_of, size
from .site import Site, address

SESSIONS_MAX: Final = 500


@dataclass(frozen=True, slots=True)
class StateView:
    """The state of a session for display; `body` is None without a state.

    `given` and `given_as` fill in the form; `given` is None for a state that is too long for it.
    """

    session_id: str
    body: BodyView | None
    given: str | None
    given_as: str


async def show(
    site: Site, request: web.Request, failed: Failed | None = None, form: Form | None = None
) -> web.Response:
    """The message sessions of an entity, and the state of the one that is asked for (`session`)."""
    asked = form or query_form(request)
    entity, session_id = _entity_of(site, asked), asked.raw("session")
    sessions = await site.overview.sessions(entity)
    is_by_age = asked.text("sort") == "age"
    if is_by_age:  # those without messages last
        sessions.sort(key=lambda each: (each.oldest_at is None, each.oldest_at))
    return site.render(
        request,
        "sessions.html",
        failed=failed,
        live_path=address("sessions", path=entity.path, sort="age" if is_by_age else ""),
        is_by_age=is_by_age,
        row=row_of(site, entity),
        sessions=sessions[:SESSIONS_MAX],
        total=len(sessions),
        opened=await _read_state(site, entity, session_id) if session_id else None,
        body_forms=list(BODY_FORMS),
    )


def _entity_of(site: Site, asked: Form) -> Entity:
    """The entity of a request. FormError, BrokerError (not-found)."""
    path = asked.text("path")
    if not path:
        raise FormError("The address has no entity (path).")
    entity = site.entity(path)
    if not entity.requires_session:
        raise FormError(NO_SESSIONS.format(entity.path), status=404)
    return entity


async def _read_state(site: Site, entity: Entity, session_id: str) -> StateView:
    state = site.overview.session_state(entity, session_id)
    return await site.aside.run(partial(_state_view, session_id, state), len(state or b""))


def _state_view(session_id: str, state: bytes | None) -> StateView:
    if state is None:
        return StateView(session_id, None, "", "text")
    data = data_json(state)
    body, text = body_of(data), data["text"]
    # A text area turns each line end into a line feed, so that a state with another one is given as bytes.
    if text is not None and body.kind != "binary" and len(text) <= BODY_CHARS_MAX and "\r" not in text:
        return StateView(session_id, body, text, "text")
    if len(state) <= HEX_BYTES_MAX:
        return StateView(session_id, body, state.hex(" "), "hex")
    return StateView(session_id, body, None, "text")


async def download_state(site: Site, request: web.Request) -> web.Response:
    """The whole state of a session, as a file."""
    asked = query_form(request)
    entity, session_id = _entity_of(site, asked), asked.raw("session")
    state = site.overview.session_state(entity, session_id)
    if state is None:
        raise FormError(f"The session {quoted(session_id)} has no state now.", "session", status=404)
    kind = await site.aside.run(lambda: body_of(data_json(state)).kind, len(state))
    ending = {"JSON": "json", "XML": "xml", "text": "txt"}.get(kind, "bin")
    headers = {"Content-Disposition": f'attachment; filename="session-state.{ending}"'}
    return web.Response(body=state, content_type="application/octet-stream", headers=headers)


async def set_state(site: Site, request: web.Request) -> web.Response:
    """Set or clear the state of a session that no client holds."""
    form = await read_form(request)
    entity, session_id = _entity_of(site, form), form.raw("session")
    if not session_id:
        raise FormError("The form has no session.", "session")
    try:
        state = None if form.choice("do", "State", ("set", "clear")) == "clear" else _state_in(form)
        await site.held.set_state(entity, session_id, state)
    except REFUSALS as error:
        return await show(site, request, form.failed("state", error), form)
    done = f"was set: {size(len(state))}" if state else "was cleared"
    where = address("sessions", path=entity.path, session=session_id)
    return site.redirect(where, Flash(f"The state of session {quoted(session_id)} {done}."))


def _state_in(form: Form) -> bytes:
    """The state of a form. FormError."""
    read, allowed = BODY_FORMS[form.choice("state_form", "State as", list(BODY_FORMS))]
    try:
        return read(form.raw("state"))
    except (ValueError, binascii.Error):
        raise FormError(f"State: {quoted(form.text('state'))} is not {allowed}.", "state") from None


async def release(site: Site, request: web.Request) -> web.Response:
    """End the lock of a session."""
    form = await read_form(request)
    entity, session_id = site.entity(form.text("path")), form.raw("session")
    site.broker.sessions.release(entity.path, session_id)
    where = address("sessions", path=entity.path)
    return site.redirect(where, Flash(f"The lock of session '{session_id}' was ended; its receiver lost it."))
