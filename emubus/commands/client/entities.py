"""`emubus ls`, `show`, `create`, `update`, `delete`.

Knows the names of properties as Config.json has them. Does not know which values a profile allows; the server does.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ...broker.model.catalog import FIXED_FIELDS
from ...broker.model.properties import Value
from ...config_file.cursor import ConfigFileError, Cursor, suggestion
from ...config_file.json_text import JsonNode, JsonTextError, parse_json
from ...config_file.properties import (
    QUEUE_PROPERTIES,
    READERS,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    Properties,
)
from ...exits import EXIT_FAILED, EXIT_OK
from ...kit.answers import Answer, AnswerError
from ...options import ConfigError
from ..declaring import Command, Parsed
from .address import add_server_options, text_of
from .api import Refused, connect, entity_at
from .output import add_json, add_yes, confirm, instant, pairs, show, size_text, span_ms, span_text, table

TABLES: Final[Mapping[str, Properties]] = {
    "queue": QUEUE_PROPERTIES,
    "topic": TOPIC_PROPERTIES,
    "subscription": SUBSCRIPTION_PROPERTIES,
}
_DURATIONS: Final = (Value.DURATION, Value.LIMIT)
_STATES: Final = ("active", "scheduled", "deferred", "dead-letter")


def _add_common(parser: Command) -> None:
    add_json(parser)
    add_server_options(parser)


# ---------------------------------------------------------------- ls, show


def add_ls(parser: Command) -> None:
    parser.argument("pattern", nargs="?", default="", metavar="TEXT", help="only entities with this in their path")
    _add_common(parser)
    parser.run = _ls


def _ls(parsed: Parsed) -> int:
    with connect(parsed) as api:
        found = [each for each in api.entities() if parsed.pattern.lower() in each.text("path").lower()]
    rows = [[each["path"], each["kind"], *_counts(each), _notes(each)] for each in found]
    headers = ["PATH", "KIND", *(state.upper() for state in _STATES), "NOTES"]
    show(parsed, {"entities": found}, table(headers, rows))
    return EXIT_OK


def _counts(entity: Answer) -> list[object]:
    if entity["kind"] == "topic":
        return [None, entity.part("messages")["scheduled"], None, None]
    return [entity.part("messages")[state] for state in _STATES]


def _notes(entity: Answer) -> str:
    notes = [] if entity["status"] == "Active" else [entity.text("status")]
    notes += ["partitioned"] if entity["is_partitioned"] else []
    notes += ["sessions"] if entity["requires_session"] else []
    notes += ["a store is out"] if entity["is_limited"] else []
    return ", ".join(notes)


def add_show(parser: Command) -> None:
    parser.argument("entity", metavar="ENTITY", help="path of a queue, topic or subscription (topic/name)")
    _add_common(parser)
    parser.run = _show


def _show(parsed: Parsed) -> int:
    with connect(parsed) as api:
        at = api.entity(parsed.entity)
        entity, properties = api.get(at), api.get(f"{at}/properties").part("properties")
    show(parsed, {**entity, "properties": properties}, _entity_lines(entity, properties))
    return EXIT_OK


def _entity_lines(entity: Answer, properties: Answer) -> Iterable[str]:
    counts = ", ".join(f"{count} {state}" for state, count in entity.part("messages").items() if count) or "none"
    yield from pairs(
        [
            ("Path", entity["path"]),
            ("Kind", entity["kind"]),
            ("Messages", counts),
            ("Size", f"{size_text(entity.number('size_bytes'))} of {size_text(entity.number('size_bytes_max'))}"),
            ("Locked", entity["locked_count"]),
            ("Links", entity["link_count"]),
            ("Last activity", instant(entity.number_or_none("last_activity_at"))),
            *_named_properties(entity.text("kind"), properties),
        ]
    )
    if entity["is_partitioned"]:
        yield ""
        rows = [
            [each["partition_id"], each["store"], each["health"], *_partition(each)]
            for each in entity.parts("partitions")
        ]
        yield from table(["PARTITION", "STORE", "HEALTH", "ACTIVE", "DEAD-LETTER", "LOCKED"], rows)


def _partition(partition: Answer) -> list[object]:
    messages: Mapping[str, object] = partition.part_or_none("messages") or {}
    return [messages.get("active"), messages.get("dead-letter"), partition["locked_count"]]


def _named_properties(kind: str, properties: Answer) -> Iterable[tuple[str, object]]:
    """Properties under the names of Config.json, durations as they can be set here."""
    for name, row in _table_of(kind).items():
        if row.field in properties:
            is_duration = row.value in _DURATIONS
            yield name, span_text(properties.number_or_none(row.field)) if is_duration else properties[row.field]


# ---------------------------------------------------------------- create, update, delete


def add_create(parser: Command) -> None:
    parser.argument("kind", known=[*TABLES], metavar="KIND", help="queue, topic or subscription")
    parser.argument("path", metavar="PATH", convert=text_of, help="its name; of a subscription topic/name")
    parser.switch("--sessions", help="require message sessions")
    parser.switch("--partitioned", help="with several partitions")
    _add_set(parser)
    _add_common(parser)
    parser.run = _create


def _add_set(parser: Command) -> None:
    parser.option(
        "--set",
        repeats=True,
        metavar="NAME=VALUE",
        help="a property as in Config.json, such as LockDuration=30s; may be repeated",
    )


def _create(parsed: Parsed) -> int:
    properties = properties_of(parsed.kind, parsed.set)
    fields = {row.field for row in TABLES[parsed.kind].values()}
    for flag, field in (("sessions", "requires_session"), ("partitioned", "enable_partitioning")):
        if getattr(parsed, flag) and field not in fields:
            have = [kind for kind, rows in TABLES.items() if any(row.field == field for row in rows.values())]
            raise ConfigError(f"--{flag} is for a {' or a '.join(have)}, not for a {parsed.kind}")
    if parsed.sessions:
        properties["requires_session"] = True
    if parsed.partitioned:
        properties["enable_partitioning"] = True
    path = parsed.path
    if parsed.kind == "subscription" and "/subscriptions/" not in path.lower():
        topic, slash, name = path.rpartition("/")
        if not slash:
            raise ConfigError(f"PATH is '{path}'; the path of a subscription is topic/name")
        path = f"{topic}/Subscriptions/{name}"
    with connect(parsed) as api:
        try:
            answer = api.call("PUT", entity_at(path), {"kind": parsed.kind, "properties": properties})
        except Refused as refused:
            if refused.status == 404 and parsed.kind == "subscription":
                topic = path[: path.lower().rindex("/subscriptions/")]
                kind = api.get(api.entity(topic)).text("kind")  # refused with the nearest name
                if kind != "topic":
                    raise ConfigError(f"'{topic}' is a {kind}; a subscription is created below a topic") from None
            remedy = f"`emubus update {parsed.path} --set NAME=VALUE` changes it" if refused.status == 409 else ""
            raise _with_remedy(refused, parsed.kind, properties, remedy) from None
    show(parsed, answer, [f"created {parsed.kind} {answer['path']}"])
    return EXIT_OK


def _table_of(kind: str) -> Properties:
    """The properties of a kind. AnswerError: the server names another one."""
    if kind not in TABLES:
        raise AnswerError(f"kind is {kind!r}; it must be {', '.join(TABLES)}")
    return TABLES[kind]


def properties_of(kind: str, given: Iterable[str]) -> dict[str, object]:
    """The fields that `NAME=VALUE` texts set. ConfigError."""
    known = _table_of(kind)
    proper = {name.lower(): name for name in known}
    found: dict[str, object] = {}
    for each in given:
        written, equals, text = each.partition("=")
        name = proper.get(written.strip().lower())
        if not equals or not written.strip():
            raise ConfigError(f"--set is '{each}'; allowed is NAME=VALUE")
        if name is None:
            remedy = suggestion(written, known) or f"; it has {', '.join(known)}"
            raise ConfigError(f"a {kind} has no property '{written}'{remedy}")
        row = known[name]
        try:
            found[row.field] = READERS[row.value](Cursor(_node(name, row.value, text), name, "--set"))
        except ConfigFileError as error:
            raise ConfigError(error.problems[0].text) from error
    return found


def _node(name: str, kind: Value, text: str) -> JsonNode:
    """The JSON value that a text on the command line means: a number, true, false or null, else itself. ConfigError."""
    if kind in _DURATIONS:
        if text.lower() == "never":
            from ...codec.durations import UNLIMITED_TEXT

            return JsonNode(UNLIMITED_TEXT, 0, 0)
        try:
            return JsonNode(f"PT{span_ms(text) / 1000:.3f}S", 0, 0)
        except ValueError:
            raise ConfigError(f"{name} is '{text}'; allowed is 500ms, 30s, 5m, 1h, 2d, PT30S or never") from None
    if kind in (Value.TEXT, Value.TARGET, Value.STATUS):
        return JsonNode(text, 0, 0)
    try:
        return parse_json(text)
    except JsonTextError:
        return JsonNode(text, 0, 0)


def _with_remedy(refused: Refused, kind: str, asked: Mapping[str, object], remedy: str = "") -> Refused:
    """The refusal of properties, which the server words as the service does, with what to do on the command line."""
    text = str(refused)
    for name, row in TABLES[kind].items():
        text = text.replace(f"{row.field.replace('_', ' ')} is ", f"{name} is ").replace(f"'{row.field}'", name)
    refused = Refused(refused.status, text)
    spans = {row.field for row in TABLES[kind].values() if row.value in _DURATIONS}
    if not remedy and spans & asked.keys():
        remedy = "a span is written as 500ms, 30s, 5m, 1h, 2d or never"
    return Refused(refused.status, f"{str(refused).removesuffix('.')}; {remedy}") if remedy else refused


def add_update(parser: Command) -> None:
    parser.argument("entity", metavar="ENTITY", help="path of a queue, topic or subscription (topic/name)")
    _add_set(parser)
    _add_common(parser)
    parser.run = _update


def _update(parsed: Parsed) -> int:
    if not parsed.set:
        raise ConfigError("nothing to change: give --set NAME=VALUE")
    with connect(parsed) as api:
        at = api.entity(parsed.entity)
        kind = api.get(at).text("kind")
        asked = properties_of(kind, parsed.set)
        try:
            answer = api.call("PATCH", f"{at}/properties", asked)
        except Refused as refused:
            remedy = f"such a property is chosen at creation: `emubus delete {parsed.entity}`, and create it anew"
            raise _with_remedy(refused, kind, asked, remedy if FIXED_FIELDS.keys() & asked.keys() else "") from None
    show(parsed, answer, [f"updated {kind} {answer['path']}"])
    return EXIT_OK


def add_delete(parser: Command) -> None:
    parser.argument("entity", nargs="+", metavar="ENTITY", help="paths of queues, topics or subscriptions")
    add_yes(parser)
    _add_common(parser)
    parser.run = _delete


def _delete(parsed: Parsed) -> int:
    confirm(
        parsed, f"Delete {', '.join(parsed.entity)} with everything in {'it' if len(parsed.entity) == 1 else 'them'}"
    )
    deleted: list[str] = []
    failed: Refused | None = None
    with connect(parsed) as api:
        for path in parsed.entity:
            try:
                deleted.append(api.call("DELETE", api.entity(path)).text("path"))
            except Refused as refused:
                failed = failed or refused
    show(parsed, {"deleted": deleted}, [f"deleted {path}" for path in deleted])
    if failed is not None:
        raise failed
    return EXIT_OK if deleted else EXIT_FAILED
