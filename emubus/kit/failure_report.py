"""What a failed test says of the broker: refusals, strikes, outages, the clock, what is left, and why nobody took it.

Knows which facts explain a failure, and how many of each are shown. Does not know pytest (`pytest_plugin.py`), nor
where the emubus runs.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Final

from ..broker.errors import BrokerError
from .answers import Answer
from .values import SUB_QUEUES, MessageCounts, PeekedMessage, RefusedCall, instant_text
from .verbs import Verbs, line_of

LINES_MAX: Final = 20
"""Of one kind of facts."""
MESSAGES_MAX: Final = 10
"""Messages whose story is told."""
EVENTS_MAX: Final = 12
"""Of the story of one message, its last ones."""
MOVED_MS: Final = 1_000
"""A clock that is nearer to the machine's was not moved."""


def failure_report(emubus: Verbs) -> str:
    """Sections of lines, "" if there is nothing to say; one line if the emubus does not answer."""
    try:
        return "\n".join(_lines(emubus))
    except (BrokerError, OSError) as error:
        return f"The emubus can't be asked what happened: {error}"


def _lines(emubus: Verbs) -> Iterator[str]:
    yield from _section("Refused", _refusals(emubus))
    yield from _section("Conditions and faults", [*_conditions(emubus), *_faults(emubus)])
    yield from _section("Outages", _outages(emubus))
    yield from _section("Clock", _clock(emubus))
    left = {path: counts for path, counts in emubus.entities().items() if counts.total}
    yield from _section("Messages there", [f"{path}: {_counted(counts)}" for path, counts in left.items()])
    yield from _section("What nobody took", _stories(emubus, left), lines_max=MESSAGES_MAX)


def _section(name: str, lines: Iterable[str], lines_max: int = LINES_MAX) -> Iterator[str]:
    found = list(islice(lines, lines_max + 1))
    if found:
        yield f"{name}:"
        yield from (f"  {each}" for each in found[:lines_max])
        if len(found) > lines_max:
            yield "  …"


def _refusals(emubus: Verbs) -> Iterator[str]:
    """The last ones first; tries of one program are one, whatever connection each had."""
    found: dict[tuple[str, str, str], list[RefusedCall]] = {}
    for each in reversed(emubus.refusals()):
        found.setdefault((each.entity, each.code, each.reason), []).append(each)
    for (entity, code, reason), calls in found.items():
        count = sum(each.count for each in calls)
        remedies = dict.fromkeys(f"\n    {each.remedy}" for each in calls if each.remedy)
        times = f" ({count} times)" if count > 1 else ""
        yield f"{entity or 'the namespace'}: {code}{times}: {reason.strip()} [{calls[0].client}]{''.join(remedies)}"


def _conditions(emubus: Verbs) -> Iterator[str]:
    """Those that are on, and those that the test has started, which may have ended."""
    on = {each.number: each for each in emubus.running_conditions()}
    ended = {number: emubus.condition(number) for number in emubus.started_conditions if number not in on}
    for report in (on | ended).values():
        where = f" on {report.entity}" if report.entity else ""
        state = "" if report.is_on else ", ended"
        last = f"; last: {report.struck[-1].what}, {report.struck[-1].scope}" if report.struck else ""
        yield f"{report.name}{where} (seed {report.seed}{state}) struck {_times(report.struck_count)}{last}"


def _faults(emubus: Verbs) -> Iterator[str]:
    for each in _answer(emubus, "/faults").parts("faults"):
        where = each.text_or_none("entity") or "any entity"
        yield f"fault {each.text('kind')} on {where} struck {_times(each.number('hit_count'))}"


def _outages(emubus: Verbs) -> Iterator[str]:
    for each in _answer(emubus, "/stores").parts("stores"):
        if each.text("health") != "available":
            yield f"messaging store {each.number('store')} is {each.text('health')}"


def _clock(emubus: Verbs) -> Iterator[str]:
    clock = _answer(emubus, "/clock")
    offset_ms = clock.number("offset_ms")
    is_frozen = clock.flag("is_frozen")
    if is_frozen or abs(offset_ms) > MOVED_MS:
        state = "frozen" if is_frozen else "moved"
        yield f"{instant_text(clock.number('now_ms'))} UTC, {state}, {offset_ms / 1000:+,.3f} s from the machine's"


def _stories(emubus: Verbs, left: dict[str, MessageCounts]) -> Iterator[str]:
    for path, counts in left.items():
        for sub_queue in SUB_QUEUES:
            if any(counts[each] for each in counts if _holds(sub_queue, each)):
                for message in emubus.peek(path, sub_queue):
                    yield _story(emubus, path, sub_queue, message)


def _holds(sub_queue: str, state: str) -> bool:
    """Whether messages of a state are seen in a sub-queue."""
    if sub_queue == "active":
        return state in ("active", "deferred", "scheduled")
    return state.startswith(sub_queue)


def _story(emubus: Verbs, path: str, sub_queue: str, message: PeekedMessage) -> str:
    name = f"'{message.message_id}'" if message.message_id is not None else f"number {message.sequence_number}"
    where = path if sub_queue == "active" else f"{path}, {sub_queue}"
    events = emubus.story(path=path, sequence_number=message.sequence_number)
    earlier = [f"    … {len(events) - EVENTS_MAX} earlier events"] if len(events) > EVENTS_MAX else []
    lines = [f"    {_indented(line_of(each))}" for each in events[-EVENTS_MAX:]]
    head = f"{name} in {where}, {message.state}, delivery count {message.delivery_count}"
    return "\n".join([head, *earlier, *lines])


def _indented(text: str) -> str:
    return text.replace("\n", "\n    ")


def _counted(counts: MessageCounts) -> str:
    return ", ".join(f"{count:,} {state}" for state, count in counts.items() if count)


def _times(count: int) -> str:
    return "once" if count == 1 else f"{count:,} times"


def _answer(emubus: Verbs, path: str) -> Answer:
    return emubus._asked("GET", path)
