"""The JSON Schema of Config.json, made from the tables of `properties`, for editors.

Knows how the type of a property is written in JSON Schema. Editors compare names exactly; the reader takes any case.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from ..broker.keys import Right
from ..broker.model.descriptions import TEXT_TYPE_NAMES, EntityStatus
from ..broker.model.profiles import Profile
from ..broker.model.properties import Value
from ..broker.roles import Role
from .identities import IDENTITIES, PROPERTIES
from .properties import (
    CLIENT,
    CORRELATION_PROPERTIES,
    FILTER_TYPE_SPELLINGS,
    KEYS,
    LOGGING_TYPES,
    QUEUE_PROPERTIES,
    SQL_PROPERTIES,
    SUBSCRIPTION_PROPERTIES,
    TOPIC_PROPERTIES,
    Properties,
)

JsonSchema = dict[str, object]

_DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"
_TEXT: Final[JsonSchema] = {"type": "string"}
_DURATION: Final[JsonSchema] = {"type": "string", "pattern": "^P", "description": "ISO 8601, such as PT1M"}
_TYPES: Final[Mapping[Value, JsonSchema]] = {
    Value.BOOLEAN: {"type": "boolean"},
    Value.COUNT: {"type": "integer"},
    Value.BYTES: {"type": "integer"},
    Value.DURATION: _DURATION,
    Value.LIMIT: _DURATION,
    Value.TEXT: _TEXT,
    Value.TARGET: _TEXT,
    Value.STATUS: {"enum": [each.value for each in EntityStatus]},
}
_CLIENT: Final[JsonSchema] = {
    "type": "object",
    "properties": {"ClientId": _TEXT, "IsDurable": {"const": True}, "IsShared": {"type": "boolean"}},
    "additionalProperties": False,
}
_TYPED: Final[JsonSchema] = {
    "type": "object",
    "properties": {"Type": {"enum": [*TEXT_TYPE_NAMES]}, "Value": _TEXT},
    "required": ["Type", "Value"],
}
_VALUES: Final[JsonSchema] = {
    "type": "object",
    "additionalProperties": {"anyOf": [{"type": ["string", "number", "boolean", "null"]}, _TYPED]},
}


def schema() -> JsonSchema:
    namespace = _object(
        {
            "Name": _TEXT,
            "Queues": _list(_object({"Name": _TEXT, "Properties": _schema_with_keys(QUEUE_PROPERTIES)}, "Name")),
            "Topics": _list(_topic()),
            KEYS: _list(_key()),
            "Profile": {"enum": [*Profile]},
            "Port": {"type": "integer", "minimum": 0, "maximum": 65_535},
            IDENTITIES: _list(_identity()),
        },
        "Name",
    )
    user = _object(
        {
            "Namespaces": {**_list(namespace), "minItems": 1},
            "Logging": _object({"Type": {"enum": [*LOGGING_TYPES]}}),
        },
        "Namespaces",
    )
    root = {**_object({"$schema": _TEXT, "UserConfig": user}, "UserConfig"), "additionalProperties": True}
    return {"$schema": _DIALECT, "title": "Config.json of emubus", **root}


def _topic() -> JsonSchema:
    rule = _object({"Name": _TEXT, "Properties": _rule()}, "Name", "Properties")
    properties = _object({**_properties(SUBSCRIPTION_PROPERTIES), CLIENT: _CLIENT})
    subscription = _object({"Name": _TEXT, "Properties": properties, "Rules": _list(rule)}, "Name")
    return _object(
        {
            "Name": _TEXT,
            "Properties": _schema_with_keys(TOPIC_PROPERTIES),
            "Subscriptions": _list(subscription),
        },
        "Name",
    )


def _rule() -> JsonSchema:
    sql = _object({name: _VALUES if name == "Parameters" else {} for name in SQL_PROPERTIES}, "SqlExpression")
    correlation = _object({**dict.fromkeys(CORRELATION_PROPERTIES, _TEXT), "Properties": _VALUES})
    return _object(
        {
            "FilterType": {"enum": [*FILTER_TYPE_SPELLINGS]},
            "SqlFilter": sql,
            "CorrelationFilter": correlation,
            "SelectorFilter": _object({"Selector": _TEXT}, "Selector"),
            "Action": sql,
        },
        "FilterType",
    )


def _key() -> JsonSchema:
    rights = {"type": "array", "items": {"enum": [each.value for each in Right]}, "minItems": 1}
    return _object(
        {"KeyName": _TEXT, "Rights": rights, "PrimaryKey": _TEXT, "SecondaryKey": _TEXT},
        "KeyName",
        "Rights",
        "PrimaryKey",
    )


def _identity() -> JsonSchema:
    role = _object({"Role": {"enum": [each.value for each in Role]}, "Entity": _TEXT}, "Role")
    texts = dict.fromkeys((each for each in PROPERTIES if each != "Roles"), _TEXT)
    return _object({**texts, "Roles": _list(role)}, "ClientId")


def _schema_with_keys(table: Properties) -> JsonSchema:
    return _object({**_properties(table), KEYS: _list(_key())})


def _properties(table: Properties) -> dict[str, JsonSchema]:
    return {name: _TYPES[row.value] for name, row in table.items()}


def _list(items: JsonSchema) -> JsonSchema:
    return {"type": "array", "items": items}


def _object(properties: Mapping[str, object], *required: str) -> JsonSchema:
    found: JsonSchema = {"type": "object", "properties": properties, "additionalProperties": False}
    return {**found, "required": [*required]} if required else found
