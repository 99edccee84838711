"""`emubus find` and `refusals`: messages of the whole namespace that match, and what clients were refused lately.

A search reads the lines that `export` writes, entity by entity, until it has as many as are asked for.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import urlencode

from ...exits import EXIT_FAILED, EXIT_OK
from ...kit.answers import Answer, parse_answer
from ...options import ConfigError
from ...terminal import one_line
from ..declaring import Command, Parsed
from .address import add_server_options, text_of
from .api import connect, entity_at
from .output import add_json, count_of, instant, show, table

JSON_LINES: Final = "application/jsonl"
LINE_BYTES_MAX: Final = 200 << 20
"""More than any message takes as JSON; an endless line is none."""
TEXT_CHARS: Final = 60
WHERE: Final = ("active", "dead-letter")


def matching(parsed: Parsed, chosen: Mapping[str, str], path: str, sub_queue: str, count: int) -> Iterator[Answer]:
    """The first messages of a queue or subscription that a filter of the control API means, as lines.

    On a connection of its own, which ends with the last that is wanted.
    """
    query = urlencode({"sub_queue": sub_queue, **chosen})
    given, rest = 0, b""
    with connect(parsed) as api:
        for piece in api.stream(f"{entity_at(path)}/messages/lines?{query}", JSON_LINES):
            *lines, rest = (rest + piece).split(b"\n")
            for line in filter(None, lines):
                yield parse_answer(line)
                given += 1
                if given == count:
                    return
            if len(rest) > LINE_BYTES_MAX:
                break
    if rest:
        yield parse_answer(rest)


def add_find(parser: Command) -> None:
    parser.argument(
        "text", nargs="?", metavar="TEXT", convert=text_of, help="in any text: body, properties, ids; numbers: --where"
    )
    parser.option("--where", metavar="SQL", help="those for which an expression as in a rule is true")
    parser.option("--in", name="within", metavar="TEXT", default="", help="only entities with this in their path")
    parser.option("--count", convert=count_of, default=50, metavar="N", help="at most N messages (50)")
    add_json(parser)
    add_server_options(parser)
    parser.run = _find


def _find(parsed: Parsed) -> int:
    if parsed.text is None and parsed.where is None:
        raise ConfigError("say what to look for: TEXT, --where SQL, or both")
    given = {"text": parsed.text, "where": parsed.where}
    chosen = {name: value for name, value in given.items() if value is not None}
    found: list[dict[str, object]] = []
    with connect(parsed) as api:
        entities = [each for each in api.entities() if parsed.within.lower() in each.text("path").lower()]
    for each in entities:
        for sub_queue in WHERE if each["kind"] != "topic" else ():
            left = parsed.count - len(found)
            if not left or (not each.part("messages").number(sub_queue) and sub_queue != "active"):
                continue
            own = matching(parsed, chosen, each.text("path"), sub_queue, left)
            found += ({"entity": each["path"], "sub_queue": sub_queue, **line} for line in own)
    show(parsed, {"messages": found}, table(_HEADERS, map(_row, found)))
    return EXIT_OK if found else EXIT_FAILED


_HEADERS: Final = ("ENTITY", "IN", "NUMBER", "ENQUEUED", "MESSAGE ID", "SUBJECT", "BODY")


def _row(found: dict[str, object]) -> list[object]:
    line = Answer(found)
    message = line.part("message")
    properties = message.part("properties") if "properties" in message else Answer()
    body = message.part("body")
    text = next((str(body[name]) for name in ("text", "base64", "json") if body.get(name) is not None), "")
    return [
        *(line["entity"], line["sub_queue"], line["sequence_number"], instant(line.number_or_none("enqueued_at"))),
        *(properties.get("message_id"), properties.get("subject"), one_line(text, TEXT_CHARS)),
    ]


def add_refusals(parser: Command) -> None:
    parser.argument("entity", nargs="?", metavar="ENTITY", help="only of this entity, also of one that is not there")
    parser.option("--count", convert=count_of, metavar="N", help="at most N, the last ones")
    add_json(parser)
    add_server_options(parser)
    parser.run = _refusals


def _refusals(parsed: Parsed) -> int:
    wanted = {"entity": parsed.entity, "count": parsed.count}
    query = urlencode({name: value for name, value in wanted.items() if value is not None})
    with connect(parsed) as api:
        found = api.get(f"/refusals{'?' if query else ''}{query}")
    lines: list[str] = []
    for each in found.parts("refusals"):
        times = "" if each.number("count") == 1 else f" ({each['count']} times)"
        lines.append(f"{instant(each.number('at'))}  {each['entity'] or '-'}  {each['code']}{times}  {each['client']}")
        lines.append(f"    {each['reason']}")
        remedy = each.text_or_none("remedy")
        lines += [f"    remedy: {remedy}"] if remedy else []
    show(parsed, found, lines or ["nobody was refused anything lately"])
    return EXIT_OK
