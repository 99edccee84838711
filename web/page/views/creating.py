"""Creating a queue, topic or subscription with the usual properties.

Knows the fields of the form. Does not know what is allowed; `Administration` does.
"""

from __future__ import annotations

from typing import Any, Final

from aiohttp import web

from ....broker.model.catalog import Description
from ....broker.model.descriptions import EntityKind, QueueDescription, SubscriptionDescription, TopicDescription
from ....broker.model.profiles import Partitioning
from ..flashes import Flash
from ..forms import REFUSALS, Failed, Form, FormError, query_form, read_form
from ..site import Site, address

TOPICS_MAX: Final = 500
COUNT_MAX: Final = (1 << 31) - 1


async def show(site: Site, request: web.Request, failed: Failed | None = None, kind: str = "") -> web.Response:
    """The form for one kind of entity."""
    query = query_form(request)
    if not kind:
        kind = query.choice("kind", "Kind", list(EntityKind)) if query.text("kind") else "queue"
    topics = sorted(each.path for each in site.broker.entities() if isinstance(each.description, TopicDescription))
    limits = site.broker.limits
    return site.render(
        request,
        "create.html",
        failed=failed,
        kind=kind,
        kinds_of_entity=list(EntityKind),
        topics=topics[:TOPICS_MAX],
        topic=query.text("topic"),
        limits=limits,
        defaults=limits.defaults,
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
    if kind == "subscription":
        topic = form.text("topic")
        if not topic:
            raise FormError("Topic: choose one.", "topic")
        return SubscriptionDescription(
            topic,
            name,
            **_common(site, form),
            **_receiving(site, form),
            dead_letter_on_filter_exceptions=form.checked("dead_letter_on_filter_exceptions"),
        )
    if kind == "topic":
        return TopicDescription(name, **_common(site, form), **_storing(site, form))
    return QueueDescription(name, **_common(site, form), **_storing(site, form), **_receiving(site, form))


def _common(site: Site, form: Form) -> dict[str, Any]:
    return {
        "default_ttl_ms": form.span("default_ttl", "Default time to live", site.broker.limits.defaults.ttl_ms),
        "auto_delete_on_idle_ms": form.span("auto_delete_on_idle", "Delete when idle for"),
        "user_metadata": form.optional("user_metadata"),
    }


def _storing(site: Site, form: Form) -> dict[str, Any]:
    limits = site.broker.limits
    always = limits.partitioning is Partitioning.ALWAYS
    return {
        "enable_partitioning": always or form.checked("enable_partitioning"),
        "max_size_mb": form.number("max_size_mb", "Max size (MB)", 1, COUNT_MAX, limits.defaults.max_size_mb),
        "requires_duplicate_detection": form.checked("requires_duplicate_detection"),
        "duplicate_window_ms": _definite(
            form, "duplicate_window", "Duplicate window", limits.defaults.duplicate_window_ms
        ),
    }


def _receiving(site: Site, form: Form) -> dict[str, Any]:
    defaults = site.broker.limits.defaults
    return {
        "lock_duration_ms": _definite(form, "lock_duration", "Lock duration", defaults.lock_duration_ms),
        "max_delivery_count": form.number(
            "max_delivery_count", "Max delivery count", 1, COUNT_MAX, defaults.max_delivery_count
        ),
        "requires_session": form.checked("requires_session"),
        "dead_letter_on_expiration": form.checked("dead_letter_on_expiration"),
        "forward_to": form.optional("forward_to"),
        "forward_dead_letters_to": form.optional("forward_dead_letters_to"),
    }


def _definite(form: Form, name: str, label: str, default_ms: int) -> int:
    ms = form.span(name, label, default_ms)
    if ms is None:
        raise FormError(f"{label}: '{form.text(name)}' is not a finite duration.", name)
    return ms
