"""Browsing the messages of a sub-queue by peeking.

Does not know how messages are peeked (`broker.admin`) and found (`web.messages`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Final
from urllib.parse import quote, urlencode

from aiohttp import web

from ...broker.address import SubQueue
from ...broker.admin.overview import Seen
from ...broker.api import Entity
from ...broker.model.descriptions import TopicDescription
from ..control.endpoints import ROOT as CONTROL
from ..control.entities import NO_MESSAGES, SUB_QUEUES
from ..long_work import Pace
from ..messages.filter import STATES_ASKED, Criteria
from ..messages.jobs import HOMES_OF
from ..messages.search import Found, MessageSearch, Query
from ..messages.survey import GROUPINGS, REASON, Survey, Value
from ..messages.verbs import DONE, Verb
from .forms import Failed, Form, FormError, query_form
from .message_columns import COLUMNS, chosen_columns
from .overview import row_of
from .rendering import MessageView, body_bytes, message_view
from .search_form import read_criteria, read_filter
from .site import Site, address, address_of

MESSAGES_MAX: Final = 25
SKIP_MAX: Final = 10_000
SKIP_FEW: Final = 500
"""Up to here the newest messages are read backwards; to skip more it is quicker to look at all of them once."""
GROUPS_SHOWN: Final = 50
SQL_NAMES: Final[Mapping[str, str]] = {
    "reason": f"user.{REASON}",
    "subject": "sys.Label",
    "type": "sys.ContentType",
}
"""By what messages are grouped: its name in an expression."""
KEPT: Final = frozenset(
    {"path", "queue", "partition", "session", "order", "text", "where", "state", "after", "before", "column"}
    | {"group", "group_property", "properties"}
)
"""What the next page of a search has in common with this one."""
NUMBER_MAX: Final = (1 << 63) - 1
SUB_QUEUE_NAMES: Final[Mapping[str, str]] = {
    "active": "Messages",
    "dead-letter": "Dead letters",
    "transfer-dead-letter": "Transfer dead letters",
}
REFRESH_MS: Final = 500
PEEK_WAIT_MS: Final = 8_000
"""How long a page waits for messages of a slow store; after that it is shown without them."""


async def show(
    site: Site, request: web.Request, failed: Failed | None = None, form: Form | None = None
) -> web.Response:
    asked = form or query_form(request)
    entity = browsed_entity(site, asked.text("path"))
    name = asked.choice("queue", "Queue", list(SUB_QUEUES)) if asked.text("queue") else "active"
    found: Found | None = Found([], None, 0)
    surveyed: Survey | None = None
    query = _query(entity, name, asked)
    try:
        query = replace(query, filter=read_filter(asked))
        surveyed, found = await _find(site, query, asked)
    except FormError as error:  # the filter: it stands beside its form, without messages
        failed = asked.failed("filter", error)
    row = row_of(site, entity)
    job = site.jobs.of(entity.path)
    messages = [] if found is None else found.messages
    where = place(entity, query.sub_queue)
    position = {"skip": query.skip} if query.is_by_time else {"from": query.first}
    return site.render(
        request,
        "messages.html",
        failed=failed,
        live_path=str(request.rel_url) if form is None else address("messages", path=entity.path, queue=name),
        row=row,
        entity=entity,
        sub_queue=name,
        title=SUB_QUEUE_NAMES[name],
        sub_queues=SUB_QUEUE_NAMES,
        total=sum(row.report.messages[home] for home in HOMES_OF[SUB_QUEUES[name]]),
        messages=await _views(site, messages),
        found=found,
        following=_following(asked, query, found),
        lines_at=_lines_at(entity, name, query, asked, failed),
        beginning=with_position(asked, {}) if any(position.values()) else None,
        is_filtered=is_search(query),
        is_live=not query.filter.sieves,
        survey=surveyed,
        groups=_groups(asked, surveyed),
        groupings=[each for each in GROUPINGS if each != "reason" or query.sub_queue is not SubQueue.ACTIVE],
        query=query,
        asked=asked,
        kept=[(name, value) for name in (*sorted(KEPT), "from", "skip") for value in asked.all(name) if value],
        states=STATES_ASKED,
        columns=chosen_columns(asked),
        all_columns=COLUMNS,
        job=job if job is not None and job.plan.sub_queue is query.sub_queue else None,
        job_verb=None if job is None else DONE[job.plan.verb],
        verbs=verbs_of(query.sub_queue),
        taken={n for n in (each.sequence_number for each in messages) if site.taken.token(where, n)},
        is_dead=SUB_QUEUES[name] is SubQueue.DEAD_LETTER,
        selected=set(asked.all("number")),
        away=[each.partition_id for each in row.partitions if each.messages is None],
        **({"refresh_ms": REFRESH_MS} if job is not None and job.is_running else {}),
    )


async def _views(site: Site, messages: Sequence[Seen]) -> list[MessageView]:
    pace = Pace()
    found: list[MessageView] = []
    for seen in messages:
        found.append(await site.aside.run(partial(message_view, seen), len(seen.encoded)))
        await pace.step()
    return found


def is_search(query: Query) -> bool:
    """Whether a search may leave out messages of its sub-queue."""
    return bool(query.filter.sieves or query.first or query.session is not None or query.partition is not None)


def _grouping(asked: Form) -> tuple[str, str]:
    """By what messages are grouped: one of `GROUPINGS`, or an application property."""
    name = asked.text("group_property")
    if name:
        return "", name
    return asked.choice("group", "Group by", list(GROUPINGS)) if asked.text("group") else "", ""


@dataclass(frozen=True, slots=True)
class Group:
    """Messages with the same value of a property (None: they have none), and the address of a search for them."""

    text: str | None
    count: int
    where: str


def _groups(asked: Form, surveyed: Survey | None) -> list[Group]:
    """The largest groups of what a search finds."""
    if surveyed is None:
        return []
    largest = surveyed.values.most_common(GROUPS_SHOWN)
    return [Group(value.text, count, _address_narrowed(asked, value)) for value, count in largest]


def _address_narrowed(asked: Form, value: Value) -> str:
    """The address of the same search for messages whose property has a value; "" if no expression can say it."""
    if value.text is not None and value.sql is None:
        return ""
    group, name = _grouping(asked)
    is_value = "IS NULL" if value.sql is None else f"= {value.sql}"
    if group == "key":
        is_key = "AND" if value.sql is None else "OR sys.SessionId IS NULL AND"
        expression = f"(sys.SessionId {is_value} {is_key} sys.PartitionKey {is_value})"
    else:
        expression = f"{SQL_NAMES.get(group) or 'user.[' + name.replace(']', ']]') + ']'} {is_value}"
    before = asked.text("where")
    values = {**asked.values, "where": [f"({before}) AND {expression}" if before else expression]}
    return with_position(Form({each: values[each] for each in values if not each.startswith("group")}), {})


def _lines_at(entity: Entity, name: str, query: Query, asked: Form, failed: Failed | None) -> str:
    """Where the messages of a search are as JSON Lines."""
    criteria = Criteria() if failed is not None else read_criteria(asked)
    given = {
        "sub_queue": name,
        **asdict(criteria),
        "partition_id": query.partition,
        "session_id": query.session,
        "from_sequence_number": query.first or None,
    }
    words = urlencode({each: value for each, value in given.items() if value not in (None, "")})
    return f"{CONTROL}/entities/{quote(entity.path, safe='')}/messages/lines?{words}"


def place(entity: Entity, sub_queue: SubQueue) -> str:
    """The address of a sub-queue."""
    return f"{entity.path}/{sub_queue.value}" if sub_queue else entity.path


def verbs_of(sub_queue: SubQueue) -> list[Verb]:
    """What can be done with messages there."""
    verbs = [Verb.DELETE, Verb.DEFER, Verb.COMPLETE, Verb.MOVE, Verb.COPY]
    if sub_queue is SubQueue.ACTIVE:
        return [*verbs, Verb.DEAD_LETTER, Verb.DELIVER_NOW]
    return [Verb.RESUBMIT, *verbs] if sub_queue is SubQueue.DEAD_LETTER else verbs


def _query(entity: Entity, name: str, asked: Form) -> Query:
    partition: int | None = None
    if asked.text("partition"):
        partition = asked.number("partition", "Partition", 0, len(entity.partitions) - 1)
    is_newest_first, is_oldest_first = (asked.text("order") == each for each in ("newest", "due"))
    return Query(
        entity,
        SUB_QUEUES[name],
        MESSAGES_MAX,
        first=asked.number("from", "From sequence number", 0, NUMBER_MAX, default=0),
        partition=partition,
        session=asked.optional("session"),
        is_newest_first=is_newest_first,
        is_oldest_first=is_oldest_first,
        skip=asked.number("skip", "Skip", 0, SKIP_MAX, default=0) if is_newest_first or is_oldest_first else 0,
    )


def with_position(asked: Form, position: Mapping[str, object]) -> str:
    """The address of the same search at another position."""
    kept = {name: values for name, values in asked.values.items() if name in KEPT and any(values)}
    return address_of("messages", {**kept, **{name: [str(value)] for name, value in position.items() if value}})


def _following(asked: Form, query: Query, found: Found | None) -> str | None:
    """The address of the next page, None for the last one."""
    if found is None or found.following is None or (query.is_by_time and found.following > SKIP_MAX):
        return None
    return with_position(asked, {"skip" if query.is_by_time else "from": found.following})


async def _find(site: Site, query: Query, asked: Form) -> tuple[Survey | None, Found | None]:
    """How many messages a search finds and of which groups, if it asks for either; the page of messages, None if a
    store does not answer in time."""
    group, name = _grouping(asked)
    clock = site.services.clock
    is_survey = bool(is_search(query) or group or name)
    try:
        async with clock.time_limit(PEEK_WAIT_MS):
            if is_survey or query.is_oldest_first or query.skip > SKIP_FEW:
                found = await site.surveys.with_page(site.overview, query, read_criteria(asked), group, name)
                return (found[0] if is_survey else None), found[1]
            return None, await MessageSearch(site.overview, clock).find(query)
    except TimeoutError:
        return None, None


async def body(site: Site, request: web.Request) -> web.Response:
    """The whole body of one message, as a file."""
    seen = await message_at(site, query_form(request))
    data, ending = await site.aside.run(lambda: body_bytes(message_view(seen)), len(seen.encoded))
    headers = {"Content-Disposition": f'attachment; filename="message-{seen.sequence_number}.{ending}"'}
    return web.Response(body=data, content_type="application/octet-stream", headers=headers)


async def message_at(site: Site, asked: Form) -> Seen:
    """The message of `path`, `queue` and `number`. FormError."""
    entity = browsed_entity(site, asked.text("path"))
    name = asked.choice("queue", "Queue", list(SUB_QUEUES)) if asked.text("queue") else "active"
    number = asked.number("number", "Sequence number", 0, NUMBER_MAX)
    partition = entity.partition_of_number(number)
    query = Query(entity, SUB_QUEUES[name], 1, number, None if partition is None else partition.index)
    messages: Sequence[Seen] = ()
    if partition is not None:
        try:
            async with site.services.clock.time_limit(PEEK_WAIT_MS):
                messages = (await MessageSearch(site.overview, site.services.clock).find(query)).messages
        except TimeoutError:
            pass
    if not messages or messages[0].sequence_number != number:
        raise FormError(f"'{entity.path}' has no message {number} now.", "number", status=404)
    return messages[0]


def browsed_entity(site: Site, path: str) -> Entity:
    """The queue or subscription of a path. FormError, BrokerError (not-found)."""
    if not path:
        raise FormError("The address has no entity (path).")
    entity = site.entity(path)
    if isinstance(entity.description, TopicDescription):
        raise FormError(NO_MESSAGES.format(entity.path))
    return entity


def selected_numbers(form: Form) -> list[int]:
    """The selected sequence numbers, at least one. FormError."""
    texts = form.all("number")
    if not texts:
        raise FormError("No message is selected.", "number")
    if len(texts) > MESSAGES_MAX:
        raise FormError(f"{len(texts)} messages are selected; a page has at most {MESSAGES_MAX}.", "number")
    return [Form({"number": [text]}).number("number", "Sequence number", 0, NUMBER_MAX) for text in texts]
