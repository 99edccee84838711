"""The story of a message as a timeline: the search for it, and the switch.

Does not know how events are found and worded (`story/`).
"""

from __future__ import annotations

from typing import Final

from aiohttp import web

from ...story.tracing import trace
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, query_form, read_form
from .site import Site, address

EVENTS_MAX: Final = 200
NUMBER_MAX: Final = (1 << 63) - 1


async def show(site: Site, request: web.Request) -> web.Response:
    """The page; without a criterion it has the last events."""
    query = query_form(request)
    failed: Failed | None = None
    number: int | None = None
    try:
        number = query.number("number", "Sequence number", 0, NUMBER_MAX) if query.text("number") else None
    except REFUSALS as error:
        failed = query.failed("story", error)
    path, message_id, session_id = query.optional("path"), query.optional("id"), query.optional("session")
    events = await trace(
        site.services.story,
        site.aside,
        path=path,
        sequence_number=number,
        message_id=message_id,
        session_id=session_id,
        count_max=EVENTS_MAX,
    )
    return site.render(
        request,
        "story.html",
        failed=failed,
        live_path=str(request.rel_url),
        story=site.services.story,
        events=events,
        sought={name: query.text(name) for name in ("path", "id", "number", "session")},
        is_sought=any(each is not None for each in (number, message_id, session_id)),
        events_max=EVENTS_MAX,
        paths=sorted(each.path for each in site.broker.namespace.entities())[:1_000],
    )


async def switch(site: Site, request: web.Request) -> web.Response:
    """Keep events from now on, keep no more, or forget all."""
    form: Form = await read_form(request)
    story = site.services.story
    match form.choice("do", "Story", ("on", "off", "forget")):
        case "on":
            story.switch(is_on=True)
            text = "Events of messages are kept from now on."
        case "off":
            story.switch(is_on=False)
            text = "No more events of messages are kept."
        case _:
            story.forget()
            text = "All events of messages were forgotten."
    return site.redirect(address("story"), Flash(text))
