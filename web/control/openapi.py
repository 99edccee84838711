"""The OpenAPI 3.1 document of the control API, made from the tables of endpoints.

Knows how a row becomes an operation, and that schemas with names are written once. Does not know what the rows say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from .endpoints import JSON, MEANINGS, PROBLEM, ROOT, Endpoint
from .schema import NAME, Schema, integer, named, record, text

PROBLEM_SCHEMA: Final = named(
    "Problem",
    record(
        "An error (RFC 9457).",
        {
            "type": text("about:blank: the status says what kind of problem it is."),
            "title": text("The name of the status."),
            "status": integer("The status.", 400, 599),
            "detail": text("Error message for people.", chars_max=100_000),
            "error": named(
                "Error",
                record(
                    "The same, as clients before RFC 9457 read it.",
                    {
                        "code": text("Error code for programs."),
                        "message": text("Error message for people.", chars_max=100_000),
                    },
                ),
            ),
        },
    ),
)
SECURITY_SCHEMES: Final[Mapping[str, object]] = {
    "sas": {
        "type": "apiKey",
        "in": "header",
        "name": "Authorization",
        "description": "With --auth sas: a shared access signature with the Manage right on the namespace.",
    },
    "basic": {
        "type": "http",
        "scheme": "basic",
        "description": "With --auth sas: a key with the Manage right on the namespace, and its name.",
    },
}
_LICENSE: Final = {"name": "Apache-2.0", "identifier": "Apache-2.0"}
Tables = Mapping[tuple[str, str], Iterable[Endpoint]]
"""The endpoints by their tag: its name, and what it is about."""


def document(tables: Tables, version: str) -> Mapping[str, object]:
    schemas: dict[str, Schema] = {}
    paths: dict[str, dict[str, object]] = {}
    for (tag, _), endpoints in tables.items():
        for endpoint in endpoints:
            path = ROOT + re.sub(r"\{(\w+):[^}]*\}", r"{\1}", endpoint.path)
            operation = {"tags": [tag], **_operation(endpoint, schemas)}
            paths.setdefault(path, {})[endpoint.method.lower()] = operation
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "emubus control API",
            "version": version,
            "description": "Inspects and controls a running emubus. Instants are Unix milliseconds.",
            "license": _LICENSE,
        },
        "servers": [{"url": "/", "description": "The server that has this document."}],
        "tags": [{"name": name, "description": about} for name, about in tables],
        "paths": paths,
        "components": {"schemas": dict(sorted(schemas.items())), "securitySchemes": SECURITY_SCHEMES},
        "security": [{}, {"sas": []}, {"basic": []}],
    }


def _operation(endpoint: Endpoint, schemas: dict[str, Schema]) -> dict[str, object]:
    """An operation; the named schemas that it refers to are added to `schemas`."""
    name = endpoint.operation_id
    parameters = [_parameter(each, "path", schema, schemas) for each, schema in endpoint.at.items()]
    parameters += [_parameter(each, "query", schema, schemas) for each, schema in endpoint.query.items()]
    result = _with_references(_of_operation(endpoint.result, f"{name}Result"), schemas)
    answer = {"schema": result} if endpoint.answers is None else {"schema": result, "example": endpoint.answers}
    operation: dict[str, object] = {
        "operationId": name,
        "summary": endpoint.summary,
        "responses": {
            str(endpoint.status): {"description": "Done.", "content": {endpoint.gives: answer}},
            **{str(status): _error(status, schemas) for status in endpoint.all_errors},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        content = {"schema": _with_references(_of_operation(endpoint.body, f"{name}Request"), schemas)}
        operation["requestBody"] = {
            "required": bool(endpoint.body.get("required")),
            "content": {JSON: content if endpoint.example is None else {**content, "example": endpoint.example}},
        }
    elif endpoint.takes is not None:
        reads = _with_references(endpoint.reads, schemas)
        operation["requestBody"] = {"required": True, "content": {endpoint.takes: {"schema": reads}}}
    return operation


def _parameter(name: str, place: str, schema: Schema, schemas: dict[str, Schema]) -> dict[str, object]:
    shown = _with_references(schema, schemas)
    about = {"description": schema["description"]} if "description" in schema else {}
    return {"name": name, "in": place, "required": place == "path", **about, "schema": shown}


def _of_operation(schema: Schema, name: str) -> Schema:
    """An object without a name gets one from its operation."""
    return named(name[0].upper() + name[1:], schema) if NAME not in schema and "properties" in schema else schema


def _error(status: int, schemas: dict[str, Schema]) -> dict[str, object]:
    return {
        "description": MEANINGS[status],
        "content": {PROBLEM: {"schema": _with_references(PROBLEM_SCHEMA, schemas)}},
    }


def _with_references(schema: Schema, schemas: dict[str, Schema]) -> Schema:
    """The schema, with references to those that have names, which are added to `schemas`."""
    own = schema.copy()
    own.pop(NAME, None)
    if "properties" in own:
        own["properties"] = {name: _with_references(each, schemas) for name, each in own["properties"].items()}
    if "items" in own:
        own["items"] = _with_references(own["items"], schemas)
    values = own.get("additionalProperties")
    if isinstance(values, dict):
        own["additionalProperties"] = _with_references(values, schemas)
    if NAME not in schema:
        return own
    own.pop("default", None)  # it stands beside the reference
    kinds = own.get("type")
    if isinstance(kinds, list):
        (own["type"],) = (each for each in kinds if each != "null")
    known = schemas.setdefault(schema[NAME], own)
    if known != own:
        raise ValueError(f"two schemas have the name {schema[NAME]}")
    reference: Schema = {"$ref": f"#/components/schemas/{schema[NAME]}"}
    shown: Schema = {"anyOf": [reference, {"type": "null"}]} if isinstance(kinds, list) else reference
    if "default" in schema:
        shown["default"] = schema["default"]
    return shown
