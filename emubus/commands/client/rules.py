"""`emubus rules`: list, add and remove the rules of a subscription."""

from __future__ import annotations

import json
from urllib.parse import quote

from ...exits import EXIT_OK, CommandError
from ...kit.answers import Answer
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options
from .api import connect
from .output import add_json, show, table


def add_rules(parser: Command) -> None:
    parser.argument("subscription", metavar="SUBSCRIPTION", help="topic/name")
    parser.option("--add", metavar="RULE", help="add a rule; without a filter it matches all messages")
    parser.option("--remove", metavar="RULE", help="remove a rule")
    parser.option("--sql", metavar="SQL", help="--add: the filter, such as \"price > 10 AND sys.Label = 'x'\"")
    parser.option(
        "--equal",
        repeats=True,
        metavar="NAME=VALUE",
        help="with --add: a property that must be equal; label, to, session_id, … or your own; may be repeated",
    )
    parser.option("--action", metavar="SQL", help='with --add: the action, such as "SET seen = TRUE"')
    add_json(parser)
    add_server_options(parser)
    parser.run = _rules


_SYSTEM = (
    "content_type",
    "correlation_id",
    "label",
    "message_id",
    "reply_to",
    "reply_to_session_id",
    "session_id",
    "to",
)


def _rules(parsed: Parsed) -> int:
    if parsed.add is not None and parsed.remove is not None:
        raise ConfigError("give --add or --remove, not both")
    if parsed.add is None and (parsed.sql or parsed.equal or parsed.action):
        raise ConfigError("--sql, --equal and --action need --add")
    for flag, text in (("--add", parsed.add), ("--sql", parsed.sql)):
        if text is not None and not text.strip():  # an empty variable of a script would let every message in
            raise ConfigError(f"{flag} is '{text}'; allowed is a non-empty text")
    if parsed.sql and parsed.equal:
        raise ConfigError("a rule has one filter: give --sql or --equal, not both")
    with connect(parsed) as api:
        at = f"{api.entity(parsed.subscription)}/rules"
        if parsed.add is not None:
            answer = api.call("PUT", _rule_at(at, parsed.add), _rule_json(parsed))
            show(parsed, answer, [f"added rule {answer['name']}: {_filter_line(answer.part('filter'))}"])
        elif parsed.remove is not None:
            known = [each.text("name") for each in api.get(at).parts("rules")]
            if parsed.remove.lower() not in {each.lower() for each in known}:
                raise CommandError(f"there is no rule '{parsed.remove}'; there are: {', '.join(known) or 'none'}")
            answer = api.call("DELETE", _rule_at(at, parsed.remove))
            show(parsed, answer, [f"removed rule {answer['name']}"])
        else:
            answer = api.get(at)
            rows = [
                [each["name"], each.part("filter")["kind"], _filter_line(each.part("filter")), each["action"]]
                for each in answer.parts("rules")
            ]
            show(parsed, answer, table(["RULE", "KIND", "FILTER", "ACTION"], rows))
    return EXIT_OK


def _rule_at(at: str, name: str) -> str:
    return f"{at}/{quote(name, safe='')}"


def _rule_json(parsed: Parsed) -> dict[str, object]:
    chosen: dict[str, object] = {"kind": "true"}
    if parsed.sql:
        chosen = {"kind": "sql", "expression": parsed.sql}
    elif parsed.equal:
        properties: dict[str, str] = {}
        chosen = {"kind": "correlation", "properties": properties}
        for each in parsed.equal:
            name, equals, value = each.partition("=")
            if not name or not equals:
                raise ConfigError(f"--equal is '{each}'; allowed is NAME=VALUE")
            if name in _SYSTEM:
                chosen[name] = value
            else:
                properties[name] = value
    return {"filter": chosen, "action": parsed.action}


def _filter_line(own: Answer) -> str:
    """A filter on one line."""
    if own["kind"] == "sql":
        return str(own["expression"])
    if own["kind"] == "correlation":
        given = {
            **{name: own[name] for name in _SYSTEM if name in own},
            **(own.part("properties") if "properties" in own else {}),
        }
        return ", ".join(f"{name} = {json.dumps(value, ensure_ascii=False)}" for name, value in given.items())
    return "every message" if own["kind"] == "true" else "no message"
