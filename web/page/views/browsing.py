"""Browsing the messages of a sub-queue by peeking; resubmitting dead letters.

Does not know how messages are peeked (`broker.admin`) and moved (`resubmission`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Mapping
from typing import Final

from aiohttp import web

from ....broker.address import SubQueue
from ....broker.admin.overview import Page
from ....broker.api import Entity
from ....broker.model.descriptions import TopicDescription
from ...control.entities import SUB_QUEUES
from ..flashes import Flash
from ..forms import REFUSALS, Failed, Form, FormError, query_form, read_form
from ..rendering import message_view
from ..site import Site, address
from .overview import row_of
from .resubmission import Progress

MESSAGES_MAX: Final = 25
MESSAGES_BYTES_MAX: Final = 4 << 20
NUMBER_MAX: Final = (1 << 63) - 1
SUB_QUEUE_NAMES: Final[Mapping[str, str]] = {
    "active": "Messages",
    "dead-letter": "Dead letters",
    "transfer-dead-letter": "Transfer dead letters",
}
HOMES_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "active": ("active", "deferred", "scheduled"),
    "dead-letter": ("dead-letter", "dead-letter-deferred"),
    "transfer-dead-letter": ("transfer-dead-letter", "transfer-dead-letter-deferred"),
}
REFRESH_MS: Final = 500
PEEK_WAIT_MS: Final = 1_500
"""How long a page waits for messages of a slow store; after that it is shown without them."""


async def show(
    site: Site, request: web.Request, failed: Failed | None = None, form: Form | None = None
) -> web.Response:
    """A page of messages."""
    query = form or query_form(request)
    entity = _entity(site, query.text("path"))
    name = query.choice("queue", "Queue", list(SUB_QUEUES)) if query.text("queue") else "active"
    first = query.number("from", "From sequence number", 0, NUMBER_MAX, default=0)
    partition: int | None = None
    if query.text("partition"):
        partition = query.number("partition", "Partition", 0, len(entity.partitions) - 1)
    page = await _peek(
        site,
        site.overview.messages(
            entity,
            SUB_QUEUES[name],
            first=first,
            count=MESSAGES_MAX,
            bytes_max=MESSAGES_BYTES_MAX,
            session_id=query.optional("session"),
            partition_id=partition,
        ),
    )
    row = row_of(site, entity)
    progress = site.resubmissions.of(entity.path)
    return site.render(
        request,
        "messages.html",
        failed=failed,
        live_path=address("messages", path=entity.path, queue=name),
        row=row,
        entity=entity,
        sub_queue=name,
        title=SUB_QUEUE_NAMES[name],
        sub_queues=SUB_QUEUE_NAMES,
        total=sum(row.report.messages[home] for home in HOMES_OF[name]),
        messages=[] if page is None else [message_view(each) for each in page.messages],
        next_number=None if page is None else page.next_sequence_number,
        is_late=page is None,
        first=first,
        partition=partition,
        session=query.text("session"),
        progress=progress,
        is_dead=SUB_QUEUES[name] is SubQueue.DEAD_LETTER,
        selected=set(query.all("number")),
        away=[each.partition_id for each in row.partitions if each.messages is None],
        **({"refresh_ms": REFRESH_MS} if progress is not None and progress.is_running else {}),
    )


async def _peek(site: Site, asking: Awaitable[Page]) -> Page | None:
    """The page of messages, or None if a store does not answer in time."""
    try:
        async with site.services.clock.time_limit(PEEK_WAIT_MS):
            return await asking
    except TimeoutError:
        return None


def _entity(site: Site, path: str) -> Entity:
    if not path:
        raise FormError("The address has no entity (path).")
    entity = site.entity(path)
    if isinstance(entity.description, TopicDescription):
        raise FormError(f"The topic '{entity.path}' holds no messages: its subscriptions do.")
    return entity


async def resubmit(site: Site, request: web.Request) -> web.Response:
    """Resubmit selected dead letters, or all, to the entity they came from."""
    form = await read_form(request)
    entity = _entity(site, form.text("path"))
    try:
        numbers = None if form.text("which") == "all" else _numbers(form)
        progress = await site.resubmissions.start(entity, numbers)
    except REFUSALS as error:
        refused_form = Form({**form.values, "queue": ["dead-letter"]})
        return await show(site, request, form.failed("resubmit", error), refused_form)
    where = address(
        "messages",
        path=entity.path,
        queue="dead-letter",
        partition=form.text("partition"),
        **{"from": form.text("from") if progress.failed_count else ""},
    )
    return site.redirect(where, _flash(progress))


def _numbers(form: Form) -> list[int]:
    texts = form.all("number")
    if not texts:
        raise FormError("No message is selected.", "number")
    if len(texts) > MESSAGES_MAX:
        raise FormError(f"{len(texts)} messages are selected; a page has at most {MESSAGES_MAX}.", "number")
    return [Form({"number": [text]}).number("number", "Sequence number", 0, NUMBER_MAX) for text in texts]


def _flash(progress: Progress) -> Flash:
    if progress.is_running:
        return Flash(f"Resubmitting {progress.total} dead letters to '{progress.target}'.")
    sent = f"{progress.done_count} of {progress.total} dead letters resubmitted to '{progress.target}'"
    stayed = f"; {progress.failed_count} failed and stay" if progress.failed_count else ""
    lines = [(f"{number}: {text}" if number else text, "") for number, text in progress.failures]
    return Flash(f"{sent}{stayed}.", lines, is_warning=bool(progress.failures))


async def cancel(site: Site, request: web.Request) -> web.Response:
    """Stop a running resubmission."""
    form = await read_form(request)
    entity = _entity(site, form.text("path"))
    was_running = site.resubmissions.cancel(entity.path)
    text = "The resubmission is being stopped." if was_running else "No resubmission is running."
    return site.redirect(address("messages", path=entity.path, queue="dead-letter"), Flash(text))
