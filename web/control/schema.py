"""JSON Schemas of the control API: one value both checks requests and documents them.

Knows the part of JSON Schema that the API needs: how to write a schema, and how to read a value by it. Schemas go into
the OpenAPI document unchanged. They are plain dicts and never change. Does not know any endpoint.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from functools import lru_cache
from typing import Final, TypedDict

from ...broker.amounts import Span

Schema = TypedDict(
    "Schema",
    {
        "type": str | list[str],
        "title": str,
        "description": str,
        "format": str,
        "enum": list[str | None],
        "minLength": int,
        "maxLength": int,
        "pattern": str,
        "minimum": float,
        "exclusiveMinimum": float,
        "maximum": float,
        "items": "Schema",
        "minItems": int,
        "maxItems": int,
        "uniqueItems": bool,
        "properties": dict[str, "Schema"],
        "additionalProperties": "bool | Schema",
        "required": list[str],
        "default": object,
        "deprecated": bool,
        "anyOf": list["Schema"],
        "$ref": str,
        "x-partial": bool,
    },
    total=False,
)
"""The keywords of JSON Schema that the API uses."""

TEXT_CHARS_MAX: Final = 1_024
DURATION_MS_MAX: Final = Span.MOST
PARTIAL: Final = "x-partial"
"""Marks an object whose absent fields stay absent."""

NAME: Final = "title"
"""The key of a schema's name."""


class Invalid(Exception):  # noqa: N818 - it says what the value is
    """A value does not match its schema; the text names the field, the value and what is allowed."""


# ---- writing schemas


def text(about: str, *, chars_min: int = 0, chars_max: int = TEXT_CHARS_MAX, pattern: str | None = None) -> Schema:
    """A string; `pattern` must match all of it."""
    schema: Schema = {"type": "string", "description": about, "maxLength": chars_max}
    if chars_min:
        schema["minLength"] = chars_min
    if pattern is not None:
        schema["pattern"] = f"^{pattern}$"
    return schema


def integer(about: str, minimum: int, maximum: int) -> Schema:
    """A whole number from `minimum` to `maximum`."""
    return {"type": "integer", "description": about, "minimum": minimum, "maximum": maximum}


def number(about: str, above: float, maximum: float) -> Schema:
    """A number greater than `above` and at most `maximum`."""
    return {"type": "number", "description": about, "exclusiveMinimum": above, "maximum": maximum}


def boolean(about: str) -> Schema:
    """True or false."""
    return {"type": "boolean", "description": about}


def choice(about: str, values: Iterable[str]) -> Schema:
    """One of several texts."""
    return {"type": "string", "description": about, "enum": [str(value) for value in values]}


def array(about: str, items: Schema, *, count_min: int = 0, count_max: int | None = None) -> Schema:
    """A list; with `count_max` its items must differ, too."""
    schema: Schema = {"type": "array", "description": about, "items": items}
    if count_min:
        schema["minItems"] = count_min
    if count_max is not None:
        schema["maxItems"], schema["uniqueItems"] = count_max, True
    return schema


def record(about: str, fields: Mapping[str, Schema], *, optional: Collection[str] = ()) -> Schema:
    """An object with these fields and no others; `optional` ones and those with a default may be absent."""
    required = [name for name, schema in fields.items() if name not in optional and "default" not in schema]
    schema: Schema = {
        "type": "object",
        "description": about,
        "properties": dict(fields),
        "additionalProperties": False,
    }
    if required:
        schema["required"] = required
    return schema


def named(name: str, schema: Schema) -> Schema:
    """The schema under a name of its own in the document, where others refer to it."""
    return {**schema, NAME: name}


def partial_record(about: str, fields: Mapping[str, Schema]) -> Schema:
    """An object with any of these fields; an absent field stays absent, so that null can mean something else."""
    return {**record(about, fields, optional=fields), PARTIAL: True}


def mapping(about: str, values: Schema) -> Schema:
    """An object with names chosen by the user."""
    return {"type": "object", "description": about, "additionalProperties": values}


def scalar(about: str, *, chars_max: int = TEXT_CHARS_MAX) -> Schema:
    """A string, a number, true or false, or null."""
    return {"type": ["string", "number", "boolean", "null"], "description": about, "maxLength": chars_max}


def counts(about: str, names: Iterable[str]) -> Schema:
    """An object with a count for each name."""
    return record(about, {name: {"type": "integer", "minimum": 0} for name in names})


def anything(about: str) -> Schema:
    """Any JSON."""
    return {"description": about}


def nullable(schema: Schema) -> Schema:
    changed: Schema = {**schema, "type": [*_kinds(schema), "null"]}
    if "enum" in schema:
        changed["enum"] = [*schema["enum"], None]
    return changed


def default(schema: Schema, value: object) -> Schema:
    """The schema, with the value that stands for an absent field."""
    return {**schema, "default": value}


def without_default(schema: Schema) -> Schema:
    """The schema of a field that is never absent."""
    changed = schema.copy()
    changed.pop("default", None)
    return changed


def fields_of(schema: Schema) -> dict[str, Schema]:
    return schema.get("properties", {})


def _kinds(schema: Schema) -> list[str]:
    """The types that a value may have; none: any."""
    kinds = schema.get("type", [])
    return [kinds] if isinstance(kinds, str) else kinds


# ---- reading values


def read(value: object, schema: Schema, where: str) -> object:
    """The value, with defaults where fields are absent; raises Invalid. `where` names it for people."""
    names = _kinds(schema)
    if not names:
        return value
    for name in names:
        if _IS[name](value):
            return _read(value, schema, where)
    raise Invalid(f"{where} is {_excerpt(value)}; it must be {' or '.join(_WORDS[name] for name in names)}")


def read_text(raw: str, schema: Schema, where: str) -> object:
    """As `read`, for a value that came as text (in a path or a query)."""
    kind = schema.get("type")
    if kind == "integer" and re.fullmatch(r"-?\d{1,19}", raw, re.ASCII):
        return read(int(raw), schema, where)
    if kind == "boolean" and raw in ("true", "false"):
        return raw == "true"
    return read(raw, schema, where)


def _read(value: object, schema: Schema, where: str) -> object:
    match value:
        case str():
            return _read_text(value, schema, where)
        case bool():
            return value
        case int() | float():
            return _read_number(value, schema, where)
        case list():
            return _read_array(value, schema, where)
        case dict():
            return _read_object(value, schema, where)
        case _:
            return value


def _read_text(value: str, schema: Schema, where: str) -> str:
    if not value.isascii() and any("\ud800" <= char <= "\udfff" for char in value):
        raise Invalid(f"{where} has a lone surrogate, which is not a character")
    if "enum" in schema and value not in schema["enum"]:
        raise Invalid(f"{where} is {_excerpt(value)}; allowed: {', '.join(each for each in schema['enum'] if each)}")
    least, most = schema.get("minLength", 0), schema.get("maxLength", TEXT_CHARS_MAX)
    if not least <= len(value) <= most:
        raise Invalid(f"{where} has {len(value)} characters; it must have {least} to {most}")
    pattern = schema.get("pattern")
    if pattern is not None and not _pattern(pattern).fullmatch(value):
        raise Invalid(f"{where} is {_excerpt(value)}; it must look like {pattern}")
    return value


def _read_number(value: float, schema: Schema, where: str) -> float:
    least, above, most = schema.get("minimum"), schema.get("exclusiveMinimum"), schema.get("maximum")
    low = (least is not None and value < least) or (above is not None and value <= above)
    if low or (most is not None and value > most):
        limit = f"at least {least}" if above is None else f"more than {above}"
        raise Invalid(f"{where} is {_excerpt(value)}; it must be {limit} and at most {most}")
    return int(value) if schema.get("type") in ("integer", ["integer", "null"]) else value


def _read_array(value: list[object], schema: Schema, where: str) -> list[object]:
    least, most = schema.get("minItems", 0), schema.get("maxItems")
    if len(value) < least or (most is not None and len(value) > most):
        raise Invalid(f"{where} has {len(value)} items; it must have {least} to {most}")
    items = [read(item, schema.get("items", {}), f"{where}[{index}]") for index, item in enumerate(value)]
    if schema.get("uniqueItems") and len(set(items)) < len(items):
        raise Invalid(f"{where} names an item twice")
    return items


def _read_object(value: dict[str, object], schema: Schema, where: str) -> dict[str, object]:
    if "properties" not in schema:
        return _read_mapping(value, schema.get("additionalProperties"), where)
    fields = schema["properties"]
    for name in value:
        if name not in fields:
            raise Invalid(f"{where} has no field {_excerpt(name)}; it has {', '.join(fields)}")
    for name in schema.get("required", ()):
        if name not in value:
            raise Invalid(f"{where} must have the field '{name}'")
    found: dict[str, object] = {}
    for name, field in fields.items():
        if name in value:
            found[name] = read(value[name], field, f"{where}.{name}")
        elif PARTIAL not in schema:
            found[name] = field.get("default")
    return found


def _read_mapping(value: dict[str, object], values: bool | Schema | None, where: str) -> dict[str, object]:
    assert isinstance(values, dict), "objects that are read name their fields, or have a schema of their values"
    for name in value:
        _read_text(name, {}, f"a name in {where}")
    return {name: read(each, values, f"{where}.{_excerpt(name)}") for name, each in value.items()}


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)


def _is_integer(value: object) -> bool:
    return _is_number(value) and float(value).is_integer() if isinstance(value, float) else _is_number(value)


_IS: Final[Mapping[str, Callable[[object], bool]]] = {
    "string": lambda value: isinstance(value, str),
    "integer": _is_integer,
    "number": _is_number,
    "boolean": lambda value: isinstance(value, bool),
    "array": lambda value: isinstance(value, list),
    "object": lambda value: isinstance(value, dict),
    "null": lambda value: value is None,
}
_WORDS: Final[Mapping[str, str]] = {
    "string": "a string",
    "integer": "a whole number",
    "number": "a number",
    "boolean": "true or false",
    "array": "a list",
    "object": "an object",
    "null": "null",
}


@lru_cache(64)
def _pattern(pattern: str) -> re.Pattern[str]:
    return re.compile(pattern)


def _excerpt(value: object) -> str:
    text = ascii(value)
    return text if len(text) <= 80 else text[:77] + "…"
