"""Creating a queue, topic or subscription with the usual properties.

Knows the fields of the form. Does not know what is allowed; `Administration` does.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from aiohttp import web

from ...broker.model.catalog import Description
from ...broker.model.descriptions import (
    EntityKind,
    QueueDescription,
    SubscriptionDescription,
    TopicDescription,
    with_fields,
)
from ...broker.model.profiles import Partitioning, defaults_of
from .entity_fields import PARTITIONING, changed, field_sets, field_values
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, FormError, query_form, read_form
from .site import Site, address

TOPICS_MAX: Final = 500


async def show(site: Site, request: web.Request, failed: Failed | None = None, kind: str = "") -> web.Response:
    query = query_form(request)
    if not kind:
        kind = query.choice("kind", "Kind", list(EntityKind)) if query.text("kind") else "queue"
    topics = sorted(
        each.path for each in site.broker.namespace.entities() if isinstance(each.description, TopicDescription)
    )
    limits, blank = site.broker.limits, _blank(site, kind)
    return site.render(
        request,
        "create.html",
        failed=failed,
        live_path=address("create"),
        kind=kind,
        kinds_of_entity=list(EntityKind),
        topics=topics[:TOPICS_MAX],
        topic=query.text("topic"),
        limits=limits,
        field_sets=field_sets(type(blank), limits),
        values=field_values(blank),
        partitioning_name=PARTITIONING,
        partitioning=limits.partitioning,
        is_partitioned=limits.partitioning is not Partitioning.NEVER,
        is_fixed=limits.partitioning is not Partitioning.PER_ENTITY,
    )


async def create(site: Site, request: web.Request) -> web.Response:
    """Create the entity; the next page is its own."""
    form = await read_form(request)
    kind = form.choice("kind", "Kind", list(EntityKind))
    try:
        description = _description(site, form, kind)
        entity = site.broker.administration.create(description, targets_exist=True)
    except REFUSALS as error:
        return await show(site, request, form.failed("create", error), kind)
    return site.redirect(address("entity", path=entity.path), Flash(f"The {kind} '{entity.path}' was created."))


def _description(site: Site, form: Form, kind: str) -> Description:
    name = form.text("name")
    if not name:
        raise FormError("Name: must not be empty.", "name")
    blank = _blank(site, kind, name)
    if isinstance(blank, SubscriptionDescription):
        if not form.text("topic"):
            raise FormError("Topic: choose one.", "topic")
        return changed(replace(blank, topic_name=form.text("topic")), form, is_new=True)
    found = changed(blank, form, is_new=True)
    return with_fields(found, {PARTITIONING: True}) if site.broker.limits.partitioning is Partitioning.ALWAYS else found


def _blank(site: Site, kind: str, name: str = "") -> Description:
    """An entity with the profile's defaults."""
    limits = site.broker.limits
    match kind:
        case "subscription":
            return SubscriptionDescription("", name, **defaults_of(SubscriptionDescription, limits))
        case "topic":
            return TopicDescription(name, **defaults_of(TopicDescription, limits))
        case _:
            return QueueDescription(name, **defaults_of(QueueDescription, limits))
