"""Roles of identities: who has which, assign one, take one away.

Does not know what a role opens, or when roles count.
"""

from __future__ import annotations

from aiohttp import web

from ...broker.roles import Role, RoleAssignment
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, query_form, read_form
from .site import Site, address


async def show(site: Site, request: web.Request, failed: Failed | None = None) -> web.Response:
    query_form(request)
    services = site.services
    return site.render(
        request,
        "roles.html",
        failed=failed,
        live_path=address("roles"),
        assignments=services.roles.list(),
        roles=[each.value for each in Role],
        count=services.access.roles is not None,
    )


async def assign(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    try:
        asked = _assignment(form)
        await site.services.roles.assign(asked)
    except REFUSALS as error:
        return await show(site, request, form.failed("role", error))
    return site.redirect(address("roles"), Flash(f"{asked.principal} has the role {asked.role}."))


async def remove(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    try:
        asked = _assignment(form)
        await site.services.roles.remove(asked)
    except REFUSALS as error:
        return await show(site, request, form.failed("role", error))
    return site.redirect(address("roles"), Flash(f"{asked.principal} no longer has the role {asked.role}."))


def _assignment(form: Form) -> RoleAssignment:
    return RoleAssignment.parse(form.text("identity"), form.text("role"), form.text("entity"))
