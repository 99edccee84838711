"""The namespace as a whole: how to connect, profile and limits, the clock, messaging stores, purge and reset.

Does not know what the clock moves or what a reset does.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from aiohttp import web

from ...broker.access import Access
from ...broker.admin import figures
from ...broker.api import OutageKind
from ...broker.model.profiles import Limits, Partitioning, Range
from . import rendering
from .connection_strings import connection_string
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, query_form, read_form
from .site import Site, address

ADVANCE_MS_MAX: Final = 10 * 366 * 86_400_000
NOT_CHECKED: Final = "none (--auth none): full access for anyone who can connect"
STEPS: Final = ("10s", "1m", "5m", "1h", "1d", "14d")
PARTITIONING: Final = {
    Partitioning.PER_ENTITY: "chosen for each entity",
    Partitioning.ALWAYS: "always (partitioned namespace)",
    Partitioning.NEVER: "never",
}


async def show(site: Site, request: web.Request, failed: Failed | None = None) -> web.Response:
    services = site.services
    query_form(request)
    ports = ", ".join(f"{port} ({name})" for name, port in services.ports().items())
    about = [
        ("Namespace", site.broker.name),
        ("Profile", site.broker.limits.profile.value),
        *services.about.items(),
        ("Authentication", _authentication(services.access)),
        ("Ports", f"{ports}; each accepts AMQP and HTTP"),
        ("Development CA", services.ca_file or "none"),
    ]
    return site.render(
        request,
        "namespace.html",
        failed=failed,
        live_path=address("namespace"),
        about=about,
        limits=limit_rows(site.broker.limits),
        connection_string=connection_string(services, request),
        steps=STEPS,
        stores=figures.stores(site.broker.namespace),
        outage_kinds=list(OutageKind),
        entity_count=sum(1 for _ in site.broker.namespace.entities()),
        topology=site.broker.namespace.topology,
    )


def _authentication(access: Access) -> str:
    if not access.verify:
        return NOT_CHECKED
    return "keys and tokens (--auth sas)" if access.roles is None else "keys, tokens and roles (--auth rbac)"


def limit_rows(limits: Limits) -> Sequence[tuple[str, str]]:
    """The most important limits."""
    each = " in each partition" if limits.size_is_per_partition else ""
    return [
        ("Partitions", f"{limits.partition_count}, {PARTITIONING[limits.partitioning]}"),
        ("Message size", rendering.size(limits.message_bytes_max)),
        ("Batch size", rendering.size(limits.batch_bytes_max)),
        ("Entity size", f"{_numbers(limits.max_size_mb)} MB{each}"),
        ("Lock duration", _spans(limits.lock_duration_ms)),
        ("Time to live", _spans(limits.ttl_ms)),
        ("Duplicate window", _spans(limits.duplicate_window_ms)),
        ("Max delivery count", _numbers(limits.max_delivery_count)),
        ("Queues and topics", _at_most(limits.entities_max)),
        ("Partitioned entities", _at_most(limits.partitioned_entities_max)),
        ("Subscriptions per topic", _at_most(limits.subscriptions_per_topic_max)),
        ("Messages per transaction", _at_most(limits.messages_per_transaction_max)),
    ]


def _at_most(count: int | None) -> str:
    return "any number" if count is None else f"at most {count:,}"


def _numbers(allowed: Range) -> str:
    return f"{allowed.start:,} or more" if allowed.stop is None else f"{allowed.start:,} to {allowed.stop:,}"


def _spans(allowed: Range) -> str:
    start = rendering.span(allowed.start)
    return f"{start} or more" if allowed.stop is None else f"{start} to {rendering.span(allowed.stop)}"


async def move_clock(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    clock = site.services.clock
    try:
        match form.choice("do", "Clock", ("advance", "freeze", "go-on")):
            case "advance":
                ms = form.finite_span("by", "Advance by", 0, ADVANCE_MS_MAX)
                clock.advance_instants(ms)
                text = f"The clock was advanced by {rendering.span(ms)}."
            case "freeze":
                clock.freeze()
                text = "The clock is frozen."
            case _:
                clock.thaw()
                text = "The clock is running again."
    except REFUSALS as error:
        return await show(site, request, form.failed("clock", error))
    return site.redirect(address("namespace"), Flash(text))


async def reset(site: Site, request: web.Request) -> web.Response:
    """Purge all entities, or reset to the start-up configuration."""
    form = await read_form(request)
    try:
        text = _reset(site, form)
    except REFUSALS as error:
        return await show(site, request, form.failed("reset", error))
    return site.redirect(address("namespace"), Flash(text))


def _reset(site: Site, form: Form) -> str:
    if form.choice("to", "Reset", ("empty", "config")) == "empty":
        return f"All entities purged; {rendering.removed(site.broker.maintenance.purge(None))}."
    site.broker.maintenance.reset()
    return "The namespace was reset to its start-up configuration; all messages were removed."
