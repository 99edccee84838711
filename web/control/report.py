"""What explains a failed test: refusals, strikes, outages, the clock, what is left, and why nobody took it.

Knows which facts a report has, in which words, and how many of each. The test kit shows the text as the section
*emubus* of pytest; helpers for other languages (`examples/`) print the same. Does not know how any of it is found.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from aiohttp import web

from ...broker.admin import figures
from ...broker.admin.overview import Overview, Seen
from ...broker.admin.refusal_log import Refusal
from ...broker.api import Entity
from ...conditions.condition import StartedCondition
from ...story.sentences import event_line, moment_text, refusal_text
from ...story.tracing import TraceEvent, trace
from ..long_work import Pace
from ..messages.jobs import HOMES_OF
from .endpoints import ControlCall, Endpoint
from .entities import MESSAGES_BYTES_MAX, SUB_QUEUES
from .message_json import NUMBER_MAX, MessageJson, message_json
from .schema import array, default, integer, named, record, text

PLAIN: Final = "text/plain"
LINES_MAX: Final = 20
"""Of one kind of facts."""
MESSAGES_MAX: Final = 10
"""Messages whose story a report has."""
LOOKED_AT_MAX: Final = 1_000
"""Messages that are read to find those that came since; 10 ms."""
EVENTS_MAX: Final = 12
"""Of the story of one message, its last ones."""
MOVED_MS: Final = 1_000
"""A clock that is nearer to the machine's was not moved."""
CHARS_MAX: Final = 1_000_000

SECTION: Final = named(
    "ReportSection",
    record(
        "Facts of one kind.",
        {
            "name": text("What they are."),
            "lines": array("The facts; one may have several lines.", text("A fact.", chars_max=CHARS_MAX)),
        },
    ),
)
REPORT: Final = named(
    "Report",
    record(
        "What the broker knows that may explain a failure.",
        {
            "now_ms": integer("The broker's instant.", 0, NUMBER_MAX),
            "text": text("The sections as text; empty if there is nothing to say.", chars_max=100 * CHARS_MAX),
            "sections": array("Those that have facts.", SECTION),
        },
    ),
)
_SINCE: Final = {
    "since": default(
        integer(
            "Only refusals, strikes, ended conditions and stories of messages from this instant of the broker's clock "
            "on (Unix ms), such as `now_ms` of the clock at a test's begin. Everything since a reset without it.",
            0,
            NUMBER_MAX,
        ),
        0,
    )
}


@dataclass(frozen=True, slots=True)
class Section:
    """Facts of one kind, each a line or a few."""

    name: str
    lines: list[str]

    @property
    def text(self) -> str:
        return "\n".join([f"{self.name}:", *(f"  {each}".replace("\n", "\n  ") for each in self.lines)])


@dataclass(frozen=True, slots=True)
class _Left:
    """An entity that has messages, with their numbers by state."""

    entity: Entity
    messages: Mapping[str, int]


async def sections(call: ControlCall) -> list[Section]:
    """The facts, those that explain most first."""
    since = call.query.one("since", int)
    left = await _leftovers(call)
    stories = [each async for each in _stories(call, left, since)]
    found = (
        ("Refused", _refusals(call.services.broker.refusals.recent, since), LINES_MAX),
        ("Conditions and faults", _strikes(call, since), LINES_MAX),
        ("Outages", _outages(call), LINES_MAX),
        ("Clock", _clock(call), LINES_MAX),
        ("Messages there", (f"{each.entity.path}: {_counts_text(each.messages)}" for each in left), LINES_MAX),
        ("What nobody took", stories, MESSAGES_MAX),
    )
    return [Section(name, lines) for name, facts, count in found if (lines := _first_lines(facts, count))]


def _first_lines(facts: Iterable[str], count: int) -> list[str]:
    lines = list(facts)
    return [*lines[:count], "…"] if len(lines) > count else lines


def _refusals(recent: list[Refusal], since: int) -> Iterator[str]:
    """The last ones first; tries of one program are one, whatever connection each had."""
    found: dict[tuple[str, str, str], list[Refusal]] = {}
    for each in reversed(recent):
        if each.at >= since:
            found.setdefault((each.entity, each.code, each.reason), []).append(each)
    for (entity, code, reason), calls in found.items():
        count = sum(each.count for each in calls)
        remedies = dict.fromkeys(f"\n  {each.remedy}" for each in calls if each.remedy)
        times = f" ({count} times)" if count > 1 else ""
        yield f"{entity or 'the namespace'}: {code}{times}: {reason.strip()} [{calls[0].client}]{''.join(remedies)}"


def _strikes(call: ControlCall, since: int) -> Iterator[str]:
    """The conditions and faults that are on, and those that have ended since."""
    conditions = call.services.conditions
    on = {each.number for each in conditions.list()}
    for each in conditions.all_started():
        is_on = each.left != 0 if each.is_fault else each.number in on
        if is_on or each.started_at >= since or any(strike.at >= since for strike in each.struck):
            yield _fault(each) if each.is_fault else _condition(each, is_on=is_on)


def _condition(each: StartedCondition, *, is_on: bool) -> str:
    where = f" on {each.entity}" if each.entity else ""
    state = "" if is_on else ", ended"
    last = f"; last: {each.struck[-1].what}, {each.struck[-1].scope}" if each.struck else ""
    return f"{each.name}{where} (seed {each.seed}{state}) struck {_times(each.struck_count)}{last}"


def _fault(each: StartedCondition) -> str:
    used_up = ", all that it could" if each.left == 0 else ""
    return f"fault {each.name} on {each.entity or 'any entity'} struck {_times(each.struck_count)}{used_up}"


def _outages(call: ControlCall) -> Iterator[str]:
    for each in figures.stores(call.services.broker.namespace):
        if each.is_out:
            yield f"messaging store {each.store} is {each.health}"


def _clock(call: ControlCall) -> Iterator[str]:
    clock = call.services.clock
    if clock.is_frozen or abs(clock.offset_ms) > MOVED_MS:
        state = "frozen" if clock.is_frozen else "moved"
        yield f"{moment_text(clock.now_ms())} UTC, {state}, {clock.offset_ms / 1000:+,.3f} s from the machine's"


async def _leftovers(call: ControlCall) -> list[_Left]:
    overview, pace = Overview(call.services.broker.namespace), Pace()
    found: list[_Left] = []
    for entity in sorted(call.services.broker.namespace.entities(), key=lambda each: each.path.lower()):
        await pace.step()
        messages = overview.report(entity).messages
        if any(messages.values()):
            found.append(_Left(entity, messages))
    return found


async def _stories(call: ControlCall, left: list[_Left], since: int) -> AsyncIterator[str]:
    """The stories of the first messages that came since, and one more, if there is one."""
    told = 0
    async for entity, sub_queue, seen in _messages(call, left):
        message = await call.aside.run(partial(message_json, seen), len(seen.encoded))
        if (message["enqueued_at"] or since) < since:
            continue
        yield await _story(call, entity.path, sub_queue, message)
        told += 1
        if told > MESSAGES_MAX:
            return


async def _messages(call: ControlCall, left: list[_Left]) -> AsyncIterator[tuple[Entity, str, Seen]]:
    overview, to_read = Overview(call.services.broker.namespace), LOOKED_AT_MAX
    for each in left:
        for name, sub_queue in SUB_QUEUES.items():
            if not any(each.messages[home] for home in HOMES_OF[sub_queue]):
                continue
            if call.services.broker.namespace.entity(each.entity.path) is not each.entity:
                break  # deleted since
            first: int | None = 0
            while first is not None and to_read > 0:
                page = await overview.messages(
                    each.entity, sub_queue, first=first, count=min(to_read, 100), bytes_max=MESSAGES_BYTES_MAX
                )
                for seen in page.messages:
                    yield each.entity, name, seen
                first, to_read = page.next_sequence_number, to_read - len(page.messages)


async def _story(call: ControlCall, path: str, sub_queue: str, message: MessageJson) -> str:
    number, message_id = message["sequence_number"], message["properties"].get("message_id")
    name = f"number {number}" if message_id is None else f"'{message_id}'"
    where = path if sub_queue == "active" else f"{path}, {sub_queue}"
    story = call.services.story
    events = await trace(story, call.aside, path=path, sequence_number=number, count_max=EVENTS_MAX + 1)
    earlier = ["  … earlier events"] if len(events) > EVENTS_MAX else []
    lines = [f"  {_line(each)}".replace("\n", "\n  ") for each in events[-EVENTS_MAX:]]
    if not events and not story.is_switched_on:
        lines = ["  its story is not known: events of messages are not kept (emubus trace --on)"]
    head = f"{name} in {where}, {message['state']}, delivery count {message['delivery_count']}"
    return "\n".join([head, *earlier, *lines])


def _line(event: TraceEvent) -> str:
    refused = [refusal_text(each.path, each.rules) for each in event.verdicts if not each.takes]
    return event_line(event.found.entry.at, event.found.entry.path, event.text, refused)


def _counts_text(messages: Mapping[str, int]) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in messages.items() if count)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


async def show_report(call: ControlCall) -> object:
    found = await sections(call)
    return {
        "now_ms": call.services.clock.now_ms(),
        "text": "\n".join(each.text for each in found),
        "sections": [{"name": each.name, "lines": each.lines} for each in found],
    }


async def show_report_text(call: ControlCall) -> object:
    """The text alone, with a line end."""
    lines = "".join(f"{each.text}\n" for each in await sections(call))
    return web.Response(text=lines)


ENDPOINTS: Final = (
    Endpoint(
        "GET",
        "/report",
        "What may explain a failed test: refusals, strikes, outages, the clock, what is left, and why nobody took it",
        show_report,
        REPORT,
        query=_SINCE,
        answers={
            "now_ms": 1_893_456_000_000,
            "text": "Messages there:\n  orders: 1 active",
            "sections": [{"name": "Messages there", "lines": ["orders: 1 active"]}],
        },
    ),
    Endpoint(
        "GET",
        "/report/text",
        "The same as text; empty if there is nothing to say",
        show_report_text,
        {"type": "string", "description": "Sections of lines."},
        query=_SINCE,
        gives=PLAIN,
    ),
)
