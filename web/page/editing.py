"""Changing the properties of an entity, its status included.

Knows which properties are fixed at creation, to name them. Does not know what is allowed; `Administration` does.
"""

from __future__ import annotations

from collections.abc import Sequence

from aiohttp import web

from ...broker.api import Entity
from ...broker.model.descriptions import EntityStatus
from ...broker.model.properties import PROPERTIES_OF
from .entity_fields import PARTITIONING, changed, facts, field_sets, field_values
from .flashes import Flash
from .forms import REFUSALS, Failed, read_form
from .overview import row_of
from .site import Site, address


async def show(site: Site, request: web.Request, failed: Failed | None = None, path: str = "") -> web.Response:
    entity = site.entity(path) if path else site.entity_of(request)
    return site.render(
        request,
        "edit.html",
        failed=failed,
        live_path=address("edit", path=entity.path),
        row=row_of(site, entity),
        kind=entity.description.kind.value,
        field_sets=field_sets(type(entity.description), site.broker.limits),
        values=field_values(entity.description),
        statuses=[each.value for each in EntityStatus],
        fixed=_fixed_facts(entity),
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


def _fixed_facts(entity: Entity) -> Sequence[str]:
    description = entity.description
    said = facts(description)
    rows = [row for row in PROPERTIES_OF[type(description)] if row.is_fixed and row.field != PARTITIONING]
    return [
        "partitioned" if entity.partitioned else "not partitioned",
        *(f"{row.label.lower()}: {said[row.field][1]}" for row in rows),
    ]
