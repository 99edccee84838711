"""Kept templates on the page: a message of the form is kept under a name, and forgotten.

Does not know where templates are kept (`web.messages.templates`); `sending` fills the form from one.
"""

from __future__ import annotations

from dataclasses import replace

from aiohttp import web

from ...broker.admin.overview import Seen
from ...broker.names import TemplateName
from .flashes import Flash
from .forms import REFUSALS, read_form
from .message_form import encoded, message_in
from .resending import message_json_of
from .sending import show
from .site import Site, address


async def keep(site: Site, request: web.Request) -> web.Response:
    """Keep the message of the form; when it is scheduled for is no part of a template."""
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        name = TemplateName(form.text("template_name"))
        message = replace(message_in(form, site.services.clock.now_ms()), scheduled_enqueue_at=None)
        await site.templates.put(name, message_json_of(Seen(0, 0, encoded(message), None)))
    except REFUSALS as error:
        return await show(site, request, form.failed("send", error), entity.path)
    where = address("send", path=entity.path, template=name)
    return site.redirect(where, Flash(f"The template '{name}' was kept."))


async def forget(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    entity, name = site.entity(form.text("path")), TemplateName(form.text("template_name"))
    await site.templates.delete(name)
    return site.redirect(address("send", path=entity.path), Flash(f"The template '{name}' was deleted."))
