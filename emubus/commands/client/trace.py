"""`emubus trace`: what happened to a message, from its sending to its end, and why no subscription took it."""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from ...exits import EXIT_FAILED, EXIT_OK
from ...kit.answers import Answer
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, instant, show


def add_trace(parser: Command) -> None:
    parser.argument("message_id", metavar="MESSAGE-ID", nargs="?", help="the id of the message")
    parser.option("--entity", metavar="ENTITY", help="path of an entity that the message was in")
    parser.option("--number", metavar="N", convert=int, help="its sequence number there")
    parser.option("--session", metavar="ID", help="its session: messages and locks of all messages in it")
    parser.option("--top", metavar="N", convert=int, default=200, help="at most so many events (200)")
    parser.switch("--on", help="keep events of messages from now on")
    parser.switch("--off", help="keep no more events")
    add_json(parser)
    add_server_options(parser)
    parser.run = _trace


def _trace(parsed: Parsed) -> int:
    if parsed.on and parsed.off:
        raise ConfigError("--on and --off exclude each other: give one of them")
    with connect(parsed) as api:
        if parsed.on or parsed.off:
            state = api.call("PUT", "/story", {"is_on": parsed.on})
            show(parsed, state, [f"events of messages are {'kept from now on' if parsed.on else 'no more kept'}"])
            return EXIT_OK
        wanted = {
            "entity": parsed.entity,
            "sequence_number": parsed.number,
            "message_id": parsed.message_id,
            "session_id": parsed.session,
            "top": parsed.top,
        }
        query = urlencode({name: value for name, value in wanted.items() if value is not None})
        found = api.get(f"/story?{query}")
    show(parsed, found, _lines(found))
    return EXIT_OK if found["events"] else EXIT_FAILED


def _lines(found: Answer) -> Iterator[str]:
    if not found["events"]:
        yield "no event of such a message is kept"
        if not found["is_on"]:
            yield "events are not kept at present: `emubus trace --on`, or `emubus serve` without --no-story"
        elif found["forgotten_count"]:
            yield f"{found['forgotten_count']} older events are forgotten"
    for each in found.parts("events"):
        number = "" if each["sequence_number"] is None else f" #{each['sequence_number']}"
        yield f"{instant(each.number('at'))}  {each['entity']}{number}  {each['text']}"
        for verdict in each.parts("verdicts"):
            yield f"    {verdict['subscription']}: {'takes it' if verdict['takes'] else 'does not take it'}"
            for rule in verdict.parts("rules"):
                if rule["reason"]:
                    yield f"        {rule['name']}: {rule['reason']}"
