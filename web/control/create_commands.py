"""The commands that create the entities in a Config.json: `emubus create`, `emubus rules`.

What the command line can't say is a comment: some rules, and the subscriptions of JMS. Entities are made before
anything forwards to them. Pure.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Mapping
from typing import Final

from ...broker.model.properties import CORRELATION_NAMES, TARGET_NAMES
from ..json_object import JsonObject

_FIELDS: Final = {name: field for field, name in CORRELATION_NAMES.items()}


def commands(config: Mapping[str, object]) -> list[str]:
    """The lines of a script for a shell."""
    (namespace,) = JsonObject(config).object_of("UserConfig").objects_of("Namespaces")
    lines: list[str] = []
    later: list[str] = []
    for queue in namespace.objects_of("Queues"):
        name, properties = queue.one("Name", str), queue.object_of("Properties")
        lines.append(_create("queue", name, properties))
        later += _forwarding(name, properties)
    for topic in namespace.objects_of("Topics"):
        lines.append(_create("topic", topic.one("Name", str), topic.object_of("Properties")))
        for subscription in topic.objects_of("Subscriptions"):
            path, properties = f"{topic['Name']}/{subscription['Name']}", subscription.object_of("Properties")
            if "ClientAffineProperties" in properties:
                lines.append(f"# subscription {path!r} is one of JMS: take it from the Config.json")
                continue
            lines.append(_create("subscription", path, properties))
            later += _forwarding(path, properties)
            if "Rules" in subscription:
                lines.append(shlex.join(["emubus", "rules", path, "--remove", "$Default"]))
                lines += (_rule(path, rule) for rule in subscription.objects_of("Rules"))
    return [f"{line}\n" for line in [*lines, *later]]


def _create(kind: str, path: str, properties: Mapping[str, object]) -> str:
    given = {name: value for name, value in properties.items() if name not in (*TARGET_NAMES, "AuthorizationRules")}
    return shlex.join(["emubus", "create", kind, path, *_set(given)])


def _forwarding(path: str, properties: Mapping[str, object]) -> Iterator[str]:
    given = {name: properties[name] for name in TARGET_NAMES if properties.get(name) is not None}
    if given:
        yield shlex.join(["emubus", "update", path, *_set(given)])


def _set(properties: Mapping[str, object]) -> Iterator[str]:
    for name, value in properties.items():
        yield "--set"
        yield f"{name}={str(value).lower() if isinstance(value, bool) else value}"


def _rule(path: str, rule: JsonObject) -> str:
    name, given = rule.one("Name", str), rule.object_of("Properties")
    words = ["emubus", "rules", path, "--add", name]
    correlation, sql, action = (given.object_of(each) for each in ("CorrelationFilter", "SqlFilter", "Action"))
    values = correlation.object_of("Properties")
    if any("Parameters" in each for each in (sql, action)) or any(
        not isinstance(each, str) for each in values.values()
    ):
        return f"# rule {name!r} of {path!r} has typed values: take it from the Config.json"
    if "CorrelationFilter" in given:
        texts = {_FIELDS[each]: text for each, text in correlation.items() if each in _FIELDS} | dict(values)
        words += [word for each, text in texts.items() for word in ("--equal", f"{each}={text}")]
    elif "SqlFilter" in given:
        words += ["--sql", sql.one("SqlExpression", str)]
    elif given["FilterType"] == "False":
        words += ["--sql", "1=0"]
    return shlex.join([*words, "--action", action.one("SqlExpression", str)] if "Action" in given else words)
