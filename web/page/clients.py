"""Who is connected: connections with their links, and what can be cut."""

from __future__ import annotations

from typing import Final

from aiohttp import web

from .flashes import Flash
from .forms import FormError, query_form, read_form
from .site import Site, address

NUMBER_MAX: Final = (1 << 63) - 1


async def show(site: Site, request: web.Request) -> web.Response:
    query_form(request)
    return site.render(
        request,
        "clients.html",
        live_path=address("clients"),
        connections=list(site.services.connections()),
        held=site.services.ledger.survey(),
    )


async def drop(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    number = form.number("number", "Connection", 1, NUMBER_MAX)
    if not site.services.faults.drop_connection(number):
        raise FormError(f"There is no connection {number}; it may have ended.", status=404)
    return site.redirect(address("clients"), Flash(f"Connection {number} was dropped; SDKs connect again."))
