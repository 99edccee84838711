"""Acting on selected messages: delete, dead-letter, defer.

Knows that a message is locked first, and that a scheduled one is cancelled instead. Each message is settled by itself,
so one that can't be leaves the others alone. Does not know how messages are locked and settled; the broker does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Final

from aiohttp import web

from ....broker.address import SubQueue
from ....broker.api import Complete, DeadLetter, Defer, Entity, Outcome, Release
from ....broker.errors import BrokerError, Condition
from ...control.entities import SUB_QUEUES
from ..flashes import Flash
from ..forms import REFUSALS, Form, read_form
from ..site import Site
from .browsing import browsed_entity, selected_numbers, show, with_position

REASON: Final = "Dead-lettered on the page"
VERBS: Final[Mapping[str, tuple[str, Callable[[], Outcome]]]] = {
    "delete": ("deleted", Complete),
    "dead-letter": ("dead-lettered", lambda: DeadLetter(REASON, "", {})),
    "defer": ("deferred", Defer),
}
"""What is done with a message: the word for it, and the outcome that settles it."""


async def act(site: Site, request: web.Request) -> web.Response:
    """Do something with the selected messages; the next page is the same search."""
    form = await read_form(request)
    entity = browsed_entity(site, form.text("path"))
    try:
        flash = await _act(site, entity, form)
    except REFUSALS as error:
        return await show(site, request, form.failed("act", error), form)
    return site.redirect(with_position(form, {name: form.text(name) for name in ("from", "skip")}), flash)


async def _act(site: Site, entity: Entity, form: Form) -> Flash:
    name = form.choice("queue", "Queue", list(SUB_QUEUES))
    verb = form.choice("verb", "Action", list(VERBS))
    numbers = selected_numbers(form)
    word, outcome = VERBS[verb]
    sub_queue = SUB_QUEUES[name]
    where = entity.path if sub_queue is SubQueue.ACTIVE else f"{entity.path}/{sub_queue.value}"
    locked = {each.sequence_number: each.token for each in await site.broker.lock_by_number(where, numbers)}
    failures: list[tuple[str, str]] = []
    for number in numbers:
        try:
            if number in locked:
                await _settle(site, where, locked[number], outcome())
            elif verb == "delete" and sub_queue is SubQueue.ACTIVE:
                await site.broker.cancel_scheduled(entity.path, [number])
            else:
                failures.append((f"{number}: it is locked, scheduled or gone", ""))
        except BrokerError as error:
            is_gone = error.condition is Condition.MESSAGE_NOT_FOUND
            failures.append((f"{number}: {'it is locked or gone' if is_gone else error.description}", ""))
    text = f"{len(numbers) - len(failures)} of {len(numbers)} message{'' if len(numbers) == 1 else 's'} {word}."
    return Flash(text, failures, is_warning=bool(failures))


async def _settle(site: Site, where: str, token: bytes, outcome: Outcome) -> None:
    """Settle a locked message, or else give it back; if that fails, too, its lock expires. BrokerError."""
    try:
        await site.broker.settle(where, [token], outcome)
    except BrokerError:
        with suppress(BrokerError):
            await site.broker.settle(where, [token], Release())
        raise
