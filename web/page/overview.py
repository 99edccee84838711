"""The list of entities, with counts, rates and the state of their partitions.

Knows which entities are on a page. Does not know how they look.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ...broker.admin.overview import EntityReport, PartitionReport
from ...broker.api import Entity
from ...broker.model.descriptions import SubscriptionDescription, TopicDescription, entity_key
from ...telemetry.sampler import Rates
from .connection_strings import connection_string
from .forms import query_form
from .rendering import Bar, bars
from .site import Site

ROWS_MAX: Final = 50
STRIP_HEIGHT: Final = 18
ENTITIES_MAX: Final = 1_000_000
COUNTED_MAX: Final = 300
"""With more entities, totals are shown only when the figures are needed for the order: reading them takes time."""


@dataclass(frozen=True, slots=True)
class Row:
    """An entity in the table."""

    report: EntityReport
    name: str
    rates: Rates
    strip: Sequence[Bar]
    partitions: Sequence[PartitionReport]
    subscription_count: int

    @property
    def is_subscription(self) -> bool:
        """Whether it is a subscription, listed below its topic."""
        return self.report.kind == "subscription"

    @property
    def dead_count(self) -> int:
        """Dead-lettered messages, of both dead-letter queues."""
        return _dead_count(self.report)

    @property
    def later_count(self) -> int:
        """Scheduled and deferred messages."""
        return _later_count(self.report)


class Totals:
    """Sums over entities."""

    def __init__(self, reports: Sequence[EntityReport]) -> None:
        stored = [each for each in reports if each.kind != "topic"]
        self.active = sum(each.messages["active"] for each in stored)
        self.locked = sum(each.locked_count for each in stored)
        self.later = sum(map(_later_count, reports))
        self.dead = sum(map(_dead_count, stored))
        self.size_bytes = sum(each.size_bytes for each in reports)
        self.is_limited = any(each.is_limited for each in reports)
        """Whether an unreachable partition is missing in the sums."""


def _dead_count(report: EntityReport) -> int:
    return report.messages["dead-letter"] + report.messages["transfer-dead-letter"]


def _later_count(report: EntityReport) -> int:
    return report.messages["scheduled"] + report.messages["deferred"]


SORTS: Final[Mapping[str, tuple[str, Callable[[EntityReport], int]]]] = {
    "active": ("Active", lambda report: 0 if report.kind == "topic" else report.messages["active"]),
    "locked": ("Locked", lambda report: report.locked_count),
    "later": ("Scheduled + deferred", _later_count),
    "dead": ("Dead-lettered", _dead_count),
    "size": ("Size", lambda report: report.size_bytes),
    "links": ("Links", lambda report: report.link_count),
}
"""Columns to sort by, the largest figure first: name in the address, label, figure."""

CHIPS: Final[Mapping[str, tuple[str, Callable[[EntityReport], bool]]]] = {
    "messages": ("has messages", lambda report: report.kind != "topic" and report.messages["active"] > 0),
    "dead": ("has dead letters", lambda report: report.kind != "topic" and _dead_count(report) > 0),
    "disabled": ("disabled", lambda report: report.status != "Active"),
    "out": ("has an outage", lambda report: report.is_limited),
    "used": ("has links", lambda report: report.link_count > 0),
}
"""Kinds of entities to show alone: name in the address, label, whether an entity is of the kind."""


async def show(site: Site, request: web.Request) -> web.Response:
    query = query_form(request)
    sought = query.text("find")
    sort = query.choice("sort", "Sort", list(SORTS)) if query.text("sort") else ""
    chip = query.choice("only", "Only", list(CHIPS)) if query.text("only") else ""
    first = query.number("first", "first", 0, ENTITIES_MAX, default=0)
    found = [each for each in in_order(site) if sought.lower() in each.path.lower()]
    is_folded = query.checked("folded") and not chip
    if is_folded:
        found = [each for each in found if not isinstance(each.description, SubscriptionDescription)]
    totals: Totals | None = None
    if sort or chip or len(found) <= COUNTED_MAX:
        reports = {each.path: site.overview.report(each) for each in found}
        if chip:
            found = [each for each in found if CHIPS[chip][1](reports[each.path])]
        if sort:  # stable: entities with equal figures stay in the order of their names
            found.sort(key=lambda each: SORTS[sort][1](reports[each.path]), reverse=True)
        totals = Totals([reports[each.path] for each in found])
    rows = [row_of(site, each) for each in found[first : first + ROWS_MAX]]
    kept = {"find": sought, "sort": sort, "only": chip, "folded": "yes" if is_folded else ""}
    return site.render(
        request,
        "overview.html",
        live_path=str(request.rel_url),
        rows=rows,
        sought=sought,
        kept=kept,
        sorts=SORTS,
        chips=CHIPS,
        is_flat=bool(sort or chip),
        totals=totals,
        first=first,
        total=len(found),
        rows_max=ROWS_MAX,
        connection_string=connection_string(site.services, request),
        is_empty=next(site.broker.namespace.entities(), None) is None,
    )


def in_order(site: Site) -> Iterator[Entity]:
    """All entities by name, subscriptions behind their topics."""
    tops = [
        each for each in site.broker.namespace.entities() if not isinstance(each.description, SubscriptionDescription)
    ]
    for top in sorted(tops, key=lambda each: entity_key(each.path)):
        yield top
        if isinstance(top.description, TopicDescription):
            yield from sorted(
                site.broker.namespace.subscriptions_of(top.path).entities(), key=lambda each: entity_key(each.path)
            )


def row_of(site: Site, entity: Entity) -> Row:
    partitions = site.overview.partitions(entity)
    description = entity.description
    is_topic = isinstance(description, TopicDescription)
    return Row(
        site.overview.report(entity),
        description.name,
        site.services.sampler.rates(entity.path),
        bars(partitions, STRIP_HEIGHT)[0],
        partitions,
        len(site.broker.namespace.subscriptions_of(entity.path).entities()) if is_topic else 0,
    )
