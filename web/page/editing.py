"""Changing the properties of an entity, its status included.

Knows which properties are fixed at creation, to name them. Does not know what is allowed; `Administration` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from ...broker.api import Entity
from ...broker.model.descriptions import EntityStatus, QueueDescription, SubscriptionDescription, TopicDescription
from .entity_fields import changed, field_values
from .flashes import Flash
from .forms import REFUSALS, Failed, read_form
from .overview import row_of
from .site import Site, address


async def show(site: Site, request: web.Request, failed: Failed | None = None, path: str = "") -> web.Response:
    """The form with the entity's properties."""
    entity = site.entity(path) if path else site.entity_of(request)
    return site.render(
        request,
        "edit.html",
        failed=failed,
        live_path=address("edit", path=entity.path),
        row=row_of(site, entity),
        kind=entity.description.kind.value,
        values=field_values(entity.description),
        statuses=[each.value for each in EntityStatus],
        limits=site.broker.limits,
        fixed=_fixed(entity),
    )


async def save(site: Site, request: web.Request) -> web.Response:
    """Change the properties; the next page is the entity's."""
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        site.broker.administration.update(changed(entity.description, form))
    except REFUSALS as error:
        return await show(site, request, form.failed("edit", error), entity.path)
    return site.redirect(address("entity", path=entity.path), Flash(f"'{entity.path}' was changed."))


def _fixed(entity: Entity) -> Sequence[str]:
    description = entity.description
    fixed = ["partitioned" if entity.partitioned else "not partitioned"]
    if isinstance(description, QueueDescription | SubscriptionDescription):
        fixed.append("message sessions" if description.requires_session else "no message sessions")
    if isinstance(description, QueueDescription | TopicDescription):
        fixed.append("duplicate detection" if description.requires_duplicate_detection else "no duplicate detection")
    return fixed
