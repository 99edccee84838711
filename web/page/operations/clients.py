"""Who is connected: connections with their links, and what can be cut; and who holds which message session."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ..flashes import Flash
from ..forms import Failed, FormError, query_form, read_form
from ..site import Site, address
from ..views.overview import row_of

NUMBER_MAX: Final = (1 << 63) - 1
SESSIONS_MAX: Final = 500


async def show(site: Site, request: web.Request) -> web.Response:
    """The connections."""
    query_form(request)
    return site.render(
        request, "clients.html", live_path=address("clients"), connections=list(site.services.connections())
    )


async def drop(site: Site, request: web.Request) -> web.Response:
    """Cut one connection."""
    form = await read_form(request)
    number = form.number("number", "Connection", 1, NUMBER_MAX)
    if not site.services.faults.drop_connection(number):
        raise FormError(f"There is no connection {number}; it may have ended.", status=404)
    return site.redirect(address("clients"), Flash(f"Connection {number} was dropped; SDKs connect again."))


async def show_sessions(site: Site, request: web.Request, failed: Failed | None = None) -> web.Response:
    """The message sessions of an entity."""
    entity = site.entity_of(request)
    if not entity.requires_session:
        raise FormError(f"'{entity.path}' does not require message sessions.", status=404)
    sessions = await site.overview.sessions(entity)
    return site.render(
        request,
        "sessions.html",
        failed=failed,
        live_path=address("sessions", path=entity.path),
        row=row_of(site, entity),
        sessions=sessions[:SESSIONS_MAX],
        total=len(sessions),
    )


async def release(site: Site, request: web.Request) -> web.Response:
    """End the lock of a session."""
    form = await read_form(request)
    entity, session_id = site.entity(form.text("path")), form.raw("session")
    site.broker.release_session(entity.path, session_id)
    where = address("sessions", path=entity.path)
    return site.redirect(where, Flash(f"The lock of session '{session_id}' was ended; its receiver lost it."))
