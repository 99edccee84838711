"""Sending a message, once or often, and showing its partition; sending one again, edited; its destination (P32).

Does not know how a partition is chosen; the broker does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, TypeVar

from aiohttp import web

from ...broker.address import SubQueue
from ...broker.admin import figures
from ...broker.admin.overview import Route, Seen
from ...broker.api import Entity
from ...broker.errors import BrokerError
from ...broker.message.builder import NewMessage
from ...broker.message.message import Message
from ...broker.model.descriptions import RuleDescription, SubscriptionDescription, TopicDescription
from ...broker.names import TemplateName
from ...codec.errors import DecodeError
from ...story.tracing import VERDICTS_MAX
from ...story.verdicts import Verdict, verdicts_on
from ..control.entities import SUB_QUEUES
from ..long_work import Pace
from ..messages.annotations import map_section
from ..messages.jobs import Selection
from ..messages.verbs import Plan, Verb
from ..single_send import Sent, send_each, send_one
from .flashes import Flash
from .forms import REFUSALS, Failed, Form, FormError, query_form, read_form
from .message_actions import WAIT_MS, flash_of
from .message_form import BODY_FORMS, FIELDS, PROPERTY_TYPES, encoded, message_in
from .messages import message_at
from .overview import row_of
from .resending import UNCHANGED, changes_of, form_values, values_of
from .site import Site, address

COUNT_MAX: Final = 10_000
AT_ONCE: Final = 100
COPIES_MAX: Final = 20
COPIES_SEEN_MAX: Final = 10
COPIES_BYTES_MAX: Final = 1 << 20
_ANNOTATIONS: Final = 0x72
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Origin:
    """A message to be sent again, and where it goes if nothing else is said."""

    seen: Seen
    queue: str
    target: str

    @property
    def number(self) -> int:
        return self.seen.sequence_number


@dataclass(frozen=True, slots=True)
class Destination:
    """The destination of a message: its partition, and the subscriptions of a topic that would receive it."""

    route: Route
    verdicts: list[Verdict]
    """Of the first `VERDICTS_MAX` subscriptions, those that would take it first."""
    subscription_count: int
    is_topic: bool


async def show(
    site: Site,
    request: web.Request,
    failed: Failed | None = None,
    path: str = "",
    destination: Destination | None = None,
) -> web.Response:
    # The form is, in this order: one that was refused, a message to be sent again, a kept template, empty.
    entity = site.entity(path) if path else site.entity_of(request)
    asked = query_form(request) if failed is None else Form(failed.values)
    origin = await _origin(site, entity, asked)
    if failed is None and origin is not None:
        failed = Failed("send", await _read(site, origin, partial(form_values, origin.seen)))
    template = query_form(request).text("template") if failed is None else ""
    if template:
        kept = await site.aside.run(partial(values_of, await site.templates.get(TemplateName(template))))
        failed = Failed("send", {**kept, "template_name": [template]})
    if isinstance(entity.description, SubscriptionDescription) and origin is None:
        raise FormError(f"Messages are sent to the topic '{entity.description.topic_name}', not to a subscription.")
    return site.render(
        request,
        "send.html",
        failed=failed,
        live_path=address("send", path=entity.path),
        row=row_of(site, entity),
        entity=entity,
        destination=destination,
        origin=origin,
        templates=[] if origin is not None else list(await site.templates.all()),
        fields=FIELDS,
        property_types=list(PROPERTY_TYPES),
        body_forms=[*BODY_FORMS, *([] if origin is None else [UNCHANGED])],
    )


async def _read(site: Site, origin: Origin, read: Callable[[], T]) -> T:
    """What is read of a message that is sent again. FormError."""
    try:
        return await site.aside.run(read, len(origin.seen.encoded))
    except DecodeError as error:
        raise FormError(f"Message {origin.number} can't be edited: {error}.", status=409) from None


async def _origin(site: Site, entity: Entity, asked: Form) -> Origin | None:
    """The message that a form sends again. FormError."""
    if not asked.text("number"):
        return None
    seen = await message_at(site, Form({**asked.values, "path": [entity.path]}))
    description = entity.description
    target = description.topic_name if isinstance(description, SubscriptionDescription) else entity.path
    return Origin(seen, asked.text("queue") or "active", target)


async def where(site: Site, request: web.Request) -> web.Response:
    """The form with the destination of its message."""
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        message = message_in(form, site.services.clock.now_ms())
        destination = destination_of(site, entity, message)
    except REFUSALS as error:
        return await show(site, request, form.failed("send", error), entity.path)
    return await show(site, request, Failed("send", form.values), entity.path, destination)


async def _send_again(site: Site, entity: Entity, form: Form) -> Flash:
    """Send a message again, edited; with `remove` it moves. FormError, BrokerError."""
    origin = await _origin(site, entity, form)
    assert origin is not None
    keeps_body = form.text("body_form") == UNCHANGED
    given = Form({**form.values, "body_form": ["text"], "body": [""]}) if keeps_body else form
    message = message_in(given, site.services.clock.now_ms())
    encoded(message)  # FormError for a value that AMQP can't hold
    plan = Plan(
        Verb.MOVE if form.checked("remove") else Verb.COPY,
        entity.path,
        SUB_QUEUES[origin.queue],
        form.optional("target"),
        await _read(
            site,
            origin,
            partial(
                changes_of,
                origin.seen,
                message,
                keeps_body=keeps_body,
                drops_reason=form.checked("drop_dead_letter"),
            ),
        ),
    )
    return flash_of(await site.jobs.start(plan, Selection([origin.number]), WAIT_MS))


async def _send_often(site: Site, entity: Entity, data: bytes, count: int) -> Flash:
    """Send a message several times. BrokerError if the entity takes none."""
    sent: list[Sent] = []
    while len(sent) < count:
        sent += await send_each(site.broker, entity, [data] * min(AT_ONCE, count - len(sent)))
    done = sum(isinstance(each, int) for each in sent)
    reasons = {each.description for each in sent if isinstance(each, BrokerError)}
    dropped = f"; {sent.count(None)} were dropped as duplicates" if None in sent else ""
    return Flash(f"Sent {done} of {count} times{dropped}.", [(each, "") for each in reasons], is_warning=done < count)


def destination_of(site: Site, entity: Entity, message: NewMessage) -> Destination:
    """The destination of a message. BrokerError, FormError."""
    parsed = _parse_for_entity(entity, message)
    route = site.overview.route(
        entity, session_id=message.session_id, partition_key=message.partition_key, message_id=message.message_id
    )
    rules: dict[str, Sequence[RuleDescription]] = {}
    count = 0
    if isinstance(entity.description, TopicDescription):
        for each in site.broker.namespace.subscriptions_of(entity.path).entities():
            assert isinstance(each.description, SubscriptionDescription)
            count += 1
            if len(rules) < VERDICTS_MAX:
                rules[each.path] = each.description.rules
    verdicts = verdicts_on(parsed, rules, site.services.clock.now_ms())
    verdicts.sort(key=lambda each: not each.takes)
    return Destination(route, verdicts, count, isinstance(entity.description, TopicDescription))


def _parse_for_entity(entity: Entity, message: NewMessage) -> Message:
    (parsed,) = entity.parse(encoded(message), batch=False)
    return parsed


async def send(site: Site, request: web.Request) -> web.Response:
    """Send the message; the next page shows its partition."""
    form = await read_form(request)
    entity = site.entity(form.text("path"))
    try:
        if form.text("number"):
            back = address("messages", path=entity.path, queue=form.text("queue"))
            return site.redirect(back, await _send_again(site, entity, form))
        message = message_in(form, site.services.clock.now_ms())
        count = form.number("count", "How often", 1, COUNT_MAX, default=1)
        if count > 1:
            flash = await _send_often(site, entity, encoded(message), count)
            return _back_to_form(site, entity, replace(flash, values=form.values))
        number = await send_one(site.broker, entity, encoded(message))
    except REFUSALS as error:
        return await show(site, request, form.failed("send", error), entity.path)
    lines: list[tuple[str, str]] = []
    if number is None:
        text = "The message was dropped as a duplicate of an earlier one with its MessageId."
        return _back_to_form(site, entity, Flash(text, lines, form.values, is_warning=True))
    placed = figures.placement(entity, number)
    index = placed.partition_id
    of = f" of {len(entity.partitions)}" if entity.partitioned else ""
    text = f"Sent: partition {index}{of}, sequence number {number} (messaging store {placed.store})."
    if isinstance(entity.description, TopicDescription):
        lines = await copies(site, entity, index, number)
    else:
        see = address("messages", path=entity.path, partition=index if entity.partitioned else "", **{"from": number})
        lines = [("Show it", see)]
    return _back_to_form(site, entity, Flash(text, lines, form.values))


def _back_to_form(site: Site, entity: Entity, flash: Flash) -> web.Response:
    return site.redirect(address("send", path=entity.path), flash)


async def copies(site: Site, topic: Entity, index: int, number: int) -> list[tuple[str, str]]:
    """The copies of a topic's message that are still in its subscriptions."""
    lines: list[tuple[str, str]] = []
    for subscription in site.broker.namespace.subscriptions_of(topic.path).entities():
        for sub_queue, name in ((SubQueue.ACTIVE, ""), (SubQueue.DEAD_LETTER, "dead-letter")):
            for copy in await _copies_in(site, subscription, sub_queue, index, number):
                if len(lines) == COPIES_MAX:
                    return [*lines, ("… and more copies", "")]
                see = address(
                    "messages",
                    path=subscription.path,
                    queue=name,
                    partition=index if subscription.partitioned else "",
                    **{"from": copy},
                )
                where_in = " (dead letter)" if name else ""
                lines.append((f"Copy in {subscription.description.name}{where_in}: sequence number {copy}", see))
    return lines or [("No subscription has a copy now.", "")]


async def _copies_in(site: Site, subscription: Entity, sub_queue: SubQueue, index: int, number: int) -> list[int]:
    """The copies of a topic's message `number` among the newest of a subscription's partition.

    A copy has a number of its own; its annotation has the one that the topic gave.
    """
    placed = figures.placement_in(subscription, index)
    if placed.next_number is None:
        return []
    page = await site.overview.messages(
        subscription,
        sub_queue,
        first=max(placed.first_number, placed.next_number - COPIES_SEEN_MAX),
        count=COPIES_SEEN_MAX,
        bytes_max=COPIES_BYTES_MAX,
        partition_id=index,
    )
    pace = Pace()
    copies: list[int] = []
    for each in page.messages:
        annotations = await site.aside.run(partial(map_section, each.encoded, _ANNOTATIONS), len(each.encoded))
        if annotations.get("x-opt-enqueue-sequence-number") == number:
            copies.append(each.sequence_number)
        await pace.step()
    return copies
