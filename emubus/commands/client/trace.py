"""`emubus trace`: what happened to a message, from its sending to its end, and why no subscription took it."""

from __future__ import annotations

import select
from collections.abc import Iterator, Mapping
from typing import Final, NoReturn
from urllib.parse import urlencode

from ...exits import EXIT_FAILED, EXIT_OK
from ...kit.answers import Answer
from ...options import ConfigError
from ...terminal import flush, json_text, one_line, write_lines, write_notes
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import Api, connect
from .output import add_json, instant, show

POLL_MS: Final = 1_000
ID_CHARS: Final = 60
OFF: Final = "events are not kept at present: `emubus trace --on`, or `emubus serve` without --no-story"


def add_trace(parser: Command) -> None:
    parser.argument("message_id", metavar="MESSAGE-ID", nargs="?", help="the id of the message")
    parser.option("--entity", metavar="ENTITY", help="path of an entity that the message was in")
    parser.option("--number", metavar="N", convert=int, help="its sequence number there")
    parser.option("--session", metavar="ID", help="its session: messages and locks of all messages in it")
    parser.option("--top", metavar="N", convert=int, default=200, help="at most so many events (200)")
    parser.switch("-f", "--follow", help="go on with what happens, until it is interrupted")
    parser.switch("--on", help="keep events of messages from now on")
    parser.switch("--off", help="keep no more events")
    add_json(parser)
    add_server_options(parser)
    parser.run = _trace


def _trace(parsed: Parsed) -> int:
    if parsed.on and parsed.off:
        raise ConfigError("--on and --off exclude each other: give one of them")
    if (parsed.on or parsed.off) and (parsed.follow or any(_event_filter(parsed).values())):
        raise ConfigError(
            f"{'--on' if parsed.on else '--off'} shows no events: give it alone, then trace what is meant"
        )
    if parsed.number is not None and parsed.entity is None:
        raise ConfigError(f"--number is {parsed.number}, which says nothing alone: give --entity, too")
    with connect(parsed) as api:
        if parsed.on or parsed.off:
            state = api.call("PUT", "/story", {"is_on": parsed.on})
            show(parsed, state, [f"events of messages are {'kept from now on' if parsed.on else 'no more kept'}"])
            return EXIT_OK
        wanted = {**_event_filter(parsed), "top": parsed.top}
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        found = api.get(f"/story?{query}")
        if parsed.follow:
            _follow(parsed, api, query, found)
    show(parsed, found, _lines(found, _event_filter(parsed)))
    return EXIT_OK if found["events"] else EXIT_FAILED


def _event_filter(parsed: Parsed) -> dict[str, object]:
    """What the events must be of."""
    return {
        "entity": parsed.entity,
        "sequence_number": parsed.number,
        "message_id": parsed.message_id,
        "session_id": parsed.session,
    }


def _follow(parsed: Parsed, api: Api, query: str, found: Answer) -> NoReturn:
    """Print the events, and those that come, until it is interrupted."""
    newest: Answer | None = None
    if not found["is_on"]:
        write_notes([OFF])
    while True:
        own = found.parts("events")
        # The answer has the last events: those behind the newest that is printed are new, all if it is gone.
        known = next((at for at in range(len(own), 0, -1) if own[at - 1] == newest), 0)
        for each in own[known:]:
            write_lines([json_text(each, indent=None)] if parsed.json else _event_lines(each))
        flush()
        newest = own[-1] if own else newest
        wait(POLL_MS)
        found = api.get(f"/story?{query}")


def wait(ms: int) -> None:
    """Let time pass."""
    select.select([], [], [], ms / 1000)


def _lines(found: Answer, wanted: Mapping[str, object]) -> Iterator[str]:
    if not found["events"]:
        given = [f"{name.replace('_', ' ')} '{value}'" for name, value in wanted.items() if value is not None]
        yield f"no event of {', '.join(given) or 'any message'} is kept"
        if not found["is_on"]:
            yield OFF
        elif found["forgotten_count"]:
            yield f"{found['forgotten_count']} older events are forgotten"
    ids: dict[tuple[str, int | None], str | None] = {}
    for each in found.parts("events"):
        place = (each.text("entity"), each.number_or_none("sequence_number"))
        ids[place] = each.text_or_none("message_id") or ids.get(place)  # an arrival has it; it holds for what follows
        yield from _event_lines(each, ids[place])


def _event_lines(event: Answer, message_id: str | None = None) -> Iterator[str]:
    number = "" if event["sequence_number"] is None else f" #{event['sequence_number']}"
    known = event.text_or_none("message_id") or message_id
    named = "" if known is None else f" ({one_line(known, ID_CHARS)})"
    yield f"{instant(event.number('at'))}  {event['entity']}{number}{named}  {event['text']}"
    for verdict in event.parts("verdicts"):
        yield f"    {verdict['subscription']}: {'takes it' if verdict['takes'] else 'does not take it'}"
        for rule in verdict.parts("rules"):
            if rule["reason"]:
                yield f"        {rule['name']}: {rule['reason']}"
