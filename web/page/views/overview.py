"""The list of entities, with counts, rates and the state of their partitions.

Knows which entities are on a page. Does not know how they look.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ....broker.admin.overview import EntityReport, PartitionReport
from ....broker.api import Entity
from ....broker.model.descriptions import SubscriptionDescription, TopicDescription, entity_key
from ..connection_strings import connection_string
from ..forms import query_form
from ..rates import Rate
from ..rendering import Bar, bars
from ..site import Site

ROWS_MAX: Final = 50
STRIP_HEIGHT: Final = 18
ENTITIES_MAX: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Row:
    """An entity in the table."""

    report: EntityReport
    name: str
    rate: Rate
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
        return self.report.messages["dead-letter"] + self.report.messages["transfer-dead-letter"]

    @property
    def later_count(self) -> int:
        """Scheduled and deferred messages."""
        return self.report.messages["scheduled"] + self.report.messages["deferred"]


async def show(site: Site, request: web.Request) -> web.Response:
    """The page at `/`."""
    query = query_form(request)
    sought = query.text("find")
    first = query.number("first", "first", 0, ENTITIES_MAX, default=0)
    found = [each for each in in_order(site) if sought.lower() in each.path.lower()]
    rows = [row_of(site, each) for each in found[first : first + ROWS_MAX]]
    return site.render(
        request,
        "overview.html",
        rows=rows,
        sought=sought,
        first=first,
        total=len(found),
        rows_max=ROWS_MAX,
        connection_string=connection_string(site.services, request),
        is_empty=next(site.broker.entities(), None) is None,
    )


def in_order(site: Site) -> Iterator[Entity]:
    """All entities by name, subscriptions behind their topics."""
    tops = [each for each in site.broker.entities() if not isinstance(each.description, SubscriptionDescription)]
    for top in sorted(tops, key=lambda each: entity_key(each.path)):
        yield top
        if isinstance(top.description, TopicDescription):
            yield from sorted(site.broker.subscriptions_of(top.path).entities(), key=lambda each: entity_key(each.path))


def row_of(site: Site, entity: Entity) -> Row:
    """The row of an entity."""
    partitions = site.overview.partitions(entity)
    description = entity.description
    is_topic = isinstance(description, TopicDescription)
    return Row(
        site.overview.report(entity),
        description.name,
        site.rates.sample(entity),
        bars(partitions, STRIP_HEIGHT)[0],
        partitions,
        len(site.broker.subscriptions_of(entity.path).entities()) if is_topic else 0,
    )
