"""Acting on messages: one, the selected ones, or all that match the search, as a job; and locks that the page takes.

Does not know how messages are locked, settled and sent (`web.messages`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Final

from aiohttp import hdrs, web

from ...broker.address import SubQueue
from ...broker.api import Abandon, Complete, DeadLetter, Defer, Entity, Outcome, Release
from ...broker.model.descriptions import TopicDescription
from ..control.entities import SUB_QUEUES
from ..messages.jobs import Job, Selection
from ..messages.sessions import session_of
from ..messages.verbs import DONE, NOT_FREE, SENDING, Plan, Verb
from .flashes import Flash
from .forms import REFUSALS, Form, FormError, read_form
from .messages import NUMBER_MAX, browsed_entity, place, selected_numbers, show, verbs_of, with_position
from .search_form import read_filter
from .site import Site, address_of

REASON: Final = "Dead-lettered on the page"
WAIT_MS: Final = 1_000
"""How long the answer to a form waits for the end of a job: enough for a few messages."""
FAILURES_SHOWN: Final = 20
LOCK: Final = "lock"
RESUBMIT_ALL: Final = "resubmit-all"
RESUBMIT_FOUND: Final = "resubmit-found"
COMPARE: Final = "compare"
ALL, FIRST = "all", "first"
MOST_MAX: Final = 10_000_000
SETTLEMENTS: Final[Mapping[str, tuple[str, Callable[[], Outcome]]]] = {
    "settle-complete": ("completed", Complete),
    "settle-abandon": ("abandoned", Abandon),
    "settle-defer": ("deferred", Defer),
    "settle-dead-letter": ("dead-lettered", lambda: DeadLetter(REASON, "", {})),
    "settle-release": ("released", Release),
}
"""How a message that the page has locked is settled: the word for it, and the outcome."""


async def act(site: Site, request: web.Request) -> web.Response:
    """Do something with messages; the next page is the same search."""
    form = await read_form(request)
    entity = browsed_entity(site, form.text("path"))
    try:
        if form.text("verb") == COMPARE:
            return _compare(entity, form)
        flash = await _act(site, entity, form)
    except REFUSALS as error:
        return await show(site, request, form.failed("act", error), form)
    return site.redirect(with_position(form, {name: form.text(name) for name in ("from", "skip")}), flash)


def _compare(entity: Entity, form: Form) -> web.Response:
    """The way to the page on which the two selected messages stand side by side."""
    numbers = selected_numbers(form)
    if len(numbers) != 2:
        raise FormError(f"{len(numbers)} messages are selected; two can be compared.", "number")
    asked = {"path": [entity.path], "queue": [form.text("queue")], "number": [str(each) for each in numbers]}
    return web.Response(status=303, headers={hdrs.LOCATION: address_of("compare", asked)})


async def _act(site: Site, entity: Entity, form: Form) -> Flash:
    """Do what the pressed button says.

    The buttons of one message carry verb and number in `one`, so that the form works without a script. "Resubmit all"
    takes no search, since it stands where nothing is searched; "Resubmit the … found" takes what the search finds.
    """
    name = form.choice("queue", "Queue", list(SUB_QUEUES))
    sub_queue = SUB_QUEUES[name]
    asked, _, one = form.text("one").partition(" ")
    if asked:
        form = Form({**form.values, "verb": [asked], "number": [one], "which": []})
    if form.text("verb") == RESUBMIT_ALL:
        form = Form({"path": [entity.path], "verb": [Verb.RESUBMIT.value], "which": ["all"]})
    if form.text("verb") == RESUBMIT_FOUND:
        form = Form({**form.values, "verb": [Verb.RESUBMIT.value], "which": ["all"], "target": []})
    verb = form.text("job_verb") if form.text("verb") == "job" else form.text("verb")
    if verb == LOCK:
        return await _lock(site, entity, sub_queue, form)
    if verb in SETTLEMENTS:
        return await _settle(site, entity, place(entity, sub_queue), verb, form)
    allowed = [each.value for each in verbs_of(sub_queue)]
    plan = Plan(
        Verb(Form({"verb": [verb]}).choice("verb", "Action", allowed)),
        entity.path,
        sub_queue,
        form.optional("target"),
        reason=form.optional("reason") or REASON,
        description="",
    )
    if plan.target is not None and plan.verb not in SENDING:
        raise FormError("Target: only messages that move, are copied or resubmitted go to another entity.", "target")
    which = form.choice("which", "Messages", ("", ALL, FIRST))
    selection = _all_that_match(entity, form) if which else Selection(selected_numbers(form))
    if which == FIRST:
        selection = replace(selection, most=form.number("most", "The first", 1, MOST_MAX))
    return flash_of(await site.jobs.start(plan, selection, WAIT_MS))


def _all_that_match(entity: Entity, form: Form) -> Selection:
    partition = form.number("partition", "Partition", 0, len(entity.partitions) - 1) if form.text("partition") else None
    first = 0 if form.text("order") else form.number("from", "From sequence number", 0, NUMBER_MAX, default=0)
    return Selection(None, read_filter(form), first, partition, form.optional("session"))


def flash_of(job: Job) -> Flash:
    """What the page says about a job after its form was sent."""
    word, target = DONE[job.plan.verb], "" if job.target is None else f" to '{job.target}'"
    messages = f"message{'' if job.total == 1 else 's'}"
    if job.is_running:
        return Flash(f"A job is running: {job.total:,} {messages} to be looked at and {word}{target}.")
    lines = [(f"{number}: {text}", "") for number, text in job.failures[:FAILURES_SHOWN]]
    of = "" if job.is_filtered else f" of {job.total:,}"
    text = f"{job.done_count:,}{of} {messages} {word}{target}."
    if job.failed_count:
        text += f" {job.failed_count:,} failed and stay."
    if job.error is not None:
        text += f" {job.error}"
    return Flash(text, lines, is_warning=bool(lines) or job.error is not None)


async def _lock(site: Site, entity: Entity, sub_queue: SubQueue, form: Form) -> Flash:
    """Lock the selected messages; those of a session are locked with it, since its lock is theirs."""
    numbers, where = selected_numbers(form), place(entity, sub_queue)
    reasons: dict[int, str] = {}
    if entity.requires_session and sub_queue is SubQueue.ACTIVE:
        seen = [await site.overview.message(entity, sub_queue, number) for number in numbers]
        found, reasons = await site.held.lock(
            entity, {each.sequence_number: session_of(each.encoded) for each in seen if each is not None}
        )
        locked = [each.delivery for each in found]
        for each in found:
            site.taken.put(where, each.delivery.sequence_number, each.delivery.token, each.until_at, each.session_id)
    else:
        locked = await site.broker.messages.lock_by_number(where, numbers)
        description = entity.description
        assert not isinstance(description, TopicDescription)
        until_at = site.services.clock.now_ms() + description.lock_duration_ms
        for delivery in locked:
            site.taken.put(where, delivery.sequence_number, delivery.token, until_at)
    missing = set(numbers) - {each.sequence_number for each in locked}
    lines = [(f"{number}: {reasons.get(number, NOT_FREE)}", "") for number in sorted(missing)]
    text = f"{len(locked)} of {len(numbers)} message{'' if len(numbers) == 1 else 's'} locked; open one to settle it."
    return Flash(text, lines, is_warning=bool(lines))


async def _settle(site: Site, entity: Entity, where: str, verb: str, form: Form) -> Flash:
    (number,) = selected_numbers(form)
    token = site.taken.token(where, number)
    if token is None:
        raise FormError(f"The lock of message {number} is over, or it is not the page's.", "number", status=409)
    word, outcome = SETTLEMENTS[verb]
    session_id = site.taken.forget(where, number)
    await site.broker.messages.settle(where, [token], outcome())
    if session_id is not None:
        site.held.release(entity, session_id)
    return Flash(f"Message {number} {word}.")


async def stop(site: Site, request: web.Request) -> web.Response:
    form = await read_form(request)
    entity = browsed_entity(site, form.text("path"))
    job = site.jobs.of(entity.path)
    if job is not None:
        job.stop()
    text = "The job is being stopped." if job is not None and job.is_running else "No job is running."
    return site.redirect(with_position(form, {}), Flash(text))
