"""The keys of an entity's messages over its partitions: which key is hot, and which partition it fills.

Knows how a count becomes a shade. Does not know how messages are counted (`web.messages.survey`) and how a key chooses
its partition.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from aiohttp import web

from ...broker.api import Entity
from ..control.entities import SUB_QUEUES
from ..messages.search import Query
from ..messages.survey import Survey
from .forms import query_form
from .messages import PEEK_WAIT_MS, SUB_QUEUE_NAMES, browsed_entity
from .overview import row_of
from .site import Site, address

KEYS_MAX: Final = 40
SHADES: Final = 4


@dataclass(frozen=True, slots=True)
class Row:
    """A key (None: messages without one), how many messages have it, and the partition that it chooses."""

    key: str | None
    count: int
    partition_id: int | None
    share: float


async def show(site: Site, request: web.Request) -> web.Response:
    asked = query_form(request)
    entity = browsed_entity(site, asked.text("path"))
    name = asked.choice("queue", "Queue", list(SUB_QUEUES)) if asked.text("queue") else "active"
    found: Survey | None = None
    try:
        async with site.services.clock.time_limit(PEEK_WAIT_MS):
            query = Query(entity, SUB_QUEUES[name], 1)
            found = await site.surveys.of(site.overview, query, None, "key")
    except TimeoutError:
        pass  # a store is too slow: the page says so
    row = row_of(site, entity)
    return site.render(
        request,
        "keys.html",
        live_path=address("keys", path=entity.path, queue=name),
        row=row,
        sub_queue=name,
        sub_queues=SUB_QUEUE_NAMES,
        survey=found,
        keys=[] if found is None else rows_of(entity, found),
        partitions=row.partitions,
        shade=shade_of,
        away=[each.partition_id for each in row.partitions if each.messages is None],
    )


def rows_of(entity: Entity, found: Survey) -> Sequence[Row]:
    """The keys with most messages."""
    return [
        Row(value.text, count, _partition_of(entity, value.text), count / found.count)
        for value, count in found.values.most_common(KEYS_MAX)
    ]


def _partition_of(entity: Entity, key: str | None) -> int | None:
    if key is None or not entity.partitioned:
        return None
    if entity.requires_session:
        return entity.partition_index_of_session(key)
    return entity.partition_index_of_key(key)


def shade_of(share: float) -> int:
    """A shade from 0 to `SHADES` for a part of all messages: a quarter has the darkest."""
    return 0 if share <= 0 else min(SHADES, 1 + int(share * 4 * (SHADES - 1)))
