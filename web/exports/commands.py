"""The commands that create the entities in a Config.json: `emubus create`, `emubus rules`.

A rule that the command line can't say is a comment. Entities are made before anything forwards to them. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Any, Final

_TARGETS: Final = ("ForwardTo", "ForwardDeadLetteredMessagesTo")
_FIELDS: Final[Mapping[str, str]] = {
    "ContentType": "content_type",
    "CorrelationId": "correlation_id",
    "Label": "label",
    "MessageId": "message_id",
    "ReplyTo": "reply_to",
    "ReplyToSessionId": "reply_to_session_id",
    "SessionId": "session_id",
    "To": "to",
}


def commands(config: Mapping[str, Any]) -> str:
    """A script for a shell."""
    (namespace,) = config["UserConfig"]["Namespaces"]
    lines: list[str] = []
    later: list[str] = []
    for queue in namespace["Queues"]:
        lines.append(_create("queue", queue["Name"], queue["Properties"]))
        later += _forwarding(queue["Name"], queue["Properties"])
    for topic in namespace["Topics"]:
        lines.append(_create("topic", topic["Name"], topic["Properties"]))
        for subscription in topic["Subscriptions"]:
            path = f"{topic['Name']}/{subscription['Name']}"
            lines.append(_create("subscription", path, subscription["Properties"]))
            later += _forwarding(path, subscription["Properties"])
            if "Rules" in subscription:
                lines.append(shlex.join(["emubus", "rules", path, "--remove", "$Default"]))
                lines += (_rule(path, rule["Name"], rule["Properties"]) for rule in subscription["Rules"])
    return "".join(f"{line}\n" for line in [*lines, *later])


def _create(kind: str, path: str, properties: Mapping[str, Any]) -> str:
    given = {name: value for name, value in properties.items() if name not in (*_TARGETS, "AuthorizationRules")}
    return shlex.join(["emubus", "create", kind, path, *_set(given)])


def _forwarding(path: str, properties: Mapping[str, Any]) -> Iterator[str]:
    given = {name: properties[name] for name in _TARGETS if properties.get(name) is not None}
    if given:
        yield shlex.join(["emubus", "update", path, *_set(given)])


def _set(properties: Mapping[str, Any]) -> Iterator[str]:
    for name, value in properties.items():
        yield "--set"
        yield f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def _rule(path: str, name: str, given: Mapping[str, Any]) -> str:
    words = ["emubus", "rules", path, "--add", name]
    correlation, sql = given.get("CorrelationFilter"), given.get("SqlFilter")
    action = given.get("Action")
    values = {} if correlation is None else correlation.get("Properties", {})
    if any("Parameters" in each for each in (sql, action) if each is not None) or any(
        not isinstance(each, str) for each in values.values()
    ):
        return f"# rule {name!r} of {path!r} has typed values: take it from the Config.json"
    if correlation is not None:
        texts = {_FIELDS[each]: text for each, text in correlation.items() if each in _FIELDS} | dict(values)
        words += [word for each, text in texts.items() for word in ("--equal", f"{each}={text}")]
    elif sql is not None:
        words += ["--sql", sql["SqlExpression"]]
    elif given["FilterType"] == "False":
        words += ["--sql", "1=0"]
    return shlex.join(words if action is None else [*words, "--action", action["SqlExpression"]])
