"""What happens now in the whole namespace: the last events of messages and the last refusals, newest first.

Knows which of them are shown and how they are searched. Does not know how events are kept and worded (`story/`), and
why clients are refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from ...broker.admin.refusal_log import Refusal
from ...broker.api import EventKind
from ...broker.model.descriptions import TopicDescription
from ...story.ring import Entry
from ...story.search import Found
from ...story.tracing import message_id_of, trace_event
from ..control.entities import SUB_QUEUES
from ..messages.filter import TEXT_CHARS_MAX, Criteria, filter_of
from ..messages.jobs import HOMES_OF
from ..messages.search import Query
from .forms import query_form
from .messages import SUB_QUEUE_NAMES
from .overview import in_order
from .site import Site, address

ROWS_MAX: Final = 100
LOOKED_AT_MAX: Final = 2_000
"""Events that a search looks at, the newest first: 0.1 s of a thread beside the event loop."""
SOUGHT_CHARS_MAX: Final = TEXT_CHARS_MAX
SEARCH_US_MAX: Final = 2_000_000
"""How long a search looks into entities; one that it has begun it ends."""
BODY_CHARS_MAX: Final = 120
EVERYTHING, ARRIVALS, TROUBLE, REFUSALS = "everything", "arrivals", "trouble", "refusals"
KINDS: Final[Mapping[str, str]] = {
    EVERYTHING: "everything",
    ARRIVALS: "sent messages",
    TROUBLE: "trouble",
    REFUSALS: "refusals",
}
"""What can be shown alone: name in the address, label."""
_DATA: Final = b"\x00\x53\x75"
_SMALL: Final = 0xA0
_ARRIVING: Final = frozenset({EventKind.SENT, EventKind.FORWARDED})


@dataclass(frozen=True, slots=True)
class Row:
    """Something that happened at an instant (Unix ms); `number` and `message_id` are those of a message."""

    at: int
    kind: str
    path: str
    text: str
    is_bad: bool
    number: int | None = None
    message_id: str | None = None
    preview: str = ""
    remedy: str = ""
    by: str = ""

    def has(self, sought: str) -> bool:
        """Whether a text in lower case is in it."""
        texts = (self.path, self.text, self.message_id or "", self.preview, self.by, self.kind, str(self.number or ""))
        return any(sought in each.lower() for each in texts)


@dataclass(frozen=True, slots=True)
class Place:
    """Where messages with a text are: how many in a queue of an entity, and the address of a search for them."""

    path: str
    queue: str
    count: int
    is_cut: bool
    where: str


async def places_of(site: Site, sought: str) -> tuple[list[Place], int]:
    """Where messages with a text are in the whole namespace, and how many entities there was no time for."""
    found: list[Place] = []
    entities = [each for each in in_order(site) if not isinstance(each.description, TopicDescription)]
    criteria, clock, left = Criteria(text=sought), site.services.clock, len(entities)
    filter_, ends_us = filter_of(criteria), clock.stopwatch_us() + SEARCH_US_MAX
    for entity in entities:
        if clock.stopwatch_us() > ends_us:
            break
        left -= 1
        counts = site.overview.report(entity).messages
        for name, sub_queue in SUB_QUEUES.items():
            if not any(counts[home] for home in HOMES_OF[sub_queue]):
                continue
            survey = await site.surveys.of(site.overview, Query(entity, sub_queue, 1, filter=filter_), criteria)
            if survey.count:
                where = address("messages", path=entity.path, queue=name, text=sought)
                found.append(Place(entity.path, SUB_QUEUE_NAMES[name], survey.count, survey.is_cut, where))
    return found, left


async def show(site: Site, request: web.Request) -> web.Response:
    asked = query_form(request)
    kind = asked.choice("only", "Only", list(KINDS)) if asked.text("only") else EVERYTHING
    sought = asked.text("find")[:SOUGHT_CHARS_MAX]
    story = site.services.story
    refused = [_of_refusal(each) for each in site.broker.refusals.recent] if kind != ARRIVALS else []
    happened: list[Row] = []
    if kind != REFUSALS:
        happened = await site.aside.run(partial(_newest_rows, story.entries()[-LOOKED_AT_MAX:], kind, sought.lower()))
    refused = [each for each in refused if each.has(sought.lower())]
    rows = sorted([*happened, *refused], key=lambda each: each.at, reverse=True)[:ROWS_MAX]
    is_stored = bool(sought) and asked.checked("stored")
    places, left = await places_of(site, sought) if is_stored else ([], 0)
    return site.render(
        request,
        "now.html",
        live_path=address("now", only=asked.text("only"), find=sought, stored="yes" if is_stored else ""),
        is_stored=is_stored,
        places=places,
        left=left,
        rows=rows,
        kinds=KINDS,
        kind=kind,
        sought=sought,
        story=story,
    )


def _of_refusal(refusal: Refusal) -> Row:
    times = f" ({refusal.count:,} times)" if refusal.count > 1 else ""
    text = f"{refusal.code}: {refusal.reason}{times}"
    return Row(refusal.at, "refused", refusal.entity, text, True, remedy=refusal.remedy, by=refusal.client)


def _newest_rows(entries: Sequence[Entry], kind: str, sought: str) -> list[Row]:
    """The newest events of a kind that have the text."""
    rows: list[Row] = []
    for entry in reversed(entries):
        if kind == ARRIVALS and entry.kind not in _ARRIVING:
            continue
        for position in range(len(entry.numbers) - 1, -1, -1) if entry.numbers else (None,):
            row = _of_event(Found(entry, position))
            if (kind != TROUBLE or row.is_bad) and row.has(sought):
                rows.append(row)
                if len(rows) == ROWS_MAX:
                    return rows
    return rows


def _of_event(found: Found) -> Row:
    event = trace_event(found)
    message = found.message
    return Row(
        found.entry.at,
        found.entry.kind.value,
        found.entry.path,
        event.text,
        event.is_bad,
        found.sequence_number,
        message_id_of(message),
        "" if message is None else preview_of(message.encoded),
        by=str(found.entry.facts.get("by") or ""),
    )


def preview_of(encoded: bytes) -> str:
    """The beginning of a body that is one data section of text; "" for another one."""
    at = encoded.find(_DATA)
    if at < 0:
        return ""
    size = encoded[at + 4] if encoded[at + 3] == _SMALL else int.from_bytes(encoded[at + 4 : at + 8], "big")
    start = at + (5 if encoded[at + 3] == _SMALL else 8)
    text = encoded[start : start + min(size, 4 * BODY_CHARS_MAX)].decode(errors="replace")
    if not all(each.isprintable() or each in "\r\n\t" for each in text):
        return ""
    text = " ".join(text.split())
    return text if len(text) <= BODY_CHARS_MAX else f"{text[:BODY_CHARS_MAX]}…"
