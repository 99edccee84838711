"""One entity: its partitions as a chart, its properties; delete, purge, simulate outages.

Does not know what an outage or a purge does; the broker does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from ...broker.admin import figures
from ...broker.amounts import Period
from ...broker.api import Entity, Outage, OutageKind
from ...broker.errors import BrokerError
from ...broker.model.descriptions import SubscriptionDescription, TopicDescription
from . import rendering
from .entity_fields import PARTITIONING, SIZE, facts
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, read_form
from .overview import row_of
from .rendering import bars
from .site import HOME, Site, address

PICTURE_HEIGHT: Final = 120
SUBSCRIPTIONS_MAX: Final = 100
DELAY_MS_MAX: Final = 3_600_000
DELAY_MS: Final = 1_000
WORKS: Final = "available"


async def show(site: Site, request: web.Request, failed: Failed | None = None, path: str = "") -> web.Response:
    entity = site.entity(path) if path else site.entity_of(request)
    picture, scale_max = bars(site.overview.partitions(entity), PICTURE_HEIGHT)
    subscriptions: list[Entity] = []
    if isinstance(entity.description, TopicDescription):
        subscriptions = sorted(
            site.broker.namespace.subscriptions_of(entity.path).entities(), key=lambda each: each.path.lower()
        )
    return site.render(
        request,
        "entity.html",
        failed=failed,
        live_path=address("entity", path=entity.path),
        row=row_of(site, entity),
        entity=entity,
        picture=picture,
        scale_max=scale_max,
        height=PICTURE_HEIGHT,
        facts=facts_of(site, entity),
        away=[each.report.partition_id for each in picture if each.report.messages is None],
        oldest_at=figures.oldest_at(entity),
        subscriptions=[row_of(site, each) for each in subscriptions[:SUBSCRIPTIONS_MAX]],
        subscription_count=len(subscriptions),
        outage_kinds=list(OutageKind),
    )


def facts_of(site: Site, entity: Entity) -> Sequence[tuple[str, str]]:
    """The properties of an entity as readable text, and what else is known of it; rates and counts stand elsewhere."""
    description = entity.description
    said = {name: fact for name, fact in facts(description).items() if name not in (PARTITIONING, SIZE)}
    found = [
        ("Kind", description.kind.value),
        ("Partitions", str(len(entity.partitions)) if entity.partitioned else "not partitioned"),
        *said.values(),
    ]
    if isinstance(description, SubscriptionDescription):
        found.append(("Rules", str(len(description.rules))))
    else:
        found.append(("Max size", rendering.size(site.overview.report(entity).size_bytes_max)))
    accessed_at = site.broker.administration.accessed_at(entity)
    return [*found, ("Last used", rendering.instant(accessed_at) or "never")]


async def delete(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        site.broker.administration.delete(entity.path)
    except BrokerError as error:
        return await show(site, request, form.failed("delete", error), entity.path)
    where = address(HOME)
    if isinstance(entity.description, SubscriptionDescription):
        where = address("entity", path=entity.description.topic_name)
    return site.redirect(where, Flash(f"'{entity.path}' was deleted."))


async def purge(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        count = site.broker.maintenance.purge(entity.path)
    except BrokerError as error:
        return await show(site, request, form.failed("purge", error), entity.path)
    return site.redirect(
        address("entity", path=entity.path), Flash(f"'{entity.path}' purged; {rendering.removed(count)}.")
    )


async def outage(site: Site, request: web.Request) -> web.Response:
    """Begin or end an outage; redirects to the page that asked for it."""
    form = await read_form(request)
    path = form.text("path")
    try:
        text = set_outage(site, form)
    except REFUSALS as error:
        failed = form.failed("outage", error)
        if path:
            return await show(site, request, failed, path)
        return site.refusal(request, failed.status, failed.error)
    where = address("entity", path=path) if path else address("namespace")
    return site.redirect(where, Flash(text))


def set_outage(site: Site, form: Form) -> str:
    """Begin or end the outages of the form; returns the text for the user. FormError."""
    store, kind = form.text("store"), form.text("kind")
    count = len(figures.stores(site.broker.namespace))
    chosen = list(range(count)) if store == "all" else [form.number("store", "Store", 0, count - 1)]
    which = "All stores" if store == "all" else f"Store {chosen[0]}"
    works = "work" if store == "all" else "works"
    if kind == WORKS:
        for index in chosen:
            site.broker.outages.end(index)
        return f"{which} {works} again."
    kind = form.choice("kind", "Outage", list(OutageKind))
    delay_ms = form.finite_span("delay", "Delay", 0, DELAY_MS_MAX, DELAY_MS) if kind == OutageKind.SLOW else 0
    duration_ms = form.finite_span("for", "Duration", 1, Period.MOST) if form.text("for") else None
    for index in chosen:
        site.broker.outages.begin(index, Outage(OutageKind(kind), delay_ms), duration_ms)
    until = f" for {rendering.span(duration_ms)}" if duration_ms is not None else ""
    return f"{which}: {kind}{until}."
