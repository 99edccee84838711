"""Endpoints that create, change and delete entities and rules, and that export the namespace.

Knows the JSON of properties and rules: the fields of the broker's descriptions. Does not know which values a profile
allows; the broker refuses the others, and the answer names the property and what is allowed.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields
from typing import Final

from ...broker.admin.overview import Overview
from ...broker.model.catalog import Description
from ...broker.model.descriptions import (
    CorrelationFilter,
    EntityKind,
    EntityStatus,
    FalseFilter,
    PropertyValue,
    QueueDescription,
    RuleDescription,
    SqlFilter,
    SubscriptionDescription,
    TopicDescription,
    TrueFilter,
    with_fields,
)
from ...broker.model.profiles import Limits, defaults_of, size_mb_from_client
from ...broker.model.properties import PROPERTIES as TABLE
from ...broker.model.properties import PROPERTIES_OF, Property, Value
from ..config_import import CONFIG_BYTES_MAX, import_config
from ..json_object import JsonObject
from ..json_writer import json_pieces
from .arm_template import arm_template
from .create_commands import commands
from .endpoints import JSON, ControlCall, ControlRefusal, Endpoint, answer_in_pieces, read_body
from .entities import ENTITY_AT, ENTITY_PATH
from .schema import (
    Schema,
    anything,
    array,
    boolean,
    choice,
    default,
    integer,
    mapping,
    named,
    nullable,
    partial_record,
    record,
    scalar,
    text,
)

PLAIN: Final = "text/plain"
MS_MAX: Final = 10_675_199 * 86_400_000
TARGET_CHARS_MAX: Final = 400
_CLASSES: Final[Mapping[str, type[Description]]] = {
    each.kind.value: each for each in (QueueDescription, TopicDescription, SubscriptionDescription)
}
_SUBSCRIPTION_PATH: Final = re.compile(r"(.+)/subscriptions/([^/]+)", re.IGNORECASE)


def _schema(row: Property) -> Schema:
    match row.value:
        case Value.BOOLEAN:
            return boolean(row.about)
        case Value.COUNT:
            return integer(row.about, 1, row.most)
        case Value.BYTES:
            return nullable(integer(row.about, 1, row.most))
        case Value.DURATION:
            return integer(f"{row.about} Milliseconds.", 1, MS_MAX)
        case Value.LIMIT:
            return nullable(integer(f"{row.about} Milliseconds; null: never.", 1, MS_MAX))
        case Value.TEXT:
            return nullable(text(row.about))
        case Value.TARGET:
            return nullable(text(row.about, chars_max=TARGET_CHARS_MAX))
        case Value.STATUS:
            return choice(row.about, EntityStatus)


PROPERTY_FIELDS: Final[Mapping[str, Schema]] = {row.field: _schema(row) for row in TABLE}
PROPERTIES: Final = named("Properties", partial_record("Properties; each kind of entity has its own.", PROPERTY_FIELDS))
DESCRIBED: Final = named(
    "EntityProperties",
    record("An entity's properties.", {"path": text("Path.", chars_max=10_000), "properties": PROPERTIES}),
)
_VALUES: Final = mapping("Values by name.", scalar("A value."))
_TEXTS: Final = tuple(each.name for each in fields(CorrelationFilter) if each.name != "properties")
_FILTER: Final = named(
    "Filter",
    record(
        "A filter. sql has an expression; correlation has texts and properties that must be equal.",
        {
            "kind": choice("Kind of filter.", ["true", "false", "sql", "correlation"]),
            "expression": default(nullable(text("sql: the expression.")), None),
            "parameters": default(_VALUES, {}),
            **{name: default(nullable(text(f"correlation: {name}.")), None) for name in _TEXTS},
            "properties": default(_VALUES, {}),
        },
    ),
)
_NEW_RULE: Final = named(
    "NewRule",
    record(
        "A rule: a filter, and an action on the copy of a message that matches.",
        {
            "filter": default(_FILTER, {"kind": "true"}),
            "action": default(nullable(text("The action in SQL.")), None),
            "action_parameters": default(_VALUES, {}),
        },
    ),
)
RULE: Final = named(
    "Rule",
    record(
        "A rule.",
        {
            "name": text("Its name.", chars_max=1_000),
            "filter": {"type": "object", "description": "kind, and what the kind has.", "additionalProperties": True},
            "action": nullable(text("The action in SQL.", chars_max=1 << 20)),
            "action_parameters": {"type": "object", "description": "Values by name.", "additionalProperties": True},
        },
    ),
)
RULES: Final = named(
    "Rules", record("The rules of a subscription.", {"rules": array("In the order of their creation.", RULE)})
)
IMPORTED_ENTITIES: Final = named(
    "ImportedEntities",
    record(
        "What became of the entities of a file.",
        {
            "created": array("Paths of those that were created.", text("A path.", chars_max=10_000)),
            "existing": array("Paths of those that existed, and stay as they are.", text("A path.", chars_max=10_000)),
            "warnings": array("What the file has and has no effect.", text("File, line and why.", chars_max=100_000)),
            "failures": array(
                "Those that can't be created.",
                named(
                    "FailedEntity",
                    record(
                        "An entity.",
                        {"path": text("Its path.", chars_max=10_000), "message": text("Why.", chars_max=100_000)},
                    ),
                ),
            ),
        },
    ),
)
DELETED: Final = named("DeletedEntity", record("The deleted entity.", {"path": text("Path.", chars_max=10_000)}))
DELETED_RULE: Final = named("DeletedRule", record("The deleted rule.", {"name": text("Its name.", chars_max=1_000)}))
_AT: Final = {"entity": ENTITY_PATH}
_RULE_AT: Final = {**_AT, "rule": text("Name of the rule.", chars_min=1, chars_max=50)}
_RULES_PATH: Final = f"/entities/{ENTITY_AT}/rules"


def described(description: Description) -> dict[str, object]:
    """The properties of an entity, as `PROPERTIES` describes them."""
    found = description.to_json()
    return {row.field: found[row.field] for row in PROPERTIES_OF[type(description)]}


def rule_json(rule: RuleDescription) -> dict[str, object]:
    """A rule, as `RULE` describes it."""
    found = rule.to_json()
    of_kind = {name: value for name, value in found["filter"].items() if value not in (None, {})}
    return {
        "name": rule.name,
        "filter": of_kind,
        "action": rule.action,
        "action_parameters": found["action_parameters"],
    }


def rule_of(name: str, asked: JsonObject) -> RuleDescription:
    """The rule that a request describes. ControlRefusal for an incomplete filter."""
    given = asked.object_of("filter")
    own: SqlFilter | CorrelationFilter | TrueFilter | FalseFilter
    match given["kind"]:
        case "sql":
            expression = given.optional("expression", str)
            if expression is None:
                raise ControlRefusal(409, "A filter of kind sql must have an expression.")
            own = SqlFilter(expression, _values(given.object_of("parameters")))
        case "correlation":
            texts = {each: given.optional(each, str) for each in _TEXTS}
            own = CorrelationFilter(**texts, properties=_values(given.object_of("properties")))
        case "true":
            own = TrueFilter()
        case _:
            own = FalseFilter()
    parameters = _values(asked.object_of("action_parameters"))
    return RuleDescription(name, own, asked.optional("action", str), action_parameters=parameters)


def _values(given: JsonObject) -> dict[str, PropertyValue]:
    return {name: value for name, value in given.items() if isinstance(value, str | int | float | None)}


def _known_properties(kind: type[Description], given: JsonObject) -> dict[str, object]:
    """The given properties; ControlRefusal for one that the kind does not have."""
    known = {each.name for each in fields(kind)}
    for name in given:
        if name not in known:
            raise ControlRefusal(409, f"A {kind.kind} has no property '{name}'.")
    values = dict(given)
    if "status" in given:
        values["status"] = EntityStatus(given.one("status", str))
    return values


def _exchange_size(values: dict[str, object], *, partitioned: bool, limits: Limits, known_mb: int | None) -> None:
    """Exchange the size that a client has given for that of a partition."""
    size_mb = values.get("max_size_mb")
    if isinstance(size_mb, int):
        values["max_size_mb"] = size_mb_from_client(size_mb, partitioned, limits, known_mb)


async def show_properties(call: ControlCall) -> object:
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    return {"path": entity.path, "properties": described(entity.description)}


async def create_entity(call: ControlCall) -> object:
    """Create an entity; properties that are not given come from the profile."""
    broker, body, path = call.services.broker, call.body, call.path.one("entity", str)
    kind = _CLASSES[body.one("kind", str)]
    values: dict[str, object] = {
        **defaults_of(kind, broker.limits),
        **_known_properties(kind, body.object_of("properties")),
    }
    partitioned = bool(values.get("enable_partitioning"))
    _exchange_size(values, partitioned=partitioned, limits=broker.limits, known_mb=None)
    if kind is SubscriptionDescription:
        parts = _SUBSCRIPTION_PATH.fullmatch(path)
        if parts is None:
            raise ControlRefusal(409, "The path of a subscription is topic/Subscriptions/name.")
        values |= {"topic_name": parts[1], "name": parts[2]}
    elif _SUBSCRIPTION_PATH.fullmatch(path) is not None:
        raise ControlRefusal(409, f"'{path}' is the path of a subscription, not of a {kind.kind}.")
    else:
        values["name"] = path
    entity = broker.administration.create(kind.from_json(values), targets_exist=True)
    return {"path": entity.path, "properties": described(entity.description)}


async def change_properties(call: ControlCall) -> object:
    broker = call.services.broker
    entity = Overview(broker.namespace).entity(call.path.one("entity", str))
    before = entity.description
    values = _known_properties(type(before), call.body)
    if not isinstance(before, SubscriptionDescription):
        partitioned, known_mb = before.enable_partitioning, before.max_size_mb
        _exchange_size(values, partitioned=partitioned, limits=broker.limits, known_mb=known_mb)
    entity = broker.administration.update(with_fields(before, values))
    return {"path": entity.path, "properties": described(entity.description)}


async def delete_entity(call: ControlCall) -> object:
    broker = call.services.broker
    path = Overview(broker.namespace).entity(call.path.one("entity", str)).path
    broker.administration.delete(path)
    return {"path": path}


async def list_rules(call: ControlCall) -> object:
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    return {"rules": [rule_json(each) for each in call.services.broker.administration.rules(entity.path)]}


async def put_rule(call: ControlCall) -> object:
    rule = rule_of(call.path.one("rule", str), call.body)
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    call.services.broker.administration.add_rule(entity.path, rule)
    return rule_json(rule)


async def delete_rule(call: ControlCall) -> object:
    entity = Overview(call.services.broker.namespace).entity(call.path.one("entity", str))
    name = call.path.one("rule", str)
    call.services.broker.administration.remove_rule(entity.path, name)
    return {"name": name}


async def export_config(call: ControlCall) -> object:
    make = call.services.config_json()
    return await answer_in_pieces(call.request, lambda: json_pieces(make()))


async def export_arm(call: ControlCall) -> object:
    make = call.services.config_json()
    return await answer_in_pieces(call.request, lambda: json_pieces(arm_template(make())))


async def export_commands(call: ControlCall) -> object:
    make = call.services.config_json()
    return await answer_in_pieces(call.request, lambda: map(str.encode, commands(make())), f"{PLAIN}; charset=utf-8")


async def post_config(call: ControlCall) -> object:
    """Create what a Config.json has and the namespace lacks."""
    found = await import_config(call.services, bytes(await read_body(call.request, CONFIG_BYTES_MAX)), call.aside)
    failures = [{"path": path, "message": reason} for path, reason in found.failures]
    return {
        "created": found.created,
        "existing": found.existing,
        "failures": failures,
        "warnings": found.warnings,
    }


ENDPOINTS: Final = (
    Endpoint("GET", _RULES_PATH, "The rules of a subscription", list_rules, RULES, at=_AT, errors=(409,)),
    Endpoint(
        "PUT",
        f"{_RULES_PATH}/{{rule}}",
        "Add a rule to a subscription",
        put_rule,
        RULE,
        at=_RULE_AT,
        body=_NEW_RULE,
        status=201,
        errors=(409,),
        example={"filter": {"kind": "sql", "expression": "colour = 'red'"}, "action": "SET seen = TRUE"},
    ),
    Endpoint(
        "DELETE",
        f"{_RULES_PATH}/{{rule}}",
        "Remove a rule of a subscription",
        delete_rule,
        DELETED_RULE,
        at=_RULE_AT,
        errors=(409,),
    ),
    Endpoint(
        "GET",
        f"/entities/{ENTITY_AT}/properties",
        "The properties of an entity",
        show_properties,
        DESCRIBED,
        at=_AT,
    ),
    Endpoint(
        "PATCH",
        f"/entities/{ENTITY_AT}/properties",
        "Change properties of an entity; the others stay",
        change_properties,
        DESCRIBED,
        at=_AT,
        body=PROPERTIES,
        errors=(409,),
        example={"max_delivery_count": 5, "forward_to": None},
    ),
    Endpoint(
        "PUT",
        f"/entities/{ENTITY_AT}",
        "Create a queue, topic or subscription; properties that are not given come from the profile",
        create_entity,
        DESCRIBED,
        at=_AT,
        body=record(
            "Its kind and properties.",
            {"kind": choice("Kind of entity.", EntityKind), "properties": default(PROPERTIES, {})},
        ),
        status=201,
        errors=(409,),
        example={"kind": "queue", "properties": {"lock_duration_ms": 30_000, "requires_session": True}},
    ),
    Endpoint(
        "DELETE",
        f"/entities/{ENTITY_AT}",
        "Delete an entity with everything in it",
        delete_entity,
        DELETED,
        at=_AT,
    ),
    Endpoint(
        "POST",
        "/config",
        "Create the entities of a Config.json that are missing; those that exist stay as they are",
        post_config,
        IMPORTED_ENTITIES,
        takes=JSON,
        reads=named("ConfigJson", mapping("A Config.json; comments are allowed.", anything("UserConfig."))),
    ),
    Endpoint("GET", "/config", "The running namespace as a Config.json", export_config, anything("A Config.json.")),
    Endpoint(
        "GET",
        "/config/arm",
        "The entities of the running namespace as an ARM template, without keys",
        export_arm,
        anything("A template."),
    ),
    Endpoint(
        "GET",
        "/config/commands",
        "The entities of the running namespace as commands of emubus, without keys",
        export_commands,
        {"type": "string", "description": "A script for a shell."},
        gives=PLAIN,
    ),
)
