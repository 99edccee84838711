"""The OpenAPI 3.1 document of the control API, made from the table of endpoints.

Knows how a row becomes an operation. Does not know what the rows say.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from .endpoints import JSON, MEANINGS, ROOT, Endpoint
from .schema import Schema, record, text

ERROR: Final = record(
    "The error.",
    {
        "error": record(
            "The error.",
            {
                "code": text("Error code for programs."),
                "message": text("Error message for people.", chars_max=100_000),
            },
        )
    },
)


def document(endpoints: Iterable[Endpoint], version: str) -> Mapping[str, Any]:
    """The whole document."""
    paths: dict[str, dict[str, Any]] = {}
    for endpoint in endpoints:
        path = ROOT + re.sub(r"\{(\w+):[^}]*\}", r"{\1}", endpoint.path)
        paths.setdefault(path, {})[endpoint.method.lower()] = _operation(endpoint)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "emubus control API",
            "version": version,
            "description": "Inspects and controls a running emubus. Instants are Unix milliseconds.",
        },
        "paths": paths,
        "components": {
            "schemas": {"Error": ERROR},
            "securitySchemes": {
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
            },
        },
        "security": [{}, {"sas": []}, {"basic": []}],
    }


def _operation(endpoint: Endpoint) -> dict[str, Any]:
    name = re.sub(r"\W+", "-", f"{endpoint.method} {endpoint.path}".lower()).strip("-")
    parameters = [
        {"name": name, "in": "path", "required": True, "schema": schema} for name, schema in endpoint.at.items()
    ] + [{"name": name, "in": "query", "required": False, "schema": schema} for name, schema in endpoint.query.items()]
    operation: dict[str, Any] = {
        "operationId": name,
        "summary": endpoint.summary,
        "responses": {
            str(endpoint.status): {"description": "Done.", "content": {endpoint.gives: {"schema": endpoint.result}}},
            **{str(status): _error(status) for status in endpoint.all_errors},
        },
    }
    if parameters:
        operation["parameters"] = parameters
    if endpoint.body is not None:
        operation["requestBody"] = {
            "required": bool(endpoint.body.get("required")),
            "content": {JSON: {"schema": endpoint.body}},
        }
    elif endpoint.takes is not None:
        binary: Schema = {"type": "string", "format": "binary"}
        operation["requestBody"] = {"required": True, "content": {endpoint.takes: {"schema": binary}}}
    return operation


def _error(status: int) -> dict[str, Any]:
    return {
        "description": MEANINGS[status],
        "content": {JSON: {"schema": {"$ref": "#/components/schemas/Error"}}},
    }
